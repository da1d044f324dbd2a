"""Child process of `test_container_memory`: does one thing to one container, and is watched.

    python container_memory.py FOLDER CONTAINER ACTION MEMORY

FOLDER has the rows as ``x.npy`` and their labels as ``y.npy``. The child says ``ready`` when the
container is open and all code has run once, and waits for a line. Then it says ``done``, or
``refused`` and why.
"""

import sys
import warnings
from pathlib import Path

import numpy as np

import bigsvm
from bigsvm.errors import BigsvmError

N_ROWS, N_COLUMNS = 500_000, 60
CONTAINERS = {}


def container(make):
    CONTAINERS[make.__name__] = make
    return make


def values(folder):
    """All rows, in memory."""
    return np.load(folder / "x.npy")


@container
def array(folder):
    return values(folder)


@container
def columns_first(folder):
    return np.asfortranarray(values(folder))


@container
def small_integers(folder):
    return (10 * values(folder)).astype(np.int8)


@container
def memory_map(folder):
    return np.load(folder / "x.npy", mmap_mode="r")


@container
def memory_map_of_integers(folder):
    np.save(folder / "small.npy", small_integers(folder))
    return np.load(folder / "small.npy", mmap_mode="r")


def sparse(folder):
    import scipy.sparse as sp

    rows = values(folder)
    rows[np.abs(rows) < 0.7] = 0
    return sp.csr_array(rows)


@container
def csr(folder):
    return sparse(folder)


@container
def csr_of_integers(folder):
    return (10 * sparse(folder)).astype(np.int32)


@container
def csc(folder):
    return sparse(folder).tocsc()


@container
def coo(folder):
    return sparse(folder).tocoo()


@container
def list_of_lists(folder):
    return values(folder)[:200_000].tolist()


@container
def pandas_frame(folder):
    import pandas as pd

    return pd.DataFrame(values(folder), columns=names())


@container
def pandas_mixed(folder):
    return pandas_frame(folder).assign(c0=True, c1=1.0)


@container
def pandas_nullable(folder):
    return pandas_frame(folder).astype("Float32")


@container
def pandas_sparse(folder):
    import pandas as pd

    return pd.DataFrame.sparse.from_spmatrix(sparse(folder), columns=names())


@container
def polars_frame(folder):
    import polars as pl

    return pl.DataFrame(values(folder), schema=names())


@container
def arrow_table(folder):
    import pyarrow as pa

    return pa.table(list(values(folder).T.copy()), names=names())


@container
def dask_rows(folder):
    import dask.array as da

    return da.from_array(memory_map(folder), chunks=(5000, N_COLUMNS))


def dask_large_chunks(folder):
    """Blocks of 7 MB, each made of another array."""
    import dask.array as da

    rows = 7_000_000 // (4 * N_COLUMNS)
    return da.from_array(memory_map(folder), chunks=(rows, N_COLUMNS)) * np.float32(1.5)


@container
def dask_columns(folder):
    import dask.array as da

    return da.from_array(memory_map(folder), chunks=(5000, 7))


@container
def dask_one_chunk(folder):
    import dask.array as da

    return da.from_array(memory_map(folder), chunks=(N_ROWS, N_COLUMNS))


@container
def dask_unknown_chunks(folder):
    rows = dask_rows(folder)
    return rows[rows[:, 0] > -100]


@container
def dask_frame(folder):
    import dask.dataframe as dd

    return dd.from_dask_array(dask_rows(folder), columns=names())


def zarr_array(folder, name, **options):
    import zarr

    path = folder / f"{name}.zarr"
    if not path.exists():
        made = zarr.create_array(path, shape=(N_ROWS, N_COLUMNS), dtype="float32", **options)
        made[...] = values(folder)
        del made
    return zarr.open_array(path, mode="r")


@container
def zarr_rows(folder):
    return zarr_array(folder, "rows", chunks=(5000, N_COLUMNS))


@container
def zarr_2_rows(folder):
    return zarr_array(folder, "rows2", chunks=(5000, N_COLUMNS), zarr_format=2)


@container
def zarr_columns(folder):
    return zarr_array(folder, "columns", chunks=(N_ROWS, 1))


@container
def zarr_one_chunk(folder):
    return zarr_array(folder, "one", chunks=(N_ROWS, N_COLUMNS))


