"""``bigsvm search`` finds what scikit-learn's GridSearchCV finds."""

import json
import shlex
import signal
import time

import numpy as np
import pytest
from command_line import answer, finish, run_here, start, two_clouds
from sklearn import svm as peers
from sklearn.model_selection import GridSearchCV
from support.resuming import newest_file

from bigsvm import KernelExpansion, open_store, write_store

EXPONENTS = ("--log2-C", "-2,2,2", "--log2-gamma", "-3,-1,2", "--folds", 3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search")
    X, y = two_clouds(300)
    write_store(folder / "x.zarr", X + np.random.default_rng(0).normal(0, 2, X.shape), y)
    return folder


def test_it_finds_the_best_and_trains_it(folder, tmp_path):
    store, model = open_store(folder / "x.zarr"), tmp_path / "model"
    found = answer("search", folder / "x.zarr", model, *EXPONENTS)
    grid = {"C": [0.25, 1.0, 4.0], "gamma": [0.125, 0.5]}
    expected = GridSearchCV(peers.SVC(), grid, cv=3).fit(store.rows.read(0, 300), store.labels())
    np.testing.assert_allclose(
        found["results"]["mean_test_accuracy"], expected.cv_results_["mean_test_score"]
    )
    assert found["best_params"] == expected.best_params_
    trained = KernelExpansion.load(model)
    assert trained.provenance["parameters"]["C"] == expected.best_params_["C"]
    # The command that is shown trains the same model.
    program, *words = shlex.split(found["train"])
    assert (program, words[0]) == ("bigsvm", "train")
    run_here(*words)
    again = KernelExpansion.load(model)
    np.testing.assert_array_equal(again.support, trained.support)
    assert again.certificate["objective"] == pytest.approx(trained.certificate["objective"])


def test_report_begins_with_the_best(folder, tmp_path):
    words = ("search", folder / "x.zarr", *EXPONENTS, "--checkpoint", tmp_path / "run")
    ended = run_here(*words, "--class-weight", "balanced")
    assert ended.stdout.startswith("best ")
    assert "\n1. " in ended.stdout
    assert "--class-weight balanced" in ended.stdout
    assert "fit 18: " in ended.stderr
    again = run_here(*words, "--class-weight", "balanced")
    for one, other in zip(ended.stdout.splitlines(), again.stdout.splitlines(), strict=True):
        assert one == other or one.startswith(("took", "peak memory"))


def test_other_parameters_are_searched(folder):
    found = answer(
        "search", folder / "x.zarr", "--formulation", "nu-svc", "--gamma", 0.5, "--grid",
        "nu=0.2,0.3", "--grid", "kernel=rbf,laplacian", "--folds", 2, "--halving", 2,
    )  # fmt: skip
    assert found["results"]["param_nu"] == [0.2, 0.3, 0.2, 0.3]
    assert set(found["best_params"]) == {"nu", "kernel"}


def test_the_scores_are_drawn(folder, tmp_path):
    pytest.importorskip("matplotlib")
    from matplotlib.image import imread

    path = tmp_path / "grid.png"
    run_here("search", folder / "x.zarr", *EXPONENTS, "--picture", path)
    assert len(np.unique(imread(path).reshape(-1, 4), axis=0)) > 50


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--log2-C", "1,2"), "write BEGIN,END,STEP"),
        (("--log2-C", "1,2,-1"), "write BEGIN,END,STEP"),
        (("--log2-C", "1,2,1", "--C", 3), "--C is one value"),
        (("--grid", "C=1,x"), "'x' is not a number"),
        (("--grid", "memory=1"), "is not understood"),
        (("--grid", "C=1,2", "--log2-C", "1,2,1"), "both list values"),
        (("--kernel", "linear", "--log2-gamma", "1,2,1"), "gamma is searched"),
        (("--picture", "x.txt"), "must end in"),
        (("--halving", 1), "halving"),
    ],
)
def test_what_has_no_meaning_is_refused(folder, words, message):
    assert message in run_here("search", folder / "x.zarr", *words, code=2).stderr


@pytest.mark.slow
def test_killed_ten_times_it_has_the_same_table(folder, tmp_path):
    X, y = two_clouds(12000)
    write_store(tmp_path / "x.zarr", X + np.random.default_rng(0).normal(0, 2, X.shape), y)
    words = ("search", tmp_path / "x.zarr", *EXPONENTS, "--halving", 2, "--json")
    expected = json.loads(finish(start(*words))[0])["results"]
    rng = np.random.default_rng(1)
    words = (*words, "--checkpoint", tmp_path / "run", "--checkpoint-every", "0.2s")
    killed = 0
    for _ in range(10):
        written = newest_file(tmp_path / "run")
        child = start(*words)
        while child.poll() is None and newest_file(tmp_path / "run") == written:
            time.sleep(0.002)
        if killed >= 2:  # the first ones at once: they have not ended
            time.sleep(rng.uniform(0, 0.3))
        child.kill()
        child.communicate()
        killed += child.returncode == -signal.SIGKILL
    assert killed >= 2
    found = json.loads(finish(start(*words))[0])["results"]
    for name, values in expected.items():
        assert found[name] == values or "time" in name
