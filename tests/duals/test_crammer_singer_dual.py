"""CrammerSingerDual: scores, choices and steps of row problems, against definitions."""

import naive
import numpy as np
import pytest

from bigsvm.core import crammer_singer
from bigsvm.duals import row_steps
from bigsvm.duals.crammer_singer import (
    Cooling,
    CrammerSinger,
    CrammerSingerDual,
    Order,
    RowSolver,
    Violations,
)
from bigsvm.duals.dual import Point
from bigsvm.duals.picking import Wanted
from bigsvm.errors import DataError, ParameterError
from bigsvm.gram import KernelTiles
from bigsvm.gram.row_cache import RowBuffer
from bigsvm.kernels import RBF
from bigsvm.working_sets.subproblem import Memory, Progress, SubProblem

N, K_CLASSES, C = 60, 5, 2.0


@pytest.fixture(params=[1 << 18, 35], ids=["in one scan", "in scans of 7 rows"])
def scans(request, monkeypatch):
    monkeypatch.setattr("bigsvm.duals.crammer_singer.SCAN_ROWS", request.param)


def formulation(n=N, seed=0, **options):
    rng = np.random.default_rng(seed)
    label = rng.integers(K_CLASSES, size=n).astype(np.int32)
    label[:K_CLASSES] = np.arange(K_CLASSES)
    weights = rng.choice([0.5, 1.0, 3.0], n)
    weights[11] = 0.0
    return CrammerSinger(
        label=label, n_classes=K_CLASSES, C=C, sample_weight=options.pop("weights", weights),
        **options,
    )  # fmt: skip


@pytest.fixture
def point():
    """A feasible point with rows of all kinds: 0, at a bound, and free; its outputs; K."""
    problem = formulation()
    rng = np.random.default_rng(3)
    X = rng.normal(size=(N, 3)).astype(np.float32)
    K = naive.kernel_matrix(X, X, "rbf", gamma=0.5)
    bounds = problem.bounds(slice(None))
    alpha = np.zeros((N, K_CLASSES))
    for i in range(0, N, 2):
        y, c = problem.label[i], bounds[i]
        eta = rng.dirichlet(np.ones(K_CLASSES)) * c if i % 4 else np.zeros(K_CLASSES)
        if i % 4 == 0:
            eta[(y + 1 + i % 3) % K_CLASSES] = c
        alpha[i] = c * (np.arange(K_CLASSES) == y) - eta
    return problem, X, K, alpha, K @ alpha


def gradient_of(problem, outputs):
    return np.eye(K_CLASSES)[problem.label] - outputs


@pytest.mark.usefixtures("scans")
def test_a_point_stands_where_its_definitions_say(point):
    problem, _, K, alpha, outputs = point
    bounds = problem.bounds(slice(None))
    standing = CrammerSingerDual(problem).optimality(alpha, outputs)
    psi = naive.multiclass_violations(gradient_of(problem, outputs), problem.label, bounds, alpha)
    assert standing.gap == pytest.approx(psi.max())
    dual, primal = naive.multiclass_objectives(K, problem.label, K_CLASSES, bounds, alpha)
    assert standing.objective == pytest.approx(dual)
    assert standing.duality_gap == pytest.approx(primal - dual)
    assert standing.n_support == np.count_nonzero(alpha.any(axis=1)) == 30
    assert standing.n_bounded == 15
    assert standing.n_free == 15
    assert standing.thresholds == ()


@pytest.mark.usefixtures("scans")
def test_chosen_rows_stand_where_they_stand_among_all(point):
    problem, _, _, alpha, outputs = point
    rows = np.array([50, 3, 20, 44, 11])
    dual = CrammerSingerDual(problem)
    standing = dual.optimality(alpha[rows], outputs[rows], rows=rows)
    part = CrammerSingerDual(problem.take(rows)).optimality(alpha[rows], outputs[rows])
    assert standing == part
    assert dual.n_bounded(alpha[rows], rows) == standing.n_bounded == 2


