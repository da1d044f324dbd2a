"""What scikit-learn's searches and pipelines do: folds that lack classes, its own parameters."""

import warnings

import numpy as np
import pytest
from sklearn import svm as peers
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.multiclass import OneVsRestClassifier

import bigsvm
from bigsvm.errors import ParameterError
from bigsvm.kernels import Precomputed, make_kernel

X, Y = make_blobs(90, centers=3, cluster_std=3.0, random_state=0)
TARGETS = X[:, 0] - X[:, 1]
CLASSIFIERS = {
    "SVC": bigsvm.SVC(),
    "each against the rest": bigsvm.SVC(multiclass="ovr"),
    "L2SVC": bigsvm.L2SVC(),
    "CrammerSingerSVC": bigsvm.CrammerSingerSVC(),
    "NuSVC": bigsvm.NuSVC(nu=0.2),
}
SHARED = ("SVC", "NuSVC", "SVR", "NuSVR", "OneClassSVM")
"""Estimators that scikit-learn has under the same name."""


def target_of(name):
    return TARGETS if "SVR" in name else Y


@pytest.mark.fault("folds")
@pytest.mark.parametrize("kind", CLASSIFIERS)
@pytest.mark.parametrize("n_present", [2, 3])
def test_class_weight_of_an_absent_class_is_taken(kind, n_present):
    there = n_present > Y
    weights = {0: 1.0, 1: 2.0, 2: 0.5, 9: 4.0}
    estimator = clone(CLASSIFIERS[kind])
    found = clone(estimator).set_params(class_weight=weights).fit(X[there], Y[there])
    own = {label: weight for label, weight in weights.items() if label < n_present}
    expected = estimator.set_params(class_weight=own).fit(X[there], Y[there])
    np.testing.assert_array_equal(found.dual_coef_, expected.dual_coef_)


@pytest.mark.fault("folds")
def test_folds_by_class_are_scored_as_by_scikit_learn():
    order = np.argsort(Y, kind="stable")  # so that each fold lacks a class
    scores = [
        cross_val_score(
            package.SVC(class_weight={0: 1.0, 1: 2.0, 2: 0.5}), X[order], Y[order], cv=KFold(3)
        )
        for package in (bigsvm, peers)
    ]
    np.testing.assert_array_equal(*scores)


@pytest.mark.parametrize("kind", CLASSIFIERS)
@pytest.mark.parametrize("weights", [{3: 2.0}, {0: 1.0, 1: 2.0, "2": 0.5}])
def test_a_wrong_name_of_a_class_is_refused(kind, weights):
    with pytest.raises(ValueError, match="not in class_weight"):
        peers.SVC(class_weight=weights).fit(X, Y)
    with pytest.raises(ParameterError, match=r"class_weight names .*, which is no class, and not"):
        clone(CLASSIFIERS[kind]).set_params(class_weight=weights).fit(X, Y)


@pytest.mark.fault("folds")
@pytest.mark.parametrize("name", ["SVC", "NuSVC", "SVR", "L2SVC", "CrammerSingerSVC"])
@pytest.mark.parametrize("kernel", ["precomputed", Precomputed(), make_kernel("precomputed")])
def test_folds_slice_both_axes_of_a_kernel_matrix(name, kernel):
    """Both were sliced for the name only, and rows were scored by the values of others."""
    options = {"nu": 0.2} if name == "NuSVC" else {}
    K = rbf_kernel(X, gamma=0.1)
    estimator = getattr(bigsvm, name)(kernel=kernel, **options)
    assert estimator.__sklearn_tags__().input_tags.pairwise
    found = cross_val_score(estimator, K, target_of(name), cv=3)
    rows = getattr(bigsvm, name)(kernel="rbf", gamma=0.1, **options)
    np.testing.assert_allclose(found, cross_val_score(rows, X, target_of(name), cv=3), atol=2e-3)


@pytest.mark.fault("folds")
@pytest.mark.parametrize("name", [*SHARED, "L2SVC", "CrammerSingerSVC", "L2OneClassSVM"])
@pytest.mark.parametrize("kernel", [rbf_kernel, lambda a, b: a @ b.T, make_kernel, Precomputed])
def test_callable_kernel_is_refused_with_the_remedy(name, kernel):
    with pytest.raises(ParameterError, match=r"kernel is .*; it must be .* kernel='precomputed'"):
        getattr(bigsvm, name)(kernel=kernel).fit(X, target_of(name))


