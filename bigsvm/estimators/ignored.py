"""Parameters of scikit-learn's estimators that mean nothing here, and what to use instead."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

IGNORED: dict[str, tuple[tuple[Any, ...], str]] = {
    "cache_size": ((200,), "memory, the bytes of all arrays together"),
    "shrinking": ((True,), "nothing, as it changes no result"),
    "verbose": ((False,), "certificate_, or the progress of the command bigsvm train"),
    "probability": ((False, "deprecated"), "calibration='sigmoid'"),
}
"""The defaults of scikit-learn, for which there is no warning, and what to use instead."""


def warn_of_ignored(name: str, given: Mapping[str, Any]) -> None:
    """Warn once of all parameters that are ignored and have another value than scikit-learn's.

    Parameters
    ----------
    name : str
        Of the estimator.
    given : mapping
        Its parameters.
    """
    changed = [
        f"{parameter}={given[parameter]!r} (use {instead})"
        for parameter, (defaults, instead) in IGNORED.items()
        if parameter in given and given[parameter] not in defaults
    ]
    if changed:
        warnings.warn(f"{name} ignores {', '.join(changed)}", UserWarning, stacklevel=3)
