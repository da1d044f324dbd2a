"""Models whose fields were changed on purpose, with hashes that fit."""

import json
import os
import struct
import warnings
from dataclasses import fields, replace

import numpy as np
import pandas as pd
import pytest
import safetensors
import safetensors.numpy
import scipy.sparse as sp
from command_line import error_of, two_clouds
from sklearn.datasets import make_blobs

import bigsvm
from bigsvm.data.scaler import Scaler
from bigsvm.data.sources import as_row_source
from bigsvm.errors import BigsvmError, DataError, ModelError
from bigsvm.interchange import to_onnx, to_scikit_learn, write_libsvm_model
from bigsvm.models import KernelExpansion
from bigsvm.models.certificate import CHECKS
from bigsvm.models.doubt import label_distribution, label_doubt, most_doubtful
from bigsvm.models.files import digest_of_tensors
from bigsvm.report.describe import certificate_lines, model_lines, model_record
from bigsvm.report.text import as_columns, as_json
from bigsvm.training.result import Certificate


def read(path):
    with safetensors.safe_open(str(path), "numpy") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}
        return json.loads(file.metadata()["bigsvm"]), tensors


def write(path, header, tensors):
    """Write a model of these fields, whose hash fits."""
    text = header if isinstance(header, str) else json.dumps(header)
    metadata = {"bigsvm": text, "xxh3_128": digest_of_tensors(text, tensors)}
    safetensors.numpy.save_file(tensors, path, metadata)
    return path


