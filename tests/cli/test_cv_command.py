"""``bigsvm cv`` is scikit-learn's cross-validation, on a store or on text."""

import json

import numpy as np
import pytest
from command_line import answer, finish, run_here, start, two_clouds
from sklearn import svm as peers
from sklearn.model_selection import PredefinedSplit, cross_validate

from bigsvm import open_store, write_store


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """A store of two noisy clouds, shuffled, one in the order of its input, and their arrays."""
    folder = tmp_path_factory.mktemp("cv")
    X, y = two_clouds(300)
    X = X + np.random.default_rng(0).normal(0, 2, X.shape)
    write_store(folder / "x.zarr", X, y)
    write_store(folder / "ordered.zarr", X, y, shuffle=False)
    return folder, X, y


def test_scores_are_those_of_scikit_learn(stores):
    folder, _, _ = stores
    store = open_store(folder / "x.zarr")
    rows, labels = store.rows.read(0, 300), store.labels()
    found = answer(
        "cv", folder / "x.zarr", "--C", 2, "--class-weight", "balanced", "--folds", 4,
        "--scoring", "accuracy", "--scoring", "roc_auc",
    )  # fmt: skip
    expected = cross_validate(
        peers.SVC(C=2, class_weight="balanced"), rows, labels, cv=4,
        scoring=["accuracy", "roc_auc"],
    )  # fmt: skip
    np.testing.assert_allclose(found["test_accuracy"], expected["test_accuracy"])
    np.testing.assert_allclose(found["test_roc_auc"], expected["test_roc_auc"], atol=1e-3)
    assert found["mean_test_accuracy"] == np.mean(found["test_accuracy"])
    assert [fit["converged"] for fit in found["certificate"]] == [True] * 4


def test_folds_of_a_file_are_in_the_order_of_the_input(stores, tmp_path):
    folder, X, y = stores
    numbers = np.arange(300) % 3
    np.savetxt(tmp_path / "folds.txt", numbers, "%d")
    expected = cross_validate(peers.SVC(gamma=0.1), X, y, cv=PredefinedSplit(numbers))
    for name in ("x.zarr", "ordered.zarr"):
        found = answer("cv", folder / name, "--gamma", 0.1, "--folds", tmp_path / "folds.txt")
        np.testing.assert_allclose(found["test_accuracy"], expected["test_score"])


def test_report_has_a_line_for_each_fold(stores):
    folder, _, _ = stores
    ended = run_here("cv", folder / "ordered.zarr", "--folds", 3, "--groups", _groups(folder))
    assert " ± " in ended.stdout
    assert [f"fold {k}" in ended.stdout for k in (1, 2, 3)] == [True] * 3
    assert "fold 3 of 3: accuracy" in ended.stderr


@pytest.mark.parametrize("words", [("cv",), ("cv", "--json"), ("search", "--grid", "C=1,2")])
def test_fits_that_have_not_converged_are_told_on_standard_error(stores, words):
    folder, _, _ = stores
    command, *others = words
    limits = ("--max-time", "0.000001s", "--folds", 2, "--gamma", 0.3)
    ended = run_here(command, folder / "x.zarr", *limits, *others)
    n = 2 if command == "cv" else 4
    told = f"warning: training did not converge in {n} of {n} fits; raise --max-iter or --max-time"
    assert ended.stderr.count(told) == 1


@pytest.mark.parametrize("command", ["cv", "search", "search a model"])
def test_fits_of_no_use_are_told(tmp_path, command):
    write_store(tmp_path / "same.zarr", np.ones((120, 1)), np.repeat([-1, 1], 60))
    words = ("--formulation", "nu-svc", "--folds", 2, "--gamma", 0.01)
    if command == "cv":
        words = (*words, "--nu", 0.9)
    else:
        words = (*words, "--grid", "nu=0.8,0.9")
    model = [tmp_path / "model"] if command == "search a model" else []
    name = command.split()[0]
    said = run_here(name, tmp_path / "same.zarr", *model, *words).stderr
    lines = [line for line in said.splitlines() if "warning: " in line]
    assert len(lines) == 1 + len(model)
    assert "may be of no use, the first because" in lines[0]
    assert ["is less than the share of errors" in line for line in lines] == [True] * len(lines)


def _groups(folder):
    path = folder / "groups.txt"
    np.savetxt(path, np.arange(300) // 10, "%d")
    return path


@pytest.mark.parametrize("command", ["cv", "search"])
def test_a_score_that_there_is_not_is_refused_before_data_are_read(command, tmp_path):
    (tmp_path / "x.libsvm").write_text("no LIBSVM text")
    refused = run_here(command, tmp_path / "x.libsvm", "--scoring", "auc", code=2).stderr
    assert "did you mean roc_auc" in refused


@pytest.mark.slow
def test_killed_it_goes_on_to_the_same_table(many, tmp_path):
    words = ("cv", many / "many.zarr", "--gamma", 3, "--folds", 3, "--json", "--memory", "20MB")
    expected = answer(*words[:-3], "--memory", "20MB")
    arguments = (*words, "--checkpoint", tmp_path / "run")
    child = start(*arguments)
    for line in child.stderr:
        if line.startswith("fold 1 of 3"):
            break
    child.kill()
    child.communicate()
    out, _ = finish(start(*arguments))
    assert json.loads(out)["test_accuracy"] == expected["test_accuracy"]
    refused = run_here(*arguments, "--C", 2, code=2).stderr
    assert "has results of something else: C (1.0, now 2.0)" in refused


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--folds", 1), "at least 2"),
        (("--folds", "nothing"), "nothing cannot be read"),
        (("--scoring", "speed"), "scoring is"),
        (("--formulation", "one-class", "--nu", 0.3, "--scoring", "r"), "scoring is"),
        (("--epsilon", 0.1), "--epsilon is for eps-svr"),
        (("--checkpoint-every", "5s"), "name a --checkpoint"),
    ],
)
def test_what_has_no_meaning_is_refused(stores, words, message):
    folder, _, _ = stores
    assert message in run_here("cv", folder / "x.zarr", *words, code=2).stderr


@pytest.mark.slow
def test_a_store_of_twice_the_budget_takes_no_more_than_the_budget(tmp_path):
    rng, budget = np.random.default_rng(0), 40_000_000
    labels = np.where(rng.random(200_000) < 0.5, 1.0, -1.0)
    X = (rng.normal(size=(200_000, 100)) + 0.35 * labels[:, None]).astype(np.float32)
    write_store(tmp_path / "large.zarr", X, labels)
    write_store(tmp_path / "small.zarr", X[:300], labels[:300])
    assert X.nbytes >= 2 * budget
    del X

    def cross_validated(name):
        out, _ = finish(
            start("cv", name, "--gamma", 0.005, "--memory", budget, "--folds", 3, "--json",
                  cwd=tmp_path)
        )  # fmt: skip
        return json.loads(out)

    small, large = cross_validated("small.zarr"), cross_validated("large.zarr")
    assert large["peak_rss_bytes"] - small["peak_rss_bytes"] < budget
    assert [fit["converged"] for fit in large["certificate"]] == [True] * 3
    assert large["mean_test_accuracy"] > 0.99
