"""Checks of a saved run before it continues: types, shapes and ranges, even if its hashes fit.

Each array of a `RowState` or a `SearchState` has a line in a table here, and each counter has the
type that `Counters` declares. Every reader of a checkpoint uses `RunContent`, or for pairs of
classes `check_outline` and `check_ranges`. The dual refuses a point that violates its box or its
equality constraints. Outputs may be any finite numbers: before a resumed run is certified,
`bigsvm.training.certify` checks that they belong to alpha.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, get_type_hints

import numpy as np

from bigsvm.duals.pair_steps import WORD_BITS
from bigsvm.training.learning_curve import NAMES
from bigsvm.training.saving import SearchState
from bigsvm.training.state import Counters, Phase, RowState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from bigsvm.arrays import F8, I8
    from bigsvm.duals.dual import Dual
    from bigsvm.training.generations import Outline

MOST_COUNTED = 1 << 62
"""Largest counter: compiled code adds to counters in int64."""
LARGEST = 1e150
"""Largest real number: the product of two is finite."""
REALS, INTEGERS = "<f8", "<i8"


class Kept(NamedTuple):
    """One array of a saved state.

    Attributes
    ----------
    dtype : str
        Type of the array; reals must be finite.
    shape : tuple of str
        Names of sizes. The first array that uses a name sets its size.
    below : str or None
        Name of a size: integers must be in [0, size) and strictly ascending.
    """

    dtype: str
    shape: tuple[str, ...]
    below: str | None = None


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
SIGNED = ("objective", "best_objective")
"""Counters that may be negative."""
ENDLESS = ("gap", "best_gap", "objective", "best_objective", "sub_tol", "active_tol")
"""Counters that may be infinite: no sweep has computed them yet."""


class Sizes(NamedTuple):
    """Sizes of a run that are known before its state is read.

    Attributes
    ----------
    rows : int or None
        Rows of the problem; None if only `most_rows` is known.
    variables, functions : tuple of int
        Shapes of alpha and of the outputs of one row.
    independent : int
        Number of independent functions, which may have separate working sets.
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


class RunContent:
    """Contents of a generation of one run: a `RowState` or `SearchState`, and `Counters`.

    Parameters
    ----------
    dual : Dual
        Dual problem of the rows that are trained.
    n_rows : int
        Number of these rows.
    """

    def __init__(self, dual: Dual[Any], n_rows: int) -> None:
        self._dual, self._sizes = dual, Sizes.of(dual, n_rows)

    def check_outline(self, outlines: Mapping[str, Outline], values: dict[str, Any]) -> None:
        """Check counters and shapes; ValueError says what is wrong."""
        check_outline(outlines, values, self._sizes)
        if values["phase"] == Phase.SEARCH and self._dual.searched is None:
            raise ValueError("it is a search for a ball, which this problem is not")

    def check(self, arrays: Mapping[str, NDArray[Any]], values: dict[str, Any]) -> None:
        """Check the contents of the arrays, and that the point is feasible for this problem."""
        check_ranges(arrays, values, self._sizes)
        if values["phase"] == Phase.SEARCH:
            fault = self._dual.infeasible(
                _signed(self._dual, arrays), rows=arrays["core"], adds_up=False
            )
        else:
            fault = self._fault_of(RowState(**arrays), Counters(**values))
        if fault:
            raise ValueError(fault)

    def _fault_of(self, state: RowState, count: Counters) -> str:
        """Describe what is wrong with the points of a state; an empty string if nothing is."""
        if not self._knows_last(state):
            return "pair does not fit the working set"
        if state.alpha[count.scope :].any():
            return f"rows from {count.scope} on, which take no part yet, have an alpha"
        # A scope that has just grown does not satisfy the equality constraints until it is filled.
        is_even = count.phase != Phase.FILL
        points = [(state.alpha, is_even)]
        if len(state.active) or len(state.working):
            under_way = count.columns_done > 0 or count.rows_done > 0
            points.append((state.current_alpha(), is_even or under_way))
        for alpha, adds_up in points:
            if fault := self._dual.infeasible(alpha[: count.scope], adds_up=adds_up):
                return fault
        return ""

    def _knows_last(self, state: RowState) -> bool:
        sets = state.set_sizes.tolist() if len(state.set_sizes) else None
        return self._dual.knows_last(state.pair, len(state.working), sets=sets)


def _signed(dual: Dual[Any], arrays: Mapping[str, NDArray[Any]]) -> F8:
    """Weights of a core set, multiplied by the signs of their rows."""
    rows = arrays["core"]
    zeros = np.zeros(len(rows))
    signed: F8 = dual.gradient(zeros, zeros, rows) * arrays["weights"]
    return signed


