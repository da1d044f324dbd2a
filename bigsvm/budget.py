"""Memory plan of a run: added up before the run starts, and refused if it exceeds the budget."""

from __future__ import annotations

import functools
import math
import os
import re
from bisect import bisect_right
from dataclasses import dataclass, replace
from numbers import Real

from bigsvm.errors import MemoryBudgetError, ParameterError, brief
from bigsvm.processors import control_groups

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SIZE = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([kmgt]i?)?b?\s*", re.IGNORECASE)
_SHARE = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*%\s*")

ROW_STATE_BYTES = 19
"""Bytes of a training row for the whole run: alpha 8, outputs 8 and sign 1, and for the certificate
two marks 2."""
SCORE_BYTES = 5
"""Bytes of a row more where functions are trained together: while rows are chosen it has a score 4
and three marks 3. Of one function, the scores of all rows are never in memory together."""
LABEL_BYTES = 8
"""Bytes of a row's label; labels are read before a run is planned."""
ACTIVE_ROW_COPIES = 4
"""Copies of active rows: as read, as kept from the last time, packed, and while being packed."""
ACTIVE_STATE_BYTES = 80
"""Bytes of an active row: number, alpha, outputs, their change, scores and their partition; and, if
it is not in the working set, its place, its number and what the working set adds to it."""
OUTPUT_BYTES = 32
"""Bytes of a row for each function beyond the first, for the whole run: alpha 8, outputs 8, and 16
for the outputs of a certificate or the sums of a sweep."""
ACTIVE_OUTPUT_BYTES = 91
"""Bytes of an active row for each function beyond the first: where it stands 16, and while it is
solved the sub-problem's alpha, gradient and room 20, those two as they were before and after a
slice 32, and a change and what it adds to others 16."""
GRAM_SHARE = 0.55
"""Share of the free memory for kernel rows; the rest is for the rows themselves and for blocks."""
GRAM_SHARE_OF_FUNCTIONS = 0.4
"""The same for several functions with working sets of their own, as more rows are active then."""
SHARE_HELD = 0.8
"""Share of its kernel rows that must fit in memory for a working set to be that large."""
LEAST_SHARE_HELD = 0.15
"""The same for a working set that is larger because it holds all free rows."""
BLOCK_SHARE = 0.15
"""Share of the free memory for blocks of rows."""
READER_CHUNKS = 4
"""Chunks that are read together; each is in memory compressed and decoded."""
HELD_SHARE = 0.15
"""Largest share of the memory for rows that are kept, as reading a store again and again costs more
than a larger working set saves."""
LARGEST_BLOCKS = 128 << 20
"""Most bytes of two blocks read ahead: reading larger ones is not faster."""
MOST_VALUES = 1 << 20
"""Values of alpha of a working set that is enlarged by what its kernel rows leave over. A step of
many functions goes over all values, and beyond some 8 MB they are no longer in the caches."""
SMALLEST_WORKING_SET = 64
FEWEST_ROWS = 16
"""Fewest kernel rows in memory if all variables are one working set."""
SMALLEST_GRAM = 4 * 4 * 1024
"""Bytes of four kernel rows of 1024 variables, the least that a solver needs."""


def parse_bytes(size: object, name: str = "memory") -> int:
    """Read a size: a number of bytes, or text like ``"4GB"``, ``"512MiB"``, ``"1.5g"``, ``"50%"``.

    A share is one of `machine_bytes`, and only for the parameter `memory`. `name` is for messages.
    """
    share = _SHARE.fullmatch(size) if isinstance(size, str) else None
    if share is not None:
        if name != "memory" or not 0 < float(share[1]) <= 100:
            raise ParameterError(
                f"{name} is {size!r}; give a size like 4GB, or for memory a share of that of this "
                "machine, more than 0% and at most 100%"
            )
        value = float(share[1]) / 100 * machine_bytes()
    elif isinstance(size, str):
        match = _SIZE.fullmatch(size)
        if match is None:
            shares = ", or 50% of that of this machine" if name == "memory" else ""
            raise ParameterError(
                f"{name} {size!r} is not a size; write it like 4GB, 512MiB or 800000000{shares}"
            )
        unit = (match[2] or "").lower()
        value = float(match[1]) * (_UNITS | _BINARY)[unit]
    elif isinstance(size, Real):
        try:
            value = float(size)
        except OverflowError:
            value = math.inf
    else:
        raise ParameterError(
            f"{name} is {brief(size)}; it must be a number of bytes, or a size like '4GB'"
        )
    if not (math.isfinite(value) and value >= 1):
        raise ParameterError(f"{name} {brief(size)} is not a size in bytes; it must be more than 0")
    return int(value)


