"""Training without a certificate beside certified training: CPU time and test accuracy.

    python -m tools.benchmarks uncertified [--data w8a mnist …] [--repeats 3]

SVC with ``certify=False`` and with ``certify=True`` take turns on the same rows in memory, in one
thread and one process that has compiled before. mnist is 0-4 against 5-9. Files have a test file;
what is made is tested on the next 50 000 rows of the same maker. The second table has the estimates
of the growing parts: rows trained on, error at fresh rows, its standard error, and whether two
successive estimates differ by less than their standard error, which is the plainest rule for an
end; training itself fits a line (`bigsvm.training.learning_curve`).

``--full-core`` instead trains L2SVC on noisy labels (a fifth of them, 10 columns), whose core set
does not fit in the memory: test accuracy with and without a certificate, and SVC's. ``--balls``
trains L2SVC with a certificate, and prints which test ended the run and what ε holds for the centre
that is returned.

Limits: at most 35 % of the certified CPU time, of a million rows 10 %, and at most 0.5 points less
accuracy.
"""

from __future__ import annotations

import gzip
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from tools.benchmarks.bench import Suite
from tools.benchmarks.data import data_folder, data_set, is_skipped, load
from tools.benchmarks.results import at_most, table, verdicts

if TYPE_CHECKING:
    import argparse

    import numpy as np
    from numpy.typing import NDArray

    from tools.benchmarks.data import DataSet
    from tools.benchmarks.results import Limit

DATA = ("w8a", "mnist", "few-100000", "few-1000000")
SHARE, SHARE_OF_MANY, MANY, POINTS = 35.0, 10.0, 1_000_000, 0.5
N_TEST = 50_000
NOISY_ROWS, NOISE, NOISY_COLUMNS = (4000, 8000, 16_000, 32_000), 0.2, 10


class Problem(NamedTuple):
    """Rows and labels to train on, and others to test on."""

    x: Any
    y: NDArray[np.float64]
    test_x: Any
    test_y: NDArray[np.float64]


class Fitted(NamedTuple):
    """What a fit took, and what came of it."""

    cpu_seconds: float
    accuracy: float
    n_support: int
    certificate: dict[str, Any]
    estimates: list[tuple[int, float, float]]


def problem_of(data: DataSet) -> Problem:
    """Read or make a problem."""
    import numpy as np
    from sklearn.datasets import load_svmlight_file

    if data.n_made:
        family = data.name.partition("-")[0]
        x, y = load(data_set(f"{family}-{data.n_made + N_TEST}"), None)
        return Problem(x[: data.n_made], y[: data.n_made], x[data.n_made :], y[data.n_made :])
    folder = data_folder()
    x, y = load(data, folder)
    if folder is None:
        raise SystemExit("no folder of data sets: name it in BIGSVM_DATA")
    with gzip.open(folder / f"{data.name}.t.libsvm.gz") as lines:
        test_x, labels = load_svmlight_file(lines, n_features=x.shape[1])
    test_y = np.where(np.isin(labels, list(data.positive)), 1.0, -1.0)
    x, test_x = x.astype(np.float32), test_x.astype(np.float32)
    if "mnist" in data.name:
        x, test_x = x.toarray(), test_x.toarray()
    return Problem(x, y, test_x, test_y)


def fit(estimator: Any, problem: Problem) -> Fitted:  # noqa: ANN401 (any of ours)
    """Train once, in one thread."""
    from bigsvm.estimators import base
    from bigsvm.training import events

    estimates: list[tuple[int, float, float]] = []
    tell = base._tell

    def listener(event: events.Event) -> None:
        if isinstance(event, events.Tested):
            estimates.append((event.trained, event.error, event.deviation))

    base._tell = listener
    try:
        started = time.process_time()
        estimator.fit(problem.x, problem.y)
        seconds = time.process_time() - started
    finally:
        base._tell = tell
    accuracy = 100 * estimator.score(problem.test_x, problem.test_y)
    return Fitted(seconds, accuracy, len(estimator.support_), estimator.certificate_, estimates)


def compare(data: DataSet, repeats: int) -> tuple[list[Fitted], list[Fitted]]:
    """Train in turns without and with a certificate."""
    import bigsvm

    problem = problem_of(data)
    found: tuple[list[Fitted], list[Fitted]] = ([], [])
    warm = Problem(problem.x[:9000], problem.y[:9000], problem.test_x[:9], problem.test_y[:9])
    turns = [warm] + [problem] * (1 if data.n_made >= MANY else repeats)
    for turn, rows in enumerate(turns):
        for kept, certify in zip(found, (False, True), strict=True):
            estimator = bigsvm.SVC(
                C=data.C, gamma=data.gamma, tol=1e-3, certify=certify, memory="4GB", n_jobs=1
            )
            one = fit(estimator, rows)
            if turn:
                kept.append(one)
    return found


