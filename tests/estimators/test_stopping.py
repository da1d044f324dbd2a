"""Ctrl-C during `fit`: the run ends in order, and the estimator has its model so far."""

import itertools
import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest
from support import processes
from support.problems import clouds

import bigsvm
from bigsvm.one_vs_one import small as small_pairs
from bigsvm.training import run as training_run
from bigsvm.training import saving
from bigsvm.training.generations import newest_manifest

STOPPED = [
    ("two", bigsvm.SVC(C=50), 2),
    ("many", bigsvm.SVC(C=50), 3),
    ("many", bigsvm.SVC(C=50, multiclass="ovr"), 2),
    ("many", bigsvm.CrammerSingerSVC(C=5), 2),
    ("two", bigsvm.L2SVC(C=50), 2),
]
"""Two classes or many, an estimator, and the look at which it is interrupted."""


def fit_and_be_interrupted(folder, classes, machine, times, moment):
    """Fit in a process of its own, which sends itself SIGINT between two slices of work."""
    small_pairs.MOST_ROWS = 0
    X, y = clouds(n=900, k=3, d=4, spread=0.7)
    kind, name = (training_run.Run, "pause") if folder is None else (saving.Saver, "is_due")
    asked, looked = itertools.count(1), getattr(kind, name)

    def interrupt(self):
        if next(asked) == moment:
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGINT)
        return looked(self)

    setattr(kind, name, interrupt)
    X, y = X.astype(np.float32), y if classes == "many" else y > 0
    machine.set_params(checkpoint=folder, n_jobs=2, memory="50MB")
    with pytest.raises(KeyboardInterrupt):
        machine.fit(X, y)
    assert hasattr(machine, "model_") == (times == 1)
    if times == 1:
        assert not machine.converged_
        assert machine.stop_reason_ == "interrupted"
        if machine.model_.rule != "ovo":
            assert len(machine.history_["sweep"]) == machine.certificate_["n_sweeps"]
        assert set(machine.predict(X)) <= set(y)
        assert machine.decision_function(X[:5]).shape[0] == 5
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.fault("half-models")
@pytest.mark.parametrize(("classes", "machine", "moment"), STOPPED, ids=str)
def test_ctrl_c_saves_the_run_and_leaves_a_model(tmp_path, classes, machine, moment):
    assert processes.run(fit_and_be_interrupted, tmp_path, classes, machine, 1, moment) == 0
    values = newest_manifest(tmp_path)["values"]
    assert values["n_iter"] > 0 or values.get("n_finished") or values["rows_drawn"]


@pytest.mark.usefixtures("own_solver")  # LIBSVM is not interrupted
@pytest.mark.fault("half-models")
@pytest.mark.parametrize(("classes", "machine", "moment"), STOPPED, ids=str)
def test_ctrl_c_without_a_checkpoint_leaves_a_model_too(classes, machine, moment):
    assert processes.run(fit_and_be_interrupted, None, classes, machine, 1, moment) == 0


@pytest.mark.fault("half-models")
def test_a_second_ctrl_c_ends_it_at_once(tmp_path):
    machine = bigsvm.SVC(C=50)
    assert processes.run(fit_and_be_interrupted, tmp_path, "two", machine, 2, 2) == 0
    assert newest_manifest(tmp_path) is None


def data():
    rng = np.random.default_rng(0)
    return rng.standard_normal((60, 2)), rng.integers(0, 2, 60)


def test_existing_signal_handlers_are_kept(tmp_path):
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        ours = signal.getsignal(signal.SIGINT)
        bigsvm.SVC(checkpoint=str(tmp_path)).fit(*data())
        assert signal.getsignal(signal.SIGINT) is ours
    finally:
        signal.signal(signal.SIGINT, before)


def test_signals_are_not_handled_outside_the_main_thread(tmp_path):
    fitted = []
    thread = threading.Thread(
        target=lambda: fitted.append(bigsvm.SVC(checkpoint=str(tmp_path)).fit(*data()))
    )
    thread.start()
    thread.join()
    assert fitted[0].converged_
    assert list(Path(tmp_path).glob("generation-*"))
