"""Pairs of classes: the problem of each, checked before any is trained, its run and its memory."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.budget import parse_bytes
from bigsvm.duals.formulations import CSVC, NuClassification
from bigsvm.errors import MemoryBudgetError, ParameterError
from bigsvm.fit.problem import (
    check_every_class,
    find_classes,
    make_classification,
)
from bigsvm.fit.reduction import make_plan
from bigsvm.fit.variables import decision_of, make_variables
from bigsvm.gram.tiles import value_seconds
from bigsvm.one_vs_one.class_rows import PairRows
from bigsvm.one_vs_one.entries import RECORD
from bigsvm.one_vs_one.log import BYTES_PER_COEFFICIENT, Solved
from bigsvm.one_vs_one.small import MOST_BYTES
from bigsvm.working_sets.choice import LARGEST_SET

if TYPE_CHECKING:
    from bigsvm.arrays import F8
    from bigsvm.budget import TrainingPlan
    from bigsvm.data.rows import Indices
    from bigsvm.duals.formulations import Classification
    from bigsvm.fit.problem import Given
    from bigsvm.fit.trainer import Trainer
    from bigsvm.one_vs_one.class_rows import ClassRows
    from bigsvm.parameters import TrainingParameters

HELD_SHARE = 0.25
"""Share of the memory for rows of classes that are held together. Reading sparse rows takes three
times as much for a while, in which nothing else takes memory."""
COEFFICIENTS_SHARE = 0.4
"""Largest share of the memory for the coefficients of all pairs."""
SMALL_SHARE = 0.5
"""Share of the memory left for a pair that pairs of small classes take, which are solved before."""
PAIR_ROW_BYTES = 20
"""Bytes of a row that is trained on: its number among all rows and among held rows, its weight."""
SAVED_ROW_BYTES = 64
"""Bytes of the last save of a row of a pair that is trained beside others: alpha 8, output 8; an
active row's number, alpha and output 24, and as many of a row in the working set."""
RUN_SECONDS = 0.02
"""Seconds to begin and to end a run, beside its kernel values."""
VALUES_PER_SQUARE = 0.7
"""Kernel values of a run for each two of its rows: twice or so those of a sweep with the support
vectors, a third of the rows."""
CHOICE_BYTES = 32
"""Bytes of each two classes while the pairs are divided into batches."""


class ClassPairs:
    """The problems of all pairs, checked.

    Attributes
    ----------
    classes : (k,) array
    codes : (n,) int32
        Place of each row's label in it.
    weights : (n,) float64 or None
    class_weight : (k,) float64
    name : str
    offset : float
        Offset of the formulation; known once the classes are checked.
    chosen : dict
        Its parameters, by name; known by then too.
    """

    name: str
    offset: float
    chosen: dict[str, Any]

    def __init__(self, given: Given) -> None:
        self._parameters = given.parameters
        self.classes, self.codes, self.weights, self.class_weight = find_classes(given)

    def among(self, weights: F8 | None) -> ClassPairs:
        """Return the same problems over some of the rows, renumbered, which have these weights."""
        some = copy.copy(self)
        some.weights = weights
        return some

    @property
    def n_pairs(self) -> int:
        """Pairs there are, k (k − 1) / 2."""
        return len(self.classes) * (len(self.classes) - 1) // 2

    def check(self, rows: ClassRows) -> None:
        """Refuse classes that cannot be told from others, before any is.

        Raises
        ------
        DataError, ParameterError
            Naming the class or the pair.
        """
        check_every_class(self.classes, self.class_weight, rows.sizes)
        # The smallest class beside the largest: if their nu is feasible, all are.
        sums = np.array(
            [
                size if self.weights is None else self.weights[rows.of(one)].sum()
                for one, size in enumerate(rows.sizes)
            ]
        )
        by_sum = np.argsort(sums, kind="stable").tolist()
        first, second = sorted((by_sum[0], by_sum[-1]))
        one, other = rows.of(first), rows.of(second)
        # In any order, as sums are looked at.
        sign = np.repeat(np.array([-1, 1], np.int8), [len(one), len(other)])
        both = PairRows(rows.source, np.concatenate([one, other]), sign)
        formulation = self.of_pair((first, second), both)
        self.name, self.offset = formulation.name, formulation.offset
        self.chosen = formulation.chosen()
        try:
            formulation.check()
        except ParameterError as error:
            labels = self.classes.tolist()
            raise ParameterError(
                f"classes {labels[first]!r} and {labels[second]!r}: {error}"
            ) from None

    @property
    def are_small_solved_together(self) -> bool:
        """Whether pairs of small classes need no runs: with bounds, by the usual steps."""
        parameters = self._parameters
        usual = parameters.working_set != "all" and parameters.selection in ("auto", "second-order")
        is_hard = self.name == CSVC.name and not np.isfinite(parameters.C)
        bounded = self.name in (CSVC.name, NuClassification.name) and not is_hard
        return bounded and usual and not parameters.takes_kernel_matrix

    @property
    def nu(self) -> float | None:
        """Nu of ν-SVC; None for others."""
        return self._parameters.nu if self.name == NuClassification.name else None

    def bounds_of_class(self, number: int, rows: Indices) -> F8:
        """C of rows of a class, (m,), which is 1 in ν-SVC."""
        C = self._parameters.C if self.nu is None else 1.0
        bound = np.full(len(rows), C * float(self.class_weight[number]))
        return bound if self.weights is None else bound * self.weights[rows]

    def of_pair(self, pair: tuple[int, int], rows: PairRows) -> Classification:
        """Make the problem of two classes."""
        first, second = pair
        return make_classification(
            self._parameters,
            rows.sign,
            (float(self.class_weight[first]), float(self.class_weight[second])),
            None if self.weights is None else self.weights[rows.rows],
        )

    def solve(
        self,
        pair: tuple[int, int],
        rows: PairRows,
        trainer: Trainer,
        plan: TrainingPlan,
        *,
        compare: bool,
        **control: Any,
    ) -> Solved:
        """Train a pair, or go on with what the saver has of it.

        Parameters
        ----------
        compare : bool
            Whether equal rows are looked for. Rows are copied for it, so memory must hold them.
        control
            Saver, limits and listener, as `Trainer.train` has them.
        """
        formulation = self.of_pair(pair, rows)
        merge = self._parameters.merges_rows
        variables = make_variables(rows.source, formulation, merge=merge, compare=compare)
        result = trainer.train(variables, plan, **control)
        decision = decision_of(variables, formulation, result)
        return Solved(
            rows.rows[decision.support],
            decision.coefficients,
            decision.intercept,
            decision.extras.get("rho", np.nan),
            decision.certificate,
        )


