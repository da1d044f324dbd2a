"""Checks of a saved run of pairs of classes: each pair in progress is checked like a single run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bigsvm.errors import CheckpointError
from bigsvm.training.check_saved import Sizes, check_outline, check_ranges, is_number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import TypeVar

    from numpy.typing import NDArray

    from bigsvm.training.generations import Outline

    Array = TypeVar("Array")


class PairsContent:
    """Contents of a generation of `PairLog`.

    The number of variables of a pair is not known here; its arrays must only agree with each other.
    The run that continues the pair checks its state again.

    Parameters
    ----------
    n_pairs, n_rows : int
        Number of all pairs and of all rows.
    """

    def __init__(self, n_pairs: int, n_rows: int) -> None:
        self._n_pairs, self._sizes = n_pairs, Sizes(None, n_rows)

    def check_outline(self, outlines: Mapping[str, Outline], values: dict[str, Any]) -> None:
        """Check which pairs are in progress, their counters and their shapes.

        Raises
        ------
        ValueError
            The message says what is wrong.
        CheckpointError
            A version that trained one pair at a time wrote it.
        """
        if "pairs" not in values:
            raise CheckpointError(
                "the checkpoint is of an earlier bigsvm, which trained one pair of classes at a "
                "time; go on with that one, or start in an empty directory"
            )
        numbers, counters = values["pairs"], values.get("of_pairs")
        if not isinstance(numbers, list) or not all(self._is_pair(one) for one in numbers):
            raise ValueError(f"pairs in progress are none of {self._n_pairs}")
        if not isinstance(counters, list) or not all(isinstance(one, dict) for one in counters):
            raise ValueError("of_pairs has no counters of pairs")
        if len(set(numbers)) != len(numbers) or len(numbers) != len(counters):
            raise ValueError("pairs in progress have not one state each")
        if not all(is_number(values.get(name)) for name in ("seconds", "bytes_read")):
            raise ValueError("seconds or bytes_read is no number of 0 or more")
        n_arrays = 0
        for number, own, count in divided(outlines, values):
            n_arrays += len(own)
            try:
                check_outline(own, count, self._sizes)
            except ValueError as error:
                raise ValueError(f"of pair {number}, {error}") from None
        if n_arrays != len(outlines):
            raise ValueError("there are arrays of pairs that are not in progress")

    def check(self, arrays: Mapping[str, NDArray[Any]], values: dict[str, Any]) -> None:
        """Check the arrays of each pair; ValueError says what is wrong."""
        for number, own, count in divided(arrays, values):
            try:
                check_ranges(own, count, self._sizes)
            except ValueError as error:
                raise ValueError(f"of pair {number}, {error}") from None

    def _is_pair(self, number: object) -> bool:
        return type(number) is int and 0 <= number < self._n_pairs


def divided(
    arrays: Mapping[str, Array], values: dict[str, Any]
) -> Iterator[tuple[int, dict[str, Array], dict[str, Any]]]:
    """Yield the number of each pair in progress, its own arrays or outlines, and its counters."""
    for number, own in zip(values["pairs"], values["of_pairs"], strict=True):
        start = f"{number}."
        yield (
            number,
            {
                name.removeprefix(start): array
                for name, array in arrays.items()
                if name.startswith(start)
            },
            own,
        )
