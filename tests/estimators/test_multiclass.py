"""Classifiers of more than two classes: scikit-learn's shapes, orders, values and conventions."""

import pickle
import tracemalloc
import weakref

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import svm as peers
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from support.problems import clouds
from support.stores import dense

import bigsvm
from bigsvm.data.sources import as_row_source
from bigsvm.data.store import Store
from bigsvm.errors import ParameterError
from bigsvm.executors import local
from bigsvm.fit import pair_training
from bigsvm.models import KernelExpansion

KINDS = {
    "svc": bigsvm.SVC(C=5.0),
    "squared": bigsvm.SVC(C=5.0, loss="squared_hinge"),
    "nu-svc": bigsvm.NuSVC(nu=0.2),
    "l2-svc": bigsvm.L2SVC(C=5.0),
}
FORMS = [np.asarray, sp.csr_matrix, sp.csr_array]


@pytest.fixture(params=KINDS)
def estimator(request):
    return clone(KINDS[request.param])


def both(kernel="rbf", form=np.asarray, *, k=4, **options):
    """An `SVC` of ours and scikit-learn's, rows they are fitted on, and others."""
    X, y = clouds(k=k)
    options = {"C": 5.0, "kernel": kernel, "gamma": 0.3, **options}
    ours = bigsvm.SVC(tol=1e-7, **options).fit(form(X), y)
    return ours, peers.SVC(tol=1e-8, **options).fit(form(X), y), X, clouds(k=k, seed=1)[0]


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
@pytest.mark.parametrize("form", FORMS)
def test_fitted_attributes_agree_with_scikit_learn(kernel, form):
    ours, peer, X, _ = both(kernel, form)
    np.testing.assert_array_equal(ours.support_, peer.support_)
    np.testing.assert_array_equal(ours.n_support_, peer.n_support_)
    np.testing.assert_array_equal(ours.classes_, peer.classes_)
    expected = peer.dual_coef_.toarray() if form is not np.asarray else peer.dual_coef_
    assert ours.dual_coef_.shape == expected.shape
    np.testing.assert_allclose(dense(ours.dual_coef_), expected, atol=1e-3)
    assert ours.intercept_.shape == peer.intercept_.shape == (6,)
    np.testing.assert_allclose(ours.intercept_, peer.intercept_, atol=1e-4)
    np.testing.assert_array_equal(form(X)[ours.support_].shape, ours.support_vectors_.shape)
    assert abs(ours.support_vectors_ - form(X)[ours.support_]).max() == 0
    if kernel == "linear":
        expected = peer.coef_.toarray() if form is not np.asarray else peer.coef_
        assert ours.coef_.shape == expected.shape == (6, 3)
        np.testing.assert_allclose(dense(ours.coef_), expected, atol=1e-4)
        values = ours.set_params(decision_function_shape="ovo").decision_function(form(X))
        np.testing.assert_allclose(X @ dense(ours.coef_).T + ours.intercept_, values, atol=1e-9)
    else:
        assert not hasattr(ours, "coef_")


