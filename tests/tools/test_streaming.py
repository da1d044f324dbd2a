"""The suite of streaming: what it drops and measures, its limits, and a run at a small size."""

import argparse
import os
import sys

import pytest

from tools.benchmarks import __main__ as command
from tools.benchmarks import bench, children, contestants
from tools.benchmarks.data import made
from tools.benchmarks.results import Case, Results, Run
from tools.benchmarks.suites import streaming


def run(who, seconds, turn, **answer):
    """A run of a store of 1000 rows that take 8 000 bytes."""
    values = {
        "n_sweeps": 2, "n_kernel_evaluations": 5000, "n_support": 5, "objective": 10.0,
        "bytes_read": 0, "from_disk": 0, "cpu_idle": 0.25, "peak_rss": 10**8, "row_bytes": 8_000,
        "stored_bytes": 4_000, "budget": 40_000, "seconds": seconds,
    }  # fmt: skip
    facts = {"n_rows": 1000, "n_columns": 2}
    case = Case("toy, dense", made("few", 1000), {}, facts=facts)
    return Run(case, who, "dense", turn, values | answer, 0.1)


def measured(*, streamed=1.2, disk=1e9, **answer):
    """Two rounds, in which the other kinds take a second each."""
    answer = {"bytes_read": 24_000, "from_disk": 6_000_000, "disk": disk, **answer}
    runs = [
        one
        for turn in range(2)
        for one in (
            run("streamed", streamed, turn, **answer), run("held", 1.0, turn),
            run("memory", 1.0, turn),
        )
    ]  # fmt: skip
    return Results(tuple(runs), argparse.Namespace())


@pytest.mark.parametrize(
    ("found", "failing"),
    [
        ({}, []),
        ({"streamed": 1.4}, ["streamed ÷ memory"]),
        ({"disk": 4e8}, ["disk, GB/s"]),
        ({"bytes_read": 8_000}, ["times that rows were read"]),
        ({"objective": 10.001}, ["objectives differ by"]),
    ],
)
def test_a_store_is_held_against_its_promise(found, failing):
    limits = streaming.limits(measured(**found))
    assert [limit.name for limit in limits if limit.holds != (True,)] == [
        f"toy, dense: {f}" for f in failing
    ]
    assert len(limits) == 4


def test_the_report_has_every_kind_and_what_it_cost():
    text = bench.report(streaming.SUITE, measured())
    assert text.startswith("toy, dense: 1000 rows x 2, 0 MB of rows, 0 MB stored; budget 0 MB")
    line = next(line for line in text.splitlines() if line.startswith("| streamed"))
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells == ["streamed", "1.20 [1.20-1.20]", "2", "1.00", "0", "6", "25 [25-25]", "100"]
    assert "streamed ÷ held: 1.20 [1.20-1.20], ÷ memory: 1.20 [1.20-1.20]" in text
    assert "a cold sequential read got 1.00 [1.00-1.00] GB/s" in text


def test_missing_system_counters_are_left_out():
    text = bench.report(streaming.SUITE, measured(cpu_idle=None, from_disk=None))
    line = next(line for line in text.splitlines() if line.startswith("| streamed"))
    assert [cell.strip() for cell in line.split("|")[6:8]] == ["-", "-"]


ENDS_WHEN_THERE = """
import pathlib, sys, time
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.01)
print('{"a": 1}')
"""


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="pages cannot be dropped here")
def test_pages_are_dropped_until_the_child_has_ended_which_is_then_waited_for(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(streaming, "DROP_EVERY", 0.001)
    path = tmp_path / "chunk"
    path.write_bytes(b"x" * 5000)
    assert streaming.files_of(tmp_path) == [path]
    with streaming.PageCache([path]) as cache:
        assert streaming.read_speed([path], cache) > 0
        drops = []
        drop, dropped_twice = cache.drop, tmp_path / "dropped twice"

        def noted():
            drops.append(drop())
            if len(drops) == 2:
                dropped_twice.touch()

        monkeypatch.setattr(cache, "drop", noted)
        ended = children.run_checked(
            [sys.executable, "-c", ENDS_WHEN_THERE, str(dropped_twice)],
            threads=1,
            while_running=cache.drop_while,
        )
    assert ended.answer == {"a": 1}
    assert len(drops) > 1


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="pages cannot be dropped here")
def test_a_store_is_trained_streamed_and_in_memory(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    data = made("few", 400)
    contestants.prepare(
        {"data": list(data), "folder": str(tmp_path), "labels": "", "layouts": ["dense"],
         "distances": False, "stores": True}
    )  # fmt: skip
    answers = {
        who: streaming.train(
            {"who": who, "name": "few-400", "folder": str(tmp_path), "layout": "dense",
             "parameters": {"C": 32.0, "gamma": 2.0, "share": 0.00704}, "n_columns": 22,
             "n_classes": 2, "accuracy": False, "floors": False, "memory": "5MB"}
        )
        for who in ("streamed", "held", "memory")
    }  # fmt: skip
    for who, answer in answers.items():
        assert answer["row_bytes"] == 4 * 22 * 400
        assert answer["budget"] == 5_000_000
        assert answer["converged"]
        assert answer["objective"] == pytest.approx(answers["memory"]["objective"])
        assert (answer["disk"] is not None) == (who == "streamed")


def test_pages_are_dropped_only_while_rows_are_streamed(tmp_path):
    case = Case("few-400, dense", made("few", 400), {})
    assert streaming.dropping(case, "held", "dense", tmp_path) is None
    assert streaming.dropping(case, "streamed", "dense", tmp_path) is not None


@pytest.mark.parametrize(
    "wrong", [["--repeats", "0"], ["--share", "0.1"], ["--memory", "much"], ["--data", "few"]]
)
def test_invalid_options_are_refused(wrong, capsys):
    with pytest.raises(SystemExit):
        command.parse("streaming", wrong)
    assert wrong[0].strip("-") in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="pages cannot be dropped here")
def test_a_small_size_is_measured_from_end_to_end(capsys):
    # With fewer rows the chunks that are being read, 1.6 MB each, would not fit the budget.
    options = ["--data", "few-50000", "--repeats", "1", "--share", "0.16", "--threads", "1"]
    command.main(["streaming", *options])
    text = capsys.readouterr().out
    assert "few-50000, dense: streamed ÷ memory" in text
    assert "noise: " in text
