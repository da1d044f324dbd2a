"""SmallPairs: pairs of small classes, solved many in one compiled call.

To begin and end a run takes milliseconds, which is all that half a million pairs of 40 rows would
take. Here the float64 kernel values among some classes are computed once for all pairs of these.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np

from bigsvm.core import small_pairs
from bigsvm.team import Team
from bigsvm.tiles import Columns
from bigsvm.training.pair_log import Solved
from bigsvm.training.result import Certificate, StopReason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from bigsvm.data.class_rows import ClassRows, HeldClasses
    from bigsvm.data.duplicates import Indices
    from bigsvm.tiles import KernelTiles

MOST_ROWS = 64
"""Of a small class. Larger ones are worth runs of their own, and have time for them."""
MANY = 500
"""Pairs of small classes worth a way of their own: fewer take a second."""
GROUP_ROWS = 256
"""Rows of classes whose kernel values with as many others are in memory together: 2 MB."""
UNLIMITED = int(np.iinfo(np.int64).max)


class Bounds(Protocol):
    """Gives C of some rows of one class."""

    def __call__(self, one: int, rows: Indices, /) -> NDArray[np.float64]:
        """(m,) float64, above 0."""


class SmallPairs:
    """Solves C-SVC for pairs of small classes; use it as a context manager.

    Which pairs it takes depends on the sizes of the classes alone, and what it finds of a pair on
    this pair alone: a resumed run has the same bits.

    Parameters
    ----------
    classes : ClassRows
    tiles : KernelTiles
        float64.
    bounds : Bounds
    tol : float
    """

    def __init__(
        self, classes: ClassRows, tiles: KernelTiles, bounds: Bounds, *, tol: float
    ) -> None:
        self._classes, self._tiles, self._bounds, self._tol = classes, tiles, bounds, tol
        small = classes.sizes <= MOST_ROWS
        n_small = int(small.sum())
        self._small = small & (n_small * (n_small - 1) // 2 >= MANY)
        self._team = Team(tiles.threads, "bigsvm-pair")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._team.close()

    def parts(self, pairs: NDArray[np.int64], held: HeldClasses) -> Iterator[NDArray[np.int64]]:
        """Divide those of `pairs`, (m, 2), that it takes into parts to `solve`: places in it."""
        chosen = np.flatnonzero(self._small[pairs].all(axis=1))
        if held.source.row_alignment > 1 or not len(chosen):
            return
        group = np.cumsum(np.where(self._small, self._classes.sizes, 0)) // GROUP_ROWS
        first, second = group[pairs[chosen]].T
        cells = first * (group[-1] + 1) + second
        order = np.argsort(cells, kind="stable")
        yield from np.split(chosen[order], np.flatnonzero(np.diff(cells[order])) + 1)

    def solve(
        self, pairs: NDArray[np.int64], held: HeldClasses, *, max_steps: int = -1
    ) -> list[Solved | None]:
        """Solve pairs (p, 2) of one part; None for those that are better trained by themselves.

        Of a limit of steps, −1 being none, the first pairs take as many as they need; those that
        would need more are not begun.
        """
        among = np.unique(pairs)
        rows = [self._classes.of(one) for one in among.tolist()]
        edges = np.cumsum([0, *map(len, rows)])
        bound = np.concatenate(
            [self._bounds(one, own) for one, own in zip(among.tolist(), rows, strict=True)]
        )
        before = self._tiles.n_evaluations
        gram = self._gram(held, np.concatenate(rows).astype(np.int64))
        evaluated = self._tiles.n_evaluations - before
        places = np.searchsorted(among, pairs)
        spans = np.stack([edges[places], edges[places + 1]], axis=2).reshape(-1, 4)
        p, m = len(pairs), int((spans[:, 1] - spans[:, 0] + spans[:, 3] - spans[:, 2]).max())
        alpha, found = np.zeros((p, m)), np.zeros((p, 4))
        steps, status = np.zeros((2, p), np.int64)

        def one(part: slice) -> None:
            small_pairs.solve(
                gram, bound, spans[part], self._tol, UNLIMITED if max_steps < 0 else max_steps,
                alpha[part], found[part], steps[part], status[part],
            )  # fmt: skip

        # A limit is of all of them, one after the other.
        n_parts = min(self._tiles.threads, p) if max_steps < 0 else 1
        ends = itertools.pairwise(np.linspace(0, p, n_parts + 1).astype(int).tolist())
        self._team.share_out(one, [slice(a, b) for a, b in ends], n_parts - 1)
        # Kernel values that pairs share are counted once.
        shares = np.diff(np.linspace(0, evaluated, p + 1).astype(np.int64))
        return [
            self._solved(
                tuple(rows[place] for place in places[i].tolist()),
                [bound[a:b] for a, b in spans[i].reshape(2, 2).tolist()],
                alpha[i], found[i].tolist(), int(steps[i]), int(shares[i]),
            )
            if status[i] == small_pairs.SOLVED else None
            for i in range(p)
        ]  # fmt: skip

    def _gram(self, held: HeldClasses, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Kernel values among rows (q,), (q, q)."""
        values = held.source.lend(held.places(rows).astype(np.int64))
        gram = np.empty((len(rows), len(rows)))
        columns = Columns(self._tiles, values, sparse_partners=held.source.is_sparse)
        self._tiles.evaluate(values, columns, gram)
        return gram

    def _solved(
        self,
        rows: tuple[Indices, ...],
        bounds: list[NDArray[np.float64]],
        alpha: NDArray[np.float64],
        found: list[float],
        steps: int,
        evaluated: int,
    ) -> Solved:
        both, bound = np.concatenate(rows).astype(np.int64), np.concatenate(bounds)
        m = len(both)
        support = np.flatnonzero(alpha[:m])
        support = support[np.argsort(both[support])]
        coefficients = alpha[support]
        objective, gap, duality_gap, threshold = found
        certificate = Certificate(
            converged=True, stop_reason=StopReason.CONVERGED, tol=self._tol, objective=objective,
            gap=gap, duality_gap=duality_gap, n_support=len(support),
            n_bounded=int(np.count_nonzero(np.abs(coefficients) == bound[support])),
            n_sweeps=1, n_iter=steps, n_kernel_evaluations=evaluated, n_working_sets=1,
            rows_swept=m, row_misses=0, row_reads=0, disk_tier=None, bytes_read=0, seconds=0.0,
            cpu_idle=None, drift=None,
        )  # fmt: skip
        shift = self._tiles.offset * float(coefficients.sum())
        return Solved(both[support], coefficients, threshold + shift, np.nan, certificate)