def test_the_duality_gap_is_a_sum_over_rows_none_of_which_is_negative(point):
    problem, _, _, alpha, outputs = point
    dual = CrammerSingerDual(problem)
    gaps = [
        dual.optimality(alpha[[i]], outputs[[i]], rows=np.array([i])).duality_gap for i in range(N)
    ]
    assert min(gaps) > -1e-12
    assert sum(gaps) == pytest.approx(dual.optimality(alpha, outputs).duality_gap)


def test_a_point_that_cannot_move_has_no_gap():
    problem = formulation(weights=np.where(np.arange(N) < 2, 1.0, 0.0))
    rows = np.arange(5, 20)
    standing = CrammerSingerDual(problem).optimality(
        np.zeros((15, 5)), np.zeros((15, 5)), rows=rows
    )
    assert standing == Violations(0.0, 0, 0, 0, 0.0, 0.0, 0.0)


@pytest.mark.usefixtures("scans")
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_outputs_that_left_float32_are_refused_with_their_row(point, value):
    problem, _, _, alpha, outputs = point
    outputs[37, 2] = value
    with pytest.raises(DataError, match="row 37 are too large for float32"):
        CrammerSingerDual(problem).optimality(alpha, outputs)
    rows = np.array([4, 37])
    with pytest.raises(DataError, match="row 37 are"):
        CrammerSingerDual(problem).optimality(alpha[rows], outputs[rows], rows=rows)


def test_outputs_and_gradient_lead_to_one_another(point):
    problem, _, _, alpha, outputs = point
    rows = np.array([5, 1, 58])
    dual = CrammerSingerDual(problem)
    gradient = dual.gradient(alpha[rows], outputs[rows], rows)
    np.testing.assert_array_equal(gradient, gradient_of(problem, outputs)[rows])
    np.testing.assert_allclose(
        dual.outputs_from(gradient, alpha[rows], rows), outputs[rows], atol=1e-15
    )


def scores_of(problem, alpha, outputs):
    """How far each row is from being optimal, less than 0 for one that could be pushed so far."""
    gradient, scores = gradient_of(problem, outputs), np.full(N, -np.inf)
    free = np.zeros(N, bool)
    for i, bound in enumerate(problem.bounds(slice(None))):
        upper = bound * (np.arange(K_CLASSES) == problem.label[i])
        room = alpha[i] < upper
        free[i] = room.sum() > 1
        if room.any():
            others = gradient[i] if free[i] else gradient[i][~room]
            scores[i] = gradient[i][room].max() - others.min()
    return scores, free


@pytest.mark.usefixtures("scans")
@pytest.mark.parametrize("capacity", [20, 36, 48])
def test_free_rows_then_the_worst_then_the_nearest_are_chosen(point, capacity):
    problem, _, _, alpha, outputs = point
    dual = CrammerSingerDual(problem)
    standing = dual.optimality(alpha, outputs)
    scores, free = scores_of(problem, alpha, outputs)
    wanted = Wanted(capacity, 8, 1.5, np.random.default_rng(0), tol=1e-3)
    chosen = dual.select(alpha, outputs, standing, wanted)
    assert len(chosen) == capacity
    assert (np.diff(chosen) > 0).all()
    assert int(np.argmax(scores)) in chosen
    if 2 * free.sum() <= capacity:
        assert set(np.flatnonzero(free)) <= set(chosen)
    wanted = free | (scores > 1e-3)
    if capacity >= wanted.sum():
        assert set(np.flatnonzero(wanted)) <= set(chosen)
        left = np.setdiff1d(np.flatnonzero(~wanted), chosen)
        taken = np.setdiff1d(chosen, np.flatnonzero(wanted))
        assert scores[taken].min() >= scores[left].max() - 1e-6


