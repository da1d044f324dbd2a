"""What training problems need that is opened or found out once, and the run of one of them."""

from __future__ import annotations

import copy
import tempfile
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import numpy as np
import xxhash

from bigsvm import __version__
from bigsvm.cache.disk_cache import DiskCache
from bigsvm.data.statistics import far_columns
from bigsvm.duals.ball import BallFormulation
from bigsvm.duals.box import BoxDual, SelectionRule
from bigsvm.duals.problem import FingerprintEntry
from bigsvm.fit.ball import ball_dual, mean_distance
from bigsvm.fit.variance import weighted_variance
from bigsvm.kernels import Kernel, Precomputed, make_kernel, resolve_gamma
from bigsvm.parameters.formulations import BALLS, CLASSIFIERS
from bigsvm.processors import one_blas_thread
from bigsvm.tiles import KernelTiles
from bigsvm.training.certify import Exact
from bigsvm.training.checkpoint import Checkpoint
from bigsvm.training.decomposition import Decomposition
from bigsvm.training.result import StopReason
from bigsvm.training.search import ENDS, FirstPoints, Search
from bigsvm.training.searches import search_of
from bigsvm.training.state import Limits
from bigsvm.training.working_rows import WorkingRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from bigsvm.budget import TrainingPlan
    from bigsvm.data.rows import RowSource
    from bigsvm.duals.box_problem import Formulation
    from bigsvm.duals.dual import Dual
    from bigsvm.fit.variables import Variables
    from bigsvm.parameters import TrainingParameters
    from bigsvm.training.events import Hooks, Listener
    from bigsvm.training.result import Certificate, TrainingResult
    from bigsvm.training.saving import Saver
    from bigsvm.training.watch import Watch

Part = TypeVar("Part")

SCARCE = 0.25
"""With memory for less than this share of all kernel rows, HMG is the faster rule."""
SHRUNK = 0.1
"""With fewer than this share, shrinking by default: it computes fewer kernel values there, and more
where many rows fit, as those left out have to be brought back (benchmark ``hmg --part
shrinking``)."""


