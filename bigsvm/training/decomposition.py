"""The outer loop: select a working set, solve on it, sweep; until a full sweep certifies.

    state: alpha and f = K beta, row-sized, checkpointed
    repeat
      select   working set W: free rows, worst violators, next closest to violating
      solve    the dual restricted to W, kernel rows of W made on demand
      sweep    f += K(all rows, W) Δbeta[W], streaming the rows
    until the KKT gap over all rows is at most tol

The first working sets are nested random samples, each solved loosely from the one before: the first
sweep over all rows then starts from a useful point for a few percent of its cost.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from bigsvm.core.smo import REFRESH
from bigsvm.duals.box import Optimality, Progress, SubProblem
from bigsvm.errors import MemoryBudgetError
from bigsvm.tiles import Columns
from bigsvm.training import events
from bigsvm.training.certify import certify
from bigsvm.training.conclude import conclude
from bigsvm.training.result import StopReason
from bigsvm.training.saving import Saver
from bigsvm.training.start import SAMPLE_GROWTH, draw_sample, first_working_set
from bigsvm.training.state import Counters, Limits, Phase, RowState, Stopped
from bigsvm.training.sweep import choose, sweep
from bigsvm.training.working_rows import WorkingRows

if TYPE_CHECKING:
    from collections.abc import Callable

    from bigsvm.budget import TrainingPlan
    from bigsvm.data.rows import Rows, RowSource
    from bigsvm.duals.box import BoxDual
    from bigsvm.tiles import KernelTiles
    from bigsvm.training.checkpoint import Checkpoint
    from bigsvm.training.result import TrainingResult

SAMPLE_TOL = 0.05
"""Nested samples are solved to this KKT gap only; what they lead to is swept over all rows next."""
INNER_TOL = 0.5
"""A working set is solved to this share of tol, so that its own gap leaves room for the others'."""
FINEST_INNER_TOL = 1e-7
"""Below it pair steps on float32 kernel values only chase their rounding, for ever."""
FILL = 2.0
"""A working set has this many times the free and violating rows: half of it nearly violates."""
SMALLEST_SET = 2048
PATIENCE = 10
"""Sweeps without a better gap or objective after which a run is stalled, if it is not converged."""


