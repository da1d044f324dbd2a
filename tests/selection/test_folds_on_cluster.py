"""Folds whose passes workers compute have the same scores."""

import numpy as np
import pytest

import bigsvm
from bigsvm.errors import ParameterError

ROWS = np.random.default_rng(0).normal(size=(3000, 4)).astype(np.float32)
LABELS = (ROWS[:, 0] * ROWS[:, 1] > 0.2 * ROWS[:, 2]).astype(int)
ESTIMATOR = bigsvm.SVC(C=0.3, tol=0.1, gamma=0.5, memory="2MB")
"""Its memory is too little for all rows to be active, so there are passes for the workers."""


def test_workers_compute_the_passes_of_each_fold(client):
    here = bigsvm.cross_validate(ESTIMATOR, ROWS, LABELS, cv=2)
    there = bigsvm.cross_validate(ESTIMATOR, ROWS, LABELS, cv=2, client=client)
    np.testing.assert_array_equal(here["test_score"], there["test_score"])
    assert all(certificate["tasks"] for certificate in there["certificate"])
    search = bigsvm.SearchCV(ESTIMATOR, {"C": [0.1, 0.3]}, cv=2, warm_starts=False, refit=False)
    found = search.fit(ROWS, LABELS, client=client).cv_results_["mean_test_score"]
    np.testing.assert_array_equal(found[1], here["mean_test_score"])


def test_memory_of_no_workers_is_refused():
    with pytest.raises(ParameterError, match="there are no workers"):
        bigsvm.cross_validate(ESTIMATOR, ROWS, LABELS, worker_memory="1GB")
