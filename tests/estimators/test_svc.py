import weakref

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from sklearn.datasets import make_classification, make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC as PeerSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

import bigsvm
from bigsvm.data.store import Store
from bigsvm.errors import CheckpointError, DataError, MemoryBudgetError, ParameterError
from bigsvm.models import KernelExpansion
from bigsvm.training.loop import Decomposition


@pytest.fixture(scope="module")
def moons():
    return make_moons(400, noise=0.25, random_state=0)


# No expected failures, the equivalence of weights and repetitions among them.
@parametrize_with_checks([bigsvm.SVC()])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("kernel", ["linear", "poly", "rbf", "sigmoid"])
@pytest.mark.parametrize("gamma", ["scale", "auto", 0.7])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix, sp.csc_array])
def test_same_model_as_libsvm(moons, kernel, gamma, form):
    X, y = moons
    options = {"kernel": kernel, "gamma": gamma, "C": 3.0, "coef0": 0.3, "tol": 1e-6}
    if kernel == "sigmoid":
        options |= {"gamma": 0.2, "coef0": -0.5}  # elsewhere indefinite: no single optimum
    ours, peer = bigsvm.SVC(**options).fit(form(X), y), PeerSVC(**options).fit(X, y)
    assert ours.converged_
    scale = np.abs(peer.decision_function(X)).max()
    np.testing.assert_allclose(
        ours.decision_function(form(X)), peer.decision_function(X), atol=1e-4 * scale
    )
    np.testing.assert_allclose(ours.intercept_, peer.intercept_, atol=1e-4 * scale)
    assert abs(ours.n_support_ - peer.n_support_).max() <= 2


@pytest.mark.parametrize("weights", [{0: 3.0}, {0: 0.5, 1: 2.0}, "balanced"])
def test_class_weights_are_scikit_learns(weights):
    X, y = make_classification(300, weights=[0.8], flip_y=0.1, random_state=1)
    ours = bigsvm.SVC(class_weight=weights, tol=1e-6).fit(X, y)
    peer = PeerSVC(class_weight=weights, tol=1e-6).fit(X, y)
    np.testing.assert_allclose(ours.decision_function(X), peer.decision_function(X), atol=1e-4)


def test_a_weight_of_two_is_the_row_twice(moons):
    X, y = moons
    weights = np.random.default_rng(0).integers(0, 4, len(y))
    repeated = bigsvm.SVC().fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    weighted = bigsvm.SVC().fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(
        weighted.decision_function(X), repeated.decision_function(X), rtol=1e-7
    )


@pytest.mark.parametrize("labels", [["no", "yes"], [False, True], [2**53 + 1, 2**53 + 2], [5, -3]])
def test_labels_of_any_kind(moons, labels):
    X, y = moons
    named = np.array(labels)[y]
    model = bigsvm.SVC(gamma=1.0).fit(X, named)
    np.testing.assert_array_equal(model.classes_, np.unique(named))
    predicted = model.predict(X)
    assert predicted.dtype == model.classes_.dtype
    assert (predicted == named).mean() > 0.9


def test_linear_models_have_their_coefficients(moons):
    X, y = moons
    model = bigsvm.SVC(kernel="linear").fit(X, y)
    np.testing.assert_allclose(
        X @ model.coef_[0] + model.intercept_[0], model.decision_function(X), atol=1e-9
    )


def test_a_store_trains_and_predicts_lazily(moons, tmp_path):
    X, y = moons
    path = tmp_path / "moons.zarr"
    store = bigsvm.write_store(path, X, y, dtype="float64")
    model = bigsvm.SVC().fit(path)
    lazy = model.predict(path)
    assert isinstance(lazy, da.Array)
    rows = store.rows.read(0, len(y))
    np.testing.assert_array_equal(lazy.compute(), model.predict(rows))
    np.testing.assert_allclose(
        model.decision_function(store).compute(),
        bigsvm.SVC().fit(X, y).decision_function(rows),
        atol=1e-6,
    )


@pytest.mark.usefixtures("own_solver")
def test_the_labels_of_a_store_are_let_go_before_the_run(moons, tmp_path, monkeypatch):
    store = bigsvm.write_store(tmp_path / "moons.zarr", *moons)
    labels = weakref.ref(given := store.labels())
    monkeypatch.setattr(Store, "labels", lambda _, held=[given]: held.pop())
    del given
    left = []
    run = Decomposition.run

    def watched(self):
        left.append(labels())
        return run(self)

    monkeypatch.setattr(Decomposition, "run", watched)
    bigsvm.SVC().fit(store)
    assert left == [None]


def test_blocks_of_a_lazy_prediction_have_one_thread_each(moons, monkeypatch):
    X, y = moons
    model = bigsvm.SVC(n_jobs=2).fit(X, y)
    threads = []
    decide = KernelExpansion.decision_function

    def watched(self, source, *, threads=1, seen=threads):
        seen.append(threads)
        return decide(self, source, threads=threads)

    monkeypatch.setattr(KernelExpansion, "decision_function", watched)
    model.predict(X)
    model.predict(da.from_array(X, chunks=(200, 2))).compute()
    assert threads == [2, 1, 1]


