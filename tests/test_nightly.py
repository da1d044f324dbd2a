"""The table of tests with many variants names tests that exist."""

import itertools
from pathlib import Path

import pytest
from nightly import VARIANTS_IN_CI, nightly


def exists(name):
    file, _, function = name.partition("::")
    return f"def {function}(" in (Path(__file__).parent / file).read_text()


def test_the_tests_exist():
    assert [name for name in VARIANTS_IN_CI if not exists(name)] == []


@pytest.mark.parametrize(("n", "most"), [(1, 3), (3, 3), (4, 3), (99, 33), (5, 1)])
def test_variants_in_ci_are_spread_from_the_first_on(n, most):
    left = sorted(set(range(n)) - set(nightly(range(n), most)))
    assert left[0] == 0
    assert len(left) == min(n, most)
    assert max((b - a for a, b in itertools.pairwise(left)), default=1) <= -(-n // most)
