"""Cross-validation is scikit-learn's, on the same folds."""

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import svm as peers
from sklearn.base import clone
from sklearn.datasets import make_blobs, make_classification
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    ShuffleSplit,
    StratifiedKFold,
    cross_validate,
)

import bigsvm
from bigsvm.errors import BigsvmError, CheckpointError, DataError, ParameterError

X, Y = make_classification(240, 6, weights=[0.7], flip_y=0.1, random_state=1)
X3, Y3 = make_blobs(150, centers=3, cluster_std=4.0, random_state=0)
TARGETS = X[:, 0] - X[:, 1]
GROUPS = np.arange(240) // 7


@pytest.mark.parametrize("name", ["SVC", "NuSVC", "SVR", "NuSVR"])
@pytest.mark.parametrize("cv", [3, KFold(4, shuffle=True, random_state=0), ShuffleSplit(3)])
def test_scores_are_those_of_scikit_learn(name, cv):
    """gamma="scale" and balanced weights depend on the training rows of each fold."""
    if isinstance(cv, ShuffleSplit):
        cv = ShuffleSplit(3, train_size=100, test_size=60, random_state=0)
    options = {"SVC": {"class_weight": "balanced"}, "NuSVC": {"nu": 0.3}}.get(name, {})
    y = TARGETS if "SVR" in name else Y
    found = bigsvm.cross_validate(
        getattr(bigsvm, name)(tol=1e-5, **options), X, y, cv=cv, return_train_score=True
    )
    expected = cross_validate(
        getattr(peers, name)(tol=1e-5, **options), X, y, cv=cv, return_train_score=True
    )
    for key in ("test_score", "train_score"):
        np.testing.assert_allclose(found[key], expected[key], atol=1e-4 if "SVR" in name else 1e-9)
    assert found["mean_test_score"] == found["test_score"].mean()
    assert all(certificate["converged"] for certificate in found["certificate"])


@pytest.mark.parametrize("kind", ["path", "store", "dask", "csr", "frame"])
def test_containers_have_the_same_scores(kind, tmp_path):
    store = bigsvm.write_store(tmp_path / "x.zarr", X, Y, shuffle=False)
    rows = {
        "path": str(tmp_path / "x.zarr"), "store": store, "dask": da.from_array(X, chunks=(100, 6)),
        "csr": sp.csr_array(X), "frame": pytest.importorskip("pandas").DataFrame(X),
    }[kind]  # fmt: skip
    y = None if kind in ("path", "store") else Y
    expected = cross_validate(peers.SVC(), X, Y, cv=3)["test_score"]
    found = bigsvm.cross_validate(bigsvm.SVC(), rows, y, cv=3)["test_score"]
    np.testing.assert_allclose(found, expected)


def test_many_classes_and_several_scores():
    scoring = ["accuracy", "f1_macro"]
    found = bigsvm.cross_validate(bigsvm.SVC(), X3, Y3, scoring=scoring, return_estimator=True)
    expected = cross_validate(peers.SVC(), X3, Y3, scoring=scoring)
    for name in scoring:
        np.testing.assert_allclose(found[f"test_{name}"], expected[f"test_{name}"])
    assert [fitted.n_features_in_ for fitted in found["estimator"]] == [2] * 5


def test_decision_values_are_scored():
    found = bigsvm.cross_validate(bigsvm.SVC(tol=1e-6), X, Y, scoring="roc_auc")
    expected = cross_validate(peers.SVC(tol=1e-6), X, Y, scoring="roc_auc")
    np.testing.assert_allclose(found["test_score"], expected["test_score"], atol=1e-4)


def test_folds_by_group_and_by_number():
    by_group = cross_validate(peers.SVC(), X, Y, cv=GroupKFold(4), groups=GROUPS)["test_score"]
    for cv in (4, GroupKFold(4)):
        found = bigsvm.cross_validate(bigsvm.SVC(), X, Y, cv=cv, groups=GROUPS)
        np.testing.assert_allclose(found["test_score"], by_group)
    numbers = np.full(240, -1)
    pairs = list(StratifiedKFold(3).split(X, Y))
    for number, (_, test) in enumerate(pairs):
        numbers[test] = number
    expected = cross_validate(peers.SVC(), X, Y, cv=3)["test_score"]
    for cv in (numbers, list(numbers), pairs):
        np.testing.assert_allclose(
            bigsvm.cross_validate(bigsvm.SVC(), X, Y, cv=cv)["test_score"], expected
        )


def test_numbers_and_groups_of_a_shuffled_store_have_an_order(tmp_path):
    store = bigsvm.write_store(tmp_path / "x.zarr", X, Y)
    numbers = np.arange(240) % 3
    expected = bigsvm.cross_validate(bigsvm.SVC(), X, Y, cv=numbers)["test_score"]
    for folds in (
        {"cv": store.row_values(numbers, order="input")},
        {"cv": 3, "groups": store.row_values(numbers, order="input")},
        {"cv": numbers, "y_order": "input"},
        {"cv": 3, "groups": numbers, "y_order": "input"},
    ):
        found = bigsvm.cross_validate(bigsvm.SVC(), store, **folds)["test_score"]
        np.testing.assert_allclose(np.sort(found), np.sort(expected))
    for folds in ({"cv": numbers}, {"groups": numbers}):
        with pytest.raises(DataError, match="is given beside a shuffled store"):
            bigsvm.cross_validate(bigsvm.SVC(), store, **folds)


