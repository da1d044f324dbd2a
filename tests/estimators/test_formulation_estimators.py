"""NuSVC, OneClassSVM, SVR, NuSVR and the squared hinge, beside scikit-learn and by definition."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import svm as peers
from sklearn.base import clone
from sklearn.datasets import make_classification, make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks
from support.optimum import coefficients_of

import bigsvm
from bigsvm.errors import DataError, ParameterError

TOL = 1e-6


@pytest.fixture(scope="module")
def waves():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (300, 3))
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.2 * rng.standard_normal(300)


def unchecked(estimator):
    """Contracts that are not met, and why."""
    if isinstance(estimator, bigsvm.NuSVC):
        return {
            "check_class_weight_classifiers": "0.86 of the rows of three classes are predicted to "
            "be of the heavy one, more than 0.87 are asked for: with nu, the classes' sums of "
            "alpha stay equal, whatever their weights"
        }
    return {}


@parametrize_with_checks(
    [
        bigsvm.L2SVC(),
        bigsvm.NuSVC(nu=0.2),  # more is infeasible on the data of some checks
        bigsvm.OneClassSVM(),
        bigsvm.SVR(),
    ],
    expected_failed_checks=unchecked,
)
# On random labels of three classes nu=0.2 is too little, and 1000 steps for all pairs together.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [
        bigsvm.SVC(loss="squared_hinge"),
        bigsvm.L2OneClassSVM(),
        bigsvm.NuSVR(),
    ],
    expected_failed_checks=unchecked,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learn_contract_of_the_others(estimator, check):
    check(estimator)


# Values of nu whose sums leave a variable off its bounds: else thresholds are not unique.
FORMS = [np.asarray, sp.csr_matrix]
KERNELS = [
    {"kernel": "rbf", "gamma": 0.7},
    {"kernel": "linear"},
    {"kernel": "poly", "gamma": 0.5, "coef0": 1.0, "degree": 2},
]


def same_values(ours, peer, X, form):
    assert ours.converged_
    name = "decision_function" if hasattr(peer, "decision_function") else "predict"
    values, expected = getattr(ours, name)(form(X)), getattr(peer, name)(X)
    scale = max(np.abs(expected).max(), 1e-3)
    np.testing.assert_allclose(values, expected, atol=1e-3 * scale)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("options", KERNELS)
@pytest.mark.parametrize("nu", [0.503, 0.607, 0.79])
def test_nu_svc_is_libsvms(moons, options, nu, form):
    X, y = moons
    ours = bigsvm.NuSVC(nu=nu, tol=TOL, **options).fit(form(X), y)
    peer = peers.NuSVC(nu=nu, tol=TOL, **options).fit(X, y)
    same_values(ours, peer, X, form)
    np.testing.assert_allclose(ours.intercept_, peer.intercept_, atol=1e-3)
    errors = (ours.predict(form(X)) != y).mean()
    assert errors <= nu + 1e-9
    assert len(ours.support_) >= nu * len(y) - 1e-9


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("options", KERNELS)
@pytest.mark.parametrize("nu", [0.055, 0.403, 0.985])
def test_one_class_is_libsvms(moons, options, nu, form):
    X = moons[0] + 3.0  # with the origin among the rows a linear one would be 0 everywhere
    ours = bigsvm.OneClassSVM(nu=nu, tol=TOL, **options).fit(form(X))
    peer = peers.OneClassSVM(nu=nu, tol=TOL, **options).fit(X)
    same_values(ours, peer, X, form)
    np.testing.assert_allclose(ours.offset_, peer.offset_, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(ours.dual_coef_.sum(), nu * len(X), rtol=1e-9)
    np.testing.assert_allclose(
        ours.score_samples(form(X)) - ours.offset_, ours.decision_function(form(X)), atol=1e-9
    )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("options", KERNELS)
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.5])
def test_svr_is_libsvms(waves, options, epsilon, form):
    X, z = waves
    ours = bigsvm.SVR(C=2.0, epsilon=epsilon, tol=TOL, **options).fit(form(X), z)
    peer = peers.SVR(C=2.0, epsilon=epsilon, tol=TOL, **options).fit(X, z)
    same_values(ours, peer, X, form)
    beta = coefficients_of(ours, len(z))
    assert np.abs(beta).max() <= 2.0
    assert abs(beta.sum()) < 1e-9
    outside = np.abs(z - ours.predict(form(X))) > epsilon + 1e-4
    np.testing.assert_allclose(np.abs(beta[outside]), 2.0)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("options", KERNELS)
@pytest.mark.parametrize("nu", [0.103, 0.505, 0.887])
def test_nu_svr_is_libsvms(waves, options, nu, form):
    X, z = waves
    ours = bigsvm.NuSVR(C=2.0, nu=nu, tol=TOL, **options).fit(form(X), z)
    peer = peers.NuSVR(C=2.0, nu=nu, tol=TOL, **options).fit(X, z)
    same_values(ours, peer, X, form)
    again = bigsvm.SVR(C=2.0, epsilon=ours.epsilon_, tol=TOL, **options).fit(form(X), z)
    np.testing.assert_allclose(again.predict(X), ours.predict(X), atol=1e-3)


@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
def test_squared_hinge_is_liblinears(C):
    X, y = make_classification(200, 5, flip_y=0.1, random_state=0)
    ones = np.ones((len(X), 1))
    ours = bigsvm.SVC(C=C, loss="squared_hinge", kernel="linear", tol=1e-7).fit(X, y)
    # liblinear penalises the intercept: a large constant feature makes that penalty small.
    peer = peers.LinearSVC(C=C, intercept_scaling=1e3, tol=1e-10, max_iter=10**6, dual=False)
    peer.fit(np.hstack([X, 0 * ones]), y)
    np.testing.assert_allclose(
        ours.decision_function(X), peer.decision_function(np.hstack([X, 0 * ones])), atol=1e-3
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda: bigsvm.SVC(loss="squared_hinge", C=0.7),
        lambda: bigsvm.NuSVC(nu=0.3),
        lambda: bigsvm.OneClassSVM(nu=0.3),
        lambda: bigsvm.SVR(epsilon=0.05),
        lambda: bigsvm.NuSVR(nu=0.4),
    ],
)
def test_the_certificate_holds_by_definition(make, moons, waves):
    estimator = make().set_params(gamma=0.5, tol=1e-5)
    X, target = waves if isinstance(estimator, bigsvm.SVR | bigsvm.NuSVR) else moons
    model = estimator.fit(X, target)
    assert model.converged_
    assert 0 <= model.gap_ <= 1e-5
    assert -1e-9 <= model.duality_gap_ <= 1e-4 * max(abs(model.objective_), 1.0)


@pytest.mark.parametrize("selection", ["hmg", "second-order", "mvp"])
@pytest.mark.parametrize("working_set", ["auto", "all"])
def test_two_groups_do_not_stall(selection, working_set, moons, waves):
    X, y = moons
    options = {"selection": selection, "working_set": working_set, "tol": 1e-5, "gamma": 1.0}
    for model in (
        bigsvm.NuSVC(nu=0.4, **options).fit(X, y),
        bigsvm.NuSVR(nu=0.4, **options).fit(*waves),
        bigsvm.SVR(**options).fit(*waves),
        bigsvm.OneClassSVM(nu=0.3, **options).fit(X),
    ):
        assert model.converged_


@pytest.mark.slow
@pytest.mark.parametrize("n", [9000, 12_000])
def test_many_rows_grow_from_a_sample(n):
    """More rows than take part at once: sums are filled scope by scope."""
    X, y = make_moons(n, noise=0.3, random_state=1)
    z = np.sin(3 * X[:, 0]) + 0.1 * np.random.default_rng(0).standard_normal(n)
    options = {"gamma": 2.0, "tol": 1e-3}
    for ours, peer, target in (
        (bigsvm.NuSVC(nu=0.3, **options), peers.NuSVC(nu=0.3, **options), y),
        (bigsvm.OneClassSVM(nu=0.1, **options), peers.OneClassSVM(nu=0.1, **options), None),
        (bigsvm.SVR(epsilon=0.1, **options), peers.SVR(epsilon=0.1, **options), z),
        (bigsvm.NuSVR(nu=0.3, **options), peers.NuSVR(nu=0.3, **options), z),
    ):
        ours.fit(X, target)
        peer.fit(X, target)
        name = "decision_function" if hasattr(peer, "decision_function") else "predict"
        values, expected = getattr(ours, name)(X), getattr(peer, name)(X)
        assert ours.converged_
        assert np.abs(values - expected).max() <= 1e-2 * np.abs(expected).max()


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_duplicate_rows_share_their_alpha(loss):
    """Rows that are merged while training get what they would have got alone, up to the optimum."""
    X, y = make_moons(9000, noise=0.3, random_state=1)
    X = np.round(X, 1)
    model = bigsvm.SVC(gamma=1.0, loss=loss, tol=1e-4).fit(X, y)
    assert model.converged_
    beta = coefficients_of(model, len(y))
    assert abs(beta.sum()) < 1e-8
    if loss == "squared_hinge":
        xi = np.abs(beta) / 2.0  # alpha = 2 C xi
        margin = np.where(y == 1, 1, -1) * model.decision_function(X)
        np.testing.assert_allclose(xi, np.maximum(0, 1 - margin), atol=1e-3)


def test_an_infeasible_nu_is_refused_with_the_largest():
    X, y = make_classification(200, weights=[0.9], random_state=0)
    most = 2 * min((y == 0).mean(), (y == 1).mean())
    with pytest.raises(ParameterError, match=f"infeasible.*{most:.6g}"):
        bigsvm.NuSVC(nu=0.9).fit(X, y)
    assert bigsvm.NuSVC(nu=most).fit(X, y).converged_


@pytest.mark.parametrize("nu", [0.0, -1.0, 1.5, float("nan")])
@pytest.mark.parametrize("kind", [bigsvm.NuSVC, bigsvm.NuSVR, bigsvm.OneClassSVM])
def test_nu_is_a_share(kind, nu, moons):
    with pytest.raises(ParameterError, match="nu is"):
        kind(nu=nu).fit(*moons)


def test_targets_must_be_finite_numbers(waves):
    X, z = waves
    with pytest.raises(ParameterError, match="epsilon is"):
        bigsvm.SVR(epsilon=-0.1).fit(X, z)
    with pytest.raises((DataError, ValueError)):
        bigsvm.SVR().fit(X, np.where(np.arange(len(z)) == 3, np.nan, z))


@pytest.mark.parametrize("kind", [bigsvm.NuSVC, bigsvm.OneClassSVM, bigsvm.SVR, bigsvm.NuSVR])
def test_weights_are_scikit_learns(kind, moons, waves):
    rng = np.random.default_rng(1)
    X, target = waves if kind in (bigsvm.SVR, bigsvm.NuSVR) else moons
    weights = rng.uniform(0.2, 2, len(X))
    options = {"gamma": 0.5, "tol": TOL}
    ours = kind(**options).fit(X, target, sample_weight=weights)
    peer = getattr(peers, kind.__name__)(**options).fit(X, target, sample_weight=weights)
    name = "decision_function" if hasattr(peer, "decision_function") else "predict"
    expected = getattr(peer, name)(X)
    np.testing.assert_allclose(getattr(ours, name)(X), expected, atol=1e-3 * np.abs(expected).max())


def test_too_small_nu_of_inseparable_rows_warns():
    X = np.repeat(np.arange(10.0)[:, None], 2, axis=0)
    y = np.tile([0, 1], 10)
    with pytest.warns(ConvergenceWarning, match="raise nu"):
        model = bigsvm.NuSVC(nu=0.3).fit(X, y)
    assert model.converged_
    assert np.abs(model.decision_function(X)).max() < 1e-9


def test_weight_too_small_for_float64_counts_as_zero():
    X, y = make_moons(60, noise=0.3, random_state=0)
    weights = np.r_[1e-310, np.ones(59)]
    tiny = bigsvm.SVC(loss="squared_hinge").fit(X, y, sample_weight=weights)
    without = bigsvm.SVC(loss="squared_hinge").fit(X, y, sample_weight=np.r_[0.0, np.ones(59)])
    np.testing.assert_allclose(tiny.decision_function(X), without.decision_function(X), atol=1e-6)


SQUARED = {
    "l2-svc": bigsvm.L2SVC(),
    "l2-svc, one against the rest": bigsvm.L2SVC(multiclass="ovr"),
    "l2-one-class": bigsvm.L2OneClassSVM(),
    "squared hinge": bigsvm.SVC(loss="squared_hinge"),
}


@pytest.mark.parametrize("kind", SQUARED)
class TestARidgeTooLargeForFloat32:
    X, _ = make_moons(60, noise=0.3, random_state=0)
    y = np.arange(60) % 3

    def test_C_too_small_for_the_ridge_is_refused(self, kind):
        with pytest.raises(ParameterError, match=r"C is 1e-39; with squared losses .* at least"):
            clone(SQUARED[kind]).set_params(C=1e-39).fit(self.X, self.y)

    def test_row_with_too_small_a_weight_is_left_out(self, kind):
        tiny = clone(SQUARED[kind]).fit(self.X, self.y, sample_weight=np.r_[1e-39, np.ones(59)])
        without = clone(SQUARED[kind]).fit(self.X, self.y, sample_weight=np.r_[0.0, np.ones(59)])
        np.testing.assert_allclose(
            tiny.decision_function(self.X), without.decision_function(self.X), atol=1e-6
        )

    def test_largest_finite_ridge_is_trained(self, kind):
        model = clone(SQUARED[kind]).set_params(C=3e-38).fit(self.X, self.y)
        assert model.converged_
        assert np.isfinite(model.decision_function(self.X)).all()


def test_numpy_numbers_as_parameters_are_saved(tmp_path, waves):
    model = bigsvm.SVR(C=np.int64(2), epsilon=np.float32(0.125), n_jobs=np.int64(1)).fit(*waves)
    model.model_.save(tmp_path / "m")
    parameters = bigsvm.KernelExpansion.load(tmp_path / "m").provenance["parameters"]
    assert (parameters["C"], parameters["epsilon"]) == (2, 0.125)
