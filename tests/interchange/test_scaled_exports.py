"""Models of scaled rows elsewhere: the scaling comes along, in a form that others apply."""

import errno
import itertools
import os
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from command_line import error_of, run_here, two_clouds
from sklearn.pipeline import Pipeline

import bigsvm
from bigsvm.data.scaler import METHODS, Scaler
from bigsvm.errors import ModelError
from bigsvm.interchange import read_libsvm_model, to_onnx, to_scikit_learn, write_libsvm_model
from bigsvm.interchange.libsvm_model import range_path

CONSTANT = 2


def fitted_on_scaled(folder, estimator, method, layout="dense"):
    """A model of rows in odd units, one of them constant in training, and other rows."""
    X, y = two_clouds(300)
    X = X.astype(np.float64) * [1e-3, 1, 7, 1e4, 0.5, 1e6] + [0, 5, 0, 0, 0, 1e6]
    if layout == "sparse":
        X[np.abs(X) < 0.4 * X.std(axis=0)] = 0
    X[:200, CONSTANT] = 3
    store = bigsvm.write_store(folder / "s", X[:200], y[:200], layout=layout)
    bigsvm.scale_store(store, folder / "t", method=method)
    return estimator.fit(folder / "t"), X[200:]


CLASSIFIER = bigsvm.SVC(C=2, gamma=0.3)


@pytest.fixture(params=METHODS)
def scaled(request, tmp_path):
    return fitted_on_scaled(tmp_path, CLASSIFIER, request.param)


@pytest.mark.parametrize("estimator", [CLASSIFIER, bigsvm.SVR(), bigsvm.OneClassSVM(nu=0.2)])
@pytest.mark.parametrize("method", METHODS)
def test_scikit_learn_gets_a_pipeline(estimator, method, tmp_path):
    fitted, X = fitted_on_scaled(tmp_path, estimator, method)
    exported = to_scikit_learn(fitted.model_)
    assert isinstance(exported, Pipeline)
    np.testing.assert_allclose(exported.predict(X), fitted.predict(X), rtol=1e-9)
    if estimator is CLASSIFIER:
        values = exported.decision_function(X)
        np.testing.assert_allclose(values, fitted.decision_function(X), atol=1e-9)


def test_scikit_learns_pipeline_keeps_sparse_rows_sparse(tmp_path):
    fitted, X = fitted_on_scaled(tmp_path, CLASSIFIER, "maxabs", "sparse")
    rows = sp.csr_matrix(X)
    exported = to_scikit_learn(fitted.model_)
    assert sp.issparse(exported[0].transform(rows))
    np.testing.assert_allclose(
        exported.decision_function(rows), fitted.decision_function(rows), atol=1e-9
    )


def test_the_graph_scales_by_itself(scaled):
    reference = pytest.importorskip("onnx.reference")
    fitted, X = scaled
    graph = reference.ReferenceEvaluator(to_onnx(fitted.model_))
    labels, values = graph.run(None, {"X": X})
    np.testing.assert_allclose(values, fitted.decision_function(X), atol=1e-9)
    np.testing.assert_array_equal(labels, fitted.predict(X))


def svm_scale(range_file, X, first_index=1):
    """What ``svm-scale -r`` makes of rows: LIBSVM's ``restore`` and ``output``, as loops."""
    kind, limits, *lines = range_file.read_text().splitlines()
    assert kind == "x"
    lower, upper = map(float, limits.split())
    low, high = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    for line in lines:
        index, a, b = line.split()
        low[int(index) - first_index], high[int(index) - first_index] = float(a), float(b)
    out = np.zeros(X.shape)
    for row, values in enumerate(X):
        for j, value in enumerate(values):
            if low[j] == high[j]:
                continue
            if value == low[j]:
                out[row, j] = lower
            elif value == high[j]:
                out[row, j] = upper
            else:
                out[row, j] = lower + (upper - lower) * (value - low[j]) / (high[j] - low[j])
    return out


