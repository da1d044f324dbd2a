"""Files whose values are damaged and whose hashes are made to fit: stores, models, checkpoints.

    python tools/reliability.py damage [--only store checkpoint …] [--share 0.1] [--seed 0]

Every array and every field that the manifests list is set to each value of `ARRAY_DAMAGES` or
`FIELD_DAMAGES`, alone, and the commands that read the file run in a child. A command may refuse
(exit code 2 and one line), take the values as data, or not be affected. Faults are tracebacks,
signals, hangs, more memory than the budget, and a model that is said to have converged and has not.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xxhash
from reliability_child import Ended, command, fresh

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import zarr
    from numpy.typing import NDArray

    from bigsvm.models import KernelExpansion

MEMORY = "60MB"
MEMORY_BYTES = 60_000_000
SECONDS = 60.0
"""A command takes a few seconds at most on a busy machine."""
LARGE = 1 << 30
N_ROWS = 300

REFUSED, NO_EFFECT, OTHER_DATA, FAULT = "refused", "no effect", "other data", "fault"
OUTCOMES = (REFUSED, NO_EFFECT, OTHER_DATA, FAULT)


def _one(value: float) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Set the entry in the middle to a value."""

    def damage(array: NDArray[Any]) -> NDArray[Any]:
        changed = _able_to_hold(array, value)
        if changed.size:
            changed.reshape(-1)[changed.size // 2] = value
        return changed

    return damage


def _all(value: float) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Set all entries to a value."""
    return lambda array: np.full_like(_able_to_hold(array, value), value)


def _able_to_hold(array: NDArray[Any], value: float) -> NDArray[Any]:
    """Copy an array, in float64 where its whole numbers cannot be the value."""
    return array.astype(np.float64) if array.dtype.kind in "iu" and value % 1 != 0 else array.copy()


def _other_type(array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind == "f":
        return np.nan_to_num(array).astype(np.int32)
    return array.astype(np.float32)


ARRAY_DAMAGES: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "empty": lambda array: array[:0],
    "half": lambda array: array[: len(array) // 2],
    "doubled": lambda array: np.concatenate([array, array]),
    "negative": lambda array: -array - 1,
    "minus one": lambda array: array - array.dtype.type(1),
    "2^30": _all(LARGE),
    "NaN": _all(float("nan")),
    "inf": _all(float("inf")),
    "other type": _other_type,
    "reversed": lambda array: array[::-1].copy(),
    "one negative": _one(-1),
    "one 2^30": _one(LARGE),
    "one NaN": _one(float("nan")),
    "one inf": _one(float("inf")),
}


def _deep(_: object) -> object:
    nested: list[Any] = []
    for _level in range(900):
        nested = [nested]
    return nested


def _number(change: Callable[[float], object]) -> Callable[[object], object]:
    """Change numbers, and the numbers in lists."""

    def damage(value: object) -> object:
        if isinstance(value, list):
            return [damage(item) for item in value]
        if isinstance(value, int | float) and not isinstance(value, bool):
            return change(value)
        return change(0)

    return damage


def _empty(value: object) -> object:
    return type(value)() if isinstance(value, str | list | dict) else None


def _half(value: object) -> object:
    if isinstance(value, str | list):
        return value[: len(value) // 2]
    if isinstance(value, dict):
        return dict(list(value.items())[: len(value) // 2])
    return _number(lambda number: number // 2)(value)


def _doubled(value: object) -> object:
    if isinstance(value, str | list):
        return value + value  # type: ignore[operator]
    return _number(lambda number: 2 * number)(value)


def _other(value: object) -> object:
    if isinstance(value, str):
        return 7
    if isinstance(value, dict):
        return list(value)
    if isinstance(value, list):
        return {str(i): item for i, item in enumerate(value)}
    return "seven"


FIELD_DAMAGES: dict[str, Callable[[Any], object]] = {
    "empty": _empty,
    "half": _half,
    "doubled": _doubled,
    "negative": _number(lambda number: -number - 1),
    "2^30": _number(lambda _: LARGE),
    "10^400": _number(lambda _: 10**400),
    "NaN": _number(lambda _: float("nan")),
    "inf": _number(lambda _: float("inf")),
    "other type": _other,
    "deep": _deep,
}


class Damage(NamedTuple):
    """One change of one thing: `apply` makes it in a copy of the subject's folder."""

    target: str
    kind: str
    apply: Callable[[Path], None]


class Subject(ABC):
    """Files of one kind, what can be changed in them, and who reads them.

    Parameters
    ----------
    folder : Path
        For the files; copied for each damage.
    """

    name: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def make(self) -> None:
        """Write the files, and run all commands once."""

    @abstractmethod
    def damages(self) -> Iterator[Damage]:
        """Yield every change."""

    @abstractmethod
    def commands(self, folder: Path) -> list[list[str | Path]]:
        """Command lines that read the files of a folder."""

    @abstractmethod
    def outcome(self, folder: Path) -> str:
        """Say what the commands made of the data: `NO_EFFECT`, `OTHER_DATA`, or what is wrong."""

    def examine(self, damage: Damage, folder: Path) -> tuple[str, str]:
        """Run the commands on a damaged copy; the outcome, and what is wrong in it."""
        copy = folder / "copy"
        shutil.copytree(self.folder, copy, symlinks=True)
        try:
            damage.apply(copy)
            ended = [(words, command(words, seconds=SECONDS)) for words in self.commands(copy)]
            for words, end in ended:
                fault = end.fault(memory=MEMORY_BYTES)
                if fault:
                    return FAULT, f"{words[0]}: {fault}"
            if any(end.code for _, end in ended):
                return REFUSED, ""
            found = self.outcome(copy)
            return (found, "") if found in OUTCOMES else (FAULT, found)
        finally:
            shutil.rmtree(copy)


def _array_damages(
    target: str, array: NDArray[Any], put: Callable[[Path, NDArray[Any]], None]
) -> Iterator[Damage]:
    for kind, change in ARRAY_DAMAGES.items():
        with np.errstate(all="ignore"):
            changed = change(array)
        if changed.dtype == array.dtype and np.array_equal(changed, array, equal_nan=True):
            continue
        yield Damage(target, kind, lambda folder, changed=changed: put(folder, changed))


def _field_damages(
    target: str, value: object, put: Callable[[Path, object], None]
) -> Iterator[Damage]:
    for kind, change in FIELD_DAMAGES.items():
        changed = change(value)
        if type(changed) is type(value) and changed == value:
            continue
        yield Damage(target, kind, lambda folder, changed=changed: put(folder, changed))


# -- stores --------------------------------------------------------------------------------------


def clouds(n_classes: int = 2, *, n_rows: int = N_ROWS, n_columns: int = 6) -> tuple[Any, Any]:
    """Rows of overlapping clouds and their labels 0, 1, …."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, n_classes, n_rows).astype(np.float64)
    centres = rng.normal(size=(n_classes, n_columns)) * 1.2
    rows = rng.normal(size=(n_rows, n_columns)) + centres[labels.astype(int)]
    return rows.astype(np.float32), labels


TRAINING = ("--memory", MEMORY, "--threads", "1", "--max-time", "10", "--quiet")


class StoreSubject(Subject):
    """A store with weights: trained on, predicted for and described."""

    def __init__(self, folder: Path, *, layout: str) -> None:
        super().__init__(folder)
        self.name = f"store, {layout}"
        self._layout = layout

    def make(self) -> None:
        """Write the store, and a model of it."""
        import scipy.sparse as sp

        import bigsvm

        rows, labels = clouds()
        if self._layout == "csr":
            rows = sp.csr_array(np.where(np.abs(rows) > 0.8, rows, 0))
        weights = np.linspace(0.5, 2, N_ROWS)
        plain = self.folder / "plain.zarr"
        bigsvm.write_store(plain, rows, labels, sample_weight=weights)
        fresh(["scale", plain, self.folder / "store", "--method", "maxabs"])
        shutil.rmtree(plain)
        for words in self.commands(self.folder):
            fresh(words)
        (self.folder / "trained").rename(self.folder / "given")

    def commands(self, folder: Path) -> list[list[str | Path]]:
        """Train, predict, describe."""
        model = folder / "given" if (folder / "given").exists() else folder / "trained"
        return [
            [
                "train",
                folder / "store",
                folder / "trained",
                "--C",
                "2",
                "--gamma",
                "0.3",
                *TRAINING,
            ],
            ["predict", folder / "store", model, "-o", folder / "predicted", "--memory", MEMORY],
            ["info", folder / "store", "--json"],
        ]

    def outcome(self, folder: Path) -> str:
        """Hold a converged model to the optimality conditions, computed from the arrays."""
        import zarr

        from bigsvm.models import KernelExpansion

        model = KernelExpansion.load(folder / "trained")
        if model.rule is not None or not model.certificate["converged"]:
            return OTHER_DATA
        group = zarr.open_group(folder / "store", mode="r")
        found = group["X"]
        rows = np.asarray(found) if isinstance(found, zarr.Array) else _csr(found)
        labels, weights = np.asarray(group["y"]), np.asarray(group["sample_weight"])
        gap = kkt_gap(model, rows.astype(np.float64), labels, 2.0 * weights)
        return OTHER_DATA if gap < 1e-2 else f"converged with a KKT gap of {gap:.3g}"

    def damages(self) -> Iterator[Damage]:
        """Walk the manifest, then the attributes."""
        import zarr

        group = zarr.open_group(self.folder / "store", mode="r")
        record = _attributes(self.folder)
        for name in record["manifest"]:
            array = np.asarray(group[name])
            yield from _array_damages(
                name, array, lambda folder, changed, name=name: _put_array(folder, name, changed)
            )
        for field, value in record.items():
            yield from _field_damages(
                f"attribute {field}",
                value,
                lambda folder, changed, field=field: _put_attributes(folder, {field: changed}),
            )


def kkt_gap(
    model: KernelExpansion,
    rows: NDArray[np.float64],
    labels: NDArray[np.float64],
    upper: NDArray[np.float64],
) -> float:
    """KKT gap of a C-SVC with the rbf kernel, infinite where it is not feasible (float64).

    Parameters
    ----------
    model : KernelExpansion
    rows : (n, d) float64
    labels : (n,) float64
    upper : (n,) float64
        Upper bound of each alpha.
    """
    signs = np.where(labels == model.classes[1], 1.0, -1.0)
    beta = np.zeros(len(labels))
    beta[model.support] = model.coefficients
    alpha = signs * beta
    slack = 1e-6 * max(upper.max(), 1)
    if (alpha < -slack).any() or (alpha > upper + slack).any():
        return float("inf")
    if abs(beta.sum()) > 1e-6 * max(np.abs(beta).sum(), 1):
        return float("inf")
    squares = (rows**2).sum(1)
    distances = squares[:, None] + squares - 2 * rows @ rows.T
    outputs = np.exp(-model.kernel.gamma * np.maximum(distances, 0)) @ beta
    up = np.where(signs > 0, alpha < upper - slack, alpha > slack) & (upper > 0)
    low = np.where(signs > 0, alpha > slack, alpha < upper - slack) & (upper > 0)
    if not up.any() or not low.any():
        return 0.0
    scores = signs - outputs
    return float(scores[up].max() - scores[low].min())


def _csr(group: zarr.Group) -> NDArray[Any]:
    import scipy.sparse as sp

    three = tuple(np.asarray(group[name]) for name in ("data", "indices", "indptr"))
    return sp.csr_array(three, shape=tuple(group.attrs["shape"])).toarray()


def _attributes(folder: Path) -> dict[str, Any]:
    from bigsvm.data import schema

    content = json.loads((folder / "store" / "zarr.json").read_text())
    record = content["attributes"][schema.KEY]
    return {key: value for key, value in record.items() if key not in ("checksum", "complete")}


def _put_attributes(folder: Path, changes: dict[str, Any]) -> None:
    """Change attributes and make the checksums fit."""
    from bigsvm.data import schema

    file = folder / "store" / "zarr.json"
    content = json.loads(file.read_text())
    record = content["attributes"][schema.KEY]
    record.update(changes)
    if not {"fingerprint", "rows_fingerprint"} & set(changes):
        # A record that makes no sense has no fingerprint either.
        with contextlib.suppress(Exception):
            record["fingerprint"], record["rows_fingerprint"] = schema.fingerprints(
                int(record["n_rows"]), int(record["n_columns"]), record["dtype"], record["layout"],
                {name: tuple(hashes) for name, hashes in record["manifest"].items()},
            )  # fmt: skip
    record["checksum"] = schema.checksum(record)
    file.write_text(json.dumps(content))


def _put_array(folder: Path, name: str, values: NDArray[Any]) -> None:
    """Write an array of the store again, in the chunks of before, and make the hashes fit."""
    import zarr

    from bigsvm.data import arrays, schema

    group = zarr.open_group(folder / "store", mode="a")
    chunk_rows = group[name].chunks[0]
    del group[name]
    spec = schema.ArraySpec(values.shape, values.dtype, chunk_rows)
    writer = arrays.ArrayWriter(group, name, spec, shard_bytes=1 << 20)
    writer.append(values)
    manifest = _attributes(folder)["manifest"]
    manifest[name] = list(writer.finish())
    _put_attributes(folder, {"manifest": manifest})


# -- models --------------------------------------------------------------------------------------


class ModelSubject(Subject):
    """A model: predicted with, described, exported and inspected."""

    def __init__(self, folder: Path, *, title: str, arguments: Sequence[str]) -> None:
        super().__init__(folder)
        self.name = f"model, {title}"
        self._arguments = arguments

    def make(self) -> None:
        """Train the model, and run all commands once."""
        write_data(self.folder, self._arguments)
        data = self.folder / "data"
        fresh(["train", data, self.folder / "model", *_options(self._arguments), *TRAINING])
        fresh(self.commands(self.folder)[0])
        (self.folder / "predicted").rename(self.folder / "expected")

    def commands(self, folder: Path) -> list[list[str | Path]]:
        """Predict, describe, export, inspect."""
        words: list[list[str | Path]] = [
            ["predict", folder / "data", folder / "model", "-o", folder / "predicted",
             "--decision-function", "--memory", MEMORY],
            ["predict", folder / "data", folder / "model", "--memory", MEMORY],
            ["info", folder / "model", "--json"],
        ]  # fmt: skip
        if "crammer-singer" in self._arguments:
            words.append(["inspect", folder / "model", folder / "data"])
        return words

    def outcome(self, folder: Path) -> str:
        """Compare decision values with those of before."""
        found, expected = (np.loadtxt(folder / name) for name in ("predicted", "expected"))
        if not np.isfinite(found).all():
            return "predictions are not finite"
        if found.shape == expected.shape and np.allclose(found, expected):
            return NO_EFFECT
        return OTHER_DATA

    def damages(self) -> Iterator[Damage]:
        """Walk the tensors, then the header."""
        tensors, header = _read_tensors(self.folder)
        for name, tensor in tensors.items():
            yield from _array_damages(
                name, tensor,
                lambda folder, changed, name=name: _put_model(folder, tensors={name: changed}),
            )  # fmt: skip
        for field, value in _leaves(header):
            yield from _field_damages(
                f"header {'.'.join(field)}", value,
                lambda folder, changed, field=field: _put_model(folder, field=field, value=changed),
            )  # fmt: skip


def _leaves(record: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[Any, Any]]:
    """Yield the fields of nested dictionaries, the dictionaries too."""
    for key, value in record.items():
        yield (*above, key), value
        if isinstance(value, dict):
            yield from _leaves(value, (*above, key))


def _set(record: dict[str, Any], field: Sequence[str], value: object) -> None:
    for key in field[:-1]:
        record = record[key]
    record[field[-1]] = value


def _read_tensors(folder: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    import safetensors

    with safetensors.safe_open(str(folder / "model"), "numpy") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}
        return tensors, json.loads(file.metadata()["bigsvm"])


def _put_model(
    folder: Path,
    *,
    tensors: dict[str, NDArray[Any]] | None = None,
    field: Sequence[str] = (),
    value: object = None,
) -> None:
    """Change tensors or a field of the header and make the hash fit."""
    import safetensors.numpy

    from bigsvm.models import files

    held, header = _read_tensors(folder)
    held |= tensors or {}
    if field:
        _set(header, field, value)
    text = json.dumps(header, sort_keys=True)
    held = {name: np.ascontiguousarray(tensor) for name, tensor in held.items()}
    metadata = {"bigsvm": text, "xxh3_128": files._digest(text, held)}
    safetensors.numpy.save_file(held, folder / "model", metadata)


# -- checkpoints ---------------------------------------------------------------------------------


def write_data(folder: Path, arguments: Sequence[str]) -> None:
    """Write the store ``data`` that a formulation is trained on.

    `arguments` are those of ``bigsvm train``; a first word ``=NAME`` chooses other data than rows
    of two clouds: ``=classes`` three, ``=large`` more rows of three, ``=many`` more rows of two,
    ``=targets`` numbers, ``=scaled``, ``=sparse``.
    """
    import scipy.sparse as sp

    import bigsvm

    kind = arguments[0][1:] if arguments and arguments[0].startswith("=") else ""
    n_rows = {"large": 4000, "many": 2500}.get(kind, N_ROWS)
    rows, labels = clouds(3 if kind in ("classes", "large") else 2, n_rows=n_rows)
    if kind == "targets":
        labels = rows[:, 0] + 0.1 * np.random.default_rng(1).normal(size=len(rows))
    if kind == "sparse":
        rows = sp.csr_array(np.where(np.abs(rows) > 0.8, rows, 0))
    bigsvm.write_store(folder / "data", rows, labels)
    if kind == "scaled":
        (folder / "data").rename(folder / "plain")
        fresh(["scale", folder / "plain", folder / "data", "--method", "standard"])
        shutil.rmtree(folder / "plain")


def _options(arguments: Sequence[str]) -> list[str]:
    """Leave out the word that chooses the data."""
    return [word for word in arguments if not word.startswith("=")]


def same_values(folder: Path) -> str:
    """Compare the values of a converged model with those that were expected."""
    from bigsvm.models import KernelExpansion

    model = KernelExpansion.load(folder / "model")
    found, expected = (np.loadtxt(folder / name) for name in ("predicted", "expected"))
    if not model.certificate["converged"]:
        return OTHER_DATA
    if found.shape != expected.shape:
        return "converged, with another number of functions"
    scale = max(1.0, float(np.abs(expected).max()))
    off = float(np.abs(found - expected).max()) / scale
    if off < 1e-6:
        return NO_EFFECT
    return OTHER_DATA if off < 0.03 else f"converged, but values are off by {off:.3g}"


class CheckpointSubject(Subject):
    """A run that was stopped after some steps, and is resumed."""

    def __init__(self, folder: Path, *, title: str, arguments: Sequence[str], steps: int) -> None:
        super().__init__(folder)
        self.name = f"checkpoint, {title}"
        self._arguments, self._steps = arguments, steps

    def make(self) -> None:
        """Stop a run, resume a copy of it, and keep the newest generation only."""
        write_data(self.folder, self._arguments)
        options = [*_options(self._arguments), *TRAINING]
        run = self.folder / "run"
        fresh(["train", self.folder / "data", self.folder / "model", *options,
               "--checkpoint", run, "--max-iter", str(self._steps)])  # fmt: skip
        generations = sorted(run.glob("generation-*"))
        if not generations:
            raise RuntimeError(f"{self.name}: nothing was saved")
        for path in generations[:-1]:
            shutil.rmtree(path)
        (self.folder / "model").unlink()
        copy = self.folder.parent / f"{self.folder.name}-resumed"
        shutil.copytree(self.folder, copy)
        for words in self.commands(copy):
            fresh(words)
        (copy / "predicted").rename(self.folder / "expected")
        shutil.rmtree(copy)

    def commands(self, folder: Path) -> list[list[str | Path]]:
        """Resume as the same command with the same checkpoint, which knows no other paths."""
        return [
            ["train", folder / "data", folder / "model", *_options(self._arguments), *TRAINING,
             "--checkpoint", folder / "run"],
            ["predict", folder / "data", folder / "model", "-o", folder / "predicted",
             "--decision-function", "--memory", MEMORY],
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
            yield from _array_damages(
                name, _stored(generation, manifest, name),
                lambda folder, changed, name=name: _put_stored(folder, name, changed),
            )  # fmt: skip
        for field, value in _leaves(manifest):
            if field[0] != "fingerprint":
                yield from _field_damages(
                    f"manifest {'.'.join(field)}", value,
                    lambda folder, changed, field=field: _put_manifest(folder, field, changed),
                )  # fmt: skip
        yield from self._log_damages()
        record = json.loads((self.folder / "run" / "run.json").read_text())
        for field, value in _leaves(record):
            yield from _field_damages(
                f"run.json {'.'.join(field)}", value,
                lambda folder, changed, field=field: _put_run(folder, field, changed),
            )  # fmt: skip

    def _log_damages(self) -> Iterator[Damage]:
        from bigsvm.training.pair_log import RECORD

        path = self.folder / "run" / "pairs.log"
        if not path.exists():
            return
        record, rows, values = _first_entry(path)
        for part, array in (("rows", rows), ("values", values)):
            yield from _array_damages(
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
    _set(manifest, field, value)
    _write_manifest(generation, manifest)


def _put_run(folder: Path, field: Sequence[str], value: object) -> None:
    from bigsvm.cli import runs

    path = folder / "run" / "run.json"
    record = json.loads(path.read_text())
    _set(record, field, value)
    if field[0] != "xxh3":
        record.pop("xxh3", None)
        record["xxh3"] = runs._digest(record)
    path.write_text(json.dumps(record))


def _first_entry(path: Path) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    from bigsvm.training.pair_log import HEAD, RECORD

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
    from bigsvm.training.pair_log import HEAD

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
        from bigsvm.cache import costs

        # The rows are so short that computing them again is cheaper; here they are kept anyway.
        costs.WORTH_KEEPING = -1.0
        write_data(self.folder, ["="])
        fresh([*self.commands(self.folder)[0], "--max-iter", "40"])
        if not list((self.folder / "cache").iterdir()):
            raise RuntimeError("no kernel rows were kept on disk")
        (self.folder / "model").unlink()
        copy = self.folder.parent / f"{self.folder.name}-resumed"
        shutil.copytree(self.folder, copy)
        for words in self.commands(copy):
            fresh(words)
        (copy / "predicted").rename(self.folder / "expected")
        shutil.rmtree(copy)

    def commands(self, folder: Path) -> list[list[str | Path]]:
        """Resume, and predict."""
        return [
            ["train", folder / "data", folder / "model", *self._arguments, *TRAINING,
             "--checkpoint", folder / "run", "--cache-dir", folder / "cache"],
            ["predict", folder / "data", folder / "model", "-o", folder / "predicted",
             "--decision-function", "--memory", MEMORY],
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
    from bigsvm.cache.row_file import RowFile

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


# -- the table -----------------------------------------------------------------------------------

MODELS = {
    "dense": ("=", "--C", "2", "--gamma", "0.3"),
    "sparse": ("=sparse", "--C", "2", "--gamma", "0.3"),
    "scaled, calibrated": ("=scaled", "--calibration", "isotonic"),
    "linear": ("=", "--kernel", "linear"),
    "three classes, pairs": ("=classes", "--gamma", "0.3"),
    "three classes, each against the rest": ("=classes", "--gamma", "0.3", "--multiclass", "ovr"),
    "crammer-singer": ("=classes", "--formulation", "crammer-singer", "--gamma", "0.3"),
    "regression": ("=targets", "--formulation", "eps-svr", "--gamma", "0.3"),
    "one class": ("=", "--formulation", "one-class", "--nu", "0.2", "--gamma", "0.3"),
}
_RBF = ("--gamma", "0.3")
CHECKPOINTS: dict[str, tuple[tuple[str, ...], int]] = {
    "c-svc": (("=", *_RBF, "--C", "2"), 40),
    "c-svc, all rows": (("=", *_RBF, "--C", "2", "--working-set", "all"), 40),
    "squared hinge": (("=", *_RBF, "--loss", "squared_hinge"), 40),
    "nu-svc": (("=", *_RBF, "--formulation", "nu-svc", "--nu", "0.3"), 40),
    "eps-svr": (("=targets", *_RBF, "--formulation", "eps-svr"), 40),
    "nu-svr": (("=targets", *_RBF, "--formulation", "nu-svr"), 40),
    "one-class": (("=", *_RBF, "--formulation", "one-class", "--nu", "0.3"), 10),
    "l2-svc, search": (("=", *_RBF, "--formulation", "l2-svc"), 20),
    "l2-svc, sweeps": (("=many", *_RBF, "--formulation", "l2-svc", "--C", "4"), 2000),
    "l2-one-class": (("=", *_RBF, "--formulation", "l2-one-class"), 20),
    "small pairs": (("=classes", *_RBF), 60),
    "pairs": (("=large", *_RBF), 900),
    "each against the rest": (("=classes", *_RBF, "--multiclass", "ovr"), 60),
    "crammer-singer": (("=classes", *_RBF, "--formulation", "crammer-singer"), 60),
}
"""Arguments, and the steps after which the run is stopped."""


def subjects(folder: Path) -> Iterator[Subject]:
    """Yield all subjects, each with a folder of its own."""

    def own() -> Path:
        return Path(tempfile.mkdtemp(dir=folder))

    for layout in ("dense", "csr"):
        yield StoreSubject(own(), layout=layout)
    for title, arguments in MODELS.items():
        yield ModelSubject(own(), title=title, arguments=arguments)
    for title, (words, steps) in CHECKPOINTS.items():
        yield CheckpointSubject(own(), title=title, arguments=words, steps=steps)
    yield RowsSubject(own())


class Table:
    """Outcomes by subject and kind of damage, and the faults."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = defaultdict(Counter)
        self.faults: list[str] = []

    def add(self, subject: str, damage: Damage, outcome: str, detail: str) -> None:
        """Count one outcome."""
        self._counts[subject][outcome] += 1
        if outcome == FAULT:
            self.faults.append(f"{subject}: {damage.target}, {damage.kind}: {detail}")

    def lines(self) -> list[str]:
        """List the table, then the faults."""
        width = max(map(len, self._counts), default=10)
        lines = [f"{'':{width}}  " + "  ".join(f"{name:>10}" for name in OUTCOMES)]
        for subject, counts in self._counts.items():
            lines.append(
                f"{subject:{width}}  " + "  ".join(f"{counts[name]:10}" for name in OUTCOMES)
            )
        return [*lines, "", *self.faults]


def main(argv: Sequence[str]) -> int:
    """Print the table; the exit code says whether there is a fault."""
    parser = argparse.ArgumentParser(prog="reliability.py damage", description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="words in the names of subjects")
    parser.add_argument("--share", type=float, default=1.0, help="of the damages, at random")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    chance, table = random.Random(options.seed), Table()
    with tempfile.TemporaryDirectory() as name:
        for subject in subjects(Path(name)):
            if options.only and not any(word in subject.name for word in options.only):
                continue
            subject.make()
            for damage in subject.damages():
                if chance.random() >= options.share:
                    continue
                outcome, detail = subject.examine(damage, Path(name))
                table.add(subject.name, damage, outcome, detail)
                if outcome == FAULT:
                    print(table.faults[-1], flush=True)
            print(f"-- {subject.name}: done", flush=True)
    print("\n".join(table.lines()))
    return int(bool(table.faults))
