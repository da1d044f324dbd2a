"""C = inf: the hard margin, or the tube that has all targets; where there is none, an end."""

import subprocess
import sys

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

import bigsvm
from bigsvm.errors import ParameterError
from bigsvm.interchange import write_libsvm_model

RNG = np.random.default_rng(0)
APART = np.concatenate([RNG.standard_normal((60, 2)) - 3, RNG.standard_normal((60, 2)) + 3])
MIXED = np.concatenate([RNG.standard_normal((60, 2)) - 1, RNG.standard_normal((60, 2)) + 1])
Y = np.repeat([0, 1], 60)
INF = float("inf")


def hard_margin(X, y):
    """w and b of least |w| with y (w·x + b) ≥ 1, by a general solver."""
    sign = np.where(y == 1, 1.0, -1.0)
    found = minimize(
        lambda point: 0.5 * point[:-1] @ point[:-1],
        np.append(np.ones(X.shape[1]), 0.0),
        jac=lambda point: np.append(point[:-1], 0.0),
        constraints={
            "type": "ineq",
            "fun": lambda point: sign * (X @ point[:-1] + point[-1]) - 1,
            "jac": lambda point: sign[:, None] * np.column_stack([X, np.ones(len(X))]),
        },
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    assert found.success
    return found.x[:-1], found.x[-1]


class TestThereIsASolution:
    @pytest.mark.parametrize("given", [{}, {"working_set": "all"}, {"selection": "hmg"}])
    @pytest.mark.parametrize("weights", [False, True])
    def test_the_hard_margin(self, given, weights):
        w, b = hard_margin(APART, Y)
        X, y, sample_weight = APART, Y, None
        if weights:  # of any size, as no row may be on the wrong side; 0 is still no row
            X, y = np.concatenate([APART, [[3.0, 3.0]]]), np.append(Y, 0)
            sample_weight = np.append(np.linspace(0.1, 9, len(Y)), 0.0)
        fitted = bigsvm.SVC(C=INF, kernel="linear", tol=1e-8, **given).fit(X, y, sample_weight)
        assert fitted.converged_
        np.testing.assert_allclose(fitted.coef_[0], w, rtol=1e-5)
        np.testing.assert_allclose(fitted.intercept_[0], b, atol=1e-5)
        np.testing.assert_allclose(fitted.objective_, 0.5 * w @ w, rtol=1e-5)
        assert fitted.duality_gap_ is None or abs(fitted.duality_gap_) < 1e-9
        assert fitted.certificate_["n_bounded"] == 0

    @pytest.mark.parametrize("multiclass", ["ovo", "ovr"])
    def test_of_many_classes_it_is_that_of_a_large_penalty(self, multiclass):
        X = np.concatenate([APART, RNG.normal((-9, 9), size=(60, 2))])
        y = np.repeat([0, 1, 2], 60)
        hard = bigsvm.SVC(C=INF, gamma=0.1, tol=1e-6, multiclass=multiclass).fit(X, y)
        large = bigsvm.SVC(C=1e8, gamma=0.1, tol=1e-6, multiclass=multiclass).fit(X, y)
        assert hard.converged_
        np.testing.assert_allclose(hard.decision_function(X), large.decision_function(X), atol=1e-4)

    def test_rows_that_are_merged_and_read_in_blocks(self, tmp_path):
        X = np.repeat(RNG.standard_normal((3000, 2)), 2, axis=0).astype(np.float32)
        y = (X[:, 0] > 0).astype(int)
        X[:, 0] += np.where(y == 1, 0.5, -0.5)
        w, _ = hard_margin(X[::2], y[::2])
        store = bigsvm.write_store(tmp_path / "x.zarr", X, y)
        for rows, labels in ((X, y), (store, None)):
            fitted = bigsvm.SVC(C=INF, kernel="linear", memory="4MB").fit(rows, labels)
            assert fitted.converged_
            np.testing.assert_allclose(fitted.coef_[0], w, atol=5e-3)
            assert fitted.score(X, y) == 1

    def test_a_tube_that_has_all_targets(self):
        t = np.sin(APART[:, 0])
        hard = bigsvm.SVR(C=INF, epsilon=0.1, gamma=0.5, tol=1e-6).fit(APART, t)
        assert hard.converged_
        assert np.abs(hard.predict(APART) - t).max() <= 0.1 + 1e-4
        large = bigsvm.SVR(C=1e8, epsilon=0.1, gamma=0.5, tol=1e-6).fit(APART, t)
        np.testing.assert_allclose(hard.objective_, large.objective_, rtol=1e-4)

    def test_it_starts_from_another_penalty(self):
        estimator = bigsvm.SVC(C=1.0, kernel="linear", tol=1e-8, warm_start=True).fit(APART, Y)
        for C in (INF, 1.0, INF):
            estimator.set_params(C=C).fit(APART, Y)
            assert estimator.converged_
        np.testing.assert_allclose(estimator.coef_[0], hard_margin(APART, Y)[0], rtol=1e-4)
        path = bigsvm.C_path(bigsvm.SVC(kernel="linear", tol=1e-8), APART, Y, C=[1.0, INF])
        np.testing.assert_allclose(path[-1].coef_, estimator.coef_, rtol=1e-4)


class TestThereIsNone:
    @pytest.mark.parametrize(
        "given",
        [
            {}, {"working_set": "all"}, {"kernel": "poly", "degree": 2}, {"multiclass": "ovr"},
            {"selection": "mvp"},
        ],
    )  # fmt: skip
    @pytest.mark.parametrize("k", [2, 3])
    def test_training_ends_and_says_so(self, given, k):
        y = np.arange(len(MIXED)) * k // len(MIXED)
        with pytest.warns(ConvergenceWarning, match="C is inf, and no function has all rows"):
            fitted = bigsvm.SVC(C=INF, **{"kernel": "linear", **given}).fit(MIXED, y)
        assert not fitted.converged_
        assert fitted.stop_reason_ == "endless"
        assert np.isfinite(fitted.decision_function(MIXED)).all()

    @pytest.mark.parametrize("n", [3, 3000])
    def test_equal_rows_of_two_classes(self, n):
        X = RNG.standard_normal((2 * n, 3))
        X[n : n + 2] = X[:2]
        with pytest.warns(ConvergenceWarning, match="C is inf"):
            fitted = bigsvm.SVC(C=INF, kernel="linear").fit(X, np.repeat([0, 1], n))
        assert fitted.stop_reason_ == "endless"

    def test_targets_that_no_line_is_near(self):
        with pytest.warns(ConvergenceWarning, match="C is inf"):
            fitted = bigsvm.SVR(C=INF, epsilon=0.01, kernel="linear").fit(
                MIXED, RNG.standard_normal(len(MIXED))
            )
        assert fitted.stop_reason_ == "endless"


@pytest.mark.parametrize(
    "estimator",
    [
        bigsvm.SVC(C=INF, loss="squared_hinge"), bigsvm.L2SVC(C=INF), bigsvm.NuSVR(C=INF),
        bigsvm.CrammerSingerSVC(C=INF),
    ],
)  # fmt: skip
def test_others_refuse_it(estimator):
    with pytest.raises(ParameterError, match="C is inf, which is for eps-svr and for c-svc"):
        estimator.fit(APART, Y)
    for C in (-INF, float("nan"), 0.0):
        with pytest.raises(ParameterError, match="must be a number > 0"):
            estimator.set_params(C=C).fit(APART, Y)


def test_models_and_exports(tmp_path):
    fitted = bigsvm.SVC(C=INF, kernel="linear").fit(APART, Y)
    fitted.save(tmp_path / "model")
    loaded = bigsvm.load(tmp_path / "model")
    assert loaded.C == INF
    np.testing.assert_array_equal(loaded.predict(APART), Y)
    write_libsvm_model(fitted, tmp_path / "libsvm")
    np.testing.assert_array_equal(bigsvm.load(tmp_path / "libsvm").predict(APART), Y)


def test_a_search_has_it_in_its_grid(tmp_path):
    grid = {"C": [1.0, INF], "gamma": [0.1, 1.0]}
    searches = [
        bigsvm.SearchCV(bigsvm.SVC(), grid, cv=3, checkpoint=tmp_path / "search").fit(APART, Y)
        for _ in range(2)
    ]
    for search in searches:
        scores = search.cv_results_["mean_test_score"]
        assert len(scores) == 4
        assert np.isfinite(scores).all()


@pytest.mark.parametrize("command", ["train", "svm-train"])
@pytest.mark.parametrize(
    "rows",
    [pytest.param(APART, id="apart", marks=pytest.mark.slow), pytest.param(MIXED, id="mixed")],
)
def test_on_the_command_line(command, rows, tmp_path):
    lines = [f"{label} 1:{a!r} 2:{b!r}" for label, (a, b) in zip(Y, rows.tolist(), strict=True)]
    (tmp_path / "x.svm").write_text("\n".join(lines) + "\n")
    arguments = {
        "train": ["train", "x.svm", "m", "--C", "inf", "--kernel", "linear"],
        "svm-train": ["svm-train", "-c", "inf", "-t", "0", "x.svm", "m"],
    }[command]
    ended = subprocess.run(
        [sys.executable, "-m", "bigsvm", *arguments],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert ("C is inf" in ended.stdout + ended.stderr) == (rows is MIXED)
    if rows is APART:
        model = bigsvm.load(tmp_path / "m")
        np.testing.assert_array_equal(model.predict(APART), Y)
