"""Faults that workers of a cluster have: functions for `distributed.Client.run`, and a plugin."""

import os
import signal

from bigsvm.data import store_rows
from bigsvm.data.store_rows import StoreRows
from bigsvm.errors import DataCorruptionError, StoreError
from bigsvm.executors import tasks

_KEPT = {}


def fail(what):
    """Have this worker fail; `what` is one of the names in `_FAULTS`."""
    owner, name, replacement = _FAULTS[what]
    _KEPT[owner, name] = getattr(owner, name)
    setattr(owner, name, replacement)


def mend():
    """Undo `fail`."""
    for (owner, name), value in _KEPT.items():
        setattr(owner, name, value)
    _KEPT.clear()


def _raise(error):
    def fails(*arguments, **options):
        raise error

    return fails


def _other_versions(name, version):
    told = tasks.versions

    def versions():
        return {**told(), name: version}

    return versions


def _end(*arguments, **options):
    os.kill(os.getpid(), signal.SIGKILL)


_FAULTS = {
    "damage": (StoreRows, "read", _raise(DataCorruptionError("chunk 3 is damaged"))),
    "missing store": (store_rows, "open_arrays", _raise(StoreError("there is no x.zarr"))),
    "unreadable store": (StoreRows, "read", _raise(StoreError("x.zarr cannot be read"))),
    "defect": (tasks, "add_up", _raise(KeyError("defect"))),
    "no memory": (StoreRows, "read", _raise(MemoryError())),
    "end": (tasks, "add_up", _end),
    "bigsvm": (tasks, "versions", _other_versions("bigsvm", "99.1.0")),
    "numba": (tasks, "versions", _other_versions("numba", "0.1")),
    "processor": (tasks, "versions", _other_versions("processor", "i386")),
}


def plugin_of(what):
    """Plugin by which workers fail, those too that are started later."""
    from distributed import WorkerPlugin

    class Failing(WorkerPlugin):
        name = "failing"

        def setup(self, worker):
            fail(what)

        def teardown(self, worker):
            mend()

    return Failing()
