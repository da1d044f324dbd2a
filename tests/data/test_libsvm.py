"""Reading LIBSVM text: what is taken, what is refused and where, whatever chunks and threads."""

import bz2
import gzip
import io
import lzma
import os
import random
import select
import sys

import numpy as np
import pytest
import zstandard
from fsspec.registry import _registry as fsspec_registry
from hypothesis import given, settings
from hypothesis import strategies as st

from bigsvm.conversion.libsvm import LibsvmReader
from bigsvm.conversion.streams import _zstd_pieces
from bigsvm.errors import DataError, ParseError

FLOAT64 = np.dtype(np.float64)


def read(path, **options):
    """Labels and [(index, value), …] of each row, and the counts."""
    options = {"dtype": FLOAT64, **options}
    reader = LibsvmReader(path if isinstance(path, list) else [path], **options)
    labels, rows = [], []
    for chunk in reader:
        labels += chunk.labels.tolist()
        for a, b in zip(chunk.indptr[:-1], chunk.indptr[1:], strict=True):
            values = chunk.values[a:b].tolist()
            rows.append(list(zip(chunk.indices[a:b].tolist(), values, strict=True)))
    return labels, rows, reader.counts


@pytest.fixture
def write(tmp_path):
    def write(content, name="x.libsvm"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.mark.parametrize(
    ("text", "label", "row"),
    [
        ("+1 1:2 3:4\n", 1, [(1, 2), (3, 4)]),
        ("-1.5\t1:2\t 3:4e-1 \t\n", -1.5, [(1, 2), (3, 0.4)]),
        ("1 1:2\r\n", 1, [(1, 2)]),
        ("1 1:2", 1, [(1, 2)]),
        ("1 1:2 # 3:4 caf\u00e9\n", 1, [(1, 2)]),
        ("1#\n", 1, []),
        ("  1 0:2\n", 1, [(0, 2)]),
        ("1 qid:3 1:2\n", 1, [(1, 2)]),
        ("\ufeff1 1:2\n", 1, [(1, 2)]),
        ("1\n", 1, []),
        ("1 2147483646:0\n", 1, [(2147483646, 0)]),
        ("1 1:-.5 2:+5. 3:1e-400\n", 1, [(1, -0.5), (2, 5), (3, 0)]),
    ],
)
def test_valid_lines_are_read(write, text, label, row):
    labels, rows, _ = read(write(text))
    assert labels == [label]
    assert rows == [row]


@pytest.mark.parametrize(
    ("line", "column", "message"),
    [
        ("1 1:nan", 5, "value 'nan' is not finite; remove"),
        ("1 1:-inf", 5, "value '-inf' is not finite"),
        ("1 1:1e999", 5, "value '1e999' is too large for float64; rescale"),
        ("1 3:1 2:4", 7, "index of '2:4' is not larger than the one before it; sort"),
        ("1 3:1 3:4", 7, "index of '3:4' is not larger than the one before it.*duplicates"),
        ("1 -1:3", 3, "index '-1:3' has a sign"),
        ("1 1.5:3", 3, "'1.5:3' is not index:value with a whole number"),
        ("1 2147483647:1", 3, "'2147483647:1' is beyond the limit 2147483646"),
        ("1 99999999999999999999999:1", 3, "beyond the limit 2147483646"),
        ("1:2 3:4", 1, "no label before '1:2'; every line starts with a number"),
        ("cat 1:2", 1, "label 'cat' is not a number; write all labels as numbers, or"),
        ("1,2 1:2", 1, "several labels, '1,2'; multilabel"),
        ("nan 1:2", 1, "label 'nan' is not finite"),
        ("1e999 1:2", 1, "label '1e999' is not finite"),
        ("1 1:0x1p3", 5, "value '0x1p3' is hexadecimal"),
        ("0x1 1:1", 1, "label '0x1' is hexadecimal"),
        ("1 1:2\x003", 5, "NUL byte"),
        ("1 1:2 # \x00", 9, "NUL byte"),
        ("1 1:", 5, "no value after the colon"),
        ("1 1: 2", 5, "no value after the colon"),
        ("1 1:2:3", 5, "value '2:3' is not a number"),
        ("1 1:1_0", 5, "value '1_0' is not a number"),
        ("1 1", 3, "'1' is not index:value"),
        ("1 qid:x 1:2", 3, "'qid:x' is not qid: and a whole number"),
        ("1 1:" + "9" * 400, 5, r"value '9{30}…9{30}' is too large"),
        ("1 1:" + "x" * 400, 5, r"value 'x{30}…x{30}' is not a number"),
    ],
)
def test_invalid_lines_are_refused_with_place_and_remedy(write, line, column, message):
    path = write(f"1 1:2\n\n# note\n{line}\n1 1:2\n")
    with pytest.raises(ParseError, match=message) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}:4:{column}: ")


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("chunk_bytes", [7, 64, 1000, 1 << 20])
@pytest.mark.parametrize("bad_line", [1, 2, 500, 999, 1000])
def test_place_across_chunks_and_threads(write, threads, chunk_bytes, bad_line):
    lines = [f"{i % 3} 1:{i} 7:{i / 7!r}" for i in range(1, 1001)]
    lines[bad_line - 1] = "1 1:2 oops"
    path = write("\n".join(lines))
    with pytest.raises(ParseError) as caught:
        read(path, threads=threads, chunk_bytes=chunk_bytes)
    assert str(caught.value).startswith(f"{path}:{bad_line}:7: 'oops'")


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("chunk_bytes", [5, 100, 4096])
def test_rows_do_not_depend_on_chunks_and_threads(write, threads, chunk_bytes):
    text = "".join(f"{i} {i}:1.25 {i + 7}:{i}e-3 # {i}\n" + "\n" * (i % 3) for i in range(300))
    path = write(text)
    expected = read(path)
    assert len(expected[0]) == 300
    assert read(path, threads=threads, chunk_bytes=chunk_bytes) == expected


