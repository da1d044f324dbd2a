"""The rule: which fits are solved as small problems.

It looks at the size of a problem, at its formulation and at parameters that only the usual run can
honour. It does not look at threads, workers, commands or memory, so that the same fit has the same
bits everywhere. A small fit therefore takes its kernel matrix, whatever `memory` says: 32 MB of
float64 at most, and about as much again while LIBSVM works on it.
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

from bigsvm.errors import ParameterError
from bigsvm.parameters.training import FIELDS

if TYPE_CHECKING:
    from bigsvm.data.row_source import RowSource
    from bigsvm.parameters import TrainingParameters

MOST_ROWS = 2000
"""Beyond this the usual run takes less time, and the kernel matrix takes 32 MB here."""
MOST_CLASSES = 10
"""Pairs of more classes are small, and compiled code solves and certifies them together."""
MOST_VALUES = 1 << 22
"""Values of all rows: 32 MB of float64, as much as the kernel matrix."""
FORMULATIONS = ("c-svc", "nu-svc", "one-class", "eps-svr", "nu-svr")
"""What LIBSVM solves."""
KERNELS = ("linear", "poly", "rbf", "sigmoid", "precomputed")
"""Those that NumPy makes a matrix of by one product."""
OF_THE_RUN = (
    "loss", "selection", "rows_at_once", "working_set", "max_iter",
    "max_seconds", "certify", "calibration", "checkpoint", "checkpoint_copy", "kernel_rows",
)  # fmt: skip
"""Parameters that the usual run serves: a fit that sets one of them is that run's.
`shrinking`, which scikit-learn's estimators have, says nothing without `working_set`."""
SWITCH = "BIGSVM_SMALL"
"""Environment variable for tests and tools: ``auto``, or ``never``, or ``always``, which has no
limit of rows."""


def is_small(
    parameters: TrainingParameters,
    source: RowSource,
    *,
    n_classes: int,
    has_start: bool,
    by_steps: bool,
) -> bool:
    """Whether a fit is solved as a small problem.

    Parameters
    ----------
    parameters : TrainingParameters
    source : RowSource
        (n, d).
    n_classes : int
        Number of classes; 0 where there are none.
    has_start : bool
        Whether it starts from a model.
    by_steps : bool
        Whether somebody is to hear of the steps, as callbacks are.

    Raises
    ------
    ParameterError
        The switch has another value.
    """
    switch = os.environ.get(SWITCH, "auto")
    if switch not in ("auto", "never", "always"):
        raise ParameterError(f"{SWITCH} is {switch!r}; it must be auto, never or always")
    if switch == "never" or has_start or by_steps:
        return False
    is_usual = (
        parameters.formulation in FORMULATIONS
        and parameters.kernel in KERNELS
        and not parameters.has_column_factors
        and all(getattr(parameters, name) == FIELDS[name].default for name in OF_THE_RUN)
        and (parameters.multiclass != "ovr" or n_classes <= 2)
        and math.isfinite(parameters.C)
        and not parameters.disk_cache_bytes()
    )
    if not is_usual or switch == "always":
        return is_usual
    n_rows = source.n_rows
    few_values = source.bytes_per_row / source.dtype.itemsize * n_rows <= MOST_VALUES
    return n_rows <= MOST_ROWS and n_classes <= MOST_CLASSES and few_values
