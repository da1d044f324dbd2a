"""What a worker of a cluster does: tasks over units of rows, and what it keeps between them.

A task depends on its arguments alone. What a worker keeps can be made again: decoded units of rows,
and partners packed for this machine.
"""

from __future__ import annotations

import functools
import pickle
import threading
import time
import zlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigsvm.allocator import give_back_freed_memory
from bigsvm.data.rows import RowsAt, bytes_of
from bigsvm.errors import ClusterError, DataCorruptionError, StoreError
from bigsvm.gram import KernelTiles, Partners
from bigsvm.gram.partners import PARTNERS_PER_TILE
from bigsvm.kernels import RBF
from bigsvm.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from bigsvm.arrays import F8, I8
    from bigsvm.data.remote_blocks import Convert
    from bigsvm.data.row_source import RowSource
    from bigsvm.data.rows import Rows
    from bigsvm.gram.weights import FunctionWeights, Weights
    from bigsvm.kernels import Kernel

JOBS_KEPT = 4
"""Jobs whose tiles a process keeps: fits of several threads take turns."""
LEAST_KEPT_BYTES = 16 << 20
"""Bytes of units that are kept even if a worker has little memory: one unit is needed anyway."""


class Ascending(NamedTuple):
    """Ascending row numbers in few bytes: the first one, and the steps between them, compressed."""

    first: int
    dtype: str
    steps: bytes

    @classmethod
    def of(cls, numbers: I8) -> Ascending:
        """Encode (m,) ascending numbers, m > 0."""
        steps = np.diff(numbers)
        dtype = np.min_scalar_type(int(steps.max(initial=0)))
        return cls(int(numbers[0]), dtype.str, zlib.compress(steps.astype(dtype).data, 1))

    def numbers(self) -> I8:
        """Return the numbers, (m,) int64."""
        steps = np.frombuffer(zlib.decompress(self.steps), self.dtype)
        numbers = np.empty(len(steps) + 1, np.int64)
        numbers[0] = self.first
        np.cumsum(steps, out=numbers[1:])
        numbers[1:] += self.first
        return numbers

    @property
    def nbytes(self) -> int:
        """Bytes that are sent."""
        return 8 + len(self.steps)


class NamedRows(NamedTuple):
    """Rows of a unit that a worker keeps under a name, as many products ask for them.

    `rows` has them the first time.
    """

    name: str
    rows: Ascending | None


class SentPiece:
    """Rows and weights under a name of their own, as they are sent to workers.

    Parameters
    ----------
    name : str
        Unique: packed partners are kept under it.
    start : int
        Place of the first row among all that are sent.
    rows : (p, d)
    weights : (p,) or (p, k)
    """

    def __init__(self, name: str, start: int, rows: Rows, weights: Weights) -> None:
        self.name, self.start, self.rows, self.weights = name, start, rows, weights

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return bytes_of(self.rows) + bytes_of(self.weights)

    def __sizeof__(self) -> int:
        return 100 + self.nbytes


class Job(NamedTuple):
    """What a worker has to know of a run.

    Attributes
    ----------
    source : RowSource or None
        Rows that another process can read; None if they are sent.
    is_sparse : bool
        Whether the rows are sparse.
    convert : callable or None
        Makes rows of a block that is sent, as `RemoteBlocks` has it; None where rows are sent.
    """

    source: RowSource | None
    kernel: Kernel
    centre: NDArray[np.float64] | None
    offset: float
    is_sparse: bool
    convert: Convert | None = None


class SentJob(NamedTuple):
    """A pickled `Job` and its name; read within a task, where an error has a place to go to."""

    name: str
    pickled: bytes

    @property
    def nbytes(self) -> int:
        """Bytes of the pickled job."""
        return len(self.pickled)


class Unit(NamedTuple):
    """Rows ``start … stop - 1`` of a source, which a worker keeps together.

    `rows` has them the first time, if the job has no source; or the block that they are made of.
    """

    start: int
    stop: int
    rows: Any = None


