"""Callbacks: scikit-learn's protocol, `EarlyStopping` and `CheckpointCallback`."""

import os
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from support.problems import blobs, clouds

import bigsvm
from bigsvm.callbacks import Callback, CheckpointCallback, EarlyStopping
from bigsvm.errors import ParameterError
from bigsvm.estimators import no_callbacks
from bigsvm.training import events

sklearn_callback = pytest.importorskip("sklearn.callback", reason="scikit-learn is older than 1.9")

X, Y = blobs(n=900)
HARD = bigsvm.SVC(C=1, gamma=0.5, memory="1MB", n_jobs=1)
"""Takes several sweeps."""


class Telling:
    """A callback of scikit-learn's protocol that keeps what it is told."""

    def __init__(self, stops_at=None):
        self.told, self.stops_at = [], stops_at

    def setup(self, estimator, context):
        self.told.append("setup")

    def teardown(self, estimator, context):
        self.told.append("teardown")

    def on_fit_task_begin(self, estimator, context, *, X=None, y=None):
        self.told.append(("begin", context.task_name, context.task_id, X is not None))

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        self.told.append(("end", context.task_name, context.task_id, fitted_estimator is not None))
        return context.task_id == self.stops_at and context.parent is not None


def stopped(machine, X=X, y=Y):
    """Fit a machine that a callback ends; its warning."""
    with pytest.warns(ConvergenceWarning, match="a callback ended it, as ") as warned:
        machine.fit(X, y)
    assert warned[0].filename == __file__
    assert not machine.converged_
    assert machine.stop_reason_ == "callback"
    assert set(machine.predict(X)) <= set(y)
    return str(warned[0].message)


def test_scikit_learn_is_told_of_the_fit_and_of_each_sweep():
    telling = Telling()
    machine = clone(HARD).set_callbacks(telling).fit(X, Y)
    n_sweeps = machine.certificate_["n_sweeps"]
    assert n_sweeps > 1
    sweeps = [
        (when, "sweep", i, False) for i in range(n_sweeps) for when in ("begin", "end")
    ]  # fmt: skip
    assert telling.told == [
        "setup", ("begin", "fit", 0, True), *sweeps, ("end", "fit", 0, True), "teardown",
    ]  # fmt: skip


def test_scikit_learn_is_told_of_class_pairs():
    telling = Telling()
    rows, y = clouds(k=4)
    bigsvm.SVC().set_callbacks(telling).fit(rows, y)
    assert ("end", "sweep", 0, False) in telling.told
    assert telling.told[-1] == "teardown"


def test_a_callback_of_scikit_learn_ends_a_fit():
    machine = clone(HARD).set_callbacks(Telling(stops_at=0))
    assert "a callback asked for the end" in stopped(machine)
    assert machine.history_["sweep"].tolist() == [1]


def test_a_fit_that_fails_tears_callbacks_down():
    telling = Telling()
    with pytest.raises(ValueError, match="NaN"):
        bigsvm.SVC().set_callbacks(telling).fit(np.full((4, 2), np.nan), [0, 1, 0, 1])
    assert telling.told[-1] == "teardown"


@pytest.mark.parametrize("n_jobs", [None, pytest.param(2, marks=pytest.mark.slow)])
def test_a_search_shows_its_progress_without_a_warning(capsys, n_jobs):
    pipeline = make_pipeline(StandardScaler(), bigsvm.SVC())
    for estimator, grid in ((bigsvm.SVC(), "C"), (pipeline, "svc__C")):
        search = GridSearchCV(estimator, {grid: [0.1, 1.0]}, cv=2, n_jobs=n_jobs)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            search.set_callbacks(sklearn_callback.ProgressBar(max_propagation_depth=None))
            search.fit(X[:200], Y[:200])
        assert "SVC - fit" in capsys.readouterr().out


def test_the_score_of_the_fitted_estimator_is_monitored():
    monitor = sklearn_callback.ScoringMonitor(scoring="accuracy")
    machine = bigsvm.SVC().set_callbacks(monitor).fit(X, Y)
    assert [row["accuracy"] for row in monitor.get_logs().data] == [machine.score(X, Y)]


@pytest.mark.usefixtures("own_solver")
def test_early_stopping_by_the_gap():
    machine = clone(HARD)
    gaps = machine.fit(X, Y).history_["gap"]
    enough = gaps[1]
    assert len(gaps) > 2
    machine.set_callbacks(EarlyStopping(gap=enough))
    said = stopped(machine)
    assert f"the gap is {machine.history_['gap'][-1]:.3g}, at most {enough:g}" in said
    assert machine.certificate_["stopped_by"] in said
    assert (machine.history_["gap"][:-1] > enough).all()
    assert machine.history_["gap"][-1] <= enough


def test_early_stopping_by_the_objective():
    machine = clone(HARD).set_callbacks(EarlyStopping(improvement=0.5))
    assert "a sweep raised the objective by" in stopped(machine)
    assert machine.history_["sweep"].tolist() == [1, 2]


