"""One measurement in a process of its own, for programs that are not suites yet; see `common.py`.

fit_once.py calibrate    seconds of a fixed matrix product: how fast the machine is
"""

from __future__ import annotations

import json
import sys

import common  # noqa: F401 (puts the root of the repository on the path)

from tools.benchmarks import contestants
from tools.benchmarks.contestants import CACHE_MEGABYTES, TINY_ROWS, TOL

__all__ = ["CACHE_MEGABYTES", "GEMM_SIZE", "TINY_ROWS", "TOL", "calibrate"]

GEMM_SIZE = contestants.GEMM_SIZE


def calibrate() -> dict[str, float]:
    """Time a fixed product of two float32 matrices, the best of three."""
    return contestants.calibrate({"size": GEMM_SIZE})


if __name__ == "__main__":
    if sys.argv[1:] != ["calibrate"]:
        raise SystemExit(__doc__)
    print(json.dumps(calibrate()))
