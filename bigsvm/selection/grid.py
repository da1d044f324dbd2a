"""A grid of parameters: which candidates are fitted on how many rows, and in which order."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from sklearn.exceptions import FitFailedWarning
from sklearn.model_selection import ParameterGrid

from bigsvm.errors import BigsvmError, ParameterError, brief
from bigsvm.selection.identity import told
from bigsvm.selection.points import Line
from bigsvm.selection.tasks import fit_lines

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Sequence
    from contextlib import AbstractContextManager

    from bigsvm.selection.fits import FoldFits
    from bigsvm.selection.record import FoldFit
    from bigsvm.selection.steps import Steps

    OnFit: TypeAlias = Callable[[dict[str, Any], int, FoldFit | None], None]

FEWEST_ROWS = 500
"""Fewest rows of the first round: scores of fewer test next to nothing."""

FEWEST_VALUES = 3
"""Fewest values of a parameter that have one between two edges."""


class Evaluated(NamedTuple):
    """A candidate that was fitted on all folds.

    Attributes
    ----------
    round : int
        From 0.
    n_rows : int
        Rows of the sample, of which each fold is trained on its part.
    fits : list of FoldFit or None
        Of each fold; None where it cannot be trained with these parameters.
    """

    parameters: dict[str, Any]
    round: int
    n_rows: int
    fits: list[FoldFit | None]


def candidates_of(
    grid: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]],
    steps: Steps,
) -> list[dict[str, Any]]:
    """List the points of a grid, or of several."""
    for part in grid if isinstance(grid, list | tuple) else [grid]:
        for name, values in part.items() if isinstance(part, Mapping) else ():
            if hasattr(values, "rvs"):
                raise ParameterError(
                    f"{name} is a distribution, and a grid has lists of values; give n_iter, which "
                    "says how many points are drawn"
                )
    try:
        candidates = [dict(point) for point in ParameterGrid(grid)]
    except (TypeError, ValueError) as error:
        raise ParameterError(f"the grid is {brief(grid)}: {error}") from None
    check_points(candidates, steps)
    return candidates


def check_points(candidates: Sequence[Mapping[str, Any]], steps: Steps) -> None:
    """Refuse points with names that are no parameters, or cannot be searched."""
    known = steps.names()
    for name in sorted({name for point in candidates for name in point}):
        if name not in known:
            raise ParameterError(
                f"the grid has {name!r}, which is no parameter of {type(steps.machine).__name__} "
                f"that can be searched; choose among {', '.join(sorted(known))}"
            )
    for point in candidates if steps.has_scalers else ():
        steps.scalers_at(point)


def rounds_of(n_candidates: int, n_rows: int, factor: int | None) -> list[tuple[int, int]]:
    """Plan successive halving: each round has `factor` times the rows, and 1 / `factor` candidates.

    Returns the numbers of candidates and of rows of each round. The last one has all rows, and so
    has the only one without a factor.
    """
    if factor is None:
        return [(n_candidates, n_rows)]
    if not isinstance(factor, int) or factor < 2:
        raise ParameterError(f"halving is {brief(factor)}; it must be a whole number of at least 2")
    more = 0
    while factor ** (more + 1) <= n_candidates and n_rows // factor ** (more + 1) >= FEWEST_ROWS:
        more += 1
    return [
        (math.ceil(n_candidates / factor**k), n_rows // factor ** (more - k))
        for k in range(more + 1)
    ]


class Rules(NamedTuple):
    """How candidates are fitted, compared and recorded.

    Candidates that differ in C alone are fitted one after the other, and each starts from the model
    before, if there are `warm_starts`.

    Attributes
    ----------
    score : str
        Name of the score by which candidates get to the next round.
    factor : int or None
        Of successive halving.
    warm_starts : bool
    checkpoint : path or None
        Folder for the results of finished fits.
    raises : bool
        Whether parameters that training refuses are an error; otherwise they have no score, which
        causes a warning.
    on_fit : callable
        Given parameters, fold and result after each fit.
    """

    score: str
    factor: int | None = None
    warm_starts: bool = True
    checkpoint: str | os.PathLike[str] | None = None
    raises: bool = False
    on_fit: OnFit = lambda *_: None

    def recorded(
        self, fits: FoldFits, points: str, names: Collection[str]
    ) -> AbstractContextManager[None]:
        """Keep the results of fits for a while, in the folder if there is one.

        They belong to a search of these `points` with these rules; parameters of the `names` differ
        from fit to fit.
        """
        search = {
            "points": points,
            "halving": f"({told(self.factor)}, {told(self.score)})",
            "warm starts": repr(self.warm_starts),
        }
        return fits.recorded(self.checkpoint, search, sorted(names))


def searched(fits: FoldFits, candidates: Sequence[dict[str, Any]], rules: Rules) -> list[Evaluated]:
    """Fit candidates on all folds.

    Returns
    -------
    list of Evaluated
        Round by round; within a round in the order of the candidates.
    """
    names = {name for point in candidates for name in point}
    tries, left = Tries(fits, rules), list(range(len(candidates)))
    rounds = rounds_of(len(candidates), fits.data.source.n_rows, rules.factor)
    with rules.recorded(fits, repr([told(point) for point in candidates]), names):
        for number, (n_candidates, n_rows) in enumerate(rounds):
            left = sorted(left[:n_candidates])
            points = [candidates[k] for k in left]
            of_round = tries.fit(points, number, n_rows if rules.factor else None)
            means = dict(zip(left, of_round, strict=True))
            left.sort(key=lambda k: by_score(means[k]))
    return tries.evaluated


class Tries:
    """Candidates that are fitted on all folds, some at a time; `evaluated` has all of them."""

    def __init__(self, fits: FoldFits, rules: Rules) -> None:
        self._fits, self._rules = fits, rules
        self.evaluated: list[Evaluated] = []

    def fit(
        self, candidates: Sequence[dict[str, Any]], number: int, n_rows: int | None
    ) -> list[float]:
        """Fit candidates on a sample, or on all rows, as a part of a round; returns mean scores."""
        fits, rules, folds = self._fits, self._rules, list(range(len(self._fits.folds)))
        results: list[list[FoldFit | None]] = [[None] * len(folds) for _ in candidates]
        by = fits.steps.name_of("C") if rules.warm_starts else None
        chains = _chains(list(enumerate(candidates)), by)
        lines = [Line([candidates[k] for k in chain], folds, n_rows) for chain in chains]
        for line, fit in fit_lines(fits, lines, name="bigsvm-search", raises=rules.raises):
            k, result = chains[line][fit.place], fit.result
            if isinstance(result, BigsvmError):
                warnings.warn(
                    f"{brief(candidates[k])} cannot be trained: {result}",
                    FitFailedWarning,
                    stacklevel=3,
                )
            else:
                results[k][fit.fold] = result
            rules.on_fit(candidates[k], fit.fold, results[k][fit.fold])
        n_rows = fits.data.source.n_rows if n_rows is None else n_rows
        self.evaluated += [
            Evaluated(candidate, number, n_rows, of_folds)
            for candidate, of_folds in zip(candidates, results, strict=True)
        ]
        return [mean_score(of_folds, rules.score) for of_folds in results]


def by_score(mean: float) -> float:
    """Key that sorts candidates by their scores, the best first and those without one last.

    Sorting is stable: the order of candidates decides among equal ones.
    """
    return -mean if math.isfinite(mean) else math.inf


def mean_score(fits: Sequence[FoldFit | None], name: str) -> float:
    """Mean of a score over the folds; NaN if one could not be trained."""
    return float(np.mean([math.nan if fit is None else fit.scores[name] for fit in fits]))


def best_of(evaluated: Sequence[Evaluated], score: str) -> int:
    """Return the place of the best candidate of the last round, the first among equal ones."""
    last = evaluated[-1].round
    means = [
        mean_score(point.fits, score) if point.round == last else math.nan for point in evaluated
    ]
    if not np.isfinite(means).any():
        raise ParameterError(
            "no point of the grid has a score; give error_score='raise' to see the reason, or, "
            "where consistency decides, smaller values of gamma, or folds of rows in random order"
        )
    return int(np.nanargmax(means))


class Edge(NamedTuple):
    """A parameter whose best value is the smallest or the largest that was tried."""

    name: str
    value: float
    is_largest: bool

    @property
    def words(self) -> str:
        """What is on which edge."""
        which = "largest" if self.is_largest else "smallest"
        return f"{self.name} {self.value:g} is the {which} value that was tried"


def edges_of(evaluated: Sequence[Evaluated], score: str) -> list[Edge]:
    """Return the parameters whose best value is on the edge of the grid.

    A parameter with fewer than three numbers has nothing but edges. Where a point that is not on
    the edge has the same score, there is nothing to be found beyond.
    """
    place = best_of(evaluated, score)
    best, top = evaluated[place], mean_score(evaluated[place].fits, score)
    equal = [
        point.parameters
        for point in evaluated
        if point.round == best.round and mean_score(point.fits, score) == top
    ]
    edges = []
    for name, value in best.parameters.items():
        tried: list[Any] = [point.parameters.get(name) for point in evaluated]
        numbers = sorted({number for number in tried if _is_number(number)})
        if not _is_number(value) or len(numbers) < FEWEST_VALUES:
            continue
        for edge, is_largest in ((numbers[0], False), (numbers[-1], True)):
            if all(_is_number(found := point.get(name)) and found == edge for point in equal):
                edges.append(Edge(name, float(value), is_largest))
    return edges


def edge_advice(edges: Sequence[Edge]) -> str | None:
    """Say in a sentence that the best point is on an edge, and what to try; None if it is not."""
    if not edges:
        return None
    told_edges = ", ".join(edge.words for edge in edges)
    beyond = ", ".join(
        f"{'larger' if edge.is_largest else 'smaller'} values of {edge.name}" for edge in edges
    )
    return f"the best point is on the edge of the grid: {told_edges}; try {beyond}"


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _chains(points: Sequence[tuple[int, dict[str, Any]]], by: str | None) -> list[list[int]]:
    """Group candidates that differ in one parameter alone, ascending; each by itself without."""
    if by is None:
        return [[k] for k, _ in points]
    chains: dict[str, list[tuple[float, int]]] = {}
    for k, point in points:
        others = repr(sorted((name, told(value)) for name, value in point.items() if name != by))
        chains.setdefault(others, []).append((point.get(by, 0.0), k))
    return [[k for _, k in sorted(chain)] for chain in chains.values()]
