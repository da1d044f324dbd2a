import json
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import safetensors.numpy
import scipy.sparse as sp

from bigsvm.calibration import Calibration
from bigsvm.data.scaler import Scaler
from bigsvm.data.sources import as_row_source
from bigsvm.errors import DataError, ModelError
from bigsvm.kernels import make_kernel
from bigsvm.models import KernelExpansion


def expansion(*, sparse=False, kernel="rbf", classes=(-1.0, 1.0)):
    rng = np.random.default_rng(3)
    vectors = (rng.standard_normal((40, 6)) * (rng.random((40, 6)) < 0.5)).astype(np.float32)
    return KernelExpansion(
        kernel=make_kernel(kernel, gamma=0.3, coef0=0.5, degree=2),
        support_vectors=sp.csr_array(vectors) if sparse else vectors,
        coefficients=rng.standard_normal(40),
        intercept=0.25,
        centre=None if sparse else vectors.mean(axis=0, dtype=np.float64),
        support=np.arange(0, 80, 2),
        classes=list(classes),
        certificate={"converged": True, "gap": 1e-4},
        provenance={"bigsvm": "0", "parameters": {"C": 1.0}},
    )


@pytest.fixture(params=["dense", "sparse"])
def model(request):
    return expansion(sparse=request.param == "sparse")


@pytest.mark.parametrize("kernel", ["linear", "poly", "rbf", "sigmoid"])
@pytest.mark.parametrize("sparse_model", [False, True])
@pytest.mark.parametrize("sparse_rows", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_decision_values_are_the_sum_they_are_defined_as(kernel, sparse_model, sparse_rows, dtype):
    model = expansion(sparse=sparse_model, kernel=kernel)
    rows = np.random.default_rng(0).standard_normal((700, 6)).astype(dtype)
    given = sp.csr_array(rows) if sparse_rows else rows
    values = model.decision_function(as_row_source(given), threads=2)
    vectors = model.support_vectors.toarray() if sparse_model else model.support_vectors
    a, b = rows.astype(np.float64), vectors.astype(np.float64)
    K = model.kernel.from_products(a @ b.T, (a * a).sum(axis=1), (b * b).sum(axis=1))
    tolerance = 1e-10 if dtype == np.float64 else 2e-4
    np.testing.assert_allclose(values, K @ model.coefficients + 0.25, atol=tolerance)


def test_a_saved_model_comes_back_equal(model, tmp_path):
    model.save(tmp_path / "m.safetensors")
    back = KernelExpansion.load(tmp_path / "m.safetensors")
    rows = as_row_source(np.random.default_rng(0).standard_normal((50, 6)))
    np.testing.assert_array_equal(back.decision_function(rows), model.decision_function(rows))
    for name in ("kernel", "intercept", "classes", "formulation", "certificate", "provenance"):
        assert getattr(back, name) == getattr(model, name)
    np.testing.assert_array_equal(back.support, model.support)


CALIBRATIONS = {
    "sigmoid": np.array([[1.5], [-0.25]]),
    "isotonic": np.array([[-1.0, 0.5, 2.0], [0.0, 0.3, 1.0]]),
}


@pytest.mark.parametrize("method", CALIBRATIONS)
def test_a_calibration_is_saved_with_its_model(tmp_path, method):
    made = Calibration(method=method, numbers=CALIBRATIONS[method], n_rows=70)
    replace(expansion(), calibration=made).save(tmp_path / "m")
    back = KernelExpansion.load(tmp_path / "m").calibration
    assert (back.method, back.n_rows) == (method, 70)
    np.testing.assert_array_equal(back.numbers, made.numbers)


def test_models_from_before_there_were_calibrations_are_read(tmp_path, monkeypatch):
    plain = json.dumps

    def without(header, **options):
        assert header.pop("calibration") is None
        return plain(header, **options)

    with monkeypatch.context() as patch:
        patch.setattr("bigsvm.models.files.json.dumps", without)
        expansion().save(tmp_path / "m")
    assert KernelExpansion.load(tmp_path / "m").calibration is None


def test_saving_replaces_whole_files_only(model, tmp_path):
    path = tmp_path / "m.safetensors"
    model.save(path)
    before = path.read_bytes()
    with pytest.raises(ModelError, match="cannot write the model"):
        model.save(tmp_path / "absent" / "m.safetensors")
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["m.safetensors"]


def test_saving_holds_no_second_copy_of_the_support_vectors(tmp_path):
    vectors = np.ones((40, 50_000), np.float32)
    model = replace(expansion(), support_vectors=vectors, centre=None)
    tracemalloc.start()
    try:
        model.save(tmp_path / "m")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < vectors.nbytes / 4


def test_model_file_has_the_usual_permissions(model, tmp_path):
    (tmp_path / "other").touch()
    model.save(tmp_path / "m")
    assert (tmp_path / "m").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_full_disk_is_reported_and_leaves_the_old_model(model, tmp_path, monkeypatch):
    def full(tensors, path, metadata):
        path.write_bytes(b"part")
        raise safetensors.SafetensorError("No space left on device")

    model.save(tmp_path / "m")
    monkeypatch.setattr(safetensors.numpy, "save_file", full)
    with pytest.raises(ModelError, match=r"cannot write the model .* No space left"):
        model.save(tmp_path / "m")
    KernelExpansion.load(tmp_path / "m")
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


def test_a_flipped_bit_anywhere_is_refused(model, tmp_path):
    path = tmp_path / "m.safetensors"
    model.save(path)
    whole = path.read_bytes()
    rng = np.random.default_rng(1)
    positions = np.concatenate([np.arange(16), rng.integers(0, len(whole), 300)])
    for position in positions:
        data = bytearray(whole)
        data[position] ^= 1 << rng.integers(8)
        path.write_bytes(data)
        with pytest.raises(ModelError):
            KernelExpansion.load(path)


@pytest.mark.fault("truncation")
@pytest.mark.parametrize("size", [0, 1, 8, 100, -1])
def test_a_truncated_file_is_refused(model, tmp_path, size):
    path = tmp_path / "m.safetensors"
    model.save(path)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ModelError):
        KernelExpansion.load(path)


