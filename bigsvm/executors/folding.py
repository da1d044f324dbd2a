"""fold: what workers compute of spans of rows, in the order of the spans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.executors import tasks
from bigsvm.executors.audit import SHARE, Audit, RowsReadAgain
from bigsvm.executors.messages import Job, Unit
from bigsvm.executors.passes import Pass
from bigsvm.executors.replies import ReplyError
from bigsvm.executors.workforce import Call
from bigsvm.processors import one_blas_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bigsvm.data.row_source import RowSource
    from bigsvm.executors.replies import Expected
    from bigsvm.executors.workforce import Workforce

SPANS_AHEAD = 4
"""Results for each thread that may wait for an earlier one."""
ROUNDING = 1e-9
"""By how much results of other processors may differ, relative to the largest one."""


class SpansAudit(Audit):
    """Computes the results of some spans again; `compute` is given the number of a span."""

    def __init__(self, compute: Callable[[int], Any], n_spans: int) -> None:
        super().__init__([1] * n_spans, int(SHARE * n_spans))
        self._compute = compute

    def verify(self, number: int, worker: str, values: Any, *, exactly: bool) -> bool:
        """Check the result of a span, if it was chosen or is the worker's first; see `Audit`."""
        if self.place(number, worker) is None:
            return False
        with one_blas_thread():
            expected = self._compute(number)
        near = 0.0 if exactly else ROUNDING * float(np.abs(expected).max(initial=0.0))
        if values.shape != expected.shape or not np.allclose(
            values, expected, rtol=0.0, atol=near, equal_nan=True
        ):
            raise ReplyError(f"returned other values of span {number} than this process computes")
        return True


def fold(
    workforce: Workforce,
    source: RowSource,
    spans: Sequence[tuple[int, int]],
    function: Callable[..., Any],
    arguments: Callable[[int, int], tuple[Any, ...]],
    *,
    expected: Expected,
) -> Iterator[Any]:
    """Yield a function of the rows of each span, in their order: a sum of them has the same bits.

    This process computes the results of some spans again; workers have to agree.

    Parameters
    ----------
    source : RowSource
        Rows that workers can read themselves, or have as remote blocks; spans are those then.
    function : callable
        Of a module: given the rows of a span and what `arguments` returns of it, a tuple of arrays,
        returns an array.
    """
    workforce.wait_for_workers()
    portable, fill, convert = source.portable(), None, None
    if portable is None and (blocks := source.remote_blocks()) is not None:
        convert = blocks.convert

        def fill(unit: Unit) -> tuple[Unit, int]:
            return unit._replace(rows=blocks.future(unit.start)), 0

    sent = workforce.open_job(Job(portable, None, None, 0.0, source.is_sparse, convert))
    calls = []
    for start, stop in spans:
        given = (function, *arguments(start, stop))
        calls.append(Call(tasks.apply_to_rows, Unit(start, stop), given, expected))
    ahead = SPANS_AHEAD * workforce.n_threads
    again = RowsReadAgain(source, workforce.traffic)
    audit = SpansAudit(
        lambda number: function(again.read(*spans[number]), *arguments(*spans[number])), len(spans)
    )
    under_way = Pass(workforce, sent, calls, name="bigsvm-statistics", fill=fill, audit=audit)
    for done in under_way.in_order(ahead=ahead):
        yield done.values
