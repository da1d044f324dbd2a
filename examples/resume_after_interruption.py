"""Stop a training run, and go on with it: the same call with the same checkpoint directory.

python examples/resume_after_interruption.py [FOLDER]

Here a limit of pair steps ends the first run. A crash, `kill -9` or a power cut would do as well:
what is lost is the work since the last checkpoint, and the resumed run ends at the same model.
"""

import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning

import bigsvm


def main(folder: Path) -> None:
    """Train in two parts, and once more without a break to compare."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 6000)
    X = (rng.normal(size=(6000, 10)) + 0.5 * (2 * y - 1)[:, None]).astype(np.float32)
    store = bigsvm.write_store(folder / "clouds.zarr", X, y)
    parameters = {"C": 1, "gamma": 0.1, "memory": "10MB", "checkpoint": folder / "run"}

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        first = bigsvm.SVC(**parameters, max_iter=1).fit(store)
    print(f"first run: {first.stop_reason_} after {first.n_iter_} pair steps")
    print(f"it warned: {caught[0].message}")

    second = bigsvm.SVC(**parameters).fit(store)
    print(f"same call again: {second.stop_reason_}, {second.n_iter_} pair steps in all")

    whole = bigsvm.SVC(**{**parameters, "checkpoint": None}).fit(store)
    difference = abs(second.objective_ - whole.objective_) / whole.objective_
    print(f"without a break: {whole.stop_reason_}, objective differs by {difference:.1e}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else temporary))
