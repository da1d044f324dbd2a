"""Rows appended to a store: the store is that of all rows written at once, or the old one."""

import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file
from support import HANGS
from support.stores import dense, folder_digest, make_matrix

import bigsvm
from bigsvm.data import arrays, statistics
from bigsvm.data.store import open_store
from bigsvm.errors import DataError, ParameterError, StoreError

N, MORE = 700, 130


pytestmark = pytest.mark.usefixtures("no_flushing")


def make_rows(n_rows=N + MORE, **options):
    rng = np.random.default_rng(3)
    return make_matrix(n_rows, **options), rng.integers(0, 3, n_rows) - 1.0, rng.random(n_rows)


def by_number(store):
    """Rows, labels and weights of a store, in the order of its input."""
    back = np.argsort(store.original_rows())
    weights = store.sample_weight()
    X = dense(store.rows.read(0, len(store)))
    return X[back], store.labels()[back], None if weights is None else weights[back]


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("weighted", [True, False])
def test_all_rows_are_there_once(small_chunks, tmp_path, layout, weighted):
    X, y, w = make_rows()
    parts = (X, y, w) if weighted else (X, y)
    bigsvm.write_store(tmp_path / "s", *(a[:N] for a in parts), layout=layout)
    more = X[N:] if layout == "sparse" else sp.csr_array(X[N:])
    store = bigsvm.append(tmp_path / "s", more, *(a[N:] for a in parts[1:]))
    for found, given in zip(by_number(store), (X, y, w if weighted else None), strict=True):
        np.testing.assert_array_equal(found, given)
    store.verify()
    whole = bigsvm.write_store(tmp_path / "whole", *parts, layout=layout).attributes
    for name in ("n_rows", "n_columns", "n_nonzero", "dtype", "layout", "label_counts"):
        assert getattr(store.attributes, name) == getattr(whole, name)
    assert sorted(os.listdir(tmp_path)) == ["s", "whole"]


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_without_shuffling_the_store_is_that_of_all_rows(small_chunks, tmp_path, layout):
    X, y, w = make_rows()
    whole = bigsvm.write_store(tmp_path / "whole", X, y, w, layout=layout, shuffle=False)
    bigsvm.write_store(tmp_path / "s", X[:N], y[:N], w[:N], layout=layout, shuffle=False)
    store = bigsvm.append(tmp_path / "s", X[N:], y[N:], w[N:])
    for name, hashes in whole.attributes.manifest.items():
        if name.startswith("statistics"):
            continue
        assert store.attributes.manifest[name] == hashes
        for file in (tmp_path / "whole" / name).rglob("*"):
            if file.is_file():
                own = tmp_path / "s" / file.relative_to(tmp_path / "whole")
                assert own.read_bytes() == file.read_bytes()
    for own, other in zip(store.statistics[:4], whole.statistics[:4], strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-12, atol=1e-12)
    assert store.attributes.fingerprint == whole.attributes.fingerprint


def test_whole_shards_stay_the_same_files(small_chunks, tmp_path):
    X, y, _ = make_rows()
    bigsvm.write_store(tmp_path / "s", X[:N], y[:N])
    before = {p: p.stat().st_ino for p in (tmp_path / "s" / "X" / "c").rglob("*") if p.is_file()}
    bigsvm.append(tmp_path / "s", X[N:], y[N:])
    kept = [path for path, inode in before.items() if path.stat().st_ino == inode]
    assert len(before) - 1 == len(kept) > 2
    assert (tmp_path / "s" / "X" / "c" / str(len(before) - 1) / "0") not in kept


