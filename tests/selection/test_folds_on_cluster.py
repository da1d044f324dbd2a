"""Folds and lines of points that workers fit have the results of this process."""

import os
import shutil
import signal
import threading
import time

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import FitFailedWarning
from support import faulty_workers, processes
from support.clusters import go_on, kill, opened_cluster, process_ids, stop, wait_for_workers
from support.stores import make_chunks_small

import bigsvm
from bigsvm.errors import DataCorruptionError, DataError, ParameterError
from bigsvm.executors.tasks import watch_for_end
from bigsvm.selection import tasks
from bigsvm.selection.record import Record

distributed = pytest.importorskip("distributed")

ROWS = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
LABELS = (ROWS[:, 0] * ROWS[:, 1] > 0.2 * ROWS[:, 2]).astype(int)
MEMORY = "20MB"
GRID = {"C": [0.3, 3.0], "gamma": [0.2, 1.0]}


@pytest.fixture(scope="module")
def own_cluster():
    """Two workers for the tests that kill and stop them; the others share those of the session."""
    with opened_cluster(2) as cluster:
        yield cluster


@pytest.fixture
def own_client(own_cluster):
    distributed = pytest.importorskip("distributed")
    with distributed.Client(own_cluster) as client:
        yield client


@pytest.fixture
def sent(monkeypatch):
    """Count the lines that are sent to workers."""
    names = []

    class Counted(tasks.Pass):
        def __init__(self, force, job, calls, *given, name):
            names.extend([name] * len(calls))
            super().__init__(force, job, calls, *given, name=name)

    monkeypatch.setattr(tasks, "Pass", Counted)
    return names


def assert_same(here, there):
    """Compare results of fits to the last bit."""
    assert here.keys() == there.keys()
    for name in here:
        if name == "certificate":
            for one, other in zip(here[name], there[name], strict=True):
                for figure in ("objective", "gap", "n_iter", "n_support", "n_kernel_evaluations"):
                    assert one[figure] == other[figure], figure
        elif "time" not in name and name != "params":
            np.testing.assert_array_equal(here[name], there[name], err_msg=name)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        make_chunks_small(patch)
        path = tmp_path_factory.mktemp("stores") / "x.zarr"
        bigsvm.write_store(path, ROWS, LABELS)
    return path


CONTAINERS = {
    "store": lambda store: (store,),
    "dense": lambda store: (ROWS, LABELS),
    "sparse": lambda store: (sp.csr_array(ROWS * (ROWS > 0)), LABELS),
    "words": lambda store: (ROWS, np.where(LABELS, "yes", "no")),
}


@pytest.mark.parametrize("container", CONTAINERS)
def test_a_fold_is_a_task(client, store, sent, container):
    X = CONTAINERS[container](store)
    estimator = bigsvm.SVC(gamma="scale", class_weight="balanced", memory=MEMORY, n_jobs=2)
    options = {"cv": 3, "return_train_score": True, "scoring": ["accuracy", "f1_macro"]}
    here = bigsvm.cross_validate(estimator, *X, **options)
    there = bigsvm.cross_validate(estimator, *X, **options, client=client)
    assert sent == ["bigsvm-fold"] * 3
    assert_same(here, there)


@pytest.mark.parametrize("halving", [None, 2])
def test_a_line_of_the_grid_is_a_task(client, store, sent, halving, monkeypatch):
    monkeypatch.setattr("bigsvm.selection.grid.FEWEST_ROWS", 100)
    search = bigsvm.SearchCV(bigsvm.SVC(memory=MEMORY), GRID, cv=2, halving=halving, refit=False)
    here = search.fit(store).cv_results_
    there = search.fit(store, client=client).cv_results_
    assert sent == ["bigsvm-search"] * (2 if halving is None else 4)
    assert_same(here, there)


def test_points_that_training_refuses_have_no_score(client, sent):
    search = bigsvm.SearchCV(
        bigsvm.NuSVC(memory=MEMORY), {"nu": [0.2, 0.3, 0.99]}, cv=2, refit=False
    )
    y = np.arange(300) % 5 == 0
    with pytest.warns(FitFailedWarning, match="'nu': 0.99. cannot be trained: nu is 0.99") as there:
        scores = search.fit(ROWS, y, client=client).cv_results_["mean_test_score"]
    assert np.isfinite(scores[:2]).all()
    assert np.isnan(scores[2])
    assert len(sent) == 2, "what no fold can be trained with is refused here"
    with pytest.warns(FitFailedWarning) as here:
        search.fit(ROWS, y)
    assert sorted(str(w.message) for w in here) == sorted(str(w.message) for w in there)
    with pytest.raises(ParameterError, match=r"^nu is 0\.99"):
        search.set_params(error_score="raise").fit(ROWS, y, client=client)


