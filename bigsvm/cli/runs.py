"""``run.json`` in a checkpoint directory: what is being trained, so that it resumes by itself."""

from __future__ import annotations

import json
import os
import shlex
import stat
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xxhash

from bigsvm.budget import show_bytes
from bigsvm.cli.inputs import is_standard_input
from bigsvm.cli.options import ReadOptions, ZeroBased
from bigsvm.declared import Within, check_fields, is_kind
from bigsvm.errors import CheckpointError, ParameterError
from bigsvm.files import open_regular, parse_json, replace_synced
from bigsvm.parameters.formulations import gap_name
from bigsvm.report.progress import duration
from bigsvm.report.text import bytes_on_disk, count, number
from bigsvm.training.result import StopReason
from bigsvm.version import __version__

if TYPE_CHECKING:
    from bigsvm.declared import Kind
    from bigsvm.parameters import TrainingParameters
    from bigsvm.report.describe import Lines

FORMAT_VERSION = 3
COUNTS = ("n_sweeps", "rows_done", "n_iter", "n_pairs", "n_finished")
NUMBERS = ("seconds", "gap", "objective")
"""Counters and numbers of a saved run that are shown."""
SHOWN = Within(-1e300, 1e300)
"""Numbers that are shown: a larger one means that no sweep has computed it yet."""
NAME = "run.json"
MOST_BYTES = 1 << 24
"""Largest record in bytes: room for the weights of a million classes."""


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value) and "\0" not in value


FIELDS = {
    "source": _is_name,
    "model": _is_name,
    "cache_dir": (_is_name, None),
    "zero_based": {str(way) for way in ZeroBased},
    "label": (_is_name, None),
    "weight": (_is_name, None),
    "columns": (_is_name, None),
    "rows": (_is_name, None),
    **dict.fromkeys(("categories", "missing"), (_is_name, None)),
    "max_categories": int,
    "missing_indicator": bool,
    "unknown": _is_name,
    "parameters": dict,
}
"""Fields of a record, which are those of a `Run`."""
WEIGHTS = [[(str, bool, float), (bool, float)]]
"""Labels and the weights of their classes."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One call of ``bigsvm train``, in plain values.

    Attributes
    ----------
    source : str
        Absolute path of a store, or of what becomes one, or a URL.
    model : str
        Absolute path of the model to be written, or a URL.
    zero_based : str
        Whether column 0 of LIBSVM text is index 0.
    label, weight, columns, rows, and those of `ReadOptions.encode`
        As `ReadOptions` has them.
    parameters : dict
        Those of `TrainingParameters` as JSON: without infinities, weights by label as pairs.
    """

    source: str
    model: str
    cache_dir: str | None = None
    zero_based: str = "auto"
    label: str | None = None
    weight: str | None = None
    columns: str | None = None
    rows: str | None = None
    categories: str | None = None
    max_categories: int = 100
    missing: str | None = None
    missing_indicator: bool = False
    unknown: str = "refuse"
    parameters: dict[str, Any] = field(default_factory=dict)

    @property
    def cache_folder(self) -> Path | None:
        """Folder for temporary files; None is the system's."""
        return None if self.cache_dir is None else Path(self.cache_dir)

    @property
    def read(self) -> ReadOptions:
        """How the rows are read."""
        names = (field.name for field in fields(ReadOptions))
        values = {name: getattr(self, name) for name in names}
        return ReadOptions(**{**values, "zero_based": ZeroBased(self.zero_based)})

    def training_parameters(self, checkpoint: Path | None) -> TrainingParameters:
        """Build what `train_model` takes."""
        from bigsvm.parameters import TrainingParameters

        values = dict(self.parameters)
        weights = values.get("class_weight")
        if isinstance(weights, list):
            values["class_weight"] = {
                label if isinstance(label, str) else float(label): float(weight)
                for label, weight in weights
            }
        if values.get("max_seconds") is None:
            values["max_seconds"] = float("inf")
        return TrainingParameters(
            checkpoint=None if checkpoint is None else str(checkpoint),
            cache_dir=self.cache_dir,
            **values,
        )

    def _check(self) -> None:
        """Refuse values that no command writes; ValueError names them."""
        from bigsvm.parameters import TrainingParameters

        check_fields("the record", vars(self), FIELDS)
        if self.model != absolute(self.model) or self.source != absolute(self.source):
            raise ValueError("source or model is no absolute path")
        if "formulation" not in self.parameters:
            raise ValueError("parameters lacks the formulation")
        known = {field.name for field in fields(TrainingParameters)} - {"checkpoint", "cache_dir"}
        for name, value in self.parameters.items():
            is_weights = name == "class_weight" and isinstance(value, list)
            if name not in known:
                raise ValueError(f"there is no parameter {name!r}")
            if not is_kind(value, WEIGHTS if is_weights else (str, bool, float, None)):
                raise ValueError(f"the parameter {name} is none that a command has")
        if not isinstance(self.parameters.get("checkpoint_copy"), str | None):
            raise ValueError("checkpoint_copy is no URL")

    def updated(self, changes: dict[str, Any]) -> Run:
        """Build the same run with some parameters replaced."""
        names = {"cache_dir", *(field.name for field in fields(ReadOptions))} & changes.keys()
        of_run = {name: changes.pop(name) for name in names}
        return replace(self, **of_run, parameters={**self.parameters, **changes})

    def save(self, directory: Path) -> None:
        """Write it to a checkpoint directory, whole or not at all."""
        record = {"format_version": FORMAT_VERSION, "bigsvm": __version__, **vars(self)}
        record["xxh3"] = _digest(record)
        path = directory / NAME
        if path.is_symlink():
            raise CheckpointError(
                f"{path} is a link, and what it leads to is not replaced; remove the link"
            )
        try:
            if path.exists() and b"format_version" not in (path.read_bytes() or b"format_version"):
                raise CheckpointError(f"{path} is no record of a run; give another --checkpoint")
            replace_synced(path, json.dumps(record, indent=1).encode() + b"\n")
        except OSError as error:
            raise CheckpointError(f"cannot write {path}: {error}") from error

    @classmethod
    def load(cls, directory: Path, *, own: bool = False) -> Run:
        """Read the run of a checkpoint directory.

        Parameters
        ----------
        own : bool
            Whether this user must have written it, as the run will write to the paths it names.

        Raises
        ------
        CheckpointError
            The record is missing, damaged, another user's, or from a newer version.
        """
        path = directory / NAME
        try:
            with open_regular(path, follow_links=False) as file:
                owner = os.fstat(file.fileno()).st_uid
                record = parse_json(file.read(MOST_BYTES))
            if own and owner != os.geteuid():
                raise CheckpointError(
                    f"{path} was written by another user (number {owner}), so what it names is not "
                    f"written to; give the whole command with --checkpoint {directory}"
                )
            if not isinstance(record, dict):
                raise ValueError("it is no JSON object")
            version = record.pop("format_version")
            if type(version) is not int:
                raise ValueError("format_version is no whole number")
            if version > FORMAT_VERSION:
                raise CheckpointError(
                    f"{path} has format {version}, newer than {FORMAT_VERSION}; resume with bigsvm "
                    f"{record.get('bigsvm')}"
                )
            # In format 1 there was none.
            if version > 1 and record.pop("xxh3") != _digest({"format_version": version, **record}):
                raise ValueError("its content does not match its hash")
            record.pop("bigsvm")
            run = cls(**record)
            run._check()
            return run
        except FileNotFoundError:
            raise CheckpointError(
                f"{directory} is not the checkpoint of a `bigsvm train`: it has no {NAME}"
            ) from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(
                f"{path} is damaged ({error}); give the whole command again with --checkpoint "
                f"{directory}"
            ) from error


