"""Models with several functions over shared support vectors: values, classes, files."""

import json
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import safetensors.numpy
import scipy.sparse as sp
from fitted_models import blobs, fitted_on, of_scikit_learn
from sklearn.svm import SVC

from bigsvm.calibration import Calibration
from bigsvm.data.sources import as_row_source
from bigsvm.errors import ModelError, ParameterError
from bigsvm.executors import local
from bigsvm.kernels import make_kernel
from bigsvm.models import KernelExpansion
from bigsvm.votes import pair_functions


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [3, 6])
def test_values_and_labels_are_scikit_learns(k, sparse, dtype):
    fitted, model, rows = fitted_on(k, sparse=sparse)
    given = rows.astype(dtype)
    values = model.decision_function(as_row_source(given), threads=2)
    assert model.n_functions == k * (k - 1) // 2
    tolerance = 1e-12 if dtype == np.float64 else 1e-4
    np.testing.assert_allclose(values, -fitted.decision_function(rows), atol=tolerance)
    codes = model.decide(as_row_source(given), threads=2)
    assert codes.dtype == np.int64
    # A value of float32 close to 0 may have either sign.
    certain = (np.abs(fitted.decision_function(rows)) > tolerance).all(axis=1)
    assert certain.mean() > 0.9
    np.testing.assert_array_equal(codes[certain], fitted.predict(rows)[certain])
    ties = SVC(C=2, break_ties=True).fit(*blobs(k))
    found = model.decide(as_row_source(given), rule="ovo-break-ties")
    np.testing.assert_array_equal(found[certain], ties.predict(blobs(k, seed=1)[0])[certain])


def test_the_graph_of_pairs_gives_the_class_that_beats_all_others():
    _, model, rows = fitted_on(5)
    source = as_row_source(rows)
    codes = model.decide(source, rule="ddag")
    np.testing.assert_array_equal(replace(model, rule="ddag").decide(source), codes)
    values = np.zeros((len(rows), 5, 5))
    first, second = np.triu_indices(5, 1)
    values[:, first, second] = model.decision_function(source)
    values[:, second, first] = -values[:, first, second]
    others = values[np.arange(len(rows)), codes] <= 0
    beats_all = (values <= 0).all(axis=2).any(axis=1)
    assert 0 < beats_all.sum()
    assert others[beats_all].all()


@pytest.mark.parametrize("rule", ["ovr", "crammer-singer"])
def test_ovr_takes_the_class_of_the_largest_value(rule):
    rng = np.random.default_rng(0)
    vectors, rows = rng.standard_normal((30, 4)), rng.standard_normal((50, 4))
    coefficients = sp.random_array((30, 3), density=0.5, rng=rng, format="csr")
    model = KernelExpansion(
        kernel=make_kernel("rbf", gamma=0.3),
        support_vectors=vectors,
        coefficients=coefficients,
        intercept=np.array([0.1, -0.2, 0.3]),
        centre=vectors.mean(axis=0),
        support=np.arange(30),
        classes=["b", "a", "c"],
        formulation=rule,
        rule=rule,
    )
    K = np.exp(-0.3 * ((rows[:, None] - vectors) ** 2).sum(axis=2))
    expected = K @ coefficients.toarray() + model.intercept
    source = as_row_source(rows)
    np.testing.assert_allclose(model.decision_function(source), expected, atol=1e-12)
    np.testing.assert_array_equal(model.decide(source), expected.argmax(axis=1))


