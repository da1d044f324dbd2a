"""What a worker of a cluster keeps between its tasks: open jobs, units of rows, packed partners.

All of it can be made again.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.allocator import give_back_freed_memory
from bigsvm.data.rows import RowsAt
from bigsvm.errors import ClusterError, DataCorruptionError, StoreError
from bigsvm.executors import worker_log
from bigsvm.executors.kept import Kept, KeptUnits
from bigsvm.executors.messages import Done
from bigsvm.gram import KernelTiles, Partners
from bigsvm.gram.partners import PARTNERS_PER_TILE, in_whole_tiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bigsvm.arrays import F8
    from bigsvm.data.row_source import RowSource
    from bigsvm.data.rows import Rows
    from bigsvm.executors.messages import Chosen, Job, SentJob, SentPiece, Unit
    from bigsvm.gram.partners import FunctionWeights

RUNS_KEPT, JOBS_KEPT = 4, 4
"""Runs that a process keeps something of, and jobs of each that it keeps. A coordinator that was
killed does not say that its run has ended."""
LEAST_KEPT_BYTES = 16 << 20
"""Bytes of units that are kept even if a worker has little memory: one unit is needed anyway."""

SHARE_OF_PACKED = 32
"""Packed partners take 1 / this of the memory of a run; the others are packed for each task."""
PADDING = 4
"""Packed rows take 1 / this more than they do at most: panels are filled up, and have norms."""


class NotKeptError(Exception):
    """A worker does not keep a unit that was sent earlier."""


class RunHere:
    """What a worker process keeps of a run: jobs, units of rows, packed partners.

    Attributes
    ----------
    memory : int
        Bytes that the run may take.
    n_calls : int
        Calls of tasks that have asked for a job.
    units : KeptUnits
    packed, others : Kept
    """

    def __init__(self, memory: int) -> None:
        self.memory, self.n_calls, self._read_before = memory, 0, 0
        self._lock = threading.RLock()
        self._jobs: OrderedDict[str, OpenJob] = OrderedDict()
        self.units, self.packed, self.others = KeptUnits(), Kept(), Kept()

    def job(self, sent: SentJob) -> OpenJob:
        """Return a job, opened by the first task that needs it."""
        with self._lock:
            self.n_calls += 1
            if sent.name not in self._jobs:
                while len(self._jobs) >= JOBS_KEPT:
                    self._forget(next(iter(self._jobs)))
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
                rows = sent.rows or sent.name
                same = [job.rows for job in self._jobs.values() if job.rows.name == rows]
                if not same:
                    worker_log.opens(sent.run, job.source)
                of_job = same[0] if same else RowsHere(rows, job.source)
                self._jobs[sent.name] = OpenJob(sent.name, job, self, of_job)
            self._jobs.move_to_end(sent.name)
            return self._jobs[sent.name]

    @property
    def bytes_read(self) -> int:
        """Bytes of rows that this process has read for the run."""
        with self._lock:
            rows = {job.rows.name: job.rows for job in self._jobs.values()}
            return self._read_before + sum(each.bytes_read for each in rows.values())

    def _forget(self, name: str) -> None:
        """Drop all that is kept of a job, and its rows if no other job has them."""
        rows = self._jobs.pop(name).rows
        for kept in (self.packed, self.others):
            kept.drop(lambda key: key[0] == name)
        if not any(other.rows is rows for other in self._jobs.values()):
            self._read_before += rows.bytes_read
            self.units.drop(lambda key: key[0] == rows.name)


class Process:
    """What a worker process keeps of the runs that it takes part in."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._memory: dict[str, int] = {}
        self._runs: OrderedDict[str, RunHere] = OrderedDict()

    def open(self, run: str, memory: int) -> None:
        """Note how many bytes a run may take."""
        with self._lock:
            self._memory[run] = memory

    def job(self, sent: SentJob) -> OpenJob:
        """Return a job of a run, opened by the first task that needs it."""
        with self._lock:
            if sent.run not in self._runs:
                while len(self._runs) >= RUNS_KEPT:
                    worker_log.goes(self._runs.popitem(last=False)[0])
                memory = self._memory.get(sent.run, LEAST_KEPT_BYTES)
                self._runs[sent.run] = RunHere(memory)
            self._runs.move_to_end(sent.run)
            run = self._runs[sent.run]
        return run.job(sent)

    def forget(self, run: str) -> None:
        """Drop all that is kept of a run."""
        with self._lock:
            self._memory.pop(run, None)
            state = self._runs.pop(run, None)
        if state is None:
            worker_log.ends_unused(run)
        else:
            worker_log.ends(run, state.n_calls, state.bytes_read, state.units.nbytes)
        del state
        give_back_freed_memory()


class RowsHere:
    """Rows that jobs on a worker share: their name, and their source, None if they are sent."""

    def __init__(self, name: str, source: RowSource | None) -> None:
        self.name, self.source = name, source
        self._lock, self._told = threading.Lock(), 0

    @property
    def bytes_read(self) -> int:
        """Bytes of rows that were read."""
        return 0 if self.source is None else self.source.bytes_read

    def newly_read(self) -> int:
        """Bytes of rows that were read since the last call, by any thread: each is told once."""
        with self._lock:
            before, self._told = self._told, self.bytes_read
            return max(0, self._told - before)


