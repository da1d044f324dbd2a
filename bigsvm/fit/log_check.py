"""Check of entries of the pair log against their problems before a run uses them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bigsvm.duals.ball import BallDual
from bigsvm.one_vs_one.entries import REASONS
from bigsvm.training.result import StopReason
from bigsvm.votes import pair_classes

if TYPE_CHECKING:
    from bigsvm.arrays import F8, I8
    from bigsvm.budget import TrainingPlan
    from bigsvm.duals.formulations import Classification
    from bigsvm.fit.pair_problems import ClassPairs
    from bigsvm.fit.trainer import Trainer
    from bigsvm.one_vs_one.class_rows import ClassRows, PairRows
    from bigsvm.one_vs_one.entries import LogEntry

EVALUATIONS = 2e9
"""Most kernel evaluations for the check of a resumed run: a few seconds of work. A check of all
entries could repeat a third of all work, while a kill must not cost more than one interval."""
LEAST_COST = 5e6
"""Least cost of an entry in kernel evaluations: even an entry of few rows has a fixed cost."""
BYTES_READ = 1e9
"""Most bytes the check reads from a store that is not held in memory."""
AT_BOUND = 1e-12
"""Relative distance within which a coefficient counts as at its bound: division by rho and sharing
among equal rows round it. Where C or kernel values are large, a wider one would change outputs."""
SAMPLED = 8
"""Rows with a coefficient, and rows of each class, where outputs are recomputed of a sample."""
ROUNDING = 1.05
"""Largest recomputed gap, in units of the tolerance."""


class LogCheck:
    """Checks entries of the log against their problems.

    Rows, bounds and sums of every entry are checked. Outputs, and with them gap and intercept, are
    recomputed for entries that are drawn at random, until a limit of work is reached: with few
    pairs for all entries, with half a million for some.

    Attributes
    ----------
    recomputed : set of int
        Pairs whose outputs are recomputed.
    """

    def __init__(
        self, problem: ClassPairs, rows: ClassRows, trainer: Trainer, plan: TrainingPlan
    ) -> None:
        self._problem, self._trainer, self._plan = problem, trainer, plan
        self._rows = rows.in_place()._replace(source=trainer.read_again(rows.source))
        self._sizes = rows.sizes
        self._first, self._second = pair_classes(len(rows))
        self.recomputed: set[int] = set()

    def choose(self, pairs: I8, n_support: I8) -> None:
        """Draw the entries to recompute, among pairs (m,) with (m,) support vectors each."""
        n_rows = self._sizes[self._first[pairs]] + self._sizes[self._second[pairs]]
        evaluations = np.maximum(LEAST_COST, n_rows.astype(np.float64) * n_support)
        n_bytes = self._bytes_read(n_rows, n_support)
        evaluations_left, bytes_left = EVALUATIONS, BYTES_READ
        # Seeded by the system: the run's own seed would tell in advance which entries are drawn.
        for i in np.random.default_rng().permutation(len(pairs)):
            if evaluations_left < LEAST_COST:
                break
            if evaluations[i] <= evaluations_left and n_bytes[i] <= bytes_left:
                evaluations_left -= evaluations[i]
                bytes_left -= n_bytes[i]
                self.recomputed.add(int(pairs[i]))

    def _bytes_read(self, n_rows: I8, n_support: I8) -> F8:
        """Bytes that recomputing the outputs of pairs reads from a store."""
        source = self._rows.source
        if source.row_alignment <= 1:
            return np.zeros(len(n_rows))
        # Rows of two classes may be anywhere in a store, so each pass reads all of it.
        step = max(1, self._plan.active_rows // 2)
        passes = -(-n_support // step) * (1 - (-n_rows // step))
        return passes.astype(np.float64) * (source.n_rows * source.bytes_per_row)

    def fault_of(self, entry: LogEntry, *, samples: bool = False) -> str:
        """Return what is wrong with an entry; an empty string if it solves its pair.

        With `samples`, outputs are recomputed at SAMPLED rows of each kind.
        """
        pair = int(self._first[entry.number]), int(self._second[entry.number])
        rows = self._rows.pair(*pair)
        places = np.searchsorted(rows.rows, entry.rows)
        known = places < len(rows.rows)
        if not (known.all() and np.array_equal(rows.rows[places], entry.rows)):
            return "one of its rows is of neither class"
        rho = float(entry.record["rho"])
        if np.isnan(rho) != (self._problem.nu is None) or rho < 0:
            return f"its rho is {rho:g}"
        alpha = np.zeros(len(rows.rows))
        # ν-SVC divides its decision function by the margin, if there is one.
        alpha[places] = entry.coefficients * (1.0 if np.isnan(rho) else rho or 1.0)
        formulation = self._problem.of_pair(pair, rows)
        dual = self._trainer.dual(rows.source, formulation, self._plan)
        fault = dual.infeasible(alpha)
        if fault or not (samples or entry.number in self.recomputed):
            return fault
        some = np.arange(len(alpha))
        if samples and not isinstance(dual, BallDual):  # a ball is decided by all rows
            draw = np.random.default_rng().permutation(some)
            kinds = (draw[alpha[draw] != 0], draw[rows.sign[draw] > 0], draw[rows.sign[draw] < 0])
            some = np.unique(np.concatenate([kind[:SAMPLED] for kind in kinds]))
        return self._fault_of_values(entry, rows, formulation, alpha, some)

    def _fault_of_values(
        self, entry: LogEntry, rows: PairRows, formulation: Classification, alpha: F8, some: I8
    ) -> str:
        """Recompute the outputs of some of an entry's rows; compare its gap and its intercept."""
        source, record = rows.source, entry.record
        alpha = _at_bounds(formulation, alpha)
        outputs = self._trainer.exact_outputs(source, alpha, self._plan, some)
        dual = self._trainer.dual(source, formulation, self._plan)
        standing = dual.optimality(alpha[some], outputs, rows=some)
        tol = ROUNDING * float(record["tol"])
        if REASONS[record["reason"]] is StopReason.CONVERGED and standing.gap > tol:
            return f"its gap is {standing.gap:.3g}, which is not within {record['tol']:g}"
        # The threshold of some rows is only known to be between those of their bounds.
        width = max(abs(group.max_up - group.min_low) for group in standing.groups)
        finished = formulation.finish(standing.thresholds)
        intercept = finished.intercept + formulation.offset * float(entry.coefficients.sum())
        off = standing.gap if len(some) == len(alpha) else max(standing.gap, width)
        near = (2 * max(tol, off) + 1e-6) * max(1.0, finished.scale)
        if not abs(intercept - float(record["intercept"])) <= near:
            return f"its intercept is {record['intercept']:.6g} instead of {intercept:.6g}"
        return ""


def _at_bounds(formulation: Classification, alpha: F8) -> F8:
    """Set variables within rounding of a bound to the bound."""
    parts = []
    for (box, _, _), part in formulation.with_alpha(alpha, slice(None)):
        for bound in (box.lower, box.upper):
            size = np.abs(bound)
            near = np.isfinite(bound) & (np.abs(part - bound) <= AT_BOUND * size)
            part = np.where(near, bound, part)
        parts.append(part)
    return formulation.join(parts)
