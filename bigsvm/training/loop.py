"""The loop of training: choose active rows, solve on them, sweep; until a full sweep certifies.

f is the outputs, ``f = K beta``, where beta_i is the sum of the signed variables of row i. The
scope is the first rows, which take part so far (`bigsvm.working_sets.choice`). The state is alpha
and f, both row-sized and checkpointed; f is exact for the rows of the scope. The loop repeats::

    1 score    violation of every row of the scope, from f
    2 select   active rows: free rows, worst violators, next closest to violating
    3 solve    the dual restricted to them, one working set of pair steps after the other
    4 sweep    f += K(other rows of the scope, active) Δbeta[active], streaming the rows
    5 grow     f of the next rows, while the scope is not all of them
      fill     variables of the new scope, where they must add up to more than 0

until the KKT gap over all rows is at most tol, or the choice of rows ends the run without that.

Phases 4 and 5 are passes over the rows (`bigsvm.training.sweep`). What all phases change is the run
(`bigsvm.training.run`). Scopes, active rows and working sets are chosen by a `Choice`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from bigsvm.duals.dual import EndlessError, Point
from bigsvm.executors.executor import Exact, Products
from bigsvm.executors.local import LocalExecutor
from bigsvm.executors.working_rows import Gathered, WorkingRows
from bigsvm.gram.row_cache import RowBuffer
from bigsvm.interruption import checked_by
from bigsvm.training import events
from bigsvm.training.certify import Certified, certify, conclude
from bigsvm.training.confirm import confirm
from bigsvm.training.result import StopReason
from bigsvm.training.sampled_gap import SampledGap, sampled_gap
from bigsvm.training.state import SURROUNDINGS_FAILED, Phase, Stopped
from bigsvm.training.sweep import Passes
from bigsvm.working_sets.active import ActiveRows
from bigsvm.working_sets.choice import LARGEST_SET, Choice
from bigsvm.working_sets.crowd import CrowdedRows
from bigsvm.working_sets.functions import ActiveFunctions, FunctionSets
from bigsvm.working_sets.lanes import LaneLimits
from bigsvm.working_sets.model_steps import ModelSteps
from bigsvm.working_sets.subproblem import Costs, Progress

if TYPE_CHECKING:
    from collections.abc import Callable

    from bigsvm.arrays import F8
    from bigsvm.duals.dual import Standing
    from bigsvm.executors.executor import Executor
    from bigsvm.training.result import TrainingResult
    from bigsvm.training.run import Run
    from bigsvm.training.state import Counters, RowState
    from bigsvm.working_sets.subproblem import WorkingProblem

MANY_STEPS = 10**6
"""Pair steps of a working set after which the loop looks at it again: with very large boxes float32
kernel values are too coarse for steps to end."""
MANY_PER_ROW = 1000
"""The same for each row of the working set, if that is more."""
LEAST_GAIN = 1e-4
"""Share of the objective by which it must rise for another step of all active rows together."""
COUNT_EVERY = 0.1
"""Least seconds between two counts of violating rows, which may take a millisecond each."""
PATIENCE = 10
"""Sweeps without a better gap or objective after which a run is stalled, if it is not converged."""


class Decomposition:
    """One training run, new or resumed, to the KKT gap `tol`; see the module's docstring.

    The choice decides on scopes, active rows and working sets, and whether the run ends
    uncertified. The executor computes passes and large products, and reads rows; by default this
    process does.
    """

    def __init__(
        self,
        run: Run,
        *,
        tol: float,
        choice: Choice,
        executor: Executor | None = None,
        exact_objective: bool = False,
    ) -> None:
        self._run, self.tol, self._choice = run, tol, choice
        self._exact_objective = exact_objective
        if executor is None:
            executor = LocalExecutor(run.source, run.tiles, block_bytes=run.plan.block_bytes)
        self._executor, self._rows = executor, WorkingRows(run.source, executor.take)
        self._passes = Passes(run, executor, self._rows, choice)
        self._buffer = RowBuffer(run.plan.gram_bytes)
        self._stop: StopReason | None = None
        self._certified: Certified | None = None
        # Not saved: a resumed run knows the objective again when it chooses active rows.
        self._objective = float("nan")
        self._n_violating: int | None = None
        self._told: events.Solving | None = None
        self._last_count = time.monotonic()
        if run.is_new and not run.count.knew_outputs:
            run.count.scope = self._passes.first_scope()

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
        run, plan, source = self._run, self._run.plan, self._run.source
        size = source.n_rows, source.n_features
        run.listener(events.Planned(*size, plan.working_set, plan.projected, run.count.n_sweeps))
        phases: dict[Phase, Callable[[], None]] = {
            Phase.SELECT: self._select,
            Phase.SOLVE: self._solve,
            Phase.SWEEP: self._passes.sweep,
            Phase.GROW: self._passes.grow,
            Phase.FILL: self._passes.fill,
        }
        try:
            with checked_by(run.watch.check):
                self._executor.wait_until_ready()
                while self._stop is None:
                    run.give_back_memory()
                    phases[run.count.phase]()
        except Stopped as stopped:
            self._stop = stopped.reason
        except EndlessError:
            self._stop = StopReason.ENDLESS
        except SURROUNDINGS_FAILED:
            run.save()
            raise
        if self._stop is not StopReason.CONVERGED:
            run.save()
        return conclude(
            run, self._stop, tol=self.tol, certified=self._certified, certify=self._certify,
            sample=self._sample, returns_current=self._choice.returns_current,
        )  # fmt: skip

    # -- score and select --------------------------------------------------------------------

    def _select(self) -> None:
        """Score the rows of the scope; stop if all are optimal, else choose the active ones."""
        run, count = self._run, self._run.count
        alpha, outputs = run.of_scope()
        standing: Standing = run.dual.optimality(alpha, outputs)
        self._certified = Certified(standing)
        self._objective = standing.objective
        if (reason := self._choice.end(standing)) is not None:
            self._stop = StopReason(reason)
            # What is returned is the whole scope, not the rows that were solved last.
            run.state = run.state.without_active_rows()
            return
        if count.n_sweeps:
            standing, self._stop = self._judge(standing)
            if self._stop is not None:
                return
        count.active_tol = self._choice.active_tol(count.scope, standing)
        if standing.gap <= count.active_tol and not run.has_all_rows:
            count.phase = Phase.GROW
            return
        active, count.together = self._choice.active_rows(
            alpha, outputs, standing, after_full_sweep=run.knows_all_outputs
        )
        run.state = run.state._replace(
            active=active, active_alpha=alpha[active], active_outputs=outputs[active]
        ).without_working_set()
        count.apart = len(active) > min(LARGEST_SET, run.plan.working_set)
        count.phase = Phase.SOLVE

    def _judge(self, standing: Standing) -> tuple[Standing, StopReason | None]:
        """Certify the point of the last sweep if it looks optimal; say whether the run ends."""
        run, count = self._run, self._run.count
        count.gap, count.objective = standing.gap, standing.objective
        fell = count.has_fallen(standing)
        examined = standing.gap <= self.tol or self._was_slow() or fell
        if examined:
            # Saved before the certificate, so that a resumed run certifies to the same bits.
            if run.saver is not None and run.saver.keeps_ends:
                run.save()
            standing = self._certify().standing
            if standing.gap > self.tol:
                self._choice.distrust_kept_rows()
            fell = count.has_fallen(standing)
        count.judge(standing)
        if count.fruitless >= PATIENCE and not examined:
            standing = self._certify().standing
        run.listener(
            events.Swept(
                count.n_sweeps, standing.gap, self.tol, standing.objective, standing.n_support,
                standing.n_bounded, run.watch.seconds(), count.end_sweep(),
                run.dual.standings(standing),
            )
        )  # fmt: skip
        if standing.gap <= self.tol:
            return standing, StopReason.CONVERGED
        if run.watch.steps_allowed() == 0:
            return standing, StopReason.MAX_ITER
        return standing, StopReason.STALLED if fell or count.fruitless >= PATIENCE else None

    def _certify(self) -> Certified:
        """Recompute in float64 what decides the standing of the point."""
        run = self._run
        # This is nearly always the end, and float64 takes twice the memory of kernel rows.
        self._buffer = RowBuffer(run.plan.gram_bytes)
        with run.watch.timing("certificate"), run.tiles.exact() as tiles:
            exact = Exact(self._executor, tiles, self._rows.gather, at_once=run.plan.exact_rows)
            self._certified = certify(
                run.dual, exact, run.state.alpha, run.state.outputs, tol=self.tol,
                exact_objective=self._exact_objective,
                inherited_error=lambda: confirm(
                    run, self._executor, self._rows, exact, tol=self.tol
                ),
            )  # fmt: skip
        run.computed_outputs = True
        return self._certified

    def _sample(self, alpha: F8) -> SampledGap | None:
        """Estimate the duality gap at alpha; None where rows cannot be read.

        This process computes it, as there may be no workers.
        """
        run, rows = self._run, WorkingRows(self._run.source)
        self._buffer = RowBuffer(run.plan.gram_bytes)
        with run.watch.timing("certificate"), run.tiles.exact() as tiles:
            exact = Exact(Products(run.source), tiles, rows.gather, at_once=run.plan.exact_rows)
            try:
                return sampled_gap(run.dual, alpha, exact.outputs)
            except SURROUNDINGS_FAILED:
                return None

    # -- solve -------------------------------------------------------------------------------

    def _solve(self) -> None:
        """Solve one working set of the active rows after the other, until they are optimal."""
        run, active = self._run, self._active()
        once = self._choice.one_set_is_enough(knows_all_outputs=run.knows_all_outputs)
        while self._next_set(active, once=once):
            run.give_back_memory()
            progress = self._work_on(active)
            if active.has_all_rows:  # the sweep takes over what has moved
                run.count.n_working_sets += 1
                break
            working = run.state.working_set
            run.pause()
            with run.watch.timing("sweep"):
                moved = active.absorb(working)
            run.count.apart = active.n_sets > 1
            if self._is_joined and self._told is not None and active.gain is not None:
                self._objective += active.gain
                self._tell(self._told)
            run.state = run.state.without_working_set()
            run.count.n_working_sets += 1
            is_done = active.is_all(working) or once or not moved or progress is Progress.STALLED
            if is_done or not run.watch.steps_allowed():
                break
            run.pause()
        run.count.rows_done = 0
        run.count.phase = Phase.SWEEP

    def _active(self) -> ActiveRows:
        """Return the active rows; all rows where functions have sets of their own among these."""
        run, state = self._run, self._run.state
        if run.dual.functions and not len(state.active):
            rows = np.arange(run.count.scope)
            return FunctionSets(
                run.dual, run.tiles, Gathered(run.source, rows, None), rows, *run.of_scope(),
                executor=self._executor,
            )  # fmt: skip
        kind = ActiveFunctions if run.dual.functions else ActiveRows
        if run.count.apart and run.dual.solves_apart:
            kind = CrowdedRows
        return kind(
            run.dual, run.tiles, self._rows.gathered(state.active), state.active,
            state.active_alpha, state.active_outputs, executor=self._executor,
        )  # fmt: skip

    def _next_set(self, active: ActiveRows, *, once: bool) -> bool:
        """Whether there is a working set: one that was saved, or what is left to choose."""
        run = self._run
        if len(run.state.working):
            return True
        if run.count.together:
            self._step_together(active)
        before = run.rng.bit_generator.state
        try:
            chosen, tol = active.choose(self._choice, tol=run.count.active_tol, once=once)
        except BaseException:
            # A resumed run makes the same choice.
            run.rng.bit_generator.state = before
            raise
        if not len(chosen.rows):
            return False
        run.count.sub_steps, run.count.sub_tol = 0, tol
        run.state = run.state.with_working_set(chosen)
        return True

    def _step_together(self, active: ActiveRows) -> None:
        """Take steps of all active rows together while they gain by it; see `ModelSteps`."""
        run, count = self._run, self._run.count
        if not run.watch.steps_allowed():
            return
        steps = ModelSteps.of(active, run.plan, self._buffer)
        count.together = steps is not None
        while steps and count.together and run.watch.steps_allowed():
            gain = steps.take(tol=count.active_tol)
            self._objective += gain
            count.n_iter += 1
            standing = active.optimality()
            # The tolerance may depend on the point, which has moved.
            count.active_tol = self._choice.active_tol(count.scope, standing)
            self._tell(events.Solving(len(active), count.n_iter, standing.gap))
            count.together = (
                gain > LEAST_GAIN * standing.objective and standing.gap > count.active_tol
            )
            run.pause()

    def _work_on(self, active: ActiveRows) -> Progress:
        """Take steps on the working set, in slices, until its tolerance is reached."""
        run, self._told = self._run, None
        memory = self._choice.memory(self._buffer)
        # With a step limit there is one lane: otherwise the result would depend on timing.
        n_lanes = 1 if run.watch.counts_steps else run.tiles.threads
        working, limits = run.state.working_set, LaneLimits(n_lanes, run.plan.active_rows)
        # Sets that are solved apart gain less together.
        self._is_joined = active.n_sets > 1 and len(working.sizes) > 0
        start = Point(working.alpha, working.gradient, run.state.pair, run.count.sub_steps)
        problem = active.problem(working, start, memory=memory, limits=limits)
        # Steps may change the arrays of the working set.
        self._noted, self._n_violating = (start.alpha.copy(), start.gradient.copy()), None
        try:
            progress = self._take_steps(problem, active)
            # The slice may have ended with rows left out (shrinking): update their gradient.
            problem.bring_up_to_date()
            self._note(problem)
        finally:
            problem.close()
        return progress

    def _tell(self, event: events.Solving) -> None:
        """Tell the listener of the working set, with what is known of the run by now."""
        run, count = self._run, self._run.count
        run.listener(
            event._replace(
                working_set=count.n_working_sets,
                objective=self._objective,
                best_gap=count.best_gap if count.n_sweeps else None,
                seconds=run.watch.seconds(),
            )
        )

    def _take_steps(self, problem: WorkingProblem, active: ActiveRows) -> Progress:
        """Take slices of steps, with a pause between two, and count them."""
        run, count = self._run, self._run.count
        costs, progress = Costs(), Progress.STEPS_SPENT
        while progress is Progress.STEPS_SPENT and run.watch.steps_allowed():
            steps = run.watch.steps_allowed(problem.slices)
            with run.watch.timing("step"):
                progress = problem.advance(tol=count.sub_tol, max_steps=steps)
            spent = problem.costs.since(costs)
            costs = problem.costs
            count.row_seconds += spent.seconds
            count.step_seconds = max(0.0, count.step_seconds - spent.seconds)
            count.row_misses += spent.misses
            count.row_reads += spent.reads
            self._note(problem)
            if self._n_violating is None and time.monotonic() - self._last_count > COUNT_EVERY:
                self._n_violating = active.n_violating(count.active_tol)
                self._last_count = time.monotonic()
            self._told = events.Solving(
                problem.size, count.n_iter, problem.gap, n_violating=self._n_violating
            )
            self._tell(self._told)
            if progress is Progress.STEPS_SPENT:
                if self._was_slow():
                    return Progress.STALLED
                run.pause()
        return progress

    def _note(self, problem: WorkingProblem) -> None:
        """Write to the state how far the problem has got, and count the steps taken."""
        run, (alpha, gradient, last, n_done) = self._run, problem.point
        run.state = run.state._replace(
            working_alpha=alpha.copy(), working_gradient=gradient.copy(), pair=last
        )
        # Exact for a quadratic function.
        before, state = self._noted, run.state
        alpha, gradient = state.working_alpha, state.working_gradient
        if not self._is_joined:
            self._objective += 0.5 * float(np.vdot(before[1] + gradient, alpha - before[0]))
        self._noted = alpha, gradient
        run.count.n_iter += n_done - run.count.sub_steps
        run.count.sub_steps = n_done

    def _was_slow(self) -> bool:
        """Whether the last working set took so many pair steps that it was left unfinished."""
        state = self._run.state
        size = max(len(state.active), len(state.working))
        return self._run.count.sub_steps >= max(MANY_STEPS, MANY_PER_ROW * size)
