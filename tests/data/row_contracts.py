"""What every `RowSource` must do: one class, inherited once for each implementation."""

import itertools
import threading

import numpy as np
import pytest
import scipy.sparse as sp
from support.stores import dense, make_matrix

from bigsvm.interruption import checked_by


class RowSourceContract:
    """Subclasses define the fixture `make`: from a dense array, a source of the same rows."""

    sparse: bool
    exact_order = True

    @pytest.fixture
    def matrix(self):
        return make_matrix()

    @pytest.fixture
    def source(self, make, matrix):
        return make(matrix)

    def test_describes_itself(self, source, matrix):
        assert (source.n_rows, source.n_columns) == matrix.shape
        assert source.dtype == matrix.dtype
        assert source.is_sparse is self.sparse
        assert source.row_alignment >= 1
        rows = source.read(0, source.n_rows)
        size = (
            rows.data.nbytes + rows.indices.nbytes + rows.indptr.nbytes
            if self.sparse
            else rows.nbytes
        )
        assert source.bytes_per_row == pytest.approx(size / source.n_rows, rel=0.6)

    def test_float64_is_kept(self, make):
        matrix = make_matrix(50, dtype=np.float64)
        source = make(matrix)
        assert source.dtype == np.float64
        np.testing.assert_array_equal(dense(source.read(0, 50)), matrix)

    def test_read(self, source, matrix):
        spans = [(0, 1000), (0, 1), (999, 1000), (137, 731), (5, 5), (0, 0), (1000, 1000)]
        for start, stop in spans:
            rows = source.read(start, stop)
            assert rows.shape == (stop - start, matrix.shape[1])
            assert rows.dtype == matrix.dtype
            assert sp.issparse(rows) is self.sparse
            if self.sparse:
                assert rows.format == "csr"
                assert rows.has_sorted_indices
                assert rows.indices.dtype == np.int32
            else:
                assert rows.flags.c_contiguous
            np.testing.assert_array_equal(dense(rows), matrix[start:stop])

    @pytest.mark.parametrize(("start", "stop"), [(-1, 5), (0, 1001), (5, 4)])
    def test_read_refuses_rows_that_are_not_there(self, source, start, stop):
        with pytest.raises(IndexError):
            source.read(start, stop)

    def test_blocks_cover_the_rows_once(self, source, matrix):
        spans = [(0, None), (13, 900), (500, 500), (999, None)]
        for max_bytes, (start, stop) in itertools.product([1, 5000, 40_000, 10**9], spans):
            at = start
            for block in source.blocks(max_bytes, start=start, stop=stop):
                assert block.start == at
                n = block.values.shape[0]
                assert 0 < n <= source.rows_per_block(max_bytes)
                np.testing.assert_array_equal(dense(block.values), matrix[at : at + n])
                at += n
                assert at % source.row_alignment == 0 or at == (stop or len(matrix))
            assert at == (len(matrix) if stop is None else stop)

    def test_blocks_fit_the_budget(self, source):
        rows = source.rows_per_block(60_000)
        assert rows % source.row_alignment == 0
        assert rows * source.bytes_per_row * 2 <= 60_000 or rows == source.row_alignment

    def test_blocks_are_read_ahead_by_another_thread(self, source, monkeypatch):
        threads = []
        read = source.read

        def spy(start, stop):
            threads.append(threading.current_thread())
            return read(start, stop)

        monkeypatch.setattr(source, "read", spy)
        blocks = source.blocks(1)
        next(blocks)
        next(blocks, None)
        blocks.close()
        assert threading.current_thread() not in threads
        assert not any(thread.is_alive() for thread in threads)

    def test_take(self, source, matrix):
        rng = np.random.default_rng(1)
        for indices in (
            rng.integers(0, 1000, 300),
            np.arange(1000)[::-1],
            np.array([7, 7, 7, 999, 0]),
            np.array([], np.int64),
        ):
            rows = source.take(indices)
            assert sp.issparse(rows) is self.sparse
            assert rows.dtype == matrix.dtype
            np.testing.assert_array_equal(dense(rows), matrix[indices])

    def test_lent_rows_are_those_taken(self, source, matrix):
        for indices in (np.array([7, 999, 0, 7]), np.arange(1000), np.array([], np.int64)):
            rows, places = source.lend(indices)
            np.testing.assert_array_equal(dense(rows[places]), matrix[indices])
        for wrong in ([1000], [-1]):
            with pytest.raises(IndexError):
                source.lend(np.array(wrong))

    def test_take_may_be_given_up_before_any_chunk(self, source):
        checks = []
        with checked_by(lambda: checks.append(None)):
            source.take(np.arange(1000))
        for nth in {1, len(checks)}:
            remaining = iter(checks[:nth])

            def check(remaining=remaining):
                next(remaining)
                if not remaining.__length_hint__():
                    raise TimeoutError

            with checked_by(check), pytest.raises(TimeoutError):
                source.take(np.arange(1000))

    @pytest.mark.parametrize("index", [-1, 1000])
    def test_take_refuses_rows_that_are_not_there(self, source, index):
        with pytest.raises(IndexError):
            source.take(np.array([0, index]))

    def test_means_and_variance(self, source, matrix):
        exact = matrix.astype(np.float64)
        np.testing.assert_allclose(
            source.column_means(), exact.mean(axis=0), rtol=1e-13, atol=1e-15
        )
        assert source.column_means().dtype == np.float64
        assert source.total_variance() == pytest.approx(exact.var(), rel=1e-12)

    def test_variance_survives_a_large_offset(self, make):
        matrix = make_matrix(400, dtype=np.float64, density=1.1) + 1e6
        assert make(matrix).total_variance() == pytest.approx(
            (matrix - 1e6).var() + 0 * matrix.size, rel=1e-6
        )

    def test_fingerprint_is_that_of_the_content(self, make, matrix):
        same = make(matrix.copy()).fingerprint()
        assert make(matrix).fingerprint() == same
        others = [matrix.copy() for _ in range(3)]
        others[0][999, 22] += 1
        others[1][[3, 4]] = others[1][[4, 3]]
        others[2] = others[2][:999]
        others.append(matrix.astype(np.float64))
        prints = {make(other).fingerprint() for other in others}
        assert len(prints) == 4
        assert same not in prints

    def test_as_dask(self, source, matrix):
        array = source.as_dask()
        assert array.shape == matrix.shape
        assert array.dtype == matrix.dtype
        assert array.numblocks[1] == 1
        assert array.npartitions <= 1000
        np.testing.assert_array_equal(dense(array.compute(scheduler="synchronous")), matrix)
        part = array[100:300].compute(scheduler="threads")
        np.testing.assert_array_equal(dense(part), matrix[100:300])

    def test_bytes_read_only_grows(self, source):
        before = source.bytes_read
        source.read(0, 500)
        assert source.bytes_read >= before

    def test_threads_may_read_together(self, source, matrix):
        def work(seed):
            rng = np.random.default_rng(seed)
            for _ in range(10):
                a, b = np.sort(rng.integers(0, 1001, 2))
                np.testing.assert_array_equal(dense(source.read(a, b)), matrix[a:b])
            done.append(seed)

        done = []
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(done) == [0, 1, 2, 3]
