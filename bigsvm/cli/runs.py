"""``run.json`` in a checkpoint directory: what is being trained, so that it resumes by itself."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from bigsvm import __version__
from bigsvm.errors import CheckpointError
from bigsvm.files import replace_synced

if TYPE_CHECKING:
    from pathlib import Path

    from bigsvm.estimators.fitting import ClassifierParameters

FORMAT_VERSION = 1
NAME = "run.json"


@dataclass(frozen=True, kw_only=True)
class Run:
    """One call of ``bigsvm train``, in plain values.

    Attributes
    ----------
    source : str
        Absolute path of a store or of LIBSVM text, or a URL.
    model : str
        Absolute path of the model to be written.
    cache_dir : str or None
    zero_based : str
        Of LIBSVM text.
    parameters : dict
        Of `ClassifierParameters`, as JSON holds them: no infinity, weights by label as pairs.
    """

    source: str
    model: str
    cache_dir: str | None = None
    zero_based: str = "auto"
    parameters: dict[str, Any] = field(default_factory=dict)

    def classifier_parameters(self, checkpoint: Path | None) -> ClassifierParameters:
        """Build what `fit_classifier` takes."""
        from bigsvm.estimators.fitting import ClassifierParameters

        values = dict(self.parameters)
        weights = values.get("class_weight")
        if isinstance(weights, list):
            values["class_weight"] = {float(label): float(weight) for label, weight in weights}
        if values.get("max_seconds") is None:
            values["max_seconds"] = float("inf")
        return ClassifierParameters(
            checkpoint=None if checkpoint is None else str(checkpoint), **values
        )

    def updated(self, given: dict[str, Any]) -> Run:
        """Build the same run with some parameters replaced."""
        fields = {name: given.pop(name) for name in ("cache_dir", "zero_based") if name in given}
        return replace(self, **fields, parameters={**self.parameters, **given})

    def save(self, directory: Path) -> None:
        """Write it to a checkpoint directory, whole or not at all."""
        record = {
            "format_version": FORMAT_VERSION,
            "bigsvm": __version__,
            "source": self.source,
            "model": self.model,
            "cache_dir": self.cache_dir,
            "zero_based": self.zero_based,
            "parameters": self.parameters,
        }
        try:
            replace_synced(directory / NAME, json.dumps(record, indent=1).encode() + b"\n")
        except OSError as error:
            raise CheckpointError(f"cannot write {directory / NAME}: {error}") from error

    @classmethod
    def load(cls, directory: Path) -> Run:
        """Read the run of a checkpoint directory.

        Raises
        ------
        CheckpointError
            There is none, it is damaged, or it was written by a newer version.
        """
        path = directory / NAME
        try:
            record = json.loads(path.read_bytes())
            version = record.pop("format_version")
            if version > FORMAT_VERSION:
                raise CheckpointError(
                    f"{path} has format {version}, newer than {FORMAT_VERSION}; resume with bigsvm "
                    f"{record.get('bigsvm')}"
                )
            record.pop("bigsvm")
            return cls(**record)
        except FileNotFoundError:
            raise CheckpointError(
                f"{directory} is not the checkpoint of a `bigsvm train`: it has no {NAME}"
            ) from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(
                f"{path} is damaged ({error}); give the whole command again with --checkpoint "
                f"{directory}"
            ) from error


def absolute(source: str) -> str:
    """Make a path absolute; a URL and ``-`` stay."""
    return source if "://" in source or source == "-" else os.path.abspath(source)


def run_record(directory: Path) -> dict[str, Any]:
    """Describe a checkpoint directory: what is trained, and how far it is."""
    run = Run.load(directory)
    return {"kind": "run", "path": str(directory), **asdict(run)}


def run_lines(directory: Path) -> list[tuple[str, object]]:
    """Describe a checkpoint directory to a person."""
    record = run_record(directory)
    return [("run", record["path"]), ("data", record["source"]), ("model", record["model"])]
