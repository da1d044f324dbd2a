"""Two families of problems made from a seed, for sizes that no file here has.

The rows of both lie on a smooth surface of few dimensions, as those of most real data do: latent
coordinates z, a column sin(z·a + b) for each of d random a and b. Which class a row has is the sign
of a wavy function of z, plus noise.

few    22 columns, C 32, gamma 2, a sixth of the rows positive: like ijcnn1, of which few rows
       become support vectors; measured 5.2 % of 100 000
many   50 columns, C 10, gamma 0.3, half of the rows positive: the noise alone makes support vectors
       of every tenth row; measured 23 % of 12 500, 21 % of 25 000

Rows are made in blocks, each from its own seed: the rows of a small problem are the first of a
larger one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

BLOCK_ROWS = 12_500
SEED = 0


class Family(NamedTuple):
    """How rows and labels come from latent coordinates.

    Attributes
    ----------
    draw : callable
        (generator, (m, q)) → latent coordinates.
    n_latent : int
    frequency : float
        Of the waves that columns are: standard deviation of a.
    amplitude : float
        Of a column.
    jitter : float
        Standard deviation of what is added to each value.
    decision : callable
        z (m, q) → (m,), positive where the class is.
    noise : float
        Standard deviation of what is added to the decision.
    """

    draw: Callable[[np.random.Generator, tuple[int, int]], NDArray[np.float64]]
    n_latent: int
    frequency: float
    amplitude: float
    jitter: float
    decision: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    noise: float


FAMILIES = {
    "few": Family(
        draw=lambda random, shape: random.uniform(-1, 1, shape),
        n_latent=3,
        frequency=2.0,
        amplitude=0.35,
        jitter=0.02,
        decision=lambda z: (
            np.sin(1.5 * np.pi * z[:, 0]) + np.cos(1.5 * np.pi * z[:, 1]) * z[:, 2] - 0.9
        ),
        noise=0.05,
    ),
    "many": Family(
        draw=lambda random, shape: random.standard_normal(shape),
        n_latent=5,
        frequency=0.5,
        amplitude=0.3,
        jitter=0.0,
        decision=lambda z: np.sin(1.5 * z[:, 0]) + np.sin(1.5 * z[:, 1]) + z[:, 2] * z[:, 3],
        noise=0.3,
    ),
}


def make(
    family: str, n_rows: int, n_columns: int
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Rows (n_rows, n_columns) float32 and labels (n_rows,) of ±1."""
    f = FAMILIES[family]
    random = np.random.default_rng(SEED)
    slopes = f.frequency * random.standard_normal((f.n_latent, n_columns))
    phases = random.uniform(0, 2 * np.pi, n_columns)
    x = np.empty((n_rows, n_columns), np.float32)
    y = np.empty(n_rows)
    for block, start in enumerate(range(0, n_rows, BLOCK_ROWS)):
        part = slice(start, min(start + BLOCK_ROWS, n_rows))
        random = np.random.default_rng([SEED, 1 + block])
        # Whole blocks are drawn, so that a part of one holds the first of its rows.
        z = f.draw(random, (BLOCK_ROWS, f.n_latent))
        rows = f.amplitude * np.sin(z @ slopes + phases)
        decision = f.decision(z) + f.noise * random.standard_normal(BLOCK_ROWS)
        if f.jitter:
            rows += f.jitter * random.standard_normal(rows.shape)
        x[part] = rows[: part.stop - start]
        y[part] = np.where(decision[: part.stop - start] > 0, 1.0, -1.0)
    return x, y
