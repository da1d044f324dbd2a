"""Dual and Steps: what every family of problems does; `bigsvm.duals.abilities` has what some do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from bigsvm.duals.picking import pick

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bigsvm.arrays import F4, F8, I4, I8, Mask
    from bigsvm.duals.abilities import Climbs, Leaps, Searched, Settles, StepsTogether
    from bigsvm.duals.box_problem import Optimality
    from bigsvm.duals.picking import Scores, Wanted
    from bigsvm.duals.problem import Problem


class Standing(Protocol):
    """Standing of a point: gaps and counts, from the outputs of all rows or of some."""

    @property
    def gap(self) -> float:
        """What `tol` bounds, 0 or more."""

    @property
    def objective(self) -> float:
        """The dual objective, maximised."""

    @property
    def duality_gap(self) -> float:
        """Primal minus dual objective, 0 or more at exact outputs."""

    @property
    def thresholds(self) -> tuple[float, ...]:
        """Values from which the formulation takes its intercept; empty if it has none."""

    @property
    def n_support(self) -> int:
        """Rows with a coefficient."""

    @property
    def n_bounded(self) -> int:
        """Variables, or rows, at a bound other than 0."""

    @property
    def n_free(self) -> int:
        """Variables, or rows, that can move either way."""


StandingT = TypeVar("StandingT", bound=Standing)


class EndlessError(Exception):
    """Raised by steps on variables without upper bounds that grow without end: there is no optimum.

    The steps stay where they are.
    """


class ExactKernel(Protocol):
    """Kernel values in float64."""

    def gram(self, rows: I8, /) -> F8:
        """Kernel values among rows (m,), (m, m)."""


NO_PAIR = np.full(2, -1, np.int64)
"""`Point.last` before the first step."""


class Point(NamedTuple):
    """Where steps on a working set are: all that a resumed run needs to continue to the same bits.

    alpha and gradient are (m,) or (m, …), in the shape that the dual has alpha in; the gradient is
    that at exactly this alpha. `last`, (2,) or more, is what else the steps need, such as the last
    pair; −1 before the first step. `n_done` steps were taken.
    """

    alpha: F8
    gradient: F8
    last: I8 = NO_PAIR
    n_done: int = 0


class Steps(ABC):
    """Steps on a working set, with kernel rows that the caller provides."""

    n_slack: int = 0
    """Variables without a row, after the last one, whose kernel values are 0."""

    @property
    @abstractmethod
    def point(self) -> Point:
        """Where they are; views where they can be."""

    @property
    @abstractmethod
    def gap(self) -> float:
        """Gap within the working set, 0 or more."""

    @property
    @abstractmethod
    def n_done(self) -> int:
        """Steps taken."""

    @property
    @abstractmethod
    def stamp(self) -> int:
        """Counter of the last use of a kernel row."""

    @abstractmethod
    def advance(
        self, rows: F4, slots: I4, used: I8, *, tol: float, max_steps: int
    ) -> tuple[int, int]:
        """Take steps; returns a status and the row that is missing, as `bigsvm.core.smo.run`."""

    @abstractmethod
    def violations(self, score: F4, quiet: Mask) -> None:
        """Write by how much each row violates, and whether it will hardly move; both (m,)."""

    @property
    def settles(self) -> Settles | None:
        """How settled rows are left out; None if they are not."""
        return None

    @property
    def climbs(self) -> Climbs | None:
        """How rows go uphill together; None if they do not."""
        return None

    @property
    def leaps(self) -> Leaps | None:
        """How the optimum is found without steps; None if it is not."""
        return None


class Dual(ABC, Generic[StandingT]):
    """The scoring and selecting half of a training problem, over row-sized arrays.

    Every method looks at the first rows, one for each of alpha, or at the rows listed. Alpha is
    (m,), or (m, …) where rows have several variables; outputs are (m,), or (m, k).
    """

    formulation: Problem
    rows_at_once: int | None = None
    """Most kernel rows of a working set that are fetched together; None for the usual number."""
    in_float64: bool = False
    """Whether float32 kernel values are too coarse: see `bigsvm.working_sets.newton_problem`."""

    @property
    def shrinks(self) -> bool:
        """Whether settled rows leave a working set; see `bigsvm.papers.shrinking`."""
        return False

    @property
    def solves_apart(self) -> bool:
        """Whether disjoint working sets are solved side by side, where rows are a crowd."""
        return False

    @property
    def functions(self) -> Sequence[Dual[Any]]:
        """The duals of its functions, if these share nothing but the kernel."""
        return ()

    @property
    def alike(self) -> bool:
        """Whether the functions are few, and move nearly the same rows."""
        return False

    def standings(self, standing: StandingT) -> tuple[Optimality, ...]:
        """Return the standing of each of `functions`, from that of all."""
        return ()

    @abstractmethod
    def optimality(self, alpha: F8, outputs: F8, *, rows: I8 | None = None) -> StandingT:
        """Return the standing of alpha and outputs of the first m rows, or of `rows`, (m,) int64.

        An output that is not finite is refused: sums of kernel values have left float32.
        """

    def proof(
        self, alpha: F8, outputs: F8, standing: StandingT
    ) -> dict[str, float | str | None] | None:
        """Return what is recorded of a point besides its gaps; None for most problems."""
        return None

    @abstractmethod
    def gradient(self, alpha: F8, outputs: F8, rows: I8) -> F8:
        """Gradient of the variables of `rows`, as alpha, from their f."""

    @abstractmethod
    def outputs_from(self, gradient: F8, alpha: F8, rows: I8) -> F8:
        """F of `rows`, from the gradient of their variables."""

    @abstractmethod
    def n_bounded(self, alpha: F8, rows: I8) -> int:
        """Variables, or rows, of `rows` at a bound that is not 0."""

    @abstractmethod
    def n_violating(self, alpha: F8, outputs: F8, standing: StandingT, *, tol: float) -> int:
        """Count the rows that violate by more than `tol`."""

    @property
    def searched(self) -> Searched | None:
        """The ball that a search among random samples can find; None if there is none."""
        return None

    @property
    def together(self) -> StepsTogether | None:
        """How rows step together; None if they do not."""
        return None

    @abstractmethod
    def filled(self, alpha: F8, outputs: F8) -> F8:
        """Make alpha of the first rows feasible, as if these were all rows; itself if it is."""

    @abstractmethod
    def scores(
        self, alpha: F8, outputs: F8, standing: StandingT, *, tol: float, rows: I8 | None = None
    ) -> Scores:
        """Score the first m rows, or `rows`, (m,), by what `select` chooses them by.

        alpha and outputs are those of these rows. A row violates if its gradient is on the wrong
        side by more than `tol`.
        """

    def select(self, alpha: F8, outputs: F8, standing: StandingT, wanted: Wanted) -> I8:
        """Choose from the first m rows: free ones, the worst violators, then the closest ones.

        The arguments are those of `scores`. Returns ascending rows, (s,).
        """
        return pick(self.scores(alpha, outputs, standing, tol=wanted.tol), wanted)

    @abstractmethod
    def begin(self, start: Point, rows: I8, *, diagonal: F8) -> Steps:
        """Return the steps on the working set `rows`, (m,), at their start or where they continue.

        The diagonal, (m,), is the kernel values of the rows with themselves.
        """

    @abstractmethod
    def infeasible(self, alpha: F8, *, rows: I8 | None = None, adds_up: bool = True) -> str:
        """Describe why a point is infeasible beyond rounding; an empty string if it is feasible.

        alpha has the variables of the first rows, or of `rows`. If it `adds_up`, equality
        constraints are checked too, as if these rows were all rows.
        """

    @abstractmethod
    def knows_last(self, last: I8, size: int, *, sets: Sequence[int] | None = None) -> bool:
        """Whether `begin` can continue from `last`, the `Point.last` of an interrupted run.

        The working set has `size` rows. `sets` has the sizes of the functions' working sets, if
        each has its own.
        """

    @abstractmethod
    def doubtful(self, alpha: F8, outputs: F8, *, tol: float, error: float) -> I8:
        """Rows whose outputs decide the gaps, if any output may be wrong by `error`; ascending.

        They include every row that may violate by more than `tol`, or as much as any, and where
        there are thresholds, rows at a bound that may be on the wrong side of one, and free rows
        whose loss has no limit or is squared. For a ball the array is empty if the gap is at most
        `tol` in any case. alpha and outputs are those of all rows.
        """

    def slopes(self, alpha: F8, outputs: F8, rows: I8, standing: StandingT) -> F8 | float:
        """Return derivatives of the duality gap by the outputs of `rows`, (m,) or (m, …).

        alpha and outputs are those of `rows`. The derivatives are for rows that are not in doubt,
        and 0 where such rows do not change the duality gap.
        """
        return 0.0

    @abstractmethod
    def newton(
        self, alpha: F8, outputs: F8, standing: StandingT, exact: ExactKernel, *, tol: float
    ) -> F8 | None:
        """Solve for all rows that are not at a bound together, by Newton's method.

        alpha and outputs are those of all rows, in float64. Returns the new alpha of all rows; None
        if too many rows are free.
        """
