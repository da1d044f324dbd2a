"""Memory of many classes: stores made from a seed, commands, limits."""

import runpy
from types import SimpleNamespace

import common
import many_classes_memory
import many_classes_once
import numpy as np
import pytest
from many_classes_memory import Measured, Runs

import bigsvm

many_classes = SimpleNamespace(
    **runpy.run_path(str(common.REPOSITORY / "tools" / "benchmarks" / "many_classes.py"))
)
"""Read by its path: what the tests share is called the same."""


def finished(peak_rss, **answer):
    return common.Finished(0, 1.0, peak_rss, answer, "", "")


def runs(training, predicting, *, converged=True):
    trained = finished(training, n_support=7, seconds=2.0, converged=converged)
    return Runs(trained, finished(predicting, accuracy=0.75))


def test_synthetic_classes_are_apart_and_the_same_again(tmp_path):
    x, y = many_classes_once.synthetic_classes(5, 20)
    assert x.shape == (100, many_classes_once.N_COLUMNS)
    assert x.dtype == np.float32
    assert np.bincount(y.astype(int)).tolist() == [20] * 5
    centres = np.stack([x[y == label].mean(axis=0) for label in range(5)])
    distances = ((x[:, None, :] - centres) ** 2).sum(axis=2)
    np.testing.assert_array_equal(distances.argmin(axis=1), y)
    np.testing.assert_array_equal(x, many_classes_once.synthetic_classes(5, 20)[0])
    many_classes_once.main(["store", "synthetic", str(tmp_path / "a.zarr"), "5", "20"])
    assert many_classes_memory.shape_of(tmp_path / "a.zarr") == (100, 5)
    labels = bigsvm.open_store(tmp_path / "a.zarr").labels()
    assert sorted(labels.tolist()) == y.tolist()


def test_peaks_are_held_against_budget_rows_and_interpreter():
    limit = 100 * 10**6 + 40 * 1000 + 30 * 10**6
    m = Measured(
        "letter", "ovr", 1000, 26, 100 * 10**6, runs(limit, limit + 1), runs(30 * 10**6, 30 * 10**6)
    )
    assert m.limits == (limit, limit)
    assert [check.holds for check in many_classes_memory.checks(m)] == [True, False, True]
    late = m._replace(runs=runs(limit + 1, limit, converged=False))
    assert [check.holds for check in many_classes_memory.checks(late)] == [False, True, False]
    assert many_classes_memory.line(m) == [
        "letter", "1000", "26", "ovr", "100", "130", "30", "130", "30", "7", "2.0", "75.00",
    ]  # fmt: skip
    assert len(many_classes_memory.HEADER) == len(many_classes_memory.line(m))


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        ("ovo", ["--multiclass", "ovo"]),
        ("ovr", ["--multiclass", "ovr"]),
        ("crammer-singer", ["--formulation", "crammer-singer"]),
    ],
)
def test_a_method_is_an_option_of_the_command(tmp_path, method, kind):
    options = many_classes.parse(["memory"])
    given = (tmp_path / "a.zarr", tmp_path / "m.safetensors", method, "50MB", options)
    command = many_classes_memory.train_command(*given)
    at = command.index(kind[0])
    assert command[at : at + 2] == kind
    at = command.index("--memory")
    assert command[at + 1] == "50MB"


@pytest.mark.slow
def test_memory_of_few_classes_from_end_to_end(tmp_path, monkeypatch, capsys):
    """By one binary machine, which has no option of that name: what is measured is the same."""

    def command(store, model, method, budget, options):
        return common.bigsvm_command(
            *("train", store, model, "--memory", budget, "--threads", options.threads, "--json")
        )

    def two_classes(path, what, threads):
        if not path.exists():
            x, y = many_classes_once.synthetic_classes(2, 100)
            many_classes_once.write("synthetic", path, x, y)
        return path

    monkeypatch.setattr(many_classes_memory, "train_command", command)
    monkeypatch.setattr(many_classes_memory, "store_of", two_classes)
    given = ["--data", "synthetic", "--methods", "ovo", "--memory", "50MB"]
    assert many_classes.main(["memory", *given, "--folder", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    (line,) = (line for line in out.splitlines() if line.startswith("| synthetic | 200 "))
    assert [cell.strip() for cell in line.split("|")][3:6] == ["2", "ovo", "50"]
    assert "100.00" in line
    assert out.count(" holds ") == 3
    assert (tmp_path / "synthetic-ovo" / "labels.txt").exists()
