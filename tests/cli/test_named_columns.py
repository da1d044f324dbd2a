"""Commands on files whose columns have names."""

import numpy as np
import pandas as pd
import pytest
from command_line import LITTLE, answer, error_of, run_here, two_clouds

import bigsvm

pytest.importorskip("pyarrow")

NAMES = list("abcdef")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("named")
    X, y = two_clouds(600)
    frame = pd.DataFrame(X, columns=NAMES).assign(kind=["yes" if v > 0 else "no" for v in y])
    frame = frame.assign(importance=1.0)
    frame[:400].to_parquet(path / "train.parquet")
    frame[400:].to_csv(path / "test.csv", index=False)
    frame[400:][NAMES[::-1]].to_parquet(path / "new.parquet")
    return path


LABEL = ("--label", "kind", "--weight", "importance")


@pytest.fixture(scope="module")
def model(folder):
    run_here("train", folder / "train.parquet", folder / "model", *LABEL, "--gamma", "0.3", "-q")
    return folder / "model"


def test_a_store_of_chosen_columns(folder, tmp_path):
    run_here(
        "convert", folder / "train.parquet", tmp_path / "s.zarr", *LABEL, "--columns", "c,a", "-q"
    )
    told = answer("info", tmp_path / "s.zarr")
    assert told["feature_names"] == ["c", "a"]
    assert told["n_rows"] == 400


def test_predictions_are_compared_where_the_label_is_named(folder, model):
    compared = answer("predict", folder / "test.csv", model, "--label", "kind")
    assert compared["n_rows"] == 200
    assert compared["accuracy"] > 0.6


def test_rows_without_labels_and_with_columns_in_another_order(folder, model, tmp_path):
    run_here("predict", folder / "test.csv", model, *LABEL, "-o", tmp_path / "one")
    told = answer("predict", folder / "new.parquet", model, "-o", tmp_path / "other")
    assert told["accuracy"] is None
    assert (tmp_path / "one").read_text() == (tmp_path / "other").read_text()


@pytest.mark.parametrize("kind", ["h5", "npz", "a folder"])
def test_arrays_and_folders_are_predicted_as_tables_are(kind, folder, model, tmp_path):
    table = pd.read_parquet(folder / "new.parquet")[NAMES]
    path = tmp_path / f"rows.{kind}"
    if kind == "h5":
        with pytest.importorskip("h5py").File(path, "w") as file:
            file["X"] = table.to_numpy()
    elif kind == "npz":
        np.savez(path, X=table.to_numpy())
    else:
        path.mkdir()
        table.to_parquet(path / "1.parquet")
    answer("predict", path, model, "-o", tmp_path / "one")
    answer("predict", folder / "new.parquet", model, "-o", tmp_path / "other")
    assert (tmp_path / "one").read_text() == (tmp_path / "other").read_text()


def test_text_of_libsvm_is_predicted_by_a_model_of_named_columns(folder, model, tmp_path):
    X, y = two_clouds(600)
    rows = [" ".join([f"{v:+.0f}", *(f"{i}:{x}" for i, x in enumerate(r, 1))]) for r, v in
            zip(X[400:], y[400:], strict=True)]  # fmt: skip
    (tmp_path / "rows.libsvm").write_text("\n".join(rows) + "\n")
    run_here("predict", tmp_path / "rows.libsvm", model, "-o", tmp_path / "text")
    run_here("predict", folder / "new.parquet", model, "-o", tmp_path / "table")
    assert (tmp_path / "text").read_text() == (tmp_path / "table").read_text()


def test_csv_from_standard_input(folder, tmp_path):
    text = (folder / "test.csv").read_text()
    run_here("convert", "-", tmp_path / "s.zarr", *LABEL, "-q", stdin=text)
    assert answer("info", tmp_path / "s.zarr")["n_rows"] == 200


def test_a_run_is_resumed_with_its_label(folder, tmp_path):
    options = (*LABEL, *LITTLE, "--checkpoint", tmp_path / "run", "-q")
    run_here("train", folder / "train.parquet", tmp_path / "model", *options)
    assert answer("train", "--resume", tmp_path / "run", "--max-iter", "-1")["converged"]


@pytest.mark.parametrize("command", [["cv"], ["plan"], ["search", "--folds", "3", "--C", "1"]])
def test_other_commands(command, folder):
    run_here(*command, folder / "train.parquet", *LABEL, "--gamma", "0.3", "-q")


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """Tables with words and missing values, and a model."""
    path = tmp_path_factory.mktemp("words")
    X, y = two_clouds(600)
    frame = pd.DataFrame(X[:, :2], columns=["a", "b"])
    frame = frame.assign(color=pd.cut(X[:, 2], 3, labels=["red", "blue", "green"]).astype(str))
    frame = frame.assign(kind=["yes" if v > 0 else "no" for v in y])
    frame.loc[::9, "a"] = None
    frame[:400].to_parquet(path / "train.parquet")
    frame[400:].to_csv(path / "test.csv", index=False)
    frame[400:].replace("red", "pink").to_csv(path / "pink.csv", index=False)
    run_here("train", path / "train.parquet", path / "model", *WORDS, "--gamma", "0.3", "-q")
    return path


