"""Replies are held to what a call asks for, without a cluster."""

import inspect
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from bigsvm.executors import tasks
from bigsvm.executors.messages import Done, NotKept, Opened
from bigsvm.executors.replies import (
    Expected,
    Listed,
    ReplyError,
    answers_in,
    checked,
    digest_of,
    fault_of_opened,
    sign,
)
from bigsvm.fit import pair_tasks
from bigsvm.selection import tasks as selection_tasks

SUMS = np.arange(6.0).reshape(3, 2)
ROWS = sp.csr_array(np.array([[0, 1, 2], [0, 0, 0], [3, 0, 4]], np.float32))
EXPECTED = {
    "sums": (SUMS, Expected((3, 2))),
    "any": (SUMS, Expected((None, 2))),
    "rows": (ROWS.toarray(), Expected((3, 3), np.dtype(np.float32))),
    "sparse": (ROWS, Expected((3, 3), np.dtype(np.float32), is_sparse=True)),
    "list": ([1, "b"], Listed(2, lambda place, one: "")),
}


def done(values, **costs):
    return sign(Done(values, **{**COSTS, **costs}))


COSTS = {"evaluations": 6, "bytes_read": 0, "seconds": 0.1, "cpu_seconds": 0.1}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_right_reply_is_taken_as_it_is(name):
    values, expected = EXPECTED[name]
    found = checked(done(values), expected).values
    assert type(found) is type(values)
    for one, other in (
        [(found, values)] if isinstance(values, list) else [(digest_of(found), digest_of(values))]
    ):
        assert one == other


def test_a_worker_may_say_that_it_lacks_what_a_call_refers_to():
    assert checked(NotKept(), Expected((1,))) == NotKept()


@pytest.mark.parametrize("reply", [None, "text", 3.0, (1, 2), [], [1], [1, 2, 3], {}])
def test_a_task_has_a_list_of_as_many_answers_as_calls(reply):
    with pytest.raises(ReplyError, match=r"^returned .* instead of "):
        answers_in(reply, 2)


@pytest.mark.parametrize("answer", [None, "text", 3.0, tuple(done(SUMS)), SUMS])
def test_an_answer_is_a_result(answer):
    with pytest.raises(ReplyError, match=r"^returned .* instead of a result"):
        checked(answer, Expected((3, 2)))


WRONG = {
    "none": (None, "None instead of ndarray"),
    "text": ("x" * 100, "instead of ndarray"),
    "list": ([1.0], "instead of ndarray"),
    "one row short": (SUMS[:-1], r"shape \(2, 2\) instead of float64 of shape \(3, 2\)"),
    "one sum short": (SUMS[:, :1], r"shape \(3, 1\)"),
    "flat": (SUMS.ravel(), r"shape \(6,\)"),
    "float32": (SUMS.astype(np.float32), "float32 values"),
    "objects": (SUMS.astype(object), "object values"),
    "subclass": (np.ma.masked_array(SUMS), "MaskedArray instead of ndarray"),
    "sparse": (ROWS, "csr_array instead of ndarray"),
    "NaN": (np.where(SUMS == 4, np.nan, SUMS), "NaN or infinite"),
    "infinite": (np.where(SUMS == 4, -np.inf, SUMS), "NaN or infinite"),
}


@pytest.mark.parametrize("name", WRONG)
def test_sums_have_type_shape_and_finite_values(name):
    values, match = WRONG[name]
    with pytest.raises(ReplyError, match=match):
        checked(Done(values, **COSTS), Expected((3, 2)))


def test_sums_may_overflow_where_the_rows_may_be_the_cause():
    checked(done(SUMS + np.inf), Expected((3, 2), may_overflow=True))


def _changed(**parts):
    rows = ROWS.copy()
    for name, values in parts.items():
        setattr(rows, name, np.array(values, getattr(rows, name).dtype))
    return rows


@pytest.mark.parametrize(
    "rows",
    [
        _changed(indices=[1, 3, 0, 2]),
        _changed(indices=[-1, 2, 0, 2]),
        _changed(indices=[2, 1, 0, 2]),
        _changed(indices=[1, 1, 0, 2]),
        _changed(indptr=[0, 3, 2, 4]),
        _changed(indptr=[0, 2, 2, 3]),
        _changed(indptr=[1, 2, 2, 4]),
        _changed(data=[1, 2, np.nan, 4]),
        ROWS[:-1],
        ROWS.astype(np.float64),
        ROWS.toarray(),
    ],
)
def test_sparse_rows_have_valid_indices(rows):
    with pytest.raises(ReplyError, match=r"^returned "):
        checked(done(rows), EXPECTED["sparse"][1])


