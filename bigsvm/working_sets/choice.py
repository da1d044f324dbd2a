"""The choice of scopes, active rows and working sets, and of the tolerances they are solved to.

Rows are in random order, so the first of them, a scope, are a random sample of all. Each scope is
solved loosely from the one before, and the first sweep over all rows then starts from a useful
point for a few percent of its cost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigsvm.duals.picking import Crowd, Wanted, neighbourhoods, pick
from bigsvm.gram.low_rank import rank_of_model
from bigsvm.working_sets.subproblem import Memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from bigsvm.arrays import F8, I8
    from bigsvm.budget import TrainingPlan
    from bigsvm.data.row_source import RowSource
    from bigsvm.duals.dual import Dual, Standing
    from bigsvm.gram.row_cache import RowBuffer

DIRECT_ROWS = 8192
"""Up to this many rows, the first scope is all of them, which halves the pair steps."""
FIRST_SCOPE = 2000
GROWTH = 1.75
"""Factor of the rows in the next scope: less makes many scopes, more makes them too large."""
GROWTH_OUT_OF_CORE = 3.0
"""The same if rows are read again for each scope, or several functions are trained together: each
scope costs part of a pass."""
SCOPE_TOL = 0.05
"""A scope that is not all rows is solved to this KKT gap only, in units of `Problem.scale` (1 for
labels ±1): larger scopes follow."""
INNER_TOL = 0.5
"""Active rows are solved to this share of tol, so that their own gap leaves others room."""
NEAR = 2.0
"""`NEAR_TOL` holds if the gap is below this many times the goal: a certificate has just failed."""
NEAR_TOL = 0.75
"""Share of the goal to which rows are solved then: few rows move, so their sweep costs little."""
WORKING_TOL = 0.9
"""Share of the tolerance of the active rows to which a working set of some of them is solved: the
other rows add to their gap."""
LOOSE = 0.01
"""A working set among other rows is solved to this share of the gap it was chosen at: the next set
moves the same variables again."""
LAST = 10.0
"""If that share is less than this many times the tolerance, the set may be the last one, and is
solved to the tolerance."""
FINEST_INNER_TOL = 1e-7
"""Below it pair steps on float32 kernel values only chase their rounding, for ever."""
FILL = 1.5
"""Factor of the free and violating rows: size of a working set; the other rows nearly violate."""
SMALLEST_SET = 2048
"""Fewest rows of a working set, if the problem has that many."""
LARGEST_SET = 6144
"""Most rows of a working set, unless more are free."""
TIGHT_FILL = 1.25
"""Factor of the free rows: a working set has at least this many rows even if too few of its kernel
rows fit, because free rows that are solved in parts disturb one another for ever."""
FIRST_BYTES = 64_000_000
"""Bytes of kernel rows that are in memory at first, at least. There are more once too many of them
are fetched again."""
SHARE_OF_SLOTS = 0.15
"""Share of a working set whose kernel rows are in memory at first."""
LEAST_SHARE = 0.5
"""Least share of the active rows in a working set: after each set all active rows are updated, so
few large sets cost less than many small ones."""
MANY_TOGETHER = 4000
"""If more rows than this violate, they step together where the family can."""
TOGETHER_FILL = 1.15
"""Factor of the free and violating rows: this many rows are active where they step together. A row
that is left out and comes to violate costs another round."""
BAND = (0.2, 0.4)
"""Least and largest share of all rows that are active after the first full sweep: a row left out
that comes to violate costs another sweep, and active rows cost sweeps of their own."""
MARGIN = 0.05
"""Rows within this share of the KKT gap from violating are active too: nearly all rows that come to
violate are among them."""


class WorkingSet(NamedTuple):
    """Variables that are solved for: all variables of some rows, or those of several sets.

    Several sets are one for each function; or of one function, disjoint and solved side by side.

    Attributes
    ----------
    rows : (m,) int64
        Rows of the problem, ascending; of several sets, ascending in each, one after the other.
    sizes : (k,) int64, or (0,)
        Rows in each of several sets; (0,) if one set has all variables of its rows.
    alpha, gradient : (m, …) float64, or (m,) of several sets
    """

    rows: I8
    sizes: I8
    alpha: F8
    gradient: F8

    @property
    def functions(self) -> I8:
        """Function of each row of several sets, (m,)."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    @property
    def largest(self) -> int:
        """Rows of the largest set."""
        return int(self.sizes.max()) if len(self.sizes) else len(self.rows)