def use(path, rows, folder):
    """Do with a model all that can be done with it; what is refused is refused by name."""
    try:
        model = KernelExpansion.load(path)
    except ModelError as error:
        return str(error)
    with warnings.catch_warnings():
        # Valid numbers may be so large that sums of them overflow.
        warnings.simplefilter("ignore", RuntimeWarning)
        as_json(model_record(model, path))
        as_columns(model_lines(model, path))
        for export in (
            lambda: model.decide(rows),
            lambda: model.doubt,
            lambda: label_distribution(model),
            lambda: label_doubt(model),
            lambda: to_scikit_learn(model),
            lambda: write_libsvm_model(model, folder / "exported"),
            lambda: to_onnx(model),
        ):
            try:
                export()
            except (BigsvmError, ImportError):
                continue
    return None


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Header, tensors and rows of a model of each kind."""
    folder = tmp_path_factory.mktemp("models")
    X, y = two_clouds(80)
    X = X.astype(np.float64)
    X[np.abs(X) < 0.5] = 0
    k, many = make_blobs(90, centers=3, n_features=6, cluster_std=8, random_state=0)
    store = bigsvm.write_store(folder / "s", X, y)
    bigsvm.scale_store(store, folder / "t", method="standard")
    made = {
        "dense": bigsvm.SVC(C=2).fit(X, y),
        "sparse": bigsvm.SVC(C=2).fit(sp.csr_array(X), y),
        "scaled": bigsvm.SVC().fit(folder / "t"),
        "sigmoid": bigsvm.SVC(calibration="sigmoid").fit(X, y),
        "isotonic": bigsvm.SVC(calibration="isotonic").fit(X, y),
        "ovo": bigsvm.NuSVC(nu=0.2).fit(k, many),
        "ovr": bigsvm.SVC(multiclass="ovr").fit(sp.csr_array(k), many),
        "crammer-singer": bigsvm.CrammerSingerSVC().fit(k, many),
        "regression": bigsvm.SVR().fit(X, y),
        "one-class": bigsvm.OneClassSVM(nu=0.3).fit(X),
        "names": bigsvm.SVC().fit(pd.DataFrame(X, columns=list("abcdef")), y),
        "poly": bigsvm.SVC(kernel="poly", coef0=1).fit(X, y),
        "ball": bigsvm.L2SVC().fit(X, y),
        "kernel matrix": bigsvm.SVC(kernel="precomputed").fit(X @ X.T, y),
    }
    found = {}
    for name, fitted in made.items():
        fitted.model_.save(folder / name)
        rows = X @ X.T if name == "kernel matrix" else X
        found[name] = (*read(folder / name), rows[:5])
    wide(made["sparse"].model_).save(folder / "wide")
    found["wide"] = (
        *read(folder / "wide"),
        sp.csr_array((X[:5].ravel(), place_of(X[:5])), (5, WIDE)),
    )
    return found


WIDE = 1 << 25


def place_of(rows):
    return np.repeat(np.arange(len(rows)), rows.shape[1]), np.tile(np.arange(6), len(rows))


def wide(model):
    """The same of very many columns, with a scaler that lists those it scales."""
    vectors = model.support_vectors
    vectors = sp.csr_array(
        (vectors.data, vectors.indices, vectors.indptr), (len(model.support), WIDE)
    )
    scaler = Scaler("maxabs", np.zeros(6), np.full(6, 0.5), np.arange(6), WIDE)
    return replace(model, support_vectors=vectors, centre=None, scaler=scaler)


KINDS = (
    "dense", "sparse", "scaled", "sigmoid", "isotonic", "ovo", "ovr", "crammer-singer",
    "regression", "one-class", "names", "poly", "kernel matrix",
    "wide",
)  # fmt: skip


def changed_tensors(tensor):
    """The tensor empty, halved, doubled, with other values, and of other types."""
    yield tensor[:0]
    yield tensor[: len(tensor) // 2]
    yield np.concatenate([tensor, tensor])
    yield tensor[None]
    yield -tensor - 1
    for value in (2**30, 2**40, np.nan, np.inf, -np.inf):
        if tensor.size and (np.isfinite(value) or tensor.dtype.kind == "f"):
            one = tensor.copy()
            one.reshape(-1)[0] = value
            yield one
            yield np.full_like(tensor, value)
    yield np.ascontiguousarray(tensor[::-1])
    for dtype in (np.int8, np.int32, np.int64, np.uint64, np.float16, np.float32, np.bool_):
        if dtype != tensor.dtype:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)
                yield tensor.astype(dtype)


VALUES = (
    None, True, 0, -1, 2, 7, 2**30, 2**63, 10**400, 0.5, -1e300, float("nan"), float("inf"), "",
    "x" * 5000, "ovo", "c-svc", "one-class", "\x1b[31m", [], [[]], [1, 2], ["a"], {},
    {"name": "rbf"},
)  # fmt: skip


def places(value, path=()):
    """Every place of a JSON value, the value itself first."""
    yield path
    inside = value if isinstance(value, dict | list) else []
    for key, item in inside.items() if isinstance(inside, dict) else enumerate(inside):
        yield from places(item, (*path, key))


def with_value(header, path, value):
    """A copy of a header with another value in a place; without it if the value is absent."""
    copy = json.loads(json.dumps(header))
    if not path:
        return value
    inside = copy
    for key in path[:-1]:
        inside = inside[key]
    if value is with_value:
        del inside[path[-1]]
    else:
        inside[path[-1]] = value
    return copy


@pytest.mark.fault("forged-files")
@pytest.mark.parametrize("kind", KINDS)
def test_forged_tensors_are_refused(kind, models, tmp_path):
    header, tensors, rows = models[kind]
    refused = 0
    for name, tensor in tensors.items():
        for other in changed_tensors(tensor):
            path = write(tmp_path / "m", header, {**tensors, name: other})
            refused += use(path, rows, tmp_path) is not None
        path = write(tmp_path / "m", header, {n: t for n, t in tensors.items() if n != name})
        refused += use(path, rows, tmp_path) is not None
    assert refused > 5 * len(tensors)


def check_fields(kind, models, folder, wanted):
    header, tensors, rows = models[kind]
    refused = 0
    for place in filter(wanted, places(header)):
        for value in (*VALUES, with_value):
            if value is not with_value or place:
                path = write(folder / "m", with_value(header, place, value), tensors)
                refused += use(path, rows, folder) is not None
    return refused


@pytest.mark.fault("forged-files")
@pytest.mark.parametrize("kind", KINDS)
def test_forged_fields_are_refused(kind, models, tmp_path):
    def is_the_models_own(place):
        return place[:1] not in (("certificate",), ("provenance",)) or len(place) == 1

    assert check_fields(kind, models, tmp_path, is_the_models_own) > 100


@pytest.mark.slow
@pytest.mark.fault("forged-files")
@pytest.mark.parametrize("kind", ["names", "ovo", "ovr", "crammer-singer"])
def test_forged_fields_of_certificate_and_provenance_are_refused(kind, models, tmp_path):
    def is_of_them(place):
        return place[:1] in (("certificate",), ("provenance",)) and (
            place[1:2] != ("parameters",) or len(place) == 2
        )

    assert check_fields(kind, models, tmp_path, is_of_them) > 100


@pytest.mark.fault("forged-files")
@pytest.mark.parametrize("depth", [20, 400, 5000])
@pytest.mark.parametrize("field", ["certificate", "provenance", "kernel", "classes"])
def test_deeply_nested_json_is_refused(field, depth, models, tmp_path):
    header, tensors, rows = models["dense"]
    deep = '{"a": ' * depth + "[]" + "}" * depth
    text = json.dumps({**header, field: "here"}).replace('"here"', deep)
    assert "is not a whole bigsvm model" in use(
        write(tmp_path / "m", text, tensors), rows, tmp_path
    )


@pytest.mark.fault("forged-files")
@pytest.mark.parametrize("command", ["info", "predict", "export", "scale", "inspect"])
def test_commands_refuse_in_a_sentence(command, models, tmp_path):
    header, tensors, _ = models["dense"]
    path = write(tmp_path / "m", {**header, "n_features": -1}, tensors)
    (tmp_path / "rows").write_text("1 1:2\n")
    arguments = {
        "info": [path],
        "predict": [tmp_path / "rows", path],
        "export": [path, tmp_path / "out", "--to", "libsvm"],
        "scale": [tmp_path / "rows", tmp_path / "out", "--like", path],
        "inspect": [path, tmp_path / "rows"],
    }[command]
    assert "m is not a whole bigsvm model: it has -1 columns" in error_of(command, *arguments)


@pytest.mark.fault("links-and-pipes")
@pytest.mark.parametrize("command", ["info", "predict", "export", "inspect"])
def test_a_pipe_is_no_model(command, tmp_path):
    os.mkfifo(tmp_path / "m")
    (tmp_path / "rows").write_text("1 1:2\n")
    arguments = {
        "info": [tmp_path / "m"],
        "predict": [tmp_path / "rows", tmp_path / "m"],
        "export": [tmp_path / "m", tmp_path / "out", "--to", "libsvm"],
        "inspect": [tmp_path / "m", tmp_path / "rows"],
    }[command]
    assert "m" in error_of(command, *arguments)
    with pytest.raises(ModelError, match="Not a regular file"):
        KernelExpansion.load(tmp_path / "m")


@pytest.mark.fault("forged-files")
def test_rows_that_the_training_data_have_not(models, tmp_path):
    """Numbers of rows beyond the store whose fingerprint the model names."""
    header, tensors, _ = models["crammer-singer"]
    header = with_value(header, ("provenance", "n_rows"), None)
    path = write(tmp_path / "m", header, {**tensors, "support": tensors["support"] + 1000})
    source = as_row_source(make_blobs(90, centers=3, n_features=6, random_state=0)[0])
    model = KernelExpansion.load(path)
    model.provenance["data"] = source.fingerprint()
    with pytest.raises(DataError, match="not the rows that the model was trained on"):
        most_doubtful(model, source, 3)


@pytest.mark.fault("forged-files")
@pytest.mark.parametrize("dtype", ["BF16", "F8_E4M3", "F8_E8M0", "F4", "U8", "BOOL", "I32", "C64"])
def test_types_that_are_not_written(dtype, tmp_path):
    """Some of them numpy does not have."""
    n_bits = {"F4": 4, "BF16": 16, "I32": 32, "C64": 64}.get(dtype, 8)
    entry = {"dtype": dtype, "shape": [512 // n_bits], "data_offsets": [0, 64]}
    text = json.dumps({"__metadata__": {"bigsvm": "{}", "xxh3_128": "0"}, "support": entry})
    text += " " * (-len(text) % 8)
    (tmp_path / "m").write_bytes(struct.pack("<Q", len(text)) + text.encode() + bytes(64))
    with pytest.raises(ModelError, match=f"not a whole bigsvm model: support is {dtype}"):
        KernelExpansion.load(tmp_path / "m")


@pytest.mark.fault("bombs")
def test_oversized_header_is_not_parsed(models, tmp_path, monkeypatch):
    header, tensors, _ = models["dense"]
    write(tmp_path / "m", header, tensors)
    monkeypatch.setattr("bigsvm.models.files.MOST_HEADER_BYTES", 100)
    with pytest.raises(ModelError, match=r"its header has [0-9]+ characters"):
        KernelExpansion.load(tmp_path / "m")


def test_a_model_of_libsvm_is_named(models, tmp_path):
    header, tensors, _ = models["dense"]
    model = KernelExpansion.load(write(tmp_path / "m", header, tensors))
    write_libsvm_model(model, tmp_path / "libsvm")
    with pytest.raises(ModelError, match=r"is a model of LIBSVM; read it by bigsvm\.load"):
        KernelExpansion.load(tmp_path / "libsvm")


def test_every_field_of_a_certificate_has_a_check():
    assert {field.name for field in fields(Certificate)} <= set(CHECKS)


@pytest.mark.fault("forged-files")
@pytest.mark.parametrize("value", [10**400, "3", [1.0], True])
def test_the_gap_of_the_last_sweep_is_checked(models, tmp_path, value):
    header, tensors, rows = models["dense"]
    certificate = {**header["certificate"], "gap": None, "last_gap": value}
    path = write(tmp_path / "m", {**header, "certificate": certificate}, tensors)
    assert "last_gap of certificate is" in use(path, rows, tmp_path)


BALL = {"test": "radius", "eps": 1e-7, "farthest_gap": 0.0, "losses_gap": None}


@pytest.mark.fault("forged-files")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("test_error", 1.5),
        ("test_error", -0.1),
        ("test_error_deviation", "0.1"),
        ("rows_used", -1),
        ("rows_used", 2.0),
        ("n_different", "many"),
        ("sampled_rows", -1),
        ("sampled_duality_gap", "small"),
        ("ball", []),
        ("ball", {"test": "radius"}),
        ("ball", BALL | {"test": "none"}),
        ("ball", BALL | {"eps": float("inf")}),
        ("ball", BALL | {"farthest_gap": -1.0}),
        ("ball", BALL | {"more": 1.0}),
    ],
)
def test_fields_of_uncertified_runs_and_balls_are_checked(models, tmp_path, field, value):
    header, tensors, rows = models["ball"]
    certificate = {**header["certificate"], field: value}
    path = write(tmp_path / "m", {**header, "certificate": certificate}, tensors)
    assert f"{field} of certificate is" in use(path, rows, tmp_path)


def test_a_file_from_before_these_fields_opens(models, tmp_path):
    header, tensors, _ = models["ball"]
    new = ("ball", "test_error", "test_error_deviation", "rows_used")
    certificate = {name: one for name, one in header["certificate"].items() if name not in new}
    model = KernelExpansion.load(
        write(tmp_path / "m", {**header, "certificate": certificate}, tensors)
    )
    assert model.certificate == certificate
    lines = dict(certificate_lines(model.certificate, model.classes, formulation="l2-svc"))
    assert lines["ball"] is None
    assert lines["test error"] is None
