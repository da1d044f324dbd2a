"""All long commands write a log, and say where they are when SIGUSR1 asks; help is by panels."""

import json
import os
import signal
import time

import pytest
from command_line import finish, libsvm_text, run_here, start, two_clouds

from bigsvm.cli.panels import RARE
from bigsvm.fit import forecast
from bigsvm.training.sweep import Passes

PANELS = {
    "convert": ["Arguments", "Options"],
    "scale": ["Arguments", "Options"],
    "split": ["Arguments", "Options"],
    "info": ["Arguments", "Options"],
    "plan": ["Arguments", "Problem", "Cluster", "Options"],
    "train": [
        *("Arguments", "Problem", "Kernel", "Stopping", "As in the papers", "Cluster", "Options"),
    ],
    "cv": ["Arguments", "Folds", "Cluster", "Options"],
    "search": ["Arguments", "Search", "Folds", "Cluster", "Options"],
    "easy": ["Arguments", "Problem", "Search", "Options"],
    "predict": ["Arguments", "Cluster", "Options"],
    "report": ["Arguments", "Options"],
    "watch": ["Arguments", "Options"],
    "inspect": ["Arguments", "Options"],
    "export": ["Arguments", "Options"],
    "demo": ["Options"],
    "warm-up": ["Options"],
    "libsvm-programs": ["Arguments", "Options"],
}


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_cv_and_search_log_each_fit(data, tmp_path):
    run_here("cv", data / "train.zarr", "--folds", 2, "--log", tmp_path / "cv")
    lines = lines_of(tmp_path / "cv")
    assert {"Planned", "Swept", "Fitted"} <= {line["event"] for line in lines}
    fitted = [line for line in lines if line["event"] == "Fitted"]
    assert [line["fold"] for line in fitted] == [0, 1]
    assert fitted[0]["certificate"]["converged"]
    words = ("--folds", 2, "--gamma", 0.3, "--log2-C", "0,1,1")
    run_here("search", data / "train.zarr", tmp_path / "m", *words, "--log", tmp_path / "search")
    lines = lines_of(tmp_path / "search")
    fitted = [line for line in lines if line["event"] == "Fitted"]
    assert [line["parameters"]["C"] for line in fitted] == [1.0, 1.0, 2.0, 2.0]
    assert lines[-1]["event"] == "Ended"
    assert lines[-1]["stop_reason"] == "converged"


def test_plan_logs_its_samples(data, tmp_path, monkeypatch):
    monkeypatch.setattr(forecast, "FIRST_ROWS", 100)
    said = run_here("plan", data / "train.zarr", "--gamma", 0.3, "--log", tmp_path / "log")
    lines = lines_of(tmp_path / "log")
    sampled = [line for line in lines if line["event"] == "Sampled"]
    assert [line["n_rows"] for line in sampled] == [100, 200, 300]
    assert lines[-1]["event"] == "Forecast"
    assert "100 rows took" in said.stderr


@pytest.mark.slow
def test_easy_logs_its_search_and_hands_questions_on(tmp_path):
    X, y = two_clouds(4000)
    (tmp_path / "text").write_text(libsvm_text(X, y))
    words = ("--folds", "5", "--log2-C", "5,9,2", "--log2-gamma", "0,3,1", "--log", "log")
    easy = start("easy", "text", *words, "--quiet", cwd=tmp_path)
    line = next(line for line in easy.stdout if line.startswith("$ bigsvm search "))
    assert "--log log" in line
    log = tmp_path / "log"
    while not (log.exists() and "Solving" in log.read_text()):
        assert easy.poll() is None
        time.sleep(0.05)
    easy.send_signal(signal.SIGUSR1)
    while "Checkpointed" not in log.read_text():
        assert easy.poll() is None
        time.sleep(0.05)
    easy.send_signal(signal.SIGTERM)
    _, err = finish(easy, code=143)
    assert "checkpoint 1 written" in err
    assert lines_of(log)[-1]["event"] == "failed"


@pytest.mark.parametrize("command", ["cv", "search", "plan"])
def test_a_command_that_is_asked_says_where_it_is(command, data, tmp_path, monkeypatch):
    sweep, asked = Passes.sweep, []

    def asking(self, *given, **options):
        if not asked:
            asked.append(os.kill(os.getpid(), signal.SIGUSR1))
        return sweep(self, *given, **options)

    monkeypatch.setattr(Passes, "sweep", asking)
    words = {"plan": (), "cv": ("--folds", 2)}.get(command, ("--folds", 2, "--log2-C", "0,0,1"))
    if command != "plan":
        words += ("--checkpoint", tmp_path / "run")
    # Its folds are fitted one after the other, so that there is more to do after the first sweep.
    said = run_here(command, data / "train.zarr", "--gamma", "scale", "--quiet", *words).stderr
    assert asked
    assert "solving " in said
    assert ("checkpoint" in said) == (command != "plan")


PANELS_BY = dict.fromkeys(("plan", "train", "cv", "search"), "--help-all")
"""Commands with many options show all panels only if they are asked for them."""


@pytest.mark.parametrize("command", PANELS)
def test_help_is_by_panels(command):
    headings = [
        line.removesuffix(":")
        for line in run_here(command, PANELS_BY.get(command, "--help")).stdout.splitlines()
        if line.endswith(":") and not line.startswith(" ")
    ]
    assert [heading for heading in headings if heading in PANELS[command]] == PANELS[command]
    assert headings[-1] == "Options"


@pytest.mark.parametrize("command", PANELS_BY)
def test_help_leaves_out_what_few_need_and_names_it(command):
    usual, everything = (run_here(command, word).stdout for word in ("--help", "--help-all"))
    for heading in RARE:
        assert f"\n{heading}:\n" not in usual
        assert f"\n{heading}:\n" in everything
        assert heading in " ".join(usual.split())
    assert set(usual.split()) < set(everything.split())


@pytest.mark.parametrize("command", ["cv", "search"])
def test_help_says_that_limits_are_of_each_fit(command):
    words = " ".join(run_here(command, "--help").stdout.split())
    assert "--max-time and --max-iter limit each fit" in words
