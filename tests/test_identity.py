"""What an object computes decides its identity: not its name, its place or the process."""

import copy
import functools
import os
import re
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scipy.special import expit
from sklearn.metrics import f1_score, get_scorer, make_scorer, precision_score

import bigsvm
from bigsvm import identity
from bigsvm.identity import NOT_COMPARABLE, identity_of
from bigsvm.kernels import KERNELS


def defined(source, **variables):
    """Run a cell as a notebook does; returns what it calls `score`."""
    space = {"__name__": "__main__", "np": np, **variables}
    exec(compile(source, "<cell>", "exec"), space)
    return space["score"]


PLAIN = "def score(e, X, y):\n    return float((e.predict(X) == y).mean())"
HELPED = "def helper(x):\n    return x {}\ndef score(e, X, y):\n    return helper(len(y))"
CLOSED = "def of(k):\n    return lambda e, X, y: k * len(y)\nscore = of({})"
DEFAULTS = "def score(e, X, y, *, k={}):\n    return k * len(y)"
NESTED = "def score(e, X, y):\n    def of(k):\n        return k + {}\n    return of(len(y))"
ITSELF = "def score(e, X, y):\n    return score(e, X, y) if len(y) > {} else 0.0"
METHOD = "class Own:\n    k = {}\n    def call(self, e): return self.k\nscore = Own().call"
STATE = (
    "class Own:\n    def __init__(self, k):\n        self.k = k\n"
    "    def __call__(self, e, X, y):\n        return 1\nscore = Own({})"
)
BASE = (
    "class Base:\n    k = {}\nclass Own(Base):\n    def __call__(self, e): return 1\nscore = Own()"
)
SET = "def score(e, X, y):\n    return len(y) in {{'a', 'b', 'c', {}}}"
CACHED = "import functools\n@functools.lru_cache\ndef score(e):\n    return {}"
PARTIAL = "import functools\ndef own(e, X, y, k): return k\nscore = functools.partial(own, k={})"
SCORER = (
    "from sklearn.metrics import make_scorer\ndef own(y, z): return {}\nscore = make_scorer(own)"
)
GLOBAL = (
    "weights = np.arange(2000.0)\nweights[1000] = {}\ndef score(e, X, y):\n    return weights[0]"
)
DICTIONARY = "kinds = dict(a=1, b={})\ndef score(e, X, y):\n    return kinds['a']"
WRAPPED = (
    "import functools\ndef of(own):\n    @functools.wraps(own)\n    def wrapper(*given):\n"
    "        return wrapper.__wrapped__(*given)\n    return wrapper\n@of\ndef score(e): return {}"
)
PATTERN = "import re\nwords = re.compile('a{}')\ndef score(e): return words"
PROPERTY = "class Own:\n    @property\n    def k(self): return {}\ndef score(e): return Own().k"


@pytest.mark.parametrize(
    "source",
    [
        HELPED, CLOSED, DEFAULTS, NESTED, ITSELF, METHOD, STATE, BASE, SET,
        CACHED, PARTIAL, SCORER, GLOBAL, DICTIONARY, PROPERTY, WRAPPED, PATTERN,
        PLAIN.replace("e.predict(X) == y", "e.predict(X) == y + {}"),
    ],
)  # fmt: skip
def test_what_computes_something_else_has_another_identity(source):
    one, again, other = (identity_of(defined(source.replace("{}", k))) for k in ("+2", "+2", "+3"))
    assert NOT_COMPARABLE not in one
    assert one == again
    assert one != other


@pytest.mark.parametrize(
    "changed",
    [
        f"\n\n# a comment\n{PLAIN}",
        PLAIN.replace("y):\n", 'y):\n    """What it does."""\n'),
        PLAIN.replace("y):\n    return", "y):  return"),
    ],
    ids=["lines", "docstring", "spaces"],
)
def test_lines_and_docstrings_do_not_count(changed):
    assert identity_of(defined(PLAIN)) == identity_of(defined(changed))


def test_what_objects_keep_when_they_are_used_does_not_count():
    """A value that is computed once, and what Python keeps of a class whose instance is copied."""
    source = "import functools\nclass Own:\n    @functools.cached_property\n"
    source += "    def k(self): return 5\n    def __call__(self, e): return self.k\nown = Own()\n"
    score = defined(f"{source}def score(e): return own(e), Own")
    before = identity_of(score)
    own, _ = score(None), copy.copy(score.__globals__["own"])
    assert own[0] == 5
    assert identity_of(score) == before


