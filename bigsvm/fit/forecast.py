"""Forecast: what training will take, from fits of nested samples of its rows.

Support vectors at their bounds, and the others, grow with the rows as powers that the samples show:
with ν, at least a share ν of the rows are support vectors. In the end time grows as the
rows times the support vectors, as kernel values do. In small samples other work weighs more, and
time grows less: between the two the exponent is taken to be their mean.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigsvm.budget import parse_bytes
from bigsvm.compilation import compilations
from bigsvm.data.sources import as_row_source
from bigsvm.data.wrappers import ChosenRows, narrowed
from bigsvm.errors import ParameterError
from bigsvm.fit.left_out import leave_out
from bigsvm.fit.one_vs_one import OneVsOneReduction
from bigsvm.fit.problem import Given
from bigsvm.fit.train import reduction_of, train_model
from bigsvm.parameters import FIELDS
from bigsvm.parameters.checks import check_parameters
from bigsvm.parameters.declaration import declaration_of
from bigsvm.parameters.formulations import WITH_CLASSES
from bigsvm.training.checkpoint import KEPT
from bigsvm.training.events import WARNINGS, Hooks, Sampled
from bigsvm.working_sets.choice import DIRECT_ROWS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from bigsvm.arrays import F8, I8
    from bigsvm.data.row_source import RowSource
    from bigsvm.executors.sizing import WorkerMemory
    from bigsvm.parameters import TrainingParameters
    from bigsvm.training.events import Event

FIRST_ROWS = 1000
"""Rows of the first sample: fewer say little about the next."""
LEAST_OF_CLASS = 5
"""Rows of each class that a sample has at least, where there are so many."""
MOST_SPENT = 0.06
"""Share of the expected time that samples take at most, the next one included."""
FITTED_SAMPLES = 3
"""Samples from which the growth of support vectors is found: small ones grow otherwise."""
LABELS_AT_ONCE = 1 << 20
"""Labels that are sorted together, in a few megabytes."""
FEWEST_ALIKE = 5 * DIRECT_ROWS
"""From this number of rows on, a sample that is trained as all rows are is a small part of them."""
COPIED_SHARE = 8
"""Samples of an array are copied if they take at most this part of the memory."""
DOUBT = 0.1
"""The exponent of growth may be wrong by this, either way."""
TIME_DOUBT = 1.4
"""Factor that times may be off by, besides the doubt about support vectors."""


class Sample(NamedTuple):
    """A fit of some rows.

    Attributes
    ----------
    n_rows, n_support, n_bounded, n_sweeps : int
        `n_bounded` support vectors are at their bounds.
    seconds : float
    is_alike : bool
        Whether training takes the way that it takes for all rows: up to `DIRECT_ROWS` rows are one
        working set from the start, which grows in time otherwise.
    """

    n_rows: int
    n_support: int
    n_bounded: int
    n_sweeps: int
    seconds: float
    is_alike: bool = True


class Range(NamedTuple):
    """What is expected, and between what it probably is."""

    low: float
    expected: float
    high: float


@dataclass(frozen=True)
class Forecast:
    """What a fit will take.

    Attributes
    ----------
    n_rows : int
    n_support, n_sweeps, seconds : Range
        `seconds` are those on this machine, without other load.
    memory_bytes : int
        What the parts of the run add up to, besides the interpreter; of the largest class pair.
    disk_bytes : int
        Most bytes of the checkpoint and of kernel rows on disk.
    samples : tuple of Sample
        Fits that this is based on; the last one may be of all rows.
    worker_memory : WorkerMemory or None
        Bytes that a run takes on each worker of the cluster; None without one.
    """

    n_rows: int
    n_support: Range
    n_sweeps: Range
    seconds: Range
    memory_bytes: int
    disk_bytes: int
    samples: tuple[Sample, ...]
    worker_memory: WorkerMemory | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON has it; `worker_memory` is there with a cluster."""
        workers = self.worker_memory
        return {
            "n_rows": self.n_rows,
            **{
                name: dict(zip(("low", "expected", "high"), getattr(self, name), strict=True))
                for name in ("n_support", "n_sweeps", "seconds")
            },
            "memory_bytes": self.memory_bytes,
            "disk_bytes": self.disk_bytes,
            **({} if workers is None else {"worker_memory": workers._asdict()}),
            "samples": [sample._asdict() for sample in self.samples],
        }


