"""Words as labels, from text to predictions, by commands."""

import json

import numpy as np
import pandas as pd
import pytest
from command_line import error_of, run_here
from sklearn.datasets import make_blobs

import bigsvm

WORDS = np.array(["cat", "ant", "bee"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Text of training and test rows, their store and their model."""
    folder = tmp_path_factory.mktemp("words")
    X, places = make_blobs(240, centers=3, cluster_std=1.0, random_state=0)
    lines = [
        f"{word} 1:{x[0]!r} 2:{x[1]!r}" for word, x in zip(WORDS[places], X.tolist(), strict=True)
    ]
    (folder / "train").write_text("\n".join(lines[:160]))
    (folder / "test").write_text("\n".join(lines[160:]))
    run_here("convert", folder / "train", folder / "train.zarr")
    run_here("train", folder / "train.zarr", folder / "m")
    return folder


def test_info_names_classes(folder):
    told = run_here("info", folder / "train.zarr").stdout
    assert "ant: " in told
    assert "bee: " in told
    assert "3: ant, bee, cat" in run_here("info", folder / "m").stdout
    record = json.loads(run_here("info", folder / "train.zarr", "--json").stdout)
    assert [item["label"] for item in record["label_counts"]] == ["ant", "bee", "cat"]


@pytest.mark.parametrize("rows", ["text", "store"])
def test_predictions_are_words_in_the_order_of_the_text(rows, folder, tmp_path):
    test = folder / "test"
    if rows == "store":
        run_here("convert", test, tmp_path / "test.zarr")
        test = tmp_path / "test.zarr"
    run = run_here("predict", test, folder / "m", "-o", tmp_path / "out", "--json")
    given = [line.split()[0] for line in (folder / "test").read_text().splitlines()]
    predicted = (tmp_path / "out").read_text().split()
    share = np.mean([a == b for a, b in zip(given, predicted, strict=True)])
    assert json.loads(run.stdout)["accuracy"] == pytest.approx(share)
    assert share > 0.7
    loaded = bigsvm.load(folder / "m")
    store = bigsvm.convert(folder / "test", tmp_path / "s")
    assert loaded.predict(store, order="input").compute().tolist() == predicted
    assert loaded.score(store) == pytest.approx(share)


def test_labels_of_another_kind_are_not_compared(folder, tmp_path):
    lines = (folder / "test").read_text().splitlines()
    (tmp_path / "numbers").write_text("\n".join(f"1 {line.split(' ', 1)[1]}" for line in lines))
    run = run_here("predict", tmp_path / "numbers", folder / "m", "--json")
    assert json.loads(run.stdout)["accuracy"] is None
    for formulation in ("eps-svr", "one-class"):
        numbers = [f"{i % 2} {line.split(' ', 1)[1]}" for i, line in enumerate(lines)]
        (tmp_path / "train").write_text("\n".join(numbers))
        run_here("train", tmp_path / "train", tmp_path / "m", "--formulation", formulation)
        record = json.loads(run_here("predict", folder / "test", tmp_path / "m", "--json").stdout)
        assert record["accuracy"] is None


def test_classes_have_weights_by_name(folder, tmp_path):
    weights = ["--class-weight", "ant:3", "--class-weight", "cat:0.5"]
    run_here(
        "train", folder / "train.zarr", tmp_path / "m", *weights, "--checkpoint", tmp_path / "c"
    )
    assert bigsvm.load(tmp_path / "m").class_weight == {"ant": 3.0, "bee": 1.0, "cat": 0.5}
    run_here("train", folder / "train.zarr", "--resume", tmp_path / "c")
    told = error_of(
        "train", folder / "train.zarr", tmp_path / "m", "--class-weight", "ant:1",
        "--class-weight", "dog:2",
    )  # fmt: skip
    assert "names 'dog', which is no class" in told
    told = error_of(
        "train", folder / "train.zarr", tmp_path / "m", "--class-weight", "ant:1",
        "--class-weight", "ant:2",
    )  # fmt: skip
    assert "gives the label ant a second weight" in told


def test_info_names_columns(tmp_path):
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 8)), columns=list("abcdefgh"))
    bigsvm.write_store(tmp_path / "s", frame, np.arange(40) % 2)
    run_here("train", tmp_path / "s", tmp_path / "m")
    for what in ("s", "m"):
        assert "column names  " in run_here("info", tmp_path / what).stdout
        assert "a, b, c, d, e, f, and 2 more\n" in run_here("info", tmp_path / what).stdout
    record = json.loads(run_here("info", tmp_path / "s", "--json").stdout)
    assert record["feature_names"] == list("abcdefgh")
    swapped = frame[list("bacdefgh")]
    bigsvm.write_store(tmp_path / "swapped", swapped, np.arange(40) % 2)
    told = error_of("predict", tmp_path / "swapped", tmp_path / "m")
    assert "column 0 (from 0) of the rows is 'b', but the model was trained on 'a'" in told
    with pytest.raises(ValueError, match="feature names should match"):
        bigsvm.load(tmp_path / "m").predict(swapped)


def test_libsvms_programs_refuse_words(folder, tmp_path):
    words = "has words as labels, and LIBSVM's files have whole numbers; use `bigsvm train` and"
    (tmp_path / "numbers").write_text("1 1:2\n2 1:3\n1 1:2 2:1\n2 2:4\n")
    run_here("svm-train", "-q", tmp_path / "numbers", tmp_path / "m")
    assert words in error_of("svm-train", folder / "train", tmp_path / "words")
    assert words in error_of("svm-predict", tmp_path / "numbers", folder / "m", tmp_path / "o")
    assert words in error_of("svm-predict", folder / "test", tmp_path / "m", tmp_path / "o")
    assert not (tmp_path / "o").exists()