def test_what_a_fold_is_refused_for_is_said_as_here(client, sent):
    estimator, y = bigsvm.SVC(memory=MEMORY), np.arange(300) > 200
    search = bigsvm.SearchCV(
        estimator, {"kernel": ["rbf", "poly"]}, cv=np.arange(300) // 150, refit=False,
        error_score="raise",
    )  # fmt: skip
    for there in (client, None):
        with pytest.raises(DataError, match=r"^y has one class only .False"):
            search.fit(ROWS, y, client=there)
    assert len(sent) == 2


def test_scores_of_any_kind(client, sent):
    estimator = bigsvm.SVC(memory=MEMORY)

    def n_wrong(fitted, X, y):
        return int((fitted.predict(X) != y).sum())

    lock = threading.Lock()

    def locked(fitted, X, y):
        with lock:
            return n_wrong(fitted, X, y)

    expected = bigsvm.cross_validate(estimator, ROWS, LABELS, cv=2, scoring=n_wrong)
    for scoring, n_tasks in ((n_wrong, 2), (locked, 0)):
        sent.clear()
        made = bigsvm.cross_validate(
            estimator, ROWS, LABELS, cv=2, scoring=scoring, client=client
        )  # fmt: skip
        assert len(sent) == n_tasks, "a score with a lock cannot be sent"
        assert_same(expected, made)


def test_workers_compute_the_passes_of_folds_that_do_not_fit_them(client, sent):
    rows = np.random.default_rng(0).normal(size=(3000, 4)).astype(np.float32)
    labels = (rows[:, 0] * rows[:, 1] > 0.2 * rows[:, 2]).astype(int)
    # Its memory is too little for all rows to be active, so there are passes for the workers.
    estimator = bigsvm.SVC(C=0.3, tol=0.1, gamma=0.5, memory="2MB")
    options = {"cv": 2, "client": client, "worker_memory": "1MB"}
    here = bigsvm.cross_validate(estimator, rows, labels, cv=2)
    there = bigsvm.cross_validate(estimator, rows, labels, **options)
    assert not sent
    assert_same(here, there)
    assert all(certificate["tasks"] for certificate in there["certificate"])


def test_finished_lines_are_kept(client, store, sent, tmp_path):
    grid = {**GRID, "gamma": [0.2, 1.0, 2.0]}
    search = bigsvm.SearchCV(
        bigsvm.SVC(memory=MEMORY), grid, cv=2, refit=False, checkpoint=tmp_path
    )  # fmt: skip
    here = search.fit(store).cv_results_
    recorded = sorted((tmp_path / "fits").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    for path in recorded[4:]:
        path.unlink()
    assert_same(here, search.fit(store, client=client).cv_results_)
    assert sent == ["bigsvm-search"] * 2
    sent.clear()
    assert_same(here, search.fit(store, client=client).cv_results_)
    assert not sent
    # A line of which the first fit is missing goes on here.
    recorded[0].unlink()
    assert_same(here, search.fit(store, client=client).cv_results_)
    assert not sent


def until_there(path):
    """Wait for a file."""
    while not path.exists():
        time.sleep(0.01)


def test_ctrl_c_does_not_wait_for_tasks(client, tmp_path):
    """The tasks wait for what comes after the interruption."""
    begun, interrupted = tmp_path / "begun", tmp_path / "interrupted"

    def slow(fitted, X, y):
        begun.touch()
        until_there(interrupted)
        return 0.0

    def ask():
        until_there(begun)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=ask)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        bigsvm.cross_validate(
            bigsvm.SVC(memory=MEMORY), ROWS, LABELS, cv=2, scoring=slow, client=client
        )  # fmt: skip
    interrupted.touch()
    thread.join()


@pytest.mark.fault("surroundings")
def test_faults_of_all_workers_name_one(client, store):
    client.run(faulty_workers.fail, "damage")
    try:
        with pytest.raises(DataCorruptionError, match=r"worker tcp.*: chunk 3 is damaged"):
            bigsvm.cross_validate(bigsvm.SVC(memory=MEMORY), store, cv=2, client=client)
    finally:
        client.run(faulty_workers.mend)


def test_memory_of_no_workers_is_refused():
    with pytest.raises(ParameterError, match="there are no workers"):
        bigsvm.cross_validate(bigsvm.SVC(), ROWS, LABELS, worker_memory="1GB")


def search_until(address, store, folder, kill_after):
    """Search, and kill this process when some fits have been recorded."""
    add, n_added = Record.add, 0

    def counted(record, *given):
        nonlocal n_added
        if n_added == kill_after:
            os.kill(os.getpid(), signal.SIGKILL)
        n_added += 1
        add(record, *given)

    Record.add = counted
    with distributed.Client(address) as client:
        search_of(folder).fit(store, client=client)


