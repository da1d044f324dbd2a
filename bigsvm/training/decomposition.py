"""The outer loop: choose active rows, solve on them, sweep; until a full sweep certifies.

The state is alpha and f = K beta, both row-sized and checkpointed; f is exact for the rows of the
scope. The loop repeats::

    score    violation of every row of the scope, from f
    select   active rows: free rows, worst violators, next closest to violating
    solve    the dual restricted to them, one working set of pair steps after the other
    sweep    f += K(other rows of the scope, active) Δbeta[active], streaming the rows
    grow     f of the next rows, while the scope is not all of them

until the KKT gap over all rows is at most tol. Without a certificate the run ends earlier, when
other rows would gain next to nothing (`bigsvm.training.learning_curve`). Of very many functions
each has a working set of its own instead of active rows, see `bigsvm.working_sets.functions`;
the rest is the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.allocator import give_back_freed_memory
from bigsvm.gram.row_cache import RowBuffer
from bigsvm.gram.weights import weighted_rows
from bigsvm.training import events
from bigsvm.training.certify import certify
from bigsvm.training.conclude import conclude
from bigsvm.training.confirm import confirm
from bigsvm.training.executors import LocalExecutor
from bigsvm.training.learning_curve import LearningCurve, estimate
from bigsvm.training.result import StopReason
from bigsvm.training.saved import RunContent
from bigsvm.training.saving import resume
from bigsvm.training.state import Counters, Limits, Phase, Stopped, first_state
from bigsvm.training.sweep import Passes
from bigsvm.training.watch import Watch
from bigsvm.working_sets.active import ActiveRows
from bigsvm.working_sets.choice import Choice
from bigsvm.working_sets.functions import ActiveFunctions, moved_in
from bigsvm.working_sets.held_rows import Gathered, WorkingRows
from bigsvm.working_sets.lanes import LaneLimits
from bigsvm.working_sets.subproblem import Costs, Memory, Progress
from bigsvm.working_sets.together import ModelSteps

if TYPE_CHECKING:
    from collections.abc import Callable

    from bigsvm.arrays import F8
    from bigsvm.budget import TrainingPlan
    from bigsvm.data.row_source import RowSource
    from bigsvm.duals.dual import Dual, Standing
    from bigsvm.gram import KernelTiles
    from bigsvm.gram.disk import DiskCache
    from bigsvm.gram.row_cache import RowTier
    from bigsvm.training.result import TrainingResult
    from bigsvm.training.saving import Saver
    from bigsvm.training.state import RowState
    from bigsvm.working_sets.subproblem import WorkingProblem

MANY_STEPS = 10**6
"""Pair steps of a working set after which the loop looks at it again: with very large boxes float32
kernel values are too coarse for steps to end."""
MANY_PER_ROW = 1000
"""The same for each row of it."""
SPARSE_VALUES = 1 << 16
"""Most columns counted per sparse row: a tile has only the columns that occur in it."""
LEAST_GAIN = 1e-4
"""Of the objective, by which it must rise for another step of all active rows together."""
UNCONFIRMED = 0.5
"""Largest error, in units of the tolerance, of outputs derived from files of earlier processes:
outputs with larger errors are replaced."""
MOST_SOLVES = 10
"""Times that a scope is solved without a certificate, where rows go on to violate."""
PATIENCE = 10
"""Sweeps without a better gap or objective after which a run is stalled, if it is not converged."""


class Decomposition:
    """One training run; see the module's docstring.

    Parameters
    ----------
    source : RowSource
        In random order, for good speed: the first rows stand for all.
    dual : Dual
    tiles : KernelTiles
        float32.
    plan : TrainingPlan
    tol : float
        KKT gap to reach.
    whole : bool
        Whether all rows are one working set: the papers' own algorithm, kernel rows on demand.
    disk : DiskCache, optional
        Where kernel rows of that working set may be kept besides memory.
    certify : bool
        Whether the run has to certify `tol`. If not, it ends once more rows would not be worth
        while; a run that needs all its rows anyway, as few as there are, is certified.
    start : (n,) or (n, faces) float64, optional
        A feasible point to start from, with all rows that it moves, instead of 0.
    watch : Watch, optional
        Of a search that led to `start`: what it has cost, and how long it took, is the run's.
    seed : int
        Of the choice among too many violators.
    limits : Limits
    listener : callable
        Told every event.
    saver : Saver
        Saves the run, and knows what it goes on from.
    """

    def __init__(
        self,
        source: RowSource,
        dual: Dual[Any],
        tiles: KernelTiles,
        plan: TrainingPlan,
        *,
        tol: float,
        whole: bool = False,
        disk: DiskCache | None = None,
        certify: bool = True,
        start: F8 | None = None,
        watch: Watch | None = None,
        seed: int = 0,
        limits: Limits | None = None,
        listener: events.Listener = events.ignore,
        saver: Saver,
    ) -> None:
        self.source, self.dual, self.tiles, self.plan = source, dual, tiles, plan
        self._asked = self.tol = tol
        self._whole, self._disk, self._certifies = whole, disk, certify
        self.listener = listener
        self._rows = WorkingRows(source)
        self._buffer = RowBuffer(plan.gram_bytes)
        self._saver = saver
        self._stop: StopReason | None = None
        self._standing: Standing | None = None
        self._rng = np.random.default_rng(seed)
        self._choice = Choice(dual, source, plan, tol=tol, whole=whole, rng=self._rng)
        saved = self._saver.latest(RunContent(dual, source.n_rows))
        if saved is not None and saved.values["phase"] == Phase.SEARCH:
            saved = None  # it has led to `start`
        if saved is None:
            self.state = first_state(
                dual.formulation.zeros(source.n_rows), n_outputs=dual.formulation.n_outputs
            )
            self.count = watch.count if watch else Counters()
            self.count.phase = Phase.FILL
        else:
            self.state, self.count = resume(saved, plan)
            self._rng.bit_generator.state = self.count.random_state
            if self.count.phase is Phase.FILL and not self.state.alpha.any():
                # What the run was to start from has not been added up yet.
                start = self.state.alpha.copy()
                start[self.state.active] = self.state.active_alpha
        self._watch = watch or Watch(
            self.count, source=source, tiles=tiles, limits=limits or Limits()
        )
        executor = LocalExecutor(source, tiles, block_bytes=plan.block_bytes)
        self._passes = Passes(
            executor, tiles, plan, self._rows, self.count,
            watch=self._watch, listener=listener, pause=self._pause,
        )  # fmt: skip
        self._start = start
        self._are_own = saved is None  # whether this process computed the outputs
        self._inherits: bool | None = None  # whether it found kernel rows on disk
        if saved is None:
            self.count.scope = self._first_scope()

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
        phases = {
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
            while self._stop is None:
                self._give_back()
                phases[self.count.phase]()
        except Stopped as stopped:
            self._stop = stopped.reason
        if self._stop is not StopReason.CONVERGED:
            self._save()
        result = self._result(self._stop)
        # They know this run and so keep its rows in memory, until garbage is collected.
        del self._passes
        return result

    def _select(self) -> None:
        """Score the rows of the scope; stop if all are optimal, else choose the active ones."""
        count = self.count
        alpha, outputs = self._of_scope()
        standing = self._standing = self.dual.optimality(alpha, outputs)
        self.tol = self.dual.goal(self._asked, standing)
        if self._has_settled(standing):
            self._stop = self._why_settled()
            # What is returned is the whole scope, not the rows that were solved last.
            nothing = np.empty(0)
            self.state = self.state._replace(
                active=np.empty(0, np.int64), active_alpha=nothing, active_outputs=nothing
            ).without_working_set()
            return
        if count.n_sweeps:
            self._judge(standing)
            if self._stop is not None:
                return
            standing = self._standing
        count.active_tol = self._active_tol(standing)
        if standing.gap <= count.active_tol and not self._is_whole():
            count.phase = Phase.GROW
            return
        count.together = self._choice.steps_together(alpha, outputs, standing)
        active = self._choice.active_rows(
            alpha, outputs, standing, swept=count.n_sweeps > 0, together=count.together
        )
        self.state = self.state._replace(
            active=active, active_alpha=alpha[active], active_outputs=outputs[active]
        ).without_working_set()
        count.phase = Phase.SOLVE

    def _has_settled(self, standing: Standing) -> bool:
        """Whether the run is to end here without a certificate."""
        count = self.count
        if self._certifies or not (count.settled and count.solves):
            return False
        return self._is_solved(standing)

    def _why_settled(self) -> StopReason:
        """Say whether more rows would not be worth while, or there are no more in memory."""
        count = self.count
        is_settled = LearningCurve(count.curve).is_settled(count.scope, self._n_there)
        return StopReason.SETTLED if is_settled else StopReason.USED_UP

    @property
    def _n_there(self) -> int:
        """Rows that those of the source stand for."""
        return round(self.source.n_rows / self.source.share_drawn)

    def _active_tol(self, standing: Standing) -> float:
        """KKT gap to which the active rows are solved from a point of theirs."""
        settling = self.count.settled and not self._certifies
        return self._choice.active_tol(self.count.scope, standing, settling=settling)

    def _judge(self, standing: Standing) -> None:
        """Decide whether the point of the last sweep ends the run."""
        count = self.count
        count.gap, count.objective = standing.gap, standing.objective
        examined = standing.gap <= self.tol or self._was_slow()
        if examined:
            # Saved as it is now: whoever resumes a finished run certifies it to the same bits.
            if self._saver.keeps_ends:
                self._save()
            standing = self._standing = self._certify()
            if standing.gap > self.tol and self._inherits:
                # Kernel rows that an earlier process left may be wrong.
                self._disk = None
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
            )
        )
        if standing.gap <= self.tol:
            self._stop = StopReason.CONVERGED
        elif self._watch.steps_allowed() == 0:
            self._stop = StopReason.MAX_ITER
        elif count.fruitless >= PATIENCE:
            self._stop = StopReason.STALLED

    def _was_slow(self) -> bool:
        """Whether the last working set had pair steps without an end."""
        size = max(len(self.state.active), len(self.state.working))
        return self.count.sub_steps >= max(MANY_STEPS, MANY_PER_ROW * size)

    def _solve(self) -> None:
        """One working set of the active rows after the other, until they are optimal."""
        active = self._active()
        while self._next_set(active):
            self._give_back()
            progress = self._work_on(active)
            if active.swept:
                self.count.n_working_sets += 1
                break
            working = self.state.working_set
            whole = active.is_all(working)
            with self._watch.timing("sweep"):
                moved = active.absorb(working, look=self._watch.look)
            self.state = self.state.without_working_set()
            self.count.n_working_sets += 1
            if (
                whole
                or self._is_preparing()
                or not moved
                or progress is Progress.STALLED
                or not self._watch.steps_allowed()
            ):
                break
            self._pause()
        self.count.rows_done = 0
        self.count.phase = Phase.SWEEP

    def _next_set(self, active: ActiveRows) -> bool:
        """Whether there is a working set: one that was saved, or what is left to choose."""
        if len(self.state.working):
            return True
        self._step_together(active)
        return self._choose(active)

    def _step_together(self, active: ActiveRows) -> None:
        """Have all active rows step together while they gain by it; see `ModelSteps`."""
        count, steps = self.count, None
        while count.together and self._watch.steps_allowed():
            if steps is None:
                steps = ModelSteps.of(active, self.plan, self._buffer, look=self._watch.look)
            if steps is None:
                count.together = False
                break
            gain = steps.take(self._watch.look, tol=count.active_tol)
            count.n_iter += 1
            standing = active.optimality()
            # What is asked for may hang on the point, which is another one now.
            count.active_tol = self._active_tol(standing)
            self.listener(events.Solving(len(active), count.n_iter, standing.gap))
            count.together = (
                gain > LEAST_GAIN * standing.objective and standing.gap > count.active_tol
            )
            self._pause()

    def _choose(self, active: ActiveRows) -> bool:
        """Choose a working set; False where the active rows are optimal among themselves."""
        before = self._rng.bit_generator.state
        try:
            chosen, tol = active.choose(
                self._choice,
                tol=self.count.active_tol,
                once=self._is_preparing(),
                look=self._watch.look,
            )
        except Stopped:
            # A resumed run makes the same choice.
            self._rng.bit_generator.state = before
            raise
        if not len(chosen.rows):
            return False
        self.count.sub_steps, self.count.sub_tol = 0, tol
        self.state = self.state.with_working_set(chosen)
        return True

    def _active(self) -> ActiveRows:
        """Return what is worked on: the active rows, or of very many functions all rows."""
        state, alpha, outputs = self.state, self.state.active_alpha, self.state.active_outputs
        kind, rows = ActiveFunctions if self.dual.functions else ActiveRows, state.active
        # A working set that was saved stays what it is.
        swept = self._sweeps_functions() or (self._choice.by_functions and not len(rows))
        if swept:
            rows = np.arange(self.count.scope)
            alpha, outputs = self._of_scope()
            gathered = Gathered(self.source, rows, None)
        else:
            gathered = self._rows.at(rows, self._watch.look)
        return kind(self.dual, self.tiles, gathered, rows, alpha, outputs, swept=swept)

    def _sweeps_functions(self) -> bool:
        """Whether the working set is of functions that have sets among all rows."""
        return len(self.state.set_sizes) > 0 and not len(self.state.active)

    def _work_on(self, active: ActiveRows) -> Progress:
        """Pair steps on the working set, in slices, until its tolerance is reached."""
        state, count = self.state, self.count
        problem = active.problem(
            state.working_set,
            last=state.pair,
            n_done=count.sub_steps,
            memory=Memory(
                self._buffer, self._choice.first_slots, self._over_disk, self.plan.block_bytes
            ),
            limits=self._lane_limits(),
        )
        try:
            return self._advance(problem)
        finally:
            problem.close()

    def _lane_limits(self) -> LaneLimits:
        # With a step limit there is one lane: otherwise the result would depend on timing.
        threads = 1 if self._watch.counts_steps else self.tiles.threads
        return LaneLimits(threads, self.plan.active_rows)

    def _over_disk(self, computed: RowTier) -> RowTier:
        """Put the disk tier above the computation of rows, where there is one."""
        if self._disk is None:
            return computed
        tier = self._disk.above(computed, n_variables=self.source.n_rows)
        if self._inherits is None:
            self._inherits = tier.has_earlier_rows
        self._are_own &= not self._inherits
        self.count.disk_tier = tier.decision.reason
        self.listener(events.TierChosen(tier.decision.reason))
        return tier

    def _advance(self, problem: WorkingProblem) -> Progress:
        progress = self._take_steps(problem)
        # Steps may be spent while rows are left out, whose gradient others are told by.
        problem.bring_up_to_date(self._watch.look)
        self._note(problem)
        return progress

    def _note(self, problem: WorkingProblem) -> None:
        """Take the sub-problem as far as it has got into the state."""
        self.state = self.state._replace(
            working_alpha=problem.alpha.copy(),
            working_gradient=problem.gradient.copy(),
            pair=problem.last,
        )
        self.count.sub_steps = problem.steps

    def _take_steps(self, problem: WorkingProblem) -> Progress:
        count = self.count
        costs = Costs()
        progress = Progress.STEPS_SPENT
        while progress is Progress.STEPS_SPENT and self._watch.steps_allowed():
            before = problem.steps
            steps = self._watch.steps_allowed(problem.slices)
            with self._watch.timing("step"):
                progress = problem.advance(
                    tol=count.sub_tol, max_steps=steps, look=self._watch.look
                )
            spent = problem.costs.since(costs)
            costs = problem.costs
            count.row_seconds += spent.seconds
            count.step_seconds = max(0.0, count.step_seconds - spent.seconds)
            count.n_iter += problem.steps - before
            count.row_misses += spent.misses
            count.row_reads += spent.reads
            self._note(problem)
            self.listener(events.Solving(problem.size, count.n_iter, problem.gap))
            if progress is Progress.STEPS_SPENT:
                if self._was_slow():
                    return Progress.STALLED
                self._pause()
        return progress

    def _sweep(self) -> None:
        """Bring f of the other rows of the scope up to date with the active rows' new alpha."""
        if self._sweeps_functions():
            self._sweep_functions()
            return
        state, count = self.state, self.count
        change = self._per_output(state.active_alpha - state.alpha[state.active])
        moved = weighted_rows(change)
        if len(moved) and len(state.active) < count.scope:
            rows = self._rows.at(state.active, self._watch.look).at(moved)
            self._passes.add(
                rows, change[moved], state.outputs, stop=count.scope, skip=state.active
            )
        state.outputs[state.active] = state.active_outputs
        state.alpha[state.active] = state.active_alpha
        count.rows_swept += count.scope
        count.n_sweeps += self._is_whole()
        count.rows_done = 0
        count.solves += 1
        stays = self._is_whole() or not (self._certifies or self._grows_now())
        count.phase = Phase.SELECT if stays else Phase.GROW

    def _grows_now(self) -> bool:
        """Whether a run without a certificate has a model of the scope, and this is not its last.

        What is estimated must be the error of a model.
        """
        if self.count.settled:
            return False
        return self._is_solved(self.dual.optimality(*self._of_scope()))

    def _is_solved(self, standing: Standing) -> bool:
        """Whether the scope has been solved well enough for a run without a certificate."""
        return self.count.solves > MOST_SOLVES or self._choice.is_solved(
            *self._of_scope(), standing
        )

    def _sweep_functions(self) -> None:
        """Bring f of all rows up to date with what has moved in the functions' working sets."""
        state, count = self.state, self.count
        working = state.working_set
        alpha, _ = self._of_scope()
        change = moved_in(working, alpha)
        # Rows that are in memory need no blocks: theirs is for them as partners of all.
        values = self.source.n_columns
        if self.source.is_sparse:
            values = min(values, SPARSE_VALUES)
        at_once = max(1, self.plan.block_bytes // (4 * values))
        self.state = state = self._with_room_for_sums()
        self._passes.add_by_pieces(change, state.sums, stop=count.scope, at_once=at_once)
        alpha[working.rows, working.functions] = working.alpha
        self.state = state.with_sums().without_working_set()
        count.rows_swept += count.scope
        count.n_sweeps += 1
        count.phase = Phase.SELECT

    def _grow(self) -> None:
        """Compute f of the next rows, and let them take part."""
        state, count = self.state, self.count
        stop = self._next_scope()
        beta = self._per_output(state.alpha[: count.scope])
        self._passes.add_by_pieces(beta, state.outputs, start=count.scope, stop=stop)
        count.rows_swept += stop - count.scope
        if not self._certifies:
            self._test(stop)
        count.scope, count.solves = stop, 0
        count.phase = Phase.FILL

    def _test(self, stop: int) -> None:
        """Estimate the test error from the rows up to `stop`, which have had no part so far."""
        count, problem = self.count, self.dual.formulation
        standing = self.dual.optimality(*self._of_scope())
        fresh = slice(count.scope, stop)
        wrong = problem.mistakes(self.state.outputs[fresh], fresh, standing.thresholds)
        curve, found = LearningCurve(count.curve), estimate(wrong, problem.importance(fresh))
        if found is not None:
            curve.add(count.scope, found)
            self.listener(events.Tested(count.scope, stop - count.scope, *found))
        is_end = stop == self.source.n_rows < self._n_there
        count.settled = is_end or curve.is_settled(stop, self._n_there)

    def _fill(self) -> None:
        """Have the variables of the scope add up to what they must, where that is not 0."""
        state, count = self.state, self.count
        alpha, outputs = self._of_scope()
        if not len(state.sums):
            begin = alpha if self._start is None or alpha.any() else self._start[: count.scope]
            filled = self.dual.filled(begin, outputs)
            changed = (filled != alpha).reshape(len(alpha), -1).any(axis=1)
            active = np.flatnonzero(changed)
            self.state = state = state._replace(
                active=active, active_alpha=filled[active], active_outputs=outputs[active]
            ).without_working_set()
        if len(state.active):
            change = np.zeros_like(outputs)
            change[state.active] = self._per_output(state.active_alpha - alpha[state.active])
            self.state = state = self._with_room_for_sums()
            self._passes.add_by_pieces(change, state.sums, stop=count.scope)
            state.alpha[state.active] = state.active_alpha
            self.state = state.with_sums()
            count.rows_swept += count.scope
        count.phase = Phase.SELECT

    def _with_room_for_sums(self) -> RowState:
        """Return the state with sums of 0, or with those of a pass that was interrupted."""
        if len(self.state.sums):
            return self.state
        return self.state._replace(sums=np.zeros_like(self.state.outputs[: self.count.scope]))

    # -- where it is ---------------------------------------------------------------------------

    def _give_back(self) -> None:
        """Keep holes between arrays out of the budget, where that is what the rows are measured by.

        Where they are in memory anyway, fresh memory costs more time than it saves: a tenth on w8a.
        """
        if self.source.row_alignment > 1:
            give_back_freed_memory()

    def _of_scope(self) -> tuple[F8, F8]:
        scope = self.count.scope
        return self.state.alpha[:scope], self.state.outputs[:scope]

    def _per_output(self, alpha: F8) -> F8:
        return self.dual.formulation.per_output(alpha)

    def _is_preparing(self) -> bool:
        """Whether one working set is enough: of several functions, until a sweep over all rows.

        Only that shows what matters, and what has moved is most of what matters to any function.
        Without a certificate there may be none, and each scope has to be a model.
        """
        return bool(self.dual.functions) and not self.count.n_sweeps and self._certifies

    def _is_whole(self) -> bool:
        """Whether all rows take part."""
        return self.count.scope == self.source.n_rows

    def _first_scope(self) -> int:
        """Rows that take part first: at least those up to the last that the start has moved."""
        first, n = self._next_scope(), self.source.n_rows
        if self._start is None:
            return first
        first = max(first, int(weighted_rows(self._start).max(initial=-1)) + 1)
        return first if 2 * first < n else n

    def _next_scope(self) -> int:
        """Rows that take part next; all of them where only pair steps would need fewer."""
        if not self._watch.steps_allowed():
            return self.source.n_rows
        return self._choice.scope_after(self.count.scope)

    # -- the end -------------------------------------------------------------------------------

    def _certify(self, look: Callable[[], None] | None = None) -> Standing:
        """Look at the point again, in float64."""
        look = look or self._watch.look
        # It is nearly always the end, and float64 takes twice the memory: kernel rows are let go.
        self._buffer = RowBuffer(self.plan.gram_bytes)
        with self._watch.timing("certificate"):
            standing: Standing = certify(
                self.dual,
                self.source,
                self.tiles,
                self._rows.gather,
                self.state.alpha,
                self.state.outputs,
                tol=self.tol,
                off=lambda: self._off(look),
                rows_at_once=self.plan.exact_rows,
                look=look,
            )
        self._are_own = True
        return standing

    def _off(self, look: Callable[[], None]) -> float:
        """Largest error of outputs that were derived from files of earlier processes."""
        if self._are_own:
            return 0.0
        beta = self._per_output(self.state.alpha)
        return confirm(
            self.state.outputs, beta, self.source, self.tiles, self._rows, self.plan,
            limit=UNCONFIRMED * self.tol, look=look,
        )  # fmt: skip

    def _result(self, reason: StopReason) -> TrainingResult:
        """Return the point of the last sweep; its gap is unknown where it has got on since."""
        state, count = self.state, self.count
        half_swept = count.phase in (Phase.SWEEP, Phase.FILL) and (
            count.rows_done > 0 or count.columns_done > 0
        )
        alpha, standing = state.alpha, None
        if not count.n_sweeps or half_swept or (not self._certifies and count.settled):
            alpha = state.current_alpha()
        elif reason is StopReason.MAX_ITER:
            standing = self._certify(look=lambda: None)
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

    # -- checkpoints ---------------------------------------------------------------------------

    def _pause(self) -> None:
        """Between two slices, where the state is whole: stop if asked to, save if it is time."""
        self._watch.look()
        if self._saver.is_due():
            self._save()

    def _save(self) -> None:
        self._watch.account()
        self.count.random_state = dict(self._rng.bit_generator.state)
        self._saver.save(self.state, self.count)