@pytest.mark.parametrize("k", [3, 4, 7])
@pytest.mark.parametrize("form", FORMS[:2])
def test_decision_function_shapes_agree_with_scikit_learn(k, form):
    ours, peer, _, X = both(form=form, k=k)
    of_pairs = peer.set_params(decision_function_shape="ovo").decision_function(form(X))
    # Values nearer to 0 may have either sign, and so another label.
    sure = (np.abs(of_pairs) > 1e-3).all(axis=1)
    assert sure.mean() > 0.9
    for shape, width in (("ovr", k), ("ovo", k * (k - 1) // 2)):
        expected = peer.set_params(decision_function_shape=shape).decision_function(form(X))
        found = ours.set_params(decision_function_shape=shape).decision_function(form(X))
        assert found.shape == expected.shape == (len(X), width)
        np.testing.assert_allclose(found[sure], expected[sure], atol=1e-4)
        np.testing.assert_array_equal(ours.predict(form(X))[sure], peer.predict(form(X))[sure])


def test_ties_are_broken_as_scikit_learn_breaks_them():
    options = {"gamma": 0.5}
    plain, peer, X, _ = both(k=6, **options)
    rows = np.random.default_rng(2).uniform(X.min(), X.max(), (4000, 3))
    broken = bigsvm.SVC(tol=1e-7, break_ties=True, C=5.0, **options).fit(X, clouds(k=6)[1])
    labels, without = broken.predict(rows), plain.predict(rows)
    assert np.count_nonzero(labels != without) > 10
    np.testing.assert_array_equal(labels, broken.decision_function(rows).argmax(axis=1))
    values = peer.set_params(decision_function_shape="ovo").decision_function(rows)
    sure = (np.abs(values) > 1e-4).all(axis=1)
    peer.set_params(break_ties=True, decision_function_shape="ovr")
    two = np.sort(peer.decision_function(rows), axis=1)[:, -2:]
    sure &= two[:, 1] - two[:, 0] > 1e-4
    assert np.count_nonzero(sure & (labels != without)) > 10
    np.testing.assert_array_equal(labels[sure], peer.predict(rows)[sure])
    assert broken.model_.rule == "ovo-break-ties"
    # As of scikit-learn's, the parameter may be changed afterwards.
    np.testing.assert_array_equal(broken.set_params(break_ties=False).predict(rows), without)


def test_decision_graph_follows_its_definition():
    X, y = clouds(k=5)
    graph = bigsvm.SVC(C=5.0, gamma=0.3, multiclass="ddag", decision_function_shape="ovo")
    graph.fit(X, y)
    rows = clouds(k=5, seed=1, spread=0.3)[0]
    labels, values = graph.predict(rows), graph.decision_function(rows)
    pairs = {(a, b): n for n, (a, b) in enumerate(zip(*np.triu_indices(5, 1), strict=True))}
    for row, label in zip(values, labels, strict=True):
        left = [0, 1, 2, 3, 4]
        while len(left) > 1:
            left.remove(left[-1] if row[pairs[left[0], left[-1]]] >= 0 else left[0])
        assert left == [label]
    votes = bigsvm.SVC(C=5.0, gamma=0.3).fit(X, y)
    np.testing.assert_array_equal(graph.dual_coef_, votes.dual_coef_)
    assert (labels != votes.predict(rows)).any()


def test_every_classifier_has_three_classes(estimator):
    X, y = clouds(n=150, k=3)
    fitted = estimator.fit(X, np.array(["pear", "apple", "fig"])[y])
    assert fitted.converged_
    assert fitted.classes_.tolist() == ["apple", "fig", "pear"]
    assert fitted.score(X, np.array(["pear", "apple", "fig"])[y]) > 0.7
    assert fitted.predict(X).dtype == fitted.classes_.dtype
    assert (fitted.n_support_ > 0).all()
    assert fitted.n_support_.sum() == len(fitted.support_)
    assert fitted.certificate_["pairs"]["stop_reasons"] == {"converged": 3}


@pytest.mark.parametrize("labels", [
    ["no", "yes", "who knows"], [2**53 + 1, 2**53 + 2, -(2**60)], [5, -3, 0],
    [2.0, -1.0, 1e9], np.array([2**64 - 1, 2**64 - 2, 1], np.uint64),
])  # fmt: skip
def test_labels_of_any_kind(labels):
    X, y = clouds(n=150, k=3)
    named = np.array(labels)[y]
    model = bigsvm.SVC().fit(X, named)
    np.testing.assert_array_equal(model.classes_, np.unique(named))
    assert model.classes_.dtype.kind == named.dtype.kind
    assert (model.predict(X) == named).mean() > 0.7
    again = bigsvm.KernelExpansion(**vars(model.model_))
    assert again.classes == np.unique(named).tolist()


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), k=st.integers(3, 6), multiclass=st.sampled_from(["ovo", "ddag"]))
def test_other_names_in_the_same_order_change_no_bit(seed, k, multiclass):
    X, y = clouds(n=40 * k, k=k, seed=seed)
    names = np.sort(np.random.default_rng(seed).integers(-(2**62), 2**62, k))
    one, other = (
        bigsvm.SVC(C=5.0, multiclass=multiclass).fit(X, labels) for labels in (y, names[y])
    )
    assert one.decision_function(X).tobytes() == other.decision_function(X).tobytes()
    np.testing.assert_array_equal(names[one.predict(X)], other.predict(X))


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), k=st.integers(3, 6))
def test_classes_in_another_order_have_the_same_predictions(seed, k):
    """But for ties, which go to the first."""
    X, y = clouds(n=40 * k, k=k, seed=seed)
    order = np.random.default_rng(seed).permutation(k)
    one, other = (bigsvm.SVC(C=5.0, tol=1e-6).fit(X, labels) for labels in (y, order[y]))
    values = one.set_params(decision_function_shape="ovo").decision_function(X)
    votes = np.zeros((len(X), k))
    for column, a, b in zip(values.T, *np.triu_indices(k, 1), strict=True):
        votes[:, a] += column >= 0
        votes[:, b] += column < 0
    two = np.sort(votes, axis=1)[:, -2:]
    sure = (two[:, 1] > two[:, 0]) & (np.abs(values) > 1e-4).all(axis=1)
    assert sure.mean() > 0.5
    np.testing.assert_array_equal(order[one.predict(X)][sure], other.predict(X)[sure])


