"""What the results of fits belong to: data, folds, scores and parameters, in words and hashes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import xxhash

from bigsvm.parameters import FIELDS
from bigsvm.parameters.declaration import declaration_of
from bigsvm.selection.folds import digest_of
from bigsvm.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bigsvm.estimators.base import KernelMachine
    from bigsvm.selection.common import Data
    from bigsvm.selection.folds import Fold


def identity_of(
    estimator: KernelMachine,
    data: Data,
    folds: Sequence[Fold],
    scoring: Any,
    *,
    with_train_scores: bool,
    searched: Sequence[str],
) -> dict[str, str]:
    """Describe what the results of fits belong to, so that others are not taken for them.

    Parameters
    ----------
    estimator : KernelMachine
    data : Data
    folds : sequence of Fold
    scoring, with_train_scores
        As `FoldFits` takes them.
    searched : sequence of str
        Parameters that differ from fit to fit, and are left out.
    """
    hasher = xxhash.xxh3_128()
    for values in (data.truth, data.weights):
        if values is not None:
            is_of_objects = values.dtype.kind == "O"
            hasher.update(repr(values.tolist()).encode() if is_of_objects else values.tobytes())
    parameters = estimator._parameters()
    return {
        "data": data.source.fingerprint(),
        "labels and weights": hasher.hexdigest(),
        "folds": digest_of(folds),
        "scoring": _named(scoring),
        "train scores": repr(with_train_scores),
        "bigsvm": __version__,
        **{
            name: repr(getattr(parameters, name))
            for name, field in FIELDS.items()
            if (declaration_of(field).recorded or name in ("tol", "ball_tol"))
            and name not in searched
        },
    }


def _named(scoring: Any) -> str:
    """Describe scores by words that another process would use too."""
    if isinstance(scoring, dict):
        return repr({name: _named(scorer) for name, scorer in scoring.items()})
    return str(getattr(scoring, "__qualname__", None) or repr(scoring))
