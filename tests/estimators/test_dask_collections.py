"""Dask's arrays and data frames: who computes them, how often, and what predictions are."""

import threading
from collections import Counter

import dask
import dask.array as da
import dask.bag as db
import numpy as np
import pytest
import scipy.sparse as sp

import bigsvm
from bigsvm.errors import DataError

ROWS = 1200
RNG = np.random.default_rng(0)
X = RNG.standard_normal((ROWS, 4)).astype(np.float32)
Y = (X[:, 0] + 0.3 * RNG.standard_normal(ROWS) > 0).astype(int)
NAMES = list("abcd")
INDEX = np.arange(5000, 5000 + ROWS)


def array():
    return da.from_array(X, chunks=(200, 4))


@pytest.fixture(scope="module")
def frames():
    """pandas, dask.dataframe; the latter needs pyarrow, which the extra "interop" has."""
    pytest.importorskip("pyarrow")
    return pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")


@pytest.fixture
def frame(frames):
    pandas, dd = frames
    return dd.from_pandas(pandas.DataFrame(X, columns=NAMES, index=INDEX), npartitions=5)


class TestScores:
    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize(
        ("estimator", "y"),
        [(bigsvm.SVC(), Y), (bigsvm.SVR(), X[:, 1]), (bigsvm.L2SVC(), Y)],
    )
    def test_of_a_frame_it_is_that_of_an_array(self, frames, frame, estimator, y, weighted):
        pandas, dd = frames
        weights = np.linspace(0.5, 2, ROWS) if weighted else None
        fitted = estimator.fit(frame, y)
        expected = fitted.score(pandas.DataFrame(X, columns=NAMES), y, weights)
        series = dd.from_pandas(pandas.Series(y, index=INDEX), npartitions=3)
        for labels in (y, series, da.from_array(y, chunks=100)):
            assert fitted.score(frame, labels, weights) == expected
        assert fitted.score(frame[frame.a > -9], y, weights) == expected

    def test_of_an_array_whose_blocks_have_unknown_sizes(self):
        rows = array()
        fitted = bigsvm.SVC().fit(X, Y)
        assert fitted.score(rows[rows[:, 0] > -9], Y) == fitted.score(X, Y)


class TestPredictionsOfAFrame:
    @pytest.mark.parametrize(
        ("estimator", "methods"),
        [
            (bigsvm.SVC(calibration="sigmoid"), ["predict", "decision_function", "predict_proba"]),
            (bigsvm.SVC(multiclass="ovr"), ["predict", "decision_function"]),
            (bigsvm.SVR(), ["predict"]),
            (bigsvm.OneClassSVM(nu=0.1), ["predict", "decision_function", "score_samples"]),
            (bigsvm.CrammerSingerSVC(), ["predict", "decision_function"]),
        ],
    )
    @pytest.mark.parametrize("k", [2, 3])
    def test_they_keep_index_and_divisions(self, frames, frame, estimator, methods, k):
        pandas, dd = frames
        fitted = estimator.fit(frame, np.arange(ROWS) % k)
        for method in methods:
            found = getattr(fitted, method)(frame)
            expected = getattr(fitted, method)(pandas.DataFrame(X, columns=NAMES))
            assert isinstance(found, dd.Series if expected.ndim == 1 else dd.DataFrame)
            assert found.divisions == frame.divisions
            computed = found.compute()
            np.testing.assert_array_equal(computed.index, INDEX)
            np.testing.assert_allclose(computed.to_numpy(), expected, rtol=1e-6, atol=1e-6)
            assert (found.dtype if expected.ndim == 1 else found.dtypes[0]) == expected.dtype

    def test_words_stand_beside_their_rows(self, frames, frame):
        pandas, _ = frames
        words = np.where(Y == 1, "yes", "no")
        fitted = bigsvm.SVC().fit(frame, words)
        beside = frame.assign(label=fitted.predict(frame)).compute()
        expected = fitted.predict(pandas.DataFrame(X, columns=NAMES))
        np.testing.assert_array_equal(beside["label"].astype(str), expected)

    def test_a_part_of_unknown_divisions(self, frame):
        fitted = bigsvm.SVC().fit(frame, Y)
        part = frame[frame.a > 0].clear_divisions()
        found = fitted.predict(part)
        assert found.divisions == part.divisions
        np.testing.assert_array_equal(found.compute().index, INDEX[X[:, 0] > 0])

    @pytest.mark.parametrize(
        "made",
        [
            lambda dd, frame, folder: dd.concat([frame, frame]),
            lambda dd, frame, folder: frame.repartition(npartitions=2),
            lambda dd, frame, folder: frame.set_index("a", drop=False),
            # Dask reads files together where few columns of many are asked for.
            lambda dd, frame, folder: frame.to_parquet(folder) or dd.read_parquet(folder),
            lambda dd, frame, folder: frame[frame.a > 9],
        ],
        ids=["concat", "repartition", "set_index", "parquet", "no rows"],
    )
    # A warning of pandas 3.1 about Dask.
    @pytest.mark.filterwarnings("ignore:The inplace keyword")
    def test_frames_of_any_graph(self, frames, tmp_path, made):
        pandas, dd = frames
        wide = np.hstack([X] * 8)
        names = ["a", *(f"c{k}" for k in range(wide.shape[1] - 1))]
        frame = dd.from_pandas(pandas.DataFrame(wide, columns=names), npartitions=12)
        rows = made(dd, frame, tmp_path)
        fitted = bigsvm.SVC().fit(frame, Y)
        found, held = fitted.predict(rows), rows.compute()
        assert found.divisions == rows.divisions
        np.testing.assert_array_equal(found.compute().index, held.index)
        if len(held):
            np.testing.assert_array_equal(found.compute(), fitted.predict(held))


