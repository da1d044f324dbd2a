"""Decision functions of few numbers, whose values NumPy computes in float64 without Numba.

What is small is a matter of the model alone: the values of a row then do not depend on the rows
beside it, nor on threads, blocks or containers. For each row BLAS is called by itself, which
`np.matmul` does for stacks of vectors, and all else is done value by value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.data.kernel_matrix import row_numbers
from bigsvm.executors import local
from bigsvm.gram.spans import Team
from bigsvm.gram.values import KernelValues
from bigsvm.interruption import checked_between

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bigsvm.arrays import F4, F8
    from bigsvm.data.row_source import RowSource
    from bigsvm.data.rows import Rows
    from bigsvm.gram.partners import Weights
    from bigsvm.kernels import Kernel

    Floats = F4 | F8

FEW_NUMBERS = 1 << 12
"""Most numbers of support vectors, and of coefficients: a row then takes about a microsecond, twice
as long as by compiled code for many rows, and a tenth of the time for one."""
ROUNDING, LOST = 1e-14, 1e-9
"""Relative rounding of a norm, and the error of a kernel value from which on it is too much."""
VALUES_TOGETHER = 1 << 15
"""Numbers that are computed together: some arrays of them fit the second-level cache."""
ROWS_TOGETHER = 1 << 14
"""Rows between two looks at the clock, some hundredths of a second; fewer wake no other thread."""


def _half_apart(a: Floats, b: Floats) -> F8:
    apart: F8 = -0.5 * np.abs(a - b).sum(axis=-1)
    return apart


def _half_squares(a: Floats, b: Floats) -> F8:
    apart: F8 = -0.5 * np.square(a - b).sum(axis=-1)
    return apart


def _smaller(a: Floats, b: Floats) -> F8:
    smaller: F8 = np.minimum(a, b).sum(axis=-1)
    return smaller


def _harmonic_means(a: Floats, b: Floats) -> F8:
    total = a + b
    means = np.divide(2.0 * a * b, total, out=np.zeros(total.shape), where=total > 0)
    summed: F8 = means.sum(axis=-1)
    return summed


PRODUCTS = {"absolute": _half_apart, "minimum": _smaller, "mean": _harmonic_means}
"""Products of rows (m, 1, d) and vectors (p, d) that are no scalar products; see `Kernel`."""


class SmallFunctions:
    """Functions of few numbers.

    The arguments are what decision values are summed up of, as `KernelExpansion` has it. There are
    at most `FEW_NUMBERS` numbers of vectors, and of coefficients.
    """

    def __init__(
        self,
        kernel: Kernel,
        vectors: Rows,
        coefficients: Weights,
        intercept: float | F8,
        centre: F8 | None,
    ) -> None:
        self._intercept = intercept
        weights: Any = coefficients
        self._weights: F8 = weights[:, None] if weights.ndim == 1 else weights.toarray()
        self._looks_up = kernel.product == "lookup"
        p, d = vectors.shape
        if kernel.is_shift_invariant and centre is None and p:
            # Else the distance of rows far from the origin would be lost in rounding.
            centre = np.asarray(vectors.mean(axis=0, dtype=np.float64)).ravel()
        self._values = KernelValues(kernel, centre=centre, dtype=np.float64, offset=0.0)
        self._of_pairs = PRODUCTS.get(kernel.product)
        if self._looks_up:
            self._numbers, d = row_numbers(vectors, np.arange(p)), 1
        else:
            self._vectors = self._values.dense(vectors)
            self._norms = self._norms_of(self._vectors)
            if self._loses_distances():
                self._of_pairs, self._norms = _half_squares, np.zeros(p)
        numbers = max(p, d) if self._of_pairs is None else p * d
        self._step = max(1, VALUES_TOGETHER // max(1, numbers, self._weights.shape[1]))

    def stream(
        self, source: RowSource, *, threads: int, block_bytes: int
    ) -> Iterator[tuple[int, F8]]:
        """Yield the values of all rows of a source in blocks, with the number of the first row."""
        n_helpers = 0 if source.n_rows < ROWS_TOGETHER else threads - 1
        step = max(1, min(ROWS_TOGETHER, local.VALUES_AT_ONCE // max(1, self._weights.shape[1])))
        team = Team(n_helpers, "bigsvm-small") if n_helpers else None
        try:
            for start, rows in _blocks(source, block_bytes, step):
                yield start, self.values(rows, team, n_helpers)
        finally:
            if team is not None:
                team.close()

    def values(self, rows: Rows, team: Team | None = None, n_helpers: int = 0) -> F8:
        """Decision values of rows (m, d): (m,), or (m, n_functions)."""
        m = int(rows.shape[0])
        out = np.empty((m, self._weights.shape[1]))

        def compute(low: int) -> None:
            high = min(low + self._step, m)
            some = rows if high - low == m else rows[low:high]
            values = self._looked_up(some) if self._looks_up else self._computed(some)
            out[low:high] = np.matmul(values[:, None, :], self._weights)[:, 0]

        parts = range(0, m, self._step)
        if team is None:
            for low in parts:
                compute(low)
        else:
            team.share_out(compute, parts, n_helpers)
        out += self._intercept
        return out if np.ndim(self._intercept) else out[:, 0]

    def _looked_up(self, rows: Rows) -> F8:
        """Kernel values of rows of a kernel matrix."""
        looked_up = np.ascontiguousarray(rows[:, self._numbers], np.float64)
        self._values.check_looked_up(looked_up)
        return looked_up

    def _computed(self, rows: Rows) -> F8:
        dense = self._values.dense(rows)
        norms = self._norms_of(dense)
        if self._of_pairs is None:
            dots = np.matmul(self._vectors, dense[:, :, None])[:, :, 0]
        else:
            dots = self._of_pairs(dense[:, None, :], self._vectors)
        if self._of_pairs is _half_squares:
            norms = np.zeros(len(dense))
        values: F8 = self._values.by_formula(dots, norms, self._norms)
        return values

    def _loses_distances(self) -> bool:
        """Whether the rounding of norms shows in kernel values, as with a gamma of 1e30."""
        if not self._values.kernel.is_shift_invariant or self._of_pairs or not len(self._norms):
            return False
        largest = self._norms.max(keepdims=True)
        near, rounded = (
            self._values.by_formula(dots, largest, largest)
            for dots in (largest[None, :], largest[None, :] * (1 - ROUNDING))
        )
        return bool(abs(near - rounded).max() > LOST)

    def _norms_of(self, dense: Floats) -> F8:
        """Norms of rows as `KernelValues.packed_norms` has them: 0 for absolute distances."""
        self._values.kernel.check_rows(dense)
        product = self._values.kernel.product
        if product == "absolute":
            return np.zeros(len(dense))
        norms: F8
        with np.errstate(over="ignore", invalid="ignore"):
            if product in PRODUCTS:
                norms = dense.sum(axis=1)
            else:
                norms = np.matmul(dense[:, None, :], dense[:, :, None])[:, 0, 0]
        self._values.check(norms)
        return norms


def _blocks(source: RowSource, block_bytes: int, step: int) -> Iterator[tuple[int, Rows]]:
    """Yield all rows of a source, at most `step` at a time, with the number of the first one."""
    if source.row_alignment <= 1:
        for start in checked_between(range(0, source.n_rows, step)):
            yield start, source.read(start, min(start + step, source.n_rows))
        return
    for start, values in source.blocks(block_bytes):
        for low in checked_between(range(0, int(values.shape[0]), step)):
            yield start + low, values[low : low + step]
