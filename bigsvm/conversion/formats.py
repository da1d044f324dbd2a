"""The table of doors: which sources there are, and what opens each."""

from __future__ import annotations

import os
import tempfile
import weakref
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bigsvm.conversion import array_files, arrow
from bigsvm.conversion.batches import Batches
from bigsvm.conversion.callables import CalledBatches
from bigsvm.conversion.columns import Columns, Encode
from bigsvm.conversion.parts import files_of
from bigsvm.conversion.streams import open_source
from bigsvm.conversion.writing import memory_bytes
from bigsvm.data.containers import is_lazy_table
from bigsvm.data.frames import is_frame
from bigsvm.data.place import Place
from bigsvm.data.schema import KEY
from bigsvm.data.signatures import HEAD_BYTES, compression
from bigsvm.data.store import open_place
from bigsvm.data.workspace import workspace_at
from bigsvm.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bigsvm.conversion.writing import OnProgress
    from bigsvm.data.row_source import RowSource
    from bigsvm.encoding import Encoding

Path_ = str | os.PathLike[str]


class Asked(NamedTuple):
    """What is asked of a source, and the bytes that may be used for it.

    `rows` names the array or group of a file that has the rows, such as ``"layers/counts"``.
    """

    columns: Columns
    rows: str | None
    memory: int

    @classmethod
    def of(
        cls,
        label: Any,
        weight: Any,
        *,
        features: Sequence[str] | None = None,
        rows: str | None = None,
        memory: str | int,
        encoding: Encoding | None = None,
        **encode: Any,
    ) -> Asked:
        """Check what is asked for; `encode` has the fields of `Encode`.

        With an encoding, that of a store or a model, the features are its columns, which become
        those of its X.
        """
        for name, value in (("y", label), ("sample_weight", weight)):
            if not isinstance(value, str | None):
                raise ParameterError(
                    f"{name} is a {type(value).__name__}; beside a file, a lazy table or batches "
                    "it must be the name of a column or array of theirs"
                )
        wanted = Encode(**encode)
        wanted.check()
        if encoding is None:
            if wanted.categories is None and (wanted.max_categories, wanted.unknown) != (
                100,
                "refuse",
            ):
                raise ParameterError("max_categories and unknown need categories='onehot'")
        elif wanted.is_asked or tuple(features or ()) not in ((), tuple(encoding["columns"])):
            raise ParameterError(
                "columns, categories and missing are those of the training data; leave them out"
            )
        else:
            features = encoding["columns"]
            if wanted.unknown != "refuse":
                encoding = {**encoding, "unknown": wanted.unknown}
        chosen = None if features is None else tuple(features)
        columns = Columns(label, weight, chosen, wanted, encoding)
        return cls(columns, rows, memory_bytes(memory))


class Door(NamedTuple):
    """One way in.

    `opens` tells whether it opens a source, given this, and the first bytes if it is one file.
    `open` takes the source, or the paths of its files, and what is asked. `has_columns` tells
    whether columns are chosen by their names.
    """

    name: str
    opens: Callable[[Any, bytes], bool]
    open: Callable[[Any, Asked], Batches | array_files.Arrays]
    has_columns: bool = False


def _one(path: Any) -> str:
    """Return the one path of a format whose data sets are one file."""
    paths = [path] if isinstance(path, str | os.PathLike) else list(path)
    if len(paths) > 1:
        raise DataError(
            f"{os.fspath(paths[0])}: several files are one data set only if they are Parquet, "
            "Arrow or CSV; give one file"
        )
    return os.fspath(paths[0])


DOORS = (
    Door("batches", lambda X, _: callable(X), lambda X, asked: CalledBatches(X)),
    Door(
        "lazy tables",
        lambda X, _: is_lazy_table(X),
        lambda X, asked: arrow.lazy_table(X, asked.columns),
        has_columns=True,
    ),
    Door(
        "frames",
        lambda X, _: is_frame(X),
        lambda X, asked: arrow.frame(X, asked.columns),
        has_columns=True,
    ),
    Door(
        "Zarr",
        lambda X, _: isinstance(X, str | os.PathLike) and array_files.is_zarr(X),
        lambda X, asked: array_files.open_zarr(_one(X), asked.columns, rows=asked.rows),
    ),
    Door(
        "npy",
        lambda _, head: head.startswith(array_files.NPY),
        lambda X, asked: array_files.open_npy(_one(X), asked.columns),
    ),
    Door(
        "npz",
        lambda _, head: head.startswith(array_files.ZIP),
        lambda X, asked: array_files.open_npz(_one(X), asked.columns, memory=asked.memory),
    ),
    Door(
        "HDF5",
        lambda _, head: head.startswith(array_files.HDF5),
        lambda X, asked: array_files.open_hdf5(_one(X), asked.columns, rows=asked.rows),
    ),
    Door(
        "tables",  # the last one, as CSV has no first bytes of its own
        lambda X, _: True,
        lambda X, asked: arrow.files(X, asked.columns, memory=asked.memory),
        has_columns=True,
    ),
)
"""In the order in which they are asked. A new format is a file and a line here."""