def of_run(read: ReadOptions) -> dict[str, Any]:
    """Return how rows are read as a `Run` has it."""
    return {**asdict(read), "zero_based": read.zero_based.value}


def _digest(record: dict[str, Any]) -> str:
    return xxhash.xxh3_128_hexdigest(json.dumps(record, sort_keys=True).encode())


def absolute(source: str) -> str:
    """Make a path absolute; a URL and ``-`` stay."""
    return source if "://" in source or is_standard_input(source) else os.path.abspath(source)


def is_url(source: str) -> bool:
    """Whether rows are read from another machine."""
    return "://" in source


def check_is_read_again(source: str) -> None:
    """Refuse sources that a resumed run cannot read again: standard input, pipes and devices."""
    if is_standard_input(source):
        raise ParameterError(
            "standard input cannot be read again by a resumed run; convert it to a store first"
        )
    mode = 0
    with suppress(OSError):  # opening a missing file raises its own error later
        mode = 0 if is_url(source) else os.stat(source).st_mode
    if mode and not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise ParameterError(
            f"{source} is a pipe or a device, which cannot be read again by a resumed run; convert "
            "it to a store first"
        )


def check_source(
    run: Run, store: str | None, model: str | None, directory: Path, *, names_copy: bool
) -> None:
    """Refuse to resume with other rows, and to use a URL that only the record names.

    `store` and `model` are those of the command line; `names_copy` says whether it names the URL to
    which the checkpoint is copied.
    """
    if store is not None and absolute(store) != run.source:
        raise ParameterError(
            f"the run in {directory} was begun with {run.source}, not {store}; leave STORE out, or "
            "give another --checkpoint"
        )
    if model is not None and model != run.model:
        raise ParameterError(
            f"the run in {directory} writes {run.model}, not {model}; leave MODEL out, or give "
            "another --checkpoint"
        )
    for what, url, is_named in (
        ("reads", run.source, store is not None),
        ("writes", run.model, model is not None),
        ("is copied to", run.parameters.get("checkpoint_copy"), names_copy),
    ):
        if url is not None and is_url(url) and not is_named:
            raise ParameterError(
                f"the run in {directory} {what} {url}, which --resume does not open by itself; "
                f"name it: {resume_command(directory, run)}"
            )


