"""Checks of replies: what a worker returns is held to what its call asks for before it is used.

This module sees replies only, whatever sends them. A task signs its reply where it is computed
(`sign`); `checked` looks at the digest, and at types, shapes and numbers.
"""

from __future__ import annotations

import math
import pickle
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import xxhash

from bigsvm.executors.messages import Done, NotKept, Opened

if TYPE_CHECKING:
    from collections.abc import Callable, Collection


class ReplyError(Exception):
    """A reply that cannot be used; the message follows the name of the worker."""


class Expected(NamedTuple):
    """What a call has to return.

    Attributes
    ----------
    shape : tuple of int or None
        Of an array or of CSR rows; None stands for any number.
    dtype : numpy dtype
    is_sparse : bool
        Whether it is CSR rows.
    may_overflow : bool
        Whether values may be infinite or NaN: kernel values of large numbers are.
    """

    shape: tuple[int | None, ...]
    dtype: np.dtype[Any] = np.dtype(np.float64)
    is_sparse: bool = False
    may_overflow: bool = False

    def fault_of(self, values: Any) -> str:
        """Return what is wrong with values; empty if they are right."""
        kind = sp.csr_array if self.is_sparse else np.ndarray
        if type(values) is not kind:
            return f"returned {_shown(values)} instead of {kind.__name__}"
        shape = tuple(b if a is None else a for a, b in zip(self.shape, values.shape, strict=False))
        if values.shape != shape or values.dtype != self.dtype:
            return (
                f"returned {values.dtype} values of shape {values.shape} instead of {self.dtype} "
                f"of shape {self.shape}"
            )
        if self.is_sparse and not _is_valid(values):
            return "returned sparse rows with wrong indices"
        numbers = values.data if self.is_sparse else values
        if not self.may_overflow and not np.isfinite(numbers).all():
            return "returned NaN or infinite values"
        return ""


class Listed(NamedTuple):
    """A call that has to return a list, which is sent pickled.

    Attributes
    ----------
    length : int
    fault_of_one : callable
        Given the place of an item and the item, returns what is wrong with it; empty if nothing is.
    """

    length: int
    fault_of_one: Callable[[int, Any], str]

    def fault_of(self, values: Any) -> str:
        """Return what is wrong with values; empty if they are right."""
        if type(values) is not list:
            return f"returned {_shown(values)} instead of a list"
        if len(values) != self.length:
            return f"returned {len(values)} results instead of {self.length}"
        return next(filter(None, map(self.fault_of_one, range(len(values)), values)), "")


def sign(done: Done) -> Done:
    """Add the digest of its values to a result, on the worker; a list is pickled first."""
    if isinstance(done.values, list):
        from distributed.protocol.pickle import dumps

        done = done._replace(values=dumps(done.values))
    return done._replace(digest=digest_of(done.values))


def digest_of(values: Any) -> str:
    """XXH3 of the bytes of an array, of CSR rows, or of a pickled list."""
    digest = xxhash.xxh3_128()
    parts = (values.data, values.indices, values.indptr) if sp.issparse(values) else (values,)
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(f"{part.dtype.str}{part.shape}".encode())
            part = np.ascontiguousarray(part).reshape(-1).view(np.uint8).data
        digest.update(part)
    return digest.hexdigest()


def answers_in(reply: Any, count: int) -> list[Any]:
    """Return the answers to the calls of a task."""
    if type(reply) is not list:
        raise ReplyError(f"returned {_shown(reply)} instead of the results of a task")
    if len(reply) != count:
        raise ReplyError(f"returned {len(reply)} results instead of {count}")
    return reply


def checked(done: Any, expected: Expected | Listed) -> Done | NotKept:
    """Return an answer to a call whose digest, costs and values are right; lists are unpickled."""
    if type(done) is NotKept:
        return done
    if type(done) is not Done:
        raise ReplyError(f"returned {_shown(done)} instead of a result")
    for name in ("evaluations", "bytes_read"):
        if not _is_count(getattr(done, name)):
            raise ReplyError(f"returned {_shown(getattr(done, name))} for {name}")
    for name in ("seconds", "cpu_seconds"):
        value = getattr(done, name)
        if not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise ReplyError(f"returned {_shown(value)} for {name}")
    values: Any = done.values
    is_packed = isinstance(expected, Listed) and isinstance(values, bytes)
    if not is_packed and (fault := expected.fault_of(values)):
        raise ReplyError(fault)
    if digest_of(values) != done.digest:
        raise ReplyError("returned other values than it has computed")
    if is_packed:
        try:
            values = pickle.loads(values)
        except Exception as error:
            raise ReplyError(f"returned results that cannot be unpickled ({error})") from error
        if fault := expected.fault_of(values):
            raise ReplyError(fault)
    return done._replace(values=values)


def fault_of_opened(opened: Any, names: Collection[str]) -> str:
    """Return the fault of what a worker told when it was opened; `names` are those of versions."""
    if type(opened) is not Opened:
        return f"returned {_shown(opened)} when it was opened"
    versions = opened.versions
    if not isinstance(versions, dict) or any(type(versions.get(name)) is not str for name in names):
        return f"returned {_shown(versions)} as its versions"
    if not (_is_count(opened.limit) and _is_count(opened.memory)):
        return f"returned {_shown((opened.limit, opened.memory))} as its memory"
    return ""


def _is_count(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= 0


def _is_valid(rows: Any) -> bool:
    """Whether the indices of CSR rows are within the columns, and ascend in each row."""
    indptr, indices, (m, d) = rows.indptr, rows.indices, rows.shape
    n = len(rows.data)
    if len(indices) != n or len(indptr) != m + 1 or indptr[0] != 0 or indptr[-1] != n:
        return False
    if (np.diff(indptr) < 0).any() or (n and not 0 <= indices.min() <= indices.max() < d):
        return False
    begins = np.zeros(n + 1, np.bool_)
    begins[indptr] = True
    return bool(((np.diff(indices) > 0) | begins[1:n]).all()) if n else True


def _shown(value: Any) -> str:
    """Show a value, if it is short, or its type."""
    if value is None or isinstance(value, str | bytes | int | float):
        shown = repr(value)
        return shown if len(shown) <= 40 else f"{shown[:40]}…"
    return type(value).__name__
