"""Rows held out of training, and the calibration that is fitted on them.

One model is trained, on nine tenths of the rows. LIBSVM trains five more for its probabilities,
which takes too long for data of this size. Rows held out have weight 0, so they have no part in the
problem.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigsvm.calibration import fit_calibration
from bigsvm.data.views import ChosenRows
from bigsvm.errors import DataError
from bigsvm.executors.clients import workers_of
from bigsvm.fit.problem import check_weights, encode_labels
from bigsvm.training import events
from bigsvm.training.result import StopReason
from bigsvm.training.state import Stopped

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.calibration import Calibration
    from bigsvm.data.row_source import RowSource
    from bigsvm.models import KernelExpansion
    from bigsvm.training.events import Hooks

    Flags = NDArray[np.bool_]

HELD_OUT = 0.1
"""Share of the rows with a weight."""
FEWEST_BLOCKS = 20
"""Least blocks of a source from which whole blocks, two at least, are held out."""
SEED = 0
"""Seed of the choice. It is not the seed of the run, which a resumed run may change."""


class HeldOut(NamedTuple):
    """Rows that are not trained on.

    Attributes
    ----------
    rows : (m,) int64
        Ascending.
    positive : (m,) bool
        Which are of the second class.
    weights : (m,) float64 or None
        None where all are 1.
    """

    rows: NDArray[np.int64]
    positive: Flags
    weights: NDArray[np.float64] | None

    @property
    def nbytes(self) -> int:
        """Bytes they take for the whole run."""
        weights = 0 if self.weights is None else self.weights.nbytes
        return self.rows.nbytes + self.positive.nbytes + weights


def hold_out(
    source: RowSource, labels: NDArray[Any] | None, sample_weight: NDArray[np.float64] | None
) -> tuple[HeldOut, NDArray[np.float64]]:
    """Choose rows; the choice depends on the data alone.

    Where rows in random order are read in blocks, whole blocks are held out, so that the
    calibration reads nothing else. Otherwise rows of each class are chosen at random, also if the
    blocks would hold all rows of a class or none.

    Parameters
    ----------
    source : RowSource
        (n, d).
    labels : (n,) array
        Labels of two classes.
    sample_weight : (n,) float64 or None

    Returns
    -------
    held_out : HeldOut
    weights : (n,) float64
        Weights for training: 0 for the rows held out.

    Raises
    ------
    DataError
    """
    n_rows = source.n_rows
    if labels is None:
        raise DataError("a calibration needs a label for each row")
    all_weights = check_weights(sample_weight, n_rows)
    classes, codes = encode_labels(labels, n_rows)
    has_weight = np.ones(n_rows, np.bool_) if all_weights is None else all_weights > 0
    by_class = [has_weight & (codes == code) for code in (0, 1)]
    rng = np.random.default_rng(SEED)
    held = _blocks(source, rng) & has_weight
    if not all((held & rows).any() and (~held & rows).any() for rows in by_class):
        held = _of_each_class(by_class, classes, rng)
    rows = np.flatnonzero(held)
    weights = np.ones(n_rows) if all_weights is None else all_weights.copy()
    weights[rows] = 0.0
    held_weights = None if all_weights is None else all_weights[rows]
    return HeldOut(rows, codes[rows] == 1, held_weights), weights


def _blocks(source: RowSource, rng: np.random.Generator) -> Flags:
    """Rows of some blocks, (n,); none where they had better be chosen one by one."""
    size = source.row_alignment
    n_blocks = -(-source.n_rows // size)
    chosen = np.zeros(n_blocks, np.bool_)
    if size > 1 and source.is_shuffled and n_blocks >= FEWEST_BLOCKS:
        # Not the first, which training starts from.
        count = round(HELD_OUT * n_blocks)
        chosen[1 + rng.choice(n_blocks - 1, count, replace=False)] = True
    return np.repeat(chosen, size)[: source.n_rows]


def _of_each_class(by_class: list[Flags], classes: NDArray[Any], rng: np.random.Generator) -> Flags:
    """Rows of each class in the same share, (n,)."""
    held = np.zeros(len(by_class[0]), np.bool_)
    for label, flags in zip(classes.tolist(), by_class, strict=True):
        rows = np.flatnonzero(flags)
        if len(rows) < 2:
            raise DataError(
                f"{len(rows)} row(s) of class {label!r} have a weight; a calibration needs at "
                "least 2 of each class, one to train on and one to hold out"
            )
        count = min(max(round(HELD_OUT * len(rows)), 1), len(rows) - 1)
        held[rng.choice(rows, count, replace=False)] = True
    return held


def calibrate(
    model: KernelExpansion,
    source: RowSource,
    held_out: HeldOut,
    method: str,
    *,
    threads: int,
    block_bytes: int,
    hooks: Hooks,
) -> Calibration | None:
    """Fit the calibration of a model, in one pass over the rows held out.

    Parameters
    ----------
    model : KernelExpansion
    source : RowSource
        All rows.
    held_out : HeldOut
    method : {"sigmoid", "isotonic"}
    threads : int
    block_bytes : int
        For the two blocks of rows that exist at once.
    hooks : Hooks
        The workers of a client compute the values.

    Returns
    -------
    Calibration or None
        None where the run was interrupted: who asked it to stop does not wait for a pass.

    Raises
    ------
    DataError, DataCorruptionError
    """
    rows = ChosenRows(source, held_out.rows)

    def on_progress(done: int) -> None:
        if hooks.interrupted():
            raise Stopped(StopReason.INTERRUPTED)
        hooks.listener(events.Calibrating(done, rows.n_rows))

    try:
        on_progress(0)
        with workers_of(hooks.client, memory=hooks.worker_memory) as workers:
            values = model.decision_function(
                rows, threads=threads, block_bytes=block_bytes, on_progress=on_progress,
                client=workers,
            )  # fmt: skip
    except Stopped:
        return None
    return fit_calibration(method, values, held_out.positive, held_out.weights)
