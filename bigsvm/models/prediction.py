"""Decision values of the rows of a source, which are streamed past the support vectors.

Support vectors are prepared for products with rows all at once, or group by group: the layout of a
tile of sparse vectors has all features that occur in the tile, and takes up to a hundred times the
size of the vectors if they share few features.
"""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bigsvm.budget import packed_bytes, show_bytes
from bigsvm.data.narrow import Numbering
from bigsvm.data.row_source import PREDICTION_BLOCKS
from bigsvm.data.rows import RowsAt, bytes_of, is_sparse
from bigsvm.data.statistics import far_columns, may_be_listed, statistics_of_rows
from bigsvm.data.wrappers import NarrowRows
from bigsvm.errors import MemoryBudgetError
from bigsvm.executors.executor import Partial, WeightedRows
from bigsvm.executors.local import Block, blocks, rows_at_once
from bigsvm.executors.replies import Expected
from bigsvm.gram import KernelTiles, Partners
from bigsvm.gram.partners import PARTNERS_PER_TILE, in_whole_tiles
from bigsvm.interruption import checked, checked_by
from bigsvm.kernels import KernelCode
from bigsvm.models.small import FEW_NUMBERS, SmallFunctions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bigsvm.arrays import F8
    from bigsvm.data.row_source import RowSource
    from bigsvm.data.rows import Rows
    from bigsvm.executors.executor import Partial
    from bigsvm.executors.workforce import Workforce
    from bigsvm.gram.partners import Weights
    from bigsvm.kernels import Kernel

LEAST_BYTES = 16 << 20
"""Bytes of sparse vectors that may always be laid out together: some tiles, to multiply fast."""
ROWS_BETWEEN = 1 << 17
VALUES_BETWEEN = 1 << 23
"""Most rows, and decision values, computed before the vectors are laid out again."""
FEWEST_ROWS = 1 << 14
"""Fewest rows per layout: for fewer rows the layout would cost more than the products."""
ROWS_AT_ONCE = 1 << 12
"""Support vectors of a linear kernel that are float64 together."""
SHARE_LAID_OUT = 0.25
"""Share of a worker's memory for vectors that are laid out, beside the model and rows."""
ENOUGH = 1e-3
"""Largest error of a decision value in single precision: the usual tolerance of training."""


class Functions(NamedTuple):
    """What decision values are summed up of, as `KernelExpansion` has it."""

    kernel: Kernel
    vectors: Rows
    coefficients: Weights
    intercept: float | F8
    centre: F8 | None


def stream(
    functions: Functions,
    source: RowSource,
    use: Callable[[slice, F8], None],
    *,
    threads: int,
    block_bytes: int,
    on_progress: Callable[[int], None] | None,
    workforce: Workforce | None = None,
) -> None:
    """Hand decision values to `use`, some rows at a time.

    The rows are scaled as the support vectors are. `use` is given places of rows, and their values,
    (m,) or (m, n_functions). Where a workforce computes, the values have the same bits. Other
    arguments are those of `KernelExpansion.decision_function`.
    """
    kernel, support_vectors, _, intercept, centre = functions
    if source.is_sparse:
        # `centre` might fill them.
        support_vectors, source, centre = _meet(support_vectors, source, kernel=kernel)
    elif kernel.is_shift_invariant and centre is None:
        centre = _dense_centre(support_vectors)
    vectors, coefficients = _terms(functions._replace(vectors=support_vectors))
    # How large values of a kernel matrix are is not known, nor what a formula loses.
    is_known = kernel.product != "lookup" and kernel.code != KernelCode.FORMULA
    may_round = vectors is support_vectors and is_known
    single = source.dtype == np.float32 and may_round
    with ExitStack() as stack:
        tiles = KernelTiles(
            kernel, centre=centre, threads=threads, dtype=np.float32 if single else np.float64
        )
        stack.enter_context(tiles)
        how: dict[str, Any] = {"for_sparse_rows": source.is_sparse, "most_bytes": block_bytes}
        packed = Packed(tiles, vectors, coefficients, **how)
        if single and packed.rounding() > ENOUGH:
            del packed  # before the other layout takes as much memory
            tiles = stack.enter_context(tiles.exact())
            packed = Packed(tiles, vectors, coefficients, **how)
        report = on_progress or (lambda done: None)
        if workforce is not None:
            del packed  # workers lay out their own
            for part in _from_workers(
                workforce, vectors, coefficients, source, tiles, intercept,
                block_bytes=block_bytes, report=report,
            ):  # fmt: skip
                use(slice(part.start, part.stop), part.added)
                report(part.stop)
            return
        for first, done, _, rows in packed.blocks(source, block_bytes):

            def report_share(share: float, first: int = first, done: int = done) -> None:
                report(first + int(share * (done - first)))

            values = np.full((done - first, *np.shape(intercept)), intercept)
            packed.add(rows, values, report=report_share)
            use(slice(first, done), values)
            report(done)


