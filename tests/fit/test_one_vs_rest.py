"""One against the rest: each function as the fit of its two classes, all as scikit-learn's."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import SVC as PeerSVC
from support.one_vs_one import values
from support.problems import clouds
from support.reductions import trained_one_vs_rest
from support.resuming import StopAt, assert_killed_to_the_same_bits, assert_resumed_to_the_same_bits

import bigsvm
from bigsvm import write_store
from bigsvm.data import schema
from bigsvm.data.sources import as_row_source
from bigsvm.errors import CheckpointError, DataError, MemoryBudgetError, ParameterError
from bigsvm.fit.train import train_model
from bigsvm.parameters import TrainingParameters
from bigsvm.training.events import Hooks

KINDS = {
    "c-svc": {"C": 3.0},
    "squared": {"C": 3.0, "loss": "squared_hinge"},
    "nu-svc": {"formulation": "nu-svc", "nu": 0.1, "tol": 1e-5},
    "l2-svc": {"formulation": "l2-svc", "C": 3.0, "tol": 1e-6},
}


def train(X, y, weights=None, hooks=None, **parameters):
    parameters = {"tol": 1e-6, "threads": 1, **parameters}
    given = TrainingParameters(**parameters)
    return trained_one_vs_rest(as_row_source(X), y, weights, given, hooks)


def alone(X, y, label, weights=None, **parameters):
    """The model of one class against the others."""
    given = TrainingParameters(**{"tol": 1e-6, "threads": 1, **parameters})
    return train_model(as_row_source(X), y == label, weights, given)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6), k=st.integers(2, 5), weighted=st.booleans())
def test_each_function_is_the_fit_of_its_class_against_the_rest(kind, seed, k, weighted):
    X, y = clouds(n=25 * k, k=k, seed=seed)
    weights = np.random.default_rng(seed).integers(0, 4, len(y)) / 2 if weighted else None
    options = {"gamma": 0.4, **KINDS[kind]}
    found = train(X, y, weights, **options)
    h, objective = values(found, X, X), 0.0
    assert found.functions.coefficients.shape[1] == k
    for label, column in enumerate(h.T):
        model = alone(X, y, label, weights, **options)
        objective += model.certificate["objective"]
        expected = model.decision_function(as_row_source(X))
        scale = max(1.0, np.abs(model.coefficients).max(initial=0.0))
        np.testing.assert_allclose(column, expected, atol=2e-4 * scale)
    certificate = found.functions.certificate
    assert certificate.converged
    assert certificate.objective == pytest.approx(objective, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_functions_and_labels_are_scikit_learns(form, class_weight):
    X, y = clouds()
    labels = np.array(["pear", "apple", "fig", "Äpfel"])[y]
    found = train(form(X), labels, C=5.0, class_weight=class_weight)
    peer = OneVsRestClassifier(PeerSVC(C=5.0, tol=1e-8, class_weight=class_weight)).fit(X, labels)
    h = values(found, X, X)
    np.testing.assert_allclose(h, peer.decision_function(X), atol=1e-3)
    np.testing.assert_array_equal(found.classes, peer.classes_)
    first, second = np.sort(h, axis=1)[:, -2:].T
    sure = second - first > 2e-3
    assert sure.mean() > 0.9
    labels = found.classes[h.argmax(axis=1)]
    np.testing.assert_array_equal(labels[sure], peer.predict(X)[sure])
    assert found.functions.coefficients.has_sorted_indices
    assert (np.diff(found.functions.support) > 0).all()


def test_a_weight_of_a_class_is_that_of_its_rows_in_all_functions():
    X, y = clouds()
    by_class = {0: 2.0, 1: 0.5, 3: 3.0}
    weights = np.array([2.0, 0.5, 1.0, 3.0])[y]
    found = train(X, y, gamma=0.4, class_weight=by_class)
    expected = train(X, y, weights, gamma=0.4)
    np.testing.assert_allclose(values(found, X, X), values(expected, X, X), atol=1e-9)


def test_equal_rows_are_merged_by_class_and_dealt_out_again(monkeypatch):
    """Each row is there twice of its own class, and some once more of another."""
    X, y = clouds(n=300)
    others = np.arange(0, 300, 7)
    X = np.concatenate([X, X, X[others]])
    y = np.concatenate([y, y, (y[others] + 1) % 4])
    plain = train(X, y, C=5.0)
    monkeypatch.setattr("bigsvm.fit.variables.DIRECT_ROWS", 50)
    merged = train(X, y, C=5.0)
    certificate = merged.functions.certificate
    small = certificate.n_kernel_evaluations
    assert small < 0.6 * plain.functions.certificate.n_kernel_evaluations
    np.testing.assert_allclose(values(merged, X, X), values(plain, X, X), atol=1e-4)
    coefficients = merged.functions.coefficients
    sign = np.where(y[merged.functions.support][:, None] == np.arange(4), 1, -1)
    assert (coefficients.toarray() * sign >= 0).all()
    assert certificate.n_bounded == np.count_nonzero(np.abs(coefficients.data) >= 5.0)
    assert certificate.n_support == len(merged.functions.support)


def test_kernel_values_are_shared_by_ten_classes():
    X, y = clouds(n=3000, k=10, d=5)
    options = {"C": 3.0, "tol": 1e-3}
    together = train(X, y, **options).functions.certificate
    separate = [alone(X, y, label, **options).certificate for label in range(10)]
    evaluations = sum(one["n_kernel_evaluations"] for one in separate)
    assert together.n_kernel_evaluations <= 0.5 * evaluations
    assert together.objective == pytest.approx(sum(one["objective"] for one in separate), rel=1e-5)


def test_a_kernel_matrix_may_be_given():
    X, y = clouds(n=90)
    found = train(X @ X.T, y, kernel="precomputed").functions
    expected = train(X, y, kernel="linear").functions
    np.testing.assert_array_equal(found.support, expected.support)
    coefficients, others = found.coefficients.toarray(), expected.coefficients.toarray()
    np.testing.assert_allclose(coefficients, others, atol=1e-3)


@pytest.mark.parametrize(("labels", "options", "error", "words"), [
    (np.zeros(6), {}, DataError, "one class only"),
    (np.arange(6) % 3, {"class_weight": {1: 0.0}}, DataError, "no row of class 1"),
    (np.arange(6) % 3, {"formulation": "nu-svc", "nu": 0.9}, ParameterError,
     "class 0 against the rest: nu is 0.9"),
    (np.arange(6) % 3, {"formulation": "l2-svc", "certify": False}, ParameterError, "certify"),
])  # fmt: skip
def test_invalid_labels_and_parameters_are_refused(labels, options, error, words):
    with pytest.raises(error, match=words):
        train(np.eye(6), labels, **options)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    X, y = clouds(n=6000, k=4, d=300)
    path = tmp_path_factory.mktemp("store") / "clouds.zarr"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "CHUNK_BYTES", 1 << 15)
        return write_store(path, X.astype(np.float32), y)


@pytest.mark.slow
def test_store_larger_than_memory_gives_the_model_of_its_rows(store):
    memory, X = 7_000_000, store.rows.read(0, store.rows.n_rows)
    assert X.nbytes > memory
    y, options = store.labels(), {"C": 2.0, "gamma": 0.002, "tol": 1e-3}
    found = train(store.rows, y, memory=memory, **options).functions
    assert found.certificate.converged
    assert found.certificate.bytes_read > X.nbytes
    expected = train(X, y, **options).functions
    assert found.certificate.objective == pytest.approx(expected.certificate.objective, rel=1e-5)


def test_memory_for_all_functions_is_refused_with_the_numbers(store):
    """Four functions fit; a function for each row does not."""
    labels, before = np.arange(store.rows.n_rows), store.rows.bytes_read
    with pytest.raises(MemoryBudgetError, match=r"and 6000 functions .* give at least about"):
        train(store.rows, labels, memory=8_000_000)
    assert store.rows.bytes_read == before


@pytest.mark.parametrize("kind", KINDS)
def test_resumed_it_gives_the_same_bits(tmp_path, kind):
    X, y = clouds(k=5, n=150)
    asked, options = StopAt(), {**KINDS[kind], "tol": 1e-4}
    whole = train(X, y, hooks=Hooks(interrupted=asked), **options).functions
    assert whole.certificate.converged

    def attempt(folder, interrupted):
        hooks = Hooks(interrupted=interrupted)
        return train(X, y, hooks=hooks, checkpoint=str(folder), **options).functions

    firsts = sorted({1, asked.count // 3, 2 * asked.count // 3, asked.count})
    assert_resumed_to_the_same_bits(attempt, tmp_path, firsts, whole)


@pytest.mark.parametrize(("change", "words"), [
    ({"C": 2.0}, r"C \(checkpoint: 1.0, now: 2.0\)"),
    ({"gamma": 0.1}, "kernel"),
    ({"class_weight": "balanced"}, "class weights"),
    ({"loss": "squared_hinge"}, "formulation"),
])  # fmt: skip
def test_another_problem_is_refused_by_name(tmp_path, change, words):
    X, y = clouds(n=60)
    train(X, y, checkpoint=str(tmp_path))
    with pytest.raises(CheckpointError, match=words):
        train(X, y, checkpoint=str(tmp_path), **change)
    with pytest.raises(CheckpointError, match="labels and weights"):
        train(X, y[::-1], checkpoint=str(tmp_path))
    with pytest.raises(CheckpointError, match="one against the rest"):
        train_model(as_row_source(X), y == 0, None, TrainingParameters(checkpoint=str(tmp_path)))


@pytest.mark.parametrize(("limit", "reason"), [
    ({"max_iter": 20}, "max_iter"), ({"max_seconds": 1e-9}, "time_limit"),
])  # fmt: skip
def test_limits_are_of_all_functions(tmp_path, limit, reason):
    X, y = clouds(n=800)
    found = train(X, y, checkpoint=str(tmp_path), tol=1e-3, **limit)
    assert found.functions.certificate.stop_reason == reason
    assert found.functions.certificate.n_iter == limit.get("max_iter", 0)
    assert np.isfinite(found.functions.intercepts).all()
    ended = train(X, y, checkpoint=str(tmp_path), tol=1e-3)
    assert ended.functions.certificate.converged


def train_in_process(folder):
    X, y = clouds(n=1000, k=6, spread=0.7)
    return train(X, y, C=10.0, tol=1e-3, checkpoint=str(folder), checkpoint_every=0.1).functions


@pytest.mark.slow
def test_killed_several_times_it_gives_the_same_bits(tmp_path):
    """A real process, `kill -9` each time after it has saved once more."""
    whole = assert_killed_to_the_same_bits(train_in_process, tmp_path, pause=0.0)
    assert whole.certificate.converged


def test_too_small_nu_of_inseparable_rows_warns():
    """As of two classes, and of pairs: the values of such a function are all 0."""
    with pytest.warns(ConvergenceWarning, match=r"class 0 against the rest: nu is .* raise nu"):
        model = bigsvm.NuSVC(nu=0.1, multiclass="ovr").fit(np.ones((40, 3)), np.arange(40) % 4)
    assert model.converged_
    assert not model.decision_function(np.ones((1, 3))).any()
