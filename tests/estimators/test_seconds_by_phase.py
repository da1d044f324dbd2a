"""What the time of a fit was for: told by every run, of many classes and sampled ones too."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from bigsvm import L2SVC, SVC, CrammerSingerSVC, NuSVC
from bigsvm.training.result import PHASES


@pytest.mark.parametrize(
    "model",
    [
        SVC(multiclass="ovo"),
        SVC(multiclass="ovo", n_jobs=2, max_iter=100),
        SVC(multiclass="ovr"),
        NuSVC(nu=0.2, multiclass="ovo"),
        CrammerSingerSVC(),
        L2SVC(multiclass="ovo"),
        L2SVC(certify=False, multiclass="ovo"),
    ],
    ids=["ovo", "stopped", "ovr", "nu-svc", "crammer-singer", "l2-svc", "sampled"],
)
@pytest.mark.parametrize("n", [120, 4000])
def test_runs_of_many_classes_tell_their_phases(model, n):
    """Pairs of 80 rows are solved together, pairs of 2 600 in runs of their own."""
    X = np.random.default_rng(0).standard_normal((n, 2))
    y = np.arange(n) % 3
    X[:, 0] += 3 * y
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = model.fit(X, y).certificate_
    phases = found["seconds_by_phase"]
    assert list(phases) == list(PHASES)
    assert all(seconds >= 0 for seconds in phases.values())
    assert phases["steps"] > 0
    assert phases["certificate"] > 0 or not found["converged"]
    assert sum(phases.values()) >= 0.99 * found["seconds"]
