"""Glasmachers and Igel's experiments on spambase: HMG by C and gamma, and by cached rows.

    python -m tools.benchmarks hmg --part regimes [--share 0.03]
    python -m tools.benchmarks hmg --part rows [--trials 10]

regimes  figure 6: kernel values and CPU seconds of HMG and of the second-order rule, by C and
         gamma, which both cover a factor of 10 000 around the values of table 1; with shrinking, as
         in the paper, one thread, and memory for --share of the kernel rows. The paper has
         connect-4. Marked as in the paper: at least 99 % of the rows are support vectors, "all", or
         at least 99 % of the support vectors are at C, "bounded"
rows     tables 6 and 7: pair steps where the gain is computed with one kernel row, with the two of
         the last pair, and with all that a cache of 47.2 % holds. A plain implementation of these
         three rules, without shrinking, from random initial pairs: medians over --trials, of the
         whole cache over --whole-trials. All stop at a KKT gap of 0.001

Columns of spambase have mean 0 and variance 1. `working_sets.py` and `shrinking.py` have tables 2,
4 and 5. Counts do not vary; CPU seconds are of one run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.benchmarks.bench import Suite

if TYPE_CHECKING:
    import argparse


def run(options: argparse.Namespace) -> int:
    """Print the table of a part."""
    from tools.benchmarks import hmg

    return hmg.run(options)


PARTS = {
    "regimes": Suite(
        program=run,
        folder=False,
        threads=1,
        more=(
            ("--share", {"type": float, "default": 0.03, "help": "of the kernel rows"}),
            ("--factors", {"type": float, "nargs": "+", "default": [0.01, 0.1, 1.0, 10.0, 100.0],
                           "help": "of C and gamma"}),
        ),
    ),
    "rows": Suite(
        program=run,
        folder=False,
        threads=1,
        more=(
            ("--trials", {"type": int, "default": 10, "help": "of one row and two"}),
            ("--whole-trials", {"type": int, "default": 1, "help": "of the whole cache"}),
        ),
    ),
}  # fmt: skip
