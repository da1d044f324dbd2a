"""LIBSVM's model text, as its ``svm_save_model`` writes and its ``svm_load_model`` reads it.

    svm_type, kernel_type, gamma, coef0, degree, nr_class, total_sv, rho, label, probA, probB,
    prob_density_marks, nr_sv, SV,
    then a line for each support vector: its coefficients and its entries

LIBSVM decides for its first label where ``Σ coefficient · K − rho`` is positive, and lists the
support vectors of the first label first; here a positive value stands for the second class. Of two
classes they change places; of more they stay, as ties go to the first, and the values of all pairs
change signs (see `bigsvm.votes`). A support vector of k classes has k - 1 coefficients.

Of a value f its first label has the probability ``1 / (1 + exp(probA f + probB))``: a sigmoid
calibration with the other signs. Of many classes there is such a sigmoid for each pair. Of a
regression probA is the scale of a Laplace distribution; prob_density_marks are of one class.
Numbers are written so that they read back to the same bits: with the digits that LIBSVM writes, and
with more where these are too few.
"""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import xxhash

from bigsvm.conversion.text_rows import MAX_INDEX
from bigsvm.conversion.to_text import shortest
from bigsvm.data.statistics import may_be_listed
from bigsvm.errors import DataError, ModelError, ParameterError
from bigsvm.files import local_path, open_regular, part_of, write_synced
from bigsvm.interchange.fitted import model_of
from bigsvm.interchange.libsvm_lines import (
    KERNEL_TYPES,
    OF_OTHERS,
    SCALED_BY,
    SVM_TYPES,
    read_header,
    read_vectors,
)
from bigsvm.interchange.range_file import read_range
from bigsvm.kernels import Precomputed
from bigsvm.models import KernelExpansion
from bigsvm.votes import libsvm_coefficients, pair_classes, pair_functions, pairs_in_order

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray
    from sklearn.base import BaseEstimator

    from bigsvm.data.scaler import Scaler
    from bigsvm.interchange.libsvm_lines import Header
    from bigsvm.interchange.range_file import Range


def write_libsvm_model(
    model: KernelExpansion | BaseEstimator,
    path: str | os.PathLike[str],
    *,
    labels: Sequence[float] | None = None,
) -> None:
    """Write a model as LIBSVM's programs read it, whole or not at all.

    A calibration is written too, of many classes a sigmoid for each pair; LIBSVM has no isotonic
    one. Of many classes, LIBSVM has votes of pairs only. For a model of scaled rows a second file
    is written, `range_path(path)`: rows must be scaled by ``svm-scale -r`` with it before
    ``svm-predict``. The model has the hash of this file in a place that LIBSVM skips, so that
    `read_libsvm_model` finds it.

    Parameters
    ----------
    model : KernelExpansion or fitted estimator of bigsvm
        Its labels must be whole numbers, and its kernel one of LIBSVM's.
    path : path
    labels : sequence of numbers, optional
        All classes in the order in which they are listed; svm-train lists them as they first occur
        in the text. If classes have as many votes, LIBSVM predicts the one that is listed first.

    Raises
    ------
    ModelError
    ParameterError
        `labels` are not the classes of the model.
    """
    target = local_path(path, "path")
    model = model_of(model)
    laid_out = _lay_out(model, labels)
    lines = list(_header(model, laid_out))
    # In double precision, as LIBSVM reads them.
    vectors = sp.csr_matrix(model.support_vectors, dtype=np.float64)[laid_out.rows]
    first = 1 if model.first_index is None else model.first_index
    body = []
    for row, coefficients in enumerate(laid_out.coefficients.T.tolist()):
        span = slice(vectors.indptr[row], vectors.indptr[row + 1])
        indices = (vectors.indices[span] + first).tolist()
        entries = zip(indices, shortest(vectors.data[span]), strict=True)
        words = [
            *(f"{coefficient:.17g}" for coefficient in coefficients),
            *(f"{index}:{value}" for index, value in entries),
        ]
        body.append(" ".join(words) + " \n")
    beside, mark, texts = range_path(path), "", {}
    if model.scaler is not None:
        texts[beside] = "".join(_ranges(model.scaler, first))
        mark = f" {SCALED_BY} {xxhash.xxh3_128_hexdigest(texts[beside].encode())}"
    elif beside.exists():
        raise ModelError(
            f"{beside} would be taken for what rows are scaled by, and this model was trained on "
            "rows that were not scaled; remove it, or give the model another name"
        )
    # The stack closes in reverse order, so the range file is in place before the model that needs
    # it; both are on the disk before that.
    texts = {target: "".join([*lines, f"SV{mark}\n", *body]), **texts}
    try:
        with contextlib.ExitStack() as stack:
            for place, text in texts.items():
                write_synced(stack.enter_context(part_of(place)), text.encode())
    except OSError as error:
        raise ModelError(f"cannot write the model {path}: {error}") from error


