"""Reduction: how labelled rows are made to problems, and their results to functions of a model.

`make_plan` divides the memory of such a run. `find_kernel` and `model_of` begin and end it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
import scipy.sparse as sp

from bigsvm.budget import parse_bytes, plan_training
from bigsvm.data.kernel_matrix import support_rows
from bigsvm.data.statistics import far_columns
from bigsvm.data.wrappers import hold
from bigsvm.errors import ParameterError
from bigsvm.executors.local import VALUES_AT_ONCE
from bigsvm.fit.fingerprint import provenance_of
from bigsvm.fit.gamma import mean_distance, sampled_rows, weighted_variance
from bigsvm.gram.lists import listed_bytes
from bigsvm.gram.partners import PARTNERS_PER_TILE, SPARSE_TILE_BYTES
from bigsvm.kernels import KERNELS, Kernel, Precomputed, make_kernel, resolve_gamma
from bigsvm.models import KernelExpansion
from bigsvm.parameters.names import KERNEL_PARAMETERS
from bigsvm.training.saving import Saver
from bigsvm.training.state import limits_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from bigsvm.arrays import F8, I8
    from bigsvm.budget import TrainingPlan
    from bigsvm.data.row_source import RowSource
    from bigsvm.data.rows import Rows
    from bigsvm.data.scaler import Scaler
    from bigsvm.fit.fingerprint import Recorded
    from bigsvm.fit.held_out import HeldOut
    from bigsvm.fit.problem import Given
    from bigsvm.fit.trainer import Trainer
    from bigsvm.parameters import TrainingParameters
    from bigsvm.training.checkpoint import Checkpoint
    from bigsvm.training.events import Hooks
    from bigsvm.training.result import Certificate

    MakeReduction: TypeAlias = Callable[[Given], "Reduction[Any]"]

SHRINKING_BYTES = 50
"""Bytes of a row in a working set that rows leave: alpha and gradient of up to two variables,
whether the row is kept, and its number."""
FEATURES_OF_TILE = SPARSE_TILE_BYTES // (4 * PARTNERS_PER_TILE)
"""Most features of a tile of sparse rows as wide as others."""


class Certified(Protocol):
    """Result of a run."""

    @property
    def certificate(self) -> Certificate:
        """What the run has proved, and what it cost."""


Result = TypeVar("Result", bound=Certified)
Result_co = TypeVar("Result_co", bound=Certified, covariant=True)


class RunResources(NamedTuple):
    """What a run is given besides its problems."""

    trainer: Trainer
    plan: TrainingPlan
    parameters: TrainingParameters
    hooks: Hooks
    checkpoint: Checkpoint | None

    def control(self) -> dict[str, Any]:
        """Return the arguments ``saver``, ``limits`` and ``listener`` of a run as a whole."""
        every, listener = self.parameters.checkpoint_every, self.hooks.listener
        saver = None
        if self.checkpoint is not None:
            times_asked = self.hooks.times_asked
            saver = Saver(self.checkpoint, every=every, listener=listener, times_asked=times_asked)
        return {
            "saver": saver,
            "limits": limits_of(self.parameters, self.hooks),
            "listener": listener,
        }


class ModelFunctions(NamedTuple):
    """The functions of a model, over support vectors that they share.

    Attributes
    ----------
    support : (p,) int64
        Rows with a coefficient in any function.
    coefficients : (p,) or (p, k) float64, or CSR (p, k)
    intercept : float or (k,) float64
    certificate : dict
        As JSON has it.
    bounds : (p,) float64 or None
        As `KernelExpansion` has them.
    """

    support: I8
    coefficients: F8 | sp.csr_array
    intercept: float | F8
    certificate: dict[str, Any]
    bounds: F8 | None = None

    def grouped(self, label: NDArray[np.integer[Any]]) -> ModelFunctions:
        """Group support vectors by their classes `label`, (p,); within a class they keep the order.

        LIBSVM and scikit-learn order them so: an estimator shows the arrays of its model as theirs.
        """
        order = np.argsort(label, kind="stable")
        return self._replace(support=self.support[order], coefficients=self.coefficients[order])


class Problems(Protocol[Result_co]):
    """Problems of the rows of one source that one run solves.

    `bigsvm.fit.train.run_problems` calls the methods in the order in which they are here.
    """

    @property
    def offset(self) -> float:
        """What is added to every kernel value."""

    @property
    def sample_weight(self) -> F8 | None:
        """Weights of the rows that gamma is computed from."""

    def plan(self, source: RowSource) -> tuple[RowSource, TrainingPlan]:
        """Divide the memory; return the rows, held in memory where they fit, and the plan."""

    def recorded(self) -> Recorded:
        """Describe the problems for the fingerprint."""

    def arrange(self, source: RowSource) -> None:
        """Choose the order of training, and the point it starts from."""

    def run(self, resources: RunResources) -> Result_co:
        """Solve the problems."""


class Named(Protocol):
    """What a model says of itself besides its functions."""

    @property
    def name(self) -> str:
        """Name of the formulation."""

    @property
    def classes(self) -> list[Any] | None:
        """Classes of the model."""

    @property
    def rule(self) -> str | None:
        """How classes are told from several functions, as `KernelExpansion.rule`."""


class Reduction(Problems[Result], Named, Protocol[Result]):
    """The problems that labelled rows are reduced to, and the way back to a model."""

    @property
    def class_weight(self) -> Sequence[float] | None:
        """Weight of each class."""

    @property
    def held_out(self) -> HeldOut | None:
        """Rows that are kept for the calibration."""

    def functions(self, result: Result) -> ModelFunctions:
        """Make the functions of the model."""


def refuse_start(start: KernelExpansion | None) -> None:
    """Refuse a model to start from, where classes are reduced to several problems."""
    if start is not None:
        raise ParameterError("a model of many classes starts from no other; leave it out")


def hold_and_plan(
    parameters: TrainingParameters, source: RowSource, *, resident_bytes: int, **functions: Any
) -> tuple[RowSource, TrainingPlan]:
    """Hold all rows in memory if they take little of it, and plan the rest with `make_plan`."""
    held = source
    if source.row_alignment > 1:
        held = hold(source, parse_bytes(parameters.memory))
    if held is not source:
        resident_bytes += int(source.bytes_per_row * source.n_rows)
    return held, make_plan(parameters, held, resident_bytes=resident_bytes, **functions)


def make_plan(
    parameters: TrainingParameters,
    source: RowSource,
    *,
    resident_bytes: float,
    n_rows: int | None = None,
    row_alignment: int | None = None,
    n_outputs: int = 1,
    **functions: Any,
) -> TrainingPlan:
    """Divide the memory for training on a source, or on some rows of it.

    Parameters
    ----------
    resident_bytes : float
        Bytes of other arrays that are in memory for the whole run.
    n_rows, row_alignment : int, optional
        Those of the rows that are trained on; the source's by default.
    n_outputs, functions
        As `plan_training` takes them.
    """
    n_rows = source.n_rows if n_rows is None else n_rows
    resident_bytes += source.copied_bytes
    if n_outputs > 1:
        # A block's sums and its updated outputs, which exist at once.
        resident_bytes += 2 * 8 * min(n_outputs * n_rows, VALUES_AT_ONCE)
    resident_bytes += source.kept_bytes
    if parameters.may_shrink:
        resident_bytes += SHRINKING_BYTES * n_rows
    packed_row_bytes = None
    if source.is_sparse and source.n_columns > FEATURES_OF_TILE:
        packed_row_bytes = _listed_row_bytes(parameters, source)
    plan = plan_training(
        parse_bytes(parameters.memory),
        n_rows=n_rows,
        n_columns=source.n_columns,
        bytes_per_row=source.bytes_per_row,
        row_alignment=source.row_alignment if row_alignment is None else row_alignment,
        threads=parameters.n_threads,
        n_outputs=n_outputs,
        resident_bytes=int(resident_bytes),
        packed=not parameters.takes_kernel_matrix,
        packed_row_bytes=packed_row_bytes,
        whole=parameters.working_set == "all",
        **functions,
    )
    if parameters.kernel_rows is not None:
        plan = plan.with_kernel_rows(parameters.kernel_rows)
    return plan


def _listed_row_bytes(parameters: TrainingParameters, source: RowSource) -> float | None:
    """Bytes of a row in lists, by a sample of the rows; None if they may be laid out in tiles."""
    kernel = parameters.kernel
    product = kernel.product if isinstance(kernel, Kernel) else KERNELS[kernel].product
    if product != "dot" or source.n_rows < PARTNERS_PER_TILE:
        return None
    chosen = source.sample_indices(PARTNERS_PER_TILE, seed=parameters.seed)
    rows = sp.csr_array(sampled_rows(source, chosen))
    return listed_bytes(rows, most_features=FEATURES_OF_TILE)


class Trained(NamedTuple, Generic[Result]):
    """What a run has led to, as the problems' `run` returns it, and what its models share.

    `take` returns rows of the source by number.
    """

    result: Result
    source: RowSource
    block_bytes: int
    kernel: Kernel
    centre: F8 | None
    scaler: Scaler | None
    fingerprint: dict[str, str]
    cluster_costs: dict[str, float]
    take: Callable[[I8], Rows]
    solver: str = "bigsvm"


def find_kernel(
    parameters: TrainingParameters,
    source: RowSource,
    sample_weight: F8 | None,
    *,
    block_bytes: int,
    hooks: Hooks,
) -> tuple[Kernel, F8 | None]:
    """Make the kernel, with gamma from all rows, and the centre, (d,), if there is to be one."""
    kernel, gamma, variance, distance = parameters.kernel, 1.0, 1.0, 1.0
    if not isinstance(kernel, Kernel):
        if "gamma" in KERNEL_PARAMETERS.get(kernel, ("gamma",)):
            if parameters.gamma == "scale":
                # Asked for in any case, as it refuses what is not finite.
                variance = source.total_variance()
                if sample_weight is not None:
                    variance = weighted_variance(
                        source, sample_weight, block_bytes=block_bytes, hooks=hooks
                    )
            elif parameters.gamma == "mean-distance":
                distance = mean_distance(source, sample_weight, seed=parameters.seed)
            given: Any = parameters.gamma
            if not isinstance(given, tuple):
                given = resolve_gamma(
                    given,
                    n_features=source.n_features,
                    variance=variance,
                    mean_distance=distance,
                )
            gamma = given
        kernel = make_kernel(kernel, gamma=gamma, coef0=parameters.coef0, degree=parameters.degree)
    factors = kernel.column_factors
    if factors is not None and len(factors) != source.n_features:
        raise ParameterError(
            f"gamma has {len(factors)} numbers, and X has {source.n_features} columns; give one "
            "for each"
        )
    if not kernel.is_shift_invariant:
        return kernel, None
    centre = source.column_means()
    if not source.is_sparse:
        return kernel, centre
    centre = far_columns(centre, source.total_variance(), source.n_features)
    return kernel, centre if centre.any() else None


def model_of(
    trained: Trained[Any],
    functions: ModelFunctions,
    parameters: TrainingParameters,
    reduction: Named,
    class_weight: Sequence[float] | None,
) -> KernelExpansion:
    """Make the model of functions that a run has led to."""
    support, source = functions.support, trained.source
    is_matrix = isinstance(trained.kernel, Precomputed)
    return KernelExpansion(
        kernel=trained.kernel,
        support_vectors=support_rows(source, support) if is_matrix else trained.take(support),
        coefficients=functions.coefficients,
        intercept=functions.intercept,
        centre=trained.centre,
        support=support,
        classes=reduction.classes,
        formulation=reduction.name,
        rule=reduction.rule,
        scaler=trained.scaler,
        bounds=functions.bounds,
        certificate={
            **functions.certificate,
            "solver": trained.solver,
            "kernel_is_definite": trained.kernel.is_definite,
            **trained.cluster_costs,
        },
        provenance=provenance_of(
            parameters, source, trained.kernel, class_weight, trained.fingerprint
        ),
    )
