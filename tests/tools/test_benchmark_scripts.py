"""The benchmark scripts without training: limits, checkpoints' ages, choices, reports, skips."""

import argparse
import os
import sys
import time

import common
import fit_once
import numpy as np
import out_of_core
import peers
import pytest
import scipy.sparse as sp

from bigsvm.training.checkpoint import Checkpoint


def finished(seconds=1.0, peak_rss=10**6, **answer):
    return common.Finished(0, seconds, peak_rss, {"seconds": seconds, **answer}, "", "")


def test_limit_is_budget_and_rows_and_interpreter():
    limit = out_of_core.memory_limit(10**9, n_rows=5_000_000, baseline=10**8)
    assert limit == 10**9 + 2 * 10**8 + 10**8


def test_work_is_lost_from_the_moment_that_the_newest_checkpoint_was_begun(tmp_path):
    assert out_of_core.newest_checkpoint(tmp_path) is None
    with Checkpoint(tmp_path, fingerprint={}) as checkpoint:
        for _ in range(2):
            before = time.time()
            checkpoint.save({}, {})
            after = time.time()
    manifest = tmp_path / "generation-00000002" / "manifest.json"
    os.utime(manifest, (after + 60, after + 60))
    assert before <= out_of_core.newest_checkpoint(tmp_path) <= after


@pytest.mark.parametrize("memory", ["80kB", "1GB"])
def test_a_budget_that_would_hold_the_rows_is_refused(memory, capsys):
    with pytest.raises(SystemExit):
        out_of_core.parse(["--rows", "1000", "--columns", "20", "--memory", memory])
    assert "nothing would be out of core" in capsys.readouterr().err
    out_of_core.parse(["--rows", "1000", "--columns", "20", "--memory", "79kB"])


RUN = {"n_sweeps": 5, "converged": True}


@pytest.mark.parametrize(
    ("peak_rss", "answer", "failing"),
    [
        (1400, RUN, []),
        (1401, RUN, ["peak RSS, MB"]),
        (1400, {**RUN, "n_sweeps": 13}, ["sweeps"]),
        (1400, {**RUN, "converged": False}, ["converged"]),
    ],
)
def test_checks_fail_one_by_one(peak_rss, answer, failing):
    run = finished(peak_rss=peak_rss, **answer)
    checks = out_of_core.run_checks(run, budget=500, n_rows=10, baseline=500)
    assert [check.name for check in checks if not check.holds] == failing


PROGRAM = """
import json, pathlib, sys, time
from bigsvm.training.checkpoint import Checkpoint
with Checkpoint(pathlib.Path(sys.argv[1]) / "checkpoint", fingerprint={}) as checkpoint:
    resumed = checkpoint.save({}, {}) > 1
if not resumed:
    time.sleep(float(sys.argv[2]))
print(json.dumps({"objective": 1.0 + float(sys.argv[3]) * resumed, "converged": True}))
"""


def fake_train(monkeypatch, *, seconds, difference=0.0):
    def command(store, work, options):
        return [sys.executable, "-c", PROGRAM, str(work), str(seconds), str(difference)]

    monkeypatch.setattr(out_of_core, "train_command", command)
    return argparse.Namespace(threads=1, checkpoint_every="60s")


def test_killed_run_is_resumed_and_compared(monkeypatch, tmp_path):
    options = fake_train(monkeypatch, seconds=60)
    whole = finished(seconds=0.5, objective=1.0)
    checks = out_of_core.resume_checks(tmp_path, tmp_path / "work", whole, options)
    assert [check.holds for check in checks] == [True, True, True]


def test_resumed_run_that_ends_elsewhere_fails(monkeypatch, tmp_path):
    options = fake_train(monkeypatch, seconds=60, difference=1e-9)
    whole = finished(seconds=0.5, objective=1.0)
    checks = out_of_core.resume_checks(tmp_path, tmp_path / "work", whole, options)
    assert [c.name for c in checks if not c.holds] == ["objective after resume"]


def test_run_that_ends_before_its_kill_is_not_a_resume(monkeypatch, tmp_path):
    options = fake_train(monkeypatch, seconds=0)
    assert out_of_core.kill_once(tmp_path, tmp_path / "work", options, latest=60.0) is None


