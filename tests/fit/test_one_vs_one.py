"""Pairs of classes: each as the binary fit of its rows, all as scikit-learn's SVC."""

import gc
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.svm import SVC as PeerSVC
from sklearn.svm import NuSVC as PeerNuSVC
from support.one_vs_one import peers_coefficients, train, values, voted
from support.problems import clouds

from bigsvm import write_store
from bigsvm.data import schema
from bigsvm.data.sources import as_row_source
from bigsvm.errors import DataError, MemoryBudgetError, ParameterError
from bigsvm.fit.pair_problems import HELD_SHARE
from bigsvm.fit.train import train_model
from bigsvm.one_vs_one.class_rows import HeldClasses
from bigsvm.parameters import TrainingParameters
from bigsvm.training import events
from bigsvm.training.events import Hooks

KINDS = {
    "c-svc": {"C": 3.0},
    "squared": {"C": 3.0, "loss": "squared_hinge"},
    "nu-svc": {"formulation": "nu-svc", "nu": 0.2},
    "l2-svc": {"formulation": "l2-svc", "C": 3.0},
}


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_coefficients_are_scikit_learns(kernel, form):
    X, y = clouds()
    found = train(form(X), y, C=5.0, kernel=kernel)
    peer = PeerSVC(C=5.0, kernel=kernel, tol=1e-8, decision_function_shape="ovo").fit(X, y)
    np.testing.assert_array_equal(found.functions.support, np.sort(peer.support_))
    coefficients = np.zeros((len(X), 6))
    coefficients[found.functions.support] = found.functions.coefficients.toarray()
    expected = peers_coefficients(peer, len(X))
    np.testing.assert_allclose(coefficients, expected, atol=1e-3)
    np.testing.assert_allclose(found.functions.intercepts, -peer.intercept_, atol=1e-4)
    np.testing.assert_allclose(values(found, X, X), -peer.decision_function(X), atol=1e-4)
    np.testing.assert_array_equal(voted(found, X, X), peer.predict(X))
    assert found.functions.certificate.converged
    assert found.functions.certificate.gap <= 1e-6
    assert found.functions.coefficients.has_sorted_indices


def test_nu_svc_is_scikit_learns():
    X, y = clouds(spread=1.0)
    found = train(X, y, formulation="nu-svc", nu=0.3)
    peer = PeerNuSVC(nu=0.3, tol=1e-8, decision_function_shape="ovo").fit(X, y)
    rho = found.functions.rho
    # Tolerances are of values that have not been divided by it yet.
    expected = -peer.decision_function(X) * rho
    np.testing.assert_allclose(values(found, X, X) * rho, expected, atol=1e-3)
    assert (rho > 0).all()


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    k=st.integers(2, 5),
    weighted=st.booleans(),
    by_class=st.booleans(),
)
def test_each_pair_is_the_binary_fit_of_its_rows(kind, seed, k, weighted, by_class):
    X, y = clouds(n=30 * k, k=k, seed=seed)
    rng = np.random.default_rng(seed)
    weights = rng.integers(0, 4, len(y)) / 2 if weighted else None
    class_weight = dict(enumerate(rng.uniform(0.5, 2, k).tolist())) if by_class else None
    found = train(X, y, weights, gamma=0.4, class_weight=class_weight, **KINDS[kind])
    h = values(found, X, X)
    pairs = [(a, b) for a in range(k) for b in range(a + 1, k)]
    for column, (a, b) in zip(h.T, pairs, strict=True):
        rows = np.isin(y, (a, b))
        chosen = {label: class_weight[label] for label in (a, b)} if by_class else None
        alone = train_model(
            as_row_source(X[rows]), y[rows], None if weights is None else weights[rows],
            TrainingParameters(
                gamma=0.4, tol=1e-6, threads=1, class_weight=chosen, **KINDS[kind]
            ),
        )  # fmt: skip
        scale = max(1.0, np.abs(alone.coefficients).max())
        expected = alone.decision_function(as_row_source(X))
        np.testing.assert_allclose(column, expected, atol=2e-4 * scale)


@pytest.mark.usefixtures("pairs_by_runs")
def test_many_rows_of_a_pair_are_merged_and_dealt_out_again(monkeypatch):
    X, y = clouds(n=400)
    X, y = np.repeat(X, 2, axis=0), np.repeat(y, 2)
    plain = train(X, y, C=5.0)
    monkeypatch.setattr("bigsvm.fit.variables.DIRECT_ROWS", 50)
    merged = train(X, y, C=5.0)
    small = merged.functions.certificate.n_kernel_evaluations
    assert small < 0.6 * plain.functions.certificate.n_kernel_evaluations
    np.testing.assert_allclose(values(merged, X, X), values(plain, X, X), atol=1e-4)
    bounded = np.abs(merged.functions.coefficients.data) >= 5.0
    assert merged.functions.certificate.n_bounded == bounded.sum()


