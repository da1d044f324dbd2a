"""Random rows for training without a certificate, of sources that are in no random order."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.budget import HELD_SHARE, parse_bytes, show_bytes
from bigsvm.data.wrappers import DrawnRows
from bigsvm.errors import DataError, MemoryBudgetError
from bigsvm.executors.clients import workers_of
from bigsvm.fit.variables import ORDER_SEED
from bigsvm.parameters.formulations import BALLS, CLASSIFIERS
from bigsvm.working_sets.choice import DIRECT_ROWS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.arrays import F8
    from bigsvm.data.row_source import RowSource
    from bigsvm.models import KernelExpansion
    from bigsvm.parameters import TrainingParameters
    from bigsvm.training.events import Hooks


def drawn_for(
    source: RowSource,
    labels: NDArray[Any] | None,
    sample_weight: F8 | None,
    parameters: TrainingParameters,
    hooks: Hooks,
) -> DrawnRows | None:
    """Draw rows for a classifier without certificate, if the first rows are no random sample.

    None if they are one, if all rows can be held, and for a ball that is searched for as published,
    as this search draws its own rows and goes on with no others. As
    many are drawn as may be held; how often a row counts does not change how often it is drawn.

    Raises
    ------
    MemoryBudgetError
        Memory holds too few of them.
    DataError
        Those that it holds do not have all classes.
    """
    if parameters.certify or parameters.formulation not in CLASSIFIERS:
        return None
    memory = parse_bytes(parameters.memory)
    streamed = source.row_alignment > 1 and not source.is_shuffled
    searches = parameters.formulation in BALLS and parameters.multiclass != "ovr"
    if (
        (searches and parameters.solver != "pairwise")
        or not streamed
        or source.n_rows * source.bytes_per_row <= HELD_SHARE * memory
    ):
        return None
    count = int(HELD_SHARE * memory / source.bytes_per_row)
    if count <= DIRECT_ROWS:
        needed = (DIRECT_ROWS + 1) * source.bytes_per_row / HELD_SHARE
        raise MemoryBudgetError(
            f"certify is False, and of these rows, which are in no random order, memory holds "
            f"{count} random ones, too few; give at least about {show_bytes(1.01 * needed)}, or "
            "shuffle them in a store"
        )
    candidates = np.arange(source.n_rows)
    if sample_weight is not None:
        candidates = np.flatnonzero(np.asarray(sample_weight) > 0)
    rng = np.random.default_rng(ORDER_SEED)
    chosen = np.sort(rng.choice(candidates, min(count, len(candidates)), replace=False))
    with workers_of(hooks.client, hooks.terms) as workforce:
        rows = source
        if workforce is not None:
            from bigsvm.executors.worker_rows import of_workers  # one process does without

            rows = of_workers(source, workforce)
        drawn = DrawnRows(source, chosen, rows.rows_with(chosen, int(HELD_SHARE * memory)))
    if labels is None:
        return drawn
    n_classes, n_drawn = len(np.unique(labels)), len(np.unique(labels[drawn.drawn]))
    if n_drawn < n_classes:
        raise DataError(
            f"certify is False, and the {drawn.n_rows} random rows that memory holds have "
            f"{n_drawn} of the {n_classes} classes; give more memory, or leave certify out"
        )
    return drawn


def of_all_rows(model: KernelExpansion, drawn: DrawnRows) -> KernelExpansion:
    """Name the rows of a model that was trained on some by their numbers among all."""
    n_rows = round(drawn.n_rows / drawn.share_drawn)
    return replace(
        model,
        support=drawn.drawn[model.support],
        provenance={**model.provenance, "n_rows": n_rows},
    )
