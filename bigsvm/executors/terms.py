"""WorkerTerms: what a run may take of the workers of a cluster."""

from __future__ import annotations

from typing import NamedTuple


class WorkerTerms(NamedTuple):
    """What a run may take of workers.

    Attributes
    ----------
    memory : int or None
        Bytes on each; half of the worker's limit if None.
    wait : float or None
        Seconds that the run waits for a first worker, or for another one when all are gone;
        without limit if None.
    """

    memory: int | None = None
    wait: float | None = None


USUAL_TERMS = WorkerTerms()
"""Half of a worker's memory, without a limit for waiting."""