def test_classes_are_predicted_without_holding_all_values():
    k, n = 120, 3000
    n_functions = k * (k - 1) // 2
    rng = np.random.default_rng(0)
    columns = rng.integers(n_functions, size=(50, 4)).ravel()
    coefficients = sp.csr_array(
        (rng.standard_normal(200), columns, np.arange(0, 201, 4)), shape=(50, n_functions)
    )
    model = KernelExpansion(
        kernel=make_kernel("rbf", gamma=0.3),
        support_vectors=rng.standard_normal((50, 3)).astype(np.float32),
        coefficients=coefficients,
        intercept=rng.standard_normal(n_functions),
        centre=None,
        support=np.arange(50),
        classes=list(range(k)),
        rule="ovo",
    )
    rows = as_row_source(rng.standard_normal((n, 3)).astype(np.float32))
    expected = model.decide(rows)
    bound, all_values = 8 * 2**17, 8 * n * n_functions
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "VALUES_AT_ONCE", 2**17)
        tracemalloc.start()
        try:
            found = model.decide(rows)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 16 * bound < all_values / 10
    np.testing.assert_array_equal(found, expected)


def test_a_thousand_classes_have_half_a_million_functions():
    k = 1000
    counts = np.full(k, 1)
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((k, 20))
    # In LIBSVM's signs: each class has one support vector, which pulls to it in all its pairs.
    signs = np.where(np.arange(k - 1)[:, None] >= np.arange(k)[None, :], 1.0, -1.0)
    model = KernelExpansion(
        kernel=make_kernel("rbf", gamma=0.1),
        support_vectors=centres.astype(np.float32),
        coefficients=pair_functions(signs, counts),
        intercept=np.zeros(k * (k - 1) // 2),
        centre=None,
        support=np.arange(k),
        classes=list(range(k)),
        rule="ovo",
    )
    chosen = rng.integers(k, size=40)
    rows = (centres[chosen] + 0.01 * rng.standard_normal((40, 20))).astype(np.float32)
    for rule in ("ovo", "ddag"):
        np.testing.assert_array_equal(model.decide(as_row_source(rows), rule=rule), chosen)


def test_decision_values_can_be_kept_while_classes_are_predicted(monkeypatch):
    _, model, rows = fitted_on(4)
    source = as_row_source(rows)
    expected = model.decision_function(source)
    monkeypatch.setattr(local, "VALUES_AT_ONCE", 6 * 50)
    kept, places = np.empty_like(expected), []

    def keep(part, values):
        places.append((part.start, part.stop))
        kept[part] = values

    np.testing.assert_array_equal(model.decide(source, keep=keep), model.decide(source))
    np.testing.assert_array_equal(kept, expected)
    assert places == [(0, 50), (50, 100), (100, 150), (150, 200), (200, 240)]


def test_two_classes_are_predicted_by_the_sign():
    _, model, rows = fitted_on(3)
    pair = replace(
        model,
        coefficients=model.coefficients.toarray()[:, 0].copy(),
        intercept=float(model.intercept[0]),
        classes=[0, 1],
        rule=None,
    )
    source = as_row_source(rows)
    values = pair.decision_function(source)
    np.testing.assert_allclose(values, model.decision_function(source)[:, 0], atol=1e-12)
    np.testing.assert_array_equal(pair.decide(source), values > 0)
    with pytest.raises(ParameterError, match="functions are those of None"):
        pair.decide(source, rule="ovo")
    with pytest.raises(ParameterError, match="functions are those of ovo"):
        model.decide(source, rule="ovr")
    with pytest.raises(ParameterError, match="it must be one of ovo"):
        model.decide(source, rule="majority")


@pytest.mark.parametrize(
    "change",
    [
        {"classes": [0, 1, 2, 3, 4]},
        {"classes": None},
        {"rule": "majority"},
        {"rule": None},
        {"rule": "ovr"},
        {"intercept": np.zeros(5)},
        {"support": np.arange(3)},
        {"calibration": Calibration(method="sigmoid", numbers=np.ones((2, 5)))},
    ],
    ids=str,
)
def test_contradictory_model_is_refused(change):
    _, model, _ = fitted_on(4)
    with pytest.raises(ParameterError, match=r"rule|calibration of 5 functions"):
        replace(model, **change)


LABELS = {
    "strings": ["b", "a", "ß c"],
    "large": [2**53, 2**53 + 1, -(2**62)],
    "numbers": [0.5, -1.0, 2.0],
}


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("labels", LABELS)
def test_a_saved_model_comes_back_equal(labels, sparse, tmp_path):
    fitted, _, rows = fitted_on(3, sparse=sparse)
    model = of_scikit_learn(fitted, rule="ddag", classes=LABELS[labels])
    model.save(tmp_path / "m")
    back = KernelExpansion.load(tmp_path / "m")
    for name in ("kernel", "classes", "formulation", "rule", "certificate", "provenance"):
        assert getattr(back, name) == getattr(model, name)
    source = as_row_source(rows)
    np.testing.assert_array_equal(back.decision_function(source), model.decision_function(source))
    np.testing.assert_array_equal(back.decide(source), model.decide(source))
    with safetensors.safe_open(str(tmp_path / "m"), "numpy") as file:
        assert json.loads(file.metadata()["bigsvm"])["format_version"] == 2


def change_tensors(monkeypatch, changes):
    """Let what is saved be a file whose hash is right, but whose content an enemy has chosen."""
    real = safetensors.numpy.save_file
    monkeypatch.setattr("bigsvm.models.files.digest_of_tensors", lambda text, tensors: "0")

    def save(tensors, path, metadata):
        changed = {name: change(tensors.get(name)) for name, change in changes.items()}
        return real({**tensors, **changed}, path, metadata)

    monkeypatch.setattr(safetensors.numpy, "save_file", save)


@pytest.mark.parametrize(
    ("tensor", "change"),
    [
        ("coefficients.indices", lambda t: t + 100),
        ("coefficients.indices", lambda t: t - 1),
        ("coefficients.indices", lambda t: t.astype(np.float64)),
        ("coefficients.indptr", lambda t: t[:-1]),
        ("coefficients.indptr", lambda t: t[::-1].copy()),
        ("coefficients.indptr", lambda t: t * 2),
        ("coefficients.data", lambda t: t * np.nan),
        ("coefficients.data", lambda t: t[:-1]),
        ("coefficients", lambda t: np.zeros((1, 1))),
        ("intercepts", lambda t: t[:-1]),
        ("intercepts", lambda t: t * np.inf),
        ("intercepts", lambda t: t.astype(np.float32)),
        ("intercepts", lambda t: t[:, None]),
        ("support", lambda t: t[:-1]),
    ],
)
def test_tensors_that_contradict_each_other_are_refused(tensor, change, tmp_path, monkeypatch):
    change_tensors(monkeypatch, {tensor: change})
    fitted_on(3)[1].save(tmp_path / "m")
    with pytest.raises(ModelError, match="/m is not a whole bigsvm model"):
        KernelExpansion.load(tmp_path / "m")


@pytest.mark.parametrize(
    "change",
    [
        {"rule": "majority"},
        {"rule": None},
        {"rule": "ovr", "classes": [1, 2]},
        {"classes": [1, 2]},
        {"classes": None},
        {"format_version": 1},
    ],
    ids=str,
)
def test_a_header_that_contradicts_the_tensors_is_refused(change, tmp_path, monkeypatch):
    plain = json.dumps
    with monkeypatch.context() as patch:
        patch.setattr(
            "bigsvm.models.files.json.dumps",
            lambda header, **options: plain({**header, **change}, **options),
        )
        fitted_on(4)[1].save(tmp_path / "m")
    with pytest.raises(ModelError, match="/m is not a whole bigsvm model"):
        KernelExpansion.load(tmp_path / "m")


def test_a_flipped_bit_anywhere_is_refused(tmp_path):
    path = tmp_path / "m"
    fitted_on(3)[1].save(path)
    whole = path.read_bytes()
    rng = np.random.default_rng(1)
    for position in np.concatenate([np.arange(16), rng.integers(0, len(whole), 200)]):
        data = bytearray(whole)
        data[position] ^= 1 << rng.integers(8)
        path.write_bytes(data)
        with pytest.raises(ModelError):
            KernelExpansion.load(path)
