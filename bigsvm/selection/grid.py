"""A grid of parameters: which candidates are fitted on how many rows, and in which order."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.exceptions import FitFailedWarning
from sklearn.model_selection import ParameterGrid

from bigsvm.errors import BigsvmError, ParameterError, brief
from bigsvm.selection.fits import Line
from bigsvm.selection.identity import told
from bigsvm.selection.tasks import fit_lines

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from bigsvm.estimators.base import KernelMachine
    from bigsvm.selection.fits import FoldFits
    from bigsvm.selection.record import FoldFit

FEWEST_ROWS = 500
"""Fewest rows of the first round: scores of fewer test next to nothing."""


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
    estimator: KernelMachine,
) -> list[dict[str, Any]]:
    """List the points of a grid, or of several."""
    try:
        candidates = [dict(point) for point in ParameterGrid(grid)]
    except (TypeError, ValueError) as error:
        raise ParameterError(f"the grid is {brief(grid)}: {error}") from None
    known = estimator.get_params(deep=False).keys() - {"memory", "checkpoint", "checkpoint_copy"}
    for name in sorted({name for point in candidates for name in point}):
        if name not in known:
            raise ParameterError(
                f"the grid has {name!r}, which is no parameter of {type(estimator).__name__} that "
                f"can be searched; choose among {', '.join(sorted(known))}"
            )
    return candidates


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


def searched(
    fits: FoldFits,
    candidates: Sequence[dict[str, Any]],
    *,
    score: str,
    factor: int | None,
    warm_starts: bool,
    checkpoint: str | os.PathLike[str] | None,
    raises: bool = False,
    on_fit: Callable[[dict[str, Any], int, FoldFit | None], None] = lambda *_: None,
) -> list[Evaluated]:
    """Fit candidates on all folds, recorded in a folder if one is given.

    Candidates that differ in C alone are fitted one after the other, and each starts from the model
    before.

    Parameters
    ----------
    score : str
        Name of the score by which candidates get to the next round.
    factor : int or None
        Of successive halving.
    raises : bool
        Whether parameters that training refuses are an error; otherwise they have no score, which
        causes a warning.
    on_fit : callable
        Given parameters, fold and result after each fit.

    Returns
    -------
    list of Evaluated
        Round by round; within a round in the order of the candidates.
    """
    names = sorted({name for point in candidates for name in point})
    search = {
        "points": repr([told(point) for point in candidates]),
        "halving": f"({told(factor)}, {told(score)})",
        "warm starts": repr(warm_starts),
    }
    evaluated: list[Evaluated] = []
    left, folds = list(range(len(candidates))), list(range(len(fits.folds)))
    rounds = rounds_of(len(candidates), fits.data.source.n_rows, factor)
    with fits.recorded(checkpoint, search, names):
        for number, (n_candidates, n_rows) in enumerate(rounds):
            left = sorted(left[:n_candidates])
            results: dict[int, list[FoldFit | None]] = {k: [None] * len(folds) for k in left}
            chains = _chains([(k, candidates[k]) for k in left], warm_starts=warm_starts)
            lines = [
                Line([candidates[k] for k in chain], folds, n_rows if factor else None)
                for chain in chains
            ]
            for line, fit in fit_lines(fits, lines, name="bigsvm-search", raises=raises):
                k, result = chains[line][fit.place], fit.result
                if isinstance(result, BigsvmError):
                    warnings.warn(
                        f"{brief(candidates[k])} cannot be trained: {result}",
                        FitFailedWarning,
                        stacklevel=2,
                    )
                else:
                    results[k][fit.fold] = result
                on_fit(candidates[k], fit.fold, results[k][fit.fold])
            evaluated += [Evaluated(candidates[k], number, n_rows, results[k]) for k in left]
            means = {k: mean_score(results[k], score) for k in left}
            # The order of candidates decides among equal ones.
            left.sort(key=lambda k: -means[k] if math.isfinite(means[k]) else math.inf)
    return evaluated


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
            "no point of the grid has a score; give error_score='raise' to see the reason"
        )
    return int(np.nanargmax(means))


def _chains(points: Sequence[tuple[int, dict[str, Any]]], *, warm_starts: bool) -> list[list[int]]:
    """Group candidates that differ in C alone, in ascending order of C."""
    if not warm_starts:
        return [[k] for k, _ in points]
    chains: dict[str, list[tuple[float, int]]] = {}
    for k, point in points:
        others = repr(sorted((name, told(value)) for name, value in point.items() if name != "C"))
        chains.setdefault(others, []).append((point.get("C", 0.0), k))
    return [[k for _, k in sorted(chain)] for chain in chains.values()]
