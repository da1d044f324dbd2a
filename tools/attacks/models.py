"""Models that are damaged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from attacks.child import fresh
from attacks.subjects import (
    MEMORY,
    NO_EFFECT,
    OTHER_DATA,
    TRAINING,
    Subject,
    model_damages,
    predicting,
    train_options,
    write_data,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from attacks.child import Ended
    from attacks.subjects import Damage


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

    def commands(self, folder: Path, target: str = "") -> list[list[str | Path]]:
        """Predict, describe, export, inspect."""
        words: list[list[str | Path]] = [
            predicting(folder),
            ["predict", folder / "data", folder / "model", "--memory", MEMORY],
            ["info", folder / "model", "--json"],
        ]
        if "crammer-singer" in self._arguments:
            words.append(["inspect", folder / "model", folder / "data"])
        return words

    def outcome(self, folder: Path, ended: Sequence[Ended]) -> str:
        """Compare decision values with those of before."""
        found, expected = (np.loadtxt(folder / name) for name in ("predicted", "expected"))
        if not np.isfinite(found).all():
            return "predictions are not finite"
        if found.shape == expected.shape and np.allclose(found, expected):
            return NO_EFFECT
        return OTHER_DATA

    def damages(self) -> Iterator[Damage]:
        """Walk the tensors, then the header."""
        yield from model_damages("", self.folder, "model")
