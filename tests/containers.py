"""Containers that hold the rows of a matrix, by name; each is skipped where its library is absent.

`CONTAINERS` maps a name to a function of a dense float32 array and an empty folder.
"""

import pytest
import scipy.sparse as sp

from bigsvm import write_store

CONTAINERS = {}
"""Those that `fit`, `predict` and `write_store` take."""
REFUSED = {}
"""Those that they refuse: the function, and a pattern of the sentence."""


def act(action, X, y, path, model):
    """Have an estimator `fit` or `predict`, or write a store."""
    if action == "fit":
        return model.fit(X, y)
    if action == "predict":
        return model.predict(X)
    return write_store(path, X, y, memory=model.memory)


def container(make):
    CONTAINERS[make.__name__] = make
    return make


READ_BY_PREDICT = {
    "path_of_zarr_array", "path_of_zarr_array_of_format_2", "path_of_zarr_group",
    "path_of_numpy_file", "path_of_anndata_in_zarr",
}  # fmt: skip
"""Refused by `fit` and `write_store`, as they have no labels; `predict` reads them."""


def refused(pattern):
    def register(make):
        REFUSED[make.__name__] = (make, pattern)
        return make

    return register


def names(matrix):
    return [f"c{i}" for i in range(matrix.shape[1])]


@container
def array(matrix, folder):
    return matrix


@container
def array_of_columns(matrix, folder):
    import numpy as np

    return np.asfortranarray(matrix)


@container
def memory_map(matrix, folder):
    import numpy as np

    np.save(folder / "x.npy", matrix)
    return np.load(folder / "x.npy", mmap_mode="r")


@container
def list_of_lists(matrix, folder):
    return matrix.tolist()


@container
def csr_array(matrix, folder):
    return sp.csr_array(matrix)


@container
def csr_matrix(matrix, folder):
    return sp.csr_matrix(matrix)


@container
def csc_matrix(matrix, folder):
    return sp.csc_matrix(matrix)


@container
def coo_array(matrix, folder):
    return sp.coo_array(matrix)


@container
def pandas_frame(matrix, folder):
    return pytest.importorskip("pandas").DataFrame(matrix, columns=names(matrix))


@container
def pandas_nullable(matrix, folder):
    return pandas_frame(matrix, folder).astype("Float32")


@container
def pandas_sparse(matrix, folder):
    kind = pytest.importorskip("pandas").SparseDtype("float32", 0.0)
    return pandas_frame(matrix, folder).astype(kind)


@container
def pandas_objects(matrix, folder):
    return pandas_frame(matrix, folder).astype(object)


@container
def polars_frame(matrix, folder):
    return pytest.importorskip("polars").DataFrame(matrix, schema=names(matrix))


@container
def arrow_table(matrix, folder):
    return pytest.importorskip("pyarrow").table(list(matrix.T.copy()), names=names(matrix))


@container
def dask_rows(matrix, folder):
    import dask.array as da

    return da.from_array(matrix, chunks=(130, matrix.shape[1]))


@container
def dask_columns(matrix, folder):
    import dask.array as da

    return da.from_array(matrix, chunks=(130, 3))


@container
def dask_one_chunk(matrix, folder):
    import dask.array as da

    return da.from_array(matrix, chunks=matrix.shape)


@container
def dask_unknown_chunks(matrix, folder):
    rows = dask_rows(matrix, folder)
    return rows[rows[:, 0] > -1e9]


@container
def dask_frame(matrix, folder):
    pytest.importorskip("pyarrow")
    frame = pytest.importorskip("dask.dataframe")
    return frame.from_pandas(pandas_frame(matrix, folder), npartitions=3)


def zarr_array(matrix, folder, **options):
    import zarr

    made = zarr.create_array(
        folder / "x.zarr",
        shape=matrix.shape,
        dtype=matrix.dtype,
        config={"write_empty_chunks": True},
        **options,
    )
    made[...] = matrix
    return made


@container
def zarr_rows(matrix, folder):
    return zarr_array(matrix, folder, chunks=(64, matrix.shape[1]))


@container
def zarr_columns(matrix, folder):
    return zarr_array(matrix, folder, chunks=(len(matrix), 1))


@container
def zarr_one_chunk(matrix, folder):
    return zarr_array(matrix, folder, chunks=matrix.shape)


@container
def zarr_shards(matrix, folder):
    return zarr_array(matrix, folder, chunks=(32, 2), shards=(128, 4))


@container
def zarr_of_format_2(matrix, folder):
    return zarr_array(matrix, folder, chunks=(64, 3), zarr_format=2)


@container
def zarr_group_of_csr(matrix, folder):
    import zarr

    rows = sp.csr_array(matrix)
    group = zarr.create_group(folder / "csr.zarr")
    group.attrs.update({"encoding-type": "csr_matrix", "shape": list(rows.shape)})
    for name in ("data", "indices", "indptr"):
        part = getattr(rows, name)
        made = group.create_array(
            name,
            shape=part.shape,
            dtype=part.dtype,
            chunks=100,
            config={"write_empty_chunks": True},
        )
        made[...] = part
    return group


def hdf5(matrix, folder, **options):
    file = pytest.importorskip("h5py").File(folder / "x.h5", "w")
    return file.create_dataset("x", data=matrix, **options)


