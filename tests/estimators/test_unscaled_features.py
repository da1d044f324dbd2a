"""Features as they come: of very different sizes, or far larger than 1, with a linear kernel.

Pair steps alone take millions on these, and LIBSVM, whose steps they are, does not end.
"""

import numpy as np
import pytest

from bigsvm import SVC, SVR, NuSVC, NuSVR, OneClassSVM

MOST_STEPS = 200_000


def unscaled_rows(n=500, seed=0):
    """Two classes that overlap, in columns that differ by a factor of a million."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    X = rng.normal(size=(n, 6)) + 1.5 * np.eye(6)[0] * y[:, None] + 3.0
    return X * np.array([1e3, 1e-3, 1.0, 30.0, 1e2, 1e3]), y


def hinge_objective(model, X, y, C):
    w, b = model.coef_[0], model.intercept_[0]
    margins = np.where(y == model.classes_[1], 1, -1) * (X @ w + b)
    return 0.5 * w @ w + C * np.maximum(0, 1 - margins).sum()


@pytest.mark.parametrize("C", [1e-2, 1.0, 100.0])
def test_classification_of_unscaled_features(C):
    X, y = unscaled_rows()
    model = SVC(C=C, kernel="linear", max_iter=MOST_STEPS).fit(X, y)
    certificate = model.certificate_
    assert certificate["stop_reason"] == "converged"
    X = X.astype(np.float32).astype(np.float64)
    primal = hinge_objective(model, X, y, C)
    assert primal == pytest.approx(certificate["objective"], rel=1e-5)
    assert model.score(X, y) > 0.75


def test_store_of_unscaled_features(tmp_path):
    X, y = unscaled_rows(3000)
    in_memory = SVC(kernel="linear", max_iter=MOST_STEPS).fit(X, y)
    from bigsvm import write_store

    store = write_store(tmp_path / "rows.zarr", X, y.astype(float))
    streamed = SVC(kernel="linear", max_iter=MOST_STEPS, memory="60MB").fit(store)
    for model in (in_memory, streamed):
        assert model.certificate_["stop_reason"] == "converged"
    np.testing.assert_allclose(streamed.coef_, in_memory.coef_, rtol=1e-3, atol=1e-9)


@pytest.mark.filterwarnings("ignore::bigsvm.AdviceWarning")  # to scale them, of poly
@pytest.mark.parametrize("make", [
    lambda: SVC(loss="squared_hinge", kernel="linear", max_iter=MOST_STEPS),
    # A quarter of the rows cannot be told apart: with little more, rounding decides on a margin.
    lambda: NuSVC(nu=0.6, kernel="linear", max_iter=MOST_STEPS),
    lambda: SVC(multiclass="ovr", kernel="linear", max_iter=MOST_STEPS),
    lambda: SVR(epsilon=0.1, kernel="linear", max_iter=MOST_STEPS),
    lambda: NuSVR(nu=0.3, kernel="linear", max_iter=MOST_STEPS),
    lambda: OneClassSVM(nu=0.2, kernel="linear", max_iter=MOST_STEPS),
    lambda: SVC(C=1e4, kernel="poly", gamma="scale", coef0=1.0, degree=2, max_iter=MOST_STEPS),
])  # fmt: skip
def test_other_formulations_on_unscaled_features(make):
    X, y = unscaled_rows()
    model = make()
    if isinstance(model, (SVR, NuSVR)):
        y = X[:, 0] / 1e3 + 0.3 * X[:, 2] + np.sin(np.arange(len(X)))
    elif getattr(model, "multiclass", "") == "ovr":
        y = y + (X[:, 2] > 4)
    model.fit(X) if isinstance(model, OneClassSVM) else model.fit(X, y)
    certificate = model.certificate_
    assert certificate["stop_reason"] == "converged"
    assert certificate["duality_gap"] <= 1e-3 * max(1.0, abs(certificate["objective"]))
