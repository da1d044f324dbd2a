"""What fits advise: fits that go wrong in a known way, and fits that are as they should be.

    python -m tools.benchmarks advice

Each bad fit is made again as its advice says. Every fit is made of an array, and of a store with a
small memory. Two thirds of the rows are trained on; scores are those of these rows and of the
others: balanced accuracy of classes, R² of a regression, and of one class the area under the ROC
curve that tells its rows from all others. Limits: a bad fit is told what is wrong with it, and
nothing else; a fit that was repaired, and a good one, is told nothing.
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tools.benchmarks.bench import Suite
from tools.benchmarks.children import machine
from tools.benchmarks.data import DataSet, data_folder, is_skipped, load
from tools.benchmarks.results import must, table, verdicts

if TYPE_CHECKING:
    import argparse

    from numpy.typing import NDArray

MOST_ROWS = 3000
SMALL = "30MB"
"""Memory of the fits of stores."""
OF_SKLEARN = ("iris", "wine", "breast_cancer", "digits", "diabetes")


class Fit(NamedTuple):
    """A fit, and how it differs from a good one.

    Attributes
    ----------
    estimator : str
        Name of a class of `bigsvm`.
    data : str
        A set of scikit-learn, or a file of real data.
    parameters : dict
    standardised : bool
        Whether the columns are.
    targets : float or None
        Factor that targets are multiplied by; None: they are standardised.
    """

    estimator: str
    data: str
    parameters: dict[str, Any]
    standardised: bool = False
    targets: float | None = 1.0

    @property
    def is_real(self) -> bool:
        """Whether the data are in a file."""
        return self.data not in OF_SKLEARN


class Bad(NamedTuple):
    """A bad fit, words of its advice, and what changes where one follows it."""

    fit: Fit
    words: str
    change: dict[str, Any]


SCALED: dict[str, Any] = {"standardised": True}
BAD = {
    "unscaled, two classes": Bad(Fit("SVC", "spambase", {}), "scale them", SCALED),
    "unscaled, three classes": Bad(Fit("SVC", "wine", {}), "scale them", SCALED),
    "unscaled, one class": Bad(Fit("OneClassSVM", "spambase", {"nu": 0.1}), "scale them", SCALED),
    "small C": Bad(
        Fit("SVC", "breast_cancer", {"C": 1e-5}, True), "raise C", {"parameters": {"C": 1}}
    ),
    "small C, Crammer and Singer": Bad(
        Fit("CrammerSingerSVC", "german.numer_scale", {"C": 1e-5}),
        "raise C",
        {"parameters": {"C": 1}},
    ),
    "a rare class": Bad(
        Fit("SVC", "ad_mammography", {"kernel": "linear"}),
        "balanced",
        {"parameters": {"kernel": "linear", "class_weight": "balanced"}},
    ),
    "large gamma": Bad(
        Fit("L2SVC", "digits", {"gamma": 1.0}), "lower gamma", {"parameters": {"gamma": 4e-4}}
    ),
    "small gamma": Bad(
        Fit("SVC", "heart_scale", {"gamma": 1e-8}), "raise gamma", {"parameters": {"gamma": 0.086}}
    ),
    "large targets": Bad(
        Fit("SVR", "housing_scale", {}, targets=1e4), "standardise", {"targets": None}
    ),
    "large targets, nu": Bad(
        Fit("NuSVR", "diabetes", {}, True), "standardise", {"targets": None}
    ),
    "large epsilon": Bad(
        Fit("SVR", "diabetes", {"epsilon": 5.0}, True, None),
        "lower epsilon",
        {"parameters": {"epsilon": 0.1}},
    ),
    "large gamma, one class": Bad(
        Fit("L2OneClassSVM", "breast_cancer", {"gamma": 1e3}, True),
        "lower gamma",
        {"parameters": {"gamma": 0.02}},
    ),
}  # fmt: skip
GOOD = {
    "iris as it is": Fit("SVC", "iris", {}),
    "pixels as they are": Fit("SVC", "digits", {}),
    "pixels, one against the rest": Fit("SVC", "digits", {"multiclass": "ovr"}),
    "unscaled, linear": Fit("SVC", "breast_cancer", {"kernel": "linear"}),
    "nu of classes": Fit("NuSVC", "wine", {"nu": 0.3}, True),
    "polynomial": Fit("SVC", "breast_cancer", {"kernel": "poly"}, True),
    "balls": Fit("L2SVC", "german.numer_scale", {}),
    "sparse, binary": Fit("SVC", "a9a", {}),
    "sparse, weights of words": Fit("SVC", "reuters_moneyfx", {"kernel": "linear", "C": 100}),
    "Crammer and Singer": Fit("CrammerSingerSVC", "glass.scale", {}),
    "targets as they are": Fit("SVR", "abalone_scale", {}),
    "one class": Fit("OneClassSVM", "breast_cancer", {"nu": 0.1}, True),
}


class Made(NamedTuple):
    """What a fit has led to."""

    advice: list[str]
    train: float
    test: float


def rows_of(fit: Fit) -> tuple[Any, NDArray[Any]]:
    """Read the rows of a fit in random order, and prepare them."""
    import numpy as np
    from sklearn import datasets
    from sklearn.preprocessing import MaxAbsScaler, StandardScaler

    if fit.is_real:
        x, y = load(DataSet(fit.data), data_folder())
    else:
        x, y = getattr(datasets, f"load_{fit.data}")(return_X_y=True)
    order = np.random.default_rng(0).permutation(x.shape[0])[:MOST_ROWS]
    x, y = x[order], y[order]
    if fit.is_real and x.nnz > 0.3 * x.shape[0] * x.shape[1]:
        x = x.toarray()
    if fit.standardised:
        scaler = StandardScaler() if isinstance(x, np.ndarray) else MaxAbsScaler()
        x = scaler.fit_transform(x)
    if fit.estimator.endswith("SVR"):
        y = y * fit.targets if fit.targets is not None else (y - y.mean()) / y.std()
    return x, y


def make(fit: Fit, store: Path | None = None) -> Made:
    """Fit two thirds of the rows, of an array or of a store, and score these and the others."""
    import numpy as np
    from sklearn.metrics import balanced_accuracy_score, roc_auc_score

    import bigsvm

    x, y = rows_of(fit)
    is_one_class = "OneClass" in fit.estimator
    # What one class is tested on has rows of the others too.
    first = np.arange(len(y)) < 2 * len(y) // 3
    frequent = np.unique(y)[np.unique(y, return_counts=True)[1].argmax()]
    trained = first & (y == frequent) if is_one_class else first
    model = getattr(bigsvm, fit.estimator)(**fit.parameters)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bigsvm.AdviceWarning)
        if store is None:
            model.fit(x[trained], None if is_one_class else y[trained])
        else:
            bigsvm.write_store(store, x[trained], y[trained])
            model.set_params(memory=SMALL).fit(store)

    def score(part: NDArray[np.bool_]) -> float:
        if is_one_class:
            values = model.decision_function(x[part])
            return float(roc_auc_score(y[part] == frequent, values))
        if fit.estimator.endswith("SVR"):
            return float(model.score(x[part], y[part]))
        return float(balanced_accuracy_score(y[part], model.predict(x[part])))

    train = float("nan") if is_one_class else score(trained)
    return Made(model.certificate_["advice"], train, score(~first))


def shown(fit: Fit) -> str:
    """Describe a fit in a cell."""
    given = ", ".join(f"{name}={value!r}" for name, value in fit.parameters.items())
    prepared = ", standardised" if fit.standardised else ""
    if fit.estimator.endswith("SVR") and fit.targets != 1.0:
        prepared += ", targets standardised" if fit.targets is None else f", y x {fit.targets:g}"
    return f"{fit.estimator}({given}){prepared}"


def figures(made: Made) -> list[str]:
    """Show the two scores."""
    return [f"{made.train:.3f}".replace("nan", "-"), f"{made.test:.3f}"]


def program(options: argparse.Namespace) -> int:
    """Make all fits, and print both tables."""
    bad, good, limits = [], [], []
    with tempfile.TemporaryDirectory() as folder:

        def both(name: str, fit: Fit, words: str) -> Made:
            here = make(fit)
            there = make(fit, Path(folder) / f"{len(limits)}.zarr")
            for form, made in (("array", here), ("store", there)):
                heard = len(made.advice) == bool(words) and all(words in s for s in made.advice)
                limits.append(must(f"{name}, {form}", "; ".join(made.advice), words, heard))
            return here

        for name, (fit, words, change) in BAD.items():
            if fit.is_real and is_skipped(DataSet(fit.data)):
                continue
            wrong = both(name, fit, words)
            follows = fit._replace(**change)
            right = both(f"{name}, repaired", follows, "")
            said = "; ".join(wrong.advice)
            bad.append([name, fit.data, shown(fit), *figures(wrong), said, *figures(right)])
        for name, fit in GOOD.items():
            if fit.is_real and is_skipped(DataSet(fit.data)):
                continue
            made = both(name, fit, "")
            good.append([name, fit.data, shown(fit), *figures(made), "; ".join(made.advice) or "-"])
    print(machine(options.threads))
    print("\nbad fits, and what they lead to where their advice is followed\n")
    head = ["bad fit", "data", "of", "train", "test", "advice", "train then", "test then"]
    print(table(head, bad))
    print("\ngood fits\n")
    print(table(["good fit", "data", "of", "train", "test", "advice"], good))
    failed = [limit for limit in limits if not all(limit.holds)]
    print(f"\n{len(limits) - len(failed)} of {len(limits)} fits are told what they should be")
    if failed:
        print(verdicts(failed))
    return 1 if failed else 0


SUITE = Suite(program=program, folder=False)
