"""One against the rest: k classifiers of two classes over the same rows, trained together.

Function r separates class r (+1) from all others (−1). All functions have the same formulation and
share nothing but the kernel. So objectives and duality gaps are sums over the functions, the gap is
that of the worst function, and each function has its own thresholds. A kernel row, and the kernel
values of a sweep, are computed once for all functions.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import numpy as np

from bigsvm.duals.dual import Dual
from bigsvm.duals.function_steps import FunctionSteps, is_last_of_functions, is_last_of_sets
from bigsvm.duals.picking import SCAN_ROWS, Scores
from bigsvm.duals.problem import FingerprintEntry, Problem, recorded_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from bigsvm.arrays import F8, I4, I8, Mask
    from bigsvm.duals.box import BoxDual
    from bigsvm.duals.box_problem import Optimality
    from bigsvm.duals.dual import ExactKernel, Start
    from bigsvm.duals.formulations import Classification, Signs
    from bigsvm.duals.problem import Selection


FUNCTIONS_AT_ONCE = 8
"""A cache line of float64: reading the values of one function brings those of all of them."""
COPIED_ROWS = 1 << 16
"""Up to this many rows, values are copied (4 MB of each array); of more rows, the parts that are
looked at together are copied by what is computed from them."""


def functions_in_turn(*arrays: F8) -> Iterator[tuple[int, list[F8]]]:
    """Yield each function's number and its values, (n,), in each of the arrays (n, k); read only.

    They are contiguous where many looks at each follow: otherwise each look at one of 1000
    functions takes a cache miss for each row.
    """
    n, k = arrays[0].shape
    for low in range(0, k, FUNCTIONS_AT_ONCE):
        some = [array[:, low : low + FUNCTIONS_AT_ONCE].T for array in arrays]
        if n <= COPIED_ROWS:
            some = [np.ascontiguousarray(part) for part in some]
        for c in range(len(some[0])):
            yield low + c, [part[c] for part in some]


class OneClassSigns:
    """Signs: +1 for rows of one class, −1 for the others; computed when read, not kept.

    Parameters
    ----------
    label : (n,) int32
    """

    def __init__(self, label: I4, positive: int) -> None:
        self._label, self._positive = label, positive

    def __getitem__(self, rows: Selection | I4, /) -> NDArray[np.int8]:
        """Signs of `rows`, (m,)."""
        return np.where(self._label[rows] == self._positive, np.int8(1), np.int8(-1))


class MakeFunction(Protocol):
    """Makes the problem of one function; see `bigsvm.duals.formulations.Classification`."""

    def __call__(
        self, *, sign: Signs, class_weight: tuple[float, float], sample_weight: F8 | None
    ) -> Classification:
        """Make the problem."""


@dataclass(frozen=True, kw_only=True)
class OneVsRest(Problem):
    """The problems of all functions.

    Attributes
    ----------
    label : (n,) int32
        Class of each row, in 0 … k − 1.
    class_weight : tuple of (float, float)
        Weights of the rest and of the class, for each of the k functions.
    make : callable
        Makes the problem of a function.

    Raises
    ------
    DataError
        A class without a row of positive weight, or without any other.
    """

    name = "one against the rest"

    label: I4 = field(metadata=recorded_in(FingerprintEntry.LABELS))
    class_weight: tuple[tuple[float, float], ...] = field(
        metadata=recorded_in(FingerprintEntry.CLASS_WEIGHTS)
    )
    make: MakeFunction

    @functools.cached_property
    def functions(self) -> tuple[Classification, ...]:
        """The problem of each function."""
        return tuple(
            self.make(
                sign=OneClassSigns(self.label, c),
                class_weight=weights,
                sample_weight=self.sample_weight,
            )
            for c, weights in enumerate(self.class_weight)
        )

    @property
    def per_row(self) -> I4:
        return self.label

    @property
    def n_outputs(self) -> int:
        return len(self.class_weight)

    @property
    def offset(self) -> float:
        return self.functions[0].offset

    def chosen(self) -> dict[str, Any]:
        """Parameters that all functions share."""
        return self.functions[0].chosen()

    def mistakes(self, outputs: F8, rows: Selection, thresholds: tuple[float, ...]) -> Mask:
        finished = [
            function.finish(self.thresholds_of(c, thresholds))
            for c, function in enumerate(self.functions)
        ]
        values = outputs * [decision.scale for decision in finished] + [
            decision.intercept for decision in finished
        ]
        wrong: Mask = values.argmax(axis=1) != self.label[rows]
        return wrong

    def take(self, rows: I4 | I8) -> Self:
        return replace(self, label=self.label[rows], sample_weight=self._weights_of(rows))

    def zeros(self, n_rows: int) -> F8:
        return np.zeros((n_rows, self.n_outputs))

    def per_output(self, alpha: F8) -> F8:
        return alpha

    def thresholds_of(self, function: int, thresholds: tuple[float, ...]) -> tuple[float, ...]:
        """Thresholds of one function, from those of all."""
        each = len(thresholds) // self.n_outputs
        return thresholds[each * function : each * (function + 1)]

    def scale(self, thresholds: tuple[float, ...]) -> float:
        return min(
            function.scale(self.thresholds_of(c, thresholds))
            for c, function in enumerate(self.functions)
        )


class Standings(NamedTuple):
    """Standing of a point in each function.

    Attributes
    ----------
    n_support, n_free : int
        Rows with a coefficient in any function, and rows that are free in any.
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
class OneVsRestDual(Dual[Standings]):
    """The duals of the functions, as one.

    Parameters
    ----------
    duals : tuple of BoxDual
        One for each function.
    """

    formulation: OneVsRest
    duals: tuple[BoxDual, ...]

    @property
    def functions(self) -> tuple[BoxDual, ...]:
        """The duals of the functions."""
        return self.duals

    def optimality(self, alpha: F8, outputs: F8, *, rows: I8 | None = None) -> Standings:
        functions, free = [], np.zeros(len(alpha), np.bool_)
        for c, (a, f) in functions_in_turn(alpha, outputs):
            functions.append(self.duals[c].optimality(a, f, rows=rows))
            self.duals[c].mark_free(a, free, rows=rows)
        n_support = sum(
            int(np.count_nonzero(alpha[a : a + SCAN_ROWS].any(axis=1)))
            for a in range(0, len(alpha), SCAN_ROWS)
        )
        return Standings(tuple(functions), n_support, int(np.count_nonzero(free)))

    def goal(self, tol: float, standing: Standings) -> float:
        """Smallest gap that a function needs."""
        return min(
            dual.goal(tol, of_function)
            for dual, of_function in zip(self.duals, standing.functions, strict=True)
        )

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
        worst: list[list[int]] = []
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

    def begin(self, start: Start, rows: I8, *, diagonal: F8) -> FunctionSteps:
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
