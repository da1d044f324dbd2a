"""Advice: what is said of facts, and which fits are looked at."""

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris, make_moons

import bigsvm
from bigsvm.data.sources import as_row_source
from bigsvm.fit import advice
from bigsvm.fit.advice import Facts, sample_of, sentences
from bigsvm.fit.problem import Given
from bigsvm.parameters import TrainingParameters
from bigsvm.training.events import Hooks

HELD = Facts("classes", C=1e-5, skill=0.0, others=0.4, one_class=True, spread=1e-3)
TARGETS = Facts("targets", C=1.0, skill=0.1, bounded=1.0, spread=3.0, target_spread=80.0)
ALONE = Facts("classes", gamma=9.0, n_rows=99, n_support=99, skill=1.0, alone=0.01, distance=4.0)
SCALED = Facts("classes", skill=0.3, scales="scale them")


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (HELD, "raise C to about 0.02 or more"),
        (HELD._replace(gamma=1e-8, distance=4.0), "raise gamma; 1 / the median squared"),
        (HELD._replace(others=0.02), "balanced"),
        (HELD._replace(C=1.0, spread=3.0), "raise C, or give the classes weights"),
        (TARGETS, "standardise the targets, or raise C to about 8e+01"),
        (TARGETS._replace(C=60.0, gamma=1e-8, distance=4.0), "raise gamma"),
        (TARGETS._replace(n_support=0), "lower epsilon"),
        (ALONE, "lower gamma; 1 / the median squared distance of two support vectors is 0.25"),
        (
            ALONE._replace(kernel="laplacian"),
            "the median sum of differences of two",
        ),
        (ALONE._replace(learns="rows", skill=np.nan), "lower gamma"),
        (SCALED, "scale them"),
        (SCALED._replace(learns="rows", skill=np.nan), "scale them"),
        (Facts("rows", gamma=1e-8, distance=4.0, spread=1e-6), "raise gamma"),
    ],
)
def test_a_remedy_is_named(facts, words):
    [said] = sentences(facts)
    assert words in said


@pytest.mark.parametrize(
    "facts",
    [
        HELD._replace(skill=0.9, one_class=False),
        HELD._replace(C=np.nan),  # of nu, which has another warning
        TARGETS._replace(skill=0.8),
        TARGETS._replace(bounded=0.7),
        TARGETS._replace(C=40.0),
        TARGETS._replace(n_support=0, target_spread=0.0),
        ALONE._replace(alone=0.5),
        ALONE._replace(n_support=50),
        ALONE._replace(distance=0.2),
        SCALED._replace(skill=0.9),
        SCALED._replace(skill=np.nan),
        SCALED._replace(kernel="linear"),
        Facts("classes", C=1.0, gamma=1.0, skill=0.0, spread=0.0, distance=0.0),  # rows are equal
        Facts("targets", C=1e-9, skill=0.0, n_support=0, target_spread=0.0, spread=0.0),
        Facts("rows", gamma=1e-8, distance=4.0, spread=1.0),
        Facts("rows"),
    ],
)
def test_what_is_not_certain_is_not_said(facts):
    assert sentences(facts) == []


def test_no_more_is_said_than_can_be_followed_at_once():
    facts = TARGETS._replace(n_support=0, scales="scale them", n_rows=0, alone=0.01)
    facts = facts._replace(gamma=9.0, distance=4.0)
    assert len(sentences(facts)) == advice.MOST_SENTENCES


def sample(labels, weights=None, **parameters):
    source = as_row_source(np.zeros((len(labels), 2), np.float32))
    return sample_of(Given(source, labels, weights, TrainingParameters(**parameters), Hooks()))


def test_rare_classes_are_in_the_sample():
    labels = np.repeat(["often", "rare", "rarer"], [9960, 30, 10])
    found = sample(labels)
    assert found.frequent == "often"
    assert found.others == 40 / 10_000
    assert set(labels[found.rows]) == set(labels)
    assert (np.diff(found.rows) > 0).all()
    assert advice.RANDOM <= len(found.rows) <= advice.RANDOM + advice.OTHERS


def test_rows_without_weight_are_not_in_the_sample():
    labels, weights = np.tile([0, 1, 2], 100), np.tile([1.0, 0.5, 0.0], 100)
    found = sample(labels, weights)
    assert set(found.truth) == {0, 1}
    assert found.n_rows == 200
    assert found.others == pytest.approx(1 / 3)
    np.testing.assert_array_equal(found.weights, weights[found.rows])


def test_few_rows_are_not_looked_at():
    assert sample(np.arange(49) % 2) is None
    assert sample(np.arange(99) % 2, np.arange(99) % 2 * 1.0) is None


@pytest.fixture
def nothing_is_predicted(monkeypatch):
    def refuse(*_):
        raise AssertionError("a sample was predicted")

    monkeypatch.setattr(advice, "_facts_of", refuse)


@pytest.mark.usefixtures("nothing_is_predicted")
@pytest.mark.parametrize("load", [load_iris, load_digits])
def test_of_a_usual_fit_nothing_is_predicted(load):
    assert bigsvm.SVC().fit(*load(return_X_y=True)).certificate_["advice"] == []


def test_balanced_classes_count_equally(monkeypatch):
    """Their errors are not measured by those of predicting the frequent class everywhere."""
    X, y = make_moons(1000, noise=0.35, random_state=0)
    X, y = np.delete(X, np.flatnonzero(y)[50:], 0), np.delete(y, np.flatnonzero(y)[50:])
    seen, said = [], advice.sentences
    monkeypatch.setattr(advice, "_is_suspicious", lambda *_: True)
    monkeypatch.setattr(advice, "sentences", lambda facts: seen.append(facts) or said(facts))
    bigsvm.SVC(class_weight="balanced").fit(X, y)
    assert seen[0].others == 0.5
    assert seen[0].skill > advice.POOR


@pytest.mark.usefixtures("nothing_is_predicted")
def test_very_many_functions_are_not_looked_at(monkeypatch):
    monkeypatch.setattr(advice, "MOST_VALUES", 45 * advice.RANDOM)
    assert bigsvm.SVC(gamma=9.0).fit(*load_digits(return_X_y=True)).certificate_["advice"] == []


def test_no_row_is_read(tmp_path, monkeypatch):
    X, y = make_moons(5000, noise=0.2, random_state=0)
    store = bigsvm.write_store(tmp_path / "rows.zarr", X, y)
    facts_of = advice._facts_of

    def spied(*given, **known):
        for name in ("read", "take", "lend", "blocks"):
            monkeypatch.setattr(type(store.rows), name, None)
        return facts_of(*given, **known)

    monkeypatch.setattr(advice, "_facts_of", spied)
    with pytest.warns(bigsvm.AdviceWarning, match="lower gamma"):
        bigsvm.SVC(gamma=1e9, memory="10MB").fit(store)


@pytest.mark.usefixtures("nothing_is_predicted")
def test_a_run_that_has_not_converged_gets_no_advice():
    X, y = make_moons(2000, noise=0.4, random_state=0)
    with pytest.warns(match="did not converge"):
        model = bigsvm.SVC(C=1e-6, max_iter=1).fit(X, y)
    assert model.certificate_["advice"] == []
