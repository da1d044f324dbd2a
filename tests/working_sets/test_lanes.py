"""FunctionProblems: what becomes of a function depends on itself alone."""

import functools
import threading

import numpy as np
import pytest

from bigsvm.core.smo import REFRESH
from bigsvm.duals.box import BoxDual, rule_of
from bigsvm.duals.dual import Point
from bigsvm.duals.formulations import CSVC
from bigsvm.gram import KernelTiles
from bigsvm.gram.row_cache import RowBuffer
from bigsvm.interruption import checked_by
from bigsvm.kernels import RBF
from bigsvm.working_sets.lanes import SLICES, FunctionProblems, LaneLimits
from bigsvm.working_sets.subproblem import Memory, Progress, SubProblem

K_CLASSES, SIZE, TOL = 5, 300, 1e-4


class Functions:
    """Classes that overlap, each against the rest, and working sets of their own rows."""

    def __init__(self, rule="second-order"):
        rng = np.random.default_rng(0)
        label = rng.integers(K_CLASSES, size=600)
        self.X = (rng.standard_normal((600, 3)) + label[:, None]).astype(np.float32)
        # One is empty, and one is smaller than the others.
        sizes = [SIZE, 0, SIZE, SIZE // 3, SIZE]
        self.sets = [np.sort(rng.permutation(600)[:size]) for size in sizes]
        signs = [np.where(label == c, 1, -1).astype(np.int8) for c in range(K_CLASSES)]
        name = rule_of(rule)
        self.duals = [BoxDual(CSVC(sign=sign, C=1e4), name) for sign in signs]
        self.gradient = np.concatenate(
            [sign[rows].astype(float) for sign, rows in zip(signs, self.sets, strict=True)]
        )

    def one(self, c, places, start, *, tiles, memory):
        return SubProblem(self.duals[c], tiles, self.X[places], places, start, memory)

    def problems(self, tiles, *, lanes=1, rows=10**6, slots=4 * SIZE, start=None):
        return FunctionProblems(
            self.sets, start or Point(np.zeros(len(self.gradient)), self.gradient),
            make=[functools.partial(self.one, c) for c in range(K_CLASSES)],
            tiles=tiles, memory=Memory(RowBuffer(4096 * slots)), limits=LaneLimits(lanes, rows),
        )  # fmt: skip


def reached(problems):
    """Where the problems are now, for others to go on from."""
    return problems.point


def tiles_of(threads):
    return KernelTiles(RBF(gamma=0.5), threads=threads)


def solved(problems, **given):
    progress = Progress.STEPS_SPENT
    while progress is Progress.STEPS_SPENT:
        progress = problems.advance(tol=TOL, max_steps=REFRESH * problems.slices, **given)
    problems.close()
    return progress


def assert_same_bits(found, expected):
    for one, other in zip(found.point, expected.point, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("rule", ["second-order", "hmg"])
def test_lanes_do_not_change_the_bits(rule):
    functions, alone = Functions(rule), {}
    with tiles_of(1) as tiles:
        expected = functions.problems(tiles)
        assert solved(expected) is Progress.CONVERGED
        n_evaluations, begin = tiles.n_evaluations, 0
        for c, rows in enumerate(functions.sets):
            if len(rows):
                part = slice(begin, begin + len(rows))
                alone[c] = functions.one(
                    c, rows, Point(np.zeros(len(rows)), functions.gradient[part]),
                    tiles=tiles, memory=Memory(RowBuffer(4096 * SIZE)),
                )  # fmt: skip
                while alone[c].advance(tol=TOL) is Progress.STEPS_SPENT:
                    pass
                np.testing.assert_array_equal(expected.point.alpha[part], alone[c].point.alpha)
            begin += len(rows)
    assert expected.point.n_done == sum(one.point.n_done for one in alone.values()) > 4 * REFRESH
    for lanes in (2, 3, 8):
        with tiles_of(3) as tiles:
            found = functions.problems(tiles, lanes=lanes)
            assert solved(found) is Progress.CONVERGED
            assert tiles.n_evaluations == n_evaluations
        assert_same_bits(found, expected)
        assert found.costs.misses == expected.costs.misses


def test_gone_on_with_from_any_slice_it_gives_the_same_bits():
    """What it was is what `alpha`, `gradient`, `last` and `steps` say."""
    functions = Functions()
    with tiles_of(3) as tiles:
        expected = functions.problems(tiles)
        solved(expected)
        for first in range(1, 6):
            problems = functions.problems(tiles, lanes=3)
            for turn in range(100):
                progress = problems.advance(tol=TOL, max_steps=first * REFRESH)
                if progress is not Progress.STEPS_SPENT:
                    break
                problems.close()
                problems = functions.problems(tiles, lanes=1 + turn % 3, start=reached(problems))
            assert turn > 1
            assert_same_bits(problems, expected)


@pytest.mark.parametrize("of_caller", [True, False])
def test_stopped_in_any_lane_all_of_them_stop(of_caller):
    functions, calls, lock = Functions(), [], threading.Lock()
    caller = threading.get_ident()

    def check():
        with lock:
            calls.append(threading.get_ident())
            if len(calls) > 6 and (calls[-1] == caller) is of_caller:
                raise InterruptedError

    with tiles_of(3) as tiles:
        problems = functions.problems(tiles, lanes=3)
        with checked_by(check), pytest.raises(InterruptedError):
            solved(problems)
        problems.close()
        before = len(calls), tiles.n_evaluations
        assert before[1] > 0
        # Nobody works on, and from where it was before the same comes of it.
        again = functions.problems(tiles, lanes=3)
        solved(again)
        assert len(calls) == before[0]
        expected = functions.problems(tiles)
        solved(expected)
    assert_same_bits(again, expected)


@pytest.mark.parametrize(("room", "lanes"), [
    ({}, 1), ({"lanes": 3}, 3), ({"lanes": 9}, 4), ({"lanes": 3, "rows": 2 * SIZE}, 2),
    ({"lanes": 3, "rows": SIZE - 1}, 1), ({"lanes": 4, "slots": SIZE}, 2),
    ({"lanes": 4, "slots": SIZE // 3}, 1),
])  # fmt: skip
def test_there_are_as_many_lanes_as_there_is_room_for(room, lanes):
    """Threads, functions, rows that are packed at once, and kernel rows."""
    with tiles_of(1) as tiles:
        problems = Functions().problems(tiles, **room)
        assert problems.slices == SLICES * lanes


def test_functions_of_few_steps_are_solved_in_one_slice():
    """A caller that copies the state after each slice would do so for each of many classes."""
    functions = Functions()
    with tiles_of(1) as tiles:
        one = functions.problems(tiles)
        assert one.advance(tol=1.0, max_steps=REFRESH) is Progress.STEPS_SPENT
        while one.advance(tol=1.0, max_steps=REFRESH) is Progress.STEPS_SPENT:
            pass
        problems = functions.problems(tiles)
        assert problems.advance(tol=1.0, max_steps=problems.slices * REFRESH) is Progress.CONVERGED
        assert_same_bits(problems, one)
        one.close()
        problems.close()


def test_stalled_function_does_not_stop_the_others(monkeypatch):
    functions, advance = Functions(), SubProblem.advance

    def stuck(self, **given):
        return Progress.STALLED if self.size < SIZE else advance(self, **given)

    with tiles_of(2) as tiles:
        expected = functions.problems(tiles)
        solved(expected)
        monkeypatch.setattr(SubProblem, "advance", stuck)
        problems = functions.problems(tiles, lanes=2)
        assert solved(problems) is Progress.STALLED
        moved = problems.point.alpha != 0
        assert moved[: 2 * SIZE].any()
        assert not moved[2 * SIZE : -SIZE].any()
        for part in (slice(2 * SIZE), slice(-SIZE, None)):
            np.testing.assert_array_equal(problems.point.alpha[part], expected.point.alpha[part])
        # Gone on with it says the same, and takes no step.
        again = functions.problems(tiles, start=reached(problems))
        assert again.advance(tol=TOL) is Progress.STALLED
        assert again.point.n_done == problems.point.n_done
