"""Checkpoints of selections belong to what scorers and kernels compute, not to their names."""

import logging
import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.metrics import f1_score, make_scorer, precision_score

import bigsvm
from bigsvm.errors import CheckpointError
from bigsvm.kernels import KERNELS

X, Y = make_classification(120, 4, flip_y=0.1, random_state=1)


def cell(source, **variables):
    """Run a cell as a notebook does; returns what it calls `made`."""
    space = {"__name__": "__main__", "np": np, "bigsvm": bigsvm, **variables}
    exec(compile(source, "<cell>", "exec"), space)
    return space["made"]


def scorer(source):
    return lambda value: cell(source.replace("VALUE", value))


EDITED = "def made(e, X, y):\n    return VALUE * len(y)"
LAMBDA = "made = lambda e, X, y: VALUE"
CLOSURE = "def of(k):\n    return lambda e, X, y: k\nmade = of(VALUE)"
HELPER = "def helper():\n    return VALUE\ndef made(e, X, y):\n    return helper()"
PARTIAL = (
    "import functools\ndef own(e, X, y, k):\n    return k\nmade = functools.partial(own, k=VALUE)"
)
SEVERAL = "def own(e, X, y):\n    return VALUE\nmade = {'own': own, 'other': 'accuracy'}"
MADE = "from sklearn.metrics import make_scorer\ndef own(y, z):\n    return VALUE\n"
MADE += "made = make_scorer(own)"
CHANGES = {
    "edited": scorer(EDITED), "second lambda": scorer(LAMBDA), "closure": scorer(CLOSURE),
    "helper": scorer(HELPER), "partial": scorer(PARTIAL), "several": scorer(SEVERAL),
    "make_scorer of an edited function": scorer(MADE),
    "make_scorer of another function": lambda value: make_scorer(
        f1_score if value == "1.0" else precision_score
    ),
}  # fmt: skip


def validate(folder, scoring, **options):
    estimator = bigsvm.SVC(**options)
    return bigsvm.cross_validate(estimator, X, Y, cv=2, scoring=scoring, checkpoint=folder)


@pytest.mark.parametrize("change", CHANGES)
def test_scores_are_those_of_the_scorer_that_is_given(change, tmp_path):
    made = CHANGES[change]
    first = validate(tmp_path, made("1.0"))
    again = validate(tmp_path, made("1.0"))
    assert again["fit_time"].tolist() == first["fit_time"].tolist()  # without a fit
    with pytest.raises(CheckpointError, match="results of something else: scoring"):
        validate(tmp_path, made("2.0"))
    search = bigsvm.SearchCV(
        bigsvm.SVC(), {"C": [1.0, 2.0]}, cv=2, scoring=made("1.0"), checkpoint=tmp_path / "search",
        refit="own" if change == "several" else False,
    ).fit(X, Y)  # fmt: skip
    search.fit(X, Y)
    with pytest.raises(CheckpointError, match="results of something else: scoring"):
        search.set_params(scoring=made("2.0")).fit(X, Y)


def test_a_score_method_of_ones_own_counts(tmp_path):
    source = "class made(bigsvm.SVC):\n    def score(self, X, y):\n        return VALUE"
    kinds = [cell(source.replace("VALUE", value)) for value in ("1.0", "1.0", "7.0")]
    for kind in kinds[:2]:
        found = bigsvm.cross_validate(kind(), X, Y, cv=2, checkpoint=tmp_path)
        assert found["test_score"].tolist() == [1.0, 1.0]
    with pytest.raises(CheckpointError, match="something else: estimator"):
        bigsvm.cross_validate(kinds[2](), X, Y, cv=2, checkpoint=tmp_path)


class Rewarded(bigsvm.SVC):
    """A classifier with a parameter that only its score uses."""

    _own_parameters = bigsvm.SVC._own_parameters | {"reward"}

    def __init__(self, reward=1.0, memory="1GB", checkpoint=None, n_jobs=None):
        super().__init__(memory=memory, checkpoint=checkpoint, n_jobs=n_jobs)
        self.reward = reward

    def score(self, X, y):
        return self.reward


@pytest.mark.parametrize(
    ("one", "other", "name"),
    [
        (Rewarded(), Rewarded(reward=7.0), "reward"),
        (bigsvm.SVC(), bigsvm.SVC(break_ties=True), "break_ties"),
        (bigsvm.SVC(), bigsvm.SVC(decision_function_shape="ovo"), "decision_function_shape"),
    ],
)
def test_parameters_that_only_scores_depend_on_count(one, other, name, tmp_path):
    bigsvm.cross_validate(one, X, Y, cv=2, checkpoint=tmp_path)
    with pytest.raises(CheckpointError, match=f"something else: {name}"):
        bigsvm.cross_validate(other, X, Y, cv=2, checkpoint=tmp_path)


@pytest.mark.parametrize("options", [{}, {"multiclass": "ovr"}])
def test_results_of_many_classes_are_taken(options, tmp_path):
    """Their certificates have counts of pairs or of classes."""
    found = [
        bigsvm.cross_validate(
            bigsvm.SVC(**options), X, np.arange(len(X)) % 4, cv=2, checkpoint=tmp_path
        )["fit_time"].tolist()
        for _ in range(2)
    ]
    assert found[0] == found[1]