class Chosen(NamedTuple):
    """Rows of a unit: those `listed`, or ``start … stop - 1``; without those at `skipped` places.

    Listed numbers are those of the source, places are counted from the first row chosen.
    """

    start: int
    stop: int
    listed: Ascending | NamedRows | None = None
    skipped: Ascending | None = None

    def kept(self, listed: I8 | None = None) -> I8:
        """Return the numbers of the rows, ascending, where `listed` ones have these numbers."""
        rows = np.arange(self.start, self.stop) if listed is None else listed
        return rows if self.skipped is None else np.delete(rows, self.skipped.numbers())

    @property
    def nbytes(self) -> int:
        """Bytes that are sent."""
        listed = self.listed.rows if isinstance(self.listed, NamedRows) else self.listed
        return 16 + sum(part.nbytes for part in (listed, self.skipped) if part is not None)


class NotKeptError(Exception):
    """A worker does not keep a unit, or a list of rows, that was sent earlier."""


class NotKept(NamedTuple):
    """What a task returns instead: an error would be in the logs of the worker."""


class Done(NamedTuple):
    """What a task returns, and what it has cost.

    `values` are an array, CSR rows, or a list of results that count their bytes.
    """

    values: Any
    evaluations: int
    bytes_read: int
    seconds: float
    cpu_seconds: float

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays among the values."""
        if isinstance(self.values, list):
            return sum(one.nbytes for one in self.values)
        return bytes_of(self.values)


class Opened(NamedTuple):
    """What a worker says when a run begins.

    Attributes
    ----------
    versions : dict
        Of bigsvm, numpy, numba and llvmlite, and the name of the processor.
    limit, memory : int
        Bytes that Dask lets the worker take, and those that are left for a run.
    """

    versions: dict[str, str]
    limit: int
    memory: int


class _Kept:
    """Values kept up to a number of bytes; the one used longest ago goes first."""

    def __init__(self) -> None:
        self._values: OrderedDict[Any, tuple[Any, int]] = OrderedDict()
        self.nbytes = 0
        self._lock, self._making = threading.Lock(), dict[Any, threading.Lock]()

    def get(self, key: Any, make: Callable[[], Any], limit: int) -> Any:
        """Return the value of a key, made once though several threads may ask."""
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        with making:
            with self._lock:
                if key in self._values:
                    self._making.pop(key, None)
                    self._values.move_to_end(key)
                    return self._values[key][0]
            value, size = make()
            with self._lock:
                self._values[key] = value, size
                self.nbytes += size
                self._making.pop(key, None)
            self.shrink(limit)
            return value

    def shrink(self, limit: int) -> None:
        """Drop values until the others take at most `limit` bytes; the last one stays."""
        dropped = False
        with self._lock:
            while self.nbytes > limit and len(self._values) > 1:
                _, (_, size) = self._values.popitem(last=False)
                self.nbytes -= size
                dropped = True
        if dropped:
            give_back_freed_memory()

    def drop(self, is_dropped: Callable[[Any], bool]) -> None:
        """Drop the values of some keys."""
        with self._lock:
            for key in [key for key in self._values if is_dropped(key)]:
                self.nbytes -= self._values.pop(key)[1]


class _Process:
    """What a worker process keeps: jobs, units of rows, packed partners."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.jobs: OrderedDict[str, OpenJob] = OrderedDict()
        self.units, self.packed = _Kept(), _Kept()
        self.memory = LEAST_KEPT_BYTES

    def job(self, sent: SentJob) -> OpenJob:
        """Return a job, opened by the first task that needs it."""
        with self.lock:
            if sent.name not in self.jobs:
                while len(self.jobs) >= JOBS_KEPT:
                    self._forget(next(iter(self.jobs)))
                try:
                    job = pickle.loads(sent.pickled)
                except DataCorruptionError:
                    raise
                except (StoreError, ImportError, AttributeError) as error:
                    raise ClusterError(
                        f"cannot open the rows or the kernel of the run ({error}); a store must be "
                        "at the same path on every machine, or on object storage, and a kernel of "
                        "your own in a module that workers can import"
                    ) from error
                self.jobs[sent.name] = OpenJob(sent.name, job, self)
            self.jobs.move_to_end(sent.name)
            return self.jobs[sent.name]

    def forget(self, name: str) -> None:
        """Drop all that is kept of a job."""
        with self.lock:
            self._forget(name)

    def _forget(self, name: str) -> None:
        self.jobs.pop(name, None)
        self.units.drop(lambda key: key[0] == name)
        self.packed.drop(lambda key: key[0] == name)
        give_back_freed_memory()


_PROCESS = _Process()


