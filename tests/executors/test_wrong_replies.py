"""A worker whose replies are wrong never leads to a certificate that the rows refute."""

import re
import warnings

import naive
import numpy as np
import pytest
from support import faulty_workers
from support.cluster_fits import FITS, N_ROWS, assert_same_fit, fit, stored
from support.clusters import make_tasks_many, opened_cluster
from support.problems import blobs
from support.same import assert_same_bits
from support.stores import make_chunks_small

import bigsvm
from bigsvm.errors import ClusterError, DataError
from bigsvm.executors import audit, passes, workforce
from bigsvm.fit import pair_workers
from bigsvm.one_vs_one import small as small_pairs

distributed = pytest.importorskip("distributed")

pytestmark = pytest.mark.fault("surroundings")

IN_CI = [(kind, "c-svc") for kind in faulty_workers.KINDS] + [
    ("scaled", "eps-svr"),
    ("zero", "one-vs-rest"),
]
"""The others are run at night."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        make_chunks_small(patch)
        make_tasks_many(patch)
        yield tmp_path_factory.mktemp("stores")


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.slow)])
def workers(request):
    with opened_cluster(request.param) as cluster, distributed.Client(cluster) as client:
        client.wait_for_workers(request.param)
        yield client


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Wait for the faulty worker on a busy machine too, where others could do its work."""
    monkeypatch.setattr(workforce, "OPEN_SECONDS", 1e9)
    for name in ("LATE_SECONDS", "SILENT_SECONDS"):
        monkeypatch.setattr(passes, name, 1e9)


@pytest.fixture
def faulty(workers):
    """Have the first worker, or more, return what is wrong for a while."""

    def start(kind, n_workers=1):
        addresses = sorted(workers.scheduler_info(n_workers=-1)["workers"])[:n_workers]
        workers.run(faulty_workers.fail, kind, workers=addresses)
        return addresses

    yield start
    workers.run(faulty_workers.mend)


@pytest.fixture(scope="module")
def here(folder):
    """Models of this process alone, by formulation."""
    models = {}

    def model(name):
        if name not in models:
            labels, options = FITS[name]
            models[name] = fit(*stored(folder, labels), options)
        return models[name]

    return model


