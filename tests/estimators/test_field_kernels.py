"""Kernels of fields, fitted: scikit-learn's optimum, files, stores, workers, refusals."""

import naive
import numpy as np
import pytest
import scipy.sparse as sp
from command_line import answer, error_of, libsvm_text, run_here
from sklearn import svm as peers
from sklearn.base import clone
from sklearn.datasets import load_digits
from support.cluster_fits import assert_same_fit, fit
from support.problems import blobs
from support.same import assert_same_bits, assert_same_model

import bigsvm
from bigsvm.conversion.from_arrays import write_store
from bigsvm.errors import CheckpointError, DataError, ModelError, ParameterError
from bigsvm.interchange import to_onnx, to_scikit_learn
from bigsvm.interchange.libsvm_model import write_libsvm_model
from bigsvm.kernels import RBFByColumn, kernel_from

GAMMAS = np.linspace(0.0, 0.01, 64)
KERNELS = {
    "cosine": {"kernel": "cosine"},
    "matern32": {"kernel": "matern32", "gamma": 0.002},
    "matern52": {"kernel": "matern52", "gamma": 0.002},
    "intersection": {"kernel": "intersection", "C": 0.01},
    "tanimoto": {"kernel": "tanimoto"},
    "chi2": {"kernel": "chi2", "gamma": 0.01},
    "rbf by column": {"kernel": "rbf", "gamma": GAMMAS},
}
NONNEGATIVE = ["intersection", "tanimoto", "chi2"]
FORMS = [np.asarray, sp.csr_matrix]


@pytest.fixture(scope="module")
def digits():
    """Pictures of 64 counts of ink, (90, 64), and whether the digit is even."""
    X, y = load_digits(return_X_y=True)
    return X[:90], y[:90] % 2


def matrix_of(A, B, *, kernel, gamma=1.0, C=1.0):
    if np.ndim(gamma):
        A, B = A * np.sqrt(gamma), B * np.sqrt(gamma)
        gamma = 1.0
    return naive.kernel_matrix(A, B, kernel, gamma=gamma)


@pytest.fixture(scope="module")
def matrices(digits):
    """Kernel matrices by loops, made once."""
    return {name: matrix_of(digits[0], digits[0], **how) for name, how in KERNELS.items()}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", KERNELS)
def test_the_optimum_is_scikit_learns_on_the_matrix(name, form, digits, matrices, tmp_path):
    X, y = digits
    K, C = matrices[name], KERNELS[name].get("C", 1.0)
    ours = bigsvm.SVC(tol=1e-5, **KERNELS[name]).fit(form(X), y)
    peer = peers.SVC(kernel="precomputed", C=C, tol=1e-5).fit(K, y)
    sign, beta = np.where(y == 1, 1.0, -1.0), np.zeros(len(y))
    beta[peer.support_] = peer.dual_coef_[0]
    expected = naive.objective(K, sign, beta)
    assert ours.converged_
    assert ours.objective_ == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(
        ours.decision_function(form(X)), peer.decision_function(K), atol=1e-3
    )
    # The certificate, by the definition.
    alpha = np.zeros(len(y))
    alpha[ours.support_] = ours.model_.coefficients
    lower, upper = np.minimum(C * sign, 0), np.maximum(C * sign, 0)
    assert naive.kkt_gap(K, sign, lower, upper, alpha) <= 1.5e-5
    # The file.
    ours.save(tmp_path / "m.safetensors")
    loaded = bigsvm.load(tmp_path / "m.safetensors")
    assert loaded.get_params()["kernel"] == ours.kernel
    assert_same_bits(loaded.decision_function(form(X)), ours.decision_function(form(X)))
    assert kernel_from(ours.model_.kernel.describe()) == ours.model_.kernel


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", KERNELS)
def test_many_classes_targets_and_float32(name, form, digits, matrices):
    X = digits[0].astype(np.float32)
    y = load_digits().target[:90]
    assert bigsvm.SVC(**KERNELS[name]).fit(form(X), y).score(form(X), y) > 0.9
    ours = bigsvm.SVR(tol=1e-4, **KERNELS[name]).fit(form(X), digits[1])
    peer = peers.SVR(kernel="precomputed", tol=1e-4, C=KERNELS[name].get("C", 1.0))
    K = matrices[name]
    np.testing.assert_allclose(ours.predict(form(X)), peer.fit(K, digits[1]).predict(K), atol=2e-3)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", KERNELS)
