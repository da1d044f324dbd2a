"""Where training starts: how many rows take part at first, and how many more each time.

Rows are in random order, so the first of them are a random sample of all. Each scope is solved
loosely from the one before, and the first sweep over all rows then starts from a useful point for a
few percent of its cost; what a scope has found out about its rows stays true of them.
"""

from __future__ import annotations

DIRECT_ROWS = 8192
"""Up to so many rows the first scope is all of them: on spambase half of the pair steps."""
FIRST_SCOPE = 2000
GROWTH = 1.75
"""Kernel values in floors at 1.5, 1.75, 2: w8a 2.91, 2.42, 2.71, mnist 3.05, 2.89, 2.79; a9a hardly
differs. At 3 they are a fifth more."""
GROWTH_OUT_OF_CORE = 3.0
"""Where rows have to be read again, each scope costs a part of a pass: half of one in all. Where
several functions are trained together it is a pass with all that matters to any of them: 10^9
kernel values of mnist against the rest with 1.75, 3 and 6: 3.00, 2.47 and 2.52."""


def next_scope(scope: int, n_rows: int, *, growth: float) -> int:
    """Rows that take part after `scope` of them did; the first time after 0.

    A last step that would add little is taken with the one before it.
    """
    if scope == 0:
        return n_rows if n_rows <= DIRECT_ROWS else FIRST_SCOPE
    grown = int(scope * growth)
    return n_rows if grown * (1 + growth) / 2 >= n_rows else grown
