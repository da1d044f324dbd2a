"""What workers say in their logs of the runs that they take part in."""

import logging
import pickle
import re

import numpy as np
import pytest
from support.cluster_fits import FITS, fit, stored
from support.stores import make_chunks_small

from bigsvm.errors import ClusterError
from bigsvm.executors import tasks
from bigsvm.executors.messages import Chosen, Job, NotKept, SentJob, Unit, WorkerTerms
from bigsvm.executors.worker_state import RUNS_KEPT, Process
from bigsvm.kernels import RBF
from bigsvm.training.events import Sweeping

LINE = "run [0-9a-f]{8} "


@pytest.fixture
def lines(caplog):
    """Give the lines that this process has logged as a worker."""
    caplog.set_level(logging.INFO, "distributed.worker.bigsvm")

    def found():
        return [record.getMessage() for record in caplog.records]

    return found


@pytest.fixture
def process(monkeypatch):
    """What a worker keeps: nothing yet, of no other test's runs."""
    process = Process()
    monkeypatch.setattr(tasks, "PROCESS", process)
    return process


def job(run, name="job"):
    return SentJob(run, name, pickle.dumps(Job(None, RBF(gamma=1.0), None, 0.0, False)))


def test_dask_and_progress_show_what_workers_do(client, many_tasks, tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        make_chunks_small(patch)
        labels, options = FITS["c-svc"]
        rows, y = stored(tmp_path, labels)
        events = []
        fit(rows, y, options, client, events.append, terms=WorkerTerms(50 * 10**6))
    last = [event for event in events if isinstance(event, Sweeping)][-1]
    assert min(last.tasks, last.bytes_sent, last.bytes_returned) > 0
    for told in client.get_worker_logs().values():
        text = [line for level, line in told if "bigsvm" in line and level == "INFO"][::-1]
        # The end of an earlier run may be told between the lines of this one.
        (name,) = {
            found[0] for line in text if str(rows) in line if (found := re.search(LINE, line))
        }
        begun, works, *_, ended = [line for line in text if name in line]
        assert re.search(LINE + "begins: it may take 50 MB of the limit of 600 MB", begun)
        assert re.search(LINE + f"works on 4000 rows of 10 columns in {tmp_path}", works)
        assert re.search(LINE + r"has ended: [1-9]\d* calls, .*B of rows read, .*B of rows", ended)


def test_a_task_that_fails_is_told(lines):
    def fails(sent):
        raise ClusterError("no such store")

    with pytest.raises(ClusterError):
        tasks.each(fails, job("0123456789"), None, [[]])
    assert lines() == ["run 01234567: fails failed, ClusterError: no such store"]


def test_a_unit_that_is_not_kept_is_no_failure(lines, process):
    process.open("0123456789", 10**6)
    given = [Unit(0, 1), Chosen(0, 1)]
    (answer,) = tasks.each(tasks.take_rows, job("0123456789"), None, [given])
    tasks.forget_run("0123456789")
    assert isinstance(answer, NotKept)
    assert lines() == [
        "run 01234567 works on rows that it is sent",
        "run 01234567 has ended: 1 calls, 0 bytes of rows read, 0 bytes of rows kept",
    ]


def test_what_is_dropped_without_an_end_is_told(lines, process):
    names = [f"{k}" * 10 for k in range(RUNS_KEPT + 1)]
    for name in names:
        process.job(job(name))
    (dropped,) = [line for line in lines() if "for long" in line]
    assert dropped.startswith(f"run {names[0][:8]} has had no task")
    process.forget(names[0])
    assert lines()[-1] == "run 00000000 has ended: it had no task here"


def test_rows_that_are_read_are_counted_after_their_job_has_gone(process):
    class Rows:
        is_sparse, bytes_read = False, 0

        def read(self, start, stop):
            self.bytes_read += 4 * (stop - start)
            return np.zeros((stop - start, 1), np.float32)

    for number in range(9):
        opened = process.job(job("0123456789", f"job {number}"))
        opened.rows.source = Rows()
        opened.source.read(0, 10)
    assert opened.run.bytes_read == 9 * 40
