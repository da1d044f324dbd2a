"""From rows, labels and parameters to a model: what every classifier's `fit` and the CLI share."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash
from threadpoolctl import threadpool_limits

from bigsvm import __version__
from bigsvm.budget import available_processors, parse_bytes, plan_training
from bigsvm.cache.disk_cache import DiskCache
from bigsvm.data.held import hold
from bigsvm.duals.box import BoxDual, SelectionRule
from bigsvm.duals.formulations import CSVC
from bigsvm.errors import DataError, ParameterError
from bigsvm.estimators.variables import make_variables
from bigsvm.estimators.variance import weighted_variance
from bigsvm.kernels import make_kernel, resolve_gamma
from bigsvm.models import KernelExpansion
from bigsvm.tiles import KernelTiles
from bigsvm.training import events
from bigsvm.training.checkpoint import Checkpoint
from bigsvm.training.decomposition import Decomposition
from bigsvm.training.state import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from bigsvm.data.rows import RowSource
    from bigsvm.kernels import Kernel
    from bigsvm.training.result import Certificate


WORKING_SETS = ("auto", "all")
SCARCE = 0.25
"""With fewer kernel rows in memory than this share of all, HMG. Seconds of second-order ÷ its, all
rows of mnist's first 12 000 as one working set: 1.49 at 1 %, 1.30 at 10 %, 1.05 at 25 %."""


@dataclass(frozen=True, kw_only=True)
class ClassifierParameters:
    """What a C-SVC is trained with; the meaning of each is `bigsvm.SVC`'s.

    Resources (memory, threads, checkpoint, limits) do not change the answer, and may be others when
    a run is resumed.
    """

    C: float = 1.0
    kernel: str = "rbf"
    degree: int = 3
    gamma: float | str = "scale"
    coef0: float = 0.0
    tol: float = 1e-3
    class_weight: Mapping[float, float] | str | None = None
    selection: str = "auto"
    working_set: str = "auto"
    seed: int = 0
    memory: int | str = "1GB"
    kernel_rows: int | None = None
    disk_cache: int | str = 0
    cache_dir: str | None = None
    threads: int | None = None
    checkpoint: str | None = None
    checkpoint_every: float = 60.0
    max_iter: int = -1
    max_seconds: float = float("inf")

    def check(self) -> None:
        """Refuse values that mean nothing before any work is done.

        Raises
        ------
        ParameterError
        """
        make_kernel(self.kernel, coef0=self.coef0, degree=self.degree)
        resolve_gamma(self.gamma, n_features=1, variance=1.0)
        SelectionRule.from_name(self.selection)
        parse_bytes(self.memory)
        self.disk_cache_bytes()
        if self.working_set not in WORKING_SETS:
            raise ParameterError(
                f"working_set is {self.working_set!r}; it must be one of {', '.join(WORKING_SETS)}"
            )
        for name, value in (("C", self.C), ("tol", self.tol)):
            if not (np.isfinite(value) and value > 0):
                raise ParameterError(f"{name} is {value!r}; it must be a finite number > 0")
        if not self.checkpoint_every > 0:
            raise ParameterError(f"checkpoint_every is {self.checkpoint_every!r}; it must be > 0")
        if self.threads is not None and self.threads < 1:
            raise ParameterError(f"threads is {self.threads!r}; it must be at least 1")
        if not self.max_seconds > 0:
            raise ParameterError(f"max_seconds is {self.max_seconds!r}; it must be > 0")
        if self.max_iter != -1 and self.max_iter < 0:
            raise ParameterError(f"max_iter is {self.max_iter!r}; it must be >= 0, or -1 for none")

    def disk_cache_bytes(self) -> int:
        """Bytes of kernel rows on disk, 0 for none."""
        return 0 if str(self.disk_cache).strip() in ("0", "0.0") else parse_bytes(self.disk_cache)


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """Who watches a run, and who may stop it."""

    listener: events.Listener = events.ignore
    interrupted: Callable[[], bool] = field(default=lambda: False)


