"""The suite of the disk tier at tiny sizes: its turns, its report, its limits."""

from types import SimpleNamespace

import pytest

from bigsvm.papers import disk
from bigsvm.papers.costs import TierDecision
from tools.benchmarks import bench
from tools.benchmarks.__main__ import main, parse
from tools.benchmarks.data import DataSet
from tools.benchmarks.results import Case, Results, Run
from tools.benchmarks.suites import disk_tier


def answer(seconds, n_computed, n_read=0, objective=1.0, n_files=1):
    return {
        "n_iter": 100, "n_computed": n_computed, "row_reads": n_read, "objective": objective,
        "n_support": 30, "disk_tier": "decided so", "seconds": seconds, "n_files": n_files,
        "n_rows": 100, "n_columns": 20, "n_touched": 50, "kernel_rows": 8, "capacity": 10**6,
    }  # fmt: skip


def results(*turns, name="wide"):
    case = Case(name, DataSet(name), {})
    runs = [
        Run(case, who, "", turn, one, 0.1)
        for turn, answers in enumerate(turns)
        for who, one in zip(disk_tier.SUITE.contestants, answers, strict=True)
    ]
    return Results(tuple(runs), SimpleNamespace())


GOOD = [answer(4.0, 900), answer(2.0, 60, 840), answer(3.0, 700), answer(1.0, 5, 695)]
OFF = [
    answer(seconds, n, n_files=0) for seconds, n in ((2.0, 900), (2.08, 900), (3.0, 7), (3.0, 7))
]


def failing(found):
    return [i for i, limit in enumerate(disk_tier.limits(found)) if not limit.holds[0]]


@pytest.mark.parametrize(
    ("place", "changed", "fails"),
    [
        (0, GOOD[0], []),
        (1, answer(4.1, 60, 840), [1]),
        (1, answer(2.0, 900), [0]),
        (3, answer(1.0, 30, 670), [2]),
        (3, answer(1.0, 5, 695, objective=1.1), [3]),
    ],
)
def test_a_tier_that_serves_is_held_against_its_promise(place, changed, fails):
    assert failing(results([*GOOD[:place], changed, *GOOD[place + 1 :]])) == fails


@pytest.mark.parametrize(
    ("place", "changed", "fails"),
    [
        (0, OFF[0], []),
        (1, answer(2.12, 900, n_files=0), [1]),
        (1, answer(2.0, 899, 1, n_files=0), [0]),
        (3, answer(3.0, 7, n_files=1), [0]),
    ],
)
def test_a_tier_that_does_not_serve_is_off(place, changed, fails):
    assert failing(results([*OFF[:place], changed, *OFF[place + 1 :]], name="narrow")) == fails


def test_ratios_are_taken_within_a_turn():
    slow = [answer(8.0, 900), answer(5.0, 60, 840), *GOOD[2:]]
    text = bench.report(disk_tier.SUITE, results(GOOD, slow))
    assert "seconds without ÷ with: 1.80 [1.60-2.00]" in text
    assert "decided: decided so" in text
    assert "| another C, same folder | 1.00 [1.00-1.00]" in text
    assert text.startswith("wide: 100 rows x 20, 50 kernel rows touched, memory for 8, 0 MB")


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("keep", [True, False])
def test_tier_is_used_as_decided(keep, monkeypatch, tmp_path, table_of, capsys, classes):
    """Whatever it decides, steps are the same; what is kept serves another C."""
    said = TierDecision(keep=keep, reason="as the test wants it")
    monkeypatch.setattr(disk, "decide", lambda **_: said)
    disk_tier.touched.cache_clear()
    given = ["--rows", "300", "--repeats", "1", "--folder", str(tmp_path)]
    main(["disk_tier", *given])
    printed = capsys.readouterr()
    assert "skipped mnist" in printed.err
    assert "narrow: 300 rows x 20" in printed.out
    assert f"decided: {said.reason}" in printed.out
    for who in disk_tier.SUITE.contestants:
        ((*_, read),) = table_of(printed.out, who)
        assert (int(read) > 0) == (keep and who in (disk_tier.WITH, disk_tier.AGAIN))
    found = table_of(printed.out, "narrow: objective with and without differ by")
    assert found == [["0", "0", "holds"]]
    ((files, _, holds),) = table_of(printed.out, "narrow: rows read, files left")
    assert files.endswith(", 1" if keep else ", 0")
    assert (holds == "holds") is not keep
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


@pytest.mark.parametrize("wrong", [["--rows", "1"], ["--share", "0"], ["--repeats", "0"]])
def test_invalid_options_are_refused(wrong):
    with pytest.raises(SystemExit):
        parse("disk_tier", wrong)
