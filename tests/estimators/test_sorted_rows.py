"""Rows in any order: nothing that looks at some of the rows takes the first ones for all."""

import functools

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from scipy.stats import chi2
from sklearn.exceptions import ConvergenceWarning

import bigsvm
from bigsvm.conversion.from_arrays import write_store
from bigsvm.data.scaler import Scaler
from bigsvm.data.sources import as_row_source
from bigsvm.data.wrappers import ScaledRows
from bigsvm.duals.formulations import CSVC
from bigsvm.fit.gamma import mean_distance
from bigsvm.fit.held_out import held_out_for
from bigsvm.fit.problem import Given
from bigsvm.fit.variables import make_variables
from bigsvm.parameters import TrainingParameters
from bigsvm.training.events import Hooks
from bigsvm.working_sets.choice import FIRST_SCOPE

N_ROWS, N_COLUMNS, N_CLUSTERS = 100_000, 10, 40
KINDS = ("array", "csr", "store", "unshuffled store", "dask", "zarr")
IN_ORDER = ("unshuffled store", "dask", "zarr")
"""Sources that are read in blocks, whose order is that of the input."""
STREAMS, HOLDS = "24MB", "300MB"
"""Memory in which the rows are read again and again, and in which they are held."""
RARE = 1e-6


def clusters(cluster, rng):
    """Rows of some clusters, every second one of the first class."""
    centres = 2 * np.random.default_rng(5).standard_normal((N_CLUSTERS, N_COLUMNS))
    noise = 0.3 * rng.standard_normal((len(cluster), N_COLUMNS))
    return (centres[cluster] + noise).astype(np.float32), np.where(cluster % 2, 1.0, -1.0)


