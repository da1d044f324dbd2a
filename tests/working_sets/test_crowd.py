"""Crowds: disjoint sets of neighbours, solved side by side and joined by a line search."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.problems import blobs, decomposition, definition, dense_alpha, gram, target
from support.resuming import (
    Moments,
    assert_killed_to_the_same_bits,
    assert_resumed_to_the_same_bits,
    with_checkpoint,
)
from support.same import assert_same_bits

from bigsvm.duals.formulations import CSVC, EpsilonSVR
from bigsvm.duals.picking import neighbourhoods
from bigsvm.training import events
from bigsvm.training.checkpoint import Checkpoint
from bigsvm.training.result import StopReason
from bigsvm.training.state import Limits
from bigsvm.working_sets import choice
from bigsvm.working_sets.crowd import SETS, CrowdedRows, best_share

N_ROWS, SMALL, GAMMA = 900, 100, 0.05
FORMULATIONS = {
    "c-svc": lambda X, y: CSVC(sign=y, C=1.0),
    "eps-svr": lambda X, y: EpsilonSVR(target=target(X, noise=0.3), C=0.3, epsilon=0.02),
}


@pytest.fixture(autouse=True)
def small_scopes(monkeypatch):
    for name, value in {"FIRST_SCOPE": 300, "DIRECT_ROWS": 0, "SMALLEST_SET": 33}.items():
        monkeypatch.setattr(f"bigsvm.working_sets.choice.{name}", value)


@pytest.fixture
def shares(monkeypatch):
    """By how much of their way several sets have gone, each time."""
    found = []

    def noted(*given):
        share, gain = best_share(*given)
        found.append(share)
        return share, gain

    monkeypatch.setattr("bigsvm.working_sets.crowd.best_share", noted)
    return found


def crowded(X, y, **options):
    """A run whose working sets hold a fraction of its violators."""
    return decomposition(X, y, gamma=GAMMA, working_set=SMALL, active_rows=N_ROWS, **options)


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_no_other_share_of_a_direction_is_better(seed, m):
    rng = np.random.default_rng(seed)
    factor, linear = rng.normal(size=(m, rng.integers(1, m + 1))), rng.normal(size=m)
    K, start, direction = factor @ factor.T, rng.normal(size=m), rng.normal(size=m)

    def objective(share):
        point = start + share * direction
        return linear @ point - 0.5 * point @ K @ point

    slopes = (linear - K @ (start + end * direction) for end in (0, 1))
    share, gain = best_share(direction, *slopes)
    assert 0.0 <= share <= 1.0
    best = max(objective(other) for other in np.linspace(0, 1, 41))
    assert objective(share) >= best - 1e-9 * (1 + abs(best))
    assert gain == pytest.approx(objective(share) - objective(0), abs=1e-9 * (1 + abs(best)))


def test_sets_that_stand_still_or_descend_go_nowhere():
    assert best_share(np.zeros(3), np.ones(3), np.ones(3)) == (0.0, 0.0)
    assert best_share(np.ones(3), -np.ones(3), -np.ones(3)) == (0.0, 0.0)


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(4, 60), st.integers(1, 30))
def test_neighbourhoods_are_the_nearest_of_the_rows_left(seed, n, size):
    rng = np.random.default_rng(seed)
    K, pivots = rng.normal(size=(n, n)), []

    def near(place):
        pivots.append(place)
        return K[place]

    sets = neighbourhoods(SETS, size, n=n, near=near, rng=rng)
    left = set(range(n))
    assert len(sets) == len(pivots) == SETS
    for k, (places, pivot) in enumerate(zip(sets, pivots, strict=True)):
        assert pivot in left
        assert len(places) == min(size, len(left) // (SETS - k)) > 0
        assert places.tolist() == sorted(set(places.tolist()) & left)
        left -= set(places.tolist())
        farthest = np.abs(K[pivot, places]).min()
        assert all(abs(K[pivot, other]) <= farthest for other in left)


@pytest.mark.parametrize("kind", FORMULATIONS)
def test_sets_are_joined_where_the_objective_is_largest(kind, monkeypatch):
    """Between the point before and the end of all directions, and outputs are those of alpha."""
    X, y = blobs(N_ROWS, overlap=1.5)
    run, seen, absorb = crowded(X, y, formulation=FORMULATIONS[kind](X, y)), [], CrowdedRows.absorb
    K, formulation = gram(X, GAMMA), run._run.dual.formulation

    def objective(rows, alpha):
        """That of alpha of these rows, as far as they move it: other rows stand still."""
        product = K[np.ix_(rows, rows)] @ formulation.per_output(alpha - start)
        before = run._run.dual.gradient(start, outputs, rows)
        after = run._run.dual.gradient(alpha, outputs + product, rows)
        return 0.5 * np.vdot(alpha - start, before + after)

    def checked(active, working):
        nonlocal start, outputs
        start, outputs = active.alpha.copy(), active.outputs.copy()
        moved = absorb(active, working)
        if len(working.sizes):
            change = formulation.per_output(active.alpha - start)
            expected = outputs + K[np.ix_(active.indices, active.indices)] @ change
            np.testing.assert_allclose(active.outputs, expected, atol=1e-4)
            end = start.copy()
            end[active.places(working.rows)] = working.alpha
            ways = [objective(active.indices, start + s * (end - start)) for s in (0, 0.5, 1)]
            reached = objective(active.indices, active.alpha)
            assert reached >= max(ways) - 1e-5 * (1 + abs(max(ways)))
            fault = active.dual.infeasible(active.alpha, rows=active.indices)
            assert not fault, fault
            seen.append(reached)
        return moved

    start = outputs = None
    monkeypatch.setattr(CrowdedRows, "absorb", checked)
    assert run.run().certificate.converged
    assert len(seen) > 1
    assert max(seen) > 0


def test_the_optimum_is_one_by_its_definition(shares):
    X, y = blobs(N_ROWS, overlap=1.5)
    result = crowded(X, y, tol=1e-4).run()
    assert len(shares) > 2
    assert min(shares) < 1.0, "no sets disturbed one another"
    alpha, (intercept,) = dense_alpha(result, N_ROWS), result.thresholds
    objective, gap, duality_gap = definition(X, y, alpha, intercept, gamma=GAMMA)
    assert gap <= 1.01e-4
    assert 0 <= duality_gap <= 1e-4 * objective
    assert result.certificate.objective == pytest.approx(objective, rel=1e-6)


def test_after_sets_that_lead_nowhere_one_alone_follows(shares, monkeypatch):
    """Rows of one class alone cannot move."""
    X, y = blobs(N_ROWS, overlap=1.5)
    expected = crowded(X, y).run().certificate.objective
    shares.clear()

    def alike(n_sets, size, *, n, near, rng):
        active = run.state.active
        return np.array_split(np.flatnonzero(y[active] > 0)[:size], n_sets)

    monkeypatch.setattr("bigsvm.working_sets.choice.neighbourhoods", alike)
    run = crowded(X, y)
    certificate = run.run().certificate
    assert 0.0 in shares
    assert certificate.converged
    assert certificate.objective == pytest.approx(expected, rel=1e-5)


def test_the_objective_that_is_told_is_that_of_the_joined_point():
    X, y = blobs(N_ROWS, overlap=1.5)
    told, known = [], []
    run = crowded(X, y, listener=lambda event: told.append((event, run.count.scope)))
    select = run._select

    def selecting():
        """What the last event has told is the objective of the scope, now that it is swept."""
        select()
        standing = run._run.dual.optimality(*run._run.of_scope())
        known.append((len(told), standing.objective, run.count.scope))

    run._select = selecting
    assert run.run().certificate.converged
    compared = 0
    for n_told, objective, scope in known:
        last = [e for e, at in told[:n_told] if isinstance(e, events.Solving) and at == scope]
        if last:
            assert last[-1].objective == pytest.approx(objective, rel=1e-4)
            compared += 1
    assert compared > 1


@pytest.mark.parametrize("kind", ["c-svc", "eps-svr"])
def test_threads_do_not_change_the_bits(kind, shares):
    X, y = blobs(N_ROWS, overlap=1.5)
    formulation = FORMULATIONS[kind](X, y)
    alone = crowded(X, y, formulation=formulation).run()
    assert shares
    for threads in (2, 3, 7):
        found = crowded(X, y, formulation=formulation, threads=threads).run()
        assert_same_bits(found, alone)


@pytest.mark.parametrize("kind", FORMULATIONS)
def test_interrupted_while_sets_are_solved_or_joined_it_goes_on_to_the_same_bits(kind, tmp_path):
    X, y = blobs(N_ROWS, overlap=1.5)
    formulation = FORMULATIONS[kind](X, y)

    def what():
        state = run.state
        if not len(state.set_sizes):
            return "other"
        ended = len(state.pair) == 4 * SETS and state.pair.reshape(SETS, 4)[:, 0].all()
        return "solved" if ended else "in progress"

    moments = Moments(what)
    run = crowded(X, y, formulation=formulation, limits=Limits(interrupted=moments))
    whole = run.run()
    kinds = moments.by_kind
    firsts = {kinds[name][len(kinds[name]) // 2] for name in ("in progress", "solved")}

    def train(**options):
        return crowded(X, y, formulation=formulation, threads=3, **options).run()

    assert_resumed_to_the_same_bits(with_checkpoint(train), tmp_path, sorted(firsts), whole)


def train_in_process(folder):
    choice.FIRST_SCOPE, choice.DIRECT_ROWS, choice.SMALLEST_SET = 1000, 0, 100
    X, y = blobs(12_000, overlap=1.5)
    with Checkpoint(folder, {}) as checkpoint:
        return decomposition(
            X, y, gamma=GAMMA, working_set=800, active_rows=len(X), threads=2,
            checkpoint=checkpoint, checkpoint_every=0.01,
        ).run()  # fmt: skip


@pytest.mark.slow
def test_killed_several_times_it_gives_the_same_bits(tmp_path):
    assert_killed_to_the_same_bits(train_in_process, tmp_path, times=4, at_least=2, pause=0.05)


def test_sets_that_are_not_joined_do_not_count_in_the_result():
    """A stopped run returns the point before them: together they might lead too far."""
    X, y = blobs(N_ROWS, overlap=1.5)

    def interrupted():
        return len(run.state.set_sizes) > 0 and bool((run.state.working_alpha != 0).any())

    run = crowded(X, y, limits=Limits(interrupted=interrupted))
    result = run.run()
    assert result.certificate.stop_reason is StopReason.INTERRUPTED
    state = run.state
    assert (state.current_alpha(joined=False) != state.current_alpha()).any()
    before = state.alpha.copy()
    before[state.active] = state.active_alpha
    np.testing.assert_array_equal(dense_alpha(result, N_ROWS), before)
