"""Which search each solver of a ball is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bigsvm.duals.ball import Solver
from bigsvm.search.sampled import SampledSearch
from bigsvm.search.stepwise import StepwiseSearch

if TYPE_CHECKING:
    from collections.abc import Callable

    from bigsvm.search.search import Search


def search_of(solver: str) -> Callable[..., Search]:
    """Return the search of a solver: several samples a round, or a step for each sample."""
    return SampledSearch if solver == Solver.PAIRWISE else StepwiseSearch