def are_small(functions: Functions) -> bool:
    """Whether functions have few numbers, so that `stream_small` does without compiled code."""
    (p, d), k = functions.vectors.shape, np.size(functions.intercept)
    # A function with the linear kernel is one vector; a row of a kernel matrix is looked up in.
    p = k if _is_directions(functions) else p
    return p * max(1 if functions.kernel.product == "lookup" else d, k) <= FEW_NUMBERS


def stream_small(
    functions: Functions,
    source: RowSource,
    use: Callable[[slice, F8], None],
    *,
    threads: int,
    block_bytes: int,
    on_progress: Callable[[int], None] | None,
    workforce: Workforce | None,
) -> None:
    """Do what `stream` does, for functions of few numbers."""
    vectors, coefficients = _terms(functions)
    small = SmallFunctions(*functions._replace(vectors=vectors, coefficients=coefficients))
    spans: list[tuple[int, int]] = []
    if workforce is not None and (far := source.portable()) is not None:
        spans = list(far.spans(block_bytes))
    elif workforce is not None and (remote := source.remote_blocks()) is not None:
        spans = list(itertools.pairwise(remote.edges.tolist()))
    if workforce is None or not spans:
        # Rows that are here take longer to send than to predict.
        for start, values in small.stream(source, threads=threads, block_bytes=block_bytes):
            use(slice(start, start + len(values)), values)
            if on_progress is not None:
                on_progress(start + len(values))
        return
    from bigsvm.executors.folding import fold  # this process alone does without

    expected = Expected((None, *np.shape(functions.intercept)))
    of_spans = fold(
        workforce, source, spans, small.values, lambda start, stop: (), expected=expected
    )
    for (start, stop), values in zip(spans, of_spans, strict=True):
        use(slice(start, stop), values)
        if on_progress is not None:
            on_progress(stop)


