"""What code that was written for scikit-learn's estimators finds in ours."""

import html
import inspect
import re

import numpy as np
import pytest
from sklearn import svm as peers
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning

import bigsvm
from bigsvm.errors import ParameterError

X, Y = make_blobs(60, centers=3, cluster_std=2.0, random_state=0)
BOTH = Y < 2
SHARED = {"SVC": {}, "NuSVC": {"nu": 0.2}, "SVR": {}, "NuSVR": {}, "OneClassSVM": {}}


def pair(name, **options):
    """Our estimator and scikit-learn's."""
    options = {**SHARED[name], **options}
    return getattr(bigsvm, name)(**options), getattr(peers, name)(**options)


@pytest.mark.parametrize("name", SHARED)
def test_partial_fit_is_lacking_and_the_error_names_what_to_do(name):
    for lacks in (getattr(bigsvm, name), pair(name)[0]):
        assert not hasattr(lacks, "partial_fit")
    with pytest.raises(AttributeError, match=rf"'{name}' has no.*bigsvm\.append.*warm_start=True"):
        pair(name)[0].partial_fit(X, Y)


@pytest.mark.parametrize("name", SHARED)
def test_attributes_of_a_fit_are_scikit_learns(name):
    ours, theirs = (each.fit(X, Y) for each in pair(name))
    assert (ours.fit_status_, ours.shape_fit_) == (theirs.fit_status_, theirs.shape_fit_)
    assert hasattr(ours, "class_weight_") == (name in ("SVC", "NuSVC"))


@pytest.mark.parametrize("weights", [None, "balanced", {0: 2.0, 1: 0.5}])
@pytest.mark.parametrize("rows", [BOTH, slice(None)])
def test_class_weight_is_scikit_learns(rows, weights):
    y = np.where(Y == 0, 0, Y)[rows]
    y[:5] = 1
    ours, theirs = (each.fit(X[rows], y) for each in pair("SVC", class_weight=weights))
    np.testing.assert_allclose(ours.class_weight_, theirs.class_weight_)
    singer = bigsvm.CrammerSingerSVC(class_weight=weights).fit(X[rows], y)
    np.testing.assert_allclose(singer.class_weight_, theirs.class_weight_)


def test_the_status_of_a_fit_that_did_not_converge_is_1():
    with pytest.warns(ConvergenceWarning):
        assert bigsvm.SVC(max_iter=1).fit(X, Y).fit_status_ == 1


def test_attributes_of_a_loaded_model_are_those_of_the_fit(tmp_path):
    fitted = bigsvm.SVC(class_weight={2: 3.0}).fit(X, Y)
    fitted.save(tmp_path / "model")
    loaded = bigsvm.load(tmp_path / "model")
    for name in ("fit_status_", "shape_fit_", "class_weight_"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(fitted, name))


@pytest.mark.parametrize("name", [*SHARED, "L2SVC", "CrammerSingerSVC", "L2OneClassSVM"])
def test_a_notebook_shows_the_text_of_each_parameter(name):
    estimator = getattr(bigsvm, name)()
    shown = estimator._repr_html_()
    for parameter in estimator.get_params():
        assert re.search(rf"param-doc-description[^>]*>\s*{parameter}:", shown), parameter
    # The "?" leads to the docstring in the page, not to a file of this machine.
    assert "file:" not in shown
    assert f'href="#bigsvm.{name}">?<' in shown
    _, text = shown.split(f'<details id="bigsvm.{name}">')
    assert html.escape(inspect.getdoc(type(estimator))) in text


@pytest.mark.parametrize("name", SHARED)
def test_parameters_come_in_the_order_of_scikit_learn(name):
    theirs = list(inspect.signature(getattr(peers, name)).parameters)
    signature = inspect.signature(getattr(bigsvm, name))
    assert list(signature.parameters)[: len(theirs)] == theirs
    documented = re.findall(r"^(\w+) : ", inspect.getdoc(getattr(bigsvm, name)), re.MULTILINE)
    assert documented[: len(signature.parameters)] == list(signature.parameters)
    defaults = {key: parameter.default for key, parameter in signature.parameters.items()}
    assert getattr(bigsvm, name)().get_params() == defaults


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*SHARED, "L2SVC", "CrammerSingerSVC", "L2OneClassSVM"])
def test_the_documentation_has_the_values_of_its_own_class(name):
    kind = getattr(bigsvm, name)
    [section] = re.findall(
        r"^calibration : .*?(?=^\w)", inspect.getdoc(kind), re.DOTALL | re.MULTILINE
    )
    for word in ("sigmoid", "isotonic", "density", "laplace"):
        said = ""
        try:
            kind(calibration=word, tol=0.1).fit(np.tile(X, (2, 1)), np.tile(Y, 2))
        except ParameterError as error:
            said = str(error)
        is_refused = f"calibration is {word!r}" in said
        assert (f'"{word}"' in section) is not is_refused, word
    if name != "CrammerSingerSVC":
        assert "crammer-singer" not in inspect.getdoc(kind)


@pytest.mark.parametrize("state", [3, np.random.RandomState(3), None])
def test_random_states_of_scikit_learn_are_taken(state):
    assert bigsvm.SVC(random_state=state).fit(X, Y).converged_


def test_memory_may_be_a_share_of_that_of_the_machine():
    assert bigsvm.SVC(memory="50%").fit(X, Y).predict(X).shape == (60,)


def test_frames_of_float32_stay_float32():
    """Frames of Polars and Arrow took twice the memory as float64."""
    polars, pandas, arrow = map(pytest.importorskip, ("polars", "pandas", "pyarrow"))
    small = X.astype(np.float32)
    frame = pandas.DataFrame(small, columns=["a", "b"])
    table = arrow.Table.from_pandas(frame)
    for rows in (frame, polars.DataFrame(small, schema=["a", "b"]), table):
        fitted = bigsvm.SVC().fit(rows, Y)
        assert fitted.support_vectors_.dtype == np.float32
        np.testing.assert_array_equal(
            fitted.predict(rows), bigsvm.SVC().fit(small, Y).predict(small)
        )


@pytest.mark.parametrize("kind", [str, object])
def test_classes_that_are_words_have_the_type_of_scikit_learn(kind):
    labels = np.array(["no", "perhaps", "yes"], kind)[Y]
    ours, theirs = (each.fit(X, labels) for each in pair("SVC"))
    assert ours.classes_.dtype == theirs.classes_.dtype
    assert ours.predict(X).dtype == theirs.predict(X).dtype


def test_a_store_is_scored_by_its_own_labels(tmp_path):
    bigsvm.write_store(tmp_path / "s.zarr", X, Y)
    fitted = bigsvm.SVC().fit(str(tmp_path / "s.zarr"))
    assert fitted.score(str(tmp_path / "s.zarr")) == fitted.score(X, Y)


@pytest.mark.parametrize("gamma", ["scale", "auto", 0.3])
@pytest.mark.parametrize("name", SHARED)
def test_gamma_is_a_number_after_a_fit(name, gamma):
    ours, theirs = (each.fit(X, Y) for each in pair(name, gamma=gamma))
    assert ours.gamma_ == pytest.approx(theirs._gamma)


def test_a_kernel_without_gamma_has_none():
    fitted = bigsvm.SVC(kernel="linear").fit(X, Y)
    assert not hasattr(fitted, "gamma_")
    with pytest.raises(AttributeError, match="the kernel linear has no gamma"):
        _ = fitted.gamma_