def forecast(
    source: RowSource,
    labels: NDArray[Any] | None,
    sample_weight: F8 | None,
    parameters: TrainingParameters,
    hooks: Hooks | None = None,
) -> Forecast:
    """Train samples of 1000, 2000, 4000, … rows, and say what training of all rows will take.

    Samples stop before they take MOST_SPENT of the expected time, but not before one of them is
    trained as all rows are. If all rows are few, the last sample has all of them.

    Parameters
    ----------
    source, labels, sample_weight, parameters
        As `train_model` takes them. The samples are neither saved to a checkpoint nor ended by
        a time limit.
    hooks : Hooks, optional
        Its listener is told of the fits of samples, too.

    Raises
    ------
    ParameterError
        The kernel is precomputed: a matrix of kernel values has no rows to sample.
    DataError, MemoryBudgetError
        As `train_model` would raise them.
    KeyboardInterrupt
        The hooks have asked for an end.
    """
    if parameters.takes_kernel_matrix:
        raise ParameterError(
            "the kernel is precomputed, and a forecast needs rows to sample; train instead, which "
            "costs little more"
        )
    hooks = hooks or Hooks()
    projected = projected_parts(source, labels, sample_weight, parameters, hooks)
    others = _rows_of_rare_classes(labels, parameters)
    parameters_of_samples = replace(
        parameters, checkpoint=None, checkpoint_copy=None, max_seconds=float("inf")
    )
    n = source.n_rows
    are_pairs = reduction_of(parameters, labels) is OneVsOneReduction
    most = parse_bytes(parameters.memory) // COPIED_SHARE
    samples: list[Sample] = []

    def listener(event: Event) -> None:
        if not isinstance(event, WARNINGS):  # known since the memory was projected
            hooks.listener(event)

    def train(n_rows: int) -> Sample:
        rows = np.union1d(_sampled(source, n_rows), others)
        began = time.perf_counter()
        with compilations() as compiled:
            model = train_model(
                _rows_at(source, rows, most) if len(rows) < n else source,
                None if labels is None else labels[rows],
                None if sample_weight is None else sample_weight[rows],
                parameters_of_samples,
                replace(hooks, listener=listener, by_steps=True),
            )
        # A machine compiles once: it says nothing about larger samples.
        seconds = time.perf_counter() - began - compiled.seconds
        if hooks.interrupted():
            raise KeyboardInterrupt
        certificate = model.certificate
        return Sample(
            len(rows),
            len(model.support),
            min(certificate.get("n_bounded") or 0, len(model.support)),
            certificate.get("n_sweeps") or 1,
            seconds,
            n <= DIRECT_ROWS or len(rows) > DIRECT_ROWS or are_pairs,
        )

    n_rows = min(FIRST_ROWS, n)
    train(n_rows)  # loads compiled code, which takes seconds
    while True:
        samples.append(train(n_rows))
        last = samples[-1]
        hooks.listener(Sampled(last.n_rows, last.n_support, last.n_sweeps, last.seconds))
        if n_rows == n:
            break
        expected = _seconds(samples, n)
        spent = sum(sample.seconds for sample in samples)
        n_rows = _next_size(n_rows, n)
        tells_enough = len(samples) >= FITTED_SAMPLES and (last.is_alike or n < FEWEST_ALIKE)
        if tells_enough and spent + _seconds(samples, n_rows) > MOST_SPENT * expected:
            break
    least = parameters.nu if declaration_of(FIELDS["nu"]).is_used_by(parameters.formulation) else 0
    support = _support_range(samples, n, least * n)
    workers = None
    if hooks.client is not None:
        from bigsvm.executors.sizing import worker_memory_for  # few have a cluster

        there = hooks.client.scheduler_info(n_workers=-1)["workers"].values()
        threads = [worker["nthreads"] for worker in there]
        workers = worker_memory_for(source, support.expected, threads) if threads else None
    return Forecast(
        n,
        support,
        _sweeps_range(samples),
        _seconds_range(samples, n),
        sum(projected.values()),
        _disk_bytes(projected, parameters),
        tuple(samples),
        workers,
    )


def projected_parts(
    source: RowSource,
    labels: NDArray[Any] | None,
    sample_weight: F8 | None,
    parameters: TrainingParameters,
    hooks: Hooks | None = None,
) -> dict[str, int]:
    """Bytes of the parts of a run, by name; of class pairs those of the largest.

    The arguments are those of `train_model`.
    """
    check_parameters(parameters)
    hooks, make_reduction = hooks or Hooks(), reduction_of(parameters, labels)
    left_out = leave_out(parameters, labels, sample_weight, hooks.listener)
    if left_out is not None:
        labels, parameters = left_out.labels, left_out.parameters
    source, _ = narrowed(source, keep_numbers=parameters.has_column_factors)
    reduction = make_reduction(Given(source, labels, sample_weight, parameters, hooks))
    return reduction.plan(source)[1].projected


