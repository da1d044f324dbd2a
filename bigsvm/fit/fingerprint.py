"""What a checkpoint, kernel rows on disk and a model record about where they come from."""

from __future__ import annotations

import uuid
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xxhash

from bigsvm.duals.problem import FingerprintEntry
from bigsvm.identity import NOT_COMPARABLE
from bigsvm.kernels import Kernel, identity_of_kernel
from bigsvm.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from bigsvm.arrays import F8
    from bigsvm.data.row_source import RowSource
    from bigsvm.gram import KernelTiles
    from bigsvm.parameters import TrainingParameters


SAVED_BY = ".".join(__version__.split(".")[:2])
"""What of the version a saved run must agree with."""


def recorded_rules(parameters: TrainingParameters) -> dict[str, str]:
    """List rules that a checkpoint must agree with: with others it goes on to other bits."""
    rules = {}
    if parameters.working_set == "all" and parameters.shrinking is not None:
        rules["shrinking"] = repr(bool(parameters.shrinking))
    if not (parameters.certify or (parameters.merges_rows and parameters.compares_rows)):
        # The variables of a certified run are others.
        rules["certify"] = repr(False)
    return rules


class Recorded(NamedTuple):
    """What the fingerprint of a checkpoint records of the problems.

    Attributes
    ----------
    per_row : (n,) array, and (n,) float64 or None
        Labels or targets, and weights.
    chosen : mapping
        Parameters of the problem, as `Problem.chosen` returns them.
    """

    formulation: str
    per_row: tuple[NDArray[Any], F8 | None]
    chosen: Mapping[str, Any]
    class_weights: Any
    others: Mapping[str, str]


def fingerprint_of(source: RowSource, kernel: Kernel, recorded: Recorded) -> dict[str, str]:
    """List what a checkpoint must agree with, readable where a person will compare."""
    labels, weights = recorded.per_row
    hasher = xxhash.xxh3_128(np.ascontiguousarray(labels).data)
    if weights is not None:
        hasher.update(weights.data)
    return {
        FingerprintEntry.DATA: source.fingerprint(),
        FingerprintEntry.LABELS: hasher.hexdigest(),
        "formulation": recorded.formulation,
        **{name: repr(value) for name, value in recorded.chosen.items()},
        **recorded.others,
        FingerprintEntry.CLASS_WEIGHTS: repr(recorded.class_weights),
        "kernel": _recorded(kernel),
        "bigsvm": SAVED_BY,
    }


def provenance_of(
    parameters: TrainingParameters,
    source: RowSource,
    kernel: Kernel,
    class_weights: Iterable[float] | None,
    fingerprint: dict[str, str],
) -> dict[str, Any]:
    """List where a model comes from, as JSON can say it."""
    identity, given = identity_of_kernel(kernel, versions=False), parameters.kernel
    unlimited = parameters.max_seconds == float("inf")
    names = source.feature_names
    return {
        "bigsvm": __version__,
        "parameters": {
            **vars(parameters),
            "kernel": asdict(given) if isinstance(given, Kernel) else given,
            "max_seconds": None if unlimited else parameters.max_seconds,
            "class_weight": None if class_weights is None else list(class_weights),
        },
        "data": fingerprint[FingerprintEntry.DATA],
        "n_rows": source.n_rows,
        "first_index": source.first_index,
        **({} if identity is None else {"kernel": identity}),
        **({} if names is None else {"feature_names": list(names)}),
        **({} if source.encoding is None else {"encoding": source.encoding}),
    }


def _recorded(kernel: Kernel) -> str:
    """Give what of the kernel a saved run must agree with."""
    word = kernel.recorded
    # What cannot be compared agrees with nothing, so that no run goes on with another formula.
    return f"{word} ({uuid.uuid4().hex})" if NOT_COMPARABLE in word else word


def fingerprint_of_kernel_rows(
    source: RowSource, kernel: Kernel, *, offset: float
) -> dict[str, str]:
    """List what a kernel row is valid for: neither labels nor C, so that others find it again."""
    raised = {"offset": repr(offset)} if offset else {}
    same = {"data": source.fingerprint(), "kernel": _recorded(kernel), "bigsvm": SAVED_BY}
    return {**same, "rows": str(source.n_rows), **raised}


def fingerprint_of_kernel_values(source: RowSource, tiles: KernelTiles) -> dict[str, str]:
    """List what a kernel value is valid for, to the last bit."""
    centre = b"" if tiles.centre is None else tiles.centre.tobytes()
    rows = fingerprint_of_kernel_rows(source, tiles.kernel, offset=tiles.offset)
    return {**rows, "centre": xxhash.xxh3_128_hexdigest(centre)}
