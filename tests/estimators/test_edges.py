"""Data and parameters at the edges, in every formulation: the right result or the right error."""

import warnings

import dask.array as da
import naive
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import svm as peers
from sklearn.base import clone
from sklearn.datasets import make_classification, make_moons
from sklearn.exceptions import ConvergenceWarning
from support.optimum import coefficients_of

import bigsvm
import bigsvm.kernels
from bigsvm.errors import DataError, ParameterError
from bigsvm.parameters import TrainingParameters
from bigsvm.parameters.checks import check_parameters
from bigsvm.report.describe import certificate_lines

LIMIT = 600.0
"""Seconds. What takes longer here hangs, on a busy machine too."""

# Values of nu whose sums leave a variable off its bounds: else thresholds are not unique.
KINDS = {
    "hinge": bigsvm.SVC(),
    "squared hinge": bigsvm.SVC(loss="squared_hinge"),
    "nu-svc": bigsvm.NuSVC(nu=0.607),
    "l2-svc": bigsvm.L2SVC(tol=1e-6),
    "one-class": bigsvm.OneClassSVM(nu=0.303),
    "l2-one-class": bigsvm.L2OneClassSVM(tol=1e-6),
    "eps-svr": bigsvm.SVR(),
    "nu-svr": bigsvm.NuSVR(nu=0.403),
}
CLASSIFIERS = ("hinge", "squared hinge", "nu-svc", "l2-svc")
WITH_C = ("hinge", "squared hinge", "l2-svc", "l2-one-class", "eps-svr", "nu-svr")
REGRESSIONS = ("eps-svr", "nu-svr")

MOONS, LABELS = make_moons(60, noise=0.3, random_state=0)
TARGETS = np.sin(2 * MOONS[:, 0]) + MOONS[:, 1]
TWICE = np.r_[0:60, 0:15]
"""Rows of which the last are repeated with the other label, and another target."""
TWO = np.array([LABELS.argmin(), LABELS.argmax()])


def target_of(kind, y, z):
    return None if kind in ("one-class", "l2-one-class") else z if kind in REGRESSIONS else y


@pytest.fixture(scope="module", autouse=True)
def _compiled():
    """Compiles what the limit is not meant for."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for kind, estimator in KINDS.items():
            for form in (np.asarray, sp.csr_matrix):
                estimator.fit(form(MOONS), target_of(kind, LABELS, TARGETS))


def fitted(kind, X, y, z, **options):
    """Fit within the limit; it ends because there is nothing left to do."""
    estimator = type(KINDS[kind])(**{**KINDS[kind].get_params(), "max_time": LIMIT, **options})
    estimator.fit(X, target_of(kind, y, z))
    assert estimator.stop_reason_ in ("converged", "stalled")
    return estimator


def kernel_of(model, X):
    """K (n, n) float64, entry by entry."""
    parameters = model.model_.kernel.describe()
    return naive.kernel_matrix(X, X, parameters.pop("name"), **parameters)


def by_libsvm(kind, model, K, target):
    """Coefficients and decision values of LIBSVM, given the kernel matrix in float64.

    LIBSVM has no bias with a penalty: of l2-svc they are those of a dense problem. Of l2-one-class
    its own are in other units, and less exact.
    """
    if kind == "l2-one-class":
        beta = naive.l2_svc(K + np.eye(len(K)) / model.C)
        return beta, K @ beta - 1
    if kind == "l2-svc":
        sign = np.where(target == 1, 1.0, -1.0)
        ridge = np.eye(len(K)) / model.C
        beta = sign * naive.l2_svc((K + 1) * np.outer(sign, sign) + ridge)
        return beta, (K + 1) @ beta
    own = {name: getattr(model, name) for name in ("C", "nu", "epsilon") if hasattr(model, name)}
    if kind == "squared hinge":
        own["C"] = 1e15  # the ridge takes its place
    kinds = {"eps-svr": peers.SVR, "nu-svr": peers.NuSVR, "one-class": peers.OneClassSVM}
    peer = {"nu-svc": peers.NuSVC, **kinds}.get(kind, peers.SVC)(
        kernel="precomputed", tol=1e-6, **own
    )
    ridge = 0.5 / model.C * np.eye(len(K)) if kind == "squared hinge" else 0.0
    peer.fit(K + ridge, target)
    beta = coefficients_of(peer, len(K))
    return beta, K @ beta + peer.intercept_[0]


def dual_objective(kind, model, K, beta, target):
    """What is maximised, by its definition."""
    absolute = np.abs(beta).sum()
    if kind == "nu-svc":  # undivided by rho
        beta = beta * (model.nu * len(beta) / absolute)
    linear = 0.0
    if kind == "l2-svc":
        K = K + 1
        linear = absolute - beta @ beta / (2 * model.C)
    elif kind == "l2-one-class":
        linear = absolute - beta @ beta / (2 * model.C)
    elif kind in ("hinge", "squared hinge"):
        linear = absolute - (beta @ beta / (4 * model.C) if kind == "squared hinge" else 0.0)
    elif kind in REGRESSIONS:
        linear = target @ beta - getattr(model, "epsilon", 0.0) * absolute
    return linear - 0.5 * beta @ K @ beta


def is_the_optimum(kind, model, X, y, z, *, atol=1e-4, rtol=1e-6):
    """Hold objective and decision values to LIBSVM's; `atol` is of values of size 1."""
    assert model.converged_
    target, K = target_of(kind, y, z), kernel_of(model, X)
    expected, values = by_libsvm(kind, model, K, target)
    beta = coefficients_of(model, len(X))
    best = dual_objective(kind, model, K, expected, target)
    ours = dual_objective(kind, model, K, beta, target)
    assert ours == pytest.approx(best, rel=rtol, abs=1e-9)
    found = model.predict(X) if kind in REGRESSIONS else model.decision_function(X)
    np.testing.assert_allclose(found, values, atol=atol * max(1.0, np.abs(values).max()))


