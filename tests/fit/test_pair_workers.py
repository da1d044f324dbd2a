"""Pairs of classes as tasks of a cluster: bits of one machine, whatever workers there are."""

import itertools
import os
import signal
import time

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from support import HANGS
from support.clusters import go_on, kill, opened_cluster, stop
from support.one_vs_one import train
from support.problems import clouds
from support.resuming import StopAt, Until, assert_killed_to_the_same_bits
from support.same import assert_same_bits

from bigsvm.conversion.from_arrays import write_store
from bigsvm.data.sources import as_row_source
from bigsvm.executors import passes
from bigsvm.executors.messages import WorkerTerms
from bigsvm.executors.tasks import open_worker
from bigsvm.fit import pair_workers, trainer
from bigsvm.fit.pair_workers import PairWorkers
from bigsvm.fit.train import train_model
from bigsvm.one_vs_one import small as small_pairs
from bigsvm.parameters import TrainingParameters
from bigsvm.training.events import Hooks, PairsUnderWay
from bigsvm.training.result import StopReason

N_PAIRS = 10
"""Of 5 classes."""
STOPPED_SECONDS = 20.0
"""A worker goes on by then, whatever becomes of the run: no test may wait for ever."""


@pytest.fixture(scope="module")
def cluster():
    """Two workers of this module, whose tests disturb them."""
    with opened_cluster(2) as cluster:
        yield cluster


@pytest.fixture
def traffic(monkeypatch):
    """What each run has sent, in the order of the runs."""
    seen, open_workforce = [], trainer.workforce_of

    def watched(hooks):
        workforce = open_workforce(hooks)
        seen.append(workforce.traffic)
        return workforce

    monkeypatch.setattr(trainer, "workforce_of", watched)
    return seen


@pytest.fixture
def short_tasks(monkeypatch):
    """Each run is a task of its own, and each cell of small pairs."""
    monkeypatch.setattr(pair_workers, "TASK_SECONDS", 1e-9)


def data(n=700, k=5):
    X, y = clouds(n=n, k=k, spread=1.0)
    return X.astype(np.float32), y


def of_kind(kind, X, y, folder):
    """Rows of a kind, and their labels in the order of the rows."""
    if kind == "array":
        return as_row_source(X), y
    if kind == "csr":
        return as_row_source(sp.csr_array(np.where(X > 0, X, 0))), y
    rows = X if kind == "store" else sp.csr_array(np.where(X > 0, X, 0))
    store = write_store(folder / f"{kind}.zarr", rows, y)
    return store.rows, store.labels()


def fit(source, y, client=None, **chosen):
    parameters = {"gamma": 0.5, "tol": 1e-5, "threads": 2, "memory": 40_000_000, **chosen}
    return train_model(source, y, None, TrainingParameters(**parameters), Hooks(client=client))


@given(
    pairs=st.lists(st.tuples(st.floats(1e-3, 2.0), st.integers(2, pair_workers.MOST_ROWS))),
    data=st.data(),
)
def test_groups_have_all_pairs_in_order_and_are_worth_a_task(pairs, data):
    seconds = np.array([one for one, _ in pairs])
    n_rows = np.array([n for _, n in pairs], np.int64)
    places = np.array(data.draw(st.permutations(range(len(pairs)))), np.int64)
    groups = list(pair_workers._grouped(places, seconds, n_rows))
    assert [place for group in groups for place in group.tolist()] == places.tolist()
    for group, following in itertools.pairwise(groups):
        rows = n_rows[group].sum()
        assert rows <= pair_workers.MOST_ROWS
        is_long = seconds[group].sum() >= pair_workers.TASK_SECONDS * (1 - 1e-9)
        assert is_long or rows + n_rows[following[0]] > pair_workers.MOST_ROWS


PROBLEMS = {
    "runs": ({"C": 5.0}, 0),
    "together": ({"C": 5.0}, 1200),
    "nu": ({"formulation": "nu-svc", "nu": 0.2}, 1200),
    "ball": ({"formulation": "l2-svc", "C": 3.0}, 1200),
    "ddag": ({"C": 2.0, "multiclass": "ddag"}, 0),
}


