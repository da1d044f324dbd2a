"""The benchmark of streaming: what it drops and measures, its limits, and a run at a small size."""

import os
import sys

import common
import fit_once
import pytest
import streaming
from data_sets import made


def child(seconds, **answer):
    """Make a run of a store of 1000 rows that take 8 000 bytes."""
    values = {
        "n_sweeps": 2,
        "n_kernel_evaluations": 5000,
        "n_support": 5,
        "objective": 10.0,
        "bytes_read": 0,
        "from_disk": 0,
        "cpu_idle": 0.25,
        "peak_rss": 10**8,
    }
    return common.Finished(0, 1.0, 1, {"seconds": seconds, **values, **answer}, "", "")


def measured(*, streamed=1.2, disk=1e9, **answer):
    """Two rounds, in which the other kinds take a second each."""
    answer = {"bytes_read": 24_000, "from_disk": 6_000_000, **answer}
    one = streaming.Round(
        {"streamed": child(streamed, **answer), "held": child(1.0), "memory": child(1.0)},
        disk,
        [0.1, 0.1, 0.1],
    )
    return streaming.Measured("toy", "dense", 1000, 2, 8_000, 4_000, 40_000, [one, one])


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
    checks = streaming.check(measured(**found))
    assert [check.name for check in checks if not check.holds] == [
        f"toy, dense: {f}" for f in failing
    ]
    assert len(checks) == 4


def test_the_report_has_every_kind_and_what_it_cost():
    text = streaming.report(measured())
    line = next(line for line in text.splitlines() if line.startswith("| streamed"))
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells == ["streamed", "1.20 [1.20-1.20]", "2", "1.00", "0", "6", "25 [25-25]", "100"]
    assert "streamed ÷ held: 1.20 [1.20-1.20], ÷ memory: 1.20 [1.20-1.20]" in text
    assert "a cold sequential read got 1.00 [1.00-1.00] GB/s" in text


def test_what_the_system_does_not_say_is_left_out():
    assert "| streamed | 1.20 [1.20-1.20] | 2      |" in streaming.report(
        measured(cpu_idle=None, from_disk=None)
    )


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
        drop = cache.drop
        monkeypatch.setattr(cache, "drop", lambda: drops.append(drop()))
        ended = common.run_checked(
            [sys.executable, "-c", "import time; time.sleep(0.2); print('{\"a\": 1}')"],
            threads=1,
            while_running=cache.drop_while,
        )
    assert ended.answer == {"a": 1}
    assert len(drops) > 1


def test_a_store_is_trained_streamed_and_in_memory(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    data = made("few", 400)
    fit_once.prepare(data, tmp_path)
    assert fit_once.rows("dense", data, tmp_path) == {"row_bytes": 4 * 22 * 400}
    answers = {
        kind: fit_once.store(kind, "5MB", "dense", data, tmp_path)
        for kind in ("streamed", "memory")
    }
    for answer in answers.values():
        assert answer["converged"]
        assert answer["seconds"] > 0
    assert answers["memory"]["bytes_read"] == 0
    assert answers["streamed"]["bytes_read"] >= 4 * 22 * 400
    assert answers["streamed"]["objective"] == pytest.approx(answers["memory"]["objective"])
    with pytest.raises(SystemExit, match="streamed or memory"):
        fit_once.store("elsewhere", "5MB", "dense", data, tmp_path)


@pytest.mark.parametrize(
    "wrong",
    [["--repeats", "0"], ["--share", "0.1"], ["--memory", "much"], ["--data", "few"]],
)
def test_options_that_mean_nothing_are_refused(wrong):
    with pytest.raises(SystemExit):
        streaming.parse(wrong)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="pages cannot be dropped here")
def test_a_small_size_is_measured_from_end_to_end(capsys):
    # With fewer rows the chunks that are being read, 1.6 MB each, would not fit the budget.
    options = ["--data", "few-50000", "--repeats", "1", "--share", "0.16", "--threads", "1"]
    assert streaming.main(options) == 0
    text = capsys.readouterr().out
    assert "few-50000, dense: streamed ÷ memory" in text
    assert "noise: " in text
