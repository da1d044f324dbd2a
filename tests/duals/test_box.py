"""The box dual: scores and working sets by their definitions, sub-problems against an oracle."""

import naive
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr

from bigsvm.core import smo
from bigsvm.duals import box as module
from bigsvm.duals.box import BoxDual, rule_of
from bigsvm.duals.box_problem import Extremes, Optimality
from bigsvm.duals.dual import Point
from bigsvm.duals.formulations import CSVC
from bigsvm.duals.picking import Crowd, Wanted
from bigsvm.gram import KernelTiles
from bigsvm.gram.row_cache import RowBuffer
from bigsvm.kernels import RBF
from bigsvm.working_sets.subproblem import LEAST_BATCH, Memory, Progress, SubProblem

GAMMA = 0.5


@pytest.fixture(params=[1 << 18, 7], ids=["in one scan", "in scans of 7 rows"])
def scans(request, monkeypatch):
    monkeypatch.setattr(module, "SCAN_ROWS", request.param)
    monkeypatch.setattr("bigsvm.duals.picking.SCAN_ROWS", request.param)


def make_problem(n, seed=0, C=1.0, *, weighted=False):
    """Rows (n, 3) float32, K (n, n) float64, formulation, and a feasible alpha with all kinds."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)).astype(np.float32)
    sign = np.where(X[:, 0] + rng.normal(size=n) > 0, 1, -1).astype(np.int8)
    sign[:2] = 1, -1
    weight = rng.choice([0.0, 0.5, 1.0, 2.0], n) if weighted else None
    if weighted:
        weight[:2] = 1
    formulation = CSVC(sign=sign, C=C, sample_weight=weight)
    box = formulation.box(slice(None))
    alpha = np.zeros(n)
    for _ in range(n):
        i, j = rng.choice(np.flatnonzero(sign > 0)), rng.choice(np.flatnonzero(sign < 0))
        room = min(box.upper[i] - alpha[i], alpha[j] - box.lower[j])
        mu = room * rng.choice([0.0, 0.5, 1.0])
        alpha[i] = box.upper[i] if mu == box.upper[i] - alpha[i] else alpha[i] + mu
        alpha[j] = box.lower[j] if mu == alpha[j] - box.lower[j] else alpha[j] - mu
    return X, naive.kernel_matrix(X, X, "rbf", gamma=GAMMA), formulation, alpha


@given(st.integers(2, 40), st.integers(0, 10**6), st.booleans())
@settings(max_examples=50)
def test_optimality_is_its_definition(n, seed, weighted):
    _, K, formulation, alpha = make_problem(n, seed, 2.0, weighted=weighted)
    linear, lower, upper = formulation.box(slice(None))
    f = K @ alpha
    standing = BoxDual(formulation).optimality(alpha, f)
    g = linear - f
    free = [v for v in range(n) if lower[v] < alpha[v] < upper[v]]
    assert standing.worst.max_up == max(g[v] for v in range(n) if alpha[v] < upper[v])
    assert standing.worst.min_low == min(g[v] for v in range(n) if alpha[v] > lower[v])
    middle = np.mean(g[free]) if free else 0.5 * (standing.worst.max_up + standing.worst.min_low)
    assert standing.worst.threshold == pytest.approx(middle, rel=1e-12)
    assert standing.gap == naive.kkt_gap(K, linear, lower, upper, alpha)
    assert standing.objective == pytest.approx(naive.objective(K, linear, alpha), abs=1e-10)
    bounds = upper - lower
    gap = naive.duality_gap(K, formulation.sign, bounds, alpha, standing.worst.threshold)
    assert standing.duality_gap == pytest.approx(gap, abs=1e-9)
    assert gap >= -1e-9
    assert standing.n_free == len(free)
    assert standing.n_support == np.count_nonzero(alpha)
    assert standing.n_bounded == standing.n_support - standing.n_free


@pytest.mark.usefixtures("scans")
def test_optimality_does_not_depend_on_the_scan():
    _, K, formulation, alpha = make_problem(40, 1)
    standing = BoxDual(formulation).optimality(alpha, K @ alpha)
    linear, lower, upper = formulation.box(slice(None))
    assert standing.gap == naive.kkt_gap(K, linear, lower, upper, alpha)
    assert standing.linear_term == pytest.approx(linear @ alpha, rel=1e-12)
    assert standing.n_free == ((alpha > lower) & (alpha < upper)).sum()


def test_at_the_optimum_both_gaps_close():
    _, K, formulation, _ = make_problem(25, 2)
    box = formulation.box(slice(None))
    alpha = naive.solve(K, *box, np.zeros(25))
    standing = BoxDual(formulation).optimality(alpha, K @ alpha)
    assert standing.gap <= 1e-9
    assert 0 <= standing.duality_gap + 1e-9 <= 1e-6


def test_at_zero_the_gap_is_that_of_the_labels():
    _, _, formulation, _ = make_problem(20, 2, C=3.0)
    standing = BoxDual(formulation).optimality(np.zeros(20), np.zeros(20))
    assert (
        standing.worst.max_up,
        standing.worst.min_low,
        standing.gap,
        standing.worst.threshold,
    ) == (1.0, -1.0, 2.0, 0.0)
    assert (standing.n_support, standing.n_free, standing.objective) == (0, 0, 0.0)
    assert standing.duality_gap == pytest.approx(3.0 * 20)  # every slack is 1


# -- the working set ------------------------------------------------------------------------------


def violations(formulation, alpha, outputs, threshold):
    """How far each row's gradient is on the wrong side of the threshold; below 0 if right."""
    linear, lower, upper = formulation.box(slice(None))
    scores = np.full(len(alpha), -np.inf)
    for v in range(len(alpha)):
        distance = linear[v] - outputs[v] - threshold
        if alpha[v] < upper[v]:
            scores[v] = max(scores[v], distance)
        if alpha[v] > lower[v]:
            scores[v] = max(scores[v], -distance)
    return scores, (alpha > lower) & (alpha < upper)


