"""Files that are damaged: what can be changed in them, and who reads them."""

from __future__ import annotations

import itertools
import json
import shutil
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from attacks.child import command, copied, fresh

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from attacks.child import Ended
    from numpy.typing import NDArray

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
    def commands(self, folder: Path, target: str = "") -> list[list[str | Path]]:
        """Command lines that read the files of a folder, of which `target` is damaged."""

    @abstractmethod
    def outcome(self, folder: Path, ended: Sequence[Ended]) -> str:
        """Say what the commands made of the data: `NO_EFFECT`, `OTHER_DATA`, or what is wrong."""

    def refusal(self, folder: Path, ended: Sequence[Ended]) -> str:
        """Say what is wrong where a command has refused; empty where nothing is."""
        return ""

    def apply(self, damage: Damage, copy: Path) -> None:
        """Damage a copy of the files."""
        damage.apply(copy)

    def examine(self, damage: Damage) -> tuple[str, str]:
        """Run the commands on a damaged copy; the outcome, and what is wrong in it."""
        with copied(self.folder) as copy:
            self.apply(damage, copy)
            ended = []
            for words in self.commands(copy, damage.target):
                ended.append(command(words, seconds=SECONDS))
                if fault := ended[-1].fault(memory=MEMORY_BYTES):
                    return FAULT, f"{words[0]}: {fault}"
            if any(end.code for end in ended):
                found = self.refusal(copy, ended) or REFUSED
            else:
                found = self.outcome(copy, ended)
            return (found, "") if found in OUTCOMES else (FAULT, found)


def arrays_damages(
    title: str,
    arrays: Mapping[str, NDArray[Any]],
    put: Callable[[Path, str, NDArray[Any]], None],
) -> Iterator[Damage]:
    """Yield every damage of some arrays; `put` takes a folder, a name and what is put there."""
    for (name, array), (kind, change) in itertools.product(arrays.items(), ARRAY_DAMAGES.items()):
        with np.errstate(all="ignore"):
            changed = change(array)
        if changed.dtype != array.dtype or not np.array_equal(changed, array, equal_nan=True):
            yield Damage(
                f"{title}{name}", kind,
                lambda folder, name=name, changed=changed: put(folder, name, changed),
            )  # fmt: skip


def fields_damages(
    title: str,
    fields: Iterable[tuple[Sequence[str], object]],
    put: Callable[[Path, Sequence[str], object], None],
) -> Iterator[Damage]:
    """Yield every damage of some fields, as `leaves` has them."""
    for (field, value), (kind, change) in itertools.product(fields, FIELD_DAMAGES.items()):
        changed = change(value)
        if type(changed) is not type(value) or changed != value:
            yield Damage(
                f"{title}{'.'.join(field)}", kind,
                lambda folder, field=field, changed=changed: put(folder, field, changed),
            )  # fmt: skip


TRAINING = ("--memory", MEMORY, "--threads", "1", "--max-time", "10", "--quiet")


