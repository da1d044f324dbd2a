"""The parser against a naive one, and its numbers against Python's `float`."""

import math
import sys

import naive_text
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bigsvm.conversion import libsvm, text_rows
from bigsvm.core import text as core

FLOAT64 = np.dtype(np.float64)
FLOAT32 = np.dtype(np.float32)


def parse_chunk(text, **options):
    """Parse by compiled code."""
    return libsvm.parse_chunk(text, plain_bytes=-1, **options)


def parsed_rows(chunk):
    labels, indptr, indices, values = chunk.rows
    return [
        (label, list(zip(indices[a:b].tolist(), values[a:b].tolist(), strict=True)))
        for label, a, b in zip(labels.tolist(), indptr[:-1], indptr[1:], strict=True)
    ]


def assert_agrees(text, *, dtype=FLOAT64, smallest_index=0):
    chunk = parse_chunk(text, dtype=dtype, smallest_index=smallest_index)
    largest = 3.4028235677973366e38 if dtype == FLOAT32 else math.inf
    rows, problem = naive_text.parse(text, smallest_index=smallest_index, largest=largest)
    if problem is None:
        assert chunk.problem is None
    else:
        assert (chunk.problem, chunk.offset) == problem
    if dtype == FLOAT32:
        rows = [(y, [(i, float(np.float32(v))) for i, v in entries]) for y, entries in rows]
    if problem is None:
        assert parsed_rows(chunk) == rows


digits = st.text("0123456789", min_size=0, max_size=22)
decimals = st.builds(
    lambda sign, a, b, e: f"{sign}{a}{b}{e}",
    st.sampled_from(["", "+", "-"]),
    digits,
    st.one_of(st.just(""), digits.map(lambda d: f".{d}")),
    st.one_of(st.just(""), st.integers(-400, 400).map(lambda e: f"e{e}"), st.just("E+3")),
)
# Sixteen digits of the largest float64 round to infinity.
finite = st.floats(-1e308, 1e308)
numbers = st.one_of(
    decimals,
    finite.map(repr),
    finite.map(lambda v: f"{v:.17g}"),
    finite.map(lambda v: f"{v:.3e}"),
    st.integers(-(10**20), 10**20).map(str),
    st.sampled_from(
        ["0", "1", "-1", "0.5", "1.", ".5", "nan", "-inf", "0x1p3", "1_0", "", ".", "e5"]
    ),
)
indices = st.one_of(
    st.integers(0, 40).map(str),
    st.sampled_from(
        ["0", "1", "2147483646", "2147483647", "99999999999999999999", "-1", "1.5", ""]
    ),
)
entries = st.builds(lambda i, v: f"{i}:{v}", indices, numbers)
tokens = st.one_of(
    entries,
    entries,
    entries,
    numbers,
    st.sampled_from(["qid:3", "qid:x", "cat", "1,2", "\0", "1:2:3"]),
)
spaces = st.sampled_from([" ", " ", " ", "  ", "\t", " \r", "\v\f"])
lines = st.builds(
    lambda label, parts, tail: label + "".join(s + t for s, t in parts) + tail,
    numbers,
    st.lists(st.tuples(spaces, tokens), max_size=6),
    st.sampled_from(["", "", " ", "\r", " # note 1:2", "#", "# \0"]),
)
texts = st.lists(st.one_of(lines, st.sampled_from(["", "  ", "# all"])), max_size=5).map(
    lambda ls: "".join(f"{line}\n" for line in ls).encode()
)


@settings(deadline=None, max_examples=150)
@given(texts, st.integers(0, 1), st.sampled_from([FLOAT32, FLOAT64]))
@example(b"1 1:2 qid:3\n", 0, FLOAT64)
@example(b"1 1:3.4028235677973366e38\n", 0, FLOAT32)
@example(b"1 1:3.4028235e38\n", 0, FLOAT32)
@example(b"\n", 1, FLOAT64)
@example(b"9007199254740993\n", 0, FLOAT32)
@example(b"9007199254740993# \0\n", 0, FLOAT32)
@example(b"-9007199254740994 1:1\n", 0, FLOAT64)
def test_agrees_with_the_naive_parser(text, smallest_index, dtype):
    assert_agrees(text, dtype=dtype, smallest_index=smallest_index)


