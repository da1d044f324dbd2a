"""The solve phase: one working set of the active rows after the other, by slices of steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bigsvm.executors.working_rows import Gathered
from bigsvm.gram.row_cache import RowBuffer
from bigsvm.training import events
from bigsvm.training.state import Phase
from bigsvm.working_sets.active import ActiveRows
from bigsvm.working_sets.functions import ActiveFunctions
from bigsvm.working_sets.lanes import LaneLimits
from bigsvm.working_sets.model_steps import ModelSteps
from bigsvm.working_sets.subproblem import Costs, Memory, Progress

if TYPE_CHECKING:
    from bigsvm.executors.executor import Products
    from bigsvm.executors.working_rows import WorkingRows
    from bigsvm.training.run import Run
    from bigsvm.working_sets.choice import Choice
    from bigsvm.working_sets.subproblem import WorkingProblem

MANY_STEPS = 10**6
"""Pair steps of a working set after which the loop looks at it again: with very large boxes float32
kernel values are too coarse for steps to end."""
MANY_PER_ROW = 1000
"""The same for each row of the working set, if that is more."""
LEAST_GAIN = 1e-4
"""Share of the objective by which it must rise for another step of all active rows together."""


class Solve:
    """Solves the dual restricted to the active rows.

    Parameters
    ----------
    run : Run
        Changed as steps are taken.
    rows : WorkingRows
        Reads the active rows.
    choice : Choice
        Chooses the working sets.
    executor : Products
        Computes large products among the active rows.
    """

    def __init__(
        self,
        run: Run,
        rows: WorkingRows,
        choice: Choice,
        executor: Products,
    ) -> None:
        self._executor = executor
        self._run, self._rows, self._choice = run, rows, choice
        self._buffer = RowBuffer(run.plan.gram_bytes)

    def let_rows_go(self) -> None:
        """Give up all kernel rows in memory."""
        self._buffer = RowBuffer(self._run.plan.gram_bytes)

    def was_slow(self) -> bool:
        """Whether the last working set took so many pair steps that it was left unfinished."""
        run = self._run
        size = max(len(run.state.active), len(run.state.working))
        return run.count.sub_steps >= max(MANY_STEPS, MANY_PER_ROW * size)

    def __call__(self) -> None:
        """Solve one working set of the active rows after the other, until they are optimal."""
        run = self._run
        active = self._active()
        while self._next_set(active):
            run.give_back_memory()
            progress = self._work_on(active)
            if active.has_all_rows:
                run.count.n_working_sets += 1
                break
            working = run.state.working_set
            had_all = active.is_all(working)
            run.pause()
            with run.watch.timing("sweep"):
                moved = active.absorb(working)
            run.state = run.state.without_working_set()
            run.count.n_working_sets += 1
            if (
                had_all
                or self._choice.one_set_is_enough(knows_all_outputs=run.knows_all_outputs)
                or not moved
                or progress is Progress.STALLED
                or not run.watch.steps_allowed()
            ):
                break
            run.pause()
        run.count.rows_done = 0
        run.count.phase = Phase.SWEEP

    def _next_set(self, active: ActiveRows) -> bool:
        """Whether there is a working set: one that was saved, or what is left to choose."""
        if len(self._run.state.working):
            return True
        self._step_together(active)
        return self._choose(active)

    def _step_together(self, active: ActiveRows) -> None:
        """Take steps of all active rows together while they gain by it; see `ModelSteps`."""
        run = self._run
        count, steps = run.count, None
        while count.together and run.watch.steps_allowed():
            if steps is None:
                steps = ModelSteps.of(active, run.plan, self._buffer)
            if steps is None:
                count.together = False
                break
            gain = steps.take(tol=count.active_tol)
            count.n_iter += 1
            standing = active.optimality()
            # The tolerance may depend on the point, which has moved.
            count.active_tol = self._choice.active_tol(count.scope, standing)
            run.listener(events.Solving(len(active), count.n_iter, standing.gap))
            count.together = (
                gain > LEAST_GAIN * standing.objective and standing.gap > count.active_tol
            )
            run.pause()

    def _choose(self, active: ActiveRows) -> bool:
        """Choose a working set; False where the active rows are optimal among themselves."""
        run = self._run
        before = run.rng.bit_generator.state
        try:
            chosen, tol = active.choose(
                self._choice,
                tol=run.count.active_tol,
                once=self._choice.one_set_is_enough(knows_all_outputs=run.knows_all_outputs),
            )
        except BaseException:
            # A resumed run makes the same choice.
            run.rng.bit_generator.state = before
            raise
        if not len(chosen.rows):
            return False
        run.count.sub_steps, run.count.sub_tol = 0, tol
        run.state = run.state.with_working_set(chosen)
        return True

    def _active(self) -> ActiveRows:
        """Return the active rows; for very many functions, all rows."""
        run = self._run
        state = run.state
        rows, alpha, outputs = state.active, state.active_alpha, state.active_outputs
        kind = ActiveFunctions if run.dual.functions else ActiveRows
        # A saved working set keeps its kind, whatever would be chosen now.
        has_all_rows = state.sets_among_all_rows or (self._choice.by_functions and not len(rows))
        if has_all_rows:
            rows = np.arange(run.count.scope)
            alpha, outputs = run.of_scope()
            gathered = Gathered(run.source, rows, None)
        else:
            gathered = self._rows.gathered(rows)
        return kind(
            run.dual, run.tiles, gathered, rows, alpha, outputs,
            has_all_rows=has_all_rows, executor=self._executor,
        )  # fmt: skip

    def _work_on(self, active: ActiveRows) -> Progress:
        """Take steps on the working set, in slices, until its tolerance is reached."""
        run = self._run
        tier = self._choice.row_tier()  # it decides once whether kernel rows are kept
        memory = Memory(
            self._buffer, self._choice.first_slots, tier,
            run.plan.block_bytes, whole_rows=run.count.keeps_rows,
        )  # fmt: skip
        # With a step limit there is one lane: otherwise the result would depend on timing.
        n_lanes = 1 if run.watch.counts_steps else run.tiles.threads
        problem = active.problem(
            run.state.working_set, last=run.state.pair, n_done=run.count.sub_steps,
            memory=memory, limits=LaneLimits(n_lanes, run.plan.active_rows),
        )  # fmt: skip
        try:
            progress = self._take_steps(problem)
            # The slice may have ended with rows left out (shrinking): update their gradient.
            problem.bring_up_to_date()
            self._note(problem)
        finally:
            problem.close()
        return progress

    def _note(self, problem: WorkingProblem) -> None:
        """Write to the state how far the problem has got."""
        run = self._run
        run.state = run.state._replace(
            working_alpha=problem.alpha.copy(),
            working_gradient=problem.gradient.copy(),
            pair=problem.last,
        )
        run.count.sub_steps = problem.steps

    def _take_steps(self, problem: WorkingProblem) -> Progress:
        """Take slices of steps, with a pause between two, and count them."""
        run = self._run
        count = run.count
        costs = Costs()
        progress = Progress.STEPS_SPENT
        while progress is Progress.STEPS_SPENT and run.watch.steps_allowed():
            before = problem.steps
            steps = run.watch.steps_allowed(problem.slices)
            with run.watch.timing("step"):
                progress = problem.advance(tol=count.sub_tol, max_steps=steps)
            spent = problem.costs.since(costs)
            costs = problem.costs
            count.row_seconds += spent.seconds
            count.step_seconds = max(0.0, count.step_seconds - spent.seconds)
            count.n_iter += problem.steps - before
            count.row_misses += spent.misses
            count.row_reads += spent.reads
            self._note(problem)
            run.listener(events.Solving(problem.size, count.n_iter, problem.gap))
            if progress is Progress.STEPS_SPENT:
                if self.was_slow():
                    return Progress.STALLED
                run.pause()
        return progress