def clouds(n_classes: int = 2, *, n_rows: int = N_ROWS, n_columns: int = 6) -> tuple[Any, Any]:
    """Rows of overlapping clouds and their labels 0, 1, …."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, n_classes, n_rows).astype(np.float64)
    centres = rng.normal(size=(n_classes, n_columns)) * 1.2
    rows = rng.normal(size=(n_rows, n_columns)) + centres[labels.astype(int)]
    return rows.astype(np.float32), labels


def text_of(rows: NDArray[Any], labels: NDArray[Any]) -> str:
    """Write rows as LIBSVM text."""
    return "".join(
        f"{label:g} " + " ".join(f"{j}:{value:.5g}" for j, value in enumerate(row, 1)) + "\n"
        for row, label in zip(rows, labels, strict=True)
    )


def write_data(folder: Path, arguments: Sequence[str]) -> None:
    """Write the store ``data`` that a formulation is trained on.

    `arguments` are those of ``bigsvm train``; a first word ``=NAME`` chooses other data than rows
    of two clouds: ``=classes`` three, ``=large`` more rows of three, ``=many`` more rows of two,
    ``=crowd`` very many with wrong labels, ``=targets`` numbers, ``=scaled``, ``=sparse``.
    """
    import scipy.sparse as sp

    import bigsvm

    kind = arguments[0][1:] if arguments and arguments[0].startswith("=") else ""
    n_rows = {"large": 4000, "many": 2500, "crowd": 14_000}.get(kind, N_ROWS)
    rows, labels = clouds(3 if kind in ("classes", "large") else 2, n_rows=n_rows)
    if kind == "crowd":
        labels = np.where(np.random.default_rng(1).random(n_rows) < 0.35, 1 - labels, labels)
    if kind == "targets":
        labels = rows[:, 0] + 0.1 * np.random.default_rng(1).normal(size=len(rows))
    if kind == "sparse":
        rows = sp.csr_array(np.where(np.abs(rows) > 0.8, rows, 0))
    bigsvm.write_store(folder / "data", rows, labels)
    if kind == "scaled":
        (folder / "data").rename(folder / "plain")
        fresh(["scale", folder / "plain", folder / "data", "--method", "standard"])
        shutil.rmtree(folder / "plain")


def train_options(arguments: Sequence[str]) -> list[str]:
    """Leave out the word that chooses the data."""
    return [word for word in arguments if not word.startswith("=")]


def leaves(record: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[Any, Any]]:
    """Yield the fields of nested dictionaries, the dictionaries too."""
    for key, value in record.items():
        yield (*above, key), value
        if isinstance(value, dict):
            yield from leaves(value, (*above, key))


def set_field(record: dict[str, Any], field: Sequence[str], value: object) -> None:
    for key in field[:-1]:
        record = record[key]
    record[field[-1]] = value


def put_field(
    path: Path, field: Sequence[str], value: object, digest: Callable[[dict[str, Any]], str]
) -> None:
    """Change a field of a file of JSON, and make its hash fit."""
    record = json.loads(path.read_text())
    set_field(record, field, value)
    if field[0] != "xxh3":
        record.pop("xxh3", None)
        record["xxh3"] = digest(record)
    path.write_text(json.dumps(record))


def model_damages(title: str, folder: Path, place: str) -> Iterator[Damage]:
    """Walk the tensors and the header of the model that is at `place` in a folder."""
    import safetensors.numpy

    from bigsvm.models.files import digest_of_tensors

    with safetensors.safe_open(str(folder / place), "numpy") as file:
        text = file.metadata()["bigsvm"]
        tensors = {name: file.get_tensor(name) for name in file.keys()}

    def put(folder: Path, text: str, tensors: dict[str, NDArray[Any]]) -> None:
        held = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
        metadata = {"bigsvm": text, "xxh3_128": digest_of_tensors(text, held)}
        safetensors.numpy.save_file(held, folder / place, metadata)

    def put_field_of_header(folder: Path, field: Sequence[str], changed: object) -> None:
        header = json.loads(text)
        set_field(header, field, changed)
        put(folder, json.dumps(header, sort_keys=True), tensors)

    yield from arrays_damages(
        title, tensors, lambda folder, name, changed: put(folder, text, tensors | {name: changed})
    )
    if text.startswith("{"):
        yield from fields_damages(f"{title}header ", leaves(json.loads(text)), put_field_of_header)


def predicting(folder: Path) -> list[str | Path]:
    """Command line that writes the decision values of the model."""
    return ["predict", folder / "data", folder / "model", "-o", folder / "predicted",
            "--overwrite", "--decision-function", "--memory", MEMORY]  # fmt: skip


LARGEST_TOL = 1e-3
"""The default, which no run of these subjects is given another for."""


def same_values(folder: Path) -> str:
    """Compare the values of a converged model with those that were expected."""
    from bigsvm.models import KernelExpansion

    model = KernelExpansion.load(folder / "model")
    found, expected = (np.loadtxt(folder / name) for name in ("predicted", "expected"))
    # A run that is told to stop at a larger tolerance may do so: the model names it.
    if not model.certificate["converged"] or model.certificate["tol"] > LARGEST_TOL:
        return OTHER_DATA
    if found.shape != expected.shape:
        return "converged, with another number of functions"
    scale = max(1.0, float(np.abs(expected).max()))
    off = float(np.abs(found - expected).max()) / scale
    if off < 1e-6:
        return NO_EFFECT
    return OTHER_DATA if off < 0.03 else f"converged, but values are off by {off:.3g}"
