"""Text, stores, models and checkpoints with some bytes changed at random.

    python tools/reliability.py mutate [--minutes 20] [--seed 0] [--keep FOLDER]

Each round takes one kind of file, changes it and runs a command that reads it in a child. The
command may take the file or refuse it (exit code 2 and one line). Faults are tracebacks, signals,
hangs and more memory than the budget. The same seed makes the same changes in the same order.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import lzma
import random
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import zstandard
from attacks.child import command, copied, filled, fresh, table
from attacks.searches import SEARCHING, make_files
from attacks.subjects import MEMORY, MEMORY_BYTES, SECONDS, TRAINING, clouds, text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

WORDS = (
    *(b"", b"\n", b" ", b":", b"-", b"+", b".", b"e", b"#", b"\0", b"\r", b"\t", b"\xff"),
    *(b"nan", b"inf", b"-1", b"0", b"1e400", b"1e-400", b"2147483647", b"2147483648", b"1" * 400),
    *(b"4294967296", b"9223372036854775808", b"0x1p3", b"qid:3", b"{", b"[" * 2000, b'"', b"null"),
    *(b"\x1f\x8b", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd", b"BZh9", b"PK\x03\x04", b"\x89HDF\r\n"),
)
"""Words that are inserted besides random bytes: each has a meaning in one of the formats."""


class Kind(NamedTuple):
    """One kind of file.

    Attributes
    ----------
    name : str
    files : str
        Pattern of the files that are changed, one of them each time.
    commands : tuple of lists of str
        One of them reads the file each time; ``{}`` is the folder.
    """

    name: str
    files: str
    commands: tuple[list[str], ...]


_READ_TEXT = (
    ["convert", "{}/text", "{}/out.zarr", "--memory", MEMORY],
    ["train", "{}/text", "{}/out", *TRAINING],
    ["predict", "{}/text", "{}/model", "-o", "{}/out", "--overwrite", "--memory", MEMORY],
    ["convert", "{}/text", "{}/out.zarr", "--memory", MEMORY, "--strict"],
)
_READ_MODEL = (
    ["predict", "{}/data", "{}/model", "-o", "{}/out", "--overwrite", "--decision-function",
     "--memory", MEMORY],
    ["info", "{}/model"],
)  # fmt: skip
KINDS = (
    Kind("text", "text", _READ_TEXT),
    Kind("compressed text", "compressed.*", tuple(
        [word.replace("{}/text", "{}/changed") for word in words] for words in _READ_TEXT[:2]
    )),
    Kind("store", "data/**/*", (
        ["train", "{}/data", "{}/out", *TRAINING],
        ["predict", "{}/data", "{}/model", "--memory", MEMORY],
        ["info", "{}/data"],
    )),
    Kind("model", "model", _READ_MODEL),
    Kind("model in LIBSVM's text", "libsvm", tuple(
        [word.replace("{}/model", "{}/libsvm") for word in words] for words in _READ_MODEL
    )),
    Kind("checkpoint", "run/**/*", (
        ["train", "{}/data", "{}/out", *TRAINING, "--checkpoint", "{}/run"],
        ["info", "{}/run"],
        ["train", "--resume", "{}/run", "--max-iter", "-1"],
    )),
    Kind("checkpoint of pairs", "pairs/**/*", (
        ["train", "{}/classes/data", "{}/out", *TRAINING, "--checkpoint", "{}/pairs"],
        ["info", "{}/pairs"],
    )),
    Kind("checkpoint of a search", "search/**/*", (
        [*SEARCHING],
    )),
)  # fmt: skip


def make(folder: Path) -> None:
    """Write one file of each kind."""
    make_files(folder)
    text = text_of(*clouds(n_rows=60)).encode()
    (folder / "text").write_bytes(text)
    packers = {"gz": gzip, "bz2": bz2, "xz": lzma, "zst": zstandard}
    for suffix, module in packers.items():
        (folder / f"compressed.{suffix}").write_bytes(module.compress(text))
    fresh(["export", folder / "model", folder / "libsvm", "--to", "libsvm"])


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Change some bytes: flipped, overwritten, put in, left out, repeated, or cut off."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        at = chance.randrange(len(changed) + 1)
        end = min(len(changed), at + chance.choice((1, 1, 4, 30, 400)))
        here, word = bytes(changed[at:end]), chance.choice((*WORDS, chance.randbytes(4)))
        match chance.choice(("flip", "overwrite", "put in", "leave out", "repeat", "cut off")):
            case "flip":
                changed[at:end] = bytes(byte ^ 1 << chance.randrange(8) for byte in here)
            case "overwrite":
                changed[at:end] = word
            case "put in":
                changed[at:at] = word
            case "leave out":
                del changed[at:end]
            case "repeat":
                changed[at:at] = here
            case "cut off":
                del changed[at:]
    return bytes(changed)


def attack(kind: Kind, folder: Path, chance: random.Random, keep: Path | None) -> str:
    """Change one file in a copy, run one command; what is wrong, or what it answered."""
    with copied(folder) as copy:
        path = chance.choice(sorted(p for p in copy.glob(kind.files) if p.is_file()))
        data = mutated(path.read_bytes(), chance)
        path.write_bytes(data)
        if kind.files.startswith("compressed"):
            path.rename(copy / "changed")
        words = filled(chance.choice(kind.commands), copy)
        ended = command(words, seconds=SECONDS)
        fault = ended.fault(memory=MEMORY_BYTES)
        if fault and keep:
            number = len(list(keep.iterdir()))
            (keep / f"{number:04d}-{path.name}").write_bytes(data)
            (keep / f"{number:04d}-error.txt").write_text(f"{words}\n{ended.err}")
        answer = "taken" if ended.code == 0 else "refused"
        return f"{words[0]} of {path.relative_to(copy)}: {fault}" if fault else answer


def main(argv: Sequence[str]) -> int:
    """Print the table; the exit code says whether there is a fault."""
    parser = argparse.ArgumentParser(prog="reliability.py mutate", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder for the files that led to a fault")
    options = parser.parse_args(argv)
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    chance = random.Random(options.seed)
    counts = {kind.name: Counter[str]() for kind in KINDS}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "files"
        folder.mkdir()
        make(folder)
        end = time.monotonic() + 60 * options.minutes
        while time.monotonic() < end:
            kind = chance.choice(KINDS)
            found = attack(kind, folder, chance, options.keep)
            if found not in ("taken", "refused"):
                print(f"{kind.name}: {found}", flush=True)
                found = "fault"
            counts[kind.name][found] += 1
    print(table(counts, ("taken", "refused", "fault")))
    return int(any(row["fault"] for row in counts.values()))
