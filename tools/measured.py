"""Write the measured tables of docs and README.md, and a picture, from what benchmarks printed.

    python -m tools.measured

The printed outputs are ``tools/benchmarks/*.txt``. A comment in a page names what of them is shown
below it, down to the next comment or heading::

    <!-- table: ["peers", "a9a:", "| who"] -->
    <!-- rows: ["parity", "not at tol"] -->
    <!-- lines: ["growth", "was given up"] -->

are the table of peers.txt that has these words before it (in its command, the lines above it or its
header), the rows with the last words of a table that has the other words, and the lines of
growth.txt that have these words.

Words that are not found there, or found twice, are a ValueError. After a benchmark has been printed
again, run this script and commit what it writes.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

REPOSITORY = Path(__file__).resolve().parents[1]
TEXTS = REPOSITORY / "tools" / "benchmarks"
PAGES = [REPOSITORY / "docs" / f"{name}.md" for name in ("measured", "records", "comparison")]
PICTURE = REPOSITORY / "docs" / "measured.svg"
README = REPOSITORY / "README.md"
BEGIN, END = "<!-- table: python -m tools.measured -->\n", "<!-- end of table -->\n"
SHOWN = re.compile(r"^<!-- (table|rows|lines): (\[[^\n]*\]) -->$.*?(?=^<!-- |^## |\Z)", re.M | re.S)
"""A comment of the page, and all that is written below it."""


class Row(NamedTuple):
    """A row of README's table, and of the picture.

    Attributes
    ----------
    data : str
    rows : int
    table : tuple of str
        The name of a text, and words before one table of it.
    cells : tuple of ((str, ...), str) or None
        Cells of a row of that table, and a column: seconds of bigsvm, scikit-learn and its
        extension, megabytes of bigsvm and of the extension. None is not measured.
    """

    data: str
    rows: int
    table: tuple[str, ...]
    cells: tuple[tuple[tuple[str, ...], str] | None, ...]


SECONDS, PEAK = "seconds", "peak RSS MB"
_POLY = ("satimage.scale", "poly, degree 2, coef0 1.0, gamma scale, C 100.0")


def _peer(data: str, rows: int, words: str) -> Row:
    seconds = [((who,), SECONDS) for who in ("memory", "sklearn", "sklearnex")]
    peaks = [((who,), PEAK) for who in ("memory", "sklearnex")]
    return Row(data, rows, ("peers", words, "| who"), (*seconds, *peaks))


def _two(
    data: str, rows: int, table: tuple[str, ...], ours: tuple[str, ...], theirs: tuple[str, ...]
) -> Row:
    cells = ((ours, SECONDS), None, (theirs, SECONDS), (ours, PEAK), (theirs, PEAK))
    return Row(data, rows, table, cells)


ROWS = (
    Row(
        "satimage, polynomial kernel",
        4435,
        ("unscaled",),
        ((_POLY, "bigsvm"), (_POLY, "sklearn"), (_POLY, "sklearnex"), None, None),
    ),
    _peer("a9a, 123 columns", 32561, "a9a:"),
    _peer("w8a, 300 columns", 49749, "w8a:"),
    _peer("mnist, digits 0-4 against 5-9", 60000, "mnist:"),
    _two("mnist, ten digits", 60000, ("many_classes", "| who"), ("ovo",), ("sklearnex",)),
    _peer("made, 22 columns", 100000, "few-100000:"),
    _two(
        "made, 50 columns",
        200000,
        ("growth", "peak RSS MB"),
        ("200000", "store"),
        ("200000", "sklearnex"),
    ),
    Row(
        "made, 200 columns, 4 GB",
        5000000,
        ("out_of_core", "| what"),
        (
            (("seconds of training",), "value"),
            None,
            None,
            (("peak RSS by its own count, MB",), "value"),
            None,
        ),
    ),
)


class Printed(NamedTuple):
    """A table as a benchmark has printed it."""

    command: str
    machine: str
    before: list[str]
    lines: list[str]

    def says(self, words: Sequence[str]) -> bool:
        """Whether each of the words is in the command, the lines above the table or its header.

        A word may end with a line break, to be found at the end of a line.
        """
        places = [f"{line}\n" for line in (self.command, *self.before, self.lines[0])]
        return all(any(word in place for place in places) for word in words)

    def caption(self, words: Sequence[str]) -> str:
        """Return the line above the table that has one of the words; empty where none has."""
        return next((line for line in self.before if any(word in line for word in words)), "")


def read(name: str) -> str:
    return (TEXTS / f"{name}.txt").read_text(encoding="utf-8")


def tables(text: str) -> list[Printed]:
    """Return the tables of a printed text, in order."""
    found: list[Printed] = []
    command, machine = "", ""
    before: list[str] = []
    lines: list[str] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            lines.append(line)
            continue
        if lines:
            found.append(Printed(command, machine, before, lines))
            before, lines = [], []
        if line.startswith("$ "):
            command, machine, before = line[2:], "", []
        elif re.search(r"\d+ cores, \d+ threads", line):
            machine = line
        elif line:
            before.append(line)
    return found


def find(text: str, *words: str) -> Printed:
    """Return the printed table that is meant; ValueError if there is none, or more than one."""
    fitting = [printed for printed in tables(read(text)) if printed.says(words)]
    if len(fitting) != 1:
        raise ValueError(f"{text}.txt has {len(fitting)} tables with {words}, not one")
    return fitting[0]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def figure(table: tuple[str, ...], cell: tuple[tuple[str, ...], str] | None) -> str:
    """Return a figure without its range, ``0.45`` of ``0.45 [0.35-0.51]``; a dash for None."""
    if cell is None:
        return "-"
    (row, column), (head, _, *rows) = cell, find(*table).lines
    fitting = [each for each in map(cells, rows) if set(row) <= set(each)]
    if len(fitting) != 1:
        raise ValueError(f"{table[0]}.txt has {len(fitting)} rows with {row}, not one")
    return fitting[0][cells(head).index(column)].partition(" [")[0]


def shown(kind: str, text: str, *words: str, command: str = "") -> tuple[list[str], str]:
    """Return the paragraphs that a comment names, and their command.

    `command` is that of the comment before; only another one is shown.
    """
    if kind == "lines":
        lines = [f"* {line}" for line in read(text).splitlines() if words[0] in line]
        if not lines:
            raise ValueError(f"{text}.txt has no line with {words[0]!r}")
        return ["\n".join(lines)], command
    *words, only = words if kind == "rows" else (*words, "")
    printed = find(text, *words)
    paragraphs = []
    if printed.command != command:
        machine = f" ({printed.machine})" if printed.machine else ""
        source = f"[{text}.txt](../tools/benchmarks/{text}.txt)"
        paragraphs.append(f"{source}: `{printed.command}`{machine}")
    if caption := printed.caption(words):
        paragraphs.append(caption)
    head, line, *rows = printed.lines
    paragraphs.append("\n".join([head, line, *(row for row in rows if only in row)]))
    return paragraphs, printed.command


def page(text: str) -> str:
    """Return docs/measured.md with what its comments name written anew."""
    command = ""

    def written(found: re.Match[str]) -> str:
        nonlocal command
        paragraphs, command = shown(found[1], *json.loads(found[2]), command=command)
        return "\n\n".join([found[0].splitlines()[0], *paragraphs, ""])

    return SHOWN.sub(written, text).rstrip("\n") + "\n"


def grouped(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def readme_table() -> str:
    """Return the table of README.md, and the machine that it was measured on."""
    lines = [
        "| data | rows | bigsvm, s | scikit-learn, s | scikit-learn-intelex, s "
        "| memory of bigsvm, MB | of scikit-learn-intelex, MB |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for row in ROWS:
        printed = find(*row.table)
        if not re.search(rf"\b{row.rows}\b", "\n".join([*printed.before, *printed.lines])):
            raise ValueError(f"{row.table[0]}.txt does not say {row.rows} of {row.data}")
        each = [row.data, grouped(row.rows), *(figure(row.table, cell) for cell in row.cells)]
        lines.append(f"| {' | '.join(each)} |")
    machines = sorted({find(*row.table).machine for row in ROWS})
    return "\n".join([*lines, "", f"Measured on {'; '.join(machines)}.", ""])


def readme(text: str) -> str:
    """Return README.md with its table, between two comments, written anew."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"README.md lacks {BEGIN.strip()} or {END.strip()}")
    return before + BEGIN + readme_table() + END + after