@pytest.mark.parametrize("multiclass", ["ovo", "ovr"])
def test_early_stopping_by_time(multiclass):
    rows, y = clouds(n=900, k=3, d=4, spread=0.7)
    machine = bigsvm.SVC(C=50, multiclass=multiclass).set_callbacks(EarlyStopping(seconds=1e-9))
    assert "training has taken" in stopped(machine, rows, y)


def test_a_fit_that_converges_first_is_not_stopped():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        machine = bigsvm.SVC(calibration="sigmoid")
        machine.set_callbacks(EarlyStopping(gap=10.0, improvement=10.0)).fit(X, Y)
    assert machine.history_["sweep"].tolist() == [1]
    assert machine.converged_
    assert machine.predict_proba(X).shape == (len(X), 2)


def test_a_stopped_model_is_saved_and_loaded(tmp_path):
    machine = clone(HARD).set_callbacks(EarlyStopping(improvement=0.5))
    stopped(machine)
    machine.model_.save(tmp_path / "model")
    loaded = bigsvm.KernelExpansion.load(tmp_path / "model")
    assert loaded.certificate["stop_reason"] == "callback"
    assert loaded.certificate["stopped_by"] == machine.certificate_["stopped_by"]


@pytest.mark.parametrize("given", [{}, {"gap": 0}, {"seconds": "1h"}, {"improvement": np.inf}])
def test_early_stopping_without_a_limit_is_refused(given):
    with pytest.raises(ParameterError, match="EarlyStopping"):
        EarlyStopping(**given)


def test_limits_of_sweeps_are_refused_where_there_are_none():
    early = EarlyStopping(gap=0.1)
    with pytest.raises(ParameterError, match="certify=False makes none; give seconds"):
        bigsvm.L2SVC(certify=False).set_callbacks(early).fit(X, Y)
    rows, y = clouds(k=3)
    with pytest.raises(ParameterError, match="class pairs are trained each on its own"):
        bigsvm.SVC().set_callbacks(early).fit(rows, y)


def test_each_fit_of_a_search_has_a_checkpoint(tmp_path):
    machine = bigsvm.SVC(gamma=0.5).set_callbacks(CheckpointCallback(tmp_path))
    search = GridSearchCV(machine, {"C": [0.1, 1.0]}, cv=2).fit(X, Y)
    assert len(os.listdir(tmp_path)) == 5
    again = GridSearchCV(machine, {"C": [0.1, 1.0]}, cv=2).fit(X, Y)
    assert len(os.listdir(tmp_path)) == 5
    assert again.best_estimator_.n_iter_ == search.best_estimator_.n_iter_
    np.testing.assert_array_equal(
        again.cv_results_["mean_test_score"], search.cv_results_["mean_test_score"]
    )
    cross_val_score(machine, X, Y, cv=3)
    assert len(os.listdir(tmp_path)) == 8


def test_a_search_that_was_interrupted_goes_on(tmp_path):
    """The fit that was interrupted goes on from its sweep; those before it are read."""
    keeper = CheckpointCallback(tmp_path)
    stopped(clone(HARD).set_callbacks(keeper, EarlyStopping(improvement=0.5)))
    machine = clone(HARD).set_callbacks(keeper).fit(X, Y)
    assert machine.history_["sweep"][0] > 1
    assert machine.converged_


@pytest.mark.parametrize("name", ["checkpoint", "checkpoint_copy"])
def test_two_places_for_a_checkpoint_are_refused(tmp_path, name):
    machine = bigsvm.SVC(**{name: "memory://run"}).set_callbacks(CheckpointCallback(tmp_path))
    with pytest.raises(ParameterError, match=f"{name} is 'memory://run' beside a CheckpointCall"):
        machine.fit(X, Y)
    keepers = CheckpointCallback(tmp_path), CheckpointCallback(tmp_path)
    with pytest.raises(ParameterError, match="2 CheckpointCallbacks are set; set one"):
        bigsvm.SVC().set_callbacks(*keepers).fit(X, Y)


def test_a_callback_of_ones_own_takes_events():
    seen = []

    class Seeing(Callback):
        def listener(self, estimator):
            seen.append(estimator)
            return seen.append

    machine = bigsvm.SVC().set_callbacks(Seeing()).fit(X, Y)
    assert seen[0] is machine
    assert isinstance(seen[1], events.Planned)
    assert any(isinstance(event, events.Swept) for event in seen)


def test_without_callbacks_in_scikit_learn_they_are_refused(monkeypatch):
    with pytest.raises(ParameterError, match=r"callbacks need scikit-learn 1\.9, and this is"):
        no_callbacks.CallbackSupportMixin().set_callbacks(EarlyStopping(seconds=1.0))
    task = no_callbacks.CallbackSupportMixin()._init_callback_context(max_subtasks=None)
    monkeypatch.setattr(
        bigsvm.SVC, "_init_callback_context", lambda self, max_subtasks: task
    )  # fmt: skip
    assert bigsvm.SVC().fit(X, Y).converged_