SURE = 50.0
"""Slope of a sigmoid that is 0 at -1 and 1 at 1, but for rounding."""


class LaidOut(NamedTuple):
    """A model in LIBSVM's order and signs.

    rows (q,): which support vectors are its lines. coefficients (k - 1, q), or (1, q). rho: a
    number for each pair. labels (k,), none of a regression or one class. counts: lines of each.
    sigmoids: probA and probB, a number for each pair, or empty.
    """

    rows: NDArray[np.int64]
    coefficients: NDArray[np.float64]
    rho: list[float]
    labels: list[int]
    counts: list[int]
    sigmoids: Sequence[NDArray[np.float64] | tuple[()]] = ((), ())


def _lay_out(model: KernelExpansion, labels: Sequence[float] | None) -> LaidOut:
    if labels is not None and sorted(labels) != sorted(model.classes or []):
        raise ParameterError(
            f"labels are {list(labels)}, the classes of the model {model.classes}; give each class "
            "once, or leave labels out"
        )
    if model.rule is not None:
        return _lay_out_pairs(model, labels)
    order, named, counts, sign = np.arange(len(model.support)), [], [], 1.0
    if model.classes is not None and len(model.classes) == 1:
        return LaidOut(order, np.empty((1, 0)), [], [_whole(model.classes[0])], [0])
    if model.classes is not None:
        negative, positive = model.classes
        if labels is not None and labels[0] == negative:
            sign, negative, positive = -1.0, positive, negative
        first = sign * model.coefficients > 0
        order = np.argsort(~first, kind="stable")
        named = [_whole(positive), _whole(negative)]
        counts = [int(np.count_nonzero(first)), int(np.count_nonzero(~first))]
    coefficients = sign * model.coefficients[order][None, :]
    slopes, offsets = _sigmoids(model)
    return LaidOut(
        order, coefficients, [-sign * float(model.intercept)], named, counts,
        [-slopes, -sign * offsets],
    )  # fmt: skip


def _lay_out_pairs(model: KernelExpansion, labels: Sequence[float] | None) -> LaidOut:
    if model.rule != "ovo" or model.classes is None:
        raise ModelError(f"LIBSVM has votes of pairs of classes only; the rule is {model.rule}")
    classes: list[Any] = list(model.classes)
    functions, rho = model.coefficients, np.asarray(model.intercept)
    slopes, offsets = _sigmoids(model)
    if labels is not None:
        places = np.array([classes.index(label) for label in labels])
        # Where the classes of a pair change places, values and offsets change signs.
        _, signs = pairs_in_order(functions, np.ones(len(rho)), places)
        if len(slopes):
            slopes = signs * pairs_in_order(functions, slopes, places)[1]
            offsets = pairs_in_order(functions, offsets, places)[1]
        functions, rho = pairs_in_order(functions, rho, places)
        classes = list(labels)
    rows, counts, coefficients = libsvm_coefficients(functions, len(classes))
    # LIBSVM's values of a pair have the other sign, and its sigmoid is of the first class.
    return LaidOut(
        rows, coefficients, rho.tolist(), list(map(_whole, classes)), counts.tolist(),
        [-slopes, offsets],
    )  # fmt: skip


