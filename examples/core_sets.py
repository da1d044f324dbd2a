"""
A ball with and without a certificate
=====================================

A ball with and without a certificate: what that costs, and is worth.

    python examples/core_sets.py [FOLDER]
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

import bigsvm

ROWS = 200_000


def clouds(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows about two centres, and which of them."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, rows)
    return (rng.normal(size=(rows, 10)) + 0.9 * (2 * y - 1)[:, None]).astype(np.float32), y


def main(folder: Path) -> None:
    """Train both ways on a store, and compare what they are worth and what they cost."""
    store = bigsvm.write_store(folder / "clouds.zarr", *clouds(ROWS, 0))
    X, y = clouds(10_000, 1)
    for certify in (False, True):
        ball = bigsvm.L2SVC(C=1, gamma="mean-distance", certify=certify, memory="200MB").fit(store)
        found = ball.certificate_
        print(
            f"{found['stop_reason']}: {found['n_sweeps']} sweeps, "
            f"{found['n_kernel_evaluations']:.1e} kernel evaluations, {found['seconds']:.1f} s, "
            f"{found['n_support']} support vectors, accuracy {ball.score(X, y):.4f}"
        )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else temporary))
