"""``many_classes.py ladder``: what each improvement of the paper is worth here, as in its figure 5.

Random rows of mnist, values divided by 255, the smaller sizes the first rows of the larger ones;
gamma is 1 / the average squared distance of two rows. All versions end at the same tolerance, or
are given up after --give-up seconds. Each has what those above it have:

1 in turn      the paper's baseline: rows one after the other, again and again. It goes round a
               fixed number of times there; here until no row violates by more than the tolerance
2 worst first  the row that violates most, of all: "uses KKT conditions for selecting an example"
3 active set   rows with a coefficient first, and the others when none of these violates
3 + cooling    and the tolerance lowered step by step, by the paper's logarithm
4 + cache      kernel rows are kept, as many as --memory holds, the least recently used replaced;
               before, 16 are, and of dense rows a dozen are computed in the time of one
5 + sparse     rows as CSR

These are what the paper compares; then come switches of ours, each a change of ``5 + sparse``:

exact          the variables of a row from a sorted list instead of the fixed point
by shares      rows without a coefficient wait only until the others' ψ is a share of theirs
parts of rows  working sets of parts of the rows instead of all rows at once, by the exact solver:
               what `CrammerSingerSVC` does by itself

The first two are made here of the package's step for a single row, on a kernel row computed for
that step alone by NumPy. The paper's fastest version has two more improvements that it does not
tell of.

A step is a row solved for. In 1 and 2 each computes a kernel row; later, rows that one call
computes together count one by one.
"""

from __future__ import annotations

import math
import statistics
import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy.sparse as sp
from common import Check, machine, median_range, noise, table, verdicts
from fit_once import calibrate
from many_classes_common import few_of_each, is_there, read, some_rows
from threadpoolctl import threadpool_limits
from timed_fits import UNHALVED, gamma_of, say

from bigsvm.budget import FEWEST_ROWS, parse_bytes, plan_training
from bigsvm.core import simplex
from bigsvm.data.sources import as_row_source
from bigsvm.duals.simplex import Cooling, CrammerSinger, Order, RowSolver, SimplexDual
from bigsvm.kernels import RBF
from bigsvm.tiles import KernelTiles
from bigsvm.training.decomposition import Decomposition
from bigsvm.training.state import Limits

if TYPE_CHECKING:
    import argparse

    from numpy.typing import NDArray

SAME_OBJECTIVE = 1e-3
"""By how much, relative, that of a version may be below the largest."""


class Version(NamedTuple):
    """Switches.

    Attributes
    ----------
    choice : {"in turn", "worst", "package"}
        Of the row of a step; the first two are `OneRow`, which has none of the others.
    order : Order
    cooling : Cooling
    cached, sparse : bool
    solver : RowSolver
    whole : bool
        Whether all rows are one working set.
    """

    choice: str = "package"
    order: Order = Order.ACTIVE
    cooling: Cooling = Cooling.LOG
    cached: bool = True
    sparse: bool = True
    solver: RowSolver = RowSolver.FIXED_POINT
    whole: bool = True


PAPER = {
    "1 in turn": Version("in turn"),
    "2 worst first": Version("worst"),
    "3 active set": Version(cooling=Cooling.NONE, cached=False, sparse=False),
    "3 + cooling": Version(cached=False, sparse=False),
    "4 + cache": Version(sparse=False),
    "5 + sparse": Version(),
}
OURS = {
    "exact": Version(solver=RowSolver.EXACT),
    "by shares": Version(order=Order.AUTO, cooling=Cooling.NONE),
    "parts of rows": Version(
        order=Order.AUTO, cooling=Cooling.NONE, solver=RowSolver.EXACT, whole=False
    ),
}
VERSIONS = PAPER | OURS
LAST = "5 + sparse"


class Digits(NamedTuple):
    """Rows (n, d) float32, classes (n,) in 0 … k - 1, and what they are trained with."""

    x: NDArray[np.float32]
    label: NDArray[np.int32]
    C: float
    gamma: float

    def dual(self, version: Version) -> SimplexDual:
        """Give the problem, with a version's switches."""
        n_classes = int(self.label.max()) + 1
        problem = CrammerSinger(label=self.label, n_classes=n_classes, C=self.C)
        return SimplexDual(problem, version.solver, version.order, version.cooling)


class Run(NamedTuple):
    """What a version took.

    Attributes
    ----------
    seconds : float
    n_steps, n_rows, n_evaluations : int
        Steps, kernel rows and kernel values computed.
    objective : float or None
    n_support : int
    ended : str
    """

    seconds: float
    n_steps: int
    n_rows: int
    n_evaluations: int
    objective: float | None
    n_support: int
    ended: str

    @property
    def finished(self) -> bool:
        """Whether it reached the tolerance."""
        return self.ended == "converged"


