"""Watching a `fit`: progress lines, the log, `history_`."""

import logging

import numba
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from support.problems import blobs, clouds

import bigsvm
from bigsvm.callbacks import Callback
from bigsvm.errors import ParameterError
from bigsvm.estimators.watching import MOST_OF_PAIRS, MOST_OF_SETS, History
from bigsvm.training import loop
from bigsvm.training.events import Solving, Swept
from bigsvm.training.result import StopReason
from bigsvm.training.run import Watch
from bigsvm.training.state import Stopped

X, Y = blobs(n=900)
SWEEPING = {
    "SVC": bigsvm.SVC(C=10), "NuSVC": bigsvm.NuSVC(nu=0.3), "L2SVC": bigsvm.L2SVC(C=10),
    "CrammerSingerSVC": bigsvm.CrammerSingerSVC(C=1), "SVR": bigsvm.SVR(epsilon=0.3),
    "NuSVR": bigsvm.NuSVR(nu=0.3), "OneClassSVM": bigsvm.OneClassSVM(nu=0.2),
    "L2OneClassSVM": bigsvm.L2OneClassSVM(C=10), "ovr": bigsvm.SVC(C=10, multiclass="ovr"),
}  # fmt: skip
"""An estimator of each formulation whose runs sweep over all rows."""


def target_of(name):
    """Labels of two classes, or of three where each is against the rest."""
    return np.digitize(X[:, 0], [-0.5, 0.5]) if name == "ovr" else Y


@pytest.mark.parametrize("name", SWEEPING)
def test_the_history_has_each_sweep_and_ends_at_the_certificate(name):
    machine = SWEEPING[name].fit(X, target_of(name))
    history, certificate = machine.history_, machine.certificate_
    assert history["sweep"].tolist() == list(range(1, certificate["n_sweeps"] + 1))
    assert history["objective"][-1] == machine.objective_
    assert history["gap"][-1] == machine.gap_
    assert history["n_support"][-1] == len(machine.support_)
    assert history["n_bounded"][-1] == certificate["n_bounded"]
    assert (np.diff(history["seconds"]) >= 0).all()
    assert 0 < history["seconds"][-1] <= certificate["seconds"]


@pytest.mark.parametrize("k", [2, 3])
def test_a_history_is_a_table(k):
    machine = bigsvm.SVC(C=10).fit(X, np.arange(len(X)) % k)
    for history in (machine.history_, machine.working_set_history_):
        table = pd.DataFrame(history)
        assert list(table) == list(history)
    assert len(pd.DataFrame(machine.history_)) >= 1


@pytest.mark.parametrize("name", SWEEPING)
def test_the_history_of_working_sets_has_the_objective_that_sweeps_find(name, monkeypatch):
    """It is added up step by step; a sweep computes it from the outputs of all rows."""
    monkeypatch.setattr(loop, "COUNT_EVERY", 0.0)
    swept = []

    class Sweeps(Callback):
        def listener(self, estimator):
            def listen(event):
                if isinstance(event, Solving):
                    swept[:] = [event]
                elif isinstance(event, Swept) and swept:
                    assert swept[0].objective == pytest.approx(event.objective, rel=1e-4)

            return listen

    machine = clone(SWEEPING[name]).set_callbacks(Sweeps()).fit(X, target_of(name))
    sets = machine.working_set_history_
    assert (np.diff(sets["working_set"]) > 0).all()
    assert (np.diff(sets["seconds"]) >= 0).all()
    assert len({len(column) for column in sets.values()}) == 1 <= len(sets["gap"])
    assert (sets["n_violating"] >= 0).any()
    assert (sets["gap"] >= 0).all()
    assert (np.diff(sets["objective"]) >= -1e-6 * abs(machine.objective_)).all()
    assert len(swept) == 1