def _sigmoids(model: KernelExpansion) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Slopes and offsets of the functions; none without a sigmoid calibration."""
    if model.calibration is None or model.calibration.method != "sigmoid":
        return np.empty(0), np.empty(0)
    slopes, offsets = np.broadcast_to(model.calibration.numbers, (2, model.n_functions))
    if model.left_out:
        is_constant = np.isin(pair_classes(len(model.classes or ())), model.left_out).any(axis=0)
        # The values of these pairs are 1 and -1.
        slopes, offsets = np.where(is_constant, SURE, slopes), np.where(is_constant, 0, offsets)
    return slopes, offsets


def range_path(path: str | os.PathLike[str]) -> Path:
    """Path of what ``svm-scale -r`` reads, beside that of a LIBSVM model."""
    return Path(f"{os.fspath(path)}.range")


def _ranges(scaler: Scaler, first_index: int) -> Iterator[str]:
    """Lines of svm-scale's parameters: what each column maps to -1 and to 1.

    Columns that are not listed it leaves out, as is right for those that become 0.
    """
    yield "x\n-1 1\n"
    for column, offset, factor in scaler.used():
        half = 1 / factor
        low, high = offset - half, offset + half
        if not low < high or math.isinf(high - low):
            raise ModelError(
                f"column {column} (from 0) was scaled by {offset} and {1 / half}, which are no two "
                "ends of a range in double precision, as svm-scale needs them"
            )
        yield f"{column + first_index} {low:.17g} {high:.17g}\n"


def _header(model: KernelExpansion, laid_out: LaidOut) -> Iterator[str]:
    svm_type = {ours: theirs for theirs, ours in SVM_TYPES.items()}.get(model.kind)
    kernel_type = {ours: theirs for theirs, ours in KERNEL_TYPES.items()}.get(model.kernel.name)
    if svm_type is None or kernel_type is None:
        raise ModelError(
            f"LIBSVM has no {model.formulation} with the kernel {model.kernel.name}; it has "
            f"{', '.join(SVM_TYPES.values())} with {', '.join(KERNEL_TYPES.values())}"
        )
    yield f"svm_type {svm_type}\n"
    yield f"kernel_type {kernel_type}\n"
    described = model.kernel.describe()
    for name in ("degree", "gamma", "coef0"):
        if name in described:
            yield f"{name} {described[name]:.17g}\n"
    yield f"nr_class {len(laid_out.labels) or 2}\n"
    yield f"total_sv {len(laid_out.rows)}\n"
    yield f"rho {' '.join(f'{value:.17g}' for value in laid_out.rho)}\n"
    made = model.calibration
    for name, method in OF_OTHERS.items():
        if made is not None and made.method == method:
            yield f"{name} {' '.join(f'{number:.17g}' for number in made.numbers[0])}\n"
    if laid_out.labels:
        yield f"label {' '.join(map(str, laid_out.labels))}\n"
        for name, numbers in zip(("probA", "probB"), laid_out.sigmoids, strict=True):
            if len(numbers):
                yield f"{name} {' '.join(f'{number:.17g}' for number in numbers)}\n"
        yield f"nr_sv {' '.join(map(str, laid_out.counts))}\n"


def _whole(label: float | str) -> int:
    if isinstance(label, str) or not abs(label) < 2**31 or label != int(label):
        raise ModelError(
            f"LIBSVM's labels are whole numbers of 32 bits; the model has the label {label!r}"
        )
    return int(label)


def read_libsvm_model(
    path: str | os.PathLike[str],
    *,
    n_features: int | None = None,
    range_file: str | os.PathLike[str] | None = None,
) -> KernelExpansion:
    """Read a model of LIBSVM's programs; nothing in it is trusted.

    A model of one class (``nr_class 1``) has no functions in LIBSVM, which predicts its label for
    all rows; here it has one whose value is 0.

    Parameters
    ----------
    path : path
    n_features : int, optional
        Columns of the training data, at least the largest index of a support vector, or for a
        kernel matrix its largest number, which is taken if it is not given.
    range_file : path, optional
        File that ``svm-scale -s`` wrote: the model then scales rows by it. The file that
        `write_libsvm_model` wrote beside a model is found automatically.

    Raises
    ------
    ModelError
        The file is invalid (the message names the place), or it is unknown how to scale rows.
    """
    try:
        with open_regular(local_path(path, "path"), follow_links=True) as file:
            header = read_header(file, path)
            rows, coefficients = read_vectors(file, path, header)
    except OSError as error:
        raise ModelError(f"cannot read the model {path}: {error.strerror}") from error
    scaling = _range_of(path, header, range_file)
    kernel = header.kernel
    of_matrix = isinstance(kernel, Precomputed)
    numbered = rows.nnz == len(coefficients) and not rows.indices.any()
    if of_matrix and not (numbered and ((rows.data >= 1) & (rows.data <= MAX_INDEX)).all()):
        raise ModelError(f"{path}: a support vector is not a number, 0:1 or more")
    largest = int(rows.data.max(initial=0) if of_matrix else rows.indices.max(initial=0))
    starts_at = 0 if rows.nnz and rows.indices.min() == 0 else 1
    # The numbers of a kernel matrix are from 1.
    needed = largest if of_matrix else largest + 1 - starts_at
    if n_features is not None and n_features < needed:
        what = "number" if of_matrix else "index"
        raise ModelError(
            f"{path}: a support vector has {what} {largest}; n_features is {n_features}"
        )
    width = max(needed, n_features or 1)
    scaler = None
    if scaling is not None:
        width = max(width, scaling.n_columns(starts_at))
        scaler = scaling.scaler(width, starts_at)
    if of_matrix:
        width += 1
    vectors = sp.csr_matrix(
        (rows.data, rows.indices - starts_at, rows.indptr), shape=(len(coefficients), width)
    )
    # Any centre will do, and without one float32 distances of rows far from the origin are noise.
    centre = None
    few = not may_be_listed(width, sparse=True)
    if kernel.is_shift_invariant and len(coefficients) and few:
        centre = np.asarray(vectors.mean(axis=0), np.float64).ravel()
    return KernelExpansion(
        kernel=kernel,
        support_vectors=vectors,
        **_functions(header, coefficients),
        centre=centre,
        support=np.arange(len(coefficients)),
        formulation=SVM_TYPES[header.svm_type],
        scaler=scaler,
        calibration=header.calibration,
        provenance={
            "bigsvm": None,
            "read from": "libsvm",
            "first_index": starts_at if rows.nnz else None,
        },
    )


def _range_of(
    path: str | os.PathLike[str], header: Header, range_file: str | os.PathLike[str] | None
) -> Range | None:
    """Read the file to scale rows by: the given one, or the one exported with the model."""
    beside = range_path(path)
    if range_file is None and header.scaled_by is None:
        if beside.exists():
            raise ModelError(
                f"{path} does not say whether rows are to be scaled by {beside}; name that file "
                "(range_file) if they are, or move it away if they are scaled already"
            )
        return None
    if range_file is None and not beside.exists():
        raise ModelError(
            f"{path} is a model of rows scaled by {beside.name}, which is not beside it; put it "
            "there, or name it (range_file)"
        )
    try:
        ranges = read_range(beside if range_file is None else range_file)
    except DataError as error:
        raise ModelError(str(error)) from error
    if header.scaled_by not in (None, ranges.digest):
        raise ModelError(
            f"{ranges.path} is not the file that {path} was exported with; export both again"
        )
    return ranges


def _functions(header: Header, coefficients: NDArray[np.float64]) -> dict[str, Any]:
    """Coefficients, intercept and classes as a model has them."""
    if len(header.labels) == 1:
        return {
            "coefficients": np.empty(0),
            "intercept": 0.0,
            "classes": [float(header.labels[0])],
        }
    if len(header.labels) <= 2:
        return {
            "coefficients": coefficients[:, 0],
            "intercept": -float(header.rho[0]),
            "classes": [float(label) for label in reversed(header.labels)] or None,
        }
    functions = pair_functions(coefficients.T, header.counts)
    functions.eliminate_zeros()
    return {
        "coefficients": functions,
        "intercept": header.rho,
        "classes": [float(label) for label in header.labels],
        "rule": "ovo",
    }