WORDS = ("--label", "kind", "--categories", "onehot", "--missing", "median", "--missing-indicator")


def test_a_model_encodes_tables(words, tmp_path):
    assert bigsvm.load(words / "model").model_.feature_names == (
        "a", "a=missing", "b", "color=blue", "color=green", "color=red",
    )  # fmt: skip
    answer("predict", words / "test.csv", words / "model", "-o", tmp_path / "one")
    labels = bigsvm.load(words / "model").predict(pd.read_csv(words / "test.csv"))
    assert (tmp_path / "one").read_text().split() == labels.tolist()
    told = answer("predict", words / "test.csv", words / "model", "--label", "kind")
    assert told["accuracy"] == (labels == pd.read_csv(words / "test.csv").kind).mean()
    message = error_of("predict", words / "pink.csv", words / "model")
    assert "column 'color' has 'pink' in row" in message
    assert message.strip().endswith("0 by --unknown zeros")
    told = answer("predict", words / "pink.csv", words / "model", "--unknown", "zeros")
    assert told["n_rows"] == 200


def test_a_store_of_words_trains_the_same_model(words, tmp_path):
    run_here("convert", words / "train.parquet", tmp_path / "s.zarr", *WORDS, "-q")
    run_here("train", tmp_path / "s.zarr", tmp_path / "model", "--gamma", "0.3", "-q")
    for name in ("model", words / "model"):
        run_here("predict", words / "test.csv", tmp_path / name, "-o", tmp_path / "out",
                 "--overwrite", "--decision-function")  # fmt: skip
        (tmp_path / "out").rename(tmp_path / f"values{len(str(name))}")
    one, other = sorted(tmp_path.glob("values*"))
    assert one.read_text() == other.read_text()


def test_a_run_on_words_is_resumed(words, tmp_path):
    options = (*WORDS, *LITTLE, "--checkpoint", tmp_path / "run", "-q")
    run_here("train", words / "train.parquet", tmp_path / "model", *options)
    assert answer("train", "--resume", tmp_path / "run", "--max-iter", "-1")["converged"]


@pytest.mark.parametrize("command", [["cv"], ["plan"], ["search", "--folds", "3", "--C", "1"]])
def test_other_commands_on_words(command, words):
    run_here(*command, words / "train.parquet", *WORDS, "--gamma", "0.3", "-q")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("convert", "test.csv", "s.zarr", "--label", "kind"), "by --categories onehot"),
        (("convert", "test.csv", "s.zarr", *WORDS[:4]), "missing in 'a' (22); fill them by --miss"),
        (("convert", "test.csv", "s.zarr", *WORDS, "--max-categories", "2"),
         "more than --max-categories 2"),
        (("convert", "test.csv", "s.zarr", "--label", "kind", "--missing", "mode"), "one of mean"),
        (("train", "test.csv", "m", "--label", "kind", "--unknown", "zeros"), "need --categories"),
        (("predict", "test.csv", "model", "--missing", "mean"), "a model keeps them"),
        (("predict", "test.csv", "model", "--columns", "a"), "those of the training data"),
    ],
)  # fmt: skip
def test_words_that_are_refused(arguments, message, words, monkeypatch):
    monkeypatch.chdir(words)
    before = sorted(words.iterdir())
    assert message in error_of(*arguments)
    assert sorted(words.iterdir()) == before


def test_words_from_standard_input_are_refused(words, tmp_path):
    text = (words / "test.csv").read_text()
    ended = run_here("convert", "-", tmp_path / "s.zarr", *WORDS, "-q", code=2, stdin=text)
    assert "read once only; write it to a file first" in ended.stderr
    run_here("predict", "-", words / "model", *LABEL[:2], "-o", tmp_path / "one", stdin=text)
    run_here("predict", words / "test.csv", words / "model", "-o", tmp_path / "other")
    assert (tmp_path / "one").read_text() == (tmp_path / "other").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("convert", "train.parquet", "s.zarr"), "this is Parquet, not LIBSVM text; name the"),
        (("convert", "test.csv", "s.zarr", "--label", "kin"), "did you mean 'kind'?"),
        (("convert", "test.csv", "s.zarr", "--label", "kind", "--strict"), "--strict is for"),
        (("convert", "test.csv", "s.zarr", "--label", "kind", "--columns", "a,a"), "twice"),
        (("train", "test.csv", "m", "--label", "kind", "--zero-based", "no"), "--zero-based"),
        (("predict", "train.parquet", "model", "--label", "kin"), "there is no column 'kin'"),
    ],
)  # fmt: skip
def test_what_means_nothing_is_refused(arguments, message, folder, model, monkeypatch):
    monkeypatch.chdir(folder)
    before = sorted(folder.iterdir())
    assert message in error_of(*arguments)
    assert sorted(folder.iterdir()) == before
