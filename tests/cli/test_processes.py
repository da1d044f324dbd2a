"""Commands as processes that are killed, interrupted, and started again."""

import json
import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from command_line import answer, finish, libsvm_text, run_here, start, two_clouds
from support.same import assert_same_model

from bigsvm import KernelExpansion, open_store, write_store
from bigsvm.errors import StoreError

N_ROWS = 6000
TRAINING = (
    *("--C", "100", "--gamma", "0.1", "--memory", "18MB", "--threads", "1"),
    *("--quiet", "--json"),
)
"""Keeps one thread busy for more than a second: a run is killed before it ends."""
SAVED = ("--checkpoint-every", "0.1s", "--checkpoint")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("store") / "clouds.zarr"
    X, y = two_clouds(N_ROWS, 24, distance=0.5)
    write_store(path, X, y)
    return path


@pytest.fixture(scope="module")
def uninterrupted(store, tmp_path_factory):
    """Train the model that every interrupted run must end at."""
    path = tmp_path_factory.mktemp("whole") / "model"
    run_here("train", store, path, *TRAINING)
    return KernelExpansion.load(path)


def generation(run):
    """Newest checkpoint of a run, 0 where there is none."""
    found = [int(path.name.partition("-")[2]) for path in run.glob("generation-*")]
    return max(found, default=0)


def wait_for_checkpoint(child, run, *, after):
    """Wait until a run has written a newer checkpoint than `after`; False if it ended before."""
    while child.poll() is None:
        if generation(run) > after:
            return True
        time.sleep(0.005)
    return False


def kill_again_and_again(command, run, *, times, seed):
    """Start a command and kill it at a random moment after its next checkpoint; how often."""
    rng = random.Random(seed)
    killed = 0
    for _ in range(times):
        before = generation(run)
        child = start(*command)
        if not wait_for_checkpoint(child, run, after=before):
            finish(child)
            break
        if killed:  # the first one at once: it has not ended
            time.sleep(rng.uniform(0, 0.3))
        child.kill()
        child.communicate()
        killed += child.returncode == -signal.SIGKILL
    return killed


class TestKilled:
    @pytest.mark.parametrize(
        ("times", "seed"),
        [(1, 0), pytest.param(8, 1, marks=pytest.mark.slow)],
    )
    def test_the_same_command_again_ends_at_the_same_bits(
        self, store, uninterrupted, tmp_path, times, seed
    ):
        run = tmp_path / "run"
        command = ("train", store, tmp_path / "model", *TRAINING, *SAVED, run)
        assert kill_again_and_again(command, run, times=times, seed=seed) >= 1
        assert json.loads(run_here(*command).stdout)["converged"]
        assert_same_model(KernelExpansion.load(tmp_path / "model"), uninterrupted)

    @pytest.mark.slow
    def test_a_calibration_has_the_same_bits_too(self, store, tmp_path):
        options = (*TRAINING, "--calibration", "sigmoid")
        run_here("train", store, tmp_path / "whole", *options)
        run = tmp_path / "run"
        command = ("train", store, tmp_path / "model", *options, *SAVED, run)
        assert kill_again_and_again(command, run, times=1, seed=3) == 1
        finish(start(*command))
        model, whole = (KernelExpansion.load(tmp_path / name) for name in ("model", "whole"))
        assert_same_model(model, whole)

    @pytest.mark.slow
    def test_the_directory_alone_is_enough(self, store, uninterrupted, tmp_path):
        run = tmp_path / "run"
        options = (*TRAINING, *SAVED, "run")
        child = start("train", os.path.relpath(store, tmp_path), "model", *options, cwd=tmp_path)
        assert wait_for_checkpoint(child, run, after=0)
        child.kill()
        child.communicate()
        assert answer("train", "--resume", run, "--quiet")["converged"]
        assert_same_model(KernelExpansion.load(tmp_path / "model"), uninterrupted)

    @pytest.mark.slow
    def test_a_sparse_run_ends_at_the_same_bits(self, tmp_path):
        X, y = two_clouds(12_000, 24, distance=0.5)
        X[np.abs(X) < 1] = 0
        run_here_text = tmp_path / "text"
        run_here_text.write_text(libsvm_text(X, y))
        run_here("convert", run_here_text, tmp_path / "store", "--sparse")
        run_here("train", tmp_path / "store", tmp_path / "whole", *TRAINING)
        run = tmp_path / "run"
        command = ("train", tmp_path / "store", tmp_path / "model", *TRAINING, *SAVED, run)
        assert kill_again_and_again(command, run, times=4, seed=2) >= 1
        finish(start(*command))
        model, whole = (KernelExpansion.load(tmp_path / name) for name in ("model", "whole"))
        assert_same_model(model, whole)

    def test_a_second_process_on_the_same_directory_is_refused(self, store, tmp_path):
        run = tmp_path / "run"
        command = ("train", store, tmp_path / "model", *TRAINING, *SAVED, run)
        child = start(*command)
        try:
            assert wait_for_checkpoint(child, run, after=0)
            ended = run_here(*command, code=2)
            assert f"in use by process {child.pid}" in ended.stderr
        finally:
            child.kill()
            child.communicate()


