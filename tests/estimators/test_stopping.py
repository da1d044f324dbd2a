"""Ctrl-C during `fit`: a run with a checkpoint is saved before it ends."""

import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import bigsvm
from bigsvm.training.checkpoint import newest_manifest

PROGRAM = """
import os, signal, sys
import numpy as np
import bigsvm
from bigsvm.training import decomposition, saving
from bigsvm.search import sampled as frank_wolfe
from bigsvm.one_vs_one import small as small_pairs
small_pairs.MOST_ROWS = 0
rng = np.random.default_rng(0)
y = rng.integers(0, 3, 900)
X = (rng.standard_normal((900, 4)) + 0.7 * rng.standard_normal((3, 4))[y]).astype(np.float32)
y = y if sys.argv[2] == "many" else y > 0
times, moment = int(sys.argv[4]), int(sys.argv[5])
asked, is_due = 0, saving.Saver.is_due
def interrupt(self):
    global asked
    asked += 1
    if asked == moment:
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
    return is_due(self)
saving.Saver.is_due = interrupt
machine = eval(f"bigsvm.{sys.argv[3]}").set_params(checkpoint=sys.argv[1], n_jobs=2, memory="50MB")
try:
    machine.fit(X, y)
except KeyboardInterrupt:
    print("interrupted", hasattr(machine, "model_"))
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
"""


def interrupted(folder, classes, machine, *, times=1, moment=2):
    """Fit in another process, which is sent SIGINT; what it says."""
    command = [
        sys.executable,
        "-c",
        PROGRAM,
        str(folder),
        classes,
        machine,
        str(times),
        str(moment),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    return ended.stdout.strip()


@pytest.mark.fault("half-models")
@pytest.mark.parametrize(
    ("classes", "machine", "moment"),
    [
        ("two", "SVC(C=50)", 2),
        ("many", "SVC(C=50)", 3),
        ("many", "SVC(C=50, multiclass='ovr')", 2),
        ("many", "CrammerSingerSVC(C=5)", 2),
        ("two", "L2SVC(C=50)", 2),
    ],
)
def test_ctrl_c_saves_the_run_and_then_ends_it(tmp_path, classes, machine, moment):
    assert interrupted(tmp_path, classes, machine, moment=moment) == "interrupted False"
    values = newest_manifest(tmp_path)["values"]
    assert values["n_iter"] > 0 or values.get("n_finished") or values["rows_drawn"]


@pytest.mark.fault("half-models")
def test_a_second_ctrl_c_ends_it_at_once(tmp_path):
    assert interrupted(tmp_path, "two", "SVC(C=50)", times=2) == "interrupted False"
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
