"""Fits of small problems: the same optimum as our own solver's, in the same form."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from command_line import run_here
from sklearn import svm
from sklearn.datasets import load_iris, make_classification, make_moons, make_regression
from sklearn.utils.estimator_checks import parametrize_with_checks
from support.same import without_measured

import bigsvm
from bigsvm.data.in_memory import ArrayRows
from bigsvm.errors import DataError, ParameterError
from bigsvm.fit.advice import advised, sample_of
from bigsvm.fit.problem import Given
from bigsvm.parameters import TrainingParameters
from bigsvm.training.events import Hooks

PEERS = {
    "SVC": svm.SVC,
    "NuSVC": svm.NuSVC,
    "OneClassSVM": svm.OneClassSVM,
    "SVR": svm.SVR,
    "NuSVR": svm.NuSVR,
}


def drawn(seed):
    """Draw an estimator's name, its parameters and its data."""
    rng = np.random.default_rng(seed)
    name = rng.choice(list(PEERS))
    n, d = int(rng.integers(20, 250)), int(rng.integers(1, 12))
    X = rng.standard_normal((n, d)) * rng.choice([0.1, 1.0, 10.0])
    k = int(rng.choice([2, 2, 3, 4]))
    kernel = str(rng.choice(["linear", "poly", "rbf", "rbf", "precomputed"]))
    parameters = {"kernel": kernel, "tol": float(rng.choice([1e-2, 1e-3, 1e-5]))}
    if kernel == "poly":
        parameters |= {"degree": 2, "coef0": 1.0}
    if kernel == "precomputed":
        X = X @ X.T / X.var()
    if name in ("SVC", "SVR", "NuSVR"):
        parameters["C"] = float(rng.choice([0.1, 1.0, 30.0]))
    if name in ("NuSVC", "OneClassSVM", "NuSVR"):
        parameters["nu"] = float(rng.choice([0.1, 0.2, 0.35]))
    y = None
    if name in ("SVC", "NuSVC"):
        y = (np.arange(n) % k) * 3 - 1
        X[:, 0] += y * (kernel != "precomputed")
        if name == "SVC":
            parameters["class_weight"] = [None, "balanced"][rng.integers(2)]
    elif name != "OneClassSVM":
        y = X[:, 0] / (np.abs(X[:, 0]).max() + 1e-9) + 0.3 * rng.standard_normal(n)
    weights = [None, rng.choice([1.0, 2.0, 0.5], n), rng.choice([0.0, 1.0, 1.0, 3.0], n)]
    return name, parameters, X, y, weights[rng.integers(3)]


def fitted(way, name, parameters, X, y, weights, monkeypatch):
    monkeypatch.setenv("BIGSVM_SMALL", way)
    with warnings.catch_warnings():
        # Some problems have no useful answer, either way.
        warnings.simplefilter("ignore")
        return getattr(bigsvm, name)(**parameters).fit(X, y, sample_weight=weights)


def dtypes(history):
    return {
        name: dtypes(values) if isinstance(values, dict) else values.dtype
        for name, values in history.items()
    }


def same_optimum(seed, monkeypatch):
    name, parameters, X, y, weights = drawn(seed)
    small, own = (
        fitted(way, name, parameters, X, y, weights, monkeypatch) for way in ("auto", "never")
    )
    assert own.certificate_["solver"] == "bigsvm"
    for model in (small, own):
        assert model.converged_
        assert model.gap_ <= parameters["tol"]
    rounding = 1e-9 * (1 + abs(own.objective_))
    most = max(small.duality_gap_, own.duality_gap_)
    assert abs(small.objective_ - own.objective_) <= most + rounding
    assert vars(small).keys() == vars(own).keys()
    for attribute in ("support_", "n_support_", "dual_coef_", "intercept_", "support_vectors_"):
        if not hasattr(own, attribute):
            continue
        ours, theirs = getattr(small, attribute), getattr(own, attribute)
        assert (ours.dtype, ours.ndim) == (theirs.dtype, theirs.ndim)
    assert small.certificate_.keys() == own.certificate_.keys()
    assert dtypes(small.history_) == dtypes(own.history_)
    return small.certificate_["solver"]


def test_the_same_optimum_either_way(monkeypatch):
    solvers = [same_optimum(seed, monkeypatch) for seed in range(40)]
    # A few go on with our own solver, as nu is infeasible in LIBSVM's rounding, say.
    assert solvers.count("libsvm") >= 36


@pytest.mark.slow
def test_the_same_optimum_of_300_problems(monkeypatch):
    solvers = [same_optimum(seed, monkeypatch) for seed in range(1000, 1300)]
    assert solvers.count("libsvm") >= 270


