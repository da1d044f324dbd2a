"""Models that are damaged."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
from attacks.child import fresh
from attacks.subjects import (
    MEMORY,
    NO_EFFECT,
    OTHER_DATA,
    TRAINING,
    Subject,
    array_damages,
    field_damages,
    leaves,
    set_field,
    train_options,
    write_data,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from attacks.subjects import Damage
    from numpy.typing import NDArray


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
        fresh(["train", data, self.folder / "model", *train_options(self._arguments), *TRAINING])
        fresh(self.commands(self.folder)[0])
        (self.folder / "predicted").rename(self.folder / "expected")

    def commands(self, folder: Path) -> list[list[str | Path]]:
        """Predict, describe, export, inspect."""
        words: list[list[str | Path]] = [
            ["predict", folder / "data", folder / "model", "-o", folder / "predicted",
             "--overwrite", "--decision-function", "--memory", MEMORY],
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
            yield from array_damages(
                name, tensor,
                lambda folder, changed, name=name: _put_model(folder, tensors={name: changed}),
            )  # fmt: skip
        for field, value in leaves(header):
            yield from field_damages(
                f"header {'.'.join(field)}", value,
                lambda folder, changed, field=field: _put_model(folder, field=field, value=changed),
            )  # fmt: skip


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
        set_field(header, field, value)
    text = json.dumps(header, sort_keys=True)
    held = {name: np.ascontiguousarray(tensor) for name, tensor in held.items()}
    metadata = {"bigsvm": text, "xxh3_128": files.digest_of_tensors(text, held)}
    safetensors.numpy.save_file(held, folder / "model", metadata)
