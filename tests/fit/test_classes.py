"""Classes are found part by part: their labels may be as many as a store has rows."""

import tracemalloc

import numpy as np
import pytest

from bigsvm.fit import problem


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("names", [np.arange(3) - 1.0, np.arange(3) > 0, list("bca"), ["b", "c"]])
def test_classes_in_parts_are_those_of_all_labels(k, names, monkeypatch):
    monkeypatch.setattr("bigsvm.duals.picking.SCAN_ROWS", 7)
    names = np.array(names)[:k]
    for seed in range(20):
        labels = np.random.default_rng(seed).choice(names, 50)
        labels[: 7 * (seed % 5)] = names[0]  # the others come in a later part
        for given in (labels, labels.astype(object)):
            np.testing.assert_array_equal(problem.classes_of(given, 50), np.unique(labels))
            assert problem.are_many_classes(given) == (len(np.unique(labels)) > 2)


def test_classes_are_found_without_a_copy_of_all_labels():
    labels = np.random.default_rng(0).choice([-1.0, 1.0], 1 << 20)
    tracemalloc.start()
    assert not problem.are_many_classes(labels)
    assert problem.classes_of(labels, len(labels)).tolist() == [-1.0, 1.0]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2.5 * len(labels)  # a mark of each, and a few parts
