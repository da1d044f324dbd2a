"""What training problems need that is opened or found out once, and the run of one of them."""

from __future__ import annotations

import copy
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from bigsvm.balls.search import ENDS, Search
from bigsvm.executors.audit import RowsReadAgain
from bigsvm.executors.cluster import ClusterExecutor
from bigsvm.executors.executor import Exact, Products
from bigsvm.executors.messages import Job
from bigsvm.executors.workforce import Workforce
from bigsvm.executors.working_rows import WorkingRows
from bigsvm.fit.choices import choice_for, make_dual
from bigsvm.fit.fingerprint import fingerprint_of_kernel_values
from bigsvm.gram import KernelTiles
from bigsvm.kept.choice import kept_tiles
from bigsvm.papers.stepwise import search_of
from bigsvm.parameters.formulations import CLASSIFIERS
from bigsvm.processors import one_blas_thread
from bigsvm.training.checkpoint import KEPT, Checkpoint
from bigsvm.training.checkpoint_copy import CheckpointCopy
from bigsvm.training.events import Joined, Left, TierChosen
from bigsvm.training.loop import Decomposition
from bigsvm.training.result import BYTES_OF_WORKERS, CLUSTER_COSTS, CLUSTER_SECONDS, StopReason
from bigsvm.training.run import Run
from bigsvm.working_sets.newton_problem import planned_in_float64

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bigsvm.arrays import F8, I8
    from bigsvm.budget import TrainingPlan
    from bigsvm.data.row_source import RowSource
    from bigsvm.duals.box import BoxDual
    from bigsvm.duals.box_problem import Formulation
    from bigsvm.duals.dual import Dual
    from bigsvm.fit.variables import Variables
    from bigsvm.kernels import Kernel
    from bigsvm.parameters import TrainingParameters
    from bigsvm.training.events import Hooks, Listener
    from bigsvm.training.result import KnownPoint, TrainingResult
    from bigsvm.training.run import Watch
    from bigsvm.training.saving import Saver
    from bigsvm.training.state import Limits


