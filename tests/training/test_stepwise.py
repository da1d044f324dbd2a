"""Stepwise searches beside the paper's algorithms written down a second time."""

import numpy as np
import pytest

from bigsvm.data.random_rows import RandomRows
from bigsvm.kernels import Polynomial
from bigsvm.training.result import StopReason
from bigsvm.training.state import Limits
from bigsvm.training.stepped_core import SteppedCore
from bigsvm.training.stepwise import StepwiseSearch

from .problems import Ball, blobs, gram

STEPWISE = ("fw", "mfw", "cvm")


def algorithm(K, a, samples, *, tol, away, n_steps):
    """Algorithms 2 and 3 of frank-wolfe.txt, the steps by exact line search on the whole matrix.

    Samples without a row outside are passed over.
    """
    a, D = a.copy(), K.diagonal().max()
    for sample in samples:
        if not n_steps:
            break
        products = K @ a
        R = a @ products
        sample = np.sort(sample)
        i = sample[np.argmin(products[sample])]
        if 2 * (R - products[i]) <= (2 * tol + tol**2) * (D - R):
            continue
        support = np.flatnonzero(a > 0)
        j = support[np.argmax(products[support])]
        if away and products[j] - R > R - products[i]:
            most = a[j] / (1 - a[j])
            step = min((products[j] - R) / (R - 2 * products[j] + K[j, j]), most)
            a *= 1 + step
            a[j] = 0.0 if step == most else a[j] - step
        else:
            step = min((R - products[i]) / (R - 2 * products[i] + K[i, i]), 1.0)
            a *= 1 - step
            a[i] += step
        n_steps -= 1
    return a


class Recorded:
    """A search whose samples and first weights are known afterwards."""

    def __init__(self, ball, monkeypatch, **options):
        draw, begin = RandomRows.draw, StepwiseSearch._begin
        self.drawn, self.first = [], None

        def drawing(rows, count):
            for indices, part in draw(rows, count):
                self.drawn.append(indices)
                yield indices, part

        def beginning(search, rows):
            begin(search, rows)
            self.first = np.zeros(ball.source.n_rows)
            self.first[search.core.indices] = search.core.weights

        with monkeypatch.context() as patch:
            patch.setattr(RandomRows, "draw", drawing)
            patch.setattr(StepwiseSearch, "_begin", beginning)
            patch.setattr(SteppedCore, "solve", lambda *_, **__: 0)  # as the first weights are
            self.search = ball.search(tiles=ball.tiles().exact(), **options)
            self.reason = self.search.run()

    def weights(self, n):
        a = np.zeros(n)
        a[self.search.core.indices] = self.search.core.weights
        return a

    def samples(self, size):
        return np.concatenate(self.drawn).reshape(-1, size)


@pytest.mark.parametrize("kind", ["classes", "one class", "polynomial", "few kernel rows"])
@pytest.mark.parametrize("solver", ["fw", "mfw"])
def test_a_thousand_steps_are_those_of_the_algorithm(solver, kind, monkeypatch):
    n, size, tol, C = 400, 60, 1e-9, 100.0
    X, y = blobs(n, seed=2)
    options = {"solver": solver, "sampling": size, "ball_tol": tol, "C": C, "capacity": 6000}
    labels, K = y.astype(float), gram(X)
    if kind == "one class":
        labels = np.ones(n)
    else:
        if kind == "polynomial":
            options["kernel"] = Polynomial(gamma=0.5, coef0=1.0, degree=2)
            K = (0.5 * X.astype(float) @ X.T.astype(float) + 1.0) ** 2
        K = (K + 1) * np.outer(labels, labels)
    K += np.eye(n) / C
    ball = Ball(X, None if kind == "one class" else y, **options)
    ball.dual = type(ball.dual)(
        ball.dual.formulation, ball.dual.rule, ball.dual.solver, K.diagonal().max()
    )
    if kind == "few kernel rows":
        ball.plan = ball.plan.with_kernel_rows(6)
    for steps in (1, 30, 1000):
        found = Recorded(ball, monkeypatch, limits=Limits(max_iter=steps), empty_samples=10**9)
        assert found.reason is StopReason.MAX_ITER
        expected = algorithm(
            K, found.first, found.samples(size), tol=tol, away=solver == "mfw", n_steps=steps
        )
        here = found.weights(n)
        np.testing.assert_array_equal(np.flatnonzero(here), np.flatnonzero(expected))
        np.testing.assert_allclose(here, expected, atol=1e-9)
