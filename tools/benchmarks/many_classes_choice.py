"""How `many_classes_tables.py` chooses C and gamma: by cross-validation, on training rows alone.

Three grids, as the paper's is not told: a coarse one of C and of gamma in units of 1 / the average
squared distance of two rows; then a fine one of their halves and doubles about the best point of
it; last, gammas between these, at the best C. Each is of more rows, of which those of the one
before are a part. Folds are stratified. Of equals the first is taken: the smallest C, then the
smallest gamma. The first two are searched for each way that rows may be prepared, one of
`preparations.py`, and that of fewer errors is taken, of equals the first.

What has been chosen can be kept in a file of JSON, by problem and method: a list of choices, one of
each pair of training and test part. An entry says how it was chosen.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple

from many_classes_common import PROBLEMS, estimator, some_rows
from preparations import AS_THEY_ARE, PREPARATIONS, prepared
from sklearn.model_selection import StratifiedKFold
from timed_fits import UNHALVED, Contestant, Parts, fit, gamma_of, say

from bigsvm.files import replace_synced

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from pathlib import Path

COARSE_C = (0.5, 2.0, 8.0, 32.0)
COARSE_GAMMA = (0.25, 1.0, 4.0, 16.0)
FINE = (0.5, 1.0, 2.0)
LAST_GAMMA = tuple(2 ** (power / 4) for power in range(-2, 3))


def grids(options: argparse.Namespace, names: Sequence[str] = ()) -> str:
    """Say what is tried for the problems that are named."""

    def listed(values: Sequence[float]) -> str:
        return ", ".join(f"{value:g}" for value in values)

    coarse, fine, last = options.validated
    return (
        f"coarse grid, of at most {coarse} rows: C {listed(COARSE_C)}; gamma "
        f"{listed(COARSE_GAMMA)} / the average squared distance\n"
        f"fine grid, of at most {fine} rows: both times {listed(FINE)}\n"
        f"last grid, of at most {last} rows: gamma times {listed(LAST_GAMMA)}\n"
        f"{options.folds} folds, seed {options.seed}, tol {options.tol:g}"
        + "".join(
            f"\n{name}: C {listed(problem.coarse_C)} in the coarse grid"
            for name, problem in PROBLEMS.items()
            if name in names and problem.coarse_C
        )
    )


class Choice(NamedTuple):
    """A chosen point, and how it was chosen.

    Attributes
    ----------
    C, gamma : float
    error : float
        %, of the cross-validation of the last grid.
    unit : float
        Of gamma: 1 / the average squared distance of two rows.
    validated : tuple of int
        Rows of the grids.
    folds, seed : int
    unconverged : int
        Fits, of all of the grids, that did not converge.
    rows : str
        How they were prepared, one of `preparations.PREPARATIONS`.
    """

    C: float
    gamma: float
    error: float
    unit: float
    validated: tuple[int, ...]
    folds: int
    seed: int
    unconverged: int
    rows: str = AS_THEY_ARE

    def told(self) -> str:
        """Say it in a line."""
        late = f", {self.unconverged} fits not converged" if self.unconverged else ""
        before = " and ".join(map(str, self.validated[:-1]))
        return (
            f"C {self.C:g}, gamma {self.gamma:.4g} ({self.gamma / self.unit:g} / mean distance): "
            f"{self.error:.2f} % wrong in {self.folds} folds of {self.validated[-1]} random "
            f"training rows, after {before}; seed {self.seed}{late}; {self.rows}"
        )


class Tried(NamedTuple):
    """A point of a grid: % wrong over all folds, and fits that did not converge."""

    error: float
    unconverged: int


def cross_validated(
    folds: Sequence[Parts], method: str, C: float, gamma: float, options: argparse.Namespace
) -> Tried:
    """Train on the rest of each fold, and test on it."""

    def make() -> Any:  # noqa: ANN401 (a classifier)
        return estimator(method, C=C, gamma=gamma, tol=options.tol, threads=options.threads)

    wrong, unconverged = 0.0, 0
    for fold in folds:
        found = fit(Contestant(method, make), fold)
        wrong += (100 - found.accuracy) * len(fold.test_y)
        unconverged += not found.converged
    return Tried(wrong / sum(len(fold.test_y) for fold in folds), unconverged)


def folds_of(parts: Parts, preparation: str, options: argparse.Namespace) -> list[Parts]:
    """Divide training rows; each fold is prepared as the rest of the rows have it."""
    folds = StratifiedKFold(options.folds, shuffle=True, random_state=options.seed)
    x, y = parts.x, parts.y
    return [
        prepared(parts._replace(x=x[a], y=y[a], test_x=x[b], test_y=y[b]), preparation)
        for a, b in folds.split(x, y)
    ]


def best(tried: dict[tuple[float, float], Tried]) -> tuple[float, float]:
    """Find the C and gamma of fewest errors: the smallest of equals."""
    return min(sorted(tried), key=lambda point: round(tried[point].error, 9))


def choose(parts: Parts, method: str, options: argparse.Namespace) -> Choice:
    """Search the grids; see the module's docstring."""
    ways = PROBLEMS[parts.name].preparations
    found = [search(parts, method, way, options) for way in ways]
    choice = min(found, key=lambda choice: round(choice.error, 9))
    return refined(choice, parts, method, options)