@pytest.mark.usefixtures("scans")
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("capacity", "smallest", "fill"), [
    (60, 1, 1.0), (60, 1, 2.0), (60, 50, 1.0), (20, 1, 2.0), (3, 1, 1.0), (1000, 1000, 1.0),
])  # fmt: skip
def test_working_sets(seed, weighted, capacity, smallest, fill):
    _, K, formulation, alpha = make_problem(60, seed, weighted=weighted)
    dual = BoxDual(formulation)
    outputs = K @ alpha
    standing = dual.optimality(alpha, outputs)
    rng = np.random.default_rng(seed)
    chosen = dual.select(alpha, outputs, standing, Wanted(capacity, smallest, fill, rng))
    scores, free = violations(formulation, alpha, outputs, standing.worst.threshold)
    wanted = free | (scores.astype(np.float32) > 0)
    assert chosen.dtype == np.int64
    assert (np.diff(chosen) > 0).all()
    assert len(chosen) == min(60, capacity, max(smallest, int(fill * wanted.sum())))
    inside = np.isin(np.arange(60), chosen)
    if 2 * free.sum() <= capacity:
        assert inside[free].all() or len(chosen) < free.sum()
        scores[free] = np.inf
    if wanted.sum() > len(chosen):  # which of the violators is left to chance, but for two
        assert (scores[inside] > 0).all()
        _, lower, upper = formulation.box(slice(None))
        gradient = formulation.box(slice(None)).linear - outputs
        assert gradient[inside & (alpha < upper)].max() == standing.worst.max_up
        assert gradient[inside & (alpha > lower)].min() == standing.worst.min_low
        return
    assert inside[wanted].all()
    if not inside.all():
        rest = scores[~inside].max()
        assert scores[inside].min() >= rest - 1e-6 * max(1, abs(rest))