AWKWARD = {
    "constant": (np.full((60, 3), 2.0), np.arange(60)),
    "one constant": (np.c_[MOONS, np.full(60, 3.0)], np.arange(60)),
    "duplicates with opposite labels": (MOONS[TWICE], TWICE),
    "two rows": (MOONS[TWO], TWO),
}
"""Rows, and whose labels and targets they have."""
NO_MARGIN = ("nu-svc", "constant")


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize(
    ("kind", "what"), [(k, what) for k in KINDS for what in AWKWARD if (k, what) != NO_MARGIN]
)
def test_awkward_data_ends_at_the_optimum(kind, what, form):
    X, rows = AWKWARD[what]
    again = (np.arange(len(rows)) >= 60).astype(int)
    y, z = LABELS[rows] ^ again, TARGETS[rows] + again
    is_the_optimum(kind, fitted(kind, form(X), y, z), X, y, z)


@pytest.mark.parametrize(
    "X",
    [np.full((60, 3), 2.0), np.repeat(np.eye(2), 30, axis=0), np.repeat(MOONS[:30], 2, axis=0)],
    ids=["constant", "two points", "every row with both labels"],
)
def test_nu_svc_without_a_margin_warns(X):
    y = np.arange(60) % 2
    with pytest.warns(ConvergenceWarning, match="raise nu"):
        model = fitted("nu-svc", X, y, None, gamma=1.0)
    assert model.converged_
    assert np.abs(model.decision_function(X)).max() < 1e-9


def primal_objective(kind, model, K, beta, target):
    """What is minimised, by its definition, at the model's decision function."""
    values = K @ beta + model.intercept_[0]
    penalty = 0.5 * beta @ K @ beta
    if kind in REGRESSIONS:
        epsilon = model.epsilon_ if kind == "nu-svr" else model.epsilon
        losses = np.maximum(np.abs(target - values) - epsilon, 0)
        share = model.nu * len(beta) * epsilon if kind == "nu-svr" else 0.0
        return penalty + model.C * (share + losses.sum())
    if kind == "l2-one-class":
        return penalty + 0.5 * model.C * (np.minimum(values, 0) ** 2).sum()
    losses = np.maximum(1 - np.where(target == 1, 1, -1) * values, 0)
    if kind == "l2-svc":
        return penalty + 0.5 * model.intercept_[0] ** 2 + 0.5 * model.C * (losses**2).sum()
    return penalty + model.C * (losses**2 if kind == "squared hinge" else losses).sum()


