"""The lines of LIBSVM's model text, header and support vectors; nothing in them is trusted."""

from __future__ import annotations

import contextlib
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from bigsvm.calibration import SHAPES, Calibration
from bigsvm.conversion.libsvm import CHUNK_BYTES, MAX_LINE_BYTES, parse_chunk
from bigsvm.conversion.plain_text import PLAIN_BYTES
from bigsvm.errors import ModelError, ParameterError, brief
from bigsvm.kernels import make_kernel
from bigsvm.parameters.formulations import CALIBRATIONS, traits_of

if TYPE_CHECKING:
    from typing import BinaryIO

    from numpy.typing import NDArray

    from bigsvm.kernels import Kernel

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
NAMES = (
    "svm_type", "kernel_type", "degree", "gamma", "coef0", "nr_class", "total_sv", "rho", "label",
    "probA", "probB", "prob_density_marks", "nr_sv",
)  # fmt: skip
"""Header lines that LIBSVM reads; it refuses all others."""
PARAMETERS = {"degree": int, "gamma": float, "coef0": float}
WRITTEN_OF_KERNELS = {
    "polynomial": ("degree", "gamma", "coef0"),
    "rbf": ("gamma",),
    "sigmoid": ("gamma", "coef0"),
}
"""Parameters that a file must have: LIBSVM would use numbers from elsewhere for missing ones."""
OF_OTHERS = {"probA": "laplace", "prob_density_marks": "density"}
"""Calibrations that are not of classes, by the lines that have their numbers."""
SCALED_BY = "bigsvm-scaled-by"
"""Word after SV, followed by the hash of the file with which svm-scale must scale rows."""
MOST_LINES = 64
"""Most lines of a header."""
MOST_BYTES = 1 << 27
"""Most bytes of a header: a thousand classes have half a million pairs, of up to three numbers."""
PIECE_BYTES = 1 << 16
"""Bytes of a line that are examined before more is read."""
MOST_MARK_BYTES = 4096
"""Most bytes of a value or a mark of a few words."""
_MEANT = {int: "whole number", float: "number", str: "word"}


@dataclass(frozen=True, kw_only=True)
class Header:
    """What is known before the support vectors.

    Attributes
    ----------
    svm_type : str
        One of `SVM_TYPES`.
    rho : (n_pairs,) float64
        One number if there are at most two classes.
    labels : list of int
        In LIBSVM's order; none of a regression or one class.
    counts : (k,) int64
        Support vectors of each label; none where there are two classes or fewer.
    calibration : Calibration or None
        Sigmoids of the functions, marks of one class, or the scale of a regression's noise.
    scaled_by : str or None
        Hash of the svm-scale file that was exported with the model.
    """

    svm_type: str
    kernel: Kernel
    total_sv: int
    rho: NDArray[np.float64]
    labels: list[int]
    counts: NDArray[np.int64]
    calibration: Calibration | None
    scaled_by: str | None


def read_line(file: BinaryIO, most: int, path: object) -> bytes:
    """Read a line of at most `most` bytes, in pieces, and stop at a hole in a sparse file."""
    pieces = []
    while most > 0 and (piece := file.readline(min(most, PIECE_BYTES))):
        if b"\0" in piece:
            raise ModelError(f"{path}: NUL byte; this is not a LIBSVM model")
        pieces.append(piece)
        most -= len(piece)
        if piece.endswith(b"\n"):
            break
    return b"".join(pieces)


