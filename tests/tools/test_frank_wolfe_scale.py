"""Balls at scale: rows like KDD99's, one measurement in its process, limits, on small stores."""

from types import SimpleNamespace

import frank_wolfe
import frank_wolfe_once
import frank_wolfe_scale
import kdd_like
import numpy as np
import pytest

from bigsvm.data.random_rows import RandomRows
from bigsvm.training import events


def cells(text, *of):
    """The cells of the line of a table that begins with these."""
    for line in text.splitlines():
        found = [cell.strip() for cell in line.split("|")[1:-1]]
        if tuple(found[: len(of)]) == of:
            return found[len(of) :]
    raise AssertionError(f"no line of {of} in\n{text}")


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


def test_what_a_search_draws_is_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(RandomRows, "draw", RandomRows.draw)  # put back afterwards
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(frank_wolfe_once, "FRESH_ROWS", 500)
    kdd_like.write(tmp_path / "s.zarr", n_rows=2000)
    given = {"formulation": "l2-svc", "C": 8.0, "gamma": "unhalved-distance", "certify": False}
    found = frank_wolfe_once.fit(tmp_path / "s.zarr", {**given, "sampling": 59})
    assert found["stop_reason"] == "sampled"
    assert found["rows_drawn"] % 59 == 0
    assert found["n_support"] <= found["core"] < found["rows_drawn"] < 1e5
    assert found["accuracy"] > 95
    assert 0 < found["seconds_per_step"] < found["seconds"]
    assert frank_wolfe_once.read(tmp_path / "s.zarr")["n_rows"] == 2000


def test_the_first_round_is_not_in_the_time_of_a_step(monkeypatch):
    watching = frank_wolfe_once.Watching()
    clock = iter([10.0, 13.0, 20.0])
    monkeypatch.setattr(frank_wolfe_once, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    for size, steps in ((20, 50), (60, 75), (40, 90)):
        assert watching.seconds_per_step() is None or steps == 90
        watching.listen(events.Searching(size, steps, 1.0, 0.1, 1e-6))
    assert watching.seconds_per_step() == 10 / 40
    assert watching.core == 60


SCALED = {
    "seconds": 3.0, "core": 30, "n_support": 20, "n_iter": 400, "rows_drawn": 590, "n_rows": 1000,
    "bytes_read": 5 * 10**6, "n_sweeps": 2, "n_kernel_evaluations": 50_000, "accuracy": 99.0,
    "peak_rss": 7 * 10**6, "stop_reason": "sampled", "converged": False,
}  # fmt: skip


def test_runs_at_scale_are_held_against_two_reads_and_the_budget():
    runs = {"sampled fw": SCALED, "certified pairwise": {**SCALED, "converged": True}}
    found = frank_wolfe_scale.checks(runs, read=1.5, limit=7 * 10**6)
    assert len(found) == 4
    assert all(check.holds for check in found)
    runs["certified pairwise"] = SCALED
    found = frank_wolfe_scale.checks(runs, read=1.4, limit=6 * 10**6)
    assert not any(check.holds for check in found)


def test_a_line_at_scale_has_floors_where_there_were_sweeps():
    cell = dict(zip(frank_wolfe_scale.HEADER, range(99), strict=False))
    sampled = frank_wolfe_scale.line("sampled fw", SCALED, 1.5)
    certified = frank_wolfe_scale.line("certified pairwise", SCALED, 1.5)
    assert len(sampled) == len(certified) == len(cell)
    assert sampled[cell["÷ two reads"]] == "1.00"
    assert [sampled[cell[name]] for name in ("sweeps", "floors")] == ["-", "-"]
    assert [certified[cell[name]] for name in ("sweeps", "floors")] == ["2", "2.50"]


def test_steps_against_rows_from_end_to_end(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(frank_wolfe_scale, "SIZES", (2000, 10**6))
    given = ["--steps", "--rows", "4000", "--folder", str(tmp_path), "--memory", "30MB"]
    assert frank_wolfe.main(["scale", *given, "--most-steps", "300", "--repeats", "1"]) == 0
    out = capsys.readouterr().out
    for n_rows in ("2000", "4000"):
        found = cells(out, n_rows)
        assert found[0] == "300"
        assert found[-1] == "max_iter"
    assert "slowest ÷ fastest step" in out
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "kdd-like-2000.zarr",
        "kdd-like-4000.zarr",
    ]


@pytest.mark.slow
def test_scale_from_end_to_end(capsys):
    assert frank_wolfe.main(["scale", "--rows", "5000", "--memory", "30MB"]) == 0
    out = capsys.readouterr().out
    for solver in frank_wolfe_scale.SAMPLED:
        assert cells(out, f"sampled {solver}")[-1] == "sampled"
    assert cells(out, "certified pairwise")[-1] == "converged"
    assert cells(out, "certified pairwise: converged")[-1] == "holds"
