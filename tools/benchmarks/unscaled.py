"""Training time where features are as they come, or C is large: linear and polynomial kernels.

    python tools/benchmarks/unscaled.py [--data spambase pendigits …] [--give-up 60] [--repeats 3]

Pair steps take millions on such problems, and LIBSVM's users wait for them without an end. Each fit
has a process of its own, which is given up after so many seconds of the fit; competitors take
turns, and who is given up once is not asked again. Classes of even number are trained against
those of odd number where there are more than two. A tiny fit before it, which compiles and loads
what is needed, does not count. Accuracy is that on the training rows: it shows that they solve the
same problem.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import statistics
import sys
import time
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

from common import THREAD_VARIABLES, machine, median_range, noise, table
from small_problems import CACHE_MEGABYTES, MODULES, OURS, TOL, installed, read

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection

    import numpy as np
    from numpy.typing import NDArray

DATA = ("spambase", "pendigits", "letter", "satimage.scale", "usps")
PROBLEMS: tuple[dict[str, Any], ...] = (
    {"kernel": "linear", "C": 1.0},
    {"kernel": "linear", "C": 100.0},
    {"kernel": "poly", "degree": 2, "coef0": 1.0, "gamma": "scale", "C": 100.0},
)
STARTING = 120.0
"""Seconds in which a process must have imported and compiled."""


class Fit(NamedTuple):
    """Seconds, accuracy on the training rows, and how a fit of ours ended."""

    seconds: float
    accuracy: float
    stopped: str


class Measured(NamedTuple):
    """All turns of one problem; a competitor that was given up has fewer."""

    name: str
    shape: tuple[int, int]
    problem: str
    fits: dict[str, list[Fit]]
    given_up: frozenset[str]


def of_two(y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Labels of two classes: even against odd numbers of classes where there are more."""
    import numpy as np

    number = np.unique(y, return_inverse=True)[1]
    return (number % 2).astype(np.float64)


def _fit(pipe: Connection, peer: str, name: str, problem: dict[str, Any]) -> None:
    """Train in a process of its own: says when it begins, and what came of it."""
    import numpy as np

    warnings.simplefilter("ignore")
    given = read(name)
    if given is None:
        raise SystemExit(f"no file of {name}")
    x, y = given[0], of_two(given[1])
    # This process is a child of multiprocessing, which has one thread by default.
    more = {"n_jobs": -1} if peer == OURS else {"cache_size": CACHE_MEGABYTES}
    kind = importlib.import_module(MODULES[peer]).SVC
    tiny = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    kind(**{**problem, "C": 1.0}, **more).fit(tiny, (tiny[:, 0] > 0).astype(np.float64))
    pipe.send(None)
    started = time.perf_counter()
    model = kind(**problem, tol=TOL, **more).fit(x, y)
    seconds = time.perf_counter() - started
    stopped = model.stop_reason_ if peer == OURS else ""
    pipe.send(Fit(seconds, float(model.score(x, y)), str(stopped)))


def fit(peer: str, name: str, problem: dict[str, Any], give_up: float) -> Fit | None:
    """Train once; None where it was given up.

    Raises
    ------
    SystemExit
        The process failed.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_fit, args=(theirs, peer, name, problem))
    process.start()
    theirs.close()
    try:
        for patience in (STARTING, give_up):
            if not ours.poll(patience):
                return None
            found: Fit | None = ours.recv()
        return found
    except EOFError:
        raise SystemExit(f"{peer} failed on {name}") from None
    finally:
        process.kill()
        process.join()


def measure(
    name: str, problem: dict[str, Any], peers: Sequence[str], repeats: int, give_up: float
) -> Measured | None:
    """Train everybody in turns; nothing where the data set is not there."""
    given = read(name)
    if given is None:
        return None
    fits: dict[str, list[Fit]] = {peer: [] for peer in peers}
    given_up: set[str] = set()
    for _ in range(repeats):
        for peer in (peer for peer in peers if peer not in given_up):
            found = fit(peer, name, problem, give_up)
            if found is None:
                given_up.add(peer)
            else:
                fits[peer].append(found)
    words = ", ".join(f"{key} {value}" for key, value in problem.items() if key != "kernel")
    found_all = Measured(
        name, given[0].shape, f"{problem['kernel']}, {words}", fits, frozenset(given_up)
    )
    print(f"  {name} {found_all.problem}: {fits}", file=sys.stderr, flush=True)
    return found_all


def report(measured: Sequence[Measured], peers: Sequence[str], repeats: int, give_up: float) -> str:
    """Lay out everything."""
    lines = [f"seconds; {repeats} turns, given up after {give_up:g} s\n"]
    header = ["data", "rows", "columns", "kernel", *peers, "ours stopped", "right %"]
    rows = []
    for m in measured:
        each = [
            f"> {give_up:g}" if peer in m.given_up
            else median_range([one.seconds for one in m.fits[peer]])
            for peer in peers
        ]  # fmt: skip
        right = [f"{100 * m.fits[p][-1].accuracy:.2f}" for p in peers if m.fits[p]]
        stopped = m.fits[OURS][-1].stopped if m.fits[OURS] else "-"
        rows.append([m.name, *m.shape, m.problem, *each, stopped, " ".join(right)])
    lines += [table(header, rows), ""]
    for peer in (peer for peer in peers if peer != OURS):
        both = [m for m in measured if m.fits[peer] and m.fits[OURS]]
        ratios = [
            statistics.median(one.seconds for one in m.fits[peer])
            / statistics.median(one.seconds for one in m.fits[OURS])
            for m in both
        ]
        mean = f"{statistics.geometric_mean(ratios):.2f}" if ratios else "-"
        ended = sum(peer not in m.given_up for m in measured)
        lines.append(
            f"{peer} ends in {ended} of {len(measured)}; there {peer} ÷ ours has the geometric "
            f"mean {mean}, and it is faster in {sum(ratio < 1 for ratio in ratios)}"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    from fit_once import calibrate

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", default=DATA, metavar="NAME")
    parser.add_argument("--give-up", type=float, default=60.0, metavar="SECONDS")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args(arguments)
    peers = installed()
    measured, gemm = [], []
    for name in options.data:
        for problem in PROBLEMS:
            gemm.append(calibrate()["seconds"])
            found = measure(name, problem, peers, options.repeats, options.give_up)
            if found is None:
                break
            measured.append(found)
    if measured:
        print(machine(int(os.environ.get(THREAD_VARIABLES[0], os.cpu_count() or 1))))
        print(report(measured, peers, options.repeats, options.give_up))
        print(noise(gemm))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
