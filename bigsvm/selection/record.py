"""Results of fits in a folder, so that a killed cross-validation or search goes on.

DIR/lock                     held by the running process
DIR/selection.json           what the results belong to
DIR/fits/KEY.json            the result of one fit, written whole or not at all
DIR/models/KEY.*             models, or the point of a run of all folds, to start others from
DIR/runs/KEY/                checkpoint of the fit under way
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import safetensors
import xxhash

from bigsvm.declared import is_count
from bigsvm.errors import CheckpointError, ModelError
from bigsvm.files import open_regular, parse_json, remove, replace_synced, try_lock
from bigsvm.identity import NOT_COMPARABLE
from bigsvm.models import KernelExpansion
from bigsvm.models.certificate import doubt_of
from bigsvm.selection.identity import told
from bigsvm.selection.saved import read_point, write_point
from bigsvm.training.result import StopReason

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bigsvm.fit.folds_in_one_run import PointOfFits
    from bigsvm.selection.saved import FitContent

logger = logging.getLogger(__name__)

FORMAT_VERSION = 2
MOST_BYTES = 1 << 21
"""Largest file in bytes: room for the certificate of a hundred thousand classes. Parsing takes up
to twenty times as much."""
MODEL, POINT = ".safetensors", ".point.safetensors"
"""Ends of the names of files to start from."""
IN_OTHER_WORDS = ("bigsvm", "estimator", "kernel", "points", "scoring")
"""What format 1 described by other words."""
MOST_SHOWN = 200
"""Most characters of what differs in a message."""


class FoldFit(NamedTuple):
    """What a fit of a fold has led to.

    Attributes
    ----------
    scores : dict of str to float
        At the rows that are tested.
    train_scores : dict of str to float
        At the rows that were trained on, if they are asked for.
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


def fit_warnings(results: Sequence[FoldFit], formulation: str) -> Iterator[str]:
    """Say what must be known of fits before their scores are believed, a sentence each."""
    unconverged = sum(not result.as_asked for result in results)
    if unconverged:
        yield (
            f"training did not converge in {unconverged} of {len(results)} fits; raise max_iter "
            "or max_time, or scale the columns"
        )
    doubts = [doubt_of(result.certificate, formulation, None) for result in results]
    told = [doubt for doubt in doubts if doubt is not None]
    if told:
        yield f"of {len(results)} fits {len(told)} may be of no use, the first because {told[0]}"


def advice_of(fits: Sequence[FoldFit]) -> str | None:
    """Say what the first of some fits that has advice is told; None where none has."""
    given = [fit.certificate["advice"] for fit in fits if fit.certificate.get("advice")]
    if not given:
        return None
    return f"{'; '.join(given[0])} (said of {len(given)} of {len(fits)} fits)"


