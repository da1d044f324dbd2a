"""Rows held out of training, and the calibration that is fitted on them.

One model is trained, on nine tenths of the rows. LIBSVM trains five more for its probabilities,
which takes too long for data of this size. Rows held out have weight 0, so they have no part in the
problem.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigsvm.calibration import fit_calibration, fit_density, fit_laplace
from bigsvm.coupling import fit_classes, values_per_row, values_to_fit
from bigsvm.data.wrappers import ChosenRows
from bigsvm.errors import DataError
from bigsvm.executors.clients import workers_of
from bigsvm.fit.problem import (
    are_many_classes,
    check_targets,
    check_weights,
    encode_classes,
    encode_labels,
)
from bigsvm.parameters.formulations import CALIBRATIONS, traits_of
from bigsvm.training import events
from bigsvm.training.result import StopReason
from bigsvm.training.state import Stopped

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.arrays import F8, I8, Mask
    from bigsvm.calibration import Calibration
    from bigsvm.data.row_source import RowSource
    from bigsvm.fit.problem import Given
    from bigsvm.models import KernelExpansion
    from bigsvm.parameters import TrainingParameters
    from bigsvm.training.events import Hooks

HELD_OUT = 0.1
"""Share of the rows with a weight."""
FEWEST_BLOCKS = 20
"""Least blocks of a source from which whole blocks, two at least, are held out."""
SEED = 0
"""Seed of the choice. It is not the seed of the run, which a resumed run may change."""

FEWEST = 10
"""Least rows held out of one class, of which half are to be on each side, or of a regression."""

MOST_VALUES = 1 << 22
"""Most decision values of rows held out, of several functions: 32 MB, and as much to fit them."""


class HeldOut(NamedTuple):
    """Rows that are not trained on.

    Attributes
    ----------
    rows : (m,) int64
        Ascending.
    codes : (m,) integers
        Places of their classes; 0 where there are none.
    weights : (m,) float64 or None
        None where all are 1.
    targets : (m,) float64 or None
        Of a regression.
    """

    rows: I8
    codes: NDArray[np.integer[Any]]
    weights: F8 | None
    targets: F8 | None = None

    @property
    def nbytes(self) -> int:
        """Bytes they take for the whole run."""
        others = (self.weights, self.targets)
        return (
            self.rows.nbytes
            + self.codes.nbytes
            + sum(0 if array is None else array.nbytes for array in others)
        )


def held_out_for(given: Given) -> tuple[HeldOut | None, Given]:
    """Hold rows out if the parameters ask for a calibration; the choice depends on the data alone.

    Where rows in random order are read in blocks, whole blocks are held out, so that the
    calibration reads nothing else. Otherwise rows are chosen at random, of each class in the same
    share, also if the blocks would hold all rows of a class or none, or few rows with a weight.

    Also returns what to train from: the weights of the rows held out are 0.

    Raises
    ------
    DataError
        There are too few rows, or too few of a class.
    """
    source, labels, parameters = given.source, given.labels, given.parameters
    if parameters.calibration is None:
        return None, given
    learns, n_rows = traits_of(parameters.formulation).learns, source.n_rows
    if learns == "classes" and labels is None:
        raise DataError("a calibration needs a label for each row")
    weights = check_weights(given.sample_weight, n_rows)
    has_weight = np.ones(n_rows, np.bool_) if weights is None else weights > 0
    rng, targets = np.random.default_rng(SEED), None
    codes: NDArray[np.integer[Any]] = np.zeros(n_rows, np.int8)
    if learns == "classes" and labels is not None:
        encode = encode_classes if are_many_classes(labels) else encode_labels
        classes, codes = encode(labels, n_rows)
        held = _blocks(source, rng) & has_weight
        sizes = (
            np.bincount(codes[rows], minlength=len(classes)) for rows in (held, has_weight & ~held)
        )
        if not all(size.all() for size in sizes):
            held = _of_each_class(codes, has_weight, classes, rng)
    else:
        n_weighted = int(np.count_nonzero(has_weight))
        _check_enough(n_weighted, parameters)
        held = _blocks(source, rng) & has_weight
        if np.count_nonzero(held) < HELD_OUT / 2 * n_weighted:  # too few of them have a weight
            count = round(HELD_OUT * n_weighted)
            held = np.zeros(n_rows, np.bool_)
            held[rng.choice(np.flatnonzero(has_weight), count, replace=False)] = True
        if learns == "targets" and labels is not None:
            targets = check_targets(labels, n_rows)
    rows = np.flatnonzero(held)
    of_rows = (None if values is None else values[rows] for values in (weights, targets))
    left = np.ones(n_rows) if weights is None else weights.copy()
    left[rows] = 0.0
    return HeldOut(rows, codes[rows], *of_rows), given._replace(sample_weight=left)


def recorded_calibration(
    held_out: HeldOut | None, parameters: TrainingParameters
) -> dict[str, str]:
    """Say in a fingerprint that rows are held out; either method for classes holds out the same."""
    methods = CALIBRATIONS[traits_of(parameters.formulation).learns]
    return {} if held_out is None else {"calibration": " or ".join(methods)}


def _check_enough(n_rows: int, parameters: TrainingParameters) -> None:
    """Refuse to fit a density or a Laplace distribution on few rows."""
    n_held, method = round(HELD_OUT * n_rows), parameters.calibration
    if n_held < FEWEST:
        raise DataError(
            f"{n_rows} rows have a weight, and calibration={method!r} holds a tenth of them out, "
            f"{n_held}, but needs {FEWEST}; give more rows, or leave calibration out"
        )
    if parameters.formulation != "one-class":
        return
    # About nu of the rows are outside.
    nu = parameters.nu
    fewer = n_held * min(nu, 1 - nu)
    if fewer < FEWEST / 2:
        side = "outside" if nu < 0.5 else "inside"
        raise DataError(
            f"calibration={method!r} needs {FEWEST // 2} rows {side} among the {n_held} that it "
            f"holds out, and with nu={nu:g} there are about {fewer:.2g}; give more rows or another "
            "nu, or leave calibration out"
        )


def _blocks(source: RowSource, rng: np.random.Generator) -> Mask:
    """Rows of some blocks, (n,); none where they had better be chosen one by one."""
    size = source.row_alignment
    n_blocks = -(-source.n_rows // size)
    chosen = np.zeros(n_blocks, np.bool_)
    if size > 1 and source.is_shuffled and n_blocks >= FEWEST_BLOCKS:
        # Not the first, which training starts from.
        count = round(HELD_OUT * n_blocks)
        chosen[1 + rng.choice(n_blocks - 1, count, replace=False)] = True
    return np.repeat(chosen, size)[: source.n_rows]


def _of_each_class(
    codes: NDArray[np.integer[Any]],
    has_weight: Mask,
    classes: NDArray[Any],
    rng: np.random.Generator,
) -> Mask:
    """Rows of each class in the same share, (n,)."""
    held = np.zeros(len(codes), np.bool_)
    weighted = np.flatnonzero(has_weight)
    # Sorted by class, and within a class ascending.
    weighted = weighted[np.argsort(codes[weighted], kind="stable")]
    starts = np.searchsorted(codes[weighted], np.arange(len(classes) + 1))
    for code, label in enumerate(classes.tolist()):
        rows = weighted[starts[code] : starts[code + 1]]
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
    """Fit the calibration of a model, in one pass over the rows held out of `source`.

    None where the run was interrupted: who asked it to stop does not wait for a pass.
    """
    k = len(model.classes or ())
    if model.rule is not None:
        held_out = _few_enough(held_out, k)
    rows = ChosenRows(source, held_out.rows)
    shape = (rows.n_rows,) if model.rule is None else (rows.n_rows, values_per_row(model.rule, k))
    values = np.empty(shape)

    def keep(part: slice, of_functions: F8) -> None:
        if model.rule is not None:
            of_functions = values_to_fit(of_functions, held_out.codes[part], model.rule, k)
        values[part] = of_functions

    def on_progress(done: int) -> None:
        if hooks.interrupted():
            raise Stopped(StopReason.INTERRUPTED)
        hooks.listener(events.Calibrating(done, rows.n_rows))

    try:
        on_progress(0)
        with workers_of(hooks.client, hooks.terms) as workers:
            model.decide(
                rows, keep=keep, threads=threads, block_bytes=block_bytes,
                on_progress=on_progress, client=workers,
            )  # fmt: skip
    except Stopped:
        return None
    if method == "density":
        return fit_density(values, held_out.weights)
    if held_out.targets is not None:
        return fit_laplace(held_out.targets - values, held_out.weights)
    if model.rule is None:
        return fit_calibration(method, values, held_out.codes == 1, held_out.weights)
    return fit_classes(method, values, held_out.codes, held_out.weights, rule=model.rule, k=k)


def _few_enough(held_out: HeldOut, n_classes: int) -> HeldOut:
    """Leave out rows at random where the values of all would take too much memory.

    All functions share one calibration, so that some thousand rows determine it.
    """
    most = max(1, MOST_VALUES // n_classes)
    if len(held_out.rows) <= most:
        return held_out
    chosen = np.random.default_rng(SEED).choice(len(held_out.rows), most, replace=False)
    chosen.sort()
    weights = None if held_out.weights is None else held_out.weights[chosen]
    return HeldOut(held_out.rows[chosen], held_out.codes[chosen], weights)
