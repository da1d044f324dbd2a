"""Print what a call enters: files, functions, lines of bigsvm, and how often it enters the data.

    python tools/way.py > tools/way.txt

A profiler listens to the calling thread, not to threads and processes that a call starts. Each call
runs once before, so that code is compiled and imported.
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from sklearn.datasets import dump_svmlight_file, load_digits, make_classification

import bigsvm

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

ROOT = Path(bigsvm.__file__).parent
HEADERS = ("call", "files", "lines", "functions", "depth", "entries into data")
OF_DATA = tuple(f"{ROOT / room}{os.sep}" for room in ("data", "conversion"))
"""The rooms of rows on their way in."""


class Way:
    """What a call has entered.

    Attributes
    ----------
    files : set of str
    functions : set of (str, str)
        Files and qualified names.
    depth : int
        Most calls of bigsvm inside one another.
    stays : int
        Calls into data/ and conversion/ from other folders, or from outside of bigsvm.
    """

    def __init__(self) -> None:
        self.files, self.functions = set[str](), set[tuple[str, str]]()
        self.depth = self.stays = self._inside = 0

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        """Take an event of the profiler."""
        name = frame.f_code.co_filename
        if not name.startswith(f"{ROOT}{os.sep}") or event not in ("call", "return"):
            return
        self._inside += 1 if event == "call" else -1
        if event == "return":
            return
        self.depth = max(self.depth, self._inside)
        self.files.add(name)
        self.functions.add((name, frame.f_code.co_qualname))
        back = frame.f_back
        while back is not None and not back.f_code.co_filename.startswith(str(ROOT)):
            back = back.f_back  # what NumPy, Dask or the standard library called
        if name.startswith(OF_DATA) and not (back and back.f_code.co_filename.startswith(OF_DATA)):
            self.stays += 1

    @property
    def lines(self) -> int:
        """Lines of the files."""
        return sum(len(Path(name).read_text().splitlines()) for name in self.files)


def way_of(call: Callable[[], Any]) -> Way:
    """Follow a call, after it has run once."""
    call()
    way = Way()
    sys.setprofile(way)
    try:
        call()
    finally:
        sys.setprofile(None)
    return way


def as_small(call: Callable[[], Any]) -> Callable[[], Any]:
    """Return a call whose fits are solved as small problems; all others are not."""

    def called() -> object:
        with mock.patch.dict(os.environ, BIGSVM_SMALL="auto"):
            return call()

    return called


def calls(folder: Path) -> dict[str, Callable[[], Any]]:
    """Return the calls of the table, by their names; they write into a folder."""
    X, y = make_classification(2000, 10, flip_y=0.05, random_state=0)
    images, digits = load_digits(return_X_y=True)
    names = iter(range(10**6))

    def new(name: str) -> Path:
        return folder / f"{next(names)}-{name}"

    store = bigsvm.write_store(new("rows.zarr"), X, y)
    model = bigsvm.SVC(gamma=0.1).fit(X, y)
    text = new("rows.libsvm")
    dump_svmlight_file(X, y, str(text), zero_based=False)
    grid = {"C": [1, 10], "gamma": [0.1, 0.2]}
    X_few, y_few = X[:1000], y[:1000]
    return {
        "SVC.fit(array), 1000 rows": as_small(lambda: bigsvm.SVC(gamma=0.1).fit(X_few, y_few)),
        "SVC.fit(array), two classes": lambda: bigsvm.SVC(gamma=0.1).fit(X, y),
        # One thread: others take pairs from the one that is followed.
        "SVC.fit(array), ten classes": lambda: bigsvm.SVC(gamma=0.001, n_jobs=1).fit(
            images, digits
        ),
        "SVC.fit(store), checkpoint": lambda: bigsvm.SVC(
            gamma=0.1, checkpoint=new("checkpoint")
        ).fit(store),
        "SVR.fit(array)": lambda: bigsvm.SVR(gamma=0.1).fit(X, X[:, 0]),
        "L2SVC.fit(array)": lambda: bigsvm.L2SVC(gamma=0.1).fit(X, y),
        "predict(array)": lambda: model.predict(X),
        "predict(store)": lambda: model.predict(store),
        "SearchCV.fit(store)": lambda: bigsvm.SearchCV(bigsvm.SVC(), grid, cv=3).fit(store),
        "write_store(array)": lambda: bigsvm.write_store(new("rows.zarr"), X, y),
        "convert(text)": lambda: bigsvm.convert(text, new("rows.zarr")),
        "save and load": lambda: bigsvm.load(model.save(new("model")) or _last(folder)),
    }


def _last(folder: Path) -> Path:
    """Return what was written last."""
    return max(folder.iterdir(), key=lambda path: int(path.name.partition("-")[0]))


def main() -> None:
    """Print the table."""
    rows = [HEADERS]
    os.environ["BIGSVM_SMALL"] = "never"
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for what, call in calls(Path(name)).items():
            way = way_of(call)
            figures = (len(way.files), way.lines, len(way.functions), way.depth, way.stays)
            rows.append((what, *map(str, figures)))
    n_lines = [len(path.read_text().splitlines()) for path in ROOT.rglob("*.py")]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]
        print("  ".join(cells))
    print(f"\nbigsvm/: {sum(n_lines)} lines in {len(n_lines)} files")


if __name__ == "__main__":
    main()