def test_a_class_that_is_absent_of_a_fold_is_not_trained():
    order = np.argsort(Y3, kind="stable")
    found = bigsvm.cross_validate(bigsvm.SVC(), X3[order], Y3[order], cv=KFold(3))
    expected = cross_validate(peers.SVC(), X3[order], Y3[order], cv=KFold(3))
    np.testing.assert_array_equal(found["test_score"], expected["test_score"])


def test_rows_of_weight_0_are_not_there():
    weights = np.random.default_rng(0).integers(0, 3, 240).astype(float)
    found = bigsvm.cross_validate(bigsvm.SVC(tol=1e-6), X, Y, sample_weight=weights)
    there = weights > 0
    expected = cross_validate(
        peers.SVC(tol=1e-6), X[there], Y[there], params={"sample_weight": weights[there]}
    )
    # scikit-learn's gamma="scale" takes no account of weights.
    assert found["test_score"].shape == expected["test_score"].shape
    plain = bigsvm.cross_validate(
        bigsvm.SVC(tol=1e-6), X[there], Y[there], sample_weight=weights[there]
    )
    np.testing.assert_array_equal(found["test_score"], plain["test_score"])


def test_one_class_is_compared_with_labels():
    labels = np.where(Y == 1, 1, -1)
    options = {"cv": KFold(3), "scoring": "accuracy"}
    found = bigsvm.cross_validate(bigsvm.OneClassSVM(nu=0.3, tol=1e-6), X, labels, **options)
    expected = cross_validate(peers.OneClassSVM(nu=0.3, tol=1e-6), X, labels, **options)
    np.testing.assert_allclose(found["test_score"], expected["test_score"], atol=0.02)
    with pytest.raises(ParameterError, match="scoring is None"):
        bigsvm.cross_validate(bigsvm.L2OneClassSVM(), X, labels)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cv": 1}, "makes no folds"),
        ({"cv": 241}, "makes no folds"),
        ({"cv": np.zeros(240, int)}, "fold 0 has no rows to train on"),
        ({"cv": np.zeros(7, int)}, "7 fold numbers"),
        ({"cv": np.full(240, 0.5)}, "whole numbers"),
        ({"groups": GROUPS[:-1]}, "groups has 239 values"),
        ({"scoring": "speed"}, "scoring is 'speed'"),
        ({"estimator": peers.SVC()}, "must be one of bigsvm's"),
        ({"estimator": bigsvm.SVC(checkpoint="run")}, "has a checkpoint"),
        ({"estimator": bigsvm.SVC(memory=5000)}, "labels, weights and folds of 240 rows"),
        ({"y": np.zeros(240)}, "one class only"),
    ],
)
def test_what_has_no_meaning_is_refused(changes, message):
    given = {"estimator": bigsvm.SVC(), "X": X, "y": Y, **changes}
    with pytest.raises(BigsvmError, match=message):
        bigsvm.cross_validate(**given)


def test_finished_folds_are_taken_from_the_checkpoint(tmp_path, monkeypatch):
    estimator, folder = bigsvm.SVC(class_weight="balanced"), tmp_path / "cv"
    expected = bigsvm.cross_validate(estimator, X, Y, return_train_score=True)
    fit_rows, left = bigsvm.SVC._fit_rows, iter(range(2))

    def two_fits(self, *arguments):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return fit_rows(self, *arguments)

    monkeypatch.setattr(bigsvm.SVC, "_fit_rows", two_fits)
    options = {"return_train_score": True, "checkpoint": folder}
    with pytest.raises(KeyboardInterrupt):
        bigsvm.cross_validate(estimator, X, Y, **options)
    left = iter(range(3))
    found = bigsvm.cross_validate(estimator, X, Y, **options)
    again = bigsvm.cross_validate(estimator, X, Y, **options)  # without a fit
    for name in ("test_score", "train_score"):
        np.testing.assert_array_equal(found[name], expected[name])
        np.testing.assert_array_equal(again[name], expected[name])
    np.testing.assert_array_equal(again["fit_time"], found["fit_time"])
    assert not list((folder / "runs").iterdir())
    for changes in ({"C": 2.0}, {"tol": 1e-4}):
        with pytest.raises(CheckpointError, match=next(iter(changes))):
            bigsvm.cross_validate(clone(estimator).set_params(**changes), X, Y, **options)
    with pytest.raises(CheckpointError, match="data"):
        bigsvm.cross_validate(estimator, X + 1, Y, **options)
    damaged = next((folder / "fits").iterdir())
    damaged.write_text(damaged.read_text().replace("0.", "1.", 1))
    with pytest.raises(CheckpointError, match="is damaged"):
        bigsvm.cross_validate(estimator, X, Y, **options)


def named_score(estimator, X, y):
    return float((np.asarray(estimator.predict(X)) == y).mean())


def test_a_function_that_scores_has_the_same_name_in_each_process(tmp_path):
    options = {"scoring": {"own": named_score}, "checkpoint": tmp_path / "run", "cv": 2}
    bigsvm.cross_validate(bigsvm.SVC(), X, Y, **options)
    belongs_to = (tmp_path / "run" / "selection.json").read_text()
    assert "named_score" in belongs_to
    assert " at 0x" not in belongs_to
