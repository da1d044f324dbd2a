"""Families of problems made from a seed, for sizes that no file here has.

Rows lie on a smooth surface of few dimensions, as those of most real data do: latent coordinates z,
a column sin(z·a + b) for each of d random a and b. Which class a row has is the sign of a wavy
function of z, plus noise.

few    22 columns, C 32, gamma 2, a sixth of the rows positive: like ijcnn1, of which few rows
       become support vectors; measured 5.2 % of 100 000
many   50 columns, C 10, gamma 0.3, half of the rows positive: the noise alone makes support vectors
       of every tenth row; measured 23 % of 12 500, 21 % of 25 000
crowded
       50 columns, C 3, gamma 1: 50 clusters of z whose classes overlap, so that a third of the rows
       become support vectors, nearly all of them at a bound. 10 columns are waves as above; 40 are
       0 or 1 and say which of 4 areas and of 36 kinds a row is of. A cluster has one area and one
       kind, which a few of its rows do not have
words  50 000 columns, C 10, gamma 1: CSR rows like those of short texts after TF-IDF, of length 1
       and some 75 entries. Words are as frequent as Zipf's law has them; half of a row's are of one
       of 20 topics, and half of the topics make the class, but for a twentieth of the rows. Nearly
       all rows become support vectors
smooth 20 columns and targets, which are a smooth function of some columns and noise; a hundredth of
       the rows are far from the others. Rows of another number of them are other rows

Rows of the others are made in blocks, each from its own seed: the rows of a small problem are the
first of a larger one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    import dask.array as da
    import scipy.sparse as sp
    from numpy.typing import NDArray

    Block = Callable[[np.random.Generator], tuple[NDArray[np.float64], NDArray[np.float64]]]

BLOCK_ROWS = 12_500
N_CLUSTERS, N_LATENT, N_WAVES, N_AREAS = 50, 4, 10, 4
"""Columns of ``crowded``: the other columns are kinds."""
UNUSUAL = 0.05
"""Share of the rows of ``crowded`` that have a random area, and a random kind."""
SHARPNESS = 2.0
"""Slope of the log odds of the classes of ``crowded`` along the decision."""
N_TOPICS, TOPIC_WORDS, TEXT_WORDS, OTHER_CLASS = 20, 2000, 80, 0.05
"""Topics of ``words``, words of each, words of a row, and the share of rows of the other class."""
BEND, ARM_NOISE = 0.3, 0.07
"""Radians of an angle of ``arm``, and noise, as standard deviations; that of its targets is 1."""
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
) -> tuple[NDArray[np.float32] | sp.csr_matrix, NDArray[np.float64]]:
    """Rows (n_rows, n_columns) float32, and labels (n_rows,) of ±1 or targets."""
    if family in WHOLE:
        return WHOLE[family](n_rows, n_columns)
    random = np.random.default_rng(SEED)
    block_of = (
        crowded(random, n_columns)
        if family == "crowded"
        else waves(FAMILIES[family], random, n_columns)
    )
    x = np.empty((n_rows, n_columns), np.float32)
    y = np.empty(n_rows)
    for block, start in enumerate(range(0, n_rows, BLOCK_ROWS)):
        part = slice(start, min(start + BLOCK_ROWS, n_rows))
        # Whole blocks are drawn, so that a part of one holds the first of its rows.
        rows, decision = block_of(np.random.default_rng([SEED, 1 + block]))
        x[part] = rows[: part.stop - start]
        y[part] = np.where(decision[: part.stop - start] > 0, 1.0, -1.0)
    return x, y


def in_blocks(
    rows: Callable[..., NDArray[np.float32]],
    labels: Callable[..., NDArray[np.float64]],
    shape: tuple[int, int],
    block_rows: int,
    *,
    seed: int,
) -> tuple[da.Array, NDArray[np.float64]]:
    """Make a lazy array of rows, of `shape`, and their labels, each block from its own seed.

    `rows` and `labels` take the number of a block, and ``n_rows`` and ``seed`` by name.
    """
    import dask.array as da

    sizes = [min(block_rows, shape[0] - start) for start in range(0, shape[0], block_rows)]

    def make(block_info: dict[None, dict[str, tuple[int, ...]]]) -> NDArray[np.float32]:
        where = block_info[None]
        return rows(where["chunk-location"][0], n_rows=where["chunk-shape"][0], seed=seed)

    x = da.map_blocks(
        make,
        chunks=(tuple(sizes), (shape[1],)),
        dtype=np.float32,
        meta=np.empty((0, 0), dtype=np.float32),
    )
    return x, np.concatenate([labels(b, n_rows=m, seed=seed) for b, m in enumerate(sizes)])


def smooth(n_rows: int, n_columns: int) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Make rows (n, d) and targets (n,) of ``smooth``."""
    random = np.random.default_rng(SEED)
    rows = random.standard_normal((n_rows, n_columns), dtype=np.float32)
    rows[:, 5:] *= 0.3
    rows[random.random(n_rows) < 0.01] *= 4
    targets = np.sin(rows[:, 0]) + 0.5 * rows[:, 1] * rows[:, 2]
    return rows, targets + 0.2 * random.standard_normal(n_rows)


