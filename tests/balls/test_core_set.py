"""The core set: what it keeps up to date is what is computed from scratch."""

import naive
import numpy as np
import pytest
import scipy.sparse as sp
from support.problems import Ball, blobs

from bigsvm.balls.core_set import FullCoreSet
from bigsvm.kernels import RBF, Linear, Polynomial
from bigsvm.training.state import SearchState

KERNELS = {
    "rbf": (RBF(gamma=0.5), {"name": "rbf", "gamma": 0.5}),
    "linear": (Linear(), {"name": "linear"}),
    "poly": (
        Polynomial(gamma=0.5, coef0=1.0, degree=2),
        {"name": "poly", "gamma": 0.5, "coef0": 1.0, "degree": 2},
    ),
}


class Grown:
    """A core set of some rows, added in parts as a search does, with steps in between."""

    def __init__(self, kernel="rbf", *, solver="pairwise", sparse=False, n=300, overlap=1.0):
        X, y = blobs(n, overlap=overlap)
        weights = np.random.default_rng(1).choice([0.5, 1.0, 2.0], n)
        self.kernel, described = KERNELS[kernel]
        self.ball = Ball(
            sp.csr_array(X) if sparse else X, y, solver=solver, kernel=self.kernel,
            sample_weight=weights,
        )  # fmt: skip
        self.ridge = 1 / (5.0 * weights)
        self.X, self.y, self.described = X, y.astype(float), described
        self.tiles = self.ball.tiles()
        self.core = self.make()
        order = np.random.default_rng(0).permutation(n)
        self.parts = [order[:20], order[20:23], order[23:31], order[31:32], order[32:90]]
        for indices in self.parts:
            self.add(indices)

    def make(self):
        return FullCoreSet(
            self.ball.dual, self.tiles, capacity=200, is_sparse=self.ball.source.is_sparse
        )

    def add(self, indices, *, steps=40):
        core = self.core
        core.add(indices, self.ball.source.take(indices))
        if len(core) == len(indices):
            core.weights[:] = 1 / len(core)
            core.recompute()
        core.solve(tol=1e-7, max_steps=steps)

    def tilde(self):
        """K̃ among the points, by its definition."""
        rows = self.core.indices
        K = naive.kernel_matrix(self.X[rows], self.X[rows], **self.described) + 1
        return K * np.outer(self.y[rows], self.y[rows]) + np.diag(self.ridge[rows])


@pytest.mark.parametrize("solver", ["pairwise", "mfw", "fw", "cvm"])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("sparse", [False, True])
def test_the_gradient_is_that_of_the_weights(kernel, solver, sparse):
    grown = Grown(kernel, solver=solver, sparse=sparse)
    core, K = grown.core, grown.tilde()
    assert len(core) == 90
    assert sorted(core.indices) == sorted(np.concatenate(grown.parts))
    assert core.weights.sum() == pytest.approx(1, abs=1e-9)
    assert (core.weights >= 0).all()
    size = np.abs(K).max()
    np.testing.assert_allclose(core.gradient, -K @ core.weights, atol=2e-6 * size)
    energy = core.weights @ K @ core.weights
    assert core.energy == pytest.approx(energy, abs=2e-6 * size)
    before = core.gradient.copy()
    drift = core.recompute()
    assert drift * core.energy == pytest.approx(np.abs(core.gradient - before).max(), rel=1e-3)
    assert core.weights.sum() == pytest.approx(1, abs=1e-14)
    np.testing.assert_allclose(core.gradient, -K @ core.weights, atol=5e-7 * size)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("sparse", [False, True])
def test_outputs_of_other_rows_are_their_definition(kernel, sparse):
    grown = Grown(kernel, sparse=sparse)
    core, source = grown.core, grown.ball.source
    K = naive.kernel_matrix(grown.X[:50], grown.X[core.indices], **grown.described) + 1
    expected = K @ (grown.y[core.indices] * core.weights)
    size = np.abs(K).max()
    np.testing.assert_allclose(core.outputs(source.read(0, 50)), expected, atol=2e-6 * size)
    some = np.array([3, 49, 3, 17])
    np.testing.assert_allclose(core.outputs(source.lend(some)), expected[some], atol=2e-6 * size)