class Record:
    """The results of one cross-validation or search; use it as a context manager.

    Parameters
    ----------
    directory : path
        Made if absent; it must be on a local disk.
    belongs_to : mapping of str to str
        What the results belong to: data, folds, scoring, and parameters.
    content : FitContent
        Checks of results.

    Raises
    ------
    CheckpointError
        The folder has other content or results of something else, links, cannot be written, or
        another process is using it.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        belongs_to: Mapping[str, str],
        content: FitContent,
    ) -> None:
        self.directory, self._content = Path(directory), content
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
                _is_there(folder)
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
        """Refuse results that belong to something else, and remove those that cannot be used."""
        path = self.directory / "selection.json"
        if not _is_there(path):
            _write(path, belongs_to)
            return
        version, earlier = _read(path)
        if not isinstance(earlier, dict) or not all(type(w) is str for w in earlier.values()):
            raise _damaged(path, ValueError("its values are not words"))
        unknown = [name for name, word in belongs_to.items() if NOT_COMPARABLE in word]
        differ = sorted(
            name
            for name in {**earlier, **belongs_to}
            if earlier.get(name) != belongs_to.get(name)
            and not (version < FORMAT_VERSION and (name in IN_OTHER_WORDS or name not in earlier))
        )
        if differ:
            differences = ", ".join(
                f"{name} ({str(earlier.get(name))[:MOST_SHOWN]}, now "
                f"{str(belongs_to.get(name))[:MOST_SHOWN]})"
                for name in differ
            )
            raise CheckpointError(
                f"{self.directory} has results of something else: {differences}; give the same "
                "again, or another directory"
            )
        if version < FORMAT_VERSION:
            self._start_over("an earlier version of bigsvm wrote them")
            _write(path, belongs_to)
        elif unknown:
            words = belongs_to[unknown[0]][:MOST_SHOWN]
            self._start_over(f"{unknown[0]} may have changed ({words})")

    def _start_over(self, reason: str) -> None:
        """Remove all results, and say why."""
        logger.warning("%s: results are computed again, as %s", self.directory, reason)
        for folder in (self._fits, self._runs, self._models):
            remove(folder)
            folder.mkdir()

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
        if not _is_there(path):
            return None
        _, values = _read(path)
        try:
            self._content.check(values)
        except ValueError as error:
            raise _damaged(path, error) from error
        return FoldFit(**values)

    @staticmethod
    def key(parameters: Mapping[str, Any], **others: int) -> str:
        """Return the name of a fit, which its parameters, its fold and its rows decide."""
        words = [
            f"{name}={told(value)}" for name, value in sorted({**parameters, **others}.items())
        ]
        return xxhash.xxh3_64_hexdigest("\0".join(words).encode())

    def run_folder(self, key: str) -> str:
        """Return the folder for the checkpoint of a fit."""
        path = self._runs / key
        _is_there(path)
        return str(path)

    def has_run(self, key: str) -> bool:
        """Whether there is a checkpoint of a fit."""
        return _is_there(self._runs / key)

    def model(self, key: str, *, most_bytes: float) -> KernelExpansion | None:
        """Read the model of a finished fit, which was added with it; None if it is gone."""
        path = self._start_path(key, MODEL)
        if not _is_there(path):
            return None
        try:
            if path.stat().st_size > most_bytes:
                raise ValueError(f"it has {path.stat().st_size} bytes")
            return KernelExpansion.load(path)
        except (OSError, ValueError, ModelError) as error:
            raise _damaged(path, error) from error

    def drop_start(self, key: str) -> None:
        """Remove the model or the point of a fit, from which no other one starts any more."""
        for kind in (MODEL, POINT):
            self._start_path(key, kind).unlink(missing_ok=True)

    def model_damaged(self, key: str, error: Exception) -> CheckpointError:
        """Error for a model that no fit can start from."""
        return _damaged(self._start_path(key, MODEL), error)

    def _start_path(self, key: str, kind: str) -> Path:
        return self._models / f"{key}{kind}"

    def point(self, key: str, *, n_rows: int, n_fits: int) -> PointOfFits | None:
        """Read where a run of all folds ended; None if that was not added.

        At most `n_rows` rows were trained on, in `n_fits` folds.
        """
        path = self._start_path(key, POINT)
        if not _is_there(path):
            return None
        try:
            return read_point(path, n_rows=n_rows, n_fits=n_fits)
        except (OSError, ValueError, safetensors.SafetensorError) as error:
            raise _damaged(path, error) from error

    def add_point(self, key: str, point: PointOfFits) -> None:
        """Keep where a run of all folds ended, until it is dropped."""
        path = self._start_path(key, POINT)
        _is_there(path)
        try:
            write_point(path, point)
        except (OSError, safetensors.SafetensorError) as error:
            raise CheckpointError(f"cannot write {path}: {error}") from error

    def drop_run(self, key: str) -> None:
        """Remove the checkpoint of a run whose results have been added."""
        if self.has_run(key):
            remove(self._runs / key)

    def add(self, key: str, result: FoldFit, model: KernelExpansion | None = None) -> None:
        """Keep the result of a finished fit, whose checkpoint is no longer needed.

        The model is kept too, until it is dropped.
        """
        try:
            self._content.metrics_like(result.scores)
        except ValueError as error:
            raise CheckpointError(
                f"{self._fits} has results of other scores than {', '.join(result.scores)} "
                f"({error}); remove it, and the work is done again"
            ) from error
        if model is not None:
            path = self._start_path(key, MODEL)
            _is_there(path)
            model.save(path)
        _write(self._fits / f"{key}.json", result._asdict())
        self.drop_run(key)


def _is_there(path: Path) -> bool:
    """Whether there is a file or folder; a link is refused, as its target is not of this run."""
    if path.is_symlink():
        raise CheckpointError(f"{path} is a link, which is not followed; remove it")
    return path.exists()


def _write(path: Path, values: dict[str, Any]) -> None:
    content = {"format_version": FORMAT_VERSION, "values": values}
    record = {**content, "xxh3": _digest(content)}
    _is_there(path)
    try:
        replace_synced(path, json.dumps(record, indent=1).encode() + b"\n")
    except OSError as error:
        raise CheckpointError(f"cannot write {path}: {error}") from error


def _read(path: Path) -> tuple[int, Any]:
    """Read the format version and the values of a file that `_write` has written."""
    try:
        with open_regular(path, follow_links=False) as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES} bytes")
        record = parse_json(data)
        if not isinstance(record, dict):
            raise ValueError("it is no JSON object")
        if record.pop("xxh3", None) != _digest(record):
            raise ValueError("its content does not match its hash")
        version: Any = record.get("format_version")
        if not is_count(version) or record.keys() != {"format_version", "values"}:
            raise ValueError("it has other fields")
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(path, error) from error
    if version > FORMAT_VERSION:
        raise CheckpointError(f"{path} is from a newer version of bigsvm; use that one")
    return version, record["values"]


def _damaged(path: Path, error: Exception) -> CheckpointError:
    return CheckpointError(f"{path} is damaged ({error}); remove it, and the work is done again")


def _digest(record: dict[str, Any]) -> str:
    return xxhash.xxh3_128_hexdigest(json.dumps(record, sort_keys=True).encode())
