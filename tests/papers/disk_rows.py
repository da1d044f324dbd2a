"""What the tests of the disk tier share: the tier below, files and damage to them, children."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from bigsvm.papers.costs import TierDecision
from bigsvm.papers.disk import DiskRows

N = 30
HEADER = TABLE = 4096
KEPT = TierDecision(keep=True, reason="as the test wants it")
NOT_KEPT = KEPT._replace(keep=False)
FINGERPRINT = {"data": "d41d8cd9", "kernel": "rbf(gamma=0.5)"}


def true_rows(variables, n=N):
    """Any bits of finite numbers, as kernel rows are finite."""
    words = [np.random.default_rng(int(v)).integers(1 << 32, size=n) for v in variables]
    # Without the highest bit of the exponent no number is infinite or NaN.
    finite = np.array(words, np.uint32) & np.uint32(0xBFFFFFFF)
    return finite.reshape(-1, n).view(np.float32)


class Computing:
    """The tier below: notes each batch."""

    def __init__(self, n=N):
        self.n = n
        self.batches = []

    def fetch(self, variables, rows, slots):
        assert len(variables) == len(slots)
        rows[slots, : self.n] = true_rows(variables, self.n)
        self.batches.append(variables.tolist())

    @property
    def computed(self):
        return [v for batch in self.batches for v in batch]


def open_tier(folder, below=None, *, n=N, rows=None, **options):
    """A tier with room for `rows` rows, all of them where not said."""
    options = {"fingerprint": FINGERPRINT, "decision": KEPT} | options
    if rows is not None:
        options["capacity_bytes"] = capacity_for(rows, n)
    options.setdefault("capacity_bytes", 1 << 20)
    return DiskRows(Computing(n) if below is None else below, folder, n_variables=n, **options)


def capacity_for(rows, n=N):
    return HEADER + -(-rows // 256) * TABLE + rows * 4 * n


def row_offset(slot, n=N):
    return capacity_for(slot, n) + (TABLE if slot % 256 == 0 else 0)


def fetched(tier, *variables, n=N):
    """Fetch, and see to it that the values are right."""
    out = np.zeros((len(variables), n), np.float32)
    tier.fetch(np.array(variables, np.int64), out, np.arange(len(variables)))
    np.testing.assert_array_equal(out.view(np.uint32), true_rows(variables, n).view(np.uint32))
    return out


def offer(tier, *variables, n=N):
    rows = true_rows(variables, n)
    tier.offer(np.array(variables, np.int64), rows, np.arange(len(variables)))


def fill(tier, *variables, n=N):
    offer(tier, *variables, n=n)
    tier.drain()


def hits(tier, *variables, n=N):
    """Those of `variables` that are not computed; the values of all are right."""
    found = []
    for v in variables:
        before = tier.n_misses
        fetched(tier, v, n=n)
        if tier.n_misses == before:
            found.append(v)
    return found


def the_file(folder):
    (path,) = folder.iterdir()
    return path


def flip(path, offset, bit=0):
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ (1 << bit)]))


def failing(call, error, *, at):
    """Let the call numbered `at` and all later ones fail."""
    count = itertools.count(1)

    def wrapped(*args):
        if next(count) >= at:
            raise OSError(error, os.strerror(error))
        return call(*args)

    return wrapped


def assert_hands_on(tier, caplog):
    """Rows are right and none is kept."""
    with tier:
        assert not tier.decision.keep
        assert tier.decision.reason in caplog.text
        offer(tier, 1, 2)
        tier.drain()
        assert hits(tier, 1, 2) == []
        assert (tier.n_misses, tier.n_held, tier.nbytes) == (2, 0, 0)


CHILD = """
import os, resource, signal, sys
sys.path.insert(0, {tests!r})
import itertools
from papers.disk_rows import *
tier = open_tier({folder!r}, **{options!r})
"""


def run_child(folder, code, **options):
    code = (
        CHILD.format(tests=str(Path(__file__).parents[1]), folder=str(folder), options=options)
        + code
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