def search(parts: Parts, method: str, preparation: str, options: argparse.Namespace) -> Choice:
    """Search the coarse and the fine grid for rows that are prepared so."""
    unit = gamma_of(prepared(parts, preparation).x, UNHALVED)
    of_C = PROBLEMS[parts.name].coarse_C or COARSE_C
    coarse = [(C, unit * factor) for C in of_C for factor in COARSE_GAMMA]
    first = tried(parts, method, preparation, coarse, options.validated[0], options)
    C, gamma = best(first.points)
    fine = [(C * c, gamma * g) for c in FINE for g in FINE]
    second = tried(parts, method, preparation, fine, options.validated[1], options)
    at = best(second.points)
    return Choice(
        *at, second.points[at].error, unit, (first.n_rows, second.n_rows), options.folds,
        options.seed, first.unconverged + second.unconverged, preparation,
    )  # fmt: skip


def refined(choice: Choice, parts: Parts, method: str, options: argparse.Namespace) -> Choice:
    """Search the last grid about a choice."""
    points = [(choice.C, choice.gamma * factor) for factor in LAST_GAMMA]
    last = tried(parts, method, choice.rows, points, options.validated[2], options)
    at = best(last.points)
    return choice._replace(
        gamma=at[1],
        error=last.points[at].error,
        validated=(*choice.validated, last.n_rows),
        unconverged=choice.unconverged + last.unconverged,
    )


class Grid(NamedTuple):
    """Points of a grid, how many rows they were tried on, and fits that did not converge."""

    points: dict[tuple[float, float], Tried]
    n_rows: int

    @property
    def unconverged(self) -> int:
        """Of all points."""
        return sum(found.unconverged for found in self.points.values())


def tried(
    parts: Parts,
    method: str,
    preparation: str,
    points: Sequence[tuple[float, float]],
    most: int,
    options: argparse.Namespace,
) -> Grid:
    """Try points on random rows, as many as there are at most."""
    rows = some_rows(len(parts.y), most, options.seed)
    few = parts._replace(x=parts.x[rows], y=parts.y[rows])
    folds = folds_of(few, preparation, options)
    found = {}
    for C, gamma in points:
        found[C, gamma] = one = cross_validated(folds, method, C, gamma, options)
        say(
            f"  {parts.name}, {method}: C {C:g}, gamma {gamma:.4g}: {one.error:.2f} % wrong "
            f"of {len(rows)}; {preparation}"
        )
    return Grid(found, len(rows))


class Kept:
    """Choices in a file, or nowhere.

    Parameters
    ----------
    path : Path or None
        What is there is read; it is written anew, whole or not at all, after every choice.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._choices: dict[str, dict[str, list[Choice]]] = {}
        if path is not None and path.exists():
            self._choices = read_choices(path)

    def get(
        self, name: str, method: str, parts: Sequence[Parts], options: argparse.Namespace
    ) -> list[Choice]:
        """Look a problem's choices up, one of each of its parts, or choose and keep them."""
        of_problem = self._choices.setdefault(name, {})
        if method not in of_problem:
            of_problem[method] = [choose(part, method, options) for part in parts]
            self._write()
        found = of_problem[method]
        if len(found) != len(parts):
            raise SystemExit(
                f"{self._path}: {len(found)} choices of {method} for {name}, which has "
                f"{len(parts)} training parts; remove them to choose anew"
            )
        return found

    def _write(self) -> None:
        if self._path is None:
            return
        choices = {
            name: {
                method: [choice._asdict() for choice in found] for method, found in methods.items()
            }
            for name, methods in self._choices.items()
            if methods
        }
        replace_synced(self._path, (json.dumps(choices, indent=1) + "\n").encode())


def read_choices(path: Path) -> dict[str, dict[str, list[Choice]]]:
    """Read a file of choices.

    Raises
    ------
    SystemExit
        It is none.
    """
    try:
        return {
            name: {
                method: [_choice(entry) for entry in entries] for method, entries in methods.items()
            }
            for name, methods in json.loads(path.read_text()).items()
        }
    except (ValueError, TypeError, AttributeError) as error:
        raise SystemExit(f"{path} is no file of chosen parameters: {error}") from None


def _choice(entry: dict[str, Any]) -> Choice:
    """Read an entry."""
    choice = Choice(**{**entry, "validated": tuple(entry.get("validated", ()))})
    for name in ("C", "gamma"):
        value = getattr(choice, name)
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name} is {value!r}; it must be a number > 0")
    if choice.rows not in PREPARATIONS:
        raise ValueError(f"rows is {choice.rows!r}; it must be one of {', '.join(PREPARATIONS)}")
    return choice