class TestSignals:
    @pytest.mark.parametrize(
        ("signum", "code"),
        [pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow), (signal.SIGTERM, 143)],
        ids=["INT", "TERM"],
    )
    def test_a_signal_ends_training_with_a_checkpoint_and_a_model(
        self, store, uninterrupted, tmp_path, signum, code
    ):
        run, path = tmp_path / "run", tmp_path / "model"
        child = start("train", store, path, *TRAINING, *SAVED, run)
        assert wait_for_checkpoint(child, run, after=0)
        child.send_signal(signum)
        out, err = finish(child, code)
        record = json.loads(out)
        assert (record["converged"], record["stop_reason"]) == (False, "interrupted")
        assert f"bigsvm train --resume {run}" in err
        model = KernelExpansion.load(path)
        assert model.certificate["stop_reason"] == "interrupted"
        assert answer("predict", store, path)["n_rows"] == N_ROWS
        run_here("train", "--resume", run)
        assert_same_model(KernelExpansion.load(path), uninterrupted)

    @pytest.mark.slow
    def test_a_signal_leaves_no_time_for_a_calibration(self, store, tmp_path):
        run, path = tmp_path / "run", tmp_path / "model"
        options = (*TRAINING, "--calibration", "sigmoid", *SAVED, run)
        child = start("train", store, path, *options)
        assert wait_for_checkpoint(child, run, after=0)
        child.send_signal(signal.SIGTERM)
        out, err = finish(child, 143)
        assert json.loads(out)["calibration"] is None
        assert "the model has no probabilities" in err
        assert KernelExpansion.load(path).calibration is None
        assert "none: the run was interrupted" in run_here("info", path).stdout
        finish(start("train", "--resume", run))
        assert KernelExpansion.load(path).calibration.method == "sigmoid"

    def test_a_second_signal_ends_it_at_once(self, store, tmp_path):
        run = tmp_path / "run"
        child = start("train", store, tmp_path / "model", *TRAINING, *SAVED, run)
        assert wait_for_checkpoint(child, run, after=0)
        child.send_signal(signal.SIGTERM)
        time.sleep(0.001)
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate()
        # Where the first one was quick enough, the run has ended in order before the second.
        assert child.returncode in (130, 143)
        assert child.returncode == 143 or out == ""

    def test_a_conversion_waiting_for_input_ends_and_leaves_nothing(self, tmp_path):
        read, write = os.pipe()
        child = start("convert", "-", tmp_path / "store", stdin=read)
        try:
            os.write(write, b"1 1:2\n-1 1:3\n")
            while not list(tmp_path.glob(".store.partial-*/lock")):
                assert child.poll() is None
                time.sleep(0.01)
            child.send_signal(signal.SIGTERM)
            out, err = finish(child, 143)
        finally:
            os.close(write)
            os.close(read)
        assert out == ""
        assert "stopped by SIGTERM; nothing was written" in err
        assert list(tmp_path.iterdir()) == []

    def test_a_long_conversion_ends_and_leaves_no_store(self, tmp_path):
        source = tmp_path / "text"
        line = " ".join(["1", *(f"{j}:0.5" for j in range(1, 200))]) + "\n"
        source.write_text(line * 60_000)
        child = start("convert", source, tmp_path / "store", "--threads", "1", "--memory", "64MB")
        while child.poll() is None and not list(tmp_path.glob(".store.partial-*/spool/*")):
            time.sleep(0.005)
        child.send_signal(signal.SIGINT)
        finish(child, 130)
        assert [path.name for path in tmp_path.iterdir()] == ["text"]
        with pytest.raises(StoreError):
            open_store(tmp_path / "store")

    def test_text_being_converted_for_training_is_interrupted_too(self, tmp_path):
        read, write = os.pipe()
        cache = tmp_path / "cache"
        child = start("train", "-", tmp_path / "model", "--cache-dir", cache, stdin=read)
        try:
            while not list(cache.glob("bigsvm-text-*/.data.zarr.partial-*/lock")):
                assert child.poll() is None
                time.sleep(0.01)
            child.send_signal(signal.SIGINT)
            finish(child, 130)
        finally:
            os.close(write)
            os.close(read)
        assert list(cache.iterdir()) == []
        assert not (tmp_path / "model").exists()


class TestOutput:
    def test_a_process_without_a_terminal_writes_no_escape_sequences(self, store, tmp_path):
        out, err = finish(
            start("train", store, tmp_path / "model", "--gamma", 0.1, "--max-time", "0.02")
        )
        assert "\x1b" not in out + err
        assert "warning: the model has not converged: the time limit was reached" in err

    def test_errors_are_one_line_without_a_traceback(self, tmp_path):
        out, err = finish(start("info", tmp_path / "none"), 2)
        assert out == ""
        assert (
            err
            == f"bigsvm: error: {tmp_path / 'none'}: no such store, model or run; check the path\n"
        )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a disk that is always full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_results_without_room_are_told_and_the_model_is_there(tmp_path, unbuffered):
    X, y = two_clouds(200)
    write_store(tmp_path / "s.zarr", X, y)
    command = ("train", tmp_path / "s.zarr", tmp_path / "model", "--quiet")
    with open("/dev/full", "w") as full:
        child = start(*command, stdout=full, env={"PYTHONUNBUFFERED": unbuffered})
        _, err = finish(child, code=2)
    [line] = err.splitlines()
    assert line.startswith("bigsvm: error: standard output cannot be written to (No space left")
    made = open_store(tmp_path / "s.zarr")
    decided = KernelExpansion.load(tmp_path / "model").decide(made.rows)
    assert (decided == (made.labels() > 0)).mean() > 0.8
