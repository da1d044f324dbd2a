"""Advice of fits: what is wrong with bad ones, and nothing about good ones."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import make_moons

import bigsvm
from bigsvm.errors import ModelError
from bigsvm.fit import advice, folds_in_one_run
from tools.benchmarks.suites.advice import BAD, GOOD, make

MOONS, LABELS = make_moons(300, noise=0.2, random_state=0)
LABELS = np.where(np.arange(300) % 6 == 0, 0, LABELS)  # so that classes are not of one size
TARGETS = 1e5 * np.sin(2 * MOONS[:, 0])
OF_SKLEARN = [name for name, bad in BAD.items() if not bad.fit.is_real]


@pytest.fixture(params=["array", "store"])
def store(request, tmp_path):
    """Where the rows of a fit are written to; None where they stay in memory."""
    return tmp_path / "rows.zarr" if request.param == "store" else None


@pytest.mark.parametrize("name", OF_SKLEARN)
def test_bad_fits_are_told_what_is_wrong(name, store):
    [said] = make(BAD[name].fit, store).advice
    assert BAD[name].words in said


@pytest.mark.parametrize("name", OF_SKLEARN)
def test_fits_that_follow_their_advice_are_told_nothing(name, store):
    assert make(BAD[name].fit._replace(**BAD[name].change), store).advice == []


@pytest.mark.parametrize("name", [name for name, fit in GOOD.items() if not fit.is_real])
def test_good_fits_are_told_nothing(name, store):
    assert make(GOOD[name], store).advice == []


@pytest.mark.parametrize(
    ("estimator", "y", "words"),
    [
        (bigsvm.SVC(C=1e-6), LABELS, "raise C"),
        (bigsvm.L2SVC(C=1e-6), LABELS, "raise C"),
        (bigsvm.SVC(gamma=1e6, loss="squared_hinge"), LABELS, "lower gamma"),
        (bigsvm.NuSVC(gamma=1e6), LABELS, "lower gamma"),
        (bigsvm.SVC(gamma=1e6, kernel="laplacian"), np.arange(300) % 3, "lower gamma"),
        (bigsvm.SVC(gamma=1e6, multiclass="ovr"), np.arange(300) % 3, "lower gamma"),
        (bigsvm.CrammerSingerSVC(gamma=1e6), np.arange(300) % 3, "lower gamma"),
        (bigsvm.SVR(), TARGETS, "standardise the targets"),
        (bigsvm.NuSVR(), TARGETS, "standardise the targets"),
        (bigsvm.SVR(epsilon=3e5), TARGETS, "lower epsilon"),
        (bigsvm.OneClassSVM(gamma=1e-9), None, "raise gamma"),
        (bigsvm.L2OneClassSVM(gamma=1e6), None, "lower gamma"),
    ],
)  # fmt: skip
def test_a_fit_warns_once(estimator, y, words):
    with pytest.warns(bigsvm.AdviceWarning, match=words) as told:
        estimator.fit(MOONS, y)
    assert len(told) == 1
    assert "; ".join(estimator.certificate_["advice"]) == str(told[0].message)


def test_labels_of_words_and_weights_of_rows():
    words = np.where(LABELS == 1, "yes", "no")
    with pytest.warns(bigsvm.AdviceWarning, match="raise C"):
        bigsvm.SVC(C=1e-6).fit(MOONS, words, sample_weight=1.0 + np.arange(300) % 2)


def test_weights_given_to_classes_are_meant():
    """scikit-learn's check of an estimator gives them so that one class is predicted."""
    model = bigsvm.SVC(class_weight={0: 1000, 1: 1e-4}).fit(MOONS, LABELS)
    assert set(model.predict(MOONS)) == {0}


def test_a_kernel_matrix():
    """It has no rows that could be predicted without a pass over it."""
    model = bigsvm.SVC(kernel="precomputed", C=1e-6).fit(MOONS @ MOONS.T, LABELS)
    assert model.certificate_["advice"] == []


