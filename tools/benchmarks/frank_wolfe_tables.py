"""``frank_wolfe.py tables``: accuracy and seconds of every solver, beside the paper's.

As in sections 5.2 and 5.5 of frank-wolfe.txt: ε = 1e-6, samples of 59 rows, one-versus-one where
there are more classes than two; rbf kernel exp(-d²/σ²), as LibCVM has it where the paper prints
2σ², σ² the average squared distance of two training rows. C comes from the paper's grid, 2^0 to
2^12: the best in validation on a random 30 % of the training part, of at most 10 000 rows, of
certified models of all the other rows, and the smallest of equals. The paper takes CVM's, which are
the same models. As there, σ of usps and pendigits is searched for too: the average distance, times
or divided by the square root of 2, 4 or 8.

``sampled`` is certify=False, over seeds; ``certified`` one run. Held against the paper's accuracy:
the mean of the sampled ones, which may be its standard deviation below that of the same method (of
pairwise, below the best of the three); and the certified ones, which may be 0.1 below CVM's.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any, NamedTuple

import frank_wolfe_paper as paper
import numpy as np
from common import Check, machine, table, verdicts
from frank_wolfe_common import (
    SAMPLING,
    Contestant,
    Fit,
    Parts,
    fit,
    gamma_of,
    is_there,
    mean_and_deviation,
    read,
    say,
    warm_up,
)
from sklearn.multiclass import OneVsOneClassifier

from bigsvm import L2SVC

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

GRID = tuple(2.0**k for k in range(13))
VALIDATED = 0.3
MOST_VALIDATED = 10_000
SIGMAS = tuple(2.0**k for k in range(-3, 4))
"""Factors of gamma where sigma is searched for."""
BELOW_CVM = 0.1
"""Percentage points: 10 of 10 000 rows."""
LEAST_PATIENCE = 2.0
"""Seconds of a pair of classes, of which there are 325 in letter."""


class Setting(NamedTuple):
    """What all runs on a data set have in common.

    Attributes
    ----------
    gamma : float
    patience : float
        Seconds of a run, shared out over the pairs of classes.
    threads : int
    """

    gamma: float
    patience: float
    threads: int


class Chosen(NamedTuple):
    """The C and gamma of a data set, their accuracy, and how many of the grid were certified."""

    C: float
    gamma: float
    accuracy: float
    n_certified: int
    n_tried: int


class Outcome(NamedTuple):
    """What has been measured on a data set: per solver, the sampled fits and the certified one."""

    parts: Parts
    setting: Setting
    chosen: Chosen
    sampled: dict[str, list[Fit]]
    certified: dict[str, Fit]


def contestant(
    parts: Parts, setting: Setting, *, solver: str, C: float, certify: bool, seed: int = 0
) -> Contestant:
    """Describe one run."""

    def make() -> Any:  # noqa: ANN401 (an estimator, or many)
        model = L2SVC(
            C,
            solver=solver,
            sampling=SAMPLING,
            certify=certify,
            gamma=setting.gamma,
            max_time=max(setting.patience / parts.n_pairs, LEAST_PATIENCE),
            n_jobs=setting.threads,
            random_state=seed,
        )
        return model if parts.n_pairs == 1 else OneVsOneClassifier(model)

    return Contestant(f"{solver}, {'certified' if certify else 'sampled'}", make)


def choose(parts: Parts, setting: Setting) -> Chosen:
    """Validate the grid; see the module's docstring."""
    n = len(parts.y)
    order = np.random.default_rng(0).permutation(n)
    n_validated = round(VALIDATED * n)
    held_out, rest = np.split(order, [min(n_validated, MOST_VALIDATED)])
    split = parts._replace(
        x=parts.x[rest], y=parts.y[rest], test_x=parts.x[held_out], test_y=parts.y[held_out]
    )
    fits = {}
    for factor in SIGMAS if parts.name in paper.SIGMA_SEARCHED else (1.0,):
        here = setting._replace(gamma=factor * setting.gamma)
        for C in GRID:
            run = contestant(split, here, solver="pairwise", C=C, certify=True)
            found = fits[C, here.gamma] = fit(run, split)
            say(
                f"  C {C:g}, gamma {here.gamma:.4g}: {found.accuracy:.2f} % of {len(held_out)}, "
                f"{found.seconds:.2f} s"
            )
    best = max(fits, key=lambda point: fits[point].accuracy)  # the first of equals
    n_certified = sum(found.converged for found in fits.values())
    return Chosen(*best, fits[best].accuracy, n_certified, len(fits))


