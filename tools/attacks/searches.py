"""Checkpoints of searches that are damaged."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
from attacks.child import _main, command, filled, fresh, in_child
from attacks.subjects import (
    MEMORY,
    NO_EFFECT,
    OTHER_DATA,
    SECONDS,
    TRAINING,
    Damage,
    Subject,
    fields_damages,
    leaves,
    model_damages,
    put_field,
    train_options,
    write_data,
)

from bigsvm.selection import record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from attacks.child import Ended

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


SEARCHING = ("search", "{}/data", *SEARCH, "--gamma", "0.3", "--checkpoint", "{}/search")
"""A search of the files of `make_files`; ``{}`` is their folder."""


def make_files(folder: Path) -> None:
    """Write a store and a model, and stop a run, a run of pairs and a search after some steps."""
    write_data(folder, ["="])
    (folder / "classes").mkdir()
    write_data(folder / "classes", ["=classes"])
    fresh(["train", folder / "data", folder / "model", *TRAINING])
    for name, data in (("run", "data"), ("pairs", "classes/data")):
        fresh(["train", folder / data, folder / "out", *TRAINING, "--checkpoint", folder / name,
               "--max-iter", "50"])  # fmt: skip
    (folder / "out").unlink()
    fresh(filled(SEARCHING, folder))
    shutil.rmtree(folder / "search")
    stop_search(filled(SEARCHING, folder), 2)


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

    def commands(self, folder: Path, target: str = "") -> list[list[str | Path]]:
        """Go on with the search."""
        options = [*train_options(self._arguments), *SEARCH]
        return [["search", folder / "data", *options, "--checkpoint", folder / "run"]]

    def outcome(self, folder: Path, ended: Sequence[Ended]) -> str:
        """Compare the scores that the search prints."""
        found = _scores(ended[0].out)
        if not all(0 <= score <= 1 for score in found):
            return f"it has the scores {found}"
        return NO_EFFECT if np.allclose(found, self._expected) else OTHER_DATA

    def damages(self) -> Iterator[Damage]:
        """Walk a result, what the results belong to, and what the next fit starts from."""
        run = self.folder / "run"
        for path in (min((run / "fits").iterdir()), run / "selection.json"):
            place = path.relative_to(self.folder)
            yield from fields_damages(
                f"{place.parts[1]} ", leaves(json.loads(path.read_text())),
                lambda folder, field, changed, place=place: put_field(
                    folder / place, field, changed, record._digest
                ),
            )  # fmt: skip
        start = min((run / "models").iterdir())
        yield from model_damages("models ", self.folder, f"run/models/{start.name}")
        for part in ("fits", "models", "runs", "selection.json", "lock"):
            yield Damage(part, "link", lambda folder, part=part: _put_link(folder, part))


def _scores(out: str) -> list[float]:
    results = json.loads(out)["results"]
    names = [name for name in results if name.startswith("split") and "_test_" in name]
    return [score for name in names for score in results[name]]


def _put_link(folder: Path, part: str) -> None:
    shutil.move(folder / "run" / part, folder / f"{part}-elsewhere")
    (folder / "run" / part).symlink_to(folder / f"{part}-elsewhere")