def fit_or_refused(rows, y, options, client, **others):
    """Return a model or the error, and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            return fit(rows, y, options, client, **others), None, caught
        except ClusterError as error:
            return None, error, caught


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        pytest.param(kind, name, marks=[] if (kind, name) in IN_CI else pytest.mark.slow)
        for name in FITS
        for kind in faulty_workers.KINDS
    ],
)
def test_one_faulty_worker_is_named_and_left_out(workers, faulty, folder, here, kind, name):
    (address,) = faulty(kind)
    labels, options = FITS[name]
    model, error, caught = fit_or_refused(*stored(folder, labels), options, workers)
    assert error is None
    assert [f"worker {address} returned" in str(one.message) for one in caught] == [True]
    assert_same_fit(model, here(name))


@pytest.mark.parametrize("kind", ["scaled", "none"])
def test_all_workers_faulty_is_an_error_that_names_them(workers, faulty, folder, kind):
    addresses = faulty(kind, 3)
    labels, options = FITS["c-svc"]
    _, error, _ = fit_or_refused(*stored(folder, labels), options, workers)
    assert error is not None
    assert "there is no other worker; take it out of the cluster" in str(error)
    assert any(f"worker {address} returned" in str(error) for address in addresses)


def test_a_worker_that_keeps_nothing_is_not_asked_for_ever(workers, faulty, folder, here):
    (address,) = faulty("keeps nothing")
    labels, options = FITS["c-svc"]
    model, error, caught = fit_or_refused(*stored(folder, labels), options, workers)
    assert error is None
    assert [f"worker {address} returned" in str(one.message) for one in caught] == [True]
    assert_same_fit(model, here("c-svc"))


@pytest.mark.parametrize("what", ["garbled", "opened"])
def test_replies_that_change_on_their_way_and_wrong_openings(workers, faulty, folder, here, what):
    (address,) = faulty(what)
    labels, options = FITS["c-svc"]
    model, error, caught = fit_or_refused(*stored(folder, labels), options, workers)
    assert error is None
    assert [f"worker {address} returned" in str(one.message) for one in caught] == [True]
    assert_same_fit(model, here("c-svc"))


def test_a_faulty_worker_with_another_processor_is_left_out(workers, faulty, folder, here):
    """Its bits may differ, but not by so much."""
    (address,) = faulty("processor")
    faulty("scaled")
    labels, options = FITS["c-svc"]
    model, error, caught = fit_or_refused(*stored(folder, labels), options, workers)
    assert error is None
    assert any(f"worker {address} returned another" in str(one.message) for one in caught)
    assert_same_fit(model, here("c-svc"))


def test_sums_that_may_be_wrong_end_the_run_and_are_not_certified_later(
    workers, faulty, folder, here, monkeypatch, tmp_path
):
    """A worker that is wrong after some replies, of which few are computed again."""
    monkeypatch.setattr(audit, "SHARE", 0.0)
    (address,) = faulty("later")
    labels, options = FITS["c-svc"]
    rows, y = stored(folder, labels)
    given = {"checkpoint": str(tmp_path), "checkpoint_every": 1e9}
    model, error, _ = fit_or_refused(rows, y, options, workers, **given)
    told = (
        f"worker {address} returned another .*(earlier results of it were used that may be wrong"
        "|, and results of it were used; take it out of the cluster)"
    )
    if error is None:  # the first wrong reply was checked, and none was used
        assert_same_fit(model, here("c-svc"))
    else:
        assert re.search(told, str(error))
    model = fit(rows, y, options, **given)
    assert model.certificate["converged"]
    assert true_gap(model, rows, y, C=1.0) == pytest.approx(model.certificate["gap"], abs=1e-5)


def true_gap(model, rows, y, *, C):
    """KKT gap of a classifier of two classes by NumPy alone."""
    X = rows.take(np.arange(rows.n_rows)).astype(np.float64)
    squares = (X**2).sum(axis=1)
    K = np.exp(-0.1 * (squares[:, None] + squares - 2 * X @ X.T))
    sign, alpha = np.where(y == y.max(), 1.0, -1.0), np.zeros(len(X))
    alpha[model.support] = model.coefficients
    lower, upper = np.minimum(0, C * sign), np.maximum(0, C * sign)
    return naive.kkt_gap(K, sign, lower, upper, alpha)


def test_the_gap_of_a_model_that_was_made_beside_a_faulty_worker(workers, faulty, folder):
    faulty("scaled")
    labels, options = FITS["c-svc"]
    rows, y = stored(folder, labels)
    model, _, _ = fit_or_refused(rows, y, options, workers)
    assert model.certificate["converged"]
    assert true_gap(model, rows, y, C=1.0) == pytest.approx(model.certificate["gap"], abs=1e-5)


@pytest.mark.parametrize("most_rows", [pytest.param(0, marks=pytest.mark.slow), 5000])
@pytest.mark.parametrize("kind", faulty_workers.KINDS)
def test_wrong_results_of_pairs(workers, faulty, folder, monkeypatch, kind, most_rows):
    """Pairs with runs of their own, and pairs that are solved together."""
    monkeypatch.setattr(small_pairs, "MOST_ROWS", most_rows)
    monkeypatch.setattr(pair_workers, "TASK_SECONDS", 1e-3)
    (address,) = faulty(kind)
    rows, y = stored(folder, "ten")
    options = {"multiclass": "ovo", "memory": 40_000_000}
    model, error, caught = fit_or_refused(rows, y, options, workers)
    assert error is None
    assert [f"worker {address} returned" in str(one.message) for one in caught] == [True]
    expected = fit(rows, y, options)
    for name in ("support", "coefficients", "intercept"):
        assert_same_bits(getattr(model, name), getattr(expected, name))


@pytest.mark.parametrize("kind", ["negated", "nan", "none", "short", "text"])
def test_wrong_results_of_fits_of_a_search(workers, faulty, kind):
    """Scores cannot be checked, but what else a result has."""
    (address,) = faulty(kind)
    X, y = blobs(300)
    search = bigsvm.SearchCV(bigsvm.SVC(memory="20MB"), {"gamma": [0.2, 1.0, 3.0]}, cv=2)
    with pytest.warns(UserWarning, match=f"worker {address} returned") as caught:
        found = search.fit(X, y, client=workers).cv_results_["mean_test_score"]
    assert caught
    expected = search.fit(X, y).cv_results_["mean_test_score"]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", faulty_workers.KINDS)
def test_wrong_moments_of_the_columns(workers, faulty, folder, monkeypatch, kind):
    """A gamma that is computed from the columns; see `fold`."""
    (address,) = faulty(kind)
    rows, y = stored(folder, "two")
    options = {"gamma": "scale", "memory": 2 * 10**6}
    model, error, caught = fit_or_refused(rows, y, {"gamma": "scale"}, workers)
    assert error is None
    assert any(f"worker {address} returned" in str(one.message) for one in caught)
    assert model.kernel == fit(rows, y, options).kernel


def test_values_that_overflow_are_said_to_be_those_of_the_rows(workers, tmp_path):
    """No worker is blamed."""
    X, y = blobs(N_ROWS)
    X[3000] = 100.0
    store = bigsvm.write_store(tmp_path / "large.zarr", X.astype(np.float32), y)
    classifier = bigsvm.SVC(kernel=faulty_workers.Overflowing(), memory="2MB")
    with pytest.raises(DataError, match="too large for float32; scale the features"):
        classifier.fit(store, client=workers)
