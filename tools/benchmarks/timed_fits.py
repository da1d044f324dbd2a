"""Timed fits of data sets in a training and a test part, our way and LibCVM's.

NumPy, scikit-learn and bigsvm are imported inside functions only, as in `common.py`.
"""

from __future__ import annotations

import statistics
import sys
import time
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

from data_sets import data_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

SOLVERS = ("cvm", "fw", "mfw", "pairwise")
MEAN_DISTANCE, UNHALVED, PAIRS_ONCE = "mean-distance", "unhalved-distance", "pairs-once"
TIMES_DISTANCE = {MEAN_DISTANCE: 0.5, UNHALVED: 1.0, PAIRS_ONCE: 2.0}
"""gamma times s, the average squared distance of two rows. The first is that of the package and
the formula that frank-wolfe.txt prints, exp(-d² / 2s); the second exp(-d² / s); the third the
latter if the sum over pairs, divided by m², has each pair once, and so is half of s."""
SAMPLING = 59
"""Rows of a sample in the paper (section 5.2.3)."""
TINY_ROWS = 300
DENSE = ("usps", "letter.scale", "pendigits", "mnist")
"""Data sets whose rows are trained as arrays: about a fifth of their values or more is not zero."""


class Parts(NamedTuple):
    """A data set as it is trained and tested.

    Attributes
    ----------
    name : str
    x, test_x : (n, d) and (t, d) float32 array or CSR
    y, test_y : (n,) and (t,) float64
        Labels as they are in the files.
    scaled : str
        How values were scaled, in words; empty if they are as in the files.
    divided_by : float
        What values were divided by.
    """

    name: str
    x: Any
    y: NDArray[np.float64]
    test_x: Any
    test_y: NDArray[np.float64]
    scaled: str
    divided_by: float = 1.0

    @property
    def n_pairs(self) -> int:
        """Binary problems of one-versus-one; 1 where there are two classes."""
        n_classes = len(set(self.y))
        return n_classes * (n_classes - 1) // 2


def is_there(name: str) -> bool:
    """Whether both files of a data set are; says so where they are not."""
    folder = data_folder()
    if folder is not None and all(path.is_file() for path in files_of(name, folder)):
        return True
    print(
        f"skipped {name}: no files of it; name their folder in BIGSVM_DATA",
        file=sys.stderr,
        flush=True,
    )
    return False


def files_of(name: str, folder: Path) -> tuple[Path, Path]:
    """Training and test part."""
    return folder / f"{name}.libsvm.gz", folder / f"{name}.t.libsvm.gz"


def read(name: str) -> Parts:
    """Read both parts; those with raw values are divided by the largest of the training part."""
    import numpy as np
    from sklearn.datasets import load_svmlight_files

    folder = data_folder()
    if folder is None:
        raise SystemExit("no folder of data sets")
    x, y, test_x, test_y = load_svmlight_files(
        [str(path) for path in files_of(name, folder)], dtype=np.float32
    )
    scaled, divided_by = "", 1.0
    if name in DENSE:
        x, test_x = x.toarray(), test_x.toarray()
        largest = float(x.max())
        if largest > 1:
            divided_by = largest
            x /= largest
            test_x /= largest
            scaled = f"values divided by {largest:g}, the largest of the training part"
    y, test_y = y.astype(np.float64), test_y.astype(np.float64)
    return Parts(name, x, y, test_x, test_y, scaled, divided_by)


def five_and_more(parts: Parts) -> Parts:
    """Make two classes of ten digits: 0-4, and 5-9."""
    import numpy as np

    return parts._replace(
        y=np.where(parts.y >= 5, 1.0, -1.0), test_y=np.where(parts.test_y >= 5, 1.0, -1.0)
    )


def gamma_of(x: Any, reading: str) -> float:  # noqa: ANN401 (an array or CSR, or a source)
    """Give the gamma of rows by one of the readings of `TIMES_DISTANCE`."""
    from bigsvm.data.sources import as_row_source
    from bigsvm.estimators.ball import mean_distance

    return TIMES_DISTANCE[reading] / mean_distance(as_row_source(x), None, seed=0)


class Contestant(NamedTuple):
    """Somebody who trains.

    Attributes
    ----------
    name : str
    make : callable
        → an estimator that has not been fitted.
    """

    name: str
    make: Callable[[], Any]


class Fit(NamedTuple):
    """One fit: what it took, and what it gave.

    Attributes
    ----------
    seconds : float
        Of ``fit`` alone.
    accuracy : float
        %, of the test part; computed outside the clock.
    n_support : int
        Of all pairs of classes together; so are the sweeps.
    n_sweeps : int
    converged : bool
        Whether each was certified.
    reasons : tuple of str
        Why training stopped, each reason once.
    """

    seconds: float
    accuracy: float
    n_support: int
    n_sweeps: int
    converged: bool
    reasons: tuple[str, ...]


def fit(contestant: Contestant, parts: Parts) -> Fit:
    """Train once, and test."""
    from sklearn.exceptions import ConvergenceWarning

    model = contestant.make()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the reasons say so
        started = time.perf_counter()
        model.fit(parts.x, parts.y)
        seconds = time.perf_counter() - started
    models = getattr(model, "estimators_", [model])
    return Fit(
        seconds,
        100 * float(model.score(parts.test_x, parts.test_y)),
        sum(len(m.support_) for m in models),
        sum(m.certificate_["n_sweeps"] for m in models),
        all(m.converged_ for m in models),
        tuple(sorted({m.stop_reason_ for m in models})),
    )


def warm_up(contestants: Sequence[Contestant], parts: Parts) -> None:
    """Compile and load what fits need, on the first rows and what is missing of a second class."""
    import numpy as np

    few = np.arange(min(TINY_ROWS, len(parts.y)))
    firsts = np.unique(parts.y, return_index=True)[1][:2]
    few = np.unique(np.append(few, firsts))
    two = few[np.isin(parts.y[few], parts.y[firsts])]
    tiny = parts._replace(x=parts.x[two], y=parts.y[two], test_x=parts.x[two], test_y=parts.y[two])
    for contestant in contestants:
        fit(contestant, tiny)


def mean_and_deviation(values: Sequence[float], *, digits: int = 2) -> str:
    """'mean ± standard deviation', or the value alone where there is one."""
    mean = f"{statistics.fmean(values):.{digits}f}"
    return mean if len(values) < 2 else f"{mean} ± {statistics.stdev(values):.{digits}f}"


def say(line: str) -> None:
    """Report progress."""
    print(line, file=sys.stderr, flush=True)
