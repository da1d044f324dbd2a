"""Records: the small program against models, what it refuses, limits, and the page."""

import json
import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file

import bigsvm
from tools import recompute_certificate
from tools.benchmarks import __main__ as command
from tools.benchmarks.children import REPOSITORY
from tools.benchmarks.suites import records

PROGRAM = REPOSITORY / "tools" / "recompute_certificate.py"


def problem(n_classes, n_rows=300):
    """Rows of overlapping classes, (n, 3) float32, a third of the values 0, and labels."""
    random = np.random.default_rng(n_classes)
    y = random.integers(n_classes, size=n_rows).astype(float)
    x = random.standard_normal((n_rows, 3)) + y[:, None] * [1, 0, 0.5]
    return (x * (random.random(x.shape) < 0.67)).astype(np.float32), y


def write_text(path, x, y):
    dump_svmlight_file(x, y, str(path), zero_based=False)
    return path


@pytest.mark.parametrize(
    ("n_classes", "given"), [(2, {}), (3, {"multiclass": "ovo"}), (3, {"multiclass": "ovr"})]
)
def test_it_finds_the_certificate_again_in_store_and_text(n_classes, given, tmp_path):
    x, y = problem(n_classes)
    text, store = write_text(tmp_path / "rows.txt", x, y), tmp_path / "rows.zarr"
    bigsvm.convert(text, store, shuffle=False)
    fitted = bigsvm.SVC(C=2.0, gamma=0.5, exact_objective=True, **given).fit(store)
    fitted.save(tmp_path / "model")
    said = fitted.certificate_
    for data in (text, store):
        again = recompute_certificate.recompute(str(tmp_path / "model"), str(data))
        assert again["dual"] == pytest.approx(said["objective"], rel=1e-9)
        assert again["duality_gap"] == pytest.approx(said["duality_gap"], abs=1e-6)
        assert again["gap"] == pytest.approx(said["gap"], abs=1e-8)
        assert again["constraints_violated_by"] < 1e-9
        assert (again["rows"], again["support"]) == (300, len(fitted.support_))


def test_it_reads_stores_of_sparse_rows_and_prints_json(tmp_path):
    x, y = problem(2)
    bigsvm.write_store(tmp_path / "rows.zarr", x, y, layout="sparse")
    bigsvm.SVC(C=2.0, gamma=0.5).fit(tmp_path / "rows.zarr").save(tmp_path / "model")
    given = [sys.executable, str(PROGRAM), str(tmp_path / "model"), str(tmp_path / "rows.zarr")]
    again = json.loads(subprocess.run(given, capture_output=True, check=True).stdout)
    assert 0 <= again["duality_gap"] < 0.01 * again["dual"]


def test_a_wrong_coefficient_is_seen(tmp_path, monkeypatch):
    x, y = problem(2)
    text = write_text(tmp_path / "rows.txt", x, y)
    bigsvm.SVC(C=2.0, gamma=0.5).fit(x, y).save(tmp_path / "model")
    before = recompute_certificate.recompute(str(tmp_path / "model"), str(text))
    read = recompute_certificate.read_model

    def recomputed(factor):
        def changed(path):
            head, tensors = read(path)
            return head, tensors | {"coefficients": factor * tensors["coefficients"]}

        monkeypatch.setattr(recompute_certificate, "read_model", changed)
        return recompute_certificate.recompute(str(tmp_path / "model"), str(text))

    less, more = recomputed(0.5), recomputed(1.5)
    assert less["gap"] > 100 * before["gap"]
    assert less["dual"] < before["dual"] < before["primal"] < less["primal"]
    assert more["constraints_violated_by"] == pytest.approx(1.0)


def test_rows_in_another_order_are_refused(tmp_path):
    x, y = problem(2)
    bigsvm.SVC(C=2.0, gamma=0.5).fit(x, y).save(tmp_path / "model")
    text = write_text(tmp_path / "rows.txt", x[::-1], y[::-1])
    with pytest.raises(SystemExit, match=r"rows from 0 .* give its own store"):
        recompute_certificate.recompute(str(tmp_path / "model"), str(text))


@pytest.mark.parametrize(
    "model",
    [
        bigsvm.SVC(kernel="linear"),
        bigsvm.SVC(class_weight={0.0: 1.0, 1.0: 2.0}),
        bigsvm.NuSVC(nu=0.3),
    ],
    ids=["kernel", "weights", "formulation"],
)
def test_other_models_are_refused(model, tmp_path):
    x, y = problem(2)
    model.fit(x, y).save(tmp_path / "model")
    with pytest.raises(SystemExit, match="no c-svc with the rbf kernel and one C"):
        recompute_certificate.recompute(str(tmp_path / "model"), "nothing")


def test_it_is_short_and_needs_nothing_of_bigsvm():
    lines = PROGRAM.read_text(encoding="utf-8").splitlines()
    assert sum(bool(line.strip()) for line in lines) < 100
    assert not [line for line in lines if "import" in line and "bigsvm" in line]


def found(**changed):
    """What is measured of a record, as it should be but for some values."""
    answer = {
        "converged": True, "objective_error": 0.0, "objective": 100.0, "duality_gap": 0.5,
        "gap": 5e-4, "tol": 1e-3,
    }  # fmt: skip
    again = {"dual": 100.0, "primal": 100.5, "gap": 5e-4}
    both = {"answer": answer, "again": again}
    for name, value in changed.items():
        where, _, key = name.partition("_")
        both[where] = both[where] | {key: value}
    return {"record": records.RECORDS["a9a"], **both}


@pytest.mark.parametrize(
    ("changed", "failing"),
    [
        ({}, []),
        ({"again_dual": 100.001}, ["a9a: objectives off by"]),
        ({"again_primal": 100.501}, ["a9a: objectives off by"]),
        ({"again_gap": 5.2e-4}, ["a9a: KKT gap off by"]),
        ({"answer_converged": False}, ["a9a: converged"]),
        ({"answer_objective_error": 1e-4}, ["a9a: objective exact"]),
        ({"again_gap": 0.0011, "answer_gap": 0.0011}, ["a9a: KKT gap"]),
    ],
)
def test_limits(changed, failing):
    held = records.limits([found(**changed)])
    assert [limit.name for limit in held if not all(limit.holds)] == failing


def test_sets_that_are_not_here_have_a_command_and_minutes(monkeypatch, capsys):
    monkeypatch.setattr(records, "rate", lambda n_columns, threads: 1e9)
    assert command.main(["records", "--records", "large"]) == 0
    printed = capsys.readouterr().out
    assert set(records.SETS) <= {line.split("|")[1].strip() for line in printed.splitlines()[3:]}
    assert printed.count("--exact-objective --checkpoint RUN") == len(records.SETS)
    assert f"| {581_012**2 / 10 / 1e9 / 60:.1f} " in printed


def test_sizes_are_told_by_rows_columns_and_support_vectors(monkeypatch, capsys):
    monkeypatch.setattr(records, "rate", lambda n_columns, threads: 1e9)
    assert command.main(["records", "--records", "sizes"]) == 0
    rows = [line.replace(" ", "") for line in capsys.readouterr().out.splitlines()]
    assert "|1000000|200|0.8|27.0|0.0167|0.167|1.67|" in rows


@pytest.mark.slow
@pytest.mark.real_data
def test_a_record_is_measured_from_end_to_end(capsys, tmp_path):
    assert command.main(["records", "--records", "spambase", "--folder", str(tmp_path)]) == 0
    assert "27019.139" in capsys.readouterr().out