@pytest.mark.parametrize(
    ("name", "parameters", "data"),
    [
        ("SVC", {"C": 3.0}, make_classification(150, random_state=0)),
        ("SVC", {"kernel": "linear"}, load_iris(return_X_y=True)),
        ("NuSVC", {"nu": 0.2}, load_iris(return_X_y=True)),
        ("OneClassSVM", {"nu": 0.23}, (make_classification(150, random_state=0)[0], None)),
        ("SVR", {"C": 5.0}, make_regression(100, 4, random_state=0)),
        ("NuSVR", {"C": 5.0, "nu": 0.33}, make_regression(100, 4, random_state=0)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_attributes_are_scikit_learns(name, parameters, data):
    X, y = data
    ours = getattr(bigsvm, name)(**parameters, tol=1e-6).fit(X, y)
    peer = PEERS[name](**parameters, tol=1e-8).fit(X, y)
    assert ours.certificate_["solver"] == "libsvm"
    by_row = [np.argsort(model.support_) for model in (ours, peer)]
    if ours.dual_coef_.shape[0] > 1:
        by_row = [slice(None)] * 2  # in scikit-learn's order, by class
    np.testing.assert_array_equal(ours.support_[by_row[0]], peer.support_[by_row[1]])
    scale = np.abs(peer.dual_coef_).max()
    np.testing.assert_allclose(
        ours.dual_coef_[:, by_row[0]], peer.dual_coef_[:, by_row[1]], atol=1e-3 * scale
    )
    np.testing.assert_allclose(ours.intercept_, peer.intercept_, atol=1e-3 * scale)
    np.testing.assert_array_equal(ours.support_vectors_, X[ours.support_])
    if y is not None and name in ("SVC", "NuSVC"):
        np.testing.assert_array_equal(ours.n_support_, peer.n_support_)
        np.testing.assert_array_equal(ours.predict(X), peer.predict(X))


@pytest.mark.filterwarnings("ignore::bigsvm.AdviceWarning")
@pytest.mark.parametrize("C", [1e-4, 1.0, 100.0])
@pytest.mark.parametrize("gamma", [1e-6, 0.5, 1e4])
@pytest.mark.parametrize("rare", [None, 15])
def test_advice_is_that_of_a_sample_that_is_always_looked_at(C, gamma, rare):
    X, y = make_moons(300, noise=0.4, random_state=0)
    if rare is not None:
        kept = np.union1d(np.flatnonzero(y == 0), np.flatnonzero(y)[:rare])
        X, y = X[kept], y[kept]
    model = bigsvm.SVC(C=C, gamma=gamma).fit(X, y)
    parameters = TrainingParameters(formulation="c-svc", C=C, gamma=gamma)
    sample = sample_of(Given(ArrayRows(X), y, None, parameters, Hooks()))
    expected = advised(model.model_, sample, parameters)
    assert model.certificate_["solver"] == "libsvm"
    assert model.certificate_["advice"] == expected.certificate["advice"]


@pytest.mark.parametrize("name", ["SVC", "NuSVC", "OneClassSVM", "SVR", "NuSVR"])
def test_a_weight_is_the_row_repeated_and_0_that_it_is_absent(name):
    X, y = make_classification(60, 4, n_classes=2, random_state=1)
    if name in ("SVR", "NuSVR"):
        y = X[:, 0] + np.sin(3 * X[:, 1])
    weights = np.random.default_rng(0).integers(0, 4, len(y))
    given = {"nu": 0.21} if name != "SVC" and name != "SVR" else {}
    model = getattr(bigsvm, name)(**given, gamma=0.4)
    once = model.fit(X, y, sample_weight=weights)
    decided = once.predict if name.endswith("R") else once.decision_function
    values = decided(X)
    assert once.certificate_["solver"] == "libsvm"
    rows = np.repeat(np.arange(len(y)), weights)
    model.fit(X[rows], y[rows])
    np.testing.assert_allclose(decided(X), values, atol=1e-9)


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


def test_every_container_has_the_same_bits(iris, tmp_path):
    X, y = iris
    model = bigsvm.SVC(C=2.0).fit(X, y)
    store = bigsvm.write_store(tmp_path / "iris.zarr", X, y, shuffle=False)
    names = [f"column {j}" for j in range(X.shape[1])]
    for given in ((str(store.path), None), (pd.DataFrame(X, columns=names), y), (X.tolist(), y)):
        other = bigsvm.SVC(C=2.0).fit(*given)
        assert other.certificate_["solver"] == "libsvm"
        np.testing.assert_array_equal(other.dual_coef_, model.dual_coef_)
        np.testing.assert_array_equal(other.support_vectors_, model.support_vectors_)
        np.testing.assert_array_equal(other.intercept_, model.intercept_)
    sparse = bigsvm.SVC(C=2.0).fit(sp.csr_array(X), y)
    np.testing.assert_allclose(sparse.dual_coef_.toarray(), model.dual_coef_, atol=1e-9)


def test_threads_and_memory_change_no_bits(iris):
    X, y = iris
    model = bigsvm.SVC(C=2.0, n_jobs=1).fit(X, y)
    other = bigsvm.SVC(C=2.0, n_jobs=2, memory="1MB").fit(X, y)
    np.testing.assert_array_equal(other.dual_coef_, model.dual_coef_)
    np.testing.assert_array_equal(other.intercept_, model.intercept_)


def test_the_command_has_the_bits_of_the_estimator(iris, tmp_path):
    store = bigsvm.write_store(tmp_path / "iris.zarr", *iris)
    run_here("train", store.path, tmp_path / "model", "--C", 2)
    loaded, model = bigsvm.load(tmp_path / "model"), bigsvm.SVC(C=2.0).fit(store)
    np.testing.assert_array_equal(loaded.dual_coef_, model.dual_coef_)
    assert loaded.certificate_["solver"] == "libsvm"


def test_our_own_solver_goes_on_where_libsvm_did_not_end(monkeypatch):
    X, y = make_classification(200, flip_y=0.1, random_state=0)
    whole = bigsvm.SVC(C=50.0, tol=1e-6).fit(X, y)
    points = []
    from bigsvm.fit import small_way

    def watched(*arguments):
        points.append(small_model(*arguments))
        return points[-1]

    small_model = small_way.small_model
    monkeypatch.setattr("bigsvm.fit.small_way.small_model", watched)
    monkeypatch.setattr("bigsvm.small.solve.MOST_STEPS", 20)
    monkeypatch.setattr("bigsvm.small.certify.MOST_NEAR", 0)
    model = bigsvm.SVC(C=50.0, tol=1e-6).fit(X, y)
    assert not points[0].certificate["converged"]
    assert model.certificate_["solver"] == "bigsvm"
    assert model.converged_
    np.testing.assert_allclose(model.decision_function(X), whole.decision_function(X), atol=1e-5)
    classes = bigsvm.SVC(C=50.0).fit(X, np.arange(200) % 3)
    assert classes.converged_
    assert classes.certificate_["solver"] == "bigsvm"


def test_a_nu_that_is_infeasible_is_refused_as_ever():
    X, y = make_classification(100, weights=[0.9], random_state=0)
    with pytest.raises(ParameterError, match=r"nu is 0\.9, which is infeasible"):
        bigsvm.NuSVC(nu=0.9).fit(X, y)


def test_values_beyond_float32_are_refused_as_ever():
    with pytest.raises(DataError, match="linear kernel values in float32 need at most"):
        bigsvm.SVC(kernel="linear").fit(np.array([[1e25], [-1e25], [3e25]]), [0, 1, 1])


def test_a_model_is_saved_with_its_solver(iris, tmp_path):
    model = bigsvm.SVC().fit(*iris)
    model.save(tmp_path / "model")
    again = bigsvm.load(tmp_path / "model")
    assert json.dumps(again.certificate_, sort_keys=True) == json.dumps(
        without_measured(model.certificate_), sort_keys=True
    )
    np.testing.assert_array_equal(again.predict(iris[0]), model.predict(iris[0]))


def test_a_second_fit_that_starts_from_the_first_is_our_own_solvers():
    X, y = make_classification(100, random_state=0)
    model = bigsvm.SVC(warm_start=True).fit(X, y)
    assert model.certificate_["solver"] == "libsvm"
    assert model.set_params(C=3.0).fit(X, y).certificate_["solver"] == "bigsvm"
    assert model.converged_


def test_classes_without_weight_are_left_out(iris):
    X, y = iris
    with pytest.warns(UserWarning, match="left out of training"):
        model = bigsvm.SVC().fit(X, y, sample_weight=(y > 0) * 1.0)
    expected = bigsvm.SVC().fit(X[y > 0], y[y > 0])
    assert model.certificate_["solver"] == "libsvm"
    np.testing.assert_array_equal(model.predict(X[y > 0]), expected.predict(X[y > 0]))


# Our own solver's checks are in tests/estimators/.
@parametrize_with_checks([bigsvm.SVC()])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([bigsvm.OneClassSVM(), bigsvm.SVR(), bigsvm.NuSVR()])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learn_contract_of_the_others(estimator, check):
    check(estimator)
