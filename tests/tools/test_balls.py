"""The suites of minimal enclosing balls: their runs at tiny sizes, their limits, their rows."""

from types import SimpleNamespace

import numpy as np
import pytest

from bigsvm.balls.random_rows import RandomRows
from bigsvm.training import events
from tools.benchmarks import kdd_like
from tools.benchmarks.__main__ import main, parse
from tools.benchmarks.data import DataSet
from tools.benchmarks.results import Case, Results, Run
from tools.benchmarks.suites import balls, balls_at_scale


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_every_machine_is_trained_and_tested_beside_c_svc(classes, table_of, capsys):
    classes("a9a", 120)
    assert main(["balls", "--data", "a9a", "w8a", "--repeats", "1", "--times", "1"]) == 0
    printed = capsys.readouterr()
    assert "skipped w8a" in printed.err
    assert "a9a: 120 rows x 123; C 1, gamma " in printed.out
    for who in balls.MACHINES:
        ((_, ratio, n_support, accuracy, stopped),) = table_of(printed.out, who)
        assert float(ratio) > 0
        assert 0 < int(n_support) <= 120
        assert float(accuracy) > 60
        assert stopped in ("converged", "sampled")


def test_c_is_that_of_the_data_or_of_a_kernel_relative_to_distances():
    given = [["--data", "a9a", "w8a"], ["--data", "w8a", "--times", "2"], ["--data", "a9a"]]
    given[2] += ["--times", "2", "--C", "5"]
    found = [[case.parameters for case in balls.cases(parse("balls", each))] for each in given]
    assert found[0] == [{"C": 1.0, "gamma": 0.008}, {"C": 8.0, "gamma": 0.05}]
    assert found[1:] == [[{"C": 64.0, "times": 2.0}], [{"C": 5.0, "times": 2.0}]]


def test_connections_are_alike_but_for_few_and_fresh_ones_are_of_the_same_problem():
    shape = {"n_rows": 4000, "seed": 0}
    x, draws = kdd_like.block_rows(0, **shape), kdd_like.block_draws(0, **shape)
    assert x.shape == (4000, 127)
    assert x.dtype == np.float32
    first = kdd_like.N_NUMBERS
    for n_values in kdd_like.FIELDS:
        field = x[:, first : first + n_values]
        assert set(np.unique(field)) == {0, 1}
        assert (field.sum(axis=1) == 1).all()
        first += n_values
    assert (draws.labels > 0).mean() == pytest.approx(0.8, abs=0.03)
    between = (draws.share > 0) & (draws.share < 1)
    assert between.mean() == pytest.approx(kdd_like.BETWEEN, abs=0.003)
    assert (draws.labels[~between] == 2 * draws.share[~between] - 1).all()
    wrong = (draws.labels > 0) != (draws.share > 0.5)
    assert 0 < wrong.mean() < 0.01
    np.testing.assert_array_equal(x, kdd_like.block_rows(0, **shape))
    fresh = kdd_like.block_rows(0, n_rows=4000, seed=1)
    assert (x != fresh).any(axis=1).all()
    np.testing.assert_allclose(x.mean(axis=0), fresh.mean(axis=0), atol=0.05)


