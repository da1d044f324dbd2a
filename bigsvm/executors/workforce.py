"""Workforce: the workers of a Dask cluster, what they are sent, and what they send back.

Tasks are placed here, not by Dask's scheduler: a unit of rows stays with the worker that keeps it.
What a worker loses or does too late is done by another one. Results come in the order of the tasks,
so neither the number of workers nor a failure changes a bit of what is added up from them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import pickle
import queue
import time
import uuid
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from bigsvm.errors import BigsvmError, ClusterError
from bigsvm.executors import replies, tasks
from bigsvm.executors.messages import SentJob, WorkerTerms
from bigsvm.interruption import check_interrupt

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from concurrent.futures import Future

    from bigsvm.executors.messages import Done, Job, Opened, Unit
    from bigsvm.executors.replies import Expected, Listed


logger = logging.getLogger("bigsvm")

UnitKey = tuple[str, int, int]
POLL_SECONDS = 0.25
"""Between two looks at whether the run is to stop."""
MEMBERS_SECONDS = 0.5
"""Between two looks at which workers there are."""
SCHEDULER_SECONDS = 60.0
"""How long the scheduler may take to answer: networks are away for half a minute now and then."""
MOST_WANTED = 32
"""Most tasks that are shown to the scheduler at once, so that a cluster grows by some workers."""
TOLD_SECONDS = 60.0
"""Between two messages that a run waits for workers."""
REACH_SECONDS = 3.0
"""How long a connection to a worker is tried for: a firewall does not answer at all."""
OPEN_SECONDS = 5.0
"""How long a run waits for workers that are slow to open while others are ready."""
FORGET_SECONDS = 0.5
"""How long the end of a run waits for workers to forget it; those that are busy do so later."""


class ResultLostError(Exception):
    """A result, or what its task was sent, is gone with the worker that had it."""


class SchedulerLostError(ResultLostError):
    """The connection to the scheduler has ended, and Dask drops all tasks with it."""


class Call(NamedTuple):
    """A task that is to be done by some worker.

    Attributes
    ----------
    function : callable
        One of `bigsvm.executors.tasks`.
    unit : Unit or None
        The rows it needs, by which it is placed.
    arguments : tuple
        What follows the job, the pieces and the unit.
    expected : Expected or Listed
        What it has to return.
    seconds : float
        What it takes in one thread, about.
    may_move : bool
        Whether an idle worker should do it that has to read the unit first.
    """

    function: Callable[..., Done]
    unit: Unit | None
    arguments: tuple[Any, ...]
    expected: Expected | Listed
    seconds: float = math.inf
    may_move: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of the arguments: of arrays, and of numbers of rows."""
        return sum(getattr(argument, "nbytes", 0) for argument in self.arguments)


@dataclass
class Traffic:
    """What a run has asked of its workers, and what came back.

    Attributes
    ----------
    n_workers : int
        Most workers at a time.
    tasks, tasks_again : int
        Tasks done, and those started once more because a worker was late or gone.
    bytes_sent, bytes_returned : int
        Rows and weights, once for each worker, and arguments of tasks; results.
    rows_swept, bytes_swept : int
        Rows of all passes, and bytes of their sums that came back.
    bytes_moved : int
        Bytes of rows and weights that were sent, counted once.
    bytes_read : dict
        Bytes of rows that each worker has read, by its address.
    bytes_fetched : int
        Bytes of rows that workers have sent to this process, which are among those returned.
    bytes_checked : int
        Bytes of rows that this process has read again to check workers.
    evaluations : int
        Kernel values that workers have computed.
    evaluations_checked : int
        Those that this process has computed again to check them.
    busy_seconds, waited_seconds : float
        Time of all tasks; and that this process has waited for workers while there were some.
    """

    n_workers: int = 0
    tasks: int = 0
    tasks_again: int = 0
    bytes_sent: int = 0
    bytes_returned: int = 0
    rows_swept: int = 0
    bytes_swept: int = 0
    bytes_moved: int = 0
    bytes_read: dict[str, int] = field(default_factory=dict)
    bytes_fetched: int = 0
    bytes_checked: int = 0
    evaluations: int = 0
    evaluations_checked: int = 0
    busy_seconds: float = 0.0
    waited_seconds: float = 0.0


