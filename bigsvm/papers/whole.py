"""All rows are one working set: plain SMO, with kernel rows computed on demand or kept on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bigsvm.duals.kept_rows import leaves_out
from bigsvm.papers.shrinking import ShrinkingProblem
from bigsvm.training import events
from bigsvm.working_sets.choice import Choice
from bigsvm.working_sets.subproblem import Memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from bigsvm.arrays import F8, I8
    from bigsvm.duals.dual import Standing
    from bigsvm.gram.row_cache import RowBuffer, RowTier
    from bigsvm.papers.disk import DiskCache
    from bigsvm.training.run import Run


class WholeChoice(Choice):
    """Takes all rows as one working set; a `disk` keeps kernel rows besides memory.

    The counters of the run have the decision whether to keep them.
    """

    def __init__(self, run: Run, *, tol: float, disk: DiskCache | None = None) -> None:
        super().__init__(run.dual, run.source, run.plan, tol=tol, rng=run.rng)
        self._run, self._disk = run, disk
        self._inherits: bool | None = None  # whether an earlier process left kernel rows on disk

    def scope_after(self, scope: int) -> int:
        """Return the number of all rows."""
        return self._n_rows

    def active_rows(
        self, alpha: F8, outputs: F8, standing: Standing, *, after_full_sweep: bool
    ) -> tuple[I8, bool]:
        """Return all rows, which take pair steps only."""
        return np.arange(len(alpha)), False

    def takes_all(self, n_active: int) -> bool:
        """Whether these are all rows."""
        return n_active == self._n_rows

    def memory(self, buffer: RowBuffer) -> Memory:
        """Return the memory of all rows, which all kernel rows that fit use from the first."""
        tier = self._tier()  # it decides once whether kernel rows are kept
        run = self._run
        # A run that has left rows out goes on so, where it has more memory too.
        shrinks = (run.dual.shrinks and not run.count.keeps_rows) or leaves_out(run.state.pair)
        problem = ShrinkingProblem if shrinks and not run.dual.functions else None
        return Memory(buffer, tier=tier, spare=self.plan.block_bytes, problem=problem)

    def _tier(self) -> Callable[[RowTier], RowTier] | None:
        """Open the kernel rows on disk, where rows are kept there.

        The first decision holds for the whole run, also where it is resumed: a run that keeps rows
        leaves none out. Nothing is decided while a working set goes on with rows left out, as it
        does where the stopped run had no disk cache.
        """
        run, count = self._run, self._run.count
        is_decided = count.disk_tier is not None
        is_refused = is_decided and not count.keeps_rows
        if self._disk is None or is_refused or leaves_out(run.state.pair):
            return None
        tier = self._disk.opened(run.source.n_rows, is_kept=is_decided)
        if not is_decided:
            count.disk_tier, count.keeps_rows = tier.decision.reason, tier.decision.keep
        run.listener(events.TierChosen(tier.decision.reason))
        if not tier.decision.keep:
            return None
        if self._inherits is None:
            self._inherits = tier.has_earlier_rows
        run.computed_outputs &= not self._inherits
        return tier.over

    def distrust_kept_rows(self) -> None:
        """Stop using kernel rows that an earlier process left on disk."""
        if self._inherits:
            self._disk = None