def test_stores_and_checkpoints_have_the_bits_of_arrays(name, sparse, digits, tmp_path):
    X, y = digits
    X = sp.csr_matrix(X) if sparse else X
    machine = bigsvm.SVC(random_state=0, n_jobs=1, **KERNELS[name])
    fitted = clone(machine).fit(X, y)
    layout = "sparse" if sparse else "dense"
    store = write_store(tmp_path / "rows.zarr", X, y, shuffle=False, layout=layout)
    for one in (
        clone(machine).fit(store),
        clone(machine).set_params(checkpoint=str(tmp_path / "run")).fit(store),
    ):
        for part in ("support", "coefficients", "intercept"):
            assert_same_bits(getattr(one.model_, part), getattr(fitted.model_, part))
        assert_same_bits(one.model_.decision_function(store), fitted.model_.decision_function(X))


@pytest.mark.usefixtures("many_tasks")
@pytest.mark.parametrize(("name", "sparse"), [
    ("tanimoto", True),
    *(pytest.param(name, sparse, marks=pytest.mark.slow)  # others compute in the same way
      for name, sparse in (("chi2", False), ("rbf by column", True), ("cosine", True),
                           ("matern32", False), ("intersection", False))),
])  # fmt: skip
def test_workers_have_the_bits_of_this_process(name, sparse, client, tmp_path):
    X, y = blobs(4000, d=10, overlap=0.5)
    X = np.where(X > 0.2, X, 0)
    options = {"C": 1.0, **KERNELS[name], "memory": 2 * 10**6}
    if name == "rbf by column":
        options["gamma"] = tuple(np.linspace(0.0, 0.2, 10))
    rows = write_store(tmp_path / "rows.zarr", sp.csr_array(X) if sparse else X, y).rows
    labels = bigsvm.open_store(tmp_path / "rows.zarr").labels()
    here, there = (fit(rows, labels, options, client=each) for each in (None, client))
    assert_same_fit(there, here)
    assert here.certificate["converged"]
    assert_same_bits(there.decision_function(rows, client=client), here.decision_function(rows))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NONNEGATIVE)
def test_a_negative_value_is_refused_by_row_and_column_before_training(
    name, form, digits, tmp_path
):
    X, y = digits[0].copy(), digits[1]
    X[7, 5] = -0.25
    words = (
        rf"^X has -0.25 in row 7, column 5 \(from 0\), and the kernel {name} is for rows without "
        "negative values; take another kernel, or other features$"
    )
    with pytest.raises(DataError, match=words):
        bigsvm.SVC(kernel=name).fit(form(X), y)
    store = write_store(tmp_path / "rows.zarr", form(X), y)
    with pytest.raises(DataError, match=words):
        bigsvm.SVC(kernel=name).fit(store)
    fitted = bigsvm.SVC(kernel=name).fit(form(digits[0]), y)
    with pytest.raises(DataError, match=f"value -0.25, and the kernel {name} is for rows without"):
        fitted.predict(form(X))


