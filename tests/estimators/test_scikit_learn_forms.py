"""Attributes have the forms that scikit-learn's have, and arguments are taken as there."""

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn.svm
from sklearn import config_context
from sklearn.datasets import make_blobs

import bigsvm
from bigsvm.errors import DataError, ParameterError
from bigsvm.interchange import to_scikit_learn


def blobs(k, n=90):
    return make_blobs(n, centers=k, n_features=4, cluster_std=3.0, random_state=0)


class TestCounts:
    @pytest.mark.parametrize("estimator", [bigsvm.SVC(), bigsvm.NuSVC(nu=0.2), bigsvm.L2SVC()])
    @pytest.mark.parametrize("k", [2, 3, 5])
    def test_a_classifier_has_the_steps_of_each_pair(self, estimator, k, tmp_path):
        X, y = blobs(k)
        fitted = estimator.fit(X, y)
        assert type(fitted.n_iter_) is np.ndarray
        assert fitted.n_iter_.dtype.kind == "i"
        assert fitted.n_iter_.shape == (k * (k - 1) // 2,)
        assert (fitted.n_iter_ > 0).all()
        assert fitted.n_iter_.sum() == fitted.certificate_["n_iter"]
        fitted.save(tmp_path / "model")
        np.testing.assert_array_equal(bigsvm.load(tmp_path / "model").n_iter_, fitted.n_iter_)

    def test_the_steps_of_a_pair_are_those_of_its_classes_alone(self, pairs_by_runs):
        X, y = blobs(3)
        gamma = bigsvm.SVC().fit(X, y).gamma_
        fitted = bigsvm.SVC(gamma=gamma).fit(X, y)
        alone = [
            bigsvm.SVC(gamma=gamma).fit(X[y != left], y[y != left]).n_iter_[0] for left in (2, 1, 0)
        ]
        np.testing.assert_allclose(fitted.n_iter_, alone, rtol=0.2)

    @pytest.mark.parametrize(
        "estimator", [bigsvm.SVR(), bigsvm.NuSVR(), bigsvm.OneClassSVM(nu=0.2)]
    )
    def test_others_have_a_number(self, estimator):
        X, y = blobs(2)
        assert type(estimator.fit(X, y.astype(float)).n_iter_) is int

    def test_one_against_the_rest_has_one_run(self):
        fitted = bigsvm.SVC(multiclass="ovr").fit(*blobs(4))
        np.testing.assert_array_equal(fitted.n_iter_, [fitted.certificate_["n_iter"]])

    def test_an_exported_estimator_has_them(self):
        fitted = bigsvm.SVC().fit(*blobs(4))
        np.testing.assert_array_equal(to_scikit_learn(fitted).n_iter_, fitted.n_iter_)


class TestCoefficients:
    @pytest.mark.parametrize("k", [2, 4])
    @pytest.mark.parametrize("kernel", ["linear", "rbf"])
    @pytest.mark.parametrize(
        "estimator",
        [
            bigsvm.SVC(), bigsvm.NuSVC(nu=0.2), bigsvm.SVC(multiclass="ovr"), bigsvm.SVR(),
            bigsvm.OneClassSVM(nu=0.2), bigsvm.CrammerSingerSVC(),
        ],
    )  # fmt: skip
    def test_those_of_sparse_rows_are_sparse(self, estimator, kernel, k):
        X, y = blobs(k)
        estimator.set_params(kernel=kernel)
        dense = {"dual_coef_": estimator.fit(X, y).dual_coef_}
        if kernel == "linear":
            dense["coef_"] = estimator.coef_
        estimator.fit(sp.csr_array(X), y)
        for name, expected in dense.items():
            assert isinstance(expected, np.ndarray)
            found = getattr(estimator, name)
            assert sp.issparse(found)
            assert found.format == "csr"
            assert found.shape == expected.shape
            np.testing.assert_allclose(found.toarray(), expected, rtol=1e-3, atol=1e-6)

    def test_those_of_a_kernel_matrix_are_dense(self):
        X, y = blobs(3)
        assert isinstance(bigsvm.SVC(kernel="precomputed").fit(X @ X.T, y).dual_coef_, np.ndarray)

    @pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
    @pytest.mark.parametrize(
        "estimator", [bigsvm.SVC(), bigsvm.SVR(), bigsvm.CrammerSingerSVC(), bigsvm.L2SVC()]
    )
    def test_nobody_writes_to_coef(self, estimator, form):
        X, y = blobs(3)
        fitted = estimator.set_params(kernel="linear").fit(form(X), y)
        values = fitted.coef_ if form is np.asarray else fitted.coef_.data
        with pytest.raises(ValueError, match="read-only"):
            values[...] = 99
        with pytest.raises(AttributeError):
            fitted.coef_ = np.zeros(4)


class TestBreakTies:
    @pytest.mark.parametrize("estimator", [bigsvm.SVC, bigsvm.NuSVC, bigsvm.L2SVC])
    @pytest.mark.parametrize("k", [2, 3])
    def test_only_predict_refuses_values_of_pairs(self, estimator, k):
        X, y = blobs(k)
        fitted = estimator(break_ties=True, decision_function_shape="ovo").fit(X, y)
        pairs = k * (k - 1) // 2
        assert fitted.decision_function(X).shape == ((len(X), pairs) if k > 2 else (len(X),))
        with pytest.raises(ParameterError, match="break_ties must be False when"):
            fitted.predict(X)
        with pytest.raises(ParameterError, match="break_ties must be False when"):
            fitted.score(X, y)
        fitted.set_params(decision_function_shape="ovr").predict(X)


class Standard:
    """An array that knows the array API and nothing of NumPy."""

    def __init__(self, values):
        self.values = np.asarray(values)

    def __array_namespace__(self, *, api_version=None):
        raise NotImplementedError

    def __dlpack__(self, **options):
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()

    def __len__(self):
        return len(self.values)


class OnAnotherDevice(Standard):
    def __array__(self, *arguments, **options):
        raise TypeError("implicit conversion is not allowed")


@pytest.mark.parametrize("dispatch", [False, True])
@pytest.mark.parametrize("container", ["array", "frame", "store"])
class TestArraysOfOtherLibraries:
    def rows(self, container, X, y, folder):
        if container == "frame":
            return pytest.importorskip("pandas").DataFrame(X, columns=list("abcd"))
        if container == "store":
            return bigsvm.write_store(folder / "x.zarr", X, y, shuffle=False)
        return X

    def test_labels_and_weights_are_taken(self, dispatch, container, tmp_path, monkeypatch):
        monkeypatch.setenv("SCIPY_ARRAY_API", "1")
        X, y = blobs(3)
        weights = np.linspace(0.5, 1, len(y))
        rows = self.rows(container, X, y, tmp_path)
        with config_context(array_api_dispatch=dispatch):
            fitted = bigsvm.SVC().fit(rows, Standard(y), Standard(weights))
            score = fitted.score(rows, Standard(y))
        expected = bigsvm.SVC().fit(rows, y, weights)
        np.testing.assert_array_equal(fitted.dual_coef_, expected.dual_coef_)
        assert score == expected.score(rows, y)

    def test_one_that_cannot_be_read_is_refused(self, dispatch, container, tmp_path, monkeypatch):
        monkeypatch.setenv("SCIPY_ARRAY_API", "1")
        X, y = blobs(3)
        rows = self.rows(container, X, y, tmp_path)
        with config_context(array_api_dispatch=dispatch):
            with pytest.raises(DataError, match="y is a OnAnotherDevice that NumPy cannot read"):
                bigsvm.SVC().fit(rows, OnAnotherDevice(y))
            with pytest.raises(DataError, match="sample_weight is a OnAnotherDevice"):
                bigsvm.SVC().fit(rows, y, OnAnotherDevice(y))


def test_scikit_learn_has_these_forms():
    """What the tests above ask for is what the reference has."""
    X, y = blobs(4)
    peer = sklearn.svm.SVC(kernel="linear", break_ties=True, decision_function_shape="ovo")
    peer.fit(sp.csr_array(X), y)
    assert sp.issparse(peer.dual_coef_)
    assert sp.issparse(peer.coef_)
    assert peer.n_iter_.shape == (6,)
    with pytest.raises(ValueError, match="break_ties must be False"):
        peer.predict(X)
