"""Checkpoints of searches that are damaged."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
from attacks.child import _main, command, fresh, in_child
from attacks.subjects import (
    FAULT,
    MEMORY,
    MEMORY_BYTES,
    NO_EFFECT,
    OTHER_DATA,
    REFUSED,
    SECONDS,
    Damage,
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

    from numpy.typing import NDArray

SEARCH = (
    "--log2-C", "-2,2,2", "--folds", "2", "--json", "--memory", MEMORY, "--threads", "1", "--quiet",
)  # fmt: skip
"""Without a time limit, with which no folds are trained together."""


def stop_search(words: Sequence[str | Path], n_results: int) -> None:
    """Run a search in a child that ends, as if it were killed, after some results.

    Raises
    ------
    RuntimeError
        It ended otherwise.
    """

    def stopped() -> int:
        from bigsvm.selection.record import Record

        add, left = Record.add, iter(range(n_results))

        def counted(record: Record, *given: Any) -> None:  # noqa: ANN401 (as `add` takes it)
            if next(left, None) is None:
                os._exit(0)
            add(record, *given)

        Record.add = counted  # type: ignore[method-assign]
        _main(words)
        return 1

    ended = in_child(stopped, seconds=SECONDS)
    if ended.code:
        raise RuntimeError(f"the search was not stopped: {ended.err}")


class SearchSubject(Subject):
    """A search that was stopped after some results, and goes on."""

    def __init__(self, folder: Path, *, title: str, arguments: Sequence[str], stop: int) -> None:
        super().__init__(folder)
        self.name = f"search, {title}"
        self._arguments, self._stop = arguments, stop

    def make(self) -> None:
        """Run the search whole, which compiles what it uses, and once until it is stopped."""
        write_data(self.folder, self._arguments)
        words = self.commands(self.folder)[0]
        fresh(words)
        shutil.rmtree(self.folder / "run")
        stop_search(words, self._stop)
        if not list((self.folder / "run" / "models").iterdir()):
            raise RuntimeError(f"{self.name}: there is nothing to start from")
        copy = self.folder.parent / f"{self.folder.name}-whole"
        shutil.copytree(self.folder, copy)
        ended = command(self.commands(copy)[0], seconds=SECONDS)
        self._expected = _scores(ended.out)
        shutil.rmtree(copy)

    def commands(self, folder: Path) -> list[list[str | Path]]:
        """Go on with the search."""
        options = [*train_options(self._arguments), *SEARCH]
        return [["search", folder / "data", *options, "--checkpoint", folder / "run"]]

    def outcome(self, folder: Path) -> str:
        """Scores are compared by `examine`, which has what the command prints."""
        return NO_EFFECT

    def examine(self, damage: Damage, folder: Path) -> tuple[str, str]:
        """Go on from a damaged copy, and compare the scores."""
        copy = folder / "copy"
        shutil.copytree(self.folder, copy, symlinks=True)
        try:
            damage.apply(copy)
            ended = command(self.commands(copy)[0], seconds=SECONDS)
            fault = ended.fault(memory=MEMORY_BYTES)
            if fault:
                return FAULT, f"search: {fault}"
            if ended.code:
                return REFUSED, ""
            found = _scores(ended.out)
            if not all(0 <= score <= 1 for score in found):
                return FAULT, f"it has the scores {found}"
            return (NO_EFFECT if np.allclose(found, self._expected) else OTHER_DATA), ""
        finally:
            shutil.rmtree(copy)

    def damages(self) -> Iterator[Damage]:
        """Walk a result, what the results belong to, and what the next fit starts from."""
        [*results] = sorted((self.folder / "run" / "fits").iterdir())
        for name in (f"fits/{results[0].name}", "selection.json"):
            record = json.loads((self.folder / "run" / name).read_text())
            for field, value in leaves(record):
                yield from field_damages(
                    f"{name.partition('/')[0]} {'.'.join(field)}", value,
                    lambda folder, changed, name=name, field=field: _put_record(
                        folder / "run" / name, field, changed
                    ),
                )  # fmt: skip
        [start, *_] = sorted((self.folder / "run" / "models").iterdir())
        metadata, tensors = _read_tensors(start)
        for tensor, array in tensors.items():
            yield from array_damages(
                f"models {tensor}", array,
                lambda folder, changed, tensor=tensor: _put_start(
                    folder / "run" / "models" / start.name, {tensor: changed}
                ),
            )  # fmt: skip
        if metadata["bigsvm"].startswith("{"):
            for field, value in leaves(json.loads(metadata["bigsvm"])):
                yield from field_damages(
                    f"models header {'.'.join(field)}", value,
                    lambda folder, changed, field=field: _put_start(
                        folder / "run" / "models" / start.name, {}, field, changed
                    ),
                )  # fmt: skip
        for part in ("fits", "models", "runs", "selection.json", "lock"):
            yield Damage(part, "link", lambda folder, part=part: _put_link(folder, part))


def _scores(out: str) -> list[float]:
    results = json.loads(out)["results"]
    names = [name for name in results if name.startswith("split") and "_test_" in name]
    return [score for name in names for score in results[name]]


def _put_record(path: Path, field: Sequence[str], value: object) -> None:
    from bigsvm.selection import record

    content = json.loads(path.read_text())
    set_field(content, field, value)
    if field[0] != "xxh3":
        content.pop("xxh3", None)
        content["xxh3"] = record._digest(content)
    path.write_text(json.dumps(content))


def _read_tensors(path: Path) -> tuple[dict[str, str], dict[str, NDArray[Any]]]:
    import safetensors

    with safetensors.safe_open(str(path), "numpy") as file:
        return file.metadata(), {name: file.get_tensor(name) for name in file.keys()}


def _put_start(
    path: Path, tensors: dict[str, NDArray[Any]], field: Sequence[str] = (), value: object = None
) -> None:
    """Change tensors or a field of the header and make the hash fit."""
    import safetensors.numpy

    from bigsvm.models.files import digest_of_tensors

    metadata, held = _read_tensors(path)
    text = metadata["bigsvm"]
    if field:
        header = json.loads(text)
        set_field(header, field, value)
        text = json.dumps(header, sort_keys=True)
    held = {name: np.ascontiguousarray(array) for name, array in (held | tensors).items()}
    digest = digest_of_tensors(text, held)
    safetensors.numpy.save_file(held, path, {"bigsvm": text, "xxh3_128": digest})


def _put_link(folder: Path, part: str) -> None:
    shutil.move(folder / "run" / part, folder / f"{part}-elsewhere")
    (folder / "run" / part).symlink_to(folder / f"{part}-elsewhere")
