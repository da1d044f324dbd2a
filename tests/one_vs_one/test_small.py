"""SmallPairs: which pairs it takes, in how much memory, and that neither changes what is found."""

import tracemalloc

import numpy as np
import pytest

from bigsvm.data.sources import as_row_source
from bigsvm.gram import KernelTiles
from bigsvm.kernels import make_kernel
from bigsvm.one_vs_one import small as small_pairs
from bigsvm.one_vs_one.class_rows import ClassRows
from bigsvm.one_vs_one.small import SmallPairs
from bigsvm.votes import pair_classes

AMPLE = 100e6
OTHERS = 2e6
"""Bytes that are not counted: of Python, of spans of rows, and of what is found."""


@pytest.fixture
def groups_of_few(monkeypatch):
    monkeypatch.setattr(small_pairs, "GROUP_ROWS", 40)


def classes(sizes, *, d=5, seed=0):
    rng = np.random.default_rng(seed)
    codes = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    X = rng.standard_normal((len(codes), d)) + rng.standard_normal((len(sizes), d))[codes]
    return ClassRows(as_row_source(X.astype(np.float32)), codes, len(sizes))


def solve(rows, *, n_bytes=AMPLE, threads=1):
    """What is found of each pair that is taken, the peak of memory, and what it is said to be."""
    kernel = make_kernel("rbf", gamma=0.2, coef0=0.0, degree=3)
    pairs, found = np.stack(pair_classes(len(rows)), axis=1), {}
    with (
        KernelTiles(kernel, dtype=np.float64) as tiles,
        SmallPairs(
            rows, tiles, lambda one, own: np.full(len(own), 5.0 + one),
            tol=1e-3, threads=threads, n_bytes=n_bytes,
        ) as together,
    ):  # fmt: skip
        assert together.n_bytes <= n_bytes
        tracemalloc.start()
        try:
            for part in together.parts(pairs, rows.in_place()):
                solved = together.solve(pairs[part], rows.in_place())
                assert None not in solved
                found |= dict(zip(map(tuple, pairs[part].tolist()), solved, strict=True))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        return found, peak, together.n_bytes


def assert_same(one, other):
    assert one.rows.tobytes() == other.rows.tobytes()
    assert one.coefficients.tobytes() == other.coefficients.tobytes()
    assert one.intercept == other.intercept


SIZES = [30, 7, 90, 1, 25, 140, 60, 3, 110, 80, 45, 12]


@pytest.mark.usefixtures("groups_of_few")
@pytest.mark.parametrize("threads", [1, 2])
def test_less_memory_takes_fewer_pairs_with_the_same_bits(threads):
    rows = classes(SIZES)
    whole, _, _ = solve(rows)
    assert len(whole) == 66
    taken = []
    for n_bytes in (4e6, 2.5e6, 1.5e6, 1e6, 0.4e6, 0.1e6, 0):
        found, _, _ = solve(rows, n_bytes=n_bytes, threads=threads)
        for pair, solved in found.items():
            assert_same(solved, whole[pair])
        taken.append(len(found))
    assert taken == sorted(taken, reverse=True)
    assert taken[0] == 66
    assert 0 < taken[3] < 66
    assert taken[-1] == 0


@pytest.mark.parametrize(("sizes", "n_bytes"), [
    ([400] * 9, AMPLE), ([400] * 9, 30e6), ([300, 1, 290, 310, 500, 20, 280, 260] * 2, 24e6),
    ([200] * 14 + [1000], 20e6),
])  # fmt: skip
@pytest.mark.parametrize("threads", [1, 2])
def test_memory_of_pairs_is_within_the_plan(sizes, n_bytes, threads):
    solve(classes([30, 7, 90]))  # what is compiled or loaded by the first call is not its memory
    rows = classes(sizes)
    found, peak, said = solve(rows, n_bytes=n_bytes, threads=threads)
    assert len(found) > 30
    assert peak <= said + OTHERS
    # And it is not said without need.
    assert peak >= 0.5 * said


@pytest.mark.usefixtures("groups_of_few")
def test_kernel_values_are_computed_once_where_there_is_memory_for_them():
    sizes = [45, 60, 50, 41, 70] * 4
    rows = classes(sizes)
    # Every class is a group of its own.
    once = (sum(sizes) ** 2 + sum(size**2 for size in sizes)) // 2
    found, _, _ = solve(rows)
    assert sum(one.certificate.n_kernel_evaluations for one in found.values()) == once
    found, _, _ = solve(rows, n_bytes=0.75e6)
    assert len(found) == 190
    again = sum(one.certificate.n_kernel_evaluations for one in found.values())
    assert once < again < 3 * once


def test_one_small_class_is_not_solved_together(monkeypatch):
    monkeypatch.setattr(small_pairs, "MOST_ROWS", 10)
    found, _, said = solve(classes([30, 8, 25]))
    assert not found
    assert said == 0
    found, _, said = solve(classes([30, 8, 25, 9]))
    assert list(found) == [(1, 3)]
    assert said > 0
