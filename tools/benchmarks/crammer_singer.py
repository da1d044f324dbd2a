"""The parts of the suite ``crammer_singer``, which says what they are."""

from __future__ import annotations

import itertools
import json
import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.stats import spearmanr
from sklearn.model_selection import StratifiedKFold

import bigsvm
from bigsvm.data.sources import as_row_source
from bigsvm.fit.gamma import mean_distance
from tools.benchmarks.children import machine as hardware
from tools.benchmarks.data import DataSet, data_folder, is_skipped, load
from tools.benchmarks.preparations import prepared
from tools.benchmarks.results import Limit, at_most, must, table, verdicts

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

PAPER_TOL = 1e-3
TOLERANCES = (0.1, 0.01, 0.001, 0.0001)
COARSE_C, COARSE_TIMES, FINER = (1.0, 8.0), (0.5, 2.0, 8.0), (0.5, 2.0)
"""C, and gamma times the average squared distance; then factors of the gamma that was chosen."""
SMALL = ("vowel", "glass")
GIVEN = {"usps": (8.0, 2.0), "mnist-5000": (8.0, 4.0), "letter": (8.0, 16.0), "mnist": (8.0, 4.0)}
"""C, and gamma times the average squared distance of two rows."""
STEPS = (100, 300, 1000, 3000, 10_000, 30_000, 100_000, 300_000)
ORDERS = {
    "1 sequential": {"order": "sequential"},
    "1 random": {"order": "random"},
    "2 worst": {"order": "worst"},
    "3 active": {"order": "active"},
    "3 active, cooled": {"order": "active", "cooling": "log"},
    "package": {"order": "auto"},
}
"""Versions of figure 6; with a cache, 4, they take the same steps."""
PAPER_POLYNOMIAL = "1.24"
CHOSEN = Path(__file__).with_name("crammer_singer_chosen.json")
"""File of the choices: preparation of the rows, C and gamma, by problem, method and part."""
CHANGED = 0.01
"""Share of labels that are changed to another class."""


class Problem(NamedTuple):
    """A problem of the paper.

    Attributes
    ----------
    file : str
    limit : float, optional
        The paper's test error in %, of table 2.
    n_rows : int, optional
        Random rows of the training part that are trained on; all by default.
    n_trained : int, optional
        Rows of the training part where the files have another: the first of both.
    folds : int
        Of the cross-validation that takes the place of a test part; 0 where there is one.
    """

    file: str
    limit: float | None = None
    n_rows: int | None = None
    n_trained: int | None = None
    folds: int = 0


PROBLEMS = {
    "mnist": Problem("mnist", 1.42),
    "usps": Problem("usps", 4.38),
    "letter": Problem("letter", 1.95, n_trained=16_000),
    "satimage": Problem("satimage.scale"),
    "mnist-5000": Problem("mnist", n_rows=5000),
    "letter-5000": Problem("letter", n_rows=5000, n_trained=16_000),
    "vowel": Problem("vowel.scale"),
    "glass": Problem("glass.scale", folds=5),
}


class Parts(NamedTuple):
    """Rows (n, d) float32 and labels (n,) to train on, and others to test on."""

    name: str
    x: NDArray[np.float32]
    y: NDArray[np.float64]
    test_x: NDArray[np.float32]
    test_y: NDArray[np.float64]


class Found(NamedTuple):
    """A method on all parts of a problem: how many rows are wrong, and what it was trained with."""

    wrong: int
    tested: int
    chosen: tuple[str, ...] = ()
    n_support: tuple[int, ...] = ()
    seconds: float = 0.0
    converged: bool = True

    @property
    def error(self) -> float:
        """In %."""
        return 100 * self.wrong / self.tested


def read(name: str) -> list[Parts]:
    """Read a problem: one pair of parts, or one of each fold."""
    problem = PROBLEMS[name]
    x, y = arrays(DataSet(problem.file))
    largest = max(1.0, float(x.max()))
    x /= largest
    if problem.folds:
        divided = StratifiedKFold(problem.folds, shuffle=True, random_state=0).split(x, y)
        return [Parts(name, x[a], y[a], x[b], y[b]) for a, b in divided]
    test_x, test_y = arrays(DataSet(f"{problem.file}.t", n_columns=x.shape[1]))
    test_x /= largest
    more = max(0, (problem.n_trained or 0) - len(y))
    x, y = np.concatenate([x, test_x[:more]]), np.concatenate([y, test_y[:more]])
    rows = np.arange(len(y)) if problem.n_rows is None else some_rows(len(y), problem.n_rows)
    return [Parts(name, x[rows], y[rows], test_x[more:], test_y[more:])]


