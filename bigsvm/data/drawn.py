"""DrawnRows: random rows of a source in no random order, read in one pass and held in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from bigsvm.data.in_memory import HeldRows
from bigsvm.data.rows import stack_rows
from bigsvm.interruption import check_interrupt

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.data.row_source import RowSource
    from bigsvm.data.rows import Rows


class DrawnRows(HeldRows):
    """Some rows of another source, held in memory, which stand for all of them.

    `drawn`, (m,), says which rows of the source; its numbers ascend and are distinct.
    """

    def __init__(self, source: RowSource, drawn: NDArray[np.int64], rows: Rows) -> None:
        super().__init__(source, rows)
        self.drawn = drawn
        self.n_rows, self.share_drawn = len(drawn), len(drawn) / source.n_rows

    def of(self, values: NDArray[Any] | None) -> NDArray[Any] | None:
        """Take what belongs to the rows, (m,), from values of all rows, if there are any."""
        return None if values is None else np.asarray(values)[self.drawn]

    def sample_indices(
        self, count: int, *, seed: int, candidates: NDArray[np.int64] | None = None
    ) -> NDArray[np.int64]:
        """Choose random rows among those that are held."""
        return self._rows.sample_indices(count, seed=seed, candidates=candidates)

    def fingerprint(self) -> str:
        """Hash of the source's and of the choice."""
        chosen = xxhash.xxh3_128_hexdigest(self.drawn.data)
        return xxhash.xxh3_128_hexdigest(f"{self._source.fingerprint()} {chosen}".encode())

    def original_rows(self) -> NDArray[np.int64]:
        """Return the number that each row had in its input."""
        return self._source.original_rows()[self.drawn]


def draw_rows(
    source: RowSource,
    count: int,
    *,
    candidates: NDArray[np.int64],
    seed: int,
    block_bytes: int,
) -> DrawnRows:
    """Draw rows at random, each with the same probability, and read them in one pass.

    At most `count` rows are drawn from `candidates`, which ascend. `block_bytes` are for the two
    blocks that exist at once.
    """
    rng = np.random.default_rng(seed)
    chosen = np.sort(rng.choice(candidates, min(count, len(candidates)), replace=False))
    pieces: list[Any] = []
    for block, held in source.blocks_with(chosen, block_bytes):
        check_interrupt()
        pieces.append(block.values[held - block.start])
        del block
    rows = stack_rows(pieces, source.n_columns, source.dtype, sparse=source.is_sparse)
    return DrawnRows(source, chosen, rows)
