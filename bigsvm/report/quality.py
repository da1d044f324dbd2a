"""How good predictions are: measures of the rows whose labels or targets are known.

Measures of classes are those of scikit-learn with the same names (`recall_score`,
`confusion_matrix`, `roc_auc_score`, `log_loss`, `r2_score`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.report.text import as_table, count, label_text, number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from bigsvm.arrays import F8, I8
    from bigsvm.report.describe import Lines

    Labels = Sequence[float] | Sequence[str]

MOST_LISTED = 12
"""Most classes whose figures are shown to a person: a confusion matrix fits in a terminal."""
MOST_IN_MATRIX = 100
"""Most classes with a confusion matrix in JSON: 10 000 numbers."""
_AT_ONCE = 1 << 16
"""Values that are compared with all others at once."""


def codes_of(labels: NDArray[Any], classes: Labels) -> I8 | None:
    """Places of labels (n,) in `classes`, (n,), -1 where a label is none; None if none is."""
    words = any(isinstance(label, str) for label in classes)
    known = np.asarray(classes) if words else np.asarray(classes, np.float64)
    if (known.dtype.kind == "U") != (labels.dtype.kind in "UO"):
        return None
    order = np.argsort(known, kind="stable")
    places = np.minimum(np.searchsorted(known, labels, sorter=order), len(known) - 1)
    codes = order[places]
    codes[known[codes] != labels] = -1
    return codes if (codes >= 0).any() else None


def of_classes(predicted: I8, true: I8, classes: Labels) -> dict[str, Any]:
    """Accuracy of all rows and of the rows of each class, and the confusion matrix.

    Parameters
    ----------
    predicted : (n,) int64
        Places in `classes`.
    true : (n,) int64
        From `codes_of`.

    Returns
    -------
    dict
        ``accuracy``; ``n_correct``; ``n_other_labels``, rows with a label that is no class, which
        count as wrong; ``classes``: label, rows and accuracy of each, None without rows;
        ``confusion``: rows are true classes, columns predicted ones, None of more than
        `MOST_IN_MATRIX` classes.
    """
    k, known = len(classes), true >= 0
    correct = np.bincount(true[known & (true == predicted)], minlength=k).tolist()
    sizes = np.bincount(true[known], minlength=k).tolist()
    confusion = None
    if k <= MOST_IN_MATRIX:
        cells = np.bincount(true[known] * k + predicted[known], minlength=k * k)
        confusion = cells.reshape(k, k).tolist()
    return {
        "accuracy": sum(correct) / len(true),
        "n_correct": sum(correct),
        "n_other_labels": len(true) - sum(sizes),
        "classes": [
            {"label": label, "n_rows": size, "accuracy": right / size if size else None}
            for label, size, right in zip(classes, sizes, correct, strict=True)
        ],
        "confusion": confusion,
    }


def area_under_curve(values: F8, positive: NDArray[np.bool_]) -> float | None:
    """Share of pairs of a positive and a negative row in which the positive value is larger.

    Equal values count half. This is the area under the receiver operating characteristic. None
    where rows of one kind only are there.
    """
    of_positive, of_negative = np.sort(values[positive]), np.sort(values[~positive])
    if not (len(of_positive) and len(of_negative)):
        return None
    larger = 0.0
    for start in range(0, len(of_positive), _AT_ONCE):
        part = of_positive[start : start + _AT_ONCE]
        below = np.searchsorted(of_negative, part, "left").sum()
        not_above = np.searchsorted(of_negative, part, "right").sum()
        larger += 0.5 * (float(below) + float(not_above))
    return larger / len(of_positive) / len(of_negative)


class ProbabilityScore:
    """Log loss and Brier score, summed up over blocks of rows.

    Rows whose label is no class are left out. Probabilities below the smallest step of float64 are
    that, as in scikit-learn.
    """

    def __init__(self) -> None:
        self._losses, self._squares, self._rows = 0.0, 0.0, 0

    def add(self, probabilities: F8, true: I8) -> None:
        """Add rows: (m, k), and their classes (m,), -1 where there is none."""
        probabilities, true = probabilities[true >= 0], true[true >= 0]
        rows = np.arange(len(true))
        of_true = probabilities[rows, true]
        self._losses -= float(np.log(np.maximum(of_true, np.finfo(np.float64).eps)).sum())
        squares = (probabilities**2).sum(axis=1) - 2 * of_true + 1
        self._squares += float(squares.sum())
        self._rows += len(true)

    def record(self) -> dict[str, float | None]:
        """Give ``log_loss`` and ``brier_score`` (0 to 2: of all classes), means of the rows."""
        if not self._rows:
            return {"log_loss": None, "brier_score": None}
        return {
            "log_loss": self._losses / self._rows,
            "brier_score": self._squares / self._rows,
        }


def of_targets(values: F8, targets: F8) -> dict[str, float | None]:
    """Mean squared error, and R², None where the targets do not differ."""
    error = float(((values - targets) ** 2).mean())
    spread = float(targets.var())
    return {"mean_squared_error": error, "r2": 1 - error / spread if spread > 0 else None}


def quality_lines(record: Mapping[str, Any]) -> Lines:
    """Describe measures to a person, without the confusion matrix."""
    if "mean_squared_error" in record:
        return [
            ("mean squared error", number(record["mean_squared_error"], 6)),
            ("R²", number(record["r2"], 6)),
        ]
    lines: Lines = []
    rows = f"of {count(record['n_rows'])}"
    if "n_outliers" in record:
        n_outliers = record["n_outliers"]
        share = n_outliers / record["n_rows"]
        lines.append(("outliers", f"{share:.4%} ({count(n_outliers)} {rows})"))
    if record["accuracy"] is None:
        return lines or [("accuracy", "no labels to compare with")]
    lines.append(("accuracy", f"{record['accuracy']:.4%} ({count(record['n_correct'])} {rows})"))
    if len(record["classes"]) <= MOST_LISTED:
        for each in record["classes"]:
            share = "-" if each["accuracy"] is None else f"{each['accuracy']:.4%}"
            lines.append(
                (f"  of class {label_text(each['label'])}", f"{share} of {count(each['n_rows'])}")
            )
    for name, shown in (("auc", "AUC"), ("log_loss", "log loss"), ("brier_score", "Brier score")):
        if record.get(name) is not None:
            lines.append((shown, number(record[name], 6)))
    return lines


def confusion_text(record: Mapping[str, Any]) -> str | None:
    """Draw the confusion matrix of few classes; None where there is none."""
    matrix = record.get("confusion")
    if matrix is None or len(matrix) > MOST_LISTED:
        return None
    names = [label_text(each["label"]) for each in record["classes"]]
    rows = [["label \\ predicted", *names]]
    rows += [[name, *map(count, cells)] for name, cells in zip(names, matrix, strict=True)]
    return as_table(rows, numbers=True)