def test_counts(write):
    path = write("\ufeff1 qid:1 3:1 9:2\n\n  \n# all\n2 qid:1 # tail\n")
    counts = read(path)[2]
    assert (counts.rows, counts.entries) == (2, 2)
    assert (counts.empty_lines, counts.comments, counts.qids) == (2, 2, 2)
    assert (counts.smallest_index, counts.largest_index) == (3, 9)
    assert counts.bytes_read == path.stat().st_size


def test_several_sources_are_one_data_set(write):
    sources = [write("1 1:1", "a"), write("", "b"), write("2 0:5\n", "c"), write("bad\n", "d")]
    labels, rows, counts = read(sources[:3])
    assert labels == [1, 2]
    assert rows == [[(1, 1)], [(0, 5)]]
    assert counts.smallest_index == 0
    with pytest.raises(ParseError, match=r"d:1:1: label 'bad'"):
        read(sources)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 1:2\n\n", ":2:1: empty line, refused by strict"),
        ("1 1:2 # x\n", ":1:7: comment, refused by strict"),
        ("# x\n", ":1:1: comment, refused by strict"),
        ("1 qid:3 1:2\n", ":1:3: 'qid:3' is refused by strict"),
        ("1 1:2\n1 1:2", ":2:6: no newline at the end, refused by strict"),
    ],
)
def test_strict(write, text, message):
    path = write(text)
    read(path)
    with pytest.raises(ParseError, match=message):
        read(path, strict=True)


def test_index_zero_is_refused_in_one_based_text(write):
    with pytest.raises(ParseError, match=r":1:3: index 0 in '0:1'.*zero_based='yes'"):
        read(write("1 0:1\n"), smallest_index=1)


def test_float32_overflow(write):
    path = write("1 1:3.4028235e38\n1 1:-3.5e38\n")
    assert read(path)[1][1] == [(1, -3.5e38)]
    with pytest.raises(
        ParseError, match=r":2:5: value '-3.5e38' is too large for float32; use dtype"
    ):
        read(path, dtype=np.dtype(np.float32))


def test_line_length_is_bounded(write):
    path = write("1 1:2\n1 " + "1" * 5000 + "\n")
    with pytest.raises(ParseError, match=r":2:1: line longer than 1000 bytes"):
        read(path, max_line_bytes=1000)
    path = write("1 " + " " * 5000 + "1:1\n1\n")
    assert len(read(path, chunk_bytes=100)[0]) == 2


