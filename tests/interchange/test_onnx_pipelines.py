"""Pipelines that end in our estimators, converted by skl2onnx."""

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.datasets import make_blobs
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

import bigsvm
from bigsvm.errors import ModelError

reference = pytest.importorskip("onnx.reference")
skl2onnx = pytest.importorskip("skl2onnx")

X, Y = make_blobs(120, 4, centers=3, random_state=0)
X *= [1, 10, 100, 1]
KINDS = {
    "two": (bigsvm.SVC(gamma=0.1), Y > 0),
    "three": (bigsvm.SVC(gamma=0.1), Y),
    "words": (bigsvm.SVC(kernel="poly"), np.array(["a", "b", "c"])[Y]),
    "probabilities": (bigsvm.SVC(kernel="linear", calibration="sigmoid"), Y > 0),
    "together": (bigsvm.CrammerSingerSVC(), Y),
    "outliers": (bigsvm.OneClassSVM(nu=0.2), None),
    "regression": (bigsvm.SVR(C=10), X[:, 0]),
}


def outputs_of(graph, rows):
    found = reference.ReferenceEvaluator(graph).run(None, {"X": rows})
    return dict(zip((output.name for output in graph.graph.output), found, strict=True))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", KINDS)
def test_a_pipeline_predicts_as_its_graph(kind, dtype):
    estimator, y = KINDS[kind]
    pipeline = make_pipeline(StandardScaler(), estimator).fit(X, y)
    rows = X.astype(dtype)
    found = outputs_of(skl2onnx.to_onnx(pipeline, rows[:1]), rows)
    atol = 1e-9 if dtype is np.float64 else 1e-4
    if kind == "regression":
        np.testing.assert_allclose(found["values"], pipeline.predict(X), atol=atol)
        return
    agree = found["label"] == pipeline.predict(X)
    if kind in ("two", "outliers"):
        values = pipeline.decision_function(X)
        np.testing.assert_allclose(found["values"], values, atol=atol)
        agree |= np.abs(values) < atol
    assert agree.all()
    assert ("probabilities" in found) is (kind == "probabilities")
    if kind == "probabilities":
        expected = pipeline.predict_proba(X)
        np.testing.assert_allclose(found["probabilities"], expected, atol=atol)


def test_steps_may_be_of_some_columns():
    scale = ColumnTransformer([("a", StandardScaler(), [0, 1]), ("b", MinMaxScaler(), [2, 3])])
    pipeline = make_pipeline(scale, bigsvm.SVC()).fit(X, Y)
    found = outputs_of(skl2onnx.to_onnx(pipeline, X[:1]), X)
    assert (found["label"] == pipeline.predict(X)).all()


def test_an_estimator_alone():
    fitted = bigsvm.NuSVC(nu=0.1).fit(X, Y)
    found = outputs_of(skl2onnx.to_onnx(fitted, X[:1]), X)
    assert (found["label"] == fitted.predict(X)).all()


def test_what_has_no_graph_is_refused():
    pipeline = make_pipeline(StandardScaler(), bigsvm.SVC(kernel="laplacian")).fit(X, Y)
    with pytest.raises(ModelError, match="the kernel laplacian cannot be written as ONNX"):
        skl2onnx.to_onnx(pipeline, X[:1])
    pipeline = make_pipeline(StandardScaler(), bigsvm.SVC()).fit(X, Y)
    with pytest.raises(ModelError, match=r"target_opset is 12, .* takes 13 at least; raise it"):
        skl2onnx.to_onnx(pipeline, X[:1], target_opset=12)
