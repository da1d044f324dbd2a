"""Matrices, the stores that are made of them, and what a store holds."""

import hashlib
import json
import shutil

import numpy as np
import scipy.sparse as sp
import zarr
from sklearn.datasets import load_svmlight_file

from bigsvm.data import arrays, schema, store_writer

N_ROWS = 400
"""Of the store that the fixture `store` copies."""


def make_chunks_small(patch):
    """Set the sizes of chunks and shards through a `pytest.MonkeyPatch`."""
    patch.setattr(schema, "CHUNK_BYTES", 1 << 12)
    patch.setattr(schema, "VECTOR_CHUNK_BYTES", 1 << 9)
    for name in ("SHARD_BYTES", "FAR_SHARD_BYTES"):
        patch.setattr(arrays, name, 3 << 12)
    patch.setattr(store_writer, "_BLOCK_BYTES", 1 << 12)


def make_matrix(n_rows=1000, n_columns=23, density=0.4, dtype=np.float32, seed=0):
    """Dense array with zeros, a column of zeros, a row of zeros, and an offset."""
    rng = np.random.default_rng(seed)
    matrix = rng.standard_normal((n_rows, n_columns)).astype(dtype) + dtype(3)
    matrix[rng.random(matrix.shape) > density] = 0
    matrix[:, 5:6] = 0
    matrix[7] = 0
    return matrix


def dense(rows):
    return rows.toarray() if sp.issparse(rows) else rows


def assert_holds(store, path, n_features, **options):
    """Hold a store to the rows and labels that scikit-learn reads from LIBSVM text."""
    X, y = load_svmlight_file(str(path), n_features=n_features, **options)
    original = store.original_rows()
    rows = dense(store.rows.read(0, store.rows.n_rows))
    np.testing.assert_array_equal(rows, X.toarray().astype(store.rows.dtype)[original])
    np.testing.assert_array_equal(store.labels(), y[original])
    assert sorted(original) == list(range(len(y)))


def everything(store):
    """All that a store holds, as arrays."""
    rows = store.rows.read(0, store.rows.n_rows)
    return [
        dense(rows),
        store.labels(),
        store.sample_weight(),
        store.original_rows(),
        *store.statistics,
    ]


def chunk_files(path):
    """Files of chunks (shards), not of metadata."""
    return sorted(p for p in path.rglob("*") if p.is_file() and p.name != "zarr.json")


def folder_digest(path):
    """Hash of names and contents of all files below a folder."""
    digest = hashlib.sha256()
    for file in sorted(p for p in path.rglob("*") if p.is_file()):
        digest.update(str(file.relative_to(path)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def edit_attributes(path, **changes):
    """Change the attributes of a store as a forger would, checksums included."""
    file = path / "zarr.json"
    content = json.loads(file.read_text())
    record = content["attributes"][schema.KEY]
    record.update(changes)
    manifest = {name: tuple(hashes) for name, hashes in record["manifest"].items()}
    prints = schema.fingerprints(
        record["n_rows"], record["n_columns"], record["dtype"], record["layout"], manifest
    )
    record["fingerprint"], record["rows_fingerprint"] = prints
    record["checksum"] = schema.checksum(record)
    file.write_text(json.dumps(content))


def read_array(path, name):
    """All values of an array of a store."""
    return zarr.open_array(path / name, mode="r")[...]


def rewrite_array(path, name, values):
    """Replace an array of a store as a forger would: metadata and hashes fit whatever it is."""
    chunk_rows = zarr.open_array(path / name, mode="r").chunks[0]
    shutil.rmtree(path / name)
    values = np.asarray(values)
    spec = schema.ArraySpec(values.shape, values.dtype, max(1, min(chunk_rows, len(values))))
    array = arrays.ArrayWriter(path / name, spec, memory_bytes=8 * spec.chunk_bytes)
    array.append(values)
    record = json.loads((path / "zarr.json").read_text())["attributes"][schema.KEY]
    edit_attributes(path, manifest={**record["manifest"], name: array.finish()})