def test_what_cannot_be_compared_is_computed_again_and_one_line_says_why(tmp_path, caplog):
    lock = threading.Lock()

    def of(value):
        def score(e, X, y):
            with lock:
                return value

        return score

    for value in (1.0, 1.0, 2.0):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "bigsvm"):
            found = validate(tmp_path, of(value))
        assert found["test_score"].tolist() == [value, value]
        assert len(caplog.records) == (0 if value == 1.0 and not caplog.records else 1)
    [record] = caplog.records
    assert "computed again" in record.getMessage()
    assert "cannot pickle '_thread.lock' object" in record.getMessage()
    with pytest.raises(CheckpointError, match="something else: scoring"):
        validate(tmp_path, "accuracy")


KERNEL = """
from dataclasses import dataclass
@dataclass(frozen=True, kw_only=True)
class made(bigsvm.Kernel):
    name = "made in a cell"
    width: float = 1.0
    def from_products(self, dots, norms_rows, norms_columns):
        squared = np.add.outer(norms_rows, norms_columns) - 2 * dots
        return np.exp(-VALUE * np.maximum(squared, 0))
"""


@pytest.fixture
def _registry(monkeypatch):
    """Forgets the kernels that a test defines."""
    monkeypatch.setattr("bigsvm.kernels.KERNELS", dict(KERNELS))


def kernel(value, **variables):
    return cell(KERNEL.replace("VALUE", value), **variables)()


@pytest.mark.usefixtures("_registry")
def test_results_of_a_kernel_whose_formula_changed_are_not_taken(tmp_path):
    first = validate(tmp_path / "cv", None, kernel=kernel("0.1"))
    again = validate(tmp_path / "cv", None, kernel=kernel("0.1"))
    assert again["fit_time"].tolist() == first["fit_time"].tolist()
    with pytest.raises(CheckpointError, match="something else: kernel"):
        validate(tmp_path / "cv", None, kernel=kernel("3.0"))

    def search(*values):
        grid = {"kernel": [kernel(value) for value in values]}
        return bigsvm.SearchCV(
            bigsvm.SVC(), grid, cv=2, refit=False, checkpoint=tmp_path / "search"
        ).fit(X, Y)

    table = search("0.1", "3.0").cv_results_
    one, other = (validate(None, None, kernel=kernel(value)) for value in ("0.1", "3.0"))
    means = [one["mean_test_score"], other["mean_test_score"]]
    assert means[0] != means[1]
    assert table["mean_test_score"].tolist() == means
    search("0.1", "3.0")
    with pytest.raises(CheckpointError, match="something else: points"):
        search("0.1", "4.0")


@pytest.mark.usefixtures("_registry")
@pytest.mark.parametrize("kind", [bigsvm.SVC, bigsvm.OneClassSVM, bigsvm.SVR])
def test_a_run_does_not_go_on_with_another_formula(kind, tmp_path):
    kind(kernel=kernel("0.1"), checkpoint=tmp_path / "run").fit(X, Y)
    kind(kernel=kernel("0.1"), checkpoint=tmp_path / "run").fit(X, Y)
    with pytest.raises(CheckpointError, match="belongs to another run: kernel"):
        kind(kernel=kernel("3.0"), checkpoint=tmp_path / "run").fit(X, Y)


@pytest.mark.usefixtures("_registry")
def test_a_run_with_a_formula_that_cannot_be_compared_does_not_go_on(tmp_path):
    formula = "(lambda: (lock.acquire(), lock.release(), 0.1)[2])()"
    held = {"lock": threading.Lock()}
    bigsvm.SVC(kernel=kernel(formula, **held), checkpoint=tmp_path / "run").fit(X, Y)
    with pytest.raises(CheckpointError, match=r"kernel .*not comparable .*_thread.lock"):
        bigsvm.SVC(kernel=kernel(formula, **held), checkpoint=tmp_path / "run").fit(X, Y)


def of_module(e, X, y):
    return float(np.mean(e.predict(X) == y)) + len({"a", "b", "c"})


@dataclass(frozen=True, kw_only=True)
class OfModule(bigsvm.Kernel):
    name = "of the module of recorded identities"
    words: frozenset = frozenset({"a", "b", "c"})

    def from_products(self, dots, norms_rows, norms_columns):
        return np.asarray(dots) * len(self.words)


def search_of_module(folder):
    grid = {"C": [1.0, 2.0], "kernel": [OfModule(), "linear"]}
    scoring = {"own": of_module, "f1": make_scorer(f1_score, average="macro")}
    search = bigsvm.SearchCV(
        bigsvm.SVC(), grid, cv=2, refit="own", scoring=scoring, checkpoint=folder
    )
    return search.fit(X, Y).cv_results_["mean_fit_time"].tolist()


@pytest.mark.slow
def test_another_process_recognises_the_same_scorers_and_kernels(tmp_path):
    code = "import sys, test_recorded_identity as t; print(t.search_of_module(sys.argv[1]))"
    printed = [
        subprocess.run(
            [sys.executable, "-c", code, tmp_path / "run"],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            cwd=Path(__file__).parent,
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert printed[0] == printed[1]  # the seconds of the first process
