"""Samples are nested, random, and have rows of all folds."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bigsvm
from bigsvm.selection import grid
from bigsvm.selection.folds import sample_rows


@given(st.integers(1, 400), st.data(), st.booleans())
def test_samples_are_nested_and_spread(n, data, is_shuffled):
    source = SimpleNamespace(n_rows=n, is_shuffled=is_shuffled)
    few = data.draw(st.integers(1, n))
    more = data.draw(st.integers(few, n))
    small, large = sample_rows(source, few), sample_rows(source, more)
    assert len(small) == few
    assert (np.diff(large) > 0).all()
    assert large[-1] < n
    assert np.isin(small, large).all()
    if is_shuffled and few >= 64:
        share = np.histogram(small, 4, (0, n))[0] / few
        assert abs(share - 0.25).max() < 0.2


@pytest.mark.parametrize("shuffle", [True, False])
def test_halving_of_a_store_trains_every_fold_of_consecutive_rows(shuffle, tmp_path, monkeypatch):
    monkeypatch.setattr(grid, "FEWEST_ROWS", 60)
    X = np.random.default_rng(0).normal(size=(600, 3)).astype(np.float32)
    store = bigsvm.write_store(tmp_path / "x.zarr", X, X[:, 0] > 0, shuffle=shuffle)
    search = bigsvm.SearchCV(bigsvm.SVC(), {"C": [0.1, 1, 10]}, cv=3, halving=3, refit=False)
    table = search.fit(store).cv_results_
    assert table["n_resources"].tolist() == [200, 200, 200, 600]
    assert np.isfinite(table["mean_test_score"]).all()
