"""Data frames of pandas, Polars and Arrow; bigsvm imports none of these libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from bigsvm.data.rows import check_shape, float_type, is_instance
from bigsvm.data.tables import Table
from bigsvm.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def is_pandas(X: object) -> TypeGuard[Any]:
    """Whether `X` is a DataFrame of pandas."""
    return is_instance(X, "pandas", "DataFrame")


def is_polars(X: object) -> TypeGuard[Any]:
    """Whether `X` is a DataFrame of Polars."""
    return is_instance(X, "polars", "DataFrame")


def is_arrow(X: object) -> TypeGuard[Any]:
    """Whether `X` is a Table or RecordBatch of Arrow."""
    return is_instance(X, "pyarrow", "Table", "RecordBatch")


def is_frame(X: object) -> bool:
    """Whether `X` is a data frame in memory."""
    return is_pandas(X) or is_polars(X) or is_arrow(X)


def is_dask_frame(X: object) -> TypeGuard[Any]:
    """Whether `X` is a DataFrame of Dask."""
    return is_instance(X, "dask.dataframe", "DataFrame")


def names_of(columns: Iterable[Any]) -> tuple[str, ...] | None:
    """Names of columns as scikit-learn takes them: None if none is text; refuses a mixture."""
    names = tuple(columns)
    kinds = sorted({type(name).__name__ for name in names})
    if kinds == ["str"]:
        return names
    if "str" in kinds:
        raise DataError(
            f"X has column names of types {', '.join(kinds)}; make all of them text, as with "
            "X.columns = X.columns.astype(str)"
        )
    return None


def frame_names(X: Any) -> tuple[str, ...] | None:
    """Names of the columns of a frame; None if they are not text or `X` is not a frame."""
    if is_arrow(X):
        return names_of(X.schema.names)
    if is_frame(X) or is_dask_frame(X):
        return names_of(X.columns)
    return None


def sparse_columns(X: Any) -> bool:
    """Whether all columns of a pandas frame are sparse with fill value 0."""
    kinds = set(X.dtypes)
    return bool(kinds) and all(
        type(kind).__name__ == "SparseDtype" and kind.fill_value == 0 for kind in kinds
    )


class FrameTable(Table):
    """A data frame of pandas, Polars or Arrow, converted a slice at a time; missing becomes NaN."""

    def __init__(self, X: Any) -> None:
        self.n_rows, self.n_columns = map(int, X.shape)
        check_shape(self.n_rows, self.n_columns)
        self.feature_names = frame_names(X)
        self.dtype = frame_type(X)
        _, self._slice = _reader(X)
        self.bytes_per_row = float(self.n_columns * self.dtype.itemsize)
        self._frame = X

    def rows(self, start: int, stop: int) -> Any:
        """Rows ``start … stop - 1``."""
        return self._slice(self._frame, start, stop, self.dtype)


def frame_values(X: Any, dtype: np.dtype[Any]) -> Any:
    """All values of a pandas frame, (n, d)."""
    return _pandas_slice(X, 0, len(X), dtype)


def arrow_values(X: Any, dtype: np.dtype[Any]) -> Any:
    """All values of a table or record batch of Arrow, (n, d); missing values become NaN."""
    return _arrow_slice(X, 0, X.num_rows, dtype)


def frame_type(X: Any) -> np.dtype[Any]:
    """Type in which the values of a frame are kept; the frame may have no rows."""
    types, _ = _reader(X)
    if not types:
        raise DataError("X is a frame without columns; it must have rows and columns")
    common: np.dtype[Any] = np.result_type(*{_number_type(name, kind) for name, kind in types})
    return float_type(common)


def check_numbers(X: Any) -> None:
    """Refuse a frame in memory with a column that does not hold numbers; others pass."""
    if not is_frame(X):
        return
    dtype = frame_type(X)
    if is_pandas(X):
        texts = [i for i, kind in enumerate(X.dtypes) if getattr(kind, "kind", "O") not in "buif"]
        if texts:
            _pandas_slice(X.iloc[:, texts], 0, len(X), dtype)


def _reader(X: Any) -> tuple[list[tuple[Any, Any]], Callable[[Any, int, int, Any], Any]]:
    """Name and type of each column, None for a non-numeric one, and a function that slices."""
    if is_polars(X):
        return [(n, _type_named(t)) for n, t in X.schema.items()], _polars_slice
    if is_arrow(X):
        return [(f.name, _type_named(f.type)) for f in X.schema], _arrow_slice
    return [(n, _pandas_type(t)) for n, t in X.dtypes.items()], _pandas_slice


def _number_type(name: Any, kind: Any) -> np.dtype[Any]:
    """NumPy's type for the numbers of a column."""
    if not isinstance(kind, np.dtype) or kind.kind not in "buif":
        raise _no_numbers(name, kind)
    return kind