def search_of(folder):
    return bigsvm.SearchCV(
        bigsvm.SVC(memory=MEMORY), GRID, cv=2, refit=False, checkpoint=folder
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.fault("surroundings")
@pytest.mark.parametrize("kill_after", [1, 3, 4, 6])
def test_a_killed_coordinator_is_resumed(cluster, client, store, tmp_path, kill_after):
    expected = search_of(None).fit(store).cv_results_
    process = processes.start(
        search_until, cluster.scheduler_address, store, tmp_path / "run", kill_after
    )
    process.join()
    assert process.exitcode == -signal.SIGKILL
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "run" / "fits").iterdir()}
    assert len(kept) == kill_after
    for number, there in enumerate((client, None)):
        copy = tmp_path / str(number)
        shutil.copytree(tmp_path / "run", copy)
        assert_same(expected, search_of(copy).fit(store, client=there).cv_results_)
        for path, written in kept.items():
            assert (copy / "fits" / path.name).stat().st_mtime_ns == written


@pytest.mark.slow
@pytest.mark.fault("surroundings")
@pytest.mark.parametrize("harm", [kill, lambda process_id: stop(process_id, 30)])
def test_tasks_of_a_lost_worker_are_done_by_another(own_client, harm, tmp_path):
    harmed = tmp_path / "harmed"

    def slow(fitted, X, y):
        (tmp_path / str(os.getpid())).touch()
        until_there(harmed)
        return float((fitted.predict(X) == y).mean())

    estimator = bigsvm.SVC(memory=MEMORY)
    expected = bigsvm.cross_validate(estimator, ROWS, LABELS, cv=4, scoring="accuracy")
    victim = process_ids(own_client)[0]

    def act():
        until_there(tmp_path / str(victim))
        harm(victim)
        harmed.touch()

    thread = threading.Thread(target=act)
    thread.start()
    made = bigsvm.cross_validate(estimator, ROWS, LABELS, cv=4, scoring=slow, client=own_client)
    thread.join()
    assert_same(expected, made)
    go_on(victim)
    wait_for_workers(own_client, 2)


CLASSES = np.digitize(ROWS[:, 0], [-0.7, 0.0, 0.7])
FORMULATIONS = {
    "svc": (bigsvm.SVC(gamma=0.5), LABELS),
    "squared hinge": (bigsvm.SVC(gamma=0.5, loss="squared_hinge"), LABELS),
    "calibrated": (bigsvm.SVC(gamma=0.5, calibration="sigmoid"), LABELS),
    "pairs": (bigsvm.SVC(gamma="scale"), CLASSES),
    "pairs, by runs": (bigsvm.SVC(gamma="scale", selection="mvp"), CLASSES),
    "rest": (bigsvm.SVC(gamma=0.5, multiclass="ovr"), CLASSES),
    "nu-svc": (bigsvm.NuSVC(nu=0.3, gamma=0.5), LABELS),
    "svr": (bigsvm.SVR(epsilon=0.1, gamma=0.5), ROWS[:, 0] * ROWS[:, 1]),
    "one-class": (bigsvm.OneClassSVM(nu=0.2, gamma=0.5), 2 * LABELS - 1),
    "ball": (bigsvm.L2SVC(C=1.0, gamma=0.5), LABELS),
    "crammer-singer": (bigsvm.CrammerSingerSVC(gamma=0.5), CLASSES),
    "laplacian": (bigsvm.SVC(kernel="laplacian", gamma=0.5), LABELS),
}


def size_of_model(fitted, X, y):
    """Score that only equal bits share."""
    return float(abs(fitted.model_.coefficients).sum())


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMULATIONS)
def test_every_formulation_has_the_same_bits(client, sent, name):
    """A number for gamma lets folds be trained together."""
    estimator, y = FORMULATIONS[name]
    search = bigsvm.SearchCV(
        clone(estimator).set_params(memory=MEMORY, n_jobs=2),
        {"gamma": [0.5, "scale"]}, cv=3, refit=False, scoring=size_of_model,
    )  # fmt: skip
    weights = None if name == "crammer-singer" else 1.0 + np.arange(300) % 3
    here = search.fit(ROWS, y, weights).cv_results_
    there = search.fit(ROWS, y, weights, client=client).cv_results_
    assert len(sent) == 2
    assert_same(here, there)


def give_up():
    tasks.watch_for_end = lambda: lambda: True


def go_on_to_the_end():
    tasks.watch_for_end = watch_for_end


def test_lines_that_a_worker_gives_up_are_fitted_here(client, store, sent):
    search = bigsvm.SearchCV(bigsvm.SVC(memory=MEMORY), GRID, cv=2, refit=False)
    client.run(give_up)
    try:
        there = search.fit(store, client=client).cv_results_
    finally:
        client.run(go_on_to_the_end)
    assert len(sent) == 2
    assert_same(search.fit(store).cv_results_, there)


def test_a_line_alone_is_fitted_here(client, sent):
    estimator = bigsvm.SVC(gamma=0.5, memory=MEMORY)
    search = bigsvm.SearchCV(estimator, {"C": [0.5, 1.0]}, cv=2, refit=False)
    here = search.fit(ROWS, LABELS).cv_results_
    assert_same(here, search.fit(ROWS, LABELS, client=client).cv_results_)
    assert not sent
