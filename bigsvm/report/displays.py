"""Displays of a fit and of a search, with the conventions of scikit-learn's."""

from __future__ import annotations

from numbers import Real
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np

from bigsvm.errors import ParameterError, brief, shortened, shown
from bigsvm.report.pictures import figure_of
from bigsvm.report.text import count, number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    _Order: TypeAlias = tuple[int, float, str]

SIZE = (8.0, 5.5)
"""Width and height of a picture in inches."""
MOST_LABELS = 12
"""Most values beside an axis of a search."""
_SMALLEST = 16
"""Points of a square on a side below which it has no number in it."""
_MOST_MARKED = 60
"""Most entries of a history that are marked by dots."""
_LINE = 80
"""Characters of a line above a picture."""
_MOST_WORD = 24
"""Characters of a value beside an axis."""


class HistoryDisplay:
    """Gap and objective of a fit, at the end of each sweep or of a number of class pairs.

    Of working sets, as of a fit that ended before the first sweep, the gap is that within each set.

    Parameters
    ----------
    history : dict of arrays
        As the attribute `history_` or `working_set_history_` of an estimator.
    tol : float, optional
        Where the gap has to get to, which is drawn as a line.

    Attributes
    ----------
    ax_, objective_ax_ : matplotlib Axes
        With the gap, and with the dual objective on the other side of the picture.
    figure_ : matplotlib Figure

    Raises
    ------
    ParameterError
        The history is empty, or matplotlib is not installed.

    See Also
    --------
    SearchDisplay : Scores of a search.

    Examples
    --------
    >>> import bigsvm
    >>> from sklearn.datasets import make_moons
    >>> X, y = make_moons(200, noise=0.1, random_state=0)
    >>> display = bigsvm.HistoryDisplay.from_estimator(bigsvm.SVC(gamma=1).fit(X, y))
    >>> display.ax_.get_xlabel()
    'sweep'
    """

    def __init__(self, history: Mapping[str, NDArray[Any]], *, tol: float | None = None) -> None:
        self.history: Mapping[str, NDArray[Any]] = history
        self.tol: float | None = tol

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> Self:  # noqa: ANN401
        """Draw the history of an estimator that was fitted in this process."""
        if not hasattr(estimator, "history_"):
            raise ParameterError(
                f"{brief(estimator)} has no history_; fit it first (a file of a model has none)"
            )
        history, of_sets = estimator.history_, estimator.working_set_history_
        has_sweeps = len(next(iter(history.values())))
        history = history if has_sweeps or not len(of_sets["gap"]) else of_sets
        return cls(history, tol=estimator.certificate_.get("tol")).plot(ax)

    def plot(self, ax: Any = None) -> Self:  # noqa: ANN401 (of matplotlib)
        """Draw on axes of matplotlib, or on those of a new figure."""
        history = self.history
        what, places = next(iter(history.items()))
        if not len(places):
            raise ParameterError("the history is empty, as no sweep over all rows has ended")
        ax = _axes_of(ax)
        self.ax_: Any = ax
        self.figure_: Any = ax.figure
        self.objective_ax_: Any = ax.twinx()
        marker, gap = "o" if len(places) <= _MOST_MARKED else None, history["gap"]
        for axes, name, color in (
            (self.objective_ax_, "objective", "tab:orange"),
            (ax, "gap", "tab:blue"),
        ):
            axes.plot(places, history[name], marker=marker, color=color)
            axes.set_ylabel(name, color=color)
        words = {"pairs": "finished pairs of classes", "working_set": "working set"}
        ax.set_xlabel(words.get(what, what))
        ax.xaxis.get_major_locator().set_params(integer=True)
        if len(places) == 1:
            ax.set_xlim(places[0] - 1, places[0] + 1)
        if self.tol is not None:
            ax.axhline(self.tol, color="tab:blue", linestyle=":", label=f"tol {self.tol:g}")
            ax.legend(loc="lower right", bbox_to_anchor=(1, 1), frameon=False)  # above the curves
        # A gap may be 0 or below.
        scale = {} if (gap > 0).all() else {"linthresh": (self.tol or 1e-3) / 10}
        ax.set_yscale("symlog" if scale else "log", **scale)
        ax.set_zorder(self.objective_ax_.get_zorder() + 1)  # the legend before both curves
        ax.patch.set_visible(False)
        return self