@settings(deadline=None, max_examples=150)
@given(st.binary(max_size=60))
def test_agrees_on_any_bytes(data):
    assert_agrees(data + b"\n")


@settings(deadline=None, max_examples=200)
@given(
    st.lists(finite, min_size=1, max_size=50), st.sampled_from(["r", ".17g", ".16g", ".6g", ".12f"])
)
def test_numbers_are_those_of_float(values, form):
    written = [repr(v) if form == "r" else format(v, form) for v in values]
    text = "1 " + " ".join(f"{i}:{w}" for i, w in enumerate(written)) + "\n"
    chunk = parse_chunk(text.encode(), dtype=FLOAT64)
    assert chunk.problem is None
    assert chunk.rows.values.tolist() == [float(w) for w in written]


@settings(deadline=None, max_examples=400)
@given(st.integers(0, 10**18 - 1), st.integers(-30, 30))
@example(2**53, -22)
@example(9007199254740993, 0)
@example(9007199254740993, 22)
@example(999999999999999999, -22)
@example(123456789012345678, -17)
def test_scaling_by_ten_is_correctly_rounded_or_reported_uncertain(mantissa, exponent):
    value, certain = core.scale_by_ten(mantissa, exponent)
    if certain:
        assert value == float(f"{mantissa}e{exponent}")
    else:
        assert abs(exponent) > 22 or mantissa >= 2**53


def test_halfway_cases_are_left_to_python():
    # 2**53 + 1 lies exactly between two float64 numbers, and so do these.
    for mantissa in (2**53 + 1, 2**54 + 2, 2**55 + 4):
        value, certain = core.scale_by_ten(mantissa, 0)
        assert not certain or value == float(mantissa)


def test_seventeen_digits_need_no_fix_up():
    rng = np.random.default_rng(0)
    values = rng.standard_normal(1000)
    certain = [
        core.scale_by_ten(int(f"{abs(v):.16e}".split("e")[0].replace(".", "")), -16)[1]
        for v in values
    ]
    assert all(certain)


@pytest.mark.parametrize("form", [repr, lambda v: f"{v:.17e}", lambda v: f"{v:.18g}"])
def test_extreme_numbers(form):
    values = [sys.float_info.max, sys.float_info.min, 5e-324, 2.0**-1074 * 3, 1e22, 1e23, 2.0**63]
    text = "1 " + " ".join(f"{i}:{form(v)}" for i, v in enumerate(values)) + "\n"
    assert parse_chunk(text.encode(), dtype=FLOAT64).rows.values.tolist() == values


@pytest.mark.parametrize("rest", ["", "# digits are read eight at a time, but not past the end"])
def test_any_number_of_digits_at_any_distance_from_the_end(rest):
    digits = "98765432101234567890"
    for before in range(21):
        for after in range(21):
            number = f"{digits[:before]}.{digits[20 - after :]}"
            if number == ".":
                continue
            text = f"{number} 1:{number} {digits[: before or 1]}:-{number}{rest}\n"
            assert_agrees(text.encode())


@pytest.mark.parametrize("place", [0, 1, 7, 8, 9])
def test_any_byte_among_digits(place):
    digits = b"1234567890"
    for byte in range(256):
        token = digits[:place] + bytes([byte]) + digits[place:]
        assert_agrees(b"1 1:2 " + token + b":0." + token + b" 3000000:1\n")
        assert_agrees(b"1 1:2 3:0." + token + b" 7:" + token + b" 9:123456789\n")


def test_there_is_one_limit_of_indices():
    assert core.MAX_INDEX == text_rows.MAX_INDEX


def test_count_bounds_rows_and_entries():
    assert core.count(np.frombuffer(b"1 1:2 3:4\n# 5:6\n", np.uint8)) == (2, 3)