def sorted_rows(n_rows=N_ROWS):
    return clusters(np.arange(n_rows) * N_CLUSTERS // n_rows, np.random.default_rng(0))


def clustered_rows():
    """Runs of one cluster each, in random order."""
    runs = np.random.default_rng(1).integers(0, N_CLUSTERS, 200)
    return clusters(np.repeat(runs, N_ROWS // 200), np.random.default_rng(0))


def duplicated_rows():
    """Each row twice, one after the other, sorted by cluster."""
    X, y = sorted_rows(N_ROWS // 2)
    return np.repeat(X, 2, axis=0), np.repeat(y, 2)


SHAPES = {"sorted": sorted_rows, "clustered": clustered_rows, "duplicated": duplicated_rows}


def source_of(kind, X, y, folder):
    """What `fit` takes: X of this kind, and y, which a store has itself."""
    n_rows = len(X)
    chunks = (max(2, n_rows // 25), X.shape[1])
    if kind in ("store", "unshuffled store"):
        return write_store(folder / kind, X, y, shuffle=kind == "store"), None
    if kind == "zarr":
        return zarr.create_array(folder / "foreign", data=X, chunks=chunks), y
    made = {"array": np.asarray, "csr": sp.csr_array, "dask": lambda X: da.from_array(X, chunks)}
    return made[kind](X), y


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Sources by shape and kind."""

    @functools.cache
    def source(shape, kind):
        return source_of(kind, *SHAPES[shape](), tmp_path_factory.mktemp("s"))

    return source


@pytest.fixture(scope="module")
def accuracy():
    """Share of new rows that a model of some rows, sampled and not certified, is right on."""
    X, y = clusters(np.arange(4000) % N_CLUSTERS, np.random.default_rng(9))

    def accuracy(X_train, y_train, memory=HOLDS, **options):
        options = {"gamma": 0.1, "C": 8, "certify": False, "n_jobs": 1} | options
        model = bigsvm.L2SVC(memory=memory, **options).fit(X_train, y_train)
        return float((model.predict(X) == y).mean())

    return accuracy


@pytest.fixture(scope="module")
def shuffled_accuracy(accuracy):
    """Accuracy of a model of the same rows in random order."""

    @functools.cache
    def of(shape):
        X, y = SHAPES[shape]()
        order = np.random.default_rng(0).permutation(len(X))
        return accuracy(X[order], y[order])

    return of


# -- sampled balls --------------------------------------------------------------------------------


@pytest.mark.fault("samples")
@pytest.mark.parametrize("memory", [STREAMS, HOLDS])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_sampled_ball_of_rows_in_any_order_is_as_good_as_of_shuffled_ones(
    shape, kind, memory, sources, accuracy, shuffled_accuracy
):
    found = accuracy(*sources(shape, kind), memory)
    assert found == pytest.approx(shuffled_accuracy(shape), abs=0.005)


@pytest.mark.fault("samples")
@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_rows", [2, 3, 30])
def test_a_sampled_ball_of_few_rows_is_as_good_as_of_shuffled_ones(
    n_rows, kind, held, accuracy, tmp_path, monkeypatch
):
    if not held:
        for module in ("in_memory", "fetched"):
            monkeypatch.setattr(f"bigsvm.data.{module}.HELD_SHARE", 0.0)
    X, y = clusters(np.sort(np.arange(n_rows) % 5), np.random.default_rng(0))
    order = np.random.default_rng(0).permutation(n_rows)
    found = accuracy(*source_of(kind, X, y, tmp_path))
    assert found == pytest.approx(accuracy(X[order], y[order]), abs=0.005)


@pytest.mark.slow
@pytest.mark.fault("samples")
@pytest.mark.parametrize("memory", ["70MB", "1GB"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_sampled_ball_of_many_sorted_rows(kind, memory, accuracy, tmp_path):
    X, y = sorted_rows(400_000)
    order = np.random.default_rng(0).permutation(len(X))
    shuffled = accuracy(X[order], y[order])
    assert accuracy(*source_of(kind, X, y, tmp_path), memory) == pytest.approx(shuffled, abs=0.005)


@pytest.mark.fault("samples")
@pytest.mark.parametrize("kind", ["store", *IN_ORDER])
def test_another_seed_is_another_search_of_streamed_rows(kind, sources):
    X, y = sources("sorted", kind)
    options = {"gamma": 0.1, "C": 8, "certify": False, "n_jobs": 1, "memory": STREAMS}
    support = [
        bigsvm.L2SVC(random_state=seed, **options).fit(X, y).support_.tolist() for seed in (0, 0, 1)
    ]
    assert support[0] == support[1]
    assert len(set(support[0]) & set(support[2])) < 0.5 * len(support[0])


# -- other samples --------------------------------------------------------------------------------


@pytest.mark.fault("samples")
@pytest.mark.parametrize("kind", KINDS)
def test_the_mean_distance_is_that_of_all_rows(kind, sources):
    source = as_row_source(sources("sorted", kind)[0])
    X, _ = sorted_rows()
    exact = 2 * X.var(axis=0, dtype=np.float64).sum()
    found = [mean_distance(source, None, seed=seed) for seed in (0, 1)]
    np.testing.assert_allclose(found, exact, rtol=0.05)
    assert found[0] != found[1]


@pytest.mark.fault("samples")
@pytest.mark.parametrize("kind", KINDS)
def test_the_mean_distance_is_that_of_rows_with_a_weight(kind, sources):
    """A run of rows without weight, as a calibration holds out, is not taken for all."""
    source = as_row_source(sources("sorted", kind)[0])
    X = source.read(0, N_ROWS)
    weights = np.zeros(N_ROWS)
    weights[-3000:] = 1.0
    last = X[-3000:].toarray() if sp.issparse(X) else X[-3000:]
    exact = 2 * last.var(axis=0, dtype=np.float64).sum()
    for seed in range(3):
        assert mean_distance(source, weights, seed=seed) == pytest.approx(exact, rel=1e-6)


@pytest.mark.fault("samples")
@pytest.mark.parametrize("kind", ["store", "unshuffled store", "dask"])
def test_the_mean_distance_is_the_same_in_any_memory(kind, sources):
    """A resumed run may have more memory than before."""
    X, y = sources("sorted", kind)
    options = {"gamma": "mean-distance", "max_iter": 1, "n_jobs": 1}
    gammas = []
    for memory in (STREAMS, HOLDS):
        with pytest.warns(ConvergenceWarning, match="max_iter"):
            model = bigsvm.L2SVC(memory=memory, **options).fit(X, y)
        gammas.append(model.model_.kernel.gamma)
    assert gammas[0] == gammas[1]


@pytest.mark.fault("samples")
@pytest.mark.parametrize("kind", KINDS)
def test_rows_held_out_are_a_tenth_of_every_part_of_the_input(kind, sources):
    source = as_row_source(sources("sorted", kind)[0])
    original = source.original_rows()
    _, y = sorted_rows()
    given = TrainingParameters(calibration="sigmoid")
    held, _ = held_out_for(Given(source, y[original], None, given, Hooks()))
    counts = np.bincount(original[held.rows] * N_CLUSTERS // N_ROWS, minlength=N_CLUSTERS)
    expected = N_ROWS / 10 / N_CLUSTERS
    # Blocks of a store are a tenth of all only nearly.
    assert counts.mean() == pytest.approx(expected, rel=0.3 if kind == "store" else 0.01)
    statistic = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
    assert statistic < chi2.isf(RARE, N_CLUSTERS - 1)


@pytest.mark.fault("samples")
@pytest.mark.parametrize("kind", ["array", "csr"])
def test_the_first_variables_are_of_every_part_of_the_input(kind, sources):
    """A scope that grows begins with them."""
    X, y = sources("sorted", kind)
    formulation = CSVC(sign=y.astype(np.int8), C=1.0)
    variables = make_variables(as_row_source(X), formulation, merge=True)
    assert variables.source.is_shuffled
    first = variables.groups.first[:FIRST_SCOPE].astype(np.int64)
    counts = np.bincount(first * N_CLUSTERS // N_ROWS, minlength=N_CLUSTERS)
    statistic = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
    assert statistic < chi2.isf(RARE, N_CLUSTERS - 1)


@pytest.mark.fault("samples")
@pytest.mark.parametrize("kind", ["array", *IN_ORDER])
def test_no_source_says_of_rows_in_order_that_they_are_shuffled(kind, sources):
    """Scopes that grow, blocks that are held out and samples that are runs rely on it."""
    source = as_row_source(sources("sorted", kind)[0])
    unscaled = Scaler("standard", np.zeros(N_COLUMNS), np.ones(N_COLUMNS))
    assert not source.is_shuffled
    assert not ScaledRows(source, unscaled).is_shuffled


@pytest.mark.fault("samples")
def test_the_bytes_of_a_sparse_row_are_not_those_of_the_first_block():
    """Memory is planned with them."""
    rng = np.random.default_rng(0)
    blocks = [sp.random_array((500, 60), density=d, format="csr", rng=rng, dtype=np.float32)
              for d in np.linspace(0.02, 1, 20)]  # fmt: skip
    joined = sp.csr_array(sp.vstack(blocks))
    lazy = da.concatenate([da.from_array(block, asarray=False) for block in blocks])
    found = as_row_source(lazy).bytes_per_row
    assert found == pytest.approx(as_row_source(joined).bytes_per_row, rel=0.5)