LABELS = {
    "strings": np.array(["pear", "apple", "fig", "Äpfel"]),
    "large": np.array([2**53 + 1, 2**53, 2**53 + 2, -(2**60)]),
    "unsigned": np.array([2**64 - 1, 2**64 - 2, 0, 1], np.uint64),
    "floats": np.array([2.0, -1.0, 0.0, 1e300]),
    "objects": np.array(["b", "a", "d", "c"], object),
    "int8": np.array([3, -3, 0, 1], np.int8),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_any_kind(kind):
    X, y = clouds(n=120)
    found = train(X, LABELS[kind][y], C=5.0)
    assert found.model.classes == np.unique(LABELS[kind]).tolist()
    peer = PeerSVC(C=5.0, tol=1e-8).fit(X, np.argsort(np.argsort(LABELS[kind]))[y])
    np.testing.assert_array_equal(voted(found, X, X), found.classes[peer.predict(X)])


def test_labels_true_and_false_are_one_pair():
    X, y = clouds(n=60, k=2)
    found = train(X, y == 1)
    assert found.classes.tolist() == [False, True]
    assert found.functions.coefficients.shape[1] == 1


@pytest.mark.parametrize(("labels", "words"), [
    (np.zeros(6), "one class only"),
    (np.array([0, 1, 2, np.nan, 1, 2]), "y of row 3 is nan"),
    (np.array(["a", 1, "b", 2, 3, 4], object), "have no order"),
    (np.arange(5), "y has shape"),
])  # fmt: skip
def test_invalid_labels_are_refused(labels, words):
    with pytest.raises(DataError, match=words):
        train(np.eye(6), labels)


def test_classes_are_balanced_as_scikit_learn_does():
    X, y = clouds()
    found = train(X, y, class_weight="balanced")
    peer = PeerSVC(class_weight="balanced", tol=1e-8, decision_function_shape="ovo").fit(X, y)
    np.testing.assert_allclose(values(found, X, X), -peer.decision_function(X), atol=1e-4)


def test_weights_of_classes_and_rows_are_checked_by_name():
    X, y = clouds(n=60)
    names = np.array(["one", "two", "three", "four"])[y]
    with pytest.raises(ParameterError, match="class_weight names 'five', which is no class"):
        train(X, names, class_weight={"five": 2.0})
    with pytest.raises(ParameterError, match=r"class 'two' has weight -1\.0"):
        train(X, names, class_weight={"two": -1.0})
    with pytest.raises(DataError, match="no row of class 'three' has a positive weight"):
        train(X, names, (names != "three").astype(float))


def test_a_nu_that_two_classes_make_infeasible_is_refused_with_their_names():
    X, y = clouds(n=100)
    y[:] = 0
    y[:40], y[40:45] = 1, 2
    names = np.array(["a", "b", "c"])[y]
    assert train(X, names, formulation="nu-svc", nu=10 / 60).functions.certificate.converged
    with pytest.raises(ParameterError, match=r"'a' and 'c': nu is 0\.2, .* at most 0\.166"):
        train(X, names, formulation="nu-svc", nu=0.2)
    weights = np.where(names == "c", 20.0, 1.0)
    with pytest.raises(ParameterError, match=r"'b' and 'c': nu is 0\.6"):
        train(X, names, weights, formulation="nu-svc", nu=0.6)


def test_a_kernel_matrix_may_be_given():
    X, y = clouds(n=90)
    matrix = X @ X.T
    found = train(matrix, y, kernel="precomputed").functions
    expected = train(X, y, kernel="linear").functions
    np.testing.assert_array_equal(found.support, expected.support)
    coefficients, others = found.coefficients.toarray(), expected.coefficients.toarray()
    np.testing.assert_allclose(coefficients, others, atol=1e-3)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    X, y = clouds(n=3000, k=12, d=400)
    path = tmp_path_factory.mktemp("store") / "clouds.zarr"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "CHUNK_BYTES", 1 << 15)
        return write_store(path, X.astype(np.float32), y)