@pytest.mark.parametrize("name", KERNELS)
def test_forms_of_others_have_the_kernel_or_refuse_it(name, digits, tmp_path):
    X, y = digits
    fitted = bigsvm.SVC(**KERNELS[name]).fit(X, y)
    own = fitted.model_.kernel.name
    with pytest.raises(ModelError, match=f"LIBSVM has no c-svc with the kernel {own}"):
        write_libsvm_model(fitted.model_, tmp_path / "m.txt")
    with pytest.raises(ModelError, match=f"scikit-learn has no c-svc with the kernel {own}"):
        to_scikit_learn(fitted)
    reference = pytest.importorskip("onnx.reference")
    if own in NONNEGATIVE:
        with pytest.raises(ModelError, match=f"the kernel {own} cannot be written as ONNX"):
            to_onnx(fitted)
        return
    values = reference.ReferenceEvaluator(to_onnx(fitted)).run(["values"], {"X": np.r_[X, 0 * X]})
    np.testing.assert_allclose(
        values[0], fitted.decision_function(np.r_[X, 0 * X]), rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("name", ["tanimoto", "chi2", "cosine", "matern32"])
def test_on_the_command_line(name, digits, tmp_path):
    X, y = digits
    X = X.copy()
    (tmp_path / "rows.libsvm").write_text(libsvm_text(X, y))
    run_here("convert", tmp_path / "rows.libsvm", tmp_path / "rows.zarr")
    model = tmp_path / "m.safetensors"
    gamma = {"gamma": 0.01} if "gamma" in KERNELS[name] else {}
    options = [f"--{option}={value}" for option, value in gamma.items()]
    answer("train", tmp_path / "rows.zarr", model, "--kernel", name, *options)
    own = bigsvm.SVC(kernel=name, **gamma).fit(bigsvm.open_store(tmp_path / "rows.zarr"))
    assert_same_model(bigsvm.KernelExpansion.load(model), own.model_)
    X[3, 2] = -1
    (tmp_path / "wrong.libsvm").write_text(libsvm_text(X, y))
    run_here("convert", tmp_path / "wrong.libsvm", tmp_path / "wrong.zarr")
    if name in NONNEGATIVE:
        said = error_of("train", tmp_path / "wrong.zarr", model, "--kernel", name)
        assert "X has -1 in row 3, column 2" in said


# -- a gamma for each column -------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_a_gamma_for_each_column_is_rbf_of_scaled_columns(form, digits):
    X, y = digits
    ours = bigsvm.SVC(gamma=GAMMAS).fit(form(X), y)
    plain = bigsvm.SVC(gamma=1.0).fit(form(X * np.sqrt(GAMMAS)), y)
    np.testing.assert_array_equal(ours.support_, plain.support_)
    np.testing.assert_allclose(ours.model_.coefficients, plain.model_.coefficients, atol=1e-3)
    np.testing.assert_array_equal(ours.gamma_, GAMMAS)
    assert ours.get_params()["gamma"] is GAMMAS
    same = bigsvm.SVC(kernel=RBFByColumn(gamma=tuple(GAMMAS))).fit(form(X), y)
    assert_same_bits(same.decision_function(X), ours.decision_function(X))
    assert ours.model_.provenance["parameters"]["gamma"] == tuple(GAMMAS)
    # Rows of the other form.
    other = next(each for each in FORMS if each is not form)
    np.testing.assert_allclose(
        ours.decision_function(other(X)), ours.decision_function(form(X)), atol=1e-5
    )


def test_gammas_are_part_of_what_a_checkpoint_agrees_with(digits, tmp_path):
    X, y = digits
    bigsvm.SVC(gamma=GAMMAS, checkpoint=str(tmp_path)).fit(X, y)
    with pytest.raises(CheckpointError, match="kernel"):
        bigsvm.SVC(gamma=GAMMAS[::-1], checkpoint=str(tmp_path)).fit(X, y)


@pytest.mark.parametrize(("options", "words"), [
    ({"gamma": np.ones(63)}, "gamma has 63 numbers, and X has 64 columns; give one for each"),
    ({"gamma": np.ones((8, 8))}, r"gamma is an array of shape \(8, 8\)"),
    ({"gamma": []}, r"gamma is an array of shape \(0,\)"),
    ({"gamma": ["a"] * 64}, "gamma is an array of shape"),
    ({"gamma": [1.0] * 63 + [-1]}, r"gamma of column 63 \(from 0\) is -1.0; it must be 0, or"),
    ({"gamma": [1.0] * 63 + [np.nan]}, r"gamma of column 63 \(from 0\) is nan"),
    ({"gamma": np.ones(64), "kernel": "chi2"}, "64 numbers.*only the kernel rbf takes; give chi2"),
])  # fmt: skip
def test_gammas_without_meaning_are_refused(options, words, digits):
    with pytest.raises(ParameterError, match=words):
        bigsvm.SVC(**options).fit(*digits)
