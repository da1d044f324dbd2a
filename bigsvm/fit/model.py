"""What a run shares with the model it leads to: the kernel, and the model itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from bigsvm.data.kernel_matrix import support_rows
from bigsvm.data.statistics import far_columns
from bigsvm.errors import ParameterError
from bigsvm.fit.fingerprint import provenance_of
from bigsvm.fit.gamma import mean_distance, weighted_variance
from bigsvm.fit.reduction import Result
from bigsvm.kernels import Kernel, Precomputed, make_kernel, resolve_gamma
from bigsvm.models import KernelExpansion
from bigsvm.parameters.names import KERNEL_PARAMETERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bigsvm.arrays import F8
    from bigsvm.data.row_source import RowSource
    from bigsvm.data.scaler import Scaler
    from bigsvm.fit.reduction import ModelFunctions, Named
    from bigsvm.parameters import TrainingParameters
    from bigsvm.training.events import Hooks


class Trained(NamedTuple, Generic[Result]):
    """What a run has led to, as the problems' `run` returns it, and what its models share."""

    result: Result
    source: RowSource
    block_bytes: int
    kernel: Kernel
    centre: F8 | None
    scaler: Scaler | None
    fingerprint: dict[str, str]
    cluster_costs: dict[str, int]
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
        support_vectors=support_rows(source, support) if is_matrix else source.take(support),
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