class Trainer:
    """Trains problems over one kernel, one after the other; use it as a context manager.

    Parameters
    ----------
    parameters : TrainingParameters
    kernel : Kernel
    centre : (d,) float64 or None
        Subtracted from the rows, see `KernelTiles`.
    offset : float
        Of the formulation.
    """

    def __init__(
        self,
        parameters: TrainingParameters,
        kernel: Kernel,
        centre: NDArray[np.float64] | None,
        *,
        offset: float,
    ) -> None:
        self._parameters, self._kernel = parameters, kernel
        self._stack = ExitStack()
        threads = parameters.n_threads
        self._tiles = KernelTiles(kernel, centre=centre, threads=threads, offset=offset)

    @property
    def _certifies(self) -> bool:
        """Whether sweeps follow whatever the search finds: without classes no error is known."""
        parameters = self._parameters
        return parameters.certify or parameters.formulation not in CLASSIFIERS

    def with_threads(self, threads: int) -> Trainer:
        """Make one with some of the threads, to be used at the same time as others of this one."""
        some = copy.copy(self)
        some._tiles = self._tiles.with_threads(threads)
        return some

    def share_out(
        self, one: Callable[[Part], None], parts: Sequence[Part], *, abandon: Callable[[], None]
    ) -> None:
        """Do all parts of some work on the threads, the caller's among them: `Team.share_out`."""
        self._tiles.share_out(one, parts, abandon=abandon)

    def __enter__(self) -> Self:
        self._stack.enter_context(one_blas_thread())
        self._stack.enter_context(self._tiles)
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def train(
        self,
        variables: Variables[Formulation],
        plan: TrainingPlan,
        *,
        saver: Saver,
        limits: Limits,
        listener: Listener,
        start: NDArray[np.float64] | None = None,
    ) -> TrainingResult:
        """Train one problem.

        Parameters
        ----------
        variables : Variables
        plan : TrainingPlan
        saver : Saver
            Saves the run, and knows what it goes on from.
        limits : Limits
        listener : callable
        start : (n,) or (n, faces) float64, optional
            A feasible point to start from.
        """
        parameters, source = self._parameters, variables.source
        dual, watch = self.dual(source, variables.formulation, plan), None
        saved: dict[str, Any] = {"saver": saver, "limits": limits, "listener": listener}
        ball = dual.searched
        if ball and start is None and Search.is_next(saver, dual, source.n_rows):
            search = search_of(ball.solver)(
                source, dual, self._tiles, plan,
                ball_tol=parameters.ball_tol, sampling=parameters.sampling,
                empty_samples=parameters.empty_samples,
                first_points=FirstPoints(parameters.first_points),
                certify=parameters.certify, seed=parameters.seed, **saved,
            )  # fmt: skip
            reason = search.run()
            # Far points fill a core set first, and do not make a model by themselves.
            goes_on = reason is StopReason.CORE_FULL or (parameters.certify and reason in ENDS)
            if not goes_on:
                return search.result(reason)
            watch = search.watch
            if self._certifies:
                start = search.alpha()
            del search  # its core set takes the memory that kernel rows will have
        result = self.decompose(source, dual, plan, start=start, watch=watch, **saved)
        objective = result.certificate.objective
        if ball and result.certificate.converged and objective:
            ball.energy(0.5 / objective, is_exact=True)
        return result

    def dual(self, source: RowSource, formulation: Formulation, plan: TrainingPlan) -> BoxDual:
        """Make the dual of a problem of one function."""
        parameters = self._parameters
        whole = parameters.working_set == "all"
        scarce = whole and plan.holds_few_rows(SCARCE)
        shrinks = parameters.shrinks(rows_are_scarce=plan.holds_few_rows(SHRUNK))
        rule = SelectionRule.from_name(parameters.selection, rows_are_scarce=scarce)
        if isinstance(formulation, BallFormulation):
            return ball_dual(source, formulation, self._tiles, parameters, rule, shrinking=shrinks)
        return BoxDual(
            formulation,
            rule,
            shrinking=shrinks,
            rows_at_once=parameters.rows_at_once,
        )

    def exact_outputs(
        self, source: RowSource, beta: NDArray[np.float64], plan: TrainingPlan
    ) -> NDArray[np.float64]:
        """``K @ beta`` of all rows of a source, (n,) float64, from float64 kernel values."""
        with self._tiles.exact() as tiles:
            exact = Exact(
                source, tiles, WorkingRows(source).gather,
                rows_at_once=plan.exact_rows, look=lambda: None,
            )  # fmt: skip
            return exact.outputs(np.arange(source.n_rows), beta)

    def decompose(
        self,
        source: RowSource,
        dual: Dual[Any],
        plan: TrainingPlan,
        *,
        saver: Saver,
        limits: Limits,
        listener: Listener,
        start: NDArray[np.float64] | None = None,
        watch: Watch | None = None,
    ) -> TrainingResult:
        """Run the outer loop, whatever the family of the problem.

        Parameters
        ----------
        source : RowSource
            In the order to train in.
        dual : Dual
            Of these rows.
        plan, saver, limits, listener
            As for `train`.
        start : (n,) or (n, …) float64, optional
            A feasible point to start from.
        watch : Watch, optional
            Of a search that has led there.
        """
        parameters = self._parameters
        whole = parameters.working_set == "all"
        disk = None
        if whole and parameters.disk_cache_bytes():
            disk = DiskCache(
                parameters.cache_dir or tempfile.gettempdir(),
                capacity_bytes=parameters.disk_cache_bytes(),
                fingerprint=_of_kernel_rows(source, self._kernel, offset=dual.formulation.offset),
            )
        return Decomposition(
            source, dual, self._tiles, plan,
            tol=parameters.ball_tol if parameters.formulation in BALLS else parameters.tol,
            whole=whole, disk=disk, start=start, watch=watch, seed=parameters.seed, limits=limits,
            certify=self._certifies, saver=saver, listener=listener,
        ).run()  # fmt: skip


def find_kernel(
    parameters: TrainingParameters,
    source: RowSource,
    sample_weight: NDArray[np.float64] | None,
    *,
    block_bytes: int,
    interrupted: Callable[[], bool],
) -> tuple[Kernel, NDArray[np.float64] | None]:
    """Find gamma, of all rows, and the centre, (d,), where there is to be one."""
    kernel = _kernel(
        parameters, source, sample_weight, block_bytes=block_bytes, interrupted=interrupted
    )
    if not kernel.is_shift_invariant:
        return kernel, None
    centre = source.column_means()
    if not source.is_sparse:
        return kernel, centre
    centre = far_columns(centre, source.total_variance(), source.n_features)
    return kernel, centre if centre.any() else None


def _kernel(
    parameters: TrainingParameters,
    source: RowSource,
    sample_weight: NDArray[np.float64] | None,
    *,
    block_bytes: int,
    interrupted: Callable[[], bool],
) -> Kernel:
    if isinstance(parameters.kernel, Kernel):
        return parameters.kernel
    gamma = 1.0
    if parameters.kernel not in ("linear", Precomputed.name):
        variance = 1.0
        if parameters.gamma == "scale":
            # Asked for in any case, as it refuses what is not finite.
            variance = source.total_variance()
            if sample_weight is not None:
                variance = weighted_variance(
                    source, sample_weight, block_bytes=block_bytes, interrupted=interrupted
                )
        distance = 1.0
        if parameters.gamma == "mean-distance":
            distance = mean_distance(source, sample_weight, seed=parameters.seed)
        gamma = resolve_gamma(
            parameters.gamma,
            n_features=source.n_features,
            variance=variance,
            mean_distance=distance,
        )
    return make_kernel(
        parameters.kernel, gamma=gamma, coef0=parameters.coef0, degree=parameters.degree
    )


