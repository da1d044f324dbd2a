"""Faults that workers of a cluster have: functions for `distributed.Client.run`, and a plugin."""

import itertools
import os
import signal

import numpy as np
import scipy.sparse as sp

import bigsvm
from bigsvm.data import store_rows
from bigsvm.data.store_rows import StoreRows
from bigsvm.errors import DataCorruptionError, StoreError
from bigsvm.executors import replies, tasks
from bigsvm.executors.messages import NotKept
from bigsvm.one_vs_one.log import Solved
from bigsvm.selection.tasks import LineResult

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


class Overflowing(bigsvm.Kernel):
    """The linear kernel, but infinite for long rows."""

    name = "overflowing"

    def from_products(self, dots, norms_rows, norms_columns):
        """Return the kernel values, (m, p)."""
        dots[np.add.outer(norms_rows, norms_columns) > 1e4] = np.inf
        return dots


KINDS = ("scaled", "zero", "negated", "nan", "none", "short", "text")
"""Kinds of wrong replies."""


def _spoiled(values, kind):
    """Values of a result, all of them wrong."""
    if isinstance(values, list):
        spoiled = [_spoiled(one, kind) for one in values]
        return spoiled[:-1] if kind == "short" else spoiled
    if isinstance(values, Solved):
        return values._replace(coefficients=_spoiled(values.coefficients, kind))
    if isinstance(values, LineResult):
        fits = [
            fit._replace(
                result=fit.result._replace(fit_seconds=float(_spoiled(np.ones(1), kind).sum()))
            )
            for fit in values.fits
        ]
        return values._replace(fits=fits)
    if sp.issparse(values):
        if kind == "short":
            return values[:-1]
        spoiled = values.copy()
        spoiled.data = _spoiled(spoiled.data, kind)
        return spoiled
    if kind == "short":
        return values[:-1]
    factor = {"scaled": 1.05, "zero": 0.0, "negated": -1.0, "nan": np.nan}[kind]
    return (values * values.dtype.type(factor)).astype(values.dtype)


def _signs(kind, sign):
    def signs(done):
        if kind in ("none", "text"):
            return None if kind == "none" else "text"
        return sign(done._replace(values=_spoiled(done.values, kind)))

    return signs


def _signs_wrong_after(count):
    """Sign right results, and wrong ones after some."""
    numbers = itertools.count()
    wrong = _signs("scaled", replies.sign)

    def signs(done):
        return (wrong if next(numbers) >= count else replies_sign)(done)

    return signs


def _signs_then_changes(done):
    signed = replies_sign(done)
    if isinstance(signed.values, bytes):
        return signed._replace(values=signed.values[:-1] + b"?")
    changed = signed.values.copy()
    numbers = changed.data if sp.issparse(changed) else changed
    numbers.flat[0] += 1
    return signed._replace(values=changed)


def _keeps_nothing(count):
    """Answer as a worker that has forgotten what it was sent, though it is sent again."""
    numbers = itertools.count()

    def each(function, sent, shared, calls):
        if next(numbers) >= count:
            return tasks_each(function, sent, shared, calls)
        return [NotKept() for _ in calls]

    return each


def _of_rows(change):
    """Change the values that a task returns for rows, before they are signed."""

    def values_of_rows(sent, unit, function):
        done = tasks_values_of_rows(sent, unit, function)
        return done._replace(values=change(done.values))

    return values_of_rows


replies_sign, tasks_each = replies.sign, tasks.each
tasks_values_of_rows = tasks.values_of_rows
HASHES = {
    "hashes of 0": np.zeros_like,
    "hashes of other rows": lambda values: values[::-1].copy(),
    "one hash short": lambda values: values[:-1],
    "hashes in float64": lambda values: values.astype(np.float64),
    "NaN as hashes": lambda values: np.full(len(values), np.nan),
    "hashes in a row": lambda values: values.reshape(1, -1),
}
"""Wrong hashes of rows, and what makes them of right ones."""
_FAULTS = {
    **{kind: (tasks, "values_of_rows", _of_rows(change)) for kind, change in HASHES.items()},
    **{kind: (replies, "sign", _signs(kind, replies_sign)) for kind in KINDS},
    "garbled": (replies, "sign", _signs_then_changes),
    "later": (replies, "sign", _signs_wrong_after(40)),
    "keeps nothing": (tasks, "each", _keeps_nothing(300)),
    "opened": (tasks, "versions", lambda: None),
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
