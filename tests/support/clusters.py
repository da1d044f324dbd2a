"""Dask clusters on this machine, and what may happen to their workers in the middle of a run."""

import contextlib
import itertools
import logging
import os
import signal
import threading
import time
from contextlib import contextmanager

import dask
import pytest

from bigsvm.executors import cluster as cluster_executor
from bigsvm.executors import sizing
from bigsvm.executors.passes import Pass
from bigsvm.executors.workforce import Workforce
from bigsvm.training.loop import Decomposition
from bigsvm.training.saving import Saver
from bigsvm.training.sweep import Passes
from support import HANGS, processes

# A worker imports for seconds unless it is forked from a process that has done so.
dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})

MEMORY_LIMIT = 600 * 10**6
"""Bytes that a worker may take."""
PHASES = {
    "fill": (Passes, "fill"),
    "grow": (Passes, "grow"),
    "solve": (Decomposition, "_solve"),
    "sweep": (Passes, "sweep"),
    "certificate": (Decomposition, "_certify"),
}
"""What a run does, and the method that does it."""
MOMENTS = {
    "start": {"phase": "opening"},
    "pass": {"phase": "sweep", "share": 0.3},
    "checkpoint": {"phase": "checkpoint"},
    "certificate": {"phase": "certificate", "name": "bigsvm-certificate", "share": 0.3},
}
"""Four moments of a run, as `Disturbance` takes them. At "checkpoint" the run has to have one."""


@contextmanager
def opened_cluster(n_workers):
    """Start workers of one thread each, which listen on 127.0.0.1; yields the cluster."""
    distributed = pytest.importorskip("distributed")
    processes.start_server()
    with distributed.LocalCluster(
        n_workers=n_workers, threads_per_worker=1, processes=True,
        dashboard_address="127.0.0.1:0", memory_limit=MEMORY_LIMIT,
        silence_logs=logging.CRITICAL,
    ) as cluster:  # fmt: skip
        yield cluster


@pytest.fixture(scope="session")
def cluster():
    """Two worker processes of one thread each, for all tests that do not disturb them.

    Starting them takes longer than most of these tests. A module whose tests kill, stop or add
    workers has a fixture of this name of its own.
    """
    with opened_cluster(2) as cluster:
        yield cluster


@pytest.fixture
def client(cluster):
    """A client of the cluster; Dask computes with it."""
    distributed = pytest.importorskip("distributed")
    with distributed.Client(cluster) as client:
        yield client


@pytest.fixture(scope="module")
def client_without_workers():
    """A client of a scheduler that has no workers."""
    distributed = pytest.importorskip("distributed")
    with opened_cluster(0) as cluster, distributed.Client(cluster, set_as_default=False) as client:
        yield client


@pytest.fixture
def many_tasks(monkeypatch):
    """Passes of 20 tasks and more, and products on workers, though there are few rows."""
    make_tasks_many(monkeypatch)


def make_tasks_many(patch):
    """Have workers compute passes in many tasks, and every fourth larger product.

    Rows of stores are not kept in memory, though they are few.
    """
    asked = itertools.count()

    def is_worth_sending(self, n_rows, n_partners, *, exact=False):
        return n_rows * n_partners > 10**5 and (exact or next(asked) % 4 == 0)

    patch.setattr("bigsvm.fit.reduction.hold", lambda source, memory: source)
    patch.setattr(sizing, "UNITS_PER_THREAD", 24)
    patch.setattr(cluster_executor.ClusterExecutor, "is_worth_sending", is_worth_sending)


def process_ids(client):
    """Processes of the workers of a local cluster."""
    return [nanny.pid for nanny in client.cluster.workers.values() if nanny.pid]


def kill(process_id):
    """Kill a worker; another one starts in its place, at another address."""
    os.kill(process_id, signal.SIGKILL)


def stop(process_id, seconds):
    """Stop a worker for a while, as a machine that swaps does."""
    os.kill(process_id, signal.SIGSTOP)
    timer = threading.Timer(seconds, go_on, [process_id])
    timer.daemon = True
    timer.start()


def go_on(process_id):
    """Let a stopped worker go on, if it is still there."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process_id, signal.SIGCONT)


def wait_for_workers(client, n_workers):
    """Bring a local cluster to so many workers, all of which answer."""
    client.cluster.scale(n_workers)
    deadline = time.monotonic() + HANGS

    def answer():
        """Whether each of them answers; the scheduler lists a dead one for a while."""
        replies = client.run(os.getpid, on_error="return").values()
        return [type(reply) for reply in replies] == n_workers * [int]

    while not answer():
        assert time.monotonic() < deadline, f"{n_workers} workers are awaited"
        time.sleep(0.05)


class Disturbance:
    """Does something once, at a moment of a run when tasks are under way.

    Use it as a context manager around the run.

    Parameters
    ----------
    act : callable
        Without arguments.
    phase : str
        One of `PHASES`, or "opening", when workers have been asked what they are, or "checkpoint",
        when the run is about to be saved.
    name : str
        Of the tasks: bigsvm-pass, bigsvm-active, bigsvm-certificate or bigsvm-take.
    share : float or None
        Share of their results that have been used by then; None for the time before the first
        task, while workers are sent what all tasks share.

    Attributes
    ----------
    done : bool
        Whether the moment has come.
    """

    def __init__(self, act, *, phase, name="bigsvm-pass", share=0.0):
        self._act, self._phase, self._name, self._share = act, phase, name, share
        self._current, self._patches, self.done = [], pytest.MonkeyPatch(), False

    def __enter__(self):
        for phase, (owner, method) in PHASES.items():
            self._patches.setattr(owner, method, self._noted(phase, getattr(owner, method)))
        top_up = Pass.top_up

        def disturbed(under_way, following):
            top_up(under_way, following)
            if not self.done and self._has_come(under_way, following):
                self.done = True
                self._act()

        self._patches.setattr(Pass, "top_up", disturbed)
        step = Workforce.step

        def stepped(workforce):
            if self._phase == "opening" and workforce._opening and not self.done:
                self.done = True
                self._act()
            step(workforce)

        self._patches.setattr(Workforce, "step", stepped)
        save = Saver.save

        def saved(saver, *given):
            if self._phase == "checkpoint" and not self.done:
                self.done = True
                self._act()
            save(saver, *given)

        self._patches.setattr(Saver, "save", saved)
        return self

    def __exit__(self, *exception):
        self._patches.undo()

    def _noted(self, phase, method):
        def noted(*arguments, **options):
            self._current.append(phase)
            try:
                return method(*arguments, **options)
            finally:
                self._current.pop()

        return noted

    def _has_come(self, under_way, following):
        if self._current[-1:] != [self._phase] or under_way._name != self._name:
            return False
        if self._share is None:
            return bool(under_way._sharing)
        has_begun = bool(under_way._flights) or following > 0
        return has_begun and following >= self._share * len(under_way._calls)
