"""``run.json`` in a checkpoint directory: what is being trained, so that it resumes by itself."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import xxhash

from bigsvm import __version__
from bigsvm.budget import show_bytes
from bigsvm.cli.inputs import is_standard_input
from bigsvm.errors import CheckpointError
from bigsvm.estimators.names import gap_name
from bigsvm.files import replace_synced
from bigsvm.report.progress import duration
from bigsvm.report.resources import bytes_on_disk
from bigsvm.report.text import count, number
from bigsvm.training.result import StopReason

if TYPE_CHECKING:
    from pathlib import Path

    from bigsvm.estimators.parameters import TrainingParameters
    from bigsvm.report.describe import Lines

FORMAT_VERSION = 2
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
        Of `TrainingParameters`, as JSON holds them: no infinity, weights by label as pairs.
    """

    source: str
    model: str
    cache_dir: str | None = None
    zero_based: str = "auto"
    parameters: dict[str, Any] = field(default_factory=dict)

    def training_parameters(self, checkpoint: Path | None) -> TrainingParameters:
        """Build what `train_model` takes."""
        from bigsvm.estimators.parameters import TrainingParameters

        values = dict(self.parameters)
        weights = values.get("class_weight")
        if isinstance(weights, list):
            values["class_weight"] = {float(label): float(weight) for label, weight in weights}
        if values.get("max_seconds") is None:
            values["max_seconds"] = float("inf")
        return TrainingParameters(
            checkpoint=None if checkpoint is None else str(checkpoint),
            cache_dir=self.cache_dir,
            **values,
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
        record["xxh3"] = _digest(record)
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
            # In format 1 there was none.
            if version > 1 and record.pop("xxh3") != _digest({"format_version": version, **record}):
                raise ValueError("its content does not match its hash")
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


def _digest(record: dict[str, Any]) -> str:
    return xxhash.xxh3_128_hexdigest(json.dumps(record, sort_keys=True).encode())


def absolute(source: str) -> str:
    """Make a path absolute; a URL and ``-`` stay."""
    return source if "://" in source or is_standard_input(source) else os.path.abspath(source)


def resume_command(directory: Path, reason: StopReason | None = None) -> str:
    """Give the command that goes on with a run; without the limit of steps that ended it."""
    arguments = ["bigsvm", "train", "--resume", str(directory)]
    if reason is StopReason.MAX_ITER:  # they are counted from the first start
        arguments += ["--max-iter", "-1"]
    return shlex.join(arguments)


def run_record(directory: Path) -> dict[str, Any]:
    """Describe a checkpoint directory: what is trained, how far it is, how to go on.

    The run may be under way: nothing is locked, and the newest whole generation is described.
    """
    from bigsvm.training.checkpoint import newest_manifest

    run = Run.load(directory)
    manifest = newest_manifest(directory)
    progress = reason = None
    if manifest is not None:
        values = manifest["values"]
        progress = {"generation": manifest["generation"]}
        progress |= {
            name: values.get(name)
            for name in (
                *("n_sweeps", "phase", "rows_done", "n_iter", "seconds", "gap", "objective"),
                *("n_pairs", "n_finished"),
            )
        }
        if 0 <= run.parameters.get("max_iter", -1) <= values["n_iter"]:
            reason = StopReason.MAX_ITER
        progress |= {"fingerprint": manifest["fingerprint"]}
    return {
        "kind": "run",
        "path": str(directory),
        **asdict(run),
        "progress": progress,
        "bytes_on_disk": bytes_on_disk(directory),
        "resume": resume_command(directory, reason),
    }


def run_lines(directory: Path) -> Lines:
    """Describe a checkpoint directory to a person."""
    record = run_record(directory)
    progress = record["progress"]
    parameters = ", ".join(
        f"{name} {value}" for name, value in record["parameters"].items() if value is not None
    )
    lines: Lines = [
        ("run", record["path"]),
        ("data", record["source"]),
        ("model", record["model"]),
        ("parameters", parameters),
    ]
    if progress is None:
        lines += [("progress", "nothing saved yet")]
    else:
        pairs, gap = None, gap_name(record["parameters"]["formulation"])
        if progress["n_pairs"] is not None:
            pairs = f"{count(progress['n_finished'])} of {count(progress['n_pairs'])} done"
        lines += [
            ("checkpoint", f"generation {progress['generation']}"),
            ("pairs of classes", pairs),
            ("sweeps", f"{progress['n_sweeps']} complete"),
            (gap, f"{number(progress['gap'], 4)} (the best of complete sweeps)"),
            ("dual objective", number(progress["objective"], 10)),
            ("trained for", duration(progress["seconds"])),
        ]
    return [*lines, ("on disk", show_bytes(record["bytes_on_disk"])), ("resume", record["resume"])]
