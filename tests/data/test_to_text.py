"""A store becomes LIBSVM text again."""

import numpy as np
import pytest
import scipy.sparse as sp
from command_line import error_of, finish, run_here, start
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.datasets import load_svmlight_file

import bigsvm
from bigsvm.conversion.to_text import lines_of_store, shortest
from bigsvm.errors import MemoryBudgetError

TEXT = "1 1:0.1 3:-2.5\n-1 2:1e-05\n2.5 1:3 2:1234567.9\n-1\n"


@pytest.mark.parametrize("layout", ["--dense", "--sparse"])
@pytest.mark.parametrize("shuffle", ["--shuffle", "--no-shuffle"])
def test_text_comes_back(tmp_path, layout, shuffle):
    (tmp_path / "rows").write_text(TEXT)
    options = (layout, shuffle, "--dtype", "float64")
    run_here("convert", tmp_path / "rows", tmp_path / "s.zarr", *options)
    run_here("export", tmp_path / "s.zarr", tmp_path / "back", "--to", "libsvm")
    assert (tmp_path / "back").read_text() == TEXT
    out, _ = finish(start("export", tmp_path / "s.zarr", "-", "--to", "libsvm", "--quiet"))
    assert out == TEXT


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_large_stores_are_written_in_parts(tmp_path, form):
    rng = np.random.default_rng(0)
    X = np.where(rng.random((5000, 30)) < 0.5, rng.normal(size=(5000, 30)), 0).astype(np.float32)
    y = rng.integers(3, size=5000)
    store = bigsvm.write_store(tmp_path / "s.zarr", form(X), y)
    (tmp_path / "back").write_text("".join(lines_of_store(store, memory=600_000)))
    rows, labels = load_svmlight_file(str(tmp_path / "back"), dtype=np.float32, n_features=30)
    np.testing.assert_array_equal(rows.toarray(), X)
    np.testing.assert_array_equal(labels, y)
    with pytest.raises(MemoryBudgetError, match="too little for 5000 rows"):
        list(lines_of_store(store, memory=1000))


@given(arrays(np.float32, 5, elements=st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_words_read_back_to_the_same_float32(values):
    assert (np.array(shortest(values), np.float64).astype(np.float32) == values).all()


@given(arrays(np.float64, 5, elements=st.floats(allow_nan=False, allow_infinity=False)))
def test_words_read_back_to_the_same_float64(values):
    words = shortest(values)
    assert (np.array(words, np.float64) == values).all()
    assert shortest(np.array([0.1, 1e5, -2.0])) == ["0.1", "100000", "-2"]


def test_words_are_labels_again(tmp_path):
    X = np.eye(4, dtype=np.float32)
    bigsvm.write_store(tmp_path / "s.zarr", X, ["no", "yes", "no", "yes"])
    run_here("export", tmp_path / "s.zarr", tmp_path / "back", "--to", "libsvm")
    assert (tmp_path / "back").read_text() == "no 1:1\nyes 2:1\nno 3:1\nyes 4:1\n"


def test_what_a_text_has_no_place_for(tmp_path):
    bigsvm.write_store(tmp_path / "s.zarr", np.eye(2), [0, 1], sample_weight=[1.0, 2.0])
    said = run_here("export", tmp_path / "s.zarr", tmp_path / "back", "--to", "libsvm").stderr
    assert "has weights, which LIBSVM text has no place for" in said
    wrong = ("export", tmp_path / "s.zarr", tmp_path / "x", "--to", "onnx")
    assert "is a store, which becomes LIBSVM text only" in error_of(*wrong)
    inside = ("export", tmp_path / "s.zarr", tmp_path / "s.zarr" / "x", "--to", "libsvm")
    assert "is part of the input" in error_of(*inside)
