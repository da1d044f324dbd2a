"""Random points of distributions and lists of values, as scikit-learn's `ParameterSampler` has."""

from __future__ import annotations

import numbers
from typing import TYPE_CHECKING, Any

from sklearn.model_selection import ParameterSampler

from bigsvm.errors import ParameterError, brief
from bigsvm.selection.grid import check_points

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bigsvm.selection.steps import Steps


def drawn_candidates(
    grid: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    steps: Steps,
    *,
    n_iter: Any,
    random_state: Any,
    is_recorded: bool,
) -> list[dict[str, Any]]:
    """Draw `n_iter` points; lists alone are drawn from without replacement.

    Parameters
    ----------
    grid : dict or list of dict
        Lists of values, or frozen distributions of ``scipy.stats``, by the names of parameters.
    is_recorded : bool
        Whether the same points are asked for again, by a search that goes on.

    Raises
    ------
    ParameterError
    """
    if not isinstance(n_iter, numbers.Integral) or n_iter < 1:
        raise ParameterError(
            f"n_iter is {brief(n_iter)}; it must be a whole number of at least 1: how many points "
            "are drawn"
        )
    if is_recorded and not isinstance(random_state, numbers.Integral):
        raise ParameterError(
            f"random_state is {brief(random_state)}, but a search that goes on from its checkpoint "
            "draws the same points again; give a whole number"
        )
    try:
        sampler = ParameterSampler(grid, int(n_iter), random_state=random_state)
        points = [{name: _plain(value) for name, value in point.items()} for point in sampler]
    except (TypeError, ValueError) as error:
        raise ParameterError(f"points cannot be drawn from param_grid: {error}") from None
    check_points(points, steps)
    return points


def _plain(value: Any) -> Any:
    """Return a number of Python's for one of NumPy's, which draws are."""
    is_of_numpy = type(value).__module__ == "numpy" and isinstance(value, numbers.Number)
    return value.item() if is_of_numpy else value
