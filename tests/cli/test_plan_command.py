"""`bigsvm plan`, run in this process."""

import pytest
from command_line import answer, error_of, run_here

from bigsvm.fit import forecast


@pytest.fixture(autouse=True)
def samples_are_small(monkeypatch):
    monkeypatch.setattr(forecast, "FIRST_ROWS", 100)


def test_it_says_what_training_takes(data):
    shown = run_here("plan", data / "train.zarr", "--gamma", "0.3").stdout
    names = [line.split("  ")[0] for line in shown.splitlines()]
    assert names == [
        "rows", "support vectors", "sweeps", "time", "memory", "disk", "from samples",
    ]  # fmt: skip


def test_json(data, tmp_path):
    planned = answer("plan", data / "train.zarr", "--C", "2", "--checkpoint", tmp_path / "run")
    assert planned["n_rows"] == 300
    assert planned["n_support"]["low"] <= planned["n_support"]["high"]
    assert planned["disk_bytes"] > 0
    assert not (tmp_path / "run").exists()


def test_text(data):
    assert answer("plan", data / "train.libsvm", "--C", "2")["n_rows"] == 300


def test_options_that_mean_nothing_are_refused_as_by_train(data):
    assert "--nu is for" in error_of("plan", data / "train.zarr", "--nu", "0.5")


def test_memory_of_the_workers_that_there_are(data, cluster):
    asked = ("plan", data / "train.zarr", "--C", "2", "--scheduler", cluster.scheduler_address)
    needed = answer(*asked)["worker_memory"]
    assert 0 < needed["least"] <= needed["once"]
    [line] = [line for line in run_here(*asked).stdout.splitlines() if "worker memory" in line]
    assert " on each worker; from " in line
    assert "worker_memory" not in answer("plan", data / "train.zarr", "--C", "2")


def test_a_cluster_without_workers_needs_no_memory(data, client_without_workers):
    address = client_without_workers.scheduler.address
    options = ("--scheduler", address, "--wait-for-workers", "0.1")
    assert "has had no worker" in error_of("plan", data / "train.zarr", "--C", "2", *options)