def read_header(file: BinaryIO, path: object) -> Header:
    """Read up to the line SV."""
    lines = _Lines(file, path)
    svm_type, kernel_type = lines.value("svm_type", str), lines.value("kernel_type", str)
    for name, value, known in (
        ("svm_type", svm_type, SVM_TYPES),
        ("kernel_type", kernel_type, KERNEL_TYPES),
    ):
        if value not in known:
            raise ModelError(f"{path}: {name} is {brief(value)}; known are {', '.join(known)}")
    try:
        kernel = make_kernel(
            KERNEL_TYPES[kernel_type],
            **{
                name: lines.value(name, kind)
                for name, kind in PARAMETERS.items()
                if name in WRITTEN_OF_KERNELS.get(kernel_type, ())
            },
        )
    except (ParameterError, OverflowError) as error:
        raise ModelError(f"{path}: {error}") from None
    total = lines.value("total_sv", int)
    if not 0 <= total < 2**31:
        raise ModelError(f"{path}: total_sv is {brief(total)}; it must be a number of rows")
    n_classes = lines.value("nr_class", int)
    is_classifier = svm_type in ("c_svc", "nu_svc")
    if not 1 <= n_classes < 2**31 or (n_classes != 2 and not is_classifier):
        raise ModelError(f"{path}: nr_class is {brief(n_classes)}, which {svm_type} cannot have")
    rho = lines.values("rho", float, n_classes * (n_classes - 1) // 2, n_classes)
    labels: list[int] = []
    calibration = None
    counts = np.empty(0, np.int64)
    if is_classifier:
        labels = lines.labels(n_classes)
    if n_classes == 1 and total:
        raise ModelError(f"{path}: total_sv is {total}; a model of one class has none")
    if n_classes > 2 or (is_classifier and "nr_sv" in lines.texts):
        sizes = lines.values("nr_sv", int, n_classes, n_classes)
        if min(sizes) < 0 or sum(sizes) != total:
            raise ModelError(f"{path}: nr_sv are not numbers of rows that are {total} together")
        if n_classes > 2:
            counts = np.array(sizes, np.int64)
    if n_classes > 1 and is_classifier and {"probA", "probB"} & set(lines.texts):
        slope, offset = (
            np.array(lines.values(name, float, len(rho), n_classes)) for name in ("probA", "probB")
        )
        # Of two classes our values are positive for the first label, of pairs for the second.
        numbers = np.stack([-slope, -offset if n_classes == 2 else offset])
        calibration = Calibration(method="sigmoid", numbers=numbers)
    elif not is_classifier:
        calibration = _calibration_of_others(lines, SVM_TYPES[svm_type], path)
    return Header(
        svm_type=svm_type,
        kernel=kernel,
        total_sv=total,
        rho=np.array(rho),
        labels=labels,
        counts=counts,
        calibration=calibration,
        scaled_by=_scaled_by(lines.marks, path),
    )


def _calibration_of_others(lines: _Lines, formulation: str, path: object) -> Calibration | None:
    """Read the calibration of a formulation without classes, if there is one."""
    fitting = CALIBRATIONS[traits_of(formulation).learns]
    for name, method in OF_OTHERS.items():
        if method in fitting and name in lines.texts:
            numbers = lines.values(name, float, SHAPES[method][1] or 1)
            try:
                return Calibration(method=method, numbers=np.array([numbers]))
            except ParameterError as error:
                raise ModelError(f"{path}: {name}: {error}") from None
    return None


def _scaled_by(marks: list[str], path: object) -> str | None:
    """Read the hash after SV."""
    if not marks:
        return None
    if len(marks) != 2 or marks[0] != SCALED_BY or not re.fullmatch("[0-9a-f]{32}", marks[1]):
        raise ModelError(f"{path}: the line SV has text behind it that bigsvm has not written")
    return marks[1]


class _Lines:
    """The text after the name of each line; parsed only on demand, as it may be long."""

    def __init__(self, file: BinaryIO, path: object) -> None:
        self.texts: dict[str, bytes] = {}
        self.marks: list[str] = []
        self._path = path
        left = MOST_BYTES
        for number in range(1, MOST_LINES + 1):
            line = read_line(file, left, path)
            left -= len(line)
            name, _, rest = line.strip().partition(b" ")
            if not line.endswith(b"\n"):
                raise ModelError(f"{path}:{number}: not a line of the header of a LIBSVM model")
            if name == b"SV":
                # LIBSVM skips the rest of this line.
                self.marks = rest[:MOST_MARK_BYTES].decode("ascii", "replace").split()
                return
            known = name.decode("ascii", "replace")
            if known not in NAMES:
                raise ModelError(f"{path}:{number}: not a line of the header of a LIBSVM model")
            if known in self.texts:
                raise ModelError(f"{path}:{number}: {known} is there twice")
            self.texts[known] = rest
        raise ModelError(f"{path}: no line SV among the first {MOST_LINES}")

    def value(self, name: str, kind: Any) -> Any:  # noqa: ANN401 (as `kind` makes it)
        """Value of a line that has a single one."""
        text = self.texts.get(name, b"missing")[:MOST_MARK_BYTES]
        return self._parsed(name, text.strip(), kind)

    def values(self, name: str, kind: Any, count: int, n_classes: int | None = None) -> list[Any]:  # noqa: ANN401 (as `kind` makes them)
        """Values of a line with `count` of them."""
        text = self.texts.get(name, b"")
        n_words = sum(1 for _ in re.finditer(rb"\S+", text))
        if n_words != count:
            why = "" if n_classes is None else f"nr_class is {n_classes}, and so "
            raise ModelError(
                f"{self._path}: {name} has {n_words} values; {why}it must have {count}"
            )
        return [self._parsed(name, word[0], kind) for word in re.finditer(rb"\S+", text)]

    def _parsed(self, name: str, text: bytes, kind: Any) -> Any:  # noqa: ANN401 (as `kind` makes it)
        """Parse a word as LIBSVM does, which does not accept underscores between digits."""
        word = text.decode("ascii", "replace")
        try:
            if ("_" in word and kind is not str) or (kind is str and len(word.split()) != 1):
                raise ValueError(word)
            value = kind(word)
        except ValueError:
            raise ModelError(
                f"{self._path}: {name} is {brief(word)}; it must be a {_MEANT[kind]}"
            ) from None
        if isinstance(value, float) and not math.isfinite(value):
            raise ModelError(f"{self._path}: {name} is {value}; it must be finite")
        return value

    def labels(self, n_classes: int) -> list[int]:
        """Labels of the classes."""
        try:
            labels = self.values("label", int, n_classes, n_classes)
        except ModelError:
            labels = []
        if len(set(labels)) != n_classes or max(map(abs, labels)) >= 2**31:
            number = {1: "one", 2: "two"}.get(n_classes, n_classes)
            raise ModelError(
                f"{self._path}: label must name {number} different "
                f"class{'' if n_classes == 1 else 'es'} by whole numbers of 32 bits"
            )
        return labels


LINES_AT_ONCE = 4096
"""Most support vectors that are parsed together."""
COEFFICIENTS_AT_ONCE = 1 << 17
"""Most coefficients of these."""


def read_vectors(
    file: BinaryIO, path: object, header: Header
) -> tuple[sp.csr_matrix, NDArray[np.float64]]:
    """Read the support vectors: indices as written, and their coefficients, (n, k - 1).

    It refuses other lines, another number of vectors than in the header, and an end within a line.
    """
    blocks: list[sp.csr_matrix] = []
    n_coefficients, count = max(1, len(header.labels) - 1), header.total_sv
    coefficients = [np.empty((0, n_coefficients))]
    at_once = max(1, min(LINES_AT_ONCE, COEFFICIENTS_AT_ONCE // n_coefficients))
    done, plain_bytes = 0, PLAIN_BYTES
    while lines := _some_lines(file, path, at_once):
        leading, lines = _split_off(lines, n_coefficients - 1)
        text = b"".join(lines)
        chunk = parse_chunk(text, dtype=np.dtype(np.float64), strict=True, plain_bytes=plain_bytes)
        plain_bytes = max(0, plain_bytes - len(text))
        rows = chunk.rows
        wrong = None
        if chunk.problem:
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
        blocks.append(
            sp.csr_matrix(
                (rows.values, rows.indices, rows.indptr), shape=(len(rows.labels), 2**31 - 1)
            )
        )
    if done < count:
        raise ModelError(f"{path}: {done} support vectors instead of {count}; it may be cut off")
    vectors = sp.vstack(blocks, format="csr") if blocks else sp.csr_matrix((0, 1))
    return vectors, np.concatenate(coefficients)


def _some_lines(file: BinaryIO, path: object, most: int) -> list[bytes]:
    """Read some lines that are not blank; a file that ends within a line is refused."""
    lines: list[bytes] = []
    size = 0
    while (
        len(lines) < most and size < CHUNK_BYTES and (line := read_line(file, MAX_LINE_BYTES, path))
    ):
        if len(line) == MAX_LINE_BYTES:
            raise ModelError(f"{path}: a line is longer than {MAX_LINE_BYTES} bytes")
        if not line.endswith(b"\n"):
            raise ModelError(f"{path}: no newline at the end; the file may be cut off")
        size += len(line)
        if not line.isspace():
            lines.append(line)
    return lines


def _split_off(lines: list[bytes], count: int) -> tuple[NDArray[np.float64], list[bytes]]:
    """Split the first `count` words off each line, NaN if not numbers, and return the rest.

    The last coefficient stays, as LIBSVM's data text has one number in front of the entries.
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