@pytest.mark.usefixtures("short_tasks")
@pytest.mark.parametrize("n_workers", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_workers_give_the_bits_of_one_machine(tmp_path, monkeypatch, cluster, traffic, n_workers):
    distributed = pytest.importorskip("distributed")
    cluster.scale(n_workers)
    X, y = data()
    kinds = ("array", "csr", "store", "sparse store", "array")
    with distributed.Client(cluster) as client:
        client.wait_for_workers(n_workers)
        # A fit does not wait for workers that are slow to open.
        workers = client.scheduler_info(n_workers=-1)["workers"]
        client.gather(
            [client.submit(open_worker, "run", None, workers=[w], pure=False) for w in workers]
        )
        for kind, (chosen, most_rows) in zip(kinds, PROBLEMS.values(), strict=True):
            monkeypatch.setattr(small_pairs, "MOST_ROWS", most_rows)
            source, labels = of_kind(kind, X, y, tmp_path)
            here = fit(source, labels, **chosen)
            there = fit(source, labels, client, **chosen)
            for name in ("support", "coefficients", "intercept"):
                assert_same_bits(getattr(there, name), getattr(here, name))
            assert there.certificate["objective"] == here.certificate["objective"]
            assert there.certificate["pairs"] == here.certificate["pairs"]
            assert there.certificate["converged"]
            sends_rows = "store" not in kind
            assert traffic[-1].n_workers == n_workers
            assert traffic[-1].tasks >= (1 if most_rows else N_PAIRS)
            assert (sum(traffic[-1].bytes_read.values()) == 0) is sends_rows


@pytest.mark.usefixtures("pairs_by_runs", "short_tasks")
class TestRuns:
    def test_weights_and_batches_of_classes(self, client, monkeypatch):
        """Workers hold two or three of the classes at a time, and rows that weigh something."""
        X, y = data()
        weights = np.random.default_rng(0).integers(0, 3, size=len(y)).astype(float)
        here = train(X, y, weights)
        monkeypatch.setattr(PairWorkers, "_most_rows", lambda self: 0.6 * len(y))
        there = train(X, y, weights, Hooks(client=client))
        assert_same_bits(there.functions, here.functions)

    @pytest.mark.slow
    def test_pairs_too_large_for_workers_are_trained_here(self, client, monkeypatch, tmp_path):
        """With their passes on workers: pairs that are held here, and those that are in place."""
        sizes, rng = (300, 330, 700, 1000), np.random.default_rng(0)
        y = np.repeat(np.arange(4), sizes)
        X = rng.standard_normal((len(y), 400)) + 0.4 * rng.standard_normal((4, 400))[y]
        monkeypatch.setattr("bigsvm.data.schema.CHUNK_BYTES", 1 << 17)
        store = write_store(tmp_path / "wide.zarr", X.astype(np.float32), y)
        given = {"gamma": 0.002, "memory": 7_500_000, "threads": 1, "C": 1.0, "tol": 0.1}
        most_held, most_task = 1170, 1000
        assert given["memory"] / 4 // (400 * 4) == pytest.approx(most_held, abs=5)
        monkeypatch.setattr(pair_workers, "MOST_ROWS", most_task)
        monkeypatch.setattr("bigsvm.fit.pair_training.WORTH_SENDING", 0.0)
        names, submit = [], trainer.Workforce.submit

        def noted(self, worker, name, *given):
            names.append(name)
            return submit(self, worker, name, *given)

        monkeypatch.setattr(trainer.Workforce, "submit", noted)
        here = fit(store.rows, store.labels(), **given)
        there = fit(store.rows, store.labels(), client, **given)
        assert_same_bits(there.coefficients, here.coefficients)
        assert_same_bits(there.intercept, here.intercept)
        assert names.count("bigsvm-pairs") == 2  # of 630 and 1000 rows
        assert "bigsvm-pass" in names

    def test_pairs_are_trained_here_where_workers_have_little_memory(self, client, monkeypatch):
        X, y = data(n=300)
        here = train(X, y)
        names = []
        monkeypatch.setattr(pair_workers, "Pass", lambda *given, **options: names.append(given))
        there = train(X, y, hooks=Hooks(client=client, terms=WorkerTerms(memory=1_000_000)))
        assert_same_bits(there.functions, here.functions)
        assert not names

    def test_a_limit_of_steps_is_kept(self, client):
        X, y = data(n=300)
        here = train(X, y, max_iter=300)
        there = train(X, y, max_iter=300, hooks=Hooks(client=client))
        assert there.functions.certificate.stop_reason is StopReason.MAX_ITER
        assert_same_bits(there.functions, here.functions)

    def test_a_stopped_run_goes_on_with_the_other_pairs_only(self, client, traffic, tmp_path):
        X, y = data()
        here = train(X, y)
        n_done = 0
        for _ in range(N_PAIRS):  # each run finishes a pair, and as many as come with it
            until = Until(
                lambda event, n=n_done: isinstance(event, PairsUnderWay) and event.done > n
            )
            hooks = Hooks(client=client, interrupted=until, listener=until.listen)
            found = train(X, y, hooks=hooks, checkpoint=str(tmp_path))
            n_done = sum(one.tasks for one in traffic)
            if found.functions.certificate.converged:
                break
        assert n_done == N_PAIRS
        assert found.functions.certificate.converged
        assert_same_bits(found.functions, here.functions)
        assert 0 < traffic[0].tasks < N_PAIRS

    def test_workers_give_up_pairs_that_nobody_waits_for(self, client, monkeypatch):
        """Pairs without end end after the run that is interrupted."""
        asked, submit = itertools.count(), trainer.Workforce.submit
        begun = []

        def noted(self, worker, name, *given):
            begun.extend([None] * (name == "bigsvm-pairs"))
            return submit(self, worker, name, *given)

        monkeypatch.setattr(trainer.Workforce, "submit", noted)
        hooks = Hooks(
            client=client,
            terms=WorkerTerms(memory=300_000_000),
            interrupted=lambda: bool(begun) and next(asked) > 5,
        )
        X, y = clouds(n=20_000, k=3, d=20, spread=0.2)
        long = {"gamma": 0.05, "C": 1e9, "tol": 1e-12, "memory": 40_000_000}
        found = train(X.astype(np.float32), y, hooks=hooks, **long)
        assert found.functions.certificate.stop_reason is StopReason.INTERRUPTED
        waited = time.monotonic()
        while any(
            "bigsvm-pairs" in key
            for keys in client.run(lambda dask_worker: list(dask_worker.state.tasks)).values()
            for key in keys
        ):
            assert time.monotonic() < waited + HANGS
            time.sleep(0.1)

    def test_a_pair_begun_here_goes_on_here(self, client, traffic, tmp_path):
        """Its state is in the checkpoint; the others are tasks."""
        X, y = data()
        here = train(X, y)
        asked = StopAt()
        train(X, y, hooks=Hooks(interrupted=asked))
        stopped = Hooks(interrupted=StopAt(asked.count // 2))
        half = train(X, y, hooks=stopped, checkpoint=str(tmp_path), checkpoint_every=1e-9)
        assert half.functions.certificate.stop_reason is StopReason.INTERRUPTED
        found = train(X, y, hooks=Hooks(client=client), checkpoint=str(tmp_path))
        assert_same_bits(found.functions, here.functions)
        assert traffic[-1].tasks > 0

    def test_long_tasks_are_not_started_again(self, client, monkeypatch, traffic):
        """A worker is late by its silence; by the median of its tasks, all would be late here."""
        monkeypatch.setattr(passes, "LATE", 0.0)
        monkeypatch.setattr(passes, "LATE_SECONDS", 1e-3)
        X, y = data()
        train(X, y, hooks=Hooks(client=client))
        assert (traffic[-1].tasks, traffic[-1].tasks_again) == (N_PAIRS, 0)

    @pytest.mark.parametrize(
        "how", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.slow)]
    )
    def test_pairs_of_a_lost_worker_are_done_by_another(self, client, monkeypatch, how, traffic):
        """The worker is killed, or stopped for longer than the run takes."""
        monkeypatch.setattr(passes, "SILENT_SECONDS", 2.0)
        client.wait_for_workers(2)
        X, y = data(n=1500)
        here = train(X, y)
        address, process = next(iter(client.run(os.getpid).items()))
        lost, submit = [], trainer.Workforce.submit

        def losing(self, worker, name, *given):
            future = submit(self, worker, name, *given)
            if name == "bigsvm-pairs" and worker.address == address and not lost:
                kill(process) if how == signal.SIGKILL else stop(process, STOPPED_SECONDS)
                lost.append(address)
            return future

        monkeypatch.setattr(trainer.Workforce, "submit", losing)
        try:
            there = train(X, y, hooks=Hooks(client=client))
        finally:
            if how == signal.SIGSTOP:
                go_on(process)
        assert lost
        assert traffic[-1].tasks_again > 0
        assert_same_bits(there.functions, here.functions)


def train_in_process(folder, address):
    """Train on a cluster, or here for the run that is not killed."""
    small_pairs.MOST_ROWS, pair_workers.TASK_SECONDS = 0, 1e-9
    X, y = data(n=2400, k=8)
    given = {"checkpoint": str(folder), "checkpoint_every": 0.1, "C": 10.0}
    if folder.name == "whole":
        return train(X, y, **given).functions
    from distributed import Client

    with Client(address) as client:
        return train(X, y, hooks=Hooks(client=client), **given).functions


@pytest.mark.slow
def test_a_killed_coordinator_loses_no_finished_pair(tmp_path, client):
    """A real process, ``kill -9``; begun again it has the bits of one machine."""
    address = client.scheduler.address
    whole = assert_killed_to_the_same_bits(
        train_in_process, tmp_path, arguments=(address,), times=1
    )
    assert whole.certificate.converged