class Budget:
    """How the memory is divided, known to be enough for every pair.

    Parameters
    ----------
    resident_bytes : int
        Bytes of other arrays that are in memory for the whole run.

    Attributes
    ----------
    most_held_rows : float
        Rows that may be held in memory.
    coefficients : float
        Bytes that the coefficients of all pairs may take.
    largest : TrainingPlan
        Plan of the pair with the most rows.
    small_bytes : float
        For pairs of small classes that are solved together, before others are trained.
    """

    def __init__(
        self,
        parameters: TrainingParameters,
        rows: ClassRows,
        problem: ClassPairs,
        *,
        resident_bytes: int = 0,
    ) -> None:
        self._parameters, self._source = parameters, rows.source
        memory = parse_bytes(parameters.memory)
        self.most_held_rows = HELD_SHARE * memory / self._source.bytes_per_row
        self.coefficients = COEFFICIENTS_SHARE * memory
        most = BYTES_PER_COEFFICIENT * float(rows.sizes.sum()) * (len(rows) - 1)
        self._resident = (
            resident_bytes
            + rows.nbytes
            + (0 if problem.weights is None else problem.weights.nbytes)
            + RECORD.itemsize * problem.n_pairs
            + CHOICE_BYTES * len(rows) ** 2
            + min(self.coefficients, most)
        )
        self._held = min(self.most_held_rows, float(rows.sizes.sum())) * self._source.bytes_per_row
        size = int(np.sort(rows.sizes)[-2:].sum())
        self.largest = self._plan(min(size, int(self.most_held_rows)), 1, 1)
        if size > self.most_held_rows:
            self.largest = self._plan(size, self._source.row_alignment, 1)
        others = ("state of the rows", "scratch of threads and reader")
        left = memory - sum(self.largest.projected[name] for name in others)
        self.small_bytes = min(MOST_BYTES, SMALL_SHARE * left)

    def plan(self, n_rows: int, row_alignment: int) -> TrainingPlan:
        """Divide the memory left for a pair of `n_rows` rows, one of `lanes` pairs at once."""
        return self._plan(n_rows, row_alignment, self.lanes(n_rows, row_alignment))

    def bytes_of_pair(self, n_rows: int) -> int:
        """Bytes of a pair of `n_rows` held rows, without these and without what pairs share."""
        lanes = self.lanes(n_rows, 1)
        plan = self._plan(n_rows, 1, lanes)
        shared = self._shared(1, lanes) + self._source.copied_bytes + self._source.kept_bytes
        # Two blocks have all rows at most, however many bytes are left for blocks.
        blocks = min(plan.block_bytes, int(2 * n_rows * self._source.bytes_per_row))
        return sum(plan.projected.values()) - plan.block_bytes + blocks - int(shared)

    def seconds_of_pair(self, n_rows: F8) -> F8:
        """Estimate the seconds of one thread for pairs of so many rows, (m,)."""
        return RUN_SECONDS + VALUES_PER_SQUARE * value_seconds(self._source) * n_rows**2

    def lanes(self, n_rows: int, row_alignment: int) -> int:
        """Count the pairs of `n_rows` rows that can be trained at once.

        Each holds all its rows, and the kernel rows of a set of all of them or of `LARGEST_SET`:
        as it would alone, but where more than that are free.
        """
        if row_alignment > 1 or self._parameters.working_set == "all":
            return 1
        for count in range(self._parameters.n_threads, 1, -1):
            try:
                plan = self._plan(n_rows, row_alignment, count)
            except MemoryBudgetError:
                continue
            if plan.active_rows >= n_rows and plan.working_set >= min(n_rows, LARGEST_SET):
                return count
        return 1

    def _plan(self, n_rows: int, row_alignment: int, lanes: int) -> TrainingPlan:
        """Divide the memory left for one of `lanes` pairs."""
        resident, parameters = self._shared(row_alignment, lanes), self._parameters
        pair_bytes = PAIR_ROW_BYTES * n_rows
        if lanes > 1:
            pair_bytes += SAVED_ROW_BYTES * n_rows
            parameters = replace(parameters, threads=parameters.n_threads // lanes)
        return make_plan(
            parameters,
            self._source,
            resident_bytes=resident + pair_bytes,
            n_rows=n_rows,
            row_alignment=row_alignment,
        )

    def _shared(self, row_alignment: int, lanes: int) -> float:
        """Bytes that pairs share, and those of the other lanes."""
        held = self._held if row_alignment < self._source.row_alignment else 0.0
        resident = self._resident + held
        return resident + (1 - 1 / lanes) * (parse_bytes(self._parameters.memory) - resident)
