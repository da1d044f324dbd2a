"""Where training starts: how many rows take part at first, and how many more each time.

Rows are in random order, so the first of them are a random sample of all. Each scope is solved
loosely from the one before, and the first sweep over all rows then starts from a useful point for a
few percent of its cost.
"""

from __future__ import annotations

DIRECT_ROWS = 8192
"""Up to this many rows, the first scope is all of them, which halves the pair steps."""
FIRST_SCOPE = 2000
GROWTH = 1.75
"""Factor of the rows in the next scope: less makes many scopes, more makes them too large."""
GROWTH_OUT_OF_CORE = 3.0
"""The same if rows are read again for each scope, or several functions are trained together: each
scope costs part of a pass."""


def next_scope(scope: int, n_rows: int, *, growth: float) -> int:
    """Rows that take part after `scope` of them did; the first time after 0.

    A last step that would add little is taken with the one before it.
    """
    if scope == 0:
        return n_rows if n_rows <= DIRECT_ROWS else FIRST_SCOPE
    grown = int(scope * growth)
    return n_rows if grown * (1 + growth) / 2 >= n_rows else grown