class OneRow:
    """The paper's basic algorithm: nothing is kept but the variables and their gradient.

    Parameters
    ----------
    digits : Digits
    """

    def __init__(self, digits: Digits) -> None:
        self._digits = digits
        self.dual = digits.dual(VERSIONS["1 in turn"])
        n, k = len(digits.label), self.dual.formulation.n_classes
        self.alpha = np.zeros((n, k))
        self.gradient = np.eye(k)[digits.label]
        self._upper = digits.C * np.eye(k)[digits.label]
        self._room = self.alpha < self._upper
        self._squares = np.einsum("ij,ij->i", digits.x, digits.x)
        self.n_steps = 0

    def violations(self) -> NDArray[np.float64]:
        """ψ of all rows, (n,)."""
        most: NDArray[np.float64] = np.where(self._room, self.gradient, -np.inf).max(axis=1)
        return most - self.gradient.min(axis=1)

    def outputs(self) -> NDArray[np.float64]:
        """f, (n, k)."""
        return np.eye(self.alpha.shape[1])[self._digits.label] - self.gradient

    def step(self, p: int) -> None:
        """Solve for row p; the others stay as they are."""
        digits, one = self._digits, slice(p, p + 1)
        squared = self._squares + self._squares[p] - 2 * (digits.x @ digits.x[p])
        row = np.exp(-digits.gamma * np.maximum(squared, 0))
        row[p] = 1.0
        state = simplex.make_state(
            self.alpha[one], self.gradient[one], np.array([digits.C]),
            digits.label[one].astype(np.int64), np.ones(1),
        )  # fmt: skip
        alone = np.zeros((1, state.alpha.shape[1]), np.float32)
        alone[0, 0] = 1.0
        simplex.run(
            state, alone, np.zeros(1, np.int32), np.zeros(1, np.int64),
            method=simplex.FIXED_POINT, tol=0.0, max_steps=1,
        )  # fmt: skip
        change = state.alpha[:, 0] - self.alpha[p]
        moved = np.flatnonzero(change)
        self.alpha[p] = state.alpha[:, 0]
        self._room[p] = self.alpha[p] < self._upper[p]
        self.gradient[:, moved] -= row[:, None] * change[moved]
        self.n_steps += 1

    def run(self, choice: str, *, tol: float, seconds: float) -> str:
        """Take steps until no row violates by more than `tol`; says how it ended."""
        stop_at = time.perf_counter() + seconds
        n = len(self.alpha)
        while (violations := self.violations()).max() > tol:
            rows = range(n) if choice == "in turn" else [int(violations.argmax())]
            for p in rows:
                if time.perf_counter() > stop_at:
                    return "given up"
                self.step(p)
        return "converged"


def one_row(digits: Digits, choice: str, options: argparse.Namespace) -> Run:
    """Train by single rows."""
    with threadpool_limits(options.threads):
        started = time.perf_counter()
        steps = OneRow(digits)
        ended = steps.run(choice, tol=options.tol, seconds=options.give_up)
        seconds = time.perf_counter() - started
    at = steps.dual.optimality(steps.alpha, steps.outputs())
    n_evaluations = steps.n_steps * len(digits.label)
    return Run(
        seconds, steps.n_steps, steps.n_steps, n_evaluations, at.objective, at.n_support, ended
    )


def package(digits: Digits, version: Version, options: argparse.Namespace) -> Run:
    """Train by the package."""
    source = as_row_source(sp.csr_matrix(digits.x) if version.sparse else digits.x)
    source.is_shuffled = True  # the digits are in random order
    dual = digits.dual(version)
    plan = plan_training(
        parse_bytes(options.memory),
        n_rows=source.n_rows,
        n_columns=source.n_columns,
        bytes_per_row=source.bytes_per_row,
        row_alignment=source.row_alignment,
        threads=options.threads,
        n_outputs=dual.formulation.n_outputs,
        whole=version.whole,
    )
    if not version.cached:
        plan = plan.with_kernel_rows(FEWEST_ROWS)
    started = time.perf_counter()
    centre = None if source.is_sparse else source.column_means()
    tiles = KernelTiles(RBF(gamma=digits.gamma), centre=centre, threads=options.threads)
    found = Decomposition(
        source, dual, tiles, plan, tol=options.tol, whole=version.whole,
        limits=Limits(max_seconds=options.give_up),
    ).run()  # fmt: skip
    seconds, told = time.perf_counter() - started, found.certificate
    ended = "converged" if told.converged else str(told.stop_reason)
    return Run(
        seconds, told.n_iter, told.row_misses, told.n_kernel_evaluations, told.objective,
        told.n_support, ended,
    )  # fmt: skip


