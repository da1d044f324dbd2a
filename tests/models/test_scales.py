"""The hint to scale columns, which is there only where their scales are very different."""

import numpy as np
import pytest
import scipy.sparse as sp
from command_line import run_here
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

import bigsvm
from bigsvm.fit.advice import scaling_hint

UNSCALED = {load_wine, load_breast_cancer}


def unconverged(X, y, **options):
    with pytest.warns(ConvergenceWarning) as caught:
        model = bigsvm.SVC(max_iter=20, **options).fit(X, y).model_
    return model, str(caught[-1].message)


@pytest.mark.parametrize("load", [load_iris, load_digits, load_wine, load_breast_cancer])
def test_columns_of_very_different_scales_are_named(load):
    X, y = load(return_X_y=True)
    model, said = unconverged(X, y)
    hint = scaling_hint(model)
    assert (hint is not None) == (load in UNSCALED)
    assert ("the columns have very different scales" in said) == (load in UNSCALED)
    assert hint is None or said.endswith(hint)
    model, said = unconverged(StandardScaler().fit_transform(X), y)
    assert scaling_hint(model) is None
    assert "scales" not in said


def test_ranges_are_those_of_the_support_vectors():
    X, y = load_iris(return_X_y=True)
    X = X * [1.0, 500.0, 1.0, 1.0]
    model, _ = unconverged(X, y)
    ranges = np.ptp(model.support_vectors, axis=0)
    low, high = np.sort(ranges)[0], ranges.max()
    assert f"ranges from {low:.2g} to {high:.2g}" in scaling_hint(model)
    sparse, _ = unconverged(sp.csr_array(X), y)
    assert "very different scales" in scaling_hint(sparse)


def test_columns_that_are_rarely_filled_are_no_small_ones():
    rng = np.random.default_rng(0)
    X = (rng.random((400, 40)) < np.geomspace(0.01, 0.5, 40)).astype(float)
    model = bigsvm.SVC().fit(sp.csr_array(X), rng.integers(0, 2, 400)).model_
    assert scaling_hint(model) is None


def test_a_kernel_matrix_has_no_columns_to_scale():
    X, y = load_wine(return_X_y=True)
    model, said = unconverged(X @ X.T, y, kernel="precomputed")
    assert scaling_hint(model) is None
    assert "scales" not in said


def test_the_command_says_it_too(tmp_path):
    X, y = load_wine(return_X_y=True)
    bigsvm.write_store(tmp_path / "wine.zarr", X, y)
    options = (tmp_path / "wine.zarr", tmp_path / "m", "--max-iter", "20")
    assert "very different scales" in run_here("train", *options).stderr
    assert (
        "very different scales"
        not in run_here("train", *options[:2], "--kernel", "linear", "--C", "0.01").stderr
    )
