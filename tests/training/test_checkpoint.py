import json
import os
import subprocess
import sys

import numpy as np
import pytest

from bigsvm import write_store
from bigsvm.errors import CheckpointError
from bigsvm.training import checkpoint as module
from bigsvm.training.checkpoint import Checkpoint

FINGERPRINT = {"data": "abc", "C": "1.0"}
ARRAYS = {"alpha": np.linspace(0, 1, 1000), "working_set": np.arange(7), "empty": np.empty(0)}
VALUES = {"phase": "sweep", "n_sweeps": 3, "best_gap": float("inf")}


@pytest.fixture
def saved(tmp_path):
    with Checkpoint(tmp_path / "run", FINGERPRINT) as checkpoint:
        for sweeps in range(3):
            checkpoint.save(ARRAYS, VALUES | {"n_sweeps": sweeps})
    return tmp_path / "run"


def latest(directory, fingerprint=FINGERPRINT):
    with Checkpoint(directory, fingerprint) as checkpoint:
        return checkpoint.latest()


def generations(directory):
    return sorted(path.name for path in directory.glob("generation-*"))


def test_reads_back_what_was_saved(saved):
    found = latest(saved)
    assert found.number == 3
    assert found.values == VALUES | {"n_sweeps": 2}
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found.arrays[name], array)
        assert found.arrays[name].dtype == array.dtype


def test_a_new_directory_holds_nothing(tmp_path):
    assert latest(tmp_path / "new") is None


def test_two_generations_are_kept(saved):
    assert generations(saved) == ["generation-00000002", "generation-00000003"]


@pytest.mark.parametrize("name", ["alpha.bin", "working_set.bin", "manifest.json"])
@pytest.mark.parametrize("damage", ["flip", "truncate", "delete"])
def test_a_damaged_generation_falls_back_on_the_one_before(saved, name, damage):
    path = saved / "generation-00000003" / name
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 4
        path.write_bytes(data)
    elif damage == "truncate":
        path.write_bytes(data[:-9])
    else:
        path.unlink()
    assert latest(saved).number == 2


@pytest.mark.fault("damaged-checkpoints")
def test_a_save_replaces_the_damaged_generation_and_not_the_whole_one(saved):
    (saved / "generation-00000003" / "alpha.bin").write_bytes(b"x")
    with Checkpoint(saved, FINGERPRINT) as checkpoint:
        assert checkpoint.latest().number == 2
        checkpoint.save(ARRAYS, VALUES)
    assert generations(saved) == ["generation-00000002", "generation-00000004"]


def test_all_generations_damaged_is_an_error_and_not_a_fresh_start(saved):
    for path in saved.glob("generation-*/alpha.bin"):
        path.write_bytes(b"x")
    with pytest.raises(CheckpointError, match=r"no whole checkpoint .* remove the directory"):
        latest(saved)


def test_another_problem_is_refused_by_name(saved):
    with pytest.raises(CheckpointError, match=r"C \(checkpoint: 1\.0, now: 2\.0\)"):
        latest(saved, FINGERPRINT | {"C": "2.0"})


@pytest.mark.parametrize("off", [-1, 1])
def test_another_format_is_refused(saved, off, monkeypatch):
    own = module.FORMAT_VERSION
    with monkeypatch.context() as patch:
        patch.setattr(module, "FORMAT_VERSION", own + off)
        with Checkpoint(saved, FINGERPRINT) as checkpoint:
            checkpoint.save(ARRAYS, VALUES)
    with pytest.raises(CheckpointError, match=f"format {own + off}, and this bigsvm reads {own};"):
        latest(saved)


def test_one_process_at_a_time(saved):
    with (
        Checkpoint(saved, FINGERPRINT),
        pytest.raises(CheckpointError, match=f"in use by process {os.getpid()}"),
    ):
        Checkpoint(saved, FINGERPRINT)


def test_the_lock_of_a_killed_process_is_free(tmp_path):
    code = (
        "import os, signal, sys\n"
        "from bigsvm.training.checkpoint import Checkpoint\n"
        "Checkpoint(sys.argv[1], {})\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "run")], check=False)
    assert done.returncode == -9
    Checkpoint(tmp_path / "run", {}).close()


def test_litter_of_a_killed_process_is_swept(saved):
    litter = saved / ".generation-00000004"
    litter.mkdir()
    (litter / "alpha.bin").write_bytes(b"half")
    assert latest(saved).number == 3
    assert not litter.exists()


class Crash(BaseException):
    """Stands for the process ending: nothing in the library catches it."""


@pytest.mark.parametrize("failure", [Crash, OSError])
def test_a_failure_at_every_single_step_keeps_a_whole_generation(saved, monkeypatch, failure):
    """SQLite's method: fail at operation 1, 2, 3 … until the whole save goes through."""
    real = {name: getattr(os, name) for name in ("fsync", "rename", "replace")}
    reached = 0
    for fail_at in range(1, 100):
        count = 0

        def wrap(name, fail_at=fail_at):
            def operation(*arguments):
                nonlocal count
                count += 1
                if count == fail_at:
                    raise failure(28, "No space left on device")
                return real[name](*arguments)

            return operation

        with monkeypatch.context() as patch:
            for name in real:
                patch.setattr(os, name, wrap(name))
            checkpoint = Checkpoint(saved, FINGERPRINT)
            try:
                number = checkpoint.save(ARRAYS, VALUES | {"n_sweeps": 1000 + fail_at})
            except (Crash, CheckpointError):
                number = None
            finally:
                checkpoint.close()
        found = latest(saved)
        assert found is not None
        np.testing.assert_array_equal(found.arrays["alpha"], ARRAYS["alpha"])
        if number is not None:
            assert found.values["n_sweeps"] == 1000 + fail_at
            reached = fail_at
            break
    assert reached > len(ARRAYS)


def test_a_full_disk_says_so_and_keeps_the_one_before(saved):
    code = (
        "import resource, signal, sys, numpy as np\n"
        "from bigsvm.errors import CheckpointError\n"
        "from bigsvm.training.checkpoint import Checkpoint\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "checkpoint = Checkpoint(sys.argv[1], {'data': 'abc', 'C': '1.0'})\n"
        "try:\n"
        "    checkpoint.save({'alpha': np.zeros(100000)}, {})\n"
        "except CheckpointError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(saved)], capture_output=True, text=True, check=True
    )
    assert "the one before is intact" in done.stdout
    assert latest(saved).number == 3


def test_an_unwritable_directory_is_found_at_the_start(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot write a checkpoint"):
        Checkpoint(tmp_path / "file" / "run", {})


def test_the_manifest_is_for_people_too(saved):
    text = (saved / "generation-00000003" / "manifest.json").read_text().rpartition("\n}")[
        0
    ] + "\n}"
    manifest = json.loads(text)
    assert manifest["fingerprint"] == FINGERPRINT
    assert manifest["arrays"]["alpha"]["shape"] == [1000]


def test_a_store_is_no_place_for_a_checkpoint(tmp_path):
    write_store(tmp_path / "s.zarr", np.eye(3), np.arange(3))
    before = sorted(path.name for path in (tmp_path / "s.zarr").iterdir())
    with pytest.raises(CheckpointError, match="is a store, in which a checkpoint has no place"):
        Checkpoint(tmp_path / "s.zarr", {})
    assert sorted(path.name for path in (tmp_path / "s.zarr").iterdir()) == before