def test_rows_close_to_violating_are_active_too(point):
    problem, _, _, alpha, outputs = point
    dual = CrammerSingerDual(problem)
    standing = dual.optimality(alpha, outputs)
    scores, free = scores_of(problem, alpha, outputs)
    near = free | (scores > -0.3)
    wanted = Wanted(
        len(scores), 2, 1.0, np.random.default_rng(0), tol=10.0, band=(0, N), margin=0.3
    )
    chosen = dual.select(alpha, outputs, standing, wanted)
    assert set(chosen) == set(np.flatnonzero(near))
    assert len(chosen) < N - 1


@pytest.mark.usefixtures("scans")
def test_doubtful_are_rows_that_errors_may_hide_a_violation_of(point):
    problem, _, _, alpha, outputs = point
    scores, _ = scores_of(problem, alpha, outputs)
    dual, gap = CrammerSingerDual(problem), max(scores.max(), 0.0)
    for tol, error in ((0.5, 0.0), (0.5, 0.2), (0.5, 0.7), (2 * gap, 0.0), (2 * gap, 0.2)):
        found = dual.doubtful(alpha, outputs, tol=tol, error=error)
        expected = scores > min(tol, gap) - 2 * error
        assert found.tolist() == np.flatnonzero(expected).tolist()


# -- steps on a working set ----------------------------------------------------------------------


@pytest.fixture
def tiles():
    with KernelTiles(RBF(gamma=0.5)) as tiles:
        yield tiles


def sub_problem(
    point, tiles, *, slots=N, solver="exact", order="auto", cooling=None, seed=0, **options
):
    problem, X, _, alpha, outputs = point
    dual = CrammerSingerDual(
        problem,
        RowSolver[solver.upper()],
        Order[order.upper()],
        Cooling[str(cooling).upper()],
        seed,
    )
    start = options.pop("start", (alpha, gradient_of(problem, outputs)))
    start = Point(*start, **options)
    return SubProblem(dual, tiles, X, np.arange(N), start, Memory(RowBuffer(4096 * slots)))


@pytest.mark.parametrize("solver", ["exact", "fixed_point"])
def test_a_working_set_is_solved_from_anywhere(point, tiles, solver):
    problem, _, K, _, _ = point
    work = sub_problem(point, tiles, solver=solver)
    assert work.advance(tol=1e-6, max_steps=10**6) is Progress.CONVERGED
    assert work.gap <= 1e-6
    bounds = problem.bounds(slice(None))
    dual, primal = naive.multiclass_objectives(
        K, problem.label, K_CLASSES, bounds, work.point.alpha
    )
    assert primal - dual < 1e-4 * primal
    np.testing.assert_allclose(
        work.point.gradient, gradient_of(problem, K @ work.point.alpha), atol=2e-5
    )


@pytest.fixture
def climbs(monkeypatch):
    """Climb soon and often, whatever the memory; the sizes of the climbs."""
    monkeypatch.setattr(row_steps, "FIRST_CLIMB", 30)
    monkeypatch.setattr(row_steps, "NEXT_CLIMB", 50)
    monkeypatch.setattr("bigsvm.working_sets.long_steps.CLIMB_PARTS", 1e-3)
    climb, sizes = row_steps.climb.climb, []

    def counted(gram, *rest):
        sizes.append(len(gram))
        climb(gram, *rest)

    monkeypatch.setattr(row_steps.climb, "climb", counted)
    return sizes


def test_climbs_end_at_the_same_optimum(point, tiles, climbs):
    work = sub_problem(point, tiles)
    while work.advance(tol=1e-6, max_steps=40) is Progress.STEPS_SPENT:
        pass
    assert len(climbs) > 2
    assert work.gap <= 1e-6
    problem, _, K, _, _ = point
    found = np.array(work.point.gradient)
    np.testing.assert_allclose(found, gradient_of(problem, K @ work.point.alpha), atol=2e-5)
    plain = sub_problem(point, tiles)
    plain.advance(tol=1e-6, max_steps=10**6)
    bounds = problem.bounds(slice(None))
    objectives = [
        naive.multiclass_objectives(K, problem.label, K_CLASSES, bounds, one.point.alpha)[0]
        for one in (work, plain)
    ]
    assert objectives[0] == pytest.approx(objectives[1], rel=1e-6)