def test_empty_sparse_rows_are_valid():
    rows = sp.csr_array((2, 3), dtype=np.float32)
    checked(done(rows), Expected((2, 3), np.dtype(np.float32), is_sparse=True))


@pytest.mark.parametrize("name", ["sums", "rows", "sparse", "list"])
def test_a_changed_bit_is_seen(name):
    values, expected = EXPECTED[name]
    signed = done(values)
    changed = signed.values
    if isinstance(changed, bytes):
        changed = changed[:-2] + bytes([changed[-2] ^ 1]) + changed[-1:]
    else:
        changed = changed.copy()
        numbers = changed.data if sp.issparse(changed) else changed
        numbers.flat[0] = np.nextafter(numbers.flat[0], numbers.dtype.type(9))
    with pytest.raises(ReplyError, match="other values than it has computed"):
        checked(signed._replace(values=changed), expected)
    with pytest.raises(ReplyError, match="other values than it has computed"):
        checked(signed._replace(digest=""), expected)


def test_the_digest_tells_shapes_and_types_apart():
    same = [SUMS, SUMS.reshape(2, 3), SUMS.view(np.int64), SUMS.ravel()]
    assert len({digest_of(values) for values in same}) == len(same)
    assert digest_of(SUMS.T) == digest_of(np.ascontiguousarray(SUMS.T))


@pytest.mark.parametrize("name", ["evaluations", "bytes_read", "seconds", "cpu_seconds"])
@pytest.mark.parametrize("value", [-1, np.nan, np.inf, None, "1", 1j, [1]])
def test_costs_are_numbers_of_0_or_more(name, value):
    with pytest.raises(ReplyError, match=f"for {name}"):
        checked(done(SUMS, **{name: value}), Expected((3, 2)))


@pytest.mark.parametrize("values", [None, "text", {}, SUMS])
def test_results_of_long_tasks_are_a_list(values):
    with pytest.raises(ReplyError, match="instead of a list"):
        checked(Done(values, **COSTS), Listed(1, lambda place, one: ""))


def test_results_of_long_tasks_are_as_many_as_asked_for_and_right():
    expected = Listed(2, lambda place, one: "" if one == place else f"returned {one} at {place}")
    checked(done([0, 1]), expected)
    with pytest.raises(ReplyError, match="1 results instead of 2"):
        checked(done([0]), expected)
    with pytest.raises(ReplyError, match="returned 7 at 1"):
        checked(done([0, 7]), expected)
    broken = Done(b"no pickle", **COSTS)
    with pytest.raises(ReplyError, match="cannot be unpickled"):
        checked(broken._replace(digest=digest_of(broken.values)), expected)


def test_each_kind_of_task_has_tests_of_wrong_replies():
    """A new kind is added here together with them."""
    checked_in = {
        "add_up": "test_wrong_replies.test_one_faulty_worker_is_named_and_left_out",
        "add_up_halves": "test_wrong_replies.test_one_faulty_worker_is_named_and_left_out",
        "take_rows": "test_data_path.test_a_worker_that_sends_wrong_rows_is_left_out",
        "values_of_rows": "test_data_path.test_a_worker_that_sends_wrong_hashes_is_left_out",
        "apply_to_rows": "test_wrong_replies.test_wrong_moments_of_the_columns",
        "train_pairs": "test_wrong_replies.test_wrong_results_of_pairs",
        "fit_line_here": "test_wrong_replies.test_wrong_results_of_fits_of_a_search",
    }
    kinds = {
        name
        for module in (tasks, pair_tasks, selection_tasks)
        for name, one in vars(module).items()
        if inspect.isfunction(one)
        and one.__module__ == module.__name__
        and one.__annotations__.get("return") == "Done"
    }
    assert kinds == checked_in.keys()
    for where in checked_in.values():
        module, test = where.split(".")
        assert f"def {test}(" in (Path(__file__).parent / f"{module}.py").read_text()


VERSIONS = {"bigsvm": "1.0", "numba": "0.1"}


@pytest.mark.parametrize(
    "opened",
    [
        None,
        "text",
        (VERSIONS, 1, 1),
        Opened({"bigsvm": "1.0"}, 1, 1),
        Opened({**VERSIONS, "numba": None}, 1, 1),
        Opened(None, 1, 1),
        Opened(VERSIONS, -1, 1),
        Opened(VERSIONS, 1, np.nan),
    ],
)
def test_a_worker_says_what_it_is_in_the_right_types(opened):
    assert fault_of_opened(Opened(VERSIONS, 0, 1), VERSIONS) == ""
    assert fault_of_opened(opened, VERSIONS).startswith("returned ")