@container
def hdf5_contiguous(matrix, folder):
    return hdf5(matrix, folder)


@container
def hdf5_chunks(matrix, folder):
    return hdf5(matrix, folder, chunks=(min(32, len(matrix)), 3), compression="gzip")


def annotated(matrix, rows):
    anndata, pandas = pytest.importorskip("anndata"), pytest.importorskip("pandas")
    columns = pandas.DataFrame(index=names(matrix))
    numbers = pandas.DataFrame(index=[f"r{i}" for i in range(len(matrix))])
    return anndata.AnnData(rows, obs=numbers, var=columns)


@container
def anndata_dense(matrix, folder):
    return annotated(matrix, matrix)


@container
def anndata_sparse(matrix, folder):
    return annotated(matrix, sp.csr_matrix(matrix))


def backed(matrix, rows, folder):
    annotated(matrix, rows).write_h5ad(folder / "x.h5ad")
    return pytest.importorskip("anndata").read_h5ad(folder / "x.h5ad", backed="r")


@container
def anndata_backed(matrix, folder):
    return backed(matrix, matrix, folder)


@container
def anndata_backed_sparse(matrix, folder):
    return backed(matrix, sp.csr_matrix(matrix), folder)


@container
def anndata_csr_dataset(matrix, folder):
    return backed(matrix, sp.csr_matrix(matrix), folder).X


@refused(r"X is a CSCDataset, which is stored by columns; write it as CSR")
def anndata_csc_dataset(matrix, folder):
    return backed(matrix, sp.csc_matrix(matrix), folder).X


@refused(r"X is a view of a backed AnnData, .*; give X\.to_memory\(\)")
def anndata_backed_view(matrix, folder):
    return anndata_backed(matrix, folder)[:500]


@refused(r"X is an iterator .*which gives its rows only once; give an array .*, or a function that")
def iterator(matrix, folder):
    return iter(matrix)


@refused(r"column 'c1' of X holds .*not numbers; encode it as numbers first")
def pandas_text(matrix, folder):
    return pandas_frame(matrix, folder).assign(c1="word")


@refused(r"column 'c1' of X holds type category .*not numbers; encode it as numbers first")
def pandas_categories(matrix, folder):
    return pandas_text(matrix, folder).astype({"c1": "category"})


@refused(r"column 'c1' of X holds datetime64.*not numbers; encode it as numbers first")
def pandas_times(matrix, folder):
    pandas = pytest.importorskip("pandas")
    return pandas_frame(matrix, folder).assign(c1=pandas.Timestamp("2020-01-01"))


@refused(r"column 'c1' of X holds String, not numbers; encode it as numbers first")
def polars_text(matrix, folder):
    polars = pytest.importorskip("polars")
    return polars_frame(matrix, folder).with_columns(c1=polars.lit("word"))


@refused(r"column 'c1' of X holds string, not numbers; encode it as numbers first")
def arrow_text(matrix, folder):
    pyarrow = pytest.importorskip("pyarrow")
    column = pyarrow.array(["word"] * len(matrix))
    return arrow_table(matrix, folder).set_column(1, "c1", column)


@refused(r"X is a group of arrays \(a, b\), not a matrix; give one of its arrays, as X\['a'\]")
def zarr_group(matrix, folder):
    import zarr

    group = zarr.create_group(folder / "g.zarr")
    for name in ("a", "b"):
        group.create_array(name, shape=(3, 3), dtype="f4")
    return group


@refused(r"x\.zarr: a Zarr array, but not a bigsvm store; give zarr\.open_array\(")
def path_of_zarr_array(matrix, folder):
    zarr_rows(matrix, folder)
    return folder / "x.zarr"


@refused(r"x\.zarr: a Zarr array, but not a bigsvm store; give zarr\.open_array\(")
def path_of_zarr_array_of_format_2(matrix, folder):
    zarr_of_format_2(matrix, folder)
    return str(folder / "x.zarr")


@refused(r"csr\.zarr: a Zarr group, but not a bigsvm store; give zarr\.open_group\(")
def path_of_zarr_group(matrix, folder):
    zarr_group_of_csr(matrix, folder)
    return folder / "csr.zarr"


@refused(r"a\.zarr: a Zarr group, .*; give zarr\.open_group\('.*a\.zarr'\)\['X'\]")
def path_of_anndata_in_zarr(matrix, folder):
    import zarr

    group = zarr.create_group(folder / "a.zarr", attributes={"encoding-type": "anndata"})
    group.create_array("X", data=matrix)
    return folder / "a.zarr"


@refused(r"none\.zarr: no such folder; check the path")
def path_of_nothing(matrix, folder):
    return folder / "none.zarr"


@refused(r"x\.txt: a file, and a store is a folder; make one of LIBSVM text with `bigsvm convert`")
def path_of_text(matrix, folder):
    (folder / "x.txt").write_text("1 1:2\n")
    return folder / "x.txt"


@refused(r"x\.npy: this is a NumPy array .*--label, label= or the y of fit")
def path_of_numpy_file(matrix, folder):
    memory_map(matrix, folder)
    return folder / "x.npy"


@refused(r"X is in an HDF5 file that was closed; open it")
def hdf5_closed(matrix, folder):
    dataset = hdf5_contiguous(matrix, folder)
    dataset.file.close()
    return dataset
