"""The data sets of the benchmarks: files of LIBSVM text, and problems made from a seed.

Files are looked for in the folder that BIGSVM_DATA names, else in ``../shared/data`` beside the
repository. What is not there is skipped, and a line says so. NumPy and scikit-learn are imported
inside functions only, as in `children.py`.
"""

from __future__ import annotations

import gzip
import io
import itertools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tools.benchmarks.children import REPOSITORY

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class DataSet(NamedTuple):
    """A problem and what it is trained with.

    Attributes
    ----------
    name : str
        Of its file; of a problem that is made, family and number of rows.
    n_columns : int
        0: as many as the file has.
    C, gamma : float
    positive : tuple of float
        Labels of the positive class; none: labels stay as they are in the file.
    n_made : int
        Rows that `synthetic.py` makes; 0 where there is a file.
    layouts : tuple of str
        Layouts worth trying.
    """

    name: str
    n_columns: int = 0
    C: float = 1.0
    gamma: float = 1.0
    positive: tuple[float, ...] = ()
    n_made: int = 0
    layouts: tuple[str, ...] = ("dense", "csr")


FAMILIES = {
    "few": (22, 32.0, 2.0),
    "many": (50, 10.0, 0.3),
    "crowded": (50, 3.0, 1.0),
    "words": (50_000, 10.0, 1.0),
    "smooth": (20, 1.0, 0.05),
    "arm": (8, 10.0, 0.125),
}
"""Columns, C and gamma of what is made; about 5, 20, 35 and 80 % of the rows become support
vectors, and `smooth` and `arm` have targets."""
TEST_ROWS = 50_000
"""Rows of the test part of a made problem."""
LAYOUTS = {"crowded": ("dense", "csr"), "words": ("csr",)}
"""Those of families that have zeros."""


def made(family: str, n_rows: int) -> DataSet:
    """Describe `n_rows` of a family of `synthetic.py`."""
    n_columns, C, gamma = FAMILIES[family]
    layouts = LAYOUTS.get(family, ("dense",))
    return DataSet(f"{family}-{n_rows}", n_columns, C, gamma, (1.0,), n_rows, layouts)


DATA_SETS = {
    data.name: data
    for data in (
        DataSet("a9a", 123, 1.0, 0.008, (1.0,)),
        DataSet("w8a", 300, 8.0, 0.05, (1.0,)),
        # 0-4 against 5-9, raw pixels
        DataSet("mnist", 784, 50.0, 1 / (2 * 3500**2), (5.0, 6.0, 7.0, 8.0, 9.0)),
        made("few", 100_000),
    )
}


def data_set(name: str) -> DataSet:
    """Find a data set by its name, or describe one that is made: ``many-25000``.

    Raises
    ------
    ValueError
        There is none of that name.
    """
    if name in DATA_SETS:
        return DATA_SETS[name]
    family, _, n_rows = name.partition("-")
    if family not in FAMILIES or not n_rows.isdecimal() or int(n_rows) < 2:
        made_names = ", ".join(f"{family}-N" for family in FAMILIES)
        raise ValueError(f"no data set {name}: {', '.join(DATA_SETS)}, or {made_names}")
    return made(family, int(n_rows))


def data_folder() -> Path | None:
    """Folder of the LIBSVM files: $BIGSVM_DATA, else ../shared/data; None where there is none."""
    named = os.environ.get("BIGSVM_DATA")
    folder = Path(named) if named else REPOSITORY.parent / "shared" / "data"
    return folder if folder.is_dir() else None


def is_skipped(data: DataSet) -> bool:
    """Say so where the file of a data set is not there."""
    folder = data_folder()
    if data.n_made or (folder is not None and path_of(data, folder).is_file()):
        return False
    print(
        f"skipped {data.name}: no file of it; name its folder in BIGSVM_DATA",
        file=sys.stderr,
        flush=True,
    )
    return True


def path_of(data: DataSet, folder: Path, *, test: bool = False) -> Path:
    """Give the path of the training or of the test part of a data set."""
    return folder / f"{data.name}{'.t' * test}.libsvm.gz"


def load(
    data: DataSet, folder: Path | None, *, n_rows: int | None = None, test: bool = False
) -> tuple[Any, NDArray[np.float64]]:
    """Read or make the training part of a data set, or its test part.

    What is made is tested on the next rows of the same maker.

    Parameters
    ----------
    n_rows : int, optional
        The first rows are read, all by default.

    Returns
    -------
    x : (n, n_columns) float64 CSR of a file, float32 array of what is made
    y : (n,) float64; ±1 where the data set says which labels are positive
    """
    import numpy as np
    from sklearn.datasets import load_svmlight_file

    if data.n_made:
        from tools.benchmarks import synthetic

        family, n_made = data.name.partition("-")[0], data.n_made + TEST_ROWS * test
        x, y = synthetic.make(family, n_made, data.n_columns)
        part = slice(data.n_made, None) if test else slice(n_rows)
        return x[part], y[part]
    if folder is None:
        raise SystemExit("no folder of data sets: name it in BIGSVM_DATA")
    with gzip.open(path_of(data, folder, test=test)) as lines:
        text = io.BytesIO(b"".join(itertools.islice(lines, n_rows)))
    x, labels = load_svmlight_file(text, n_features=data.n_columns or None)
    # Indices of int64 are refused by scikit-learn's SVC.
    x.indices, x.indptr = x.indices.astype(np.int32), x.indptr.astype(np.int32)
    if not data.positive:
        return x, labels
    return x, np.where(np.isin(labels, list(data.positive)), 1.0, -1.0)


def even_and_odd(y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Make two classes, 0 and 1: those of even number against those of odd number."""
    import numpy as np

    return (np.unique(y, return_inverse=True)[1] % 2).astype(np.float64)
