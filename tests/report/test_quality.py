"""Measures of predictions, beside scikit-learn's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics

from bigsvm.report.quality import (
    MOST_IN_MATRIX,
    MOST_LISTED,
    ProbabilityScore,
    area_under_curve,
    codes_of,
    confusion_text,
    of_classes,
    of_targets,
    quality_lines,
)


@pytest.fixture
def predicted():
    rng = np.random.default_rng(0)
    true = rng.integers(0, 4, 300)
    return np.where(rng.random(300) < 0.7, true, rng.integers(0, 4, 300)), true


def test_labels_become_places_of_classes():
    labels = np.array([3.0, -1.0, 7.0, 0.5])
    assert codes_of(labels, [7, -1, 3]).tolist() == [2, 1, 0, -1]
    assert codes_of(np.array(["b", "c"]), ["a", "b"]).tolist() == [1, -1]
    assert codes_of(labels, [8.0, 9.0]) is None
    assert codes_of(labels, ["a", "b"]) is None
    assert codes_of(np.array(["a"]), [1.0]) is None


def test_accuracy_and_confusion_are_scikit_learns(predicted):
    codes, true = predicted
    record = of_classes(codes, true, [5.0, 6.0, 7.0, 8.0])
    assert record["accuracy"] == metrics.accuracy_score(true, codes)
    assert record["confusion"] == metrics.confusion_matrix(true, codes).tolist()
    recall = metrics.recall_score(true, codes, average=None)
    assert [each["accuracy"] for each in record["classes"]] == pytest.approx(recall.tolist())
    assert [each["n_rows"] for each in record["classes"]] == np.bincount(true).tolist()
    assert record["n_correct"] == (codes == true).sum()


def test_labels_that_are_no_class_count_as_wrong(predicted):
    codes, true = predicted
    true = np.where(true == 3, -1, true)
    record = of_classes(codes, true, [5.0, 6.0, 7.0, 8.0])
    assert record["accuracy"] == (codes == true).mean()
    assert record["n_other_labels"] == (true == -1).sum()
    assert record["classes"][3] == {"label": 8.0, "n_rows": 0, "accuracy": None}


def test_very_many_classes_have_no_matrix():
    codes, names = np.arange(MOST_IN_MATRIX + 1), list(range(MOST_IN_MATRIX + 1))
    assert of_classes(codes, codes, names)["confusion"] is None
    record = {"n_rows": len(codes), **of_classes(codes, codes, names)}
    assert [name for name, _ in quality_lines(record)] == ["accuracy"]
    assert confusion_text(record) is None


@given(st.lists(st.tuples(st.sampled_from([-2.0, -1.0, 0.0, 0.5, 3.0]), st.booleans()), min_size=2))
def test_area_under_curve_is_scikit_learns_with_equal_values(rows):
    values, positive = np.array([v for v, _ in rows]), np.array([p for _, p in rows])
    found = area_under_curve(values, positive)
    if positive.all() or not positive.any():
        assert found is None
    else:
        assert found == pytest.approx(metrics.roc_auc_score(positive, values))


def test_log_loss_and_brier_score_are_scikit_learns(predicted):
    _, true = predicted
    probabilities = np.random.default_rng(1).dirichlet(np.ones(4), 300)
    probabilities[0] = np.eye(4)[(true[0] + 1) % 4]  # a true class of probability 0
    score = ProbabilityScore()
    for part in (slice(0, 100), slice(100, 300)):
        score.add(probabilities[part], true[part])
    score.add(probabilities[:5], np.full(5, -1))
    record = score.record()
    assert record["log_loss"] == pytest.approx(metrics.log_loss(true, probabilities))
    expected = ((probabilities - np.eye(4)[true]) ** 2).sum(axis=1).mean()
    assert record["brier_score"] == pytest.approx(expected)
    assert ProbabilityScore().record() == {"log_loss": None, "brier_score": None}


def test_targets_are_compared_as_by_scikit_learn():
    rng = np.random.default_rng(0)
    values, targets = rng.normal(size=(2, 50))
    record = of_targets(values, targets)
    assert record["r2"] == pytest.approx(metrics.r2_score(targets, values))
    error = metrics.mean_squared_error(targets, values)
    assert record["mean_squared_error"] == pytest.approx(error)
    assert of_targets(values, np.ones(50))["r2"] is None


def test_a_person_sees_each_of_few_classes_and_a_matrix(predicted):
    codes, true = predicted
    record = {"n_rows": 300, "auc": None, "log_loss": 0.25, **of_classes(codes, true, [5, 6, 7, 8])}
    shown = dict(quality_lines(record))
    assert shown["  of class 5"].endswith(f"of {np.bincount(true)[0]}")
    assert shown["log loss"] == "0.25"
    assert "AUC" not in shown
    rows = [line.split() for line in confusion_text(record).splitlines()]
    assert rows[0] == ["label", "\\", "predicted", "5", "6", "7", "8"]
    assert rows[1] == ["5", *map(str, record["confusion"][0])]
    assert len(rows) == 5 <= MOST_LISTED