def fit_classifier(
    source: RowSource,
    labels: NDArray[Any],
    sample_weight: NDArray[np.float64] | None,
    parameters: ClassifierParameters,
    hooks: Hooks | None = None,
) -> KernelExpansion:
    """Train a binary C-SVC.

    Parameters
    ----------
    source : RowSource
        (n, d).
    labels : (n,) array
        Two distinct values of any sortable type.
    sample_weight : (n,) float64 or None
        In [0, ∞); 2 means the row twice, 0 that it is not there.
    parameters : ClassifierParameters
    hooks : Hooks, optional

    Returns
    -------
    KernelExpansion
        Its certificate says whether training converged, and if not why.

    Raises
    ------
    ParameterError, DataError, MemoryBudgetError, CheckpointError, DataCorruptionError
    """
    parameters.check()
    hooks = hooks or Hooks()
    classes, formulation = _problem(parameters, source.n_rows, labels, sample_weight)
    # 8 bytes a row that the budget does not count: from here on their signs are enough.
    del labels
    weights = formulation.sample_weight
    threads = parameters.threads or available_processors()
    whole = parameters.working_set == "all"
    memory = parse_bytes(parameters.memory)
    read, source = source, hold(source, memory)
    plan = plan_training(
        memory,
        n_rows=source.n_rows,
        n_columns=source.n_columns,
        bytes_per_row=source.bytes_per_row,
        row_alignment=source.row_alignment,
        threads=threads,
        resident_bytes=(0 if weights is None else weights.nbytes)
        + (0 if source is read else int(source.bytes_per_row * source.n_rows)),
        whole=whole,
    )
    if parameters.kernel_rows is not None:
        plan = plan.with_kernel_rows(parameters.kernel_rows)
    kernel = _kernel(
        parameters,
        source,
        weights,
        block_bytes=plan.block_bytes,
        interrupted=hooks.interrupted,
    )
    centred = kernel.is_shift_invariant and not source.is_sparse
    centre = source.column_means() if centred else None
    fingerprint = _fingerprint(source, formulation, kernel)
    # From here on rows have the order they are trained in.
    variables = make_variables(source, formulation, merge=not whole)
    with ExitStack() as stack:
        stack.enter_context(threadpool_limits(1, user_api="blas"))
        tiles = stack.enter_context(KernelTiles(kernel, centre=centre, threads=threads))
        checkpoint = None
        if parameters.checkpoint is not None:
            checkpoint = stack.enter_context(Checkpoint(parameters.checkpoint, fingerprint))
        disk = None
        if whole and parameters.disk_cache_bytes():
            disk = DiskCache(
                parameters.cache_dir or tempfile.gettempdir(),
                capacity_bytes=parameters.disk_cache_bytes(),
                fingerprint=_of_kernel_rows(fingerprint, source),
            )
        rule = SelectionRule.from_name(
            parameters.selection, rows_are_scarce=whole and plan.holds_few_rows(SCARCE)
        )
        result = Decomposition(
            variables.source,
            BoxDual(variables.formulation, rule),
            tiles,
            plan,
            tol=parameters.tol,
            whole=whole,
            disk=disk,
            seed=parameters.seed,
            limits=Limits(
                max_iter=parameters.max_iter,
                max_seconds=parameters.max_seconds,
                interrupted=hooks.interrupted,
            ),
            checkpoint=checkpoint,
            checkpoint_every=parameters.checkpoint_every,
            listener=hooks.listener,
        ).run()
    support, coefficients = variables.spread(formulation, result.support, result.coefficients)
    return KernelExpansion(
        kernel=kernel,
        support_vectors=source.take(support),
        coefficients=coefficients,
        intercept=result.intercept,
        centre=centre,
        support=support,
        classes=classes,
        certificate=_of_rows(result.certificate, formulation, support, coefficients),
        provenance=_provenance(parameters, source, formulation, fingerprint),
    )


def _of_rows(
    certificate: Certificate,
    formulation: CSVC,
    support: NDArray[np.int64],
    coefficients: NDArray[np.float64],
) -> dict[str, Any]:
    """Count support vectors by rows: several may have been one variable."""
    box = formulation.box(support)
    bounded = (coefficients == box.upper) | (coefficients == box.lower)
    counted = replace(certificate, n_support=len(support), n_bounded=int(bounded.sum()))
    return counted.as_dict()


def _problem(
    parameters: ClassifierParameters,
    n_rows: int,
    labels: NDArray[Any],
    sample_weight: NDArray[np.float64] | None,
) -> tuple[list[Any], CSVC]:
    """Make the two classes and the dual problem of labels and weights."""
    classes, codes = encode_labels(labels, n_rows)
    sample_weight = check_weights(sample_weight, n_rows)
    return classes.tolist(), CSVC(
        sign=np.where(codes == 1, np.int8(1), np.int8(-1)),
        C=parameters.C,
        class_weight=class_weights(parameters.class_weight, classes, codes),
        sample_weight=sample_weight,
    )


def _provenance(
    parameters: ClassifierParameters,
    source: RowSource,
    formulation: CSVC,
    fingerprint: dict[str, str],
) -> dict[str, Any]:
    """List where a model comes from, as JSON can say it."""
    unlimited = parameters.max_seconds == float("inf")
    return {
        "bigsvm": __version__,
        "parameters": {
            **asdict(parameters),
            "max_seconds": None if unlimited else parameters.max_seconds,
            "class_weight": list(formulation.class_weight),
        },
        "data": fingerprint["data"],
        "n_rows": source.n_rows,
        "first_index": source.first_index,
    }


