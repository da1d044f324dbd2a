"""Tools of scikit-learn over our estimators: searches, metaestimators, inspection, displays."""

import importlib

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn import config_context
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.datasets import dump_svmlight_file, load_svmlight_file, make_blobs
from sklearn.ensemble import BaggingClassifier, StackingClassifier
from sklearn.experimental import enable_halving_search_cv  # noqa: F401 (HalvingGridSearchCV)
from sklearn.feature_selection import RFE
from sklearn.frozen import FrozenEstimator
from sklearn.inspection import partial_dependence, permutation_importance
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    TunedThresholdClassifierCV,
    cross_val_score,
    learning_curve,
    validation_curve,
)
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import bigsvm

X, Y = make_blobs(120, centers=[(-2, 0), (2, 0)], cluster_std=1.5, random_state=0)
MACHINE = bigsvm.SVC(gamma=0.1, n_jobs=1)


def test_columns_of_a_frame_are_transformed():
    frame = pd.DataFrame({"a": X[:, 0], "word": np.where(X[:, 1] > 0, "up", "down")})
    columns = ColumnTransformer([("n", StandardScaler(), ["a"]), ("w", OneHotEncoder(), ["word"])])
    assert make_pipeline(columns, clone(MACHINE)).fit(frame, Y).score(frame, Y) > 0.8


@pytest.mark.parametrize("backend", ["threading", pytest.param("loky", marks=pytest.mark.slow)])
@pytest.mark.parametrize("search", [GridSearchCV, HalvingGridSearchCV])
def test_searches_run_on_any_backend(search, backend):
    values = {"C": [1e-3, 1.0]}
    with joblib.parallel_backend(backend, n_jobs=2):
        found = search(MACHINE, values, cv=3).fit(X, Y)
    expected = search(MACHINE, values, cv=3).fit(X, Y)
    np.testing.assert_array_equal(
        found.cv_results_["mean_test_score"], expected.cv_results_["mean_test_score"]
    )
    assert found.best_estimator_.converged_


def test_scores_of_decision_values_and_of_probabilities():
    assert cross_val_score(MACHINE, X, Y, cv=3, scoring="roc_auc").mean() > 0.9
    calibrated = bigsvm.SVC(gamma=0.1, calibration="sigmoid")
    assert cross_val_score(calibrated, X, Y, cv=3, scoring="neg_log_loss").mean() > -0.6


@pytest.mark.parametrize("method", ["sigmoid", "isotonic", "temperature"])
def test_calibration_by_scikit_learn(method):
    rows, labels = make_blobs(150, centers=3, random_state=0)
    made = CalibratedClassifierCV(MACHINE, method=method, ensemble=False, cv=3).fit(rows, labels)
    assert made.score(rows, labels) > 0.8
    fitted = FrozenEstimator(clone(MACHINE).fit(rows, labels))
    assert CalibratedClassifierCV(fitted).fit(rows, labels).predict_proba(rows).shape == (150, 3)


def test_a_threshold_is_tuned():
    tuned = TunedThresholdClassifierCV(MACHINE, scoring="f1", cv=3, thresholds=20).fit(X, Y)
    assert tuned.score(X, Y) > 0.8
    assert tuned.best_threshold_ != 0


@pytest.mark.parametrize("metaestimator", [
    OneVsRestClassifier(MACHINE), OneVsOneClassifier(MACHINE),
    BaggingClassifier(MACHINE, n_estimators=2, random_state=0),
    StackingClassifier([("svc", MACHINE)], cv=2),
], ids=lambda each: type(each).__name__)  # fmt: skip
def test_metaestimators(metaestimator):
    rows, labels = make_blobs(90, centers=3, random_state=0)
    assert clone(metaestimator).fit(rows, labels).score(rows, labels) > 0.8


def test_features_are_eliminated_by_coefficients():
    rows = np.column_stack([X, np.random.default_rng(0).normal(size=(120, 2))])
    kept = RFE(bigsvm.SVC(kernel="linear"), n_features_to_select=1).fit(rows, Y)
    assert kept.support_.tolist() == [True, False, False, False]


def test_models_are_inspected():
    fitted = clone(MACHINE).fit(X, Y)
    important = permutation_importance(fitted, X, Y, n_repeats=3, random_state=0)
    assert important.importances_mean.argmax() == 0
    shown = partial_dependence(
        fitted, X, [0], grid_resolution=3, response_method="decision_function"
    )["average"][0]
    assert shown[0] < 0 < shown[-1]


def test_curves_over_rows_and_over_C():
    sizes, _, tested = learning_curve(MACHINE, X, Y, cv=3, train_sizes=[0.5, 1.0])
    assert tested.shape == (len(sizes), 3)
    _, tested = validation_curve(MACHINE, X, Y, param_name="C", param_range=[1e-3, 1.0], cv=3)
    assert tested.shape == (2, 3)
    assert tested[1].mean() > 0.8


