"""Random command lines, and checks of how they end.

    python tools/reliability.py commands [--number 2000] [--seed 0] [--first 0] [--seconds 60]

Arguments and options come from the commands themselves, so that new ones take part. Their values
are valid ones, odd ones (nan, 1e400, control characters) and hostile ones (URLs, files of another
kind, pipes, devices). Each line runs in a child with a copy of some stores, text, models and
checkpoints. It may end with 0, or with 2 and one line of error. Faults are other exit codes,
tracebacks, signals, hangs, control characters in what is shown, and folders of work that are left.
Line i of a seed is always the same: ``--first`` i and ``--number`` 1 run it alone.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import os
import random
import re
import shlex
import shutil
import tempfile
import typing
from collections import Counter, defaultdict
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from attacks.child import ERROR, USAGE_EXIT_CODE, command, copied, fresh, table
from attacks.subjects import text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from attacks.child import Ended

SECONDS = 60
ROWS = 60
"""Enough for a model, and few enough that a line takes a fraction of a second."""
LONG = "n" * 300
"""Longer than a file name may be."""
CONTROL = "\x1b[2J\x07\ra\u202eb"

NUMBERS = (
    *("0", "1", "-1", "2", "3", "0.5", "-0.0", "1e-320", "1e300", "1e400", "-1e400", "nan", "inf"),
    *("-inf", "1" * 40, "9" * 400, "0x10", "1_0", "1,5", "", " ", "one", "\u0663", "1e", "--1"),
    *("2147483647", "2147483648", "4294967296", "18446744073709551616", CONTROL),
)
SIZES = (
    *("64MB", "40MB", "100 MiB", "1GB", "0", "1", "-1GB", "12 apples", "nan", "1e9", "1e400"),
    *("9" * 400 + "GB", "0.5", "999TB", "", CONTROL),
)
TIMES = ("5s", "1m", "0.001", "0", "-1s", "nan", "1e9", "9" * 400, "1 fortnight", "", CONTROL)
WORDS = (
    *("", " ", "-", "--", ".", "..", "%s%n", "é漢", CONTROL, "a\nb", "RBF", "None", "x" * 5000),
    *("balanced", "1:2", "-1:0.5", "1:nan", "1:1:1", ":", "all", "scale", "mean-distance", "0.1"),
    *("\udcff", "https://", "NULL", "@train", "~", "$HOME", "*"),
)
OFTEN = {"train": 4, "predict": 2, "convert": 2, "scale": 2}
"""Commands that get more lines, as they have more options."""
INPUTS = (
    *("train", "test", "test.gz", "zeros", "two.zarr", "three.zarr", "values.zarr", "model"),
    *("many", "regression", "libsvm", "run", "wide", "scaled.zarr", "scaled-model"),
)
"""Text, stores, models and checkpoints, whole ones."""
ODD_PATHS = (
    *("absent", "absent/absent", "empty", "garbage", "folder", ".", "/", "/dev/null", "pipe"),
    *("loop", "dangling", "link-to-store", "link-to-model", "two.zarr/X", "two.zarr/zarr.json"),
    *("s3://bucket/name", "file:///etc/passwd", "memory://x", "http://[::1", "ftp://", "C:\\x"),
    *(LONG, f"{LONG}/x", "é漢", CONTROL, "a\nb", "\udcff", "-", "-x", "--", "", " ", "model/x"),
    *("half.zarr", "half-model", "columns.csv"),
)
OUTPUTS = ("out", "folder/out", "out.zarr", "out.png", "-", "/dev/null", "/dev/full", "/dev/stdout")
KEPT_OPEN = ("pipe",)
"""Paths that wait for another process where they are read as text or written to."""
_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]")
_LEFT = re.compile(r"\.part$|\.partial-|^bigsvm-text-")


class Parameter(NamedTuple):
    """One argument or option of a command.

    Attributes
    ----------
    name : str
        Name of the Python parameter.
    flags : tuple of str
        How it is spelled, empty for an argument.
    kind : type
    many : bool
        Whether it may be repeated.
    required : bool
    choices : tuple of str
        Its values, if they are listed.
    """

    name: str
    flags: tuple[str, ...]
    kind: Any
    many: bool
    required: bool
    choices: tuple[str, ...]


def commands() -> dict[str, list[Parameter]]:
    """Read all commands with their parameters from the program."""
    from typer.main import get_command

    from bigsvm.cli import app

    made: Any = get_command(app)
    return {name: list(_parameters(each.callback)) for name, each in made.commands.items()}


def _parameters(callback: Callable[..., None]) -> Iterator[Parameter]:
    from bigsvm.cli.panels import HELP_ALL

    hints = typing.get_type_hints(callback, include_extras=True)
    for name, found in inspect.signature(callback).parameters.items():
        annotation = hints.get(name, found.annotation)  # options of the table have no hint
        if typing.get_origin(annotation) is not typing.Annotated:
            continue  # the context
        kind, info = typing.get_args(annotation)[:2]
        if name == HELP_ALL.name:
            continue  # a command does nothing else then
        kinds = [k for k in typing.get_args(kind) or (kind,) if k is not type(None)]
        flags = tuple(
            part
            for flag in (info.default, *(info.param_decls or ()))
            if isinstance(flag, str) and flag.startswith("-")
            for part in flag.split("/")
        )
        many = any("list" in str(k) for k in (kind, *kinds))
        inner = [k for part in kinds for k in (typing.get_args(part) or (part,))]
        required = found.default is inspect.Parameter.empty
        listed = re.fullmatch(r"<(\w[^>]*\|[^>]*)>", getattr(info, "metavar", None) or "")
        if isinstance(inner[0], type) and issubclass(inner[0], Enum):
            choices = tuple(member.value for member in inner[0])
        else:
            choices = tuple(listed[1].split("|")) if listed else ()
        yield Parameter(name, flags, inner[0], many, required, choices)


class Writer:
    """Makes up command lines.

    Parameters
    ----------
    seed : int
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._commands = commands()

    def line(self, number: int) -> list[str]:
        """Give the words of one line, always the same."""
        chance = random.Random(f"{self._seed} {number}")
        name = chance.choice([n for n in sorted(self._commands) for _ in range(OFTEN.get(n, 1))])
        parameters = self._commands[name]
        arguments = [p for p in parameters if not p.flags]
        options = [p for p in parameters if p.flags]
        # Most lines have one fault at most: what many have in common is found at once.
        oddity = chance.choice((0.0, 0.0, 0.15, 0.5))
        words = [
            self._value(chance, name, p, oddity) for p in arguments if chance.random() > oddity / 9
        ]
        if name == "demo":  # a valid one trains for a minute
            options = [p for p in options if p.name != "directory"]
            words += ["--directory", chance.choice(("two.zarr", "empty", "loop", "s3://x", LONG))]
        wanted = [p for p in options if p.required]
        optional = [p for p in options if not p.required]
        n_optional = chance.choice((0, 1, 2) if oddity == 0 else (0, 1, 2, 3, 6))
        wanted += chance.sample(optional, min(len(optional), n_optional))
        for parameter in wanted:
            flag = chance.choice(parameter.flags)
            if parameter.kind is bool:
                words.append(flag)
            else:
                words += [flag, self._value(chance, name, parameter, oddity)]
        if chance.random() < oddity / 4:
            words.insert(chance.randrange(len(words) + 1), chance.choice((*WORDS, "--frob", "-z")))
        return [name, *words]

    def _value(self, chance: random.Random, name: str, parameter: Parameter, oddity: float) -> str:
        is_odd = chance.random() < oddity
        kind = parameter.kind
        if parameter.choices:
            return chance.choice((*WORDS, *NUMBERS) if is_odd else parameter.choices)
        if kind in (int, float):
            return chance.choice(NUMBERS if is_odd else ("1", "2", "3", "7"))
        if kind is Path or parameter.name in ("store", "sources"):
            return self._path(chance, name, parameter, is_odd=is_odd)
        usual = {
            "memory": ("64MB", "40MB", "1GB"),
            "disk_cache": ("1MB", "0"),
            "checkpoint_every": TIMES[:2],
            "max_time": TIMES[:2],
            "gamma": ("scale", "auto", "0.5", "mean-distance"),
            "sampling": ("60", "0.5", "all"),
            "class_weight": ("balanced", "1:2", "-1:3"),
            "rows": ("0,3", "5-9", *WORDS),
            "new": ("out", "out.zarr"),
        }.get(parameter.name, WORDS)
        unusual = SIZES if parameter.name in ("memory", "disk_cache") else TIMES
        return chance.choice((*unusual, *NUMBERS, *WORDS) if is_odd else usual)

    def _path(self, chance: random.Random, name: str, parameter: Parameter, *, is_odd: bool) -> str:
        is_output = parameter.name in ("output", "image") or (name, parameter.name) in (
            *(("train", "model"), ("convert", "store")),
        )
        if is_odd:
            pool = (*INPUTS, *ODD_PATHS, *OUTPUTS)
            waits = parameter.name in ("output", "sources", "store")
            return chance.choice([path for path in pool if not (waits and path in KEPT_OPEN)])
        if is_output:
            return chance.choice(("out", "out.zarr"))
        if name == "inspect" and parameter.name in ("model", "store"):
            return "many" if parameter.name == "model" else chance.choice(("three.zarr", "three"))
        return chance.choice(
            {
                "model": ("model", "many", "regression", "libsvm", "scaled-model"),
                "sources": ("train", "test"),
                "store": ("two.zarr", "three.zarr", "train", "test", "values.zarr"),
                "checkpoint": ("run", "new-run"),
                "resume": ("run",),
                "cache_dir": ("cache", "folder"),
                "like": ("scaled.zarr", "scaled-model"),
            }.get(parameter.name, INPUTS)
        )


