"""Probabilities of many classes: ways to calibrate, beside scikit-learn's.

    python -m tools.benchmarks probabilities [--data satimage usps letter mnist] [--rows 10000]

All but scikit-learn train one model on nine tenths of the rows and calibrate it on the others.

pairs, shared   what `SVC(calibration="sigmoid")` does: one sigmoid of all class pairs, coupled, and
                moved as little as makes that of the predicted class the largest
pairs, coupled  the same, not moved
pairs, each     a sigmoid for each pair, coupled: as LIBSVM does, but on the rows held out
votes           a softmax of the votes, with a temperature
ovr, shared     what `multiclass="ovr"` does: a softmax of the values, with a temperature
ovr, each       a sigmoid for each class against the rest, divided by their sum
scikit-learn    `CalibratedClassifierCV(SVC(), method="sigmoid", ensemble=False)`: five folds for
                the calibration, and a model of all rows

Log loss, Brier score and expected calibration error (of the largest probability, 15 bins) are those
of the test part. "same" is the share of rows whose likeliest class is the predicted one. "falls" is
the share of rows in which the probability of a class, drawn at random, falls as all its values rise
by 0.01, and "by" the largest such fall. Of mnist the first --rows rows are taken.

Limits: the log loss of pairs, shared is at most 1.1 times scikit-learn's, and at least 99.5 % of
its rows have the same class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tools.benchmarks.bench import Suite
from tools.benchmarks.children import machine
from tools.benchmarks.data import DataSet, data_folder, is_skipped, load
from tools.benchmarks.results import Limit, at_least, at_most, table, verdicts

if TYPE_CHECKING:
    import argparse

    import numpy as np
    from numpy.typing import NDArray

    Values = NDArray[np.float64]
    Codes = NDArray[np.int64]

WORST, SAME, BINS = 1.1, 99.5, 15
DATA = {
    "satimage": DataSet("satimage.scale", 36, 16.0, 1.0),
    "usps": DataSet("usps", 256, 10.0, 1 / 128),
    "letter": DataSet("letter.scale", 16, 16.0, 2.0),
    # raw pixels
    "mnist": DataSet("mnist", 784, 10.0, 0.02 / 255**2),
}
OURS, PEER = "pairs, shared", "scikit-learn"
HEADER = (
    "data", "how", "log loss", "÷ scikit-learn", "Brier", "ECE", "right %", "same %", "falls %",
    "by",
)  # fmt: skip
RISE = 0.01


class Trained(NamedTuple):
    """Values of a model at the rows held out and at those of the test, and their classes."""

    held: Values
    test: Values
    of_held: Codes
    predicted: Codes


def raised(values: Values, classes: Codes, rule: str, k: int) -> Values:
    """Values after all those of a class of each row have risen."""
    import numpy as np

    from bigsvm.votes import pair_classes

    if rule == "ovr":
        return values + RISE * (np.arange(k) == classes[:, None])
    first, second = pair_classes(k)
    own = (second == classes[:, None]).astype(float) - (first == classes[:, None])
    return values + RISE * own


def expected_calibration_error(probabilities: Values, true: Codes) -> float:
    """Mean distance of the largest probability and the share that is right, over bins of it."""
    import numpy as np

    largest, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == true
    bins = np.minimum((largest * BINS).astype(int), BINS - 1)
    each = np.bincount(bins, right - largest, minlength=BINS)
    return float(np.abs(each).sum() / len(true))


def train(x: Any, codes: Codes, test: Any, given: dict[str, float], multiclass: Any) -> Trained:  # noqa: ANN401
    """Train on the rows that a calibration does not hold out."""
    import bigsvm
    from bigsvm.data.sources import as_row_source
    from bigsvm.fit.held_out import held_out_for
    from bigsvm.fit.problem import Given
    from bigsvm.parameters import TrainingParameters
    from bigsvm.training.events import Hooks

    calibrated = TrainingParameters(calibration="sigmoid")
    held, rest = held_out_for(Given(as_row_source(x), codes, None, calibrated, Hooks()))
    fitted = bigsvm.SVC(**given, multiclass=multiclass).fit(x, codes, rest.sample_weight)
    return Trained(
        fitted.model_.decision_function(x[held.rows]),
        fitted.model_.decision_function(test),
        codes[held.rows],
        fitted.predict(test),
    )


class Found(NamedTuple):
    """Probabilities of the test rows, predicted classes, and by how much each row has fallen."""

    probabilities: Values
    predicted: Codes
    falls: Values | None = None


def probabilities(pairs: Trained, ovr: Trained, k: int) -> dict[str, Found]:
    """Calibrate in each way."""
    import numpy as np

    from bigsvm.calibration import fit_calibration
    from bigsvm.coupling import class_probabilities, couple, fit_classes, values_to_fit
    from bigsvm.votes import one_vs_rest_values, pair_classes

    def shared(trained: Trained, rule: str, *, moved: bool = True) -> Found:
        own = values_to_fit(trained.held, trained.of_held, rule, k)
        made = fit_classes("sigmoid", own, trained.of_held, None, rule=rule, k=k)

        def evaluate(values: Values) -> Values:
            if moved:
                return class_probabilities(made, values, rule, k)
            return couple(made.probability(values), k)

        rows = np.arange(len(trained.test))
        classes = np.random.default_rng(0).integers(0, k, len(rows))
        before = evaluate(trained.test)
        after = evaluate(raised(trained.test, classes, rule, k))
        falls = before[rows, classes] - after[rows, classes]
        falls[falls < 1e-9] = 0  # rounding
        return Found(before, trained.predicted, falls)

    def each(trained: Trained, column: int, rows: Any, positive: Any) -> Values:  # noqa: ANN401
        made = fit_calibration("sigmoid", trained.held[rows, column], positive)
        return made.probability(trained.test[:, column])

    of_pairs = []
    for pair, (first, second) in enumerate(zip(*pair_classes(k), strict=True)):
        rows = np.isin(pairs.of_held, [first, second])
        of_pairs.append(each(pairs, pair, rows, pairs.of_held[rows] == second))
    every = slice(None)
    of_classes = np.stack([each(ovr, c, every, ovr.of_held == c) for c in range(k)], axis=1)
    votes = pairs._replace(
        held=one_vs_rest_values(pairs.held, k), test=one_vs_rest_values(pairs.test, k)
    )
    return {
        OURS: shared(pairs, "ovo"),
        "pairs, coupled": shared(pairs, "ovo", moved=False),
        "pairs, each": Found(couple(np.stack(of_pairs, axis=1), k), pairs.predicted),
        "votes": shared(votes, "ovr")._replace(falls=None),
        "ovr, shared": shared(ovr, "ovr"),
        "ovr, each": Found(of_classes / of_classes.sum(axis=1, keepdims=True), ovr.predicted),
    }


def measure(name: str, options: argparse.Namespace) -> tuple[list[list[str]], list[Limit]]:
    """Calibrate in all ways on a data set; gives the lines of the table, and the limits."""
    import numpy as np
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.metrics import log_loss
    from sklearn.svm import SVC

    data, folder = DATA[name], data_folder()
    n_rows = options.rows if name == "mnist" else None
    x, y = load(data, folder, n_rows=n_rows)
    test, test_y = load(data, folder, test=True)
    x, test = x.toarray().astype(np.float32), test.toarray().astype(np.float32)
    classes, codes = np.unique(y, return_inverse=True)
    true, k = np.searchsorted(classes, test_y), len(classes)
    given = {"C": data.C, "gamma": data.gamma}
    pairs, ovr = (train(x, codes, test, given, how) for how in ("ovo", "ovr"))
    found = probabilities(pairs, ovr, k)
    peer = CalibratedClassifierCV(SVC(**given, cache_size=500), method="sigmoid", ensemble=False)
    peer.fit(x, codes)
    found[PEER] = Found(peer.predict_proba(test), peer.estimator.fit(x, codes).predict(test))
    losses = {
        how: float(log_loss(true, each.probabilities, labels=range(k)))
        for how, each in found.items()
    }
    lines, same_class = [], {}
    for how, (p, predicted, falls) in found.items():
        same_class[how] = 100 * float((p.argmax(axis=1) == predicted).mean())
        squares = ((p - np.eye(k)[true]) ** 2).sum(axis=1).mean()
        lines.append(
            [name, how, f"{losses[how]:.4f}", f"{losses[how] / losses[PEER]:.2f}",
             f"{squares:.4f}", f"{expected_calibration_error(p, true):.4f}",
             f"{100 * (p.argmax(axis=1) == true).mean():.2f}", f"{same_class[how]:.2f}",
             "-" if falls is None else f"{100 * (falls > 0).mean():.2f}",
             "-" if falls is None else f"{falls.max():.4f}"]
        )  # fmt: skip
    return lines, [
        at_most(f"log loss ÷ scikit-learn's, {name}", losses[OURS] / losses[PEER], limit=WORST),
        at_least(f"same class, %, {name}", same_class[OURS], limit=SAME),
    ]


def run(options: argparse.Namespace) -> int:
    """Print the table and the limits."""
    lines, limits = list[list[str]](), list["Limit"]()
    for name in options.data:
        if not is_skipped(DATA[name]):
            shown, held = measure(name, options)
            lines, limits = lines + shown, limits + held
    print(f"{machine(1)}\n\n{table(HEADER, lines)}\n\n{verdicts(limits)}")
    return 0


SUITE = Suite(
    data=tuple(DATA),
    threads=1,
    folder=False,
    program=run,
    more=(("--rows", {"type": int, "default": 10_000, "help": "rows of mnist"}),),
)
