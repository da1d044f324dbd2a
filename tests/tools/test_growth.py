"""The benchmark of growth with n: its exponents, slopes, limits, and a run at tiny sizes."""

import common
import growth
import peers
import pytest
from data_sets import made
from peers_report import Measured, Outcome


def outcome(n_rows, **peaks):
    """Seconds as n², a tenth of the rows support vectors, peaks as given."""
    measured = [
        Measured(
            peer,
            "dense",
            0,
            common.Finished(
                0, 1.0, peak, {"seconds": 1e-6 * n_rows**2, "n_support": n_rows // 10}, "", ""
            ),
            0.1,
        )
        for peer, peak in peaks.items()
    ]
    return Outcome(f"many-{n_rows}", {"n_rows": n_rows}, measured)


def test_exponent_is_that_of_a_power():
    assert growth.exponent([(n, 3 * n**1.7) for n in (10, 20, 80)]) == pytest.approx(1.7)
    assert growth.exponent([(10, 1.0)]) is None


def test_report_has_every_size_and_what_it_grows_with():
    outcomes = [
        outcome(1000, store=10**8, sklearnex=10**8),
        outcome(2000, store=10**8 + 30_000, sklearnex=3 * 10**8),
        outcome(4000, store=10**8 + 100_000),
    ]
    lines = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in growth.report(outcomes).splitlines()
    ]
    assert [line[-1] for line in lines if line and line[0] == "store"] == [
        *("-", "30", "35"),
        "1.00",
    ]
    assert [line[1:4] for line in lines if line and line[0] == "sklearnex"] == [
        ["1000", "1.00", "100"],
        ["2000", "4.00", "200"],
        ["1000 to 2000", "2.00", "1.00"],
    ]


def test_a_single_size_has_no_exponent():
    assert "store | " not in growth.exponents([outcome(1000, store=10**8)])


@pytest.mark.parametrize(
    ("peaks", "failing"),
    [
        ((150, 152, 154), []),
        ((150, 152, 155), ["bytes a row more, 50000 to 100000 rows"]),
        ((100, 152, 154), []),  # a small problem may need less
        ((162, 152, 154), ["peak RSS, MB, at 10000 rows"]),
    ],
)
def test_memory_is_held_against_its_promise(peaks, failing):
    sizes = (10_000, 50_000, 100_000)
    outcomes = [
        outcome(n, store=peak * 10**6, sklearnex=10**9)
        for n, peak in zip(sizes, peaks, strict=True)
    ]
    checks = growth.check(outcomes, budget=60 * 10**6, baseline=10**8)
    assert [check.name for check in checks if not check.holds] == failing
    assert len(checks) == 2
    assert growth.check([outcome(10, sklearnex=1)], budget=1, baseline=1) == []


def test_who_is_given_up_is_not_asked_again(monkeypatch, tmp_path, capsys):
    asked = []

    def measure(peer, layout, data, turn, setting, give_up_after):
        asked.append((peer, data.name, turn))
        child = common.Finished(
            0, 1.0, 10**6, {"seconds": 1.0, "n_support": 9}, "", "", gave_up=peer == "sklearnex"
        )
        return Measured(peer, layout, turn, child, 0.1)

    (tmp_path / "many-100.dense.zarr").mkdir()
    (tmp_path / "many-100.npy").touch()
    (tmp_path / "many-1000.npy").touch()
    monkeypatch.setattr(growth, "measure", measure)
    monkeypatch.setattr(growth, "installed", list)
    monkeypatch.setattr(
        growth, "fit_once", lambda *_, threads: common.Finished(0, 1.0, 1, {"n_rows": 100}, "", "")
    )
    options = growth.parse(["--sizes", "200", "100", "--give-up", "5"])
    outcomes = growth.measure_sizes(options, peers.Setting(tmp_path, 2, "1GB", 5.0))
    assert asked == [
        ("store", "many-100", 0),
        ("sklearnex", "many-100", 0),
        ("store", "many-200", 0),
    ]
    assert [m.peer for o in outcomes for m in o.measured] == ["store", "store"]
    assert [path.name for path in tmp_path.iterdir()] == ["many-1000.npy"]
    assert "sklearnex was given up at 100 rows after 5 s" in capsys.readouterr().out


@pytest.mark.parametrize("wrong", [["--sizes", "0"], ["--repeats", "0"], ["--memory", "much"]])
def test_options_that_mean_nothing_are_refused(wrong):
    with pytest.raises(SystemExit):
        growth.parse(wrong)


def test_sizes_are_those_of_a_family():
    assert growth.parse([]).sizes == [12_500, 25_000, 50_000, 100_000, 200_000, 400_000]
    assert made(growth.FAMILY, 12_500).n_columns == 50


@pytest.mark.slow
def test_tiny_sizes_are_measured_from_end_to_end(capsys):
    assert growth.main(["--sizes", "300", "600", "--peers", "store", "--memory", "20MB"]) == 0
    text = capsys.readouterr().out
    assert "300 to 600" in text
    assert "peak RSS, MB, at " in text
    assert "noise: " in text