@pytest.mark.filterwarnings("ignore::bigsvm.AdviceWarning")  # bad on purpose
@pytest.mark.parametrize("kernel", ["rbf", "linear"])
@pytest.mark.parametrize("C", [1e-6, 1e6])
@pytest.mark.parametrize("kind", WITH_C)
def test_extreme_C(kind, C, kernel):
    """Held to weak duality: at 1e6 LIBSVM itself is not at the optimum after 20 million steps."""
    # With the origin among the rows rho of a linear one is all ridge, and steps are without number.
    X = MOONS + 3.0 if kind == "l2-one-class" else MOONS
    # A ball of 1e-8 takes two million steps of the linear kernel, too near the limit of seconds.
    options = {"tol": 1e-6} if kind == "l2-svc" else {}
    model = fitted(kind, X, LABELS, TARGETS, C=C, kernel=kernel, gamma=1.0, **options)
    assert model.converged_
    target, K = target_of(kind, LABELS, TARGETS), kernel_of(model, X)
    beta = coefficients_of(model, len(MOONS))
    least = primal_objective(kind, model, K, beta, target)
    most = dual_objective(kind, model, K, beta, target)
    assert least == pytest.approx(most, rel=1e-7, abs=1e-9 * C * len(beta))


@pytest.mark.filterwarnings("ignore::bigsvm.AdviceWarning")  # bad on purpose
@pytest.mark.parametrize(
    ("kind", "gamma"),
    [(k, g) for k in KINDS for g in (0.0, 1e-9, 1e9, 1e38) if k != "nu-svc" or g > 1],
)
def test_extreme_gamma(kind, gamma):
    model = fitted(kind, MOONS, LABELS, TARGETS, gamma=gamma)
    is_the_optimum(kind, model, MOONS, LABELS, TARGETS)


def test_nu_svc_with_tiny_gamma_is_the_linear_kernel():
    """The margin is in units of gamma, LIBSVM's tolerance is not: it finds none."""
    with pytest.warns(ConvergenceWarning, match="raise nu"):
        fitted("nu-svc", MOONS, LABELS, None, gamma=0.0)
    model = fitted("nu-svc", MOONS, LABELS, None, gamma=1e-9)
    linear = fitted("nu-svc", MOONS, LABELS, None, kernel="linear")
    assert model.converged_
    np.testing.assert_allclose(
        model.decision_function(MOONS), linear.decision_function(MOONS), atol=1e-2
    )


@pytest.mark.parametrize("kind", KINDS)
def test_gamma_beyond_float32_is_refused_with_the_remedy(kind):
    with pytest.raises(ParameterError, match=r"gamma is 1e\+39.*scale the features"):
        fitted(kind, MOONS, LABELS, TARGETS, gamma=1e39)