def arrays(data: DataSet) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Read a file."""
    x, y = load(data, data_folder())
    return x.toarray().astype(np.float32), y


def is_there(name: str) -> bool:
    """Whether the files of a problem are; says so where one is not."""
    problem = PROBLEMS[name]
    needed = [problem.file] if problem.folds else [problem.file, f"{problem.file}.t"]
    return not any(is_skipped(DataSet(file)) for file in needed)


def some_rows(n: int, most: int) -> NDArray[np.int64]:
    """Draw at most `most` of n rows; a larger draw begins with the rows of a smaller one."""
    return np.random.default_rng(0).permutation(n)[:most]


def gamma_of(parts: Parts, times: float) -> float:
    """Return `times` / the average squared distance of two training rows."""
    return times / mean_distance(as_row_source(parts.x), None, seed=0)


def machine(
    parts: Parts, C: float, times: float, *, labels: NDArray[Any] | None = None, **options: object
) -> bigsvm.CrammerSingerSVC:
    """Train Crammer and Singer's machine on the training part."""
    gamma = gamma_of(parts, times)
    given: dict[str, Any] = {"n_jobs": 1, "memory": "2GB", "tol": PAPER_TOL, **options}
    model = bigsvm.CrammerSingerSVC(C, gamma=gamma, **given)
    return model.fit(parts.x, parts.y if labels is None else labels)


def crammer_singer(parts: Parts, C: float, times: float, tol: float) -> int:
    """Count the rows of the test part with a wrong label."""
    predicted = machine(parts, C, times, tol=tol).predict(parts.test_x)
    return int((predicted != parts.test_y).sum())


def one_vs_rest(parts: Parts, C: float, times: float, tol: float) -> int:
    """Count the same of one machine of two classes for each class; the largest value decides."""
    classes = np.unique(parts.y)
    values = [
        machine(parts, C, times, labels=parts.y == c, tol=tol).decision_function(parts.test_x)
        for c in classes
    ]
    return int((classes[np.argmax(values, axis=0)] != parts.test_y).sum())


METHODS: dict[str, Callable[[Parts, float, float, float], int]] = {
    "crammer-singer": crammer_singer,
    "one-vs-rest": one_vs_rest,
}


def folds_of(parts: Parts, folds: int, most: int) -> list[Parts]:
    """Divide random rows of the training part."""
    rows = some_rows(len(parts.y), most)
    x, y = parts.x[rows], parts.y[rows]
    divided = StratifiedKFold(folds, shuffle=True, random_state=0).split(x, y)
    return [parts._replace(x=x[a], y=y[a], test_x=x[b], test_y=y[b]) for a, b in divided]


def choose(parts: Parts, method: str, options: argparse.Namespace) -> tuple[float, float]:
    """Choose C and gamma by cross-validation; of equals the smaller gamma, then the smaller C."""
    divided = folds_of(parts, 10 if parts.name in SMALL else 5, options.validated)
    wrong: dict[tuple[float, float], int] = {}

    def look(C: float, times: float) -> None:
        if (times, C) not in wrong:
            found = (METHODS[method](part, C, times, options.validation_tol) for part in divided)
            wrong[times, C] = sum(found)

    for C, times in itertools.product(COARSE_C, COARSE_TIMES):
        look(C, times)
    times, C = min(wrong, key=lambda point: (wrong[point], point))
    for factor in FINER:
        look(C, factor * times)
    times, C = min(wrong, key=lambda point: (wrong[point], point))
    return C, times


def measure(name: str, method: str, options: argparse.Namespace) -> Found:
    """Choose, train on all rows of the training part, and test."""
    wrong = tested = 0
    chosen = []
    for parts in read(name):
        C, times = choose(parts, method, options)
        wrong += METHODS[method](parts, C, times, PAPER_TOL)
        tested += len(parts.test_y)
        chosen.append(f"C {C:g}, gamma {times:g}")
    return Found(wrong, tested, tuple(chosen))