def test_without_hard_links_shards_are_copied(small_chunks, tmp_path, monkeypatch):
    X, y, _ = make_rows()

    def refused(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    bigsvm.write_store(tmp_path / "s", X[:N], y[:N])
    store = bigsvm.append(tmp_path / "s", X[N:], y[N:])
    np.testing.assert_array_equal(by_number(store)[0], X)


def test_a_small_store_gets_the_chunks_of_a_large_one(tmp_path):
    X, y, _ = make_rows(5000)
    bigsvm.write_store(tmp_path / "s", X[:10], y[:10])
    store = bigsvm.append(tmp_path / "s", X[10:], y[10:])
    np.testing.assert_array_equal(by_number(store)[0], X)
    assert len(store.attributes.manifest["X"]) == 1


def test_rows_are_appended_again_and_again(small_chunks, tmp_path):
    X, y, _ = make_rows()
    store = bigsvm.write_store(tmp_path / "s", X[:100], y[:100])
    edges = [100, 101, 300, 301, 830]
    for start, stop in itertools.pairwise(edges):
        store = bigsvm.append(store, X[start:stop], y[start:stop])
    np.testing.assert_array_equal(by_number(store)[0], X)
    assert [n for n, _ in store.attributes.earlier] == edges[:-1]
    store.verify()


def test_new_rows_are_shuffled_among_themselves(tmp_path):
    X, y, _ = make_rows()
    bigsvm.write_store(tmp_path / "s", X[:N], y[:N])
    orders = []
    for seed in (0, 1):
        path = shutil.copytree(tmp_path / "s", tmp_path / f"s{seed}")
        numbers = bigsvm.append(path, X[N:], y[N:], seed=seed).original_rows()
        np.testing.assert_array_equal(numbers[:N], open_store(tmp_path / "s").original_rows())
        assert sorted(numbers[N:]) == list(range(N, N + MORE))
        orders.append(numbers[N:].tolist())
    assert orders[0] != sorted(orders[0])
    assert orders[0] != orders[1]


def test_the_first_rows_of_such_a_store_are_no_sample_of_all(tmp_path):
    X, y, _ = make_rows()
    assert bigsvm.write_store(tmp_path / "s", X[:N], y[:N]).rows.is_shuffled
    store = bigsvm.append(tmp_path / "s", X[N:], y[N:])
    assert not store.rows.is_shuffled
    assert store.attributes.shuffled  # y beside it still needs an order
    again = bigsvm.write_store(tmp_path / "again", store, store.labels())
    assert again.rows.is_shuffled
    assert not bigsvm.scale_store(store, tmp_path / "scaled").rows.is_shuffled


@pytest.mark.parametrize("n_columns", [1000, 100_000])
@pytest.mark.parametrize("density", [0.0001, 0.02, 0.2])
def test_statistics_of_listed_columns(tmp_path, monkeypatch, n_columns, density):
    monkeypatch.setattr(statistics, "MOST_DENSE", 500)
    rng = np.random.default_rng(0)
    X = sp.random_array((60, n_columns), density=density, rng=rng, format="csr")
    X.data -= 0.5
    X = X + sp.csr_array(([1.0], ([50], [0])), shape=X.shape)
    y = np.arange(60) % 2
    bigsvm.write_store(tmp_path / "s", X[:50], y[:50], layout="sparse")
    store = bigsvm.append(tmp_path / "s", X[50:], y[50:])
    whole = bigsvm.write_store(tmp_path / "whole", X, y, layout="sparse")
    for own, other in zip(store.statistics, whole.statistics, strict=True):
        if own is None:
            assert other is None
        else:
            np.testing.assert_allclose(own, other, rtol=1e-12, atol=1e-15)
    assert store.attributes.variance == pytest.approx(whole.attributes.variance)
    store.verify()


WORDS = np.array(["cat", "dog", "eel"], object)


def test_words_become_the_classes_of_the_store(tmp_path):
    X, y, _ = make_rows()
    words = WORDS[y.astype(int) + 1]
    words[N:] = np.where(words[N:] == "cat", "dog", words[N:])  # other places than in the store
    bigsvm.write_store(tmp_path / "s", X[:N], words[:N])
    store = bigsvm.append(tmp_path / "s", X[N:], words[N:])
    np.testing.assert_array_equal(by_number(store)[1], words)
    assert store.class_names == ("cat", "dog", "eel")


def test_a_scaled_store_scales_the_new_rows(tmp_path):
    X, y, _ = make_rows(dtype=np.float64)
    bigsvm.write_store(tmp_path / "raw", X[:N], y[:N])
    bigsvm.scale_store(tmp_path / "raw", tmp_path / "s", method="standard")
    store = bigsvm.append(tmp_path / "s", X[N:], y[N:])
    scaler = store.scaler
    np.testing.assert_allclose(by_number(store)[0], scaler.apply(X), rtol=1e-12)
    np.testing.assert_allclose(store.statistics.mean, scaler.apply(X).mean(axis=0), atol=1e-12)
    store.verify()


def test_every_door_appends_the_same_rows(tmp_path):
    X, y, w = make_rows(dtype=np.float64)
    names = [f"c{i}" for i in range(X.shape[1])]
    new = pd.DataFrame(X[N:], columns=names).assign(label=y[N:], weight=w[N:])
    turned = new[["weight", *names[::-1], "label"]]
    turned.to_parquet(tmp_path / "new.parquet")
    turned.to_csv(tmp_path / "new.csv", index=False, float_format="%.17g")
    frame = pd.DataFrame(X[:N], columns=names)
    other = bigsvm.write_store(tmp_path / "other", new[names], y[N:], w[N:])
    stores = []
    for i, given in enumerate([
        (new[names], y[N:], w[N:]),
        (X[N:], y[N:], w[N:]),
        (sp.csr_array(X[N:]), y[N:], w[N:]),
        (da.from_array(X[N:], chunks=(40, 23)), y[N:], w[N:]),
        (tmp_path / "new.parquet", "label", "weight"),
        (tmp_path / "new.csv", "label", "weight"),
        (lambda: [(new[names], y[N:], w[N:])],),
        (other,),
        (str(tmp_path / "other"),),
    ]):  # fmt: skip
        bigsvm.write_store(tmp_path / f"s{i}", frame, y[:N], w[:N])
        stores.append(bigsvm.append(tmp_path / f"s{i}", *given))
    for i, store in enumerate(stores):
        order = np.arange(N + MORE)
        if i >= 7:  # rows of a store are taken in its order
            order[N:] = N + other.original_rows()
        for found, expected in zip(by_number(store), (X, y, w), strict=True):
            np.testing.assert_array_equal(found, expected[order])
        assert store.feature_names == tuple(names)


@pytest.mark.parametrize("zero_based", [True, False])
def test_text_has_the_columns_of_the_text_before(tmp_path, zero_based):
    X, y, _ = make_rows()
    X[:, 0] = 0  # nothing says what the first index is
    for name, part in {"old": slice(N), "new": slice(N, None)}.items():
        dump_svmlight_file(X[part], y[part], str(tmp_path / name), zero_based=zero_based)
    meant = "yes" if zero_based else "no"
    bigsvm.convert(tmp_path / "old", tmp_path / "s", zero_based=meant, n_features=23)
    store = bigsvm.append(tmp_path / "s", tmp_path / "new")
    np.testing.assert_array_equal(by_number(store)[0], X)
    assert store.attributes.sources == ("old", "new")


# -- what is refused -----------------------------------------------------------------------------


def refuse(path, *given, match, error=DataError, **options):
    """Append what is refused; the store stays as it is, and nothing else is left."""
    beside, before = sorted(os.listdir(path.parent)), folder_digest(path)
    with pytest.raises(error, match=match):
        bigsvm.append(path, *given, **options)
    assert folder_digest(path) == before
    assert sorted(os.listdir(path.parent)) == beside


@pytest.fixture
def plain(tmp_path):
    X, y, _ = make_rows()
    bigsvm.write_store(tmp_path / "s.zarr", X[:N], y[:N])
    return tmp_path / "s.zarr"


def test_rows_that_no_store_takes_are_refused(plain):
    X, y, w = make_rows()
    bad = X[N:].copy()
    bad[3, 4] = np.nan
    refuse(plain, bad, y[N:], match="X has nan in row 3, column 4")
    large = X[N:].astype(np.float64)
    large[5, 6] = 1e300
    refuse(plain, large, y[N:], match="X has 1e.300 in row 5, column 6.*float32")
    refuse(plain, X[:0], y[:0], match="must have rows")
    refuse(plain, X[N:], y[N + 1 :], match="y has shape")
    refuse(
        plain, X[N:, :-1], y[N:], match="number of columns: 22 in the new rows, but 23 in .*s.zarr"
    )
    refuse(plain, X[N:], y[N:], w[N:], match="weights: given in the new rows, but none in")
    refuse(
        plain,
        X[N:],
        WORDS[y[N:].astype(int) + 1],
        match="labels: words in the new rows, but numbers in",
    )
    beyond = np.full(MORE, 2**53 + 1)
    refuse(plain, X[N:], beyond, match="integers beyond 2..53")
    refuse(plain, X[N:], None, match="y has shape")


def test_whole_numbers_that_are_too_large_for_the_store_are_refused(plain):
    whole = np.full((MORE, 23), 10**40, object)
    refuse(plain, whole, np.ones(MORE), match="X has type object; it must hold real numbers")


def test_weights_words_and_names_of_the_store_are_needed(tmp_path):
    X, y, w = make_rows()
    words = WORDS[y.astype(int) + 1]
    names = [f"c{i}" for i in range(23)]
    frame = pd.DataFrame(X, columns=names)
    path = tmp_path / "s.zarr"
    bigsvm.write_store(path, frame[:N], words[:N], w[:N])
    refuse(path, frame[N:], words[N:], match="weights: none in the new rows, but given in")
    refuse(path, frame[N:], y[N:], w[N:], match="labels: numbers in the new rows, but words in")
    other = words[N:].copy()
    other[7] = "Dog"
    refuse(path, frame[N:], other, w[N:], match="label 'Dog', which is no class of .*s.zarr")
    refuse(
        path, frame[names[::-1]][N:], words[N:], w[N:],
        match=r"name of column 0 \(from 0\): c22 in the new rows, but c0 in .*s.zarr",
    )  # fmt: skip
    frame[N:].drop(columns="c4").assign(y=words[N:], w=w[N:]).to_csv(tmp_path / "x.csv")
    refuse(path, tmp_path / "x.csv", "y", "w", match="x.csv: there is no column 'c4'")


def test_text_that_does_not_fit_is_refused(tmp_path, plain):
    (tmp_path / "x").write_text("1 24:1\n")
    refuse(plain, tmp_path / "x", match="was not made of LIBSVM text")
    (tmp_path / "old").write_text("1 1:1 23:1\n-1 2:1\n")
    bigsvm.convert(tmp_path / "old", tmp_path / "t.zarr")
    refuse(tmp_path / "t.zarr", tmp_path / "x", match="index past the 23 columns of .*t.zarr")
    (tmp_path / "x").write_text("1 1:1\noops\n")
    refuse(tmp_path / "t.zarr", tmp_path / "x", match="x:2")
    refuse(
        tmp_path / "t.zarr", tmp_path / "x", None, "weight", error=ParameterError,
        match="is LIBSVM text, which has no named columns",
    )  # fmt: skip


@pytest.mark.parametrize("numbered", [True, False])
def test_kernel_matrices_are_refused(tmp_path, numbered):
    X = make_matrix(40).astype(np.float64)
    K = X @ X.T
    y = np.arange(40) % 2
    path = tmp_path / "k.zarr"
    if numbered:
        text = [
            f"{label} 0:{i + 1} " + " ".join(f"{j + 1}:{v:.17g}" for j, v in enumerate(row))
            for i, (label, row) in enumerate(zip(y, K, strict=True))
        ]
        (tmp_path / "k").write_text("\n".join(text) + "\n")
        bigsvm.convert(tmp_path / "k", path, layout="dense", dtype="float64")
    else:
        bigsvm.write_store(path, K, y)
    refuse(path, K[:5], y[:5], match="k.zarr: is a kernel matrix")
    bigsvm.write_store(tmp_path / "square.zarr", X[:23], y[:23])
    assert len(bigsvm.append(tmp_path / "square.zarr", X[23:], y[23:])) == 40


def test_places_that_are_no_store_are_refused(tmp_path):
    X, y, _ = make_rows()
    with pytest.raises(StoreError, match=r"no\.zarr"):
        bigsvm.append(tmp_path / "no.zarr", X, y)
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreError, match="folder: not a store"):
        bigsvm.append(tmp_path / "folder", X, y)
    with pytest.raises(ParameterError, match="object storage cannot be appended to"):
        bigsvm.append("memory://bucket/s.zarr", X, y)
    assert os.listdir(tmp_path) == ["folder"]