class SearchDisplay:
    """Scores of a search over its parameters, each point with its score and the best with a star.

    All scores that are drawn are of one number of rows: of successive halving those of the round
    with the most points. The axes are the parameters that differ, C and gamma first; of points that
    differ in a third one only, the best is drawn.

    Parameters
    ----------
    params : list of dict
        Parameters of each point.
    scores : (points,) array-like of float
        Their mean scores; NaN where a point has none.
    n_rows : (points,) array-like of int, optional
        How many rows each was fitted and tested on.
    score_name : str

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    best_ : int
        Place of the best point, of those with the most rows.

    Raises
    ------
    ParameterError
        No point has a score, or there is no parameter, or matplotlib is not installed.

    See Also
    --------
    SearchCV : The search.
    HistoryDisplay : How a fit went.

    Examples
    --------
    >>> import bigsvm
    >>> from sklearn.datasets import make_moons
    >>> X, y = make_moons(200, noise=0.2, random_state=0)
    >>> search = bigsvm.SearchCV(bigsvm.SVC(), {"C": [1, 10], "gamma": [0.1, 1]}, cv=3).fit(X, y)
    >>> display = bigsvm.SearchDisplay.from_estimator(search)
    >>> display.ax_.get_xlabel(), display.ax_.get_ylabel()
    ('C', 'gamma')
    """

    def __init__(
        self,
        params: Sequence[Mapping[str, Any]],
        scores: ArrayLike,
        *,
        n_rows: ArrayLike | None = None,
        score_name: str = "score",
    ) -> None:
        self.params: list[Mapping[str, Any]] = list(params)
        self.score_name: str = score_name
        self.scores: NDArray[np.float64] = np.asarray(scores, np.float64)
        self.n_rows: NDArray[Any] = (
            np.zeros(len(self.params), int) if n_rows is None else np.asarray(n_rows)
        )

    @classmethod
    def from_estimator(
        cls,
        search: Any,  # noqa: ANN401 (any search)
        *,
        score: str | None = None,
        ax: Any = None,  # noqa: ANN401 (of matplotlib)
    ) -> Self:
        """Draw a fitted search, also one of scikit-learn's; `score` names one of several."""
        results = getattr(search, "cv_results_", {})
        known = [name[len("mean_test_") :] for name in results if name.startswith("mean_test_")]
        score = known[0] if score is None and known else score
        if score not in known:
            what = f"of {', '.join(known)}" if known else "at all: fit the search first"
            raise ParameterError(f"score is {brief(score)}; there are scores {what}")
        n_rows, means = results.get("n_resources"), results[f"mean_test_{score}"]
        return cls(results["params"], means, n_rows=n_rows, score_name=str(score)).plot(ax)

    def plot(self, ax: Any = None) -> Self:  # noqa: ANN401 (of matplotlib)
        """Draw on axes of matplotlib, or on those of a new figure."""
        last = np.where(self.n_rows == self.n_rows.max(initial=0), self.scores, np.nan)
        last[~np.isfinite(last)] = np.nan
        if np.isnan(last).all():
            raise ParameterError("no point of the search has a score; there is nothing to draw")
        self.best_: int = int(np.nanargmax(last))
        names = self._axes()
        at = [tuple(_order(point.get(name)) for name in names) for point in self.params]
        sizes, numbers = np.unique(self.n_rows, return_counts=True)
        of_most = sizes[len(sizes) - 1 - numbers[::-1].argmax()]
        drawn: dict[tuple[_Order, ...], float] = {}
        for place in np.flatnonzero(self.n_rows == of_most).tolist():
            drawn[at[place]] = float(np.fmax(drawn.get(at[place], np.nan), self.scores[place]))
        ax = _axes_of(ax)
        self.ax_: Any = ax
        self.figure_: Any = ax.figure
        across, up = (
            _places(axis, name, {point[k] for point in at})
            for k, (axis, name) in enumerate(zip((ax.xaxis, ax.yaxis), names, strict=True))
        )
        side = min(60.0, 330 / len(across), 260 / len(up))  # in points
        xy = np.array([(across[x], up[y]) for x, y in drawn])
        image = ax.scatter(*xy.T, c=list(drawn.values()), s=side**2, marker="s")
        for place, value in zip(xy, drawn.values(), strict=True):
            if side < _SMALLEST:
                break
            is_dark = np.isfinite(value) and image.norm(value) < 0.5
            words = number(value, 3) if np.isfinite(value) else "none"
            look = {"color": "white" if is_dark else "black", "fontsize": min(10.0, side / 4)}
            ax.annotate(words, place, ha="center", va="center", **look)
        x, y = at[self.best_]
        ax.annotate(
            "★", (across[x], up[y]), (0, side / 3), textcoords="offset points", ha="center",
            va="center", color="red", fontsize=max(9.0, side / 3),
        )  # fmt: skip
        ax.margins(0.12)
        self.figure_.colorbar(image, ax=ax, label=_word(self.score_name))
        named = [f"{name} {_word(value)}" for name, value in self.params[self.best_].items()]
        title = f"best {_word(self.score_name)} {number(last[self.best_])}: {', '.join(named)}"
        title = "\n".join(wrap(title, _LINE, max_lines=3))
        if len(sizes) > 1:
            title += f"\n★ on {count(int(sizes[-1]))} rows, drawn scores on {count(int(of_most))}"
        ax.set_title(title, fontsize="medium")
        return self

    def _axes(self) -> list[str]:
        """Name the two parameters that differ, C and gamma first; of one, the second is empty."""
        known = sorted({name for point in self.params for name in point}, key=_rank)
        differ = [n for n in known if len({_order(point.get(n)) for point in self.params}) > 1]
        if not known:
            raise ParameterError("the points of the search have no parameters; there are no axes")
        return [*(differ or known[:1]), ""][:2]