def test_libsvm_gets_a_range_file_that_scales_the_same(scaled, tmp_path):
    fitted, X = scaled
    write_libsvm_model(fitted.model_, tmp_path / "m")
    rows = svm_scale(tmp_path / "m.range", X)
    np.testing.assert_allclose(rows, fitted.model_.scaler.apply(X), rtol=1e-9, atol=1e-9)
    assert not rows[:, CONSTANT].any()
    model = read_libsvm_model(tmp_path / "m", n_features=6)
    for one, given in ((model, X), (replace(model, scaler=None), rows)):
        values = one.decision_function(given)
        np.testing.assert_allclose(values, fitted.decision_function(X), atol=1e-8)


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("fails", [1, 2])
def test_a_full_disk_leaves_model_and_range_as_they_were(tmp_path, monkeypatch, there, fails):
    """Not the range of one model beside another, whichever of the two does not fit."""
    old = fitted_on_scaled(tmp_path, CLASSIFIER, "minmax")[0].model_
    out = tmp_path / "out"
    out.mkdir()
    if there:
        write_libsvm_model(old, out / "m")
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    sync, count = os.fsync, itertools.count(1)

    def full(descriptor):
        if next(count) == fails:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    new = replace(old, scaler=Scaler("minmax", old.scaler.offset + 1, old.scaler.factor))
    with pytest.raises(ModelError, match=r"cannot write the model .* No space left"):
        write_libsvm_model(new, out / "m")
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


@pytest.mark.parametrize("to", ["libsvm", "onnx"])
def test_the_command_says_that_the_disk_is_full(scaled, tmp_path, monkeypatch, to):
    if to == "onnx":
        pytest.importorskip("onnx")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "out").mkdir()
    scaled[0].model_.save(tmp_path / "model")
    monkeypatch.setattr(os, "fsync", full)
    words = error_of("export", tmp_path / "model", tmp_path / "out" / "m", "--to", to)
    assert "No space left on device" in words
    assert not list((tmp_path / "out").iterdir())


def test_the_range_of_minmax_is_that_of_the_data(tmp_path):
    X = np.array([[2.0, 1], [6.0, 1], [3.0, 1]])
    bigsvm.scale_store(bigsvm.write_store(tmp_path / "s", X, [0, 1, 0]), tmp_path / "t")
    model = bigsvm.SVC().fit(tmp_path / "t").model_
    write_libsvm_model(model, tmp_path / "m")
    assert (tmp_path / "m.range").read_text() == "x\n-1 1\n1 2 6\n"
    assert range_path(tmp_path / "m") == tmp_path / "m.range"


def test_a_model_of_rows_as_they_were_gets_no_range_file(tmp_path):
    X, y = two_clouds(60)
    write_libsvm_model(bigsvm.SVC().fit(X, y).model_, tmp_path / "m")
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_a_scaler_that_no_range_expresses_is_refused(tmp_path):
    X, y = two_clouds(60)
    model = bigsvm.SVC().fit(X, y).model_
    offset = np.array([0, 0, 0, 1e20, 0, 0])
    object.__setattr__(model, "scaler", Scaler("standard", offset, np.ones(6)))
    with pytest.raises(ModelError, match=r"column 3 \(from 0\) was scaled by 1e\+20 and 1.0"):
        write_libsvm_model(model, tmp_path / "m")
    assert not list(tmp_path.iterdir())


def test_the_command_does_not_replace_a_file_that_is_no_range(scaled, tmp_path):
    scaled[0].model_.save(tmp_path / "model")
    (tmp_path / "out.range").write_text("somebody's")
    arguments = ("export", tmp_path / "model", tmp_path / "out", "--to", "libsvm")
    assert "out.range exists" in error_of(*arguments)
    assert not (tmp_path / "out").exists()
    (tmp_path / "out.range").unlink()
    run_here(*arguments)
    assert (tmp_path / "out.range").read_text().startswith("x\n-1 1\n1 ")


@pytest.mark.slow
def test_svm_predict_itself_agrees(scaled, tmp_path):
    svmutil = pytest.importorskip("libsvm.svmutil")
    fitted, X = scaled
    write_libsvm_model(fitted.model_, tmp_path / "m")
    theirs = svmutil.svm_load_model(str(tmp_path / "m"))
    rows = svm_scale(tmp_path / "m.range", X)
    predicted, _, _ = svmutil.svm_predict(
        [0.0] * len(X), [dict(enumerate(row, 1)) for row in rows], theirs, "-q"
    )
    np.testing.assert_array_equal(predicted, fitted.predict(X))


def test_a_graph_scales_rows_and_calibrates_values(tmp_path):
    reference = pytest.importorskip("onnx.reference")
    fitted, X = fitted_on_scaled(
        tmp_path, bigsvm.SVC(C=2, gamma=0.3, calibration="sigmoid"), "standard"
    )
    graph = reference.ReferenceEvaluator(to_onnx(fitted.model_))
    found = graph.run(["probabilities"], {"X": X})[0]
    np.testing.assert_allclose(found, fitted.predict_proba(X), atol=1e-9)
