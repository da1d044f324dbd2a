"""Very many classes: half a million pairs are trained and asked within the budget."""

import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import numpy as np
import bigsvm
from bigsvm.allocator import share_freed_memory

share_freed_memory()  # as a command does


def of_classes(k):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(k), 3)
    X = rng.standard_normal((k, 16))[y] + 0.1 * rng.standard_normal((len(y), 16))
    return X.astype(np.float32), y


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def classifier():
    return bigsvm.SVC(C=100, gamma=0.01, memory=int(sys.argv[2]), n_jobs=1)


X, y = of_classes(20)
few = classifier().fit(X, y)
few.predict(X), few.decision_function(X)  # what compiling and importing takes
k = int(sys.argv[1])
X, y = of_classes(k)
before = peak()
fitted = classifier().fit(X, y)
assert fitted.converged_
assert fitted.certificate_["pairs"]["n_pairs"] == k * (k - 1) // 2
trained = peak()
some = slice(None, None, 10)
assert (fitted.predict(X[some]) == y[some]).mean() > 0.99
assert fitted.decision_function(X[some]).shape == (len(y[some]), k)
print(trained - before, peak() - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize("k", [60, 1000])
@pytest.mark.skipif(sys.platform != "linux", reason="sizes are in kilobytes there")
def test_training_and_predicting_keep_to_the_budget(k):
    memory = 200_000_000
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(k), str(memory)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    trained, predicted = map(int, ended.stdout.split())
    assert trained < memory
    assert predicted < memory
