"""Crammer and Singer's machine on real data of many classes, within its budget."""

import json

import numpy as np
import pytest
from command_line import finish, start
from sklearn.datasets import load_svmlight_file
from sklearn.svm import LinearSVC

import bigsvm
from bigsvm.budget import parse_bytes


def read(real, name):
    X, y = load_svmlight_file(str(real(name)))
    return X.toarray(), y


@pytest.mark.parametrize("name", ["vowel.scale", "glass.scale", "satimage.scale"])
def test_the_linear_machine_is_liblinears(real, name):
    X, y = read(real, name)
    options = {"C": 0.1, "fit_intercept": False}
    ours = bigsvm.CrammerSingerSVC(kernel="linear", tol=1e-5, **options).fit(X, y)
    peer = LinearSVC(
        multi_class="crammer_singer", tol=1e-7, max_iter=10**6, random_state=0, **options
    ).fit(X, y)
    expected = peer.coef_ - peer.coef_.mean(axis=0)
    np.testing.assert_allclose(ours.coef_, expected, atol=5e-3 * np.abs(expected).max())
    sure = np.ptp(np.sort(peer.decision_function(X))[:, -2:], axis=1) > 0.01
    assert sure.mean() > 0.8
    np.testing.assert_array_equal(ours.predict(X)[sure], peer.predict(X)[sure])


def train(store, model, memory):
    """Train in a process of its own; what it says of itself."""
    options = ("--formulation", "crammer-singer", "--C", "10", "--gamma", "2", "--tol", "0.01")
    out, _ = finish(start("train", store, model, *options, "--memory", memory, "--json", "--quiet"))
    return json.loads(out)


@pytest.mark.slow
def test_26_classes_keep_to_their_budget(real, tmp_path):
    """Of memory that the interpreter and its libraries do not take in a run on few rows."""
    memory = "48MB"
    X, y = read(real, "letter.scale")
    few = np.concatenate([np.flatnonzero(y == label)[:4] for label in np.unique(y)])
    bigsvm.write_store(tmp_path / "few.zarr", X[few], y[few])
    bigsvm.write_store(tmp_path / "s.zarr", X[:8000], y[:8000])
    train(tmp_path / "s.zarr", tmp_path / "compiled", memory)  # a compiler is not in the budget
    idle = train(tmp_path / "few.zarr", tmp_path / "few", memory)["peak_rss_bytes"]
    record = train(tmp_path / "s.zarr", tmp_path / "m", memory)
    assert record["converged"]
    assert len(record["classes"]) == 26
    assert record["peak_rss_bytes"] - idle <= parse_bytes(memory)
    model = bigsvm.KernelExpansion.load(tmp_path / "m")
    store = bigsvm.write_store(tmp_path / "t.zarr", *read(real, "letter.scale.t"))
    found = np.asarray(model.classes)[model.decide(store.rows)]
    assert (found == store.labels()).mean() > 0.95