@pytest.fixture(scope="module")
def fitted():
    X, y = clouds(n=400, k=5)
    return bigsvm.SVC(C=5.0).fit(X, np.array(list("abcde"))[y]), X


class TestOutOfCore:
    @pytest.mark.parametrize("shape", ["ovr", "ovo"])
    @pytest.mark.parametrize("kind", ["dask", "zarr", "sparse dask"])
    def test_predictions_are_lazy(self, fitted, kind, shape):
        model, X = fitted
        given = {
            "dask": lambda: da.from_array(X, chunks=(90, 1)),
            "zarr": lambda: zarr.array(X, chunks=(64, 2)),
            "sparse dask": lambda: da.from_array(X, chunks=(90, 3)).map_blocks(sp.csr_array),
        }[kind]()
        lazy = model.predict(given)
        assert isinstance(lazy, da.Array)
        assert lazy.dtype == model.classes_.dtype
        np.testing.assert_array_equal(lazy.compute(), model.predict(X))
        model = clone(model).set_params(decision_function_shape=shape).fit(X, model.predict(X))
        values, expected = model.decision_function(given), model.decision_function(X)
        assert isinstance(values, da.Array)
        assert values.shape == expected.shape
        np.testing.assert_allclose(values.compute(), expected, atol=1e-12)

    def test_blocks_without_rows_have_no_predictions(self, fitted):
        model, X = fitted
        nothing = da.from_array(X, chunks=(100, 3))[da.zeros(len(X), dtype=bool, chunks=100)]
        assert model.predict(nothing).compute().shape == (0,)
        assert model.decision_function(nothing).compute().shape == (0, 5)

    def test_a_store_trains_and_predicts(self, tmp_path):
        X, y = clouds(n=400, k=5)
        store = bigsvm.write_store(tmp_path / "s.zarr", X, y, dtype="float64")
        model = bigsvm.SVC(C=5.0, tol=1e-6).fit(tmp_path / "s.zarr")
        rows = store.rows.read(0, len(y))
        assert model.classes_.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
        np.testing.assert_array_equal(model.support_vectors_, rows[model.support_])
        np.testing.assert_array_equal(model.predict(store).compute(), model.predict(rows))
        alone = bigsvm.SVC(C=5.0, tol=1e-6).fit(X, y)
        np.testing.assert_allclose(
            model.decision_function(store).compute(), alone.decision_function(rows), atol=1e-4
        )

    def test_rows_that_are_scaled_bring_their_scale(self, tmp_path):
        X, y = clouds(n=300, k=4)
        bigsvm.write_store(tmp_path / "s.zarr", X * [1, 100, 0.01], y, dtype="float64")
        scaled = bigsvm.scale_store(tmp_path / "s.zarr", tmp_path / "t.zarr", method="standard")
        model = bigsvm.SVC().fit(scaled)
        np.testing.assert_array_equal(
            model.predict(tmp_path / "s.zarr").compute(), model.predict(scaled).compute()
        )

    def test_values_of_all_pairs_do_not_exist_at_once(self, monkeypatch):
        monkeypatch.setattr(local, "VALUES_AT_ONCE", 1 << 15)
        X, y = clouds(n=300, k=40)
        model = bigsvm.SVC(gamma=0.5).fit(X, y)
        rows = np.repeat(X, 20, axis=0)
        model.predict(rows), model.decision_function(rows)
        tracemalloc.start()
        try:
            model.predict(rows), model.decision_function(rows)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 0.3 * 8 * len(rows) * model.model_.n_functions

    @pytest.mark.usefixtures("own_solver")
    def test_the_labels_of_a_store_are_let_go_before_the_run(self, tmp_path, monkeypatch):
        store = bigsvm.write_store(tmp_path / "clouds.zarr", *clouds())
        labels = weakref.ref(given := store.labels())
        monkeypatch.setattr(Store, "labels", lambda _, held=[given]: held.pop())
        del given
        left = []
        run = pair_training.PairTraining.run

        def watched(self):
            left.append(labels())
            return run(self)

        monkeypatch.setattr(pair_training.PairTraining, "run", watched)
        bigsvm.SVC().fit(store)
        assert left == [None]


