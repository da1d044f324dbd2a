"""Copies of checkpoints on object storage: runs go on from them where the folder is lost."""

import itertools
import logging
import os
import shutil
import threading

import fsspec
import numpy as np
import pytest
from support import HANGS
from support.resuming import StopAt
from support.same import assert_same_bits

import bigsvm
from bigsvm.data import objects
from bigsvm.data.sources import as_row_source
from bigsvm.errors import CheckpointError, ParameterError, UnreachableError
from bigsvm.fit.train import train_model
from bigsvm.parameters import TrainingParameters
from bigsvm.training import checkpoint_copy
from bigsvm.training.checkpoint import KEPT, Checkpoint
from bigsvm.training.checkpoint_copy import CheckpointCopy
from bigsvm.training.events import Hooks

_numbers = itertools.count()


@pytest.fixture
def url():
    """URL in the memory of this process."""
    return f"memory://copy-{next(_numbers)}"


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "run"


def opened(folder, url, **fingerprint):
    return Checkpoint(folder, {"problem": "this", **fingerprint}, CheckpointCopy(url, kept=KEPT))


def save(folder, url, *numbers, log=None):
    """Save generations that hold these numbers, each copied before the next one."""
    for number in numbers:
        with opened(folder, url) as checkpoint:
            checkpoint.latest()
            if log is not None:
                with (folder / "pairs.log").open("ab") as file:
                    file.write(log(number))
            checkpoint.save({"x": np.full(5, float(number)), "none": np.empty(0)}, {"n": number})


def latest(folder, url):
    with opened(folder, url) as checkpoint:
        return checkpoint.latest()


def names(url):
    fs = fsspec.filesystem("memory")
    below = fs._strip_protocol(url) + "/"
    return sorted(name[len(below) :] for name in fs.find(below))


