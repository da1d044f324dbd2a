"""Training time on real problems of a few thousand rows, beside scikit-learn and its extension.

    python tools/benchmarks/small_problems.py [--data spambase mushrooms …] [--repeats 3]

Such problems fit in anybody's memory: nothing is streamed, and what a run takes to begin and to end
counts. Each data set is trained with two C and two gamma: with the larger gamma nearly every row is
a support vector. bigsvm, scikit-learn-intelex and scikit-learn take turns in one process, on the
same float32 array, or CSR matrix where two thirds of the values are 0; many classes are trained one
against one by all. A first turn that compiles and loads what is needed does not count. Competitors
get a cache of 1000 MB, which most of these kernel matrices fit in. Ratios are taken within a turn.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import itertools
import os
import statistics
import sys
import time
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

from common import THREAD_VARIABLES, machine, median_range, noise, table
from data_sets import data_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

DATA = (
    "svmguide1.scale", "satimage.scale", "spambase", "usps", "pendigits", "mushrooms",
    "letter.scale",
)  # fmt: skip
COSTS = (1.0, 32.0)
GAMMAS = (1.0, 16.0)
"""Over the average squared distance of two rows."""
SPARSE = 1 / 3
"""With this share of values that are not 0, or less, rows are CSR."""
CACHE_MEGABYTES = 1000
TOL = 1e-3
OURS = "bigsvm"
MODULES = {OURS: "bigsvm", "sklearnex": "sklearnex.svm", "sklearn": "sklearn.svm"}


class Turn(NamedTuple):
    """Seconds and support vectors of each competitor, by name, and of a fixed product before."""

    seconds: dict[str, float]
    support: dict[str, int]
    gemm: float


class Measured(NamedTuple):
    """All turns of one data set with one C and one gamma."""

    name: str
    n_rows: int
    n_classes: int
    C: float
    gamma: float
    turns: list[Turn]

    def ratios(self, peer: str) -> list[float]:
        """Seconds of a competitor ÷ ours, turn by turn."""
        return [turn.seconds[peer] / turn.seconds[OURS] for turn in self.turns]


def read(name: str) -> tuple[Any, NDArray[np.float64]] | None:
    """Read the training part of a data set, (n, d) float32; say so, and None, if there is none."""
    import numpy as np
    from sklearn.datasets import load_svmlight_file

    folder = data_folder()
    path = folder / f"{name}.libsvm.gz" if folder else None
    if path is None or not path.is_file():
        print(f"skipped {name}: no file of it; name its folder in BIGSVM_DATA", file=sys.stderr)
        return None
    x, y = load_svmlight_file(str(path), dtype=np.float32)
    # Indices of int64 are refused by scikit-learn.
    x.indices, x.indptr = x.indices.astype(np.int32), x.indptr.astype(np.int32)
    few = x.nnz <= SPARSE * x.shape[0] * x.shape[1]
    return (x if few else x.toarray()), y


def installed() -> list[str]:
    """Name who can be imported here."""
    return [peer for peer in MODULES if importlib.util.find_spec(MODULES[peer].split(".")[0])]


def take_turn(
    peers: Sequence[str],
    C: float,
    gamma: float,
    x: Any,  # noqa: ANN401 (an array or CSR)
    y: NDArray[np.float64],
) -> Turn:
    """Train everybody once."""
    from fit_once import calibrate

    seconds, support = {}, {}
    gemm = calibrate()["seconds"]
    for peer in peers:
        more = {} if peer == OURS else {"cache_size": CACHE_MEGABYTES}
        model = importlib.import_module(MODULES[peer]).SVC(C=C, gamma=gamma, tol=TOL, **more)
        started = time.perf_counter()
        model.fit(x, y)
        seconds[peer] = time.perf_counter() - started
        support[peer] = len(model.support_)
    return Turn(seconds, support, gemm)


def measure(name: str, peers: Sequence[str], repeats: int) -> list[Measured]:
    """Train one data set with every C and gamma; nothing where it is not there."""
    from timed_fits import UNHALVED, gamma_of

    problem = read(name)
    if problem is None:
        return []
    x, y = problem
    near, measured = gamma_of(x, UNHALVED), []
    take_turn(peers, COSTS[0], near, x, y)
    for C, times in itertools.product(COSTS, GAMMAS):
        turns = [take_turn(peers, C, times * near, x, y) for _ in range(repeats)]
        measured.append(Measured(name, x.shape[0], len(set(y)), C, times * near, turns))
        print(
            f"  {name} C {C:g}, gamma {times:g}: {turns[-1].seconds}", file=sys.stderr, flush=True
        )
    return measured


def report(measured: Sequence[Measured], peers: Sequence[str], repeats: int) -> str:
    """Lay out everything."""
    others = [peer for peer in peers if peer != OURS]
    header = ["data", "rows", "classes", "C", "gamma", "SVs", "seconds"]
    rows = [
        [
            m.name, m.n_rows, m.n_classes, f"{m.C:g}", f"{m.gamma:.3g}", m.turns[-1].support[OURS],
            median_range([turn.seconds[OURS] for turn in m.turns]),
            *(median_range(m.ratios(peer)) for peer in others),
        ]
        for m in measured
    ]  # fmt: skip
    lines = [
        f"seconds of bigsvm, and those of the others ÷ bigsvm's; {repeats} turns\n",
        table([*header, *(f"{peer} ÷ ours" for peer in others)], rows),
        "",
    ]
    for peer in others:
        medians = [statistics.median(m.ratios(peer)) for m in measured]
        lines.append(
            f"{peer} ÷ ours: geometric mean {statistics.geometric_mean(medians):.2f}; "
            f"{peer} is faster in {sum(ratio < 1 for ratio in medians)} of {len(medians)}"
        )
    lines.append(noise([turn.gemm for m in measured for turn in m.turns]))
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", default=DATA, metavar="NAME")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")  # competitors' about parameters they deprecate
    peers = installed()
    measured = [m for name in options.data for m in measure(name, peers, options.repeats)]
    if measured:
        print(machine(int(os.environ.get(THREAD_VARIABLES[0], os.cpu_count() or 1))))
        print(report(measured, peers, options.repeats))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
