"""Folds that are trained in one run have the scores of folds that are trained by themselves."""

import logging
import random
import signal
import time

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.model_selection import StratifiedKFold
from support import processes
from support.resuming import newest_file

import bigsvm
from bigsvm.data.sources import as_row_source
from bigsvm.errors import CheckpointError, MemoryBudgetError
from bigsvm.fit.folds_in_one_run import train_together
from bigsvm.selection import lines
from bigsvm.selection.fits import FoldFits
from bigsvm.selection.points import Line
from bigsvm.selection.steps import Steps
from bigsvm.training.events import Hooks

X, Y = make_classification(240, 6, flip_y=0.1, random_state=1)
TARGETS = X[:, 0] * X[:, 1] + 0.1 * X[:, 2]
WEIGHTS = np.random.default_rng(0).choice([0.0, 0.5, 1.0, 2.0], 240)
GROUPS = np.arange(240) // 8
ESTIMATORS = {
    "svc": bigsvm.SVC(gamma=0.1, class_weight="balanced"),
    "squared hinge": bigsvm.SVC(gamma=0.1, loss="squared_hinge"),
    "linear": bigsvm.SVC(kernel="linear"),
    "nu-svc": bigsvm.NuSVC(gamma=0.1, nu=0.3),
    "svr": bigsvm.SVR(gamma=0.1, epsilon=0.05),
    "nu-svr": bigsvm.NuSVR(gamma=0.1),
    "one class": bigsvm.OneClassSVM(gamma=0.1, nu=0.3),
}


@pytest.fixture
def together_always(monkeypatch):
    """Folds of a single point are trained in one run too."""
    monkeypatch.setattr(lines, "is_worthwhile", lambda *_: True)


@pytest.fixture
def alone(monkeypatch):
    """Lets folds be trained by themselves from now on."""
    return lambda: monkeypatch.setattr(lines, "why_apart", lambda *_: "a test asks for it")


@pytest.mark.usefixtures("together_always")
@pytest.mark.parametrize("name", ESTIMATORS)
def test_scores_and_certificates_are_those_of_separate_fits(name, alone, caplog):
    estimator = ESTIMATORS[name].set_params(tol=1e-6)
    y = TARGETS if name in ("svr", "nu-svr") else 2 * Y - 1
    options = {
        "cv": 3, "sample_weight": WEIGHTS, "groups": GROUPS, "return_train_score": True,
        "return_estimator": True, "scoring": "accuracy" if name == "one class" else None,
    }  # fmt: skip
    caplog.set_level(logging.DEBUG, "bigsvm.selection")
    found = bigsvm.cross_validate(estimator, X, y, **options)
    assert not caplog.records
    alone()
    expected = bigsvm.cross_validate(estimator, X, y, **options)
    assert "a test asks for it" in caplog.text
    for key in ("test_score", "train_score"):
        np.testing.assert_allclose(found[key], expected[key], atol=1e-5)
    for one, other in zip(found["estimator"], expected["estimator"], strict=True):
        scale = max(1.0, np.abs(other.intercept_).max())
        np.testing.assert_allclose(
            one.model_.decision_function(as_row_source(X)),
            other.model_.decision_function(as_row_source(X)),
            atol=1e-3 * scale,
        )
        assert one.converged_
        assert one.gap_ <= 1e-6
        assert one.objective_ == pytest.approx(other.objective_, rel=1e-5)
        assert one.history_["gap"][-1] == one.gap_
        assert one.memory == estimator.memory
        assert one.checkpoint is None


@pytest.mark.usefixtures("together_always")
def test_predictions_of_scores_are_those_of_the_estimators():
    seen = []

    def compare(estimator, rows, labels):
        seen.append(estimator.decision_function(rows))
        np.testing.assert_array_equal(
            estimator.predict(rows), estimator.classes_[(seen[-1] > 0).astype(int)]
        )
        return 0.0

    found = bigsvm.cross_validate(
        bigsvm.SVC(gamma=0.1), X, Y, cv=3, scoring=compare, return_estimator=True
    )
    assert len(seen) == 3
    tested = [test for _, test in StratifiedKFold(3).split(X, Y)]
    for fitted, rows, known in zip(found["estimator"], tested, seen, strict=True):
        np.testing.assert_allclose(known, fitted.decision_function(X[rows]), atol=1e-5)
        assert not np.array_equal(known, fitted.decision_function(X[rows])), "none was known"


@pytest.mark.parametrize(
    ("form", "memory", "n_points", "expected"),
    [
        ("array", "1GB", 1, False), ("array", "1GB", 2, True), ("store", "1GB", 1, False),
        ("store", "1GB", 2, True), ("store", 20_000, 1, True),
    ],
)  # fmt: skip
def test_one_run_is_worthwhile_if_points_or_passes_are_several(
    form, memory, n_points, expected, tmp_path
):
    rows = X if form == "array" else bigsvm.write_store(tmp_path / "x.zarr", X, Y)
    estimator = bigsvm.SVC(gamma=0.1, memory=memory)
    fits = FoldFits(
        Steps(estimator), rows, Y if form == "array" else None, None, cv=3, groups=None,
        y_order=None, scoring=None, hooks=Hooks(),
    )  # fmt: skip
    points = [{"C": 2.0**k} for k in range(n_points)]
    assert lines.trains_together(fits, Line(points, [0, 1, 2])) == expected
    assert not lines.trains_together(fits, Line(points, [0, 1]))


