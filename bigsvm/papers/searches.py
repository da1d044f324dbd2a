"""Which search each solver of a ball is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bigsvm.balls.batched import SampledSearch
from bigsvm.duals.ball import Solver
from bigsvm.papers.stepwise import StepwiseSearch

if TYPE_CHECKING:
    from collections.abc import Callable

    from bigsvm.balls.search import Search


def search_of(solver: str) -> Callable[..., Search]:
    """Return the search of a solver: several samples a round, or a step for each sample."""
    return SampledSearch if solver == Solver.PAIRWISE else StepwiseSearch
