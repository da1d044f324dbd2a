"""``bigsvm watch``: the progress of a run of another process, until it ends or was killed."""

import json
import time

import pytest
from command_line import LITTLE, error_of, finish, run_here, start, two_clouds

from bigsvm import write_store
from bigsvm.report.run_log import RunLog
from bigsvm.training import events

PLANNED = events.Planned(1000, 2, 100, {"rows": 10}, 0)


def swept(sweep, gap):
    return events.Swept(sweep, gap, 1e-3, 1.0, 3, 2, 1.0, None)


def test_a_run_that_has_ended(data, tmp_path):
    words = ("--gamma", 0.3, "--quiet", "--checkpoint", tmp_path / "run")
    run_here("train", data / "train.zarr", tmp_path / "m", *words)
    ended = run_here("watch", tmp_path / "run")
    assert ended.stdout == "the run has ended: a full sweep certified the tolerance\n"
    assert "sweep 1: gap" in ended.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("cv", "--folds", 2), "the run has ended\n"),
        (("search", "--folds", 2, "--log2-C", "0,1,1", "--gamma", 1), "the run has ended\n"),
        (("plan",), "the run has ended\n"),
    ],
)
def test_other_commands_that_have_ended(data, tmp_path, words, message):
    command, *others = words
    run_here(command, data / "train.zarr", *others, "--quiet", "--log", tmp_path / "log")
    ended = run_here("watch", tmp_path / "log")
    assert ended.stdout == message
    if command != "plan":
        assert ended.stderr.count("fit of a fold: accuracy 0.") >= 2


def test_a_run_that_failed_and_one_that_was_killed(tmp_path):
    log = RunLog(tmp_path / "log", warn=print)
    log(PLANNED)
    log.__exit__(KeyError, KeyError("\x1b[2J"), None)
    assert run_here("watch", tmp_path / "log").stdout == "the run failed: KeyError: '\\x1b[2J'\n"
    with (tmp_path / "log").open("a") as file:
        file.write('{"time": "2026", "event": "Swe')
    assert "the run failed" in run_here("watch", tmp_path / "log").stdout
    with RunLog(tmp_path / "other", warn=print) as log:
        log(PLANNED)
        log.write("Fitted", {"scores": {"accuracy": "x"}})
        log(swept(1, float("nan")))
        log(events.OfPair((0, 1), swept(2, 0.25)))
    ended = run_here("watch", tmp_path / "other")
    assert ended.stdout.startswith("the run was killed: ")
    assert "sweep 1: gap -" in ended.stderr
    assert "sweep 2: gap 0.25" in ended.stderr


def test_what_is_no_run_is_refused(data, tmp_path):
    for place, message in (
        (tmp_path / "nothing", "no such log"),
        (tmp_path, "no such log"),
        (data / "train.zarr", "no such log"),
        (data / "model", "is not the log of a run"),
    ):
        assert message in error_of("watch", place)


def line_of(child, start):
    """Wait for a line of standard error that begins so."""
    for line in child.stderr:
        if line.startswith(start):
            return line
    raise AssertionError(f"no line begins with {start}")


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_run_that_goes_on_is_followed(tmp_path, is_killed):
    """A real run would be over too early or too late; here the log is written by the test."""
    log = RunLog(tmp_path / "log", warn=print)
    log(PLANNED)
    child = start("watch", tmp_path / "log")
    try:
        assert "1 000 rows" in line_of(child, "1 000 rows, 2 columns")
        for sweep in (1, 2):
            log(swept(sweep, 0.5 / sweep))
            assert f"gap {0.5 / sweep}" in line_of(child, f"sweep {sweep}")
        assert child.poll() is None
        if not is_killed:
            log.write("Ended", {"stop_reason": "time_limit"})
        log.__exit__(None, None, None)
        out, _ = finish(child)
    finally:
        child.kill()
    said = "the run was killed" if is_killed else "the run has ended: the time limit was reached"
    assert out.startswith(said)


@pytest.mark.slow
def test_a_run_that_is_killed_while_it_is_watched(tmp_path):
    X, y = two_clouds(20000)
    write_store(tmp_path / "x.zarr", X, y)
    words = (tmp_path / "x.zarr", tmp_path / "m", "--C", 1e4, *LITTLE[:4])
    run = start("train", *words, "--checkpoint", tmp_path / "run")
    try:
        while not (tmp_path / "run" / "log.jsonl").exists():
            assert run.poll() is None
            time.sleep(0.05)
        child = start("watch", tmp_path / "run")
        line_of(child, "20 000 rows")
    finally:
        run.kill()
        run.communicate()
    out, _ = finish(child)
    assert out.startswith("the run was killed")
    last = (tmp_path / "run" / "log.jsonl").read_text().splitlines()[-1]
    assert json.loads(last)["event"] != "Ended"
