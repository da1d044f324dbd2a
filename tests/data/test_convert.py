"""Conversion: the same store whatever the memory, chunks, threads or interruptions."""

import itertools
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from row_contracts import dense, folder_digest
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from bigsvm.data import convert as conversion
from bigsvm.data import shuffle
from bigsvm.data.convert import convert
from bigsvm.data.store import open_store
from bigsvm.errors import DataError, MemoryBudgetError, ParameterError, ParseError, StoreError


@pytest.fixture
def text(tmp_path):
    """A file of 3000 rows whose smallest index, 0 or 1, can be chosen."""

    def text(n_rows=3000, zero_based=False, density=0.2, seed=0, name="x.libsvm"):
        rng = np.random.default_rng(seed)
        X = sp.random_array((n_rows, 40), density=density, rng=rng, format="csr", dtype=np.float64)
        y = rng.integers(0, 3, n_rows)
        path = tmp_path / name
        dump_svmlight_file(X, y, str(path), zero_based=zero_based)
        return path

    return text


def assert_holds(store, path, n_features, **options):
    X, y = load_svmlight_file(str(path), n_features=n_features, **options)
    original = store.original_rows()
    rows = dense(store.rows.read(0, store.rows.n_rows))
    np.testing.assert_array_equal(rows, X.toarray().astype(store.rows.dtype)[original])
    np.testing.assert_array_equal(store.labels(), y[original])
    assert sorted(original) == list(range(len(y)))


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
            patch.setattr(conversion, "_bucket_bits", lambda *_, bits=bits: bits)
            patch.setattr(conversion, "CHUNK_BYTES", chunk)
            patch.setattr(
                conversion,
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
    assert store.attributes.layout == "csr"
    assert store.rows.read(0, 2).toarray().tolist() == [[0, 0, 0], [0, 0, 0]]
    assert store.rows.take(np.array([1, 1])).shape == (2, 3)
    assert store.statistics.maximum.tolist() == [0, 0, 0]
    store.verify()


def test_too_many_columns_for_the_memory(tmp_path):
    (tmp_path / "x").write_text("1 2000000000:1\n")
    with pytest.raises(MemoryBudgetError, match=r"2000000000 columns.*use memory="):
        convert(tmp_path / "x", tmp_path / "s.zarr")


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
    assert conversion.memory_bytes(memory) == size


@pytest.mark.parametrize("threads", [1, 2, 30])
def test_chunks_and_lines_fit_the_memory(text, tmp_path, monkeypatch, threads):
    made = {}

    class Reader(conversion.LibsvmReader):
        def __init__(self, *arguments, **options):
            made.update(options)
            super().__init__(*arguments, **options)

    monkeypatch.setattr(conversion, "LibsvmReader", Reader)
    convert(text(n_rows=20), tmp_path / "s.zarr", memory="40MB", threads=threads)
    assert (threads + 2) * 10 * made["chunk_bytes"] <= 40e6 / 3
    assert (threads + 2) * made["max_line_bytes"] <= 40e6 / 8


def test_what_was_skipped_is_told(tmp_path):
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


def test_existing_store_is_kept_until_the_new_one_is_whole(text, tmp_path):
    target = tmp_path / "s.zarr"
    convert(text(), target)
    before = folder_digest(target)
    with pytest.raises(StoreError, match=r"s\.zarr: already exists"):
        convert(text(), target)
    bad = tmp_path / "bad"
    bad.write_text("1 1:1\noops\n")
    with pytest.raises(ParseError):
        convert(bad, target, overwrite=True)
    assert folder_digest(target) == before
    convert(text(n_rows=5), target, overwrite=True)
    assert open_store(target).rows.n_rows == 5
    assert sorted(os.listdir(tmp_path)) == ["bad", "s.zarr", "x.libsvm"]


FOREIGN = '{"zarr_format": 3, "node_type": "group", "attributes": {"made_by": "bigsvm"}}'


@pytest.mark.parametrize("name", [None, "notes.txt", "zarr.json"])
@pytest.mark.parametrize("content", [FOREIGN, '{"bigsvm"'])
def test_what_is_no_store_is_never_overwritten(text, tmp_path, name, content):
    target = tmp_path / "folder"
    target.mkdir()
    if name:
        (target / name).write_text(content)
    with pytest.raises(StoreError, match="not overwritten; remove it first"):
        convert(text(), target, overwrite=True)
    assert target.exists()


def test_source_that_may_not_be_looked_at(tmp_path, monkeypatch):
    def refuse(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_file", refuse)
    with pytest.raises(DataError, match=r"x: cannot be opened \(Permission denied\)"):
        convert(tmp_path / "x", tmp_path / "s.zarr")


def test_parent_that_is_not_there(text, tmp_path):
    with pytest.raises(StoreError, match="no such directory"):
        convert(text(), tmp_path / "a" / "s.zarr")


def test_live_conversion_is_not_disturbed(text, tmp_path):
    path = text()
    started, finish = threading.Event(), threading.Event()

    def wait(_):
        started.set()
        assert finish.wait(30)

    one = threading.Thread(
        target=convert, args=(path, tmp_path / "s.zarr"), kwargs={"on_progress": wait}
    )
    one.start()
    assert started.wait(30)
    with pytest.raises(StoreError, match=rf"process {os.getpid()} is making it"):
        convert(path, tmp_path / "s.zarr")
    finish.set()
    one.join()
    assert_holds(open_store(tmp_path / "s.zarr"), path, 40)


CONVERT = """
import sys
from bigsvm.data.convert import convert
report = lambda event: print(event, flush=True)
convert(sys.argv[1], sys.argv[2], memory="40MB", overwrite=True, on_progress=report)
"""


def start(*arguments, code=CONVERT, **options):
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )


@pytest.mark.parametrize("n_events", [1, pytest.param(None, marks=pytest.mark.slow)])
def test_killed_conversion_is_forgotten(text, tmp_path, n_events):
    path = text(n_rows=20_000)
    target = tmp_path / "s.zarr"
    expected = convert(path, tmp_path / "expected.zarr", memory="40MB").attributes
    rng = random.Random(0)
    for _ in range(1 if n_events else 12):
        process = start(path, target)
        for _ in range(n_events or 1):
            process.stdout.readline()
        time.sleep(0 if n_events else rng.uniform(0, 0.5))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        # Whole or not there.
        if target.exists():
            assert open_store(target).attributes == expected
        store = convert(path, target, overwrite=True, memory="40MB")
        assert store.attributes == expected
        assert folder_digest(target) == folder_digest(tmp_path / "expected.zarr")
        assert sorted(os.listdir(tmp_path)) == ["expected.zarr", "s.zarr", "x.libsvm"]


def test_killed_between_the_two_renames(text, tmp_path):
    path = text()
    target = tmp_path / "s.zarr"
    before = convert(path, target).attributes
    left = tmp_path / ".s.zarr.partial-1-abc"
    left.mkdir()
    (left / "lock").touch()
    target.rename(left / "old")
    with pytest.raises(StoreError, match="already exists"):
        convert(path, target)
    assert open_store(target).attributes == before
    assert not left.exists()


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_stopped_between_the_two_renames(text, tmp_path, monkeypatch, error):
    target = tmp_path / "s.zarr"
    before = convert(text(), target).attributes
    rename = Path.rename

    def stop(self, to):
        if self.name == "store":
            raise error
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", stop)
    with pytest.raises((KeyboardInterrupt, StoreError)):
        convert(text(n_rows=5), target, overwrite=True)
    assert open_store(target).attributes == before
    assert sorted(os.listdir(tmp_path)) == ["s.zarr", "x.libsvm"]


def test_store_that_cannot_be_put_back_is_not_removed(text, tmp_path, monkeypatch):
    target = tmp_path / "s.zarr"
    before = convert(text(), target).attributes
    rename = Path.rename

    def fail(self, to):
        if self.name in ("store", "old"):
            raise OSError(5, "Input/output error")
        return rename(self, to)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", fail)
        with pytest.raises(StoreError, match=r"whole in .*old: move it back"):
            convert(text(n_rows=5), target, overwrite=True)
        # Nor by the next one, while it does not work either.
        with pytest.raises(StoreError, match="Input/output error"):
            convert(text(n_rows=5), target, overwrite=True)
    with pytest.raises(StoreError, match="already exists"):
        convert(text(n_rows=5), target)
    assert open_store(target).attributes == before
    assert sorted(os.listdir(tmp_path)) == ["s.zarr", "x.libsvm"]


def test_stopped_as_soon_as_the_work_folder_is_made(text, tmp_path, monkeypatch):
    make = Path.mkdir

    def stop(self, **options):
        make(self, **options)
        raise KeyboardInterrupt

    path = text()
    monkeypatch.setattr(Path, "mkdir", stop)
    with pytest.raises(KeyboardInterrupt):
        convert(path, tmp_path / "s.zarr")
    assert os.listdir(tmp_path) == ["x.libsvm"]


def test_leftovers_of_a_name_with_brackets_are_removed(text, tmp_path):
    left = tmp_path / ".data[v2].zarr.partial-1-abc"
    left.mkdir()
    (left / "lock").touch()
    convert(text(), tmp_path / "data[v2].zarr")
    assert not left.exists()


def test_everything_is_flushed_before_the_store_gets_its_name(text, tmp_path, monkeypatch):
    target = tmp_path / "s.zarr"
    flushed = []

    def note(descriptor):
        flushed.append((os.fstat(descriptor).st_ino, target.exists()))

    monkeypatch.setattr(os, "fsync", note)
    convert(text(), target)
    before = {inode for inode, named in flushed if not named}
    assert before == {p.stat().st_ino for p in (target, *target.rglob("*"))}
    assert flushed[-1] == (tmp_path.stat().st_ino, True)


def test_full_disk(text, tmp_path):
    path = text(n_rows=5000, density=1)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    for limit in (1 << 14, 1 << 18, 1 << 19):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
        try:
            with pytest.raises(
                StoreError, match=r"s\.zarr: cannot be written \(File too large\); free"
            ):
                convert(path, tmp_path / "s.zarr", dtype="float64", layout="sparse")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert os.listdir(tmp_path) == ["x.libsvm"]


MEASURED = """
import resource, sys
from bigsvm.data.convert import convert
convert(sys.argv[3], sys.argv[2] + ".small", memory="100MB")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
convert(sys.argv[1], sys.argv[2], memory="100MB")
print(before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
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
    process = start(path, tmp_path / "s.zarr", text(n_rows=20), code=MEASURED)
    out, error = process.communicate()
    assert process.returncode == 0, error
    before, peak = map(int, out.split())
    assert (peak - before) * 1024 < 100e6


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
