"""Write docs/measured.md, its picture and the table of README.md from what benchmarks have printed.

    python -m tools.measured

The printed outputs are ``tools/benchmarks/*.txt``, and `tools.measured_tables` says what of them is
shown. Words that are not found there, or found twice, are a ValueError. After a benchmark has been
printed again, run this script and commit what it writes.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import NamedTuple

from tools.measured_tables import INTRODUCTION, ROWS, SECTIONS, Cell, Line, Table

REPOSITORY = Path(__file__).resolve().parents[1]
TEXTS = REPOSITORY / "tools" / "benchmarks"
PAGE = REPOSITORY / "docs" / "measured.md"
PICTURE = REPOSITORY / "docs" / "measured.svg"
README = REPOSITORY / "README.md"
BEGIN, END = "<!-- table: python -m tools.measured -->\n", "<!-- end of table -->\n"


class Printed(NamedTuple):
    """A table as a benchmark has printed it."""

    command: str
    machine: str
    before: list[str]
    lines: list[str]

    def says(self, words: tuple[str, ...]) -> bool:
        """Whether each of the words is in the command, the lines above the table or its header.

        A word may end with a line break, to be found at the end of a line.
        """
        places = [f"{line}\n" for line in (self.command, *self.before, self.lines[0])]
        return all(any(word in place for place in places) for word in words)

    def caption(self, words: tuple[str, ...]) -> str:
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


def find(table: Table) -> Printed:
    """Return the printed table that is meant; ValueError if there is none, or more than one."""
    fitting = [printed for printed in tables(read(table.text)) if printed.says(table.words)]
    if len(fitting) != 1:
        raise ValueError(f"{table.text}.txt has {len(fitting)} tables with {table.words}, not one")
    return fitting[0]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def figure(cell: Cell | None) -> str:
    """Return a figure without its range, ``0.45`` of ``0.45 [0.35-0.51]``; a dash for None."""
    if cell is None:
        return "-"
    head, _, *rows = find(cell.table).lines
    fitting = [each for each in map(cells, rows) if set(cell.row) <= set(each)]
    if len(fitting) != 1:
        raise ValueError(f"{cell.table.text}.txt has {len(fitting)} rows with {cell.row}, not one")
    return fitting[0][cells(head).index(cell.column)].partition(" [")[0]


def shown(part: Table | Line, command: str) -> tuple[list[str], str]:
    """Return the paragraphs of a part, and its command, which is only shown where it is another."""
    if isinstance(part, Line):
        lines = [f"* {line}" for line in read(part.text).splitlines() if part.words in line]
        if not lines:
            raise ValueError(f"{part.text}.txt has no line with {part.words!r}")
        return ["\n".join(lines)], command
    printed = find(part)
    paragraphs = []
    if printed.command != command:
        source = f"[{part.text}.txt](../tools/benchmarks/{part.text}.txt)"
        machine = f" ({printed.machine})" if printed.machine else ""
        paragraphs.append(f"{source}: `{printed.command}`{machine}")
    if caption := printed.caption(part.words):
        paragraphs.append(caption)
    head, line, *rows = printed.lines
    paragraphs.append("\n".join([head, line, *(row for row in rows if part.only in row)]))
    return paragraphs, printed.command


def page() -> str:
    """Return docs/measured.md."""
    paragraphs, command = [INTRODUCTION.strip()], ""
    for section in SECTIONS:
        paragraphs += [f"## {section.heading}", section.about.strip()]
        for part in section.shown:
            more, command = shown(part, command)
            paragraphs += more
    return "\n\n".join(paragraphs) + "\n"


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
        printed = find(row.bigsvm.table)
        if not re.search(rf"\b{row.rows}\b", "\n".join([*printed.before, *printed.lines])):
            raise ValueError(f"{row.bigsvm.table.text}.txt does not say {row.rows} of {row.data}")
        each = [row.data, grouped(row.rows), *map(figure, row[2:])]
        lines.append(f"| {' | '.join(each)} |")
    machines = sorted({find(row.bigsvm.table).machine for row in ROWS})
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
        figures = [figure(cell) for cell in (row.bigsvm, row.sklearnex, row.sklearn)]
        known = [
            (who, seconds) for who, seconds in zip(colours, figures, strict=True) if seconds != "-"
        ]
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
    """Write the three files."""
    PAGE.write_text(page(), encoding="utf-8")
    PICTURE.write_text(picture(), encoding="utf-8")
    README.write_text(readme(README.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