def tables(options: argparse.Namespace) -> Iterator[str]:
    """Tables 1 and 2, and figure 7."""
    lines, per_class, gains = [], [], []
    for name in options.data:
        parts = read(name)[0]
        ratio = len(parts.y) / len(np.unique(parts.y))
        found = {method: measure(name, method, options) for method in options.methods}
        ours = found["crammer-singer"]
        limit = PROBLEMS[name].limit
        line = [
            name, str(len(parts.y)), f"{ratio:.0f}", "-" if limit is None else f"{limit:.2f}",
            f"{ours.error:.2f}",
        ]  # fmt: skip
        rest = found.get("one-vs-rest")
        if rest is not None:
            per_class.append(ratio)
            gains.append(rest.error - ours.error)
            line += [f"{rest.error:.2f}", f"{gains[-1]:+.2f}"]
        else:
            line += ["-", "-"]
        line += [ours.chosen[0], "-" if rest is None else rest.chosen[0]]
        lines.append(line)
        print(" ".join(line), file=sys.stderr, flush=True)
    header = ["problem", "rows", "rows a class", "paper's %", "crammer-singer %", "one-vs-rest %"]
    yield table([*header, "decrease, points", "crammer-singer has", "one-vs-rest has"], lines)
    if len(gains) > 2:
        rank = spearmanr(per_class, gains)
        better = sum(gain > 0 for gain in gains)
        yield (
            f"crammer-singer errs less on {better} of {len(gains)}; rank correlation of the "
            f"decrease with the rows a class {rank.statistic:+.2f} (p {rank.pvalue:.2f})"
        )


def train_chosen(
    parts: list[Parts], method: str, chosen: list[dict[str, Any]], threads: int
) -> Found:
    """Train on prepared rows with the C and gamma of a choice, and test."""
    kinds: dict[str, Any] = {"crammer-singer": (bigsvm.CrammerSingerSVC, {})}
    kind, given = kinds.get(method, (bigsvm.SVC, {"multiclass": method}))
    wrong, n_support, seconds, converged = 0, list[int](), 0.0, True
    for part, choice in zip(parts, chosen, strict=True):
        ready = prepared(part, choice["rows"])
        model = kind(choice["C"], gamma=choice["gamma"], tol=PAPER_TOL, n_jobs=threads, **given)
        started = time.perf_counter()
        model.fit(ready.x, ready.y)
        seconds += time.perf_counter() - started
        wrong += int((model.predict(ready.test_x) != ready.test_y).sum())
        n_support.append(len(model.support_))
        converged &= bool(model.converged_)
    tested = sum(len(part.test_y) for part in parts)
    return Found(wrong, tested, (), tuple(n_support), seconds, converged)


def told(choice: dict[str, Any]) -> str:
    """Say how a C and gamma were chosen."""
    before = " and ".join(map(str, choice["validated"][:-1]))
    return (
        f"C {choice['C']:g}, gamma {choice['gamma']:.4g} ({choice['gamma'] / choice['unit']:g} / "
        f"mean distance): {choice['error']:.2f} % wrong in {choice['folds']} folds of "
        f"{choice['validated'][-1]} random training rows, after {before}; seed {choice['seed']}; "
        f"{choice['rows']}"
    )


def prepared_rows(options: argparse.Namespace) -> Iterator[str]:
    """Tables 1 and 2, and figure 7, of rows that are prepared."""
    chosen, gains, limits = json.loads(CHOSEN.read_text()), [], list[Limit]()
    yield hardware(options.threads)
    for name in options.data:
        parts, of_problem = read(name), chosen[name]
        found = {m: train_chosen(parts, m, of_problem[m], options.threads) for m in of_problem}
        paper, ours, rest = PROBLEMS[name].limit, found["crammer-singer"], found["ovr"]
        lines = [
            [
                method, f"{one.error:.2f}",
                "-" if paper is None or one is not ours else f"{paper:.2f}",
                f"{one.wrong} of {one.tested}", "+".join(map(str, one.n_support)),
                f"{one.seconds:.2f}", "converged" if one.converged else "not converged",
            ]
            for method, one in found.items()
        ]  # fmt: skip
        rows = "+".join(str(len(part.y)) for part in parts)
        tested = "+".join(str(len(part.test_y)) for part in parts)
        yield (
            f"{name}: {rows} rows x {parts[0].x.shape[1]}, {tested} to test on, "
            f"{len(np.unique(parts[0].y))} classes"
        )
        yield table(["method", "error %", "paper's %", "wrong", "SVs", "seconds", "stopped"], lines)
        yield "\n".join(f"{m}: {told(choice)}" for m in found for choice in chosen[name][m])
        decrease = f"{rest.error - ours.error:+.2f}"
        gains.append([name, f"{ours.error:.2f}", f"{rest.error:.2f}", decrease])
        if paper is not None:
            limits.append(at_most(f"{name}: crammer-singer, % wrong", ours.error, limit=paper))
        limits += [
            must(f"{name}: {m} converged", one.converged, True, one.converged)
            for m, one in found.items()
        ]
    header = ["problem", "crammer-singer %", "one-vs-rest %", "decrease in error, points"]
    yield table(header, gains)
    yield verdicts(limits)