class Choice:
    """Chooses scopes, active rows and working sets of one run, which certifies its result.

    The run has to reach the KKT gap `tol`. This holds no state of the run but `rng`, which chooses
    among too many violators.
    """

    def __init__(
        self,
        dual: Dual[Any],
        source: RowSource,
        plan: TrainingPlan,
        *,
        tol: float,
        rng: np.random.Generator,
    ) -> None:
        self._dual, self.plan, self.rng = dual, plan, rng
        # Whether a constraint binds the variables of a row in several functions together.
        self._ties_functions = dual.formulation.n_outputs > 1 and not dual.functions
        self._tol = tol
        self._n_rows = source.n_rows
        self._samples = source.is_shuffled
        # Rows that are not in memory cost a pass whenever they are looked at again.
        self._in_core = source.row_alignment <= 1

    def scope_after(self, scope: int) -> int:
        """Rows that take part next; all of them unless the first rows are a random sample.

        The first time, `scope` is 0.
        """
        if not self._samples:
            return self._n_rows
        if scope == 0:
            return self._n_rows if self._n_rows <= DIRECT_ROWS else FIRST_SCOPE
        costly = self._dual.functions or not self._in_core
        growth = GROWTH_OUT_OF_CORE if costly else GROWTH
        grown = int(scope * growth)
        # A last step that would add little is taken with the one before it.
        return self._n_rows if grown * (1 + growth) / 2 >= self._n_rows else grown

    def memory(self, buffer: RowBuffer) -> Memory:
        """Return the memory of the next working set."""
        return Memory(buffer, self._first_slots, spare=self.plan.block_bytes)

    def _first_slots(self, size: int) -> int | None:
        """Kernel rows of a working set that are in memory at first; None for all that fit.

        A set that is solved for several functions together is small, and each needs rows of its
        own.
        """
        if self._ties_functions:
            return None
        return max(FIRST_BYTES // (4 * size), int(SHARE_OF_SLOTS * size))

    def distrust_kept_rows(self) -> None:
        """Stop using kernel rows that an earlier process has kept: they may be wrong."""

    def active_tol(self, scope: int, standing: Standing) -> float:
        """KKT gap to which the active rows of a scope with this standing are solved."""
        return self._tol_of(standing, is_last=scope == self._n_rows)

    def _tol_of(self, standing: Standing, *, is_last: bool) -> float:
        """KKT gap to which rows are solved; `is_last` says that no other rows follow."""
        is_near = self._tol < standing.gap < NEAR * self._tol
        tol = max((NEAR_TOL if is_near else INNER_TOL) * self._tol, FINEST_INNER_TOL)
        if is_last:
            return tol
        return max(tol, SCOPE_TOL * self._dual.formulation.scale(standing.thresholds))

    def one_set_is_enough(self, *, knows_all_outputs: bool) -> bool:
        """Whether a scope is solved by one working set: for functions, until the first full sweep.

        Only the outputs of all rows show which rows matter.
        """
        return bool(self._dual.functions) and not knows_all_outputs

    # -- when scopes grow and end --------------------------------------------------------------

    def end(self, standing: Standing) -> str | None:
        """Return why the run ends at this point of a scope, without a certificate; None if not."""
        return None

    def grows(self) -> bool:
        """Whether the scope grows after a sweep over it."""
        return True

    def growing(self, stop: int) -> None:
        """Note that outputs of the rows up to `stop` are known, before they take part."""

    @property
    def returns_current(self) -> bool:
        """Whether a run that is stopped returns its current point, also before it is swept."""
        return False

    # -- active rows and working sets ----------------------------------------------------------

    def active_rows(
        self, alpha: F8, outputs: F8, standing: Standing, *, after_full_sweep: bool
    ) -> tuple[I8, bool]:
        """Choose the active rows, ascending, and whether they step together.

        Alpha, outputs and their standing are those of the scope. There are no active rows where
        functions choose among all rows.
        """
        scope, most = len(alpha), self.plan.active_rows
        tol = self._tol_of(standing, is_last=scope == self._n_rows)
        together = self._step_together(alpha, outputs, standing, tol)
        band = (0, 0)
        if after_full_sweep and scope == self._n_rows:
            fewest, largest = (int(share * scope) for share in BAND)
            band = (fewest, min(largest, most))
        one_set = self._in_core and not self._dual.functions and not together
        # In memory, only rows that violate by more than the tolerance of the first set count as a
        # crowd. Elsewhere each sweep reads all rows again, so smaller violators are active too.
        wanted = Wanted(
            capacity=self._capacity(standing) if one_set else most,
            smallest=DIRECT_ROWS if self._n_rows <= DIRECT_ROWS else SMALLEST_SET,
            fill=TOGETHER_FILL if together else FILL,
            rng=self.rng,
            tol=self.loose_tol(standing, tol) if one_set else tol,
            band=band,
            margin=MARGIN * standing.gap,
            crowd=Crowd(most) if one_set else None,
        )
        return self._dual.select(alpha, outputs, standing, wanted), together

    def _step_together(self, alpha: F8, outputs: F8, standing: Standing, tol: float) -> bool:
        """Whether very many rows of the scope violate, and rows can step together."""
        together, most = self._dual.together, min(len(alpha), self.plan.active_rows)
        if together is None or most <= MANY_TOGETHER or standing.gap <= tol:
            return False
        if self._dual.n_violating(alpha, outputs, standing, tol=tol) <= MANY_TOGETHER:
            return False
        return bool(rank_of_model(most, self.plan.gram_bytes, wanted=together.model_rank))

    def takes_all(self, n_active: int) -> bool:
        """Whether the active rows are one working set: all rows of the problem, and few."""
        return n_active == self._n_rows <= min(self.plan.working_set, LARGEST_SET)

    def solves_together(self, n_active: int) -> bool:
        """Whether several functions have one working set, of all active rows."""
        return n_active <= min(LARGEST_SET, self.plan.working_set)

    def working_set(
        self,
        dual: Dual[Any],
        alpha: F8,
        outputs: F8,
        standing: Standing,
        *,
        rows: I8,
        near: Callable[[int], F8],
        tol: float,
        n_sets: int = 1,
    ) -> tuple[list[I8], float]:
        """Choose a working set: ascending places among the active rows, and its own tolerance.

        The dual is that of the run, or of one of its functions; alpha, outputs and `rows` are (b,).
        `near` returns kernel values, (b,), of these rows with the one at a place. `tol` is the KKT
        gap they are to reach among themselves. Of a crowd, `n_sets` disjoint sets are chosen.
        """
        n_active, capacity = len(rows), self._capacity(standing)
        if self.takes_all(n_active):
            return [np.arange(n_active)], tol
        if self._ties_functions and n_active <= self.plan.working_set:
            # Row steps look at few of the rows: those that do not violate cost them little.
            return [np.arange(n_active)], self.loose_tol(standing, tol)
        wanted = Wanted(
            capacity=capacity,
            smallest=max(SMALLEST_SET, int(LEAST_SHARE * n_active)),
            fill=FILL,
            rng=self.rng,
            tol=self.loose_tol(standing, tol),
            crowd=Crowd(capacity, near=near),
        )
        scores = dual.scores(alpha, outputs, standing, tol=wanted.tol, rows=rows)
        is_crowd = n_active >= FILL * capacity and np.count_nonzero(scores.asked) > capacity
        # Free rows disturb one another. Where one set has no room for them, no crowd would end.
        if n_sets > 1 and is_crowd and capacity >= FILL * scores.n_free:
            sets = neighbourhoods(n_sets, capacity, n=n_active, near=near, rng=self.rng)
        else:
            sets = [pick(scores, wanted)]
        share = WORKING_TOL if len(sets[0]) < n_active else 1.0
        return sets, self.loose_tol(standing, share * tol)

    def loose_tol(self, standing: Standing, tol: float) -> float:
        """Tolerance of a working set that was chosen at this standing."""
        loose = LOOSE * standing.gap
        return loose if loose > LAST * tol else tol

    def _capacity(self, standing: Standing) -> int:
        """Most rows of a working set at this point."""
        plan, n_free = self.plan, standing.n_free
        wanted = max(LARGEST_SET, int(FILL * n_free))
        held = max(plan.working_set, min(int(TIGHT_FILL * n_free), plan.widest_set))
        return min(wanted, held)