class TestConventions:
    @pytest.mark.filterwarnings("ignore::bigsvm.AdviceWarning")  # of the worse value
    def test_a_search_over_a_pipeline(self, estimator):
        X, y = clouds(n=240, k=3, spread=2.0)
        pipeline = make_pipeline(StandardScaler(), estimator)
        name = type(estimator).__name__.lower()
        search = GridSearchCV(pipeline, {f"{name}__gamma": [100.0, 0.5]}, cv=3, error_score="raise")
        search.fit(X * [1, 100, 1], y)
        assert search.best_params_ == {f"{name}__gamma": 0.5}
        assert search.best_score_ > 0.6

    @pytest.mark.parametrize("form", FORMS)
    def test_pickled_and_cloned_estimators_predict_the_same(self, estimator, form):
        X, y = clouds(n=150, k=3)
        fitted = estimator.set_params(multiclass="ddag").fit(form(X), y)
        for again in (pickle.loads(pickle.dumps(fitted)), clone(fitted).fit(form(X), y)):
            for name in ("decision_function", "predict"):
                values, expected = (getattr(one, name)(form(X)) for one in (again, fitted))
                np.testing.assert_array_equal(values, expected)
        np.testing.assert_array_equal(dense(again.dual_coef_), dense(fitted.dual_coef_))

    def test_a_refit_of_two_classes_forgets_the_others(self, estimator):
        X, y = clouds(n=150, k=3)
        two = y < 2
        fitted = estimator.fit(X, y).fit(X[two], y[two])
        alone = clone(estimator).fit(X[two], y[two])
        assert fitted.decision_function(X).shape == (len(X),)
        for name in ("classes_", "support_", "n_support_", "dual_coef_", "intercept_"):
            np.testing.assert_array_equal(getattr(fitted, name), getattr(alone, name))

    def test_a_kernel_matrix_is_its_rows(self):
        X, y = clouds(n=120)
        matrix = X @ X.T
        ours = bigsvm.SVC(kernel="precomputed", tol=1e-6).fit(matrix, y)
        linear = bigsvm.SVC(kernel="linear", tol=1e-6).fit(X, y)
        np.testing.assert_array_equal(ours.support_, linear.support_)
        np.testing.assert_allclose(
            ours.decision_function(matrix), linear.decision_function(X), atol=1e-3
        )

    def test_a_saved_model_predicts_the_same(self, estimator, tmp_path):
        X, y = clouds(n=150, k=3)
        fitted = estimator.set_params(break_ties=True).fit(X, y)
        fitted.model_.save(tmp_path / "model")
        model = bigsvm.KernelExpansion.load(tmp_path / "model")
        source = bigsvm.data.sources.as_row_source(X)
        np.testing.assert_array_equal(model.decide(source), fitted.predict(X))
        np.testing.assert_array_equal(model.class_values(source), fitted.decision_function(X))
        assert model.certificate["pairs"] == fitted.certificate_["pairs"]

    @pytest.mark.parametrize(("parameters", "words"), [
        ({"multiclass": "all"}, "multiclass is 'all'; it must be one of ovo, ddag, ovr"),
        ({"multiclass": 1}, "multiclass is 1; it must be a word"),
        ({"decision_function_shape": "all"}, "decision_function_shape is 'all'; .* ovr, ovo"),
        ({"break_ties": "yes"}, "break_ties is 'yes'; it must be True or False"),
        ({"break_ties": True, "multiclass": "ddag"}, "'ddag', which has no votes"),
        ({"warm_start": True}, "warm_start is True, which is for two classes"),
    ])  # fmt: skip
    def test_parameters_without_an_effect_are_refused(self, estimator, parameters, words):
        with pytest.raises(ParameterError, match=words):
            estimator.set_params(**parameters).fit(*clouds(n=90, k=3))

    def test_a_shape_without_ties_is_refused_by_predict(self):
        fitted = bigsvm.SVC().fit(*clouds(n=90, k=3))
        fitted.set_params(break_ties=True, decision_function_shape="ovo")
        with pytest.raises(ParameterError, match="break_ties must be False when"):
            fitted.predict(clouds()[0])

    def test_warm_start_from_other_numbers_of_classes_is_refused(self):
        X, y = clouds(n=90, k=3)
        fitted = bigsvm.SVC().fit(X, y).set_params(warm_start=True)
        with pytest.raises(ParameterError, match="one of many classes"):
            fitted.fit(X, y == 1)
        with pytest.raises(ParameterError, match="warm_start is True, which is for two"):
            bigsvm.C_path(bigsvm.SVC(), X, y, C=[1.0, 2.0])

    def test_pair_without_a_margin_is_named_in_a_warning(self):
        rng = np.random.default_rng(0)
        X, y = rng.standard_normal((90, 2)), rng.integers(0, 3, 90)
        with pytest.warns(match=r"classes 'a' and '[bc]': nu is less than the share of errors"):
            bigsvm.NuSVC(nu=0.05, kernel="linear").fit(X, np.array(["a", "b", "c"])[y])


