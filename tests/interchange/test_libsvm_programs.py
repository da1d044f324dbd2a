"""LIBSVM's own programs read our models and give our predictions, and the other way round."""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest
from command_line import answer, libsvm_text, run_here, two_clouds
from sklearn.metrics.pairwise import rbf_kernel
from support.libsvm_programs import needs_programs, program

FOLDER = Path(os.environ.get("BIGSVM_DATA") or Path(__file__).parents[3] / "shared" / "data")

pytestmark = [pytest.mark.slow, needs_programs]

KINDS = {
    "c-svc": ("-s", 0, {"--C": "-c"}, [("--C", 2)]),
    "nu-svc": ("-s", 1, {"--nu": "-n"}, [("--nu", 0.3)]),
    "one-class": ("-s", 2, {"--nu": "-n"}, [("--nu", 0.2)]),
    "eps-svr": ("-s", 3, {"--C": "-c", "--epsilon": "-p"}, [("--C", 2), ("--epsilon", 0.2)]),
    "nu-svr": ("-s", 4, {"--C": "-c", "--nu": "-n"}, [("--C", 2), ("--nu", 0.4)]),
}
KERNELS = {
    "linear": [],
    "poly": [("--gamma", 0.125), ("--coef0", 1), ("--degree", 2)],
    "rbf": [("--gamma", 0.125)],
    "sigmoid": [("--gamma", 0.01), ("--coef0", -0.5)],
}
LETTERS = {"--gamma": "-g", "--coef0": "-r", "--degree": "-d"}
OF_REAL_DATA = {"eps-svr": "mpg.scale", "nu-svr": "mpg.scale"}


@pytest.fixture(params=["made", "real"])
def text(request, kind, tmp_path):
    """LIBSVM text of some hundred rows, and of every other of them."""
    whole, half = tmp_path / "all.libsvm", tmp_path / "half.libsvm"
    if request.param == "real":
        packed = FOLDER / f"{OF_REAL_DATA.get(kind, 'heart_scale')}.libsvm.gz"
        if not packed.exists():
            pytest.skip(f"no {packed}")
        whole.write_bytes(gzip.decompress(packed.read_bytes()))
    else:
        X, y = two_clouds(300)
        if kind == "one-class":
            X += 3  # with the origin among the rows a linear one would be 0 everywhere
        whole.write_text(libsvm_text(X, 10 * np.sin(X[:, 0]) if kind.endswith("svr") else y))
    half.write_text("".join(whole.read_text().splitlines(keepends=True)[::2]))
    return whole, half


def same_predictions(kind, rows, ours, theirs):
    """Predict with our program and a model, and with LIBSVM's and one; compare what they write."""
    folder = rows.parent
    run_here("predict", rows, ours, "-o", folder / "ours.txt")
    run_here("predict", rows, ours, "-o", folder / "values.txt", "--decision-function")
    program("svm-predict", rows, theirs, folder / "theirs.txt")
    found, values, expected = (
        np.loadtxt(folder / f"{name}.txt") for name in ("ours", "values", "theirs")
    )
    assert len(np.unique(found)) > 1
    if kind.endswith("svr"):
        np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())
        return
    # Rows at the threshold itself, as support vectors of one class are, are left to rounding.
    clear = np.abs(values) > 1e-5 * np.abs(values).max()
    assert clear.mean() > 0.9
    np.testing.assert_array_equal(found[clear], expected[clear])


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind", KINDS)
def test_libsvm_predicts_from_our_models_what_we_predict(kind, kernel, text, tmp_path):
    whole, half = text
    *_, own = KINDS[kind]
    options = [word for pair in (*own, *KERNELS[kernel]) for word in pair]
    model, exported = tmp_path / "model.safetensors", tmp_path / "exported.model"
    record = answer("train", half, model, "--formulation", kind, "--kernel", kernel, *options)
    assert record["converged"]
    run_here("export", model, exported, "--to", "libsvm")
    same_predictions(kind, whole, model, exported)
    same_predictions(kind, whole, exported, exported)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind", KINDS)
def test_we_predict_from_libsvms_models_what_it_predicts(kind, kernel, text, tmp_path):
    whole, half = text
    letter, number, names, own = KINDS[kind]
    options = [
        word
        for name, value in (*own, *KERNELS[kernel])
        for word in ({**names, **LETTERS}[name], value)
    ]
    model = tmp_path / "theirs.model"
    program("svm-train", letter, number, "-t", [*KERNELS].index(kernel), *options, half, model)
    same_predictions(kind, whole, model, model)
    assert answer("info", model)["formulation"] == kind


@pytest.mark.parametrize("ours_first", [True, False], ids=["our model", "their model"])
@pytest.mark.parametrize("kind", KINDS)
def test_kernel_matrices(kind, ours_first, tmp_path):
    """``-t 4``: text of kernel values, each row with its number in front."""
    X, y = two_clouds(240)
    target = 10 * np.sin(X[:, 0]) if kind.endswith("svr") else y
    K = rbf_kernel(X, X[::2], gamma=0.125)
    for name, rows in (("all", np.arange(240)), ("half", np.arange(0, 240, 2))):
        with (tmp_path / name).open("w") as file:
            for number, row in enumerate(rows, 1):
                entries = " ".join(f"{k}:{value!r}" for k, value in enumerate(K[row].tolist(), 1))
                file.write(f"{target[row]:.9g} 0:{number} {entries}\n")
    letter, number, names, own = KINDS[kind]
    model = tmp_path / "model"
    if ours_first:
        options = [word for pair in own for word in pair]
        answer(
            "train", tmp_path / "half", tmp_path / "own",
            "--formulation", kind, "--kernel", "precomputed", *options,
        )  # fmt: skip
        run_here("export", tmp_path / "own", model, "--to", "libsvm")
    else:
        options = [word for name, value in own for word in (names[name], value)]
        program("svm-train", letter, number, "-t", 4, *options, tmp_path / "half", model)
    same_predictions(kind, tmp_path / "all", model, model)
