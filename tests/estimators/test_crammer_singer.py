"""CrammerSingerSVC: the optimum of dense problems, LIBLINEAR's functions, conventions."""

import naive
import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks
from support.problems import clouds

import bigsvm
from bigsvm import CrammerSingerSVC
from bigsvm.data.sources import as_row_source
from bigsvm.data.store import Store
from bigsvm.errors import CheckpointError, DataError, MemoryBudgetError, ModelError, ParameterError
from bigsvm.fit.reduction import make_plan
from bigsvm.parameters import TrainingParameters

GAMMA = 0.5


def dense(fitted, n):
    """Coefficients of all rows, (n, k)."""
    alpha = np.zeros((n, len(fitted.classes_)))
    shown = fitted.dual_coef_.T
    alpha[fitted.support_] = shown.toarray() if sp.issparse(shown) else shown
    return alpha


def sure_of(values):
    """Rows whose largest value, of (n, k), is the largest of another solution too."""
    return np.ptp(np.sort(values)[:, -2:], axis=1) > 0.02


# No expected failures, the equivalence of weights and repetitions among them.
@parametrize_with_checks([CrammerSingerSVC()])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("subproblem", ["exact", "fixed_point"])
@pytest.mark.parametrize("k", [2, 4])
def test_a_dense_problem_has_the_same_functions(subproblem, fit_intercept, k):
    n, C = 90, 3.0
    X, y = clouds(n, k)
    of_class = {label: 1.0 + 0.5 * label for label in range(k)}
    weights = np.random.default_rng(1).choice([0.0, 0.5, 2.0], n)
    bounds = C * weights * np.array([of_class[label] for label in y])
    K = rbf_kernel(X, gamma=GAMMA)
    raised = K + fit_intercept
    oracle = naive.crammer_singer(raised, y, k, bounds)
    fitted = CrammerSingerSVC(
        C=C, gamma=GAMMA, class_weight=of_class, fit_intercept=fit_intercept,
        subproblem=subproblem, tol=1e-6,
    ).fit(X, y, sample_weight=weights)  # fmt: skip
    expected, _ = naive.multiclass_objectives(raised, y, k, bounds, oracle)
    assert fitted.converged_
    assert fitted.objective_ == pytest.approx(expected, rel=1e-6)
    assert -1e-12 * expected <= fitted.duality_gap_ <= bounds.sum() * 1e-6
    np.testing.assert_allclose(dense(fitted, n), oracle, atol=2e-3 * bounds.max())
    np.testing.assert_allclose(fitted.intercept_, fit_intercept * oracle.sum(axis=0), atol=1e-2)
    values = raised @ oracle
    if k == 2:
        values = values[:, 1] - values[:, 0]
        labels = (values > 0).astype(int)
    else:
        labels = values.argmax(axis=1)
    np.testing.assert_allclose(fitted.decision_function(X), values, atol=5e-3)
    sure = sure_of(np.stack([0 * values, values], axis=1) if k == 2 else values)
    assert sure.mean() > 0.8
    np.testing.assert_array_equal(fitted.predict(X)[sure], labels[sure])


def test_the_linear_machine_is_scikit_learns():
    X, y = clouds(200, 5)
    options = {"C": 0.5, "fit_intercept": False}
    ours = CrammerSingerSVC(kernel="linear", tol=1e-6, **options).fit(X, y)
    peer = LinearSVC(
        multi_class="crammer_singer", tol=1e-8, max_iter=10**6, random_state=0, **options
    ).fit(X, y)
    # Of equal functions for all classes nothing depends; the least norm has none.
    expected = peer.coef_ - peer.coef_.mean(axis=0)
    np.testing.assert_allclose(ours.coef_, expected, atol=2e-4 * np.abs(expected).max())
    sure = sure_of(peer.decision_function(X))
    assert sure.mean() > 0.9
    np.testing.assert_array_equal(ours.predict(X)[sure], peer.predict(X)[sure])
    np.testing.assert_allclose(ours.decision_function(X), X @ ours.coef_.T, atol=1e-5)
    of_sparse = CrammerSingerSVC(kernel="linear", tol=1e-6, **options).fit(sp.csr_array(X), y)
    np.testing.assert_allclose(of_sparse.coef_.toarray(), ours.coef_, atol=1e-4)


