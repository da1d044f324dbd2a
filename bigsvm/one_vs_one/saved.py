"""Checks of a saved run of pairs of classes: each pair in progress is checked like a single run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bigsvm.declared import AMOUNT, check_fields
from bigsvm.errors import CheckpointError
from bigsvm.training.check_saved import Sizes, check_state
from bigsvm.training.checkpoint import Generation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

PAIRS = {"pairs": [int], "of_pairs": [dict], "seconds": AMOUNT, "bytes_read": AMOUNT}
"""Values of a generation of `PairLog` that are read later."""


class PairsContent:
    """Contents of a generation of `PairLog`.

    The number of variables of a pair is not known here; its arrays must only agree with each other.
    The run that continues the pair checks its state again.
    """

    def __init__(self, n_pairs: int, n_rows: int) -> None:
        self._n_pairs, self._sizes = n_pairs, Sizes(None, n_rows)

    @property
    def most_bytes(self) -> int:
        """Most bytes of its arrays."""
        return self._n_pairs * self._sizes.most_bytes

    def check(self, arrays: Mapping[str, NDArray[Any]], values: dict[str, Any]) -> None:
        """Check which pairs are in progress, their counters and their arrays.

        A ValueError says what is wrong. What a version that trained one pair at a time wrote raises
        CheckpointError.
        """
        if "pairs" not in values:
            raise CheckpointError(
                "the checkpoint is of an earlier bigsvm, which trained one pair of classes at a "
                "time; go on with that one, or start in an empty directory"
            )
        check_fields("the run of pairs", values, PAIRS, required=PAIRS)
        numbers = values["pairs"]
        if not all(number < self._n_pairs for number in numbers):
            raise ValueError(f"pairs in progress are none of {self._n_pairs}")
        if len(set(numbers)) != len(numbers) or len(numbers) != len(values["of_pairs"]):
            raise ValueError("pairs in progress have not one state each")
        n_arrays = 0
        for number, state in divided(arrays, values).items():
            n_arrays += len(state.arrays)
            try:
                check_state(state.arrays, state.values, self._sizes)
            except ValueError as error:
                raise ValueError(f"of pair {number}, {error}") from None
        if n_arrays != len(arrays):
            raise ValueError("there are arrays of pairs that are not in progress")


def divided(arrays: Mapping[str, NDArray[Any]], values: dict[str, Any]) -> dict[int, Generation]:
    """Return the state of each pair in progress: its own arrays, and its counters."""
    found = {}
    for number, own in zip(values["pairs"], values["of_pairs"], strict=True):
        start = f"{number}."
        names = [name for name in arrays if name.startswith(start)]
        found[number] = Generation(
            0, {name.removeprefix(start): arrays[name] for name in names}, own
        )
    return found
