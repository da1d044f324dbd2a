"""fold: what workers compute of spans of rows, in the order of the spans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bigsvm.executors import tasks
from bigsvm.executors.messages import Job, Unit
from bigsvm.executors.passes import results_of
from bigsvm.executors.workforce import Call
from bigsvm.kernels import Linear

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bigsvm.data.row_source import RowSource
    from bigsvm.executors.replies import Expected
    from bigsvm.executors.workforce import Workforce

SPANS_AHEAD = 4
"""Results for each thread that may wait for an earlier one."""


def fold(
    workforce: Workforce,
    source: RowSource,
    spans: Sequence[tuple[int, int]],
    function: Callable[..., Any],
    arguments: Callable[[int, int], tuple[Any, ...]],
    *,
    expected: Expected,
    look: Callable[[], None],
) -> Iterator[Any]:
    """Yield a function of the rows of each span, in their order: a sum of them has the same bits.

    Parameters
    ----------
    workforce : Workforce
    source : RowSource
        Rows that workers can read themselves, as `RowSource.portable` returns them.
    spans : sequence of (int, int)
        First row, and one past the last, of each span.
    function : callable
        Of a module: given the rows of a span and what follows, returns an array.
    arguments : callable
        Given a span, returns what follows, a tuple of arrays.
    expected : Expected
        What the function returns.
    look : callable
        Called several times a second; may raise.
    """
    workforce.wait_for_workers(look)
    # No kernel values are computed.
    sent = workforce.open_job(Job(source, Linear(), None, 0.0, source.is_sparse))
    calls = []
    for start, stop in spans:
        given = arguments(start, stop)
        nbytes = sum(array.nbytes for array in given)
        unit = Unit(start, stop)
        calls.append(Call(tasks.apply_to_rows, unit, (function, *given), expected, nbytes))
    ahead = SPANS_AHEAD * workforce.n_threads
    for done in results_of(
        workforce, sent, calls, name="bigsvm-statistics", ahead=ahead, look=look
    ):
        yield done.values