@pytest.mark.parametrize(
    "names",
    [
        ["pear", "fig", "apple", "date"],
        [2**53 + 1, 2**53, -(2**60), 7],
        [5.0, -3.0, 100.0, 2.0],
    ],
    ids=["text", "large", "floats"],
)
def test_labels_may_be_anything_that_has_an_order(names):
    X, y = clouds(150)
    given = np.array(names)[y]
    plain = CrammerSingerSVC(gamma=GAMMA).fit(X, y)
    fitted = CrammerSingerSVC(gamma=GAMMA).fit(X, given)
    np.testing.assert_array_equal(fitted.classes_, np.unique(given))
    sure = sure_of(plain.decision_function(X))
    assert sure.mean() > 0.9
    expected = np.array(names)[plain.predict(X)]
    np.testing.assert_array_equal(fitted.predict(X)[sure], expected[sure])
    order = [names.index(label) for label in fitted.classes_.tolist()]
    np.testing.assert_allclose(
        fitted.decision_function(X), plain.decision_function(X)[:, order], atol=5e-3
    )


def test_two_classes_have_one_value_as_scikit_learn_has_it():
    X, y = clouds(150, k=2)
    fitted = CrammerSingerSVC(gamma=GAMMA).fit(X, y == 1)
    values = fitted.decision_function(X)
    assert values.shape == (len(X),)
    np.testing.assert_array_equal(fitted.predict(X), values > 0)
    assert fitted.dual_coef_.shape == (2, len(fitted.support_))


def test_attributes_have_the_shapes_they_are_documented_with():
    X, y = clouds(150)
    fitted = CrammerSingerSVC(gamma=GAMMA).fit(X, y)
    m = len(fitted.support_)
    assert fitted.dual_coef_.shape == (4, m)
    assert fitted.support_vectors_.shape == (m, 3)
    np.testing.assert_array_equal(fitted.support_vectors_, X[fitted.support_])
    np.testing.assert_array_equal(fitted.n_support_, np.bincount(y[fitted.support_], minlength=4))
    np.testing.assert_allclose(fitted.dual_coef_.sum(axis=0), 0, atol=1e-12)
    assert ((fitted.dual_coef_ > 0).sum(axis=0) == 1).all()
    assert fitted.intercept_.shape == (4,)
    assert not hasattr(fitted, "coef_")
    assert fitted.gap_ <= fitted.tol
    assert fitted.n_iter_ == fitted.certificate_["n_iter"] > 0


# -- what it is trained on -----------------------------------------------------------------------


@pytest.mark.parametrize("form", ["csr", "dask", "zarr", "path", "store", "sparse store"])
def test_every_form_of_the_rows_gives_the_same_model(form, tmp_path):
    import dask.array as da

    X, y = clouds(150)
    X = X.astype(np.float32)
    expected = CrammerSingerSVC(gamma=GAMMA, tol=1e-6).fit(X, y)
    order, labels = np.arange(len(X)), y
    if form == "csr":
        rows = sp.csr_matrix(X)
    elif form == "dask":
        rows = da.from_array(X, chunks=(40, 3))
    elif form == "zarr":
        rows = zarr.array(X, chunks=(40, 3))
    else:
        layout = "sparse" if form == "sparse store" else "dense"
        rows = bigsvm.write_store(tmp_path / "s.zarr", X, y, layout=layout)
        order, labels = rows.original_rows(), None
        if form == "path":
            rows = tmp_path / "s.zarr"
    fitted = CrammerSingerSVC(gamma=GAMMA, tol=1e-6).fit(rows, labels)
    np.testing.assert_allclose(dense(fitted, len(X)), dense(expected, len(X))[order], atol=1e-3)
    values, found = fitted.decision_function(rows), fitted.predict(rows)
    if form != "csr":
        assert values.chunks[1] == (4,)
        values, found = values.compute(), found.compute()
    np.testing.assert_allclose(values, expected.decision_function(X)[order], atol=1e-3)
    sure = sure_of(values)
    np.testing.assert_array_equal(found[sure], expected.predict(X)[order][sure])
    if isinstance(rows, Store):
        np.testing.assert_array_equal(fitted.predict(tmp_path / "s.zarr").compute(), found)


