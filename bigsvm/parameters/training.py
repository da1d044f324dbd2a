"""Every parameter of training: `TrainingParameters`, made of fields that are declared once."""

import dataclasses
import functools
import math
from collections.abc import Collection
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any

from bigsvm.budget import parse_bytes
from bigsvm.parameters.declaration import (
    ABOVE_0,
    AT_LEAST_0,
    AT_LEAST_1,
    MANY_CLASSES,
    PATH,
    POSITIVE,
    PROBLEM,
    RESOURCES,
    STOPPING,
    check_value,
    declaration_of,
    parameter,
    spelled,
)
from bigsvm.parameters.formulations import (
    BALLS,
    CLASSIFIERS,
    WITH_CLASSES,
    ProblemParameters,
)
from bigsvm.parameters.groups import (
    BallParameters,
    CrammerSingerParameters,
    KernelParameters,
    PairStepParameters,
    Resources,
)
from bigsvm.parameters.names import CalibrationName, MulticlassName
from bigsvm.processors import default_threads


@dataclass(kw_only=True)
class TrainingParameters(
    ProblemParameters,
    Resources,
    PairStepParameters,
    KernelParameters,
    CrammerSingerParameters,
    BallParameters,
):
    """What a model is trained with."""

    multiclass: MulticlassName = parameter(
        "ovo",
        """
        With more than two classes: votes of all pairs, a graph of them, or each class against the
        rest.

        ``"ovo"`` and ``"ddag"`` train a function for each pair of them, on its rows alone: each has
        a vote, or a decision graph asks k - 1 of them. ``"ovr"`` trains one for each class against
        the rest, all together, and the largest decides.
        """,
        recorded=True,
        panel=MANY_CLASSES,
        formulations=WITH_CLASSES,
    )
    calibration: CalibrationName | None = parameter(
        None,
        """
        Hold out a tenth of the rows, and fit probabilities on them: sigmoid or isotonic of classes,
        density of one class, laplace for the noise of a regression.
        """,
        recorded=True,
        panel=PROBLEM,
    )
    tol: float = parameter(
        1e-3,
        """
        KKT gap over all rows at which training has converged; for crammer-singer the largest
        violation. The search for a ball ends at ball_tol.
        """,
        panel=STOPPING,
        rule=POSITIVE,
    )
    certify: bool = parameter(
        True,
        """
        Whether sweeps prove the tolerance, or training ends when more rows would gain next to
        nothing.

        If False, training works on a growing random part of the rows and ends when the others would
        gain less than half a point of test error, which fresh rows show
        (`bigsvm.training.learning_curve`), at a cost that does not depend on their number:
        `stop_reason_` is ``"settled"``, and `certificate_` has the test error, its standard error
        and the rows used. A run that comes to all rows is certified after all. Problems of at most
        8192 rows are refused, as all of their rows are trained on from the start. If a source is
        neither in memory nor shuffled, one pass draws the rows. The search for a ball ends by
        itself where few rows become support vectors, or `solver` is one of a paper:
        `stop_reason_` is ``"sampled"``.
        """,
        recorded=True,
        panel=STOPPING,
        formulations=(*CLASSIFIERS, "l2-one-class"),
    )
    exact_objective: bool = parameter(
        False,
        """
        Whether the certified objective and duality gap are computed in float64 throughout.

        If False, a sample of the support vectors may show that what float32 has changed in them is
        next to nothing; `certificate_` says how much (`objective_error`, `duality_gap_error`).
        """,
        panel=STOPPING,
    )
    max_seconds: float = parameter(
        math.inf,
        """
        Stop after this time in seconds; on the command line also 5m or 2h.

        None is no limit. If the time is over while the rows are read for the first time, before
        training, there is no model, and an error says so.
        """,
        panel=STOPPING,
        option="--max-time",
        in_estimators="max_time",
        metavar="TIME",
        rule=ABOVE_0,
    )
    seed: int = parameter(
        0,
        """
        Seed of the samples that training starts from.

        An int, a `numpy.random.RandomState` or None, which is 0, so that a fit is repeatable. Also
        of the choice among more violating rows than a working set holds.
        """,
        panel=RESOURCES,
        in_estimators="random_state",
        rule=AT_LEAST_0,
    )
    threads: int | None = parameter(
        None,
        """
        Threads that compute at once.

        None is all processors within the CPU affinity, control group quotas, LOKY_MAX_CPU_COUNT,
        OMP_NUM_THREADS and OpenMP's `threadpool_limits`, and one thread in a worker of joblib or
        multiprocessing. -1 is all processors within affinity, quotas and LOKY_MAX_CPU_COUNT, -2 all
        but one. The Dask scheduler sets the threads of a lazy prediction.
        """,
        panel=RESOURCES,
        in_estimators="n_jobs",
        rule=AT_LEAST_1,
    )
    cache_dir: str | None = parameter(
        None,
        """
        Folder for temporary files: the store of LIBSVM text, and kernel rows.

        None is the system's.
        """,
        panel=RESOURCES,
        metavar="DIR",
        kind=PATH,
    )
    checkpoint: str | None = parameter(
        None,
        """
        Folder on a local disk to save the run to. The same command again resumes it.

        So does a `fit` with the same data and parameters.
        """,
        panel=RESOURCES,
        metavar="DIR",
        kind=PATH,
    )
    checkpoint_copy: str | None = parameter(
        None,
        """
        URL to copy the checkpoint to. If its folder is lost, the run goes on from there.

        Such as ``s3://bucket/run``, for machines that lose their disks. Each generation is copied
        while training goes on; a copy that fails is a warning. The newer one of folder and copy is
        used. Credentials come from the environment. Takes the extra ``bigsvm[cloud]``.
        """,
        panel=RESOURCES,
        metavar="URL",
    )
    kernel_rows: int | None = parameter(
        None, "Most kernel rows in memory; None is as many as fit in it."
    )

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not field.default:
                setattr(self, field.name, spelled(field, value))
        if isinstance(self.gamma, Collection) and not isinstance(self.gamma, str):
            from bigsvm.kernels import gammas_of_columns

            self.gamma = gammas_of_columns(self.gamma)

    @property
    def takes_kernel_matrix(self) -> bool:
        """Whether rows are those of a kernel matrix."""
        from bigsvm.kernels import takes_kernel_matrix

        return takes_kernel_matrix(self.kernel)

    @property
    def has_column_factors(self) -> bool:
        """Whether the kernel has a number for each column, so that columns keep their numbers."""
        of_kernel = getattr(self.kernel, "column_factors", None)
        return isinstance(self.gamma, tuple) or of_kernel is not None

    @property
    def merges_rows(self) -> bool:
        """Whether equal rows may become one variable.

        Not if all kernel rows are those of one working set, nor in a search alone that takes a step
        for each sample: its cost does not depend on the number of rows, and its end depends on how
        often equal rows are drawn.
        """
        steps_only = self.formulation in BALLS and not self.certify and self.solver != "pairwise"
        return self.working_set != "all" and not steps_only

    @property
    def compares_rows(self) -> bool:
        """Whether equal rows are looked for among all.

        A run that does not come to all of them has no time for that, and what it evaluates had
        better be rows as they come. A search for a ball has weights for equal rows.
        """
        searches = self.formulation in BALLS and self.multiclass != "ovr"
        return self.certify or searches

    @functools.cached_property
    def n_threads(self) -> int:
        """Number of threads, constant for a whole run; `default_threads` if none was given."""
        return self.threads or default_threads()

    @property
    def may_shrink(self) -> bool:
        """Whether settled rows may leave the working set of all rows."""
        return self.working_set == "all" and (self.shrinking is None or bool(self.shrinking))

    def shrinks(self, *, rows_are_scarce: bool) -> bool:
        """Whether they do: where nothing is said, only where most kernel rows are not held."""
        return self.may_shrink and (rows_are_scarce if self.shrinking is None else True)

    @property
    def keeps_values(self) -> bool:
        """Whether a run that is not one working set may keep kernel values on disk."""
        return self.working_set != "all" and self.disk_cache_bytes() > 0

    def disk_cache_bytes(self) -> int:
        """Bytes of kernel rows on disk, 0 for none."""
        if str(self.disk_cache).strip() in ("0", "0.0"):
            return 0
        return parse_bytes(self.disk_cache, "disk_cache")


FIELDS: dict[str, "Field[Any]"] = {field.name: field for field in fields(TrainingParameters)}
"""Every parameter of training by its name."""


def again(name: str, *, default: Any = MISSING, text: str = "", type: Any = None) -> Any:
    """Declare a parameter of training as a field of another class.

    It may have another default, another text, and a type of fewer values.
    """
    field = FIELDS[name]
    declared = declaration_of(field)
    return dataclasses.field(
        default=field.default if default is MISSING else default,
        metadata={
            "declaration": dataclasses.replace(declared, text=text or declared.text),
            "type": type or field.type,
        },
    )


def check_parameter(name: str, value: object) -> None:
    """Refuse a value that the parameter of this name cannot have."""
    check_value(FIELDS[name], value)