def check_outline(outlines: Mapping[str, Outline], values: dict[str, Any], sizes: Sizes) -> None:
    """Check the counters of a run, and types and shapes of its arrays.

    Raises
    ------
    ValueError
        The message says what is wrong.
    """
    check_counters(values, sizes.most_rows)
    table = SEARCH_STATE if values["phase"] == Phase.SEARCH else ROW_STATE
    if outlines.keys() != table.keys():
        unknown = sorted(outlines.keys() ^ table.keys())
        raise ValueError(f"arrays are missing, or unknown: {', '.join(unknown)}")
    working = outlines["working"].shape if table is ROW_STATE else ()
    set_sizes = outlines["set_sizes"].shape if table is ROW_STATE else (0,)
    by_functions = set_sizes != (0,) and set_sizes == (sizes.independent,)
    known: dict[str, tuple[int, ...]] = {
        "variables": sizes.variables,
        "functions": sizes.functions,
        # The working set of a function has that function's variables.
        "working variables": sizes.variables[1:] if by_functions else sizes.variables,
        "sets": (sizes.independent if by_functions else 0,),
    }
    if sizes.rows is not None:
        known["rows"] = (sizes.rows,)
    for name, kept in table.items():
        outline = outlines[name]
        if outline.dtype != kept.dtype:
            raise ValueError(f"{name} is of type {outline.dtype} instead of {kept.dtype}")
        if outline.shape == (0,) and name in NOTHING_YET and working == (0,):
            fits = known[kept.shape[0]] == (0,)
        else:
            fits = _fits(outline.shape, kept.shape, known)
        if not fits:
            raise ValueError(f"{name} has the shape {outline.shape}, which does not fit the others")
    most = {
        "rows": sizes.most_rows,
        "summed": sizes.most_rows,
        "active": sizes.most_rows,
        "working": sizes.most_rows * max(1, sizes.independent if by_functions else 1),
        "core": sizes.most_rows,
        "parts": sizes.most_rows,
        "last": max(2 + -(-sizes.most_rows // WORD_BITS), 4 * sizes.independent),
    }
    for name, (size,) in ((name, known[name]) for name in most if name in known):
        if size > most[name]:
            raise ValueError(f"there are {size} of {name}, and there can be {most[name]}")
    if table is ROW_STATE and not known["active"][0] and known["working"][0] and not by_functions:
        raise ValueError("there is a working set, but no row is active")


def _fits(
    shape: tuple[int, ...], names: tuple[str, ...], known: dict[str, tuple[int, ...]]
) -> bool:
    """Whether a shape fits the named sizes; unknown sizes are added to `known`."""
    rest = shape
    for name in names:
        if name not in known:
            if not rest:
                return False
            known[name] = rest[:1]
        size = known[name]
        if rest[: len(size)] != size:
            return False
        rest = rest[len(size) :]
    return not rest


def check_ranges(arrays: Mapping[str, NDArray[Any]], values: dict[str, Any], sizes: Sizes) -> None:
    """Check the contents of arrays whose outline has been checked.

    Raises
    ------
    ValueError
        The message says what is wrong.
    """
    is_search = values["phase"] == Phase.SEARCH
    table = SEARCH_STATE if is_search else ROW_STATE
    limits: dict[str, int] = {}
    if not is_search:
        n_rows, scope, phase = len(arrays["alpha"]), values["scope"], values["phase"]
        limits = {"scope": scope}
        if scope > n_rows or values["rows_done"] > n_rows:
            raise ValueError(f"scope or rows_done is more than the {n_rows} rows there are")
        if len(arrays["sums"]) not in (0, scope):
            raise ValueError(f"sums are of {len(arrays['sums'])} rows, and the scope of {scope}")
        if (phase == Phase.GROW and scope == n_rows) or (values.get("n_sweeps") and scope < n_rows):
            raise ValueError(f"phase and n_sweeps do not fit a scope of {scope} of {n_rows} rows")
    for name, kept in table.items():
        array = arrays[name]
        if (
            kept.dtype == REALS
            and not -LARGEST < array.min(initial=0) <= array.max(initial=0) < LARGEST
        ):
            raise ValueError(f"{name} has values that are not finite, or very large")
        if kept.below is not None and not _ascend(array, limits[kept.below]):
            raise ValueError(f"{name} is not ascending, or not all within 0 and {kept.below}")
    if is_search:
        _check_search(SearchState(**arrays), sizes)
    else:
        _check_working_set(RowState(**arrays), scope=values["scope"])


def _check_working_set(state: RowState, *, scope: int) -> None:
    """Check the rows of a working set: ascending in each set, and active if any row is."""
    rows, sizes = state.working, state.set_sizes
    fit = ((sizes >= 0) & (sizes <= len(rows))).all() and int(sizes.sum()) == len(rows)
    if len(sizes) and not fit:
        raise ValueError("set_sizes do not add up to the rows of the working set")
    sets = np.split(rows, np.cumsum(sizes)[:-1])
    if not all(_ascend(each, scope) for each in sets):
        raise ValueError("working is not ascending, or not all within 0 and scope")
    if len(state.active) and not np.isin(rows, state.active).all():
        raise ValueError("working has rows that are not active")


def _check_search(state: SearchState, sizes: Sizes) -> None:
    """Check a core set: rows are distinct, weights add up to 1, and parts to all points."""
    core, weights = state.core, state.weights
    if not _ascend(np.sort(core), sizes.most_rows):
        raise ValueError("core has a row twice, or one that is not there")
    if (state.parts <= 0).any() or int(state.parts.sum()) != len(core):
        raise ValueError("parts do not add up to the points of the core set")
    if (weights < 0).any() or (len(core) and not math.isclose(weights.sum(), 1.0, rel_tol=1e-6)):
        raise ValueError("weights are not all >= 0, or do not add up to 1")


def _ascend(indices: I8, below: int) -> bool:
    """Whether indices are in [0, below) and strictly ascending."""
    if not len(indices):
        return True
    return bool(indices[0] >= 0 and indices[-1] < below and (indices[1:] > indices[:-1]).all())


_KINDS = get_type_hints(Counters)
"""Type of each counter."""


def check_counters(values: dict[str, Any], most_rows: int) -> None:
    """Check the types and ranges of counters.

    Raises
    ------
    ValueError
        The message names the counter.
    """
    if unknown := values.keys() - _KINDS.keys():
        raise ValueError(f"there is no counter {sorted(unknown)[0]!r}")
    if missing := {"phase", "scope", "rows_done", "random_state"} - values.keys():
        raise ValueError(f"there is no counter {sorted(missing)[0]!r}")
    for name, kind in _KINDS.items():
        if name in values and not _is_kind(name, values[name], kind):
            raise ValueError(f"the counter {name} is {str(values[name])[:40]!r}")
    scope = values["scope"]
    if values["phase"] == Phase.SEARCH:
        return
    if not 0 < scope <= most_rows or values["rows_done"] > most_rows:
        raise ValueError(f"the scope of {scope} rows is not one of up to {most_rows}")
    if not _is_random_state(values["random_state"]):
        raise ValueError("random_state is none of a generator's")


def _is_kind(name: str, value: object, kind: object) -> bool:
    if kind is bool:
        return type(value) is bool
    if kind is int:
        return type(value) is int and 0 <= value <= MOST_COUNTED
    if kind is float:
        return is_number(value, signed=name in SIGNED, endless=name in ENDLESS)
    if kind is Phase:
        return isinstance(value, str) and value in set(Phase)
    if name == "disk_tier":
        return value is None or isinstance(value, str)
    if name == "curve":
        return _is_curve(value)
    return isinstance(value, dict)


def _is_curve(value: object) -> bool:
    """Whether it is what a `LearningCurve` saves: nothing, or lists of one length."""
    if value == {}:
        return True
    if not isinstance(value, dict) or set(value) != set(NAMES):
        return False
    lists = list(value.values())
    if not all(isinstance(each, list) and len(each) == len(lists[0]) for each in lists):
        return False
    known = all(is_number(number) for each in lists for number in each)
    return (
        known
        and all(number >= 1 for number in value["trained"])
        and len(set(value["trained"])) == len(value["trained"])
        and all(number <= 1 for number in value["error"])
        and all(0 < number <= 1 for number in value["deviation"])
    )


def is_number(value: object, *, signed: bool = False, endless: bool = False) -> bool:
    """Whether a value is a number: 0 or more unless `signed`, finite unless `endless`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if value < 0 and not signed:
        return False
    # An integer may be too large for a float; comparisons with NaN are False.
    return -LARGEST < value < LARGEST or (endless and value in (math.inf, -math.inf))


def _is_random_state(state: object) -> bool:
    """Whether NumPy's generator accepts it as a state."""
    generator: Any = np.random.default_rng(0).bit_generator
    try:
        generator.state = state
    except (ValueError, TypeError, KeyError, OverflowError):
        return False
    return True
