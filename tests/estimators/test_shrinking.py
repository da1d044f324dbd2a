"""Shrinking in the estimators, beside scikit-learn's LIBSVM; and a checkpoint that knows of it."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import svm as peers
from sklearn.datasets import make_moons

import bigsvm
from bigsvm.data.sources import as_row_source
from bigsvm.errors import CheckpointError
from bigsvm.fit.train import train_model
from bigsvm.papers.costs import TierDecision
from bigsvm.papers.shrinking import ShrinkingProblem
from bigsvm.parameters import TrainingParameters

CLASSES = make_moons(300, noise=0.3, random_state=0)
PAIRS = {
    "SVC": {"C": 20.0},
    "NuSVC": {"nu": 0.4},
    "OneClassSVM": {"nu": 0.303},
    "SVR": {"C": 20.0, "epsilon": 0.1},
    "NuSVR": {"C": 5.0, "nu": 0.403},
}


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """Look for settled rows so often that small problems have some."""
    monkeypatch.setattr("bigsvm.papers.shrinking.PERIOD", 20)


def data_of(name):
    X, y = CLASSES
    if name == "OneClassSVM":
        return (X,)
    return (X, np.sin(3 * X[:, 0]) + 0.3 * X[:, 1] + 0.2 * y if "SVR" in name else y)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", PAIRS)
def test_the_model_is_that_of_libsvm(name, sparse):
    X, *y = data_of(name)
    options = {**PAIRS[name], "gamma": 0.7, "tol": 1e-6}
    rows = sp.csr_array(X) if sparse else X
    ours = getattr(bigsvm, name)(working_set="all", shrinking=True, n_jobs=1, **options)
    ours.fit(rows, *y)
    assert ours.stop_reason_ == "converged"
    theirs = getattr(peers, name)(**options).fit(X, *y)
    values = [
        model.predict(X) if "SVR" in name else model.decision_function(X)
        for model in (ours, theirs)
    ]
    np.testing.assert_allclose(values[0], values[1], atol=2e-4 * np.abs(values[1]).max())


@pytest.mark.parametrize("kind", [bigsvm.L2SVC, bigsvm.L2OneClassSVM])
def test_balls_shrink_too(kind):
    X, y = CLASSES
    shrunk, whole = (
        kind(C=5.0, gamma=0.7, tol=1e-6, working_set="all", shrinking=shrinking, n_jobs=1).fit(
            X, *([] if kind is bigsvm.L2OneClassSVM else [y])
        )
        for shrinking in (True, False)
    )
    assert shrunk.stop_reason_ == whole.stop_reason_ == "converged"
    assert shrunk.objective_ == pytest.approx(whole.objective_, rel=1e-6)


def test_pairs_of_classes_shrink():
    X, _ = CLASSES
    y = np.digitize(X[:, 0], [-0.3, 0.6])
    shrunk, whole = (
        bigsvm.SVC(C=20.0, gamma=0.7, tol=1e-6, working_set="all", shrinking=shrinking).fit(X, y)
        for shrinking in (True, False)
    )
    np.testing.assert_allclose(shrunk.decision_function(X), whole.decision_function(X), atol=1e-3)


def test_a_run_with_shrinking_is_not_resumed_without(tmp_path):
    X, y = CLASSES
    options = {"C": 20.0, "working_set": "all", "checkpoint": tmp_path / "run"}
    bigsvm.SVC(shrinking=True, **options).fit(X, y)
    with pytest.raises(CheckpointError, match="shrinking"):
        bigsvm.SVC(shrinking=False, **options).fit(X, y)


def test_shrinking_is_on_by_default_where_few_kernel_rows_fit(monkeypatch, tmp_path):
    """Below a tenth of them, not above, and not beside rows that are kept on disk."""
    made = []

    class Noted(ShrinkingProblem):
        def __init__(self, *given, **options):
            made.append(self)
            super().__init__(*given, **options)

    monkeypatch.setattr("bigsvm.papers.whole.ShrinkingProblem", Noted)
    X, y = CLASSES

    def shrinks(**options):
        made.clear()
        parameters = TrainingParameters(C=20.0, gamma=0.7, working_set="all", threads=1, **options)
        train_model(as_row_source(X.astype(np.float32)), y, None, parameters)
        return bool(made)

    assert shrinks(kernel_rows=29)
    assert not shrinks(kernel_rows=31)
    assert shrinks(kernel_rows=31, shrinking=True)
    assert not shrinks(kernel_rows=29, shrinking=False)
    on_disk = {"disk_cache": "9MB", "cache_dir": str(tmp_path)}
    assert shrinks(kernel_rows=29, **on_disk)  # rows so cheap are not kept
    monkeypatch.setattr("bigsvm.papers.disk.decide", lambda **_: TierDecision(True, "kept"))
    assert not shrinks(kernel_rows=29, **on_disk)
