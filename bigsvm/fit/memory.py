"""How a training run's memory is divided: what the caller holds of it, and a plan of the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bigsvm.budget import parse_bytes, plan_training
from bigsvm.data.views import hold
from bigsvm.executors.local import VALUES_AT_ONCE
from bigsvm.working_sets.shrinking import STATE_BYTES

if TYPE_CHECKING:
    from bigsvm.budget import TrainingPlan
    from bigsvm.data.row_source import RowSource
    from bigsvm.parameters import TrainingParameters


def hold_and_plan(
    parameters: TrainingParameters, source: RowSource, *, resident_bytes: int, **functions: Any
) -> tuple[RowSource, TrainingPlan]:
    """Hold all rows in memory if they take little of it, and plan the rest with `make_plan`.

    Raises
    ------
    MemoryBudgetError
    """
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

    Raises
    ------
    MemoryBudgetError
    """
    n_rows = source.n_rows if n_rows is None else n_rows
    resident_bytes += source.copied_bytes
    if n_outputs > 1:
        # A block's sums and its updated outputs, which exist at once.
        resident_bytes += 2 * 8 * min(n_outputs * n_rows, VALUES_AT_ONCE)
    resident_bytes += source.kept_bytes
    if parameters.may_shrink:
        resident_bytes += STATE_BYTES * n_rows
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
        whole=parameters.working_set == "all",
        **functions,
    )
    if parameters.kernel_rows is not None:
        plan = plan.with_kernel_rows(parameters.kernel_rows)
    return plan
