"""Where a point of a box dual stands: the extremes of its groups, the KKT gap, the duality gap."""

from __future__ import annotations

from typing import NamedTuple


class Extremes(NamedTuple):
    """Where a group of variables stands.

    Attributes
    ----------
    max_up, min_low : float
        Extremes of the gradient over the variables that may rise and that may fall.
    threshold : float
        Mean gradient of the free variables, or the middle of the two extremes, or the one there is.
    """

    max_up: float
    min_low: float
    threshold: float

    @property
    def gap(self) -> float:
        """By how much the extremes overlap, 0 or more."""
        return max(self.max_up - self.min_low, 0.0)


class Optimality(NamedTuple):
    """Where a point stands, from the gradients of all rows.

    Attributes
    ----------
    groups : tuple of Extremes
    n_support, n_bounded : int
        Rows with a coefficient; variables at a bound other than 0.
    n_free : int
        Variables strictly within their box.
    linear_term : float
        ``linearᵀα``.
    outputs_term, ridge_term : float
        ``αᵀKα``, from outputs f: as exact as these are; and the rest of ``αᵀQα``.
    slack : float
        ``Σ max over the box of (gradient of α, threshold) · α``, the losses at the thresholds.
    sums_term : float
        ``Σ thresholds · sums`` over the groups.
    gap_elsewhere : float or None
        A gap that is another than the groups', where the dual measures by one.
    gap_of_farthest, gap_of_losses : float or None
        Of a ball: that gap by each of the two tests, of which it is the less.
    """

    groups: tuple[Extremes, ...]
    n_support: int
    n_bounded: int
    n_free: int
    linear_term: float
    outputs_term: float
    ridge_term: float
    slack: float
    sums_term: float
    gap_elsewhere: float | None = None
    gap_of_farthest: float | None = None
    gap_of_losses: float | None = None

    @property
    def worst(self) -> Extremes:
        """The group with the largest gap."""
        return max(self.groups, key=lambda group: group.max_up - group.min_low)

    @property
    def gap(self) -> float:
        """The KKT gap, 0 or more: what `tol` bounds, in every group."""
        return self.worst.gap if self.gap_elsewhere is None else self.gap_elsewhere

    @property
    def thresholds(self) -> tuple[float, ...]:
        """Of the groups."""
        return tuple(group.threshold for group in self.groups)

    @property
    def objective(self) -> float:
        """The dual objective, maximised."""
        return self.linear_term - 0.5 * (self.outputs_term + self.ridge_term)

    @property
    def duality_gap(self) -> float:
        """Primal minus dual objective, 0 or more at exact outputs."""
        primal = 0.5 * self.outputs_term + self.slack + self.sums_term
        return primal - self.objective