class TestOutOfCore:
    MEMORY = 8_000_000

    def test_pairs_of_a_store_are_those_of_its_rows(self, store):
        X, y = store.rows.read(0, store.rows.n_rows), store.labels()
        size = X.nbytes
        assert size > 2 * HELD_SHARE * self.MEMORY
        before = store.rows.bytes_read
        options = {"C": 2.0, "gamma": 0.001, "tol": 1e-4}
        found = train(store.rows, y, memory=self.MEMORY, **options)
        passes = (store.rows.bytes_read - before) / size
        assert found.functions.certificate.converged
        assert passes <= 2 * (size / (HELD_SHARE * self.MEMORY)) ** 2 + 2
        expected = train(X, y, **options)
        some = X[::10].astype(np.float64)
        X = X.astype(np.float64)
        np.testing.assert_allclose(values(found, X, some), values(expected, X, some), atol=1e-3)

    def test_pairs_that_do_not_fit_are_read_in_blocks(self, store):
        memory = 7_000_000
        X, y = store.rows.read(0, store.rows.n_rows), store.labels()
        y = np.where(y < 6, 0, np.where(y < 7, 1, 2))
        sizes = np.bincount(y)
        room = HELD_SHARE * memory / store.rows.bytes_per_row
        assert sizes[0] + sizes[1] > room
        assert sizes[0] + sizes[2] > room
        options = {"C": 2.0, "gamma": 0.001, "tol": 1e-2}
        found = train(store.rows, y, memory=memory, **options)
        assert found.functions.certificate.converged
        expected = train(X, y, **options)
        some = X[::10].astype(np.float64)
        X = X.astype(np.float64)
        np.testing.assert_allclose(values(found, X, some), values(expected, X, some), atol=2e-2)

    def test_too_little_memory_is_refused_before_anything_is_read(self, store):
        labels, before = store.labels(), store.rows.bytes_read
        with pytest.raises(MemoryBudgetError, match="give at least about"):
            train(store.rows, labels, memory=500_000)
        assert store.rows.bytes_read == before

    @pytest.mark.usefixtures("pairs_by_runs")
    @pytest.mark.parametrize("kind", KINDS)
    def test_memory_of_a_pair_is_freed_with_it(self, kind, monkeypatch):
        """Not with the next garbage: rows of many batches would be in memory by then."""
        left = []
        pair_of = HeldClasses.pair

        def pair(self, first, second):
            rows = pair_of(self, first, second)
            assert all(reference() is None for reference in left[:-1])
            left.append(weakref.ref(rows.source))
            return rows

        monkeypatch.setattr(HeldClasses, "pair", pair)
        gc.disable()
        try:
            train(*clouds(), **KINDS[kind])
        finally:
            gc.enable()
        assert len(left) == 6
        assert all(reference() is None for reference in left)

    def test_coefficients_have_a_share_of_the_memory(self, monkeypatch):
        monkeypatch.setattr("bigsvm.fit.pair_problems.COEFFICIENTS_SHARE", 1e-5)
        with pytest.raises(MemoryBudgetError, match=r"coefficients of \d of 15 pairs take"):
            train(*clouds(k=6), memory="50MB")


PROGRAM = """
import resource, sys
sys.path.insert(0, sys.argv[1])
from support.one_vs_one import train
from support.problems import clouds
from bigsvm import open_store
from bigsvm.allocator import share_freed_memory
share_freed_memory()  # as a command does
train(*clouds(n=60))  # what compiling and importing takes
store = open_store(sys.argv[2])
labels = store.labels()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = train(store.rows, labels, memory=int(sys.argv[3]), gamma=0.002, tol=1e-3).functions
assert found.certificate.converged
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="sizes are in kilobytes there")
def test_the_budget_is_kept(tmp_path):
    memory = 30_000_000
    X, y = clouds(n=40_000, k=12, d=200, spread=0.4)
    X = X.astype(np.float32)
    assert X.nbytes > memory
    write_store(tmp_path / "s.zarr", X, y)
    folder = Path(__file__).parents[1]
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), str(tmp_path / "s.zarr"), str(memory)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert int(ended.stdout) < memory


@pytest.mark.usefixtures("pairs_by_runs")
def test_events_tell_which_pair_of_how_many():
    seen = []
    X, y = clouds(k=5)
    certificate = train(X, y, hooks=Hooks(listener=seen.append)).model.certificate
    assert isinstance(seen[0], events.Planned)
    told = [event for event in seen if isinstance(event, events.PairsUnderWay)]
    assert [event.done for event in told] == list(range(11))
    assert {(event.n_pairs, event.work) for event in told} == {(10, told[-1].work_done)}
    assert told[0].work_done == 0
    assert told[-1].gap == certificate["gap"]
    assert told[-1].objective == pytest.approx(certificate["objective"], rel=1e-12)
    assert told[-1].n_bounded == certificate["n_bounded"]
    assert 0 < told[0].seconds < told[-1].seconds <= certificate["seconds"]
    assert len(told) == len(seen) - 1


@pytest.mark.usefixtures("pairs_by_runs")
def test_events_within_a_pair_are_reported_once_it_takes_long(monkeypatch):
    monkeypatch.setattr("bigsvm.fit.pair_training.TOLD_AFTER", 0.0)
    seen = []
    train(*clouds(k=3), hooks=Hooks(listener=seen.append))
    assert {type(event) for event in seen[1:]} == {events.PairsUnderWay, events.OfPair}
    told = [event for event in seen[1:] if isinstance(event, events.OfPair)]
    assert {type(event.event) for event in told} == {events.Solving, events.Swept}
    assert {event.pair for event in told} == {(0, 1), (0, 2), (1, 2)}
