"""Checks of a saved run before it continues: types, shapes and ranges, even if its hashes fit.

Each array of a `RowState` or a `SearchState` has a line in a table here, and so has each counter.
Every reader of a checkpoint uses `RunContent`, or for pairs of classes `check_state`. The dual
refuses a point that violates its box or its equality constraints. Outputs may be any finite
numbers: before a resumed run is certified, `bigsvm.training.certify` checks that they belong to
alpha.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, get_type_hints

import numpy as np

from bigsvm.declared import (
    INTEGERS,
    LARGEST,
    REALS,
    Kept,
    Within,
    ascend_below,
    check_arrays,
    check_fields,
    is_kind,
)
from bigsvm.training.state import Counters, Phase, RowState, SearchState
from bigsvm.working_sets.crowd import SETS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from bigsvm.declared import Kind
    from bigsvm.duals.dual import Dual

MOST_COUNTED = 1 << 62
"""Largest counter: compiled code adds to counters in int64."""
MOST_OTHERS = 1 << 10
"""Rows that the arrays without rows may take the room of."""
ROW_STATE = {
    "alpha": Kept(REALS, ("rows", "variables")),
    "outputs": Kept(REALS, ("rows", "functions")),
    "sums": Kept(REALS, ("summed", "functions")),
    "active": Kept(INTEGERS, ("active",), below="scope"),
    "active_alpha": Kept(REALS, ("active", "variables")),
    "active_outputs": Kept(REALS, ("active", "functions")),
    "working": Kept(INTEGERS, ("working",)),
    "set_sizes": Kept(INTEGERS, ("sets",)),
    "working_alpha": Kept(REALS, ("working", "working variables")),
    "working_gradient": Kept(REALS, ("working", "working variables")),
    "pair": Kept(INTEGERS, ("last",)),
}
"""Arrays of a `RowState`."""
SEARCH_STATE = {
    "core": Kept(INTEGERS, ("core",)),
    "weights": Kept(REALS, ("core",)),
    "gradient": Kept(REALS, ("core",)),
    "parts": Kept(INTEGERS, ("parts",)),
}
"""Arrays of a `SearchState`."""
NOTHING_YET = ("active_alpha", "active_outputs", "working_alpha", "working_gradient")
"""Arrays that have the shape (0,) until they are filled."""
_CURVE = {
    "trained": [Within(1, LARGEST)],
    "error": [Within(0, 1)],
    "deviation": [Within(math.ulp(0), 1)],
}


def _is_curve(value: Any) -> bool:  # noqa: ANN401 (as JSON has it)
    """Whether it is what a `LearningCurve` saves: nothing, or lists of one length."""
    if not is_kind(value, _CURVE):
        return bool(value == {})
    return len({len(each) for each in (*value.values(), set(value["trained"]))}) == 1


_OF_TYPES: dict[object, Kind] = {
    bool: bool,
    int: lambda value: type(value) is int and 0 <= value <= MOST_COUNTED,
    float: Within(0, LARGEST),
    Phase: {str(phase) for phase in Phase},
}
COUNTERS: dict[str, Kind] = {
    **{name: _OF_TYPES.get(kind, dict) for name, kind in get_type_hints(Counters).items()},
    # Values that no sweep has computed yet are infinite.
    **dict.fromkeys(("gap", "best_gap", "sub_tol", "active_tol"), Within(0, math.inf)),
    **dict.fromkeys(("objective", "best_objective"), Within(-math.inf, math.inf)),
    "disk_tier": (str, None),
    "curve": _is_curve,
}
"""Kinds of the counters of a run."""


class Sizes(NamedTuple):
    """Sizes of a run that are known before its state is read.

    `rows` is None if only `most_rows` is known. `variables` and `functions` are the shapes of alpha
    and of the outputs of one row; `independent` functions may have separate working sets.
    """

    rows: int | None
    most_rows: int
    variables: tuple[int, ...] = ()
    functions: tuple[int, ...] = ()
    independent: int = 0

    @classmethod
    def of(cls, dual: Dual[Any], n_rows: int) -> Sizes:
        """Return the sizes of a problem."""
        k = dual.formulation.n_outputs
        return cls(
            n_rows, n_rows, dual.formulation.zeros(0).shape[1:], () if k == 1 else (k,),
            len(dual.functions),
        )  # fmt: skip

    @property
    def most_bytes(self) -> int:
        """Most bytes of the arrays of a state: up to three or four have a value per variable."""
        k = max(1, self.independent)
        per_row = 4 * math.prod(self.variables) + 3 * math.prod(self.functions) + 4 * k
        return 8 * per_row * (self.most_rows + MOST_OTHERS)


class RunContent:
    """Contents of a generation of one run: a `RowState` or `SearchState`, and `Counters`."""

    def __init__(self, dual: Dual[Any], n_rows: int) -> None:
        self._dual, self._sizes = dual, Sizes.of(dual, n_rows)

    @property
    def most_bytes(self) -> int:
        """Most bytes of its arrays."""
        return self._sizes.most_bytes

    def check(self, arrays: Mapping[str, NDArray[Any]], values: dict[str, Any]) -> None:
        """Check counters and arrays, and that the point is feasible for this problem."""
        check_state(arrays, values, self._sizes)
        if values["phase"] == Phase.SEARCH:
            if self._dual.searched is None:
                raise ValueError("it is a search for a ball, which this problem is not")
            rows, zeros = arrays["core"], np.zeros(len(arrays["core"]))
            signed = self._dual.gradient(zeros, zeros, rows) * arrays["weights"]
            fault = self._dual.infeasible(signed, rows=rows, adds_up=False)
        else:
            fault = self._fault_of(RowState(**arrays), Counters(**values))
        if fault:
            raise ValueError(fault)

    def _fault_of(self, state: RowState, count: Counters) -> str:
        """Describe what is wrong with the points of a state; an empty string if nothing is."""
        sets = state.set_sizes.tolist() if len(state.set_sizes) else None
        if not self._dual.knows_last(state.pair, len(state.working), sets=sets):
            return "pair does not fit the working set"
        if state.alpha[count.scope :].any():
            return f"rows from {count.scope} on, which take no part yet, have an alpha"
        # A scope that has just grown does not satisfy the equality constraints until it is filled.
        is_even = count.phase != Phase.FILL
        points = [(state.alpha, is_even)]
        if len(state.active) or len(state.working):
            under_way = count.columns_done > 0 or count.rows_done > 0
            points.append((state.current_alpha(joined=False), is_even or under_way))
        for alpha, adds_up in points:
            if fault := self._dual.infeasible(alpha[: count.scope], adds_up=adds_up):
                return fault
        return ""


def check_state(arrays: Mapping[str, NDArray[Any]], values: dict[str, Any], sizes: Sizes) -> None:
    """Check the counters and the arrays of a run; a ValueError says what is wrong."""
    check_counters(values, sizes.most_rows)
    if values["phase"] == Phase.SEARCH:
        check_arrays(arrays, SEARCH_STATE, {})
        _check_search(SearchState(**arrays), sizes)
        return
    scope, phase = values["scope"], values["phase"]
    nothing = np.empty(0)
    shape_of = {name: arrays.get(name, nothing).shape for name in ROW_STATE}
    by_functions = shape_of["set_sizes"] == (sizes.independent,) != (0,)
    apart = not sizes.functions and shape_of["set_sizes"] == (SETS,)
    known: dict[str, tuple[int, ...]] = {
        "scope": (scope,),
        "variables": sizes.variables,
        "functions": sizes.functions,
        # The working set of a function has that function's variables.
        "working variables": sizes.variables[1:] if by_functions else sizes.variables,
        "sets": (sizes.independent if by_functions else SETS if apart else 0,),
    }
    if sizes.rows is not None:
        known["rows"] = (sizes.rows,)
    table = dict(ROW_STATE)
    for name in NOTHING_YET if shape_of["working"] == (0,) else ():
        if shape_of[name] == (0,):
            table[name] = Kept(REALS, table[name].shape[:1])
    check_arrays(arrays, table, known)
    state = RowState(**arrays)
    n_rows = len(state.alpha)
    if scope > n_rows or values["rows_done"] > n_rows:
        raise ValueError(f"scope or rows_done is more than the {n_rows} rows there are")
    if len(state.sums) not in (0, scope):
        raise ValueError(f"sums are of {len(state.sums)} rows, and the scope of {scope}")
    if (phase == Phase.GROW and scope == n_rows) or (values.get("n_sweeps") and scope < n_rows):
        raise ValueError(f"phase and n_sweeps do not fit a scope of {scope} of {n_rows} rows")
    if not len(state.active) and len(state.working) and not by_functions:
        raise ValueError("there is a working set, but no row is active")
    _check_working_set(state, scope=scope)


def _check_working_set(state: RowState, *, scope: int) -> None:
    """Check the rows of a working set: ascending in each set, and active if any row is."""
    rows, sizes = state.working, state.set_sizes
    fit = ((sizes >= 0) & (sizes <= len(rows))).all() and int(sizes.sum()) == len(rows)
    if len(sizes) and not fit:
        raise ValueError("set_sizes do not add up to the rows of the working set")
    sets = np.split(rows, np.cumsum(sizes)[:-1])
    if not all(ascend_below(each, scope) for each in sets):
        raise ValueError("working is not ascending, or not all within 0 and scope")
    if state.outputs.ndim == 1 and len(np.unique(rows)) < len(rows):
        raise ValueError("working has a row in two sets of one function")
    if len(state.active) and not np.isin(rows, state.active).all():
        raise ValueError("working has rows that are not active")


def _check_search(state: SearchState, sizes: Sizes) -> None:
    """Check a core set: rows are distinct, weights add up to 1, and parts to all points."""
    core, weights = state.core, state.weights
    if not ascend_below(np.sort(core), sizes.most_rows):
        raise ValueError("core has a row twice, or one that is not there")
    if (state.parts <= 0).any() or int(state.parts.sum()) != len(core):
        raise ValueError("parts do not add up to the points of the core set")
    if (weights < 0).any() or (len(core) and not math.isclose(weights.sum(), 1.0, rel_tol=1e-6)):
        raise ValueError("weights are not all >= 0, or do not add up to 1")


def check_counters(values: dict[str, Any], most_rows: int) -> None:
    """Check the types and ranges of counters; a ValueError names the counter."""
    if unknown := values.keys() - COUNTERS.keys():
        raise ValueError(f"there is no counter {sorted(unknown)[0]!r}")
    required = ("phase", "scope", "rows_done", "random_state")
    check_fields("the counters", values, COUNTERS, required=required)
    if values["phase"] == Phase.SEARCH:
        return
    scope = values["scope"]
    if not 0 < scope <= most_rows or values["rows_done"] > most_rows:
        raise ValueError(f"the scope of {scope} rows is not one of up to {most_rows}")
    if not _is_random_state(values["random_state"]):
        raise ValueError("random_state is none of a generator's")


def _is_random_state(state: object) -> bool:
    """Whether NumPy's generator accepts it as a state."""
    generator: Any = np.random.default_rng(0).bit_generator
    try:
        generator.state = state
    except (ValueError, TypeError, KeyError, OverflowError):
        return False
    return True
