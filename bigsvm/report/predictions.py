"""Predictions as text, one a line, in the order of the original input."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from bigsvm.errors import DataError
from bigsvm.files import sync_directory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from bigsvm.calibration import Calibration

_LINES_AT_ONCE = 1 << 16


def write_predictions(
    path: Path,
    values: NDArray[np.float64],
    original_rows: NDArray[np.int64],
    *,
    classes: Sequence[float] | Sequence[str] | None,
    calibration: Calibration | None = None,
) -> None:
    """Write a file, whole or not at all.

    Parameters
    ----------
    path : Path
    values : (n,) float64
        Decision values, in the order of a store.
    original_rows : (n,) int64
        Number in the input that each of these rows had.
    classes : sequence of two, or None
        Labels for values up to 0 and above; None writes the values themselves.
    calibration : Calibration, optional
        Adds the probabilities of both classes to a label, below a line with their names, as
        LIBSVM's programs write them.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("w", encoding="utf-8") as file:
            order = np.argsort(original_rows, kind="stable")
            file.writelines(_lines(values, order, classes, calibration))
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
        sync_directory(path.parent)
    except OSError as error:
        raise DataError(f"cannot write the predictions to {path}: {error}") from error
    finally:
        part.unlink(missing_ok=True)


def _lines(
    values: NDArray[np.float64],
    order: NDArray[np.int64],
    classes: Sequence[float] | Sequence[str] | None,
    calibration: Calibration | None,
) -> Iterator[str]:
    names = None if classes is None else [_label(label) for label in classes]
    if names is not None and calibration is not None:
        yield f"labels {' '.join(names)}\n"
    for start in range(0, len(order), _LINES_AT_ONCE):
        some = values[order[start : start + _LINES_AT_ONCE]]
        if names is None:
            yield "".join(f"{value!r}\n" for value in some.tolist())
        else:
            labels = [names[positive] for positive in (some > 0).tolist()]
            if calibration is not None:
                second = calibration.probability(some)
                both = zip((1 - second).tolist(), second.tolist(), strict=True)
                labels = [f"{a} {p!r} {q!r}" for a, (p, q) in zip(labels, both, strict=True)]
            yield "".join(f"{label}\n" for label in labels)


def _label(label: float | str) -> str:
    """Write a label as LIBSVM text has it: whole numbers without a point."""
    if isinstance(label, str):
        return label
    return str(int(label)) if float(label).is_integer() else repr(float(label))
