"""The data sets of the benchmarks: read, made from a seed, and skipped where there is no file."""

import gzip

import numpy as np
import pytest
import scipy.sparse as sp

from tools.benchmarks import data as data_sets
from tools.benchmarks import synthetic


def test_data_folder_is_the_named_one_or_none(tmp_path, monkeypatch):
    monkeypatch.setenv("BIGSVM_DATA", str(tmp_path))
    assert data_sets.data_folder() == tmp_path
    monkeypatch.setenv("BIGSVM_DATA", str(tmp_path / "none"))
    assert data_sets.data_folder() is None


@pytest.fixture
def toy(tmp_path, monkeypatch):
    monkeypatch.setenv("BIGSVM_DATA", str(tmp_path))
    (tmp_path / "d.libsvm.gz").write_bytes(gzip.compress(b"3 1:1\n7 2:5\n3 1:2\n"))
    return data_sets.DataSet("d", 5, 1.0, 1.0, (7.0,))


def test_data_set_is_read_with_its_width_and_two_classes(toy, tmp_path):
    x, y = data_sets.load(toy, tmp_path)
    assert x.shape == (3, 5)
    assert y.tolist() == [-1.0, 1.0, -1.0]
    x, y = data_sets.load(toy, tmp_path, n_rows=2)
    assert x.toarray().tolist() == [[1, 0, 0, 0, 0], [0, 5, 0, 0, 0]]
    assert y.tolist() == [-1.0, 1.0]


def test_a_data_set_without_its_file_is_skipped_and_said_to_be(toy, monkeypatch, tmp_path, capsys):
    assert not data_sets.is_skipped(toy)
    assert capsys.readouterr().err == ""
    assert data_sets.is_skipped(toy._replace(name="e"))
    monkeypatch.setenv("BIGSVM_DATA", str(tmp_path / "none"))
    assert data_sets.is_skipped(toy)
    assert "skipped e: no file" in capsys.readouterr().err
    assert not data_sets.is_skipped(data_sets.made("few", 10))
    with pytest.raises(SystemExit, match="no folder of data sets"):
        data_sets.load(toy, None)


@pytest.mark.parametrize("name", ["many-300", "few-100000", "a9a"])
def test_names_are_found(name):
    assert data_sets.data_set(name).name == name


@pytest.mark.parametrize("name", ["none", "many", "many-", "many-x", "many-1", "some-300"])
def test_other_names_are_refused(name):
    with pytest.raises(ValueError, match="no data set"):
        data_sets.data_set(name)


@pytest.mark.parametrize("family", sorted({*data_sets.FAMILIES} - {*synthetic.WHOLE}))
def test_a_made_problem_is_the_same_each_time_and_begins_a_larger_one(family, monkeypatch):
    monkeypatch.setattr(synthetic, "BLOCK_ROWS", 50)
    data = data_sets.made(family, 120)
    x, y = data_sets.load(data, None)
    assert x.dtype == np.float32
    assert x.shape == (120, data.n_columns)
    assert set(y) == {-1.0, 1.0}
    assert len(np.unique(x, axis=0)) == 120
    for n_rows in (40, 70):
        fewer_x, fewer_y = synthetic.make(family, n_rows, data.n_columns)
        np.testing.assert_array_equal(fewer_x, x[:n_rows])
        np.testing.assert_array_equal(fewer_y, y[:n_rows])
        np.testing.assert_array_equal(data_sets.load(data, None, n_rows=n_rows)[0], fewer_x)


def test_rows_of_words_are_sparse_and_of_length_1():
    x, y = synthetic.make("words", 300, 50_000)
    assert x.shape == (300, 50_000)
    assert 60 < x.nnz / 300 < 81
    np.testing.assert_allclose(np.sqrt(x.multiply(x).sum(axis=1)), 1, rtol=1e-5)
    assert set(y) == {-1.0, 1.0}


def test_labels_stay_as_they_are_where_no_class_is_the_positive_one(toy, tmp_path):
    x, y = data_sets.load(toy._replace(n_columns=0, positive=()), tmp_path)
    assert x.shape == (3, 2)
    assert y.tolist() == [3.0, 7.0, 3.0]
    np.testing.assert_array_equal(data_sets.even_and_odd(np.array([7.0, 3, 9, 3])), [1, 0, 0, 0])


def test_rows_of_crowded_have_an_area_and_a_kind_beside_waves():
    x, y = synthetic.make("crowded", 500, 50)
    waves, areas, kinds = np.split(x, [10, 14], axis=1)
    assert waves.min() >= 0.25
    assert waves.max() <= 0.75
    for field in (areas, kinds):
        np.testing.assert_array_equal(np.sort(field, axis=1)[:, -1], 1)
        np.testing.assert_array_equal(field.sum(axis=1), 1)
    assert np.mean(y > 0) == pytest.approx(0.5, abs=0.2)


@pytest.mark.parametrize(("family", "positive"), [("few", 0.16), ("many", 0.5)])
def test_classes_have_their_shares(family, positive):
    _, y = synthetic.make(family, 5000, 10)
    assert np.mean(y > 0) == pytest.approx(positive, abs=0.03)


def test_a_tenth_of_the_targets_of_smooth_is_outside_the_tube():
    rows, targets = data_sets.load(data_sets.made("smooth", 20_000), None)
    assert rows.shape == (20_000, 20)
    assert rows.dtype == np.float32
    assert targets.std() > 0.33
    assert (abs(rows).max(axis=1) > 6).mean() == pytest.approx(0.01, abs=0.01)


def test_targets_of_arm_are_smooth_but_for_little_noise():
    rows, targets = data_sets.load(data_sets.made("arm", 20_000), None)
    assert rows.shape == (20_000, 8)
    assert rows.dtype == np.float32
    assert targets.std() == pytest.approx(1, abs=0.01)
    angles = np.cumsum(synthetic.BEND * rows, axis=1)
    end = np.exp(1j * angles).sum(axis=1) - (0.1 + 0.1j)
    left = targets - np.polyval(np.polyfit(abs(end), targets, 1), abs(end))
    assert left.std() == pytest.approx(synthetic.ARM_NOISE, abs=0.002)


def test_made_rows_have_no_zeros():
    x, _ = synthetic.make("many", 100, 10)
    assert sp.csr_matrix(x).nnz == 1000
    assert data_sets.made("many", 100).layouts == ("dense",)
    assert data_sets.DATA_SETS["a9a"].layouts == ("dense", "csr")
