"""``many_classes.py tables``: test errors as in the paper's table 2 and figure 6.

mnist, usps and letter are trained on all rows: the paper's table 2, whose errors Crammer-Singer's
are held against. The others are those of its figure 6, which compares Crammer-Singer with
one-vs-rest: 5000 random rows of mnist and letter, and of glass, which has no test part, the errors
of all folds of a cross-validation, in each of which C and gamma are chosen anew. The paper draws
its bars, and prints no numbers. It does not tell how rows were prepared, either: they are as the
files have them, or in one of the other ways of `preparations.py`, whichever errs least in the
cross-validation.

All have rbf kernels, and a C and a gamma of their own, chosen as `many_classes_choice.py` says. The
paper's one-vs-rest is its own machine of two classes, which has no bias; here it is C-SVC, which
has one. C is 1 / β of the paper, and its tolerance 0.001 is --tol.

With --chosen, parameters that the file has are taken from it, so that the final trainings can be
repeated alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from common import Check, machine, table, verdicts
from many_classes_choice import Choice, Kept, grids
from many_classes_common import PROBLEMS, estimator, few_of_each, is_there, read
from preparations import prepared
from timed_fits import Contestant, Fit, Parts, fit, say

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


class Outcome(NamedTuple):
    """A method on a problem: what was chosen and found, one of each pair of parts."""

    choices: list[Choice]
    fits: list[Fit]
    tested: list[int]

    @property
    def wrong(self) -> int:
        """Rows of all test parts with a wrong label."""
        each = zip(self.fits, self.tested, strict=True)
        return sum(round((100 - found.accuracy) * n / 100) for found, n in each)

    @property
    def error(self) -> float:
        """% of all test parts."""
        return 100 * self.wrong / sum(self.tested)


def measure(
    parts: Sequence[Parts], method: str, kept: Kept, options: argparse.Namespace
) -> Outcome:
    """Choose C and gamma, train on all rows, and test."""
    name = parts[0].name
    warm_up(parts[0], method, options)
    choices = kept.get(name, method, parts, options)
    fits = []
    for part, choice in zip(parts, choices, strict=True):
        way = prepared(part, choice.rows)
        fits.append(fit(contestant(method, choice.C, choice.gamma, options), way))
        say(f"  {name}, {method}: {100 - fits[-1].accuracy:.2f} % wrong, {fits[-1].seconds:.2f} s")
    return Outcome(choices, fits, [len(part.test_y) for part in parts])


def contestant(method: str, C: float, gamma: float, options: argparse.Namespace) -> Contestant:
    """Describe one run."""

    def make() -> Any:  # noqa: ANN401 (a classifier)
        return estimator(method, C=C, gamma=gamma, tol=options.tol, threads=options.threads)

    return Contestant(method, make)


def warm_up(parts: Parts, method: str, options: argparse.Namespace) -> None:
    """Compile and load what fits need."""
    few = few_of_each(parts.y)
    tiny = Parts(parts.name, parts.x[few], parts.y[few], parts.x[few], parts.y[few], "")
    fit(contestant(method, 1.0, 1.0, options), tiny)


HEADER = ("method", "error %", "paper's %", "wrong", "SVs", "seconds", "stopped")


def report(parts: Sequence[Parts], outcomes: dict[str, Outcome]) -> str:
    """Lay out the methods on a problem."""
    name = parts[0].name
    limit = PROBLEMS[name].limit
    lines = []
    for method, found in outcomes.items():
        told = limit if method == "crammer-singer" else None
        lines.append(
            [
                method,
                f"{found.error:.2f}",
                "-" if told is None else f"{told:.2f}",
                f"{found.wrong} of {sum(found.tested)}",
                "+".join(str(one.n_support) for one in found.fits),
                f"{sum(one.seconds for one in found.fits):.2f}",
                ", ".join(sorted({reason for one in found.fits for reason in one.reasons})),
            ]
        )
    said = [
        f"{name}: {'+'.join(str(len(part.y)) for part in parts)} rows x {parts[0].x.shape[1]}, "
        f"{'+'.join(str(len(part.test_y)) for part in parts)} to test on, "
        f"{len(set(parts[0].y))} classes",
        *([parts[0].scaled] if parts[0].scaled else []),
    ]
    chosen = [
        f"{method}: {choice.told()}" for method, o in outcomes.items() for choice in o.choices
    ]
    return "\n\n".join(["; ".join(said), table(HEADER, lines), "\n".join(chosen)])


def figure(outcomes: dict[str, dict[str, Outcome]]) -> str:
    """Give what the bars of figure 6 are: how much less Crammer-Singer errs than one-vs-rest."""
    lines = []
    for name, of in outcomes.items():
        if {"crammer-singer", "ovr"} <= of.keys():
            ours, rest = of["crammer-singer"].error, of["ovr"].error
            lines.append([name, f"{ours:.2f}", f"{rest:.2f}", f"{rest - ours:+.2f}"])
    header = ["problem", "crammer-singer %", "one-vs-rest %", "decrease in error, points"]
    return table(header, lines) if lines else ""


def checks(name: str, outcomes: dict[str, Outcome]) -> list[Check]:
    """Hold Crammer-Singer's error against the paper's, and all fits against their tolerance."""
    found, limit = [], PROBLEMS[name].limit
    if limit is not None and "crammer-singer" in outcomes:
        error = outcomes["crammer-singer"].error
        found.append(
            Check(
                f"{name}: crammer-singer, % wrong", f"{error:.2f}", f"≤ {limit:.2f}", error <= limit
            )
        )
    for method, outcome in outcomes.items():
        converged = all(one.converged for one in outcome.fits)
        found.append(Check(f"{name}: {method} converged", str(converged), "True", converged))
    return found


def run(options: argparse.Namespace) -> int:
    """Measure the problems that are there."""
    chosen = [name for name in options.data if is_there(name)]
    if not chosen:
        return 0
    kept = Kept(options.chosen)
    print(f"{machine(options.threads)}\n{grids(options, chosen)}", flush=True)
    outcomes: dict[str, dict[str, Outcome]] = {}
    found: list[Check] = []
    for name in chosen:
        parts = read(name, seed=options.seed)
        outcomes[name] = {
            method: measure(parts, method, kept, options) for method in options.methods
        }
        print(f"\n{report(parts, outcomes[name])}", flush=True)
        found += checks(name, outcomes[name])
    for block in filter(None, (figure(outcomes), verdicts(found))):
        print(f"\n{block}")
    print(f"\n{sum(check.holds for check in found)} of {len(found)} hold")
    return 0
