"""Checkpoints and kernel rows on disk that are damaged."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash
from attacks.child import command, fresh
from attacks.subjects import (
    ARRAY_DAMAGES,
    FAULT,
    LARGE,
    MEMORY,
    MEMORY_BYTES,
    N_ROWS,
    OUTCOMES,
    REFUSED,
    SECONDS,
    TRAINING,
    Damage,
    Subject,
    array_damages,
    field_damages,
    leaves,
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
        fresh(["train", self.folder / "data", self.folder / "model", *options,
               "--checkpoint", run, "--max-iter", str(self._steps)])  # fmt: skip
        generations = sorted(run.glob("generation-*"))
        if not generations:
            raise RuntimeError(f"{self.name}: nothing was saved")
        for path in generations[:-1]:
            shutil.rmtree(path)
        _keep_expected(self)

    def commands(self, folder: Path) -> list[list[str | Path]]:
        """Resume as the same command with the same checkpoint, which knows no other paths."""
        return [
            ["train", folder / "data", folder / "model", *train_options(self._arguments), *TRAINING,
             "--checkpoint", folder / "run"],
            ["predict", folder / "data", folder / "model", "-o", folder / "predicted",
             "--overwrite", "--decision-function", "--memory", MEMORY],
        ]  # fmt: skip

    def examine(self, damage: Damage, folder: Path) -> tuple[str, str]:
        """Resume only; predict where that has written a model."""
        copy = folder / "copy"
        shutil.copytree(self.folder, copy, symlinks=True)
        try:
            for field, name in (("source", "data"), ("model", "model")):
                _put_run(copy, (field,), str(copy / name))
            damage.apply(copy)
            words = self.commands(copy)
            if damage.target.startswith("run.json"):
                words[0] = ["train", "--resume", copy / "run", "--max-iter", "-1"]
            training = command(words[0], seconds=SECONDS)
            fault = training.fault(memory=MEMORY_BYTES)
            if fault:
                return FAULT, f"train: {fault}"
            if training.code:
                if (copy / "model").exists():
                    return FAULT, "refused, and a model was written"
                return REFUSED, ""
            return self._judged(words[1], copy, training)
        finally:
            shutil.rmtree(copy)

    def _judged(
        self, predict: Sequence[str | Path], copy: Path, training: Ended
    ) -> tuple[str, str]:
        if not (copy / "model").exists():
            return FAULT, "exit code 0 without a model"
        predicting = command(predict, seconds=SECONDS)
        if predicting.code:
            return FAULT, f"the model cannot be used: {predicting.err.strip()[-100:]}"
        found = self.outcome(copy)
        return (found, "") if found in OUTCOMES else (FAULT, found)

    def outcome(self, folder: Path) -> str:
        """Hold a converged model to the values that the undamaged run leads to."""
        return same_values(folder)

    def damages(self) -> Iterator[Damage]:
        """Walk the manifest of the generation, the log of pairs and the record of the run."""
        [generation] = sorted((self.folder / "run").glob("generation-*"))
        manifest = _manifest(generation)
        for name in manifest["arrays"]:
            yield from array_damages(
                name, _stored(generation, manifest, name),
                lambda folder, changed, name=name: _put_stored(folder, name, changed),
            )  # fmt: skip
        for field, value in leaves(manifest):
            if field[0] != "fingerprint":
                yield from field_damages(
                    f"manifest {'.'.join(field)}", value,
                    lambda folder, changed, field=field: _put_manifest(folder, field, changed),
                )  # fmt: skip
        yield from self._log_damages()
        record = json.loads((self.folder / "run" / "run.json").read_text())
        for field, value in leaves(record):
            yield from field_damages(
                f"run.json {'.'.join(field)}", value,
                lambda folder, changed, field=field: _put_run(folder, field, changed),
            )  # fmt: skip

    def _log_damages(self) -> Iterator[Damage]:
        from bigsvm.one_vs_one.log import RECORD

        path = self.folder / "run" / "pairs.log"
        if not path.exists():
            return
        record, rows, values = _first_entry(path)
        for part, array in (("rows", rows), ("values", values)):
            yield from array_damages(
                f"pairs.log {part}", array,
                lambda folder, changed, part=part: _put_entry(folder, {part: changed}),
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

    path = folder / "run" / "run.json"
    record = json.loads(path.read_text())
    set_field(record, field, value)
    if field[0] != "xxh3":
        record.pop("xxh3", None)
        record["xxh3"] = runs._digest(record)
    path.write_text(json.dumps(record))


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

    def commands(self, folder: Path) -> list[list[str | Path]]:
        """Resume, and predict."""
        return [
            ["train", folder / "data", folder / "model", *self._arguments, *TRAINING,
             "--checkpoint", folder / "run", "--cache-dir", folder / "cache"],
            ["predict", folder / "data", folder / "model", "-o", folder / "predicted",
             "--overwrite", "--decision-function", "--memory", MEMORY],
        ]  # fmt: skip

    def outcome(self, folder: Path) -> str:
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