def test_steps_lower_the_energy_to_that_of_the_optimum():
    grown = Grown()
    core = grown.core
    before = core.energy
    assert core.solve(tol=1e-7, max_steps=10**5) > 0
    best = naive.l2_svc(grown.tilde())
    least = 1 / best.sum()
    assert core.energy < before
    assert core.energy == pytest.approx(least, rel=1e-5)
    np.testing.assert_allclose(core.weights, best * least, atol=1e-4)


def test_core_set_holds_its_points_only():
    grown = Grown()
    places = grown.core.places(np.arange(300))
    np.testing.assert_array_equal(np.flatnonzero(places >= 0), np.sort(grown.core.indices))


def test_points_without_weight_are_let_go_and_the_rest_is_kept():
    grown = Grown(overlap=0.4)
    core = grown.core
    core.solve(tol=1e-7, max_steps=10**5)
    kept = np.flatnonzero(core.weights)
    assert len(kept) < 0.75 * len(core)
    indices, weights, gradient = core.indices[kept], core.weights[kept], core.gradient[kept]
    rows = grown.ball.source.read(0, 40)
    outputs, energy = core.outputs(rows), core.energy
    core.drop_weightless()
    np.testing.assert_array_equal(core.indices, indices)
    np.testing.assert_array_equal(core.weights, weights)
    np.testing.assert_array_equal(core.gradient, gradient)
    assert core.energy == pytest.approx(energy, rel=1e-12)
    np.testing.assert_allclose(core.outputs(rows), outputs, atol=1e-6)
    assert core.recompute() < 1e-4
    # And it goes on: what was let go may come again.
    gone = np.setdiff1d(np.concatenate(grown.parts), core.indices)[:5]
    grown.add(gone)
    K = grown.tilde()
    np.testing.assert_allclose(core.gradient, -K @ core.weights, atol=2e-6 * np.abs(K).max())


def test_few_points_without_weight_are_kept():
    grown = Grown()
    core = grown.core
    core.solve(tol=1e-7, max_steps=10**5)
    core.drop_weightless()
    n = len(core)
    core.add(np.setdiff1d(np.arange(300), core.indices)[:2], grown.X[:2])
    core.drop_weightless()
    assert len(core) == n + 2


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("spared", [False, True])
def test_restored_it_goes_on_to_the_same_bits(kernel, sparse, spared):
    grown, other = (Grown(kernel, sparse=sparse, overlap=0.4) for _ in range(2))
    core = grown.core
    if spared:
        core.solve(tol=1e-7, max_steps=10**5)
        core.drop_weightless()
        assert len(core) < 70
    other.core = other.make()
    now = (core.indices, core.weights, core.gradient, core.parts)
    saved = SearchState(*(part.copy() for part in now))
    other.core.restore(other.ball.source, saved)
    rows = grown.ball.source.read(0, 60)
    fresh = np.setdiff1d(np.arange(300), core.indices)
    for start in (0, 5, 6, 30):
        for name in ("indices", "weights", "gradient", "parts"):
            np.testing.assert_array_equal(getattr(core, name), getattr(other.core, name))
        np.testing.assert_array_equal(core.outputs(rows), other.core.outputs(rows))
        for one in (grown, other):
            one.add(fresh[start : start + 4], steps=30)
            one.core.drop_weightless()
    assert core.recompute() == other.core.recompute()
    np.testing.assert_array_equal(core.gradient, other.core.gradient)


def test_restoring_an_empty_core_set():
    grown = Grown()
    empty = np.empty(0)
    core = grown.make()
    none = empty.astype(int)
    core.restore(grown.ball.source, SearchState(none, empty, empty, none))
    assert len(core) == 0
    grown.core = core
    grown.add(np.arange(5))
    assert core.weights.sum() == pytest.approx(1)