class Opened(NamedTuple):
    """Rows of a source, and the labels and weights that belong to them, (n,) each or None."""

    rows: RowSource
    y: Any
    weight: Any


def is_source(X: object) -> bool:
    """Whether `X` is opened by a door: a path, or several, of no store; batches; a table."""
    if isinstance(X, str | os.PathLike):
        there = Path(X).exists() or has_magic(os.fspath(X)) or "://" in os.fspath(X)
        return there and not _is_store(X)
    if isinstance(X, list | tuple) and X and isinstance(X[0], str | os.PathLike):
        return True
    # Delayed objects of Dask can be called too.
    makes_batches = callable(X) and not (hasattr(X, "shape") or hasattr(X, "__dask_graph__"))
    return is_lazy_table(X) or is_frame(X) or makes_batches


def _is_store(path: Path_) -> bool:
    metadata = Path(path) / "zarr.json"
    if "://" in os.fspath(path):
        return os.fspath(path).rstrip("/").endswith(".zarr")
    try:
        return f'"{KEY}"' in metadata.read_text()
    except (OSError, UnicodeDecodeError):
        return False


def opened(source: Any, asked: Asked) -> Batches | array_files.Arrays:
    """Open a source by the first door that knows it; refuses what has no meaning for it."""
    door, paths = _door_of(source)
    if asked.rows is not None and door.name not in ("Zarr", "HDF5"):
        raise ParameterError(f"rows={asked.rows!r} names an array of HDF5 or Zarr; leave it out")
    if asked.columns.encode.is_asked and not door.has_columns:
        raise ParameterError(
            f"categories and missing are for tables with named columns, not for {door.name}; write "
            "it as Parquet or CSV, or leave them out"
        )
    return door.open(paths, asked)


def chooses_columns(source: Any) -> bool:
    """Whether the columns of a source that a door opens are chosen by their names."""
    return _door_of(source)[0].has_columns


def _door_of(source: Any) -> tuple[Door, Any]:
    """Return the door of a source, and the paths of its files if it has some."""
    head, paths = b"", source
    if isinstance(source, str | os.PathLike) and not array_files.is_zarr(source):
        paths = files_of([source])
    elif isinstance(source, list | tuple):
        paths = files_of(source)
    if isinstance(paths, list):
        head = _head_of(paths[0])
    return next(door for door in DOORS if door.opens(paths, head)), paths


def has_features(X: Any, names: Sequence[str] | None) -> bool:
    """Whether `X` is a source from which a model with these names of columns can be evaluated."""
    if isinstance(X, str | os.PathLike) and Path(X).is_file():
        return has_names(X, names)
    return is_source(X)


def has_names(path: Path_, names: Sequence[str] | None) -> bool:
    """Whether a file is of a format of its own, or CSV with columns of these names."""
    head = _head_of(path)
    if any(door.opens(path, head) for door in DOORS[:-1]) or head.startswith(arrow.OWN_HEADS):
        return True
    if compression(head) is not None:
        first = memoryview(bytearray(HEAD_BYTES))
        with open_source(path, kind="CSV") as stream:
            head = bytes(first[: stream.readinto(first)])
    return names is not None and names[0].encode() in head.split(b"\n", 1)[0]


def _head_of(path: Path_) -> bytes:
    """First bytes of a local file; none of others, which a door looks at itself."""
    try:
        with Path(path).open("rb") as file:
            return file.read(HEAD_BYTES)
    except OSError:
        return b""


def features_of(
    source: Any, names: Sequence[str] | None, encoding: Encoding | None, *, memory: str | int
) -> RowSource:
    """Rows of a source without their labels, in its order; columns of a table by their names."""
    if not _door_of(source)[0].has_columns:
        names = encoding = None
    asked = Asked.of(None, None, features=names, encoding=encoding, memory=memory)
    return rows_of(source, asked, shuffle=False).rows


def rows_of(
    source: Any,
    asked: Asked,
    *,
    shuffle: bool = True,
    cache_dir: Path_ | None = None,
    report: OnProgress = lambda _: None,
) -> Opened:
    """Open a source for more than one pass: where it is, or through a temporary store.

    The store is made in `cache_dir`, by default the system's folder, and removed with the rows.
    """
    found = opened(source, asked)
    if not isinstance(found, Batches):
        return Opened(found.rows(asked.memory), found.y, found.weight)
    if is_frame(source) and not (shuffle or asked.columns.beside):
        found.prepare(asked.memory, lambda: None)
        if 8 * source.shape[0] * found.n_columns <= asked.memory // 4:
            return Opened(found.in_memory(asked.memory // 8), None, None)
    folder = tempfile.TemporaryDirectory(prefix="bigsvm-rows-", dir=cache_dir)
    place = Place.of(Path(folder.name) / "rows.zarr", None, name="cache_dir")
    try:
        with workspace_at(place, overwrite=False, cache_dir=None) as work:
            seed = 0 if shuffle else None
            found.write(work, seed=seed, budget=asked.memory, report=report)
            work.commit()
        store = open_place(place)
    except BaseException:
        folder.cleanup()
        raise
    rows = store.rows
    weakref.finalize(rows, folder.cleanup)
    return Opened(rows, store.labels(), store.sample_weight())
