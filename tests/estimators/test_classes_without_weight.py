"""Classes of which no row has a weight are left out of training, and keep their names."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.ensemble import BaggingClassifier

import bigsvm
from bigsvm.errors import DataError
from bigsvm.interchange import to_onnx, to_scikit_learn, write_libsvm_model

X, CODES = make_blobs(240, centers=[(0, 0), (4, 0), (0, 4), (4, 4)], random_state=0)
Y = np.array(list("abcd"))[CODES]
SINGLE, DOUBLE = ["b"], ["a", "d"]
TOLD = "has a positive weight; they are left out of training"
FORMS = {
    "ovo": bigsvm.SVC(gamma=0.5),
    "ties": bigsvm.SVC(gamma=0.5, break_ties=True),
    "ddag": bigsvm.SVC(gamma=0.5, multiclass="ddag"),
    "ovr": bigsvm.SVC(gamma=0.5, multiclass="ovr"),
    "squared": bigsvm.SVC(gamma=0.5, loss="squared_hinge"),
    "nu": bigsvm.NuSVC(gamma=0.5, nu=0.3),
    "l2": bigsvm.L2SVC(gamma=0.5),
    "l2-ovr": bigsvm.L2SVC(gamma=0.5, multiclass="ovr"),
    "crammer-singer": bigsvm.CrammerSingerSVC(gamma=0.5),
    "balanced": bigsvm.SVC(gamma=0.5, class_weight="balanced"),
}


def weights_without(absent):
    return np.where(np.isin(Y, absent), 0.0, 1.0)


def fit_without(estimator, absent, rows=X, **given):
    with pytest.warns(UserWarning, match=TOLD) as told:
        estimator.fit(rows, Y, weights_without(absent), **given)
    [warning] = [one for one in told if TOLD in str(one.message)]
    assert all(repr(label) in str(warning.message) for label in absent)
    return estimator


@pytest.mark.parametrize("absent", [SINGLE, DOUBLE], ids=["one", "two"])
@pytest.mark.parametrize("name", FORMS)
class TestEveryForm:
    def test_it_is_the_classifier_of_the_other_rows(self, name, absent):
        fitted = fit_without(FORMS[name], absent)
        labels, values = fitted.predict(X), fitted.decision_function(X)
        np.testing.assert_array_equal(fitted.classes_, list("abcd"))
        assert values.shape == (len(X), 4)
        assert np.isfinite(values).all()
        places = [list("abcd").index(label) for label in absent]
        assert not np.isin(values.argmax(axis=1), places).any()
        assert fitted.converged_
        np.testing.assert_array_equal(fitted.n_support_[places], 0)
        kept = ~np.isin(Y, absent)
        alone = FORMS[name].fit(X[kept], Y[kept])
        # Without all classes the rest of the grid is theirs too.
        grid = np.random.default_rng(1).uniform(-3, 7, (500, 2))
        np.testing.assert_array_equal(
            alone.predict(grid), fit_without(FORMS[name], absent).predict(grid)
        )
        assert set(labels) == set("abcd") - set(absent)

    def test_a_saved_model_keeps_it(self, name, absent, tmp_path):
        fitted = fit_without(FORMS[name], absent)
        fitted.save(tmp_path / "model")
        loaded = bigsvm.load(tmp_path / "model")
        for method in ("predict", "decision_function"):
            np.testing.assert_array_equal(getattr(loaded, method)(X), getattr(fitted, method)(X))
        np.testing.assert_array_equal(loaded.classes_, fitted.classes_)
        np.testing.assert_array_equal(loaded.class_weight_, fitted.class_weight_)


@pytest.mark.parametrize("absent", [SINGLE, DOUBLE], ids=["one", "two"])
@pytest.mark.parametrize("multiclass", ["ovo", "ovr", "crammer-singer"])
@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
def test_its_probability_is_0(absent, multiclass, method):
    estimator = bigsvm.CrammerSingerSVC(gamma=0.5, calibration=method)
    if multiclass != "crammer-singer":
        estimator = bigsvm.SVC(gamma=0.5, calibration=method, multiclass=multiclass)
    fitted = fit_without(estimator, absent)
    grid = np.random.default_rng(1).uniform(-3, 7, (500, 2))
    probabilities = fitted.predict_proba(grid)
    is_absent = np.isin(fitted.classes_, absent)
    assert (probabilities[:, is_absent] == 0).all()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    np.testing.assert_array_equal(
        fitted.classes_[probabilities.argmax(axis=1)], fitted.predict(grid)
    )
    assert np.isneginf(fitted.predict_log_proba(grid)[:, is_absent]).all()


@pytest.mark.parametrize("kind", ["store", "dask"])
@pytest.mark.parametrize("name", ["ovo", "ovr", "crammer-singer", "nu", "l2"])
def test_rows_out_of_core(name, kind, tmp_path):
    expected = fit_without(FORMS[name], SINGLE)
    grid = np.random.default_rng(1).uniform(-3, 7, (500, 2))
    labels = expected.predict(grid)
    if kind == "store":
        weights = weights_without(SINGLE)
        rows = bigsvm.write_store(tmp_path / "x.zarr", X, Y, weights, shuffle=False)
        with pytest.warns(UserWarning, match=TOLD):
            fitted = FORMS[name].fit(rows)
    else:
        da = pytest.importorskip("dask.array")
        fitted = fit_without(FORMS[name], SINGLE, da.from_array(X, chunks=(50, 2)))
    np.testing.assert_array_equal(fitted.predict(grid), labels)


class TestExports:
    @pytest.mark.parametrize("absent", [SINGLE, DOUBLE], ids=["one", "two"])
    @pytest.mark.parametrize("calibration", [None, "sigmoid"])
    def test_libsvm(self, absent, calibration, tmp_path):
        svmutil = pytest.importorskip("libsvm.svmutil")
        fitted = bigsvm.SVC(gamma=0.5, calibration=calibration)
        missing = [list("abcd").index(label) for label in absent]
        with pytest.warns(UserWarning, match=TOLD):
            fitted.fit(X, CODES, weights_without(absent))
        write_libsvm_model(fitted, tmp_path / "model")
        theirs = svmutil.svm_load_model(str(tmp_path / "model"))
        grid = np.random.default_rng(1).uniform(-3, 7, (200, 2))
        options = "-q" if calibration is None else "-q -b 1"
        labels, _, values = svmutil.svm_predict([], grid, theirs, options)
        if calibration is None:
            np.testing.assert_array_equal(labels, fitted.predict(grid))
        else:
            assert not np.isin(labels, missing).any()
            # LIBSVM's iterations end at 0.005 / k.
            assert np.array(values)[:, missing].max() < 0.005

    @pytest.mark.parametrize("absent", [SINGLE, DOUBLE], ids=["one", "two"])
    def test_scikit_learn(self, absent):
        fitted = fit_without(bigsvm.SVC(gamma=0.5), absent)
        theirs, grid = to_scikit_learn(fitted), np.random.default_rng(1).uniform(-3, 7, (200, 2))
        np.testing.assert_array_equal(theirs.predict(grid), fitted.predict(grid))
        np.testing.assert_allclose(
            theirs.decision_function(grid), fitted.decision_function(grid), atol=1e-5
        )

    @pytest.mark.parametrize("name", ["ovo", "ovr", "crammer-singer"])
    def test_onnx(self, name):
        reference = pytest.importorskip("onnx.reference")
        fitted = fit_without(FORMS[name], DOUBLE)
        grid = np.random.default_rng(1).uniform(-3, 7, (200, 2))
        graph = reference.ReferenceEvaluator(to_onnx(fitted.model_))
        np.testing.assert_array_equal(graph.run(["label"], {"X": grid})[0], fitted.predict(grid))


class TestRefused:
    @pytest.mark.parametrize("name", ["ovo", "ovr", "crammer-singer", "nu", "l2"])
    def test_one_class_left(self, name):
        with pytest.raises(DataError, match="positive weight"):
            FORMS[name].fit(X, Y, weights_without(["a", "b", "d"]))
        with pytest.raises(DataError, match="positive weight"):
            FORMS[name].fit(X, Y == "a", weights_without(["a"]))

    def test_a_weight_of_such_a_class_alone_is_none(self):
        estimator = bigsvm.SVC(gamma=0.5, class_weight={"b": 5.0})
        fitted = fit_without(estimator, SINGLE)
        np.testing.assert_array_equal(fitted.class_weight_, [1, 5, 1, 1])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            estimator.fit(X, Y)


def test_a_warm_start_of_the_same_classes():
    estimator = fit_without(bigsvm.CrammerSingerSVC(gamma=0.5, warm_start=True), SINGLE)
    before = estimator.n_iter_
    assert fit_without(estimator, SINGLE).n_iter_ < 0.1 * before
    everything = estimator.fit(X, Y).predict(X)
    np.testing.assert_array_equal(FORMS["crammer-singer"].fit(X, Y).predict(X), everything)
    with pytest.raises(DataError, match="other classes; start anew"), pytest.warns(match=TOLD):
        estimator.fit(X, Y, weights_without(SINGLE))


def test_a_forecast_knows_it():
    assert bigsvm.SVC(gamma=0.5).plan(X, Y, weights_without(SINGLE)).n_rows == len(X)


@pytest.mark.parametrize("estimator", [bigsvm.SVC(), bigsvm.SVC(multiclass="ovr")])
def test_bagging_draws_so(estimator):
    rare = np.concatenate([np.arange(240)[Y == "a"][:4], np.flatnonzero(np.isin(Y, ["b", "c"]))])
    bagged = BaggingClassifier(estimator, n_estimators=6, max_samples=0.1, random_state=0)
    with pytest.warns(UserWarning, match=TOLD):
        bagged.fit(X[rare], Y[rare])
    assert bagged.score(X[rare], Y[rare]) > 0.9
