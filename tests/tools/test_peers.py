"""The benchmark beside others, without training: choices, patience, reports, verdicts, skips."""

import common
import data_sets
import peers
import peers_report
import pytest
from peers_report import Measured, Outcome

PREPARED = {"n_rows": 100, "n_columns": 3, "density": 0.5}


def finished(seconds=1.0, peak_rss=10**6, **answer):
    return common.Finished(0, seconds, peak_rss, {"seconds": seconds, **answer}, "", "")


def fitted(peer, seconds, *, turn=0, peak_rss=10**6, n_support=10, floor=None, evaluations=None):
    counted = {} if evaluations is None else {"n_kernel_evaluations": evaluations, "n_sweeps": 3}
    child = finished(seconds, peak_rss, objective=1.0, n_support=n_support, **counted)
    return Measured(peer, "dense", turn, child, 0.1, floor)


def given_up(seconds, *, turn=0):
    said = f"{common.FIT_BEGAN}1000.5\n"
    child = common.Finished(
        -9, seconds + 4, 10**6, {}, said, "", gave_up=True, ended=1000.5 + seconds
    )
    return Measured("sklearn", "dense", turn, child, 0.1)


def cells(text, of):
    """The cells of a line of a table."""
    for line in text.splitlines():
        found = [cell.strip() for cell in line.split("|")[1:-1]]
        if found and found[0] == of:
            return found[1:]
    raise AssertionError(f"no line of {of} in\n{text}")