def test_a_point_of_another_problem_is_refused():
    source = as_row_source(X)
    folds = [np.where(np.arange(240) % 2 == k, 0.0, 1.0) for k in range(2)]
    estimator = bigsvm.SVC(gamma=0.1)
    hooks = Hooks()
    point = train_together(source, Y, folds, estimator._parameters(), hooks).point
    wrong = point._replace(known=point.known._replace(alpha=point.known.alpha[1:]))
    with pytest.raises(CheckpointError, match="has the shape"):
        train_together(source, Y, folds, estimator._parameters(), hooks, start=wrong)


def test_a_point_that_one_run_cannot_fit_is_fitted_fold_by_fold(monkeypatch):
    grid = {"C": [0.5, 1.0, 2.0]}
    search = bigsvm.SearchCV(bigsvm.SVC(gamma=0.1, tol=1e-5), grid, cv=3, refit=False)
    expected = search.fit(X, Y).cv_results_["mean_test_score"]

    def refused(*arguments, **options):
        if arguments[3].C == 1.0:
            raise MemoryBudgetError("too much")
        return train_together(*arguments, **options)

    monkeypatch.setattr(lines, "train_together", refused)
    found = search.fit(X, Y).cv_results_["mean_test_score"]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", ["svc", "linear", "svr"])
def test_folds_of_many_rows_are_scored_as_those_of_one_run(name, monkeypatch, caplog):
    predicted = []
    decide = bigsvm.models.KernelExpansion.decision_function

    def counted(self, rows, **options):
        predicted.append(rows.n_rows)
        return decide(self, rows, **options)

    estimator, y = ESTIMATORS[name].set_params(tol=1e-6), TARGETS if name == "svr" else 2 * Y - 1
    search = bigsvm.SearchCV(
        estimator, {"C": [0.5, 2.0, 8.0]}, cv=3, refit=False, return_train_score=True
    )
    expected = search.fit(X, y, sample_weight=WEIGHTS).cv_results_
    monkeypatch.setattr(lines, "DIRECT_ROWS", 100)
    monkeypatch.setattr(bigsvm.models.KernelExpansion, "decision_function", counted)
    found = search.fit(X, y, sample_weight=WEIGHTS).cv_results_
    for key in ("mean_test_score", "std_test_score", "mean_train_score"):
        np.testing.assert_allclose(found[key], expected[key], atol=1e-5)
    assert max(predicted, default=0) <= 1  # advice looks at a row


def test_folds_of_a_sample_start_from_known_outputs(monkeypatch):
    grid = {"C": [0.5, 2.0, 8.0], "gamma": [0.1, 1.0, 3.0]}
    search = bigsvm.SearchCV(bigsvm.SVC(tol=1e-6), grid, cv=3, refit=False, halving=3)
    expected = search.fit(X, Y)
    monkeypatch.setattr(lines, "DIRECT_ROWS", 50)
    found = search.fit(X, Y)
    assert found.best_params_ == expected.best_params_
    np.testing.assert_allclose(
        found.cv_results_["mean_test_score"], expected.cv_results_["mean_test_score"], atol=1e-5
    )


def search(folder, results, direct_rows):
    """Search 4000 rows, and keep the table; saves every now and then."""
    lines.DIRECT_ROWS = direct_rows
    rows, labels = make_classification(4000, 6, flip_y=0.2, random_state=1)
    estimator = bigsvm.SVC(n_jobs=1, checkpoint_every=0.01)
    grid = {"C": [0.5, 2.0, 8.0, 32.0], "gamma": [0.1, 1.0]}
    search = bigsvm.SearchCV(estimator, grid, cv=3, refit=False, checkpoint=folder)
    table = search.fit(rows, labels).cv_results_
    kept = {name: table[name] for name in ("mean_test_score", "std_test_score", "n_iter")}
    np.savez(results, **kept)


@pytest.mark.slow
@pytest.mark.parametrize("direct_rows", [8192, 1000])
def test_search_that_is_killed_at_any_moment_has_the_same_table(direct_rows, tmp_path):
    whole = tmp_path / "whole", tmp_path / "whole.npz", direct_rows
    assert processes.run(search, *whole) == 0
    killed = tmp_path / "killed", tmp_path / "killed.npz", direct_rows
    rng, n_killed = random.Random(0), 0
    for _ in range(10):
        written = newest_file(tmp_path / "killed")
        process = processes.start(search, *killed)
        while process.is_alive() and newest_file(tmp_path / "killed") == written:
            time.sleep(0.002)
        if n_killed >= 3:  # the first ones at once: they have not ended
            time.sleep(rng.uniform(0, 0.3))
        process.kill()
        process.join()
        n_killed += process.exitcode == -signal.SIGKILL
    assert n_killed >= 3
    assert processes.run(search, *killed) == 0
    whole, killed = (np.load(tmp_path / f"{name}.npz") for name in ("whole", "killed"))
    for name in whole.files:
        np.testing.assert_array_equal(killed[name], whole[name], err_msg=name)
