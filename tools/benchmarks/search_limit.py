"""What a search computes kernel values for, how many are of pairs computed before, and the limit.

Values are counted in the calls that compute them. The values that no sharing can avoid are those
of the support vectors of any fit with all rows, each pair once: outputs of all rows need them.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bigsvm.arrays import I8

PARTS = ("working sets", "active rows", "sweeps", "certificates", "predictions")
HELD_SHARE = 0.55
"""Share of the memory that kernel rows may take, as `plan_training` has it."""


class Counted(NamedTuple):
    """Kernel values and CPU seconds by part, CPU seconds of all, and support vectors of any fit."""

    values: Counter[str]
    seconds: dict[str, float]
    total: float
    support: I8


@contextmanager
def _counting(values: Counter[str], seconds: dict[str, float], found: set[int]) -> Iterator[None]:
    """Count kernel values and CPU seconds of what runs meanwhile, by part."""
    from bigsvm.executors import local
    from bigsvm.executors.executor import Exact, Products
    from bigsvm.gram.row_cache import ComputedRows
    from bigsvm.gram.tiles import KernelTiles
    from bigsvm.models import KernelExpansion
    from bigsvm.selection.fits import FoldFits

    parts = ["other"]

    def within(part: str, do: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401 (any function)
            if parts[-1] != "other":  # a part of another one
                return do(*arguments, **options)
            parts.append(part)
            started = time.process_time()
            try:
                return do(*arguments, **options)
            finally:
                seconds[part] += time.process_time() - started
                parts.pop()

        return counted

    for_each_span, finished = KernelTiles._for_each_span, FoldFits.finished

    def counted_span(*arguments: Any) -> None:  # noqa: ANN401 (those of a compiled function)
        values[parts[-1]] += arguments[-1]
        for_each_span(*arguments)

    def noted(fits: FoldFits, estimator: Any, *others: Any, **options: Any) -> Any:  # noqa: ANN401 (as its original)
        found.update(estimator.support_.tolist())
        return finished(fits, estimator, *others, **options)

    with ExitStack() as stack:
        for owner, name, part in (
            (ComputedRows, "fetch", PARTS[0]),
            (Products, "among", PARTS[1]),
            (KernelTiles, "multiply_symmetric", PARTS[1]),
            (local, "partial_sums", PARTS[2]),
            (Exact, "outputs", PARTS[3]),
            (Exact, "gram", PARTS[3]),
            (KernelExpansion, "decision_function", PARTS[4]),
        ):
            counted = within(part, getattr(owner, name))
            stack.enter_context(mock.patch.object(owner, name, counted))
        stack.enter_context(mock.patch.object(KernelTiles, "_for_each_span", counted_span))
        stack.enter_context(mock.patch.object(FoldFits, "finished", noted))
        yield


def count(search: Any, X: Any, y: Any) -> Counted:  # noqa: ANN401 (a search of ours or sklearn's)
    """Fit a search on one thread, and count."""
    values, found = Counter[str](), set[int]()
    seconds: dict[str, float] = defaultdict(float)
    with _counting(values, seconds, found):
        started = time.process_time()
        search.fit(X, y)
        total = time.process_time() - started
    return Counted(values, seconds, total, np.array(sorted(found), np.int64))


def least_values(X: Any, support: I8) -> tuple[int, float]:  # noqa: ANN401 (dense or CSR)
    """Count pairs of a support vector and a row, equal rows once; the share of 1 GB they take."""
    marks = np.asarray(X @ np.random.default_rng(0).random(X.shape[1])).ravel()
    n, p = len(np.unique(marks)), len(np.unique(marks[support]))
    pairs = p * n - p * (p - 1) // 2
    return pairs, 4 * pairs / (HELD_SHARE * 1e9)
