"""The lines of LIBSVM's model text before the support vectors; nothing in them is trusted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.calibration import Calibration
from bigsvm.errors import ModelError, ParameterError
from bigsvm.kernels import make_kernel

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
MOST_LINES, MOST_BYTES = 64, 1 << 27
"""A thousand classes have half a million pairs, with up to three numbers each."""
_MEANT = {int: "whole number", float: "number", str: "word"}


@dataclass(frozen=True, kw_only=True)
class Header:
    """What is known before the support vectors.

    Attributes
    ----------
    svm_type : str
        One of `SVM_TYPES`.
    kernel : Kernel
    total_sv : int
        Support vectors.
    rho : (n_pairs,) float64
        One number where there are not several classes.
    labels : list of int
        In LIBSVM's order; none of a regression or one class.
    counts : (k,) int64
        Support vectors of each label; none where there are two classes or fewer.
    calibration : Calibration or None
        Of two classes.
    """

    svm_type: str
    kernel: Kernel
    total_sv: int
    rho: NDArray[np.float64]
    labels: list[int]
    counts: NDArray[np.int64]
    calibration: Calibration | None


def read_header(file: BinaryIO, path: object) -> Header:
    """Read up to the line SV.

    Raises
    ------
    ModelError
        The place, and what is wrong there.
    """
    lines = _Lines(file, path)
    svm_type, kernel_type = lines.one("svm_type", str), lines.one("kernel_type", str)
    for name, value, known in (
        ("svm_type", svm_type, SVM_TYPES),
        ("kernel_type", kernel_type, KERNEL_TYPES),
    ):
        if value not in known:
            raise ModelError(f"{path}: {name} is {value!r}; known are {', '.join(known)}")
    try:
        kernel = make_kernel(
            KERNEL_TYPES[kernel_type],
            gamma=lines.one("gamma", float, 1.0),
            coef0=lines.one("coef0", float, 0.0),
            degree=lines.one("degree", int, 3),
        )
    except (ParameterError, OverflowError) as error:
        raise ModelError(f"{path}: {error}") from None
    total = lines.one("total_sv", int)
    if not 0 <= total < 2**31:
        raise ModelError(f"{path}: total_sv is {total}; it must be a number of rows")
    n_classes = lines.one("nr_class", int)
    is_classifier = svm_type in ("c_svc", "nu_svc")
    if n_classes < 2 or (n_classes > 2 and not is_classifier):
        raise ModelError(f"{path}: nr_class is {n_classes}; models of one class cannot be read")
    rho = lines.several("rho", float, n_classes * (n_classes - 1) // 2, n_classes)
    labels: list[int] = []
    calibration = None
    counts = np.empty(0, np.int64)
    if is_classifier:
        labels = lines.labels(n_classes)
    if n_classes > 2:
        given = lines.several("nr_sv", int, n_classes, n_classes)
        if min(given) < 0 or sum(given) != total:
            raise ModelError(f"{path}: nr_sv are not numbers of rows that are {total} together")
        counts = np.array(given, np.int64)
    # Of a regression they say something else.
    elif is_classifier and {"probA", "probB"} & set(lines.found):
        numbers = -np.array([[lines.one("probA", float)], [lines.one("probB", float)]])
        calibration = Calibration(method="sigmoid", numbers=numbers)
    return Header(
        svm_type=svm_type,
        kernel=kernel,
        total_sv=total,
        rho=np.array(rho),
        labels=labels,
        counts=counts,
        calibration=calibration,
    )


class _Lines:
    """The words of each line, by the first of them."""

    def __init__(self, file: BinaryIO, path: object) -> None:
        self.found: dict[str, list[str]] = {}
        self._path = path
        left = MOST_BYTES
        for number in range(1, MOST_LINES + 1):
            line = file.readline(left)
            left -= len(line)
            words = line.decode("ascii", "replace").split()
            if words == ["SV"]:
                return
            if not words or not line.endswith(b"\n"):
                raise ModelError(f"{path}:{number}: not a line of the header of a LIBSVM model")
            self.found[words[0]] = words[1:]
        raise ModelError(f"{path}: no line SV among the first {MOST_LINES}")

    def one(self, name: str, kind: Any, default: Any = None) -> Any:  # noqa: ANN401 (as `kind` makes it)
        """Value of a line with one."""
        if name not in self.found and default is not None:
            return default
        try:
            (word,) = self.found[name]
            value = kind(word)
        except (KeyError, ValueError):
            raise ModelError(
                f"{self._path}: {name} is {' '.join(self.found.get(name, ['missing']))!r}; it must "
                f"be one {_MEANT[kind]}"
            ) from None
        self._check_finite(name, [value])
        return value

    def several(self, name: str, kind: Any, count: int, n_classes: int) -> list[Any]:  # noqa: ANN401 (as `kind` makes them)
        """Values of a line with `count` of them."""
        words = self.found.get(name, [])
        if len(words) != count:
            raise ModelError(
                f"{self._path}: {name} has {len(words)} values; nr_class is {n_classes}, and so it "
                f"must have {count}"
            )
        try:
            values = [kind(word) for word in words]
        except ValueError:
            raise ModelError(
                f"{self._path}: {name} has a value that is no {_MEANT[kind]}"
            ) from None
        self._check_finite(name, values)
        return values

    def _check_finite(self, name: str, values: list[Any]) -> None:
        for value in values:
            if isinstance(value, float) and not math.isfinite(value):
                raise ModelError(f"{self._path}: {name} is {value}; it must be finite")

    def labels(self, n_classes: int) -> list[int]:
        """Labels of the classes."""
        try:
            labels = [int(word) for word in self.found["label"]]
        except (KeyError, ValueError):
            labels = []
        if len(labels) != n_classes or len(set(labels)) != n_classes:
            labels = []
        if not labels or max(map(abs, labels)) >= 2**31:
            number = "two" if n_classes == 2 else n_classes
            raise ModelError(
                f"{self._path}: label must name {number} different classes by whole numbers of 32 "
                "bits"
            )
        return labels
