"""Support vectors and rows of very many columns, renumbered by the columns of the vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.data.narrow import NarrowRows, Numbering
from bigsvm.data.rows import is_sparse
from bigsvm.data.statistics import far_columns, may_be_listed, statistics_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.data.row_source import RowSource
    from bigsvm.data.rows import Rows


def meet(
    vectors: Rows, source: RowSource, *, is_shift_invariant: bool
) -> tuple[Rows, RowSource, NDArray[np.float64] | None]:
    """Prepare support vectors and sparse rows for their products with each other.

    Few of very many columns occur in the vectors; all others only affect the lengths of rows.

    Parameters
    ----------
    vectors : (p, d)
    source : RowSource
        Sparse rows, (n, d).
    is_shift_invariant : bool
        Whether the kernel is shift-invariant.

    Returns
    -------
    vectors : (p, m)
    source : RowSource
        (n, m).
    centre : (m,) float64 or None
        Centre to subtract from sparse rows; see `far_columns`.
    """
    n, d = vectors.shape
    centred = is_shift_invariant and n > 0
    if not centred and not may_be_listed(d, sparse=is_sparse(vectors)):
        return vectors, source, None
    statistics = statistics_of(d, sparse=is_sparse(vectors))
    statistics.add(vectors)
    found = statistics.result()
    centre = None
    if centred:
        centre = far_columns(found.mean, found.total_variance(), d)
    if found.columns is None:
        return vectors, source, centre
    numbering = Numbering(found.columns, d, spread=True)
    if centre is not None:
        spread = np.zeros(numbering.n_columns)
        spread[1::2] = centre
        centre = spread
    return numbering.apply(vectors), NarrowRows(source, numbering), centre


def dense_centre(vectors: Rows) -> NDArray[np.float64] | None:
    """Centre of dense rows, (d,), for sparse vectors that were too wide to have one."""
    given: Any = vectors
    n, d = given.shape
    if n == 0 or not may_be_listed(d, sparse=is_sparse(given)):
        return None
    return np.asarray(given.mean(axis=0), np.float64).ravel()
