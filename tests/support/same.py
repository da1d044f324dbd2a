"""Two results are the same to the bit."""

import dataclasses

import numpy as np
import scipy.sparse as sp

from bigsvm.training.result import MEASURED

COSTS = frozenset({
    *MEASURED, "bytes_read", "row_misses", "row_reads", "n_kernel_evaluations", "rows_swept",
})  # fmt: skip
"""Fields of a certificate that depend on memory, threads and interruptions."""


def assert_same_bits(found, expected, *, but=()):
    """Hold a result to another of its type: all fields, arrays, and numbers within.

    Parameters
    ----------
    found, expected : dataclass, tuple, dict, sparse array, array or scalar
    but : collection of str
        Names of fields that may differ, besides `COSTS`.
    """
    _compare(found, expected, COSTS.union(but), type(expected).__name__)


def without_measured(certificate):
    """Return a certificate as files of models have it."""
    return {name: value for name, value in certificate.items() if name not in MEASURED}


def assert_same_model(found, expected):
    """Hold a model to another one, which may have been trained by another command."""
    assert_same_bits(found, expected, but={"provenance"})


def _compare(found, expected, but, name):
    assert type(found) is type(expected), name
    if sp.issparse(expected):
        assert found.shape == expected.shape, name
        for part in ("data", "indices", "indptr"):
            _compare(getattr(found, part), getattr(expected, part), but, f"{name}.{part}")
    elif isinstance(expected, np.ndarray):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape), name
        assert found.tobytes() == expected.tobytes(), f"{name}: {found} is not {expected}"
    elif isinstance(expected, dict):
        # Files of models have no measured figures.
        assert found.keys() - but == expected.keys() - but, name
        for key in expected.keys() - but:
            _compare(found[key], expected[key], but, f"{name}[{key!r}]")
    elif dataclasses.is_dataclass(expected) or hasattr(expected, "_fields"):
        for field in _fields(expected):
            if field not in but:
                _compare(getattr(found, field), getattr(expected, field), but, f"{name}.{field}")
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected), name
        for i, (one, other) in enumerate(zip(found, expected, strict=True)):
            _compare(one, other, but, f"{name}[{i}]")
    else:
        assert found == expected, name


def _fields(record):
    if dataclasses.is_dataclass(record):
        return [field.name for field in dataclasses.fields(record)]
    return record._fields