def _no_numbers(name: Any, kind: Any) -> DataError:
    return DataError(
        f"column {name!r} of X holds {kind}, not numbers; encode it as numbers first, as with "
        "pandas.get_dummies(X) or categories='onehot' of fit, or leave it out"
    )


def _pandas_type(kind: Any) -> Any:
    if isinstance(kind, np.dtype) and kind.kind != "O":
        return kind
    # Nullable and Arrow types, sparse types, and categories, which may be numbers.
    for inner in ("numpy_dtype", "subtype"):
        inner_type = getattr(kind, inner, None)
        if isinstance(inner_type, np.dtype) and inner_type.kind in "buif":
            return inner_type
    if type(kind).__name__ == "CategoricalDtype":
        return _pandas_type(kind.categories.dtype) if kind.categories is not None else kind
    # Objects and text may be numbers, as in scikit-learn; the conversion of a slice shows it.
    is_text = isinstance(kind, np.dtype) or type(kind).__name__ == "StringDtype"
    return np.dtype(np.float64) if is_text else kind


def _pandas_slice(X: Any, start: int, stop: int, dtype: np.dtype[Any]) -> Any:
    part = X.iloc[start:stop]
    try:
        return part.to_numpy(dtype, na_value=np.nan)
    except (TypeError, ValueError):
        for place, (name, kind) in enumerate(part.dtypes.items()):
            try:
                part.iloc[:, place].to_numpy(dtype, na_value=np.nan)
            except (TypeError, ValueError) as error:
                raise _no_numbers(name, f"type {kind} ({error})") from None
        raise


def _type_named(kind: Any) -> Any:
    """NumPy's type for a type of Polars or Arrow, by its name; the type itself if it has none."""
    name = str(kind).lower()
    name = _NAMES.get(name, name)
    # NumPy has no type for decimals and 128-bit integers.
    if name.startswith("decimal") or name.endswith("int128"):
        return np.dtype(np.float64)
    return np.dtype(name) if name in _NUMBERS else kind


def _polars_slice(X: Any, start: int, stop: int, dtype: np.dtype[Any]) -> Any:
    import polars

    return (
        X.slice(start, stop - start)
        .cast(polars.Float32 if dtype == np.float32 else polars.Float64)
        .to_numpy()
    )


def _arrow_slice(X: Any, start: int, stop: int, dtype: np.dtype[Any]) -> Any:
    import pyarrow

    part = X.slice(start, stop - start)
    kind = pyarrow.float32() if dtype == np.float32 else pyarrow.float64()
    out = np.empty((stop - start, part.num_columns), dtype)
    for place, column in enumerate(part.columns):
        # Missing values become NaN.
        # Whole numbers beyond 2**53 are rounded, as in all other frames.
        out[:, place] = column.cast(kind, safe=False).to_numpy(zero_copy_only=False)
    return out


_NAMES = {"boolean": "bool", "halffloat": "float16", "float": "float32", "double": "float64"}
_NUMBERS = frozenset(
    ["bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))]
    + [f"float{bits}" for bits in (16, 32, 64)]
)