@pytest.mark.parametrize("nu", [1e-6, 1e-3])
@pytest.mark.parametrize("kind", ["one-class", "nu-svr"])
def test_nu_smaller_than_one_row(kind, nu):
    model = fitted(kind, MOONS, LABELS, TARGETS, nu=nu, gamma=1.0)
    is_the_optimum(kind, model, MOONS, LABELS, TARGETS, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("kind", ["nu-svc", "one-class"])
def test_a_nu_of_1_takes_all_rows(kind):
    model = fitted(kind, MOONS, np.arange(60) % 2, None, nu=1.0, gamma=1.0)
    assert model.converged_
    assert len(model.support_) == 60
    np.testing.assert_allclose(np.abs(model.dual_coef_), np.abs(model.dual_coef_).max())


def test_a_nu_of_1_takes_the_tube_away():
    model = fitted("nu-svr", MOONS, None, TARGETS, nu=1.0, gamma=1.0)
    assert model.epsilon_ == pytest.approx(0, abs=1e-9)
    without = fitted("eps-svr", MOONS, None, TARGETS, epsilon=0.0, gamma=1.0)
    assert model.objective_ == pytest.approx(without.objective_, rel=1e-6)
    np.testing.assert_allclose(model.predict(MOONS), without.predict(MOONS), atol=1e-4)


@pytest.mark.parametrize(
    "weights",
    [np.where(LABELS == 1, 1.0, 3.0), np.where(np.arange(60) < 25, 0.0, 1.0)],
    ids=["more of one class", "rows without weight"],
)
def test_an_infeasible_nu_counts_rows_by_their_weight(weights):
    side = weights[LABELS == 1].sum() / weights.sum()
    most = 2 * min(side, 1 - side)
    options = {"gamma": 1.0, "max_time": LIMIT}
    with pytest.raises(ParameterError, match=f"infeasible.*at most {most:.6g}, twice the share"):
        bigsvm.NuSVC(nu=most + 0.01, **options).fit(MOONS, LABELS, sample_weight=weights)
    model = bigsvm.NuSVC(nu=most, **options).fit(MOONS, LABELS, sample_weight=weights)
    assert model.converged_


@pytest.mark.parametrize("kind", KINDS)
def test_rbf_far_from_the_origin_keeps_its_precision(kind):
    """Subtracting the mean first is what does it; the data themselves are off by 1e-10."""
    far = MOONS + 1e6
    model = fitted(kind, far, LABELS, TARGETS, gamma=1.0)
    is_the_optimum(kind, model, far, LABELS, TARGETS, atol=1e-2)
    near = fitted(kind, MOONS, LABELS, TARGETS, gamma=1.0)
    assert model.objective_ == pytest.approx(near.objective_, rel=1e-4)


def test_nu_svc_far_from_the_origin_is_solved_in_float64():
    """At 1e5 kernel values are 2e10, where float32 has steps of 2000 and float64 of 4e-6."""
    far = fitted("nu-svc", MOONS + 1e5, LABELS, TARGETS, kernel="linear")
    near = fitted("nu-svc", MOONS, LABELS, TARGETS, kernel="linear")
    assert far.converged_
    np.testing.assert_allclose(
        far.decision_function(MOONS + 1e5), near.decision_function(MOONS), atol=1e-2
    )


@pytest.mark.parametrize("kind", ["hinge", "eps-svr", "nu-svr"])
def test_linear_kernel_far_from_the_origin_warns(kind):
    """At 1e6 some gaps end at 0.4 to 0.8 of the tolerance, as rounding has it: here at 35 times."""
    with pytest.warns(ConvergenceWarning, match="scale the columns"):
        model = fitted(kind, MOONS + 3e6, LABELS, TARGETS, kernel="linear")
    assert not model.converged_


@pytest.mark.parametrize("far", [1e3, 1e5])
def test_squared_hinge_far_from_the_origin_is_solved_in_float64(far):
    found = fitted("squared hinge", MOONS + far, LABELS, TARGETS, kernel="linear")
    near = fitted("squared hinge", MOONS, LABELS, TARGETS, kernel="linear")
    assert found.converged_
    assert found.objective_ == pytest.approx(near.objective_, rel=1e-5)
    np.testing.assert_allclose(
        found.decision_function(MOONS + far), near.decision_function(MOONS), atol=1e-3
    )


@pytest.mark.parametrize("far", [1e6, 3e6])
def test_squared_hinge_too_far_from_the_origin_for_float64_warns(far):
    """It has stalled near the optimum, and its gap is above the tolerance, as it is told."""
    with pytest.warns(ConvergenceWarning, match="scale the columns"):
        found = fitted("squared hinge", MOONS + far, LABELS, TARGETS, kernel="linear")
    near = fitted("squared hinge", MOONS, LABELS, TARGETS, kernel="linear")
    assert not found.converged_
    assert found.gap_ > found.tol
    assert found.objective_ == pytest.approx(near.objective_, rel=1e-2)
    np.testing.assert_allclose(
        found.decision_function(MOONS + far), near.decision_function(MOONS), atol=0.1
    )


def test_one_class_far_from_the_origin_agrees_with_libsvm():
    model = fitted("one-class", MOONS + 1e6, LABELS, TARGETS, kernel="linear")
    far = MOONS + 1e6
    expected, values = by_libsvm("one-class", model, kernel_of(model, far), None)
    assert model.converged_
    scores = values - values.min() + abs(model.offset_[0])
    np.testing.assert_allclose(model.score_samples(far), scores, rtol=1e-6)
    assert expected.sum() == pytest.approx(model.dual_coef_.sum())


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "options", [{"gamma": 1.0}, {"kernel": "linear"}, {"kernel": "poly", "gamma": 1.0}], ids=str
)
@pytest.mark.parametrize("kind", KINDS)
def test_values_of_1e30_are_refused_with_the_remedy(kind, options, dtype, form):
    X = (MOONS * 1e30).astype(dtype)
    with pytest.raises(DataError, match=r"squared length .* scale the features"):
        fitted(kind, form(X), LABELS, TARGETS, **options)