class Decomposition:
    """One training run; see the module's docstring.

    Parameters
    ----------
    source : RowSource
    dual : BoxDual
    tiles : KernelTiles
        float32.
    plan : TrainingPlan
    tol : float
        KKT gap to reach.
    seed : int
        Of the nested samples, and of the choice among too many violators.
    limits : Limits
    checkpoint : Checkpoint or None
        Where to save, and what to resume from if it holds anything.
    checkpoint_every : float
        Seconds between two saves.
    listener : callable
        Told every event.
    """

    def __init__(
        self,
        source: RowSource,
        dual: BoxDual,
        tiles: KernelTiles,
        plan: TrainingPlan,
        *,
        tol: float,
        seed: int = 0,
        limits: Limits | None = None,
        checkpoint: Checkpoint | None = None,
        checkpoint_every: float = 60.0,
        listener: events.Listener = events.ignore,
    ) -> None:
        self.source, self.dual, self.tiles, self.plan = source, dual, tiles, plan
        self.tol = tol
        self.limits = limits or Limits()
        self.listener = listener
        self._rows = WorkingRows(source)
        self._buffer = np.empty(plan.gram_bytes // 4, np.float32)
        self._saver = Saver(checkpoint, every=checkpoint_every, listener=listener)
        self._started = time.monotonic()
        self._stop: StopReason | None = None
        self._at: Optimality | None = None
        self._rng = np.random.default_rng(seed)
        saved = checkpoint.latest() if checkpoint else None
        if saved is None:
            self.count = Counters()
            self.state = self._first_state()
        else:
            self.count = Counters(**{**saved.values, "phase": Phase(saved.values["phase"])})
            arrays = {name: np.array(array) for name, array in saved.arrays.items()}
            self.state = RowState(**arrays)
            self._rng.bit_generator.state = self.count.random_state
            self._fit_into(plan)
        self._before = (self.count.seconds, self.count.n_kernel_evaluations, self.count.bytes_read)

    def _first_state(self) -> RowState:
        n = self.source.n_rows
        sample = draw_sample(self.source, self.plan.working_set, self._rng)
        empty = np.empty(0)
        return RowState(
            np.zeros(n),
            np.zeros(n),
            sample,
            np.empty(0, np.int64),
            empty,
            empty,
            np.full(2, -1, np.int64),
        )

    def _fit_into(self, plan: TrainingPlan) -> None:
        """Give up a saved working set that is too large for the memory of now.

        Raises
        ------
        MemoryBudgetError
            The run was saved in the middle of a sweep with it, which only it can complete.
        """
        count, state = self.count, self.state
        if len(state.working_set) <= plan.working_set:
            return
        if count.phase is Phase.SWEEP and count.rows_done:
            raise MemoryBudgetError(
                f"the checkpoint is in the middle of a sweep with {len(state.working_set)} rows, "
                f"and this memory holds {plan.working_set}; resume with as much memory as before"
            )
        count.phase = Phase.SELECT
        self.state = state._replace(sample=state.sample[: plan.working_set])

    # -- the loop ----------------------------------------------------------------------------

    def run(self) -> TrainingResult:
        """Train until certified or stopped; the result says which."""
        self.listener(
            events.Planned(
                self.source.n_rows,
                self.source.n_columns,
                self.plan.working_set,
                self.plan.projected,
                self.count.n_sweeps,
            )
        )
        steps = {Phase.SELECT: self._select, Phase.SOLVE: self._solve, Phase.SWEEP: self._sweep}
        try:
            while self._stop is None:
                steps[self.count.phase]()
        except Stopped as stopped:
            self._stop = stopped.reason
        if self._stop is not StopReason.CONVERGED:
            self._save()
        return self._result(self._stop)

    def _select(self) -> None:
        """Score all rows; stop if they are optimal, else choose the next working set."""
        state, count = self.state, self.count
        at = self._at = self.dual.optimality(state.alpha, state.outputs)
        if count.n_sweeps:
            self._judge(at)
            if self._stop is not None:
                return
            working_set = self.dual.select(
                state.alpha,
                state.outputs,
                self._at,
                capacity=self.plan.working_set,
                smallest=SMALLEST_SET,
                fill=FILL,
                rng=self._rng,
            )
        else:
            working_set, sample = first_working_set(
                self.dual.formulation, state.sample, self.source.n_rows
            )
            state = state._replace(sample=sample)
        linear = self.dual.formulation.box(working_set).linear
        self.state = state._replace(
            working_set=working_set,
            working_alpha=state.alpha[working_set],
            working_gradient=linear - state.outputs[working_set],
            pair=np.full(2, -1, np.int64),
        )
        count.sub_steps = 0
        count.phase = Phase.SOLVE

    def _judge(self, at: Optimality) -> None:
        """Decide whether the point of the last sweep ends the run."""
        count = self.count
        count.gap, count.objective = at.gap, at.objective
        certified = at.gap <= self.tol
        if certified:
            # Saved as it is now: whoever resumes a finished run certifies it to the same bits.
            self._save()
            at = self._at = self._certify()
        count.judge(at)
        if count.fruitless >= PATIENCE and not certified:
            at = self._at = self._certify()
        self.listener(
            events.Swept(
                count.n_sweeps,
                at.gap,
                self.tol,
                at.objective,
                at.n_support,
                at.n_bounded,
                self._seconds(),
            )
        )
        if at.gap <= self.tol:
            self._stop = StopReason.CONVERGED
        elif self._steps_allowed() == 0:
            self._stop = StopReason.MAX_ITER
        elif count.fruitless >= PATIENCE:
            self._stop = StopReason.STALLED

    def _solve(self) -> None:
        """Pair steps on the working set, in slices, until its tolerance is reached."""
        state, count = self.state, self.count
        rows = self._rows.gather(state.working_set, self._look)
        problem = SubProblem(
            self.dual,
            self.tiles,
            rows,
            state.working_set,
            state.working_alpha,
            state.working_gradient,
            buffer=self._buffer,
            pair=state.pair,
            steps=count.sub_steps,
        )
        last_sample = not count.sampling or self._is_everything()
        tol = max(INNER_TOL * self.tol, FINEST_INNER_TOL if last_sample else SAMPLE_TOL)
        misses = 0
        progress = Progress.STEPS_SPENT
        while progress is Progress.STEPS_SPENT and self._steps_allowed():
            before = problem.steps
            progress = problem.advance(tol=tol, max_steps=self._steps_allowed(), look=self._look)
            count.n_iter += problem.steps - before
            count.row_misses += problem.cache.n_misses - misses
            misses = problem.cache.n_misses
            self._keep(problem)
            self.listener(events.Solving(problem.size, count.n_iter, problem.gap))
            if progress is Progress.STEPS_SPENT:
                self._pause()
        self._keep(problem)
        if count.sampling and self._grow_sample(rows):
            return
        count.sampling = False
        count.rows_done = 0
        count.phase = Phase.SWEEP

    def _steps_allowed(self) -> int:
        """Pair steps of the next slice; 0 where max_iter has been reached."""
        if self.limits.max_iter < 0:
            return REFRESH
        return min(REFRESH, max(0, self.limits.max_iter - self.count.n_iter))

    def _keep(self, problem: SubProblem) -> None:
        self.state = self.state._replace(
            working_alpha=problem.alpha.copy(),
            working_gradient=problem.gradient.copy(),
            pair=problem.state.pair.copy(),
        )
        self.count.sub_steps = problem.steps

    def _is_everything(self) -> bool:
        return len(self.state.working_set) == self.source.n_rows

    def _grow_sample(self, rows: Rows) -> bool:
        """Go on to the next nested sample; False where this was the last."""
        state, count = self.state, self.count
        size = len(state.working_set)
        if size >= len(state.sample) or self._steps_allowed() == 0:
            return False
        grown = state.sample[: min(size * SAMPLE_GROWTH, len(state.sample))]
        alpha = np.zeros(len(grown))
        alpha[:size] = state.working_alpha
        moved = state.working_alpha != 0
        outputs = np.zeros(len(grown))
        columns = self._columns(choose(rows, moved))
        values = self._rows.gather(grown, self._look)
        self.tiles.multiply(values, columns, state.working_alpha[moved], outputs)
        self.state = state._replace(
            working_set=grown,
            working_alpha=alpha,
            working_gradient=self.dual.formulation.box(grown).linear - outputs,
            pair=np.full(2, -1, np.int64),
        )
        count.sub_steps = 0
        return True

    def _sweep(self) -> None:
        """Bring f of every row up to date with the working set's new alpha."""
        state, count = self.state, self.count
        change = state.working_alpha - state.alpha[state.working_set]
        moved = change != 0
        if moved.any():
            columns = self._columns(choose(self._rows.gather(state.working_set, self._look), moved))

            def on_progress(rows_done: int) -> None:
                count.rows_done = rows_done
                self.listener(
                    events.Sweeping(count.n_sweeps + 1, rows_done, self.source.n_rows, columns.n)
                )
                self._pause()

            sweep(
                self.tiles,
                self.source,
                columns,
                change[moved],
                state.outputs,
                block_bytes=self.plan.block_bytes,
                start=count.rows_done,
                on_progress=on_progress,
            )
        state.alpha[state.working_set] = state.working_alpha
        count.n_sweeps += 1
        count.phase = Phase.SELECT

    def _columns(self, rows: Rows) -> Columns:
        return Columns(self.tiles, rows, sparse_partners=self.source.is_sparse)

    # -- the end -------------------------------------------------------------------------------

    def _certify(self, look: Callable[[], None] | None = None) -> Optimality:
        """Look at the point again, in float64."""
        return certify(
            self.dual,
            self.source,
            self.tiles,
            self._rows.gather,
            self.state.alpha,
            self.state.outputs,
            tol=self.tol,
            rows_at_once=max(1, self.plan.working_set // 2),
            look=look or self._look,
        )

    def _result(self, reason: StopReason) -> TrainingResult:
        """Return the last point with complete outputs; else the working set's, its gap unknown."""
        state, count = self.state, self.count
        half_swept = count.phase is Phase.SWEEP and count.rows_done > 0
        alpha, at = state.alpha, None
        if not count.n_sweeps or half_swept:
            alpha = state.alpha.copy()
            alpha[state.working_set] = state.working_alpha
        elif reason is StopReason.MAX_ITER:
            at = self._certify(look=lambda: None)
        elif self._at is not None and reason in (StopReason.CONVERGED, StopReason.STALLED):
            at = self._at
        else:
            at = self.dual.optimality(alpha, state.outputs)
        self._account()
        return conclude(self.dual, state, count, reason=reason, tol=self.tol, alpha=alpha, at=at)

    # -- time and checkpoints --------------------------------------------------------------------

    def _seconds(self) -> float:
        return self._before[0] + time.monotonic() - self._started

    def _account(self) -> None:
        _, evaluations, read = self._before
        self.count.seconds = self._seconds()
        self.count.n_kernel_evaluations = evaluations + self.tiles.n_evaluations
        self.count.bytes_read = read + self.source.bytes_read

    def _look(self) -> None:
        """Raise `Stopped` if the run is to end."""
        if self.limits.interrupted():
            raise Stopped(StopReason.INTERRUPTED)
        if time.monotonic() - self._started >= self.limits.max_seconds:
            raise Stopped(StopReason.TIME_LIMIT)

    def _pause(self) -> None:
        """Between two slices, where the state is whole: stop if asked to, save if it is time."""
        self._look()
        if self._saver.is_due():
            self._save()

    def _save(self) -> None:
        self._account()
        self.count.random_state = dict(self._rng.bit_generator.state)
        self._saver.save(self.state, self.count)
