"""Tasks that a worker of a cluster does. A task depends on its arguments alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.executors import replies, worker_log
from bigsvm.executors.messages import Done, NotKept, Opened, SentPiece
from bigsvm.executors.worker_state import LEAST_KEPT_BYTES, PROCESS, Cost, NotKeptError
from bigsvm.gram import KernelTiles, Partners
from bigsvm.gram.partners import PARTNERS_PER_TILE
from bigsvm.kernels import RBF
from bigsvm.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from bigsvm.arrays import F8
    from bigsvm.data.rows import Rows
    from bigsvm.executors.messages import Chosen, SentJob, Unit


def open_worker(run: str, memory: int | None) -> Opened:
    """Say what this worker is, make room, and load compiled code.

    Parameters
    ----------
    run : str
        Name of the run.
    memory : int or None
        Bytes that it may take; half of what Dask allows, without what the process has already,
        if None.
    """
    import psutil
    from distributed import get_worker

    limit = get_worker().memory_manager.memory_limit or 0
    with KernelTiles(RBF(gamma=1.0), threads=1) as tiles:
        rows = np.eye(12, dtype=np.float32)
        partners = Partners(tiles.values, rows, for_sparse_rows=False)
        tiles.multiply(rows, partners, np.ones(12), np.zeros(12))
    if memory is None:
        held = psutil.Process().memory_info().rss
        available = limit or psutil.virtual_memory().available
        memory = max(LEAST_KEPT_BYTES, available // 2 - held)
    PROCESS.open(run, memory)
    worker_log.begins(run, memory, limit)
    return Opened(versions(), limit, memory)


def versions() -> dict[str, str]:
    """Return what has to be equal for equal results (bigsvm) and for equal bits (the others)."""
    import llvmlite
    import llvmlite.binding as llvm
    import numba

    return {
        "bigsvm": __version__,
        "numpy": np.__version__,
        "numba": numba.__version__,
        "llvmlite": llvmlite.__version__,
        "processor": llvm.get_host_cpu_name(),
    }


def keep(value: Any) -> Any:
    """Keep what was sent to several workers as a result of this worker's own.

    Dask drops copies of a value that it finds on several workers. A worker then fetches it again,
    and waits for ever if the copy that is left is on a worker that has stopped.
    """
    return value


def watch_for_end() -> Callable[[], bool]:
    """Return a function that tells whether the task of this thread has been given up.

    A thread cannot be stopped; Dask only notes that the coordinator has gone, or has the result of
    another worker.
    """
    from distributed import get_worker

    worker = get_worker()
    key = worker.get_current_task()

    def is_given_up() -> bool:
        task = worker.state.tasks.get(key)
        return task is None or task.state == "cancelled"

    return is_given_up


def ping() -> None:
    """Answer."""


def forget_run(run: str) -> None:
    """Drop all that is kept of a run."""
    PROCESS.forget(run)


def each(
    function: Callable[..., Done],
    sent: SentJob,
    shared: list[Any] | None,
    calls: list[list[Any]],
) -> list[Done | NotKept]:
    """Do some calls of a task, which share the job and what every worker was sent."""
    before = [sent] if shared is None else [sent, shared]
    answers: list[Done | NotKept] = []
    for given in calls:
        try:
            answers.append(replies.sign(function(*before, *given)))
        except NotKeptError:
            answers.append(NotKept())
        except Exception as error:
            worker_log.fails(sent, function.__name__, error)
            raise
    return answers


def add_up(
    sent: SentJob,
    pieces: list[SentPiece],
    unit: Unit,
    chosen: Chosen,
    initial: F8 | None,
    exact: bool,
) -> Done:
    """Compute ``initial + K(chosen rows, pieces) @ weights``, piece by piece.

    Sums begin at 0 where `initial` is None, and all at the same where it has one row.
    """
    job = PROCESS.job(sent)
    tiles = job.tiles(exact=exact)
    cost = Cost(job, tiles)
    needed = sum(piece.nbytes for piece in pieces) + job.room_for_packed(pieces, exact=exact)
    rows = job.rows_at(unit, chosen, needed)
    shape = pieces[0].weights.shape[1:]
    sums = np.zeros((len(rows.places), *shape))
    if initial is not None:
        sums[:] = initial
    for partners, weights in job.packed(pieces, exact=exact):
        tiles.multiply(rows, partners, weights, sums)
    return cost.done(sums)


def take_rows(sent: SentJob, unit: Unit, chosen: Chosen) -> Done:
    """Rows of a unit, by number."""
    job = PROCESS.job(sent)
    cost = Cost(job)
    rows, places = job.rows_at(unit, chosen)
    return cost.done(rows[places])


def values_of_rows(sent: SentJob, unit: Unit, function: Callable[[Rows], NDArray[Any]]) -> Done:
    """Compute a function of the rows of a unit, with a value for each; the rows are kept."""
    job = PROCESS.job(sent)
    cost = Cost(job)
    return cost.done(function(job.unit(unit)))


def apply_to_rows(
    sent: SentJob, unit: Unit, function: Callable[..., F8], *given: NDArray[Any]
) -> Done:
    """Compute a function of the rows of a unit, which are not kept."""
    job = PROCESS.job(sent)
    cost = Cost(job)
    return cost.done(function(job.read(unit), *given))


def add_up_halves(sent: SentJob, pieces: list[SentPiece], start: int, stop: int) -> Done:
    """Compute ``K(some, all) @ weights`` in float64, for rows ``start … stop - 1`` of one piece.

    The result has the bits of `KernelTiles.multiply_half` over the whole matrix: sums along the
    rows and sums down the columns are added up separately, and put together at the end. Kernel
    values on both sides of the diagonal are computed here and there, which one machine does once.
    Pieces narrower than a block of PARTNERS_PER_TILE lie within one, as do these rows then.
    """
    job = PROCESS.job(sent)
    tiles = job.tiles(exact=True)
    cost = Cost(job, tiles)
    (own,) = _parts(pieces, start, stop)
    halves = Halves(tiles, own, is_sparse=job.is_sparse)
    for piece in pieces:
        halves.add(piece)
    return cost.done(halves.sums)


class Halves:
    """Adds up ``K(own, all) @ weights`` by halves, piece by piece; see `add_up_halves`."""

    def __init__(self, tiles: KernelTiles, own: SentPiece, *, is_sparse: bool) -> None:
        self._tiles, self._own, self._is_sparse = tiles, own, is_sparse
        self._along, self._down = np.zeros_like(own.weights), np.zeros_like(own.weights)
        self._partners = Partners(tiles.values, own.rows, for_sparse_rows=is_sparse)
        # Blocks on the diagonal are whole: they begin before these rows where pieces are narrow.
        self._first = own.start // PARTNERS_PER_TILE * PARTNERS_PER_TILE
        stop = own.start + own.rows.shape[0]
        self._last = -(-stop // PARTNERS_PER_TILE) * PARTNERS_PER_TILE

    def add(self, piece: SentPiece) -> None:
        """Add the products with a piece; they come in their order."""
        own, tiles, stop = self._own, self._tiles, piece.start + piece.rows.shape[0]
        for part in _parts([piece], 0, self._last):
            tiles.multiply_half(
                part.rows, self._partners, (part.weights, own.weights),
                np.zeros_like(part.weights), self._down, corner=(part.start, own.start),
            )  # fmt: skip
        for part in _parts([piece], self._first, stop):
            others = Partners(tiles.values, part.rows, for_sparse_rows=self._is_sparse)
            tiles.multiply_half(
                own.rows, others, (own.weights, part.weights),
                self._along, np.zeros_like(part.weights), corner=(own.start, part.start),
            )  # fmt: skip

    @property
    def sums(self) -> F8:
        """The sums of all pieces."""
        return self._along + self._down


def _parts(pieces: list[SentPiece], start: int, stop: int) -> Iterator[SentPiece]:
    """Yield the parts of pieces that have rows ``start … stop - 1``."""
    for piece in pieces:
        n = piece.rows.shape[0]
        low, high = max(start - piece.start, 0), min(stop - piece.start, n)
        if low < high:
            part = slice(low, high)
            yield SentPiece(piece.name, piece.start + low, piece.rows[part], piece.weights[part])
