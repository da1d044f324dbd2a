"""Pairs trained at once: to the same bits as one after the other, and ended together."""

import functools
import threading
from concurrent.futures import wait

import numpy as np
import pytest
from support import HANGS
from support.one_vs_one import train
from support.problems import clouds
from support.resuming import StopAt
from support.same import assert_same_bits

from bigsvm.data.sources import as_row_source
from bigsvm.errors import CheckpointError
from bigsvm.fit.pair_problems import Budget, ClassPairs
from bigsvm.fit.pair_training import PairTraining
from bigsvm.fit.problem import Given
from bigsvm.gram.spans import Team
from bigsvm.one_vs_one.class_rows import ClassRows
from bigsvm.parameters import TrainingParameters
from bigsvm.training import events
from bigsvm.training.events import Hooks
from bigsvm.training.result import StopReason

pytestmark = pytest.mark.usefixtures("pairs_by_runs")

KINDS = {
    "c-svc": {"C": 5.0},
    "nu-svc": {"formulation": "nu-svc", "nu": 0.2},
    "l2-svc": {"formulation": "l2-svc", "C": 3.0},
    "all rows": {"working_set": "all"},
}


@pytest.fixture
def seen(monkeypatch):
    """Threads that each pair was trained on, as (pair, thread, threads it had)."""
    found = []
    solve = ClassPairs.solve

    def watched(self, pair, rows, trainer, plan, **others):
        found.append((pair, threading.get_ident(), trainer.tiles.threads))
        return solve(self, pair, rows, trainer, plan, **others)

    monkeypatch.setattr(ClassPairs, "solve", watched)
    return found


@functools.cache
def in_one_lane(kind):
    return train(*clouds(k=6, n=450), **KINDS[kind]).functions


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("threads", [2, 3, 8])
def test_lanes_do_not_change_the_bits(kind, threads, seen):
    found = train(*clouds(k=6, n=450), threads=threads, **KINDS[kind]).functions
    in_lanes = len({thread for _, thread, _ in seen})
    whole = in_one_lane(kind)
    assert whole.certificate.converged
    assert_same_bits(found, whole)
    evaluations = [one.certificate.n_kernel_evaluations for one in (found, whole)]
    assert evaluations[0] == evaluations[1] > 0
    if kind == "all rows":
        assert in_lanes == 1


def test_a_lane_has_its_share_of_the_threads_and_the_longest_pairs_are_first(seen, monkeypatch):
    lanes, train_all, taken = Budget.lanes, PairTraining._train_all, []

    def watched(self, count, pairs, numbers, rows):
        taken.extend(map(tuple, pairs.tolist()))
        return train_all(self, count, pairs, numbers, rows)

    monkeypatch.setattr(Budget, "lanes", lambda *given: min(2, lanes(*given)))
    monkeypatch.setattr(PairTraining, "_train_all", watched)
    X, y = clouds(k=6, n=600)
    train(X, y, threads=5)
    assert {threads for *_, threads in seen} == {2}
    # Not the order in which they begin: a lane that has taken a pair may be slow to begin it.
    assert sorted(pair for pair, *_ in seen) == sorted(taken)
    work = np.bincount(y)[np.array(taken)].sum(axis=1)
    assert (np.diff(work) <= 0).all()
    for thread in {thread for _, thread, _ in seen}:
        own = [taken.index(pair) for pair, at, _ in seen if at == thread]
        assert own == sorted(own)


def test_a_pair_that_is_most_of_the_work_has_all_threads(seen):
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [500, 500, 20])
    train(rng.standard_normal((len(y), 3)) + y[:, None], y, threads=2)
    assert seen[0][0] == (0, 1)
    assert seen[0][2] == 2
    assert {threads for *_, threads in seen[1:]} == {1}


def test_max_iter_trains_pairs_in_one_lane_in_libsvms_order(seen):
    X, y = clouds(k=5, n=300)
    found = train(X, y, C=5.0, threads=2, max_iter=10**6).functions
    assert [pair for pair, *_ in seen] == [(a, b) for a in range(5) for b in range(a + 1, 5)]
    assert {threads for *_, threads in seen} == {2}
    assert_same_bits(found, train(X, y, C=5.0).functions)


