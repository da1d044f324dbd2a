"""Limits, callbacks and progress of an estimator are those of each fit of a selection."""

import inspect

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning

import bigsvm
from bigsvm.callbacks import Callback, CheckpointCallback, EarlyStopping
from bigsvm.errors import ParameterError
from bigsvm.training import events

X, Y = make_classification(240, 6, flip_y=0.2, random_state=1)
GRID = {"C": [0.1, 1.0], "gamma": [0.1, 1.0]}


class Counts(Callback):
    """Counts fits, and their sweeps; also by scikit-learn's protocol."""

    def __init__(self):
        self.began, self.ended, self.sweeps, self.set_up = 0, 0, [], 0

    def setup(self, estimator, context):
        self.set_up += 1

    def teardown(self, estimator, context):
        self.set_up -= 1

    def on_fit_task_begin(self, estimator, context):
        self.began += context.task_name == "fit"

    def on_fit_task_end(self, estimator, context):
        self.ended += context.task_name == "fit"
        return False

    def listener(self, estimator):
        self.sweeps.append(0)

        def listen(event):
            self.sweeps[-1] += isinstance(event, events.Swept)

        return listen


def test_limits_are_of_each_fit():
    free = bigsvm.cross_validate(bigsvm.SVC(), X, Y, cv=3)["certificate"]
    steps = [certificate["n_iter"] for certificate in free]
    limit = max(steps) + 1
    assert limit < sum(steps)
    made = bigsvm.cross_validate(bigsvm.SVC(max_iter=limit), X, Y, cv=3)["certificate"]
    assert [one["n_iter"] for one in made] == steps, "none was ended, though all took more"
    with pytest.warns(ConvergenceWarning, match="in 3 of 3 fits"):
        made = bigsvm.cross_validate(bigsvm.SVC(gamma=0.1, max_time=1e-6), X, Y, cv=3)[
            "certificate"
        ]
    assert [one["stop_reason"] for one in made] == ["time_limit"] * 3
    for function in (bigsvm.cross_validate, bigsvm.SearchCV):
        assert "`max_time` and `max_iter` limit each fit" in inspect.getdoc(function)


@pytest.mark.skipif(
    not hasattr(bigsvm.SVC(), "_init_callback_context"), reason="callbacks need scikit-learn 1.9"
)
class TestCallbacks:
    def test_they_are_called_for_each_fit(self):
        counts = Counts()
        bigsvm.cross_validate(bigsvm.SVC().set_callbacks(counts), X, Y, cv=3)
        assert (counts.began, counts.ended, counts.set_up) == (3, 3, 0)
        assert len(counts.sweeps) == 3
        assert min(counts.sweeps) > 0
        counts = Counts()
        estimator = bigsvm.SVC().set_callbacks(counts)
        bigsvm.SearchCV(estimator, GRID, cv=2, refit=False).fit(X, Y)
        assert counts.began == counts.ended == len(counts.sweeps) == 8

    def test_they_may_end_a_fit_and_the_others_go_on(self):
        estimator = bigsvm.SVC(C=1000, gamma=10, working_set="all", tol=1e-9)
        estimator.set_callbacks(EarlyStopping(seconds=1e-6))
        with pytest.warns(ConvergenceWarning, match="in 3 of 3 fits"):
            made = bigsvm.cross_validate(estimator, X, Y, cv=3)
        assert [one["stop_reason"] for one in made["certificate"]] == ["callback"] * 3
        assert np.isfinite(made["test_score"]).all()

    def test_a_checkpoint_callback_is_refused(self, tmp_path):
        estimator = bigsvm.SVC().set_callbacks(CheckpointCallback(tmp_path))
        for select in (
            lambda: bigsvm.cross_validate(estimator, X, Y),
            lambda: bigsvm.SearchCV(estimator, GRID).fit(X, Y),
        ):
            with pytest.raises(ParameterError, match="give checkpoint beside the estimator"):
                select()


def test_progress_of_each_fit_is_shown(capsys):
    bigsvm.cross_validate(bigsvm.SVC(verbose=1), X, Y, cv=3)
    assert capsys.readouterr().err.count("sweep 1: gap") == 3