def test_faster_layout_is_kept_and_sklearn_runs_less_often(monkeypatch):
    speed = {("store", "csr"): 2.0, ("store", "dense"): 3.0, ("sklearn", "csr"): 9.0}

    def measure(peer, layout, data, turn, setting, give_up_after):
        run = finished(speed.get((peer, layout), 5.0))
        return peers.Measured(peer, layout, turn, run, 0.1)

    monkeypatch.setattr(peers, "measure", measure)
    warmed_up = []
    monkeypatch.setattr(peers, "train_store", lambda data, layout, _: warmed_up.append(layout))
    measured = peers.interleave(
        common.DATA_SETS["a9a"],
        ["store", "sklearn"],
        repeats={"store": 3, "sklearn": 1},
        layouts=["dense", "csr"],
        setting=peers.Setting(None, 2, "1GB", 20.0),
    )
    assert [(m.peer, m.layout, m.round) for m in measured] == [
        ("store", "csr", 0),
        ("sklearn", "csr", 0),
        ("store", "csr", 1),
        ("store", "csr", 2),
    ]
    assert warmed_up == ["dense", "csr"]


def test_report_holds_ratios_floors_and_noise():
    store = finished(2.0, objective=1.0, n_support=10, n_kernel_evaluations=3000)
    memory = finished(1.0, objective=1.0, n_support=10, floor_seconds=0.25)
    slow = finished(8.0, objective=1.0, n_support=11)
    measured = [
        peers.Measured("store", "csr", 0, store, 0.1),
        peers.Measured("memory", "dense", 0, memory, 0.1),
        peers.Measured("sklearn", "csr", 0, slow, 0.2),
    ]
    text = peers.report("toy", {"n_rows": 100, "n_columns": 3, "density": 0.5}, measured)
    cells = {
        line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]]
        for line in text.splitlines()
        if line.startswith("|")
    }
    assert cells["sklearn"][:4] == ["csr", "8.00", "4.00", "8.00"]
    assert cells["store"][-1] == "3.00"
    assert cells["floor"][1] == "0.25"
    assert "memory takes 4.00 floors" in text
    assert "spread 100% over the median" in text


def test_a_competitor_given_up_is_a_lower_bound():
    memory = finished(1.0, objective=1.0, n_support=10)
    said = f"{common.FIT_BEGAN}1000.5\n"
    stopped = common.Finished(-9, 25.0, 10**6, {}, said, "", gave_up=True, ended=1021.5)
    too_early = stopped._replace(stdout="")
    assert peers.Measured("sklearn", "dense", 0, too_early, 0.1).seconds == 0
    measured = [
        peers.Measured("memory", "dense", 0, memory, 0.1),
        peers.Measured("sklearn", "dense", 0, stopped, 0.1),
    ]
    text = peers.report("toy", {"n_rows": 100, "n_columns": 3, "density": 0.5}, measured)
    assert "| > 21.00 " in text
    setting = peers.Setting(None, 2, "1GB", 20.0)
    assert peers.patience("sklearn", measured, setting) == 20.0
    assert peers.patience("sklearnex", measured, setting) is None
    assert peers.patience("sklearn", [], setting) is None
    stores = [
        peers.Measured("store", layout, 0, finished(seconds, objective=1.0, n_support=10), 0.1)
        for layout, seconds in (("dense", 5.0), ("csr", 3.0))
    ]
    assert peers.patience("sklearn", measured + stores, setting) == 60.0


def test_a_competitor_that_is_not_installed_is_left_out(monkeypatch, capsys):
    monkeypatch.setattr(peers.importlib.util, "find_spec", lambda name: None)
    assert peers.installed(["store", "sklearnex", "sklearn"]) == ["store", "sklearn"]
    assert "skipped sklearnex" in capsys.readouterr().err


def test_without_data_the_benchmark_says_that_it_skips(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("BIGSVM_DATA", str(tmp_path / "none"))
    assert peers.main([]) == 0
    assert "skipped" in capsys.readouterr().err


def test_scikit_learn_child_is_measured(tmp_path, capsys):
    data = common.DataSet("toy", 5, 1.0, 0.5, frozenset({1.0}))
    random = np.random.default_rng(0)
    x = random.random((60, 5)).astype(np.float32)
    np.save(tmp_path / "toy.y.npy", np.where(x[:, 0] > 0.5, 1.0, -1.0))
    sp.save_npz(tmp_path / "toy.npz", sp.csr_matrix(x))
    answers = [fit_once.fit("sklearn", layout, data, tmp_path) for layout in ("dense", "csr")]
    assert answers[0]["n_support"] == answers[1]["n_support"]
    assert answers[0]["objective"] == pytest.approx(answers[1]["objective"])
    assert answers[0]["seconds"] > 0
    assert capsys.readouterr().out.count(common.FIT_BEGAN) == 2