def test_the_worse_a_violator_the_likelier_it_is_chosen():
    _, K, formulation, alpha = make_problem(60, 1)
    dual = BoxDual(formulation)
    outputs = K @ alpha
    standing = dual.optimality(alpha, outputs)
    scores, free = violations(formulation, alpha, outputs, standing.worst.threshold)
    candidates = np.flatnonzero(~free & (scores > 0))
    rng = np.random.default_rng(0)
    times = np.zeros(60)
    for _ in range(2000):
        times[dual.select(alpha, outputs, standing, Wanted(8, 1, 1.0, rng))] += 1
    assert np.count_nonzero(times[candidates]) > 8
    assert spearmanr(times[candidates], scores[candidates]).statistic > 0.95


def test_a_crowd_of_violators_leaves_the_free_rows_their_places():
    """Sets without them undo with every violator what the free rows had balanced."""
    sign = np.array([1, -1] * 30, np.int8)
    dual = BoxDual(CSVC(sign=sign, C=1.0))
    alpha = np.where(np.arange(60) < 6, 0.5 * sign, 0.0)
    outputs = 0.8 * alpha  # of the free rows' violations the smallest
    standing = dual.optimality(alpha, outputs)
    free = np.arange(6)

    def choose(crowd, capacity=11):
        rng = np.random.default_rng(0)
        return dual.select(alpha, outputs, standing, Wanted(capacity, 1, 1.0, rng, crowd=crowd))

    assert len(choose(None)) == 11
    assert not np.isin(free, choose(None)).all()
    assert len(choose(Crowd(12))) == 12
    assert np.isin(free, choose(Crowd(12))).all()
    np.testing.assert_array_equal(choose(Crowd(12), capacity=60), np.arange(60))


@pytest.mark.parametrize("seed", range(5))
def test_working_set_of_many_violators_is_the_neighbours_of_a_row(seed):
    _, K, formulation, alpha = make_problem(80, seed)
    dual = BoxDual(formulation)
    outputs = K @ alpha
    standing = dual.optimality(alpha, outputs)
    pivots = []

    def near(place):
        pivots.append(place)
        return K[place]

    found = dual.scores(alpha, outputs, standing, tol=0.0)
    crowd, score = np.flatnonzero(found.asked), found.score.copy()
    wanted = Wanted(10, 1, 1.0, np.random.default_rng(seed), crowd=Crowd(12, near))
    chosen = dual.select(alpha, outputs, standing, wanted)
    (pivot,) = pivots
    assert score[pivot] > 0
    assert len(chosen) == 12
    assert np.isin(found.worst[0], chosen).all()
    others = np.setdiff1d(crowd, found.worst)
    for side in (False, True):
        inside = [i for i in others if found.above[i] == side and i in chosen]
        outside = [i for i in others if found.above[i] == side and i not in chosen]
        assert 4 <= len(inside) <= 6
        assert K[pivot, inside].min() >= K[pivot, outside].max(initial=0)
    wanted = wanted._replace(capacity=len(crowd), rng=np.random.default_rng(seed))
    all_of_them = dual.select(alpha, outputs, standing, wanted)
    np.testing.assert_array_equal(all_of_them, crowd)
    assert pivots == [pivot]


def test_ties_are_broken_by_the_first_rows():
    sign = np.array([1, -1] * 10, np.int8)
    dual = BoxDual(CSVC(sign=sign, C=1.0))
    alpha, outputs = np.zeros(20), 2.0 * sign
    standing = dual.optimality(alpha, outputs)
    rng = np.random.default_rng(0)
    chosen = dual.select(alpha, outputs, standing, Wanted(7, 7, 1.0, rng))
    assert chosen.tolist() == list(range(7))


def test_rows_without_weight_are_chosen_last():
    _, K, formulation, alpha = make_problem(60, 3, weighted=True)
    dual = BoxDual(formulation)
    outputs = K @ alpha
    standing = dual.optimality(alpha, outputs)
    movable = formulation.sample_weight > 0
    capacity, rng = movable.sum(), np.random.default_rng(0)
    chosen = dual.select(alpha, outputs, standing, Wanted(capacity, 60, 1.0, rng))
    assert chosen.tolist() == np.flatnonzero(movable).tolist()


