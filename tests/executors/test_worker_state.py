"""What workers keep: units that are asked for in cycles, and what runs may take."""

import pickle

import numpy as np
import pytest

from bigsvm.executors import worker_state
from bigsvm.executors.messages import Job, SentJob, Unit
from bigsvm.executors.worker_state import Process
from bigsvm.kernels import RBF

N_UNITS, UNIT_BYTES, N_CYCLES = 20, 400, 10


class CountedRows:
    """Rows of which each unit takes 400 bytes; counts the bytes that are read."""

    is_sparse = False
    bytes_read = 0

    def read(self, start, stop):
        self.bytes_read += 4 * (stop - start)
        return np.zeros((stop - start, 1), np.float32)


@pytest.fixture
def process(monkeypatch):
    monkeypatch.setattr(worker_state, "LEAST_KEPT_BYTES", 0)
    return Process()


def opened(process, run, name, memory):
    process.open(run, memory)
    job = process.job(SentJob(run, name, pickle.dumps(Job(None, RBF(gamma=1.0), None, 0.0, False))))
    job.rows.source = CountedRows()
    return job


def read_in_cycles(job, cycles=N_CYCLES, *, needed=0):
    for _ in range(cycles):
        for number in range(N_UNITS):
            job.unit(Unit(100 * number, 100 * (number + 1)), needed)
    return job.source.bytes_read / (N_UNITS * UNIT_BYTES)


@pytest.mark.parametrize("share", [0.3, 0.86])
def test_units_that_do_not_fit_are_the_only_ones_read_again(process, share):
    job = opened(process, "run", "job", int(share * N_UNITS * UNIT_BYTES))
    kept = int(share * N_UNITS) - 1  # one is there to be read
    read = read_in_cycles(job)
    assert read == pytest.approx(1 + (N_CYCLES - 1) * (1 - kept / N_UNITS), abs=1e-9)


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
