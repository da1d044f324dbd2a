"""Messages between the coordinator and the workers: what tasks are given, and what they return."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigsvm.data.rows import bytes_of

if TYPE_CHECKING:
    from bigsvm.arrays import F8, I8
    from bigsvm.data.row_source import Convert, RowSource
    from bigsvm.data.rows import Rows
    from bigsvm.gram.partners import Weights
    from bigsvm.kernels import Kernel


class WorkerTerms(NamedTuple):
    """What a run may take of workers.

    Attributes
    ----------
    memory : int or None
        Bytes on each; half of the worker's limit if None.
    wait : float or None
        Seconds that the run waits for a first worker, or for another one when all are gone;
        without limit if None.
    """

    memory: int | None = None
    wait: float | None = None


class Ascending(NamedTuple):
    """Ascending row numbers in few bytes: the first one, and the steps between them, compressed."""

    first: int
    dtype: str
    steps: bytes

    @classmethod
    def of(cls, numbers: I8) -> Ascending:
        """Encode (m,) ascending numbers, m > 0."""
        steps = np.diff(numbers)
        dtype = np.min_scalar_type(int(steps.max(initial=0)))
        return cls(int(numbers[0]), dtype.str, zlib.compress(steps.astype(dtype).data, 1))

    def numbers(self) -> I8:
        """Return the numbers, (m,) int64."""
        steps = np.frombuffer(zlib.decompress(self.steps), self.dtype)
        numbers = np.empty(len(steps) + 1, np.int64)
        numbers[0] = self.first
        np.cumsum(steps, out=numbers[1:])
        numbers[1:] += self.first
        return numbers

    @property
    def nbytes(self) -> int:
        """Bytes that are sent."""
        return 8 + len(self.steps)


class SentPiece:
    """Rows, (p, d), and weights, (p,) or (p, k), as they are sent to workers.

    The name is unique, as packed partners are kept under it; `start` is the place of the first row
    among all that are sent.
    """

    def __init__(self, name: str, start: int, rows: Rows, weights: Weights) -> None:
        self.name, self.start, self.rows, self.weights = name, start, rows, weights

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return bytes_of(self.rows) + bytes_of(self.weights)

    def __sizeof__(self) -> int:
        return 100 + self.nbytes


class Job(NamedTuple):
    """What a worker has to know of a run.

    Attributes
    ----------
    source : RowSource or None
        Rows that another process can read; None if they are sent.
    kernel : Kernel or None
        None where tasks find kernels of their own, or compute no kernel values.
    is_sparse : bool
        Whether the rows are sparse.
    convert : callable or None
        Makes rows of a block that is sent, as `RemoteBlocks` has it; None where rows are sent.
    """

    source: RowSource | None
    kernel: Kernel | None
    centre: F8 | None
    offset: float
    is_sparse: bool
    convert: Convert | None = None


class SentJob(NamedTuple):
    """A pickled `Job` and its names; read within a task, where an error has a place to go to.

    Jobs over the same rows have one name for these, `rows`: workers keep units under it.
    """

    run: str
    name: str
    pickled: bytes
    rows: str = ""

    @property
    def nbytes(self) -> int:
        """Bytes of the pickled job."""
        return len(self.pickled)


class Unit(NamedTuple):
    """Rows ``start … stop - 1`` of a source, which a worker keeps together.

    `rows` has them the first time, if the job has no source; or the block that they are made of.
    """

    start: int
    stop: int
    rows: Any = None


class Chosen(NamedTuple):
    """Rows of a unit: those `listed`, or ``start … stop - 1`` without those at `skipped` places.

    Listed numbers are those of the source, places are counted from `start`.
    """

    start: int
    stop: int
    listed: Ascending | None = None
    skipped: Ascending | None = None

    def kept(self) -> I8:
        """Return the numbers of the rows, ascending."""
        if self.listed is not None:
            return self.listed.numbers()
        rows = np.arange(self.start, self.stop)
        return rows if self.skipped is None else np.delete(rows, self.skipped.numbers())

    @property
    def nbytes(self) -> int:
        """Bytes that are sent."""
        return 16 + sum(part.nbytes for part in (self.listed, self.skipped) if part is not None)


class NotKept(NamedTuple):
    """What a task returns instead: an error would be in the logs of the worker."""


class Done(NamedTuple):
    """What a task returns, and what it has cost.

    `values` are an array, CSR rows, or a list of results that count their bytes. `digest` is that
    of `replies.digest_of`, computed on the worker.
    """

    values: Any
    evaluations: int
    bytes_read: int
    seconds: float
    cpu_seconds: float
    digest: str = ""

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays among the values."""
        if isinstance(self.values, list):
            return sum(one.nbytes for one in self.values)
        return bytes_of(self.values)


class Opened(NamedTuple):
    """What a worker says when a run begins.

    Attributes
    ----------
    versions : dict
        Of bigsvm, numpy, numba and llvmlite, and the name of the processor.
    limit, memory : int
        Bytes that Dask lets the worker take, and those that are left for a run.
    """

    versions: dict[str, str]
    limit: int
    memory: int
