"""`bigsvm train --formulation crammer-singer`, and `bigsvm inspect` of its models."""

import signal
import sys
import time

import numpy as np
import pytest
from command_line import answer, error_of, finish, libsvm_text, run_here, start
from sklearn.datasets import load_digits

import bigsvm
from bigsvm import KernelExpansion, write_store

FORMULATION = ("--formulation", "crammer-singer")
N, FLIPPED = 800, (3, 100, 200, 512)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A shuffled store and text of digits, four of which are labelled wrong, and a model."""
    folder = tmp_path_factory.mktemp("digits")
    X, y = load_digits(return_X_y=True)
    X, y = (X / 16).astype(np.float32), y.astype(float)
    wrong = y.copy()
    wrong[list(FLIPPED)] = (y[list(FLIPPED)] + 3) % 10
    (folder / "train.libsvm").write_text(libsvm_text(X[:N], wrong[:N]))
    (folder / "test.libsvm").write_text(libsvm_text(X[N:], y[N:]))
    for name in ("train", "test"):
        run_here("convert", folder / f"{name}.libsvm", folder / f"{name}.zarr", "--features", "64")
    run_here(
        "train", folder / "train.zarr", folder / "model", *FORMULATION, "--C", "10",
        "--gamma", "0.05",
    )  # fmt: skip
    return folder


@pytest.mark.parametrize(
    ("given", "parameters"),
    [
        ((), {}),
        (("--fit-intercept",), {"fit_intercept": True}),
        (
            ("--subproblem", "fixed-point", "--cooling", "none", "--class-weight", "3:2"),
            {"subproblem": "fixed_point", "cooling": None, "class_weight": {3: 2}},
        ),
        (
            ("--order", "active", "--cooling", "log", "--working-set", "all"),
            {"order": "active", "cooling": "log", "working_set": "all"},
        ),
    ],
)
def test_trained_model_is_that_of_the_estimator(folder, tmp_path, given, parameters):
    record = answer(
        "train", folder / "train.zarr", tmp_path / "m", *FORMULATION, "--C", "10",
        "--gamma", "0.05", *given,
    )  # fmt: skip
    assert record["converged"]
    fitted = bigsvm.CrammerSingerSVC(C=10, gamma=0.05, **parameters).fit(folder / "train.zarr")
    model = KernelExpansion.load(tmp_path / "m")
    np.testing.assert_array_equal(model.coefficients.toarray().T, fitted.dual_coef_)
    np.testing.assert_array_equal(model.intercept, fitted.intercept_)
    np.testing.assert_array_equal(model.bounds, fitted.model_.bounds)


def test_info_and_predict_of_a_crammer_singer_model(folder, tmp_path):
    shown = run_here("info", folder / "model").stdout
    assert "crammer-singer" in shown
    assert "the largest of 10 values" in shown
    store = bigsvm.open_store(folder / "test.zarr")
    options = ("-o", tmp_path / "labels")
    assert answer("predict", folder / "test.zarr", folder / "model", *options)["accuracy"] > 0.94
    fitted = bigsvm.CrammerSingerSVC(C=10, gamma=0.05).fit(folder / "train.zarr")
    expected = np.empty(store.rows.n_rows)
    expected[store.original_rows()] = fitted.predict(store).compute()
    np.testing.assert_array_equal(np.loadtxt(tmp_path / "labels"), expected)


def test_two_classes_are_two_functions(data, tmp_path):
    run_here("train", data / "train.zarr", tmp_path / "m", *FORMULATION, "--gamma", "0.3")
    assert KernelExpansion.load(tmp_path / "m").n_functions == 2
    assert answer("predict", data / "test.zarr", tmp_path / "m")["accuracy"] > 0.7


def test_libsvm_has_no_such_models(folder, tmp_path):
    told = error_of("export", folder / "model", tmp_path / "m", "--to", "libsvm")
    assert "votes of pairs of classes only; the rule is crammer-singer" in told


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((*FORMULATION, "--nu", "0.2"), "--nu is for"),
        ((*FORMULATION, "--selection", "hmg"), "--selection is for"),
        ((*FORMULATION, "--calibration", "density"), "it must be 'sigmoid' or 'isotonic'"),
        (("--cooling", "log"), "--cooling is for crammer-singer"),
        (("--order", "worst"), "--order is for crammer-singer"),
        (
            (*FORMULATION, "--order", "worst"),
            "is one of all rows together; leave it out, or give --working-set all too",
        ),
        (
            (*FORMULATION, "--working-set", "all", "--cooling", "log"),
            "leave it out, or give --order active and --working-set all too",
        ),
        (("--subproblem", "exact"), "--subproblem is for crammer-singer"),
        (("--fit-intercept",), "--fit-intercept is for crammer-singer"),
    ],
)
def test_invalid_options_are_refused(folder, tmp_path, options, message):
    assert message in error_of("train", folder / "train.zarr", tmp_path / "m", *options)


# -- killed --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_killed_run_ends_at_the_same_bits(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(6, size=6000)
    X = rng.standard_normal((6000, 20)) + 0.6 * rng.standard_normal((6, 20))[y]
    write_store(tmp_path / "s.zarr", X.astype(np.float32), y)
    options = (
        *FORMULATION, "--gamma", "0.05", "--memory", "16MB", "--threads", "1", "--quiet",
    )  # fmt: skip
    run_here("train", tmp_path / "s.zarr", tmp_path / "whole", *options)
    run, killed = tmp_path / "run", 0
    command = ("train", tmp_path / "s.zarr", tmp_path / "m", *options, "--checkpoint", run)
    command += ("--checkpoint-every", "0.1s")
    for _ in range(3):
        before = set(run.glob("generation-*"))
        child = start(*command)
        while child.poll() is None and not set(run.glob("generation-*")) - before:
            time.sleep(0.005)
        child.kill()
        child.communicate()
        killed += child.returncode == -signal.SIGKILL
    assert killed
    finish(start("train", "--resume", run))
    model, whole = (KernelExpansion.load(tmp_path / name) for name in ("m", "whole"))
    assert model.certificate["converged"]
    for name in ("support", "bounds", "intercept"):
        assert getattr(model, name).tobytes() == getattr(whole, name).tobytes()
    assert model.coefficients.data.tobytes() == whole.coefficients.data.tobytes()
    assert model.certificate["n_iter"] == whole.certificate["n_iter"]


# -- inspect -------------------------------------------------------------------------------------


def test_rows_that_are_labelled_wrong_are_listed_first(folder):
    record = answer("inspect", folder / "model", folder / "train.zarr", "--doubtful", "12")
    listed = record["doubtful"]
    truth = load_digits(return_X_y=True)[1]
    assert len(listed) == 12
    # Numbers are those of the text, and what they look like is what they are.
    flipped = [one for one in listed if one["row"] in FLIPPED]
    assert len(flipped) == len(FLIPPED)
    for one in flipped:
        assert one["looks_like"] == truth[one["row"]]
        assert one["label"] == (truth[one["row"]] + 3) % 10
        assert one["doubt"] == pytest.approx(2**0.5)
        assert sum(c["share"] for c in one["could_be"]) == pytest.approx(1, abs=0.05)
    assert [one["doubt"] for one in listed] == sorted((o["doubt"] for o in listed), reverse=True)


def test_doubtful_rows_are_listed_with_drawings(folder):
    shown = run_here("inspect", folder / "model", folder / "train.zarr", "--doubtful", "2").stdout
    lines = shown.splitlines()
    assert lines[0].split("  ")[0] == "row"
    assert len(lines) > 7
    row, label, like = lines[1].split()[:3]
    assert int(row) in FLIPPED
    assert f"{row}: {label}, like {like}" in shown
    assert "\x1b" not in shown
    # Pixels of the first image: each character has two, one above the other.
    place = next(i for i, line in enumerate(lines) if line.startswith(f"{row}: "))
    image = load_digits(return_X_y=True)[0][int(row)].reshape(8, 8)
    bright = (image - image.min()) / np.ptp(image) >= 0.5
    for line, upper, lower in zip(lines[place + 1 :], bright[::2], bright[1::2], strict=False):
        drawn = f"{line:<8}"[:8]
        assert [c in "▀█" for c in drawn] == upper.tolist()
        assert [c in "▄█" for c in drawn] == lower.tolist()


def test_text_is_converted_to_the_same_rows(folder):
    options = ("--doubtful", "5")
    of_text = answer("inspect", folder / "model", folder / "train.libsvm", *options)
    assert of_text == answer("inspect", folder / "model", folder / "train.zarr", *options)


def test_images_are_drawn_into_a_file(folder, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "x.png"
    record = answer("inspect", folder / "model", folder / "train.zarr", "--image", path)
    assert record["image"] == str(path)
    assert len(record["doubtful"]) == 20
    assert path.read_bytes().startswith(b"\x89PNG")
    from matplotlib.image import imread

    assert imread(path).std() > 0.1


def test_image_file_without_matplotlib_is_refused(folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    path = tmp_path / "x.png"
    told = error_of("inspect", folder / "model", folder / "train.zarr", "--image", path)
    assert "pip install 'bigsvm[plot]'" in told
    assert not path.exists()


def test_rows_that_are_no_images_are_listed_only(data, tmp_path):
    run_here("train", data / "train.zarr", tmp_path / "m", *FORMULATION, "--gamma", "0.3")
    inspect = ("inspect", tmp_path / "m", data / "train.zarr")
    assert len(run_here(*inspect, "--doubtful", "3").stdout.splitlines()) == 4
    # Said to be images of 3 x 3, whose last pixels are 0.
    shown = run_here(*inspect, "--doubtful", "3", "--side", "3").stdout
    assert len(shown.splitlines()) > 4
    assert "give 3, or leave it out" in error_of(*inspect, "--side", "2")
    pytest.importorskip("matplotlib")
    told = error_of(*inspect, "--image", tmp_path / "x.png")
    assert "rows of 6 columns are no square images" in told


def test_scaled_rows_are_drawn_as_they_were(folder, tmp_path):
    run_here("scale", folder / "train.zarr", tmp_path / "s.zarr", "--method", "standard")
    options = (*FORMULATION, "--C", "10", "--gamma", "0.01")
    run_here("train", tmp_path / "s.zarr", tmp_path / "m", *options)
    model = KernelExpansion.load(tmp_path / "m")
    from bigsvm.models.doubt import most_doubtful
    from bigsvm.report.doubt import images

    found = most_doubtful(model, bigsvm.open_store(tmp_path / "s.zarr").rows, 10)
    originals = bigsvm.open_store(folder / "train.zarr").rows.take(found.rows).astype(float)
    low, high = originals.min(axis=1, keepdims=True), originals.max(axis=1, keepdims=True)
    expected = ((originals - low) / (high - low)).reshape(10, 8, 8)
    np.testing.assert_allclose(images(model, found, 8), expected, atol=1e-5)


def test_other_models_and_rows_are_refused(folder, data, tmp_path):
    told = error_of("inspect", data / "model", data / "train.zarr")
    assert "is a c-svc model" in told
    assert "--formulation crammer-singer" in told
    told = error_of("inspect", folder / "model", folder / "test.zarr")
    assert "not the rows that the model was trained on" in told
    told = error_of("inspect", folder / "model", folder / "train.zarr", "--image", folder / "model")
    assert "part of the input" in told
    told = error_of(
        "inspect", folder / "model", folder / "train.zarr", "--image", tmp_path / "no" / "x.png"
    )
    assert "make it first" in told


@pytest.mark.parametrize("side", ["17", "100000", "3000000000"])
def test_an_image_much_larger_than_the_rows_is_refused(folder, side):
    told = error_of("inspect", folder / "model", folder / "train.zarr", "--side", side)
    assert "pixels less than 25%; give 8, or leave it out" in told
    shown = run_here("inspect", folder / "model", folder / "train.zarr", "--side", "16")
    assert "looks like" in shown.stdout


def test_more_rows_than_an_image_has_room_for_are_refused(folder, tmp_path, monkeypatch):
    inspect = ("inspect", folder / "model", folder / "train.zarr", "--image", tmp_path / "x.png")
    monkeypatch.setattr("bigsvm.report.doubt.MOST_IMAGES", 4)
    told = error_of(*inspect, "--doubtful", "5")
    assert "5 rows are to be drawn, and an image has room for 4; give a lower --doubtful" in told
    assert not (tmp_path / "x.png").exists()