COMPRESSORS = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor().compress,
}


@pytest.mark.parametrize("extension", COMPRESSORS)
def test_compressed_sources(write, extension):
    text = "".join(f"{i} 1:{i}\n" for i in range(2000)).encode()
    compress = COMPRESSORS[extension]
    path = write(compress(text), f"x.libsvm.{extension}")
    labels, _, counts = read(path, chunk_bytes=1000)
    assert labels == list(range(2000))
    assert counts.bytes_read == path.stat().st_size
    # Several streams one after the other, as parallel compressors write them.
    path = write(compress(text) + compress(text), f"y.libsvm.{extension}")
    assert len(read(path)[0]) == 4000


@pytest.mark.parametrize("extension", COMPRESSORS)
@pytest.mark.parametrize("part", [0.5, 0.97])
def test_compressed_source_that_is_cut_off(write, extension, part):
    rng = random.Random(0)
    text = "".join(f"{i} 1:{rng.random()}\n" for i in range(5000)).encode()
    packed = COMPRESSORS[extension](text)
    path = write(packed[: int(len(packed) * part)], f"x.libsvm.{extension}")
    with pytest.raises(DataError, match=rf"x\.libsvm\.{extension}: cannot be read to its end"):
        read(path)


def test_zstd_is_not_decompressed_all_at_once():
    packed = zstandard.ZstdCompressor().compress(bytes(256 << 20))
    assert len(packed) < 1 << 17
    sizes = list(map(len, _zstd_pieces(io.BytesIO(packed), 1 << 26)))
    assert sum(sizes) == 256 << 20
    assert max(sizes) <= 1 << 24


def test_standard_input(monkeypatch):
    text = io.TextIOWrapper(io.BytesIO(b"1 1:2\n2 oops\n"))
    monkeypatch.setattr(sys, "stdin", text)  # it has no number
    with pytest.raises(ParseError, match=r"standard input:2:3: 'oops'"):
        read("-")


def test_standard_input_that_has_nothing_yet(monkeypatch):
    """Whoever waits for it looks up now and then: a signal may have come just before."""
    source, target = os.pipe()
    looked = []
    select_now = select.select

    def select_once(*arguments):
        looked.append(arguments)
        if len(looked) == 3:
            os.write(target, b"1 1:2\n2 oops\n")
        if len(looked) > 3:
            os.close(target)
            monkeypatch.setattr(select, "select", select_now)
        return select_now(*arguments[:3], 0.0)

    with os.fdopen(source) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(select, "select", select_once)
        with pytest.raises(ParseError, match=r"standard input:2:3: 'oops'"):
            read("-")
    assert len(looked) > 3


def test_source_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match=r"nothing\.libsvm: cannot be opened \(No such file"):
        read(tmp_path / "nothing.libsvm")
    with pytest.raises(DataError, match="cannot be opened"):
        read(tmp_path)


def test_a_url_whose_package_is_missing_says_which(monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    # Other tests may have read from S3 in this process.
    monkeypatch.delitem(fsspec_registry, "s3", raising=False)
    with pytest.raises(DataError, match=r"cannot be opened \(Install s3fs to access S3\)$"):
        read("s3://nowhere/nothing.libsvm")


GOOD = b"\xef\xbb\xbf+1 1:0.5 3:1e-5 # c\r\n-1 qid:4 2:17 9:123456789.123456789\n\n0.5\t4:-.5 \n"


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), max_size=4),
    st.integers(0, len(GOOD)),
    st.integers(1, 40),
    st.booleans(),
)
def test_mutated_bytes_give_rows_or_a_typed_error(
    tmp_path_factory, changes, length, chunk_bytes, strict
):
    data = bytearray(GOOD)
    for at, byte in changes:
        data[at] = byte
    path = tmp_path_factory.getbasetemp() / "mutated.libsvm"
    path.write_bytes(data[:length])
    try:
        labels, rows, _ = read(path, chunk_bytes=chunk_bytes, strict=strict, threads=1)
    except DataError as error:  # it may begin as a file of another format does
        message = str(error)
        assert message.startswith(f"{path}:")
    else:
        assert np.isfinite(labels).all()
        assert all(np.isfinite(v) for row in rows for _, v in row)
