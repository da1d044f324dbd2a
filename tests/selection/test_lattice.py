"""Searches without a grid look further than its edge, and those over distributions draw points."""

import numpy as np
import pytest
from scipy.stats import loguniform
from sklearn.datasets import make_classification

import bigsvm
from bigsvm.errors import ParameterError
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