def measure(parts: Parts, options: argparse.Namespace) -> Outcome:
    """Choose C, then run every solver."""
    setting = Setting(gamma_of(parts.x), options.patience, options.threads)
    say(f"{parts.name}: {len(parts.y)} rows")
    runs = [
        contestant(parts, setting, solver=solver, C=1.0, certify=certify)
        for solver in dict.fromkeys([*options.solvers, "pairwise"])
        for certify in (False, True)
    ]
    warm_up(runs, parts)
    chosen = choose(parts, setting)
    setting = setting._replace(gamma=chosen.gamma)
    sampled: dict[str, list[Fit]] = {solver: [] for solver in options.solvers}
    for seed in range(options.seeds):
        for solver, fits in sampled.items():
            run = contestant(parts, setting, solver=solver, C=chosen.C, certify=False, seed=seed)
            fits.append(fit(run, parts))
            say(f"  {run.name}, seed {seed}: {fits[-1].accuracy:.2f} %, {fits[-1].seconds:.2f} s")
    certified = {}
    for solver in options.solvers:
        run = contestant(parts, setting, solver=solver, C=chosen.C, certify=True)
        certified[solver] = found = fit(run, parts)
        say(f"  {run.name}: {found.accuracy:.2f} %, {found.seconds:.2f} s")
    return Outcome(parts, setting, chosen, sampled, certified)


def report(outcome: Outcome) -> str:
    """Lay out the runs on a data set."""
    parts, setting, chosen, sampled, certified = outcome
    lines = []
    for solver, fits in sampled.items():
        told, took = paper.ACCURACY[parts.name].get(solver), paper.SECONDS[parts.name].get(solver)
        one = certified[solver]
        lines.append(
            [
                solver,
                mean_and_deviation([f.accuracy for f in fits]),
                "-" if told is None else f"{told.mean:.2f} ± {told.deviation:.2f}",
                f"{statistics.fmean(f.seconds for f in fits):.2f}",
                "-" if took is None else f"{took.mean:g}",
                f"{statistics.fmean(f.n_support for f in fits):.0f}",
                f"{one.accuracy:.2f}",
                f"{one.seconds:.2f}",
                one.n_sweeps,
                one.n_support,
                one.converged,
            ]
        )
    header = [
        *("solver", "sampled %", "paper's %", "seconds", "paper's seconds", "SVs"),
        *("certified %", "seconds", "sweeps", "SVs", "converged"),
    ]
    n_classes = len(set(parts.y))
    said = [
        f"{parts.name}: {len(parts.y)} rows x {parts.x.shape[1]}, {len(parts.test_y)} to test on, "
        f"{n_classes} classes",
        f"gamma {setting.gamma:.4g}, C {chosen.C:g} ({chosen.accuracy:.2f} % in validation)",
        *([parts.scaled] if parts.scaled else []),
    ]
    blocks = ["; ".join(said), table(header, lines), "\n".join(notes(outcome))]
    return "\n\n".join(filter(None, blocks))


def notes(outcome: Outcome) -> list[str]:
    """Say what did not come to its end, and where the paper did something else."""
    patience = outcome.setting.patience
    n_certified, n_tried = outcome.chosen.n_certified, outcome.chosen.n_tried
    said = []
    if outcome.parts.name in paper.SIGMA_SEARCHED:
        said.append("sigma was searched for, as in the paper")
    if n_certified < n_tried:
        said.append(
            f"C was chosen among models of which {n_tried - n_certified} of {n_tried} were not "
            f"certified in {patience:g} s"
        )
    for solver, one in outcome.certified.items():
        if not one.converged:
            said.append(
                f"{solver} was not certified: {', '.join(one.reasons)}, allowed {patience:g} s"
            )
    for solver, fits in outcome.sampled.items():
        others = {reason for f in fits for reason in f.reasons} - {"sampled"}
        if others:
            said.append(f"sampled {solver} did not end at a sample: {', '.join(sorted(others))}")
    return said


def checks(outcome: Outcome) -> list[Check]:
    """Hold the accuracies against the paper's."""
    name = outcome.parts.name
    told = paper.ACCURACY[name]
    found = []
    for solver, fits in outcome.sampled.items():
        reported = told.get(solver, paper.best(name))
        limit = reported.mean - reported.deviation
        mean = statistics.fmean(f.accuracy for f in fits)
        found.append(_at_least(f"{name}: sampled {solver}, %", mean, limit))
    limit = told["cvm"].mean - BELOW_CVM
    for solver, one in outcome.certified.items():
        found.append(_at_least(f"{name}: certified {solver}, %", one.accuracy, limit))
    return found


def _at_least(name: str, found: float, limit: float) -> Check:
    return Check(name, f"{found:.3f}", f"≥ {limit:.3f}", found >= limit)


def run(options: argparse.Namespace) -> int:
    """Measure the data sets that are there."""
    chosen: Sequence[str] = [name for name in options.data if is_there(name)]
    if not chosen:
        return 0
    print(machine(options.threads))
    found: list[Check] = []
    for name in chosen:
        outcome = measure(read(name), options)
        print(f"\n{report(outcome)}", flush=True)
        found += checks(outcome)
    print(f"\n{verdicts(found)}")
    print(f"\n{sum(check.holds for check in found)} of {len(found)} hold")
    return 0