class OpenJob:
    """A job on a worker: its rows, and tiles for each thread.

    Attributes
    ----------
    source : RowSource or None
        None if rows are sent.
    """

    def __init__(self, name: str, job: Job, process: _Process) -> None:
        self.name, self.process = name, process
        self.source, self.kernel, self.is_sparse = job.source, job.kernel, job.is_sparse
        self._convert = job.convert
        self._centre, self._offset = job.centre, job.offset
        self._local = threading.local()
        self._named: dict[int, tuple[str, I8]] = {}

    def numbers(self, unit: Unit, chosen: Chosen) -> I8:
        """Numbers of the chosen rows; of each unit the last rows that had a name are kept.

        Raises
        ------
        NotKeptError
        """
        listed = chosen.listed
        if not isinstance(listed, NamedRows):
            return chosen.kept(None if listed is None else listed.numbers())
        if listed.rows is not None:
            self._named[unit.start] = listed.name, listed.rows.numbers()
        name, rows = self._named.get(unit.start, ("", None))
        if name != listed.name:
            raise NotKeptError
        return chosen.kept(rows)

    def tiles(self, *, exact: bool) -> KernelTiles:
        """Tiles of this thread, in float64 if `exact`."""
        dtype: Any = np.float64 if exact else np.float32
        held = self._local.__dict__
        if dtype not in held:
            held[dtype] = KernelTiles(
                self.kernel, centre=self._centre, threads=1, dtype=dtype, offset=self._offset
            )
        tiles: KernelTiles = held[dtype]
        return tiles

    @property
    def bytes_read(self) -> int:
        """Bytes of rows that this process has read for the job."""
        return 0 if self.source is None else self.source.bytes_read

    def kept(self, key: tuple[Any, ...], make: Callable[[], tuple[Any, int]], needed: int) -> Any:
        """Return what was made for this job under a key, made again where it is no longer kept.

        `make` returns it and its bytes; `needed` are bytes for what is not kept.
        """
        limit = max(LEAST_KEPT_BYTES, self.process.memory - needed)
        return self.process.units.get((self.name, *key), make, limit)

    def read(self, unit: Unit) -> Rows:
        """Rows of a unit: sent, or read.

        Raises
        ------
        NotKeptError
            Neither.
        """
        if unit.rows is None:
            if self.source is None:
                raise NotKeptError
            return self.source.read(unit.start, unit.stop)
        if self._convert is not None:
            return self._convert(unit.rows, unit.start, unit.stop)
        rows: Rows = unit.rows
        return rows

    def unit(self, unit: Unit, needed: int) -> Rows:
        """Rows of a unit, kept or read; `needed` are bytes for what is not units."""

        def read() -> tuple[Rows, int]:
            rows = self.read(unit)
            return rows, bytes_of(rows)

        rows: Rows = self.kept((unit.start, unit.stop), read, needed)
        return rows

    def packed(
        self, piece: SentPiece, *, exact: bool, most_bytes: int
    ) -> tuple[Partners, F8 | FunctionWeights]:
        """Partners of a piece and their weights, packed once where the memory allows."""
        tiles = self.tiles(exact=exact)

        def pack() -> tuple[tuple[Partners, F8 | FunctionWeights], int]:
            partners = Partners(tiles.values, piece.rows, for_sparse_rows=self.is_sparse)
            return (partners, tiles.prepared(partners, piece.weights)), partners.nbytes

        key = self.name, piece.name, exact
        packed: tuple[Partners, F8 | FunctionWeights]
        packed = self.process.packed.get(key, pack, most_bytes)
        return packed


class _Cost:
    """Measures a task."""

    def __init__(self, job: OpenJob, *, exact: bool) -> None:
        self._tiles, self._job = job.tiles(exact=exact), job
        self._before = self._now()

    def _now(self) -> tuple[int, int, float, float]:
        read = self._job.bytes_read
        return self._tiles.n_evaluations, read, time.perf_counter(), time.thread_time()

    def done(self, values: Any) -> Done:
        """Return values with what has been spent."""
        evaluations, read, wall, cpu = (
            after - before for after, before in zip(self._now(), self._before, strict=True)
        )
        return Done(values, int(evaluations), int(read), wall, cpu)