@pytest.mark.usefixtures("scans")
def test_near_the_threshold():
    _, K, formulation, alpha = make_problem(60, 4, weighted=True)
    dual = BoxDual(formulation)
    outputs = K @ alpha
    standing = dual.optimality(alpha, outputs)
    linear, lower, upper = formulation.box(slice(None))
    for margin in (0.0, 0.3, 10.0):
        expected = [
            v for v in range(60)
            if lower[v] < upper[v]
            and (lower[v] < alpha[v] < upper[v]
                 or abs(linear[v] - outputs[v] - standing.worst.threshold) <= margin)
        ]  # fmt: skip
        found = dual.near_threshold(alpha, outputs, standing, margin=margin)
        assert found.tolist() == expected
    assert len(found) == (lower < upper).sum()


@pytest.mark.usefixtures("scans")
@pytest.mark.parametrize("seed", range(4))
def test_doubtful_are_rows_that_may_violate_the_most_or_at_all(seed):
    _, K, formulation, alpha = make_problem(60, seed, weighted=True)
    dual, outputs = BoxDual(formulation), K @ alpha
    linear, lower, upper = formulation.box(slice(None))
    g, ends = linear - outputs, dual.optimality(alpha, outputs).worst
    b = ends.threshold
    for tol, error in ((0.1, 0.0), (0.1, 0.3), (10.0, 0.0), (10.0, 0.1)):
        limit, expected = min(tol, ends.gap) - 2 * error, []
        for v in range(60):
            up, down = alpha[v] < upper[v], alpha[v] > lower[v]
            violates = (up and g[v] - ends.min_low > limit) or (down and ends.max_up - g[v] > limit)
            rises = up and not down and g[v] > b - 2 * error
            falls = down and not up and g[v] < b + 2 * error
            if violates or rises or falls:
                expected.append(v)
        assert dual.doubtful(alpha, outputs, tol=tol, error=error).tolist() == expected


@pytest.mark.parametrize("tol", [1e-5, 0.1])
@pytest.mark.parametrize("seed", range(4))
def test_outputs_of_rows_that_are_not_doubtful_do_not_change_the_gaps(seed, tol):
    """Whatever the errors of their outputs are; in the duality gap those of free rows are small."""
    rng = np.random.default_rng(seed)
    _, K, formulation, _ = make_problem(120, seed)
    box = formulation.box(slice(None))
    alpha = naive.solve(K, *box, np.zeros(120), tol=tol)
    dual, error = BoxDual(formulation), 1e-2
    exact = K @ alpha
    wrong = exact + rng.uniform(-error, error, 120)
    rows = dual.doubtful(alpha, wrong, tol=2 * tol, error=error)
    assert 0 < len(rows) < np.count_nonzero(alpha)
    wrong[rows] = exact[rows]
    standing, expected = dual.optimality(alpha, wrong), dual.optimality(alpha, exact)
    assert standing.gap == expected.gap
    free = (alpha > box.lower) & (alpha < box.upper)
    free[rows] = False
    most = np.maximum(box.upper - alpha, alpha - box.lower)[free].sum() * error
    assert abs(standing.duality_gap - expected.duality_gap) <= most + 1e-9
    wrong[free] = exact[free]
    assert dual.optimality(alpha, wrong).duality_gap == pytest.approx(
        expected.duality_gap, rel=1e-9
    )
    assert standing.objective != pytest.approx(expected.objective, rel=1e-9)


@pytest.mark.parametrize(("name", "rule"), [
    ("mvp", smo.MVP), ("second-order", smo.SECOND_ORDER),
    ("hmg", smo.HMG), ("auto", smo.SECOND_ORDER),
])  # fmt: skip
def test_rules_by_name(name, rule):
    assert rule_of(name) == rule


def test_progress_has_the_core_s_numbers():
    assert {p.name: int(p) for p in Progress} == {
        name: getattr(smo, name) for name in ("CONVERGED", "STEPS_SPENT", "STALLED")
    }


