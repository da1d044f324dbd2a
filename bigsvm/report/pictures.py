"""Pictures by matplotlib, which is an extra: scores over C and gamma as grid.py draws them."""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.errors import DataError, ParameterError
from bigsvm.files import replace_synced

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SUFFIXES = (".png", ".svg", ".pdf")
LEVELS = 8
"""Contours, of the best scores."""


def check_picture(path: Path) -> None:
    """Refuse a picture that cannot be drawn, before the search."""
    if path.suffix not in SUFFIXES:
        raise ParameterError(f"{path} must end in {', '.join(SUFFIXES)}, the kinds of pictures")
    figure_of("pictures are drawn")


def draw_contours(path: Path, scores: Mapping[tuple[float, float], float], *, title: str) -> None:
    """Draw mean scores over log2 C and log2 gamma, the best one marked; whole or not at all.

    There is a score for each pair of values of C and gamma; NaN is no score.
    """
    costs, gammas = (sorted({pair[axis] for pair in scores}) for axis in (0, 1))
    values = np.array([[scores[C, gamma] for C in costs] for gamma in gammas])
    log_C, log_gamma = np.log2(costs), np.log2(gammas)
    figure = figure_of("pictures are drawn")(figsize=(7, 5))
    axes = figure.subplots()
    finite = values[np.isfinite(values)]
    if len(finite) and finite.min() < finite.max():
        levels = np.unique(np.quantile(finite, np.linspace(0, 1, LEVELS)))
        drawn = axes.contour(log_C, log_gamma, np.ma.masked_invalid(values), levels=levels)
        axes.clabel(drawn, fontsize=8)
    best = max((pair for pair in scores if math.isfinite(scores[pair])), key=scores.__getitem__)
    axes.plot(*np.log2(best), "r+", markersize=12)
    axes.set_xlabel("log2(C)")
    axes.set_ylabel("log2(gamma)")
    axes.set_title(f"best {title} {scores[best]:.6g}: C {best[0]:g}, gamma {best[1]:g}")
    write_figure(figure, path, path.suffix[1:], f"{path} cannot be written")


def figure_of(done: str) -> Any:  # noqa: ANN401 (a class of matplotlib)
    """Return the class of figures; `done` says in a message what matplotlib is for."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ParameterError(
            f"{done} by matplotlib ({error}); pip install 'bigsvm[plot]'"
        ) from None
    return Figure


def write_figure(figure: Any, path: Path, kind: str, failure: str) -> None:  # noqa: ANN401
    """Write a figure, whole or not at all; `failure` begins the message where it cannot be."""
    content = io.BytesIO()
    figure.savefig(content, format=kind)
    try:
        replace_synced(path, content.getvalue())
    except OSError as error:
        raise DataError(f"{failure}: {error}") from error