def test_a_pipeline_with_pandas_output():
    frame = pd.DataFrame(X, columns=["a", "b"])
    pipeline = make_pipeline(StandardScaler(), clone(MACHINE))
    pipeline.set_output(transform="pandas").fit(frame, Y)
    assert pipeline[-1].feature_names_in_.tolist() == ["a", "b"]
    target = TransformedTargetRegressor(bigsvm.SVR(gamma=0.1), transformer=StandardScaler())
    assert target.fit(frame, 100 * X[:, 0]).score(frame, 100 * X[:, 0]) > 0.8


def test_weights_are_routed():
    weights = np.where(Y == 1, 3.0, 1.0)
    with config_context(enable_metadata_routing=True):
        machine = clone(MACHINE).set_fit_request(sample_weight=True)
        machine.set_score_request(sample_weight=True)
        search = GridSearchCV(machine, {"C": [1.0]}, cv=2).fit(X, Y, sample_weight=weights)
    expected = clone(MACHINE).fit(X, Y, sample_weight=weights)
    np.testing.assert_array_equal(search.best_estimator_.dual_coef_, expected.dual_coef_)


def test_joblib_keeps_a_fitted_estimator(tmp_path):
    fitted = clone(MACHINE).fit(X, Y)
    joblib.dump(fitted, tmp_path / "machine.joblib")
    again = joblib.load(tmp_path / "machine.joblib")
    np.testing.assert_array_equal(again.decision_function(X), fitted.decision_function(X))


@pytest.mark.parametrize("kind", ["category", "Int64", "string", "boolean"])
def test_labels_are_any_kind_of_pandas(kind):
    words = {"Int64": Y, "boolean": Y == 1}.get(kind, np.array(["no", "yes"])[Y])
    labels = pd.Series(words).astype(kind)
    fitted = clone(MACHINE).fit(X, labels)
    assert fitted.classes_.tolist() == sorted(set(labels))
    assert fitted.score(X, labels) > 0.8


def test_labels_and_rows_of_polars_and_arrow():
    polars, arrow = (pytest.importorskip(name) for name in ("polars", "pyarrow"))
    expected = clone(MACHINE).fit(X, Y)
    frame = polars.DataFrame(X, schema=["a", "b"])
    table = arrow.table({"a": X[:, 0], "b": X[:, 1]})
    for rows, labels in ((frame, polars.Series(Y)), (table, arrow.array(Y))):
        fitted = clone(MACHINE).fit(rows, labels)
        np.testing.assert_array_equal(fitted.dual_coef_, expected.dual_coef_)


def test_text_that_scikit_learn_reads(tmp_path):
    """Indices of its rows are int64, which its own SVC refuses."""
    dump_svmlight_file(X, Y, str(tmp_path / "text"))
    rows, labels = load_svmlight_file(str(tmp_path / "text"))
    for convert in (sp.csr_matrix, sp.csr_array, sp.csc_matrix, sp.coo_array, sp.lil_matrix):
        assert clone(MACHINE).fit(convert(rows), labels).score(rows, labels) > 0.8
    rows.indices, rows.indptr = rows.indices.astype(np.int64), rows.indptr.astype(np.int64)
    assert clone(MACHINE).fit(rows, labels).score(rows, labels) > 0.8


DISPLAYS = {
    "RocCurveDisplay": "roc_auc", "PrecisionRecallDisplay": "average_precision",
    "DetCurveDisplay": "fpr", "ConfusionMatrixDisplay": "confusion_matrix",
}  # fmt: skip


@pytest.mark.parametrize("name", DISPLAYS)
def test_displays_take_stores(name, tmp_path):
    pytest.importorskip("matplotlib").use("agg")
    display = getattr(importlib.import_module("sklearn.metrics"), name)
    store = bigsvm.write_store(tmp_path / "s.zarr", X, Y)
    fitted = clone(MACHINE).fit(store)
    rows, labels = store.rows.read(0, len(store)), store.labels()
    expected = getattr(display.from_estimator(fitted, rows, labels), DISPLAYS[name])
    for given in (store, store.path):
        found = getattr(display.from_estimator(fitted, given, labels), DISPLAYS[name])
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_boundary_is_displayed():
    pytest.importorskip("matplotlib").use("agg")
    from sklearn.inspection import DecisionBoundaryDisplay

    fitted = clone(MACHINE).fit(X, Y)
    shown = DecisionBoundaryDisplay.from_estimator(fitted, X, grid_resolution=5)
    assert shown.response.shape == (5, 5)
