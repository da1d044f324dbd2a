"""RowState: where all variables stand while a working set is in progress."""

import numpy as np
import pytest

from bigsvm.training.check_saved import Sizes, check_state
from bigsvm.training.state import first_state
from bigsvm.working_sets.choice import WorkingSet

N, K = 6, 2


def state_of(rows, sizes, active=()):
    """A state of two functions, in the middle of a working set whose alphas are 1, 2, …"""
    rows, sizes, active = (np.array(one, np.int64) for one in (rows, sizes, active))
    alpha = 1.0 + np.arange(len(rows))
    if not len(sizes):
        alpha = np.stack([alpha, -alpha], axis=1)
    state = first_state(np.zeros((N, K)), n_outputs=K)
    of_active = np.full((len(active), K), 7.0)
    return state._replace(
        active=active, active_alpha=of_active, active_outputs=of_active
    ).with_working_set(WorkingSet(rows, sizes, alpha, alpha))


def test_a_working_set_of_rows_has_all_of_their_variables():
    alpha = state_of([1, 4], [], active=[1, 2, 4]).current_alpha()
    np.testing.assert_array_equal(alpha, [[0, 0], [1, -1], [7, 7], [0, 0], [2, -2], [0, 0]])


@pytest.mark.parametrize("active", [(), (0, 1, 4)])
def test_working_sets_of_functions_are_one_after_the_other(active):
    state = state_of([1, 0, 4], [1, 2], active)
    expected = np.zeros((N, K))
    expected[list(active)] = 7.0
    expected[1, 0], expected[0, 1], expected[4, 1] = 1, 2, 3
    np.testing.assert_array_equal(state.current_alpha(), expected)
    assert state.working_set.functions.tolist() == [0, 1, 1]
    assert state.working_set.largest == 2
    assert state.without_working_set().working_set.largest == 0


def apart(rows, sizes):
    """A state of one function, in the middle of several working sets whose alphas are 1, 2, …"""
    rows, sizes = np.array(rows, np.int64), np.array(sizes, np.int64)
    alpha, active = 1.0 + np.arange(len(rows)), np.arange(N)
    of_active = np.full(N, 7.0)
    state = first_state(np.zeros(N))._replace(
        active=active, active_alpha=of_active, active_outputs=of_active
    )
    return state.with_working_set(WorkingSet(rows, sizes, alpha, alpha))


def test_sets_of_one_function_count_only_where_they_need_not_be_joined():
    state = apart([1, 4, 0, 3, 2], [2, 1, 1, 1])
    np.testing.assert_array_equal(state.current_alpha(), np.full(N, 7.0))
    np.testing.assert_array_equal(state.current_alpha(joined=False), [3, 1, 5, 4, 2, 7])


@pytest.mark.fault("damaged-checkpoints")
@pytest.mark.parametrize(("rows", "sizes", "fault"), [
    ([1, 4, 0, 3, 2], [2, 1, 1, 1], ""),
    ([1, 4, 0, 3, 1], [2, 1, 1, 1], "in two sets"),
    ([4, 1, 0, 3, 2], [2, 1, 1, 1], "ascending"),
    ([1, 4, 0, 3, 2], [2, 1, 1, 2], "add up"),
    ([1, 4, 0, 3], [2, 1, 1], "set_sizes"),
])  # fmt: skip
def test_sets_of_one_function_that_were_saved_are_checked(rows, sizes, fault):
    random_state = np.random.default_rng(0).bit_generator.state
    values = {"phase": "solve", "scope": N, "rows_done": 0, "random_state": random_state}
    given = apart(rows, sizes)._asdict(), values, Sizes(N, N)
    if not fault:
        check_state(*given)
        return
    with pytest.raises(ValueError, match=fault):
        check_state(*given)


@pytest.mark.fault("damaged-checkpoints")
@pytest.mark.parametrize(("rows", "sizes", "active", "fault"), [
    ([1, 0, 4], [1, 2], [0, 1, 4], ""),
    ([1, 0, 4], [1, 2], [], ""),
    ([1, 0, 4], [], [0, 1, 4], "ascending"),
    ([1, 0, 4], [2, 1], [0, 1, 4], "ascending"),
    ([1, 0, 6], [1, 2], [], "within 0 and scope"),
    ([-1, 0, 4], [1, 2], [], "within 0 and scope"),
    ([1, 0, 4], [1, 1], [0, 1, 4], "add up"),
    ([1, 0, 4], [4, -1], [0, 1, 4], "add up"),
    ([1, 0, 4], [3 + 2**62, -(2**62)], [0, 1, 4], "add up"),
    ([1, 0, 4], [1, 2], [0, 1, 3], "not active"),
    ([0, 5], [], [0, 1, 3], "not active"),
])  # fmt: skip
def test_rows_of_a_saved_working_set_are_checked(rows, sizes, active, fault):
    arrays = state_of(rows, sizes, active)._asdict()
    random_state = np.random.default_rng(0).bit_generator.state
    values = {"phase": "solve", "scope": N, "rows_done": 0, "random_state": random_state}
    known = Sizes(N, N, (K,), (K,), K)
    if not fault:
        check_state(arrays, values, known)
        return
    with pytest.raises(ValueError, match=fault):
        check_state(arrays, values, known)