def test_other_files_are_refused_by_name(tmp_path):
    path = tmp_path / "other.safetensors"
    path.write_bytes(safetensors.numpy.save({"x": np.zeros(3)}))
    with pytest.raises(ModelError, match="is not a bigsvm model"):
        KernelExpansion.load(path)
    with pytest.raises(ModelError, match="cannot read the model"):
        KernelExpansion.load(tmp_path / "absent")


@pytest.mark.parametrize(
    ("sparse", "digest"),
    [(False, "84f4d86c35563daaa94d0111492e9189"), (True, "8925762640d9ecf951b617f185efca64")],
)
def test_model_file_format_is_unchanged(sparse, digest, tmp_path):
    """Text and tensors, of which it is a hash; safetensors itself orders metadata as it likes."""
    expansion(sparse=sparse).save(tmp_path / "m")
    with safetensors.safe_open(str(tmp_path / "m"), "numpy") as file:
        assert file.metadata()["xxh3_128"] == digest


def test_a_newer_format_is_refused(model, tmp_path, monkeypatch):
    plain = json.dumps

    def newer(header, **options):
        return plain({**header, "format_version": 4}, **options)

    with monkeypatch.context() as patch:
        patch.setattr("bigsvm.models.files.json.dumps", newer)
        model.save(tmp_path / "m")
    with pytest.raises(ModelError, match="format 4, newer than 3"):
        KernelExpansion.load(tmp_path / "m")


def test_a_scaler_of_a_newer_version_is_refused(model, tmp_path):
    scaler = Scaler("minmax", np.zeros(6), np.ones(6))
    object.__setattr__(scaler, "method", "quantile")
    replace(model, scaler=scaler).save(tmp_path / "m")
    with pytest.raises(ModelError, match=r"/m is not a whole .* scaled by 'quantile'; known are"):
        KernelExpansion.load(tmp_path / "m")


@pytest.mark.parametrize(
    ("tensor", "value"),
    [
        ("coefficients", np.zeros(39)),
        ("coefficients", np.full(40, np.nan)),
        ("support", np.arange(10**3)),
        ("support_vectors", np.zeros((40, 7), np.float32)),
        ("intercepts", np.zeros(2)),
        ("calibration", np.zeros((2, 3))),
        ("calibration", np.array([[0.0], [np.inf]])),
        ("calibration", np.array([[0], [1]])),
    ],
)
def test_tensors_that_contradict_each_other_are_refused(tmp_path, monkeypatch, tensor, value):
    """A file whose hash is right may still have been made by an enemy."""
    real = safetensors.numpy.save_file
    monkeypatch.setattr("bigsvm.models.files.digest_of_tensors", lambda text, tensors: "0")
    monkeypatch.setattr(
        safetensors.numpy, "save_file", lambda t, path, m: real({**t, tensor: value}, path, m)
    )
    made = Calibration(method="sigmoid", numbers=CALIBRATIONS["sigmoid"])
    replace(expansion(), calibration=made).save(tmp_path / "m")
    with pytest.raises(ModelError, match="/m is not a whole bigsvm model"):
        KernelExpansion.load(tmp_path / "m")


def test_sparse_indices_out_of_range_are_refused(tmp_path, monkeypatch):
    real = safetensors.numpy.save_file
    monkeypatch.setattr("bigsvm.models.files.digest_of_tensors", lambda text, tensors: "0")

    def save(tensors, path, metadata):
        indices = tensors["support_vectors.indices"] + 10**6
        return real({**tensors, "support_vectors.indices": indices}, path, metadata)

    monkeypatch.setattr(safetensors.numpy, "save_file", save)
    expansion(sparse=True).save(tmp_path / "m")
    with pytest.raises(ModelError):
        KernelExpansion.load(tmp_path / "m")


def test_the_header_is_text_for_anyone(model, tmp_path):
    model.save(tmp_path / "m")
    with safetensors.safe_open(str(tmp_path / "m"), "numpy") as file:
        header = json.loads(file.metadata()["bigsvm"])
    assert header["kernel"] == {"name": "rbf", "gamma": 0.3}
    assert header["classes"] == [-1.0, 1.0]
    assert header["scaler"] is None


def test_another_number_of_columns_is_refused(model):
    with pytest.raises(DataError, match="5 columns, the model was trained on 6"):
        model.decision_function(as_row_source(np.zeros((3, 5))))
