"""The benchmark of overlapping classes: its family, its table and what it checks."""

import crowded
import numpy as np
import pytest
import synthetic
from crowded import BASE, OURS, PEER, Measured


def test_rows_have_an_area_and_a_kind_beside_waves():
    x, y = synthetic.make("crowded", 500, 50)
    waves, areas, kinds = np.split(x, [10, 14], axis=1)
    assert waves.min() >= 0.25
    assert waves.max() <= 0.75
    for field in (areas, kinds):
        np.testing.assert_array_equal(np.sort(field, axis=1)[:, -1], 1)
        np.testing.assert_array_equal(field.sum(axis=1), 1)
    assert np.mean(y > 0) == pytest.approx(0.5, abs=0.2)


def measured(who=OURS, n_rows=200_000, **changes):
    answer = {
        "seconds": 10.0, "cpu_seconds": 10.0, "n_support": n_rows // 4, "converged": True,
        "n_kernel_evaluations": n_rows * (n_rows // 4) * 2, "n_working_sets": 7, "n_iter": 99,
        "objective": 1.0, "peak_rss": 10**8, "row_bytes": 10**6, "seconds_by_phase": None,
    }  # fmt: skip
    return Measured(who, n_rows, [answer | changes])


def checked(*runs):
    checks = crowded.check(runs, budget=10**8, baseline=10**7, held=True)
    return {c.name.partition(",")[0] for c in checks if not c.holds}


def slow(who, n_rows=200_000, evaluations=4, seconds=20.0):
    cost = n_rows * (n_rows // 4) * evaluations
    return measured(who, n_rows, n_kernel_evaluations=cost, seconds=seconds, cpu_seconds=seconds)


@pytest.mark.parametrize(
    ("runs", "failing"),
    [
        ([measured(), slow(BASE)], set()),
        ([measured(), slow(BASE, evaluations=3)], {"evaluations ÷ base"}),
        ([measured(n_rows=50_000), slow(BASE, 50_000, evaluations=1, seconds=14.0)], set()),
        ([measured(), slow(BASE, seconds=14.0)], {"base ÷ CPU seconds"}),
        ([measured(), slow(PEER, seconds=50.0)], set()),
        ([measured(), slow(PEER, seconds=49.0)], {"sklearnex ÷ seconds"}),
        ([measured(converged=False)], {"converged"}),
        ([slow(OURS)], {"floors"}),
        ([slow(OURS, 1000, 2), slow(OURS, 2000, 3)], {"most floors ÷ least"}),
        ([measured(peak_rss=10**8 + 10**7 + 10**6 + 40 * 200_000)], set()),
        ([measured(peak_rss=2 * 10**8)], {"peak RSS"}),
    ],
)
def test_runs_are_held_against_the_limits(runs, failing):
    assert checked(*runs) == failing


def test_report_has_counts_and_the_share_of_the_certificate():
    phases = {"certificate": 1.0, "sweeps": 3.0}
    text = crowded.report([measured(seconds_by_phase=phases), slow(PEER)])
    line, peer = text.splitlines()[2:]
    cells = [cell.strip() for cell in line.split("|")[1:-1]]
    assert cells[:9] == [
        "200000", OURS, "25.0%", "2.00", "20000", "7", "99", "10.00", "25.0%"
    ]  # fmt: skip
    assert peer.count(" - ") == 6
    assert "| - " in crowded.report([measured()])


def test_a_base_without_bigsvm_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        crowded.parse(["--base", str(tmp_path)])
    assert "no folder bigsvm" in capsys.readouterr().err
