"""LIBSVM's model text, as its ``svm_save_model`` writes and its ``svm_load_model`` reads it.

    svm_type, kernel_type, gamma, coef0, degree, nr_class, total_sv, rho, label, probA, probB,
    nr_sv, SV,
    then a line for each support vector: its coefficients and its entries

LIBSVM decides for its first label where ``Σ coefficient · K − rho`` is positive, and lists the
support vectors of the first label first; here a positive value stands for the second class. Of two
classes they change places; of more they stay, as ties go to the first, and the values of all pairs
change signs (see `bigsvm.pairs`). A support vector of k classes has k - 1 coefficients.

Of a value f its first label has the probability ``1 / (1 + exp(probA f + probB))``: a sigmoid
calibration with the other signs. Numbers are written so that they read back to the same bits.
"""

from __future__ import annotations

import contextlib
import math
import os
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bigsvm.core.text import Problem
from bigsvm.data.libsvm import MAX_LINE_BYTES, parse_chunk
from bigsvm.errors import ModelError
from bigsvm.files import local_path, part_of, write_synced
from bigsvm.interchange.fitted import model_of
from bigsvm.interchange.libsvm_header import KERNEL_TYPES, SVM_TYPES, read_header
from bigsvm.kernels import Precomputed
from bigsvm.models import KernelExpansion
from bigsvm.pairs import libsvm_coefficients, pair_functions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from numpy.typing import NDArray
    from sklearn.base import BaseEstimator

    from bigsvm.data.scaler import Scaler
    from bigsvm.interchange.libsvm_header import Header

LINES_AT_ONCE, COEFFICIENTS_AT_ONCE = 4096, 1 << 17
"""Support vectors parsed together, and coefficients of theirs."""


def write_libsvm_model(
    model: KernelExpansion | BaseEstimator, path: str | os.PathLike[str]
) -> None:
    """Write a model as LIBSVM's programs read it, whole or not at all.

    With its calibration if that is a sigmoid; LIBSVM has no other, and the model then goes without.
    Of many classes, votes of pairs are what LIBSVM has.
    A model that was trained on scaled rows gets a second file, `range_path(path)`: rows must be
    scaled by ``svm-scale -r`` with that before ``svm-predict`` sees them.

    Parameters
    ----------
    model : KernelExpansion or fitted estimator of bigsvm
        Labels must be whole numbers, as LIBSVM has no others, and the kernel one of its own.
    path : path

    Raises
    ------
    ModelError
    """
    target = local_path(path, "path")
    model = model_of(model)
    laid_out = _lay_out(model)
    lines = list(_header(model, laid_out))
    vectors = sp.csr_matrix(model.support_vectors)[laid_out.rows]
    first = 1 if model.first_index is None else model.first_index
    body = []
    for row, coefficients in enumerate(laid_out.coefficients.T.tolist()):
        span = slice(vectors.indptr[row], vectors.indptr[row + 1])
        entries = zip(
            (vectors.indices[span] + first).tolist(), vectors.data[span].tolist(), strict=True
        )
        words = [
            *(f"{coefficient:.17g}" for coefficient in coefficients),
            *(f"{index}:{value:.17g}" for index, value in entries),
        ]
        body.append(" ".join(words) + " \n")
    texts = {target: "".join([*lines, "SV\n", *body])}
    if model.scaler is not None:
        # Last in and first out, so that no model is without it; both are on the disk before that.
        texts[range_path(path)] = "".join(_ranges(model.scaler, first))
    try:
        with contextlib.ExitStack() as stack:
            for place, text in texts.items():
                write_synced(stack.enter_context(part_of(place)), text.encode())
    except OSError as error:
        raise ModelError(f"cannot write the model {path}: {error}") from error


class LaidOut(NamedTuple):
    """A model in LIBSVM's order and signs.

    rows (q,): which support vectors are its lines. coefficients (k - 1, q), or (1, q). rho: a
    number for each pair. labels (k,), none of a regression or one class. counts: lines of each.
    """

    rows: NDArray[np.int64]
    coefficients: NDArray[np.float64]
    rho: list[float]
    labels: list[int]
    counts: list[int]


