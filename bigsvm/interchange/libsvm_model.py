"""LIBSVM's model text, as its ``svm_save_model`` writes and its ``svm_load_model`` reads it.

    svm_type, kernel_type, gamma, coef0, degree, nr_class, total_sv, rho, label, probA, probB,
    nr_sv, SV,
    then a line for each support vector: its coefficient and its entries

LIBSVM decides for its first label where ``Σ coefficient · K − rho`` is positive, and lists the
support vectors of the first label first; here a positive value stands for the second class, so that
the classes change places. Of a value f its first label has the probability
``1 / (1 + exp(probA f + probB))``: a sigmoid calibration with the other signs. Numbers are written
so that they read back to the same bits.
"""

from __future__ import annotations

import math
import os
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from bigsvm.calibration import Calibration
from bigsvm.core.text import Problem
from bigsvm.data.libsvm import MAX_LINE_BYTES, parse_chunk
from bigsvm.errors import ModelError, ParameterError
from bigsvm.files import replace_synced
from bigsvm.kernels import Precomputed, make_kernel
from bigsvm.models import KernelExpansion

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from numpy.typing import NDArray

    from bigsvm.data.scaler import Scaler

SVM_TYPES = {
    "c_svc": "c-svc",
    "nu_svc": "nu-svc",
    "one_class": "one-class",
    "epsilon_svr": "eps-svr",
    "nu_svr": "nu-svr",
}
KERNEL_TYPES = {
    "linear": "linear", "polynomial": "poly", "rbf": "rbf", "sigmoid": "sigmoid",
    "precomputed": "precomputed",
}  # fmt: skip
MOST_HEADER_LINES, LONGEST_HEADER_LINE = 64, 1 << 16
LINES_AT_ONCE = 4096
"""Support vectors parsed together."""


def write_libsvm_model(model: KernelExpansion, path: str | os.PathLike[str]) -> None:
    """Write a model as LIBSVM's programs read it, whole or not at all.

    With its calibration if that is a sigmoid; LIBSVM has no other, and the model then goes without.
    A model that was trained on scaled rows gets a second file, `range_path(path)`: rows must be
    scaled by ``svm-scale -r`` with that before ``svm-predict`` sees them.

    Parameters
    ----------
    model : KernelExpansion
        Labels must be whole numbers, as LIBSVM has no others, and the kernel one of its own.
    path : path

    Raises
    ------
    ModelError
    """
    lines = list(_header(model))
    with_classes = model.classes is not None
    order = np.arange(len(model.coefficients))
    if with_classes:
        order = np.argsort(model.coefficients <= 0, kind="stable")
    vectors = sp.csr_matrix(model.support_vectors)[order]
    first = 1 if model.first_index is None else model.first_index
    body = []
    coefficients = model.coefficients[order]
    for row, coefficient in enumerate(coefficients.tolist()):
        span = slice(vectors.indptr[row], vectors.indptr[row + 1])
        entries = zip(
            (vectors.indices[span] + first).tolist(), vectors.data[span].tolist(), strict=True
        )
        words = [f"{coefficient:.17g}", *(f"{index}:{value:.17g}" for index, value in entries)]
        body.append(" ".join(words) + " \n")
    texts = {Path(path): "".join([*lines, "SV\n", *body])}
    if model.scaler is not None:
        # First, so that no model is without it.
        texts = {range_path(path): "".join(_ranges(model.scaler, first)), **texts}
    for place, text in texts.items():
        try:
            replace_synced(place, text.encode())
        except OSError as error:
            raise ModelError(f"cannot write the model {place}: {error}") from error


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


def _header(model: KernelExpansion) -> Iterator[str]:
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
    yield "nr_class 2\n"
    yield f"total_sv {len(model.coefficients)}\n"
    yield f"rho {-model.intercept:.17g}\n"
    if model.classes is not None:
        negative, positive = model.classes
        yield f"label {_whole(positive)} {_whole(negative)}\n"
        if model.calibration is not None and model.calibration.method == "sigmoid":
            for name, value in zip(
                ("probA", "probB"), model.calibration.numbers[:, 0], strict=True
            ):
                yield f"{name} {-value:.17g}\n"
        first = int(np.count_nonzero(model.coefficients > 0))
        yield f"nr_sv {first} {len(model.coefficients) - first}\n"


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
        with Path(path).open("rb") as file:
            header = _read_header(file, path)
            rows, coefficients = _read_vectors(file, path, int(header["total_sv"]))
    except OSError as error:
        raise ModelError(f"cannot read the model {path}: {error}") from error
    kernel = header["kernel"]
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
    classes = header.get("label")
    # Any centre will do, and without one float32 distances of rows far from the origin are noise.
    centre = None
    if kernel.is_shift_invariant and len(coefficients):
        centre = np.asarray(vectors.mean(axis=0), np.float64).ravel()
    return KernelExpansion(
        kernel=kernel,
        support_vectors=vectors,
        coefficients=coefficients,
        intercept=-header["rho"],
        centre=centre,
        support=np.arange(len(coefficients)),
        classes=None if classes is None else [float(label) for label in reversed(classes)],
        formulation=SVM_TYPES[header["svm_type"]],
        calibration=header.get("calibration"),
        provenance={"bigsvm": None, "read from": "libsvm", "first_index": starts_at},
    )


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


