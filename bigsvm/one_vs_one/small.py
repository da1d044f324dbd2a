"""SmallPairs: pairs of small classes, each solved in one compiled call, several at once.

A run of its own takes milliseconds to begin and to end, and for each batch of kernel rows. That is
as long as a pair of a thousand rows takes to be solved, and longer than a pair of forty. Here the
float64 kernel values of two groups of classes are computed at once, for all pairs of their classes.
"""

from __future__ import annotations

import bisect
import time
from typing import TYPE_CHECKING, NamedTuple, Self, cast

import numpy as np

from bigsvm.core import small_pairs, smo
from bigsvm.duals.formulations import finish_nu_svc
from bigsvm.gram import Partners
from bigsvm.gram.partners import PARTNERS_PER_TILE
from bigsvm.gram.spans import Team
from bigsvm.gram.tiles import ROWS_PER_TILE
from bigsvm.one_vs_one.log import Solved
from bigsvm.training.result import PHASES, Certificate, StopReason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bigsvm.arrays import F4, F8, I8, Mask
    from bigsvm.data.rows import Indices
    from bigsvm.gram import KernelTiles
    from bigsvm.one_vs_one.class_rows import ClassRows, HeldClasses

MOST_ROWS = 1200
"""Most rows of a small class; pairs of larger classes are worth runs of their own."""
MOST_BYTES = 128_000_000
"""Most bytes for kernel values and for solving; classes of `MOST_ROWS` rows need them."""
GROUP_ROWS = 256
"""Rows of small classes that are taken together; the last of them may have more."""
CELLS = 8
"""Most cells, of two groups each, whose kernel values are in memory together."""
SHARE = 0.5
"""Share of the tolerance to which pairs are solved in float32: float64 may find a larger gap."""
SLICES = 4
"""Parts of the work for each thread."""
UNLIMITED = int(np.iinfo(np.int64).max)


class Group(NamedTuple):
    """Neighbouring small classes: their rows, class by class, and the bound of each, (q,) both."""

    rows: I8
    bound: F8


class Cell(NamedTuple):
    """Pairs of which one class is of the first group and the other of the second.

    The groups may be the same. Places, (p,), are those of the pairs among those asked for.
    """

    groups: tuple[int, int]
    places: I8


class Work(NamedTuple):
    """Arrays that compiled calls read and fill for the pairs of a cell.

    Attributes are as `bigsvm.core.smo.run_each` and `bigsvm.core.small_pairs.certify` have them.
    `seconds`, (p, 2), are the seconds of each pair's steps and of its certificate.
    """

    grams: tuple[F8, F8, F8]
    bounds: tuple[F8, F8]
    spans: I8
    alpha: F8
    found: F8
    steps: I8
    reached: Mask
    seconds: F8

    def part(self, pairs: slice) -> Work:
        """Take some of the pairs."""
        return Work(
            self.grams, self.bounds, self.spans[pairs], self.alpha[pairs], self.found[pairs],
            self.steps[pairs], self.reached[pairs], self.seconds[pairs],
        )  # fmt: skip


