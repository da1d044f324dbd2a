"""What a child of the benchmarks measures: fits and floors, on rows that it has prepared."""

import gzip
import json
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.svm import SVC

from tools.benchmarks import contestants
from tools.benchmarks.children import FIT_BEGAN, REPOSITORY, environment
from tools.benchmarks.data import DataSet

pytestmark = pytest.mark.usefixtures("one_thread")


def test_objective_is_that_of_a_double_loop():
    random = np.random.default_rng(0)
    x = random.standard_normal((7, 3)).astype(np.float32)
    beta = random.standard_normal(7)
    expected = np.abs(beta).sum()
    for i in range(7):
        for j in range(7):
            distance = sum((float(a) - float(b)) ** 2 for a, b in zip(x[i], x[j], strict=True))
            expected -= 0.5 * beta[i] * beta[j] * np.exp(-0.3 * distance)
    for rows, b in ((x, beta), (sp.csr_matrix(x), beta)):
        assert contestants.dual_objective(rows, b, 0.3) == pytest.approx(expected, rel=1e-12)


def test_objective_of_a_model_does_not_depend_on_the_pieces_it_is_summed_in():
    random = np.random.default_rng(1)
    x = random.standard_normal((2500, 4))
    y = np.where(random.random(2500) < 0.5, -1.0, 1.0)
    model = SVC(C=0.5, gamma=0.2).fit(x, y)
    beta = model.dual_coef_[0]
    assert len(beta) > 1024
    decision = model.decision_function(x[model.support_]) - model.intercept_[0]
    expected = np.abs(beta).sum() - 0.5 * beta @ decision
    found = contestants.dual_objective(x[model.support_], beta, 0.2)
    assert found == pytest.approx(expected)


@pytest.fixture
def job(tmp_path, monkeypatch):
    """60 rows x 5 in a file, prepared in both layouts; a fit of them, to be completed."""
    x = np.random.default_rng(0).integers(0, 4, (60, 5))
    lines = [
        f"{int(row[0] > 1)} " + " ".join(f"{j}:{v}" for j, v in enumerate(row, 1) if v)
        for row in x.tolist()
    ]
    (tmp_path / "toy.libsvm.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    monkeypatch.setenv("BIGSVM_DATA", str(tmp_path))
    given = {
        "data": list(DataSet("toy", 5, positive=(1.0,))), "labels": "", "folder": str(tmp_path),
        "layouts": ["dense", "csr"], "stores": True, "distances": True,
    }  # fmt: skip
    facts = contestants.prepare(given)
    distance = 2 * x.astype(float).var(axis=0).sum()
    assert facts.pop("mean_distance") == pytest.approx(distance)
    assert facts == {
        "n_rows": 60, "n_columns": 5, "density": np.mean(x > 0), "n_classes": 2,
        "row_bytes dense": 60 * 5 * 4, "row_bytes csr": facts["row_bytes csr"],
    }  # fmt: skip
    return {
        "folder": str(tmp_path), "name": "toy", "layout": "csr", "n_columns": 5, "n_classes": 2,
        "parameters": {"C": 1.0, "gamma": 0.5}, "accuracy": True, "floors": True, "rows": "memory",
    }  # fmt: skip


@pytest.mark.slow
def test_all_contestants_find_the_same_model(job, capsys):
    asked = [
        ("memory", "csr", "memory"), ("this", "dense", "memory"), ("this", "csr", "streamed"),
        ("sklearn", "dense", ""), ("sklearn", "csr", ""), ("libsvm", "csr", ""),
    ]  # fmt: skip
    answers = [
        contestants.fit(job | {"who": who, "layout": layout, "rows": rows})
        for who, layout, rows in asked
        if contestants.is_installed(who)
    ]
    assert capsys.readouterr().out.count(FIT_BEGAN) == len(answers)
    for answer in answers:
        assert answer["objective"] == pytest.approx(answers[0]["objective"], rel=1e-4)
        assert answer["n_support"] == pytest.approx(answers[0]["n_support"], abs=2)
        assert answer["accuracy"] == pytest.approx(answers[0]["accuracy"], abs=2)
        assert min(answer["seconds"], answer["cpu_seconds"]) > 0
        assert answer["peak_rss"] > 10**7
    for answer in answers[:3]:
        assert answer["converged"]
        assert answer["stopped"] == "converged"
        assert answer["n_kernel_evaluations"] >= 60 * answer["n_support"]
    assert min(answer["floor_seconds"] for answer in answers[:2]) > 0
    assert "floor_seconds" not in answers[2]  # of a store it is a job of its own


def test_floor_is_that_of_the_model_in_the_folder(job, tmp_path):
    import bigsvm

    model = bigsvm.SVC(C=1.0, gamma=0.5).fit(tmp_path / "toy.csr.zarr")
    model.model_.save(tmp_path / "model.safetensors")
    assert contestants.floor(job)["seconds"] > 0


@pytest.mark.slow  # all code of the other checkout is compiled
def test_jobs_are_done_one_after_the_other_with_bigsvm_of_another_checkout(tmp_path):
    package = tmp_path / "bigsvm"
    package.mkdir()
    (package / "__init__.py").write_text("WHERE = 'another checkout'\n")
    jobs = [
        {"do": "calibrate", "checkout": str(tmp_path)},
        {"do": f"{__name__}:where", "checkout": str(tmp_path)},
    ]
    variables = environment(1)
    variables["PYTHONPATH"] += f":{REPOSITORY / 'tests' / 'tools'}"
    ended = subprocess.run(
        [sys.executable, "-m", "tools.benchmarks.contestants", json.dumps(jobs)],
        capture_output=True, text=True, check=True, cwd=REPOSITORY, env=variables,
    )  # fmt: skip
    answers = [json.loads(line) for line in ended.stdout.splitlines()]
    assert answers[0]["seconds"] > 0
    assert answers[1] == {"where": "another checkout", "at": str(REPOSITORY)}


def test_one_process_has_one_bigsvm(tmp_path):
    before = list(sys.path)
    with pytest.raises(SystemExit, match="one process, one bigsvm"):
        contestants.use_checkout(str(tmp_path))
    assert sys.path == before
    contestants.use_checkout(str(REPOSITORY))


def where(job):
    """A job of a suite's own."""
    import bigsvm
    from tools.benchmarks import children

    assert job["checkout"] not in sys.path
    return {"where": bigsvm.WHERE, "at": str(children.REPOSITORY)}


def test_contestants_that_are_not_installed_are_left_out(monkeypatch, capsys):
    monkeypatch.setattr(contestants.importlib.util, "find_spec", lambda name: None)
    assert not contestants.is_installed("sklearnex")
    assert "skipped sklearnex: sklearnex is not installed" in capsys.readouterr().err