class OpenJob:
    """A job on a worker: its rows, and tiles for each thread.

    Attributes
    ----------
    rows : RowsHere
    """

    def __init__(self, name: str, job: Job, run: RunHere, rows: RowsHere) -> None:
        self.name, self.run, self.rows = name, run, rows
        self.kernel, self.is_sparse = job.kernel, job.is_sparse
        self._convert = job.convert
        self._centre, self._offset = job.centre, job.offset
        self._local = threading.local()

    def tiles(self, *, exact: bool) -> KernelTiles:
        """Tiles of this thread, in float64 if `exact`."""
        dtype: Any = np.float64 if exact else np.float32
        held = self._local.__dict__
        if dtype not in held:
            assert self.kernel is not None
            held[dtype] = KernelTiles(
                self.kernel, centre=self._centre, threads=1, dtype=dtype, offset=self._offset
            )
        tiles: KernelTiles = held[dtype]
        return tiles

    @property
    def source(self) -> RowSource | None:
        """Where rows are read from; None if they are sent."""
        return self.rows.source

    def kept(self, key: tuple[Any, ...], make: Callable[[], tuple[Any, int]], needed: int) -> Any:
        """Return what was made for this job under a key, made again where it is no longer kept.

        `make` returns it and its bytes; `needed` are bytes for what is not kept.
        """
        return self.run.others.get((self.name, *key), make, self._most_bytes(needed))

    def _most_bytes(self, needed: int) -> int:
        return max(LEAST_KEPT_BYTES, self.run.memory - needed)

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

    def unit(self, unit: Unit, needed: int = 0) -> Rows:
        """Rows of a unit, kept or read; `needed` are bytes for what is not units."""
        key, read, limit = self._ask(unit, needed)
        return self.run.units.rows_of(key, read, limit)

    def rows_at(self, unit: Unit, chosen: Chosen, needed: int = 0) -> RowsAt:
        """Chosen rows of a unit, kept or read, as `unit` does; rows that are listed may be kept."""
        places = chosen.kept() - unit.start
        if chosen.listed is None:
            return RowsAt(self.unit(unit, needed), places)
        key, read, limit = self._ask(unit, needed)
        return self.run.units.rows_at(key, places, read, limit)

    def _ask(self, unit: Unit, needed: int) -> tuple[tuple[Any, ...], Callable[[], Rows], int]:
        """Return the key of a unit, what reads it, and most bytes of units that are kept."""
        if not needed:
            # No pass is under way, and the partners of the next one have other names.
            self.run.packed.drop(lambda key: True)
        key = self.rows.name, unit.start, unit.stop
        return key, lambda: self.read(unit), self._most_bytes(needed)

    def room_for_packed(self, pieces: list[SentPiece], *, exact: bool) -> int:
        """Bytes that packed partners of pieces take at most: what is packed again costs little."""
        size = sum(piece.nbytes for piece in pieces) * (2 if exact else 1)
        return min(size + size // PADDING, self.run.memory // SHARE_OF_PACKED)

    def packed(
        self, pieces: list[SentPiece], *, exact: bool
    ) -> Iterator[tuple[Partners, F8 | FunctionWeights]]:
        """Yield partners of pieces and their weights, each packed once where the memory allows."""
        room = self.room_for_packed(pieces, exact=exact)
        for piece in pieces:
            n, size = piece.rows.shape[0], piece.nbytes * (2 if exact else 1)
            step = in_whole_tiles(max(PARTNERS_PER_TILE, n * room // max(size, 1)))
            for low in range(0, n, step):
                part = None if n <= step else slice(low, low + step)
                pack = partial(self._pack, piece, part, exact=exact)
                yield self.run.packed.get((self.name, piece.name, low, exact), pack, room)

    def _pack(
        self, piece: SentPiece, part: slice | None, *, exact: bool
    ) -> tuple[tuple[Partners, F8 | FunctionWeights], int]:
        rows, weights = piece.rows, piece.weights
        if part is not None:
            rows, weights = rows[part], weights[part]
        tiles = self.tiles(exact=exact)
        partners = Partners(tiles.values, rows, for_sparse_rows=self.is_sparse)
        return (partners, tiles.prepared(partners, weights)), partners.nbytes


class Cost:
    """Measures a task of a job; kernel values are those that some tiles count."""

    def __init__(self, job: OpenJob, tiles: KernelTiles | None = None) -> None:
        self._tiles, self._job = tiles, job
        self._before = self._now()

    def _now(self) -> tuple[int, float, float]:
        evaluations = 0 if self._tiles is None else self._tiles.n_evaluations
        return evaluations, time.perf_counter(), time.thread_time()

    def done(self, values: Any, others: int = 0) -> Done:
        """Return values with what has been spent, and other kernel values besides."""
        evaluations, wall, cpu = (
            after - before for after, before in zip(self._now(), self._before, strict=True)
        )
        read = self._job.rows.newly_read()
        return Done(values, int(evaluations) + others, read, wall, cpu)


PROCESS = Process()