def _lay_out(model: KernelExpansion) -> LaidOut:
    if model.rule is not None:
        return _lay_out_pairs(model)
    order, labels, counts = np.arange(len(model.support)), [], []
    if model.classes is not None:
        first = model.coefficients > 0
        order = np.argsort(~first, kind="stable")
        negative, positive = model.classes
        labels = [_whole(positive), _whole(negative)]
        counts = [int(np.count_nonzero(first)), int(np.count_nonzero(~first))]
    return LaidOut(
        order, model.coefficients[order][None, :], [-float(model.intercept)], labels, counts
    )


def _lay_out_pairs(model: KernelExpansion) -> LaidOut:
    if model.rule != "ovo" or model.classes is None:
        raise ModelError(f"LIBSVM has votes of pairs of classes only; the rule is {model.rule}")
    rows, counts, coefficients = libsvm_coefficients(model.coefficients, len(model.classes))
    labels = [_whole(label) for label in model.classes]
    rho = np.asarray(model.intercept).tolist()
    return LaidOut(rows, coefficients, rho, labels, counts.tolist())


def range_path(path: str | os.PathLike[str]) -> Path:
    """Path of what ``svm-scale -r`` reads, beside that of a LIBSVM model."""
    return Path(f"{os.fspath(path)}.range")


def _ranges(scaler: Scaler, first_index: int) -> Iterator[str]:
    """Lines of svm-scale's parameters: what each column maps to -1 and to 1.

    Columns that are not listed it leaves out, as is right for those that become 0.
    """
    yield "x\n-1 1\n"
    for column in np.flatnonzero(scaler.factor).tolist():
        offset, half = float(scaler.offset[column]), 1 / float(scaler.factor[column])
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
    if laid_out.labels:
        yield f"label {' '.join(map(str, laid_out.labels))}\n"
        if model.calibration is not None and model.calibration.method == "sigmoid":
            for name, value in zip(
                ("probA", "probB"), model.calibration.numbers[:, 0], strict=True
            ):
                yield f"{name} {-value:.17g}\n"
        yield f"nr_sv {' '.join(map(str, laid_out.counts))}\n"


def _whole(label: float | str) -> int:
    if isinstance(label, str) or not abs(label) < 2**31 or label != int(label):
        raise ModelError(
            f"LIBSVM's labels are whole numbers of 32 bits; the model has the label {label!r}"
        )
    return int(label)


def read_libsvm_model(
    path: str | os.PathLike[str], *, n_features: int | None = None
) -> KernelExpansion:
    """Read a model of LIBSVM's programs; nothing in it is trusted.

    Probabilities of more than two classes are left out, as there is no such calibration here.

    Parameters
    ----------
    path : path
    n_features : int, optional
        Columns of the training data, at least the largest index of a support vector, or for a
        kernel matrix its largest number, which is taken if it is not given.

    Raises
    ------
    ModelError
        The place, and what is wrong there.
    """
    try:
        with local_path(path, "path").open("rb") as file:
            header = read_header(file, path)
            rows, coefficients = _read_vectors(file, path, header)
    except OSError as error:
        raise ModelError(f"cannot read the model {path}: {error}") from error
    kernel = header.kernel
    of_matrix = isinstance(kernel, Precomputed)
    if of_matrix and not (rows.nnz == len(coefficients) and (rows.indices == 0).all()):
        raise ModelError(f"{path}: a support vector is not a number, 0:1 or more")
    largest = int(rows.data.max(initial=0) if of_matrix else rows.indices.max(initial=0))
    starts_at = 0 if rows.nnz and rows.indices.min() == 0 else 1
    if n_features is not None and n_features < largest + 1 - starts_at:
        raise ModelError(
            f"{path}: a support vector has index {largest}; n_features is {n_features}"
        )
    width = max(largest + 1 - starts_at, n_features or 1)
    if of_matrix:
        width = max(largest, n_features or 1) + 1
    vectors = sp.csr_matrix(
        (rows.data, rows.indices - starts_at, rows.indptr), shape=(len(coefficients), width)
    )
    # Any centre will do, and without one float32 distances of rows far from the origin are noise.
    centre = None
    if kernel.is_shift_invariant and len(coefficients):
        centre = np.asarray(vectors.mean(axis=0), np.float64).ravel()
    return KernelExpansion(
        kernel=kernel,
        support_vectors=vectors,
        **_functions(header, coefficients),
        centre=centre,
        support=np.arange(len(coefficients)),
        formulation=SVM_TYPES[header.svm_type],
        calibration=header.calibration,
        provenance={"bigsvm": None, "read from": "libsvm", "first_index": starts_at},
    )


