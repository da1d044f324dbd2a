"""Dense rows packed for `bigsvm.core.gram`, and their norms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numba import config
from numba.extending import intrinsic

from bigsvm.compilation import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float32] | NDArray[np.float64]

Untyped: TypeAlias = Any
"""Types and values of Numba and LLVM, in functions that generate code."""


if config.DISABLE_JIT:

    def _fma(a: Untyped, b: Untyped, c: Untyped) -> Untyped:
        """Compute ``a * b + c`` in more digits, and round the sum."""
        wide = np.add(np.multiply(a, b, dtype=np.longdouble), c)
        return wide.astype(np.asarray(a).dtype)

else:  # pragma: no cover (runs in the compiler, whose results have tests)

    @intrinsic
    def _fma(typing_context: Untyped, a: Untyped, b: Untyped, c: Untyped) -> Untyped:
        """Compute ``a * b + c``, rounded once."""

        def generate(
            context: Untyped, builder: Untyped, signature: Untyped, arguments: Untyped
        ) -> Untyped:
            return builder.fma(*arguments)

        return a(a, b, c), generate


def pack_partners(values: Floats, panels: Floats) -> None:
    """Pack vectors (p, d) into panels (ceil(p / NR), d, NR), filled up with zeros.

    Not compiled: NumPy takes as long, and so a first run has less to compile.
    """
    (p, d), width = values.shape, panels.shape[2]
    full = p // width
    panels[:full] = values[: full * width].reshape(full, width, d).transpose(0, 2, 1)
    panels[full:] = 0
    panels[full:, :, : p - full * width] = values[full * width :].T


@compiled
def pack_rows(
    values: Floats, places: NDArray[np.int64], centre: NDArray[np.float64], packed: Floats
) -> None:
    """Pack the rows at `places` (m,) into groups (ceil(m / MR), d, MR), filled up with zeros.

    The centre (d,) is subtracted in float64, before a value is rounded to the dtype of `packed`.
    """
    m, d, together = places.shape[0], values.shape[1], packed.shape[2]
    for q in range(packed.shape[0]):
        for r in range(together):
            i = q * together + r
            if i < m:
                row = values[places[i]]
                for k in range(d):
                    packed[q, k, r] = row[k] - centre[k]
            else:
                for k in range(d):
                    packed[q, k, r] = 0


@compiled
def squared_norms(packed: Floats, out: Floats) -> None:
    """``|x|²`` of packed rows (groups, d, MR), added up as the micro-kernel does.

    The norm of x and the product x·x then have the same bits: the distance of a row to itself, or
    to its duplicate, is exactly 0. Fills the first `len(out)` of the rows.
    """
    together = packed.shape[2]
    for i in range(out.shape[0]):
        out[i] = 0
    for g in range(packed.shape[0]):
        rows = min(together, out.shape[0] - g * together)
        part = out[g * together : g * together + rows]
        for k in range(packed.shape[1]):
            for r in range(rows):
                part[r] = _fma(packed[g, k, r], packed[g, k, r], part[r])