def test_sets_that_are_solved_apart_have_the_objective_that_they_reach_together():
    """Each of them alone gains more, up to values above the optimum."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 20_000)
    crowd = (rng.normal(size=(len(y), 10)) + 0.35 * (2 * y - 1)[:, None]).astype(np.float32)
    machine = bigsvm.SVC(gamma=0.1, memory="20MB").fit(crowd, y)
    objective = machine.working_set_history_["objective"]
    assert (np.diff(objective) >= -1e-6 * machine.objective_).all()
    assert objective[-1] == pytest.approx(machine.objective_, rel=1e-6)


def test_a_fit_that_time_ends_before_a_sweep_has_a_history_and_an_estimate(monkeypatch):
    begun = []

    class Steps(Callback):
        def listener(self, estimator):
            return lambda event: begun.append(1) if isinstance(event, Solving) else None

    def check(watch):
        if begun:
            raise Stopped(StopReason.TIME_LIMIT)

    monkeypatch.setattr(Watch, "check", check)
    machine = bigsvm.SVC(C=1e4, gamma=5, max_time=600).set_callbacks(Steps())
    with pytest.warns(ConvergenceWarning):
        machine.fit(X, Y)
    assert (machine.stop_reason_, machine.certificate_["n_sweeps"]) == ("time_limit", 0)
    assert len(machine.history_["sweep"]) == 0
    sets = machine.working_set_history_
    assert sets["objective"][-1] > 0
    assert np.isnan(sets["best_gap"]).all()
    assert machine.certificate_["sampled_duality_gap"] > 0
    assert machine.duality_gap_ is None
    display = bigsvm.HistoryDisplay.from_estimator(machine)
    assert display.ax_.get_xlabel() == "working set"


def test_a_fit_without_a_support_vector_says_that_it_predicts_the_same():
    with pytest.warns(ConvergenceWarning, match="no support vectors yet"):
        machine = bigsvm.SVC(max_time=1e-9).fit(X, Y)
    assert len(set(machine.predict(X))) == 1
    assert machine.certificate_["sampled_duality_gap"] == pytest.approx(len(X))
    with pytest.raises(ParameterError, match=r"900 rows, not 800; add .* bigsvm\.append"):
        bigsvm.SVC(warm_start=True).fit(X, Y).fit(X[:800], Y[:800])


def test_of_very_many_working_sets_some_are_kept():
    history = History()
    for number in range(3 * MOST_OF_SETS):
        for gap in (2.0, 1.0):
            history(Solving(10, number, gap, working_set=number))
    sets = history.arrays()[1]
    assert MOST_OF_SETS / 2 <= len(sets["gap"]) <= MOST_OF_SETS
    assert (sets["gap"] == 1.0).all()
    assert sets["working_set"][-1] == 3 * MOST_OF_SETS - 1


def test_different_rows_are_told_where_equal_ones_are_merged(capsys, caplog):
    often, labels = np.repeat(X, 10, axis=0), np.repeat(Y, 10)
    with caplog.at_level(logging.INFO, logger="bigsvm"):
        machine = bigsvm.SVC(verbose=1).fit(often, labels)
    assert machine.certificate_["n_different"] == 900
    assert "\n9 000 rows, 900 different, 5 columns; " in "\n" + capsys.readouterr().err
    assert "9000 rows, 900 different: equal rows" in caplog.text
    assert bigsvm.SVC().fit(X, Y).certificate_["n_different"] is None


@pytest.mark.parametrize("n_classes", [4, 30])
def test_the_history_of_class_pairs_ends_at_the_certificate(n_classes):
    machine = bigsvm.SVC().fit(*clouds(n=900, k=n_classes))
    history, certificate = machine.history_, machine.certificate_
    n_pairs = n_classes * (n_classes - 1) // 2
    assert 0 < len(history["pairs"]) <= MOST_OF_PAIRS + 1
    assert (np.diff([0, *history["pairs"]]) > 0).all()
    assert history["pairs"][-1] == n_pairs
    assert history["objective"][-1] == pytest.approx(machine.objective_)
    assert history["gap"][-1] == machine.gap_
    assert history["n_bounded"][-1] == certificate["n_bounded"]
    assert 0 < history["seconds"][-1] <= certificate["seconds"]


@pytest.mark.parametrize("name", SWEEPING)
def test_progress_is_shown_if_asked_for(name, capsys):
    machine = SWEEPING[name]
    machine.fit(X, target_of(name))
    assert capsys.readouterr() == ("", "")
    machine.set_params(verbose=1).fit(X, target_of(name))
    machine.set_params(verbose=0)
    out, err = capsys.readouterr()
    assert out == ""
    assert "900 rows, 5 columns; working sets of up to" in err
    for sweep in machine.history_["sweep"]:
        assert f"\nsweep {sweep}: gap " in err


def test_a_person_is_told_that_functions_are_compiled(capsys):
    """Once, in the progress of the first fit on a machine."""

    class Compiling(Callback):
        def listener(self, estimator):
            return lambda event: numba.njit(lambda x: x + 1)(1) and None

    for verbose in (0, 1):
        bigsvm.SVC(verbose=verbose).set_callbacks(Compiling()).fit(X, Y)
        assert capsys.readouterr().err.count("compiling for this processor") == verbose


@pytest.mark.parametrize("name", SWEEPING)
def test_each_sweep_is_a_line_of_the_log(name, caplog):
    with caplog.at_level(logging.INFO, logger="bigsvm"):
        machine = SWEEPING[name].fit(X, target_of(name))
    lines = [record.getMessage() for record in caplog.records if record.name == "bigsvm"]
    swept = [line for line in lines if line.startswith("sweep ")]
    assert len(swept) == len(machine.history_["sweep"])
    assert f"{machine.gap_:.3g}" in swept[-1]
    assert f"{len(machine.support_)} support vectors" in swept[-1].replace("\u202f", "")


def test_nothing_is_logged_above_the_level_that_was_set(caplog):
    with caplog.at_level(logging.WARNING, logger="bigsvm"):
        bigsvm.SVC().fit(X, Y)
    assert not caplog.records


@pytest.mark.parametrize("verbose", [2, -1, "yes", None])
def test_another_verbosity_is_refused(verbose):
    with pytest.raises(ParameterError, match=r"verbose is .*; it must be "):
        bigsvm.SVC(verbose=verbose).fit(X, Y)
