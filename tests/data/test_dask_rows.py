"""Rows of a Dask array whose blocks the workers of a cluster compute."""

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from row_contracts import RowSourceContract

from bigsvm.data.dask_rows import DaskRows


@pytest.mark.slow
class TestDenseBlocksOnWorkers(RowSourceContract):
    sparse = False

    @pytest.fixture
    def make(self, client):
        return lambda matrix: DaskRows(da.from_array(matrix, chunks=(130, 9)), client=client)


@pytest.mark.slow
class TestSparseBlocksOnWorkers(RowSourceContract):
    sparse = True

    @pytest.fixture
    def make(self, client):
        return lambda matrix: DaskRows(
            da.from_array(matrix, chunks=(130, 23)).map_blocks(sp.csr_array), client=client
        )


def test_statistics_have_the_bits_of_this_process(client):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 300)).astype(np.float32)
    for blocks in (
        da.from_array(X, chunks=(900, 300)),
        da.from_array(X, chunks=(900, 300)).map_blocks(sp.csr_array),
    ):
        here, there = DaskRows(blocks), DaskRows(blocks, client=client)
        np.testing.assert_array_equal(there.column_means(), here.column_means())
        assert there.total_variance() == here.total_variance()
        assert there.bytes_read == 0


def test_blocks_are_rows_of_the_same_kind_there(client):
    X = np.arange(60).reshape(20, 3)
    rows = DaskRows(da.from_array(X, chunks=((5, 0, 8, 7), 3)), client=client)
    blocks = rows.remote_blocks()
    assert blocks.edges.tolist() == [0, 5, 13, 20]
    for start, stop in [(0, 5), (5, 13), (13, 20)]:
        made = client.submit(blocks.convert, blocks.future(start), start, stop).result()
        assert made.dtype == rows.dtype
        np.testing.assert_array_equal(made, X[start:stop])
    assert blocks.holders() == {}


def test_holders_are_the_workers_that_have_a_block(client):
    X = client.persist(da.zeros((40, 3), chunks=(10, 3)))
    from distributed import wait

    wait(X)
    holders = DaskRows(X).remote_blocks().holders()
    assert sorted(holders) == [0, 10, 20, 30]
    assert set(holders.values()) <= set(client.scheduler_info()["workers"])