def test_two_lambdas_and_two_scorers_differ():
    def of(*values):
        return [identity_of(value) for value in values]

    many = [
        lambda e, X, y: 1.0, lambda e, X, y: 2.0, len, np.mean, np.exp, expit,
        make_scorer(f1_score), make_scorer(f1_score, average="macro"),
        make_scorer(f1_score, greater_is_better=False), make_scorer(precision_score),
        get_scorer("accuracy"), functools.partial(f1_score, average="macro"), "accuracy", None,
    ]  # fmt: skip
    digests = of(*many)
    assert NOT_COMPARABLE not in repr(digests)
    assert len(set(digests)) == len(many)
    assert of(make_scorer(f1_score), get_scorer("accuracy")) == [digests[6], digests[10]]


def test_a_helper_of_a_module_of_ones_own_counts():
    def score_with(source):
        module = ModuleType("helpers_of_this_test")
        exec(source, vars(module))
        return identity_of(defined("def score(e): return h.count(e)", h=module))

    source = "def count(e):\n    return len(e) + {}\nunused = {}"
    one = score_with(source.format(1, 1))
    assert NOT_COMPARABLE not in one
    assert one == score_with(source.format(1, 2))
    assert one != score_with(source.format(2, 1))


def test_versions_of_packages_count_unless_they_are_not_asked_for(monkeypatch):
    def of(**options):
        return identity_of(make_scorer(f1_score), defined(PLAIN + " + np.pi"), **options)

    with_versions, without = of(), of(versions=False)
    assert with_versions != without
    monkeypatch.setattr(identity, "version", lambda name: "99")
    identity._package_of.cache_clear()
    try:
        assert of() != with_versions
        assert of(versions=False) == without
    finally:
        identity._package_of.cache_clear()


class Stateful:
    def __reduce__(self):
        raise RuntimeError("it is open")


@pytest.mark.parametrize(
    ("source", "variables", "reason"),
    [
        (CLOSED.replace("{}", "lock"), {"lock": threading.Lock()}, "cannot pickle '_thread.lock'"),
        ("def score(e): return held", {"held": Stateful()}, "it is open"),
        ("score = u", {"u": np.frompyfunc(len, 1, 1)}, "len .vectorized."),
        ("def score(e):\n    import nowhere_to_be_found", {}, "imports nowhere_to_be_found"),
        ("score = [0]\nfor _ in range(5000): score = [score]", {}, "recursion"),
        ("k = 1\ndef score(e): return eval('k')", {}, "it calls eval"),
        ("k = 1\ndef score(e): return globals()['k']", {}, "it calls globals"),
        ("def score(e): return m", {"m": ModuleType("own_module")}, "module own_module is of no"),
    ],
)
def test_what_cannot_be_told_says_why(source, variables, reason):
    found = identity_of(defined(source, **variables))
    assert re.match(rf"{NOT_COMPARABLE} \(.*{reason}", found)


@dataclass(frozen=True, kw_only=True)
class Own(bigsvm.Kernel):
    name = "own of the test of identities"
    width: float = 1.0

    def from_products(self, dots, norms_rows, norms_columns):
        return np.exp(-self.width * helper_of_kernel(dots)) + len({"a", "b", "c"})


def helper_of_kernel(dots):
    return dots + (1 if isinstance(dots, frozenset | set) else 0)


def everything():
    """Digest of much, in a set and a dictionary of many words."""
    words = {"a", "b", "c", "d", frozenset({"e", "f"})}
    return identity_of(
        Own(), Own, words, {"k": words}, everything, make_scorer(f1_score), bigsvm.SVC(), expit
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", ["0", "1"])
def test_it_is_the_same_in_another_process(seed):
    code = "import test_identity; print(test_identity.everything())"
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=Path(__file__).parent,
        capture_output=True,
        check=True,
        text=True,
    )
    here = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "2", "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=Path(__file__).parent,
        capture_output=True,
        check=True,
        text=True,
    )
    assert found.stdout == here.stdout
    assert NOT_COMPARABLE not in found.stdout


def test_an_array_of_a_kernel_counts_in_full(monkeypatch):
    """`repr` shows the first and the last values only."""
    monkeypatch.setattr("bigsvm.kernels.KERNELS", dict(KERNELS))

    @dataclass(frozen=True, kw_only=True)
    class Weighted(Own):
        name = "weighted"
        weights: np.ndarray

    one, other = np.arange(3000.0), np.arange(3000.0)
    other[1500] = 0
    words = [Weighted(weights=weights).recorded for weights in (one, one.copy(), other)]
    assert words[0] == words[1]
    assert words[0] != words[2]
