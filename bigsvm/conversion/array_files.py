"""Files of arrays, read where they are: npy, npz, HDF5, h5ad, and groups of Zarr."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from zipfile import BadZipFile, ZipFile

import numpy as np
import scipy.sparse as sp

from bigsvm.budget import show_bytes
from bigsvm.data.sources import as_row_source
from bigsvm.errors import DataError, MemoryBudgetError

if TYPE_CHECKING:
    import os

    from bigsvm.conversion.columns import Columns
    from bigsvm.data.row_source import RowSource

NPY, ZIP, HDF5 = b"\x93NUMPY", b"PK\x03\x04", b"\x89HDF\r\n\x1a\n"
ROWS = "X"
"""Name of the array or group that has the rows, unless another one is named."""
MOST_SHARE = 0.25
"""Share of the memory that an archive's arrays may take, as NumPy reads them whole."""


class Arrays(NamedTuple):
    """Rows with what belongs to them, as `write_store` takes them; they are read in blocks."""

    X: Any
    y: Any = None
    weight: Any = None
    feature_names: tuple[str, ...] | None = None

    def rows(self, memory: int) -> RowSource:
        """Return the rows as a source, which are read in blocks that fit in `memory`."""
        source = as_row_source(self.X, memory=memory)
        source.feature_names = self.feature_names or source.feature_names
        return source


def _refuse_columns(asked: Columns, where: str, what: str) -> None:
    if asked.features is not None:
        raise DataError(f"{where}: {what} has no named columns; leave the columns out")


# -- NumPy ---------------------------------------------------------------------------------------


def open_npy(path: str, asked: Columns) -> Arrays:
    """Open a matrix of NumPy as a memory map; labels and weights are npy files of their own."""
    _refuse_columns(asked, path, "an npy file")
    X = _mapped(path)
    return Arrays(
        X, *(None if name is None else _mapped(_beside(path, name)) for name in asked[:2])
    )


def _beside(path: str, name: str) -> str:
    """Path of the labels: as it is, or beside the rows."""
    for candidate in (Path(name), Path(path).parent / name):
        if candidate.is_file():
            return str(candidate)
    raise DataError(
        f"{path}: an npy file has one array; the labels are in an npy file of their own, and "
        f"there is none named {name!r}"
    )


def _mapped(path: str) -> Any:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        if "pickle" in str(error) or "Python object" in str(error):
            reason = "its values are Python objects; save numbers"
        else:
            reason = f"{error}; the file is damaged or cut off: save it again"
        raise DataError(f"{path}: cannot be read ({reason})") from None


def open_npz(path: str, asked: Columns, *, memory: int) -> Arrays:
    """Open an archive of NumPy: arrays X and y, or a sparse matrix that scipy saved.

    Its arrays are read whole; it is refused if they take a large part of the memory.
    """
    _refuse_columns(asked, path, "an npz file")
    try:
        with ZipFile(path) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
    except (BadZipFile, OSError) as error:
        raise DataError(f"{path}: cannot be read ({error}); save it again") from None
    if size > MOST_SHARE * memory:
        raise MemoryBudgetError(
            f"{path}: its arrays take {show_bytes(size)}, and an archive is read whole; save the "
            "rows as an npy file of their own, which is read in blocks"
        )
    try:
        with np.load(path, allow_pickle=False) as archive:
            held = {name: archive[name] for name in archive.files}
    except (ValueError, OSError, EOFError, BadZipFile) as error:
        raise DataError(f"{path}: cannot be read ({error}); save it again") from None
    if {"format", "shape", "data"} <= held.keys():
        X: Any = sp.load_npz(path)
        if X.format != "csr":
            X = X.tocsr()
    else:
        X = _named(held, ROWS, path)
    return Arrays(X, *(None if name is None else _named(held, name, path) for name in asked[:2]))


def _named(held: dict[str, Any], name: str, path: str) -> Any:
    if name not in held:
        raise DataError(f"{path}: has no array {name!r}, but {', '.join(map(repr, held))}")
    return held[name]


# -- groups of HDF5 and Zarr ----------------------------------------------------------------------


