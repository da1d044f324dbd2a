"""Models of low rank: what they are by definition, on however many threads, and of what kernels."""

import math

import numpy as np
import pytest
from support.problems import rows_at

from bigsvm.data.rows import RowsAt
from bigsvm.gram import KernelTiles, Partners
from bigsvm.gram.low_rank import LowRank, lack
from bigsvm.interruption import checked_by
from bigsvm.kernels import RBF, Linear, Sigmoid


def gram_of(kernel, rows, offset):
    gram = np.empty((len(rows.places), len(rows.places)))
    with KernelTiles(kernel, dtype=np.float64, offset=offset) as tiles:
        tiles.evaluate(rows, Partners.of_rows_like(tiles.values, rows), gram)
    return gram


def model_of(kernel, rows, landmarks, *, offset=1.0, threads=1):
    """The model, and its G."""
    G = np.full((len(rows.places), len(landmarks)), np.nan, np.float32)
    with KernelTiles(kernel, offset=offset, threads=threads) as tiles:
        return LowRank(tiles, rows, landmarks, G), G


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_low_rank_model_is_nystroems_and_exact_on_the_diagonal(offset, sparse):
    rows, landmarks = rows_at(200, 4, sparse=sparse), np.arange(0, 200, 8)
    model, G = model_of(RBF(gamma=0.2), rows, landmarks, offset=offset)
    K = gram_of(RBF(gamma=0.2), rows, offset)
    among, to_them = K[np.ix_(landmarks, landmarks)], K[:, landmarks]
    among += 1e-6 * among.max() * np.eye(len(landmarks))
    expected = to_them @ np.linalg.solve(among, to_them.T)
    assert model.rank == len(landmarks)
    np.testing.assert_allclose(G.astype(float) @ G.T, expected, atol=2e-4)
    np.testing.assert_allclose(
        model.rest + (G.astype(float) ** 2).sum(axis=1), np.diag(K), atol=1e-4
    )
    assert (model.rest >= 0).all()
    assert model.rest[landmarks].max() < 1e-3 < model.rest.max()


def test_products_are_those_of_its_factor():
    model, G = model_of(RBF(gamma=0.5), rows_at(3000, 3), np.arange(0, 3000, 60))
    G, rng = G.astype(float), np.random.default_rng(0)
    v, x, weights = rng.normal(size=50), rng.normal(size=3000), rng.random(1700)
    places = np.sort(rng.choice(3000, 1700, replace=False))
    scale = np.abs(G).max()
    np.testing.assert_allclose(model.times(v), G @ v, atol=1e-4 * scale)
    np.testing.assert_allclose(model.transposed_times(x), x @ G, atol=1e-2 * scale)
    expected = (G[places] * weights[:, None]).T @ G[places]
    lower = np.tril_indices(50)
    found = model.squared(places, weights)
    np.testing.assert_allclose(found[lower], expected[lower], rtol=1e-4, atol=1e-4 * expected.max())
    assert not model.squared(places[:0], weights[:0]).any()
    large = model.squared(places, 1e9 * weights)  # in float64
    np.testing.assert_allclose(large[lower], 1e9 * expected[lower], rtol=1e-12, atol=1e-3)


def test_threads_do_not_change_a_bit():
    rows, landmarks = rows_at(5000, 3), np.arange(0, 5000, 50)
    places, weights = np.arange(0, 5000, 2), np.linspace(0, 1, 2500)
    found = []
    for threads in (1, 3):
        G = np.empty((5000, 100), np.float32)
        with KernelTiles(RBF(gamma=0.5), offset=1.0, threads=threads) as tiles:
            model = LowRank(tiles, rows, landmarks, G)
            found.append((G, model.rest, model.squared(places, weights)))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def lack_of(tiles, rows, rank, tried):
    """Of a model by itself, on the rows that are no landmarks of the largest one."""
    model = LowRank(tiles, rows, np.arange(rank), np.empty((len(rows.places), rank), np.float32))
    return model.rest[tried:].mean()


def test_lack_falls_to_zero_at_the_rank_of_the_kernel():
    rows = rows_at(80, 3)
    with KernelTiles(Linear()) as tiles:
        assert lack(tiles, rows, 20)[-1] < 1e-4
    with KernelTiles(RBF(gamma=3.0)) as tiles:
        found = lack(tiles, rows, 20)
        assert 0.1 < found[-1] < found[0] < 1
        assert (np.diff(found) <= 0).all()
        for rank in (1, 7, 20):
            np.testing.assert_allclose(found[rank - 1], lack_of(tiles, rows, rank, 20), rtol=1e-3)


def test_rows_close_together_have_a_low_rank_model():
    rng = np.random.default_rng(0)
    rows = RowsAt(rng.normal(size=(900, 2)).astype(np.float32), np.arange(900))
    for gamma in (1e-4, 0.02, 0.5):
        with KernelTiles(RBF(gamma=gamma), offset=1.0) as tiles:
            assert lack(tiles, rows, 700)[-1] < 1e-3


def test_indefinite_kernel_has_no_low_rank_model():
    rows = rows_at(60, 3)
    with KernelTiles(Sigmoid(gamma=2.0, coef0=-1.0)) as tiles:
        assert (lack(tiles, rows, 30) == math.inf).all()
        with pytest.raises(np.linalg.LinAlgError):
            LowRank(tiles, rows, np.arange(30), np.empty((60, 30), np.float32))


def test_interrupt_ends_the_low_rank_model():
    def check():
        raise KeyboardInterrupt

    with (
        KernelTiles(RBF(gamma=1.0)) as tiles,
        checked_by(check),
        pytest.raises(KeyboardInterrupt),
    ):
        LowRank(tiles, rows_at(40, 3), np.arange(5), np.empty((40, 5), np.float32))