def test_a_kernel_matrix_is_as_good():
    X, y = clouds(150)
    K = rbf_kernel(X, gamma=GAMMA)
    ours = CrammerSingerSVC(gamma=GAMMA, tol=1e-6, fit_intercept=True).fit(X, y)
    fitted = CrammerSingerSVC(kernel="precomputed", tol=1e-6, fit_intercept=True).fit(K, y)
    np.testing.assert_allclose(dense(fitted, 150), dense(ours, 150), atol=1e-3)
    np.testing.assert_allclose(fitted.decision_function(K), ours.decision_function(X), atol=1e-3)


def test_gamma_is_found_with_the_weights_of_the_rows():
    X, y = clouds(150)
    weights = np.random.default_rng(0).choice([0.0, 1.0, 3.0], len(X))
    for gamma, expected in (
        ("scale", 1 / (3 * np.repeat(X, weights.astype(int), axis=0).var())),
        ("auto", 1 / 3),
    ):
        fitted = CrammerSingerSVC(gamma=gamma).fit(X, y, sample_weight=weights)
        assert fitted.model_.kernel.gamma == pytest.approx(expected)
    one, other = (CrammerSingerSVC(gamma="mean-distance"), bigsvm.L2SVC(gamma="mean-distance"))
    assert one.fit(X, y).model_.kernel == other.fit(X, y > 1).model_.kernel


def test_a_balanced_class_weight_is_a_weight_of_its_rows():
    X, y = clouds(150)
    balanced = CrammerSingerSVC(gamma=GAMMA, class_weight="balanced", tol=1e-6).fit(X, y)
    weights = len(y) / (4 * np.bincount(y))[y]
    weighted = CrammerSingerSVC(gamma=GAMMA, tol=1e-6).fit(X, y, sample_weight=weights)
    assert balanced.objective_ == pytest.approx(weighted.objective_)
    np.testing.assert_allclose(dense(balanced, 150), dense(weighted, 150), atol=1e-4)


def test_integer_weights_are_repetitions():
    X, y = clouds(150)
    weights = np.random.default_rng(0).integers(0, 4, len(X))
    options = {"C": 2.0, "gamma": GAMMA, "tol": 1e-7}
    weighted = CrammerSingerSVC(**options).fit(X, y, sample_weight=weights)
    repeated = CrammerSingerSVC(**options).fit(X.repeat(weights, axis=0), y.repeat(weights))
    np.testing.assert_allclose(
        weighted.decision_function(X), repeated.decision_function(X), atol=1e-5
    )


@pytest.fixture
def shuffled(monkeypatch):
    """Rows are trained in random order however few they are."""
    monkeypatch.setattr("bigsvm.fit.crammer_singer.DIRECT_ROWS", 10)
    monkeypatch.setattr("bigsvm.working_sets.choice.DIRECT_ROWS", 10)
    monkeypatch.setattr("bigsvm.working_sets.choice.FIRST_SCOPE", 60)


@pytest.mark.usefixtures("shuffled")
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_rows_in_random_order_keep_their_numbers(form):
    """Equal rows among them, of which some have other labels."""
    X, y = clouds(400)
    X[300:] = X[:100]
    weights = np.random.default_rng(0).choice([0.0, 1.0, 3.0], len(X))
    bounds, K = 2 * weights, rbf_kernel(X, gamma=GAMMA)
    fitted = CrammerSingerSVC(C=2, gamma=GAMMA, tol=1e-5).fit(form(X), y, sample_weight=weights)
    alpha = dense(fitted, len(X))
    assert (np.diff(fitted.support_) > 0).all()
    assert not alpha[weights == 0].any()
    found, primal = naive.multiclass_objectives(K, y, 4, bounds, alpha)
    assert fitted.objective_ == pytest.approx(found, rel=1e-6)
    assert primal - found <= 1e-5 * bounds.sum()
    before = fitted.n_iter_
    again = fitted.set_params(warm_start=True).fit(form(X), y, sample_weight=weights)
    assert again.n_iter_ < 0.1 * before
    np.testing.assert_allclose(dense(again, len(X)), alpha, atol=1e-3)