def test_a_climb_without_memory_is_left_out(point, tiles, climbs, monkeypatch):
    monkeypatch.setattr("bigsvm.working_sets.long_steps.CLIMB_PARTS", 10**6)
    work = sub_problem(point, tiles)
    while work.advance(tol=1e-6, max_steps=40) is Progress.STEPS_SPENT:
        pass
    assert not climbs
    assert work.gap <= 1e-6


@pytest.mark.parametrize("solver", ["exact", "fixed_point"])
def test_resumed_after_climbs_it_gives_the_same_bits(point, tiles, solver, climbs):
    whole = sub_problem(point, tiles, solver=solver)
    while whole.advance(tol=1e-6, max_steps=40) is Progress.STEPS_SPENT:
        pass
    together = list(climbs)
    assert len(together) > 2
    climbs.clear()
    work = sub_problem(point, tiles, solver=solver, slots=40)
    while work.advance(tol=1e-6, max_steps=40) is Progress.STEPS_SPENT:
        work = sub_problem(
            point, tiles, solver=solver, slots=20, start=work.point,
        )  # fmt: skip
    assert climbs == together
    np.testing.assert_array_equal(work.point.alpha, whole.point.alpha)
    assert work.steps.n_done == whole.steps.n_done


@pytest.mark.parametrize("solver", ["exact", "fixed_point"])
def test_resumed_with_fewer_rows_in_memory_it_gives_the_same_bits(point, tiles, solver):
    whole = sub_problem(point, tiles, solver=solver)
    while whole.advance(tol=1e-6) is Progress.STEPS_SPENT:
        pass
    work, pieces = sub_problem(point, tiles, solver=solver, slots=40), 0
    while work.advance(tol=1e-6, max_steps=40) is Progress.STEPS_SPENT:
        pieces += 1
        work = sub_problem(
            point, tiles, solver=solver, slots=20, start=work.point,
        )  # fmt: skip
    assert pieces > 3
    np.testing.assert_array_equal(work.point.alpha, whole.point.alpha)
    assert work.steps.n_done == whole.steps.n_done


def test_slices_are_bounded_by_what_their_steps_look_at(point, tiles, monkeypatch):
    monkeypatch.setattr("bigsvm.duals.row_steps.SLICE_WORK", 10 * 64 * K_CLASSES)
    work = sub_problem(point, tiles)
    work.cache.ensure(np.arange(N), stamp=0)
    assert work.advance(tol=1e-6) is Progress.STEPS_SPENT
    assert work.steps.n_done == 10


def test_the_next_most_violating_rows_are_fetched_together(point, tiles):
    work = sub_problem(point, tiles)
    psi, _ = scores_of(point[0], point[3], point[4])
    wanted, quiet = work._most_wanted(17, 0.0)
    assert wanted[0] == 17
    expected = [i for i in np.argsort(-psi) if psi[i] > 0 and i != 17]
    assert len(wanted) > 5
    assert wanted[1:].tolist() == expected[: len(wanted) - 1]
    np.testing.assert_array_equal(quiet, psi <= 0)
    # With a level, those above it: the others may never be wanted.
    work = sub_problem(point, tiles, order="active", cooling="log")
    wanted, _ = work._most_wanted(17, 0.0)
    above = [i for i in expected if psi[i] > 0.999]
    assert 5 < len(above) < len(expected)
    assert wanted[1:].tolist() == above[: len(wanted) - 1]


