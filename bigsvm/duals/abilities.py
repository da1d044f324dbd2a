"""What only some families can do: small protocols, which a family declares and a solver looks up.

`Steps` and `Dual` have a property for each, which is None unless a family declares it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bigsvm.arrays import F4, F8, I8, Mask
    from bigsvm.gram.low_rank import LowRank


class Settles(Protocol):
    """Steps that can go on without rows that are settled; see `bigsvm.papers.shrinking`."""

    def settled(self) -> Mask:
        """Rows that may be left out for now, (m,)."""

    def last_among(self, kept: Mask) -> I8:
        """`Point.last` when only the rows `kept`, (m,) bool, remain."""


class Climbs(Protocol):
    """Steps between which some rows can go uphill together."""

    def climbing(self, fits: Callable[[int], bool]) -> I8:
        """Rows that are to go uphill together before the next steps, (q,); often none.

        `fits` tells whether there is memory for a number of values of 4 bytes.
        """

    def climb(self, places: I8, gram: F4, *, tol: float) -> F8:
        """Move alpha of `places`, (q,), uphill; returns by how much, as alpha, (q, …).

        The gradient follows by `follow`. `gram` (q, q) is K among them.
        """

    def follow(self, change: F8, rows: Iterable[F4]) -> None:
        """Let the gradient follow a climb's change, by its kernel rows in parts of (b, ≥ m)."""


class Leap(NamedTuple):
    """Where a leap leads: a target, as `Leaps.land` wants it, and a change, (m,) or (m, k).

    The change is what makes outputs, less what it is at the origin.
    """

    target: F8
    change: F8


class Leaps(Protocol):
    """Steps that another method can replace, which works on a factor of the kernel matrix."""

    def leap_bytes(self, width: float) -> float:
        """Bytes that a leap takes if the factor has `width` columns."""

    def leap(self, origin: tuple[F8, F8], factor: F8, *, tol: float) -> Leap | None:
        """Find the optimum without steps; None if the method fails.

        The origin is `Steps.alpha` and `Steps.gradient` where steps began. The factor, (m, r), is L
        of ``L Lᵀ = K``; it is overwritten.
        """

    def land(self, origin: tuple[F8, F8], target: F8, outputs: F8, outputs_here: F8) -> None:
        """Go where a leap leads, or stay where that is better.

        Outputs, (m,) or (m, k), are those of what alpha is there, and here, less what it is at the
        origin. They are exact, and so is the gradient afterwards.
        """


class StepsTogether(Protocol):
    """A dual whose rows can step together, towards the optimum for a kernel of low rank.

    Each variable has a ridge and is bound by its box alone.
    """

    @property
    def model_rank(self) -> int:
        """Rank of a kernel that is near enough; 0 if there is none."""

    def model_optimum(self, model: LowRank, alpha: F8, gradient: F8, rows: I8) -> F8:
        """Alpha of `rows` at the optimum, if K among them were what the model is."""


class Searched(Protocol):
    """The dual of a ball, which random samples can find; see `bigsvm.balls.search`."""

    @property
    def solver(self) -> str:
        """The algorithm of the search."""

    def energy(self, value: float, *, is_exact: bool = False) -> float:
        """Return R from its computed value, but not less than the ridge makes it.

        A value that is less than that by more than rounding is refused.
        """