def test_a_link_to_a_store_stays_one(plain, tmp_path):
    X, y, _ = make_rows()
    (tmp_path / "link").symlink_to("s.zarr")
    bigsvm.append(tmp_path / "link", X[N:], y[N:])
    assert (tmp_path / "link").is_symlink()
    assert len(open_store(plain)) == N + MORE


# -- whatever ends it ----------------------------------------------------------------------------


def test_a_full_disk_leaves_the_store(small_chunks, plain, monkeypatch):
    X, y, _ = make_rows()
    write = arrays.ShardWriter.append
    counts = iter(range(10**6))

    def full(self, stored):
        if next(counts) == 30:
            raise OSError(28, "No space left on device")
        write(self, stored)

    monkeypatch.setattr(arrays.ShardWriter, "append", full)
    refuse(plain, X[N:], y[N:], match="s.zarr: cannot be written .No space left", error=StoreError)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_is_read_only(plain):
    X, y, _ = make_rows()
    plain.parent.chmod(0o555)
    try:
        refuse(plain, X[N:], y[N:], match="cannot be written", error=StoreError)
    finally:
        plain.parent.chmod(0o755)


def test_two_that_append_at_once(plain):
    X, y, _ = make_rows()

    def meanwhile(_):
        with pytest.raises(StoreError, match="is making it"):
            bigsvm.append(plain, X[N:], y[N:])

    assert len(bigsvm.append(plain, X[N:], y[N:], on_progress=meanwhile)) == N + MORE


