"""The rows kept in a working set that others have left, as integers after its last pair."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bigsvm.duals.pair_steps import is_last_pair

if TYPE_CHECKING:
    from bigsvm.arrays import I8, Mask
    from bigsvm.duals.box_problem import Formulation

WORD_BITS = 64
"""Rows of one integer of `with_kept`."""


def with_kept(pair: I8, kept: Mask) -> I8:
    """Append a bit for each row, whether it is kept, to a pair: (2 + words,) int64."""
    padded = np.zeros(-(-len(kept) // WORD_BITS) * WORD_BITS, np.bool_)
    padded[: len(kept)] = kept
    words = np.packbits(padded, bitorder="little").view("<i8").astype(np.int64)
    return np.concatenate([pair, words])


def leaves_out(last: I8) -> bool:
    """Whether `last` of an interrupted run says that rows have left its working set."""
    return len(last) > 2


def kept_of(last: I8, size: int) -> Mask:
    """Read which rows are kept, (size,) bool; all where `last` is a pair alone."""
    if len(last) == 2:
        return np.ones(size, np.bool_)
    bits = np.unpackbits(last[2:].astype("<i8").view(np.uint8), bitorder="little")
    return bits[:size].astype(np.bool_)


def is_last_of_kept(formulation: Formulation, last: I8, size: int) -> bool:
    """Whether `last` is a pair and the rows kept of a working set of `size` rows, some of them."""
    if len(last) != 2 + -(-size // WORD_BITS):
        return False
    kept = kept_of(last, size)
    if not np.array_equal(with_kept(last[:2], kept), last) or kept.all():
        return False
    return bool(kept.any()) and is_last_pair(formulation, last[:2], int(kept.sum()))
