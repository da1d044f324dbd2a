"""Schedulers and workers of Dask that are processes of their own, and links that break."""

import socket
import subprocess
import sys
import threading
from contextlib import contextmanager

from support import HANGS
from support.clusters import MEMORY_LIMIT


def free_port():
    """A port of the loopback interface that nothing listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Processes:
    """A scheduler of Dask and its workers, of one thread each; close it after use.

    Attributes
    ----------
    address : str
        That of the scheduler; the same for one that is started again.
    scheduler : subprocess.Popen
    workers : list of subprocess.Popen
        They end with their scheduler.
    """

    def __init__(self, folder):
        self._folder, self._port = folder, free_port()
        self.address = f"tcp://127.0.0.1:{self._port}"
        self.workers = []
        self.start_scheduler()

    def start_scheduler(self):
        """Start the scheduler, also once more after it has ended."""
        self.scheduler = self._start("scheduler", "--host", "127.0.0.1", "--port", self._port)

    def start_worker(self, *options, scheduler=None):
        """Start a worker; options say where it listens, and where it finds its scheduler."""
        given = (
            scheduler or self.address, "--nthreads", 1, "--no-nanny",
            "--memory-limit", MEMORY_LIMIT, "--local-directory", self._folder,
            *(options or ("--host", "127.0.0.1")),
        )  # fmt: skip
        self.workers.append(self._start("worker", *given))

    def _start(self, what, *options):
        return subprocess.Popen(
            [
                sys.executable, "-m", "distributed.cli.dask_" + what, "--no-dashboard",
                *map(str, options),
            ],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self._folder,
        )  # fmt: skip

    def close(self):
        """Kill all of them."""
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()


@contextmanager
def processes_of(folder, n_workers):
    """Start a scheduler and workers, which end with the block."""
    started = Processes(folder)
    try:
        for _ in range(n_workers):
            started.start_worker()
        yield started
    finally:
        started.close()


class Relay:
    """Passes on what is sent to it to a port of the loopback interface, until its link breaks.

    Attributes
    ----------
    address : str
        For Dask.
    """

    def __init__(self, port):
        self._port, self._whole, self._ends = port, threading.Event(), []
        self._whole.set()
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.port = self._listening.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{self.port}"
        self._begin(self._accept)

    def split(self, seconds):
        """Hold back all bytes for so long, in both directions."""
        self._whole.clear()
        timer = threading.Timer(seconds, self._whole.set)
        timer.daemon = True
        timer.start()

    def cut(self):
        """Close all connections; new ones may be made."""
        ends, self._ends = self._ends, []
        for end in ends:
            _close(end)

    def close(self):
        """Stop listening, and close all connections."""
        _close(self._listening)
        self._whole.set()
        self.cut()

    def _begin(self, function, *given):
        threading.Thread(target=function, args=given, daemon=True).start()

    def _accept(self):
        while True:
            try:
                end, _ = self._listening.accept()
            except OSError:
                return
            self._begin(self._connect, end)

    def _connect(self, end):
        self._whole.wait()
        try:
            other = socket.create_connection(("127.0.0.1", self._port), HANGS)
        except OSError:
            _close(end)
            return
        self._ends += [end, other]
        self._begin(self._pass_on, end, other)
        self._begin(self._pass_on, other, end)

    def _pass_on(self, end, other):
        try:
            while data := end.recv(1 << 18):
                self._whole.wait()
                other.sendall(data)
        except OSError:
            pass
        _close(end)
        _close(other)


def _close(end):
    """Close a socket at once, though a thread waits for it."""
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    end.close()