def test_a_store_that_was_replaced_meanwhile_is_left_alone(plain, tmp_path):
    X, y, _ = make_rows()
    bigsvm.write_store(tmp_path / "other.zarr", X[:5], y[:5])

    def meanwhile(_):
        shutil.rmtree(plain)
        shutil.copytree(tmp_path / "other.zarr", plain)

    with pytest.raises(StoreError, match="was replaced"):
        bigsvm.append(plain, X[N:], y[N:], on_progress=meanwhile)
    assert len(open_store(plain)) == 5


def test_a_store_that_is_open_reads_its_rows_or_is_refused(small_chunks, tmp_path):
    """Where an array keeps its chunks, as X does here, its first rows are where they were."""
    X, y, _ = make_rows()
    bigsvm.write_store(tmp_path / "s", X[:N], y[:N])
    opened = open_store(tmp_path / "s")
    expected = opened.rows.read(0, N)
    opened.rows.read(N - 40, N - 30)
    bigsvm.append(tmp_path / "s", X[N:], y[N:])
    np.testing.assert_array_equal(opened.rows.read(0, N), expected)
    with pytest.raises(StoreError, match="was replaced by a store with other content"):
        opened.labels()


def test_a_small_store_that_is_open_is_refused(plain):
    X, y, _ = make_rows()
    opened = open_store(plain)
    bigsvm.append(plain, X[N:], y[N:])
    for read in (opened.labels, lambda: opened.rows.read(0, N)):
        with pytest.raises(StoreError, match="was replaced by a store with other content"):
            read()