def given_sets(options: argparse.Namespace) -> Iterator[tuple[str, Parts, float, float]]:
    """Read the problems that have a C and a gamma of their own: name, parts, C, times."""
    for name in options.data:
        (parts,) = read(name)
        yield name, parts, *GIVEN[name]


def epsilon(options: argparse.Namespace) -> Iterator[str]:
    """Figure 4."""
    lines = []
    for name, parts, C, times in given_sets(options):
        first = None
        for tol in TOLERANCES:
            model = machine(parts, C, times, tol=tol)
            wrong = (model.predict(parts.test_x) != parts.test_y).mean()
            found = model.certificate_
            first = first or found["n_iter"]
            lines.append(
                [
                    name, f"{tol:g}", str(found["n_iter"]), f"{found['n_iter'] / first:.2f}",
                    f"{found['n_kernel_evaluations'] / 1e6:.1f}", str(found["n_support"]),
                    f"{found['objective']:.3f}", f"{100 * wrong:.2f}",
                ]
            )  # fmt: skip
    header = ["problem", "tol", "steps", "÷ those at 0.1", "10^6 evaluations", "SVs", "objective"]
    yield table([*header, "error %"], lines)


def in_order(
    parts: Parts, name: str, options: dict[str, str], *, tol: float, most: int
) -> dict[str, Any]:
    """Train in one of `ORDERS`, on all rows as one working set; gives the certificate."""
    C, times = GIVEN[name]
    given: dict[str, Any] = {"working_set": "all", "max_iter": most, "tol": tol, **options}
    found: dict[str, Any] = machine(parts, C, times, **given).certificate_
    return found


def cooling(options: argparse.Namespace) -> Iterator[str]:
    """Figure 5."""
    for name in options.data:
        (parts,) = read(name)
        parts = parts._replace(x=parts.x[: options.rows], y=parts.y[: options.rows])
        lines = []
        for called, order in ORDERS.items():
            found = [
                in_order(parts, name, order, tol=PAPER_TOL, most=most)
                for most in STEPS
                if most <= options.most_steps
            ]
            last = found[-1]
            shown = [f"{one['objective']:.2f}" for one in found]
            ended = str(last["n_iter"]) if last["converged"] else f"> {options.most_steps}"
            lines.append([called, *shown, ended])
        header = ["order", *(f"{most} steps" for most in STEPS if most <= options.most_steps)]
        yield f"{name}, {len(parts.y)} rows: the objective after so many steps, at tol {PAPER_TOL}"
        yield table([*header, "steps to tol"], lines)
    # ε(t) of the paper's other schedules, which are no options: 0.999 exp(-t), 0.999 / (t + 1).
    exponential = math.ceil(math.log(0.999 / PAPER_TOL))
    linear = math.ceil(0.999 / PAPER_TOL) - 1
    yield (
        f"the exponential schedule is at {PAPER_TOL:g} after {exponential} steps, the linear one "
        f"after {linear}: from there on they are the order `3 active`"
    )


def ratio(found: dict[str, Any], base: dict[str, Any]) -> str:
    """Divide steps by those of another run: a bound where one of them was stopped."""
    if not (found["converged"] or base["converged"]):
        return "-"
    sign = "" if found["converged"] and base["converged"] else "> " if base["converged"] else "< "
    return f"{sign}{found['n_iter'] / base['n_iter']:.4f}"


def ladder(options: argparse.Namespace) -> Iterator[str]:
    """Figure 6."""
    (whole,) = read("mnist")
    rows = some_rows(len(whole.y), max(options.sizes))
    lines = []
    for size in options.sizes:
        parts = whole._replace(x=whole.x[rows[:size]], y=whole.y[rows[:size]])
        base = None
        for called, order in ORDERS.items():
            found = in_order(parts, "mnist", order, tol=options.ladder_tol, most=options.most_steps)
            steps = found["n_iter"]
            base = base or found
            lines.append(
                [
                    str(size), called, ("" if found["converged"] else "> ") + str(steps),
                    ratio(found, base), f"{steps * size / 1e6:.0f}", str(found["row_misses"]),
                    f"{found['row_misses'] * size / 1e6:.1f}", f"{found['objective']:.2f}",
                ]
            )  # fmt: skip
    header = ["rows", "version", "steps = kernel rows without a cache", "÷ sequential"]
    header += ["10^6 values", "kernel rows with a cache", "10^6 values", "objective"]
    yield f"mnist, tol {options.ladder_tol:g}"
    yield table(header, lines)