@container
def zarr_shards(folder):
    return zarr_array(folder, "shards", chunks=(5000, N_COLUMNS), shards=(250_000, N_COLUMNS))


def hdf5(folder, name, **options):
    import h5py

    path = folder / f"{name}.h5"
    if not path.exists():
        with h5py.File(path, "w") as file:
            file.create_dataset("x", data=values(folder), **options)
    return h5py.File(path)["x"]


@container
def hdf5_contiguous(folder):
    return hdf5(folder, "contiguous")


@container
def hdf5_rows(folder):
    return hdf5(folder, "rows", chunks=(5000, N_COLUMNS), compression="lzf")


@container
def hdf5_columns(folder):
    return hdf5(folder, "columns", chunks=(N_ROWS, 1), compression="lzf")


def annotated(folder, matrix):
    import anndata
    import pandas as pd

    rows = pd.DataFrame(index=np.arange(N_ROWS).astype(str))
    return anndata.AnnData(matrix, obs=rows, var=pd.DataFrame(index=names()))


@container
def anndata_in_memory(folder):
    return annotated(folder, values(folder))


def h5ad(folder, name, matrix):
    import anndata

    path = folder / f"{name}.h5ad"
    if not path.exists():
        annotated(folder, matrix(folder)).write_h5ad(path)
    return anndata.read_h5ad(path, backed="r")


@container
def anndata_backed(folder):
    return h5ad(folder, "dense", values)


@container
def anndata_backed_sparse(folder):
    return h5ad(folder, "sparse", sparse)


@container
def csr_dataset(folder):
    return h5ad(folder, "sparse", sparse).X


@container
def csr_group(folder):
    import zarr

    path = folder / "csr.zarr"
    if not path.exists():
        rows = sparse(folder)
        group = zarr.create_group(
            path,
            attributes={
                "encoding-type": "csr_matrix",
                "encoding-version": "0.1.0",
                "shape": list(rows.shape),
            },
        )
        for name in ("data", "indices", "indptr"):
            part = getattr(rows, name)
            group.create_array(name, shape=part.shape, dtype=part.dtype, chunks=100_000)
            group[name][...] = part
    return zarr.open_group(path, mode="r")


@container
def store(folder):
    path = folder / "store.zarr"
    if not path.exists():
        bigsvm.write_store(path, values(folder), labels(folder, N_ROWS))
    return path


def names():
    return [f"c{i}" for i in range(N_COLUMNS)]


def labels(folder, n_rows):
    return np.load(folder / "y.npy", mmap_mode="r")[:n_rows].astype(np.int64)


def model(memory):
    return bigsvm.SVC(memory=memory, C=0.1, gamma=0.001, tol=0.5, n_jobs=2, max_iter=2000)


def act(action, X, y, memory, fitted, new):
    """Do what is to be watched."""
    if action == "fit":
        model(memory).fit(X, y)
    elif action == "predict":
        found = fitted.set_params(memory=memory).predict(X)
        if hasattr(found, "compute"):
            found.compute(num_workers=2)
    else:
        bigsvm.write_store(new, X, y, memory=memory, overwrite=True)


FOR_ONE_PASS = {"dask_large_chunks": dask_large_chunks}
"""Containers that only a single pass reads in so little memory."""


def main():
    folder, name, action, memory = Path(sys.argv[1]), *sys.argv[2:]
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    few = rng.standard_normal((300, N_COLUMNS)).astype(np.float32)
    fitted, new = model("1GB").fit(few, few[:, 0] > 0), folder / f"new-{name}.zarr"
    X = (CONTAINERS | FOR_ONE_PASS)[name](folder)
    n_rows = len(X) if isinstance(X, list) else N_ROWS
    y = labels(folder, n_rows)
    if isinstance(X, Path):
        y = bigsvm.open_store(X).row_values(y, order="input")
    for each in ("fit", "predict", "write_store"):
        act(each, few, few[:, 0] > 0, "50MB", fitted, new)
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        act(action, X, y, memory, fitted, new)
    except BigsvmError as error:
        print(f"refused {type(error).__name__}: {error}", flush=True)
    else:
        print("done", flush=True)


if __name__ == "__main__":
    main()
