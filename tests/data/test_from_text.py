"""Conversion: the same store whatever the memory, chunks and threads."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.stores import assert_holds, dense, folder_digest

from bigsvm.conversion import from_text
from bigsvm.conversion.from_text import convert
from bigsvm.data import shuffle
from bigsvm.errors import DataError, MemoryBudgetError, ParameterError, ParseError


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("mixed", [True, False])
def test_holds_the_rows_of_the_text(text, tmp_path, layout, dtype, mixed):
    path = text()
    store = convert(path, tmp_path / "s.zarr", layout=layout, dtype=dtype, shuffle=mixed)
    assert_holds(store, path, 40)
    assert store.attributes.layout == ("dense" if layout == "dense" else "csr")
    assert store.attributes.dtype == dtype
    assert store.attributes.sources == ("x.libsvm",)
    assert store.attributes.shuffled is mixed
    assert (store.original_rows().tolist() == list(range(3000))) is not mixed
    store.verify()


def test_is_the_same_whatever_the_memory_chunks_and_threads(
    text, tmp_path, monkeypatch, small_chunks
):
    path = text(n_rows=700)
    expected = convert(path, tmp_path / "s.zarr").attributes
    for i, (bits, memory, chunk, threads) in enumerate(
        [
            (3, 40_000, 1 << 16, 1),
            (6, 5_000, 3000, 3),
            (0, 10_000, 777, 2),
        ]
    ):
        with monkeypatch.context() as patch:
            patch.setattr(from_text, "_bucket_bits", lambda *_, bits=bits: bits)
            patch.setattr(from_text, "CHUNK_BYTES", chunk)
            patch.setattr(
                from_text,
                "Spool",
                lambda folder, *, seed, bits, memory_bytes, memory=memory: shuffle.Spool(
                    folder, seed=seed, bits=bits, memory_bytes=memory
                ),
            )
            store = convert(path, tmp_path / f"{i}.zarr", threads=threads)
        assert store.attributes == expected
        assert folder_digest(store.path) == folder_digest(tmp_path / "s.zarr")


def test_is_the_same_however_the_rows_are_cut_into_sources(text, tmp_path):
    path = text()
    lines = path.read_bytes().splitlines(keepends=True)
    parts = [tmp_path / f"part{i}" for i in range(3)]
    for part, (a, b) in zip(parts, [(0, 1000), (1000, 1001), (1001, 3000)], strict=True):
        part.write_bytes(b"".join(lines[a:b]))
    whole = convert(path, tmp_path / "w.zarr").attributes
    cut = convert(parts, tmp_path / "p.zarr").attributes
    assert cut.fingerprint == whole.fingerprint
    assert cut.sources == ("part0", "part1", "part2")


def test_seed_decides_the_order(text, tmp_path):
    path = text()
    orders = [
        convert(path, tmp_path / f"{seed}.zarr", seed=seed).original_rows().tolist()
        for seed in (0, 1, 2**64 - 1)
    ]
    assert orders[0] != orders[1] != orders[2]


def test_keys_are_a_random_bijection():
    row = np.arange(100_000)
    keys = shuffle.shuffle_keys(7, row)
    assert len(np.unique(keys)) == len(keys)
    buckets = np.bincount((keys >> np.uint64(58)).astype(int), minlength=64)
    assert ((buckets - 1562.5) ** 2 / 1562.5).sum() < 120
    order = np.argsort(keys)
    assert abs(np.corrcoef(row, order)[0, 1]) < 0.02


@pytest.mark.parametrize(
    ("option", "lines", "columns", "first"),
    [
        ("auto", ["1 1:1", "1 3:1"], 3, 1),
        ("auto", ["1 1:1", "1 3:1", "1 0:1"], 4, 0),
        ("auto", ["1 2:1", "1 3:1"], 3, 1),
        ("yes", ["1 1:1", "1 3:1"], 4, 0),
        ("no", ["1 1:1", "1 3:1"], 3, 1),
    ],
)
@pytest.mark.parametrize("copies", [1, 20_000])
def test_first_index_is_decided_over_the_whole_input(
    tmp_path, option, lines, columns, first, copies
):
    path = tmp_path / "x"
    path.write_text("\n".join([lines[0]] * copies + lines[1:]) + "\n")
    store = convert(path, tmp_path / "s.zarr", zero_based=option, shuffle=False, layout="dense")
    assert store.rows.n_columns == columns
    np.testing.assert_array_equal(np.flatnonzero(store.rows.read(copies, copies + 1)), [3 - first])


def test_index_zero_that_was_ruled_out(tmp_path):
    (tmp_path / "x").write_text("1 1:1\n1 0:1\n")
    with pytest.raises(ParseError, match=r"x:2:3: index 0.*zero_based='yes'"):
        convert(tmp_path / "x", tmp_path / "s.zarr", zero_based="no")
    assert os.listdir(tmp_path) == ["x"]


def test_number_of_features(text, tmp_path):
    path = text()
    assert convert(path, tmp_path / "s.zarr", n_features=55).rows.n_columns == 55
    with pytest.raises(
        DataError, match=r"index 40 occurs.*40 columns, but n_features=39; use n_features=40"
    ):
        convert(path, tmp_path / "t.zarr", n_features=39)
    with pytest.raises(DataError, match="41 columns"):
        convert(path, tmp_path / "t.zarr", n_features=40, zero_based="yes")
    assert convert(path, tmp_path / "w.zarr", min_features=55).rows.n_columns == 55
    assert convert(path, tmp_path / "m.zarr", min_features=30).rows.n_columns == 40


@pytest.mark.parametrize(("density", "layout"), [(0.24, "csr"), (0.26, "dense")])
def test_layout_by_density(text, tmp_path, density, layout):
    assert convert(text(density=density), tmp_path / "s.zarr").attributes.layout == layout


@pytest.mark.parametrize("content", ["", "\n\n", "# nothing\n"])
def test_no_rows(tmp_path, content):
    (tmp_path / "x").write_text(content)
    with pytest.raises(DataError, match="no rows"):
        convert(tmp_path / "x", tmp_path / "s.zarr")


def test_rows_without_entries(tmp_path):
    (tmp_path / "x").write_text("1\n2\n")
    with pytest.raises(DataError, match="give n_features"):
        convert(tmp_path / "x", tmp_path / "s.zarr")
    store = convert(tmp_path / "x", tmp_path / "s.zarr", n_features=3)
    assert convert(tmp_path / "x", tmp_path / "m.zarr", min_features=3).rows.n_columns == 3
    assert store.attributes.layout == "csr"
    assert store.rows.read(0, 2).toarray().tolist() == [[0, 0, 0], [0, 0, 0]]
    assert store.rows.take(np.array([1, 1])).shape == (2, 3)
    assert store.statistics.maximum.tolist() == [0, 0, 0]
    store.verify()


def test_too_many_columns_for_the_memory(tmp_path):
    (tmp_path / "x").write_text("1 2000000000:1\n")
    with pytest.raises(MemoryBudgetError, match=r"2000000000 columns.*use memory=.*sparse layout"):
        convert(tmp_path / "x", tmp_path / "s.zarr", layout="dense")
    rows = (
        "1 " + " ".join(f"{9 * j}:1" for j in range(i, i + 1000)) for i in range(1, 200_001, 1000)
    )
    (tmp_path / "y").write_text("\n".join(rows))
    with pytest.raises(MemoryBudgetError, match=r"\d+ of 1800000 columns have occurred so far"):
        convert(tmp_path / "y", tmp_path / "s.zarr", memory="34MB")
    assert convert(tmp_path / "y", tmp_path / "s.zarr").attributes.listed_columns == 200_000


def test_many_labels_are_not_counted(tmp_path):
    (tmp_path / "x").write_text("".join(f"{i}.5 1:1\n" for i in range(1001)))
    assert convert(tmp_path / "x", tmp_path / "s.zarr").attributes.label_counts is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memory": "lots"}, "'lots' is not a size"),
        ({"memory": "1MB"}, "too little"),
        ({"zero_based": "maybe"}, "zero_based='maybe'"),
        ({"layout": "csr"}, "layout='csr'"),
        ({"dtype": "int8"}, "dtype='int8'"),
        ({"n_features": 0}, "n_features=0"),
        ({"min_features": 0}, "min_features=0"),
        ({"threads": 0}, "threads=0"),
        ({"seed": -1}, "seed=-1"),
        ({"sources": []}, "sources is empty"),
    ],
)
def test_parameters_without_meaning(text, tmp_path, options, message):
    options = {"sources": text(), **options}
    with pytest.raises(ParameterError, match=message):
        convert(store_path=tmp_path / "s.zarr", **options)


@pytest.mark.parametrize(
    ("memory", "size"),
    [("1GB", 10**9), ("64 MiB", 2**26), ("0.5g", 5 * 10**8), (2**30, 2**30), ("100000000", 10**8)],
)
def test_sizes(memory, size):
    assert from_text.memory_bytes(memory) == size


@pytest.mark.parametrize("threads", [1, 2, 30])
def test_chunks_and_lines_fit_the_memory(text, tmp_path, monkeypatch, threads):
    made = {}

    class Reader(from_text.LibsvmReader):
        def __init__(self, *arguments, **options):
            made.update(options)
            super().__init__(*arguments, **options)

    monkeypatch.setattr(from_text, "LibsvmReader", Reader)
    convert(text(n_rows=20), tmp_path / "s.zarr", memory="40MB", threads=threads)
    assert (threads + 2) * 10 * made["chunk_bytes"] <= 40e6 / 3
    assert (threads + 2) * made["max_line_bytes"] <= 40e6 / 8


def test_skipped_lines_are_reported(tmp_path):
    (tmp_path / "x").write_text("1 qid:1 1:1\n\n# all\n2 1:3 # tail\n")
    told = []
    convert(tmp_path / "x", tmp_path / "s.zarr", on_parsed=told.append)
    (counts,) = told
    assert (counts.rows, counts.entries) == (2, 2)
    assert (counts.empty_lines, counts.comments, counts.qids) == (1, 2, 1)


def test_progress(text, tmp_path):
    events = []
    path = text()
    convert(path, tmp_path / "s.zarr", on_progress=events.append)
    stages = [event.stage for event in events]
    assert stages == sorted(stages)
    read = [event for event in events if event.stage == "read"]
    assert read[-1].done == read[-1].total == path.stat().st_size
    assert (events[-1].done, events[-1].total) == (3000, 3000)
    assert all(a.done <= b.done for a, b in itertools.pairwise(read))


def test_source_that_may_not_be_looked_at(tmp_path, monkeypatch):
    def refuse(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_file", refuse)
    with pytest.raises(DataError, match=r"x: cannot be opened \(Permission denied\)"):
        convert(tmp_path / "x", tmp_path / "s.zarr")


MEASURED = """
import sys
from bigsvm.report.text import peak_rss_bytes
from bigsvm.conversion.from_text import convert
convert(sys.argv[3], sys.argv[2] + ".small", memory="100MB")
before = peak_rss_bytes()
convert(sys.argv[1], sys.argv[2], memory="100MB")
print(before, peak_rss_bytes())
"""


@pytest.mark.slow
@pytest.mark.parametrize("density", [1.0, 0.1])
def test_memory_is_bounded(tmp_path, text, density):
    rng = np.random.default_rng(0)
    path = tmp_path / "big.libsvm"
    width = 100
    lines = []
    for _ in range(500):
        columns = np.flatnonzero(rng.random(width) < density)
        values = rng.standard_normal(len(columns))
        pairs = zip(columns, values, strict=True)
        lines.append(" ".join(f"{j + 1}:{v:.6g}" for j, v in pairs))
    block = "".join(f"{i % 2} {line}\n" for i, line in enumerate(lines))
    with path.open("w") as file:
        for _ in range(int(400e6 / len(block))):
            file.write(block)
    arguments = map(str, (path, tmp_path / "s.zarr", text(n_rows=20)))
    ended = subprocess.run([sys.executable, "-c", MEASURED, *arguments], capture_output=True)
    assert ended.returncode == 0, ended.stderr
    before, peak = map(int, ended.stdout.split())
    assert peak - before < 100e6


@settings(deadline=None, max_examples=15)
@given(
    st.lists(
        st.tuples(
            st.integers(-3, 3),
            st.dictionaries(
                st.integers(0, 9), st.floats(-(2.0**100), 2.0**100, width=32), max_size=5
            ),
        ),
        min_size=1,
        max_size=30,
    ),
    st.sampled_from(["dense", "sparse"]),
    st.booleans(),
)
def test_round_trip(tmp_path_factory, rows, layout, mixed):
    folder = tmp_path_factory.mktemp("round")
    text = "".join(
        f"{y} " + " ".join(f"{i}:{v!r}" for i, v in sorted(entries.items())) + "\n"
        for y, entries in rows
    )
    (folder / "x").write_text(text)
    store = convert(
        folder / "x",
        folder / "s.zarr",
        layout=layout,
        shuffle=mixed,
        n_features=10,
        zero_based="yes",
    )
    back = dense(store.rows.read(0, len(rows)))
    for i, original in enumerate(store.original_rows().tolist()):
        y, entries = rows[original]
        expected = np.zeros(10, np.float32)
        for j, v in entries.items():
            expected[j] = v
        assert store.labels()[i] == y
        np.testing.assert_array_equal(back[i], expected)
