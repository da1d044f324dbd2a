"""``bigsvm train`` on a cluster: the same model, nothing of the cluster kept, errors in a line."""

import json
import os
import re
import signal
import sys

import dask
import numpy as np
import pytest
from command_line import LITTLE, error_of, finish, run_here, start

from bigsvm.cli import clusters
from bigsvm.models import KernelExpansion

pytest.importorskip("distributed")

SMALL = ("--gamma", "0.3", "--memory", "3MB", "--tol", "0.1", "--threads", "1")
"""Memory for few of the rows of `many`, so that there are passes for workers."""


@pytest.fixture(scope="module")
def alone(many, tmp_path_factory):
    """A model trained by this process alone."""
    path = tmp_path_factory.mktemp("alone") / "model"
    run_here("train", many / "many.zarr", path, *SMALL)
    return KernelExpansion.load(path)


def assert_same(path, model):
    loaded = KernelExpansion.load(path)
    assert np.array_equal(loaded.support, model.support)
    assert np.array_equal(loaded.coefficients, model.coefficients)
    assert loaded.intercept == model.intercept


def test_workers_of_a_scheduler_train_the_same_model(cluster, many, alone, tmp_path):
    scheduler = ("--scheduler", cluster.scheduler_address, "--worker-memory", "100MB")
    ended = run_here("train", many / "many.zarr", tmp_path / "model", *SMALL, *scheduler)
    assert_same(tmp_path / "model", alone)
    [costs] = [line for line in ended.stdout.splitlines() if line.startswith("cluster ")]
    assert re.search(r" [12] workers?, [1-9]\d* tasks", costs)  # one may open late
    model = (tmp_path / "model").read_bytes()
    assert cluster.scheduler_address.encode() not in model


def test_the_file_of_a_scheduler_names_it(cluster, many, alone, tmp_path):
    (tmp_path / "scheduler.json").write_text(json.dumps({"address": cluster.scheduler_address}))
    run_here(
        "train", many / "many.zarr", tmp_path / "model", *SMALL,
        "--scheduler-file", tmp_path / "scheduler.json",
    )  # fmt: skip
    assert_same(tmp_path / "model", alone)


def test_a_record_has_no_cluster_and_resumes_with_another(cluster, many, alone, tmp_path):
    scheduler = ("--scheduler", cluster.scheduler_address, "--worker-memory", "100MB")
    run_here(
        "train", many / "many.zarr", tmp_path / "model", *LITTLE, "--tol", "0.1",
        "--checkpoint", tmp_path / "run", *scheduler,
    )  # fmt: skip
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert cluster.scheduler_address not in json.dumps(record)
    assert not {"client", "scheduler", "worker_memory"} & record["parameters"].keys()
    run_here("train", "--resume", tmp_path / "run", "--max-iter", "-1")
    assert KernelExpansion.load(tmp_path / "model").certificate["converged"]


@pytest.mark.slow
def test_workers_on_this_machine_are_started_and_ended(many, alone, tmp_path):
    child = start("train", many / "many.zarr", tmp_path / "model", *SMALL, "--scheduler", "local:2")
    _, err = finish(child)
    assert_same(tmp_path / "model", alone)
    assert "Traceback" not in err
    assert "distributed" not in err
    assert "has joined" in err


def test_ctrl_c_of_a_terminal_reaches_the_coordinator_alone(many, tmp_path):
    """A terminal sends it to all processes of its group; the run is saved, and goes on."""
    child = start(
        "train", many / "many.zarr", tmp_path / "model", *SMALL, "--tol", "1e-9",
        "--checkpoint", tmp_path / "run", "--checkpoint-every", "0.1s", "--scheduler", "local:1",
        start_new_session=True,
    )  # fmt: skip
    lines = []
    for line in child.stderr:
        lines.append(line)
        if "checkpoint 1" in line:
            os.killpg(child.pid, signal.SIGINT)
            break
    _, err = finish(child, code=130)
    assert "Traceback" not in err + "".join(lines)
    assert "the run was interrupted" in err
    run_here("train", "--resume", tmp_path / "run", "--tol", "0.1")
    assert KernelExpansion.load(tmp_path / "model").certificate["converged"]


# -- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--scheduler", "local"), "write local:2 for two"),
        (("--scheduler", "local:0"), "write local:2 for two"),
        (("--scheduler", "local:two"), "write local:2 for two"),
        (("--scheduler", "10.0.0.5"), "write it like tcp://10.0.0.5:8786"),
        (("--scheduler", "htp://10.0.0.5:8786"), "unknown address scheme 'htp'"),
        (("--scheduler-file", "no.json"), "--scheduler-file no.json cannot be read (No such file"),
        (("--scheduler", "local:2", "--scheduler-file", "x"), "name two clusters; give one"),
        (("--worker-memory", "1GB"), "name its --scheduler too, or leave it out"),
        (("--scheduler", "local:2", "--worker-memory", "much"), "--worker-memory 'much' is not a"),
    ],
)
def test_what_names_no_cluster_is_refused(data, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    assert message in error_of("train", data / "train.zarr", tmp_path / "model", *options)
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"address": 3}', '{"address": "x"}', "\x00"])
def test_a_file_that_no_scheduler_wrote_is_refused(data, tmp_path, text):
    path = tmp_path / "scheduler.json"
    path.write_text(text)
    error = error_of("train", data / "train.zarr", tmp_path / "m", "--scheduler-file", path)
    assert f"--scheduler-file {path} has no address" in error


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "localhost:1"])
def test_a_scheduler_that_does_not_answer_is_told(data, tmp_path, monkeypatch, address):
    """Port 1 needs rights that no scheduler has."""
    monkeypatch.setattr(clusters, "ANSWER_SECONDS", 0.5)
    error = error_of("train", data / "train.zarr", tmp_path / "model", "--scheduler", address)
    assert f"no scheduler answers at {address} within 0.5 s" in error