@pytest.mark.parametrize("size", [1e-25, 1e30])
@pytest.mark.parametrize("kind", KINDS)
def test_features_whose_gamma_float32_cannot_hold_are_refused_with_the_remedy(kind, size):
    with pytest.raises(ParameterError, match=r"gamma='scale' is .* scale the features"):
        fitted(kind, MOONS * size, LABELS, TARGETS)


@pytest.mark.parametrize("kind", KINDS)
def test_laplacian_of_features_of_1e30_with_a_tiny_gamma(kind):
    options = {"kernel": "laplacian"}
    model = fitted(kind, MOONS * 1e30, LABELS, TARGETS, gamma=1e-30, **options)
    near = fitted(kind, MOONS, LABELS, TARGETS, gamma=1.0, **options)
    assert model.converged_
    assert model.objective_ == pytest.approx(near.objective_, rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_1e30_are_predicted_or_refused(kind, compiled_predictions):
    """In float64 they are far from everything; float32 cannot tell."""
    model = fitted(kind, MOONS, LABELS, TARGETS, gamma=1.0)
    decide = model.predict if kind in REGRESSIONS else model.decision_function
    np.testing.assert_allclose(decide(MOONS * 1e30), model.intercept_[0])
    with pytest.raises(DataError, match="scale the features"):
        decide((MOONS * 1e30).astype(np.float32))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_small_models_predict_rows_of_1e30_in_float64(dtype):
    model = fitted("hinge", MOONS, LABELS, TARGETS, gamma=1.0)
    rows = (MOONS * 1e30).astype(dtype)
    np.testing.assert_allclose(model.decision_function(rows), model.intercept_[0])


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
@pytest.mark.parametrize("kind", ["one-class", *REGRESSIONS])
def test_fit_on_one_row(kind, kernel):
    X, z = np.array([[3.0, -1.0]]), np.array([2.5])
    model = fitted(kind, X, None, z, kernel=kernel, gamma=1.0)
    assert model.converged_
    if kind == "one-class":
        assert model.predict(X) == [1]
        np.testing.assert_allclose(model.dual_coef_, [[0.303]])
    else:
        np.testing.assert_array_equal(model.predict(np.r_[X, X + 1]), [2.5, 2.5])


@pytest.mark.parametrize("X", [MOONS[:1], MOONS], ids=["one row", "many"])
@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_classification_of_one_class_is_refused(kind, X):
    with pytest.raises(DataError, match=r"one class only .* two are needed, or more"):
        fitted(kind, X, np.ones(len(X)), None)


@pytest.mark.parametrize("kind", REGRESSIONS)
def test_targets_that_are_all_the_same_are_predicted(kind):
    model = fitted(kind, MOONS, None, np.full(60, 7.0))
    assert model.converged_
    np.testing.assert_allclose(model.predict(MOONS * 10), 7.0, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_empty_X_is_refused(kind):
    for X in (MOONS[:0], MOONS[:, :0]):
        with pytest.raises(ValueError, match="minimum of 1 is required"):
            fitted(kind, X, LABELS[: len(X)], TARGETS[: len(X)])


WRONG_KINDS = {
    "C": ["1", None, [1.0], np.ones(1), 1j],
    "nu": ["0.5", [0.5], None],
    "epsilon": ["0.1", None],
    "tol": [None, "1e-3"],
    "solver": [None, 3],
    "sampling": [None, [60]],
    "empty_samples": [None, 1.5],
    "first_points": [None, 3],
    "ball_tol": [None, "1e-6"],
    "certify": [None, 1, "yes"],
    "exact_objective": [None, 1, "yes"],
    "kernel": [None, 3, len, bigsvm.kernels.RBF],
    "degree": ["3", None, [2]],
    "gamma": [None, {}],
    "coef0": ["0", None],
    "class_weight": [3, [1, 2], {0: "a"}, {0: None}],
    "selection": [None, 3],
    "working_set": [None, ["auto"]],
    "memory": [None, [1], b"1GB"],
    "disk_cache": [None, []],
    "cache_dir": [3, b"x"],
    "checkpoint": [3, ["run"]],
    "checkpoint_copy": [3, ["run"]],
    "checkpoint_every": ["60s", None],
    "max_iter": [1.5, None, "9"],
    "max_time": ["1h", [3]],
    "n_jobs": ["2", 1.5],
    "random_state": ["x", 0.5, np.random.default_rng(0), -1],
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_parameter_of_the_wrong_kind_is_named_with_its_value(kind):
    given, y = KINDS[kind].get_params(), target_of(kind, LABELS, TARGETS)
    for name, values in WRONG_KINDS.items():
        for value in values if name in given else ():
            estimator = type(KINDS[kind])(**{**given, name: value})
            with pytest.raises(ParameterError, match=f"{name}.*; it must be ") as error:
                estimator.fit(MOONS, y)
            wrong = value[0] if isinstance(value, dict) and value else value
            assert repr(wrong) in str(error.value)


@pytest.mark.parametrize("C", [np.float32(2), np.int64(2), np.float64(2), True])
def test_numeric_parameters_of_any_type_are_taken(C):
    model = fitted("hinge", MOONS, LABELS, None, C=C, max_iter=np.int64(10**6))
    assert model.converged_


@pytest.mark.parametrize("kind", REGRESSIONS)
@pytest.mark.parametrize("value", [1e308, -1e39, 4.3e37])
def test_targets_beyond_float32_are_refused_with_row_and_remedy(kind, value, tmp_path):
    z = TARGETS.copy()
    z[17] = value
    with pytest.raises(DataError, match=r"y of row 17 is .*4.25e\+37.* scale the targets"):
        fitted(kind, MOONS, None, z)
    store = bigsvm.write_store(tmp_path / "rows.zarr", MOONS, z)
    row = int(np.flatnonzero(store.labels() == value)[0])
    with pytest.raises(DataError, match=f"y of row {row} is .* scale the targets"):
        type(KINDS[kind])().fit(store)


@pytest.mark.parametrize("kind", REGRESSIONS)
def test_targets_that_float32_holds_are_reached(kind):
    """As those of size 1 are, if C and the tolerances grow with them."""
    # Of nu-svr less, as pair steps are many where float32 does not hold squares of gradients.
    size = 4.2e37 / np.abs(TARGETS).max() if kind == "eps-svr" else 1e18
    options = {"gamma": 1.0, "C": size, "tol": 1e-3 * size}
    options |= {"epsilon": 0.1 * size} if kind == "eps-svr" else {}
    model = fitted(kind, MOONS, None, TARGETS * size, **options)
    near = fitted(kind, MOONS, None, TARGETS, gamma=1.0)
    assert model.converged_
    np.testing.assert_allclose(model.predict(MOONS) / size, near.predict(MOONS), atol=5e-3)


@pytest.mark.parametrize("formulation", ["one-class", "eps-svr", "nu-svr"])
def test_class_weights_without_classes_are_refused(formulation):
    for weights in ("balanced", {1.0: 2.0}):
        given = TrainingParameters(formulation=formulation, class_weight=weights)
        with pytest.raises(
            ParameterError,
            match=f"c-svc, nu-svc, l2-svc and crammer-singer; {formulation} has no classes",
        ):
            check_parameters(given)
    check_parameters(TrainingParameters(formulation="nu-svc", class_weight="balanced"))


@pytest.mark.parametrize(("kind", "scale"), [("nu-svc", 1e-6), ("one-class", 1e-5)])
def test_tolerance_as_large_as_rho_warns(kind, scale):
    """Of more rows than Newton's method takes: weights this small leave nothing above tol."""
    X, y = make_moons(800, noise=0.3, random_state=0)
    estimator = {"nu-svc": bigsvm.NuSVC(nu=0.4), "one-class": bigsvm.OneClassSVM(nu=0.2)}[kind]
    weights = np.full(800, scale)
    with pytest.warns(ConvergenceWarning, match="not small beside rho.*lower tol to"):
        rough = clone(estimator).set_params(gamma=1.0).fit(X, y, sample_weight=weights)
    assert rough.converged_
    fine = clone(estimator).set_params(gamma=1.0, tol=1e-3 * scale)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fine.fit(X, y, sample_weight=weights)


def test_certificate_reports_an_indefinite_kernel():
    model = fitted("hinge", MOONS, LABELS, TARGETS, kernel="sigmoid", gamma=3.0, coef0=-1.0)
    assert model.certificate_["kernel_is_definite"] is False
    assert fitted("hinge", MOONS, LABELS, TARGETS).certificate_["kernel_is_definite"] is True
    lines = dict(certificate_lines(model.certificate_))
    assert "stationary point" in lines["note"]


def test_pairs_without_a_gap_are_reported_without_a_warning():
    X = np.array([[0.0, 0.0], [100.0, 0.0], [0.0, 100.0]])
    model = bigsvm.NuSVC(nu=0.5, kernel="linear").fit(X, [0, 1, 2])
    assert model.certificate_["gap"] == 0
    assert np.abs(model.decision_function(X)).max() >= 1
    np.testing.assert_array_equal(model.predict(X), [0, 1, 2])


def test_a_generator_seeds_as_the_number_it_gives():
    X, y = make_classification(300, 5, random_state=0)
    drawn = int(np.random.RandomState(3).randint(np.iinfo(np.int32).max))
    one, other = (
        bigsvm.L2SVC(certify=False, sampling=5, random_state=seed).fit(X, y)
        for seed in (np.random.RandomState(3), drawn)
    )
    np.testing.assert_array_equal(one.support_, other.support_)
    np.testing.assert_array_equal(one.dual_coef_, other.dual_coef_)


def test_prediction_refuses_nan():
    X, y = make_classification(60, 5, random_state=0)
    model = bigsvm.SVC().fit(X, y)
    lazy = da.full((4, 5), np.nan, chunks=2)
    with pytest.raises(DataError, match=r"not numbers \(NaN\)"):
        model.predict(lazy).compute()


@pytest.mark.parametrize(("C", "epsilon"), [(1e-3, 0.01), (1.0, 0.1), (1.0, 10.0)])
@pytest.mark.filterwarnings("ignore:training did not converge")
def test_the_objective_of_svr_is_that_of_its_coefficients(C, epsilon):
    # Kernel values of 1e27 are too coarse for steps to end: both variables of a row are left.
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, 30)) + 1000, 1000 * rng.standard_normal(30)
    model = bigsvm.SVR(
        kernel="poly", degree=5, coef0=1.0, C=C, epsilon=epsilon, selection="mvp", max_iter=2000
    ).fit(X.astype(np.float32), y)
    assert not model.converged_
    rows = X.astype(np.float32).astype(np.float64)[model.support_]
    beta = model.dual_coef_.ravel()
    K = (model.model_.kernel.gamma * rows @ rows.T + 1.0) ** 5
    expected = y[model.support_] @ beta - epsilon * np.abs(beta).sum() - 0.5 * beta @ K @ beta
    assert model.certificate_["objective"] == pytest.approx(expected, rel=1e-6)