def open_worker(memory: int | None) -> Opened:
    """Say what this worker is, make room, and load compiled code.

    Parameters
    ----------
    memory : int or None
        Bytes that a run may take; half of what Dask allows, without what the process has already,
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
    _PROCESS.memory = memory
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


def open_job(sent: SentJob) -> OpenJob:
    """Return a job, opened by the first task that needs it."""
    return _PROCESS.job(sent)


def ping() -> None:
    """Answer."""


def forget_job(name: str) -> None:
    """Drop all that is kept of a job."""
    _PROCESS.forget(name)


def may_lack(task: Callable[..., Done]) -> Callable[..., Done | NotKept]:
    """Have a task say so where the worker does not keep what it refers to."""

    @functools.wraps(task)
    def answer(*given: Any) -> Done | NotKept:
        try:
            return task(*given)
        except NotKeptError:
            return NotKept()

    return answer


@may_lack
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
    job = _PROCESS.job(sent)
    cost = _Cost(job, exact=exact)
    moved = sum(piece.nbytes for piece in pieces)
    values = job.unit(unit, 2 * moved)
    rows = RowsAt(values, job.numbers(unit, chosen) - unit.start)
    shape = pieces[0].weights.shape[1:]
    sums = np.zeros((len(rows.places), *shape))
    if initial is not None:
        sums[:] = initial
    tiles = job.tiles(exact=exact)
    for piece in pieces:
        tiles.multiply(rows, *job.packed(piece, exact=exact, most_bytes=2 * moved), sums)
    return cost.done(sums)


@may_lack
def take_rows(sent: SentJob, unit: Unit, chosen: Chosen) -> Done:
    """Rows of a unit, by number."""
    job = _PROCESS.job(sent)
    cost = _Cost(job, exact=False)
    return cost.done(job.unit(unit, 0)[job.numbers(unit, chosen) - unit.start])


def apply_to_rows(
    sent: SentJob, unit: Unit, function: Callable[..., F8], *given: NDArray[Any]
) -> Done:
    """Compute a function of the rows of a unit, which are not kept."""
    job = _PROCESS.job(sent)
    cost = _Cost(job, exact=False)
    return cost.done(function(job.read(unit), *given))


def add_up_halves(sent: SentJob, pieces: list[SentPiece], start: int, stop: int) -> Done:
    """Compute ``K(some, all) @ weights`` in float64, for rows ``start … stop - 1`` of one piece.

    The result has the bits of `KernelTiles.multiply_half` over the whole matrix: sums along the
    rows and sums down the columns are added up separately, and put together at the end. Kernel
    values on both sides of the diagonal are computed here and there, which one machine does once.
    Pieces narrower than a block of PARTNERS_PER_TILE lie within one, as do these rows then.
    """
    job = _PROCESS.job(sent)
    cost = _Cost(job, exact=True)
    tiles = job.tiles(exact=True)
    (own,) = _parts(pieces, start, stop)
    along, down = np.zeros_like(own.weights), np.zeros_like(own.weights)
    partners = Partners(tiles.values, own.rows, for_sparse_rows=job.is_sparse)
    # Blocks on the diagonal are whole: they begin before these rows where pieces are narrow.
    first = start // PARTNERS_PER_TILE * PARTNERS_PER_TILE
    last = -(-stop // PARTNERS_PER_TILE) * PARTNERS_PER_TILE
    for piece in _parts(pieces, 0, last):
        tiles.multiply_half(
            piece.rows, partners, (piece.weights, own.weights),
            np.zeros_like(piece.weights), down, corner=(piece.start, start),
        )  # fmt: skip
    for piece in _parts(pieces, first, pieces[-1].start + pieces[-1].rows.shape[0]):
        others = Partners(tiles.values, piece.rows, for_sparse_rows=job.is_sparse)
        tiles.multiply_half(
            own.rows, others, (own.weights, piece.weights),
            along, np.zeros_like(piece.weights), corner=(start, piece.start),
        )  # fmt: skip
    along += down
    return cost.done(along)


def _parts(pieces: list[SentPiece], start: int, stop: int) -> Iterator[SentPiece]:
    """Yield the parts of pieces that have rows ``start … stop - 1``."""
    for piece in pieces:
        n = piece.rows.shape[0]
        low, high = max(start - piece.start, 0), min(stop - piece.start, n)
        if low < high:
            part = slice(low, high)
            yield SentPiece(piece.name, piece.start + low, piece.rows[part], piece.weights[part])