@dataclass
class Worker:
    """A worker, as the coordinator sees it.

    Attributes
    ----------
    folder : str
        Its folder for temporary files. Another process at the same address has another one.
    opened : Opened or None
        What it said of itself; None until then.
    heard : float
        When it answered last.
    last_seen : float
        When it gave the scheduler a sign of life, by the scheduler's clock.
    alive : float
        When that was learned here.
    is_slow : bool
        Whether it was late: others do its tasks until it answers.
    has_same_bits : bool
        Whether its versions and its processor are those of this process.
    n_unchecked : int
        Its results that were used since some of them were last computed again here.
    is_reached : bool
        Whether this process can connect to it, so that bytes need not go through the scheduler.
    went_with_scheduler : bool
        Whether it has gone as another scheduler was started: it was not lost over a task.
    """

    address: str
    threads: int
    folder: str
    opened: Opened | None = None
    heard: float = field(default_factory=time.monotonic)
    last_seen: float = 0.0
    alive: float = field(default_factory=time.monotonic)
    is_slow: bool = False
    has_same_bits: bool = True
    n_unchecked: int = 0
    is_reached: bool = False
    went_with_scheduler: bool = False


class Workforce:
    """The workers of a cluster; close it after use.

    Opening it does not wait for workers: see `wait_for_workers`.

    Parameters
    ----------
    client : distributed.Client
    terms : WorkerTerms, optional
    on_change : callable
        Told the address of a worker, its threads, and whether it has joined or left.

    Attributes
    ----------
    workers : dict
        By their addresses.
    owners : dict
        Addresses of the workers that keep units.
    units : dict
        Units of the sources that workers read, as `units_of` has them.
    is_closed, is_doubtful : bool
        Whether the run has ended; whether results that may be wrong were used.
    changes : int
        Counts each change of which workers are ready.
    copies_wait : bool
        Whether Dask may wait to copy a value to a worker that does not answer. It copies one value
        after the other where there are several workers, so that each would wait as long.
    seconds_without : float
        Time that the run has waited while there was no worker.
    """

    def __init__(
        self,
        client: Any,
        terms: WorkerTerms | None = None,
        *,
        on_change: Callable[[str, int, bool], None] = lambda address, threads, joined: None,
    ) -> None:
        self._client, self._on_change = client, on_change
        self._terms = terms or WorkerTerms()
        self._loop, self._scheduler = client.loop.asyncio_loop, client.scheduler.address
        self._run, self.traffic = uuid.uuid4().hex, Traffic()
        self.workers: dict[str, Worker] = {}
        self.owners: dict[UnitKey, str] = {}
        self.units: dict[int, Any] = {}
        self.changes, self.copies_wait = 0, False
        self._ready: tuple[int, dict[str, Worker], int] = (-1, {}, 0)
        self._refused: set[tuple[str, str]] = set()
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._asked = 0.0
        self._asking: Future[Any] | None = None
        self._error: BigsvmError | None = None
        self._looked = 0.0
        self._opening: dict[str, Any] = {}
        self.is_closed = self.is_doubtful = self._told_of_way = False
        self._asked_since: float | None = None
        self._stepped = time.monotonic()
        self._seconds_alone = self.seconds_without = 0.0
        self._scheduler_id = ""
        self._told, self._wanted = TOLD_SECONDS, list[Any]()
        self._least_memory = 0

    # -- workers ---------------------------------------------------------------------------------

    def ready(self) -> Collection[Worker]:
        """Workers that can be given tasks: those that are not slow, or all if all are."""
        return self._ready_workers()[0].values()

    def ready_at(self, address: str) -> Worker | None:
        """Return the worker at an address if it can be given tasks."""
        return self._ready_workers()[0].get(address)

    @property
    def n_threads(self) -> int:
        """Threads of all workers that are ready."""
        return max(1, self._ready_workers()[1])

    def _ready_workers(self) -> tuple[dict[str, Worker], int]:
        """Return workers that are ready, by address, and their threads, counted once a change."""
        changes, ready, threads = self._ready
        if changes != self.changes:
            opened = [worker for worker in self.workers.values() if worker.opened is not None]
            some = [worker for worker in opened if not worker.is_slow] or opened
            ready, threads = {w.address: w for w in some}, sum(w.threads for w in some)
            self._ready = self.changes, ready, threads
        return ready, threads

    @property
    def memory(self) -> int:
        """Bytes that a run may take on the worker that has least; as before if there is none."""
        sizes = [worker.opened.memory for worker in self.ready() if worker.opened is not None]
        self._least_memory = min(sizes, default=self._least_memory)
        return self._least_memory

    def memory_of_task(self, *, share: float = 1.0, common: float = 0.0) -> float:
        """Bytes that each worker has for a task: a share of its memory, less `common` ones."""
        sizes = [
            (share * worker.opened.memory - common) / worker.threads
            for worker in self.ready()
            if worker.opened is not None
        ]
        return min(sizes, default=0.0)

    def wait_for_workers(self, *, at_most: float = math.inf) -> bool:
        """Wait until all workers that there are have opened, or some after OPEN_SECONDS.

        Returns whether there are some, which there may not be after `at_most` seconds.

        Raises
        ------
        ClusterError
            There has been no worker for as long as the terms allow, or one has another
            version of bigsvm.
        """
        began = time.monotonic()
        self.want(max(len(self._wanted), 1), "bigsvm-open")
        while not self.ready() or self._opening:
            self.step()
            waited = time.monotonic() - began
            if waited > (OPEN_SECONDS if self.ready() else at_most):
                break
        return bool(self.ready())

    @contextlib.contextmanager
    def waiting_at_most(self, seconds: float) -> Iterator[None]:
        """Wait no longer than this while there is no worker, in the block."""
        terms = self._terms
        least = seconds if terms.wait is None else min(seconds, terms.wait)
        self._terms = terms._replace(wait=least)
        try:
            yield
        finally:
            self._terms = terms

    def want(self, n_tasks: int, name: str) -> None:
        """Show Dask's scheduler tasks that wait here, so that a cluster that adapts to them grows.

        They are named as those that are done, whose average time the scheduler knows. No worker has
        the resource that they ask for: they count, and are never run.
        """
        n_tasks = min(n_tasks, MOST_WANTED)
        while len(self._wanted) > n_tasks:
            self._wanted.pop().release()
        while len(self._wanted) < n_tasks:
            self._wanted.append(self._submit(name, tasks.ping, resources={"bigsvm-waits": 1}))

    def step(self) -> None:
        """Handle one event, or wait for a moment; check for interruption now and then.

        Raises
        ------
        ClusterError
            The scheduler does not answer, or has had no worker for as long as the terms allow.
        """
        now = time.monotonic()
        if now - self._looked > POLL_SECONDS:
            self._looked = now
            check_interrupt()  # before results arrive, which are lost if it raises
        self.handle_events()
        self._check_connection(now)
        self._check_workers(now)
        if now - self._asked > MEMBERS_SECONDS and self._asking is None:
            self._asked = now
            self._asked_since = self._asked_since or now
            self._asking = self._start(self._client.scheduler.identity(n_workers=-1))
            self._asking.add_done_callback(lambda _: self._events.put(self._members))
        began, are_ready = time.monotonic(), bool(self.ready())
        event = None
        with contextlib.suppress(queue.Empty):
            event = self._events.get(timeout=POLL_SECONDS)
        if are_ready:
            self.traffic.waited_seconds += time.monotonic() - began
        if event is not None:
            event()
        self.handle_events()
        if self._error is not None:
            raise self._error

    def handle_events(self) -> None:
        """Handle what has happened so far, without waiting."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._events.get_nowait()()

    def _check_connection(self, now: float) -> None:
        # Only while it is asked: this process may have been busy with other things for long.
        waited = now - self._asked_since if self._asked_since is not None else 0.0
        if self._client.status in ("closed", "closing") or waited > SCHEDULER_SECONDS:
            raise self._disconnected()

    def _disconnected(self) -> ClusterError:
        return ClusterError(
            f"the scheduler {self._scheduler} does not answer, or the client has been closed; "
            "resume the run from its checkpoint, on any number of workers or on none"
        )

    def _check_workers(self, now: float) -> None:
        """Count the time spent waiting here while there is no worker, and call for one."""
        spent, self._stepped = min(now - self._stepped, 2 * POLL_SECONDS), now
        if self.ready():
            self._seconds_alone, self._told = 0.0, TOLD_SECONDS
            return
        self._seconds_alone += spent
        self.seconds_without += spent
        told = f"the scheduler {self._scheduler} has had no worker for {self._seconds_alone:.0f} s"
        start = f"start workers, as with: dask worker {self._scheduler}"
        if self._terms.wait is not None and self._seconds_alone > self._terms.wait:
            raise ClusterError(f"{told}; {start}")
        if self._seconds_alone > self._told:
            self._told += TOLD_SECONDS
            logger.warning("%s, and the run waits; %s", told, start)

    def _start(self, awaitable: Any) -> Future[Any]:
        """Have the client's loop run something."""

        async def run() -> Any:
            return await awaitable

        return asyncio.run_coroutine_threadsafe(run(), self._loop)

    def _members(self) -> None:
        """Note which workers there are."""
        asking, self._asking = self._asking, None
        if asking is None or asking.cancelled() or asking.exception() is not None:
            return  # the scheduler is asked again, until `_check_connection` gives up
        self._asked_since = None
        identity = asking.result()
        told, was, self._scheduler_id = identity["workers"], self._scheduler_id, identity["id"]
        for worker in list(self.workers.values()):
            worker.went_with_scheduler = self._scheduler_id != was
            if told.get(worker.address, {}).get("local_directory") != worker.folder:
                self._lose(self.workers.pop(worker.address))
        for address, information in told.items():
            threads, folder = int(information["nthreads"]), information["local_directory"]
            if (address, folder) in self._refused:
                continue
            if address not in self.workers:
                worker = self.workers[address] = Worker(address, threads, folder)
                self._open(worker)
            worker = self.workers[address]
            if information["last_seen"] != worker.last_seen:
                worker.last_seen, worker.alive = information["last_seen"], time.monotonic()
        if any(future.cancelled() for future in self._wanted):
            # The scheduler has been started again, or the connection to it made anew.
            n_tasks, name = len(self._wanted), self._wanted[0].key.rpartition("-")[0]
            self._wanted = []
            self.want(n_tasks, name)

    def _open(self, worker: Worker) -> None:
        future = self.submit(
            worker, "bigsvm-open", tasks.open_worker, self._run, self._terms.memory
        )
        self._opening[worker.address] = future

        def opened(reply: Future[Any]) -> None:
            if reply.cancelled() or self.workers.get(worker.address) is not worker:
                return
            self._opening.pop(worker.address, None)
            error = reply.exception()
            if isinstance(error, ResultLostError):
                del self.workers[worker.address]  # it is opened again if it is still there
                self.changes += 1
                return
            if error is not None:
                self._error = ClusterError(
                    f"worker {worker.address} cannot run bigsvm ({error}); install the same "
                    "version there, as with: pip install 'bigsvm[cluster]'"
                )
                return
            if fault := replies.fault_of_opened(reply.result(), tasks.versions()):
                self.refuse(worker, fault)
                return
            worker.opened, worker.heard = reply.result(), time.monotonic()
            self.changes += 1
            self._check_versions(worker)
            self.traffic.n_workers = max(self.traffic.n_workers, len(self.ready()))
            self._on_change(worker.address, worker.threads, True)

        self.when_done(future, opened, worker)

    def _check_versions(self, worker: Worker) -> None:
        theirs, ours = worker.opened.versions if worker.opened else {}, tasks.versions()

        def release(version: str) -> list[str]:
            return version.split(".")[:2]

        if release(theirs["bigsvm"]) != release(ours["bigsvm"]):
            self._error = ClusterError(
                f"worker {worker.address} has bigsvm {theirs['bigsvm']}, this process "
                f"{ours['bigsvm']}; install the same version on both"
            )
        others = [name for name in ours if name != "bigsvm" and theirs[name] != ours[name]]
        worker.has_same_bits = not others
        if others:
            told = ", ".join(f"{name} {theirs[name]} (here {ours[name]})" for name in others)
            warnings.warn(
                f"worker {worker.address} has {told}; results are right, but their last bits may "
                "depend on which worker computes them",
                UserWarning,
                stacklevel=2,
            )

    def refuse(self, worker: Worker, fault: str) -> None:
        """Stop using a worker whose reply was wrong.

        The run ends if there is no other worker, or if earlier results that were used may be wrong.
        """
        if self.workers.get(worker.address) is not worker:
            return
        del self.workers[worker.address]
        self._refused.add((worker.address, worker.folder))
        self._lose(worker)
        told = f"worker {worker.address} {fault}"
        remedy = "take it out of the cluster, and resume the run from its checkpoint"
        if worker.n_unchecked:
            self.is_doubtful = True
            self._error = ClusterError(
                f"{told}, and earlier results of it were used that may be wrong too; {remedy}"
            )
        elif not self.workers:
            self._error = ClusterError(f"{told}, and there is no other worker; {remedy}")
        else:
            warnings.warn(
                f"{told}; other workers do its work, and what it sent is not used",
                UserWarning,
                stacklevel=2,
            )

    def _lose(self, worker: Worker) -> None:
        self.changes += 1
        self._opening.pop(worker.address, None)
        for key in [key for key, owner in self.owners.items() if owner == worker.address]:
            del self.owners[key]
        if worker.opened is not None:
            self._on_change(worker.address, worker.threads, False)

    # -- talking to Dask -------------------------------------------------------------------------

    def submit(self, worker: Worker, name: str, function: Callable[..., Any], *given: Any) -> Any:
        """Have a worker, and no other, call a function; returns Dask's future."""
        return self._submit(
            name, function, *given, workers=[worker.address], allow_other_workers=False
        )

    def _submit(self, name: str, function: Callable[..., Any], *given: Any, **where: Any) -> Any:
        try:
            return self._client.submit(
                function, *given, key=f"{name}-{uuid.uuid4().hex}", pure=False, retries=0, **where
            )
        except Exception as error:
            if self._client.status in ("closed", "closing"):
                raise self._disconnected() from error
            raise

    def when_done(self, future: Any, use: Callable[[Future[Any]], None], worker: Worker) -> None:
        """Have `use` called in `step`, with what a worker's future has led to once it is done."""

        def fetch(future: Any) -> None:
            if self.is_closed:
                return  # the result is not needed, and the client's loop may have ended
            reply = self._start(self._fetch(future, worker))
            reply.add_done_callback(lambda reply: self._events.put(lambda: use(reply)))

        future.add_done_callback(fetch)

    async def _fetch(self, future: Any, worker: Worker) -> Any:
        """Get the result of a future alone: Dask gathers several, which wait for the slowest.

        It comes from the worker itself, or by way of the scheduler where that cannot be reached.

        Raises
        ------
        Exception
            Of the task; ResultLostError if its worker has gone, or SchedulerLostError.
        """
        if future.status == "error":
            raise await future.exception(asynchronous=True)
        if future.status == "finished":
            if worker.is_reached or worker.opened is None:
                found = await self._fetch_directly(future.key, worker)
                if future.key in found:
                    return found[future.key]
            try:
                answer = await self._client.scheduler.gather(keys=[future.key])
            except OSError as error:
                raise SchedulerLostError(future.key) from error
            if answer["status"] == "OK":
                return answer["data"][future.key]
        raise (SchedulerLostError if future.status == "cancelled" else ResultLostError)(future.key)

    async def _fetch_directly(self, key: str, worker: Worker) -> dict[Any, Any]:
        """Get a result from its worker; empty if it is not there. The first one shows if it can."""
        from distributed.utils_comm import gather_from_workers

        is_first = worker.opened is None
        found: dict[Any, Any] = {}
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            asked = gather_from_workers({key: [worker.address]}, rpc=self._client.rpc)
            found, *_ = await asyncio.wait_for(asked, REACH_SECONDS if is_first else None)
        if is_first:
            worker.is_reached = key in found
            if not found and not self._told_of_way:
                self._told_of_way = True
                logger.warning(
                    "worker %s cannot be reached from here, and its results come by way of the "
                    "scheduler %s; open its port to this machine, or run this beside the scheduler",
                    worker.address, self._scheduler,
                )  # fmt: skip
        return found

    def scatter(self, name: str, value: Any, workers: Sequence[Worker]) -> Future[Any]:
        """Start to copy a value to some workers; the result is Dask's future of it.

        It is sent to one of them, which others copy it from, or to the scheduler where one of them
        cannot be reached.

        Cancel it to give up. Where a worker has gone meanwhile, Dask tries for ever to copy the
        value to it, and no worker can be retired, until no client needs the value.
        """
        from distributed import Future as DaskFuture

        key = f"{name}-{uuid.uuid4().hex}"
        are_reached = all(worker.is_reached for worker in workers)

        async def copy() -> Any:
            addresses = [worker.address for worker in workers]
            # Dask's scheduler logs a traceback if it is given the address of one that has gone.
            there = await self._client.scheduler.ncores(workers=addresses)
            if len(there) < len(addresses):
                raise ResultLostError(key)
            try:
                copied = await self._client.scatter(
                    {key: value}, workers=addresses, broadcast=len(workers) > 1, hash=False,
                    direct=are_reached, asynchronous=True,
                )  # fmt: skip
            except asyncio.CancelledError:
                DaskFuture(key, self._client).release()
                raise
            return copied[key]

        reply = asyncio.run_coroutine_threadsafe(copy(), self._loop)
        reply.add_done_callback(lambda reply: self._events.put(lambda: None))
        return reply

    # -- jobs and passes -------------------------------------------------------------------------

    def open_job(self, job: Job, *, rows: str = "") -> SentJob:
        """Name a job and pickle it; `rows` is the name of its rows, where others have the same."""
        name = uuid.uuid4().hex
        return SentJob(self._run, name, pickle.dumps(job), rows or name)

    def note(self, done: Done, worker: Worker) -> None:
        """Count what a task of a worker has cost."""
        traffic = self.traffic
        traffic.tasks += 1
        traffic.bytes_returned += done.nbytes
        read = traffic.bytes_read.get(worker.address, 0)
        traffic.bytes_read[worker.address] = read + done.bytes_read
        traffic.evaluations += done.evaluations
        traffic.busy_seconds += done.seconds

    def suspect(self, worker: Worker) -> None:
        """Give a worker no more tasks until it answers."""
        worker.is_slow = True
        self.changes += 1

        def answered(reply: Future[Any]) -> None:
            if reply.cancelled() or self.workers.get(worker.address) is not worker:
                return
            if reply.exception() is not None:
                self.suspect(worker)  # the answer could not be fetched
                return
            self.hear(worker)

        self.when_done(self.submit(worker, "bigsvm-ping", tasks.ping), answered, worker)

    def hear(self, worker: Worker) -> None:
        """Note that a worker has answered."""
        worker.heard = time.monotonic()
        if worker.is_slow:
            worker.is_slow = False
            self.changes += 1

    def close(self) -> None:
        """Let workers forget what they keep of this run."""
        self.is_closed = True
        forgets = []
        for worker in self.workers.values():
            if worker.opened is None or self._client.status != "running":
                continue
            with contextlib.suppress(ClusterError):  # there is nothing left to forget
                future = self.submit(worker, "bigsvm-forget", tasks.forget_run, self._run)
                forgets.append((worker, future))
        if self._client.status == "running":
            self.want(0, "")
            for future in self._opening.values():
                future.release()
            self._release(forgets)
        if self._asking is not None:
            self._asking.cancel()

    def _release(self, forgets: list[tuple[Worker, Any]]) -> None:
        """Wait for a moment until workers have forgotten and the scheduler has dropped the results.

        Else a cluster that is closed at once would log that it loses these.
        """
        from distributed import fire_and_forget

        awaited = [future for worker, future in forgets if not worker.is_slow]
        keys, deadline = [future.key for future in awaited], time.monotonic() + FORGET_SECONDS
        while not all(future.done() for future in awaited) and time.monotonic() < deadline:
            time.sleep(FORGET_SECONDS / 100)
        for _, future in forgets:
            # Dask would keep the result of one that is done for as long as the cluster lives.
            if not future.done():
                fire_and_forget(future)
            future.release()
        while time.monotonic() < deadline:
            asked = self._start(self._client.scheduler.who_has(keys=keys))
            try:
                left = asked.result(timeout=FORGET_SECONDS)
            except Exception:  # the scheduler has gone, and so have they
                return
            if not any(left.values()):
                return
            time.sleep(FORGET_SECONDS / 100)