def open_hdf5(path: str, asked: Columns, *, rows: str | None) -> Arrays:
    """Open a file of HDF5: an h5ad of anndata, or rows and labels as arrays of their own."""
    try:
        import h5py  # type: ignore[import-untyped]
    except ImportError as error:
        raise DataError(f"HDF5 is read by h5py ({error}); pip install 'bigsvm[tables]'") from None
    try:
        group = h5py.File(path, "r")
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error}); fetch it again") from None
    return _of_group(group, path, asked, rows)


def open_zarr(path: str, asked: Columns, *, rows: str | None) -> Arrays:
    """Open a group of Zarr: an AnnData, or rows and labels as arrays of their own."""
    import zarr

    try:
        group = zarr.open(path, mode="r")
    except Exception as error:  # stores of zarr have errors of their own
        raise DataError(f"{path}: cannot be opened ({error}); check the path") from None
    if not hasattr(group, "keys") or "indptr" in group:  # the rows themselves
        if asked.label is not None:
            raise DataError(f"{path}: has rows alone; give its group, which has the labels too")
        return Arrays(group)
    return _of_group(group, path, asked, rows)


def _of_group(group: Any, path: str, asked: Columns, rows: str | None) -> Arrays:
    if "obs" in group and "var" in group:
        return _of_anndata(group, path, asked, rows)
    _refuse_columns(asked, path, "an array")
    X = _member(group, rows or _only_matrix(group, path), path)
    found = [None if name is None else _values(_member(group, name, path)) for name in asked[:2]]
    return Arrays(X, *found)


def _only_matrix(group: Any, path: str) -> str:
    """Name of the rows: X, or the only array of two dimensions."""
    matrices = [name for name in group if getattr(group[name], "ndim", 0) == 2]
    if ROWS in group or not matrices:
        return ROWS
    if len(matrices) > 1:
        raise DataError(
            f"{path}: has several matrices ({', '.join(sorted(matrices))}); name the rows, as with "
            f"rows={sorted(matrices)[0]!r}"
        )
    return str(matrices[0])


def _member(group: Any, name: str, path: str) -> Any:
    try:
        return group[name]
    except (KeyError, ValueError):
        held = ", ".join(map(str, sorted(group)))
        raise DataError(f"{path}: has no {name!r}, but {held or 'nothing'}") from None


def _of_anndata(group: Any, path: str, asked: Columns, rows: str | None) -> Arrays:
    """Rows of an AnnData, its matrix X or a layer; labels and weights are columns of obs."""
    _refuse_columns(asked, path, "an AnnData")
    X = _member(group, rows or ROWS, path)
    obs, var = group["obs"], group["var"]
    beside = [None if name is None else _column(obs, name, path) for name in asked[:2]]
    names = _values(_member(var, str(var.attrs.get("_index", "_index")), path))
    return Arrays(X, beside[0], beside[1], tuple(map(str, names)))


def _column(frame: Any, name: str, path: str) -> Any:
    """Column of a frame in anndata's encoding, which is an array or categories with codes."""
    if name not in frame:
        raise DataError(f"{path}: obs has no column {name!r}, but {', '.join(sorted(frame))}")
    column = frame[name]
    if not hasattr(column, "keys"):
        return _values(column)
    parts = {part: _values(column[part]) for part in column}
    has_codes = "categories" in parts
    if not (has_codes or "values" in parts):  # nullable numbers are values
        raise DataError(f"{path}: column {name!r} of obs is neither an array nor of categories")
    missing = parts["codes"] < 0 if has_codes else parts["mask"]
    if missing.any():
        row = int(np.flatnonzero(missing)[0])
        raise DataError(f"{path}: column {name!r} of obs has no value in row {row} (from 0)")
    return parts["categories"][parts["codes"]] if has_codes else parts["values"]


def _values(array: Any) -> Any:
    """All values of an array on disk; words as text."""
    values = np.asarray(array[...])
    if values.dtype.kind == "S":
        return np.char.decode(values, "utf-8")
    if values.dtype == object:
        return np.array(
            [v.decode() if isinstance(v, bytes) else v for v in values.tolist()], object
        )
    return values


def is_zarr(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a folder of Zarr, in either version."""
    folder = Path(path)
    return any((folder / name).is_file() for name in ("zarr.json", ".zgroup", ".zarray"))