def test_a_gap_is_never_negative():
    standing = Optimality((Extremes(-1.0, 1.0, 0.0),), 0, 0, 0, 0.0, 0.0, 0.0, 0.0, 0.0)
    assert standing.gap == 0


# -- the problem on a working set -----------------------------------------------------------------


def sub_problem(X, K, formulation, alpha, tiles, *, rule="mvp", slots=None, chosen=None, **options):
    chosen = np.arange(len(X)) if chosen is None else chosen
    rows = sp.csr_array(X[chosen]) if options.pop("sparse", False) else X[chosen]
    gradient = formulation.sign[chosen] - (K @ alpha)[chosen]
    buffer = RowBuffer(4096 * (slots or len(chosen)))
    dual = BoxDual(formulation, rule_of(rule))
    start, memory = Point(alpha[chosen], gradient), Memory(buffer, **options)
    return SubProblem(dual, tiles, rows, chosen, start, memory)


@pytest.fixture
def tiles():
    with KernelTiles(RBF(gamma=GAMMA)) as tiles:
        yield tiles


@pytest.mark.parametrize("rule", ["mvp", "second-order", "hmg"])
@pytest.mark.parametrize("sparse", [False, True])
def test_working_set_of_all_rows_solves_the_problem(rule, sparse, tiles):
    X, K, formulation, alpha = make_problem(30, 1, C=5.0, weighted=True)
    problem = sub_problem(X, K, formulation, alpha, tiles, rule=rule, sparse=sparse)
    assert problem.gap == pytest.approx(naive.kkt_gap(K, *formulation.box(slice(None)), alpha))
    assert problem.advance(tol=1e-5, max_steps=1 << 15) is Progress.CONVERGED
    assert problem.gap <= 1e-5
    box = formulation.box(slice(None))
    most = naive.objective(K, box.linear, naive.solve(K, *box, alpha))
    assert naive.objective(K, box.linear, problem.point.alpha) == pytest.approx(most, rel=1e-6)
    np.testing.assert_allclose(
        problem.point.gradient, box.linear - K @ problem.point.alpha, atol=5e-5
    )
    assert problem.steps.n_done > 0
    assert 0 < problem.cache.n_misses <= 30


def test_working_set_leaves_other_rows_unchanged(tiles):
    X, K, formulation, alpha = make_problem(40, 2)
    chosen = np.array([1, 5, 6, 9, 20, 21, 22, 30])
    problem = sub_problem(X, K, formulation, alpha, tiles, chosen=chosen)
    assert problem.advance(tol=1e-6) is Progress.CONVERGED
    box = formulation.box(chosen)
    rest = np.setdiff1d(np.arange(40), chosen)
    linear = box.linear - K[np.ix_(chosen, rest)] @ alpha[rest]
    K_part = K[np.ix_(chosen, chosen)]
    assert naive.kkt_gap(K_part, linear, box.lower, box.upper, problem.point.alpha) <= 1e-5
    assert problem.point.alpha.sum() == pytest.approx(alpha[chosen].sum(), abs=1e-12)


@pytest.mark.parametrize("rule", ["mvp", "second-order", "hmg"])
@pytest.mark.parametrize("slots", [4, 5, 8, 13, 40])
def test_bits_do_not_depend_on_the_number_of_cache_slots(rule, slots, tiles):
    X, K, formulation, _ = make_problem(60, 3, C=10.0)
    alpha = np.zeros(60)
    whole = sub_problem(X, K, formulation, alpha, tiles, rule=rule)
    assert whole.advance(tol=1e-4, max_steps=1 << 15) is Progress.CONVERGED
    scarce = sub_problem(X, K, formulation, alpha, tiles, rule=rule, slots=slots)
    assert scarce.cache.n_slots == slots
    assert scarce.advance(tol=1e-4, max_steps=1 << 15) is Progress.CONVERGED
    np.testing.assert_array_equal(scarce.point.alpha, whole.point.alpha)
    np.testing.assert_array_equal(scarce.point.gradient, whole.point.gradient)
    assert scarce.steps.n_done == whole.steps.n_done
    assert scarce.cache.n_misses > whole.cache.n_misses


