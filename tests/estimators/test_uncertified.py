"""certify=False: classifiers that end when other rows would gain next to nothing."""

import warnings

import dask.array
import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from support.resuming import StopAt, assert_resumed_to_the_same_bits
from support.same import assert_same_model, without_measured

import bigsvm
from bigsvm.data.sources import as_row_source
from bigsvm.errors import CheckpointError, MemoryBudgetError, ParameterError
from bigsvm.fit.train import train_model
from bigsvm.models import KernelExpansion
from bigsvm.parameters import TrainingParameters
from bigsvm.training import events
from bigsvm.training.events import Hooks
from bigsvm.working_sets.choice import FIRST_SCOPE

N_ROWS, N_TEST = 40_000, 6000


def made(n_classes=2, seed=0, n_rows=N_ROWS):
    """Rows (n, 3) in sectors of classes, a twentieth of them with another's label."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (n_rows + N_TEST, 3)).astype(np.float32)
    y = np.floor((np.arctan2(x[:, 1], x[:, 0]) / np.pi + 1) * n_classes).astype(int) % n_classes
    noisy = rng.random(len(y)) < 0.05
    y[noisy] = rng.integers(n_classes, size=noisy.sum())
    return x[:n_rows], y[:n_rows], x[n_rows:], y[n_rows:]


@pytest.fixture(scope="module")
def two():
    return made()


@pytest.fixture(scope="module")
def three():
    return made(3, n_rows=20_000)


@pytest.fixture(
    params=[
        "SVC",
        "NuSVC",
        "L2SVC",
        pytest.param("Crammer-Singer", marks=pytest.mark.slow),
        "one against the rest",
    ]
)
def kind(request, two, three):
    """An estimator, and the data for it."""
    return {
        "SVC": (bigsvm.SVC(C=2, gamma=1.0), two),
        "NuSVC": (bigsvm.NuSVC(nu=0.15, gamma=1.0), two),
        "L2SVC": (bigsvm.L2SVC(C=2, gamma=1.0), two),
        "Crammer-Singer": (bigsvm.CrammerSingerSVC(C=2, gamma=1.0), three),
        "one against the rest": (bigsvm.SVC(C=2, gamma=1.0, multiclass="ovr"), three),
    }[request.param]


def test_uncertified_training_ends_early_with_an_error_estimate(kind):
    estimator, (x, y, xt, yt) = kind
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimator.set_params(certify=False).fit(x, y)
    found = estimator.certificate_
    assert not estimator.converged_
    assert estimator.stop_reason_ == "settled"
    assert found["gap"] is None
    assert found["objective"] is None
    assert FIRST_SCOPE < found["rows_used"] <= len(x)
    error = 1 - estimator.score(xt, yt)
    scatter = np.hypot(found["test_error_deviation"], np.sqrt(error * (1 - error) / N_TEST))
    # The model returned has seen more rows than the one that was evaluated.
    assert -0.01 < found["test_error"] - error + 3 * scatter
    assert found["test_error"] - error < 0.03 + 3 * scatter
    certified = estimator.set_params(certify=True).fit(x, y)
    assert certified.converged_
    assert certified.certificate_["test_error"] is None
    assert abs(error - (1 - certified.score(xt, yt))) < 0.02
    assert found["n_kernel_evaluations"] < certified.certificate_["n_kernel_evaluations"]


@pytest.mark.parametrize("layout", [np.asarray, sp.csr_matrix])
def test_the_order_of_the_rows_does_not_matter(two, layout):
    x, y, xt, yt = two
    order = np.lexsort((x[:, 0], y))
    model = bigsvm.SVC(C=2, gamma=1.0, certify=False).fit(layout(x[order]), y[order])
    assert model.stop_reason_ == "settled"
    shuffled = bigsvm.SVC(C=2, gamma=1.0, certify=False).fit(layout(x), y)
    assert model.score(xt, yt) == pytest.approx(shuffled.score(xt, yt), abs=0.01)


def test_each_pair_of_classes_ends_by_itself(three):
    x, y, xt, yt = three
    model = bigsvm.SVC(C=2, gamma=1.0, certify=False).fit(x, y)
    assert model.stop_reason_ == "settled"
    assert not model.converged_
    assert model.certificate_["pairs"]["stop_reasons"] == {"settled": 3}
    certified = bigsvm.SVC(C=2, gamma=1.0).fit(x, y)
    assert abs(model.score(xt, yt) - certified.score(xt, yt)) < 0.02


@pytest.mark.parametrize("name", ["SVC", "NuSVC", "CrammerSingerSVC"])
@pytest.mark.parametrize("multiclass", ["ovo", "ovr"])
def test_so_few_rows_that_all_are_trained_on_at_once_are_refused(name, multiclass, two, three):
    x, y, _, _ = two if name == "NuSVC" else three
    given = {} if name == "CrammerSingerSVC" else {"multiclass": multiclass}
    model = getattr(bigsvm, name)(gamma=1.0, certify=False, **given)
    with pytest.raises(ParameterError, match="leave it out below 8193 rows"):
        model.fit(x[:5000], y[:5000])


def test_rows_without_weight_are_not_evaluated(two):
    x, y, xt, yt = two
    wrong = np.arange(N_ROWS) % 3 == 0
    labels = np.where(wrong, 1 - y, y)
    model = bigsvm.SVC(C=2, gamma=1.0, certify=False).fit(x, labels, np.where(wrong, 0.0, 1.0))
    assert not wrong[model.support_].any()
    assert model.certificate_["test_error"] < 0.2
    assert model.score(xt, yt) > 0.85


def test_a_store_that_is_shuffled_is_not_read_to_its_end(tmp_path):
    x, y, _, _ = made(n_rows=120_000)
    wide = np.hstack([x, np.zeros((len(x), 97), np.float32)])
    bigsvm.write_store(tmp_path / "s", wide, y, layout="dense")
    model = bigsvm.SVC(C=2, gamma=1.0, certify=False, memory="30MB").fit(tmp_path / "s")
    assert model.stop_reason_ == "settled"
    assert model.certificate_["rows_used"] < 0.6 * len(x)
    assert model.certificate_["n_sweeps"] == 0


def test_incompatible_options_are_refused(two):
    x, y, _, _ = two
    with pytest.raises(ParameterError, match="working_set='all' on all of them"):
        bigsvm.SVC(certify=False, working_set="all").fit(x, y)
    model = bigsvm.SVC(C=2, gamma=1.0, certify=False, warm_start=True).fit(x, y)
    with pytest.raises(ParameterError, match="starts from a few rows, not from a model"):
        model.fit(x, y)


FORMULATIONS = {
    "c-svc": {},
    "nu-svc": {"nu": 0.25},
    "crammer-singer": {},
    "ovr": {"formulation": "c-svc", "multiclass": "ovr"},
    "ovo": {"formulation": "c-svc"},
}


@pytest.mark.parametrize("name", FORMULATIONS)
def test_an_interrupted_run_goes_on_to_the_same_bits(name, two, three, tmp_path):
    x, y, _, _ = two if name in ("c-svc", "nu-svc") else three
    given = {"formulation": name, "C": 2.0, "gamma": 1.0, "certify": False, "threads": 1}
    given |= FORMULATIONS[name]

    def train(folder, interrupted):
        saving = {"checkpoint": folder and str(folder), "checkpoint_every": 1e-9}
        parameters = TrainingParameters(**given, **saving)
        hooks = Hooks(interrupted=interrupted)
        return train_model(as_row_source(x), y, None, parameters, hooks)

    asked = StopAt()
    whole = train(None, asked)
    assert whole.certificate["stop_reason"] == "settled"
    first = asked.count // 2
    then = (max(asked.count // 3, 2), -1)
    assert_resumed_to_the_same_bits(
        train, tmp_path, [first], whole, then=then, same=assert_same_model
    )
    # A finished run is what it was.
    assert_same_model(train(tmp_path / str(first), StopAt()), whole)


@pytest.mark.parametrize("multiclass", ["ovo", "ovr"])
@pytest.mark.parametrize("classes", [2, 3])
def test_a_checkpoint_is_not_taken_up_by_a_certified_run(classes, multiclass, two, three, tmp_path):
    """Its variables are rows, those of a certified run are rows without their equals."""
    x, y, _, _ = two if classes == 2 else three
    given = {"C": 2, "gamma": 1.0, "checkpoint": tmp_path / "c", "multiclass": multiclass}
    assert bigsvm.SVC(**given, certify=False).fit(x, y).stop_reason_ == "settled"
    with pytest.raises(CheckpointError, match="certify"):
        bigsvm.SVC(**given).fit(x, y)


def test_events_tell_the_estimates(two):
    x, y, _, _ = two
    told = []
    parameters = TrainingParameters(C=2.0, gamma=1.0, certify=False)
    model = train_model(as_row_source(x), y, None, parameters, Hooks(listener=told.append))
    tested = [event for event in told if isinstance(event, events.Tested)]
    assert [event.trained for event in tested[:2]] == [2000, 3500]
    assert tested[-1].error == model.certificate["test_error"]
    assert tested[-1].trained + tested[-1].fresh == model.certificate["rows_used"]


def test_saved_model_keeps_its_certificate(two, tmp_path):
    x, y, _, _ = two
    model = bigsvm.SVC(C=2, gamma=1.0, certify=False).fit(x, y).model_
    model.save(tmp_path / "m")
    assert KernelExpansion.load(tmp_path / "m").certificate == without_measured(model.certificate)


WIDE = 197


def streamed(kind, x, y, folder):
    """Rows sorted by class and place, as a source that is read in blocks; and labels or None."""
    order = np.lexsort((x[:, 0], y))
    wide = np.hstack([x, np.zeros((len(x), WIDE), np.float32)])[order]
    if kind == "Dask":
        return dask.array.from_array(wide, chunks=(1000, -1)), y[order], order
    if kind == "Zarr":
        array = zarr.create_array(
            folder / "z", shape=wide.shape, chunks=(1000, wide.shape[1]), dtype=wide.dtype
        )
        array[:] = wide
        return array, y[order], order
    rows = sp.csr_matrix(wide) if kind == "CSR store" else wide
    layout = "sparse" if kind == "CSR store" else "dense"
    bigsvm.write_store(folder / "s", rows, y[order], layout=layout, shuffle=False)
    return folder / "s", None, order


@pytest.mark.parametrize("kind", ["Dask", "Zarr", "store", "CSR store"])
def test_sorted_rows_that_are_streamed_are_drawn_at_random(kind, two, tmp_path):
    x, y, xt, yt = two
    X, labels, order = streamed(kind, x, y, tmp_path)
    memory = "5MB" if kind == "CSR store" else "100MB"
    model = bigsvm.SVC(C=2, gamma=1.0, certify=False, memory=memory, n_jobs=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # memory may hold too few rows
        model.fit(X, labels)
    assert model.stop_reason_ in ("settled", "used_up")
    assert model.certificate_["rows_used"] < N_ROWS
    test = np.hstack([xt, np.zeros((N_TEST, WIDE), np.float32)])
    in_memory = bigsvm.SVC(C=2, gamma=1.0, certify=False).fit(x, y)
    assert model.score(test, yt) == pytest.approx(in_memory.score(xt, yt), abs=0.015)
    assert model.certificate_["test_error"] == pytest.approx(1 - model.score(test, yt), abs=0.02)
    # Support vectors are named by their rows among all, and have these rows' values.
    vectors = model.support_vectors_
    vectors = vectors.toarray() if sp.issparse(vectors) else vectors
    np.testing.assert_array_equal(vectors[:, :3], x[order][model.support_])


def test_support_vectors_of_drawn_rows_come_from_everywhere(two, tmp_path):
    x, y, _, _ = two
    X, labels, _ = streamed("Dask", x, y, tmp_path)
    model = bigsvm.SVC(C=2, gamma=1.0, certify=False, memory="100MB").fit(X, labels)
    counts = np.histogram(model.support_, bins=4, range=(0, N_ROWS))[0]
    assert (counts > 0.1 * len(model.support_)).all()


def test_too_little_memory_to_draw_rows_is_refused(two, tmp_path):
    x, y, _, _ = two
    X, labels, _ = streamed("Dask", x, y, tmp_path)
    with pytest.raises(MemoryBudgetError, match="memory holds 5625 random ones, too few"):
        bigsvm.SVC(certify=False, memory="30MB").fit(X, labels)