@pytest.mark.parametrize(
    "options",
    [
        {"working_set": "all"},
        {"working_set": "all", "disk_cache": "1MB", "memory": "2MB", "fit_intercept": True},
        {"subproblem": "fixed_point", "cooling": None},
        {"working_set": "all", "order": "active", "cooling": "log"},
        {"working_set": "all", "order": "worst", "memory": "3MB"},
        {"working_set": "all", "order": "random", "random_state": 5},
        {"memory": "3MB"},
        {"n_jobs": 1, "random_state": 5},
    ],
)
def test_options_of_training_do_not_change_the_model(options, tmp_path):
    X, y = clouds(300)
    shape = {"C": 2.0, "gamma": GAMMA, "tol": 1e-6, "fit_intercept": "fit_intercept" in options}
    expected = CrammerSingerSVC(**shape).fit(X, y)
    fitted = CrammerSingerSVC(**shape).set_params(cache_dir=tmp_path, **options).fit(X, y)
    assert fitted.objective_ == pytest.approx(expected.objective_, rel=1e-6)
    np.testing.assert_allclose(dense(fitted, 300), dense(expected, 300), atol=1e-3)


# -- going on ------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["C", "weights", "a label", "nothing"])
def test_a_warm_start_goes_on_from_the_last_model(change):
    X, y = clouds(600)
    fitted = CrammerSingerSVC(C=2.0, gamma=GAMMA, warm_start=True).fit(X, y)
    before, weights, C = fitted.n_iter_, np.ones(len(X)), 2.0
    if change == "C":
        C = 2.2
    elif change == "weights":
        weights[::3] = 0.7
        weights[1::3] = 0.0
    elif change == "a label":
        y = y.copy()
        y[fitted.support_[:3]] = (y[fitted.support_[:3]] + 1) % 4
    fitted.set_params(C=C).fit(X, y, sample_weight=weights)
    cold = CrammerSingerSVC(C=C, gamma=GAMMA).fit(X, y, sample_weight=weights)
    assert fitted.converged_
    assert fitted.n_iter_ < (0.01 * before if change == "nothing" else 0.9 * cold.n_iter_)
    assert fitted.objective_ == pytest.approx(cold.objective_, rel=1e-3)
    bounds = C * weights
    assert (fitted.dual_coef_.max(axis=0) <= bounds[fitted.support_]).all()


def test_a_warm_start_from_something_else_is_refused():
    X, y = clouds(150)
    fitted = CrammerSingerSVC(gamma=GAMMA, warm_start=True).fit(X, y)
    with pytest.raises(DataError, match="150 rows, not 100"):
        fitted.fit(X[:100], y[:100])
    with pytest.raises(DataError, match="other classes"):
        fitted.fit(X, y + 1)
    fitted.model_ = bigsvm.SVC(gamma=GAMMA).fit(X, y > 1).model_
    with pytest.raises(ParameterError, match="to start from is a c-svc"):
        fitted.fit(X, y)


def test_a_path_of_C_is_each_model_alone():
    X, y = clouds(150)
    models = bigsvm.C_path(CrammerSingerSVC(gamma=GAMMA), X, y, C=[4, 1])
    for model, C in zip(models, [4, 1], strict=True):
        alone = CrammerSingerSVC(C=C, gamma=GAMMA).fit(X, y)
        assert model.objective_ == pytest.approx(alone.objective_, rel=1e-3)


def test_a_checkpoint_is_gone_on_from_and_one_of_another_problem_refused(tmp_path):
    X, y = clouds(300)
    shape = {"C": 2.0, "gamma": GAMMA}
    whole = CrammerSingerSVC(**shape).fit(X, y)
    saved = {**shape, "checkpoint": tmp_path / "run"}
    with pytest.warns(ConvergenceWarning, match="the limit of steps was reached"):
        CrammerSingerSVC(max_iter=100, **saved).fit(X, y)
    for other, labels, named in (
        ({"fit_intercept": True}, y, "fit_intercept"),
        ({"C": 3.0}, y, "C"),
        ({}, y + 1, "classes"),
        ({}, np.where(y == 0, 1, y), "classes"),
        ({}, np.roll(y, 1), "labels and weights"),
        ({"class_weight": {0: 2.0}}, y, "class weights"),
    ):
        with pytest.raises(CheckpointError, match=named):
            CrammerSingerSVC(**{**saved, **other}).fit(X, labels)
    # How rows are solved for is not the problem's.
    resumed = CrammerSingerSVC(subproblem="fixed_point", **saved).fit(X, y)
    assert resumed.converged_
    assert resumed.n_iter_ > 100
    assert resumed.objective_ == pytest.approx(whole.objective_, rel=1e-4)


