"""The number of different rows of a store."""

import numpy as np
import pytest
import scipy.sparse as sp

import bigsvm
from bigsvm.report import different
from bigsvm.report.different import n_different_rows

RNG = np.random.default_rng(0)
FEW = RNG.integers(0, 2, (700, 7))


@pytest.mark.parametrize("dtype", ["f4", "f8", "u1"])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_it_is_the_number_that_numpy_finds(tmp_path, form, dtype, monkeypatch):
    monkeypatch.setattr(different, "BLOCK_BYTES", 2000)  # several blocks
    y = RNG.integers(0, 2, 700)
    path = bigsvm.write_store(tmp_path / "s.zarr", form(FEW.astype(dtype)), y).path
    expected = len(np.unique(np.column_stack([FEW, y]), axis=0))
    assert 128 < n_different_rows(bigsvm.open_store(path)) == expected


def test_powers_of_two_and_signs_are_told_apart(tmp_path):
    """Their bits differ in few places, or in high ones alone."""
    values = np.array([s * 2.0**e for s in (1, -1) for e in range(-100, 100)])
    x = np.concatenate([values, [0.0, -0.0]])[:, None]
    store = bigsvm.write_store(tmp_path / "s.zarr", x, np.arange(len(x)) % 2 * 0.0)
    assert n_different_rows(bigsvm.open_store(store.path)) == len(values) + 1


def test_a_store_that_is_read_long_is_not_counted(tmp_path, monkeypatch):
    store = bigsvm.write_store(tmp_path / "s.zarr", FEW.astype("f4"), FEW[:, 0])
    monkeypatch.setattr(different, "MOST_BYTES", 100)
    assert n_different_rows(bigsvm.open_store(store.path)) is None
