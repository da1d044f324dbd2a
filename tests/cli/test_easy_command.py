"""``bigsvm easy`` and ``bigsvm split``."""

import numpy as np
import pytest
from command_line import answer, error_of, finish, libsvm_text, run_here, start, two_clouds

from bigsvm import KernelExpansion, open_store, write_store
from bigsvm.selection.split import part_numbers

POINTS = ("--folds", "2", "--log2-C", "0,2,2", "--log2-gamma", "-3,-1,2")


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("easy")
    X, y = two_clouds(300)
    (folder / "train.libsvm").write_text(libsvm_text(X[:200], y[:200]))
    (folder / "test.libsvm").write_text(libsvm_text(X[200:], y[200:]))
    return folder


def test_from_text_to_predictions_by_commands_that_are_shown(texts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("easy", texts / "train.libsvm", texts / "test.libsvm", "--directory", "made", *POINTS)
    record = answer(*words)
    names = ["convert", "scale", "search", "predict"]
    assert [command.split()[:2] for command in record["commands"]] == [
        ["bigsvm", name] for name in names
    ]
    assert record["predict"]["accuracy"] > 0.9
    model = KernelExpansion.load(tmp_path / "made" / "model.safetensors")
    assert model.certificate["converged"]
    assert model.provenance["parameters"]["C"] == record["search"]["best_params"]["C"]
    assert len((tmp_path / "made" / "predictions.txt").read_text().split()) == 100
    # What is done is not done again, and other data are refused.
    out, _ = finish(start(*words))
    assert out.count("is there already") == 3
    assert "accuracy" in out
    words = ("easy", texts / "test.libsvm", "--directory", "made", *POINTS)
    assert "has the results of other data" in error_of(*words)


def test_a_step_that_fails_ends_it(texts, tmp_path):
    (tmp_path / "bad.libsvm").write_text("1 1:x\n")
    _, err = finish(start("easy", "bad.libsvm", cwd=tmp_path), code=2)
    assert "bad.libsvm:1" in err


def test_parts_have_their_shares_of_rows_and_labels(tmp_path):
    X, y = two_clouds(400)
    y = np.where(np.arange(400) % 4 == 0, 1.0, -1.0)
    X[:, 0] = np.arange(400)  # tells the rows apart
    write_store(tmp_path / "all.zarr", X, y)
    made = answer(
        "split", tmp_path / "all.zarr", tmp_path / "a.zarr", tmp_path / "b.zarr", "--shares",
        "0.8,0.2",
    )  # fmt: skip
    assert list(made["n_rows"].values()) == pytest.approx([320, 80], abs=2)
    stores = [open_store(tmp_path / name) for name in ("a.zarr", "b.zarr")]
    rows = np.concatenate([store.rows.read(0, store.rows.n_rows)[:, 0] for store in stores])
    labels = np.concatenate([store.labels() for store in stores])
    assert sorted(rows.tolist()) == list(range(400))
    np.testing.assert_array_equal(labels, y[rows.astype(int)])
    assert (stores[1].labels() == 1).sum() == pytest.approx(20, abs=1)
    assert stores[0].rows.is_shuffled
    ended = run_here("split", tmp_path / "all.zarr", *[tmp_path / f"{k}.zarr" for k in "xyz"])
    assert ended.stdout.count(" rows") == 3


@pytest.mark.parametrize("shares", [[0.5, 0.5], [0.1, 0.2, 0.7], [1 / 3] * 3])
def test_each_label_is_dealt_out(shares):
    labels = np.random.default_rng(0).integers(0, 5, 1000).astype(float)
    part = part_numbers(labels, shares, seed=3)
    for label in range(5):
        counts = np.bincount(part[labels == label], minlength=len(shares))
        assert np.abs(counts - np.array(shares) * (labels == label).sum()).max() <= 1
    assert not np.array_equal(part, part_numbers(labels, shares, seed=4))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("a",), "at least two"),
        (("a", "b", "--shares", "0.5,x"), "is not understood"),
        (("a", "b", "--shares", "0.5,0.6"), "add up to 1"),
        (("a", "b", "--shares", "1"), "one for each"),
    ],
)
def test_wrong_parts_are_refused(tmp_path, words, message):
    write_store(tmp_path / "all.zarr", *two_clouds(20))
    assert message in run_here("split", tmp_path / "all.zarr", *words, code=2).stderr
