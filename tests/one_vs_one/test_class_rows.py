"""Rows by class, and the batches of pairs whose rows are held together."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.stores import dense, make_matrix

from bigsvm.conversion.from_arrays import write_store
from bigsvm.data.in_memory import ArrayRows
from bigsvm.interruption import checked_by
from bigsvm.one_vs_one.class_rows import ClassRows


class Blocks(ArrayRows):
    """Rows that cost reading, which are never taken one by one for nothing."""

    def __init__(self, X):
        super().__init__(X)
        self.row_alignment = 16


def class_rows(sizes, *, source=Blocks):
    codes = np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))
    return ClassRows(source(np.zeros((len(codes), 1))), codes, len(sizes))


def all_pairs(k):
    return [[a, b] for a in range(k) for b in range(a + 1, k)]


@settings(max_examples=200, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=2, max_size=12),
    room=st.floats(1, 300),
)
def test_every_pair_is_in_one_batch_and_what_it_holds_fits(sizes, room):
    rows = class_rows(sizes)
    batches = list(rows.batches(room))
    found = [pair for batch in batches for pair in batch.pairs.tolist()]
    assert sorted(found) == all_pairs(len(sizes))
    for batch in batches:
        assert batch.pairs.tolist() == sorted(batch.pairs.tolist())
        if len(batch.held):
            assert sum(sizes[one] for one in batch.held) <= room
            assert set(batch.pairs.ravel().tolist()) <= set(batch.held.tolist())
        else:
            [(a, b)] = batch.pairs.tolist()
            assert sizes[a] + sizes[b] > room


@pytest.mark.parametrize(("share", "most"), [(1.0, 1), (0.5, 8), (0.25, 32), (0.1, 200)])
def test_passes_grow_with_the_rows_and_not_with_the_pairs(share, most):
    rows = class_rows([10] * 300)
    assert len(list(rows.batches(share * 3000))) <= most


def test_rows_in_memory_are_one_batch_and_not_held():
    [batch] = class_rows([3, 4, 5], source=ArrayRows).batches(1)
    assert batch.pairs.tolist() == all_pairs(3)
    assert not len(batch.held)


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_pair_has_the_rows_of_its_classes(tmp_path, layout, weighted):
    matrix = make_matrix()
    rng = np.random.default_rng(1)
    codes, weights = rng.integers(0, 4, 1000), rng.integers(0, 2, 1000).astype(float)
    store = write_store(tmp_path / "s.zarr", matrix, codes.astype(float), layout=layout)
    matrix, codes = matrix[store.original_rows()], codes[store.original_rows()]
    rows = ClassRows(store.rows, codes, 4, weights=weights if weighted else None)
    checks = []
    for batch in rows.batches(600):
        with checked_by(lambda: checks.append(1)):
            held = rows.hold(batch)
        for first, second in batch.pairs.tolist():
            pair = held.pair(first, second)
            expected = np.isin(codes, (first, second)) & ((weights > 0) | (not weighted))
            np.testing.assert_array_equal(pair.rows, np.flatnonzero(expected))
            np.testing.assert_array_equal(pair.sign, np.where(codes[expected] == second, 1, -1))
            found = dense(pair.source.read(0, pair.source.n_rows))
            np.testing.assert_array_equal(found, matrix[expected])
            assert (pair.source.row_alignment == 1) == bool(len(batch.held))
    assert checks


def test_holding_rows_can_be_interrupted(tmp_path):
    store = write_store(tmp_path / "s.zarr", make_matrix(), np.arange(1000) % 3)
    rows = ClassRows(store.rows, store.labels().astype(int), 3)
    [batch] = rows.batches(1e9)

    def check():
        raise TimeoutError

    with checked_by(check), pytest.raises(TimeoutError):
        rows.hold(batch)