def polynomial(options: argparse.Namespace) -> Iterator[str]:
    """Train with the kernel ((u·v + 1) / 2)^9 of rows divided by their norm, on all rows."""
    lines = []
    for name in options.data:
        (parts,) = read(name)
        x, test_x = (
            part / np.linalg.norm(part, axis=1)[:, None] for part in (parts.x, parts.test_x)
        )
        for C in options.C:
            model = bigsvm.CrammerSingerSVC(
                C, kernel="poly", degree=9, gamma=0.5, coef0=0.5, tol=PAPER_TOL, n_jobs=1,
                memory="2GB",
            ).fit(x, parts.y)  # fmt: skip
            wrong = (model.predict(test_x) != parts.test_y).mean()
            found = model.certificate_
            lines.append(
                [name, str(len(x)), f"{C:g}", str(found["n_iter"]), str(found["n_support"]),
                 f"{100 * wrong:.2f}", PAPER_POLYNOMIAL if name == "mnist" else "-"]
            )  # fmt: skip
            print(" ".join(lines[-1]), file=sys.stderr, flush=True)
    yield table(["problem", "rows", "C", "steps", "SVs", "error %", "paper's %"], lines)


def doubt(options: argparse.Namespace) -> Iterator[str]:
    """Figure 8: first labels as they are, then with some changed, which are to be found again."""
    lines = []
    for name, parts, C, times in given_sets(options):
        model = machine(parts, C, times)
        values = model.decision_function(parts.x[model.support_])
        right = np.searchsorted(model.classes_, parts.y[model.support_])
        own = values[np.arange(len(right)), right]
        values[np.arange(len(right)), right] = -np.inf
        margin, order = own - values.max(axis=1), np.argsort(-model.label_doubt_, kind="stable")
        for rank in order[: options.shown]:
            shares = {
                f"{model.classes_[c]:g}": f"{share:.2f}"
                for c, share in enumerate(model.label_distribution_[rank])
                if share > 0
            }
            lines.append(
                [
                    name, str(model.support_[rank]), f"{parts.y[model.support_[rank]]:g}",
                    f"{model.label_doubt_[rank]:.3f}", f"{margin[rank]:.2f}",
                    " ".join(f"{label}:{share}" for label, share in shares.items()),
                ]
            )  # fmt: skip
    yield table(["problem", "row", "label", "‖τ‖", "margin", "η"], lines)
    lines = []
    for name, parts, C, times in given_sets(options):
        rng = np.random.default_rng(0)
        wrong = rng.choice(len(parts.y), int(CHANGED * len(parts.y)), replace=False)
        classes, labels = np.unique(parts.y, return_inverse=True)
        labels[wrong] = (labels[wrong] + rng.integers(1, len(classes), len(wrong))) % len(classes)
        model = machine(parts, C, times, labels=classes[labels])
        listed = model.support_[np.argsort(-model.label_doubt_, kind="stable")]
        line = [name, str(len(parts.y)), str(len(wrong))]
        for times_as_many in (1, 2, 4):
            first = listed[: times_as_many * len(wrong)]
            line.append(f"{100 * np.isin(wrong, first).mean():.1f}")
        lines.append(line)
    header = ["problem", "rows", "labels changed", "found among as many rows, %"]
    yield table([*header, "among twice as many", "among four times as many"], lines)


PARTS = {
    "epsilon": epsilon, "cooling": cooling, "ladder": ladder, "tables": tables,
    "prepared": prepared_rows, "polynomial": polynomial, "doubt": doubt,
}  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Print the tables of a part, of the sets that are there."""
    names = getattr(options, "data", ["mnist"])
    unknown = sorted(set(names) - set(PROBLEMS))
    if unknown:
        raise SystemExit(f"--data {unknown[0]} is none of {', '.join(PROBLEMS)}")
    options.data = [name for name in names if is_there(name)]
    if options.data:
        print("\n\n".join(PARTS[options.part](options)))
    return 0
