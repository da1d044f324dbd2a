"""Disjoint working sets that are solved side by side: what was tried, for `suites.more_threads`.

Two ways to divide rows are here. Parts: the working set of the loop is divided at random.
Neighbourhoods: all active rows are, each time those with the largest kernel values with one of
them. All are solved from the same point, to the tolerance of the loop's working set, and joined
where the dual objective is largest: by how much of its way each goes, from 0 to 1, is a quadratic
problem of as many variables as there are sets. The next set is solved as by the loop, because sets
disturb one another. What is divided depends on the number of sets, not on threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigsvm.duals.dual import NO_PAIR, Point
from bigsvm.training.state import Phase
from bigsvm.working_sets.subproblem import REFRESH, Progress

if TYPE_CHECKING:
    from collections.abc import Callable

    from bigsvm.arrays import F8, I8
    from bigsvm.training.loop import Decomposition
    from bigsvm.working_sets.active import ActiveRows

LEAST_ROWS = 512
"""Fewest rows of a part: the steps of fewer take no longer than dividing them."""
TURNS, CLOSE = 1000, 1e-12
"""Most turns of coordinate ascent when parts are joined, and the change at which it ends."""
MOST_ROUNDS = 1000
"""Rounds of one selection of active rows, after which a run would not end."""


class Solved(NamedTuple):
    """A set that was solved: its places among the active rows, where it is, and how it ended."""

    places: I8
    alpha: F8
    gradient: F8
    steps: int
    progress: Progress


def best_shares(gains: F8, curvature: F8) -> F8:
    """Maximise ``gains @ t - t @ curvature @ t / 2`` over t (k,) in [0, 1]; curvature is (k, k)."""
    shares = np.ones(len(gains))
    for _ in range(TURNS if len(gains) > 1 else 0):
        before = shares.copy()
        for k, own in enumerate(np.diag(curvature)):
            if own > 0:
                rest = gains[k] - curvature[k] @ shares
                shares[k] = np.clip(shares[k] + rest / own, 0, 1)
        if np.abs(shares - before).max() < CLOSE:
            break
    return shares


def join(active: ActiveRows, parts: list[Solved]) -> bool:
    """Move the active rows to the best point between the old one and the parts'; say if any moved.

    K times the change of a part is computed once, as after any working set.
    """
    dual, moves, added = active.dual, [], []
    gains = np.zeros(len(parts))
    for k, part in enumerate(parts):
        rows, before = active.indices[part.places], active.alpha[part.places]
        gradient = dual.gradient(before, active.outputs[part.places], rows)
        gains[k] = float(np.vdot(gradient, part.alpha - before))
        moves.append(dual.formulation.per_output(part.alpha - before))
        others = np.delete(np.arange(len(active)), part.places)
        change = np.zeros(len(active))
        change[others] = active.executor.among(
            active.rows, others, part.places, moves[k], tiles=active.tiles
        )
        outputs = dual.outputs_from(part.gradient, part.alpha, rows)
        change[part.places] = outputs - active.outputs[part.places]
        added.append(change)
    curvature = np.array(
        [[m @ a[p.places] for a in added] for m, p in zip(moves, parts, strict=True)]
    )
    shares, moved = best_shares(gains, (curvature + curvature.T) / 2), False
    for share, part, change in zip(shares, parts, added, strict=True):
        before = active.alpha[part.places]
        alpha = part.alpha if share == 1 else before + share * (part.alpha - before)
        if alpha.ndim == 2:  # one of a row's two variables is 0 where its loss is least
            beta = alpha.sum(axis=1)
            alpha = np.stack([np.maximum(beta, 0), np.minimum(beta, 0)], axis=1)
        moved |= bool((alpha != before).any())
        active.alpha[part.places] = alpha
        active.outputs += share * change
    return moved


class SideBySide:
    """Solves the active rows in place of `Decomposition._solve`.

    It makes `n_sets` sets, of neighbours or of random rows. `share_out` is given a function and the
    number of sets that may be solved at once. `longest` counts the pair steps of the longest set of
    each round.
    """

    def __init__(
        self,
        n_sets: int,
        share_out: Callable[[Callable[[int], None], int], None],
        *,
        of_neighbours: bool,
    ) -> None:
        self._n_sets, self._share_out, self._of_neighbours = n_sets, share_out, of_neighbours
        self._rng = np.random.default_rng(0)
        self.longest = 0

    def solve(self, loop: Decomposition) -> None:
        """Solve sets until the active rows are optimal: several, then one, and so on."""
        run, active, choice = loop._run, loop._active(), loop._choice
        once = choice.one_set_is_enough(knows_all_outputs=run.knows_all_outputs)
        for turn in range(MOST_ROUNDS):
            if run.count.together:
                loop._step_together(active)
            chosen, tol = active.choose(choice, tol=run.count.active_tol, once=once)
            if not len(chosen.rows):
                break
            sets = [active.places(chosen.rows)]
            if turn % 2 == 0:
                sets = self._divided(active, sets[0])
            parts = self._solved(loop, active, sets, tol)
            had_all, stalled = active.is_all(chosen), parts[0].progress is Progress.STALLED
            moved = join(active, parts)
            run.count.n_working_sets += len(sets)
            if len(sets) == 1 and (had_all or once or stalled or not moved):
                break
        else:
            raise RuntimeError(f"{MOST_ROUNDS} rounds have not solved {len(active)} active rows")
        run.count.rows_done = 0
        run.count.phase = Phase.SWEEP

    def _divided(self, active: ActiveRows, places: I8) -> list[I8]:
        """Divide the places of a working set, or those of all active rows."""
        if not self._of_neighbours:
            n_sets = max(1, min(self._n_sets, len(places) // LEAST_ROWS))
            return np.array_split(self._rng.permutation(places), n_sets)
        rest, sets = np.arange(len(active)), list[Any]()
        for left in range(max(1, min(self._n_sets, len(rest) // LEAST_ROWS)), 1, -1):
            among = active.kernel_row(int(self._rng.choice(rest)))[rest]
            order = np.argsort(-among, kind="stable")
            sets.append(rest[order[: len(rest) // left]])
            rest = np.sort(rest[order[len(rest) // left :]])
        return [*sets, rest]

    def _solved(
        self, loop: Decomposition, active: ActiveRows, divided: list[I8], tol: float
    ) -> list[Solved]:
        """Solve parts, each from the point where the active rows are."""
        buffers, found = loop._buffer.parts(len(divided)), dict[int, Solved]()

        def solve(k: int) -> None:
            places = np.sort(divided[k])
            working = active.started(places)
            start = Point(working.alpha.copy(), working.gradient.copy(), NO_PAIR, 0)
            memory = loop._choice.memory(buffers[k])
            problem: Any = active.of_rows(working.rows, start, memory=memory, tiles=active.tiles)
            progress = Progress.STEPS_SPENT
            while progress is Progress.STEPS_SPENT:
                progress = problem.advance(tol=tol, max_steps=REFRESH)
            problem.bring_up_to_date()
            alpha, gradient, _, steps = problem.point
            found[k] = Solved(places, alpha.copy(), gradient.copy(), steps, progress)
            problem.close()

        if len(divided) > 1:
            self._share_out(solve, len(divided))
        else:
            solve(0)
        steps = [part.steps for part in found.values()]
        loop._run.count.n_iter += sum(steps)
        self.longest += max(steps)
        return [found[k] for k in range(len(divided))]
