"""What bad sources get: one sentence with the place and the remedy, and nothing left behind."""

import bz2
import gzip
import re
import threading
import tracemalloc
from functools import partial

import numpy as np
import pytest

import bigsvm
from bigsvm.conversion.streams import ByteStream
from bigsvm.errors import BigsvmError

pa = pytest.importorskip("pyarrow")
h5py = pytest.importorskip("h5py")

N = 200
NAMES = ["a", "b", "c"]


def columns(**changes):
    rng = np.random.default_rng(0)
    whole = {name: rng.standard_normal(N) for name in NAMES}
    return {**whole, "target": np.arange(N) % 2, **changes}


def changed(values, row, value):
    values = np.array(values, dtype=object if isinstance(value, str) else None)
    values[row] = value
    return values


def parquet(path, table):
    from pyarrow import parquet as pq

    pq.write_table(pa.table(table) if isinstance(table, dict) else table, path)


def feather(path, table):
    from pyarrow import feather as writer

    writer.write_feather(pa.table(table) if isinstance(table, dict) else table, path)


def csv(path, table):
    names = list(table) if isinstance(table, dict) else table.column_names
    values = table.values() if isinstance(table, dict) else [c.to_pylist() for c in table.columns]
    lines = [",".join(map(str, row)) for row in zip(*values, strict=True)]
    path.write_text("\n".join([",".join(names), *lines]) + "\n")


TABLES = {"parquet": parquet, "feather": feather, "csv": csv}
DOORS = sorted(TABLES)


def refused(path, folder, label="target", **options):
    """Message of the refusal; the store and all temporary files are gone."""
    before = sorted(folder.iterdir())
    with pytest.raises(BigsvmError) as caught:
        bigsvm.write_store(folder / "made.zarr", path, label, **options)
    assert sorted(folder.iterdir()) == before
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 600
    return message


def refused_table(door, folder, table, **options):
    path = folder / f"rows.{door}"
    TABLES[door](path, table)
    return refused(path, folder, **options)


@pytest.mark.parametrize("door", DOORS)
def test_an_empty_file(door, tmp_path):
    path = tmp_path / f"rows.{door}"
    path.write_bytes(b"")
    assert re.search(r"rows\.\w+: .*(empty|cannot be read)", refused(path, tmp_path))


@pytest.mark.parametrize("door", DOORS)
def test_no_rows(door, tmp_path):
    none = {name: np.asarray(values)[:0] for name, values in columns().items()}
    assert "no rows" in refused_table(door, tmp_path, none)


@pytest.mark.parametrize("door", ["parquet", "feather"])
def test_a_cut_file(door, tmp_path):
    path = tmp_path / f"rows.{door}"
    TABLES[door](path, columns())
    path.write_bytes(path.read_bytes()[:-100])
    assert "cannot be read" in refused(path, tmp_path)


def test_a_cut_line_of_csv(tmp_path):
    path = tmp_path / "rows.csv"
    csv(path, columns())
    path.write_bytes(path.read_bytes()[:-4])
    message = refused(path, tmp_path)
    assert re.search(rf"rows\.csv: .*{N + 1}|column 'target'", message)


@pytest.mark.parametrize("door", DOORS)
def test_a_wrong_label_column(door, tmp_path):
    message = refused_table(door, tmp_path, columns(), label="tarjet")
    assert "no column 'tarjet'; did you mean 'target'?" in message


def test_ragged_rows(tmp_path):
    path = tmp_path / "rows.csv"
    csv(path, columns())
    lines = path.read_text().splitlines()
    lines[20] += ",7"
    path.write_text("\n".join(lines))
    assert "Row #21" in refused(path, tmp_path)


@pytest.mark.parametrize("door", DOORS)
def test_words_in_a_column_of_numbers(door, tmp_path):
    table = columns(b=[f"word {i}" for i in range(N)])
    assert re.search("'b'.* holds|column 'b'", refused_table(door, tmp_path, table))


def test_a_word_among_the_numbers_of_csv(tmp_path):
    path = tmp_path / "rows.csv"
    table = columns()
    TABLES["csv"](path, {**table, "b": changed(table["b"], 150, "seven")})
    assert "'b'" in refused(path, tmp_path)


@pytest.mark.parametrize("door", DOORS)
def test_labels_of_mixed_kinds(door, tmp_path):
    table = columns(target=[*["yes"] * (N - 1), None])
    if door == "csv":
        table["target"] = [*["yes"] * (N - 1), ""]
    assert f"'target' has no value in row {N - 1}" in refused_table(door, tmp_path, table)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite(door, value, tmp_path):
    table = columns()
    message = refused_table(door, tmp_path, {**table, "b": changed(table["b"], 150, value)})
    assert re.search(f"({value} in row 150, column 'b')|'b' \\(1\\)", message)


