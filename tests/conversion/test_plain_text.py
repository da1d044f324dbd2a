"""Little text is read without compiled code: to the same bits, and to the same stores."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bigsvm import convert
from bigsvm.conversion import libsvm
from bigsvm.conversion.plain_text import PLAIN_BYTES, plain_rows
from bigsvm.data import shuffle
from bigsvm.errors import ParseError

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
LARGEST = {FLOAT32: 2.0**128 - 2.0**103, FLOAT64: np.inf}

finite = st.floats(allow_nan=False, allow_infinity=False)
numbers = st.one_of(
    st.integers(-9, 99).map(str),
    finite.map(repr),
    finite.map(lambda v: f"{v:+.17E}"),
    st.floats(-1e4, 1e4).map(lambda v: f"{v:.6g}"),
    st.sampled_from(
        ["-0", "+1", "1.", ".5", "-.5e-3", "1e-400", "00012", "9" * 25, "0." + "3" * 40]
    ),
    st.sampled_from(["3.4028235e38", "3.4028235677973366e38", "1e39", "9007199254740993"]),
)
odd = st.sampled_from(
    ["", "nan", "-inf", "1e999", "0x1", "1_0", "1:2", "word", "1,2", "\0", "é", "-"]
)
indices = st.one_of(st.integers(0, 12), st.integers(0, 2**31)).map(str)
odd_indices = st.sampled_from(["-1", "+3", "1.5", "", "00000000000000000007", "9" * 25, "²"])
entries = st.builds(lambda i, v: f"{i}:{v}", indices, numbers)
spaces = st.sampled_from([" ", " ", "  ", "\t", " \v\f", "\r "])


def by_index(parts):
    return sorted(parts, key=lambda part: int(part.partition(":")[0]))


def joined(label, parts, space, end):
    return space.join([label, *parts]) + end


ends = st.sampled_from(["", "", " ", "\r", "\t\r", " # 3:4", "#", "# \0"])
right = st.builds(joined, numbers, st.lists(entries, max_size=6).map(by_index), spaces, ends)
wrong = st.builds(
    joined,
    st.one_of(numbers, odd),
    st.lists(
        st.one_of(
            entries,
            odd,
            st.builds(lambda i, v: f"{i}:{v}", indices, odd),
            st.builds(lambda i, v: f"{i}:{v}", odd_indices, numbers),
            st.sampled_from(["qid:3", "qid:x"]),
        ),
        max_size=4,
    ),
    spaces,
    ends,
)
blank = st.sampled_from(["", "  ", "# all", " \t# all"])
texts = st.lists(st.one_of(right, right, right, blank, wrong), max_size=6).map(
    lambda lines: "".join(f"{line}\n" for line in lines).encode()
)


def compiled(text, **options):
    return libsvm.parse_chunk(text, plain_bytes=-1, **options)


def contents(rows):
    return [(array.dtype, array.tobytes()) for array in rows]


@settings(deadline=None, max_examples=300)
@given(texts, st.sampled_from([FLOAT32, FLOAT64]), st.integers(0, 1), st.booleans())
@example(b"", FLOAT64, 0, False)
@example(b"1 1:-0 2:0\n-0\n", FLOAT32, 0, True)
@example(b"1 1:2 1:3\n", FLOAT64, 0, False)
@example(b"1 2:2 1:3\n", FLOAT64, 0, False)
@example(b"1\n2 1:3\n3\n4 1:1\n", FLOAT64, 1, False)
@example(b"1 0:3\n", FLOAT64, 1, False)
@example(b"1 2147483646:3\n", FLOAT64, 1, False)
@example(b"1 2147483647:3\n", FLOAT64, 1, False)
@example(b"1 1:3.4028235677973366e38\n", FLOAT32, 0, False)
@example(b"9007199254740993 1:1\n", FLOAT64, 0, False)
@example(b"1 1:2:3\n", FLOAT64, 0, False)
@example(b"1 1:\n", FLOAT64, 0, False)
@example(b"1 :1\n", FLOAT64, 0, False)
@example(b"1:2 1:3\n", FLOAT64, 0, False)
def test_the_same_bits_or_left_to_compiled_code(text, dtype, smallest_index, strict):
    options = {"dtype": dtype, "smallest_index": smallest_index, "strict": strict}
    expected = compiled(text, **options)
    plain = plain_rows(text, largest=LARGEST[dtype], **options)
    if plain is None:
        # What is right is left to it only where it is rare.
        is_rare = b"qid:" in text or (np.abs(expected.rows.labels) >= 2.0**53).any()
        assert expected.problem or is_rare
        return
    assert expected.problem is None
    rows, counts = plain
    assert contents(rows) == contents(expected.rows)
    assert counts == expected.counts


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=40).map(lambda data: data + b"\n"))
def test_any_bytes(text):
    expected = compiled(text, dtype=FLOAT64)
    plain = plain_rows(text, dtype=FLOAT64, smallest_index=0, largest=np.inf, strict=False)
    if plain is not None:
        assert contents(plain[0]) == contents(expected.rows)
        assert (plain[1], None) == (expected.counts, expected.problem)


def files_of(folder):
    return {
        path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["dense", "sparse", "words", "commented"])
def test_stores_are_the_same_byte_for_byte(tmp_path, monkeypatch, kind, dtype):
    rng = np.random.default_rng(0)
    lines = []
    for i in range(60):
        columns = np.flatnonzero(rng.random(30) < (0.05 if kind == "sparse" else 0.7))
        label = ("cat", "dog")[i % 2] if kind == "words" else f"{rng.standard_normal():.3g}"
        values = rng.standard_normal(len(columns)).tolist()
        of_row = [f"{c}:{v!r}" for c, v in zip(columns, values, strict=True)]
        lines.append(" ".join([label, *of_row]) + (" # note\r" if kind == "commented" else ""))
    path = tmp_path / "rows"
    path.write_text("\n".join(lines), newline="")
    convert(path, tmp_path / "plain.zarr", dtype=dtype)
    monkeypatch.setattr(libsvm, "plain_rows", lambda *_, **__: None)
    monkeypatch.setattr(shuffle, "FEW_WORDS", -1)
    convert(path, tmp_path / "compiled.zarr", dtype=dtype)
    plain, by_compiled = files_of(tmp_path / "plain.zarr"), files_of(tmp_path / "compiled.zarr")
    assert len(plain) > 10
    assert plain == by_compiled


def test_little_of_a_large_text_is_read_plainly(tmp_path, monkeypatch):
    line, most = b"1 1:0.25 3:4\n", 1 << 16
    n_lines = 3 * most // len(line)
    path = tmp_path / "rows"
    path.write_bytes(line * n_lines)
    sizes = []

    def counted(text, **options):
        sizes.append(len(text))
        return plain_rows(text, **options)

    monkeypatch.setattr(libsvm, "plain_rows", counted)
    reader = libsvm.LibsvmReader([path], dtype=FLOAT64, chunk_bytes=1 << 14)
    assert reader._plain_bytes == PLAIN_BYTES
    reader._plain_bytes = most
    assert sum(len(rows.labels) for rows in reader) == reader.counts.rows == n_lines
    assert most // 2 < sum(sizes) <= most


def test_what_is_wrong_keeps_its_message(tmp_path):
    path = tmp_path / "rows"
    path.write_text("1 1:2\n# note\n1 3:1 2:1\n")
    with pytest.raises(ParseError, match=r"rows:3:7: index of '2:1' is not larger"):
        convert(path, tmp_path / "s.zarr")