class TestOneAgainstTheRest:
    def test_one_vs_rest_agrees_with_scikit_learn(self):
        X, y = make_blobs(240, centers=4, n_features=3, cluster_std=2.5, random_state=0)
        y = np.array(["d", "b", "a", "c"])[y]
        model = bigsvm.SVC(C=2, gamma=0.1, tol=1e-5, multiclass="ovr").fit(X, y)
        peer = OneVsRestClassifier(peers.SVC(C=2, gamma=0.1, tol=1e-5)).fit(X, y)
        assert model.converged_
        assert model.model_.rule == "ovr"
        assert list(model.classes_) == ["a", "b", "c", "d"]
        values = peer.decision_function(X)
        np.testing.assert_allclose(model.decision_function(X), values, rtol=0, atol=1e-3)
        np.testing.assert_allclose(
            model.set_params(decision_function_shape="ovo").decision_function(X),
            values, rtol=0, atol=1e-3,
        )  # fmt: skip
        sure = np.diff(np.sort(values, axis=1)[:, -2:]).ravel() > 1e-2
        assert sure.mean() > 0.9
        np.testing.assert_array_equal(model.predict(X)[sure], peer.predict(X)[sure])
        assert model.dual_coef_.shape == (4, len(model.support_))
        np.testing.assert_allclose(
            model.intercept_, [one.intercept_[0] for one in peer.estimators_], atol=1e-3
        )
        np.testing.assert_array_equal(
            model.n_support_, [np.count_nonzero(y[model.support_] == label) for label in "abcd"]
        )
        found = np.sort(y[model.support_])
        np.testing.assert_array_equal(y[model.support_], found)

    def test_one_vs_rest_linear_kernel_has_coef(self):
        X, y = make_blobs(150, centers=3, n_features=4, cluster_std=3.0, random_state=1)
        model = bigsvm.SVC(kernel="linear", multiclass="ovr").fit(X, y)
        values = X @ model.coef_.T + model.intercept_
        assert model.coef_.shape == (3, 4)
        np.testing.assert_allclose(model.decision_function(X), values, rtol=0, atol=1e-4)

    def test_a_saved_model_predicts_the_same(self, tmp_path):
        X, y = make_blobs(150, centers=3, n_features=4, cluster_std=3.0, random_state=1)
        model = bigsvm.SVC(multiclass="ovr").fit(X, y)
        model.model_.save(tmp_path / "model")
        loaded = KernelExpansion.load(tmp_path / "model")
        assert loaded.rule == "ovr"
        np.testing.assert_array_equal(
            loaded.decision_function(as_row_source(X)), model.decision_function(X)
        )
