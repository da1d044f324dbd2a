"""Sparse rows far from 0, whose squared lengths are all that float32 would see of them."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.svm import SVC

import bigsvm
from bigsvm.data.statistics import ColumnStatistics, far_columns
from bigsvm.gram import KernelTiles, Partners
from bigsvm.kernels import RBF, Laplacian

N, OTHERS, GAMMA = 400, 60, 0.1


def far_rows(far, *, share=1.0):
    """Rows of few entries and, in some share of them, a year; float64 that float32 holds."""
    rng = np.random.default_rng(5)
    few = (rng.random((N, OTHERS)) < 0.1) * rng.random((N, OTHERS))
    year = (far + rng.random(N)) * (rng.random(N) < share)
    rows = np.column_stack([few[:, :30], year, few[:, 30:]])
    total = few[:, :20].sum(1) + 0.2 * rng.standard_normal(N)
    return rows.astype(np.float32).astype(float), np.where(total > np.median(total), 1, -1)


def centre_of(rows):
    statistics = ColumnStatistics(rows.shape[1])
    statistics.add(rows)
    found = statistics.result()
    return far_columns(found.mean, found.total_variance(), rows.shape[1])


@pytest.mark.parametrize("far", [2e3, 2e4, 2e6])
@pytest.mark.parametrize("share", [1.0, 0.99])
def test_kernel_values_of_far_sparse_rows(far, share):
    dense, _ = far_rows(far, share=share)
    rows, centre = sp.csr_array(dense), np.where(np.arange(OTHERS + 1) == 30, far, 0.0)
    shifted = dense - centre
    for kernel, power in ((RBF(gamma=GAMMA), 2), (Laplacian(gamma=GAMMA), 1)):
        apart = (np.abs(shifted[:, None, :] - shifted[None, :, :]) ** power).sum(axis=2)
        found = np.empty((N, N), np.float32)
        with KernelTiles(kernel, centre=centre) as tiles:
            tiles.evaluate(rows, Partners(tiles.values, rows, for_sparse_rows=True), found)
        near = (shifted[:, 30] > -1)[:, None] & (shifted[:, 30] > -1)
        np.testing.assert_allclose(found[near], np.exp(-GAMMA * apart)[near], atol=1e-5)
        # Pairs one of which has no year are too far apart to be alike at all.
        np.testing.assert_array_less(found[~near & ~near.T & (apart > 1e4)], 1e-5)


@pytest.mark.parametrize("far", [2e3, 2e5])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_far_sparse_rows_are_trained_and_predicted_as_dense_ones(far, dtype):
    dense, y = far_rows(far)
    reference = SVC(gamma=GAMMA, tol=1e-5).fit(dense, y)
    model = bigsvm.SVC(gamma=GAMMA, tol=1e-4).fit(sp.csr_array(dense.astype(dtype)), y)
    assert model.stop_reason_ == "converged"
    expected = reference.decision_function(dense)
    for rows in (sp.csr_array(dense.astype(dtype)), dense.astype(dtype)):
        np.testing.assert_allclose(model.decision_function(rows), expected, atol=2e-3)


def test_a_model_of_dense_rows_predicts_far_sparse_ones(tmp_path):
    dense, y = far_rows(2e4)
    model = bigsvm.SVC(gamma=GAMMA).fit(dense.astype(np.float32), y)
    np.testing.assert_allclose(
        model.decision_function(sp.csr_array(dense.astype(np.float32))),
        model.decision_function(dense.astype(np.float32)),
        atol=1e-4,
    )


def test_only_columns_that_are_far_and_filled_are_centred():
    far, _ = far_rows(2e3)
    np.testing.assert_array_equal(np.flatnonzero(centre_of(sp.csr_array(far))), [30])
    usual, _ = far_rows(1.0)
    usual[:, 30] = 1.0  # an intercept
    usual[:, :10] = np.random.default_rng(0).random((N, 10)) < 0.5
    assert not centre_of(sp.csr_array(usual)).any()
    half, _ = far_rows(2e3, share=0.5)
    assert not centre_of(sp.csr_array(half)).any()


def test_columns_are_not_filled_where_the_variance_is_lost_in_rounding():
    # Of 1e9² nothing is left that could tell the variance of the other columns.
    constant, _ = far_rows(1e9)
    constant[:, 30] = 1e9
    np.testing.assert_array_equal(np.flatnonzero(centre_of(sp.csr_array(constant))), [30])
