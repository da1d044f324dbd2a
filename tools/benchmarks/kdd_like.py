"""Rows that look like the connections of KDD99, made from a seed: 127 columns, four fifths attacks.

38 columns are numbers about 0 to 1, most of them near 0; three fields of 3, 75 and 11 values, like
protocol, service and flag, are a column for each value. A row is of one of 23 kinds, 6 of which are
normal (-1) and 17 attacks (+1): a kind has its own mean of the numbers and its own value of each
field, which three rows of a hundred do not have. Of 100 rows one lies between an attack and a
normal kind, at a random share t of the way, and is an attack with probability
1 / (1 + exp(-10 (2t - 1))): the best possible classifier is wrong on about 0.07 % of all rows, if
it can tell t. (Frandi et al. 2013, table 2: a core vector machine is wrong on 0.13 % of
KDD99-10pc.)

Rows are made block by block, each from its own seed, so that memory stays bounded. Kinds do not
depend on the seed: rows of another seed are fresh rows of the same problem.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tools.benchmarks.synthetic import in_blocks

if TYPE_CHECKING:
    from pathlib import Path

    import dask.array as da
    from numpy.typing import NDArray

BLOCK_ROWS = 16_384
"""Part of the recipe, since each block has its own seed: 8 MB."""
N_NUMBERS, FIELDS = 38, (3, 75, 11)
N_COLUMNS = N_NUMBERS + sum(FIELDS)
N_NORMAL, N_ATTACKS = 6, 17
ATTACKS, BETWEEN = 0.8, 0.01
STEEPNESS = 20.0
JITTER, UNUSUAL = 0.04, 0.03
WRITING = "500MB"
"""Memory for writing a store."""


class Kinds(NamedTuple):
    """Normal kinds, then attacks.

    Attributes
    ----------
    means : (23, 38) float32
    values : (23, 3) int64
        Of the fields.
    chances : (23,) float64
        Of a kind among the normal ones, or among the attacks.
    """

    means: NDArray[np.float32]
    values: NDArray[np.int64]
    chances: NDArray[np.float64]


class Draws(NamedTuple):
    """What rows are made of: (m,) each; `share` of the way from the normal kind to the attack."""

    normal: NDArray[np.int64]
    attack: NDArray[np.int64]
    share: NDArray[np.float64]
    labels: NDArray[np.float64]


def kinds() -> Kinds:
    """Make the kinds, always the same."""
    random = np.random.default_rng(99)
    n = N_NORMAL + N_ATTACKS
    means = np.where(random.random((n, N_NUMBERS)) < 0.3, random.random((n, N_NUMBERS)), 0.0)
    values = np.stack([random.integers(0, size, n) for size in FIELDS], axis=1)
    chances = 1.0 / (1.0 + np.concatenate([np.arange(N_NORMAL), np.arange(N_ATTACKS)]))
    chances[:N_NORMAL] /= chances[:N_NORMAL].sum()
    chances[N_NORMAL:] /= chances[N_NORMAL:].sum()
    return Kinds(means.astype(np.float32), values, chances)


def block_draws(block: int, *, n_rows: int, seed: int) -> Draws:
    """Draw kinds and labels of block number `block`, which has `n_rows`."""
    random, chances = np.random.default_rng([seed, block, 0]), kinds().chances
    normal = random.choice(N_NORMAL, n_rows, p=chances[:N_NORMAL])
    attack = N_NORMAL + random.choice(N_ATTACKS, n_rows, p=chances[N_NORMAL:])
    share = (random.random(n_rows) < ATTACKS).astype(np.float64)
    between = random.random(n_rows) < BETWEEN
    share[between] = random.random(n_rows)[between]
    probability = 1.0 / (1.0 + np.exp(-STEEPNESS * (share - 0.5)))
    chance = random.random(n_rows)
    is_attack = np.where(between, chance < probability, share > 0.5)
    return Draws(normal, attack, share, np.where(is_attack, 1.0, -1.0))


def block_rows(block: int, *, n_rows: int, seed: int) -> NDArray[np.float32]:
    """Make the rows of block number `block`: (n_rows, 127) float32."""
    draws, known = block_draws(block, n_rows=n_rows, seed=seed), kinds()
    random = np.random.default_rng([seed, block, 1])
    x = np.zeros((n_rows, N_COLUMNS), np.float32)
    share = draws.share.astype(np.float32)[:, None]
    x[:, :N_NUMBERS] = share * known.means[draws.attack] + (1 - share) * known.means[draws.normal]
    x[:, :N_NUMBERS] += np.float32(JITTER) * random.standard_normal(
        (n_rows, N_NUMBERS), dtype=np.float32
    )
    first = N_NUMBERS
    for field, size in enumerate(FIELDS):
        kind = np.where(random.random(n_rows) < draws.share, draws.attack, draws.normal)
        unusual = random.random(n_rows) < UNUSUAL
        value = np.where(unusual, random.integers(0, size, n_rows), known.values[kind, field])
        x[np.arange(n_rows), first + value] = 1.0
        first += size
    return x


def block_labels(block: int, *, n_rows: int, seed: int) -> NDArray[np.float64]:
    """Make the labels of block number `block`: (n_rows,) of ±1."""
    return block_draws(block, n_rows=n_rows, seed=seed).labels


def connections(n_rows: int, *, seed: int) -> tuple[da.Array, NDArray[np.float64]]:
    """X (n_rows, 127) float32, lazy, in chunks of `BLOCK_ROWS`; y (n_rows,) float64 of ±1."""
    return in_blocks(block_rows, block_labels, (n_rows, N_COLUMNS), BLOCK_ROWS, seed=seed)


def write(path: Path, *, n_rows: int, seed: int = 0) -> None:
    """Write a store, in bounded memory."""
    from bigsvm import write_store

    x, y = connections(n_rows, seed=seed)
    write_store(path, x, y, memory=WRITING)