def test_blocks_without_rows_have_no_predictions(moons):
    X, y = moons
    model = bigsvm.SVC().fit(X, np.array(["no", "yes"])[y])
    lazy = da.from_array(X, chunks=(100, 2))
    some = np.arange(len(X)) < 150
    predicted = model.predict(lazy[da.from_array(some, chunks=100)]).compute()
    np.testing.assert_array_equal(predicted, model.predict(X[some]))
    nothing = model.predict(lazy[da.zeros(len(X), dtype=bool, chunks=100)]).compute()
    assert nothing.shape == (0,)
    assert nothing.dtype == model.classes_.dtype


@pytest.mark.parametrize("kind", ["dask", "zarr", "sparse dask"])
def test_lazy_arrays_train_like_arrays(moons, kind):
    X, y = moons
    given = {
        "dask": lambda: da.from_array(X, chunks=(90, 1)),
        "zarr": lambda: zarr.array(X, chunks=(64, 2)),
        "sparse dask": lambda: da.from_array(X, chunks=(90, 2)).map_blocks(sp.csr_array),
    }[kind]()
    model = bigsvm.SVC().fit(given, y)
    np.testing.assert_allclose(
        np.asarray(model.decision_function(given)),
        bigsvm.SVC().fit(X, y).decision_function(X),
        rtol=1e-6,
    )


def test_unconverged_fits_warn_and_say_why(moons):
    with pytest.warns(ConvergenceWarning, match="the limit of steps was reached"):
        model = bigsvm.SVC(C=1e5, gamma=50, max_iter=1).fit(*make_moons(5000, noise=0.5))
    assert not model.converged_
    assert model.stop_reason_ == "max_iter"
    assert model.gap_ > model.tol


def test_a_checkpointed_fit_resumes_and_refuses_another_problem(moons, tmp_path):
    X, y = moons
    first = bigsvm.SVC(checkpoint=tmp_path / "run").fit(X, y)
    again = bigsvm.SVC(checkpoint=tmp_path / "run").fit(X, y)
    np.testing.assert_array_equal(again.decision_function(X), first.decision_function(X))
    assert again.n_iter_ == first.n_iter_
    with pytest.raises(
        CheckpointError,
        match=r"C \(checkpoint: 1\.0, now: 2\.0\).* a CheckpointCallback",
    ):
        bigsvm.SVC(C=2.0, checkpoint=tmp_path / "run").fit(X, y)
    with pytest.raises(CheckpointError, match="labels and weights"):
        bigsvm.SVC(checkpoint=tmp_path / "run").fit(X, 1 - y)
    with pytest.raises(CheckpointError, match="data"):
        bigsvm.SVC(checkpoint=tmp_path / "run", gamma=0.5).fit(X + 1, y)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"C": 0}, "C is 0"),
        ({"C": float("nan")}, "C is nan"),
        ({"kernel": "rfb"}, "must be one of linear, poly, rbf, sigmoid"),
        ({"gamma": -1.0}, "gamma is -1"),
        ({"gamma": "big"}, "'scale', 'auto', 'mean-distance' or a number"),
        ({"degree": -1, "kernel": "poly"}, "degree is -1"),
        ({"tol": 0}, "tol is 0"),
        ({"selection": "best"}, "selection is 'best'"),
        ({"memory": "lots"}, "'lots' is not a size"),
        ({"class_weight": {7: 1.0}}, "names 7, which is no class"),
        ({"class_weight": {0: -1.0}}, "weight -1"),
        ({"class_weight": "fair"}, "must be 'balanced'"),
        ({"max_iter": -2}, "max_iter is -2"),
        ({"max_time": 0.0}, r"max_seconds \(max_time\) is 0"),
        ({"checkpoint_every": 0}, "checkpoint_every is 0"),
    ],
)
def test_invalid_parameters_are_refused(moons, parameters, message):
    with pytest.raises(ParameterError, match=message):
        bigsvm.SVC(**parameters).fit(*moons)


def test_invalid_data_are_refused(moons):
    X, y = moons
    with pytest.raises(DataError, match="one class"):
        bigsvm.SVC().fit(X, np.zeros(len(y)))
    with pytest.raises(DataError, match="no row of the negative class has a positive weight"):
        bigsvm.SVC().fit(X, y, sample_weight=y)
    with pytest.raises(DataError, match="no row of the negative class has a positive weight"):
        bigsvm.SVC(class_weight="balanced").fit(X, y, sample_weight=y)
    with pytest.raises(DataError, match=r"y has shape \(3,\)"):
        bigsvm.SVC().fit(da.from_array(X), y[:3])
    with pytest.raises(DataError, match="labels are needed"):
        bigsvm.SVC().fit(da.from_array(X))
    with pytest.raises(DataError, match="sample_weight of row 0 is -1"):
        bigsvm.SVC().fit(da.from_array(X), y, -np.ones(len(y)))


@pytest.mark.usefixtures("own_solver")
def test_a_budget_too_small_is_refused_with_the_numbers(moons):
    with pytest.raises(MemoryBudgetError, match=r"memory is 10 kB, too little for 400 rows"):
        bigsvm.SVC(memory="10kB").fit(*moons)


@pytest.mark.filterwarnings("ignore::bigsvm.AdviceWarning")  # bad on purpose
@pytest.mark.parametrize("C", [1e-6, 1e6])
@pytest.mark.parametrize("gamma", [0.0, 1e-9, 1e9])
def test_extreme_parameters_end(moons, C, gamma):
    X, y = moons
    model = bigsvm.SVC(C=C, gamma=gamma).fit(X, y)
    assert model.converged_
    assert np.isfinite(model.decision_function(X)).all()