# -- files -------------------------------------------------------------------------------------


def make(folder: Path) -> None:
    """Write whole files of every kind, by the commands, and odd ones."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, 4)).astype(np.float32)
    values = X[:, 0] + 0.5 * rng.normal(size=ROWS)
    sides = np.where(values > 0, 1, -1)
    for name, n_rows, labels in (
        *(("train", ROWS, sides), ("test", 20, sides), ("values", ROWS, values)),
        ("three", ROWS, np.digitize(values, [-0.5, 0.5])),
    ):
        (folder / name).write_text(text_of(X[:n_rows], labels[:n_rows]))
    (folder / "zeros").write_text("1\n-1\n")
    (folder / "wide").write_text("1 1:1 2147483646:1\n-1 7:2\n")
    (folder / "columns.csv").write_text("a,b,label\n1,2,0\n3,4,1\n")
    for source, name in (("train", "two"), ("three", "three"), ("values", "values")):
        fresh(["convert", folder / source, folder / f"{name}.zarr"])
    fresh(["scale", folder / "two.zarr", folder / "scaled.zarr"])
    run = ["--checkpoint", folder / "run"]
    fresh(["train", folder / "two.zarr", folder / "model", *run])
    fresh(["train", folder / "scaled.zarr", folder / "scaled-model"])
    crammer_singer = ["--formulation", "crammer-singer"]
    fresh(["train", folder / "three.zarr", folder / "many", *crammer_singer])
    fresh(["train", folder / "values.zarr", folder / "regression", "--formulation", "eps-svr"])
    fresh(["export", folder / "model", folder / "libsvm", "--to", "libsvm"])
    fresh(["predict", folder / "test", folder / "model", "-o", folder / "labels", "--overwrite"])
    shutil.copytree(folder / "two.zarr", folder / "half.zarr")
    shutil.rmtree(folder / "half.zarr" / "y")
    (folder / "half-model").write_bytes((folder / "model").read_bytes()[:-100])
    (folder / "test.gz").write_bytes(b"\x1f\x8b\x08damaged")
    (folder / "empty").touch()
    (folder / "garbage").write_bytes(rng.bytes(5000))
    (folder / "folder").mkdir()
    (folder / "folder" / "file").touch()


def _add_specials(folder: Path) -> None:
    """Add what is not copied: links and a pipe."""
    os.mkfifo(folder / "pipe")
    for name, target in (
        *(("loop", "loop"), ("dangling", "absent"), ("link-to-store", "two.zarr")),
        ("link-to-model", "model"),
    ):
        (folder / name).symlink_to(target)


# -- running -----------------------------------------------------------------------------------


def fault_of(ended: Ended, folder: Path) -> str | None:
    """Say what is wrong with how a line ended, or with what it has left; None where nothing is."""
    fault = ended.fault()
    if fault is not None:
        return fault
    found = _CONTROL.search(ended.err + ended.out)
    if found:
        return f"control character {found[0]!r} in what is shown"
    if ended.code == USAGE_EXIT_CODE:
        lines = ERROR.findall(ended.err)
        if len(lines) != 1 or not ended.err.rstrip("\n").endswith(lines[0]):
            return "an error that is not one line at the end"
    if "encountered in" in ended.err:
        return "a warning of numpy's"
    left = [name for _, *names in os.walk(folder) for part in names for name in part]
    for name in left:
        if _LEFT.search(name):
            return f"{name} is left"
        if name.endswith(":") and name[:-1].isalnum():
            return f"a folder {name} for a URL"
    return None


def run(words: Sequence[str], pristine: Path, *, seconds: float) -> tuple[str, Ended]:
    """Run one line among copies of the files; what is wrong, or ``0`` or ``2``, and the end."""
    with copied(pristine) as folder, contextlib.chdir(folder):
        _add_specials(folder)
        ended = command([*words], seconds=seconds)
        return fault_of(ended, folder) or str(ended.code), ended


def main(argv: Sequence[str]) -> int:
    """Print the table and the lines with faults; the exit code says whether there are any."""
    parser = argparse.ArgumentParser(prog="reliability.py commands", description=__doc__)
    parser.add_argument("--number", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--show", action="store_true", help="print every line and its error")
    options = parser.parse_args(argv)
    writer = Writer(options.seed)
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    with tempfile.TemporaryDirectory() as name:
        pristine = Path(name) / "files"
        pristine.mkdir()
        # Temporary folders of the lines are looked through too.
        tempfile.tempdir = os.environ["TMPDIR"] = "."
        try:
            make(pristine)
            for number in range(options.first, options.first + options.number):
                words = writer.line(number)
                found, ended = run(words, pristine, seconds=options.seconds)
                is_fault = found not in ("0", "2")
                if is_fault or options.show:
                    told = ascii(shlex.join(["bigsvm", *words]))[1:-1][:600]
                    print(f"{number}: {found}: {told}", flush=True)
                    print("    " + " | ".join(ascii(x)[1:-1] for x in ended.err.splitlines()[-3:]))
                counts[words[0]][{"0": "done", "2": "refused"}.get(found, "fault")] += 1
        finally:
            tempfile.tempdir = None
            del os.environ["TMPDIR"]
    counts = {**dict(sorted(counts.items())), "all": sum(counts.values(), Counter())}
    print(table(counts, ("done", "refused", "fault")))
    return int(counts["all"]["fault"] > 0)
