"""The benchmark out of core without its training: limits, checkpoints' ages, kills."""

import argparse
import os
import sys
import time

import pytest

from bigsvm.training.checkpoint import Checkpoint
from tools.benchmarks import __main__ as command
from tools.benchmarks import children
from tools.benchmarks.results import memory_limit
from tools.benchmarks.suites import out_of_core


def finished(seconds=1.0, peak_rss=10**6, **answer):
    return children.Finished(0, seconds, peak_rss, {"seconds": seconds, **answer}, "", "")


def test_limit_is_budget_and_rows_and_interpreter():
    limit = memory_limit(10**9, n_rows=5_000_000, baseline=10**8)
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
    given = ["out_of_core", "--rows", "1000", "--columns", "20", "--memory", memory]
    assert command.main(given) == 2
    assert "nothing would be out of core" in capsys.readouterr().err
    options = command.parse("out_of_core", ["--rows", "1000", "--columns", "20"])
    assert out_of_core.bytes_of_rows(options) == 80_000
    assert command.main([*given[:-1], "79kB", "--checkpoint-every", "never"]) == 2
    assert "never" in capsys.readouterr().err


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
    assert [check.name for check in checks if not all(check.holds)] == failing


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
    options = fake_train(monkeypatch, seconds=6000)
    whole = finished(seconds=0.5, objective=1.0)
    checks = out_of_core.resume_checks(tmp_path, tmp_path / "work", whole, options)
    assert [check.holds for check in checks] == [(True,)] * 3


def test_resumed_run_that_ends_elsewhere_fails(monkeypatch, tmp_path):
    options = fake_train(monkeypatch, seconds=6000, difference=1e-9)
    whole = finished(seconds=0.5, objective=1.0)
    checks = out_of_core.resume_checks(tmp_path, tmp_path / "work", whole, options)
    assert [c.name for c in checks if not all(c.holds)] == ["objective after resume"]


def test_run_that_ends_before_its_kill_is_not_a_resume(monkeypatch, tmp_path):
    options = fake_train(monkeypatch, seconds=0)
    assert out_of_core.kill_once(tmp_path, tmp_path / "work", options, latest=1e9) is None