@pytest.mark.parametrize("door", DOORS)
def test_missing_values_are_counted(door, tmp_path):
    table = columns()
    gaps = [None if i % 50 == 0 else v for i, v in enumerate(table["c"])]
    if door == "csv":
        gaps = ["" if v is None else v for v in gaps]
    assert "'c' (4)" in refused_table(door, tmp_path, {**table, "c": gaps})


@pytest.mark.parametrize("door", DOORS)
def test_labels_beyond_float64(door, tmp_path):
    table = columns(target=changed(np.arange(N), 7, 2**63 - 1))
    assert "y has 9223372036854775807 in row 7" in refused_table(door, tmp_path, table)


@pytest.mark.parametrize("door", DOORS)
def test_names_that_occur_twice(door, tmp_path):
    arrays = [pa.array(values) for values in columns().values()]
    table = pa.Table.from_arrays(arrays, names=["a", "b", "b", "target"])
    assert "'b' more than once" in refused_table(door, tmp_path, table)


@pytest.mark.parametrize("door", DOORS)
def test_columns_in_another_order_are_read_by_name(door, tmp_path):
    (tmp_path / "parts").mkdir()
    table = columns()
    TABLES[door](tmp_path / "parts" / "1", table)
    TABLES[door](tmp_path / "parts" / "2", dict(reversed(table.items())))
    store = bigsvm.write_store(tmp_path / "made.zarr", tmp_path / "parts", "target", shuffle=False)
    rows = store.rows.read(0, 2 * N)
    np.testing.assert_array_equal(rows[:N], rows[N:])


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("change", "message"),
    [({"more": np.zeros(N)}, "column 'more', which"), ({"b": None}, "there is no column 'b'")],
    ids=["more", "less"],
)
def test_a_file_with_a_column_more_or_less(door, change, message, tmp_path):
    (tmp_path / "parts").mkdir()
    TABLES[door](tmp_path / "parts" / "1", columns())
    other = {name: v for name, v in columns(**change).items() if v is not None}
    TABLES[door](tmp_path / "parts" / "2", other)
    assert message in refused(tmp_path / "parts", tmp_path)


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_csv_of_another_encoding(encoding, tmp_path):
    table = columns(target=["gelb", "grün"] * (N // 2))
    path = tmp_path / "rows.csv"
    csv(path, table)
    path.write_bytes(path.read_text().encode(encoding))
    message = refused(path, tmp_path)
    assert re.search("UTF-16|UTF8|UTF-8|utf-8", message)


def test_csv_compressed_twice(tmp_path):
    path = tmp_path / "rows.csv"
    csv(path, columns())
    path.write_bytes(gzip.compress(bz2.compress(path.read_bytes())))
    assert "compressed twice" in refused(path, tmp_path)


def test_a_bomb_of_csv(tmp_path):
    """A line of 200 MB from 200 kB is not held in memory."""
    path = tmp_path / "rows.csv"
    path.write_bytes(gzip.compress(b"a,target\n" + b"1" * (200 << 20)))
    tracemalloc.start()
    refused(path, tmp_path, memory="64MB")
    assert tracemalloc.get_traced_memory()[1] < 128 << 20
    tracemalloc.stop()


def test_no_thread_reads_on_after_an_error(tmp_path, monkeypatch):
    """A reader of Arrow would read ahead in a thread of its own, which may crash the process."""
    path = tmp_path / "rows.csv"
    path.write_bytes(gzip.compress(b"a,target\n" + b"1" * (20 << 20)))
    threads, readinto = set(), ByteStream.readinto

    def read(stream, target):
        threads.add(threading.get_ident())
        return readinto(stream, target)

    monkeypatch.setattr(ByteStream, "readinto", read)
    assert "a line has more than" in refused(path, tmp_path, memory="64MB")
    assert threads == {threading.get_ident()}


def test_the_line_of_a_fault_in_a_later_block_of_csv_is_named(tmp_path):
    path, lines = tmp_path / "rows.csv", ["a,target"] + ["1.5,1"] * 400_000
    lines[300_000] = "1.5,1,7"
    path.write_text("\n".join(lines))
    assert "300001" in refused(path, tmp_path, memory="34MB")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"b": pa.array([0] * N, pa.timestamp("s"))}, "'b'"),
        ({"b": pa.array([[1.0]] * N)}, "'b'"),
        ({"target": pa.array([0] * N, pa.date32())}, "'target' holds date32"),
    ],
    ids=["times", "lists", "dates as labels"],
)
def test_types_that_are_no_numbers(table, message, tmp_path):
    assert message in refused_table("parquet", tmp_path, columns(**table))


