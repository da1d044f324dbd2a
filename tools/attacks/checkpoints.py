"""Checkpoints and kernel rows on disk that are damaged."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import xxhash
from attacks.child import fresh
from attacks.subjects import (
    ARRAY_DAMAGES,
    LARGE,
    N_ROWS,
    TRAINING,
    Damage,
    Subject,
    arrays_damages,
    fields_damages,
    leaves,
    predicting,
    put_field,
    same_values,
    set_field,
    train_options,
    write_data,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from attacks.child import Ended
    from numpy.typing import NDArray


def _keep_expected(subject: Subject) -> None:
    """Resume an undamaged copy of a stopped run, and keep what its model predicts."""
    (subject.folder / "model").unlink()
    copy = subject.folder.parent / f"{subject.folder.name}-resumed"
    shutil.copytree(subject.folder, copy)
    for words in subject.commands(copy):
        fresh(words)
    (copy / "predicted").rename(subject.folder / "expected")
    shutil.rmtree(copy)


class CheckpointSubject(Subject):
    """A run that was stopped after some steps, and is resumed."""

    def __init__(self, folder: Path, *, title: str, arguments: Sequence[str], steps: int) -> None:
        super().__init__(folder)
        self.name = f"checkpoint, {title}"
        self._arguments, self._steps = arguments, steps

    def make(self) -> None:
        """Stop a run, resume a copy of it, and keep the newest generation only."""
        write_data(self.folder, self._arguments)
        options = [*train_options(self._arguments), *TRAINING]
        run = self.folder / "run"
        self._stop(["train", self.folder / "data", self.folder / "model", *options,
                    "--checkpoint", run])  # fmt: skip
        generations = sorted(run.glob("generation-*"))
        if not generations:
            raise RuntimeError(f"{self.name}: nothing was saved")
        for path in generations[:-1]:
            shutil.rmtree(path)
        _keep_expected(self)

    def _stop(self, words: Sequence[str | Path]) -> None:
        """Train, and stop after some steps."""
        fresh([*words, "--max-iter", str(self._steps)])

    def commands(self, folder: Path, target: str = "") -> list[list[str | Path]]:
        """Resume as the same command with the same checkpoint, which knows no other paths."""
        words = ["train", folder / "data", folder / "model", *train_options(self._arguments),
                 *TRAINING, "--checkpoint", folder / "run"]  # fmt: skip
        if target.startswith("run.json"):
            words = ["train", "--resume", folder / "run", "--max-iter", "-1"]
        return [words, predicting(folder)]

    def apply(self, damage: Damage, copy: Path) -> None:
        """Damage a copy whose record names its own data and model."""
        for field, name in (("source", "data"), ("model", "model")):
            _put_run(copy, (field,), str(copy / name))
        damage.apply(copy)

    def refusal(self, folder: Path, ended: Sequence[Ended]) -> str:
        """Demand that training leaves a model that can be used, or none."""
        if ended[0].code:
            return "refused, and a model was written" if (folder / "model").exists() else ""
        return f"the model cannot be used: {ended[1].err.strip()[-100:]}"

    def outcome(self, folder: Path, ended: Sequence[Ended]) -> str:
        """Hold a converged model to the values that the undamaged run leads to."""
        return same_values(folder)

    def damages(self) -> Iterator[Damage]:
        """Walk the manifest of the generation, the log of pairs and the record of the run."""
        generation = _generation(self.folder)
        manifest = _manifest(generation)
        arrays = {name: _stored(generation, manifest, name) for name in manifest["arrays"]}
        yield from arrays_damages("", arrays, _put_stored)
        fields = [each for each in leaves(manifest) if each[0][0] != "fingerprint"]
        yield from fields_damages("manifest ", fields, _put_manifest)
        yield from self._log_damages()
        record = json.loads((self.folder / "run" / "run.json").read_text())
        yield from fields_damages("run.json ", leaves(record), _put_run)

    def _log_damages(self) -> Iterator[Damage]:
        from bigsvm.one_vs_one.log import RECORD

        path = self.folder / "run" / "pairs.log"
        if not path.exists():
            return
        record, rows, values = _first_entry(path)
        yield from arrays_damages(
            "pairs.log ", {"rows": rows, "values": values},
            lambda folder, part, changed: _put_entry(folder, {part: changed}),
        )  # fmt: skip
        for name in RECORD.names or ():
            for kind, number in (("negative", -1), ("2^30", LARGE), ("NaN", np.nan)):
                if number == number or record[name].dtype.kind == "f":
                    changed = record.copy()
                    changed[name] = number
                    yield Damage(
                        f"pairs.log {name}", kind,
                        lambda folder, changed=changed: _put_entry(folder, {"record": changed}),
                    )  # fmt: skip


def _manifest(generation: Path) -> dict[str, Any]:
    text = (generation / "manifest.json").read_bytes().rstrip().rpartition(b"\n")[0]
    return dict(json.loads(text))


def _generation(folder: Path) -> Path:
    [generation] = (folder / "run").glob("generation-*")
    return generation


def _write_manifest(generation: Path, manifest: dict[str, Any]) -> None:
    text = json.dumps(manifest, indent=1).encode()
    digest = xxhash.xxh3_128_hexdigest(text).encode()
    (generation / "manifest.json").write_bytes(text + b"\n" + digest + b"\n")


def _stored(generation: Path, manifest: dict[str, Any], name: str) -> NDArray[Any]:
    entry = manifest["arrays"][name]
    data = (generation / f"{name}.bin").read_bytes()
    return np.frombuffer(data, entry["dtype"]).reshape(entry["shape"])


def _put_stored(folder: Path, name: str, values: NDArray[Any]) -> None:
    generation = _generation(folder)
    manifest = _manifest(generation)
    data = np.ascontiguousarray(values).tobytes()
    (generation / f"{name}.bin").write_bytes(data)
    manifest["arrays"][name] |= {
        "dtype": values.dtype.str,
        "shape": list(values.shape),
        "xxh3": xxhash.xxh3_128_hexdigest(data),
    }
    _write_manifest(generation, manifest)


def _put_manifest(folder: Path, field: Sequence[str], value: object) -> None:
    generation = _generation(folder)
    manifest = _manifest(generation)
    set_field(manifest, field, value)
    _write_manifest(generation, manifest)


def _put_run(folder: Path, field: Sequence[str], value: object) -> None:
    from bigsvm.cli import runs

    put_field(folder / "run" / "run.json", field, value, runs._digest)


def _first_entry(path: Path) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    from bigsvm.one_vs_one.log import HEAD, RECORD

    data = path.read_bytes()
    record = np.frombuffer(data, RECORD, 1, HEAD.itemsize).copy()
    n, start = int(record["n_support"][0]), HEAD.itemsize + RECORD.itemsize
    return (
        record,
        np.frombuffer(data, "<i8", n, start),
        np.frombuffer(data, "<f8", n, start + 8 * n),
    )


def _put_entry(folder: Path, parts: dict[str, NDArray[Any]]) -> None:
    """Change the first entry of the log of pairs and make its hash fit."""
    from bigsvm.one_vs_one.log import HEAD

    path = folder / "run" / "pairs.log"
    data = path.read_bytes()
    length = HEAD.itemsize + int(np.frombuffer(data, HEAD, 1)["n_bytes"][0])
    record, rows, values = _first_entry(path)
    held = {"record": record, "rows": rows, "values": values} | parts
    body = b"".join(np.ascontiguousarray(part).tobytes() for part in held.values())
    fingerprint = json.dumps(_manifest(_generation(folder))["fingerprint"], sort_keys=True)
    seed = xxhash.xxh3_64_intdigest(fingerprint.encode())
    head = np.array([(len(body), xxhash.xxh3_64_intdigest(body, seed))], HEAD).tobytes()
    path.write_bytes(head + body + data[length:])


class CrowdSubject(CheckpointSubject):
    """A run that ended while several working sets of a crowd were solved side by side."""

    def __init__(self, folder: Path) -> None:
        words = ("=crowd", "--gamma", "0.1", "--checkpoint-every", "0.001")
        super().__init__(folder, title="crowd", arguments=words, steps=0)

    def _stop(self, words: Sequence[str | Path]) -> None:
        """Train until the first checkpoint that has several working sets."""
        from bigsvm.training.checkpoint import Checkpoint

        save = Checkpoint.save

        def save_and_stop(*given: Any) -> int:  # noqa: ANN401 (as `save`)
            number = save(*given)
            if len(given[1]["set_sizes"]) > 1:
                raise _StoppedError
            return number

        with mock.patch.object(Checkpoint, "save", save_and_stop), suppress(_StoppedError):
            fresh(words)
        if not (self.folder / "model").exists():
            (self.folder / "model").touch()  # which is removed before the run is resumed


class _StoppedError(Exception):
    """The run has come to the place where it is to stop."""


class RowsSubject(Subject):
    """Kernel rows on disk, from which a run goes on that was stopped after some steps."""

    name = "kernel rows on disk"
    _arguments = ("--gamma", "0.3", "--C", "2", "--working-set", "all", "--disk-cache", "10MB")

    def make(self) -> None:
        """Stop a run that has kernel rows on disk, and resume a copy of it."""
        from bigsvm.papers import costs

        # The rows are so short that computing them again is cheaper; here they are kept anyway.
        costs.WORTH_KEEPING = -1.0
        write_data(self.folder, ["="])
        fresh([*self.commands(self.folder)[0], "--max-iter", "40"])
        if not list((self.folder / "cache").iterdir()):
            raise RuntimeError("no kernel rows were kept on disk")
        _keep_expected(self)

    def commands(self, folder: Path, target: str = "") -> list[list[str | Path]]:
        """Resume, and predict."""
        training = ["train", folder / "data", folder / "model", *self._arguments, *TRAINING,
                    "--checkpoint", folder / "run", "--cache-dir", folder / "cache"]  # fmt: skip
        return [training, predicting(folder)]

    def outcome(self, folder: Path, ended: Sequence[Ended]) -> str:
        """Hold a converged model to the values that the undamaged run leads to."""
        return same_values(folder)

    def damages(self) -> Iterator[Damage]:
        """Change all rows that are kept."""
        row = np.linspace(0, 1, N_ROWS, dtype=np.float32)
        for kind, change in ARRAY_DAMAGES.items():
            with np.errstate(all="ignore"):
                same_length = len(change(row)) == len(row)
            if same_length and change(row).dtype == row.dtype:
                yield Damage("rows", kind, lambda folder, change=change: _put_rows(folder, change))


def _put_rows(folder: Path, change: Callable[[NDArray[Any]], NDArray[Any]]) -> None:
    """Change the rows in the file and make their hashes fit."""
    from bigsvm.papers.row_file import RowFile

    [path] = (folder / "cache").iterdir()
    valid_for = json.loads(path.read_bytes().split(b"\n")[2])
    n = valid_for["n_variables"]
    file = RowFile(
        folder / "cache", valid_for["fingerprint"], n_variables=n,
        capacity_bytes=path.stat().st_size,
    )  # fmt: skip
    row = np.empty(n, np.float32)
    for slot, variable in enumerate(file.owners().tolist()):
        if variable >= 0 and file.read(slot, variable, row):
            file.write(slot, variable, np.ascontiguousarray(change(row)))
    file.close()