def median(fits: list[Fitted]) -> float:
    """Median CPU time."""
    seconds = sorted(one.cpu_seconds for one in fits)
    return seconds[len(seconds) // 2]


def run(options: argparse.Namespace) -> int:
    """Print the tables."""
    if options.full_core:
        print(full_core(), flush=True)
        return 0
    if options.balls:
        print(balls(), flush=True)
        return 0
    rows, curves, limits = [], [], []
    for data in map(data_set, options.data):
        if is_skipped(data):
            continue
        settled, certified = compare(data, options.repeats)
        share = 100 * median(settled) / median(certified)
        one, other = settled[-1], certified[-1]
        lost = other.accuracy - one.accuracy
        found = one.certificate
        rows.append(
            (
                data.name, f"{median(settled):.2f}", f"{median(certified):.2f}", f"{share:.1f}",
                f"{one.accuracy:.2f}", f"{other.accuracy:.2f}", f"{lost:.2f}",
                found["stop_reason"], found["rows_used"],
                f"{100 * (found['test_error'] or 0):.2f} ± "
                f"{100 * (found['test_error_deviation'] or 0):.2f}",
                one.n_support, other.n_support,
            )
        )  # fmt: skip
        curves += curve(data.name, one)
        limits += held(data, share, lost)
        print(f"{data.name} done", file=sys.stderr, flush=True)
    header = (
        "data", "CPU s", "certified", "%", "accuracy", "certified", "points lost", "stop",
        "rows used", "estimated error %", "SVs", "certified",
    )  # fmt: skip
    print(table(header, rows), end="\n\n")
    names = ("data", "trained on", "error %", "standard error", "differs by less")
    print(table(names, curves), end="\n\n")
    print(verdicts(limits), flush=True)
    return 0


def curve(name: str, one: Fitted) -> list[tuple[object, ...]]:
    """Make the lines of the estimates of a fit."""
    lines: list[tuple[object, ...]] = []
    before: tuple[float, float] | None = None
    for trained, error, deviation in one.estimates:
        less = "-"
        if before is not None:
            less = "yes" if abs(error - before[0]) < (deviation**2 + before[1] ** 2) ** 0.5 else ""
        lines.append((name, trained, f"{100 * error:.2f}", f"{100 * deviation:.2f}", less))
        before = (error, deviation)
    return lines


def held(data: DataSet, share: float, lost: float) -> list[Limit]:
    """Hold a comparison against the limits."""
    limit = SHARE_OF_MANY if data.n_made >= MANY else SHARE
    return [
        at_most(f"% of the certified CPU time, {data.name}", share, limit=limit),
        at_most(f"points of accuracy lost, {data.name}", lost, limit=POINTS),
    ]


def balls() -> str:
    """List by which test balls are certified, and the smallest eps of the returned centre."""
    import bigsvm

    lines = []
    for name in ("a9a", "w8a"):
        data = data_set(name)
        if is_skipped(data):
            continue
        x, y = load(data, data_folder())
        model = bigsvm.L2SVC(C=data.C, gamma=data.gamma, n_jobs=1).fit(x, y)
        found, tol = model.certificate_["ball"], model.certificate_["tol"]
        by_losses = found["losses_gap"]
        lines.append(
            (
                name, data.C, data.gamma, found["test"], f"{found['eps']:.3g}",
                f"{found['farthest_gap']:.3g}", "-" if by_losses is None else f"{by_losses:.3g}",
                f"{tol:.3g}",
            )
        )  # fmt: skip
    names = ("data", "C", "gamma", "certified by", "eps", "farthest row", "duality gap", "tol")
    return table(names, lines)


def full_core() -> str:
    """Compare L2SVC, with and without a certificate, and SVC where labels are noisy."""
    import numpy as np

    import bigsvm

    rng = np.random.default_rng(0)
    x = rng.standard_normal((NOISY_ROWS[-1] + N_TEST, NOISY_COLUMNS)).astype(np.float32)
    y = np.sign(x[:, 0] * x[:, 1] + x[:, 2] + 0.5 * x[:, 3])
    y[rng.random(len(y)) < NOISE] *= -1
    lines = []
    for n in NOISY_ROWS:
        problem = Problem(x[:n], y[:n], x[-N_TEST:], y[-N_TEST:])
        given = {"C": 1.0, "gamma": 0.1, "memory": "300MB", "n_jobs": 1}
        cells: list[object] = [n]
        for estimator in (
            bigsvm.L2SVC(certify=False, **given),
            bigsvm.L2SVC(**given),
            bigsvm.SVC(**given),
        ):
            one = fit(estimator, problem)
            cells += [f"{one.accuracy:.1f}", one.certificate["stop_reason"]]
            cells.append(f"{one.cpu_seconds:.1f}")
        lines.append(cells)
    header = ["rows"]
    for who in ("L2SVC no certificate", "L2SVC", "SVC"):
        header += [f"{who} %", "stop", "CPU s"]
    return table(header, lines)


SUITE = Suite(
    data=DATA,
    more=(
        ("--repeats", {"type": int, "default": 3}),
        ("--full-core", {"action": "store_true", "default": False}),
        ("--balls", {"action": "store_true", "default": False}),
    ),
    program=run,
    folder=False,
)
