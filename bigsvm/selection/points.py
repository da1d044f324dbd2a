"""Points that are fitted one after the other, and what a fit of one has led to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from bigsvm.selection.record import Record

if TYPE_CHECKING:
    from bigsvm.errors import BigsvmError
    from bigsvm.estimators.base import KernelMachine
    from bigsvm.selection.record import FoldFit


class Line(NamedTuple):
    """Points that are fitted one after the other on some folds.

    Attributes
    ----------
    points : list of dict
        Parameters, in ascending order of C.
    folds : list of int
        Numbers of the folds.
    n_rows : int or None
        Train on the rows of each fold in a random sample of this size; smaller samples are parts of
        larger ones. All rows of a fold are tested.
    """

    points: list[dict[str, Any]]
    folds: list[int]
    n_rows: int | None = None

    def key(self, place: int, **fold: int) -> str:
        """Name the fit of a point on a fold in the record; without `fold` the run of all folds."""
        return Record.key(self.points[place], rows=self.n_rows or 0, **fold)


class Fitted(NamedTuple):
    """What a fit of a line has led to.

    Attributes
    ----------
    place, fold : int
        Place of the point in the line, and number of the fold.
    result : FoldFit or BigsvmError
        The error says why it cannot be trained with these parameters.
    estimator : KernelMachine or None
        None if another process has made the fit.
    """

    place: int
    fold: int
    result: FoldFit | BigsvmError
    estimator: KernelMachine | None = None