def test_types_that_are_numbers(tmp_path):
    """Booleans, decimals, dictionaries of words, unsigned and small types."""
    import decimal

    table = columns(
        a=pa.array([bool(i % 2) for i in range(N)]),
        b=pa.array([decimal.Decimal(i) / 4 for i in range(N)], pa.decimal128(10, 2)),
        c=pa.array(np.arange(N, dtype=np.uint8)),
        target=pa.array(["yes", "no"] * (N // 2)).dictionary_encode(),
    )
    parquet(tmp_path / "rows.parquet", table)
    store = bigsvm.write_store(
        tmp_path / "made.zarr", tmp_path / "rows.parquet", "target", shuffle=False
    )
    i = np.arange(N)
    np.testing.assert_array_equal(
        store.rows.read(0, N), np.column_stack([i % 2, i / 4, i.astype(float)])
    )
    assert store.class_names == ("no", "yes")


class TestArrays:
    """Files of arrays."""

    def test_hdf5_without_the_label(self, tmp_path):
        with h5py.File(tmp_path / "rows.h5", "w") as file:
            file["X"], file["target"] = np.zeros((3, 2)), np.zeros(3)
        assert "has no 'y', but X, target" in refused(tmp_path / "rows.h5", tmp_path, label="y")

    def test_hdf5_with_several_matrices(self, tmp_path):
        with h5py.File(tmp_path / "rows.h5", "w") as file:
            file["one"], file["two"], file["y"] = np.zeros((3, 2)), np.zeros((3, 2)), np.zeros(3)
        message = refused(tmp_path / "rows.h5", tmp_path, label="y")
        assert "several matrices (one, two)" in message

    def test_cut_hdf5(self, tmp_path):
        with h5py.File(tmp_path / "rows.h5", "w") as file:
            file["X"], file["y"] = np.zeros((300, 20)), np.zeros(300)
        path = tmp_path / "rows.h5"
        path.write_bytes(path.read_bytes()[:1000])
        assert "cannot be read" in refused(path, tmp_path, label="y")

    def test_npy_without_labels(self, tmp_path):
        np.save(tmp_path / "rows.npy", np.zeros((3, 2)))
        message = refused(tmp_path / "rows.npy", tmp_path, label="labels.npy")
        assert "none named 'labels.npy'" in message

    def test_npy_of_objects(self, tmp_path):
        np.save(tmp_path / "rows.npy", np.array([{}], object), allow_pickle=True)
        assert "Python objects" in refused(tmp_path / "rows.npy", tmp_path, label="y.npy")

    def test_cut_npy(self, tmp_path):
        np.save(tmp_path / "y.npy", np.zeros(100))
        np.save(tmp_path / "rows.npy", np.zeros((100, 2)))
        path = tmp_path / "rows.npy"
        path.write_bytes(path.read_bytes()[:-10])
        assert "cannot be read" in refused(path, tmp_path, label="y.npy")

    def test_an_archive_that_memory_does_not_hold(self, tmp_path):
        np.savez_compressed(tmp_path / "rows.npz", X=np.zeros((1 << 20, 4)), y=np.zeros(1 << 20))
        message = refused(tmp_path / "rows.npz", tmp_path, label="y", memory="64MB")
        assert "an archive is read whole" in message

    def test_labels_of_another_length(self, tmp_path):
        np.savez(tmp_path / "rows.npz", X=np.zeros((3, 2)), y=np.zeros(4))
        assert "X has 3 rows" in refused(tmp_path / "rows.npz", tmp_path, label="y")


class TestBatches:
    """A callable's batches."""

    @pytest.mark.parametrize(
        ("batches", "message"),
        [
            ([], "there are none"),
            ([np.zeros((3, 2))], "batch 0 (from 0) is a ndarray"),
            ([(np.zeros((3, 2)), np.zeros(4))], "y of batch 0 (from 0) has shape (4,)"),
            (
                [(np.zeros((3, 2)), np.zeros(3)), (np.zeros((3, 1)), np.zeros(3))],
                "batch 1 (from 0) has other columns",
            ),
            ([(np.zeros((3, 2)), np.array([0, 1, np.nan]))], "y has nan in row 2"),
            (
                [(np.zeros((3, 2)), np.zeros(3)), (np.zeros((1, 2)), np.array(["a"]))],
                "numbers up to row 2 (from 0), and words after it",
            ),
            ([(np.zeros((3, 2)), np.zeros(3), np.array([1, -1, 1]))], "sample_weight has -1.0"),
        ],
    )
    def test_batches_that_are_none(self, batches, message, tmp_path):
        assert message in refused(lambda: iter(batches), tmp_path, label=None)

    def test_an_error_of_the_caller_is_the_callers(self, tmp_path):
        def make():
            yield np.zeros((3, 2)), np.zeros(3)
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            bigsvm.write_store(tmp_path / "made.zarr", make)
        assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("take", ["fit", "write_store"])
def test_a_lazy_table_beside_an_array_of_labels_names_the_remedy(take, tmp_path):
    table = pa.table(columns())
    reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches())
    do = bigsvm.SVC().fit if take == "fit" else partial(bigsvm.write_store, tmp_path / "s.zarr")
    with pytest.raises(BigsvmError, match=r"y is a ndarray; .* must be the name of a column"):
        do(reader, columns()["target"])
    assert not list(tmp_path.iterdir())
