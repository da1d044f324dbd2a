"""RemoteBlocks: blocks of rows that Dask has, or makes, on the workers of a cluster."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from bigsvm.arrays import I8
    from bigsvm.data.rows import Rows

    Convert = Callable[[Any, int, int], Rows]


@dataclass(frozen=True)
class RemoteBlocks:
    """Blocks of the rows of a source, and how workers make rows of them.

    `edges` has the first row of each block, ascending, then the number of rows. `future` gives
    Dask's future of the block that begins with a row. `convert` takes the block and its first and
    last row + 1 and gives rows; workers call it. `holders` gives addresses of workers by the first
    row of the blocks that they have.
    """

    edges: I8
    future: Callable[[int], Any]
    convert: Convert
    holders: Callable[[], dict[int, str]]

    def followed_by(self, change: Callable[[Rows], Rows]) -> RemoteBlocks:
        """Return blocks whose rows are changed once more, after `convert`."""
        return replace(self, convert=_Changed(self.convert, change))


@dataclass(frozen=True)
class _Changed:
    """Converts a block and changes its rows."""

    convert: Convert
    change: Callable[[Rows], Rows]

    def __call__(self, block: Any, start: int, stop: int) -> Rows:
        return self.change(self.convert(block, start, stop))
