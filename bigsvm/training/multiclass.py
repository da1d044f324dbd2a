"""One against one: a problem for each pair of classes, trained one after the other, and joined.

``k (k − 1) / 2`` problems of two classes each (libsvm-2.2.txt, section 7), over the rows of these
two alone. They share all that is opened once, and one checkpoint: a pair that is finished is never
trained again, and the one in progress goes on inside, to the same bits.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from bigsvm.allocator import give_back_freed_memory
from bigsvm.training import events
from bigsvm.training.pair_log import REASONS
from bigsvm.training.result import Certificate, StopReason
from bigsvm.training.state import Limits, Stopped

if TYPE_CHECKING:
    import scipy.sparse as sp
    from numpy.typing import NDArray

    from bigsvm.data.class_rows import Batch, ClassRows, HeldClasses, PairRows
    from bigsvm.training.pair_log import PairLog, Solved
    from bigsvm.training.saving import Saver
    from bigsvm.training.small_pairs import SmallPairs

TOLD_AFTER = 10.0
"""Seconds that a pair must have taken before anybody hears of its sweeps and steps."""
LISTED = 20
"""Pairs that a certificate has by themselves, the worst ones."""
UNFINISHED = (StopReason.MAX_ITER, StopReason.TIME_LIMIT, StopReason.INTERRUPTED)
"""Why a run ends in the middle of a pair; the others are the end of one pair only."""


class Train(Protocol):
    """Trains one pair."""

    def __call__(
        self,
        pair: tuple[int, int],
        rows: PairRows,
        *,
        saver: Saver,
        limits: Limits,
        listener: events.Listener,
    ) -> Solved:
        """Train, or go on with what the saver has of this pair."""


class OneVsOne(NamedTuple):
    """The functions of all pairs, over support vectors that they share.

    Pairs are in LIBSVM's order: (0, 1), (0, 2), …, (1, 2), …; a positive value of a function stands
    for the second class of its pair. A function that was never begun is 0.

    Attributes
    ----------
    support : (p,) int64
        Rows that any pair has a coefficient of, ascending.
    coefficients : (p, n_pairs) CSR, float64
        At most k − 1 in a row.
    intercepts : (n_pairs,) float64
    rho : (n_pairs,) float64
        By which nu-svc has divided coefficients and intercept; NaN for the others.
    gaps : (n_pairs,) float64
        KKT gap of each; NaN where it is not known.
    certificate : Certificate
        Sums over the pairs, and the worst gap; converged only if all pairs are.
    pairs : dict
        How many stopped for which reason, and the worst ones by themselves, as JSON can say it.
    """

    support: NDArray[np.int64]
    coefficients: sp.csr_array
    intercepts: NDArray[np.float64]
    rho: NDArray[np.float64]
    gaps: NDArray[np.float64]
    certificate: Certificate
    pairs: dict[str, Any]


def pair_numbers(pairs: NDArray[np.int64], n_classes: int) -> NDArray[np.int64]:
    """Place of pairs (m, 2) of classes, the first one less, in LIBSVM's order, from 0."""
    first, second = pairs[:, 0], pairs[:, 1]
    before = first * n_classes - first * (first + 1) // 2
    numbers: NDArray[np.int64] = before + second - first - 1
    return numbers