def counted(rows, calls):
    """Rows whose blocks count how often they are computed."""

    def count(block, block_info=None):
        calls[block_info[0]["chunk-location"][0]] += 1
        return block

    return rows.map_blocks(count, dtype=rows.dtype, meta=np.empty((0, 4), rows.dtype))


class TestScheduler:
    @pytest.mark.parametrize("hidden", ["fused", "argument", "plain"])
    @pytest.mark.parametrize("memory", ["1GB", "2.5MB"])
    def test_results_of_an_client_are_found(self, client, hidden, memory):
        # Held, as a graph in which tasks hide results does not keep these.
        shift, persisted = client.scatter(np.float32(1)), client.persist(array())
        rows = {
            "plain": lambda: persisted + np.float32(1),
            # Dask finds no results in these graphs.
            "fused": lambda: dask.optimize(persisted + np.float32(1))[0],
            "argument": lambda: array().map_blocks(np.add, shift, dtype=np.float32),
        }[hidden]()
        fitted = bigsvm.SVC(memory=memory).fit(rows, Y)
        expected = bigsvm.SVC(memory=memory).fit(array() + np.float32(1), Y)
        np.testing.assert_array_equal(fitted.dual_coef_, expected.dual_coef_)
        np.testing.assert_array_equal(fitted.predict(rows), expected.predict(X + np.float32(1)))

    def test_the_scheduler_is_the_one_that_is_set(self):
        seen = []

        def scheduler(graph, keys, **options):
            seen.append(keys)
            return dask.get(graph, keys, **options)

        with dask.config.set(scheduler=scheduler):
            bigsvm.SVC().fit(array(), Y)
        assert seen

    def test_blocks_that_are_read_together_are_computed_by_several_threads(self):
        meeting = threading.Barrier(2, timeout=10)

        def meet(block):
            meeting.wait()  # breaks, and raises, unless two threads are here at a time
            return block

        rows = array().map_blocks(meet, dtype=np.float32, meta=np.empty((0, 4), np.float32))
        with dask.config.set(scheduler="threads", num_workers=2):
            bigsvm.SVC().fit(rows, Y)

    @pytest.mark.parametrize("memory", ["1GB", "2.5MB"])
    @pytest.mark.parametrize("estimator", [bigsvm.SVC(), bigsvm.SVR(), bigsvm.OneClassSVM()])
    def test_blocks_of_rows_that_are_held_are_computed_once(self, estimator, memory):
        calls = Counter()
        fitted = estimator.set_params(memory=memory).fit(counted(array(), calls), Y)
        assert set(calls.values()) == {1}
        expected = estimator.fit(X, Y)
        np.testing.assert_allclose(fitted.objective_, expected.objective_, rtol=1e-6)
        calls.clear()
        fitted.predict(counted(array(), calls)).compute()
        assert set(calls.values()) == {1}

    def test_so_are_those_of_sparse_blocks_but_for_a_few(self):
        calls = Counter()
        rows = counted(array(), calls).map_blocks(sp.csr_array)
        bigsvm.SVC().fit(rows, Y)
        # Some are computed to learn how many entries a row has.
        assert sorted(calls.values())[:2] == [1, 1]
        assert max(calls.values()) == 2

    def test_a_hash_of_the_rows_is_that_of_a_pass_over_the_blocks(self):
        from bigsvm.data.sources import as_row_source

        held, passed = as_row_source(array()), as_row_source(array())
        rows = held.read_whole()
        np.testing.assert_array_equal(rows, X)
        assert held.fingerprint() == passed.fingerprint()
        np.testing.assert_array_equal(held.column_means(), passed.column_means())


@pytest.mark.parametrize("make", [lambda: db.from_sequence(X.tolist()), lambda: dask.delayed(X)])
def test_what_is_no_table_is_refused(make, tmp_path):
    fitted = bigsvm.SVC().fit(X[:50], Y[:50])
    for use in (
        lambda rows: bigsvm.SVC().fit(rows, Y),
        fitted.predict,
        lambda rows: bigsvm.write_store(tmp_path / "store.zarr", rows, Y),
    ):
        with pytest.raises(DataError, match="of Dask, which is no table"):
            use(make())
