"""Kernel values of row blocks with prepared columns, in tiles that stay in the cache."""

from bigsvm.tiles.columns import Columns
from bigsvm.tiles.kernel_tiles import KernelTiles

__all__ = ["Columns", "KernelTiles"]
