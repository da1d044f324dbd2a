"""Whether a run keeps kernel values on disk: measured, and said in a sentence.

What is decided changes no result. So it may be measured, and be different when a run is resumed.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bigsvm.budget import packed_bytes
from bigsvm.gram import Partners
from bigsvm.identity import NOT_COMPARABLE
from bigsvm.kept.segments import WIDTH, Segments
from bigsvm.kept.tiles import BUFFER_BYTES, READ_SECONDS, KeptTiles
from bigsvm.papers.costs import TierDecision, not_kept

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bigsvm.arrays import F4
    from bigsvm.budget import TrainingPlan
    from bigsvm.data.row_source import RowSource
    from bigsvm.data.rows import RowsAt
    from bigsvm.gram import KernelTiles
    from bigsvm.parameters import TrainingParameters

TRIED = 127, 101
"""Rows and partners with which the kernel is tried: no multiples of the length of vectors."""
TIMES = 3
"""Times that they are tried, of which the least counts."""
WORTH_KEEPING = 5.0
"""Values are kept if computing them takes this many times as long as reading them."""
NUMBER_BYTES = 24
"""Bytes of a row: its number, its places in the rows and in the file, and what it has cost."""


@contextmanager
def kept_tiles(
    tiles: KernelTiles,
    source: RowSource,
    plan: TrainingPlan,
    parameters: TrainingParameters,
    fingerprint: Mapping[str, str],
    has_workers: bool,
) -> Iterator[tuple[KernelTiles, str]]:
    """Open the file of kernel values of a run; yields tiles that use it, and what was decided.

    The fingerprint is what the values depend on. The tiles are those given if no values are kept.
    The memory is that of blocks of rows, which rows in memory do not need.
    """
    decision, value_seconds = _examined(tiles, source, plan, has_workers=has_workers)
    if not decision.keep:
        yield tiles, decision.reason
        return
    try:
        segments = Segments(
            Path(parameters.cache_dir or tempfile.gettempdir()),
            fingerprint,
            n_rows=source.n_rows,
            capacity_bytes=parameters.disk_cache_bytes(),
            table_bytes=_table_bytes(source, plan),
        )
    except OSError as error:
        yield tiles, not_kept(error).reason
        return
    try:
        kept = KeptTiles(tiles, source, segments, value_seconds=value_seconds)
        yield kept, decision.reason
    finally:
        # Values of a kernel that cannot be compared could not be found again.
        segments.close(remove=any(NOT_COMPARABLE in value for value in fingerprint.values()))


def _table_bytes(source: RowSource, plan: TrainingPlan) -> int:
    """Bytes that are left for the table of segments."""
    prepared = int(WIDTH * packed_bytes(source.n_columns, source.bytes_per_row))
    return plan.block_bytes - BUFFER_BYTES - prepared - NUMBER_BYTES * source.n_rows


def _examined(
    tiles: KernelTiles, source: RowSource, plan: TrainingPlan, *, has_workers: bool
) -> tuple[TierDecision, float]:
    """Decide whether values are kept, and measure the seconds to compute one."""
    if has_workers:
        return _refused("workers compute kernel values"), 0.0
    if source.row_alignment > 1:
        return _refused("the rows do not fit in memory; give a larger memory"), 0.0
    if _table_bytes(source, plan) <= 0:
        return _refused("there is no memory to read them; give a larger memory"), 0.0
    seconds, is_symmetric = _tried(tiles, source)
    compute, read = 1e9 * seconds, 1e9 * READ_SECONDS / WIDTH
    costs = f"a kernel value takes about {compute:.2g} ns to compute and {read:.2g} ns to read"
    if not is_symmetric:
        why = "the kernel is not symmetric to the last bit; give its formula a symmetric form"
        return _refused(why), seconds
    if compute < WORTH_KEEPING * read:
        return _refused(costs), seconds
    return TierDecision(True, f"{costs}: values of rows that move are kept on disk"), seconds


def _refused(why: str) -> TierDecision:
    return TierDecision(False, f"{why}: kernel values are computed again, not kept on disk")


def _tried(tiles: KernelTiles, source: RowSource) -> tuple[float, bool]:
    """Return the seconds of a kernel value in one thread, and whether values are symmetric."""
    m, p = (min(count, source.n_rows) for count in TRIED)
    one = tiles.with_threads(1)
    rows, others = (
        source.lend(np.arange(m)),
        source.lend(np.arange(source.n_rows - p, source.n_rows)),
    )
    least = float("inf")
    for _ in range(TIMES):
        began = time.perf_counter()
        values = _values(one, rows, others)
        least = min(least, time.perf_counter() - began)
    same = np.array_equal(values, _values(one, others, rows).T)
    return least / values.size, same and _formula_is_symmetric(one, rows, others)


def _values(tiles: KernelTiles, rows: RowsAt, others: RowsAt) -> F4:
    partners = Partners.of_rows_like(tiles.values, others)
    values = np.empty((len(rows.places), len(others.places)), np.float32)
    tiles.evaluate(rows, partners, values)
    return values


def _formula_is_symmetric(tiles: KernelTiles, rows: RowsAt, others: RowsAt) -> bool:
    """Whether the formula has the same bits in float64 for both orders of its arguments.

    Rounding to float32 hides nearly all differences. The dot products are any that norms allow.
    """
    norms, of_others = (
        Partners.of_rows_like(tiles.values, some).norms.astype(np.float64)
        for some in (rows, others)
    )
    dots = np.random.default_rng(0).random((len(norms), len(of_others)))
    dots *= np.minimum.outer(norms, of_others)
    with np.errstate(all="ignore"):
        values = tiles.values.by_formula(dots.copy(), norms, of_others)
        turned = tiles.values.by_formula(np.ascontiguousarray(dots.T), of_others, norms)
    return np.array_equal(values, turned.T, equal_nan=True)