def test_run_is_resumed_in_its_order_of_rows_only(tmp_path):
    X, y = clouds(300)
    shape = {"C": 2.0, "gamma": GAMMA, "working_set": "all"}
    given = {"order": "random", "random_state": 4}
    whole = CrammerSingerSVC(**shape, **given).fit(X, y)
    saved = {**shape, "checkpoint": tmp_path / "run"}
    with pytest.warns(ConvergenceWarning, match="the limit of steps was reached"):
        CrammerSingerSVC(max_iter=1000, **saved, **given).fit(X, y)
    for other, recorded in (
        ({"order": "random", "random_state": 5}, "random, seed 5"),
        ({"order": "active"}, "active"),
        ({"order": "active", "cooling": "log"}, "active, cooled by log"),
        ({}, "None"),
    ):
        with pytest.raises(
            CheckpointError, match=rf"order \(checkpoint: random, seed 4, now: {recorded}\)"
        ):
            CrammerSingerSVC(**saved, **other).fit(X, y)
    resumed = CrammerSingerSVC(**saved, **given).fit(X, y)
    assert resumed.converged_
    assert resumed.n_iter_ > 1000
    assert resumed.objective_ == pytest.approx(whole.objective_, rel=1e-4)


def test_an_unfinished_model_says_so_and_is_feasible():
    X, y = clouds(300)
    with pytest.warns(ConvergenceWarning, match=r"did not converge.*\(largest violation "):
        fitted = CrammerSingerSVC(C=2.0, gamma=GAMMA, max_iter=50).fit(X, y)
    assert fitted.stop_reason_ == "max_iter"
    np.testing.assert_allclose(fitted.dual_coef_.sum(axis=0), 0, atol=1e-12)
    assert (np.abs(fitted.dual_coef_) <= 2.0).all()
    assert fitted.duality_gap_ > 0


# -- files, budgets, errors ----------------------------------------------------------------------


def test_a_saved_model_is_the_same(tmp_path):
    X, y = clouds(150)
    fitted = CrammerSingerSVC(gamma=GAMMA, fit_intercept=True).fit(
        X, np.array(list("badc"))[y], sample_weight=1.0 + (y == 2)
    )
    fitted.model_.save(tmp_path / "m")
    model = bigsvm.KernelExpansion.load(tmp_path / "m")
    np.testing.assert_array_equal(model.bounds, fitted.model_.bounds)
    np.testing.assert_array_equal(model.bounds, 1.0 + (y[fitted.support_] == 2))
    assert model.classes == list("abcd")
    np.testing.assert_array_equal(model.intercept, fitted.intercept_)
    np.testing.assert_array_equal(model.coefficients.toarray().T, fitted.dual_coef_)


@pytest.mark.parametrize("bounds", [-1.0, 0.0, np.nan])
def test_model_file_with_invalid_bounds_is_refused(bounds, tmp_path):
    from dataclasses import replace

    X, y = clouds(150)
    model = CrammerSingerSVC(gamma=GAMMA).fit(X, y).model_
    wrong = replace(model, bounds=np.full(len(model.support), bounds))
    wrong.save(tmp_path / "m")
    with pytest.raises(ModelError, match="is not a whole bigsvm model: bounds"):
        bigsvm.KernelExpansion.load(tmp_path / "m")
    with pytest.raises(ParameterError, match="one for each"):
        replace(model, bounds=np.ones(3))


def test_too_little_memory_is_refused_with_the_number_of_functions():
    X, y = clouds(3000, 20)
    with pytest.raises(MemoryBudgetError, match=r"and 20 functions .* give at least"):
        CrammerSingerSVC(memory="2MB").fit(X, y)


