"""scikit-learn's own tests of its SVMs, with bigsvm's estimators in their place.

A test may fail only if `scikit_learn_suites/differences.toml` lists it, with the reason why bigsvm
differs; and a test that is listed must fail.
"""

import fnmatch
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import sklearn

HERE = Path(__file__).parent / "scikit_learn_suites"
LISTED = tomllib.loads((HERE / "differences.toml").read_text())
SUITES = ("test_svm", "test_sparse")


@pytest.mark.slow
@pytest.mark.parametrize("suite", SUITES)
def test_scikit_learns_own_tests_pass_but_for_the_differences_listed(suite, tmp_path):
    version = sklearn.__version__
    if not version.startswith(f"{LISTED['version']}."):
        pytest.skip(f"the list is that of scikit-learn {LISTED['version']}, this is {version}")
    outcomes = run_suite(suite, tmp_path)
    # What would make all of the following true of nothing.
    assert len(outcomes) >= LISTED["tests"][suite]
    failed = {test for test, outcome in outcomes.items() if outcome == "failed"}
    patterns = [
        pattern
        for group in LISTED["difference"]
        if group["suite"] == suite
        for pattern in group["tests"]
    ]
    expected = {test for test in outcomes if any(matches(test, pattern) for pattern in patterns)}
    unused = [p for p in patterns if not any(matches(test, p) for test in outcomes)]
    assert failed - expected == set(), "these fail, and no difference is listed"
    assert expected - failed == set(), "these pass now: take them off the list"
    assert unused == [], "there are no such tests"


def test_each_difference_has_its_reason_and_is_listed_once():
    tests = [(group["suite"], test) for group in LISTED["difference"] for test in group["tests"]]
    assert len(set(tests)) == len(tests) > 0
    assert {suite for suite, _ in tests} <= set(SUITES)
    assert all(len(group["reason"].split()) > 3 for group in LISTED["difference"])


def matches(test, pattern):
    """Whether a pattern, in which only `*` has a meaning, is that of a test."""
    return fnmatch.fnmatchcase(test, pattern.replace("[", "[[]"))


def run_suite(suite, folder):
    """Run one of scikit-learn's files of tests, and return the outcome of each test."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    outcomes = folder / "outcomes.json"
    paths = [str(HERE), os.environ.get("PYTHONPATH", "")]
    ended = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "in_its_place",
            "-p", "no:cacheprovider", "-c", "pytest.ini", "--tb=short",
            "--pyargs", f"sklearn.svm.tests.{suite}",
        ],
        cwd=folder, capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OUTCOMES": str(outcomes)},
    )  # fmt: skip
    (folder / "output.txt").write_text(ended.stdout + ended.stderr)
    assert outcomes.exists(), ended.stdout + ended.stderr
    return json.loads(outcomes.read_text())