def encode_labels(labels: NDArray[Any], n_rows: int) -> tuple[NDArray[Any], NDArray[np.int8]]:
    """Find the two classes, sorted, and which of them each row has, (n,) int8.

    Raises
    ------
    DataError
        One class only, more than two, or another number of labels than rows.
    """
    if labels.shape != (n_rows,):
        raise DataError(
            f"y has shape {labels.shape}; there are {n_rows} rows, so it must be ({n_rows},)"
        )
    classes = np.unique(labels)
    if len(classes) != 2:
        listed = ", ".join(str(label) for label in classes[:5])
        raise DataError(
            f"Only binary classification is supported. The type of the target is "
            f"{'one class' if len(classes) == 1 else 'multiclass'}: y has {len(classes)} class(es) "
            f"({listed}{', …' if len(classes) > 5 else ''}); two are needed"
        )
    return classes, (labels == classes[1]).astype(np.int8)


def check_weights(weights: NDArray[np.float64] | None, n_rows: int) -> NDArray[np.float64] | None:
    """Refuse weights that are negative, not finite, all zero, or not one a row.

    Returns
    -------
    (n_rows,) float64, contiguous, or None
    """
    if weights is None:
        return None
    if weights.shape != (n_rows,):
        raise DataError(f"sample_weight has shape {weights.shape}; it must be ({n_rows},)")
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(wrong):
        raise DataError(
            f"sample_weight of row {wrong[0]} is {weights[wrong[0]]}; weights must be finite and "
            ">= 0 (Negative values in data passed to `sample_weight`)"
        )
    if not weights.any():
        raise DataError("sample_weight is zero for every row; at least one must be positive")
    return np.ascontiguousarray(weights, np.float64)


def class_weights(
    given: Mapping[float, float] | str | None, classes: NDArray[Any], codes: NDArray[np.int8]
) -> tuple[float, float]:
    """Weight of the negative and the positive class; ``"balanced"`` as in scikit-learn."""
    if given is None:
        return 1.0, 1.0
    if isinstance(given, str):
        if given != "balanced":
            raise ParameterError(
                f"class_weight is {given!r}; it must be 'balanced', a dictionary or None"
            )
        # By scikit-learn's formula; to import it takes a command longer than all else it imports.
        negative, positive = len(codes) / (2 * np.bincount(codes, minlength=2))
        return float(negative), float(positive)
    labels = classes.tolist()
    unknown = [label for label in given if label not in labels]
    if unknown:
        raise ParameterError(
            f"class_weight names {unknown[0]!r}, which is no class; the classes are {labels}"
        )
    return float(given.get(labels[0], 1.0)), float(given.get(labels[1], 1.0))


def _kernel(
    parameters: ClassifierParameters,
    source: RowSource,
    sample_weight: NDArray[np.float64] | None,
    *,
    block_bytes: int,
    interrupted: Callable[[], bool],
) -> Kernel:
    gamma = 1.0
    if parameters.kernel != "linear":
        variance = 1.0
        if parameters.gamma == "scale":
            # Asked for in any case, as it refuses what is not finite.
            variance = source.total_variance()
            if sample_weight is not None:
                variance = weighted_variance(
                    source, sample_weight, block_bytes=block_bytes, interrupted=interrupted
                )
        gamma = resolve_gamma(parameters.gamma, n_features=source.n_columns, variance=variance)
    return make_kernel(
        parameters.kernel, gamma=gamma, coef0=parameters.coef0, degree=parameters.degree
    )


def _of_kernel_rows(fingerprint: dict[str, str], source: RowSource) -> dict[str, str]:
    """List what a kernel row is valid for: neither labels nor C, so that others find it again."""
    same = {name: fingerprint[name] for name in ("data", "kernel", "bigsvm")}
    return {**same, "rows": str(source.n_rows)}


def _fingerprint(source: RowSource, formulation: CSVC, kernel: Kernel) -> dict[str, str]:
    """List what a checkpoint must agree with, readable where a person will compare."""
    hasher = xxhash.xxh3_128(formulation.sign.data)
    if formulation.sample_weight is not None:
        hasher.update(formulation.sample_weight.data)
    return {
        "data": source.fingerprint(),
        "labels and weights": hasher.hexdigest(),
        "formulation": formulation.name,
        "C": repr(formulation.C),
        "class weights": repr(formulation.class_weight),
        "kernel": repr(kernel),
        "bigsvm": ".".join(__version__.split(".")[:2]),
    }
