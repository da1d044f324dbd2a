"""What the results of fits belong to: data, folds, scores and parameters, in words and hashes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import xxhash

from bigsvm.errors import brief
from bigsvm.estimators.arguments import IGNORED
from bigsvm.identity import identity_of
from bigsvm.kernels import Kernel
from bigsvm.parameters import FIELDS
from bigsvm.parameters.declaration import declaration_of
from bigsvm.selection.folds import digest_of
from bigsvm.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bigsvm.estimators.base import KernelMachine
    from bigsvm.selection.folds import Data, Fold


def belongings_of(
    estimator: KernelMachine,
    data: Data,
    folds: Sequence[Fold],
    scoring: Any,
    *,
    with_train_scores: bool,
    searched: Sequence[str],
) -> dict[str, str]:
    """Describe what the results of fits belong to, so that others are not taken for them.

    Parameters in `searched` differ from fit to fit, and are left out.
    """
    hasher = xxhash.xxh3_128()
    for values in (data.truth, data.weights):
        if values is not None:
            is_of_objects = values.dtype.kind == "O"
            hasher.update(repr(values.tolist()).encode() if is_of_objects else values.tobytes())
    parameters, kind = estimator._parameters(), type(estimator)
    # Such as break_ties: scores depend on them, and training does not.
    own = kind._own_parameters - {"warm_start", "verbose", *IGNORED, *searched}
    return {
        "data": data.source.fingerprint(),
        "labels and weights": hasher.hexdigest(),
        "folds": digest_of(folds),
        "estimator": kind.__name__ if kind.__module__.startswith("bigsvm.") else told(kind),
        "scoring": told(scoring),
        "train scores": repr(with_train_scores),
        "bigsvm": __version__,
        **{name: told(getattr(estimator, name)) for name in sorted(own)},
        **{
            name: told(getattr(parameters, name))
            for name, field in FIELDS.items()
            if (declaration_of(field).recorded or name in ("tol", "ball_tol"))
            and name not in searched
        },
    }


def told(value: object) -> str:
    """Describe a score or a parameter by what it computes, in words of any process."""
    if isinstance(value, dict):
        return repr({name: told(each) for name, each in value.items()})
    if isinstance(value, Kernel):
        return value.recorded
    if isinstance(value, set):
        return repr(sorted(value, key=repr))
    if callable(value):
        return f"{getattr(value, '__qualname__', type(value).__name__)} {identity_of(value)}"
    try:
        return repr(value)
    except ValueError:  # a whole number of more than 4300 digits, which no parameter may be
        return brief(value)
