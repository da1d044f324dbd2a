"""Support vectors that are laid out for products some after the other predict as all at once do."""

import weakref

import numpy as np
import pytest
import scipy.sparse as sp

import bigsvm
from bigsvm.data.sources import ArrayRows
from bigsvm.models import packed


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    return sp.random_array((400, 300), density=0.05, rng=rng, format="csr", dtype=np.float32)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "poly"])
def test_groups_predict_as_all_vectors(rows, monkeypatch, n_classes, kernel, tmp_path):
    y = np.random.default_rng(1).integers(0, n_classes, 400)
    model = bigsvm.SVC(kernel=kernel, gamma=0.5, C=10).fit(rows, y).model_
    store = bigsvm.write_store(tmp_path / "x", rows, y, shuffle=False)
    expected = model.decision_function(ArrayRows(rows))
    monkeypatch.setattr(packed, "MOST_BYTES", 1 << 16)
    monkeypatch.setattr(packed, "ROWS_BETWEEN", 150)
    monkeypatch.setattr(packed, "FEWEST_ROWS", 10)
    made = []
    columns = packed.Columns
    monkeypatch.setattr(packed, "Columns", lambda *a, **b: made.append(1) or columns(*a, **b))
    for source in (ArrayRows(rows), store.rows):
        seen = []
        found = model.decision_function(source, on_progress=seen.append)
        np.testing.assert_allclose(found, expected, atol=1e-5)
        assert seen == sorted(seen)
        assert seen[-1] == 400
    assert len(made) > 10


def test_one_group_is_in_memory_at_a_time(rows, monkeypatch):
    model = bigsvm.SVC(gamma=0.5, C=10).fit(rows, np.arange(400) % 2).model_
    monkeypatch.setattr(packed, "MOST_BYTES", 1 << 16)
    alive, most = weakref.WeakSet(), []
    columns = packed.Columns

    def noted(*given, **named):
        most.append(len(alive))
        made = columns(*given, **named)
        alive.add(made)
        return made

    monkeypatch.setattr(packed, "Columns", noted)
    model.decision_function(ArrayRows(rows))
    assert len(most) > 5
    assert max(most) == 0


def test_a_pass_in_groups_can_be_ended(rows, monkeypatch):
    model = bigsvm.SVC(gamma=0.5).fit(rows, np.arange(400) % 2).model_
    monkeypatch.setattr(packed, "MOST_BYTES", 1 << 16)

    def look(done):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.decision_function(ArrayRows(rows), on_progress=look)


def test_room_for_vectors_is_bounded(rows):
    """The layout of a group takes no more than was reckoned with."""
    from bigsvm.kernels import RBF
    from bigsvm.tiles import KernelTiles

    wide = sp.vstack([rows] * 20, format="csr")
    with KernelTiles(RBF(gamma=1.0)) as tiles:
        made = packed.Packed(tiles, wide, np.ones(wide.shape[0]), sparse_partners=True)
        assert made._only[0].nbytes < packed.MOST_BYTES
