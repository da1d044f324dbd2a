"""kernel="precomputed": kernel values in memory, in stores and in Dask arrays; LIBSVM's text."""

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import svm as peers
from sklearn.base import clone
from sklearn.datasets import make_moons
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV

import bigsvm
import bigsvm.interchange
from bigsvm.data.kernel_matrix import SYMMETRY, NumberedRows
from bigsvm.data.sources import as_row_source
from bigsvm.errors import DataError, ModelError
from bigsvm.models import KernelExpansion

ESTIMATORS = {
    "SVC": {"C": 10.0},
    "NuSVC": {"nu": 0.3},
    "OneClassSVM": {"nu": 0.2},
    "SVR": {"epsilon": 0.2},
    "NuSVR": {"nu": 0.4},
}


@pytest.fixture(scope="module")
def matrices():
    """Kernel values of 900 rows with one another and of 60 others with them, and the labels."""
    X, y = make_moons(900, noise=0.25, random_state=0)
    others, labels = make_moons(60, noise=0.25, random_state=1)
    return rbf_kernel(X, gamma=1.0), y, rbf_kernel(others, X, gamma=1.0), labels


def values(estimator, matrix):
    function = getattr(estimator, "decision_function", estimator.predict)
    return function(matrix)


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_precomputed_kernel_agrees_with_scikit_learn(matrices, name, dtype):
    K, y, others, _ = matrices
    options = {"kernel": "precomputed", "tol": 1e-5, **ESTIMATORS[name]}
    ours = getattr(bigsvm, name)(**options).fit(K.astype(dtype), y)
    peer = getattr(peers, name)(**options).fit(K, y)
    assert ours.converged_
    scale = np.abs(values(peer, others)).max()
    np.testing.assert_allclose(
        values(ours, others.astype(dtype)), values(peer, others), atol=1e-3 * scale
    )


@pytest.mark.parametrize("kind", ["store", "streamed store", "unshuffled store", "dask", "zarr"])
def test_kernel_matrix_of_any_container(matrices, kind, tmp_path):
    """Columns are in the order of the input, in which a store's rows are not."""
    K, y, others, _ = matrices
    options = {"kernel": "precomputed", "C": 10.0, "tol": 1e-6}
    expected = bigsvm.SVC(**options).fit(K, y)
    labels = None
    if "store" in kind:
        bigsvm.write_store(tmp_path / "K", K, y, shuffle=kind != "unshuffled store")
        given = tmp_path / "K"
        if kind == "streamed store":
            options["memory"] = "35MB"
    elif kind == "dask":
        given, labels = da.from_array(K, chunks=(170, 300)), y
    else:
        zarr = pytest.importorskip("zarr")
        given, labels = zarr.array(K, chunks=(128, 900)), y
    ours = bigsvm.SVC(**options).fit(given, labels)
    assert ours.converged_
    assert ours.objective_ == pytest.approx(expected.objective_, rel=1e-6)
    np.testing.assert_allclose(
        ours.decision_function(others), expected.decision_function(others), atol=1e-4
    )
    lazily = ours.decision_function(da.from_array(others, chunks=(7, 900)))
    np.testing.assert_array_equal(lazily.compute(), ours.decision_function(others))


def test_the_model_keeps_numbers_only(matrices, tmp_path):
    K, y, others, _ = matrices
    fitted = bigsvm.SVC(kernel="precomputed", C=10.0).fit(K, y)
    assert fitted.n_features_in_ == 900
    assert fitted.support_vectors_.shape == (0, 0)  # as scikit-learn's
    fitted.model_.save(tmp_path / "model")
    assert (tmp_path / "model").stat().st_size < 20_000
    loaded = KernelExpansion.load(tmp_path / "model")
    np.testing.assert_array_equal(
        loaded.decision_function(as_row_source(others)), fitted.decision_function(others)
    )
    expected = others[:, fitted.support_] @ fitted.dual_coef_[0] + fitted.intercept_
    np.testing.assert_allclose(fitted.decision_function(others), expected, atol=1e-12)


def test_grids_slice_both_axes(matrices):
    K, y, _, _ = matrices
    ours, peer = (
        GridSearchCV(package.SVC(kernel="precomputed"), {"C": [0.1, 1, 10]}).fit(K, y)
        for package in (bigsvm, peers)
    )
    assert ours.best_params_ == peer.best_params_
    np.testing.assert_allclose(
        ours.cv_results_["mean_test_score"], peer.cv_results_["mean_test_score"], atol=0.01
    )
    assert clone(ours.best_estimator_).kernel == "precomputed"