def test_faster_layout_is_kept_and_sklearn_runs_less_often(monkeypatch):
    speed = {("store", "csr"): 2.0, ("store", "dense"): 3.0, ("sklearn", "csr"): 9.0}

    def measure(peer, layout, data, turn, setting, give_up_after):
        return Measured(peer, layout, turn, finished(speed.get((peer, layout), 5.0)), 0.1)

    monkeypatch.setattr(peers, "measure", measure)
    warmed_up = []
    monkeypatch.setattr(peers, "train_store", lambda data, layout, _: warmed_up.append(layout))
    measured = peers.interleave(
        data_sets.DATA_SETS["a9a"],
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


def test_a_run_of_the_store_is_followed_by_its_floor(monkeypatch):
    asked = []

    def fit_once(*arguments, threads, give_up_after=None):
        asked.append(arguments)
        return finished(0.5, floor_seconds=0.25)

    monkeypatch.setattr(peers, "fit_once", fit_once)
    monkeypatch.setattr(peers, "train_store", lambda *_: finished(2.0))
    setting = peers.Setting("folder", 2, "1GB", 20.0)
    data = data_sets.made("few", 100)
    assert peers.measure("store", "dense", data, 0, setting).floor == 0.5
    assert asked == [("calibrate",), ("floor", "dense", "few-100", "folder")]
    assert peers.measure("memory", "dense", data, 0, setting).floor == 0.25


def test_report_holds_ratios_floors_and_noise():
    measured = [
        fitted("store", 2.0, floor=0.5, evaluations=3000),
        fitted("memory", 1.0, floor=0.25, peak_rss=3 * 10**6, evaluations=1500),
        fitted("sklearnex", 4.0, peak_rss=4 * 10**6),
        fitted("sklearn", 8.0, n_support=11)._replace(layout="csr", calibration=0.2),
    ]
    text = peers_report.report(Outcome("toy", PREPARED, measured))
    ours = ["0.50", "1.00 [1.00-1.00]"]
    assert cells(text, "sklearn")[:6] == ["csr", "8.00", "4.00", "8.00", "1", "25%"]
    assert cells(text, "memory") == [
        *("dense", "1.00", ours[0], "1.00", "3", "75%", "1.000", "10", "3", "1.50", "4.00")
    ]
    assert cells(text, "store")[-2:] == ["3.00", "4.00"]
    assert cells(text, "sklearnex")[-3:] == ["-", "-", "16.00"]  # floors of `memory`
    assert cells(text, "floor of store")[1] == "0.50"
    assert cells(text, "floor of memory")[1] == "0.25"
    assert "spread 100% over the median" in text


def test_a_competitor_given_up_is_a_lower_bound():
    early = given_up(21.0)
    assert early._replace(child=early.child._replace(stdout="")).seconds == 0
    measured = [fitted("memory", 1.0), given_up(21.0)]
    text = peers_report.report(Outcome("toy", PREPARED, measured))
    assert cells(text, "sklearn")[1] == "> 21.00"
    setting = peers.Setting(None, 2, "1GB", 20.0)
    assert peers.patience("sklearn", measured, setting) == 20.0
    assert peers.patience("sklearnex", measured, setting) is None
    assert peers.patience("sklearn", [], setting) is None
    assert peers.patience("sklearn", [fitted("memory", 0.1)], setting) == peers.LEAST_PATIENCE
    stores = [fitted("store", 5.0), fitted("store", 3.0)._replace(layout="csr")]
    assert peers.patience("sklearn", measured + stores, setting) == 60.0


def test_peak_is_that_of_the_fit_where_the_child_says_it():
    child = finished(peak_rss=9 * 10**6)
    assert Measured("store", "csr", 0, child, 0.1).peak_rss == 9 * 10**6
    child = child._replace(answer={"seconds": 1.0, "peak_rss": 7 * 10**6})
    assert Measured("memory", "csr", 0, child, 0.1).peak_rss == 7 * 10**6


def outcome(name="toy", n_rows=100, **seconds):
    measured = [
        given_up(s) if peer == "gave_up" else fitted(peer, s, floor=0.5, evaluations=2000)
        for peer, s in seconds.items()
    ]
    return Outcome(name, {**PREPARED, "n_rows": n_rows}, measured)


def test_summary_has_both_of_ours_and_the_faster():
    text = peers_report.summary([outcome(store=2.0, memory=1.0, sklearnex=2.5, sklearn=30.0)])
    assert cells(text, "sklearnex ÷ ours, toy") == [
        "≥ 1.5",
        "1.25, does not hold",
        "2.50, holds",
        "2.50, holds",
    ]
    mean = cells(text, "sklearnex ÷ ours, geometric mean of 1")
    assert mean == ["≥ 3", *["1.25, does not hold", "2.50, does not hold", "2.50, does not hold"]]
    assert cells(text, "sklearn ÷ ours, geometric mean of 1") == [
        "≥ 15",
        *["15.00, holds"],
        *["30.00, holds"] * 2,
    ]
    assert cells(text, "peak RSS ÷ sklearnex's, toy") == ["≤ 0.5", *["1.00, does not hold"] * 3]
    assert cells(text, "evaluations in floors, toy") == ["≤ 3", *["2.00, holds"] * 3]
    assert cells(text, "seconds in floors, toy") == ["≤ 6", "4.00, holds", *["2.00, holds"] * 2]


def test_ratios_of_a_summary_are_medians_over_rounds():
    measured = [
        fitted(peer, seconds, turn=turn)
        for turn, pair in enumerate([(1.0, 2.0), (1.0, 9.0), (4.0, 12.0)])
        for peer, seconds in zip(("memory", "sklearnex"), pair, strict=True)
    ]
    text = peers_report.summary([Outcome("toy", PREPARED, measured)])
    assert cells(text, "sklearnex ÷ ours, toy")[1:] == ["-", "3.00, holds", "3.00, holds"]


def test_geometric_mean_is_over_data_sets():
    text = peers_report.summary(
        [outcome("a", memory=1.0, sklearnex=2.0), outcome("b", memory=1.0, sklearnex=8.0)]
    )
    found = cells(text, "sklearnex ÷ ours, geometric mean of 2")
    assert found == ["≥ 3", "-", "4.00, holds", "4.00, holds"]
    assert cells(text, "sklearn ÷ ours, geometric mean of 2")[1:] == ["-"] * 3


@pytest.mark.parametrize(
    ("name", "n_rows", "limit"),
    [("w8a", 99_999, "≥ 1.5"), ("mnist", 60_000, "≥ 4"), ("few-100000", 100_000, "≥ 4")],
)
def test_large_problems_have_a_larger_limit(name, n_rows, limit):
    text = peers_report.summary([outcome(name, n_rows, memory=1.0, sklearnex=3.9)])
    assert cells(text, f"sklearnex ÷ ours, {name}")[0] == limit


@pytest.mark.parametrize(("n_rows", "limits"), [(50, ("≤ 1.5", "≤ 2.5")), (51, ("≤ 3", "≤ 6"))])
def test_floors_are_limited_by_the_share_of_support_vectors(n_rows, limits):
    text = peers_report.summary([outcome(n_rows=n_rows, memory=1.0)])
    found = tuple(cells(text, f"{what} in floors, toy")[0] for what in ("evaluations", "seconds"))
    assert found == limits


def test_a_lower_bound_below_a_limit_decides_nothing():
    text = peers_report.summary([outcome(store=2.0, memory=1.0, gave_up=20.0)])
    found = cells(text, "sklearn ÷ ours, geometric mean of 1")
    assert found == ["≥ 15", "> 10.00, not known", "> 20.00, holds", "> 20.00, holds"]


def test_stopped_before_its_fit_began_is_no_ratio_at_all():
    early = given_up(5.0)
    early = early._replace(child=early.child._replace(stdout=""))
    text = peers_report.summary([Outcome("toy", PREPARED, [fitted("memory", 1.0), early])])
    assert cells(text, "sklearn ÷ ours, geometric mean of 1")[2] == "> 0.00, not known"


def test_a_competitor_that_is_not_installed_is_left_out(monkeypatch, capsys):
    monkeypatch.setattr(peers.importlib.util, "find_spec", lambda name: None)
    assert peers.installed(["store", "sklearnex", "sklearn"]) == ["store", "sklearn"]
    assert "skipped sklearnex" in capsys.readouterr().err


def test_without_data_the_benchmark_says_that_it_skips(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("BIGSVM_DATA", str(tmp_path / "none"))
    assert peers.main(["--data", "a9a", "mnist"]) == 0
    assert capsys.readouterr().err.count("skipped") == 2


def test_an_unknown_data_set_is_refused(capsys):
    with pytest.raises(SystemExit):
        peers.parse(["--data", "nobody's"])
    assert "nobody's" in capsys.readouterr().err


@pytest.mark.slow
def test_a_made_problem_is_measured_from_end_to_end(capsys):
    given = ["--data", "few-300", "--peers", "store", "memory", "sklearn", "--repeats", "2"]
    assert peers.main([*given, "--memory", "50MB"]) == 0
    text = capsys.readouterr().out
    assert "few-300: 300 rows x 22, density 1.000" in text
    assert "[" in cells(text, "store")[1]
    assert float(cells(text, "store")[-2]) >= 1
    assert cells(text, "sklearn")[-5] == cells(text, "memory")[-5]
    assert cells(text, "seconds in floors, few-300")[1].endswith(("holds", "does not hold"))