class DecisionFunction(NamedTuple):
    """The decision function that a run has led to.

    Attributes
    ----------
    support : (p,) int64
        Rows of the problem with a coefficient, ascending.
    coefficients : (p,) float64
    intercept : float
    found : dict
        As `Finished` has it.
    certificate : Certificate
    """

    support: NDArray[np.int64]
    coefficients: NDArray[np.float64]
    intercept: float
    found: dict[str, float]
    certificate: Certificate


def decision_of(
    variables: Variables[Formulation], formulation: Formulation, result: TrainingResult
) -> DecisionFunction:
    """Read the decision function, of rows again instead of variables, off a result."""
    support, alpha = variables.spread(formulation, result.support, result.alpha)
    finished = formulation.finish(result.thresholds)
    certificate = result.certificate
    if variables.groups is not None:
        # Several rows may have been one variable.
        bounded = BoxDual(formulation).n_bounded(alpha, support)
        certificate = replace(certificate, n_support=len(support), n_bounded=bounded)
    coefficients = finished.scale * formulation.per_output(alpha)
    intercept = float(finished.intercept + formulation.offset * coefficients.sum())
    return DecisionFunction(support, coefficients, intercept, finished.found, certificate)


def limits_of(parameters: TrainingParameters, hooks: Hooks) -> Limits:
    """When a run is to stop without having converged."""
    return Limits(
        max_iter=parameters.max_iter,
        max_seconds=parameters.max_seconds,
        interrupted=hooks.interrupted,
    )


def open_checkpoint(
    parameters: TrainingParameters, fingerprint: Mapping[str, str]
) -> AbstractContextManager[Checkpoint | None]:
    """Own the checkpoint directory of a run for a while, where it has one."""
    if parameters.checkpoint is None:
        return nullcontext()
    return Checkpoint(parameters.checkpoint, fingerprint)


def recorded_rules(parameters: TrainingParameters) -> dict[str, str]:
    """List rules that a checkpoint must agree with: with others it goes on to other bits."""
    rules = {}
    if parameters.working_set == "all" and parameters.shrinking is not None:
        rules["shrinking"] = repr(bool(parameters.shrinking))
    if not (parameters.certify or (parameters.merges_rows and parameters.compares_rows)):
        # The variables of a certified run are others.
        rules["certify"] = repr(False)
    return rules


def fingerprint_of(
    source: RowSource,
    kernel: Kernel,
    *,
    formulation: str,
    per_row: tuple[NDArray[Any], NDArray[np.float64] | None],
    chosen: Mapping[str, Any],
    class_weights: Any,
    others: Mapping[str, str],
) -> dict[str, str]:
    """List what a checkpoint must agree with, readable where a person will compare.

    Parameters
    ----------
    source : RowSource
    kernel : Kernel
    formulation : str
    per_row : (n,) array and (n,) float64 or None
        Labels or targets, and weights.
    chosen : mapping
        Parameters of the problem, as `Problem.chosen` has them.
    class_weights, others
        As they are to be read.
    """
    labels, weights = per_row
    hasher = xxhash.xxh3_128(np.ascontiguousarray(labels).data)
    if weights is not None:
        hasher.update(weights.data)
    return {
        FingerprintEntry.DATA: source.fingerprint(),
        FingerprintEntry.LABELS: hasher.hexdigest(),
        "formulation": formulation,
        **{name: repr(value) for name, value in chosen.items()},
        **others,
        FingerprintEntry.CLASS_WEIGHTS: repr(class_weights),
        "kernel": kernel.recorded,
        "bigsvm": _this_version(),
    }


def provenance_of(
    parameters: TrainingParameters,
    source: RowSource,
    class_weights: Iterable[float] | None,
    fingerprint: dict[str, str],
) -> dict[str, Any]:
    """List where a model comes from, as JSON can say it."""
    unlimited = parameters.max_seconds == float("inf")
    names = source.feature_names
    return {
        "bigsvm": __version__,
        "parameters": {
            **asdict(parameters),
            "max_seconds": None if unlimited else parameters.max_seconds,
            "class_weight": None if class_weights is None else list(class_weights),
        },
        "data": fingerprint[FingerprintEntry.DATA],
        "n_rows": source.n_rows,
        "first_index": source.first_index,
        **({} if names is None else {"feature_names": list(names)}),
    }


def _this_version() -> str:
    """Give what of the version a saved run must agree with."""
    return ".".join(__version__.split(".")[:2])


def _of_kernel_rows(source: RowSource, kernel: Kernel, *, offset: float) -> dict[str, str]:
    """List what a kernel row is valid for: neither labels nor C, so that others find it again."""
    raised = {"offset": repr(offset)} if offset else {}
    same = {"data": source.fingerprint(), "kernel": kernel.recorded, "bigsvm": _this_version()}
    return {**same, "rows": str(source.n_rows), **raised}
