"""Values that all tasks need are the same when they are put together, whatever their sizes."""

import numpy as np
import pytest
import scipy.sparse as sp

from bigsvm.data.in_memory import ArrayRows
from bigsvm.executors import shared
from bigsvm.executors.shared import buffers_of, put_together, split


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(shared, "PART_BYTES", 1000)


@pytest.mark.parametrize("form", [np.asarray, np.asfortranarray, sp.csr_array])
def test_rows_in_memory_are_made_again_elsewhere(form):
    source = ArrayRows(form(np.random.default_rng(0).normal(size=(500, 7))))
    source.column_means()
    parts = list(split("name", buffers_of(source)))
    assert all(part.name == "name" and part.nbytes <= 1000 for part in parts)
    made, rows = put_together(parts)
    assert rows is None
    assert made.fingerprint() == source.fingerprint()
    assert made.bytes_per_row == source.bytes_per_row
    np.testing.assert_array_equal(made.column_means(), source.column_means())


def test_arrays_of_any_size_and_rows():
    arrays = [np.arange(n, dtype=np.int16) for n in (0, 3, 500, 501, 0, 1200)]
    value = {"arrays": arrays, "words": np.array(["a", "bc"], object), "same": arrays[1]}
    rows = [np.ones((2, 3)), np.zeros((1, 3))]
    found, stacked = put_together(list(split("name", buffers_of(value), rows)))
    for one, other in zip(found["arrays"], arrays, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.flags.writeable
    assert found["same"] is found["arrays"][1]
    assert found["words"].tolist() == ["a", "bc"]
    np.testing.assert_array_equal(stacked, np.concatenate(rows))
