"""Training on Dask arrays and data frames whose blocks are on the workers of a cluster."""

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from support.same import assert_same_bits

import bigsvm
from bigsvm.errors import CheckpointError, ClusterError, DataError
from bigsvm.executors.workforce import Workforce

ROWS, COLUMNS, BLOCK = 5000, 16, 700


@pytest.fixture(scope="module")
def clouds():
    rng = np.random.default_rng(0)
    centres, near = rng.standard_normal((20, COLUMNS)), rng.integers(20, size=ROWS)
    X = (centres[near] + 0.7 * rng.standard_normal((ROWS, COLUMNS))).astype(np.float32) / 5
    return X, near % 2


@pytest.fixture
def traffic(monkeypatch):
    """What the fits of a test have asked of workers."""
    closed, close = [], Workforce.close
    monkeypatch.setattr(
        Workforce, "close", lambda self: (closed.append(self.traffic), close(self))[1]
    )
    return closed


def svc():
    # Rows that take more than a share of this memory are not held here.
    return bigsvm.SVC(C=1, gamma=0.5, memory="2MB", n_jobs=1)


def array(X):
    return da.from_array(X, chunks=(BLOCK, COLUMNS))


def assert_same_fit(found, expected):
    assert_same_bits(found.model_, expected.model_, but={"provenance", "n_workers", "certificate"})
    assert found.objective_ == expected.objective_


class TestTraining:
    @pytest.mark.parametrize(
        "kind",
        ["persisted", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("lazy", "sparse"))],
    )
    def test_the_bits_are_those_of_this_machine(self, client, clouds, traffic, kind):
        X, y = clouds
        blocks = array(X)
        if kind == "sparse":
            blocks = array(X * (X > 0)).map_blocks(sp.csr_array)
        here = svc().fit(blocks, y)
        labels = da.from_array(y, chunks=BLOCK)
        if kind != "lazy":
            blocks, labels = client.persist([blocks, labels])
        there = svc().fit(blocks, labels, client=client)
        assert_same_fit(there, here)
        (counted,) = traffic
        assert counted.evaluations > there.certificate_["n_kernel_evaluations"] / 2
        # No rows are sent but those that have moved, and few are read here.
        assert counted.bytes_sent < 3 * counted.bytes_moved
        assert there.certificate_["bytes_read"] < here.certificate_["bytes_read"] / 10

    @pytest.mark.slow
    def test_weights_and_frames(self, client, clouds):
        dd = pytest.importorskip("dask.dataframe")
        X, y = clouds
        frame = dd.from_dask_array(array(X), columns=[f"x{i}" for i in range(COLUMNS)])
        weights = np.linspace(0.5, 1.5, ROWS)
        here = svc().fit(frame, y, weights)
        there = svc().fit(
            client.persist(frame), y, da.from_array(weights, chunks=BLOCK), client=client
        )
        assert_same_fit(there, here)
        assert list(there.feature_names_in_) == list(frame.columns)

    def test_columns_are_renumbered_on_workers(self, client, clouds, traffic):
        X, y = clouds
        wide = sp.csr_array((X * (X > 0))[:2500])
        numbers = np.random.default_rng(1).choice(200_000, COLUMNS, replace=False)
        wide = sp.csr_array(
            (wide.data, np.sort(numbers)[wide.indices], wide.indptr), shape=(2500, 200_000)
        )
        blocks = da.from_array(wide, chunks=(BLOCK, 200_000), asarray=False)
        fits = [
            bigsvm.SVC(C=1, gamma=0.5, memory="2MB", n_jobs=1, tol=0.1)
            .fit(rows, y[:2500], client=who)
            for rows, who in [(blocks, None), (client.persist(blocks), client)]
        ]  # fmt: skip
        assert_same_fit(fits[1], fits[0])
        assert traffic[0].bytes_sent < 3 * traffic[0].bytes_moved

    @pytest.mark.slow
    def test_a_saved_run_goes_on_with_the_same_blocks(self, client, clouds, tmp_path):
        X, y = clouds
        fits = []
        for name, rows, who in [("here", array(X), None), ("there", array(X), client)]:
            part = svc().set_params(checkpoint=str(tmp_path / name), max_iter=200)
            with pytest.warns(ConvergenceWarning):
                part.fit(rows, y, client=who)
            fits.append(part.set_params(max_iter=10**7).fit(rows, y, client=who))
        assert_same_fit(fits[1], fits[0])
        other = array(X).rechunk((1000, COLUMNS))
        with pytest.raises(CheckpointError, match="data"):
            part.fit(other, y, client=client)

    @pytest.mark.slow
    def test_results_on_a_cluster_need_no_client_to_be_read(self, client, clouds):
        X, y = clouds
        here = svc().fit(array(X), y)
        there = svc().fit(client.persist(array(X)), y)
        assert_same_fit(there, here)

    @pytest.mark.slow
    def test_blocks_of_a_worker_that_dies_are_made_again(self, clouds):
        distributed = pytest.importorskip("distributed")
        import os
        import signal

        X, y = clouds
        with (
            distributed.LocalCluster(
                n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None,
                memory_limit="600MB", silence_logs=60,
            ) as cluster,
            distributed.Client(cluster) as client,
        ):  # fmt: skip
            rows = client.persist(array(X))
            distributed.wait(rows)
            pid = next(iter(client.run(os.getpid).values()))
            os.kill(pid, signal.SIGKILL)
            assert_same_fit(svc().fit(rows, y, client=client), svc().fit(array(X), y))


class TestRefusals:
    def test_values_that_are_not_finite(self, client, clouds):
        X, y = clouds
        X = X.copy()
        X[4000, 3] = np.nan
        with pytest.raises(DataError, match="row 4000, column 3"):
            svc().fit(client.persist(array(X)), y, client=client)

    def test_a_block_of_another_shape(self, client, clouds):
        X, y = clouds
        wrong = array(X).map_blocks(_without_first, dtype=X.dtype, meta=X[:0])
        with pytest.raises(DataError, match=r"begins with row 0 has shape .*compute_chunk_sizes"):
            svc().fit(wrong, y, client=client)

    def test_results_of_another_client(self, client, cluster, clouds):
        from distributed import Client

        X, y = clouds
        with Client(cluster, set_as_default=False) as other:
            rows = other.persist(array(X))
            with pytest.raises(DataError, match="client that X was persisted with"):
                svc().fit(rows, y, client=client)
        with pytest.raises(DataError, match="their client is closed; make X again"):
            svc().fit(rows, y)

    def test_blocks_that_are_lost(self, client, clouds):
        X, y = clouds
        rows = client.persist(array(X))
        client.cancel(rows)
        with pytest.raises(ClusterError, match=r"the cluster has lost blocks? .* of X"):
            svc().fit(rows, y, client=client)


def _without_first(block):
    return block[1:]
