"""The outer loop: choose active rows, solve on them, sweep; until a full sweep certifies.

f is the outputs, ``f = K beta``, where beta_i is the sum of the signed variables of row i. The
scope is the first rows, which take part so far (`bigsvm.working_sets.scopes`). The state is alpha
and f, both row-sized and checkpointed; f is exact for the rows of the scope. The loop repeats::

    score    violation of every row of the scope, from f
    select   active rows: free rows, worst violators, next closest to violating
    solve    the dual restricted to them, one working set of pair steps after the other
    sweep    f += K(other rows of the scope, active) Δbeta[active], streaming the rows
    grow     f of the next rows, while the scope is not all of them

until the KKT gap over all rows is at most tol, or the choice of rows ends the run without that.
With very many functions, each function has its own working set among all rows instead of active
rows; the loop is the same (`bigsvm.working_sets.functions`).

The solve phase is `bigsvm.training.solve`; what all phases change is `bigsvm.training.run`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bigsvm.duals.dual import EndlessError
from bigsvm.executors.local import LocalExecutor
from bigsvm.executors.weighted import WeightedRows
from bigsvm.executors.working_rows import WorkingRows
from bigsvm.gram.weights import weighted_rows
from bigsvm.interruption import checked_by
from bigsvm.training import events
from bigsvm.training.certify import certify
from bigsvm.training.conclude import conclude
from bigsvm.training.confirm import confirm
from bigsvm.training.result import StopReason
from bigsvm.training.solve import Solve
from bigsvm.training.state import SURROUNDINGS_FAILED, Phase, Stopped
from bigsvm.training.sweep import Passes
from bigsvm.working_sets.functions import moved_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from bigsvm.duals.dual import Standing
    from bigsvm.executors.executor import Executor
    from bigsvm.training.result import TrainingResult
    from bigsvm.training.run import Run
    from bigsvm.training.state import Counters, RowState
    from bigsvm.working_sets.choice import Choice

SPARSE_VALUES = 1 << 16
"""Most columns counted per sparse row: a tile has only the columns that occur in it."""
UNCONFIRMED = 0.5
"""Largest error, in units of the tolerance, of outputs derived from files of earlier processes:
outputs with larger errors are replaced."""
PATIENCE = 10
"""Sweeps without a better gap or objective after which a run is stalled, if it is not converged."""


class Decomposition:
    """One training run; see the module's docstring.

    Parameters
    ----------
    run : Run
        Where the run is: new, or resumed.
    tol : float
        KKT gap to reach.
    choice : Choice
        Chooses scopes, active rows and working sets, and whether the run ends uncertified.
    executor : Executor, optional
        Computes passes and large products, and reads rows; by default this process does.
    by_halves : bool
        See `Exact`.
    """

    def __init__(
        self,
        run: Run,
        *,
        tol: float,
        choice: Choice,
        executor: Executor | None = None,
        by_halves: bool = True,
    ) -> None:
        source, dual, tiles, plan = run.source, run.dual, run.tiles, run.plan
        self.source, self.dual, self.tiles, self.plan = source, dual, tiles, plan
        self._run, self.listener = run, run.listener
        self.tol = tol
        self._by_halves = by_halves
        if executor is None:
            executor = LocalExecutor(source, tiles, block_bytes=plan.block_bytes)
        self._executor, self._rows = executor, WorkingRows(source, executor.take)
        self._stop: StopReason | None = None
        self._standing: Standing | None = None
        self._watch = run.watch
        self._choice = choice
        self._solve = Solve(run, self._rows, choice, executor)
        self._passes = Passes(
            self._executor, plan, self._rows, self.count,
            watch=self._watch, listener=run.listener, pause=run.pause,
        )  # fmt: skip
        if run.is_new and not self.count.knew_outputs:
            self.count.scope = self._first_scope()

    @property
    def state(self) -> RowState:
        """Arrays of the run."""
        return self._run.state

    @property
    def count(self) -> Counters:
        """Counters: where the loop is, and what it has cost."""
        return self._run.count

    # -- the loop ----------------------------------------------------------------------------

    def run(self) -> TrainingResult:
        """Train until certified or stopped; the result says which."""
        self.listener(
            events.Planned(
                self.source.n_rows,
                self.source.n_features,
                self.plan.working_set,
                self.plan.projected,
                self.count.n_sweeps,
            )
        )
        phases: dict[Phase, Callable[[], None]] = {
            # 1 score   violation of every row of the scope, from f: stop if none is left
            # 2 select  active rows: free rows, worst violators, next closest to violating
            Phase.SELECT: self._select,
            # 3 solve   the dual restricted to the active rows, on their kernel rows
            Phase.SOLVE: self._solve,
            # 4 sweep   f += K(other rows of the scope, active) Δbeta[active], streaming the rows
            Phase.SWEEP: self._sweep,
            # 5 grow    f of the next rows, while the scope is not all of them
            Phase.GROW: self._grow,
            #   fill    variables of a new scope, if they must add up to more than 0
            Phase.FILL: self._fill,
        }
        try:
            with checked_by(self._watch.check):
                self._executor.wait_until_ready()
                while self._stop is None:
                    self._run.give_back_memory()
                    phases[self.count.phase]()
        except Stopped as stopped:
            self._stop = stopped.reason
        except EndlessError:
            self._stop = StopReason.ENDLESS
        except SURROUNDINGS_FAILED:
            self._run.save()
            raise
        if self._stop is not StopReason.CONVERGED:
            self._run.save()
        return self._result(self._stop)

    def _select(self) -> None:
        """Score the rows of the scope; stop if all are optimal, else choose the active ones."""
        count = self.count
        alpha, outputs = self._run.of_scope()
        standing = self._standing = self.dual.optimality(alpha, outputs)
        if (reason := self._choice.end(standing)) is not None:
            self._stop = StopReason(reason)
            # What is returned is the whole scope, not the rows that were solved last.
            self._run.state = self.state.without_active_rows()
            return
        if count.n_sweeps:
            standing, self._stop = self._judge(standing)
            if self._stop is not None:
                return
        count.active_tol = self._choice.active_tol(count.scope, standing)
        if standing.gap <= count.active_tol and not self._run.has_all_rows:
            count.phase = Phase.GROW
            return
        count.together = self._choice.steps_together(alpha, outputs, standing)
        active = self._choice.active_rows(
            alpha,
            outputs,
            standing,
            after_full_sweep=self._run.knows_all_outputs,
            together=count.together,
        )
        self._run.state = self.state._replace(
            active=active, active_alpha=alpha[active], active_outputs=outputs[active]
        ).without_working_set()
        count.phase = Phase.SOLVE

    def _judge(self, standing: Standing) -> tuple[Standing, StopReason | None]:
        """Certify the point of the last sweep if it looks optimal; say whether the run ends."""
        count = self.count
        count.gap, count.objective = standing.gap, standing.objective
        fell = count.has_fallen(standing)
        examined = standing.gap <= self.tol or self._solve.was_slow() or fell
        if examined:
            # Saved before the certificate, so that a resumed run certifies to the same bits.
            if self._run.saver.keeps_ends:
                self._run.save()
            standing = self._standing = self._certify()
            if standing.gap > self.tol:
                self._choice.distrust_kept_rows()
            fell = count.has_fallen(standing)
        count.judge(standing)
        if count.fruitless >= PATIENCE and not examined:
            standing = self._standing = self._certify()
        self.listener(
            events.Swept(
                count.n_sweeps,
                standing.gap,
                self.tol,
                standing.objective,
                standing.n_support,
                standing.n_bounded,
                self._watch.seconds(),
                count.end_sweep(),
                self.dual.standings(standing),
            )
        )
        if standing.gap <= self.tol:
            return standing, StopReason.CONVERGED
        if self._watch.steps_allowed() == 0:
            return standing, StopReason.MAX_ITER
        return standing, StopReason.STALLED if fell or count.fruitless >= PATIENCE else None

    def _sweep(self) -> None:
        """Bring f of the other rows of the scope up to date with the new alpha of active rows."""
        if self.state.sets_among_all_rows:
            self._sweep_functions()
            return
        state, count = self.state, self.count
        change = self._run.per_output(state.active_alpha - state.alpha[state.active])
        moved = weighted_rows(change)
        if len(moved) and len(state.active) < count.scope:
            rows = self._rows.gathered(state.active).at_places(moved)
            weighted = WeightedRows.held(rows, change[moved])
            self._passes.add(weighted, state.outputs, stop=count.scope, skip=state.active)
        state.outputs[state.active] = state.active_outputs
        state.alpha[state.active] = state.active_alpha
        count.rows_swept += count.scope
        count.n_sweeps += self._run.has_all_rows
        count.rows_done = 0
        count.solves += 1
        grows = not self._run.has_all_rows and self._choice.grows()
        count.phase = Phase.GROW if grows else Phase.SELECT

    def _sweep_functions(self) -> None:
        """Bring f of all rows up to date with what has moved in the functions' working sets."""
        count, working = self.count, self.state.working_set
        alpha, _ = self._run.of_scope()
        change = moved_in(working, alpha)
        # Rows in memory need no blocks; the memory of blocks is for partners.
        values = self.source.n_columns
        if self.source.is_sparse:
            values = min(values, SPARSE_VALUES)
        at_once = max(1, self.plan.block_bytes // (4 * values))
        self._run.make_room_for_sums()
        state = self.state
        self._passes.add_by_pieces(change, state.sums, stop=count.scope, at_once=at_once)
        alpha[working.rows, working.functions] = working.alpha
        self._run.state = state.with_sums().without_working_set()
        count.rows_swept += count.scope
        count.n_sweeps += 1
        count.phase = Phase.SELECT

    def _grow(self) -> None:
        """Compute f of the next rows, and let them take part."""
        state, count = self.state, self.count
        stop = self._next_scope()
        beta = self._run.per_output(state.alpha[: count.scope])
        self._passes.add_by_pieces(beta, state.outputs, start=count.scope, stop=stop)
        count.rows_swept += stop - count.scope
        self._choice.growing(stop)
        count.scope, count.solves = stop, 0
        count.phase = Phase.FILL

    def _fill(self) -> None:
        """Make the variables of the scope add up to their constants, where these are not 0."""
        state, count = self.state, self.count
        alpha, outputs = self._run.of_scope()
        if not len(state.sums):
            start = alpha
            if self._run.start is not None and not alpha.any():
                start = self._run.start[: count.scope]
            filled = self.dual.filled(start, outputs)
            changed = (filled != alpha).reshape(len(alpha), -1).any(axis=1)
            active = np.flatnonzero(changed)
            self._run.state = state = state._replace(
                active=active, active_alpha=filled[active], active_outputs=outputs[active]
            ).without_working_set()
        if len(state.active):
            change = np.zeros_like(outputs)
            change[state.active] = self._run.per_output(state.active_alpha - alpha[state.active])
            self._run.make_room_for_sums()
            state = self.state
            self._passes.add_by_pieces(change, state.sums, stop=count.scope)
            state.alpha[state.active] = state.active_alpha
            self._run.state = state.with_sums()
            count.rows_swept += count.scope
        count.phase = Phase.SELECT

    # -- where it is ---------------------------------------------------------------------------

    def _first_scope(self) -> int:
        """Rows that take part first; they include all rows that the start has moved."""
        first, n = self._next_scope(), self.source.n_rows
        if self._run.start is None:
            return first
        first = max(first, int(weighted_rows(self._run.start).max(initial=-1)) + 1)
        return first if 2 * first < n else n

    def _next_scope(self) -> int:
        """Rows that take part next; all of them if no pair steps are left."""
        if not self._watch.steps_allowed():
            return self.source.n_rows
        return self._choice.scope_after(self.count.scope)

    # -- the end -------------------------------------------------------------------------------

    def _certify(self) -> Standing:
        """Recompute in float64 what decides the standing of the point, and return this standing."""
        # This is nearly always the end, and float64 takes twice the memory.
        self._solve.let_rows_go()
        with self._watch.timing("certificate"):
            standing: Standing = certify(
                self.dual,
                self.source,
                self.tiles,
                self._rows.gather,
                self.state.alpha,
                self.state.outputs,
                tol=self.tol,
                inherited_error=self._inherited_error,
                rows_at_once=self.plan.exact_rows,
                by_halves=self._by_halves,
                executor=self._executor,
            )
        self._run.computed_outputs = True
        return standing

    def _inherited_error(self) -> float:
        """Largest error of outputs that were derived from files of earlier processes."""
        if self._run.computed_outputs:
            return 0.0
        beta = self._run.per_output(self.state.alpha)
        return confirm(
            self.state.outputs, beta, self.source, self.tiles, self._executor, self._rows,
            self.plan, limit=UNCONFIRMED * self.tol,
        )  # fmt: skip

    def _result(self, reason: StopReason) -> TrainingResult:
        """Return the point of the last sweep, or a later one, whose gap is not known."""
        state, count = self.state, self.count
        half_swept = count.phase in (Phase.SWEEP, Phase.FILL) and (
            count.rows_done > 0 or count.columns_done > 0
        )
        alpha, standing = state.alpha, None
        if not count.n_sweeps or half_swept or self._choice.returns_current:
            alpha = state.current_alpha()
        elif reason is StopReason.MAX_ITER:
            standing = self._certify()
            if standing.gap <= self.tol:  # few rows are polished, which takes no pair steps
                reason = StopReason.CONVERGED
        elif self._standing is not None and reason in (StopReason.CONVERGED, StopReason.STALLED):
            standing = self._standing
        else:
            # Steps only raise the objective, and sweeps may be hours apart.
            alpha = state.current_alpha()
            if np.array_equal(alpha, state.alpha):
                standing = self.dual.optimality(alpha, state.outputs)
        self._watch.account()
        return conclude(
            self.dual, state, count, reason=reason, tol=self.tol, alpha=alpha, standing=standing
        )
