"""What a child of the benchmarks measures: fits and floors, on arrays that it has prepared."""

import gzip

import common
import fit_once
import numpy as np
import pytest
from data_sets import DataSet, made

from bigsvm.data.sources import as_row_source
from bigsvm.estimators.fitting import train_model
from bigsvm.estimators.parameters import TrainingParameters


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """60 rows x 5 in a file, prepared in both layouts."""
    x = np.random.default_rng(0).integers(0, 4, (60, 5))
    lines = [
        f"{int(row[0] > 1)} " + " ".join(f"{j}:{v}" for j, v in enumerate(row, 1) if v)
        for row in x.tolist()
    ]
    (tmp_path / "toy.libsvm.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    monkeypatch.setenv("BIGSVM_DATA", str(tmp_path))
    data = DataSet("toy", 5, 1.0, 0.5, frozenset({1.0}))
    answer = fit_once.prepare(data, tmp_path)
    assert answer == {"n_rows": 60, "n_columns": 5, "density": np.mean(x > 0)}
    return data


def test_scikit_learn_is_measured_in_both_layouts(toy, tmp_path, capsys):
    answers = [fit_once.fit("sklearn", layout, toy, tmp_path) for layout in ("dense", "csr")]
    assert answers[0]["n_support"] == answers[1]["n_support"]
    assert answers[0]["objective"] == pytest.approx(answers[1]["objective"])
    assert answers[0]["seconds"] > 0
    assert answers[0]["peak_rss"] > 10**7
    assert capsys.readouterr().out.count(common.FIT_BEGAN) == 2


def test_bigsvm_is_measured_with_its_floor(toy, tmp_path):
    theirs = fit_once.fit("sklearn", "csr", toy, tmp_path)
    ours = fit_once.fit("bigsvm", "csr", toy, tmp_path)
    assert ours["objective"] == pytest.approx(theirs["objective"], rel=1e-4)
    assert ours["floor_seconds"] > 0
    assert ours["converged"]
    assert ours["n_kernel_evaluations"] >= 60 * ours["n_support"]


def test_floor_is_that_of_the_model_in_the_folder(tmp_path):
    data = made("few", 200)
    assert fit_once.prepare(data, tmp_path) == {"n_rows": 200, "n_columns": 22, "density": 1.0}
    assert not (tmp_path / "few-200.csr.zarr").exists()
    x, y = np.load(tmp_path / "few-200.npy"), np.load(tmp_path / "few-200.y.npy")
    parameters = TrainingParameters(C=data.C, gamma=data.gamma, threads=1)
    model = train_model(as_row_source(x), y, None, parameters)
    model.save(tmp_path / "model.safetensors")
    assert fit_once.floor("dense", data, tmp_path)["seconds"] > 0