def change(url, ending):
    """Damage the newest object whose name ends so."""
    fs = fsspec.filesystem("memory")
    name = [f"{url}/{name}" for name in names(url) if name.endswith(ending)][-1]
    data = bytearray(fs.cat_file(name))
    data[len(data) // 2] ^= 1
    fs.pipe_file(name, bytes(data))


def test_a_lost_folder_is_filled_from_the_copy(folder, url):
    save(folder, url, 1, 2, 3)
    before = latest(folder, url)
    shutil.rmtree(folder)
    again = latest(folder, url)
    assert (again.number, again.values) == (3, {"n": 3})
    assert_same_bits(again.arrays, before.arrays)
    save(folder, url, 4)
    assert latest(folder, url).number == 4


def test_as_many_generations_are_kept_there_as_here(folder, url):
    save(folder, url, 1, 2, 3, 4)
    there = {name.partition("/")[0].rpartition("-")[0] for name in names(url)}
    assert there == {"generation-00000003", "generation-00000004"}
    assert there == {p.name for p in folder.glob("generation-*")}


def test_the_newer_one_of_folder_and_copy_is_used(folder, url, tmp_path, monkeypatch):
    save(folder, url, 1)
    shutil.copytree(folder, tmp_path / "old")
    save(folder, url, 2)
    assert latest(tmp_path / "old", url).values == {"n": 2}
    monkeypatch.setattr(CheckpointCopy, "begin", lambda *arguments: None)
    save(folder, url, 3)
    monkeypatch.setattr(CheckpointCopy, "fetch", None)
    assert latest(folder, url).values == {"n": 3}


def test_of_damaged_copies_the_one_before_is_used(folder, url, caplog):
    save(folder, url, 1, 2)
    shutil.rmtree(folder)
    change(url, "x.bin")
    assert latest(folder, url).values == {"n": 1}
    assert "damaged, so the generation before it is used" in caplog.text
    shutil.rmtree(folder)
    for name in names(url):
        if name.endswith("manifest.json"):
            fsspec.filesystem("memory").pipe_file(f"{url}/{name}", b"{}")
    with pytest.raises(CheckpointError, match=r"no whole checkpoint in memory://.*start over"):
        latest(folder, url)
    assert [p.name for p in folder.iterdir()] == ["lock"]


def test_the_copy_of_another_run_is_refused(folder, url, tmp_path):
    save(folder, url, 1)
    before = names(url)
    with (
        opened(tmp_path / "other", url, C="2") as checkpoint,
        pytest.raises(CheckpointError, match=r"memory://.* belongs to another run: C \("),
    ):
        checkpoint.latest()
    assert names(url) == before


def test_what_is_no_copy_is_refused(folder, url, tmp_path):
    bigsvm.write_store(url, np.eye(4), [0, 1, 0, 1])
    with pytest.raises(CheckpointError, match="is a store, in which a checkpoint has no place"):
        latest(folder, url)
    with pytest.raises(ParameterError, match="nothing is written by https://"):
        CheckpointCopy("https://host/run", kept=2)
    rows = np.eye(4), [0, 1, 0, 1]
    with pytest.raises(ParameterError, match="checkpoint_copy is 'run'; it must be a URL"):
        bigsvm.SVC(checkpoint=folder, checkpoint_copy="run").fit(*rows)
    with pytest.raises(ParameterError, match="there is no checkpoint to be copied"):
        bigsvm.SVC(checkpoint_copy=url).fit(*rows)


def test_a_copy_that_fails_is_one_warning(folder, faulty, caplog, monkeypatch):
    monkeypatch.setenv("BIGSVM_STORE_TIMEOUT", "0.1")
    url = f"s3://bucket/copy-{next(_numbers)}"
    with opened(folder, url) as checkpoint:
        checkpoint.latest()
        faulty.methods, faulty.refused = ("PUT",), 1.0
        for n in (1, 2):
            checkpoint.save({"x": np.full(5, float(n))}, {"n": n})
            _wait_for(checkpoint)
        assert caplog.text.count("is not copied") == 1
        assert "the run goes on, and tries again with the next one" in caplog.text
        faulty.refused = 0
        checkpoint.save({"x": np.full(5, 3.0)}, {"n": 3})
    shutil.rmtree(folder)
    assert latest(folder, url).values == {"n": 3}
    faulty.methods, faulty.refused = ("GET",), 1.0
    shutil.rmtree(folder)
    with pytest.raises(UnreachableError):
        latest(folder, url)


def _wait_for(checkpoint):
    while checkpoint._copy.in_use():
        threading.Event().wait(0.01)


@pytest.fixture
def blocked(monkeypatch):
    """Copies wait until this event is set."""
    event, put = threading.Event(), objects.Objects.put

    def wait(self, name, path):
        assert event.wait(HANGS)
        put(self, name, path)

    monkeypatch.setattr(objects.Objects, "put", wait)
    return event


def test_a_slow_copy_loses_no_files_and_skips_generations(folder, url, blocked):
    with opened(folder, url) as checkpoint:
        checkpoint.latest()
        for n in range(1, 7):
            checkpoint.save({"x": np.full(5, float(n))}, {"n": n})
            assert len(list(folder.glob("generation-*"))) <= KEPT + 2
            if n == 1:
                while not checkpoint._copy._now:
                    threading.Event().wait(0.01)
        assert (folder / "generation-00000001").exists()
        blocked.set()
    copied = sorted({name.split("/")[0][:19] for name in names(url)})
    assert copied == ["generation-00000001", "generation-00000006"]


def test_the_end_of_a_run_does_not_wait_for_long(folder, faulty, caplog, monkeypatch):
    monkeypatch.setattr(checkpoint_copy, "_CLOSING_SECONDS", 0.1)
    with opened(folder, f"s3://bucket/copy-{next(_numbers)}") as checkpoint:
        checkpoint.latest()
        faulty.methods, faulty.refused = ("PUT",), 1.0
        checkpoint.save({"x": np.zeros(5)}, {})
    assert "is not copied, as that takes longer than 0.1 s" in caplog.text


def test_files_that_grow_are_copied_in_parts(folder, url, monkeypatch, tmp_path):
    monkeypatch.setattr(checkpoint_copy, "_PART_BYTES", 100)
    save(folder, url, 1, 2, log=lambda n: bytes([n]) * 150)
    written = [name for name in names(url) if name.startswith("pairs.log")]
    assert [name.split("-")[1] for name in written] == [f"{n:016d}" for n in (0, 100, 150, 250)]
    data = (folder / "pairs.log").read_bytes()
    shutil.rmtree(folder)
    assert latest(folder, url).number == 2
    assert (folder / "pairs.log").read_bytes() == data
    # Of a file with another end only the same first parts are used again.
    (folder / "pairs.log").write_bytes(data[:100] + b"other")
    save(folder, url, 3, log=lambda n: b"more")
    shutil.rmtree(folder)
    assert latest(folder, url).number == 3
    assert (folder / "pairs.log").read_bytes() == data[:100] + b"othermore"
    shutil.rmtree(folder)
    change(url, next(name for name in names(url) if name.startswith("pairs.log"))[-8:])
    with pytest.raises(CheckpointError, match="no whole checkpoint"):
        latest(folder, url)


@pytest.mark.fault("damaged-checkpoints")
@pytest.mark.parametrize(
    "logs",
    [b"", b"[]", b'{"../x": []}', b'{"pairs.log": [["../lock", 0, 1, "x"]]}',
     b'{"pairs.log": [[1]]}', b'{"pairs.log": 3}'],
)  # fmt: skip
def test_a_forged_list_of_parts_is_refused(folder, url, logs):
    save(folder, url, 1, log=lambda n: b"x")
    [name] = [name for name in names(url) if name.endswith("logs.json")]
    fsspec.filesystem("memory").pipe_file(f"{url}/{name}", logs)
    shutil.rmtree(folder)
    with pytest.raises(CheckpointError, match=r"no whole checkpoint.*logs\.json is damaged"):
        latest(folder, url)


KINDS = {
    "two classes": {"formulation": "c-svc"},
    "pairs of classes": {"formulation": "c-svc", "k": 6},
    "a ball": {"formulation": "l2-svc", "solver": "cvm", "ball_tol": 1e-2},
}


def train(folder, url=None, *, interrupted=lambda: False, k=2, **given):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, k, 900)
    X = rng.standard_normal((900, 4)) + 1.2 * np.eye(6)[labels, :4]
    parameters = TrainingParameters(
        C=5.0, gamma=0.4, threads=1, checkpoint=str(folder), checkpoint_copy=url,
        checkpoint_every=0.05, **given,
    )  # fmt: skip
    return train_model(
        as_row_source(X), labels.astype(float), None, parameters, Hooks(interrupted=interrupted)
    )


