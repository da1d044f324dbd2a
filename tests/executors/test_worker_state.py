"""What workers keep: units that are asked for in cycles, and what runs may take."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from support.stores import dense

from bigsvm.executors import worker_state
from bigsvm.executors.kept import SHARE_OF_FEW
from bigsvm.executors.messages import Ascending, Chosen, Job, SentJob, Unit
from bigsvm.executors.worker_state import Process
from bigsvm.kernels import RBF

N_UNITS, UNIT_BYTES, N_CYCLES = 20, 400, 10


class CountedRows:
    """Rows with their numbers, 4 bytes each; counts the bytes that are read."""

    bytes_read = 0

    def __init__(self, *, sparse=False):
        self.is_sparse = sparse

    def read(self, start, stop):
        self.bytes_read += 4 * (stop - start)
        rows = np.arange(start, stop, dtype=np.float32)[:, None]
        return sp.csr_array(rows) if self.is_sparse else rows


@pytest.fixture
def process(monkeypatch):
    monkeypatch.setattr(worker_state, "LEAST_KEPT_BYTES", 0)
    return Process()


def opened(process, run, name, memory):
    process.open(run, memory)
    job = process.job(SentJob(run, name, pickle.dumps(Job(None, RBF(gamma=1.0), None, 0.0, False))))
    job.rows.source = CountedRows()
    return job


def read_units(job, numbers, *, needed=0, n_tasks=1):
    for number in numbers:
        for _ in range(n_tasks):
            job.unit(Unit(100 * number, 100 * (number + 1)), needed)


def read_in_cycles(job, cycles=N_CYCLES, *, needed=0, n_tasks=1):
    for _ in range(cycles):
        read_units(job, range(N_UNITS), needed=needed, n_tasks=n_tasks)
    return job.source.bytes_read / (N_UNITS * UNIT_BYTES)


@pytest.mark.parametrize("n_tasks", [1, 3])
@pytest.mark.parametrize("share", [0.3, 0.86])
def test_as_few_units_are_read_again_as_can_be(process, share, n_tasks):
    kept = int(share * N_UNITS)
    job = opened(process, "run", "job", kept * UNIT_BYTES)
    read = read_in_cycles(job, n_tasks=n_tasks)
    again = (N_CYCLES - 1) * (N_UNITS - kept)
    # The one that was read last is there, though another one will be asked for sooner.
    assert 1 + again / N_UNITS <= read <= 1 + again / (N_UNITS - 1)


def test_units_that_are_asked_for_again_and_again_stay(process):
    """As those of the first rows, while only these take part."""
    job = opened(process, "run", "job", N_UNITS // 2 * UNIT_BYTES)
    read_in_cycles(job, 1)
    scope = range(N_UNITS // 2 - 1)
    for _ in range(4):
        read_units(job, scope)
    before = job.source.bytes_read
    read_units(job, scope)
    assert job.source.bytes_read == before


def listed(job, unit, places, needed=0):
    """Rows at places of a unit, as a worker has them."""
    chosen = Chosen(unit.start, unit.stop, listed=Ascending.of(unit.start + places))
    rows, at = job.rows_at(unit, chosen, needed)
    return rows[at]


@pytest.mark.parametrize("sparse", [False, True])
def test_rows_that_are_listed_stay_when_their_unit_goes(process, sparse):
    memory, units = 14 * UNIT_BYTES * (3 if sparse else 1), range(0, 100 * N_UNITS, 100)
    job = opened(process, "run", "job", memory)
    job.rows.source = source = CountedRows(sparse=sparse)
    places = np.array([3, 20, 99])
    expected = {start: source.read(start, start + 100)[places] for start in units}
    for start in units:
        listed(job, Unit(start, start + 100), places[[0, 2]])
        listed(job, Unit(start, start + 100), places[[1]])
    before = source.bytes_read
    for start in units:
        found = listed(job, Unit(start, start + 100), places)
        np.testing.assert_array_equal(dense(found), dense(expected[start]))
    assert source.bytes_read == before
    for start in units:
        listed(job, Unit(start, start + 100), np.array([3, 50]))  # another row of each
    assert source.bytes_read >= before + 6 * UNIT_BYTES
    assert job.run.units.nbytes + job.run.units._few.nbytes <= memory


def test_many_rows_that_are_listed_do_not_take_the_room_of_units(process):
    job = opened(process, "run", "job", 10 * UNIT_BYTES)
    for _ in range(3):
        for start in range(0, 100 * N_UNITS, 100):
            listed(job, Unit(start, start + 100), np.arange(0, 50, 2))  # a quarter
            listed(job, Unit(start, start + 100), np.arange(0, 100, 2))
    assert job.run.units._few.nbytes <= (10 / SHARE_OF_FEW + 1) * UNIT_BYTES


def test_rows_that_have_moved_take_room_from_some_units_only(process):
    job = opened(process, "run", "job", N_UNITS * UNIT_BYTES)
    assert read_in_cycles(job) == 1
    before = job.source.bytes_read
    read_in_cycles(job, needed=UNIT_BYTES * N_UNITS // 2)
    again = (job.source.bytes_read - before) / (N_UNITS * UNIT_BYTES)
    assert again <= N_CYCLES * (0.5 + 1.5 / N_UNITS)
    assert job.run.units.nbytes <= UNIT_BYTES * N_UNITS // 2


def test_units_of_an_earlier_job_go_first(process):
    room = (N_UNITS + 1) * UNIT_BYTES
    read_in_cycles(opened(process, "run", "first", room))
    assert read_in_cycles(opened(process, "run", "second", room)) == 1


def test_two_runs_keep_to_their_own_memory(process):
    memory = {"small": 5 * UNIT_BYTES, "large": (N_UNITS + 1) * UNIT_BYTES}
    jobs = {run: opened(process, run, "job", size) for run, size in memory.items()}
    for _ in range(3):
        for run, job in jobs.items():
            read_in_cycles(job, 1)
            assert job.run.units.nbytes <= memory[run]
    assert jobs["large"].source.bytes_read == N_UNITS * UNIT_BYTES
    process.forget("large")
    assert process.job(SentJob("small", "job", b"")) is jobs["small"]


def test_a_worker_keeps_little_of_runs_that_never_end(process):
    for number in range(3 * worker_state.RUNS_KEPT):
        read_in_cycles(opened(process, f"run {number}", "job", 1000), 1)
    assert len(process._runs) == worker_state.RUNS_KEPT
