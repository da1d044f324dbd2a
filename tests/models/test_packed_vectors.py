"""Support vectors that are laid out for products some after the other predict as all at once do."""

import weakref

import numpy as np
import pytest
import scipy.sparse as sp

import bigsvm
from bigsvm.data.in_memory import ArrayRows
from bigsvm.data.rows import RowsAt
from bigsvm.gram import KernelTiles
from bigsvm.kernels import RBF
from bigsvm.models import prediction


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    return sp.random_array((400, 300), density=0.05, rng=rng, format="csr", dtype=np.float32)


# Labels that are drawn at random are learned by heart.
@pytest.mark.filterwarnings("ignore::bigsvm.AdviceWarning")
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "poly"])
def test_groups_predict_as_all_vectors(rows, monkeypatch, n_classes, kernel, tmp_path):
    y = np.random.default_rng(1).integers(0, n_classes, 400)
    model = bigsvm.SVC(kernel=kernel, gamma=0.5, C=10).fit(rows, y).model_
    store = bigsvm.write_store(tmp_path / "x", rows, y, shuffle=False)
    expected = model.decision_function(ArrayRows(rows))
    monkeypatch.setattr(prediction, "LEAST_BYTES", 1 << 16)
    monkeypatch.setattr(prediction, "ROWS_BETWEEN", 150)
    monkeypatch.setattr(prediction, "FEWEST_ROWS", 10)
    made = []
    made_by = prediction.Partners
    monkeypatch.setattr(prediction, "Partners", lambda *a, **b: made.append(1) or made_by(*a, **b))
    for source in (ArrayRows(rows), store.rows):
        seen = []
        found = model.decision_function(source, on_progress=seen.append, block_bytes=1 << 16)
        np.testing.assert_allclose(found, expected, atol=1e-5)
        assert seen == sorted(seen)
        assert seen[-1] == 400
    assert len(made) > 10


def test_one_group_is_in_memory_at_a_time(rows, monkeypatch):
    model = bigsvm.SVC(gamma=0.5, C=10).fit(rows, np.arange(400) % 2).model_
    monkeypatch.setattr(prediction, "LEAST_BYTES", 1 << 16)
    alive, most = weakref.WeakSet(), []
    made_by = prediction.Partners

    def noted(*given, **named):
        most.append(len(alive))
        made = made_by(*given, **named)
        alive.add(made)
        return made

    monkeypatch.setattr(prediction, "Partners", noted)
    model.decision_function(ArrayRows(rows), block_bytes=1 << 16)
    assert len(most) > 5
    assert max(most) == 0


def test_a_pass_in_groups_can_be_ended(rows, monkeypatch):
    model = bigsvm.SVC(gamma=0.5).fit(rows, np.arange(400) % 2).model_
    monkeypatch.setattr(prediction, "LEAST_BYTES", 1 << 16)

    def look(done):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.decision_function(ArrayRows(rows), on_progress=look, block_bytes=1 << 16)


@pytest.mark.fault("many-columns")
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_groups_take_no_more_memory_than_blocks_of_rows_may(monkeypatch, kind):
    """Few features are shared, so that the layout of all is twenty times the bytes of a group."""
    rng = np.random.default_rng(0)
    rare = sp.random_array((3000, 40_000), density=5e-4, rng=rng, format="csr", dtype=kind)
    common = sp.csr_array(rng.random((3000, 20)).astype(kind))  # or they would be laid out in lists
    vectors = sp.hstack([common, rare], format="csr")
    sizes, made_by = [], prediction.Partners

    def noted(*given, **named):
        made = made_by(*given, **named)
        sizes.append(made.nbytes)
        return made

    monkeypatch.setattr(prediction, "Partners", noted)
    monkeypatch.setattr(prediction, "LEAST_BYTES", 1 << 20)
    most = 4 << 20
    with KernelTiles(RBF(gamma=1.0), dtype=kind) as tiles:
        made = prediction.Packed(
            tiles, vectors, np.ones(3000), for_sparse_rows=True, most_bytes=most
        )
        made.add(RowsAt(vectors, np.arange(10)), np.zeros(10), report=lambda share: None)
        assert sum(sizes) > 5 * most
        assert max(sizes) <= most