class TestNumberOfLanes:
    @pytest.fixture
    def lanes(self):
        X, y = clouds(k=4, n=4000, d=20)

        def count(n_rows=2000, alignment=1, **given):
            parameters = TrainingParameters(**{"threads": 4, "gamma": 1.0, **given})
            source = as_row_source(X)
            problem = ClassPairs(Given(source, y, None, parameters, Hooks()))
            rows = ClassRows(source, problem.codes, 4)
            problem.check(rows)
            return Budget(parameters, rows, problem).lanes(n_rows, alignment)

        return count

    def test_as_many_lanes_as_threads_where_memory_allows(self, lanes):
        assert [lanes(threads=threads) for threads in (1, 2, 4, 16)] == [1, 2, 4, 16]

    def test_fewer_lanes_where_kernel_rows_do_not_fit(self, lanes):
        found = [lanes(memory=memory * 10**6) for memory in (30, 50, 70, 200)]
        assert found[0] == 1
        assert found == sorted(found)
        assert 1 < found[1] < 4 or 1 < found[2] < 4
        assert found[-1] == 4

    def test_one_lane_for_streamed_rows_and_whole_working_sets(self, lanes):
        assert lanes(alignment=1000) == 1
        assert lanes(working_set="all") == 1


class TestInterruptedLanes:
    def test_error_in_one_lane_ends_all_and_the_run_is_resumed(self, tmp_path, monkeypatch):
        X, y = clouds(k=6, n=900)
        whole = train(X, y, C=5.0).functions
        given = {"C": 5.0, "threads": 2, "checkpoint": str(tmp_path), "checkpoint_every": 1e-9}
        solve = ClassPairs.solve

        def failing(self, pair, *arguments, **others):
            if pair == (2, 3):
                raise CheckpointError("no room")
            return solve(self, pair, *arguments, **others)

        with monkeypatch.context() as patch:
            patch.setattr(ClassPairs, "solve", failing)
            with pytest.raises(CheckpointError, match="no room"):
                train(X, y, **given)
        # Threads that decode chunks of stores are kept; other tests may have begun them.
        names = {one.name.rpartition("_")[0] for one in threading.enumerate()} - {
            "bigsvm-codec",
            "bigsvm-far",
        }
        assert not [name for name in names if name.startswith("bigsvm")]
        again = []
        found = train(X, y, hooks=Hooks(listener=again.append), **given).functions
        done = [event.done for event in again if isinstance(event, events.PairsUnderWay)]
        assert done[0] > 0
        assert_same_bits(found, whole)

    def test_interrupt_in_one_lane_stops_all(self, tmp_path):
        X, y = clouds(k=8, n=900)
        hooks = Hooks(interrupted=StopAt(20))
        stopped = train(X, y, hooks=hooks, threads=3, checkpoint=str(tmp_path)).functions
        assert stopped.certificate.stop_reason is StopReason.INTERRUPTED
        assert stopped.pairs["n_begun"] < 28
        found = train(X, y, threads=3, checkpoint=str(tmp_path)).functions
        assert_same_bits(found, train(X, y).functions)

    def test_time_limit_holds_for_all_lanes(self):
        found = train(*clouds(k=8), max_seconds=1e-9, threads=2).functions
        assert found.certificate.stop_reason is StopReason.TIME_LIMIT

    def test_interrupt_while_waiting_ends_the_other_lanes(self, monkeypatch):
        ended, at_work, me = threading.Event(), threading.Barrier(2), threading.get_ident()
        left = [KeyboardInterrupt]

        def interrupted(futures):
            if left:
                raise left.pop()
            return wait(futures)

        def one(part):
            at_work.wait()
            if threading.get_ident() != me:
                assert ended.wait(HANGS)
                done.append(part)

        done = []
        monkeypatch.setattr("bigsvm.gram.spans.wait", interrupted)
        team = Team(2, "test")
        try:
            with pytest.raises(KeyboardInterrupt):
                team.share_out(one, ["a", "b"], 1, abandon=ended.set)
            assert len(done) == 1
        finally:
            ended.set()
            team.close()


def test_events_of_lanes_are_reported_one_at_a_time(monkeypatch):
    monkeypatch.setattr("bigsvm.fit.pair_training.TOLD_AFTER", 0.0)
    told, at_once = [], threading.Lock()

    def listener(event):
        assert at_once.acquire(blocking=False)
        told.append(event)
        at_once.release()

    X, y = clouds(k=8, n=1600)
    train(X, y, threads=2, hooks=Hooks(listener=listener))
    within = [event.event for event in told if isinstance(event, events.OfPair)]
    first = [event for event in within if isinstance(event, events.Swept) and event.sweep == 1]
    assert 0 < len(first) < 28
    done = [event.done for event in told if isinstance(event, events.PairsUnderWay)]
    assert done == list(range(29))