def test_the_plan_counts_what_a_sweep_adds_up_for_all_functions():
    source = as_row_source(np.zeros((5000, 3), np.float32))
    state = [
        make_plan(TrainingParameters(), source, resident_bytes=0, n_outputs=k).projected[
            "state of the rows"
        ]
        for k in (1, 6)
    ]
    # Alpha, outputs and two of a certificate; scores; and a sweep's sums, twice, of all six.
    assert state[1] - state[0] == 5000 * (5 * 32 + 5 + 6 * 16)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subproblem": "guess"}, "subproblem is 'guess'"),
        (
            {"order": "best"},
            "order is 'best'; it must be one of auto, worst, active, sequential, random",
        ),
        ({"order": 3}, "order is 3; it must be a word"),
        ({"order": "worst"}, "order='worst' is one of all rows together; leave it out, or"),
        ({"cooling": "log"}, "cooling='log' lowers the level of order='active'; leave it"),
        (
            {"cooling": "log", "order": "worst", "working_set": "all"},
            "cooling='log' lowers the level of order='active'; leave it out, or give order=",
        ),
        ({"cooling": "exp"}, "cooling is 'exp'; it must be one of log, none, or None"),
        ({"cooling": "ice"}, "cooling is 'ice'"),
        ({"cooling": 3}, "cooling is 3; it must be a word or None"),
        ({"subproblem": None}, "subproblem is None; it must be a word"),
        ({"fit_intercept": "yes"}, "fit_intercept is 'yes'; it must be True or False"),
        ({"C": 0}, "C is 0"),
        ({"class_weight": {9: 1.0}}, "names 9"),
        ({"class_weight": {1: -1.0}}, "class 1 has weight -1.0"),
    ],
)
def test_invalid_parameters_are_refused(options, message):
    X, y = clouds(150)
    with pytest.raises(ParameterError, match=message):
        CrammerSingerSVC(**options).fit(X, y)


def test_a_class_without_weight_is_refused_by_name():
    X, y = clouds(150)
    with pytest.raises(DataError, match="no row of class 3 has a positive weight"):
        CrammerSingerSVC(class_weight={3: 0}).fit(X, y)
    with pytest.raises(DataError, match="one class only"):
        CrammerSingerSVC().fit(X, np.zeros(len(X)))


def test_labels_beyond_int64_are_kept(tmp_path):
    names = np.array([3, 2**63 + 5, 2**64 - 1], np.uint64)
    X = np.repeat(np.eye(3), 4, axis=0)
    model = CrammerSingerSVC().fit(X, np.repeat(names, 4))
    assert model.classes_.dtype == np.uint64
    np.testing.assert_array_equal(model.predict(np.eye(3)), names)
    model.model_.save(tmp_path / "m")
    assert bigsvm.KernelExpansion.load(tmp_path / "m").classes == names.tolist()


def test_extreme_C_does_not_overflow():
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    X = rng.normal(size=(90, 3)) + y[:, None]
    hard = bigsvm.CrammerSingerSVC(C=1e300).fit(X, y)  # warnings are errors here
    assert hard.stop_reason_ == "converged"
    assert hard.score(X, y) == 1


@pytest.mark.slow
def test_large_C_on_few_columns_does_not_take_millions_of_steps(monkeypatch):
    """Rows that are alike: without climbs each step undoes a little of the one before."""
    rng = np.random.default_rng(0)
    X = rng.random((4000, 2)).astype(np.float32)
    y = np.digitize(X[:, 0] + 0.3 * np.sin(6 * X[:, 1]), [0.3, 0.6, 0.9])
    y = np.where(rng.random(4000) < 0.01, rng.integers(4, size=4000), y)
    given = {"C": 1000, "gamma": 2, "tol": 0.01}
    fitted = CrammerSingerSVC(**given).fit(X, y)
    assert fitted.gap_ <= 0.01
    monkeypatch.setattr("bigsvm.duals.row_steps.FIRST_CLIMB", 10**12)
    plain = CrammerSingerSVC(**given, max_iter=2 * fitted.n_iter_)
    with pytest.warns(ConvergenceWarning):
        plain.fit(X, y)
