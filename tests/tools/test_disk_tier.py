"""The benchmark of the disk tier at tiny sizes: its turns, its report, its verdicts."""

import data_sets
import disk_tier
import fit_once
import pytest
import synthetic
from disk_tier import Measured, Turn
from whole_runs import Problem, Run, dense

from bigsvm.cache import disk
from bigsvm.cache.costs import Decision


@pytest.fixture(autouse=True)
def small_gemm(monkeypatch):
    monkeypatch.setattr(fit_once, "GEMM_SIZE", 50)


def run(seconds, n_computed, n_read=0, objective=1.0):
    certificate = {
        "n_iter": 100,
        "row_misses": n_computed + n_read,
        "row_reads": n_read,
        "objective": objective,
        "n_support": 30,
        "disk_tier": "decided so",
    }
    return Run(seconds, certificate, 0.1)


def measured(*turns, name="wide"):
    return Measured(name, 100, 20, 50, 8, 10**6, list(turns))


GOOD = Turn(run(4.0, 900), run(2.0, 60, 840), run(3.0, 700), run(1.0, 5, 695), n_files=1)
OFF = Turn(run(2.0, 900), run(2.08, 900), run(3.0, 700), run(3.0, 700), n_files=0)


@pytest.mark.parametrize(
    ("turn", "failing"),
    [
        (GOOD, []),
        (GOOD._replace(with_tier=run(4.1, 60, 840)), [1]),
        (GOOD._replace(with_tier=run(2.0, 900)), [0]),
        (GOOD._replace(again=run(1.0, 30, 670)), [2]),
        (GOOD._replace(again=run(1.0, 5, 695, objective=1.1)), [3]),
    ],
)
def test_a_tier_that_serves_is_held_against_its_promise(turn, failing):
    checks = disk_tier.check_wide(measured(turn))
    assert [i for i, check in enumerate(checks) if not check.holds] == failing


@pytest.mark.parametrize(
    ("turn", "failing"),
    [
        (OFF, []),
        (OFF._replace(with_tier=run(2.12, 900)), [1]),
        (OFF._replace(with_tier=run(2.0, 899, 1)), [0]),
        (OFF._replace(n_files=1), [0]),
    ],
)
def test_a_tier_that_does_not_serve_is_off(turn, failing):
    checks = disk_tier.check_narrow(measured(turn, name="narrow"))
    assert [i for i, check in enumerate(checks) if not check.holds] == failing


def test_ratios_are_taken_within_a_round():
    slow = GOOD._replace(without=run(8.0, 900), with_tier=run(5.0, 60, 840))
    assert disk_tier.ratios([GOOD, slow]) == [2.0, 1.6]
    text = disk_tier.report(measured(GOOD, slow))
    assert "seconds without ÷ with: 1.80 [1.60-2.00]" in text
    assert "decided: decided so" in text
    assert "another C, same folder | 1.00 [1.00-1.00]" in text


@pytest.mark.parametrize("keep", [True, False])
def test_tier_is_used_as_decided(keep, monkeypatch, tmp_path, capsys):
    """Whatever it decides, steps are the same; what is kept serves another C."""
    said = Decision(1.0, 0.1, 0.1, keep=keep, reason="as the test wants it")
    monkeypatch.setattr(disk, "decide", lambda **_: said)
    problem = Problem(*synthetic.make("few", 300, 10), C=10.0, gamma=1.0)
    options = disk_tier.parse(["--repeats", "1", "--threads", "1"])
    found = disk_tier.measure("toy", problem, tmp_path, options)
    (turn,) = found.turns
    assert disk_tier.check_same_answer(found).holds
    assert turn.with_tier.certificate["disk_tier"] == said.reason
    assert turn.without.certificate["disk_tier"] is None
    assert (turn.with_tier.n_read > 0) == (turn.again.n_read > 0) == (turn.n_files == 1) == keep
    assert turn.without.n_read == turn.again_without.n_read == 0
    assert list(tmp_path.iterdir()) == []
    assert "round 1 toy" in capsys.readouterr().err


def test_few_rows_are_measured_from_end_to_end(monkeypatch, tmp_path, capsys):
    """The half that is made, whatever files there are."""
    monkeypatch.setenv("BIGSVM_DATA", str(tmp_path / "none"))
    assert disk_tier.main(["--rows", "300", "--repeats", "2", "--folder", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert "skipped mnist" in said.err
    assert "narrow: 300 rows x 20" in said.out
    assert "decided: " in said.out
    assert "narrow: rows read, files left" in said.out


@pytest.mark.real_data
def test_mnist_is_read_by_its_first_rows():
    if data_sets.is_skipped(disk_tier.MNIST):
        # A file that a checkout does not hold; the tests above make their rows.
        pytest.skip("no file of mnist")
    problem = dense(disk_tier.MNIST, 50)
    assert problem.x.shape == (50, 784)
    assert problem.x.max() == 255
    assert set(problem.y) == {-1.0, 1.0}


@pytest.mark.parametrize("wrong", [["--rows", "1"], ["--share", "0"], ["--repeats", "0"]])
def test_options_that_mean_nothing_are_refused(wrong):
    with pytest.raises(SystemExit):
        disk_tier.parse(wrong)
