"""The kernel matrix K: computed in tiles, multiplied, approximated and kept.

The input is blocks of rows and prepared partner rows; the output is kernel values or their products
with weights. `tiles` computes and multiplies them, `low_rank` approximates them, `row_cache`
keeps rows of K. A new product of two rows has its place in `values`, a new way to keep kernel rows
is a `RowTier`.
"""

from bigsvm.gram.partners import Partners
from bigsvm.gram.tiles import KernelTiles

__all__ = ["KernelTiles", "Partners"]
