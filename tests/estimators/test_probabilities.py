"""Rows held out of training, and probabilities that are fitted on them."""

import pickle
from dataclasses import replace

import dask.array as da
import numpy as np
import pytest
import zarr
from sklearn.base import clone
from sklearn.datasets import load_digits, make_blobs, make_classification, make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from support.same import assert_same_bits

import bigsvm
from bigsvm.calibration import (
    METHODS,
    Calibration,
    fit_calibration,
    fit_density,
    fit_laplace,
)
from bigsvm.coupling import class_probabilities, fit_classes, values_to_fit
from bigsvm.data import schema
from bigsvm.data.sources import as_row_source
from bigsvm.errors import CheckpointError, DataError, ParameterError
from bigsvm.fit.held_out import FEWEST_BLOCKS, HELD_OUT, calibrate, held_out_for
from bigsvm.fit.problem import Given
from bigsvm.fit.train import train_model
from bigsvm.parameters import TrainingParameters
from bigsvm.parameters.checks import check_parameters
from bigsvm.parameters.formulations import CALIBRATIONS, FORMULATIONS, TRAITS
from bigsvm.training import events
from bigsvm.training.events import Hooks

N_ROWS = 4500
"""Rows of `clouds` and `store`."""
LITTLE = {"gamma": 0.1, "memory": "2MB", "n_jobs": 1}
"""So little memory that the rows of `store` are read again and again."""


@pytest.fixture(scope="module")
def moons():
    return make_moons(600, noise=0.3, random_state=0)


@pytest.fixture(scope="module")
def clouds():
    rng = np.random.default_rng(0)
    y = np.where(rng.random(N_ROWS) < 0.3, 1, -1)
    X = rng.normal(size=(N_ROWS, 20)).astype(np.float32)
    X[:, 0] += 1.2 * y
    return X, y


@pytest.fixture(scope="module")
def make_store(clouds, tmp_path_factory):
    """Stores of many blocks."""

    def make(y=clouds[1], **options):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(schema, "CHUNK_BYTES", 1 << 13)
            path = tmp_path_factory.mktemp("store") / "clouds.zarr"
            return bigsvm.write_store(path, clouds[0], y, **options)

    return make


@pytest.fixture(scope="module")
def store(make_store):
    return make_store()


@pytest.fixture(scope="module")
def digits():
    images, labels = load_digits(return_X_y=True)
    return images[:1200] / 16, labels[:1200], images[1200:] / 16, labels[1200:]


def hold_out(source, y, weights, **parameters):
    """Rows held out, and the weights of all rows for training."""
    parameters = TrainingParameters(**{"calibration": "sigmoid", **parameters})
    held, rest = held_out_for(Given(source, y, weights, parameters, Hooks()))
    return held, rest.sample_weight


def rows_held_out(source, y, weights=None):
    return hold_out(as_row_source(source), y, weights)[0].rows


def unchecked(estimator):
    """Contracts that a calibration breaks, and why."""
    broken = {
        f"check_sample_weight_equivalence_on_{kind}_data": "two rows are needed of each class, and "
        "of a row that is repeated, one copy may be held out"
        for kind in ("dense", "sparse")
    }
    if estimator.calibration == "isotonic":
        broken["check_classifiers_train"] = "values decide a label, not the largest probability"
    if isinstance(estimator, bigsvm.L2SVC):
        broken["check_class_weight_classifiers"] = "it has no time to converge with three classes"
    if isinstance(estimator, bigsvm.NuSVC):
        broken["check_class_weight_classifiers"] = "scikit-learn's NuSVC fails it too"
    return broken