def words(n_rows: int, n_columns: int) -> tuple[sp.csr_matrix, NDArray[np.float64]]:
    """Make rows (n, d) and labels (n,) of ``words``."""
    import scipy.sparse as sp

    random = np.random.default_rng(SEED)
    frequency = np.cumsum(1 / np.arange(10, n_columns + 10))
    frequency /= frequency[-1]

    def by_frequency(size: tuple[int, int]) -> NDArray[np.int64]:
        return np.searchsorted(frequency, random.random(size))

    of_topic = by_frequency((N_TOPICS, TOPIC_WORDS))
    topic = random.integers(N_TOPICS, size=n_rows)
    rare = (TOPIC_WORDS * random.random((n_rows, TEXT_WORDS // 2)) ** 2).astype(np.int64)
    columns = np.hstack([by_frequency((n_rows, TEXT_WORDS // 2)), of_topic[topic[:, None], rare]])
    starts = np.arange(0, columns.size + 1, TEXT_WORDS)
    rows = sp.csr_matrix(
        (np.ones(columns.size), columns.ravel(), starts), shape=(n_rows, n_columns)
    )
    rows.sum_duplicates()
    n_texts = np.bincount(rows.indices, minlength=n_columns)
    rows.data = (1 + np.log(rows.data)) * np.log(n_rows / n_texts[rows.indices])
    lengths = np.sqrt(rows.multiply(rows).sum(axis=1)).A1
    rows = sp.csr_matrix(sp.diags_array(1 / lengths) @ rows, dtype=np.float32)
    is_first = (topic < N_TOPICS // 2) ^ (random.random(n_rows) < OTHER_CLASS)
    return rows, np.where(is_first, 1.0, -1.0)


def arm(n_rows: int, n_columns: int) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Make rows (n, d) and targets (n,) of ``arm``."""
    random = np.random.default_rng(SEED)
    rows = random.standard_normal((n_rows, n_columns), dtype=np.float32)
    angles = np.cumsum(BEND * rows, axis=1)
    distance = np.hypot(np.cos(angles).sum(axis=1) - 0.1, np.sin(angles).sum(axis=1) - 0.1)
    targets = (distance - distance.mean()) / distance.std()
    return rows, targets + ARM_NOISE * random.standard_normal(n_rows)


WHOLE = {"smooth": smooth, "words": words, "arm": arm}
"""Families whose rows are made all at once."""


def waves(f: Family, random: np.random.Generator, n_columns: int) -> Block:
    """Draw the columns of a family; returns what makes a block of its rows."""
    slopes = f.frequency * random.standard_normal((f.n_latent, n_columns))
    phases = random.uniform(0, 2 * np.pi, n_columns)

    def block(random: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        z = f.draw(random, (BLOCK_ROWS, f.n_latent))
        rows = f.amplitude * np.sin(z @ slopes + phases)
        decision = f.decision(z) + f.noise * random.standard_normal(BLOCK_ROWS)
        if f.jitter:
            rows += f.jitter * random.standard_normal(rows.shape)
        return rows, decision

    return block


def crowded(random: np.random.Generator, n_columns: int) -> Block:
    """Draw the clusters and columns of ``crowded``; returns what makes a block of its rows."""
    first_kind = N_WAVES + N_AREAS
    n_kinds = n_columns - first_kind
    centre = random.standard_normal((N_CLUSTERS, N_LATENT))
    width = 0.35 * np.exp(0.4 * random.standard_normal((N_CLUSTERS, 1)))
    area_of = random.integers(N_AREAS, size=N_CLUSTERS)
    kind_of = random.integers(n_kinds, size=N_CLUSTERS)
    chance = random.dirichlet(np.full(N_CLUSTERS, 2.0))
    slopes = 0.5 * random.standard_normal((N_LATENT, N_WAVES))
    phases = random.uniform(0, 2 * np.pi, N_WAVES)
    decision_slopes = random.standard_normal((N_LATENT, 6))
    decision_phases = random.uniform(0, 2 * np.pi, 6)
    amplitudes = random.standard_normal(6) / np.sqrt(3)
    of_kind = 0.5 * random.standard_normal(n_kinds)

    def block(random: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        cluster = random.choice(N_CLUSTERS, size=BLOCK_ROWS, p=chance)
        z = centre[cluster] + width[cluster] * random.standard_normal((BLOCK_ROWS, N_LATENT))
        area, kind = (
            np.where(random.random(BLOCK_ROWS) < UNUSUAL, random.integers(n, size=BLOCK_ROWS), own)
            for n, own in ((N_AREAS, area_of[cluster]), (n_kinds, kind_of[cluster]))
        )
        rows, each = np.zeros((BLOCK_ROWS, n_columns)), np.arange(BLOCK_ROWS)
        rows[:, :N_WAVES] = 0.5 + 0.25 * np.sin(z @ slopes + phases)
        rows[each, N_WAVES + area] = rows[each, first_kind + kind] = 1.0
        decision = np.sin(z @ decision_slopes + decision_phases) @ amplitudes + of_kind[kind]
        # Logistic noise makes the log odds of the classes linear in the decision.
        return rows, decision + random.logistic(size=BLOCK_ROWS) / SHARPNESS

    return block