KILLED = """
import os, shutil, sys
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from killing import killed_at_every_step
from support.stores import folder_digest, make_chunks_small

import bigsvm
from bigsvm.data import workspace

folder, every = Path(sys.argv[1]), int(sys.argv[2])
make_chunks_small(pytest.MonkeyPatch())
os.fsync = lambda descriptor: None
if sys.argv[3] == "two":
    workspace.exchange = lambda *paths: False
with np.load(folder / "new.npz") as new:
    X, y = new["X"], new["y"]
work = lambda: bigsvm.append(folder / "s", X, y)
for n in killed_at_every_step(work, also=[(os, "link")], every=every):
    print(folder_digest(bigsvm.open_store(folder / "s").path))
    shutil.rmtree(folder / "s")
    shutil.copytree(folder / "old", folder / "s")
"""
"""Children are forked from a process that has decoded nothing: threads of zarrs end by a fork."""


@pytest.mark.fault("leftovers")
@pytest.mark.parametrize(
    ("every", "in_steps"),
    [(8, "one"), *(pytest.param(1, steps, marks=pytest.mark.slow) for steps in ("one", "two"))],
)
def test_killed_at_any_step_the_store_is_the_old_one_or_the_new_one(
    small_chunks, tmp_path, every, in_steps
):
    X, y, _ = make_rows()
    for name in ("old", "s", "new"):
        bigsvm.write_store(tmp_path / name, X[:N], y[:N])
    bigsvm.append(tmp_path / "new", X[N:], y[N:])
    np.savez(tmp_path / "new.npz", X=X[N:], y=y[N:])
    command = [sys.executable, "-c", KILLED, str(tmp_path), str(every), in_steps]
    places = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    ended = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=HANGS * max(1, 20 // every),
        env={**os.environ, "PYTHONPATH": places},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    digests = ended.stdout.split()
    assert len(digests) >= 20
    assert set(digests) == {folder_digest(tmp_path / name) for name in ("old", "new")}
    # The child that was not killed has removed what the others left.
    assert sorted(os.listdir(tmp_path)) == ["new", "new.npz", "old", "s"]
    assert folder_digest(tmp_path / "s") == folder_digest(tmp_path / "new")


def test_words_become_what_they_became_when_the_store_was_made(tmp_path):
    table = pd.DataFrame(
        {"area": [50.0, None, 80.0, 65.0] * 5, "city": ["Bonn", "Rome", "Oslo", "Bonn"] * 5}
    )
    table["y"] = table["city"] == "Rome"
    more = table.iloc[[1, 0, 3]]  # without one of the words, and other means
    for name, rows in (("first", table), ("more", more)):
        rows.to_parquet(tmp_path / f"{name}.parquet")
    options = {"categories": "onehot", "missing": "mean", "shuffle": False}
    path = tmp_path / "store.zarr"
    store = bigsvm.write_store(path, tmp_path / "first.parquet", "y", **options)
    expected = store.rows.read(0, 20)[[1, 0, 3]]
    larger = bigsvm.append(path, tmp_path / "more.parquet", "y")
    assert larger.feature_names == store.feature_names
    assert larger.attributes.encoding == store.attributes.encoding
    np.testing.assert_array_equal(larger.rows.read(20, 23), expected)
    less = bigsvm.drop(larger, [0], tmp_path / "less.zarr")
    assert less.attributes.encoding == store.attributes.encoding
    more.assign(city="Paris").to_parquet(tmp_path / "other.parquet")
    with pytest.raises(DataError, match="'Paris'"):
        bigsvm.append(path, tmp_path / "other.parquet", "y")
    assert bigsvm.open_store(path).attributes.fingerprint == larger.attributes.fingerprint
