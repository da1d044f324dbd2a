"""Results of fits in a folder, so that a killed cross-validation or search goes on.

DIR/lock                     held by the running process
DIR/selection.json           what the results belong to
DIR/fits/KEY.json            the result of one fit, written whole or not at all
DIR/models/KEY.*             models, or the point of a run of all folds, to start others from
DIR/runs/KEY/                checkpoint of the fit under way
"""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import xxhash

from bigsvm.errors import CheckpointError
from bigsvm.files import open_regular, parse_json, part_of, remove, replace_synced, try_lock
from bigsvm.fit.together import PointOfFits
from bigsvm.models import KernelExpansion
from bigsvm.training.result import KnownPoint, StopReason

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT_VERSION = 1
MOST_BYTES = 1 << 24
"""Largest file in bytes: room for the certificate of many classes."""


class FoldFit(NamedTuple):
    """What a fit of a fold has led to.

    Attributes
    ----------
    scores : dict of str to float
        At the rows that are tested.
    train_scores : dict of str to float
        At the rows that were trained on, if they are asked for.
    fit_seconds, score_seconds : float
    certificate : dict
        As `KernelExpansion.certificate`.
    """

    scores: dict[str, float]
    train_scores: dict[str, float]
    fit_seconds: float
    score_seconds: float
    certificate: dict[str, Any]

    @property
    def as_asked(self) -> bool:
        """Whether training ended as it was asked to: converged, or without a certificate."""
        reason = StopReason(self.certificate["stop_reason"])
        return bool(self.certificate["converged"]) or reason.is_uncertified