@pytest.mark.fault("folds")
@pytest.mark.parametrize("name", SHARED)
def test_parameters_of_scikit_learn_are_taken_in_silence(name):
    given = getattr(peers, name)().get_params()
    ours = getattr(bigsvm, name)(**given)
    assert ours.get_params().items() >= given.items()
    if name == "NuSVC":
        ours.set_params(nu=0.2)
    fitted = clone(ours).fit(X, target_of(name))
    own = {name: value for name, value in ours.get_params().items() if name not in given}
    plain = getattr(bigsvm, name)(**own, **({"nu": 0.2} if name == "NuSVC" else {}))
    np.testing.assert_array_equal(fitted.dual_coef_, plain.fit(X, target_of(name)).dual_coef_)


@pytest.mark.fault("folds")
@pytest.mark.parametrize("name", SHARED)
def test_other_values_cause_one_warning_that_says_what_to_use(name):
    values = {"cache_size": 1000}
    estimator = getattr(bigsvm, name)(**values, **({"nu": 0.2} if name == "NuSVC" else {}))
    with pytest.warns(UserWarning, match=f"{name} ignores cache_size=1000") as warned:
        estimator.fit(X, target_of(name))
    assert len(warned) == 1
    said = str(warned[0].message)
    assert "use memory" in said
    assert "probability" not in said
    assert warned[0].filename == __file__


@pytest.mark.parametrize("name", ["SVC", "NuSVC"])
def test_probability_is_a_sigmoid_with_one_warning(name, tmp_path):
    many = {"X": X.repeat(3, axis=0), "y": np.repeat(target_of(name), 3)}
    own = {"nu": 0.05} if name == "NuSVC" else {}
    kind = getattr(bigsvm, name)
    estimator = kind(probability=True, **own)
    assert hasattr(clone(estimator), "predict_proba")
    with pytest.warns(UserWarning, match="probability=True as calibration='sigmoid'") as warned:
        estimator.fit(**many)
    assert len(warned) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = kind(calibration="sigmoid", **own).fit(**many)
        isotonic = kind(probability=True, calibration="isotonic", **own).fit(**many)
        assert not hasattr(kind(probability=False), "predict_proba")
    found = estimator.predict_proba(X)
    np.testing.assert_array_equal(found, expected.predict_proba(X))
    assert isotonic.model_.calibration.method == "isotonic"
    estimator.save(tmp_path / "m")
    np.testing.assert_array_equal(bigsvm.load(tmp_path / "m").predict_proba(X), found)


@pytest.mark.fault("folds")
@pytest.mark.parametrize("name", SHARED)
def test_shrinking_that_no_run_can_do_without_causes_a_warning(name):
    estimator = getattr(bigsvm, name)(shrinking=False, **({"nu": 0.2} if name == "NuSVC" else {}))
    with pytest.warns(UserWarning, match="ignores shrinking=False .only working_set='all' can do"):
        found = clone(estimator).fit(X, target_of(name))
    expected = estimator.set_params(shrinking=True).fit(X, target_of(name))
    np.testing.assert_array_equal(found.dual_coef_, expected.dual_coef_)
    estimator.set_params(shrinking=False, working_set="all").fit(X, target_of(name))


def test_each_parameter_that_is_ignored_can_be_set_and_cloned():
    estimator = clone(bigsvm.SVC().set_params(cache_size=500, probability=False))
    assert estimator.get_params()["cache_size"] == 500
    with pytest.warns(UserWarning, match="SVC ignores cache_size=500") as warned:
        estimator.fit(X, Y)
    assert "probability" not in str(warned[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimator.set_params(cache_size=200).fit(X, Y)


def test_searches_work_over_all_of_them():
    search = GridSearchCV(bigsvm.SVC(), {"C": [0.1, 1.0], "shrinking": [True]}, cv=2).fit(X, Y)
    assert search.best_estimator_.shrinking is True
    OneVsRestClassifier(bigsvm.SVC(**peers.SVC().get_params())).fit(X, Y)
