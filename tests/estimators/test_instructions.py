"""Training on processors with narrower vectors: the same optimum from the same rows."""

import os
import subprocess
import sys

import pytest

TRAINING = """
import numpy as np
import scipy.sparse as sp
from bigsvm import SVC
rng = np.random.default_rng(0)
X = (rng.standard_normal((400, 8)) * (rng.random((400, 8)) < 0.6)).astype(np.float32)
y = np.where(X[:, 0] * X[:, 1] + 0.3 * rng.standard_normal(400) > 0, 1, -1)
for rows in (X, sp.csr_array(X)):
    model = SVC(C=10.0, gamma=0.5, tol=1e-5, random_state=0, n_jobs=1).fit(rows, y)
    print(model.objective_, float(np.abs(model.decision_function(rows)).sum()))
"""


@pytest.mark.slow
def test_objectives_do_not_depend_on_the_instructions_of_the_processor(tmp_path):
    """For this processor, for one with AVX2, and for one without AVX and FMA."""
    path = os.pathsep.join(p for p in sys.path if p)
    environment, found = {**os.environ, "PYTHONPATH": path}, []
    for features in (None, "+avx,+avx2,+fma", ""):
        if features is not None:
            environment["NUMBA_CPU_NAME"], environment["NUMBA_CPU_FEATURES"] = "generic", features
            environment["NUMBA_CACHE_DIR"] = str(tmp_path / f"cache{len(found)}")
        ran = subprocess.run(
            [sys.executable, "-c", TRAINING],
            env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        found.append([float(number) for number in ran.stdout.split()])
    assert found[1] == pytest.approx(found[0], rel=1e-6)
    assert found[2] == pytest.approx(found[0], rel=1e-6)
