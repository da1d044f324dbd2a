"""
A fit that is killed, and resumed
=================================

A run with a checkpoint is killed, without a chance to save anything. It goes on from its last
checkpoint, to the same bits as a run that was not killed.
"""

import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning

import bigsvm

rng = np.random.default_rng(0)
y = rng.integers(0, 2, 20_000)
X = (rng.normal(size=(20_000, 10)) + 0.35 * (2 * y - 1)[:, None]).astype(np.float32)
temporary = tempfile.TemporaryDirectory()
folder = Path(temporary.name)
store = bigsvm.write_store(folder / "clouds.zarr", X, y)
parameters = {"C": 1, "gamma": 0.1, "memory": "20MB"}

# %%
# First a run that a limit of pair steps ends. It warns, and leaves a checkpoint.
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always", ConvergenceWarning)
    first = bigsvm.SVC(**parameters, checkpoint=folder / "run", max_iter=1).fit(store)
print(f"first run: {first.stop_reason_} after {first.n_iter_} pair steps")
print(f"it warned: {caught[0].message}")

# %%
# Now the command in a process of its own, which is killed once it has saved its first checkpoint.
words = [sys.executable, "-m", "bigsvm", "train", store.path, folder / "killed.safetensors"]
options = ["--C", "1", "--gamma", "0.1", "--memory", "20MB"]
options += ["--checkpoint", folder / "killed", "--checkpoint-every", "0.2s", "--quiet"]
environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
# A cluster of Dask leaves one thread behind for later processes: with other threads, other bits.
environment.pop("OMP_NUM_THREADS", None)
child = subprocess.Popen([*words, *options], env=environment)
while child.poll() is None and len(list(folder.glob("killed/*"))) < 4:
    time.sleep(0.02)
child.kill()
print("the process was killed" if child.wait() < 0 else "it was done before it could be killed")
resume = [*words[:4], "--resume", folder / "killed"]
subprocess.run(resume, env=environment, check=True, capture_output=True)
killed = bigsvm.load(folder / "killed.safetensors")

# %%
# The run that the limit has ended goes on by the same call, too. A run without a break ends at the
# same model.
second = bigsvm.SVC(**parameters, checkpoint=folder / "run").fit(store)
print(f"same call again: {second.stop_reason_}, {second.n_iter_} pair steps in all")

whole = bigsvm.SVC(**parameters).fit(store)
difference = abs(second.objective_ - whole.objective_) / whole.objective_
print(f"without a break: {whole.stop_reason_}, objective differs by {difference:.1e}")
same = np.array_equal(killed.dual_coef_, whole.dual_coef_)
print(f"killed and resumed: {'the same bits' if same else 'other bits'}")

# %%
# How the run without a break went, working set by working set. The objective rises. The gap is that
# within the set. It rises once more where a pass over all rows has found rows that violate, and
# falls until it is at most ``tol``.
display = bigsvm.HistoryDisplay(whole.working_set_history_, tol=whole.tol).plot()
plt.show()
temporary.cleanup()