def _functions(header: Header, coefficients: NDArray[np.float64]) -> dict[str, Any]:
    """Coefficients, intercept and classes as a model has them."""
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


def widened(model: KernelExpansion, n_features: int) -> KernelExpansion:
    """Give a model that was read the columns after the last that it uses; fewer stay as they are.

    Parameters
    ----------
    model : KernelExpansion
        With sparse support vectors, as `read_libsvm_model` makes them.
    n_features : int
        Of the rows that it shall predict.
    """
    more = n_features - model.n_features
    if more <= 0:
        return model
    vectors: Any = model.support_vectors
    vectors = sp.csr_matrix(
        (vectors.data, vectors.indices, vectors.indptr),
        shape=(vectors.shape[0], vectors.shape[1] + more),
    )
    centre = None if model.centre is None else np.pad(model.centre, (0, more))
    return replace(model, support_vectors=vectors, centre=centre)


def _read_vectors(
    file: BinaryIO, path: object, header: Header
) -> tuple[sp.csr_matrix, NDArray[np.float64]]:
    """Read the support vectors: indices as written, and their coefficients, (n, k - 1)."""
    parts: list[sp.csr_matrix] = []
    n_coefficients, count = max(1, len(header.labels) - 1), header.total_sv
    coefficients = [np.empty((0, n_coefficients))]
    at_once = max(1, min(LINES_AT_ONCE, COEFFICIENTS_AT_ONCE // n_coefficients))
    done = 0
    while lines := list(islice(iter(lambda: file.readline(MAX_LINE_BYTES), b""), at_once)):
        leading, lines = _split_off(lines, n_coefficients - 1)
        text = b"".join(lines)
        chunk = parse_chunk(
            text if text.endswith(b"\n") else text + b"\n",
            dtype=np.dtype(np.float64), smallest_index=0, strict=False,
        )  # fmt: skip
        rows = chunk.rows
        wrong = None
        if chunk.problem is not Problem.NONE:
            wrong = chunk.text.count(b"\n", 0, chunk.offset)
        elif n_coefficients > 1 and not (
            len(rows.labels) == len(leading) and np.isfinite(leading).all()
        ):
            wrong = int(np.argmin(np.isfinite(leading).all(axis=1)))
        if wrong is not None:
            what = "coefficient" if n_coefficients == 1 else f"{n_coefficients} coefficients"
            raise ModelError(
                f"{path}: support vector {done + wrong + 1} is no {what} and its entries"
            )
        done += len(rows.labels)
        if done > count:
            raise ModelError(f"{path}: more support vectors than total_sv, {count}")
        coefficients.append(np.column_stack([leading[: len(rows.labels)], rows.labels]))
        parts.append(
            sp.csr_matrix(
                (rows.values, rows.indices, rows.indptr), shape=(len(rows.labels), 2**31 - 1)
            )
        )
    if done < count:
        raise ModelError(f"{path}: {done} support vectors instead of {count}; it may be cut off")
    vectors = sp.vstack(parts, format="csr") if parts else sp.csr_matrix((0, 1))
    return vectors, np.concatenate(coefficients)


def _split_off(lines: list[bytes], count: int) -> tuple[NDArray[np.float64], list[bytes]]:
    """Split the first `count` numbers off each line, NaN where there are none, and give the rest.

    The last coefficient stays, as LIBSVM's text of data has one number in front of the entries.
    """
    if count == 0:
        return np.empty((len(lines), 0)), lines
    parted = [words for line in lines if (words := line.split(None, count))]
    leading = np.full((len(parted), count), np.nan)
    for row, words in enumerate(parted):
        if len(words) > count:
            with contextlib.suppress(ValueError):
                leading[row] = [float(word) for word in words[:count]]
    return leading, [words[count] if len(words) > count else b"\n" for words in parted]