def train(digits: Digits, version: Version, options: argparse.Namespace) -> Run:
    """Train once."""
    if version.choice == "package":
        return package(digits, version, options)
    return one_row(digits, version.choice, options)


def in_turns(
    digits: Digits, options: argparse.Namespace, given_up: set[str], calibrations: list[float]
) -> dict[str, list[Run]]:
    """Let each version train once a round, but those that were given up at a smaller size."""
    runs: dict[str, list[Run]] = {name: [] for name in VERSIONS if name not in given_up}
    for turn in range(options.repeats):
        for name, of in runs.items():
            if of and not of[-1].finished:
                continue
            calibrations.append(calibrate()["seconds"])
            of.append(train(digits, VERSIONS[name], options))
            say(
                f"  {len(digits.label)} rows, round {turn + 1}, {name}: {of[-1].seconds:.2f} s, "
                f"{of[-1].n_steps} steps, {of[-1].ended}"
            )
    return runs


HEADER = (
    *("rows", "version", "seconds", "÷ the one before", "÷ the first", "steps", "kernel rows"),
    *("10^6 evaluations", "objective", "SVs", "ended"),
)


def faster(runs: dict[str, list[Run]], name: str, other: str | None) -> str:
    """Seconds of one ÷ those of another: less than that where the other was given up."""
    if other is None or not {name, other} <= runs.keys() or not runs[name][-1].finished:
        return "-"
    mine, its = (statistics.median(run.seconds for run in runs[of]) for of in (name, other))
    return ("" if runs[other][-1].finished else "< ") + f"{mine / its:.3g}"


def lines(n_rows: int, runs: dict[str, list[Run]]) -> list[list[str]]:
    """Lay out the versions at a size; those of ours are compared with `LAST`."""
    first = next(iter(PAPER))
    before = dict(zip(list(PAPER)[1:], PAPER, strict=False)) | dict.fromkeys(OURS, LAST)
    found = []
    for name, of in runs.items():
        last = of[-1]
        found.append(
            [
                str(n_rows),
                name,
                ("" if last.finished else "> ") + median_range([run.seconds for run in of]),
                faster(runs, name, before.get(name)),
                faster(runs, name, first),
                str(last.n_steps),
                str(last.n_rows),
                f"{last.n_evaluations / 1e6:.1f}",
                "-" if last.objective is None else f"{last.objective:.4f}",
                str(last.n_support),
                last.ended,
            ]
        )
    return found


def checks(n_rows: int, runs: dict[str, list[Run]]) -> list[Check]:
    """Hold all versions that finished against the best objective: it is one problem."""
    objectives = {
        name: of[-1].objective
        for name, of in runs.items()
        if of[-1].finished and of[-1].objective is not None
    }
    if not objectives:
        return []
    least, most = min(objectives.values()), max(objectives.values())
    apart = (most - least) / most if most > 0 else math.inf
    holds = apart <= SAME_OBJECTIVE
    name = f"{n_rows} rows: objectives of {len(objectives)} versions, relative difference"
    return [Check(name, f"{apart:.1e}", f"≤ {SAME_OBJECTIVE:g}", holds)]


def problems(options: argparse.Namespace) -> list[Digits]:
    """Read the rows of all sizes, the smallest first."""
    (parts,) = read("mnist")
    sizes = sorted({min(size, len(parts.y)) for size in options.sizes})
    rows = some_rows(len(parts.y), sizes[-1], 0)
    x = np.ascontiguousarray(parts.x[rows])
    label = np.unique(parts.y[rows], return_inverse=True)[1].astype(np.int32)
    gamma = gamma_of(x, UNHALVED)
    return [Digits(x[:size], label[:size], options.C, gamma) for size in sizes]


def run(options: argparse.Namespace) -> int:
    """Measure all sizes, if mnist is there."""
    if not is_there("mnist"):
        return 0
    print(machine(options.threads), flush=True)
    asked = problems(options)
    few = few_of_each(asked[-1].label)
    tiny = asked[-1]._replace(x=asked[-1].x[few], label=asked[-1].label[few])
    for version in VERSIONS.values():
        train(tiny, version, options)
    given_up: set[str] = set()
    calibrations: list[float] = []
    laid_out, found = [], []
    for digits in asked:
        runs = in_turns(digits, options, given_up, calibrations)
        given_up |= {name for name, of in runs.items() if not of[-1].finished}
        laid_out += lines(len(digits.label), runs)
        found += checks(len(digits.label), runs)
    print(
        f"mnist; C {options.C:g}, gamma {asked[0].gamma:.4g}, tol {options.tol:g}, kernel rows in "
        f"{options.memory}\n\n{table(HEADER, laid_out)}\n\n{noise(calibrations)}\n\n"
        f"{verdicts(found)}"
    )
    return 0
