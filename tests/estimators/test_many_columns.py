"""Training and prediction with as many columns as LIBSVM text can have, a few of which occur."""

import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

import bigsvm
from bigsvm import KernelExpansion
from bigsvm.data.in_memory import ArrayRows
from bigsvm.data.wrappers import narrowed
from bigsvm.errors import DataError, ModelError
from bigsvm.fit.gamma import weighted_variance
from bigsvm.interchange.libsvm_model import read_libsvm_model, write_libsvm_model
from bigsvm.interchange.onnx_model import to_onnx
from bigsvm.interchange.sklearn_estimator import to_scikit_learn

WIDE = 2**31 - 2
FEW = 30


def rows_and_labels(n_rows=200, n_classes=2, dtype=np.float32, seed=0):
    """CSR rows of very many columns, the same over those that occur, and labels."""
    rng = np.random.default_rng(seed)
    columns = np.concatenate([[0], np.sort(rng.choice(WIDE - 2, FEW - 2, False) + 1), [WIDE - 1]])
    values = rng.standard_normal((n_rows, FEW)) * (rng.random((n_rows, FEW)) < 0.4)
    y = np.argmax(values[:, :n_classes] + 0.3 * rng.standard_normal((n_rows, n_classes)), axis=1)
    narrow = sp.csr_array(values.astype(dtype))
    wide = sp.csr_array(
        (narrow.data, columns[narrow.indices].astype(np.int32), narrow.indptr),
        shape=(n_rows, WIDE),
    )
    return wide, narrow, y


ESTIMATORS = {
    "linear": bigsvm.SVC(kernel="linear"),
    "rbf": bigsvm.SVC(gamma=0.05),
    "poly": bigsvm.SVC(kernel="poly", gamma=0.1, degree=2, coef0=1),
    "laplacian": bigsvm.SVC(kernel="laplacian", gamma=0.1),
    "ball": bigsvm.L2SVC(gamma=0.05),
    "one-class": bigsvm.OneClassSVM(gamma=0.05, nu=0.2),
    "regression": bigsvm.SVR(gamma=0.05),
    "all rows": bigsvm.SVC(gamma=0.05, working_set="all"),
    "calibrated": bigsvm.SVC(gamma=0.05, calibration="sigmoid"),
}


@pytest.mark.fault("many-columns")
@pytest.mark.parametrize("name", ESTIMATORS)
def test_many_columns_are_trained_as_the_few_that_occur(name):
    wide, narrow, y = rows_and_labels()
    one, other = ESTIMATORS[name].fit(wide, y), bigsvm.SVC()
    values = one.predict(wide) if name == "regression" else one.decision_function(wide)
    assert one.n_features_in_ == one.model_.support_vectors.shape[1] == WIDE
    other = ESTIMATORS[name].fit(narrow, y)
    assert other.converged_
    expected = other.predict(narrow) if name == "regression" else other.decision_function(narrow)
    np.testing.assert_allclose(values, expected, atol=3e-3)


@pytest.mark.fault("many-columns")
@pytest.mark.parametrize("multiclass", ["ovo", "ovr", "crammer-singer"])
def test_many_columns_and_classes(multiclass):
    wide, narrow, y = rows_and_labels(n_classes=4)
    estimator = bigsvm.CrammerSingerSVC(gamma=0.05)
    if multiclass != "crammer-singer":
        estimator = bigsvm.SVC(gamma=0.05, multiclass=multiclass)
    found = estimator.fit(wide, y).decision_function(wide)
    expected = estimator.fit(narrow, y).decision_function(narrow)
    np.testing.assert_allclose(found, expected, atol=5e-3)


@pytest.mark.filterwarnings("ignore::bigsvm.AdviceWarning")  # of "auto", far too small
def test_gamma_counts_all_columns():
    wide, _, y = rows_and_labels(dtype=np.float64)
    values = wide.data
    mean = values.sum() / (wide.shape[0] * WIDE)
    variance = (values**2).sum() / (wide.shape[0] * WIDE) - mean**2
    for gamma, expected in (("auto", 1 / WIDE), ("scale", 1 / (WIDE * variance))):
        model = bigsvm.SVC(gamma=gamma).fit(wide, y)
        assert model.model_.kernel.gamma == pytest.approx(expected, rel=1e-6)
    weights = np.linspace(0.5, 2, len(y))
    source, _ = narrowed(ArrayRows(wide))
    found = weighted_variance(source, weights, block_bytes=1 << 20)
    total = weights.sum() * WIDE
    of_entry = np.repeat(weights, np.diff(wide.indptr))
    mean = (of_entry * values).sum() / total
    assert found == pytest.approx((of_entry * values**2).sum() / total - mean**2, rel=1e-6)


def test_far_columns_among_many():
    """Rows that share a large entry: float32 must not lose what they differ by."""
    wide, narrow, y = rows_and_labels()
    far = sp.lil_array(narrow.shape, dtype=np.float32)
    far[:, 7] = 20_000
    narrow = sp.csr_array(narrow + far.tocsr())
    rows, _, _ = rows_and_labels()
    columns = np.unique(rows.indices)
    wide = sp.csr_array(
        (narrow.data, columns[narrow.indices].astype(np.int32), narrow.indptr), shape=wide.shape
    )
    expected = bigsvm.SVC(gamma=0.05).fit(narrow, y).decision_function(narrow)
    model = bigsvm.SVC(gamma=0.05).fit(wide, y)
    np.testing.assert_allclose(model.decision_function(wide), expected, atol=3e-3)


