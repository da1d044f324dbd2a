"""Make a large dense store of two classes that barely overlap, for `suites.out_of_core`.

    python -m tools.benchmarks.overlap STORE ROWS COLUMNS

The label of a row is ±1 with equal chance; beside it, with e standard normal,

    x0 = 1/2 (sin x1 + sin x2 + cos x3) + label + e / 3.5       x1, x2, x3 ~ N(0, 1)
    x4 … x(d-1) ~ N(0, 1/20²)

so the best possible classifier is the sign of x0 - 1/2 (sin x1 + sin x2 + cos x3), a curved
surface, and it is wrong on Φ(-3.5) = 0.023 % of the rows. Only rows near the surface become support
vectors: train with ``--C 10 --gamma 0.1``. The variance of the many other columns is small enough
that they hardly move the kernel, yet they cost a solver what columns cost. Measured numbers of
support vectors, first with scikit-learn: 175 of 20 000 rows, 316 of 100 000, 463 of 200 000; then
1 185 of 1 000 000 and 4 031 of 5 000 000.

Rows are made block by block, each block from its own seed, so memory stays bounded and the same
arguments make the same rows; the store shuffles them, as it does any rows.
"""

from __future__ import annotations

import math
import sys
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tools.benchmarks.synthetic import in_blocks

if TYPE_CHECKING:
    import dask.array as da
    from numpy.typing import NDArray

C, GAMMA = 10.0, 0.1
"""What to train with: the margin is then about as wide as the overlap of the classes."""

BLOCK_ROWS = 16_384
"""Part of the recipe, since each block has its own seed: 13 MB of 200 columns."""

DISTANCE = 3.5
"""From the centre of a class to the surface between them, in standard deviations."""

SIGNAL_COLUMNS = 4
NOISE = 0.05
"""Two rows differ by 2·196/20² ≈ 1 in squared noise distance, a tenth of the kernel's 1/gamma."""

BAYES_ERROR = 0.5 * math.erfc(DISTANCE / math.sqrt(2))


def surface(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Where x0 changes class, given columns 1 to 3 of `x` (m, d): (m,) float32."""
    return np.float32(0.5) * (np.sin(x[:, 1]) + np.sin(x[:, 2]) + np.cos(x[:, 3]))


def block_labels(block: int, *, n_rows: int, seed: int) -> NDArray[np.float64]:
    """Labels of block number `block`, which has `n_rows`: (n_rows,) float64 of ±1."""
    random = np.random.default_rng([seed, block, 0])
    return np.where(random.random(n_rows) < 0.5, -1.0, 1.0)


def block_rows(block: int, *, n_rows: int, n_columns: int, seed: int) -> NDArray[np.float32]:
    """Rows of block number `block`: (n_rows, n_columns) float32."""
    labels = block_labels(block, n_rows=n_rows, seed=seed)
    random = np.random.default_rng([seed, block, 1])
    x = random.standard_normal((n_rows, n_columns), dtype=np.float32)
    x[:, SIGNAL_COLUMNS:] *= np.float32(NOISE)
    x[:, 0] = surface(x) + labels + x[:, 0] / np.float32(DISTANCE)
    return x


def overlap(n_rows: int, n_columns: int, *, seed: int = 0) -> tuple[da.Array, NDArray[np.float64]]:
    """X (n_rows, n_columns) float32, lazy, in chunks of `BLOCK_ROWS`; y (n_rows,) float64."""
    if n_columns < SIGNAL_COLUMNS:
        raise ValueError(f"{n_columns} columns: the signal alone takes {SIGNAL_COLUMNS}")
    make = partial(block_rows, n_columns=n_columns)
    return in_blocks(make, block_labels, (n_rows, n_columns), BLOCK_ROWS, seed=seed)


if __name__ == "__main__":
    from bigsvm import write_store

    write_store(sys.argv[1], *overlap(*map(int, sys.argv[2:])))
