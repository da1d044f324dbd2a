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
whole = np.rint(60 * np.abs(X)).clip(0, 255).astype(np.float32)
ones = (X > 0.3).astype(np.float32)
for rows, gamma in (
    (X, 0.5), (sp.csr_array(X), 0.5), (sp.csr_array(whole), 1e-4), (sp.csr_array(ones), 0.5)
):
    model = SVC(C=10.0, gamma=gamma, tol=1e-5, random_state=0, n_jobs=1).fit(rows, y)
    print(model.objective_, float(np.abs(model.decision_function(rows)).sum()))
"""

CROSS_COMPILING = """
import re
from llvmlite import binding
from numba.core.dispatcher import Dispatcher
from bigsvm.core import csr, gram, products, smo
binding.initialize_all_targets()
binding.initialize_all_asmprinters()
machine = binding.Target.from_triple("aarch64-unknown-linux-gnu").create_target_machine(opt=2)
for module in (csr, gram, products, smo):
    for name, function in vars(module).items():
        if not isinstance(function, Dispatcher):
            continue
        for text in filter(None, function.inspect_llvm().values()):
            # Numba's own counts of references are instructions of the host.
            text = re.sub(r"= (tail )?call i8 @llvm[.]x86[.]atomic.*", "= add i8 0, 0", text)
            text = re.sub(r"declare i8 @llvm[.]x86[.]atomic.*", "", text)
            compiled = binding.parse_assembly(text)
            compiled.triple = machine.triple
            compiled.data_layout = str(machine.target_data)
            print(name, machine.emit_assembly(compiled).count("fmla"))
"""


def run_narrow(script, features, cache):
    """Run it in a process for a processor with some features only; what it prints."""
    path = os.pathsep.join(p for p in sys.path if p)
    environment = {**os.environ, "PYTHONPATH": path}
    if features is not None:
        environment |= {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": features}
        environment["NUMBA_CACHE_DIR"] = str(cache)
    command = [sys.executable, "-c", script]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.slow
def test_kernels_compile_to_fused_vectors_of_arm(tmp_path):
    lines = run_narrow(TRAINING + CROSS_COMPILING, "", tmp_path).splitlines()
    fused = {}
    for name, count in (line.split() for line in lines if line[:1].isalpha() or line[:1] == "_"):
        fused.setdefault(name, []).append(int(count))
    assert {"dense_span", "sparse_span", "byte_span", "csr_tile", "refresh"} <= fused.keys()
    for name in ("dense_span", "sparse_span", "byte_span"):
        assert all(fused[name])


@pytest.mark.slow
def test_objectives_do_not_depend_on_the_instructions_of_the_processor(tmp_path):
    """For this processor, for one with AVX2, and for one without AVX and FMA.

    Rows are dense and sparse, and sparse of whole numbers and of zeros and ones.
    """
    found = []
    for features in (None, "+avx,+avx2,+fma", ""):
        printed = run_narrow(TRAINING, features, tmp_path / str(len(found)))
        found.append([float(number) for number in printed.split()])
    assert found[1] == pytest.approx(found[0], rel=1e-6)
    assert found[2] == pytest.approx(found[0], rel=1e-6)
