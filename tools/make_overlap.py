"""Make a large dense store of two classes that barely overlap.

    python tools/make_overlap.py STORE [--rows 5000000] [--columns 200] [--seed 0]

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

import argparse
import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

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


def overlap(n_rows: int, n_columns: int, *, seed: int) -> tuple[da.Array, NDArray[np.float64]]:
    """X (n_rows, n_columns) float32, lazy, in chunks of `BLOCK_ROWS`; y (n_rows,) float64."""
    import dask.array as da

    if n_columns < SIGNAL_COLUMNS:
        raise ValueError(f"{n_columns} columns: the signal alone takes {SIGNAL_COLUMNS}")
    sizes = [min(BLOCK_ROWS, n_rows - start) for start in range(0, n_rows, BLOCK_ROWS)]

    def make(block_info: dict[None, dict[str, tuple[int, ...]]]) -> NDArray[np.float32]:
        where = block_info[None]
        return block_rows(
            where["chunk-location"][0],
            n_rows=where["chunk-shape"][0],
            n_columns=n_columns,
            seed=seed,
        )

    x = da.map_blocks(
        make,
        chunks=(tuple(sizes), (n_columns,)),
        dtype=np.float32,
        meta=np.empty((0, 0), dtype=np.float32),
    )
    y = np.concatenate([block_labels(b, n_rows=m, seed=seed) for b, m in enumerate(sizes)])
    return x, y


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("store", type=Path, help="folder to write; must not exist")
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--columns", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if options.rows < 1 or options.columns < SIGNAL_COLUMNS:
        parser.error(f"--rows must be at least 1 and --columns at least {SIGNAL_COLUMNS}")
    if options.store.exists():
        parser.error(f"{options.store} exists: remove it or give another path")

    from bigsvm.conversion.from_arrays import write_store

    started = time.perf_counter()
    x, y = overlap(options.rows, options.columns, seed=options.seed)
    write_store(options.store, x, y)
    seconds = time.perf_counter() - started
    print(f"{options.store}: {x.shape[0]:,} rows of {x.shape[1]} float32 in {seconds:.0f} s")
    print(f"best possible error {BAYES_ERROR:.3%}; train with --C {C:g} --gamma {GAMMA:g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