def test_rows_with_columns_that_the_model_does_not_have():
    wide, _, y = rows_and_labels()
    others = sp.csr_array(
        (np.full(3, 1.5, np.float32), np.array([1, 99, WIDE - 2], np.int32), [0, 3]),
        shape=(1, WIDE),
    )
    assert not np.isin(others.indices, wide.indices).any()
    model = bigsvm.SVC(gamma=0.05).fit(wide, y).model_
    norms = np.asarray(model.support_vectors.multiply(model.support_vectors).sum(axis=1)).ravel()
    kernel = np.exp(-0.05 * (norms + 3 * 1.5**2))
    expected = kernel @ model.coefficients + model.intercept
    assert model.decision_function(ArrayRows(others))[0] == pytest.approx(expected, abs=1e-5)


@pytest.mark.fault("many-columns")
def test_models_of_many_columns_are_kept_and_exported(tmp_path):
    wide, _, y = rows_and_labels()
    model = bigsvm.SVC(gamma=0.05).fit(wide, y)
    expected = model.decision_function(wide)
    model.model_.save(tmp_path / "m")
    again = KernelExpansion.load(tmp_path / "m")
    np.testing.assert_array_equal(again.decision_function(ArrayRows(wide)), expected)
    write_libsvm_model(model.model_, tmp_path / "l")
    read = read_libsvm_model(tmp_path / "l")
    assert read.n_features == WIDE
    found = read.decision_function(ArrayRows(wide))
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-5)
    np.testing.assert_allclose(
        to_scikit_learn(again).decision_function(sp.csr_matrix(wide)), expected, atol=1e-5
    )
    other = sp.csr_array((wide.shape[0], WIDE - 1), dtype=np.float32)
    with pytest.raises(DataError, match=f"{WIDE - 1} columns"):
        again.decision_function(ArrayRows(other))


@pytest.mark.fault("many-columns")
def test_a_graph_of_many_columns_is_refused():
    pytest.importorskip("onnx")
    wide, _, y = rows_and_labels()
    with pytest.raises(ModelError, match=r"columns would take .* a graph has at most"):
        to_onnx(bigsvm.SVC(gamma=0.05).fit(wide, y))


@pytest.mark.fault("many-columns")
def test_a_scaled_store_of_many_columns_is_trained(tmp_path):
    wide, narrow, y = rows_and_labels()
    store = bigsvm.write_store(tmp_path / "x", wide, y)
    scaled = bigsvm.scale_store(store, tmp_path / "s", method="maxabs")
    model = bigsvm.SVC(gamma=0.5).fit(scaled)
    peak = np.abs(narrow.toarray()).max(axis=0)
    few = sp.csr_array((narrow.toarray() / peak).astype(np.float32))
    expected = bigsvm.SVC(gamma=0.5).fit(few, y).decision_function(few)
    np.testing.assert_allclose(model.decision_function(wide), expected, atol=3e-3)
    found = np.asarray(model.decision_function(tmp_path / "x"))
    np.testing.assert_allclose(found, expected[store.original_rows()], atol=3e-3)
    model.model_.save(tmp_path / "m")
    again = KernelExpansion.load(tmp_path / "m")
    assert again.scaler == scaled.scaler
    np.testing.assert_allclose(again.decision_function(ArrayRows(wide)), expected, atol=3e-3)
    write_libsvm_model(again, tmp_path / "l")
    assert len((tmp_path / "l.range").read_text().splitlines()) == FEW + 2


COMMANDS = """
import sys
from bigsvm.report.text import peak_rss_bytes
from pathlib import Path
from bigsvm.cli import main
folder = Path(sys.argv[1])
text, store, model = folder / "x", folder / "x.zarr", folder / "m"
def run(*words):
    sys.argv = ["bigsvm", *map(str, words)]
    try:
        code = main()
    except SystemExit as end:
        code = end.code
    assert not code, words
run("convert", text, store, "--memory", "200MB", "-q")
run("info", store)
run("scale", store, folder / "s", "--method", "maxabs", "--memory", "200MB", "-q")
for kernel in (["linear"], ["rbf", "--gamma", "0.1"]):
    run("train", store, model, "--kernel", *kernel, "--memory", "200MB", "-q")
    run("info", model)
    run("predict", text, model, "--memory", "200MB", "-q")
run("train", folder / "s", model, "--memory", "200MB", "--formulation", "crammer-singer", "-q")
run("inspect", model, folder / "s", "-q")
print(peak_rss_bytes())
"""


@pytest.mark.fault("many-columns")
@pytest.mark.slow
def test_commands_with_many_columns_take_little_memory(tmp_path):
    wide, _, y = rows_and_labels(100)
    with (tmp_path / "x").open("w") as file:
        for i, label in enumerate(y.tolist()):
            part = slice(wide.indptr[i], wide.indptr[i + 1])
            entries = zip(wide.indices[part].tolist(), wide.data[part].tolist(), strict=True)
            words = (f"{column + 1}:{value!r}" for column, value in entries)
            file.write(" ".join([str(2 * label - 1), *words]) + "\n")
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) < 1_000_000_000  # an array of all columns takes 2 GB