@functools.cache
def machine_bytes() -> int:
    """Bytes of memory of this machine, or fewer if the control groups of this process limit it."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for group in control_groups("memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            try:
                text = (group / name).read_text().strip()
            except OSError:
                continue
            if text.isdecimal():  # otherwise "max"
                limits.append(int(text))
    return min(limits)


def show_bytes(n: float) -> str:
    """``1.5 GB``."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n >= factor:
            return f"{n / factor:.4g} {unit}"
    return f"{n:.0f} bytes"


def check_labels_fit(memory: int, n_rows: int) -> None:
    """Refuse rows whose labels alone exceed `memory` bytes, before these are read.

    The message names the least memory that the run needs.
    """
    if n_rows * LABEL_BYTES > memory:
        needed = n_rows * ROW_STATE_BYTES
        raise MemoryBudgetError(
            f"memory is {show_bytes(memory)}, too little for {n_rows} rows (state of the rows "
            f"{show_bytes(needed)}); give at least about {show_bytes(1.01 * needed)}"
        )


@dataclass(frozen=True)
class TrainingPlan:
    """How a training run divides its memory.

    Attributes
    ----------
    working_set : int
        Variables in a working set whose reused kernel rows fit in memory.
    widest_set : int
        Most variables of a working set, at least `working_set`. If that is small, one set of all
        free rows is better, although fewer of its kernel rows fit in memory.
    active_rows : int
        Most rows that are kept current between two sweeps, at least `widest_set`.
    gram_bytes, block_bytes, active_row_bytes
        Bytes of kernel rows in memory, of the blocks of rows that exist at once, of an active row.
    projected : dict
        Bytes of every part, by name.
    exact_rows : int
        Most rows that are packed in float64 together when there are no active rows.
    """

    working_set: int
    widest_set: int
    active_rows: int
    gram_bytes: int
    block_bytes: int
    projected: dict[str, int]
    exact_rows: int
    active_row_bytes: float = 0.0

    def holds_few_rows(self, share: float) -> bool:
        """Whether less than this share of the working set's kernel rows fit in memory."""
        return self.gram_bytes < share * 4 * _padded(self.working_set) * self.working_set

    def with_kernel_rows(self, count: int) -> TrainingPlan:
        """Return a plan whose kernel rows take `count` times the length of one."""
        return replace(self, gram_bytes=4 * _padded(self.working_set) * count)


