"""DiskCache: where kernel rows may be kept, how many bytes of them, and what they are valid for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bigsvm.gram.disk import DiskRows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bigsvm.gram.costs import TierDecision
    from bigsvm.gram.row_cache import RowTier


class DiskCache:
    """The disk's part of the kernel row cache of a run.

    Parameters
    ----------
    folder : str
    capacity_bytes : int
    fingerprint : mapping of str to str
        Of what the rows depend on: data and kernel, not C and not the labels.
    """

    def __init__(self, folder: str, *, capacity_bytes: int, fingerprint: Mapping[str, str]) -> None:
        self._folder, self._capacity = folder, capacity_bytes
        self._fingerprint = dict(fingerprint)
        self._decision: TierDecision | None = None

    def above(self, below: RowTier, *, n_variables: int) -> DiskRows:
        """Put the disk tier above another one; whether it keeps rows is measured the first time."""
        tier = DiskRows(
            below,
            self._folder,
            n_variables=n_variables,
            capacity_bytes=self._capacity,
            fingerprint=self._fingerprint,
            decision=self._decision,
        )
        self._decision = tier.decision
        return tier
