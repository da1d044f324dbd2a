"""Kernels of fields such as chemistry and images: products of other kinds, and kernel values.

They have no part in `bigsvm.core.gram`, so that a fit with another kernel compiles nothing of them.
Rows and partners are laid out as there. A product is one sum over the features in order, so that
its bits depend on the two rows alone, and are the same for dense and for sparse rows.

Kernel values are computed in float64 for both dtypes, and rounded once. Codes go on from those of
`bigsvm.core.gram`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numba import config
from numba.extending import intrinsic

from bigsvm.compilation import compiled, inlined

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float32] | NDArray[np.float64]
    Integers: TypeAlias = NDArray[np.int32] | NDArray[np.int64]

Untyped: TypeAlias = Any
"""Types and values of Numba and LLVM, in functions that generate code."""

COSINE, MATERN32, MATERN52, INTERSECTION, TANIMOTO, CHI2 = 6, 7, 8, 9, 10, 11
MINIMA, MEANS = 0, 1
"""Sums over the features of two rows: of the smaller values, and of the harmonic means."""

# As in `bigsvm.core.gram`: a value is rounded as it is written, on every processor.
AS_WRITTEN = {"nsz"}
LOG2_E = 1.4426950408889634
LOG2_E_REST = 2.0355273740931033e-17
"""What float64 rounds off log2 e."""
FARTHEST = 700.0
"""Exponents from which on e^-x is taken to be e^-700: less does not fit the bits of float64."""


if config.DISABLE_JIT:

    def _fma(a: Untyped, b: Untyped, c: Untyped) -> Untyped:
        """Compute ``a * b + c`` in more digits, and round the sum."""
        return np.float64(np.multiply(a, b, dtype=np.longdouble) + c)

else:  # pragma: no cover (runs in the compiler, whose results have tests)

    @intrinsic
    def _fma(typing_context: Untyped, a: Untyped, b: Untyped, c: Untyped) -> Untyped:
        """Compute ``a * b + c``, rounded once."""

        def generate(
            context: Untyped, builder: Untyped, signature: Untyped, arguments: Untyped
        ) -> Untyped:
            return builder.fma(*arguments)

        return a(a, b, c), generate


@inlined(fastmath=AS_WRITTEN)
def _decay(distance: float) -> float:
    """Compute e^-distance for distances >= 0, as `gram.power64` does; e^-0 is exactly 1."""
    round_off = 6755399441055744.0  # 1.5 · 2^52: a sum with it is rounded to a whole number
    x = min(distance, FARTHEST)
    shifted = _fma(x, -LOG2_E, -0.5) + round_off
    f = _fma(x, -LOG2_E_REST, _fma(x, -LOG2_E, round_off - shifted))
    p = _fma(6.12308791682453e-10, f, 6.6344458662488645e-09)
    p = _fma(p, f, 1.0236023803276539e-07)
    p = _fma(p, f, 1.3210583477764907e-06)
    p = _fma(p, f, 1.525299889972845e-05)
    p = _fma(p, f, 0.0001540352121910773)
    p = _fma(p, f, 0.001333355834393728)
    p = _fma(p, f, 0.009618129105151757)
    p = _fma(p, f, 0.05550410866498067)
    p = _fma(p, f, 0.24022650695909673)
    p = _fma(p, f, 0.6931471805599453)
    p = np.float64(_fma(p, f, 1.0))
    k = np.float64(shifted).view(np.int64) << np.int64(52)
    result: float = np.int64(p.view(np.int64) + k).view(np.float64)
    return result


@compiled(fastmath=AS_WRITTEN)
def field_values(
    products: Floats,
    norms_rows: Floats,
    norms_partners: Floats,
    code: int,
    gamma: float,
    offset: float,
) -> None:
    """Turn products (m, ≥ p) into kernel values plus an offset, in place."""
    m, p = products.shape[0], norms_partners.shape[0]
    scale = 6.0 * gamma if code == MATERN32 else 10.0 * gamma
    for i in range(m):
        row, a = products[i], np.float64(norms_rows[i])
        if code == COSINE:
            for j in range(p):
                lengths = np.sqrt(a) * np.sqrt(np.float64(norms_partners[j]))
                row[j] = (np.float64(row[j]) / lengths if lengths > 0.0 else 0.0) + offset
        elif code == MATERN32:
            for j in range(p):
                squared = a + np.float64(norms_partners[j]) - 2.0 * np.float64(row[j])
                r = np.sqrt(scale * max(0.0, squared))
                row[j] = (1.0 + r) * _decay(r) + offset
        elif code == MATERN52:
            for j in range(p):
                scaled = scale * max(
                    0.0, a + np.float64(norms_partners[j]) - 2.0 * np.float64(row[j])
                )
                root = np.sqrt(scaled)
                row[j] = (1.0 + root + scaled / 3.0) * _decay(root) + offset
        elif code == TANIMOTO:
            for j in range(p):
                common = np.float64(row[j])
                # Not less than nothing by rounding.
                either = max(a + np.float64(norms_partners[j]) - common, common)
                row[j] = (common / either if either > 0.0 else 1.0) + offset
        elif code == CHI2:
            for j in range(p):
                apart = a + np.float64(norms_partners[j]) - 2.0 * np.float64(row[j])
                row[j] = _decay(gamma * max(0.0, apart)) + offset
        elif offset != 0.0:
            for j in range(p):
                row[j] = np.float64(row[j]) + offset


@compiled(allocates=True)
def field_diagonal(norms: Floats, code: int, gamma: float, offset: float) -> Floats:
    """k(a, a) plus an offset, (p,), of rows with these norms, with the bits of `field_values`."""
    values = norms.copy().reshape(norms.shape[0], 1)
    for i in range(norms.shape[0]):
        own = norms[i : i + 1]
        field_values(values[i : i + 1], own, own, code, gamma, offset)
    return values.reshape(norms.shape[0])


@compiled
def packed_sums(packed: Floats, out: Floats) -> None:
    """``Σ x_k`` of packed rows (groups, d, MR), as the minima of a row and itself are added up."""
    together = packed.shape[2]
    for i in range(out.shape[0]):
        g, r = i // together, i % together
        out[i] = 0
        for k in range(packed.shape[1]):
            out[i] += packed[g, k, r]


@inlined
def _add_minima(a: float, others: Floats, row: Floats) -> None:
    """``row += min(a, others)``."""
    for j in range(row.shape[0]):
        row[j] += min(a, others[j])


@inlined
def _add_means(a: float, others: Floats, row: Floats) -> None:
    """``row += 2 a others / (a + others)``, with a > 0; it is exactly a where the two agree."""
    for j in range(row.shape[0]):
        low, high = min(a, others[j]), max(a, others[j])
        row[j] += low * ((high + high) / (low + high))


@compiled
def dense_pairs(packed: Floats, panels: Floats, kind: int, out: Floats) -> None:
    """Add up minima or means of packed rows and partners over the features.

    packed (groups, d, MR), panels (q, d, NR), out (groups · MR, ≥ q · NR).
    """
    together, width, zero = packed.shape[2], panels.shape[2], packed.dtype.type(0)
    for q in range(panels.shape[0]):
        for g in range(packed.shape[0]):
            for r in range(together):
                row = out[g * together + r][q * width : (q + 1) * width]
                row[:] = 0
                for k in range(packed.shape[1]):
                    a = packed[g, k, r]
                    if a <= zero:
                        continue
                    if kind == MEANS:
                        _add_means(a, panels[q, k], row)
                    else:
                        _add_minima(a, panels[q, k], row)


@compiled
def sparse_pairs(
    data: Floats,
    indices: Integers,
    indptr: Integers,
    place: NDArray[np.int32],
    tile: Floats,
    used: NDArray[np.int32],
    p: int,
    width: int,
    kind: int,
    out: Floats,
) -> None:
    """Add up, for CSR rows and one tile of p sparse partners, what `dense_pairs` does.

    The tile (n_used · p,) is in chunks of `width`, as `csr.csr_tile` lays it out; `place`,
    (n_features,), is scratch, −1 everywhere before and after; out is (≥ m, ≥ p).
    """
    n, m, zero = used.shape[0], indptr.shape[0] - 1, data.dtype.type(0)
    for r in range(n):
        place[used[r]] = r
    for low in range(0, p, width):
        high = min(low + width, p)
        chunk = tile[low * n : high * n].reshape(n, high - low)
        for i in range(m):
            row = out[i][low:high]
            row[:] = 0
            for k in range(indptr[i], indptr[i + 1]):
                r, a = place[indices[k]], data[k]
                if r < 0 or a <= zero:
                    continue
                if kind == MEANS:
                    _add_means(a, chunk[r], row)
                else:
                    _add_minima(a, chunk[r], row)
    for r in range(n):
        place[used[r]] = -1
