"""Threads that share tasks, or one that has none to share with."""

import threading

import pytest

from bigsvm.gram.spans import Team
from bigsvm.processors import one_thread, works_alone


@pytest.fixture
def team():
    team = Team(3, "test")
    yield team
    team.close()


def threads_of(team, *, timeout=120.0):
    """Threads that take part in tasks that wait for one another, for at most `timeout` seconds."""
    seen, all_there = set(), threading.Barrier(3, timeout=timeout)

    def work(task):
        seen.add(threading.get_ident())
        try:
            all_there.wait()
        except threading.BrokenBarrierError:
            pass

    team.share_out(work, range(3), 2)
    return seen


def test_tasks_are_shared(team):
    assert len(threads_of(team)) == 3


def test_one_thread_has_no_helpers(team):
    with one_thread():
        with one_thread():
            pass
        assert works_alone()
        assert threads_of(team, timeout=0.1) == {threading.get_ident()}
    assert len(threads_of(team)) == 3


def test_other_threads_are_not_alone():
    said = []
    with one_thread():
        other = threading.Thread(target=lambda: said.append(works_alone()))
        other.start()
        other.join()
    assert said == [False]
