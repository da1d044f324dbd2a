"""Kernel values from disk have the bits of computed ones, in rows and in sums."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from bigsvm.data.in_memory import ArrayRows
from bigsvm.data.rows import RowsAt
from bigsvm.data.wrappers import ChosenRows
from bigsvm.gram import KernelTiles, Partners
from bigsvm.kept.segments import Segments
from bigsvm.kept.tiles import KeptTiles

pytestmark = pytest.mark.usefixtures("short")
N = 300


def rows_of(*, sparse):
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(N + 20, 4)) * (rng.random((N + 20, 4)) < 0.7)).astype(np.float32)
    source = ArrayRows(sp.csr_array(X) if sparse else X)
    return ChosenRows(source, rng.permutation(N + 20)[:N], in_random_order=True)


@pytest.fixture(params=[False, True], ids=["dense", "sparse"])
def source(request):
    return rows_of(sparse=request.param)


@pytest.fixture
def make(tmp_path, source, own):
    """Make kept tiles; a value takes so many seconds."""
    with KernelTiles(own, threads=2) as plain:

        def make(*, value_seconds=1e-3, **room):
            given = {"n_rows": N, "capacity_bytes": 1 << 20, "table_bytes": 1 << 20} | room
            segments = Segments(tmp_path, {"a": "b"}, **given)
            return plain, KeptTiles(plain, source, segments, value_seconds=value_seconds)

        yield make


def both(plain, kept, source, at, partners, weights):
    """Sums of rows `at` over partners by both tiles."""
    rows, sums = source.lend(at), []
    for tiles in (plain, kept):
        prepared = Partners.of_rows_like(tiles.values, source.lend(partners))
        out = np.random.default_rng(1).normal(size=(len(at), *weights.shape[1:]))
        tiles.multiply(rows, prepared, weights, out)
        sums.append(out)
    return sums


@pytest.mark.parametrize("functions", [(), (1,), (3,)])
@pytest.mark.parametrize("at", [range(N), range(70, 212), range(0, N, 3), range(5)])
def test_sums_have_the_same_bits_and_are_read_the_second_time(make, source, functions, at):
    plain, kept = make()
    rng, at = np.random.default_rng(0), np.array(at)
    partners = rng.permutation(N)[:90]
    weights = rng.normal(size=(90, *functions))
    if functions == (3,):
        weights = sp.csr_array(weights * (rng.random((90, 3)) < 0.3))
    for again in (False, True):
        before = kept.n_evaluations
        computed, found = both(plain, kept, source, at, partners, weights)
        assert found.tobytes() == computed.tobytes()
        if len(at) > 5:  # of fewer it does not pay to keep whole segments
            assert (kept.n_evaluations == before) == again


def test_more_partners_than_a_tile_are_added_up_in_the_same_order(tmp_path, own):
    X = np.random.default_rng(0).normal(size=(700, 3))
    source = ArrayRows(X)
    segments = Segments(tmp_path, {}, n_rows=700, capacity_bytes=1 << 24, table_bytes=1 << 20)
    with KernelTiles(own) as plain:
        kept = KeptTiles(plain, source, segments, value_seconds=1e-3)
        everything = np.arange(700)
        weights = np.random.default_rng(1).normal(size=700)
        for _ in range(2):
            computed, found = both(plain, kept, source, everything, everything, weights)
            assert found.tobytes() == computed.tobytes()


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_kernel_rows_have_the_same_bits_whatever_was_kept_before(tmp_path_factory, data):
    from kept.conftest import Own

    source = rows_of(sparse=data.draw(st.booleans()))
    folder = tmp_path_factory.mktemp("rows")
    rows_kept = data.draw(st.integers(1, N))
    segments = Segments(
        folder, {}, n_rows=N, capacity_bytes=8192 + rows_kept * 5 * 256, table_bytes=1 << 20
    )
    numbers = st.lists(st.integers(0, N - 1), min_size=1, max_size=60, unique=True).map(np.array)
    with KernelTiles(Own()) as plain:
        kept = KeptTiles(plain, source, segments, value_seconds=1e-3)
        for _ in range(data.draw(st.integers(1, 5))):
            at, partners = data.draw(numbers), data.draw(numbers)
            if data.draw(st.booleans()):
                weights = np.linspace(-1, 1, len(partners))
                computed, found = both(plain, kept, source, at, partners, weights)
                assert found.tobytes() == computed.tobytes()
                continue
            slots, values = np.arange(len(at))[::-1].copy(), []
            for tiles in (plain, kept):
                prepared = Partners.of_rows_like(tiles.values, source.lend(partners))
                out = np.zeros((len(at), len(partners) + 3), np.float32)
                tiles.evaluate(source.lend(at), prepared, out, slots=slots)
                values.append(out)
            assert values[1].tobytes() == values[0].tobytes()
    segments.close()


def test_rows_are_kept_once_so_many_of_their_values_were_computed(make, source):
    _, kept = make()
    partners = Partners.of_rows_like(kept.values, source.lend(np.arange(0, N, 3)))
    out, counts = np.empty((2, 100), np.float32), []
    for _ in range(4):
        before = kept.n_evaluations
        n_read = kept.evaluate(source.lend(np.array([4, 9])), partners, out)
        counts.append((n_read, kept.n_evaluations - before))
    # 100 of 300 values, then all of them, as half of all have been computed; then none.
    assert counts == [(0, 200), (0, 600), (2, 0), (2, 0)]


def test_rows_that_moved_are_read_for_working_sets(make, source):
    plain, kept = make()
    both(plain, kept, source, np.arange(N), np.array([4, 9]), np.ones(2))
    partners = Partners.of_rows_like(kept.values, source.lend(np.arange(0, N, 3)))
    out = np.empty((3, 100), np.float32)
    assert kept.evaluate(source.lend(np.array([4, 5, 9])), partners, out) == 2


def test_values_that_are_cheaper_to_compute_are_not_read(make, source):
    plain, kept = make()
    both(plain, kept, source, np.arange(N), np.array([4, 9]), np.ones(2))
    kept._value_seconds = 1e-9
    before = kept.n_evaluations
    partners = Partners.of_rows_like(kept.values, source.lend(np.arange(0, N, 3)))
    out = np.empty((1, 100), np.float32)
    assert kept.evaluate(source.lend(np.array([4])), partners, out) == 0
    both(plain, kept, source, np.arange(0, N, 30), np.array([4, 9]), np.ones(2))
    assert kept.n_evaluations == before + 100 + 20


def test_damaged_values_are_computed_again(make, source, tmp_path):
    plain, kept = make()
    both(plain, kept, source, np.arange(N), np.arange(50), np.ones(50))
    (path,) = tmp_path.iterdir()
    content = np.fromfile(path, np.uint8)
    content[8192 + 1000 :: 997] ^= 1
    with path.open("r+b") as file:
        file.write(content.tobytes())
    before = kept.n_evaluations
    computed, found = both(plain, kept, source, np.arange(N), np.arange(50), np.ones(50))
    assert found.tobytes() == computed.tobytes()
    assert kept.n_evaluations > before


def test_rows_of_another_array_are_computed(make, source):
    plain, kept = make()
    base = source.lend(np.arange(N)).rows
    foreign = RowsAt(base.copy(), np.arange(40))
    values = []
    for tiles in (plain, kept):
        out = np.empty((40, 40), np.float32)
        prepared = Partners.of_rows_like(tiles.values, foreign)
        for _ in range(3):
            assert tiles.evaluate(foreign, prepared, out) == 0
        values.append(out)
    np.testing.assert_array_equal(*values)


def test_float64_is_computed(make, source):
    _, kept = make()
    both(kept, kept, source, np.arange(N), np.arange(9), np.ones(9))
    with kept.exact() as exact:
        assert not isinstance(exact, KeptTiles)
        assert Partners.of_rows_like(exact.values, source.lend(np.arange(9))).numbered is None