def picture() -> str:
    """Return README's table of seconds as a bar chart in SVG, on a logarithmic scale."""
    colours = {"bigsvm": "#1b7f5c", "scikit-learn-intelex": "#d98a1f", "scikit-learn": "#8d93a1"}
    width, left, right, bar, gap, top = 800, 260, 70, 14, 12, 48
    least, most = 0.1, 200.0

    def place(seconds: float) -> float:
        share = math.log(seconds / least) / math.log(most / least)
        return left + share * (width - left - right)

    def text(x: float, y: float, words: str, more: str = "") -> str:
        words = words.replace(">", "&gt;")
        return f'<text x="{x:.0f}" y="{y:.0f}" {more}>{words}</text>'

    bars, y = [], float(top)
    for row in ROWS:
        figures = [figure(row.table, cell) for cell in row.cells]
        known = [(who, figures[k]) for who, k in zip(colours, (0, 2, 1), strict=True)]
        known = [(who, seconds) for who, seconds in known if seconds != "-"]
        middle = y + bar * len(known) / 2 + 4
        bars.append(text(left - 8, middle, f"{row.data}, {grouped(row.rows)}", 'text-anchor="end"'))
        for who, seconds in known:
            end = place(float(seconds.removeprefix("> ")))
            bars.append(
                f'<rect x="{left}" y="{y:.0f}" width="{end - left:.0f}" height="{bar - 2}" '
                f'fill="{colours[who]}"/>'
            )
            bars.append(text(end + 4, y + bar - 3, seconds))
            y += bar
        y += gap
    axis = []
    for seconds in (0.1, 1, 10, 100):
        x = place(seconds)
        axis.append(f'<path d="M{x:.0f} {top - 6}V{y:.0f}" stroke="#d5d8de"/>')
        axis.append(text(x, y + 14, f"{seconds:g} s", 'text-anchor="middle"'))
    legend = [text(left, 16, "seconds of training, less is better; &gt; is stopped before its end")]
    x = float(left)
    for who, colour in colours.items():
        legend.append(f'<rect x="{x:.0f}" y="24" width="12" height="12" fill="{colour}"/>')
        legend.append(text(x + 17, 34, who))
        x += 40 + 7 * len(who)
    height = round(y + 24)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
            f'<rect width="{width}" height="{height}" fill="#fff"/>',
            *axis,
            *legend,
            *bars,
            "</svg>\n",
        ]
    )


def main() -> None:
    """Write the files."""
    for path in PAGES:
        path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")
    PICTURE.write_text(picture(), encoding="utf-8")
    README.write_text(readme(README.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