@pytest.mark.parametrize("order", ["sequential", "random"])
def test_next_rows_of_a_fixed_order_are_fetched_together(point, tiles, order):
    work = sub_problem(point, tiles, order=order, slots=40, n_done=N - 3)
    psi, _ = scores_of(point[0], point[3], point[4])
    turn = np.arange(N)
    if order == "random":
        assert work.steps._deal() == 3
        turn = np.random.default_rng((0, 0)).permutation(N)
    ahead = [i for i in np.roll(turn, 3) if psi[i] > 0]
    wanted, _ = work._most_wanted(ahead[0], 1e-3)
    assert len(wanted) > 5
    assert wanted.tolist() == ahead[: len(wanted)]


def test_random_orders_have_each_row_once_a_pass_and_differ_by_pass_and_seed(point, tiles):
    passes = []
    for seed in (0, 1):
        work = sub_problem(point, tiles, order="random", seed=seed)
        for lap in (0, 1):
            work.steps.state.counters[0] = lap * N
            assert work.steps._deal() == N
            passes.append(work.steps.state.turn.tolist())
    assert all(sorted(order) == list(range(N)) for order in passes)
    assert len(set(map(tuple, passes))) == 4


PAPERS_ORDERS = [
    ("worst", None), ("active", None), ("active", "log"), ("sequential", None), ("random", None),
]  # fmt: skip


@pytest.mark.parametrize(("order", "cooling"), PAPERS_ORDERS)
def test_an_order_of_the_paper_ends_at_the_optimum_without_climbs(
    point, tiles, climbs, order, cooling
):
    problem = point[0]
    work = sub_problem(point, tiles, order=order, cooling=cooling)
    while work.advance(tol=1e-4, max_steps=300) is Progress.STEPS_SPENT:
        pass
    assert work.gap <= 1e-4
    assert work.steps.n_done > 50
    assert not climbs
    plain = sub_problem(point, tiles)
    plain.advance(tol=1e-6, max_steps=10**6)
    bounds = problem.bounds(slice(None))
    objectives = [
        naive.multiclass_objectives(point[2], problem.label, K_CLASSES, bounds, one.point.alpha)[0]
        for one in (work, plain)
    ]
    assert objectives[0] == pytest.approx(objectives[1], rel=1e-4)


# -- names and refusals --------------------------------------------------------------------------


def test_names_have_the_codes_of_the_core():
    assert {s.name: int(s) for s in RowSolver} == {
        "EXACT": crammer_singer.EXACT, "FIXED_POINT": crammer_singer.FIXED_POINT,
    }  # fmt: skip
    assert [int(Cooling.NONE), int(Cooling.LOG)] == [crammer_singer.NO_COOLING, crammer_singer.LOG]
    assert {order.name: int(order) for order in Order} == {
        name: getattr(crammer_singer, name)
        for name in ("AUTO", "WORST", "ACTIVE", "SEQUENTIAL", "RANDOM")
    }


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan])
def test_invalid_C_is_refused(value):
    with pytest.raises(ParameterError, match="C is"):
        CrammerSinger(label=np.array([0, 1], np.int32), n_classes=2, C=value)


def test_one_class_is_refused():
    label = np.array([0, 0, 1], np.int32)
    for weights, chosen in [(None, [0, 1]), (np.array([1.0, 1.0, 0.0]), [0, 1, 2]), (None, [])]:
        part = label[np.array(chosen, np.int64)]
        with pytest.raises(DataError, match="are of one class; two classes or more"):
            CrammerSinger(label=part, n_classes=3, C=1.0, sample_weight=weights)


def test_shapes_of_the_formulation():
    problem = formulation(fit_intercept=True)
    assert problem.zeros(7).shape == (7, K_CLASSES)
    assert (problem.n_outputs, problem.offset, len(problem)) == (K_CLASSES, 1.0, N)
    assert formulation().offset == 0.0
    part = problem.take(np.array([3, 11, 4]))
    assert part.label.tolist() == problem.label[[3, 11, 4]].tolist()
    weights = problem.sample_weight
    assert part.bounds(slice(None)).tolist() == [C * weights[3], 0.0, C * weights[4]]
    assert problem.weighted(np.ones(N)).bounds(slice(None)).tolist() == [C] * N
