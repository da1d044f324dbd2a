"""On real data a search finds what scikit-learn's search and LIBSVM's grid.py find."""

import numpy as np
from sklearn import svm as peers
from sklearn.datasets import load_svmlight_file
from sklearn.model_selection import GridSearchCV, StratifiedKFold

import bigsvm


def test_scores_of_a_grid_are_those_of_scikit_learn(real):
    X, y = load_svmlight_file(real("heart_scale"))
    grid = {"C": [0.5, 2.0, 8.0, 32.0, 128.0], "gamma": [2.0**power for power in range(-9, 0, 2)]}
    cv = StratifiedKFold(5)
    found = bigsvm.SearchCV(bigsvm.SVC(n_jobs=1), grid, cv=cv, refit=False).fit(X, y)
    expected = GridSearchCV(peers.SVC(), grid, cv=cv, refit=False).fit(X, y)
    scores, others = (each.cv_results_["mean_test_score"] for each in (found, expected))
    # A row at the threshold of a fold's function may be on either side.
    assert np.count_nonzero(scores != others) <= 2
    np.testing.assert_allclose(scores, others, atol=1.01 / len(y))
    assert others[found.best_index_] >= others.max() - 1.01 / len(y)