def test_the_model_does_not_depend_on_it(monkeypatch):
    def fitted():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", bigsvm.AdviceWarning)
            return bigsvm.SVC(gamma=1e6).fit(MOONS, LABELS)

    told = fitted()
    assert told.certificate_["advice"]
    monkeypatch.setattr(advice, "sentences", lambda facts: [])
    untold = fitted()
    assert untold.certificate_["advice"] == []
    np.testing.assert_array_equal(told.dual_coef_, untold.dual_coef_)
    np.testing.assert_array_equal(told.support_, untold.support_)
    assert told.intercept_ == untold.intercept_
    assert told.certificate_["n_kernel_evaluations"] == untold.certificate_["n_kernel_evaluations"]


def test_advice_is_kept_with_the_model(tmp_path):
    with pytest.warns(bigsvm.AdviceWarning):
        model = bigsvm.SVC(gamma=1e6).fit(MOONS, LABELS)
    model.save(tmp_path / "m")
    assert bigsvm.load(tmp_path / "m").certificate_["advice"] == model.certificate_["advice"]


def test_a_model_without_advice_is_read(tmp_path):
    model = bigsvm.SVC().fit(MOONS, LABELS).model_
    older = {name: value for name, value in model.certificate.items() if name != "advice"}
    replace(model, certificate=older).save(tmp_path / "m")
    assert "advice" not in bigsvm.load(tmp_path / "m").certificate_


@pytest.mark.parametrize("forged", ["raise C", [1], None, {"raise": "C"}])
def test_forged_advice_is_refused(forged, tmp_path):
    model = bigsvm.SVC().fit(MOONS, LABELS).model_
    replace(model, certificate={**model.certificate, "advice": forged}).save(tmp_path / "m")
    with pytest.raises(ModelError, match="advice of certificate is"):
        bigsvm.load(tmp_path / "m")


# -- many fits ---------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", [bigsvm.SVC(C=1e-6), bigsvm.L2SVC(gamma=1e6)])
def test_a_cross_validation_warns_once(estimator):
    with pytest.warns(bigsvm.AdviceWarning, match="said of 3 of 3 fits") as told:
        bigsvm.cross_validate(estimator, MOONS, LABELS, cv=3)
    assert len(told) == 1


@pytest.mark.parametrize("refit", [True, False])
def test_a_search_warns_once_if_its_best_is_bad(refit):
    with pytest.warns(bigsvm.AdviceWarning, match="lower gamma") as told:
        bigsvm.SearchCV(bigsvm.SVC(), {"gamma": [1e5, 1e6]}, cv=3, refit=refit).fit(MOONS, LABELS)
    assert len(told) == 1


@pytest.mark.parametrize("refit", [True, False])
def test_a_search_with_a_good_point_says_nothing(refit):
    search = bigsvm.SearchCV(bigsvm.SVC(), {"gamma": [1.0, 1e6]}, cv=3, refit=refit)
    assert search.fit(MOONS, LABELS).best_params_ == {"gamma": 1.0}


def test_a_path_warns_once_if_no_point_is_good():
    assert len(bigsvm.C_path(bigsvm.SVC(), MOONS, LABELS, C=[1e-6, 1.0])) == 2
    with pytest.warns(bigsvm.AdviceWarning, match="raise C") as told:
        bigsvm.C_path(bigsvm.SVC(), MOONS, LABELS, C=[1e-6, 1e-5])
    assert len(told) == 1


def test_folds_trained_together_are_told_as_alone(monkeypatch):
    together_ran = []
    sample_of = folds_in_one_run.sample_of
    monkeypatch.setattr(
        folds_in_one_run, "sample_of", lambda *given: together_ran.append(1) or sample_of(*given)
    )
    search = bigsvm.SearchCV(bigsvm.SVC(gamma=1e6), {"C": [1.0, 10.0]}, cv=3, refit=False)
    with pytest.warns(bigsvm.AdviceWarning, match="lower gamma.*said of 3 of 3 fits"):
        search.fit(MOONS, LABELS)
    assert len(together_ran) == 6
