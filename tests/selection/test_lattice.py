"""Searches without a grid look further than its edge, and those over distributions draw points."""

import numpy as np
import pytest
from scipy.stats import loguniform
from sklearn.datasets import make_classification

import bigsvm
from bigsvm.errors import ParameterError
from bigsvm.selection import lattice, lines
from bigsvm.selection.lattice import sizes_of

X, Y = make_classification(200, 4, flip_y=0.1, random_state=1)


def test_points_are_drawn_from_distributions():
    grid = {"C": loguniform(0.1, 10), "gamma": [0.1, 0.2]}
    search = bigsvm.SearchCV(bigsvm.SVC(), grid, n_iter=4, random_state=0, cv=2, refit=False)
    found = search.fit(X, Y).cv_results_["params"]
    assert len(found) == 4
    assert found == search.fit(X, Y).cv_results_["params"]
    assert all(0.1 <= point["C"] <= 10 for point in found)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give n_iter"),
        ({"n_iter": 0}, "at least 1"),
        ({"n_iter": 2, "checkpoint": "x"}, "whole"),
    ],
)
def test_draws_without_meaning_are_refused(options, message):
    with pytest.raises(ParameterError, match=message):
        bigsvm.SearchCV(bigsvm.SVC(), {"C": loguniform(0.1, 10)}, **options).fit(X, Y)


def test_an_edge_of_a_grid_is_said(caplog):
    noise = np.random.default_rng(0).normal(size=(200, 4))
    grid = {"gamma": [1e-6, 1e-5, 1e-3]}
    bigsvm.SearchCV(bigsvm.SVC(), grid, cv=2, refit=False).fit(X + 0.1 * noise, Y)
    assert "gamma 0.001 is the largest value that was tried" in caplog.text


def test_sizes_of_samples():
    assert sizes_of(1000, 3) == [1000]
    assert sizes_of(9000, 3) == [1000, 3000, 9000]


def steps_of(values, first):
    """Numbers of values of an axis: 0 is the first one, half steps have halves."""
    return np.round(2 * np.log(values.astype(float) / first) / np.log(4)) / 2


def some(train, left):
    def counted(*arguments, **options):
        if next(left[0], None) is None:
            raise KeyboardInterrupt
        return train(*arguments, **options)

    return counted


@pytest.mark.slow
def test_the_default_grid_goes_from_coarse_to_fine_and_beyond_its_edge(tmp_path, monkeypatch):
    """Labels change more often than the largest gamma sees; a killed search has the same table."""
    monkeypatch.setattr(lattice, "FEWEST_ROWS", 40)
    rng = np.random.default_rng(0)
    places = rng.integers(16, size=360)
    rows, labels = 0.1 * places[:, None], places % 2
    search = bigsvm.SearchCV(bigsvm.SVC(), cv=2, refit=False)
    table = search.fit(rows, labels).cv_results_
    C, gamma = (
        steps_of(table[f"param_{name}"], first) for name, first in (("C", 2**-5), ("gamma", 2**-15))
    )
    assert np.unique(table["n_resources"]).tolist() == [40, 120, 360]
    first = np.flatnonzero(table["iter"] == 0)
    assert not (C[first[:30]] % 2).any()
    assert not (gamma[first[:30]] % 2).any()
    assert (C[first[30:]] % 2 == 1).any()
    assert ((C % 1 == 0.5) | (gamma % 1 == 0.5))[table["iter"] == 1].any()
    assert 9 < gamma.max() <= 9 + lattice.GROWTHS
    assert search.best_params_["gamma"] > 8
    assert search.best_score_ > 0.9

    left = [iter(())]
    monkeypatch.setattr(bigsvm.SVC, "_fit_rows", some(bigsvm.SVC._fit_rows, left))
    monkeypatch.setattr(lines, "train_together", some(lines.train_together, left))
    search.set_params(checkpoint=tmp_path / "run")
    for fits in (10, 40, 17):
        left[0] = iter(range(fits))
        with pytest.raises(KeyboardInterrupt):
            search.fit(rows, labels)
    left[0] = iter(range(10**4))
    again = search.fit(rows, labels).cv_results_
    for name, values in table.items():
        if "time" not in name:
            np.testing.assert_array_equal(again[name], values)
