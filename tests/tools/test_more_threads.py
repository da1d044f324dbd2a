"""Sets side by side and rows ahead of steps: what was tried is right, so that its counts are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.benchmarks import contestants, side_by_side
from tools.benchmarks.data import made
from tools.benchmarks.side_by_side import best_shares
from tools.benchmarks.suites import more_threads
from tools.benchmarks.suites.more_threads import Work
from tools.benchmarks.suites.serial_share import Call

pytestmark = pytest.mark.usefixtures("one_thread")


@given(st.integers(0, 1000), st.integers(2, 4))
def test_sets_are_joined_where_the_objective_is_largest(seed, k):
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(k, k))
    gains, curvature = rng.normal(size=k) + 0.5, factor @ factor.T + 0.1 * np.eye(k)

    def objective(t):
        return t @ gains - 0.5 * np.einsum("...i,ij,...j->...", t, curvature, t)

    shares = best_shares(gains, curvature)
    assert ((shares >= 0) & (shares <= 1)).all()
    assert objective(shares) >= objective(rng.random((200, k))).max() - 1e-9


def test_a_set_alone_goes_all_its_way():
    assert best_shares(np.array([1.0]), np.array([[4.0]])).tolist() == [1.0]


@pytest.mark.parametrize(
    ("threads", "one", "all_"),
    [(1, 20.0, 20.0), (2, 15.0, 11 + 4 / 1.7), (64, 13.0625, 9.0625 + 4 / 54.4)],
)
def test_seconds_of_threads_divide_what_they_share(threads, one, all_):
    work = Work()
    work.total, work.row_seconds = 20.0, 4.0
    work.calls = [Call([3.0, 1.0, 2.0], 3), Call([2.0, 2.0], 1)]
    # 6 s are left, and the longest set takes 3.
    assert work.elapsed(threads, divides_rows=False) == pytest.approx(one)
    assert work.elapsed(threads, divides_rows=True) == pytest.approx(all_)


@pytest.fixture
def job(tmp_path):
    """Rows of a small problem that our own solver takes."""
    contestants.prepare(
        {"data": list(made("few", 3000)), "folder": str(tmp_path), "labels": "",
         "layouts": ["dense"], "distances": False, "stores": False}
    )  # fmt: skip
    return {"name": "few-3000", "folder": str(tmp_path), "layout": "dense",
            "parameters": {"C": 32.0, "gamma": 2.0}}  # fmt: skip


def test_runs_side_by_side_end_at_the_same_objective(job, monkeypatch):
    monkeypatch.setattr(side_by_side, "LEAST_ROWS", 200)
    found = {
        who: more_threads.fit_side_by_side(job | {"who": who})
        for who in (more_threads.AS_IT_IS, "4 parts", "2 neighbourhoods")
    }
    whole = found.pop(more_threads.AS_IT_IS)
    assert whole["longest"] == whole["n_iter"]
    for side in found.values():
        assert side["converged"]
        apart = abs(side["objective"] - whole["objective"])
        assert apart <= side["duality_gap"] + whole["duality_gap"]
        assert 0 < side["longest"] < side["n_iter"]
        assert side["rows by one"][1] < side["seconds"]


def test_rows_ahead_are_counted(job):
    found = more_threads.fit_noting_rows(job | {"who": "noted"})
    assert found["converged"]
    assert found["fetched"] >= found["batches"] > 0
    for name in ("fetched used", "ahead used", "row seconds", "step seconds"):
        assert 0 < found[name] <= 100
    assert 0 <= found["one 2"] <= found["one 8"]
    assert found["all 8"] <= found["one 8"]