class SmallPairs:
    """Solves C-SVC or ν-SVC for pairs of small classes; use it as a context manager.

    The pairs that it takes depend only on the sizes of the classes and the memory, and the result
    of a pair only on this pair: a resumed run has the same bits.

    Parameters
    ----------
    tiles : KernelTiles
        float64, of one thread: each thread here computes products of its own.
    bounds : callable
        Given a class and some of its rows, returns their C, or of ν-SVC their weights: (m,), > 0.
    n_bytes : float
        Most bytes while pairs are being solved here. The attribute is what it will take at most.
    most_rows : int, optional
        Most rows of a small class: those of a `SmallPairs` of another process, with at least as
        many threads and the same `n_bytes`; as many as these bytes allow by default.
    """

    def __init__(
        self,
        classes: ClassRows,
        tiles: KernelTiles,
        bounds: Callable[[int, Indices], F8],
        *,
        tol: float,
        threads: int,
        n_bytes: float,
        nu: float | None = None,
        most_rows: int | None = None,
    ) -> None:
        self._classes, self._tiles, self._bounds, self._tol = classes, tiles, bounds, tol
        self._nu, self._n_groups = nu, 1 if nu is None else 2
        self._threads, self._n_evaluations, self._row_seconds = threads, 0, 0.0
        values_per_row = min(classes.source.n_columns, classes.source.bytes_per_row)
        if most_rows is None:
            most_rows = _most_rows(n_bytes, values_per_row, threads)
        self.most_rows = most_rows
        small = classes.sizes <= most_rows
        self._small = small & (np.count_nonzero(small) > 1)
        sizes = np.where(self._small, classes.sizes, 0)
        ends = np.cumsum(sizes)
        _, first, self._group_of = np.unique(
            ends // GROUP_ROWS, return_index=True, return_inverse=True
        )
        starts = ends - sizes
        self._starts = starts - starts[first][self._group_of]
        largest = int(np.bincount(self._group_of, weights=sizes).max())
        self._of_block = largest**2
        self._of_thread = smo.values_of(2 * int(sizes.max()))
        for_threads = threads * (4 * self._of_thread + _tile_bytes(largest, values_per_row))
        n_blocks = int((n_bytes - for_threads) / (8 * max(self._of_block, 1)))
        n_blocks = min(n_blocks, len(first) + CELLS)
        self._n_cross = min(CELLS, n_blocks // 3)
        self._n_within = n_blocks - self._n_cross
        self.n_bytes = int(for_threads + 8 * n_blocks * self._of_block) if largest else 0
        self._memory: list[F4] = []
        self._free: list[F8] = []
        self._within: dict[int, F8] = {}
        self._team = Team(threads, "bigsvm-pair")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._team.close()

    def taken(self, pairs: I8) -> I8:
        """Places of the small ones of `pairs`, (m, 2), in the order that shares most work."""
        chosen = np.flatnonzero(self._small[pairs].all(axis=1))
        if not len(chosen):
            return chosen
        return np.concatenate([cell.places for cell in self._cells(pairs, chosen)])

    def parts(self, pairs: I8, held: HeldClasses) -> Iterator[I8]:
        """Divide the small ones of `pairs`, (m, 2), into parts to `solve`: yield their places.

        Memory is held until the last part has been yielded.
        """
        chosen = np.flatnonzero(self._small[pairs].all(axis=1))
        if held.source.row_alignment > 1 or not len(chosen):
            return
        self._memory = [np.empty(self._of_thread, np.float32) for _ in range(self._threads)]
        try:
            part: list[Cell] = []
            for cell in self._cells(pairs, chosen):
                if part and not self._fit([*part, cell]):
                    yield np.concatenate([taken.places for taken in part])
                    part = []
                part.append(cell)
            yield np.concatenate([taken.places for taken in part])
        finally:
            self._memory, self._free, self._within = [], [], {}

    def solve(self, pairs: I8, held: HeldClasses, *, max_steps: int = -1) -> list[Solved | None]:
        """Solve pairs (p, 2) of one part; None for pairs that need a run of their own.

        With a limit of steps (−1 is none) pairs are solved in turn until the steps are spent; the
        remaining pairs are not begun.
        """
        cells = list(self._cells(pairs, np.arange(len(pairs))))
        before, seconds_before = self._n_evaluations, self._row_seconds
        works = self._works(cells, pairs, held)
        evaluated = self._n_evaluations - before
        seconds = (self._row_seconds - seconds_before) / len(pairs)
        if max_steps < 0:
            self._solve_all(works)
        else:
            self._solve_in_turn(works, max_steps)
        # Kernel values that pairs share are counted once.
        shares = np.diff(np.linspace(0, evaluated, len(pairs) + 1).astype(np.int64))
        solved: list[Solved | None] = [None] * len(pairs)
        for cell, work in zip(cells, works, strict=True):
            for i in np.flatnonzero(work.reached).tolist():
                place = int(cell.places[i])
                solved[place] = self._solved(
                    pairs[place].tolist(), work, i, int(shares[place]), seconds
                )
            first, cross, _ = work.grams
            if cross is not first:
                self._give_back(cross)
        return solved

    # -- which of them together ------------------------------------------------------------------

    def _cells(self, pairs: I8, chosen: I8) -> Iterator[Cell]:
        """Yield the chosen pairs cell by cell, those of one first group after the other."""
        first, second = self._group_of[pairs[chosen]].T
        numbers = first * len(self._small) + second
        order = np.argsort(numbers, kind="stable")
        for places in np.split(chosen[order], np.flatnonzero(np.diff(numbers[order])) + 1):
            groups = self._group_of[pairs[places[0]]]
            yield Cell((int(groups[0]), int(groups[1])), places)

    def _fit(self, cells: list[Cell]) -> bool:
        """Whether the kernel values of these cells are in memory together."""
        groups = {group for cell in cells for group in cell.groups}
        return len(cells) <= self._n_cross and len(groups) <= self._n_within

    # -- kernel values ---------------------------------------------------------------------------

    def _works(self, cells: list[Cell], pairs: I8, held: HeldClasses) -> list[Work]:
        """Compute the kernel values that the cells need, and allocate the results."""
        wanted = sorted({group for cell in cells for group in cell.groups})
        groups = {number: self._group(number) for number in wanted}
        places = {g: held.places(group.rows).astype(np.int64) for g, group in groups.items()}
        rows = {g: held.source.lend(places[g]) for g in wanted}
        self._free_blocks(wanted)
        blocks = [(g, g) for g in wanted if g not in self._within]
        blocks += [cell.groups for cell in cells if cell.groups[0] != cell.groups[1]]
        sizes = {g: len(group.rows) for g, group in groups.items()}
        grams = {(a, b): self._block_of(sizes[a], sizes[b]) for a, b in blocks}

        def evaluate(block: tuple[int, int]) -> None:
            (a, b), began = block, time.perf_counter()
            partners = Partners(self._tiles.values, rows[b], for_sparse_rows=held.source.is_sparse)
            self._tiles.evaluate(rows[a], partners, grams[block])
            taken.append(time.perf_counter() - began)

        taken: list[float] = []
        self._team.share_out(evaluate, blocks, min(self._threads, len(blocks)) - 1)
        self._n_evaluations += sum(gram.size for gram in grams.values())
        self._row_seconds += sum(taken)
        self._within |= {a: gram for (a, b), gram in grams.items() if a == b}
        works = []
        for (first, second), chosen in cells:
            values = self._within[first] if first == second else grams[first, second]
            p = len(chosen)
            spans = np.empty((p, 4), np.int64)
            spans[:, ::2] = self._starts[pairs[chosen]]
            spans[:, 1::2] = spans[:, ::2] + self._classes.sizes[pairs[chosen]]
            m = int((spans[:, 1] - spans[:, 0] + spans[:, 3] - spans[:, 2]).max())
            works.append(
                Work(
                    (self._within[first], values, self._within[second]),
                    (groups[first].bound, groups[second].bound),
                    spans, np.zeros((p, m)), np.zeros((p, small_pairs.FOUND)),
                    np.zeros(p, np.int64), np.zeros(p, np.bool_), np.zeros((p, 2)),
                )
            )  # fmt: skip
        return works

    def _group(self, number: int) -> Group:
        classes = np.flatnonzero((self._group_of == number) & self._small).tolist()
        rows = [self._classes.of(number) for number in classes]
        bounds = [self._bounds(number, some) for number, some in zip(classes, rows, strict=True)]
        return Group(np.concatenate(rows).astype(np.int64), np.concatenate(bounds))

    def _free_blocks(self, wanted: list[int]) -> None:
        """Free blocks within groups: of groups before those wanted, and of those that do not fit.

        A later group is used again with each group before it.
        """
        n_free = self._n_within - len(wanted)
        later = [g for g in self._within if g > wanted[0] and g not in wanted][:n_free]
        for group in list(self._within):
            if group not in wanted and group not in later:
                self._give_back(self._within.pop(group))

    def _block_of(self, m: int, p: int) -> F8:
        """Return memory for (m, p) kernel values; used again where some was given back."""
        flat = self._free.pop() if self._free else np.empty(self._of_block)
        return flat[: m * p].reshape(m, p)

    def _give_back(self, gram: F8) -> None:
        """Keep the memory of a block to be used again; a block is a view of all of it."""
        self._free.append(cast("F8", gram.base))

    # -- the work --------------------------------------------------------------------------------

    def _solve_all(self, works: list[Work]) -> None:
        """Divide the pairs among the threads, each of which has memory of its own."""
        threads = self._threads
        step = max(1, sum(len(work.spans) for work in works) // (SLICES * threads))
        parts = [
            work.part(slice(a, a + step)) for work in works for a in range(0, len(work.spans), step)
        ]
        self._team.share_out(self._solve_part, parts, min(threads, len(parts)) - 1)

    def _solve_part(self, work: Work, max_steps: int = UNLIMITED) -> None:
        grams, bounds, spans, alpha, found, steps, reached, seconds = work
        times = [time.perf_counter()]
        box = np.zeros((len(alpha), 3, alpha.shape[1]))
        if self._nu is None:
            small_pairs.begin(bounds, spans, box)
        else:
            small_pairs.begin_nu(bounds, spans, self._nu, box, alpha)
        memory = self._memory.pop()
        try:
            smo.run_each(
                grams, spans, box, self._n_groups, SHARE * self._tol, max_steps, memory, alpha,
                steps, reached,
            )  # fmt: skip
        finally:
            self._memory.append(memory)
        gradient, groups, tol = np.empty_like(alpha), self._n_groups, self._tol
        times.append(time.perf_counter())
        small_pairs.renew(grams, spans, box, alpha, gradient, reached)
        times.append(time.perf_counter())
        small_pairs.polish(grams, spans, box, groups, tol, alpha, gradient, reached)
        times.append(time.perf_counter())
        small_pairs.certify(spans, box, groups, tol, alpha, gradient, found, reached)
        times.append(time.perf_counter())
        solving, renewing, polishing, certifying = np.diff(times)
        # Pairs of one call are not timed one by one: each has the same share.
        seconds[:] = solving + polishing, renewing + certifying
        seconds /= len(alpha)

    def _solve_in_turn(self, works: list[Work], max_steps: int) -> None:
        """Solve one after the other until the steps are spent."""
        for work in works:
            self._solve_part(work, max_steps)
            max_steps -= int(work.steps.clip(0).sum())
            if (work.steps < 0).any():
                max_steps = 0

    def _solved(
        self, pair: list[int], work: Work, i: int, evaluated: int, row_seconds: float
    ) -> Solved:
        """Make the result of a pair, with its support vectors in the order of all rows."""
        both = np.concatenate([self._classes.of(number) for number in pair]).astype(np.int64)
        (a, b, c, d), m = work.spans[i].tolist(), len(both)
        bound = np.concatenate([work.bounds[0][a:b], work.bounds[1][c:d]])
        support = np.flatnonzero(work.alpha[i, :m])
        support = support[np.argsort(both[support])]
        alpha = work.alpha[i, support]
        objective, gap, duality_gap, *thresholds = work.found[i].tolist()
        steps, last = work.seconds[i].tolist()
        phases = dict(zip(PHASES, (last, 0.0, row_seconds, steps, 0.0), strict=True))
        certificate = Certificate(
            converged=True, stop_reason=StopReason.CONVERGED, tol=self._tol, objective=objective,
            gap=gap, duality_gap=duality_gap, n_support=len(support),
            n_bounded=int(np.count_nonzero(np.abs(alpha) == bound[support])),
            n_sweeps=1, n_iter=int(work.steps[i]), n_kernel_evaluations=evaluated,
            n_working_sets=1, rows_swept=m, row_misses=0, row_reads=0, disk_tier=None,
            bytes_read=0, seconds=sum(phases.values()), seconds_by_phase=phases,
        )  # fmt: skip
        scale, intercept, rho = 1.0, thresholds[0], np.nan
        if self._nu is not None:
            scale, intercept, margin = finish_nu_svc(
                tuple(thresholds), float(alpha[alpha > 0].sum())
            )
            rho = margin["rho"]
        coefficients = scale * alpha
        shift = self._tiles.offset * float(coefficients.sum())
        return Solved(both[support], coefficients, intercept + shift, rho, certificate)


def _most_rows(n_bytes: float, values_per_row: float, threads: int) -> int:
    """Most rows of a class so that the blocks of two groups and the memory of the solvers fit.

    A group may have nearly `GROUP_ROWS` rows more.
    """

    def needed(size: int) -> float:
        for_each = 4 * 4 * size**2 + _tile_bytes(size, values_per_row)
        return 3 * 8 * size**2 + threads * for_each

    sizes = range(MOST_ROWS + 1)
    return max(0, bisect.bisect_right(sizes, n_bytes, key=lambda m: needed(m + GROUP_ROWS)) - 1)


def _tile_bytes(size: int, values_per_row: float) -> float:
    """Bytes that a product of two groups takes: one of them packed, and a span of the other."""
    values = ROWS_PER_TILE * min(size, PARTNERS_PER_TILE)
    return 8 * (values + (size + ROWS_PER_TILE) * values_per_row)
