"""Say which version printed the tables of docs/papers.md, and mark those older than their code.

    python -m tools.printed [--again COMMAND …]

Each command of the texts of `MEASURES` is written to ``tools/benchmarks/printed.json``, with the
version and the commit that printed it and a hash of the code that it measures, as it was then. A
table is older than its code where the hash is another one now. Run it after a table was printed
anew, and after a change of such code: it writes the table of docs/papers.md between two comments.
A command that printed the same text as before is named after ``--again``: its text does not show
that it was run. Needs git for what is not in the JSON file yet.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from tools.benchmarks.results import table

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

REPOSITORY = Path(__file__).resolve().parents[1]
TEXTS = REPOSITORY / "tools" / "benchmarks"
RECORD = TEXTS / "printed.json"
PAGE = REPOSITORY / "docs" / "papers.md"
BEGIN, END = "<!-- printed: python -m tools.printed -->\n", "<!-- end of printed -->\n"
MEASURES = {
    "balls_at_scale": ("bigsvm/balls", "bigsvm/papers/stepwise.py", "bigsvm/core/sampled_steps.py"),
    "crammer_singer": (
        "bigsvm/core/crammer_singer.py", "bigsvm/core/row_choice.py",
        "bigsvm/duals/crammer_singer.py", "bigsvm/duals/row_steps.py",
    ),
    "hmg": ("bigsvm/core/smo.py", "bigsvm/papers/shrinking.py", "bigsvm/papers/whole.py"),
    "own_kernels": ("bigsvm/kept",),
    "rows_again": ("bigsvm/gram/row_cache.py", "bigsvm/working_sets/active.py"),
    "sampled_balls": ("bigsvm/papers/stepwise.py", "bigsvm/core/sampled_steps.py"),
    "uncertified": (
        "bigsvm/training/learning_curve.py", "bigsvm/training/uncertified.py",
        "bigsvm/balls/search.py", "bigsvm/duals/ball.py",
    ),
}  # fmt: skip
"""Files and folders that decide what a suite's tables count, by the name of its text."""
CURRENT, OLDER = "this code", "older than its code"


def blocks(name: str) -> dict[str, str]:
    """Give what each command of a text printed, a hash of it; by the command."""
    found: dict[str, str] = {}
    for block in (TEXTS / f"{name}.txt").read_text(encoding="utf-8").split("\n$ "):
        command, _, rest = block.removeprefix("$ ").partition("\n")
        found[command] = hashlib.sha256(rest.strip().encode()).hexdigest()[:16]
    return found


def files_of(name: str) -> list[Path]:
    """List the code that a suite measures."""
    places = [REPOSITORY / place for place in MEASURES[name]]
    return [file for place in places
            for file in (sorted(place.glob("*.py")) if place.is_dir() else [place])]  # fmt: skip


def digest(files: list[tuple[str, bytes]]) -> str:
    """Hash files by their names and contents."""
    hasher = hashlib.sha256()
    for name, content in sorted(files):
        hasher.update(f"{name} {len(content)}\n".encode() + content)
    return hasher.hexdigest()[:16]


def code_now(name: str) -> str:
    """Hash the code that a suite measures, as it is here."""
    return digest([(str(f.relative_to(REPOSITORY)), f.read_bytes()) for f in files_of(name)])


def git(*arguments: str) -> bytes:
    return subprocess.run(
        ["git", *arguments], cwd=REPOSITORY, check=True, capture_output=True
    ).stdout


def code_at(name: str, commit: str) -> str:
    """Hash that code as a commit has it; what was elsewhere then counts as another code."""
    listed = git("ls-tree", "-r", "--name-only", commit, "--", *MEASURES[name]).decode()
    names = [line for line in listed.splitlines() if line.endswith(".py")]
    return digest([(each, git("show", f"{commit}:{each}")) for each in names])


def commit_of(name: str, command: str) -> str:
    """Find the commit that a command's text is of: the newest of its lines, HEAD if it is new."""
    commits: dict[str, int] = {}
    times: dict[str, int] = {}
    commit, inside = "", False
    for line in git("blame", "--porcelain", f"tools/benchmarks/{name}.txt").decode().splitlines():
        if line.startswith("\t"):
            text = line[1:]
            inside = text == f"$ {command}" if text.startswith("$ ") else inside
            if inside and text:
                commits[commit] = times[commit]
        elif line.startswith("committer-time "):
            times[commit] = int(line.split()[1])
        elif len(word := line.split(" ")[0]) == 40:
            commit = word
    newest = max(commits, key=lambda commit: commits[commit])
    return "HEAD" if set(newest) == {"0"} else newest


def version_at(name: str, commit: str) -> dict[str, str]:
    """Tell the version of a commit, and its hash of the code that a suite measures."""
    version = git("show", f"{commit}:bigsvm/version.py").decode().partition('version__ = "')[2]
    return {
        "commit": git("rev-parse", "--short=8", commit).decode().strip(),
        "date": git("show", "-s", "--format=%cs", commit).decode().strip(),
        "version": version.partition('"')[0],
        "code": code_now(name) if commit == "HEAD" else code_at(name, commit),
    }


def record() -> dict[str, dict[str, dict[str, str]]]:
    """Read what is known of each text's commands."""
    return json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}  # type: ignore[no-any-return]


def updated(again: Collection[str] = ()) -> dict[str, dict[str, dict[str, str]]]:
    """Add what was printed since, or again with the same text, and drop what is there no more."""
    known = record()
    if missing := set(again) - {command for name in MEASURES for command in blocks(name)}:
        raise ValueError(f"no text has the command {min(missing)!r}: give it as the text does")
    found: dict[str, dict[str, dict[str, str]]] = {}
    for name in MEASURES:
        for command, text in blocks(name).items():
            before = known.get(name, {}).get(command)
            if command in again:
                before = {"text": text, **version_at(name, "HEAD")}
            elif before is None or before["text"] != text:
                before = {"text": text, **version_at(name, commit_of(name, command))}
            found.setdefault(name, {})[command] = before
    return found


def marks(known: dict[str, dict[str, dict[str, str]]]) -> str:
    """Lay out which version printed what, and whether its code has changed since."""
    lines = []
    for name, commands in known.items():
        now = code_now(name)
        for command, one in commands.items():
            state = CURRENT if one["code"] == now else OLDER
            short = command.removeprefix("python -m tools.benchmarks ")
            printed = f"{one['version']}, {one['commit']}"
            lines.append([f"`{short}`", printed, one["date"], state])
    return table(["the command, of the paper's suites", "version", "date", "printed by"], lines)


def page(text: str, known: dict[str, dict[str, dict[str, str]]]) -> str:
    """Return docs/papers.md with its table, between two comments, written anew."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"docs/papers.md lacks {BEGIN.strip()} or {END.strip()}")
    return f"{before}{BEGIN}\n{marks(known)}\n\n{END}{after}"


def main(argv: Sequence[str] | None = None) -> None:
    """Write the record and the table of the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--again", nargs="*", default=[], metavar="COMMAND")
    known = updated(parser.parse_args(argv).again)
    RECORD.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), known), encoding="utf-8")


if __name__ == "__main__":
    main()