@pytest.mark.parametrize(
    "kind",
    ["two classes", "pairs of classes", pytest.param("a ball", marks=pytest.mark.slow)],
)
def test_a_run_whose_folder_is_lost_ends_at_the_same_bits(folder, url, kind, monkeypatch):
    monkeypatch.setattr("bigsvm.one_vs_one.small.MOST_ROWS", 0)
    asked = StopAt()
    whole = train(folder, interrupted=asked, **KINDS[kind])
    assert whole.certificate["converged"]
    shutil.rmtree(folder)
    for moment in (asked.count // 3, asked.count // 2):
        train(folder, url, interrupted=StopAt(moment), **KINDS[kind])
        assert os.listdir(folder)
        assert names(url)
        shutil.rmtree(folder)
    again = train(folder, url, **KINDS[kind])
    assert again.certificate["seconds"] > 0
    for name in ("support", "coefficients", "intercept"):
        assert_same_bits(getattr(again, name), getattr(whole, name))
    assert again.certificate["n_iter"] == whole.certificate["n_iter"]


def test_the_folder_is_filled_and_said_so(folder, url, caplog):
    save(folder, url, 1)
    shutil.rmtree(folder)
    with caplog.at_level(logging.INFO, "bigsvm"):
        latest(folder, url)
    assert f"generation 1 is taken from {url}" in caplog.text