def pair_classes(n_classes: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First and second class of every pair, in LIBSVM's order."""
    return np.triu_indices(n_classes, 1)


class PairTraining:
    """The loop over the pairs.

    Parameters
    ----------
    classes : ClassRows
    room : float
        Rows that may be held at once.
    train : Train
    log : PairLog
        What is finished already, and where results go.
    saver : Saver
        Saves to that log.
    limits : Limits
        Of the whole run.
    listener : callable
    small : SmallPairs, optional
        Solves those that it takes, before the others of their batch are trained.
    """

    def __init__(
        self,
        classes: ClassRows,
        train: Train,
        log: PairLog,
        *,
        room: float,
        saver: Saver,
        limits: Limits,
        listener: events.Listener,
        small: SmallPairs | None = None,
    ) -> None:
        self._small = small
        self._classes, self._room, self._train, self._log = classes, room, train, log
        self._saver, self._limits, self._listener = saver, limits, listener
        self._began = time.monotonic()
        sizes = classes.sizes.astype(np.float64)
        # Σ over pairs of (n_a + n_b)².
        self._work = (len(classes) - 2) * np.sum(sizes**2) + np.sum(sizes) ** 2
        first, second = pair_classes(len(classes))
        done = np.flatnonzero(log.records["reason"] >= 0)
        self._work_done = float(np.sum((sizes[first[done]] + sizes[second[done]]) ** 2))

    def run(self) -> OneVsOne:
        """Train all pairs that are not finished, or until a limit is reached."""
        reason = StopReason.CONVERGED
        self._tell()
        try:
            for batch in self._classes.batches(self._room):
                self._batch(batch)
        except Stopped as stopped:
            reason = stopped.reason
        if not self._log.in_progress:
            self._saver.write({}, {})
        return self._joined(reason)

    def _batch(self, batch: Batch) -> None:
        """Train what is left of a batch; at the end what it has held is let go of."""
        numbers = pair_numbers(batch.pairs, len(self._classes))
        left = np.flatnonzero(self._log.records["reason"][numbers] < 0)
        if not len(left):
            return
        # The batch before, and all that its pairs have freed.
        give_back_freed_memory()
        rows = self._classes.hold(batch, self._look)
        if self._small is not None:
            self._solve_small(self._small, batch.pairs[left], numbers[left], rows)
            left = left[self._log.records["reason"][numbers[left]] < 0]
        # One by one: half a million pairs as Python's lists would take 100 MB.
        for place in left:
            first, second = batch.pairs[place].tolist()
            self._one(int(numbers[place]), (first, second), rows.pair(first, second))

    def _solve_small(
        self,
        small: SmallPairs,
        pairs: NDArray[np.int64],
        numbers: NDArray[np.int64],
        rows: HeldClasses,
    ) -> None:
        """Solve small pairs, part by part; those that stay unsolved are left to be trained."""
        sizes = self._classes.sizes.astype(np.float64)
        for part in small.parts(pairs, rows):
            self._look()
            solved = small.solve(pairs[part], rows, max_steps=self._limits_left().max_iter)
            for place, one in zip(part.tolist(), solved, strict=True):
                if one is not None:
                    self._log.begin(int(numbers[place]))
                    self._log.finish(one)
                    self._work_done += float(sizes[pairs[place]].sum()) ** 2
            self._tell()
            if self._saver.is_due():
                self._saver.write({}, {})

    def _one(self, number: int, pair: tuple[int, int], rows: PairRows) -> None:
        """Train a pair, or go on with it."""
        self._look()
        self._log.begin(number)
        began = time.monotonic()

        def listener(event: events.Event) -> None:
            long = time.monotonic() - began >= TOLD_AFTER
            # That each pair has a plan of its own would be a line for each.
            if isinstance(event, events.Checkpointed) or (
                long and not isinstance(event, events.Planned)
            ):
                self._listener(event)

        solved = self._train(
            pair, rows, saver=self._saver, limits=self._limits_left(), listener=listener
        )
        reason = solved.certificate.stop_reason
        if reason in UNFINISHED:
            self._log.leave(solved)
            raise Stopped(reason)
        self._log.finish(solved)
        self._work_done += float(len(rows.rows)) ** 2
        self._tell()
        if self._saver.is_due():
            self._saver.write({}, {})

    def _look(self) -> None:
        """Raise `Stopped` if the run is to end before another pair."""
        left = self._limits_left()
        if left.interrupted():
            raise Stopped(StopReason.INTERRUPTED)
        if left.max_seconds <= 0:
            raise Stopped(StopReason.TIME_LIMIT)
        if left.max_iter == 0:
            raise Stopped(StopReason.MAX_ITER)

    def _limits_left(self) -> Limits:
        limits = self._limits
        steps = limits.max_iter
        if steps >= 0:
            steps = max(0, steps - self._log.total("n_iter"))
        seconds = limits.max_seconds - (time.monotonic() - self._began)
        return Limits(max_iter=steps, max_seconds=seconds, interrupted=limits.interrupted)

    def _tell(self) -> None:
        log = self._log
        self._listener(
            events.Pairs(log.n_finished, len(log.records), self._work_done, float(self._work))
        )

    def _joined(self, reason: StopReason) -> OneVsOne:
        """Join what there is of all pairs."""
        records = self._log.records
        reasons = self._log.reasons()
        if reason is StopReason.CONVERGED:
            reason = next((other for other in REASONS[1:] if other in reasons), reason)
        support, coefficients = self._log.coefficients(self._classes.source.n_rows)
        certificate = Certificate(
            converged=reason is StopReason.CONVERGED,
            stop_reason=reason,
            tol=float(records["tol"].max()),
            objective=_known(records["objective"].sum()),
            gap=_known(records["gap"].max()),
            duality_gap=_known(records["duality_gap"].sum()),
            n_support=len(support),
            n_bounded=self._log.total("n_bounded"),
            n_sweeps=self._log.total("n_sweeps"),
            n_iter=self._log.total("n_iter"),
            n_kernel_evaluations=self._log.total("n_kernel_evaluations"),
            row_misses=self._log.total("row_misses"),
            row_reads=self._log.total("row_reads"),
            n_working_sets=self._log.total("n_working_sets"),
            rows_swept=self._log.total("rows_swept"),
            bytes_read=self._log.bytes_read,
            seconds=self._log.seconds,
        )
        return OneVsOne(
            support,
            coefficients,
            records["intercept"].copy(),
            records["rho"].copy(),
            records["gap"].copy(),
            certificate,
            self._table(reasons),
        )

    def _table(self, reasons: dict[StopReason, int]) -> dict[str, Any]:
        """Count the pairs by their ends, and list the worst: not converged first, by their gaps."""
        records = self._log.records
        first, second = pair_classes(len(self._classes))
        converged = records["reason"] == REASONS.index(StopReason.CONVERGED)
        gaps = np.where(np.isnan(records["gap"]), np.inf, records["gap"])
        listed = np.lexsort((-gaps, converged))[:LISTED].tolist()
        return {
            "n_pairs": len(records),
            "n_begun": int(np.count_nonzero(records["reason"] >= 0)),
            "stop_reasons": {str(reason): n for reason, n in reasons.items()},
            "worst": [
                {
                    "classes": [int(first[i]), int(second[i])],
                    "stop_reason": str(REASONS[records["reason"][i]])
                    if records["reason"][i] >= 0
                    else None,
                    "gap": _known(records["gap"][i]),
                    "n_support": int(records["n_support"][i]),
                    "n_iter": int(records["n_iter"][i]),
                }
                for i in listed
            ],
        }


def _known(value: np.float64) -> float | None:
    """Give a number as JSON has it; None for NaN, which any pair without one brings in."""
    return None if np.isnan(value) else float(value)
