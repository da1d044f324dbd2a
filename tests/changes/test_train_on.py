"""Fits that start from a model of the store before it was changed: the same optimum, in less."""

import numpy as np
import pytest
from command_line import answer, run_here
from sklearn.datasets import dump_svmlight_file

import bigsvm
from bigsvm.changes.start import continued
from bigsvm.errors import DataError, ParameterError

N, MORE = 1500, 150


def make_rows(kind="classes", seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N + MORE, 4))
    value = np.sin(X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.standard_normal(len(X))
    return X, (value > 0.8).astype(float) if kind == "classes" else value


ESTIMATORS = {
    "SVC": (bigsvm.SVC, {}, "classes"),
    "squared hinge": (bigsvm.SVC, {"loss": "squared_hinge"}, "classes"),
    "NuSVC": (bigsvm.NuSVC, {"nu": 0.2}, "classes"),
    "SVR": (bigsvm.SVR, {"epsilon": 0.05}, "values"),
    "OneClassSVM": (bigsvm.OneClassSVM, {"nu": 0.1}, "classes"),
    "CrammerSingerSVC": (bigsvm.CrammerSingerSVC, {}, "classes"),
    "L2SVC": (bigsvm.L2SVC, {}, "classes"),
}


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("memory", ["1GB", "12MB"])
def test_the_larger_store_is_trained_to_the_same_optimum(tmp_path, name, memory):
    kind, given, target = ESTIMATORS[name]
    X, y = make_rows(target)
    store = bigsvm.write_store(tmp_path / "s", X[:N], y[:N])
    options = {"gamma": 0.5, "tol": 1e-4, "memory": memory, **given}
    model = kind(**options, warm_start=True).fit(store)
    fresh_steps = model.n_iter_
    larger = bigsvm.append(store, X[N:], y[N:])
    model.fit(larger)
    fresh = kind(**options).fit(bigsvm.write_store(tmp_path / "whole", X, y))
    for fit in (model, kind(**options).fit(larger)):
        assert fit.converged_
        assert fit.objective_ == pytest.approx(fresh.objective_, rel=1e-3)
    assert np.sum(model.n_iter_) < np.sum(fresh.n_iter_)
    assert np.sum(fresh_steps) > 0
    assert model.shape_fit_ == (N + MORE, 4)
    # Support vectors are numbered as rows of the larger store.
    rows = larger.rows.take(model.support_)
    np.testing.assert_array_equal(model.support_vectors_, rows)


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_a_store_without_some_rows_starts_where_its_model_was(tmp_path, layout):
    X, y = make_rows()
    store = bigsvm.write_store(tmp_path / "s", X, y, layout=layout)
    model = bigsvm.SVC(gamma=0.5, tol=1e-4, warm_start=True).fit(store)
    dropped = np.random.default_rng(1).choice(len(X), 40, replace=False)
    smaller = bigsvm.drop(store, dropped, tmp_path / "smaller")
    numbers = store.original_rows()[model.support_]
    found = smaller.original_rows()[continued(model.model_, smaller).support]
    model.fit(smaller)
    kept = np.delete(np.arange(len(X)), dropped)
    fresh = bigsvm.SVC(gamma=0.5, tol=1e-4).fit(
        bigsvm.write_store(tmp_path / "fresh", X[kept], y[kept])
    )
    assert model.converged_
    assert model.objective_ == pytest.approx(fresh.objective_, rel=1e-4)
    assert np.sum(model.n_iter_) < np.sum(fresh.n_iter_)
    np.testing.assert_array_equal(np.sort(kept[found]), np.setdiff1d(numbers, dropped))


def test_support_vectors_are_found_in_rows_of_any_order(tmp_path):
    X, y = make_rows()
    X[5] = X[3] = X[700]  # one in two classes or twice in one is a row of its own
    store = bigsvm.write_store(tmp_path / "a", X, y)
    model = bigsvm.SVC(gamma=0.5).fit(store).model_
    other = bigsvm.write_store(tmp_path / "b", X[:-1], y[:-1], seed=9)
    found = continued(model, other)
    assert len(set(found.support.tolist())) == len(found.support) >= len(model.support) - 1
    np.testing.assert_array_equal(found.support_vectors, other.rows.take(found.support))
    assert found.provenance["n_rows"] == len(other)


def test_models_of_other_rows_are_refused(tmp_path):
    X, y = make_rows()
    model = bigsvm.SVC(gamma=0.5, warm_start=True).fit(bigsvm.write_store(tmp_path / "s", X, y))
    other = bigsvm.write_store(tmp_path / "other", X[:200] + 1, y[:200])
    with pytest.raises(DataError, match=r"none of its support vectors is a row of .*other"):
        model.fit(other)
    with pytest.raises(DataError, match="was trained on 1650 rows, not 200"):
        model.fit(X[:200], y[:200])


def test_appended_rows_that_are_other_ones_are_seen(tmp_path):
    """Another store of as many rows is not the one before, though its rows may be found."""
    X, y = make_rows()
    model = bigsvm.SVC(gamma=0.5).fit(bigsvm.write_store(tmp_path / "a", X[:N], y[:N])).model_
    bigsvm.write_store(tmp_path / "b", X[:N] + 5, y[:N])
    larger = bigsvm.append(tmp_path / "b", X[N:], y[N:])
    with pytest.raises(DataError, match="was trained on other rows"):
        continued(model, larger)


def test_a_new_class_needs_a_new_start(tmp_path):
    X, y = make_rows()
    store = bigsvm.write_store(tmp_path / "s", X[:N], y[:N])
    model = bigsvm.SVC(gamma=0.5, warm_start=True).fit(store)
    larger = bigsvm.append(store, X[N:], y[N:] + 2)
    with pytest.raises(ParameterError, match="warm_start is True, which is for two classes"):
        model.fit(larger)
    assert bigsvm.SVC(gamma=0.5).fit(larger).converged_


def test_weights_and_rows_streamed_from_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr("bigsvm.budget.HELD_SHARE", 0.0)
    X, y = make_rows()
    w = np.random.default_rng(2).uniform(0.5, 2, len(X))
    store = bigsvm.write_store(tmp_path / "s", X[:N], y[:N], w[:N])
    model = bigsvm.SVC(gamma=0.5, tol=1e-4, warm_start=True).fit(store)
    larger = bigsvm.append(store, X[N:], y[N:], w[N:])
    model.fit(larger)
    fresh = bigsvm.SVC(gamma=0.5, tol=1e-4).fit(X, y, w)
    anew = bigsvm.SVC(gamma=0.5, tol=1e-4).fit(larger)
    assert model.converged_ and anew.converged_  # noqa: PT018
    for fit in (model, anew):
        assert fit.objective_ == pytest.approx(fresh.objective_, rel=1e-4)


# -- the commands --------------------------------------------------------------------------------


def save_text(path, X, y):
    dump_svmlight_file(X, y, str(path), zero_based=False)
    return path


TRAIN = ("--gamma", "0.5", "--tol", "1e-4")


def test_append_train_and_drop_as_commands(tmp_path):
    X, y = make_rows()
    store, new = tmp_path / "s", save_text(tmp_path / "new", X[N:], y[N:])
    run_here("convert", save_text(tmp_path / "old", X[:N], y[:N]), store)
    before = answer("train", store, tmp_path / "m", *TRAIN)
    record = answer("append", store, new)
    assert (record["n_rows"], record["appended_from"]) == (N + MORE, [N])
    assert "rows from 1 500 on were appended" in run_here("info", store).stdout
    fresh = answer("train", store, tmp_path / "fresh", *TRAIN)
    after = answer("train", store, tmp_path / "m2", *TRAIN, "--start", tmp_path / "m")
    assert after["converged"]
    assert after["objective"] == pytest.approx(fresh["objective"], rel=1e-4)
    assert after["n_iter"] < 0.8 * fresh["n_iter"]
    assert before["n_rows"] == N
    (tmp_path / "rows").write_text("5-9\n0, 17\n")
    assert answer("drop", store, tmp_path / "rows", tmp_path / "d")["n_rows"] == N + MORE - 7
    assert answer("drop", store, "5-9,0,17", tmp_path / "e")["n_rows"] == N + MORE - 7
    assert (
        answer("info", tmp_path / "d")["fingerprint"]
        == answer("info", tmp_path / "e")["fingerprint"]
    )
    smaller = answer("train", tmp_path / "d", tmp_path / "m3", *TRAIN, "--start", tmp_path / "m2")
    assert smaller["converged"]


@pytest.mark.parametrize("words", ["1-", "x", "1.5", "-3", "9-5", "1650", "0-99999999999", ""])
def test_words_that_are_no_rows(tmp_path, words):
    X, y = make_rows()
    bigsvm.write_store(tmp_path / "s", X, y)
    (tmp_path / "rows").write_text(words)
    ended = run_here("drop", tmp_path / "s", tmp_path / "rows", tmp_path / "d", code=2)
    assert f"rows: {words!r} is no row from 0 to 1649" in ended.stderr
    assert not (tmp_path / "d").exists()


def test_options_that_mean_nothing(tmp_path):
    X, y = make_rows()
    bigsvm.write_store(tmp_path / "s", X, y)
    ended = run_here("append", tmp_path / "s", tmp_path / "s", "--zero-based", "yes", code=2)
    assert "No such option: --zero-based" in ended.stderr
    ended = run_here("train", "--resume", tmp_path / "run", "--start", tmp_path / "m", code=2)
    assert "--resume needs neither" in ended.stderr
    run_here("train", tmp_path / "s", tmp_path / "m")
    ended = run_here("train", tmp_path / "s", tmp_path / "m", "--start", tmp_path / "m", code=2)
    assert "is part of the input, so it is not replaced; give another MODEL" in ended.stderr


def test_a_run_that_started_from_a_model_is_resumed(tmp_path):
    X, y = make_rows()
    bigsvm.write_store(tmp_path / "s", X[:N], y[:N])
    run_here("train", tmp_path / "s", tmp_path / "m", *TRAIN)
    bigsvm.append(tmp_path / "s", X[N:], y[N:])
    fresh = answer("train", tmp_path / "s", tmp_path / "m1", *TRAIN)
    options = ("--start", tmp_path / "m", "--checkpoint", tmp_path / "run", "--max-iter", "20")
    stopped = answer("train", tmp_path / "s", tmp_path / "m2", *TRAIN, *options)
    assert not stopped["converged"]
    ended = answer("train", "--resume", tmp_path / "run", "--max-iter", "-1")
    assert ended["converged"]
    assert ended["objective"] == pytest.approx(fresh["objective"], rel=1e-4)
