"""The lines after SV in LIBSVM's models: coefficients and entries of support vectors."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from bigsvm.core.text import TextFault
from bigsvm.data.libsvm import CHUNK_BYTES, MAX_LINE_BYTES, parse_chunk
from bigsvm.errors import ModelError
from bigsvm.interchange.libsvm_header import read_line

if TYPE_CHECKING:
    from typing import BinaryIO

    from numpy.typing import NDArray

    from bigsvm.interchange.libsvm_header import Header

LINES_AT_ONCE = 4096
"""Most support vectors that are parsed together."""
COEFFICIENTS_AT_ONCE = 1 << 17
"""Most coefficients of these."""


def read_vectors(
    file: BinaryIO, path: object, header: Header
) -> tuple[sp.csr_matrix, NDArray[np.float64]]:
    """Read the support vectors: indices as written, and their coefficients, (n, k - 1).

    Raises
    ------
    ModelError
        A line is not a support vector, their number differs from the header, or the file ends
        within a line.
    """
    blocks: list[sp.csr_matrix] = []
    n_coefficients, count = max(1, len(header.labels) - 1), header.total_sv
    coefficients = [np.empty((0, n_coefficients))]
    at_once = max(1, min(LINES_AT_ONCE, COEFFICIENTS_AT_ONCE // n_coefficients))
    done = 0
    while lines := _some_lines(file, path, at_once):
        leading, lines = _split_off(lines, n_coefficients - 1)
        chunk = parse_chunk(
            b"".join(lines), dtype=np.dtype(np.float64), smallest_index=0, strict=True
        )
        rows = chunk.rows
        wrong = None
        if chunk.problem is not TextFault.NONE:
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