class Trainer:
    """Trains problems over one kernel, one after the other; use it as a context manager.

    Parameters
    ----------
    parameters : TrainingParameters
    kernel : Kernel
    centre : (d,) float64 or None
        Subtracted from the rows, see `KernelTiles`.
    offset : float
        Offset of the formulation.
    workforce : Workforce, optional
        Workers that take part.

    Attributes
    ----------
    tiles : KernelTiles
    workforce : Workforce or None
    """

    def __init__(
        self,
        parameters: TrainingParameters,
        kernel: Kernel,
        centre: F8 | None,
        *,
        offset: float,
        workforce: Workforce | None = None,
    ) -> None:
        self._parameters, self._kernel, self.workforce = parameters, kernel, workforce
        self._executor: ClusterExecutor | None = None
        self._kept: str | None = None  # what was decided about kernel values on disk
        self._stack = ExitStack()
        threads = parameters.n_threads
        self.tiles = KernelTiles(kernel, centre=centre, threads=threads, offset=offset)

    @property
    def _certifies(self) -> bool:
        """Whether the run has to certify: by request, or because no test error can be estimated."""
        parameters = self._parameters
        return parameters.certify or parameters.formulation not in CLASSIFIERS

    def with_threads(self, threads: int) -> Trainer:
        """Make one with some of the threads, to be used at the same time as others of this one."""
        some = copy.copy(self)
        some.tiles = self.tiles.with_threads(threads)
        some.workforce, some._executor = None, None
        return some

    def __enter__(self) -> Self:
        self._stack.enter_context(one_blas_thread())
        self._stack.enter_context(self.tiles)
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def train(
        self,
        variables: Variables[Formulation],
        plan: TrainingPlan,
        *,
        saver: Saver | None,
        limits: Limits,
        listener: Listener,
        start: F8 | None = None,
    ) -> TrainingResult:
        """Train one problem, from a feasible point if given, (n,) or (n, faces)."""
        parameters, source = self._parameters, variables.source
        dual, watch = self.dual(source, variables.formulation, plan), None
        control: dict[str, Any] = {"saver": saver, "limits": limits, "listener": listener}
        ball = dual.searched
        searches = not dual.in_float64 and start is None
        if ball and searches and Search.is_next(saver, dual, source.n_rows):
            search = search_of(ball.solver)(source, dual, self.tiles, plan, parameters, **control)
            reason = search.run()
            # Far points fill a core set first, and do not make a model by themselves.
            goes_on = reason is StopReason.CORE_FULL or (parameters.certify and reason in ENDS)
            if not goes_on:
                result = search.result(reason)
                if not parameters.certify:
                    return result
                certificate = replace(result.certificate, tol=parameters.tol)
                return replace(result, certificate=certificate)
            watch = search.watch
            if self._certifies:
                start = search.alpha()
            del search  # its core set takes the memory that kernel rows will have
        result = self.decompose(source, dual, plan, start=start, watch=watch, **control)
        objective = result.certificate.objective
        if ball and result.certificate.converged and objective:
            # Refuses an energy that is impossible.
            ball.energy(0.5 / objective, is_exact=True)
        return result

    def dual(self, source: RowSource, formulation: Formulation, plan: TrainingPlan) -> BoxDual:
        """Make the dual of a problem of one function."""
        return make_dual(source, formulation, self.tiles, plan, self._parameters)

    def job(self, source: RowSource) -> Job:
        """Describe the kernel, and the rows of a source, for workers."""
        tiles = self.tiles
        return Job(source.portable(), tiles.kernel, tiles.centre, tiles.offset, source.is_sparse)

    def exact_outputs(
        self, source: RowSource, beta: F8, plan: TrainingPlan, rows: I8 | None = None
    ) -> F8:
        """``K @ beta`` at all rows of a source, or at ascending `rows`, in float64."""
        with self.tiles.exact() as tiles:
            gather = WorkingRows(source).gather
            exact = Exact(Products(source), tiles, gather, at_once=plan.exact_rows)
            return exact.outputs(np.arange(source.n_rows) if rows is None else rows, beta)

    def decompose(
        self,
        source: RowSource,
        dual: Dual[Any],
        plan: TrainingPlan,
        *,
        saver: Saver | None,
        limits: Limits,
        listener: Listener,
        start: F8 | None = None,
        point: KnownPoint | None = None,
        watch: Watch | None = None,
    ) -> TrainingResult:
        """Run the outer loop, whatever the family of the problem.

        Rows are in the order to train in. It begins at a feasible point if `start` is given, or
        `point`, which has its outputs; `watch` is that of the search that led there.
        """
        parameters = self._parameters
        if dual.in_float64 and self.tiles.dtype != np.float64:
            some, problem = copy.copy(self), dual.formulation
            width = self._kernel.dimensions(source.n_columns) + (problem.offset > 0)
            plan = planned_in_float64(plan, width, n_outputs=problem.n_outputs)
            with self.tiles.exact() as some.tiles:
                return some.decompose(
                    source, dual, plan,
                    saver=saver, limits=limits, listener=listener, start=start, point=point,
                )  # fmt: skip
        if parameters.disk_cache and parameters.keeps_values and self._kept is None:
            some = copy.copy(self)
            keeping = kept_tiles(
                self.tiles, source, plan, parameters,
                fingerprint_of_kernel_values(source, self.tiles), self.workforce is not None,
            )  # fmt: skip
            with keeping as (some.tiles, some._kept):
                return some.decompose(
                    source, dual, plan, saver=saver, limits=limits, listener=listener,
                    start=start, point=point, watch=watch,
                )  # fmt: skip
        run = Run(
            source, dual, self.tiles, plan, start=start, point=point, watch=watch,
            seed=parameters.seed, limits=limits, listener=listener, saver=saver,
        )  # fmt: skip
        if self._kept is not None:
            run.count.disk_tier = self._kept
            listener(TierChosen(self._kept))
        executor = self._executor_for(source, plan.block_bytes)
        choice = choice_for(run, parameters, certify=self._certifies)
        return Decomposition(
            run, tol=parameters.tol, choice=choice, executor=executor,
            exact_objective=parameters.exact_objective,
        ).run()  # fmt: skip

    def read_again(self, source: RowSource) -> RowSource:
        """Return the rows of a source as this process reads them to check workers."""
        if self.workforce is None or not source.is_fetched:
            return source
        return RowsReadAgain(source.placed()[0], self.workforce.traffic)

    def _executor_for(self, source: RowSource, block_bytes: int) -> ClusterExecutor | None:
        """Return what has workers compute, the same for the same rows: they keep units of it."""
        if self.workforce is None:
            return None
        known = self._executor
        if known is None or known.source is not source or known.tiles is not self.tiles:
            known = ClusterExecutor(self.workforce, source, self.tiles, block_bytes=block_bytes)
            self._executor = known
        return known


def costs_of(workforce: Workforce | None, threads: int) -> dict[str, Any]:
    """Return what workers have cost, by name; nothing if no worker took part.

    The names are `CLUSTER_COSTS`, `CLUSTER_SECONDS` and `BYTES_OF_WORKERS`. `threads` are those of
    this process.
    """
    if workforce is None or not workforce.traffic.n_workers:
        return {}
    traffic = workforce.traffic
    costs: dict[str, Any] = {name: getattr(traffic, name) for name in CLUSTER_COSTS}
    seconds = traffic.waited_seconds, traffic.busy_seconds / threads
    read = sorted(traffic.bytes_read.values(), reverse=True)
    return costs | dict(zip(CLUSTER_SECONDS, seconds, strict=True)) | {BYTES_OF_WORKERS: read}


def workforce_of(hooks: Hooks) -> Workforce:
    """Open the workers of a cluster."""

    def changed(address: str, threads: int, joined: bool) -> None:
        hooks.listener((Joined if joined else Left)(address, threads))

    return Workforce(hooks.client, hooks.terms, on_change=changed)


def open_checkpoint(
    parameters: TrainingParameters, fingerprint: Mapping[str, str], hooks: Hooks
) -> AbstractContextManager[Checkpoint | None]:
    """Own the checkpoint directory of a run for a while, where it has one."""
    if parameters.checkpoint is None:
        return nullcontext()
    copy = None
    if parameters.checkpoint_copy is not None:
        copy = CheckpointCopy(parameters.checkpoint_copy, kept=KEPT)
    folder = hooks.checkpoint_of(fingerprint) if hooks.checkpoint_of else parameters.checkpoint
    return Checkpoint(folder, fingerprint, copy)