def _disk_bytes(projected: Mapping[str, int], parameters: TrainingParameters) -> int:
    saved = 0
    if parameters.checkpoint is not None:
        saved = (KEPT + 1) * projected["state of the rows"]  # one is written before one goes
    return saved + parameters.disk_cache_bytes()


def _rows_of_rare_classes(labels: NDArray[Any] | None, parameters: TrainingParameters) -> I8:
    """Return the first rows of each class, without which a sample might lack the class."""
    if labels is None or parameters.formulation not in WITH_CLASSES:
        return np.empty(0, np.int64)
    first: dict[Any, list[int]] = {}
    for start in range(0, len(labels), LABELS_AT_ONCE):
        block = labels[start : start + LABELS_AT_ONCE]
        for value in np.unique(block).tolist():
            rows = first.setdefault(value, [])
            missing = LEAST_OF_CLASS - len(rows)
            rows.extend((start + np.flatnonzero(block == value)[:missing]).tolist())
    return np.sort(np.concatenate([np.array(rows, np.int64) for rows in first.values()]))


def _sampled(source: RowSource, n_rows: int) -> I8:
    """Choose rows, ascending: the first of shuffled rows, else random ones; samples are nested."""
    if source.is_shuffled:
        return np.arange(n_rows)
    order = np.random.default_rng(0).permutation(source.n_rows)
    return np.sort(order[:n_rows])


def _rows_at(source: RowSource, rows: I8, most: int) -> RowSource:
    """Rows of a sample; of an array copied if they take at most so many bytes.

    Training takes rows out of an array again and again, which all rows together do not need.
    """
    chosen = ChosenRows(source, rows)
    n_bytes = int(len(rows) * source.bytes_per_row)
    if source.row_alignment > 1 or n_bytes > most:
        return chosen
    copied = as_row_source(chosen.read(0, len(rows)))
    copied.copied_bytes = source.copied_bytes + n_bytes
    return copied


def _growth(samples: Sequence[Sample], values: Sequence[float], most: float) -> float:
    """Exponent with which values of the last samples grow with their rows, in 0 … most."""
    last = slice(-FITTED_SAMPLES, None)
    if len(values) < 2:
        return most
    log_rows = np.log([sample.n_rows for sample in samples[last]])
    log_values = np.log(np.maximum(values[last], 1e-9))
    slope = float(np.polyfit(log_rows, log_values, 1)[0])
    return min(max(slope, 0.0), most)


def _support(samples: Sequence[Sample], n_rows: int, more: float = 0.0) -> float:
    """Support vectors of so many rows, with `more` added to the exponents of growth."""
    expected, factor = 0.0, n_rows / samples[-1].n_rows
    for counts in (
        [sample.n_bounded for sample in samples],
        [sample.n_support - sample.n_bounded for sample in samples],
    ):
        exponent = _growth(samples, [max(count, 1) for count in counts], 1.0) + more
        expected += counts[-1] * float(factor ** min(max(exponent, 0.0), 1.0))
    return min(float(n_rows), expected)


def _next_size(n_rows: int, n: int) -> int:
    """Rows of the next sample: about twice as many, and none that are just too few to be alike."""
    twice = 2 * n_rows
    return min(DIRECT_ROWS + 1 if DIRECT_ROWS // 2 < twice <= DIRECT_ROWS else twice, n)


def _seconds(samples: Sequence[Sample], n_rows: int) -> float:
    last, in_the_end = samples[-1], 2.0
    factor = n_rows / last.n_rows
    if factor > 1 and last.n_support:
        in_the_end = 1.0 + math.log(_support(samples, n_rows) / last.n_support) / math.log(factor)
    alike = [sample for sample in samples if sample.is_alike] or samples
    so_far = max(1.0, _growth(alike, [sample.seconds for sample in alike], in_the_end))
    return last.seconds * float(factor ** ((so_far + in_the_end) / 2))


def _support_range(samples: Sequence[Sample], n: int, least: float = 0.0) -> Range:
    low, expected, high = (max(least, _support(samples, n, d)) for d in (-DOUBT, 0.0, DOUBT))
    return Range(low, expected, high)


def _seconds_range(samples: Sequence[Sample], n: int) -> Range:
    support, expected = _support_range(samples, n), _seconds(samples, n)
    if samples[-1].n_rows == n:
        return Range(expected, expected, expected)
    return Range(
        expected * support.low / support.expected / TIME_DOUBT,
        expected,
        expected * support.high / support.expected * TIME_DOUBT,
    )


def _sweeps_range(samples: Sequence[Sample]) -> Range:
    sweeps = [sample.n_sweeps for sample in samples]
    return Range(sweeps[-1], sweeps[-1], max(sweeps) + 1)
