"""From one store to several: a test share, or folds."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bigsvm.conversion.from_arrays import write_store
from bigsvm.data.wrappers import ChosenRows
from bigsvm.errors import DataError, ParameterError
from bigsvm.files import is_url, remove

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from bigsvm.conversion.writing import OnProgress
    from bigsvm.data.store import Store


def split_store(
    store: Store,
    paths: Sequence[str | os.PathLike[str]],
    *,
    shares: Sequence[float] | None = None,
    stratified: bool = True,
    seed: int = 0,
    memory: str | int = "1GB",
    on_progress: OnProgress | None = None,
) -> list[Store]:
    """Part the rows of a store into several stores, at random.

    If one cannot be written, those before it are removed; at a URL they stay.

    Parameters
    ----------
    store : Store
    paths : sequence of path
        Folders to be made, at least two.
    shares : sequence of float, optional
        Share of the rows of each part; equal ones without. They must add up to 1.
    stratified : bool
        Whether each label has these shares in each part; not where labels are no whole numbers.
    seed : int
    memory : str or int
        Bytes to stay below.
    on_progress : callable, optional
        As `write_store` takes it.

    Returns
    -------
    list of Store

    Raises
    ------
    ParameterError, DataError, MemoryBudgetError, StoreError
    """
    if len(paths) < 2:
        raise ParameterError("give at least two stores to be made")
    shares = [1 / len(paths)] * len(paths) if shares is None else list(shares)
    if len(shares) != len(paths) or min(shares) <= 0 or not math.isclose(sum(shares), 1):
        raise ParameterError(
            f"shares are {shares} for {len(paths)} stores; give one for each, more than 0, that "
            "add up to 1"
        )
    numbers, weights = store.label_numbers(), store.sample_weight()
    are_classes = stratified and bool((numbers == np.floor(numbers)).all())
    part = part_numbers(numbers if are_classes else np.zeros(len(numbers)), shares, seed)
    labels = store.labels()
    chosen = [np.flatnonzero(part == number) for number in range(len(paths))]
    for path, rows in zip(paths, chosen, strict=True):
        if not len(rows):
            raise DataError(f"{path} would have no rows; give it a larger share")
    made: list[Store] = []
    try:
        for path, rows in zip(paths, chosen, strict=True):
            each = write_store(
                path, ChosenRows(store.rows, rows), labels[rows],
                None if weights is None else weights[rows],
                shuffle=store.rows.is_shuffled, seed=seed, memory=memory, on_progress=on_progress,
            )  # fmt: skip
            made.append(each)
    except BaseException:
        for path in paths[: len(made)]:
            if not is_url(os.fspath(path)):
                remove(Path(path))
        raise
    return made


def part_numbers(
    labels: NDArray[np.float64], shares: Sequence[float], seed: int
) -> NDArray[np.int64]:
    """Deal rows out at random, (n,) int64: each part has its share of each label, but for a row."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    _, sizes = np.unique(labels, return_counts=True)
    upto = np.cumsum(shares)[:-1]
    part, first = np.empty(len(labels), np.int64), 0
    for size in sizes.tolist():
        # A random start, so that no part gets all rows that are left over by rounding.
        edges = np.floor(upto * size + rng.random()).astype(np.int64)
        part[order[first : first + size]] = np.searchsorted(edges, np.arange(size), side="right")
        first += size
    return part
