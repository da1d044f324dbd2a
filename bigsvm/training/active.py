"""The active rows: kept current between two sweeps, so that only they need working on.

Rows that cannot matter now are left out; a sweep brings them exactly up to date afterwards. Where
the active rows are more than a working set, they are solved by several working sets in turn, each
followed by a small sweep over the active rows alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.tiles import Columns
from bigsvm.training.sweep import EVALUATIONS_AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from bigsvm.duals.dual import Dual, Standing
    from bigsvm.tiles import KernelTiles
    from bigsvm.training.working_rows import Gathered


class ActiveRows:
    """Rows, where they stand, and the dual restricted to them.

    Parameters
    ----------
    dual : Dual
    tiles : KernelTiles
    rows : Gathered
    indices : (b,) int64
        Which rows they are.
    alpha, outputs : (b,) float64
        Changed in place by `absorb`.
    """

    def __init__(
        self,
        dual: Dual[Any],
        tiles: KernelTiles,
        rows: Gathered,
        indices: NDArray[np.int64],
        alpha: NDArray[np.float64],
        outputs: NDArray[np.float64],
    ) -> None:
        self.dual, self.tiles, self.rows, self.indices = dual, tiles, rows, indices
        self.alpha, self.outputs = alpha, outputs

    def __len__(self) -> int:
        return len(self.indices)

    def optimality(self) -> Standing:
        """Look at all of them."""
        at: Standing = self.dual.optimality(self.alpha, self.outputs, rows=self.indices)
        return at

    def gradient(self, places: NDArray[np.int64]) -> NDArray[np.float64]:
        """Gradient at `places`, (m,) or (m, faces)."""
        return self.dual.gradient(self.alpha[places], self.outputs[places], self.indices[places])

    def absorb(
        self,
        places: NDArray[np.int64],
        alpha: NDArray[np.float64],
        gradient: NDArray[np.float64],
        *,
        look: Callable[[], None],
    ) -> bool:
        """Take over what a working set has become, and bring the outputs of the others up to date.

        Parameters
        ----------
        places : (m,) int64
        alpha, gradient : (m,) float64
            Of the working set, the gradient of this very alpha.
        look : callable
            Called several times a second; where it raises, nothing has changed.

        Returns
        -------
        bool
            Whether any alpha has changed.
        """
        change = self.dual.formulation.per_output(alpha - self.alpha[places])
        moved = change != 0 if change.ndim == 1 else change.any(axis=1)
        others = np.ones(len(self), np.bool_)
        others[places] = False
        rest = np.flatnonzero(others)
        added = np.zeros((len(rest), *self.outputs.shape[1:]))
        if moved.any() and len(rest):
            rows = self.rows.at(places[moved])
            sparse = not isinstance(rows.rows, np.ndarray)
            columns = Columns(self.tiles, rows, sparse_partners=sparse)
            step = max(1, int(EVALUATIONS_AT_ONCE / columns.n))
            for low in range(0, len(rest), step):
                look()
                part = slice(low, low + step)
                self.tiles.multiply(self.rows.at(rest[part]), columns, change[moved], added[part])
        self.outputs[rest] += added
        self.outputs[places] = self.dual.outputs_from(gradient, alpha, self.indices[places])
        moved_any = bool((alpha != self.alpha[places]).any())
        self.alpha[places] = alpha
        return moved_any