class Record:
    """The results of one cross-validation or search; use it as a context manager.

    Parameters
    ----------
    directory : path
        Made if absent; it must be on a local disk.
    belongs_to : mapping of str to str
        What the results belong to: data, folds, scoring, and parameters.

    Raises
    ------
    CheckpointError
        The folder has other content or results of something else, cannot be written, or another
        process is using it.
    """

    def __init__(self, directory: str | os.PathLike[str], belongs_to: Mapping[str, str]) -> None:
        self.directory = Path(directory)
        self._fits, self._runs = self.directory / "fits", self.directory / "runs"
        self._models = self.directory / "models"
        try:
            for name in ("zarr.json", "run.json"):
                if (self.directory / name).exists():
                    raise CheckpointError(
                        f"{self.directory} is a store, or the checkpoint of one fit; give another "
                        "directory"
                    )
            for folder in (self._fits, self._runs, self._models):
                folder.mkdir(parents=True, exist_ok=True)
            lock = try_lock(self.directory / "lock")
        except OSError as error:
            raise CheckpointError(f"cannot write to {self.directory}: {error}") from error
        if lock is None:
            raise CheckpointError(
                f"{self.directory} is in use by another process; wait for it, or stop it first"
            )
        self._lock = lock
        try:
            self._check(dict(belongs_to))
        except BaseException:
            self.close()
            raise

    def _check(self, belongs_to: dict[str, str]) -> None:
        """Refuse results that belong to something else."""
        path = self.directory / "selection.json"
        if not path.exists():
            _write(path, belongs_to)
            return
        earlier = _read(path)
        differ = sorted(
            name for name in {**earlier, **belongs_to} if earlier.get(name) != belongs_to.get(name)
        )
        if differ:
            told = ", ".join(
                f"{name} ({earlier.get(name)}, now {belongs_to.get(name)})" for name in differ
            )
            raise CheckpointError(
                f"{self.directory} has results of something else: {told}; give the same again, or "
                "another directory"
            )

    def close(self) -> None:
        """Give the folder up."""
        os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def result(self, key: str) -> FoldFit | None:
        """Return the result of a fit; None if it is not finished."""
        path = self._fits / f"{key}.json"
        if not path.exists():
            return None
        try:
            return FoldFit(**_read(path))
        except TypeError as error:
            raise _damaged(path, error) from error

    @staticmethod
    def key(parameters: Mapping[str, Any], **others: int) -> str:
        """Return the name of a fit, which its parameters, its fold and its rows decide."""
        words = [f"{name}={value!r}" for name, value in sorted({**parameters, **others}.items())]
        return xxhash.xxh3_64_hexdigest("\0".join(words).encode())

    def run_folder(self, key: str) -> str:
        """Return the folder for the checkpoint of a fit."""
        return str(self._runs / key)

    def has_run(self, key: str) -> bool:
        """Whether there is a checkpoint of a fit."""
        return (self._runs / key).exists()

    def model(self, key: str) -> KernelExpansion:
        """Read the model of a finished fit, which was added with it.

        Raises
        ------
        ModelError
        """
        return KernelExpansion.load(self._models / f"{key}.safetensors")

    def drop_model(self, key: str) -> None:
        """Remove the model of a fit, from which no other fit starts any more."""
        (self._models / f"{key}.safetensors").unlink(missing_ok=True)

    def point(self, key: str) -> PointOfFits | None:
        """Read where a run of all folds ended; None if that was not added.

        Raises
        ------
        CheckpointError
        """
        path = self._point_path(key)
        if not path.exists():
            return None
        try:
            with open_regular(path, follow_links=False) as file:
                found = np.load(file, allow_pickle=False)
                alpha, outputs, C = (found[name] for name in ("alpha", "outputs", "C"))
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise _damaged(path, error) from error
        return PointOfFits(KnownPoint(alpha, outputs, computed_here=False), float(C))

    def add_point(self, key: str, point: PointOfFits) -> None:
        """Keep where a run of all folds ended, until it is dropped."""
        path, known = self._point_path(key), point.known
        try:
            with part_of(path) as part, part.open("wb") as file:
                np.savez(file, alpha=known.alpha, outputs=known.outputs, C=point.C)
        except OSError as error:
            raise CheckpointError(f"cannot write {path}: {error}") from error

    def drop_point(self, key: str) -> None:
        """Remove a point from which no other run starts any more."""
        self._point_path(key).unlink(missing_ok=True)

    def _point_path(self, key: str) -> Path:
        return self._models / f"{key}.npz"

    def drop_run(self, key: str) -> None:
        """Remove the checkpoint of a run whose results have been added."""
        if self.has_run(key):
            remove(self._runs / key)

    def add(self, key: str, result: FoldFit, model: KernelExpansion | None = None) -> None:
        """Keep the result of a finished fit, whose checkpoint is no longer needed.

        Parameters
        ----------
        key : str
        result : FoldFit
        model : KernelExpansion, optional
            Kept too, until it is dropped.
        """
        if model is not None:
            model.save(self._models / f"{key}.safetensors")
        _write(self._fits / f"{key}.json", result._asdict())
        self.drop_run(key)


def _write(path: Path, values: dict[str, Any]) -> None:
    content = {"format_version": FORMAT_VERSION, "values": values}
    record = {**content, "xxh3": _digest(content)}
    try:
        replace_synced(path, json.dumps(record, indent=1).encode() + b"\n")
    except OSError as error:
        raise CheckpointError(f"cannot write {path}: {error}") from error


def _read(path: Path) -> dict[str, Any]:
    """Read a file that `_write` has written.

    Raises
    ------
    CheckpointError
        It is damaged, or from a newer version.
    """
    try:
        with open_regular(path, follow_links=False) as file:
            record = parse_json(file.read(MOST_BYTES))
        if not isinstance(record, dict):
            raise ValueError("it is no JSON object")
        if record.pop("xxh3", None) != _digest(record):
            raise ValueError("its content does not match its hash")
        if record["format_version"] > FORMAT_VERSION:
            raise CheckpointError(f"{path} is from a newer version of bigsvm; use that one")
        values: dict[str, Any] = record["values"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(path, error) from error
    return values


def _damaged(path: Path, error: Exception) -> CheckpointError:
    return CheckpointError(f"{path} is damaged ({error}); remove it, and the work is done again")


def _digest(record: dict[str, Any]) -> str:
    return xxhash.xxh3_128_hexdigest(json.dumps(record, sort_keys=True).encode())
