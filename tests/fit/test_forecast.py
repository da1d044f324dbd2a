"""What a fit will take is said from fits of samples."""

from types import SimpleNamespace

import numpy as np
import pytest
from numba.core import event
from support.problems import blobs

import bigsvm
from bigsvm.errors import MemoryBudgetError, ParameterError
from bigsvm.fit import forecast as module
from bigsvm.fit.forecast import Sample


@pytest.fixture(autouse=True)
def samples_are_small(monkeypatch):
    monkeypatch.setattr(module, "FIRST_ROWS", 100)


def grown(exponent, seconds, sizes=(1000, 2000, 4000, 8000)):
    """Samples whose support vectors and times grow as powers."""
    return [Sample(m, round(m**exponent), 0, 1, 1e-6 * m**seconds) for m in sizes]


@pytest.mark.parametrize("exponent", [0.5, 0.75, 1.0])
def test_powers_are_continued(exponent):
    samples = grown(exponent, 1 + exponent)
    support = module._support_range(samples, 64_000)
    assert support.expected == pytest.approx(64_000**exponent, rel=0.03)
    assert support.low < support.expected <= support.high <= 64_000
    seconds = module._seconds_range(samples, 64_000)
    assert seconds.expected == pytest.approx(1e-6 * 64_000 ** (1 + exponent), rel=0.03)
    assert seconds.low < seconds.expected < seconds.high


def test_time_grows_more_than_that_of_small_samples():
    """Their fixed costs grow not at all."""
    seconds = module._seconds(grown(0.7, 0.2), 64_000)
    assert seconds == pytest.approx(1e-6 * 8000**0.2 * 8 ** ((1 + 1.7) / 2), rel=0.03)


def test_time_is_that_of_samples_that_are_trained_as_all_rows_are():
    others = [sample._replace(is_alike=False) for sample in grown(0.8, 1.0)]
    alike = grown(0.8, 1.8, sizes=(8193,))
    assert module._seconds([*others, *alike], 64_000) == pytest.approx(1e-6 * 64_000**1.8, rel=0.1)


def test_sizes_grow_past_those_that_are_one_working_set():
    sizes = [1000]
    while sizes[-1] < 50_000:
        sizes.append(module._next_size(sizes[-1], 50_000))
    assert sizes == [1000, 2000, 4000, 8193, 16386, 32772, 50_000]


def test_support_vectors_are_at_most_all_rows():
    assert module._support_range([Sample(100, 100, 40, 1, 1.0)], 1000) == (
        pytest.approx(1000 / 10**0.1), 1000, 1000,
    )  # fmt: skip


def test_support_vectors_at_bounds_grow_apart_from_the_others():
    """With ν, a share of the rows is at bounds; the others hardly grow."""
    samples = [Sample(m, m // 20 + 60, m // 20, 1, 1.0) for m in (1000, 2000, 4000)]
    assert module._support(samples, 80_000) == pytest.approx(4060, rel=0.01)


@pytest.mark.parametrize("y", [None, "labels"])
def test_few_rows_are_trained_wholly(y):
    X, labels = blobs(300)
    model = bigsvm.OneClassSVM(nu=0.2) if y is None else bigsvm.SVC(gamma=0.5)
    planned = model.plan(X, None if y is None else labels)
    # Rows of each class are added to samples.
    assert [sample.n_rows // 100 for sample in planned.samples] == [1, 2, 3]
    assert planned.n_support[1] == len(model.fit(X, labels).support_)
    assert planned.seconds.low == planned.seconds.high == planned.samples[-1].seconds


def test_time_of_compiling_is_not_that_of_a_sample(monkeypatch):
    train_model, seconds = module.train_model, [0.0]
    # One clock for all: only what is compiled takes time.
    clock = SimpleNamespace(
        perf_counter=lambda: seconds[0], monotonic=lambda: seconds[0], process_time=lambda: 0.0
    )
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr("bigsvm.compilation.time", clock)

    def compiling(*given, **named):
        function = SimpleNamespace(py_func=compiling, stats=SimpleNamespace(cache_path=None))
        with event.trigger_event("numba:compile", data={"dispatcher": function}):
            seconds[0] += 1.0
        seconds[0] += 0.25
        return train_model(*given, **named)

    monkeypatch.setattr(module, "train_model", compiling)
    X, y = blobs(200)
    planned = bigsvm.SVC(gamma=0.5).plan(X, y)
    assert planned.seconds.expected == 0.25


@pytest.mark.parametrize("store", [False, True])
def test_samples_end_before_they_take_long(tmp_path, store):
    X, y = blobs(6000)
    if store:
        rows = bigsvm.write_store(tmp_path / "rows.zarr", X, y)
        planned = bigsvm.SVC(gamma=0.5).plan(rows)
    else:
        planned = bigsvm.SVC(gamma=0.5).plan(X, y)
    sizes = [sample.n_rows for sample in planned.samples]
    assert sizes == sorted(sizes)
    assert 3 <= len(sizes) <= 7
    assert planned.n_support.low <= planned.n_support.expected <= planned.n_support.high


def test_samples_have_every_class():
    X, y = blobs(4000)
    y = y.astype(int)
    y[[17, 3900]] = 7
    planned = bigsvm.SVC(gamma=0.5).plan(X, y)
    assert planned.samples[0].n_rows > 100
    assert np.isfinite(planned.n_support).all()


def test_disk_is_that_of_the_checkpoint_and_of_kernel_rows(tmp_path):
    X, y = blobs(500)
    model = bigsvm.SVC(checkpoint=tmp_path / "run", disk_cache="1MB", working_set="all")
    planned = model.plan(X, y)
    assert planned.disk_bytes > 1_000_000 + 2 * 16 * 500
    assert not (tmp_path / "run").exists()
    assert not hasattr(model, "model_")


def test_it_is_refused_where_a_fit_is(tmp_path):
    X, y = blobs(20_000)
    rows = bigsvm.write_store(tmp_path / "rows.zarr", X, y)
    with pytest.raises(MemoryBudgetError, match="give at least"):
        bigsvm.SVC(memory="200kB").plan(rows)
    with pytest.raises(ParameterError, match="needs rows to sample"):
        bigsvm.SVC(kernel="precomputed").plan(X[:300] @ X[:300].T, y[:300])
    with pytest.raises(ParameterError, match="C is -1"):
        bigsvm.SVC(C=-1).plan(X, y)


def test_an_interruption_ends_it():
    from bigsvm.data.sources import as_row_source
    from bigsvm.parameters import TrainingParameters
    from bigsvm.training.events import Hooks

    X, y = blobs(3000)
    with pytest.raises(KeyboardInterrupt):
        module.forecast(
            as_row_source(X), y, None, TrainingParameters(), Hooks(interrupted=lambda: True)
        )