def _read_header(file: BinaryIO, path: object) -> dict[str, Any]:
    """Read the lines before the support vectors."""
    found: dict[str, list[str]] = {}
    for number in range(1, MOST_HEADER_LINES + 1):
        line = file.readline(LONGEST_HEADER_LINE)
        words = line.decode("ascii", "replace").split()
        if words == ["SV"]:
            break
        if not words or not line.endswith(b"\n"):
            raise ModelError(f"{path}:{number}: not a line of the header of a LIBSVM model")
        found[words[0]] = words[1:]
    else:
        raise ModelError(f"{path}: no line SV among the first {MOST_HEADER_LINES}")

    def one(name: str, kind: Any, default: Any = None) -> Any:  # noqa: ANN401
        if name not in found and default is not None:
            return default
        try:
            (word,) = found[name]
            value = kind(word)
        except (KeyError, ValueError):
            raise ModelError(
                f"{path}: {name} is {' '.join(found.get(name, ['missing']))!r}; it must be one "
                f"{'whole number' if kind is int else 'number' if kind is float else 'word'}"
            ) from None
        if kind is float and not math.isfinite(value):
            raise ModelError(f"{path}: {name} is {value}; it must be finite")
        return value

    svm_type, kernel_type = one("svm_type", str), one("kernel_type", str)
    for name, value, known in (
        ("svm_type", svm_type, SVM_TYPES),
        ("kernel_type", kernel_type, KERNEL_TYPES),
    ):
        if value not in known:
            raise ModelError(f"{path}: {name} is {value!r}; known are {', '.join(known)}")
    try:
        kernel = make_kernel(
            KERNEL_TYPES[kernel_type],
            gamma=one("gamma", float, 1.0),
            coef0=one("coef0", float, 0.0),
            degree=one("degree", int, 3),
        )
    except (ParameterError, OverflowError) as error:
        raise ModelError(f"{path}: {error}") from None
    header = {
        "svm_type": svm_type,
        "total_sv": one("total_sv", int),
        "rho": one("rho", float),
        "kernel": kernel,
    }
    if one("nr_class", int) != 2:
        raise ModelError(
            f"{path}: nr_class is {one('nr_class', int)}; models of two classes can be read"
        )
    if svm_type in ("c_svc", "nu_svc"):
        try:
            labels = [int(word) for word in found["label"]]
        except (KeyError, ValueError):
            labels = []
        if len(labels) != 2 or labels[0] == labels[1] or max(map(abs, labels)) >= 2**31:
            raise ModelError(
                f"{path}: label must name two different classes by whole numbers of 32 bits"
            )
        header["label"] = labels
        # Of a regression they say something else.
        if "probA" in found or "probB" in found:
            numbers = -np.array([[one("probA", float)], [one("probB", float)]])
            header["calibration"] = Calibration(method="sigmoid", numbers=numbers)
    if not 0 <= header["total_sv"] < 2**31:
        raise ModelError(f"{path}: total_sv is {header['total_sv']}; it must be a number of rows")
    return header


def _read_vectors(
    file: BinaryIO, path: object, count: int
) -> tuple[sp.csr_matrix, NDArray[np.float64]]:
    """Read the support vectors: indices as written, and their coefficients."""
    parts: list[sp.csr_matrix] = []
    coefficients: list[NDArray[np.float64]] = []
    done = 0
    while lines := list(islice(iter(lambda: file.readline(MAX_LINE_BYTES), b""), LINES_AT_ONCE)):
        text = b"".join(lines)
        chunk = parse_chunk(
            text if text.endswith(b"\n") else text + b"\n",
            dtype=np.dtype(np.float64), smallest_index=0, strict=False,
        )  # fmt: skip
        if chunk.problem is not Problem.NONE:
            line = done + chunk.text.count(b"\n", 0, chunk.offset) + 1
            raise ModelError(f"{path}: support vector {line} is no coefficient and its entries")
        rows = chunk.rows
        done += len(rows.labels)
        if done > count:
            raise ModelError(f"{path}: more support vectors than total_sv, {count}")
        coefficients.append(rows.labels)
        parts.append(
            sp.csr_matrix(
                (rows.values, rows.indices, rows.indptr), shape=(len(rows.labels), 2**31 - 1)
            )
        )
    if done < count:
        raise ModelError(f"{path}: {done} support vectors instead of {count}; it may be cut off")
    if not parts:
        return sp.csr_matrix((0, 1)), np.empty(0)
    return sp.vstack(parts, format="csr"), np.concatenate(coefficients)
