"""One model in all its forms: fitted, saved, exported from either; all predict the same."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.datasets import make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline

import bigsvm
from bigsvm.errors import DataError, ParameterError
from bigsvm.interchange import read_libsvm_model, to_onnx, to_scikit_learn, write_libsvm_model
from bigsvm.models import KernelExpansion

N_COLUMNS = 4
UNITS = np.array([1e-3, 1, 50, 1e4])
"""Column scales so different that a kernel needs scaled rows."""
SOURCES = {
    "dense": np.asarray,
    "sparse": sp.csr_array,
    "scaled": np.asarray,
    "scaled sparse": sp.csr_array,
}
CASES = [
    (source, k, calibration)
    for source in SOURCES
    for k in (2, 3, 26)
    for calibration in (None, "sigmoid")
    if k == 2 or calibration is None
]


def data(k):
    """Rows of k classes with zeros among their values, the labels 10, 11, …, and other rows."""
    X, y = make_blobs(220, centers=k, n_features=N_COLUMNS, cluster_std=2, random_state=0)
    X[np.abs(X) < 2] = 0
    return X[:160], y[:160] + 10, X[160:]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: "-".join(map(str, case)))
def fitted(request, tmp_path_factory):
    """A fitted estimator, and rows to predict in the form that it was fitted on."""
    source, k, calibration = request.param
    X, y, rows = data(k)
    parameters = {} if calibration is None else {"calibration": calibration}
    estimator = bigsvm.SVC(C=2, gamma=0.05, decision_function_shape="ovo", **parameters)
    if not source.startswith("scaled"):
        return estimator.fit(SOURCES[source](X), y), SOURCES[source](rows)
    folder, sparse = tmp_path_factory.mktemp("stores"), source == "scaled sparse"
    X, rows = X * UNITS, rows * UNITS
    bigsvm.write_store(folder / "s", X, y, layout="sparse" if sparse else "dense")
    bigsvm.scale_store(folder / "s", folder / "t", method="maxabs" if sparse else "minmax")
    return estimator.set_params(gamma=1).fit(folder / "t"), SOURCES[source](rows)


@pytest.fixture(params=["estimator", "saved", "loaded"])
def form(request, fitted, tmp_path):
    """What is exported: an estimator, one that was saved and loaded, or such a model."""
    estimator, _ = fitted
    if request.param == "estimator":
        return estimator
    if request.param == "loaded":
        estimator.save(tmp_path / "saved")
        return bigsvm.load(tmp_path / "saved")
    estimator.model_.save(tmp_path / "saved")
    return KernelExpansion.load(tmp_path / "saved")


def decision(model, rows):
    """Values as scikit-learn has them: of pairs, positive for the first class."""
    values = model.decision_function(rows)
    return values if model.rule is None else -values


def predicted(model, rows):
    return np.asarray(model.classes)[model.decide(rows)]


def assert_is_the_model(model, fitted):
    estimator, rows = fitted
    np.testing.assert_allclose(
        decision(model, rows), estimator.decision_function(rows), rtol=1e-9, atol=1e-9
    )
    np.testing.assert_array_equal(predicted(model, rows), estimator.predict(rows))
    assert (model.calibration is None) == (estimator.model_.calibration is None)
    if model.calibration is not None:
        np.testing.assert_allclose(
            model.calibration.probability(model.decision_function(rows)),
            estimator.predict_proba(rows)[:, 1],
            rtol=1e-9,
        )


@pytest.mark.fault("model-forms")
def test_models_are_saved_and_loaded_in_every_form(fitted, tmp_path):
    fitted[0].model_.save(tmp_path / "m")
    assert_is_the_model(KernelExpansion.load(tmp_path / "m"), fitted)


@pytest.mark.fault("model-forms")
def test_models_are_exported_to_libsvm_in_every_form(form, fitted, tmp_path):
    write_libsvm_model(form, tmp_path / "m")
    assert_is_the_model(read_libsvm_model(tmp_path / "m", n_features=N_COLUMNS), fitted)


@pytest.mark.fault("model-forms")
def test_models_are_exported_to_scikit_learn_in_every_form(form, fitted):
    estimator, rows = fitted
    exported = to_scikit_learn(form)
    np.testing.assert_array_equal(exported.predict(rows), estimator.predict(rows))
    last = exported[-1] if isinstance(exported, Pipeline) else exported
    last.set_params(decision_function_shape="ovo")
    np.testing.assert_allclose(
        exported.decision_function(rows), estimator.decision_function(rows), rtol=1e-9, atol=1e-9
    )


@pytest.mark.fault("model-forms")
def test_models_are_exported_to_onnx_in_every_form(form, fitted):
    reference = pytest.importorskip("onnx.reference")
    estimator, rows = fitted
    graph = reference.ReferenceEvaluator(to_onnx(form))
    dense = rows.toarray() if sp.issparse(rows) else rows
    outputs = dict(zip(graph.output_names, graph.run(None, {"X": dense}), strict=True))
    np.testing.assert_array_equal(outputs["label"], estimator.predict(rows))
    values = outputs["values"] if estimator.model_.rule is None else -outputs["values"]
    np.testing.assert_allclose(values, estimator.decision_function(rows), rtol=1e-9, atol=1e-9)
    assert ("probabilities" in outputs) == (estimator.model_.calibration is not None)
    if "probabilities" in outputs:
        np.testing.assert_allclose(
            outputs["probabilities"], estimator.predict_proba(rows), rtol=1e-9
        )


@pytest.mark.fault("model-forms")
@pytest.mark.parametrize("shape", ["ovr", "ovo"])
def test_scikit_learn_keeps_the_shape_of_an_estimator(shape):
    X, y, rows = data(3)
    estimator = bigsvm.SVC(decision_function_shape=shape).fit(X, y)
    np.testing.assert_allclose(
        to_scikit_learn(estimator).decision_function(rows),
        estimator.decision_function(rows),
        atol=1e-9,
    )


@pytest.mark.fault("model-forms")
@pytest.mark.parametrize("scaled", [False, True])
def test_scikit_learn_knows_the_names_of_columns(scaled, tmp_path):
    X, y, rows = data(2)
    frame, other = (pd.DataFrame(given, columns=list("abcd")) for given in (X, rows))
    if scaled:
        bigsvm.scale_store(bigsvm.write_store(tmp_path / "s", frame, y), tmp_path / "t")
        estimator = bigsvm.SVC().fit(tmp_path / "t")
    else:
        estimator = bigsvm.SVC().fit(frame, y)
    estimator.model_.save(tmp_path / "m")
    exported = to_scikit_learn(KernelExpansion.load(tmp_path / "m"))
    np.testing.assert_array_equal(exported.predict(other), estimator.predict(other))
    with pytest.raises(ValueError, match="feature names should match"):
        exported.predict(other[list("badc")])


@pytest.mark.parametrize("export", [to_onnx, to_scikit_learn, lambda m: write_libsvm_model(m, "m")])
@pytest.mark.fault("model-forms")
def test_unfitted_estimators_are_refused(export):
    with pytest.raises(NotFittedError):
        export(bigsvm.SVC())
    with pytest.raises(ParameterError, match=r"model is a str; it must be a fitted estimator"):
        export("model.safetensors")


@pytest.mark.fault("model-forms")
def test_sparse_support_vectors_come_back_with_int32_indices(tmp_path):
    X, y, _ = data(3)
    bigsvm.SVC().fit(sp.csr_array(X), y).model_.save(tmp_path / "m")
    back = KernelExpansion.load(tmp_path / "m").support_vectors
    assert back.indices.dtype == back.indptr.dtype == np.int32


def test_a_model_predicts_all_that_rows_can_be(tmp_path):
    X, y, rows = data(2)
    model = bigsvm.SVC().fit(X, y).model_
    expected = model.decision_function(rows)
    store = bigsvm.write_store(tmp_path / "s", rows, np.zeros(len(rows)), shuffle=False)
    for given in (rows.tolist(), sp.csr_array(rows), sp.coo_matrix(rows), store, tmp_path / "s"):
        np.testing.assert_allclose(model.decision_function(given), expected, atol=1e-6)
        np.testing.assert_array_equal(model.decide(given), expected > 0)


@pytest.mark.fault("columns-and-order")
def test_a_model_predicts_frames_with_the_columns_of_the_training():
    X, y, rows = data(2)
    frame = pd.DataFrame(rows, columns=list("abcd"))
    model = bigsvm.SVC().fit(pd.DataFrame(X, columns=list("abcd")), y).model_
    expected = model.decision_function(rows)
    np.testing.assert_array_equal(model.decision_function(frame), expected)
    np.testing.assert_array_equal(model.decide(frame), expected > 0)
    for call in (model.decision_function, model.decide):
        with pytest.raises(DataError, match=r"feature names should match .*in another order"):
            call(frame[list("badc")])


def test_a_model_is_shown_in_a_line():
    X, y, _ = data(2)
    model = bigsvm.SVC(gamma=0.5).fit(X, y).model_
    n = len(model.support)
    assert repr(model) == (
        f"<KernelExpansion c-svc: RBF(gamma=0.5), {n} support vectors, 4 columns, "
        "2 classes (10, 11)>"
    )
    X, y, _ = data(26)
    assert repr(bigsvm.SVC().fit(X, y).model_).endswith(
        "4 columns, 26 classes (10, 11, 12, 13, 14, 15, …)>"
    )
    assert repr(bigsvm.OneClassSVM().fit(X).model_).endswith("4 columns>")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_rows_that_are_not_finite_are_refused(value):
    X, y, rows = data(2)
    model = bigsvm.SVC(kernel="laplacian", gamma=0.1).fit(X, y).model_
    rows[7, 2] = value
    for given in (rows, sp.csr_array(rows)):
        with pytest.raises(DataError, match=rf"X has {value} in row 7, column 2"):
            model.decision_function(given)
    with pytest.raises(DataError, match="X has 1 dimensions"):
        model.decide(rows[0])