def _from_workers(
    workforce: Workforce,
    vectors: Rows,
    coefficients: Weights,
    source: RowSource,
    tiles: KernelTiles,
    intercept: float | F8,
    *,
    block_bytes: int,
    report: Callable[[int], None],
) -> Iterator[Partial]:
    """Yield the decision values of rows in their order, which workers compute.

    If the model does not fit in the memory of a worker, MemoryBudgetError is raised.
    """
    done = 0

    def check() -> None:
        report(done)

    from bigsvm.executors.cluster import ClusterExecutor  # this process alone does without

    executor = ClusterExecutor(
        workforce, source, tiles, block_bytes=block_bytes, name="bigsvm-predict"
    )
    with checked_by(check):
        executor.wait_until_ready()
    of_model = bytes_of(vectors)
    if 2 * of_model > workforce.memory:
        raise MemoryBudgetError(
            f"the model takes {show_bytes(of_model)}, and as much again for its products, on each "
            f"worker, where a run may take {show_bytes(workforce.memory)}; give workers more memory"
        )
    most = int(workforce.memory * SHARE_LAID_OUT // _laid_out_bytes(vectors, tiles.dtype))
    weighted = WeightedRows(
        coefficients,
        lambda places: RowsAt(vectors, places),
        at_once=max(most, PARTNERS_PER_TILE),
    )
    initial = np.reshape(intercept, (1, *np.shape(intercept)))
    parts = executor.run(weighted, start=0, stop=source.n_rows, initial=initial)
    for part in checked(parts, check):
        done = part.stop
        yield part


def _laid_out_bytes(vectors: Rows, dtype: np.dtype[Any]) -> float:
    """Most bytes of a vector that is laid out for products."""
    n = max(vectors.shape[0], 1)
    if is_sparse(vectors):
        each = packed_bytes(vectors.shape[1], 8 * vectors.nnz / n) * dtype.itemsize / 4
    else:
        each = bytes_of(vectors) / n
    return float(max(each, 1.0))


def _terms(functions: Functions) -> tuple[Rows, Weights]:
    """Vectors and coefficients that functions are summed up of.

    Those of a function with the linear kernel are one vector, where that is less to compute.
    """
    vectors, coefficients = functions.vectors, functions.coefficients
    if not _is_directions(functions):
        return vectors, coefficients
    directions = weight_vectors(vectors, coefficients)
    alone = coefficients.ndim == 1
    return directions, np.ones(1) if alone else sp.csr_array(sp.eye_array(len(directions)))


def _is_directions(functions: Functions) -> bool:
    """Whether the weights of the columns are fewer numbers than the support vectors."""
    (n, d), n_functions = functions.vectors.shape, np.size(functions.intercept)
    is_linear = functions.kernel.code == KernelCode.LINEAR
    return is_linear and n_functions < n and 8 * n_functions * d <= PREDICTION_BLOCKS


def weight_vectors(support_vectors: Rows, coefficients: Weights) -> F8:
    """``coefficientsᵀ support_vectors``: w of each function, (n_functions, d) float64."""
    n_functions = 1 if coefficients.ndim == 1 else coefficients.shape[1]
    directions = np.zeros((n_functions, support_vectors.shape[1]))
    for start in range(0, support_vectors.shape[0], ROWS_AT_ONCE):
        rows = support_vectors[start : start + ROWS_AT_ONCE].astype(np.float64)
        part = coefficients[start : start + ROWS_AT_ONCE]
        product = part.T @ rows
        directions += product if isinstance(product, np.ndarray) else product.toarray()
    return directions


def _meet(vectors: Rows, source: RowSource, *, kernel: Kernel) -> tuple[Rows, RowSource, F8 | None]:
    """Prepare support vectors (p, d) and sparse rows (n, d) for their products with each other.

    Few of very many columns occur in the vectors; all others only affect the lengths of rows.
    Returns both with the m columns that matter, and a centre, (m,) or None, to subtract from sparse
    rows; see `far_columns`.
    """
    n, d = vectors.shape
    centred = kernel.is_shift_invariant and n > 0
    if not centred and not may_be_listed(d, sparse=is_sparse(vectors)):
        return vectors, source, None
    statistics = statistics_of_rows(vectors)
    centre = None
    if centred:
        centre = far_columns(statistics.mean, statistics.total_variance(), d)
    if statistics.columns is None:
        return vectors, source, centre
    if kernel.column_factors is not None:
        # There is memory for a number of each column.
        every = np.zeros(d)
        every[statistics.columns] = 0.0 if centre is None else centre
        return vectors, source, every
    numbering = Numbering(statistics.columns, d, spread=True)
    if centre is not None:
        spread = np.zeros(numbering.n_columns)
        spread[1::2] = centre
        centre = spread
    return numbering.apply(vectors), NarrowRows(source, numbering), centre


def _dense_centre(vectors: Rows) -> F8 | None:
    """Centre of dense rows, (d,), for sparse vectors that were too wide to have one."""
    rows: Any = vectors
    n, d = rows.shape
    if n == 0 or not may_be_listed(d, sparse=is_sparse(rows)):
        return None
    return np.asarray(rows.mean(axis=0), np.float64).ravel()


class Packed:
    """Vectors, (p, d), and coefficients, (p,) or (p, n_functions) CSR, of a decision function.

    `for_sparse_rows` says whether the rows to multiply with are sparse. `most_bytes`, at least
    `LEAST_BYTES`, are those of sparse vectors that are laid out together.
    """

    def __init__(
        self,
        tiles: KernelTiles,
        vectors: Rows,
        coefficients: Weights,
        *,
        for_sparse_rows: bool,
        most_bytes: int,
    ) -> None:
        self._tiles, self._coefficients = tiles, coefficients
        self._vectors, self._for_sparse_rows = vectors, for_sparse_rows
        n_functions = 1 if coefficients.ndim == 1 else coefficients.shape[1]
        self._rows_between = min(ROWS_BETWEEN, VALUES_BETWEEN // max(n_functions, 1))
        n, groups = vectors.shape[0], 1
        if for_sparse_rows and is_sparse(vectors) and self._rows_between >= FEWEST_ROWS:
            each = _laid_out_bytes(vectors, tiles.dtype)
            groups = max(1, int(-(-n * each // max(most_bytes, LEAST_BYTES))))
        # In whole tiles, if these fit: the bits of values do not depend on the groups.
        step = max(n, 1) if groups == 1 else in_whole_tiles(n // groups)
        self._spans = [slice(low, min(low + step, n)) for low in range(0, max(n, 1), step)]
        self._only: tuple[Partners, Any] | None = None
        if groups == 1:
            partners = self._partners(self._spans[0])
            self._only = partners, tiles.prepared(partners, coefficients)

    def _partners(self, span: slice) -> Partners:
        rows = RowsAt(self._vectors, np.arange(span.start, span.stop))
        return Partners(self._tiles.values, rows, for_sparse_rows=self._for_sparse_rows)

    def rounding(self) -> float:
        """Estimate how far decision values are off, computed in the dtype of the tiles.

        Each term is rounded by half a unit in its last place, up or down, and the kernel values of
        a row that is like the support vectors are as large as those of the vectors with
        themselves. The estimate is one standard deviation of the function where it is largest.
        """
        if self._vectors.shape[0] == 0:
            return 0.0
        values = self._tiles.values
        if self._only is not None:
            diagonals = [values.diagonal(self._only[0].norms)]
        else:
            diagonals = [values.diagonal(self._partners(span).norms) for span in self._spans]
        diagonal = np.abs(np.concatenate(diagonals))
        weights = self._coefficients
        if isinstance(weights, np.ndarray):
            # Not by BLAS: its threads would go on spinning after one product of vectors.
            sums = np.einsum("i,i...", diagonal, weights**2)
        else:
            sums = diagonal @ weights.power(2)
        spread = float(np.sqrt(sums.max(initial=0.0) * diagonal.mean()))
        half_a_unit: float = 0.5 * float(np.spacing(np.ones((), self._tiles.dtype)))
        return half_a_unit * spread

    def blocks(self, source: RowSource, block_bytes: int) -> Iterator[Block]:
        """Divide all rows of a source into blocks for `add`."""
        step = self._rows_between if self._only is None else rows_at_once(*self._only)
        return blocks(source, 0, source.n_rows, step, block_bytes)

    def add(self, rows: RowsAt, out: F8, *, report: Callable[[float], None]) -> None:
        """``out += K(rows, vectors) @ coefficients``, rows (m, d), out (m,) or (m, n_functions)."""
        if self._only is not None:
            self._tiles.multiply(rows, *self._only, out)
            return
        m, base = len(rows.places), rows.rows
        for group, span in enumerate(self._spans):
            partners = self._partners(span)
            weights = self._tiles.prepared(partners, self._coefficients[span])
            step = rows_at_once(partners, weights)
            for low in range(0, m, step):
                part = slice(low, min(low + step, m))
                some = RowsAt(base, rows.places[part])
                self._tiles.multiply(some, partners, weights, out[part])
                report((group + part.stop / m) / len(self._spans))
            # Free this group before the next one is laid out.
            del partners, weights
