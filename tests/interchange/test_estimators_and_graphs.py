import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import make_blobs, make_moons
from sklearn.exceptions import NotFittedError

import bigsvm
from bigsvm.data.sources import as_row_source
from bigsvm.errors import ModelError
from bigsvm.interchange.onnx_model import to_onnx
from bigsvm.interchange.sklearn_estimator import to_scikit_learn

from .kinds import KINDS


@pytest.fixture(scope="module")
def moons():
    X, y = make_moons(200, noise=0.3, random_state=0)
    return X, np.where(y == 1, 7, 3)


def test_an_estimator_is_as_good_as_its_model(moons):
    X, y = moons
    fitted = bigsvm.SVC(gamma=0.7).fit(X, y)
    one, other = to_scikit_learn(fitted), to_scikit_learn(fitted.model_)
    np.testing.assert_array_equal(one.decision_function(X), other.decision_function(X))
    with pytest.raises(NotFittedError):
        to_scikit_learn(bigsvm.SVC())


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("estimator", KINDS, ids=str)
def test_scikit_learn_predicts_the_same(estimator, form, moons):
    X, y = moons
    fitted = estimator.fit(form(X), y)
    exported = to_scikit_learn(fitted.model_)
    np.testing.assert_allclose(exported.predict(form(X)), fitted.predict(form(X)), rtol=1e-9)
    if hasattr(exported, "decision_function"):
        np.testing.assert_allclose(
            exported.decision_function(form(X)), fitted.decision_function(form(X)), atol=1e-9
        )


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
def test_the_graph_has_the_probabilities_of_a_sigmoid(method, moons):
    reference = pytest.importorskip("onnx.reference")
    X, y = moons
    fitted = bigsvm.SVC(calibration=method).fit(X, y)
    graph = reference.ReferenceEvaluator(to_onnx(fitted.model_))
    assert ("probabilities" in graph.output_names) == (method == "sigmoid")
    if method == "sigmoid":
        [found] = graph.run(["probabilities"], {"X": X})
        np.testing.assert_allclose(found, fitted.predict_proba(X), atol=1e-9)


@pytest.mark.parametrize(
    "estimator",
    [
        bigsvm.CrammerSingerSVC(calibration="sigmoid"),
        bigsvm.SVC(calibration="sigmoid", multiclass="ovr"),
    ],
)
def test_the_graph_has_a_softmax_of_many_classes(estimator):
    reference = pytest.importorskip("onnx.reference")
    X, y = make_blobs(90, centers=3, cluster_std=3.0, random_state=0)
    fitted = estimator.fit(X, y)
    graph = reference.ReferenceEvaluator(to_onnx(fitted))
    [found] = graph.run(["probabilities"], {"X": X})
    np.testing.assert_allclose(found, fitted.predict_proba(X), atol=1e-9)


def test_the_graph_has_no_marks_and_no_noise():
    pytest.importorskip("onnx")
    X = np.random.default_rng(0).normal(size=(200, 2))
    for estimator in (
        bigsvm.OneClassSVM(nu=0.3, calibration="density"),
        bigsvm.SVR(calibration="laplace"),
    ):
        graph = to_onnx(estimator.fit(X, X[:, 0]))
        assert [output.name for output in graph.graph.output if "prob" in output.name] == []


@pytest.mark.parametrize("labels", [(3, 7), ("a", "b")])
@pytest.mark.parametrize("estimator", KINDS, ids=str)
def test_the_graph_predicts_the_same(estimator, labels, moons):
    reference = pytest.importorskip("onnx.reference")
    X, y = moons
    if hasattr(estimator, "epsilon") or isinstance(estimator, bigsvm.NuSVR):
        target = y.astype(float)
    else:
        target = np.where(y == 7, labels[1], labels[0])
    fitted = estimator.fit(X, target)
    graph = reference.ReferenceEvaluator(to_onnx(fitted.model_))
    outputs = dict(zip(graph.output_names, graph.run(None, {"X": X}), strict=True))
    np.testing.assert_allclose(
        outputs["values"], fitted.model_.decision_function(as_row_source(X)), atol=1e-9
    )
    assert ("label" in outputs) == hasattr(fitted, "decision_function")
    if "label" in outputs:
        np.testing.assert_array_equal(outputs["label"], fitted.predict(X))


@pytest.mark.parametrize(("large", "fits"), [(2**70, True), (1e300, True), (2**70 + 1, False)])
def test_labels_beyond_64_bits_are_float64_in_a_graph_or_refused(large, fits):
    pytest.importorskip("onnx")
    X = np.repeat(np.eye(2), 5, axis=0)
    names = np.array([large, 5], object if isinstance(large, int) else None)
    model = bigsvm.SVC().fit(da.from_array(X), np.repeat(names, 5)).model_
    if fits:
        assert large in {float(name) for name in model.classes}
        to_onnx(model)
    else:
        with pytest.raises(ModelError, match=f"the label {large} fits neither int64 nor float64"):
            to_onnx(model)