def test_connections_are_the_blocks_in_their_order(monkeypatch):
    monkeypatch.setattr(kdd_like, "BLOCK_ROWS", 100)
    x, y = kdd_like.connections(250, seed=3)
    assert x.chunks == ((100, 100, 50), (127,))
    np.testing.assert_array_equal(x.compute()[200:], kdd_like.block_rows(2, n_rows=50, seed=3))
    assert (y[100:200] == kdd_like.block_draws(1, n_rows=100, seed=3).labels).all()


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_runs_and_steps_at_a_tiny_scale(monkeypatch, table_of, capsys, tmp_path):
    monkeypatch.setattr(RandomRows, "draw", RandomRows.draw)  # put back afterwards
    monkeypatch.setattr(balls_at_scale, "FRESH_ROWS", 500)
    given = ["balls_at_scale", "--memory", "60MB", "--folder", str(tmp_path), "--part"]
    main([*given, "runs", "--sizes", "4000"])
    printed = capsys.readouterr().out
    assert "4000 rows x 127 float32, 2 MB, budget 60 MB, interpreter " in printed
    for who in balls_at_scale.RUNS:
        ((_, _, core, n_support, _, drawn, *_, sweeps, floors, accuracy, _, stopped),) = table_of(
            printed, who
        )
        assert int(n_support) > 0
        assert float(accuracy) > 95
        if who.startswith("sampled"):
            assert int(drawn) > int(core)
            assert (sweeps, floors, stopped) == ("-", "-", "sampled")
        else:
            assert int(sweeps) > 0
            assert float(floors) >= 1
            assert stopped == "converged"
    steps = ["steps", "--sizes", "2000", "4000", "--most-steps", "300", "--repeats", "1"]
    main([*given, *steps, "--contestants", "sampled fw", "sampled mfw"])
    printed = capsys.readouterr().out
    for solver in (", fw", ""):
        for n_rows in ("2000", "4000"):
            ((taken, *_, stopped),) = table_of(printed, n_rows + solver)
            assert (taken, stopped) == ("300", "max_iter")
        label = f"slowest ÷ fastest, for each row and point{solver}"
        assert len(table_of(printed, label)) == 1
    assert list(tmp_path.iterdir()) == []


def test_the_first_round_is_not_in_the_time_of_a_step(monkeypatch):
    watching = balls_at_scale.Watching()
    clock = iter([10.0, 13.0, 20.0])
    monkeypatch.setattr(balls_at_scale, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    for size, steps in ((20, 50), (60, 75), (40, 90)):
        assert watching.seconds_per_step() is None or steps == 90
        watching.listen(events.Searching(size, steps, 1.0, 0.1, 1e-6))
    assert watching.seconds_per_step() == 10 / 40
    assert watching.core == 60


SCALED = {
    "seconds": 3.0, "n_support": 20, "n_sweeps": 2, "n_kernel_evaluations": 50_000,
    "peak_rss": 7 * 10**6, "converged": True, "read_seconds": 1.5, "interpreter": 5 * 10**6,
}  # fmt: skip


def scaled(who, **changes):
    case = Case("1000", DataSet("connections-1000", n_made=1000), {}, facts={"n_rows": 1000})
    return Run(case, who, "dense", 0, SCALED | changes, 0.1)


@pytest.mark.parametrize(
    ("changes", "holds"),
    [
        ({}, [True, True, True, True]),
        ({"read_seconds": 1.4}, [False, True, True, True]),
        ({"peak_rss": 7 * 10**6 + 40_001}, [True, False, True, False]),
        ({"converged": False}, [True, True, False, True]),
    ],
)
def test_runs_at_scale_are_held_against_two_reads_and_the_budget(changes, holds):
    runs = [scaled(who, **changes) for who in ("sampled fw", "certified pairwise")]
    found = Results(tuple(runs), SimpleNamespace(memory="2MB"))
    assert [limit.holds[0] for limit in balls_at_scale.limits(found)] == holds
    row = found.rows("certified pairwise")[0]
    assert balls_at_scale.floors(row) == "2.50"
    assert balls_at_scale.floors(found.rows("sampled fw")[0]) == "-"


@pytest.mark.parametrize(("slowest", "holds"), [(8.0, True), (8.1, False)])
def test_the_slowest_step_is_held_against_the_fastest_for_each_point(slowest, holds):
    runs = [
        scaled("sampled fw", microseconds=2.0, core=20),
        scaled("sampled fw", microseconds=slowest, core=40),
    ]
    runs[1] = runs[1]._replace(case=runs[1].case._replace(name="2000"))
    (limit,) = balls_at_scale.step_limits(Results(tuple(runs), SimpleNamespace()))
    assert limit.holds == (holds,)