@parametrize_with_checks(
    [
        bigsvm.SVC(calibration="sigmoid"),
        bigsvm.SVC(calibration="sigmoid", multiclass="ovr"),
        bigsvm.NuSVC(calibration="isotonic"),
        bigsvm.L2SVC(calibration="sigmoid"),
    ],
    expected_failed_checks=unchecked,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learn_contract(estimator, check):
    check(estimator)


class TestHeldOut:
    def test_a_tenth_of_each_class_of_rows_in_memory(self, clouds):
        X, y = clouds
        rows = rows_held_out(X, y)
        for label in (-1, 1):
            assert np.count_nonzero(y[rows] == label) == round(HELD_OUT * (y == label).sum())
        assert np.array_equal(rows, np.unique(rows))
        np.testing.assert_array_equal(rows, rows_held_out(X, y))

    def test_weights_of_rows_not_held_out_stay(self, clouds):
        X, y = clouds
        given = np.random.default_rng(0).integers(0, 3, len(y)).astype(float)
        held, weights = hold_out(as_row_source(X), y, given)
        assert (given[held.rows] > 0).all()
        np.testing.assert_array_equal(held.weights, given[held.rows])
        np.testing.assert_array_equal(held.codes == 1, y[held.rows] == 1)
        assert not weights[held.rows].any()
        rest = np.setdiff1d(np.arange(len(y)), held.rows)
        np.testing.assert_array_equal(weights[rest], given[rest])
        assert len(held.rows) == pytest.approx(HELD_OUT * np.count_nonzero(given), abs=2)

    def test_whole_blocks_of_a_shuffled_store_are_held_out(self, store):
        size = store.rows.row_alignment
        n_blocks = -(-store.rows.n_rows // size)
        assert n_blocks >= FEWEST_BLOCKS
        rows = rows_held_out(store, store.labels())
        blocks = np.unique(rows // size)
        assert len(blocks) == round(HELD_OUT * n_blocks)
        expected = (np.arange(b * size, min((b + 1) * size, store.rows.n_rows)) for b in blocks)
        np.testing.assert_array_equal(rows, np.concatenate(list(expected)))
        assert blocks[0] > 0

    def test_rows_of_an_unshuffled_store_are_held_out_one_by_one(self, make_store, clouds):
        y = np.sort(clouds[1])
        rows = rows_held_out(make_store(y, shuffle=False), y)
        np.testing.assert_array_equal(rows, rows_held_out(*clouds[:1], y))

    def test_a_class_too_rare_for_blocks_is_held_out_by_rows(self, make_store):
        y = np.zeros(N_ROWS)
        y[[5, 17, 4000]] = 1
        store = make_store(y)
        labels = store.labels()
        rows = rows_held_out(store, labels)
        assert labels[rows].sum() == 1

    @pytest.mark.parametrize("weights", [None, np.r_[1.0, 0.0, np.ones(8)]])
    def test_a_class_needs_two_rows(self, weights):
        X, y = np.eye(10), np.r_[1, 1 if weights is not None else 0, np.zeros(8)]
        with pytest.raises(DataError, match=r"1 row\(s\) of class 1.0 .* at least 2 of each"):
            bigsvm.SVC(calibration="sigmoid").fit(X, y, sample_weight=weights)

    def test_two_rows_of_each_class_are_enough(self):
        X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([0, 0, 1, 1])
        model = bigsvm.SVC(calibration="sigmoid").fit(X, y)
        assert model.model_.calibration.n_rows == 2
        assert np.isfinite(model.predict_proba(X)).all()


def test_weights_of_rows_move_probabilities_and_those_of_classes_do_not():
    X, y = make_classification(800, 4, n_redundant=0, class_sep=0.3, weights=[0.8], random_state=0)
    weights = np.where(y == 1, 5.0, 1.0)
    plain = bigsvm.SVC(calibration="sigmoid", class_weight={1: 5}).fit(X, y)
    weighted = bigsvm.SVC(calibration="sigmoid").fit(X, y, sample_weight=weights)
    share = np.average(y, weights=weights)
    assert plain.predict_proba(X)[:, 1].mean() == pytest.approx(y.mean(), abs=0.1)
    assert weighted.predict_proba(X)[:, 1].mean() == pytest.approx(share, abs=0.1)


class TestTraining:
    @pytest.mark.parametrize("make", [bigsvm.SVC, lambda **kw: bigsvm.NuSVC(nu=0.3, **kw)])
    def test_the_model_is_that_of_the_other_rows(self, moons, make):
        X, y = moons
        weights = np.random.default_rng(0).uniform(0.5, 2, len(y))
        options = {"class_weight": "balanced", "gamma": "scale", "tol": 1e-6}
        whole = make(calibration="sigmoid", **options).fit(X, y, weights)
        held = rows_held_out(X, y, weights)
        rest = np.setdiff1d(np.arange(len(y)), held)
        other = make(**options).fit(X[rest], y[rest], weights[rest])
        assert whole.model_.kernel.gamma == pytest.approx(other.model_.kernel.gamma, rel=1e-12)
        np.testing.assert_allclose(
            whole.decision_function(X), other.decision_function(X), atol=1e-4
        )
        assert not np.isin(held, whole.support_).any()

    @pytest.mark.parametrize("working_set", ["auto", "all"])
    @pytest.mark.parametrize("n", [600, 9000])
    def test_rows_held_out_are_no_support_vectors(self, n, working_set):
        X, y = make_moons(n, noise=0.4, random_state=1)
        X = np.round(X, 2)  # some are equal
        model = bigsvm.SVC(calibration="sigmoid", gamma=1.0, working_set=working_set).fit(X, y)
        assert model.converged_
        assert not np.isin(rows_held_out(X, y), model.support_).any()

    @pytest.mark.parametrize("method", METHODS)
    def test_probabilities_are_those_of_the_rows_held_out(self, moons, method):
        X, y = moons
        weights = np.random.default_rng(0).uniform(0.5, 2, len(y))
        model = bigsvm.SVC(calibration=method).fit(X, y, weights)
        held = rows_held_out(X, y, weights)
        values = model.decision_function(X)
        expected = fit_calibration(method, values[held], y[held] == 1, weights[held])
        found = model.predict_proba(X)
        assert found.shape == (len(y), 2)
        assert found.dtype == np.float64
        np.testing.assert_allclose(found[:, 1], expected.probability(values), atol=1e-9)
        np.testing.assert_array_equal(found.sum(axis=1), 1.0)
        with np.errstate(divide="ignore"):
            np.testing.assert_array_equal(model.predict_log_proba(X), np.log(found))

    def test_the_seed_of_a_run_does_not_choose_them(self, moons):
        X, y = moons
        one, two = (bigsvm.SVC(calibration="sigmoid", random_state=s).fit(X, y) for s in (1, 2))
        np.testing.assert_allclose(one.predict_proba(X), two.predict_proba(X), atol=1e-3)
        assert not np.isin(rows_held_out(X, y), two.support_).any()

    def test_labels_are_the_sign_of_the_value(self, clouds):
        X, y = clouds
        model = bigsvm.SVC(calibration="sigmoid", gamma=0.1, C=0.1).fit(X[:1000], y[:1000])
        np.testing.assert_array_equal(model.predict(X) == 1, model.decision_function(X) > 0)

    def test_a_run_that_had_to_stop_is_calibrated_as_it_is(self, clouds):
        for steps in (0, 5):
            with pytest.warns(ConvergenceWarning, match="the limit of steps"):
                model = bigsvm.SVC(calibration="sigmoid", max_iter=steps).fit(*clouds)
            assert model.model_.calibration.n_rows == pytest.approx(N_ROWS / 10, abs=1)
            assert (model.predict_proba(clouds[0][:9]) > 0).all()

    def test_the_budget_counts_what_is_kept(self, clouds):
        X, y = clouds
        held, weights = hold_out(as_row_source(X), y, np.ones(len(y)))
        states = []

        def listener(event):
            if isinstance(event, events.Planned):
                states.append(event.projected["state of the rows"])

        for parameters in (TrainingParameters(), TrainingParameters(calibration="sigmoid")):
            given = None if parameters.calibration is None else np.ones(len(y))
            train_model(as_row_source(X), y, given, parameters, Hooks(listener=listener))
        assert states[1] - states[0] == weights.nbytes + 17 * len(held.rows)

    @pytest.mark.parametrize("after", ["training", "a pass has begun"])
    def test_an_interrupted_run_has_no_calibration(self, moons, after):
        X, y = moons
        seen = []

        def interrupted():
            begun = events.Calibrating if after == "a pass has begun" else events.Swept
            return any(isinstance(event, begun) for event in seen)

        parameters = TrainingParameters(calibration="sigmoid")
        hooks = Hooks(listener=seen.append, interrupted=interrupted)
        model = train_model(as_row_source(X), y, None, parameters, hooks)
        assert model.calibration is None
        assert model.provenance["parameters"]["calibration"] == "sigmoid"

    @pytest.mark.parametrize("formulation", FORMULATIONS)
    def test_a_calibration_of_another_kind_is_refused(self, formulation):
        fitting = CALIBRATIONS[TRAITS[formulation].learns]
        for method in {"sigmoid", "isotonic", "density", "laplace"}:
            parameters = TrainingParameters(formulation=formulation, calibration=method)
            if method in fitting:
                check_parameters(parameters)
                continue
            with pytest.raises(ParameterError, match=f"of {formulation} it must be '{fitting[0]}'"):
                check_parameters(parameters)

    def test_other_methods_are_refused(self, moons):
        with pytest.raises(ParameterError, match="'platt'; it must be one of sigmoid, isotonic"):
            bigsvm.SVC(calibration="platt").fit(*moons)

    def test_a_path_and_a_warm_start_hold_out_the_same_rows(self, moons):
        X, y = moons
        plain = bigsvm.SVC(gamma=1.0, warm_start=True).fit(X, y)
        warm = plain.set_params(calibration="sigmoid").fit(X, y)
        cold = bigsvm.SVC(gamma=1.0, calibration="sigmoid").fit(X, y)
        assert warm.objective_ == pytest.approx(cold.objective_, rel=1e-4)
        assert not np.isin(rows_held_out(X, y), warm.support_).any()
        for model in bigsvm.C_path(bigsvm.SVC(calibration="isotonic"), X, y, C=[1, 4]):
            assert model.model_.calibration.method == "isotonic"


class TestStreamed:
    @pytest.mark.parametrize("method", METHODS)
    def test_a_store_has_the_probabilities_of_arrays(self, store, method):
        model = bigsvm.SVC(calibration=method, **LITTLE).fit(store)
        X, y = store.rows.read(0, N_ROWS), store.labels()
        held, weights = hold_out(store.rows, y, None)
        arrays = bigsvm.SVC(gamma=0.1, tol=1e-4).fit(X, y, weights)
        values = arrays.decision_function(X)
        expected = fit_calibration(method, values[held.rows], held.codes == 1)
        found = model.predict_proba(store)
        assert isinstance(found, da.Array)
        assert found.shape == (N_ROWS, 2)
        assert found.numblocks[1] == 1
        assert model.model_.calibration.n_rows == len(held.rows)
        error = np.abs(found.compute()[:, 1] - expected.probability(values))
        # Steps of an isotonic one are steep, and values are equal up to tol only.
        assert np.quantile(error, 0.95) < (1e-3 if method == "sigmoid" else 2e-2)

    def test_only_blocks_held_out_are_read_for_it(self, store):
        source = bigsvm.open_store(store.path).rows
        held, weights = hold_out(source, store.labels(), None)
        weights = store.row_values(weights, order="store")
        model = bigsvm.SVC(**LITTLE).fit(store, sample_weight=weights).model_
        before = source.bytes_read
        assert before == 0  # nothing, to choose them
        made = calibrate(
            model, source, held, "sigmoid", threads=1, block_bytes=1 << 16, hooks=Hooks()
        )
        assert made.n_rows == len(held.rows)
        assert source.bytes_read == len(held.rows) * source.bytes_per_row

    def test_rows_of_a_dask_array(self, clouds):
        X, y = clouds
        lazy = da.from_array(X, chunks=(300, 20))
        model = bigsvm.SVC(calibration="sigmoid", **LITTLE).fit(lazy, y)
        assert not np.isin(rows_held_out(X, y), model.support_).any()
        values = model.decision_function(X)
        held = rows_held_out(X, y)
        expected = fit_calibration("sigmoid", values[held], y[held] == 1)
        np.testing.assert_allclose(
            model.model_.calibration.numbers, expected.numbers, rtol=1e-4, atol=1e-6
        )

    def test_predictions_are_lazy(self, moons):
        X, y = moons
        model = bigsvm.SVC(calibration="isotonic").fit(X, y)
        expected = model.predict_proba(X)
        lazy = da.from_array(X, chunks=(100, 2))
        for given in (lazy, zarr.array(X, chunks=(64, 2))):
            found = model.predict_proba(given)
            assert isinstance(found, da.Array)
            np.testing.assert_allclose(found.compute(), expected, atol=1e-9)
        assert model.predict_proba(lazy).chunks == ((100,) * 6, (2,))
        with np.errstate(divide="ignore"):
            logarithms = np.log(expected)
        np.testing.assert_allclose(model.predict_log_proba(lazy).compute(), logarithms, atol=1e-9)
        some = np.arange(len(X)) < 150
        found = model.predict_proba(lazy[da.from_array(some, chunks=100)]).compute()
        np.testing.assert_allclose(found, expected[some], atol=1e-9)


class TestResume:
    def test_a_run_goes_on_to_the_same_bits_under_another_seed(self, store, tmp_path):
        whole = bigsvm.SVC(calibration="sigmoid", **LITTLE).fit(store)
        # As after `kill -9` when training was over and the calibration was not.
        options = {**LITTLE, "checkpoint": tmp_path / "run"}
        weights = hold_out(store.rows, store.labels(), None)[1]
        weights = store.row_values(weights, order="store")
        bigsvm.SVC(calibration="sigmoid", **options).fit(store)
        resumed = bigsvm.SVC(calibration="sigmoid", random_state=7, **options).fit(store)
        assert resumed.n_iter_ == whole.n_iter_
        assert resumed.model_.coefficients.tobytes() == whole.model_.coefficients.tobytes()
        numbers = resumed.model_.calibration.numbers
        assert numbers.tobytes() == whole.model_.calibration.numbers.tobytes()
        other = bigsvm.SVC(calibration="isotonic", **options).fit(store)
        assert other.n_iter_ == whole.n_iter_
        with pytest.raises(CheckpointError, match="calibration"):
            bigsvm.SVC(**options).fit(store, sample_weight=weights)


class TestEstimator:
    def test_methods_are_there_with_a_calibration_only(self, moons):
        X, y = moons
        without = bigsvm.SVC().fit(X, y)
        for name in ("predict_proba", "predict_log_proba"):
            assert not hasattr(without, name)
            assert not hasattr(bigsvm.SVR(), name)
            assert hasattr(bigsvm.NuSVC(calibration="sigmoid"), name)
        reason = (
            "^This 'SVC' has no attribute 'predict_proba': calibration is None; probabilities need "
            "calibration='sigmoid' or calibration='isotonic'$"
        )
        with pytest.raises(AttributeError, match=reason):
            without.predict_proba(X)
        with pytest.raises(ParameterError, match="trained without; fit again"):
            without.set_params(calibration="sigmoid").predict_proba(X)

    def test_clone_pickle_pipeline_and_search(self, moons):
        X, y = moons
        named = np.array(["no", "yes"])[y]
        search = GridSearchCV(
            make_pipeline(StandardScaler(), bigsvm.SVC(gamma=1.0, calibration="sigmoid")),
            {"svc__C": [1e-3, 1.0], "svc__calibration": METHODS},
            scoring="neg_log_loss",
            cv=3,
        ).fit(X, named)
        assert search.best_params_ == {"svc__C": 1.0, "svc__calibration": "sigmoid"}
        assert search.best_score_ > -0.4
        model = pickle.loads(pickle.dumps(search.best_estimator_))
        np.testing.assert_array_equal(model.predict_proba(X), search.predict_proba(X))
        assert clone(model).get_params()["svc__calibration"] == "sigmoid"
        expected = np.mean(search.predict_proba(X)[:, 1] > 0.5)
        assert expected == pytest.approx(np.mean(named == search.classes_[1]), abs=0.05)

    @pytest.mark.parametrize("method", METHODS)
    def test_probabilities_of_separable_classes(self, method):
        rng = np.random.default_rng(0)
        y = np.arange(400) % 2
        X = rng.normal(size=(400, 3)) + 100 * y[:, None]
        model = bigsvm.SVC(calibration=method).fit(X, y)
        found = model.predict_proba(X)[:, 1]
        assert ((found > 0.9) == (y == 1)).all()
        assert ((found < 0.1) == (y == 0)).all()

    def test_probabilities_of_uninformative_features(self):
        X, y = np.zeros((100, 2)), np.arange(100) % 4 == 0
        model = bigsvm.SVC(calibration="isotonic").fit(X, y)
        found = model.predict_proba(X)
        assert np.ptp(found[:, 1]) == 0
        assert 0.1 < found[0, 1] < 0.4

    def test_saved_model_has_probabilities(self, moons, tmp_path):
        X, y = moons
        model = bigsvm.SVC(calibration="isotonic").fit(X, y)
        model.model_.save(tmp_path / "m")
        back = bigsvm.KernelExpansion.load(tmp_path / "m")
        values = back.decision_function(as_row_source(X))
        np.testing.assert_allclose(
            back.calibration.probability(values), model.predict_proba(X)[:, 1], atol=1e-12
        )
        assert replace(back, calibration=None).calibration is None


def test_workers_compute_the_values_of_rows_held_out(client, monkeypatch, compiled_predictions):
    from bigsvm.executors.workforce import Workforce

    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 5)).astype(np.float32)
    y = X[:, 0] + 0.3 * rng.standard_normal(600) > 0
    here = bigsvm.SVC(gamma=0.2, calibration="sigmoid").fit(X, y)
    tasks, close = [], Workforce.close
    monkeypatch.setattr(
        Workforce, "close", lambda self: (tasks.append(self.traffic.tasks), close(self))[1]
    )
    there = bigsvm.SVC(gamma=0.2, calibration="sigmoid").fit(X, y, client=client)
    assert_same_bits(there.model_.calibration, here.model_.calibration)
    assert tasks[-1] > 0


class TestManyClasses:
    @pytest.mark.parametrize("method", METHODS)
    @pytest.mark.parametrize("multiclass", ["ovo", "ddag", "ovr"])
    def test_probabilities_are_those_of_the_rows_held_out(self, digits, multiclass, method):
        X, y, others, _ = digits
        options = {"C": 10, "gamma": 0.05, "multiclass": multiclass}
        model = bigsvm.SVC(calibration=method, **options).fit(X, y)
        held, weights = hold_out(as_row_source(X), y, None)
        for label in range(10):
            n = np.count_nonzero(y == label)
            assert np.count_nonzero(y[held.rows] == label) == round(HELD_OUT * n)
        assert not np.isin(held.rows, model.support_).any()
        rest = bigsvm.SVC(tol=1e-6, **options).fit(X, y, weights).model_
        values = rest.decision_function(X[held.rows])
        values = values_to_fit(values, held.codes, rest.rule, 10)
        made = fit_classes(method, values, held.codes, None, rule=rest.rule, k=10)
        expected = class_probabilities(made, rest.decision_function(others), rest.rule, 10)
        found = model.predict_proba(others)
        assert found.shape == (len(others), 10)
        error = np.abs(found - expected)
        # Steps of an isotonic one are steep.
        assert np.quantile(error, 0.98) < (2e-3 if method == "sigmoid" else 5e-2)
        assert model.model_.calibration.n_rows == len(held.rows)
        with np.errstate(divide="ignore"):
            np.testing.assert_array_equal(model.predict_log_proba(others), np.log(found))

    def test_the_likeliest_class_is_the_predicted_one(self, digits):
        X, y, others, labels = digits
        model = bigsvm.SVC(C=10, gamma=0.05, calibration="sigmoid", multiclass="ovr").fit(X, y)
        found = model.predict_proba(others)
        np.testing.assert_array_equal(found.argmax(axis=1), model.predict(others))
        model = bigsvm.SVC(C=10, gamma=0.05, calibration="sigmoid").fit(X, y)
        found = model.predict_proba(others)
        np.testing.assert_array_equal(found.argmax(axis=1), model.predict(others))
        assert log_loss(labels, found) < 0.2

    def test_ties_are_broken_as_predict_breaks_them(self):
        X, y = make_blobs(300, centers=6, cluster_std=9.0, random_state=0)
        model = bigsvm.SVC(gamma=0.3, calibration="sigmoid").fit(X, y)
        first = model.predict(X)
        np.testing.assert_array_equal(model.predict_proba(X).argmax(axis=1), first)
        model.set_params(break_ties=True)
        assert (model.predict(X) != first).any()
        np.testing.assert_array_equal(model.predict_proba(X).argmax(axis=1), model.predict(X))

    @pytest.mark.parametrize("multiclass", ["ovo", "ovr"])
    def test_weights_of_rows_count(self, digits, multiclass):
        X, y, others, _ = digits
        weights = np.random.default_rng(0).integers(0, 3, len(y)).astype(float)
        model = bigsvm.SVC(gamma=0.05, calibration="sigmoid", multiclass=multiclass)
        model.fit(X, y, weights)
        held, _ = hold_out(as_row_source(X), y, weights)
        assert (weights[held.rows] > 0).all()
        assert not np.isin(held.rows, model.support_).any()
        assert np.isfinite(model.predict_proba(others)).all()

    def test_few_rows_are_enough_for_very_many_values(self, digits, monkeypatch):
        X, y, others, labels = digits
        monkeypatch.setattr("bigsvm.fit.held_out.MOST_VALUES", 600)
        model = bigsvm.SVC(C=10, gamma=0.05, calibration="sigmoid").fit(X, y)
        assert model.model_.calibration.n_rows == 60
        assert log_loss(labels, model.predict_proba(others)) < 0.3

    def test_a_store_in_little_memory_and_a_dask_array(self, digits, tmp_path):
        X, y, others, _ = digits
        store = bigsvm.write_store(tmp_path / "digits.zarr", X.astype(np.float32), y)
        options = {"C": 10, "gamma": 0.05, "calibration": "sigmoid"}
        model = bigsvm.SVC(memory="8MB", **options).fit(store)
        expected = model.predict_proba(others)
        lazy = model.predict_proba(da.from_array(others, chunks=(100, 64)))
        assert isinstance(lazy, da.Array)
        assert lazy.shape == expected.shape
        np.testing.assert_allclose(lazy.compute(), expected, atol=1e-9)
        of_store = model.predict_proba(store)
        assert of_store.numblocks[1] == 1
        np.testing.assert_allclose(of_store.compute().sum(axis=1), 1)

    @pytest.mark.parametrize("multiclass", ["ovo", "ovr"])
    def test_a_run_goes_on_to_the_same_bits(self, digits, multiclass, tmp_path):
        X, y, others, _ = digits
        options = {"gamma": 0.05, "calibration": "sigmoid", "multiclass": multiclass, "n_jobs": 1}
        whole = bigsvm.SVC(**options).fit(X, y)
        with pytest.warns(ConvergenceWarning):
            bigsvm.SVC(checkpoint=tmp_path / "run", max_iter=1, **options).fit(X, y)
        again = bigsvm.SVC(checkpoint=tmp_path / "run", **options).fit(X, y)
        assert again.converged_
        np.testing.assert_allclose(
            again.predict_proba(others), whole.predict_proba(others), atol=2e-3
        )
        with pytest.raises(CheckpointError, match="calibration"):
            bigsvm.SVC(**{**options, "calibration": None}, checkpoint=tmp_path / "run").fit(X, y)

    def test_a_saved_model_has_the_same_probabilities(self, digits, tmp_path):
        X, y, others, _ = digits
        for multiclass in ("ovo", "ovr"):
            model = bigsvm.SVC(gamma=0.05, calibration="sigmoid", multiclass=multiclass).fit(X, y)
            model.save(tmp_path / "m")
            back = bigsvm.load(tmp_path / "m")
            np.testing.assert_array_equal(back.predict_proba(others), model.predict_proba(others))

    def test_a_sigmoid_of_another_number_of_functions_is_refused(self, digits):
        X, y, _, _ = digits
        made = Calibration(method="sigmoid", numbers=np.ones((2, 10)))
        for multiclass in ("ovo", "ovr"):
            model = bigsvm.SVC(gamma=0.05, multiclass=multiclass).fit(X, y).model_
            with pytest.raises(ParameterError, match="a sigmoid calibration of 10 functions"):
                replace(model, calibration=made)


class TestCrammerSinger:
    @pytest.mark.parametrize("method", METHODS)
    def test_probabilities_are_those_of_the_rows_held_out(self, digits, method):
        X, y, others, labels = digits
        options = {"C": 1, "gamma": 0.05}
        machine = bigsvm.CrammerSingerSVC(calibration=method, **options).fit(X, y)
        held, weights = hold_out(as_row_source(X), y, None)
        assert not np.isin(held.rows, machine.support_).any()
        rest = bigsvm.CrammerSingerSVC(**options).fit(X, y, weights).model_
        made = fit_classes(
            method, rest.decision_function(X[held.rows]), held.codes, None, rule=rest.rule, k=10
        )
        expected = class_probabilities(made, rest.decision_function(others), rest.rule, 10)
        found = machine.predict_proba(others)
        np.testing.assert_allclose(found, expected, atol=1e-9)
        # An isotonic one of few rows has probabilities of 0.
        assert method == "isotonic" or log_loss(labels, found) < 0.3
        with np.errstate(divide="ignore"):
            np.testing.assert_array_equal(machine.predict_log_proba(others), np.log(found))

    def test_two_classes_saved_and_the_likeliest_is_the_predicted_one(self, moons, tmp_path):
        X, y = moons
        machine = bigsvm.CrammerSingerSVC(gamma=1.0, calibration="sigmoid").fit(X, y)
        found = machine.predict_proba(X)
        assert found.shape == (600, 2)
        np.testing.assert_array_equal(found.argmax(axis=1), machine.predict(X))
        machine.save(tmp_path / "m")
        again = bigsvm.load(tmp_path / "m")
        assert again.calibration == "sigmoid"
        np.testing.assert_array_equal(again.predict_proba(X), found)

    def test_a_warm_start_holds_out_the_same_rows(self, moons):
        X, y = moons
        machine = bigsvm.CrammerSingerSVC(gamma=1.0, warm_start=True).fit(X, y)
        machine.set_params(calibration="sigmoid").fit(X, y)
        cold = bigsvm.CrammerSingerSVC(gamma=1.0, calibration="sigmoid").fit(X, y)
        assert machine.objective_ == pytest.approx(cold.objective_, rel=1e-3)
        assert not np.isin(rows_held_out(X, y), machine.support_).any()

    def test_without_a_calibration_there_are_no_probabilities(self, moons):
        assert not hasattr(bigsvm.CrammerSingerSVC(), "predict_proba")
        reason = "calibration='sigmoid' or calibration='isotonic'"
        with pytest.raises(AttributeError, match=reason):
            bigsvm.CrammerSingerSVC().predict_proba(moons[0])


class TestOneClass:
    @pytest.mark.parametrize(
        "make", [lambda **kw: bigsvm.OneClassSVM(nu=0.2, **kw), bigsvm.L2OneClassSVM]
    )
    def test_probabilities_are_by_the_marks_of_rows_held_out(self, clouds, make, tmp_path):
        X, others = clouds[0][:1000], clouds[0][1000:1400]
        detector = make(gamma=0.05, calibration="density").fit(X)
        made = detector.model_.calibration
        assert made.n_rows == 100
        plain = make(gamma=0.05).fit(X)
        assert plain.score_samples(others[:1]) != detector.score_samples(others[:1])
        found, inside = detector.predict_proba(others), detector.predict(others) == 1
        assert found.shape == (400, 2)
        np.testing.assert_allclose(found.sum(axis=1), 1)
        assert (found[inside, 1] >= 0.5).all()
        assert (found[~inside, 1] <= 0.5).all()
        np.testing.assert_array_equal(
            found[:, 1], made.probability(detector.decision_function(others))
        )
        detector.save(tmp_path / "m")
        again = bigsvm.load(tmp_path / "m")
        assert again.calibration == "density"
        np.testing.assert_array_equal(again.predict_proba(others), found)
        assert not hasattr(plain, "predict_proba")

    def test_rows_held_out_have_no_part(self, clouds):
        X = clouds[0][:1000]
        weights = np.random.default_rng(0).integers(0, 3, len(X)).astype(float)
        detector = bigsvm.OneClassSVM(nu=0.2, gamma=0.05, calibration="density")
        detector.fit(X, sample_weight=weights)
        parameters = {"formulation": "one-class", "nu": 0.2, "calibration": "density"}
        held, rest = hold_out(as_row_source(X), None, weights, **parameters)
        assert (weights[held.rows] > 0).all()
        assert not np.isin(held.rows, detector.support_).any()
        other = bigsvm.OneClassSVM(nu=0.2, gamma=0.05).fit(X, sample_weight=rest)
        expected = fit_density(other.decision_function(X[held.rows]), held.weights)
        np.testing.assert_allclose(detector.model_.calibration.numbers, expected.numbers, atol=1e-9)

    def test_a_store_is_held_out_by_blocks(self, store):
        detector = bigsvm.OneClassSVM(nu=0.1, calibration="density", **LITTLE).fit(store)
        found = detector.predict_proba(store)
        assert isinstance(found, da.Array)
        assert found.shape == (N_ROWS, 2)
        assert detector.model_.calibration.n_rows % store.rows.row_alignment == 0

    @pytest.mark.parametrize(
        ("n", "nu", "message"),
        [
            (50, 0.5, "holds a tenth of them out, 5, but needs 10"),
            (200, 0.1, "needs 5 rows outside among the 20 .* with nu=0.1 there are about 2"),
            (200, 1.0, "needs 5 rows inside among the 20 .* with nu=1 there are about 0"),
        ],
    )
    def test_few_rows_are_refused(self, clouds, n, nu, message):
        with pytest.raises(DataError, match=message):
            bigsvm.OneClassSVM(nu=nu, calibration="density").fit(clouds[0][:n])


class TestRegression:
    @pytest.mark.parametrize("make", [bigsvm.SVR, bigsvm.NuSVR])
    def test_the_scale_is_that_of_rows_held_out(self, make, tmp_path):
        rng = np.random.default_rng(0)
        X = rng.uniform(-3, 3, (800, 1))
        y = np.sin(X[:, 0]) + rng.laplace(scale=0.2, size=800)
        regression = make(C=10, gamma=1.0, calibration="laplace").fit(X, y)
        assert regression.noise_scale_ == pytest.approx(0.2, rel=0.3)
        parameters = {"formulation": "eps-svr", "calibration": "laplace"}
        held, weights = hold_out(as_row_source(X), y, None, **parameters)
        np.testing.assert_array_equal(held.targets, y[held.rows])
        rest = make(C=10, gamma=1.0).fit(X, y, weights)
        expected = fit_laplace(y[held.rows] - rest.predict(X[held.rows]))
        assert regression.noise_scale_ == pytest.approx(float(expected.numbers[0, 0]), rel=1e-9)
        regression.save(tmp_path / "m")
        again = bigsvm.load(tmp_path / "m")
        assert again.noise_scale_ == regression.noise_scale_
        with pytest.raises(AttributeError, match="calibration='laplace' only"):
            _ = rest.noise_scale_
        with pytest.raises(ParameterError, match="a regression has no classes"):
            regression.model_.probabilities(X)

    def test_few_rows_are_refused(self):
        with pytest.raises(DataError, match="holds a tenth of them out, 3, but needs 10"):
            bigsvm.SVR(calibration="laplace").fit(np.arange(30.0)[:, None], np.arange(30.0))

    def test_a_checkpoint_of_another_calibration_is_refused(self, tmp_path):
        X = np.random.default_rng(0).normal(size=(200, 2))
        options = {"checkpoint": tmp_path / "run", "gamma": 0.5}
        bigsvm.SVR(calibration="laplace", **options).fit(X, X[:, 0])
        with pytest.raises(CheckpointError, match="calibration"):
            bigsvm.SVR(**options).fit(X, X[:, 0])