def _axes_of(ax: Any) -> Any:  # noqa: ANN401 (of matplotlib)
    """Return the axes, or those of a new figure of pyplot's in which nothing is clipped."""
    figure_of("displays are drawn")
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=SIZE, layout="constrained")[1] if ax is None else ax


def _places(axis: Any, name: str, values: set[_Order]) -> dict[_Order, int]:  # noqa: ANN401
    """Label an axis of the picture of a search; returns where each value is."""
    ordered = sorted(values)
    step = -(-len(ordered) // MOST_LABELS)
    axis.set_label_text(_word(name))
    labels = [_shown(value) for value in ordered[::step]] if name else []
    axis.set_ticks(range(0, step * len(labels), step), labels)
    if axis.axis_name == "x" and len(labels) > MOST_LABELS // 2:
        axis.set_tick_params(rotation=45)
    return {value: place for place, value in enumerate(ordered)}


def plain(text: str) -> str:
    """Return a text that matplotlib does not take for mathematics."""
    return shown(text).replace("$", r"\$")


def _word(value: object) -> str:
    """Show a value or a name beside an axis."""
    return _shown(_order(value))


def _shown(order: _Order) -> str:
    return plain(shortened(order[2], _MOST_WORD)) if order[0] else f"{order[1]:.4g}"


def _order(value: object) -> _Order:
    """Return a key that can be hashed, and by which numbers come before words, True and False."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return 1, 0.0, str(value)
    return 0, float(value), ""


def _rank(name: str) -> tuple[bool, bool, str]:
    return name != "C", name != "gamma", name