def plan_training(
    memory: int,
    *,
    n_rows: int,
    n_columns: int,
    bytes_per_row: float,
    row_alignment: int,
    threads: int,
    n_outputs: int = 1,
    active_output_bytes: int = ACTIVE_OUTPUT_BYTES,
    gram_share: float = GRAM_SHARE,
    resident_bytes: int = 0,
    packed: bool = True,
    packed_row_bytes: float | None = None,
    whole: bool = False,
) -> TrainingPlan:
    """Divide `memory` bytes, for all arrays of the run together, among the parts of a run.

    If not even the smallest working set fits, the message of the error has the projection.

    Parameters
    ----------
    bytes_per_row : float
        Bytes of one row in memory, as read.
    row_alignment : int
        Fewest rows of a block.
    n_outputs : int
        Functions that are trained together, k: each row has k values of alpha and of f.
    active_output_bytes : int
        Bytes of an active row for each function beyond the first.
    gram_share : float
        Share of the free memory for kernel rows.
    resident_bytes : int
        Bytes of arrays of the caller that stay in memory, such as sample weights.
    packed : bool
        Whether rows are packed for products. False for a kernel matrix.
    packed_row_bytes : float, optional
        Bytes of a packed row, if they are known to be fewer than `packed_bytes`.
    whole : bool
        Whether all rows are one working set. Its kernel rows then get all free memory.
    """
    others = n_outputs - 1
    row_state = ROW_STATE_BYTES + (SCORE_BYTES if others else 0) + OUTPUT_BYTES * others
    state = row_state * n_rows + resident_bytes
    # A dense row has n_columns values, a sparse one fewer than its bytes.
    values_per_row = min(n_columns, bytes_per_row) if packed else 0
    scratch = int(threads * 4 * (252 * 512 + 3 * 252 * values_per_row + n_columns))
    scratch += 8 * 252 * others * threads
    chunk = bytes_per_row * min(row_alignment, n_rows)
    n_chunks = -(-n_rows // row_alignment)
    if row_alignment > 1:
        scratch += int(2 * min(READER_CHUNKS, n_chunks) * chunk)
    free = memory - state - scratch
    smallest_block = int(min(2, n_chunks) * chunk)
    blocks = int(max(smallest_block, min(LARGEST_BLOCKS, BLOCK_SHARE * free)))
    gram = max(int(gram_share * free), SMALLEST_GRAM)
    row_bytes = (ACTIVE_ROW_COPIES - 1) * bytes_per_row + ACTIVE_STATE_BYTES
    row_bytes += active_output_bytes * others
    if packed:
        row_bytes += packed_row_bytes or packed_bytes(n_columns, bytes_per_row)
    for_rows = free - gram - blocks
    size = widest = active = exact = 0
    fewest = n_rows if whole else min(SMALLEST_WORKING_SET, n_rows)
    if whole:
        gram = int(free - blocks - row_bytes * n_rows)
        if gram >= 4 * _padded(n_rows) * FEWEST_ROWS:
            size = widest = active = n_rows
            exact = max(1, n_rows // 2)
    elif free > blocks:
        active = max(int(min(n_rows, for_rows / row_bytes)), 0)
        size = min(active, _most_variables(gram, SHARE_HELD))
        widest = min(active, _most_variables(gram, LEAST_SHARE_HELD))
        most = _most_rows(free - blocks, row_bytes, n_rows)
        most = min(most, max(active, MOST_VALUES // n_outputs))
        if most >= widest or size < fewest:
            # What the kernel rows of a working set leave over is for more rows.
            active = size = widest = most
            gram = int(free - blocks - row_bytes * most)
            for_rows = free - blocks - min(gram, _kernel_rows(most))
        exact = max(1, int(min(2 * n_rows, for_rows / row_bytes)) // 2)
    # A working set never needs more than all of its kernel rows.
    gram = max(min(gram, _kernel_rows(widest)), 0)
    projected = {
        "state of the rows": state,
        "scratch of threads and reader": scratch,
        "blocks read ahead": blocks,
        "kernel rows": gram,
        "active rows": int(row_bytes * active),
    }
    if size < fewest:
        rows = row_bytes * fewest
        rows += 4 * _padded(n_rows) * FEWEST_ROWS if whole else _kernel_rows(fewest, SHARE_HELD)
        of_blocks = min(rows / (1 - BLOCK_SHARE), rows + LARGEST_BLOCKS)
        needed = state + scratch + max(smallest_block + rows, of_blocks)
        parts = ", ".join(f"{name} {show_bytes(part)}" for name, part in projected.items())
        classes = f" and {n_outputs} functions" if others else ""
        raise MemoryBudgetError(
            f"memory is {show_bytes(memory)}, too little for {n_rows} rows of {n_columns} columns"
            f"{classes} ({parts}); give at least about {show_bytes(1.001 * needed)}"
        )
    return TrainingPlan(size, widest, active, gram, blocks, projected, exact, row_bytes)


def packed_bytes(n_columns: int, bytes_per_row: float) -> float:
    """Most bytes of a row among the partners of kernel tiles.

    A sparse row has a value for each distinct feature of its tile. A tile takes at most 4 MiB or
    has at most 32 rows, and its features are at most the entries of its rows (see `gram.partners`:
    SPARSE_TILE_BYTES and NARROWEST_SPARSE_TILE).
    """
    dense = 4.0 * n_columns
    if bytes_per_row >= dense:
        return dense
    entries = bytes_per_row / 8
    values = min(dense, max(4096 * math.sqrt(entries), 128 * entries))
    return values * 33 / 32  # and the names of the features, once in a tile of 32 rows or more


def _most_variables(gram_bytes: int, share: float) -> int:
    """Most variables such that this share of their kernel rows fits."""
    padded = _padded(int(math.sqrt(gram_bytes / (4 * share))))
    most = 0
    for width in range(max(padded - 1024, 1024), padded + 1, 1024):
        most = max(most, min(width, int(gram_bytes / (4 * width * share))))
    return most


def _most_rows(n_bytes: float, row_bytes: float, n_rows: int) -> int:
    """Most rows that fit together with enough kernel rows among them."""
    sizes = range(1, n_rows + 1)
    return bisect_right(sizes, n_bytes, key=lambda n: row_bytes * n + _kernel_rows(n, SHARE_HELD))


def _kernel_rows(size: int, share: float = 1.0) -> int:
    """Bytes of a share of the kernel rows of a working set."""
    return max(math.ceil(share * 4 * _padded(size) * size), SMALLEST_GRAM)


def _padded(size: int) -> int:
    """Length of a kernel row: whole blocks of 1024 variables."""
    return -(-size // 1024) * 1024
