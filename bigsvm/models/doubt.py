"""How much the labels of support vectors are to be doubted: section 6 of Crammer & Singer 2001.

The coefficients α_i of a row of Crammer and Singer's machine are C_i τ_i, and

    η_i = e_{y_i} − τ_i        η_i ≥ 0, Σ_r η_ir = 1

is a distribution over the classes the row could be taken for: all on its label where no other class
comes nearer than the margin of 1, which is no support vector; all on another one where that one
does so in spite of all that C allows. ‖τ_i‖, from 0 to √2, says how far it is from the label.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigsvm.data.kernel_matrix import training_matrix
from bigsvm.data.wrappers import ChosenRows
from bigsvm.errors import DataError, ModelError

if TYPE_CHECKING:
    from collections.abc import Callable

    from bigsvm.arrays import F8, I8
    from bigsvm.data.row_source import RowSource
    from bigsvm.models.expansion import KernelExpansion

SAME_DOUBT = 1e-6
"""Doubts that differ by less are one: of all rows with η on one other class they are √2."""


class Doubtful(NamedTuple):
    """Rows whose labels look wrong, worst first.

    Attributes
    ----------
    places, rows : (m,) int64
        Among the support vectors, and among the rows of the training data.
    label, looks_like : (m,) int64
        Places in the model's classes: of the label, and of the other class with the largest η.
    doubt, distribution : (m,) and (m, k) float64
        ‖τ‖, and η.
    margin : (m,) float64
        Decision value of the label less the largest of the others: below 0 where the machine is
        wrong on the row.
    """

    places: I8
    rows: I8
    label: I8
    looks_like: I8
    doubt: F8
    distribution: F8
    margin: F8


def support_codes(model: KernelExpansion) -> I8:
    """Class of each support vector, (n_support,), in `model.classes`: its one coefficient > 0."""
    coefficients: Any = model.coefficients
    return np.asarray(coefficients.argmax(axis=1), np.int64).ravel()


def label_doubt(model: KernelExpansion) -> F8:
    """‖τ‖ of each support vector, (n_support,), in (0, √2]; ModelError of other formulations."""
    bounds = _bounds(model)
    coefficients: Any = model.coefficients
    squares = np.asarray(coefficients.multiply(coefficients).sum(axis=1)).ravel()
    doubt: F8 = np.sqrt(squares) / bounds
    return doubt


def label_distribution(model: KernelExpansion, places: I8 | None = None) -> F8:
    """η of the support vectors at `places`, or of all, (m, k); ModelError of other formulations."""
    bounds, codes = _bounds(model), support_codes(model)
    if places is None:
        places = np.arange(len(codes))
    coefficients: Any = model.coefficients
    distribution: F8 = -coefficients[places].toarray() / bounds[places][:, None]
    distribution[np.arange(len(places)), codes[places]] += 1.0
    # Of a row at its bound rounding may leave less than nothing to its label.
    np.maximum(distribution, 0.0, out=distribution)
    return distribution


def most_doubtful(
    model: KernelExpansion,
    source: RowSource,
    count: int,
    *,
    threads: int = 1,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Doubtful:
    """Rows with the largest ‖τ‖; of equal ones, those that the machine is most wrong on first.

    The source has the rows that the crammer-singer model was trained on; those with the largest
    doubt are evaluated, streamed, and at most `count` are returned. `on_progress` is told the rows
    evaluated, and how many there are; what it raises ends the pass.
    """
    doubt, codes = label_doubt(model), support_codes(model)
    if model.kernel.product == "lookup":
        source = training_matrix(source)
    largest = int(model.support.max(initial=-1))
    if largest >= source.n_rows or source.fingerprint() != model.provenance.get("data"):
        raise DataError(
            "these are not the rows that the model was trained on; give their store, as it was then"
        )
    count = min(count, len(doubt))
    least = np.partition(doubt, len(doubt) - count)[len(doubt) - count] if count else np.inf
    # Ascending, as rows are read from a store.
    places = np.flatnonzero(doubt >= least - SAME_DOUBT)
    places = places[np.argsort(model.support[places], kind="stable")]
    codes, margin = codes[places], np.empty(len(places))

    def keep(span: slice, values: F8) -> None:
        each, others = np.arange(len(values)), values.copy()
        others[each, codes[span]] = -np.inf
        margin[span] = values[each, codes[span]] - others.max(axis=1)

    rows = ChosenRows(source, model.support[places])
    model.decide(
        rows, keep=keep, threads=threads, on_progress=lambda done: on_progress(done, len(places))
    )
    steps = np.round(doubt[places] / SAME_DOUBT)
    worst = np.lexsort((margin, -steps))[:count]
    places = places[worst]
    distribution = label_distribution(model, places)
    others = distribution.copy()
    others[np.arange(count), codes[worst]] = -np.inf
    return Doubtful(
        places,
        model.support[places],
        codes[worst],
        others.argmax(axis=1),
        doubt[places],
        distribution,
        margin[worst],
    )


def _bounds(model: KernelExpansion) -> F8:
    if model.bounds is None:
        raise ModelError(
            f"the model is a {model.formulation}, whose coefficients tell nothing of labels; those "
            "of crammer-singer do"
        )
    return model.bounds