@pytest.mark.parametrize("rule", ["mvp", "second-order", "hmg"])
def test_resumed_it_gives_the_same_bits(rule, tiles):
    X, K, formulation, _ = make_problem(120, 5, C=4000.0)
    whole = sub_problem(X, K, formulation, np.zeros(120), tiles, rule=rule)
    assert whole.advance(tol=1e-3, max_steps=1 << 20) is Progress.CONVERGED
    problem = sub_problem(X, K, formulation, np.zeros(120), tiles, rule=rule, slots=80)
    pieces = 0
    while problem.advance(tol=1e-3) is Progress.STEPS_SPENT:
        pieces += 1
        rows = np.arange(120)
        problem = SubProblem(
            BoxDual(formulation, rule_of(rule)), tiles, X, rows,
            problem.point, Memory(RowBuffer(4096 * (80 + pieces))),
        )  # fmt: skip
    assert pieces > 1
    np.testing.assert_array_equal(problem.point.alpha, whole.point.alpha)
    assert problem.steps.n_done == whole.steps.n_done


@pytest.mark.parametrize("size", [10, 1024])
def test_a_working_set_that_cannot_move_is_solved(size, tiles):
    """All of one class at zero: nothing may fall. 1024 rows leave no padding behind the last."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(size + 1, 3)).astype(np.float32)
    sign = np.ones(size + 1, np.int8)
    sign[-1] = -1
    formulation = CSVC(sign=sign, C=1.0)
    alpha = np.zeros(size + 1)
    problem = sub_problem(
        X, np.zeros((size + 1, size + 1)), formulation, alpha, tiles, chosen=np.arange(size)
    )
    assert problem.gap == 0
    assert problem.advance(tol=1e-3) is Progress.CONVERGED
    assert problem.cache.n_misses == 0
    assert not problem.point.alpha.any()


def test_the_most_wanted_are_the_worst_violators_without_a_row(tiles, monkeypatch):
    monkeypatch.setattr("bigsvm.working_sets.subproblem.BATCH", 64)
    X, K, formulation, alpha = make_problem(50, 7)
    problem = sub_problem(X, K, formulation, alpha, tiles)
    box = formulation.box(slice(None))
    gradient = box.linear - K @ alpha
    middle = 0.5 * (gradient[alpha < box.upper].max() + gradient[alpha > box.lower].min())
    scores, _ = violations(formulation, alpha, K @ alpha, middle)
    wanted, quiet = problem._most_wanted(17, 0.0)
    assert quiet.tolist() == (scores < 0).tolist()
    assert wanted[0] == 17
    others = [v for v in np.argsort(-scores, kind="stable") if scores[v] > 0 and v != 17]
    assert wanted[1:].tolist() == others
    problem.cache.ensure(np.array(others[:3]), stamp=1)
    assert problem._most_wanted(17, 0.0)[0][1:].tolist() == others[3:]
    problem.cache.ensure(
        np.array([v for v in range(50) if v != 17 and v not in others[:3]]), stamp=1
    )
    assert problem._most_wanted(17, 0.0)[0].tolist() == [17]


def test_nearest_rows_fill_a_batch_with_few_violators(tiles):
    X, K, formulation, alpha = make_problem(50, 7)
    box = formulation.box(slice(None))
    gradient = box.linear - K @ alpha
    middle = 0.5 * (gradient[alpha < box.upper].max() + gradient[alpha > box.lower].min())
    scores, _ = violations(formulation, alpha, K @ alpha, middle)
    others = [v for v in np.argsort(-scores, kind="stable").tolist() if v != 17]
    problem = sub_problem(X, K, formulation, alpha, tiles)
    assert problem._most_wanted(17, 1e6)[0].tolist() == [17, *others[: LEAST_BATCH - 1]]
    crowded = sub_problem(X, K, formulation, alpha, tiles, slots=20)
    assert crowded._most_wanted(17, 1e6)[0].tolist() == [17]
