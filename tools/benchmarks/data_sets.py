"""`data.py` under the name that programs use which are not suites yet; see `common.py`."""

from __future__ import annotations

import common  # noqa: F401 (puts the root of the repository on the path)

from tools.benchmarks.data import (
    DATA_SETS,
    FAMILIES,
    DataSet,
    data_folder,
    data_set,
    is_skipped,
    load,
    made,
    path_of,
)

__all__ = [
    "DATA_SETS", "FAMILIES", "DataSet", "data_folder", "data_set", "is_skipped", "load", "made",
    "path_of",
]  # fmt: skip
