"""Several problems over the same rows, trained together as functions that share the kernel alone.

Objectives and duality gaps are sums over the functions, the gap is that of the worst function, and
each function has its own thresholds. A kernel row, and the kernel values of a sweep, are computed
once for all functions.
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from bigsvm.duals.dual import Dual
from bigsvm.duals.function_steps import FunctionSteps, is_last_of_functions
from bigsvm.duals.pair_steps import is_last_of_sets
from bigsvm.duals.picking import SCAN_ROWS, Scores
from bigsvm.duals.problem import FingerprintEntry, Problem, recorded_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from bigsvm.arrays import F8, I4, I8
    from bigsvm.duals.box import BoxDual
    from bigsvm.duals.box_problem import Formulation, Optimality
    from bigsvm.duals.dual import ExactKernel, Point

FUNCTIONS_AT_ONCE = 8
"""A cache line of float64: reading the values of one function brings those of all of them."""
COPIED_ROWS = 1 << 16
"""Up to this many rows, values are copied (4 MB of each array); of more rows, the parts that are
looked at together are copied by what is computed from them."""


def functions_in_turn(*arrays: F8) -> Iterator[tuple[int, list[F8]]]:
    """Yield each function's number and its values, (n, …), in each of the arrays (n, k, …).

    They are read only, and contiguous where many looks at each follow: otherwise each look at one
    of 1000 functions takes a cache miss for each row.
    """
    n, k = arrays[0].shape[:2]
    for low in range(0, k, FUNCTIONS_AT_ONCE):
        some = [array[:, low : low + FUNCTIONS_AT_ONCE].swapaxes(0, 1) for array in arrays]
        if n <= COPIED_ROWS:
            some = [np.ascontiguousarray(part) for part in some]
        for c in range(len(some[0])):
            yield low + c, [part[c] for part in some]


@dataclass(frozen=True, kw_only=True)
class Functions(Problem):
    """Problems of one formulation with the same parameters, one for each function."""

    alike: ClassVar[bool] = False
    """Whether the functions are few, and move nearly the same rows."""

    @property
    @abstractmethod
    def functions(self) -> tuple[Formulation, ...]:
        """The problem of each function."""

    @property
    def n_outputs(self) -> int:
        return len(self.functions)

    @property
    def offset(self) -> float:
        return self.functions[0].offset

    @property
    def compares_rows(self) -> bool:  # type: ignore[override]  # as each of its functions
        return self.functions[0].compares_rows

    def chosen(self) -> dict[str, Any]:
        """Parameters that all functions share."""
        return self.functions[0].chosen()

    def zeros(self, n_rows: int) -> F8:
        of_one = self.functions[0].zeros(n_rows)
        return np.zeros((n_rows, self.n_outputs, *of_one.shape[1:]))

    def per_output(self, alpha: F8) -> F8:
        return alpha.sum(axis=2) if self.functions[0].n_faces > 1 else alpha

    def thresholds_of(self, function: int, thresholds: tuple[float, ...]) -> tuple[float, ...]:
        """Thresholds of one function, from those of all."""
        each = len(thresholds) // self.n_outputs
        return thresholds[each * function : each * (function + 1)]

    def scale(self, thresholds: tuple[float, ...]) -> float:
        return min(
            function.scale(self.thresholds_of(c, thresholds))
            for c, function in enumerate(self.functions)
        )


@dataclass(frozen=True, kw_only=True)
class WeightedFunctions(Functions):
    """One problem with several weights of its rows, as folds have; make it with `of`.

    Rows without weight in a function have no part in it: their variables are 0. What follows from
    the weights, such as balanced weights of the classes, is each function's own.

    `problems`, one for each function, have the same rows and labels. `sample_weight` is the largest
    weight of each row in any function.
    """

    name = "weighted functions"
    alike = True

    problems: tuple[Formulation, ...] = field(metadata=recorded_in(FingerprintEntry.LABELS))

    @classmethod
    def of(cls, problems: Sequence[Formulation]) -> Self:
        """Gather problems, each of which has weights."""
        weights = [problem.weights(slice(None)) for problem in problems]
        return cls(problems=tuple(problems), sample_weight=functools.reduce(np.maximum, weights))

    @property
    def functions(self) -> tuple[Formulation, ...]:
        return self.problems

    @property
    def per_row(self) -> NDArray[np.generic]:
        return self.problems[0].per_row

    @property
    def held_bytes(self) -> int:
        return super().held_bytes + sum(problem.held_bytes for problem in self.problems)

    def take(self, rows: I4 | I8) -> Self:
        taken = tuple(problem.take(rows) for problem in self.problems)
        return replace(self, problems=taken, sample_weight=self._weights_of(rows))

    def summed(self, rows: I4 | I8, starts: I8) -> Self:
        return self.of([problem.summed(rows, starts) for problem in self.problems])


class Standings(NamedTuple):
    """Standing of a point in each function.

    `n_support` and `n_free` count rows with a coefficient in any function, and rows that are free
    in any.
    """

    functions: tuple[Optimality, ...]
    n_support: int
    n_free: int

    @property
    def gap(self) -> float:
        """Gap of the worst function."""
        return max(standing.gap for standing in self.functions)

    @property
    def objective(self) -> float:
        """Sum of the dual objectives."""
        return sum(standing.objective for standing in self.functions)

    @property
    def duality_gap(self) -> float:
        """Sum of the duality gaps."""
        return sum(standing.duality_gap for standing in self.functions)

    @property
    def thresholds(self) -> tuple[float, ...]:
        """Thresholds of the functions, one after the other."""
        return tuple(threshold for standing in self.functions for threshold in standing.thresholds)

    @property
    def n_bounded(self) -> int:
        """Variables of all functions at a bound other than 0."""
        return sum(standing.n_bounded for standing in self.functions)


@dataclass(frozen=True)
class FunctionsDual(Dual[Standings]):
    """The duals of the functions, as one."""

    formulation: Functions
    duals: tuple[BoxDual, ...]

    @property
    def functions(self) -> tuple[BoxDual, ...]:
        """The duals of the functions."""
        return self.duals

    @property
    def alike(self) -> bool:
        return self.formulation.alike

    @property
    def in_float64(self) -> bool:  # type: ignore[override]  # of any of its functions
        return any(dual.in_float64 for dual in self.duals)

    def standings(self, standing: Standings) -> tuple[Optimality, ...]:
        return standing.functions

    def optimality(self, alpha: F8, outputs: F8, *, rows: I8 | None = None) -> Standings:
        functions, free = [], np.zeros(len(alpha), np.bool_)
        for c, (a, f) in functions_in_turn(alpha, outputs):
            functions.append(self.duals[c].optimality(a, f, rows=rows))
            self.duals[c].mark_free(a, free, rows=rows)
        n_support = sum(
            int(np.count_nonzero(alpha[a : a + SCAN_ROWS].any(axis=tuple(range(1, alpha.ndim)))))
            for a in range(0, len(alpha), SCAN_ROWS)
        )
        return Standings(tuple(functions), n_support, int(np.count_nonzero(free)))

    def n_violating(self, alpha: F8, outputs: F8, standing: Standings, *, tol: float) -> int:
        violate = np.zeros(len(alpha), np.bool_)
        for c, (a, f) in functions_in_turn(alpha, outputs):
            scores = self.duals[c].scores(a, f, standing.functions[c], tol=tol)
            violate |= scores.score > tol
        return int(np.count_nonzero(violate))

    def gradient(self, alpha: F8, outputs: F8, rows: I8) -> F8:
        return self._stacked(
            dual.gradient(alpha[:, c], outputs[:, c], rows) for c, dual in enumerate(self.duals)
        )

    def outputs_from(self, gradient: F8, alpha: F8, rows: I8) -> F8:
        return self._stacked(
            dual.outputs_from(gradient[:, c], alpha[:, c], rows)
            for c, dual in enumerate(self.duals)
        )

    def _stacked(self, functions: Iterator[F8]) -> F8:
        return np.stack(list(functions), axis=1)

    def n_bounded(self, alpha: F8, rows: I8) -> int:
        return sum(self.duals[c].n_bounded(a, rows) for c, (a,) in functions_in_turn(alpha))

    def filled(self, alpha: F8, outputs: F8) -> F8:
        if self.formulation.functions[0].sums(slice(0, 0)) is None:
            return alpha
        return self._stacked(
            dual.filled(alpha[:, c], outputs[:, c]) for c, dual in enumerate(self.duals)
        )

    def infeasible(self, alpha: F8, *, rows: I8 | None = None, adds_up: bool = True) -> str:
        for c, (a,) in functions_in_turn(alpha):
            if fault := self.duals[c].infeasible(a, rows=rows, adds_up=adds_up):
                return f"of function {c}, {fault}"
        return ""

    def knows_last(self, last: I8, size: int, *, sets: Sequence[int] | None = None) -> bool:
        functions = self.formulation.functions
        if sets is not None:
            return is_last_of_sets(functions, last, sets)
        return is_last_of_functions(functions, last, size)

    def scores(
        self, alpha: F8, outputs: F8, standing: Standings, *, tol: float, rows: I8 | None = None
    ) -> Scores:
        """Score rows by their worst function; functions within `tol` do not count."""
        n = len(alpha)
        score = np.full(n, -np.inf, np.float32)
        asked, free, above = np.zeros((3, n), np.bool_)
        worst: list[Sequence[int]] = []
        for c in sorted(range(len(self.duals)), key=lambda c: -standing.functions[c].gap):
            if standing.functions[c].gap <= tol:
                continue
            of_function = self.duals[c].scores(
                alpha[:, c], outputs[:, c], standing.functions[c], tol=tol, rows=rows
            )
            np.copyto(above, of_function.above, where=of_function.score > score)
            np.maximum(score, of_function.score, out=score)
            asked |= of_function.asked
            free |= of_function.free
            worst += of_function.worst
        return Scores(score, asked, free, above, worst, int(free.sum()))

    def begin(self, start: Point, rows: I8, *, diagonal: F8) -> FunctionSteps:
        return FunctionSteps(self.duals, start, rows, diagonal=diagonal)

    def doubtful(self, alpha: F8, outputs: F8, *, tol: float, error: float) -> I8:
        chosen = np.zeros(len(alpha), np.bool_)
        for c, (a, f) in functions_in_turn(alpha, outputs):
            chosen[self.duals[c].doubtful(a, f, tol=tol, error=error)] = True
        return np.flatnonzero(chosen)

    def newton(
        self, alpha: F8, outputs: F8, standing: Standings, exact: ExactKernel, *, tol: float
    ) -> F8 | None:
        """Solve the functions that have few enough free rows; alpha of the others stays."""
        better = None
        for c, dual in enumerate(self.duals):
            polished = dual.newton(
                alpha[:, c], outputs[:, c], standing.functions[c], exact, tol=tol
            )
            if polished is not None:
                better = alpha.copy() if better is None else better
                better[:, c] = polished
        return better
