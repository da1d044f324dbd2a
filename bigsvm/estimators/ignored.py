"""Parameters of scikit-learn's estimators that bigsvm ignores, and what to use instead."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

IGNORED: dict[str, tuple[tuple[Any, ...], str]] = {
    "cache_size": ((200,), "memory, the bytes of all arrays together"),
    "verbose": ((False,), "certificate_, or the progress of the command bigsvm train"),
    "probability": ((False, "deprecated"), "calibration='sigmoid'"),
}
"""For each parameter, scikit-learn's default, which causes no warning, and what to use instead."""


def warn_of_ignored(name: str, given: Mapping[str, Any]) -> None:
    """Warn once about all ignored parameters that differ from scikit-learn's defaults.

    Parameters
    ----------
    name : str
        Name of the estimator.
    given : mapping
        Parameters of the estimator.
    """
    changed = [
        f"{parameter}={given[parameter]!r} (use {instead})"
        for parameter, (defaults, instead) in IGNORED.items()
        if parameter in given and given[parameter] not in defaults
    ]
    if changed:
        warnings.warn(f"{name} ignores {', '.join(changed)}", UserWarning, stacklevel=3)