def resume_command(directory: Path, run: Run, reason: StopReason | None = None) -> str:
    """Return the command that resumes a run, without the step limit that ended it.

    The command names URLs of the run, as resuming opens no others.
    """
    named = []
    if is_url(run.model):
        named = [run.source, run.model]
    elif is_url(run.source):
        named = [run.source]
    arguments = ["bigsvm", "train", *named, "--resume", str(directory)]
    copy = run.parameters.get("checkpoint_copy")
    if copy is not None:
        arguments += ["--checkpoint-copy", copy]
    if reason is StopReason.MAX_ITER:  # they are counted from the first start
        arguments += ["--max-iter", "-1"]
    return shlex.join(arguments)


def run_record(directory: Path) -> dict[str, Any]:
    """Describe a checkpoint directory: what is trained, how far it is, how to go on.

    The run may be active: nothing is locked, and the newest whole generation is described. If no
    command started the run, its source and model are unknown.
    """
    from bigsvm.training.generations import newest_manifest, recorded_end

    run = Run.load(directory) if os.path.lexists(directory / NAME) else None
    manifest = newest_manifest(directory)
    if run is None and manifest is None:
        raise CheckpointError(
            f"{directory} has no {NAME} and no whole generation of a checkpoint; remove it to "
            "start over"
        )
    progress = reason = None
    ended = recorded_end(directory)
    if ended is not None and ended[0] not in set(StopReason):
        ended = None
    if manifest is not None:
        values = manifest["values"]
        progress = {"generation": manifest["generation"]}
        progress |= {name: _known(values, name, int) for name in COUNTS}
        progress |= {name: _known(values, name, SHOWN) for name in NUMBERS}
        progress["phase"] = _known(values, "phase", str)
        limit = -1 if run is None else run.parameters.get("max_iter", -1)
        if 0 <= limit <= (progress["n_iter"] or 0):
            reason = StopReason.MAX_ITER
        progress |= {"fingerprint": manifest["fingerprint"]}
    resume = f"fit again, with the same data and parameters and checkpoint={str(directory)!r}"
    if run is not None:
        resume = resume_command(directory, run, reason)
    return {
        "kind": "run",
        "path": str(directory),
        **(dict.fromkeys(field.name for field in fields(Run)) if run is None else asdict(run)),
        "progress": progress,
        "ended": None if ended is None else {"stop_reason": ended[0], "converged": ended[1]},
        "bytes_on_disk": bytes_on_disk(directory),
        "resume": resume,
    }


def _known(values: dict[str, Any], name: str, kind: Kind) -> Any:  # noqa: ANN401 (as JSON has it)
    """Read a value to show; None if it is not as it must be."""
    return values[name] if name in values and is_kind(values[name], kind) else None


def _gap(value: float | None, *, of_pairs: bool) -> str:
    """Show the last known gap."""
    if value is None:
        return "not known: no sweep over all rows has ended"
    return f"{number(value, 4)} {'at most, of the pairs' if of_pairs else 'at the last sweep'}"


def run_lines(directory: Path) -> Lines:
    """Describe a checkpoint directory to a person."""
    record = run_record(directory)
    progress = record["progress"]
    chosen = record["parameters"] or {}
    if progress is not None and not chosen:
        chosen = progress["fingerprint"]
    parameters = ", ".join(f"{name} {value}" for name, value in chosen.items() if value is not None)
    lines: Lines = [
        ("run", record["path"]),
        ("data", record["source"]),
        ("model", record["model"]),
        ("parameters", parameters),
        ("state", _state(record["ended"])),
    ]
    if progress is None:
        lines += [("progress", "nothing saved yet")]
    else:
        pairs, gap = None, gap_name(str(chosen.get("formulation")))
        if progress["n_pairs"] is not None and progress["n_finished"] is not None:
            pairs = f"{count(progress['n_finished'])} of {count(progress['n_pairs'])} done"
        seconds = progress["seconds"]
        lines += [
            ("checkpoint", f"generation {progress['generation']}"),
            ("pairs of classes", pairs),
            ("sweeps", f"{progress['n_sweeps']} complete"),
            (gap, _gap(progress["gap"], of_pairs=pairs is not None)),
            ("dual objective", number(progress["objective"], 10)),
            ("trained for", None if seconds is None else duration(seconds)),
        ]
    return [*lines, ("on disk", show_bytes(record["bytes_on_disk"])), ("resume", record["resume"])]


def _state(ended: dict[str, Any] | None) -> str:
    """Say whether a run is over."""
    if ended is None:
        return "not finished: it is under way, or was killed"
    sentence = StopReason(ended["stop_reason"]).sentence
    return f"finished: {sentence}" if ended["converged"] else f"ended: {sentence}"