def test_a_scheduler_without_workers_is_told(client_without_workers, data, tmp_path):
    address = client_without_workers.scheduler.address
    error = error_of(
        "train", data / "train.zarr", tmp_path / "model", "--scheduler", address,
        "--wait-for-workers", "0.5",
    )  # fmt: skip
    assert f"the scheduler {address} has had no worker" in error


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--wait-for-workers", "5"], "--wait-for-workers is for the workers of a cluster"),
        (
            ["--wait-for-workers", "-1", "--scheduler", "tcp://a:1"],
            "it must be a number of seconds",
        ),
    ],
)
def test_a_wait_that_makes_no_sense_is_refused(data, tmp_path, options, told):
    assert told in error_of("train", data / "train.zarr", tmp_path / "model", *options)


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    """A scheduler and a worker that speak TLS only, and the options for it."""
    distributed = pytest.importorskip("distributed")
    pytest.importorskip("cryptography")
    security = distributed.Security.temporary()
    folder = tmp_path_factory.mktemp("tls")
    names = {"ca-file": "tls_ca_file", "cert": "tls_client_cert", "key": "tls_client_key"}
    files = {}
    for name, attribute in names.items():
        files[name] = folder / f"{name}.pem"
        files[name].write_text(getattr(security, attribute))
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, security=security, protocol="tls://",
        dashboard_address="127.0.0.1:0",
    ) as cluster:  # fmt: skip
        yield cluster.scheduler_address, files


def test_a_scheduler_with_tls_by_options_and_by_dasks_variables(data, tmp_path, tls, monkeypatch):
    address, files = tls
    options = [text for name, path in files.items() for text in (f"--tls-{name}", path)]
    run_here("train", data / "train.zarr", tmp_path / "one", "--scheduler", address, *options)

    parts = {"ca-file": "ca-file", "cert": "client.cert", "key": "client.key"}
    settings = {f"distributed.comm.tls.{parts[name]}": str(path) for name, path in files.items()}
    with dask.config.set(settings):
        run_here("train", data / "train.zarr", tmp_path / "two", "--scheduler", address)


def test_tls_that_is_not_whole_is_refused(data, tmp_path, tls):
    address, files = tls
    scheduler = ["train", data / "train.zarr", tmp_path / "model", "--scheduler", address]
    assert "needs --tls-ca-file, --tls-cert and --tls-key, or Dask's variables" in error_of(
        *scheduler
    )
    one = error_of(*scheduler, "--tls-ca-file", files["ca-file"])
    assert "--tls-cert and --tls-key left out; TLS needs all three files" in one
    whole = [*scheduler, "--tls-ca-file", files["ca-file"], "--tls-cert", files["cert"]]
    assert "--tls-key" in error_of(*whole, "--tls-key", tmp_path / "none.pem")
    assert "cannot connect" in error_of(*whole, "--tls-key", files["cert"])


def test_without_distributed_the_message_says_what_to_install(data, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    error = error_of("train", data / "train.zarr", tmp_path / "m", "--scheduler", "local:2")
    assert error.endswith("pip install 'bigsvm[cluster]'")


@pytest.mark.parametrize("wanted", ["labels", "decision values"])
def test_workers_predict_the_same(cluster, many, alone, tmp_path, wanted):
    alone.save(tmp_path / "model")
    written = {}
    values = () if wanted == "labels" else ("--decision-function",)
    for name, scheduler in (
        ("here", ()),
        ("there", ("--scheduler", cluster.scheduler_address, "--worker-memory", "100MB")),
    ):
        ended = run_here(
            "predict", many / "many.zarr", tmp_path / "model", *values,
            "--output", tmp_path / name, "--json", *scheduler,
        )  # fmt: skip
        written[name] = (tmp_path / name).read_bytes(), json.loads(ended.stdout)
    assert written["there"][0] == written["here"][0]
    here, there = written["here"][1], written["there"][1]
    assert there["accuracy"] == here["accuracy"]
    assert there["n_workers"] in (1, 2)  # one may open late
    assert there["bytes_returned"] >= 8 * there["n_rows"]
    assert "n_workers" not in here


def test_a_report_of_predictions_says_what_workers_did(cluster, many, alone, tmp_path):
    alone.save(tmp_path / "model")
    ended = run_here(
        "predict", many / "many.zarr", tmp_path / "model",
        "--scheduler", cluster.scheduler_address,
    )  # fmt: skip
    assert "cluster" in ended.stdout
    assert "2 workers" in ended.stdout


def test_predictions_refuse_workers_without_a_cluster(many, tmp_path):
    said = error_of("predict", many / "many.zarr", tmp_path / "model", "--worker-memory", "1GB")
    assert "--worker-memory is for the workers of a cluster" in said
