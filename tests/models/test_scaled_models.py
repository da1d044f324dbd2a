"""Models of scaled rows: they predict rows as they come, and refuse those scaled in another way."""

import tempfile
from dataclasses import replace
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
import safetensors.numpy
import scipy.sparse as sp
import zarr
from command_line import libsvm_text, two_clouds
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler

import bigsvm
from bigsvm.data.scaler import METHODS, Scaler
from bigsvm.data.sources import as_row_source
from bigsvm.data.store_rows import StoreRows
from bigsvm.data.wrappers import ScaledRows
from bigsvm.errors import DataCorruptionError, DataError, ModelError
from bigsvm.kernels import make_kernel
from bigsvm.models import KernelExpansion

UNITS = np.array([1e-3, 1, 7, 1e4, 0.5, 1e6], np.float32)
"""Of columns that mean nothing to a kernel before they are scaled."""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Rows to train on and others, raw and scaled, and a model of the scaled ones."""
    folder = tmp_path_factory.mktemp("scaled")
    X, y = two_clouds(400)
    X = X * UNITS
    X[:, 4] = np.where(np.arange(400) < 300, 3, X[:, 4])  # constant in the rows to train on
    bigsvm.write_store(folder / "train", X[:300], y[:300])
    bigsvm.write_store(folder / "test", X[300:], y[300:], shuffle=False)
    scaled = bigsvm.scale_store(folder / "train", folder / "train-scaled", method="standard")
    bigsvm.scale_store(folder / "test", folder / "test-scaled", like=scaled)
    bigsvm.scale_store(folder / "test", folder / "test-alone", method="standard")
    fitted = bigsvm.SVC(C=2, gamma=0.3).fit(folder / "train-scaled")
    fitted.model_.save(folder / "model")
    return folder, X[300:], y[300:], fitted


@pytest.mark.filterwarnings("ignore::bigsvm.AdviceWarning")  # of rows that are not scaled
def test_training_puts_the_scaler_into_the_model(data):
    folder, _, _, fitted = data
    scaled = bigsvm.open_store(folder / "train-scaled")
    assert fitted.model_.scaler == scaled.scaler is not None
    np.testing.assert_array_equal(fitted.support_vectors_, scaled.rows.take(fitted.support_))
    assert bigsvm.SVC().fit(folder / "train").model_.scaler is None


def test_raw_rows_are_predicted_as_if_a_person_had_scaled_them(data):
    folder, X, y, fitted = data
    train = bigsvm.open_store(folder / "train")
    raw = train.rows.read(0, 300)
    peer = StandardScaler().fit(raw.astype(float))
    by_hand = bigsvm.SVC(C=2, gamma=0.3).fit(peer.transform(raw), train.labels())
    # Of the column that was constant, scikit-learn keeps how far it is from that.
    ignored = np.where(np.arange(6) == 4, 3, X)
    expected = by_hand.decision_function(peer.transform(ignored))
    np.testing.assert_allclose(fitted.decision_function(X), expected, atol=2e-3)
    assert (fitted.predict(X) == y).mean() > 0.8


FORMS = {
    "array": np.asarray,
    "sparse": sp.csr_matrix,
    "dask": lambda X: da.from_array(X, chunks=(30, 6)),
    "sparse dask": lambda X: da.from_array(X, chunks=(30, 6)).map_blocks(sp.csr_array),
    "zarr": lambda X: zarr.array(X, chunks=(30, 6)),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_rows_gets_the_same_values(data, form):
    folder, X, _, fitted = data
    expected = fitted.model_.decision_function(bigsvm.open_store(folder / "test-scaled").rows)
    given_rows = FORMS[form](X)
    np.testing.assert_allclose(fitted.decision_function(given_rows), expected, atol=1e-6)
    labels = fitted.predict(given_rows)
    np.testing.assert_array_equal(labels, fitted.classes_[(expected > 0).astype(int)])


@pytest.mark.parametrize("name", ["test", "test-scaled"])
@pytest.mark.parametrize("kind", ["path", "store", "model"])
def test_stores_are_scaled_once(data, name, kind):
    folder, X, _, fitted = data
    store = bigsvm.open_store(folder / name)
    if kind == "model":
        values = KernelExpansion.load(folder / "model").decision_function(store.rows)
    else:
        values = fitted.decision_function(folder / name if kind == "path" else store)
        assert isinstance(values, da.Array)
    np.testing.assert_allclose(values, fitted.decision_function(X), atol=1e-6)


def test_laziness_survives(data, monkeypatch):
    """A store that is to be scaled is not read before anybody wants its values."""
    folder, X, _, fitted = data
    spans = []
    read = StoreRows.read

    def watched(self, start, stop):
        spans.append((start, stop))
        return read(self, start, stop)

    monkeypatch.setattr(StoreRows, "read", watched)
    values = fitted.decision_function(folder / "test")
    assert spans == []
    np.testing.assert_allclose(values, fitted.decision_function(X), atol=1e-6)
    assert spans == [(0, 100)]


@pytest.mark.filterwarnings("ignore::bigsvm.AdviceWarning")  # of rows that are not scaled
def test_a_store_scaled_in_another_way_is_refused(data):
    folder, _, _, fitted = data
    message = r"were scaled with other parameters \(standard\) than those the model .*--like"
    with pytest.raises(DataError, match=message):
        fitted.predict(folder / "test-alone")
    with pytest.raises(DataError, match=message):
        fitted.model_.decision_function(bigsvm.open_store(folder / "test-alone").rows)
    raw = bigsvm.SVC().fit(folder / "train")
    with pytest.raises(DataError, match="the model was trained on rows that were not scaled"):
        raw.predict(folder / "test-scaled")


def test_rows_can_be_scaled_like_a_model(data, tmp_path):
    folder, _, _, fitted = data
    model = KernelExpansion.load(folder / "model")
    other = bigsvm.scale_store(folder / "test", tmp_path / "out", like=model)
    assert other.scaler == fitted.model_.scaler


def test_a_damaged_scaler_is_found_before_training(data, tmp_path, monkeypatch):
    folder, *_ = data
    store = bigsvm.open_store(folder / "train-scaled")

    def damaged(self):
        raise DataCorruptionError("damaged")

    monkeypatch.setattr(StoreRows, "scaler", property(damaged))
    before = store.rows.bytes_read
    with pytest.raises(DataCorruptionError, match="damaged"):
        bigsvm.SVC().fit(store)
    assert store.rows.bytes_read == before


def some_expansion(d, scaler, dtype=np.float32):
    rng = np.random.default_rng(d)
    return KernelExpansion(
        kernel=make_kernel("rbf", gamma=0.5 / d),
        support_vectors=rng.standard_normal((15, d)).astype(dtype),
        coefficients=rng.standard_normal(15),
        intercept=0.5,
        centre=None,
        support=np.arange(15),
        classes=[-1.0, 1.0],
        scaler=scaler,
    )


@given(
    st.integers(0, 2**32),
    st.integers(1, 200),
    st.lists(st.integers(-15, 15), min_size=1, max_size=5),
    st.sampled_from(METHODS),
    st.sampled_from(["float32", "float64"]),
    st.booleans(),
)
@settings(max_examples=40)
def test_scaled_and_predicted_is_predicted_on_the_scaled(
    seed, n_rows, exponents, method, dtype, sparse
):
    rng = np.random.default_rng(seed)
    d = len(exponents)
    X = (rng.standard_normal((n_rows, d)) * 10.0 ** np.array(exponents)).astype(dtype)
    X[rng.random(X.shape) < 0.5] = 0
    if sparse:
        method = "maxabs"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        layout = "sparse" if sparse else "dense"
        store = bigsvm.write_store(folder / "s", X, np.zeros(n_rows), layout=layout)
        scaled = bigsvm.scale_store(store, folder / "t", method=method)
        model = some_expansion(d, scaled.scaler, dtype)
        expected = model.decision_function(scaled.rows)
        np.testing.assert_array_equal(model.decision_function(store.rows), expected)
        order = store.original_rows()
        of_array = model.decision_function(as_row_source(X))[order]
    np.testing.assert_allclose(of_array, expected, atol=1e-5 if dtype == "float32" else 1e-12)


@pytest.mark.parametrize("kind", ["dense store", "sparse store", "array", "sparse matrix"])
def test_prediction_scales_blocks_only(tmp_path, monkeypatch, kind):
    """Also of rows in memory, and where sparse rows become dense by being scaled."""
    X = np.zeros((60_000, 50), np.float32)
    X[:, 0] = np.arange(60_000) % 7
    source = as_row_source(sp.csr_array(X) if "sparse" in kind else X)
    if "store" in kind:
        source = bigsvm.write_store(tmp_path / "s", source, np.zeros(60_000), shuffle=False).rows
    assert source.is_sparse is ("sparse" in kind)
    model = some_expansion(50, Scaler("minmax", np.full(50, 3.0), np.full(50, 0.25)))
    sizes = []
    read = ScaledRows.read

    def watched(self, start, stop):
        rows = read(self, start, stop)
        sizes.append(rows.nbytes)
        return rows

    monkeypatch.setattr(ScaledRows, "read", watched)
    values = model.decision_function(source, block_bytes=4 << 20)
    assert max(sizes) <= 2 << 20
    assert sum(sizes) == X.nbytes
    np.testing.assert_array_equal(values[:7], values[7:14])
    by_hand = replace(model, scaler=None)
    expected = by_hand.decision_function(as_row_source((X[:7] - 3) * np.float32(0.25)))
    np.testing.assert_allclose(values[:7], expected, atol=1e-6)


# -- files ---------------------------------------------------------------------------------------


def test_a_saved_model_keeps_its_scaler(tmp_path):
    scaler = Scaler("minmax", np.array([1.0, -0.0, 3]), np.array([0.1, 5e-300, 0]))
    some_expansion(3, scaler).save(tmp_path / "m")
    back = KernelExpansion.load(tmp_path / "m").scaler
    assert back == scaler
    assert back.method == "minmax"


@pytest.mark.parametrize(
    ("tensor", "value", "message"),
    [
        ("scaler.offset", np.full(3, np.nan), "must be finite"),
        ("scaler.factor", np.full(3, np.inf), "must be finite"),
        ("scaler.factor", np.ones(2), "3 offsets and 2 factors"),
        ("scaler.factor", np.ones(3, np.float32), "must be finite float64"),
        ("scaler.offset", np.zeros((3, 1)), "must be finite float64"),
        ("scaler.factor", None, "scaler.factor"),
    ],
)
def test_a_forged_scaler_is_refused(tmp_path, monkeypatch, tensor, value, message):
    """A file whose hash is right may still have been made by an enemy."""
    real = safetensors.numpy.save_file

    def save(tensors, path, metadata):
        changed = {**tensors, tensor: value}
        return real({k: v for k, v in changed.items() if v is not None}, path, metadata)

    monkeypatch.setattr("bigsvm.models.files.digest_of_tensors", lambda text, tensors: "0")
    monkeypatch.setattr(safetensors.numpy, "save_file", save)
    some_expansion(3, Scaler("minmax", np.zeros(3), np.ones(3))).save(tmp_path / "m")
    with pytest.raises(ModelError, match=f"is not a whole bigsvm model: .*{message}"):
        KernelExpansion.load(tmp_path / "m")


def test_a_scaler_of_other_columns_is_refused(tmp_path):
    some_expansion(3, Scaler("minmax", np.zeros(4), np.ones(4))).save(tmp_path / "m")
    with pytest.raises(ModelError, match="its scaler has 4 columns instead of 3"):
        KernelExpansion.load(tmp_path / "m")


def test_a_flipped_bit_of_the_scaler_is_refused(tmp_path):
    scaler = Scaler("minmax", np.full(3, 1234.5), np.full(3, 0.0625))
    path = tmp_path / "m"
    some_expansion(3, scaler).save(path)
    whole = path.read_bytes()
    for array in (scaler.offset, scaler.factor):
        start = whole.index(array.tobytes())
        for position in range(start, start + array.nbytes):
            path.write_bytes(
                whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :]
            )
            with pytest.raises(ModelError, match="does not match its hash"):
                KernelExpansion.load(path)


def test_libsvm_text_is_predicted_like_the_scaled_store(data, tmp_path):
    """By way of conversion, with another order of the rows."""
    folder, X, y, fitted = data
    (tmp_path / "t.libsvm").write_text(libsvm_text(X, y))
    store = bigsvm.convert(tmp_path / "t.libsvm", tmp_path / "t", n_features=6, layout="sparse")
    values = fitted.decision_function(store).compute()
    expected = fitted.decision_function(folder / "test-scaled").compute()
    np.testing.assert_allclose(values, expected[store.original_rows()], atol=1e-6)