def test_text_of_libsvm_and_its_models(matrices, tmp_path):
    """Rows ``label 0:number 1:K …``; some rows of a matrix may be trained on alone."""
    K, y, others, labels = matrices
    chosen = np.arange(0, 900, 3)

    def write(path, matrix, labels, numbers):
        with path.open("w") as file:
            for row, label, number in zip(matrix, labels, numbers, strict=True):
                entries = " ".join(f"{k + 1}:{value:.17g}" for k, value in enumerate(row))
                file.write(f"{label} 0:{number} {entries}\n")

    write(tmp_path / "train", K[chosen], y[chosen], chosen + 1)
    write(tmp_path / "test", others, labels, np.arange(60) + 1)
    store = bigsvm.convert(tmp_path / "train", tmp_path / "train.zarr", dtype="float64")
    assert store.rows.first_index == 0
    ours = bigsvm.SVC(kernel="precomputed", C=10.0, tol=1e-6).fit(store)
    peer = peers.SVC(kernel="precomputed", C=10.0, tol=1e-6).fit(
        K[np.ix_(chosen, chosen)], y[chosen]
    )
    test = bigsvm.convert(tmp_path / "test", tmp_path / "test.zarr", shuffle=False, dtype="float64")
    expected = peer.decision_function(others[:, chosen])
    np.testing.assert_allclose(ours.decision_function(test).compute(), expected, atol=1e-4)
    np.testing.assert_allclose(ours.decision_function(others), expected, atol=1e-4)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda K: K[:, :-1], "square"),
        (lambda K: K[:-1], "square"),
        (sp.csr_matrix, "dense"),
        (lambda K: K + np.triu(np.full_like(K, 2 * SYMMETRY)), "symmetric"),
        (lambda K: np.where(np.eye(900), 1e300, K), "scale"),
    ],
)
def test_invalid_kernel_matrix_is_refused(matrices, change, words):
    K, y, _, _ = matrices
    given = change(K)
    with pytest.raises(DataError, match=words):
        bigsvm.SVC(kernel="precomputed").fit(given, y[: given.shape[0]])


@pytest.mark.fault("samples")
@pytest.mark.parametrize("form", [np.asarray, lambda K: da.from_array(K, chunks=(100, -1))])
def test_a_matrix_that_is_symmetric_in_its_first_rows_only_is_refused(matrices, form):
    K, y, _, _ = matrices
    given = K.copy()
    given[300:, 300:] = np.roll(K[300:, 300:], 1, axis=0)
    with pytest.raises(DataError, match="symmetric"):
        bigsvm.SVC(kernel="precomputed").fit(form(given), y)


def test_other_columns_are_refused_at_prediction(matrices):
    K, y, others, _ = matrices
    fitted = bigsvm.SVC(kernel="precomputed").fit(K, y)
    with pytest.raises(ValueError, match="X has 899 features"):
        fitted.predict(others[:, :-1])
    with pytest.raises(DataError, match="kernel values of each row"):
        fitted.predict(da.from_array(others[:, :-1])).compute()


@pytest.mark.usefixtures("own_solver")
def test_rows_are_never_all_copied(matrices):
    """A matrix in memory that is large for the budget is read in blocks."""
    K, y, _, _ = matrices
    biggest = []

    class Watched(NumberedRows):
        def read(self, start, stop):
            biggest.append(stop - start)
            return super().read(start, stop)

        def take(self, indices):
            biggest.append(len(indices))
            return super().take(indices)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bigsvm.data.kernel_matrix.NumberedRows", Watched)
        fitted = bigsvm.SVC(kernel="precomputed", C=10.0, memory="15MB").fit(K, y)
    assert fitted.converged_
    assert max(biggest) < 600


@pytest.mark.parametrize("name", ESTIMATORS)
def test_precomputed_models_are_exported(matrices, name, tmp_path):
    """A shuffled store's rows are named by the numbers that they had in the matrix."""
    K, y, others, _ = matrices
    store = bigsvm.write_store(tmp_path / "K", K, y)
    ours = getattr(bigsvm, name)(kernel="precomputed", **ESTIMATORS[name]).fit(store)
    expected = np.asarray(values(ours, others))
    peer = bigsvm.interchange.to_scikit_learn(ours.model_)
    np.testing.assert_allclose(values(peer, others), expected, atol=1e-9)
    bigsvm.interchange.write_libsvm_model(ours.model_, tmp_path / "libsvm")
    assert " 0:" in (tmp_path / "libsvm").read_text()
    read = bigsvm.interchange.read_libsvm_model(tmp_path / "libsvm", n_features=900)
    np.testing.assert_allclose(
        read.decision_function(as_row_source(others)),
        ours.model_.decision_function(as_row_source(others)),
        atol=1e-12,
    )


def test_numbers_of_a_libsvm_model_are_checked(matrices, tmp_path):
    K, y, _, _ = matrices
    fitted = bigsvm.SVC(kernel="precomputed").fit(K, y)
    bigsvm.interchange.write_libsvm_model(fitted.model_, tmp_path / "model")
    text = (tmp_path / "model").read_text()
    (tmp_path / "wrong").write_text(text.replace(" 0:", " 3:", 1))
    with pytest.raises(ModelError, match="not a number"):
        bigsvm.interchange.read_libsvm_model(tmp_path / "wrong")
    with pytest.raises(ModelError, match="n_features is 3"):
        bigsvm.interchange.read_libsvm_model(tmp_path / "model", n_features=3)
