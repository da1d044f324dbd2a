"""Displays show the numbers that they are given, and nothing of them is cut off."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from sklearn.datasets import make_moons
from sklearn.model_selection import GridSearchCV

import bigsvm
from bigsvm.errors import ParameterError
from bigsvm.report.displays import HistoryDisplay, SearchDisplay

HOSTILE = "<script>$\\frac{'\"</script>" + "long " * 100


@pytest.fixture(autouse=True)
def _without_windows():
    with mpl.rc_context({"backend": "agg"}):
        yield
    plt.close("all")


@pytest.fixture(scope="module")
def moons():
    return make_moons(300, noise=0.2, random_state=0)


def words_in(figure):
    """Texts that a figure shows, after it was drawn; none of them may be cut off."""
    figure.canvas.draw()
    renderer, page = figure.canvas.get_renderer(), figure.bbox
    # Matplotlib keeps the labels of ticks past the ends of an axis, and does not draw them.
    hidden = set()
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        kept = {*axis.get_major_ticks(), *axis.get_minor_ticks()} - {*axis._update_ticks()}
        hidden |= {label for tick in kept for label in (tick.label1, tick.label2)}
    texts = [t for t in figure.findobj(mpl.text.Text) if t.get_visible() and t.get_text()]
    texts = [text for text in texts if text not in hidden]
    for text in texts:
        box = text.get_window_extent(renderer)
        outside = page.x0 - box.x0, box.x1 - page.x1, page.y0 - box.y0, box.y1 - page.y1
        assert max(outside) <= 1, text  # in pixels
    return [text.get_text() for text in texts]


def history(gap, what="sweep"):
    gap = np.asarray(gap, float)
    return {what: np.arange(1, len(gap) + 1), "objective": np.arange(len(gap)) * 1.0, "gap": gap}


def test_the_history_of_an_estimator_is_drawn(moons):
    model = bigsvm.SVC(gamma=1, memory="3MB").fit(*moons)
    display = bigsvm.HistoryDisplay.from_estimator(model)
    gap, tol = display.ax_.get_lines()
    [objective] = display.objective_ax_.get_lines()
    assert gap.get_ydata().tolist() == model.history_["gap"].tolist()
    assert objective.get_ydata().tolist() == model.history_["objective"].tolist()
    assert gap.get_xdata().tolist() == model.history_["sweep"].tolist()
    assert set(tol.get_ydata()) == {model.tol}
    assert display.figure_ is display.ax_.figure
    assert {"gap", "objective", "sweep", "tol 0.001"} <= set(words_in(display.figure_))


def test_axes_of_the_caller_are_drawn_on(moons):
    _, (left, right) = plt.subplots(1, 2)
    search = bigsvm.SearchCV(bigsvm.SVC(), {"C": [1, 10]}, cv=2).fit(*moons)
    assert HistoryDisplay(history([1, 0.1])).plot(left).ax_ is left
    assert SearchDisplay.from_estimator(search, ax=right).ax_ is right


@pytest.mark.parametrize("gap", [[1, 0.1, 0], [1, np.nan, -0.5], [np.nan], [1e-3] * 500])
def test_gaps_that_are_no_positive_numbers_are_drawn(gap):
    display = HistoryDisplay(history(gap), tol=1e-3).plot()
    np.testing.assert_array_equal(display.ax_.get_lines()[0].get_ydata(), gap)
    assert "gap" in words_in(display.figure_)


def test_pairs_of_classes_are_named():
    display = HistoryDisplay(history([1, 0.5], "pairs"), tol=0.1).plot()
    assert "finished pairs of classes" in words_in(display.figure_)


def test_what_has_no_history_is_refused(moons, tmp_path):
    model = bigsvm.SVC(gamma=1).fit(*moons)
    model.save(tmp_path / "model")
    for estimator in (bigsvm.SVC(), bigsvm.load(tmp_path / "model")):
        with pytest.raises(ParameterError, match="has no history_; fit it first"):
            HistoryDisplay.from_estimator(estimator)
    with pytest.raises(ParameterError, match="the history is empty"):
        HistoryDisplay(history([])).plot()


@pytest.mark.parametrize("kind", [bigsvm.SearchCV, GridSearchCV])
def test_each_point_has_its_score_and_the_best_a_star(kind, moons):
    grid = {"C": [0.1, 1, 10], "gamma": [0.125, 1]}
    search = kind(bigsvm.SVC(), grid, cv=3).fit(*moons)
    display = SearchDisplay.from_estimator(search)
    words = words_in(display.figure_)
    assert display.ax_.get_xlabel() == "C"
    assert display.ax_.get_ylabel() == "gamma"
    assert [t.get_text() for t in display.ax_.get_xticklabels()] == ["0.1", "1", "10"]
    scores = search.cv_results_["mean_test_score"]
    shown = {f"{score:.3g}" for score in scores}
    assert shown <= set(words)
    star = next(t for t in display.ax_.texts if t.get_text() == "★")
    best = search.best_params_
    assert star.xy == ([0.1, 1, 10].index(best["C"]), [0.125, 1].index(best["gamma"]))
    assert display.best_ == search.best_index_
    # Each score is where its parameters are.
    places = {t.xy: t.get_text() for t in display.ax_.texts if t is not star}
    for params, score in zip(search.cv_results_["params"], scores, strict=True):
        at = [0.1, 1, 10].index(params["C"]), [0.125, 1].index(params["gamma"])
        assert next(w for xy, w in places.items() if tuple(xy) == at) == f"{score:.3g}"


def test_scores_of_one_number_of_rows_are_drawn():
    params = [{"C": C} for C in (1, 2, 3, 1, 2)]
    display = SearchDisplay(params, [0.1, 0.2, 0.9, 0.4, 0.3], n_rows=[5, 5, 5, 10, 10]).plot()
    words = words_in(display.figure_)
    assert {"0.1", "0.2", "0.9"} <= set(words)
    assert not {"0.3", "0.4"} & set(t.get_text() for t in display.ax_.texts)
    assert display.best_ == 3
    assert any("best score 0.4: C 1\n★ on 10 rows, drawn scores on 5" in word for word in words)


def test_of_points_that_differ_in_a_third_parameter_the_best_is_drawn():
    params = [{"C": C, "gamma": g, "nu": n} for C in (1, 2) for g in (1, 2) for n in (1, 2)]
    scores = [0.1, 0.2, np.nan, 0.3, np.nan, np.nan, 0.5, 0.4]
    display = SearchDisplay(params, scores).plot()
    assert sorted(t.get_text() for t in display.ax_.texts) == ["0.2", "0.3", "0.5", "none", "★"]


@pytest.mark.parametrize(
    ("params", "scores"),
    [
        ([{HOSTILE: value} for value in (HOSTILE, "$", "a", None, True)], [1, 2, 3, 4, 5]),
        ([{"C": 2.0**k, "gamma": 3.0**-k} for k in range(60)], np.linspace(0, 1, 60)),
        ([{"C": C, "gamma": g} for C in range(1, 12) for g in range(1, 11)], np.arange(110)),
        ([{"C": 1}], [-1e9]),
        ([{"C": {0: value}, "k": [1]} for value in range(3)], [1, 2, 3]),
        ([{"C": C} for C in range(1000)], np.arange(1000)),
        ([{"C": 1}, {"C": 2}], [np.nan, -np.inf]),
        ([], []),
        ([{}], [1]),
    ],
)
def test_any_points_are_drawn_or_refused(params, scores):
    display = SearchDisplay(params, scores, score_name=HOSTILE[:80])
    if not np.isfinite(scores).any() or not params[0]:
        with pytest.raises(ParameterError, match=r"no point of the search has|no parameters"):
            display.plot()
        return
    drawn = display.plot().figure_
    words = words_in(drawn)
    assert "★" in words
    assert sum(word == "★" for word in words) == 1


def test_what_is_no_fitted_search_and_no_score_is_refused(moons):
    with pytest.raises(ParameterError, match="fit the search first"):
        SearchDisplay.from_estimator(bigsvm.SearchCV(bigsvm.SVC(), {"C": [1]}))
    search = bigsvm.SearchCV(bigsvm.SVC(), {"C": [1]}, cv=2).fit(*moons)
    with pytest.raises(ParameterError, match="score is 'auc'; there are scores of score"):
        SearchDisplay.from_estimator(search, score="auc")
