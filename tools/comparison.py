"""Write the tables and pictures of docs/comparison.md from what `compare` printed.

    python -m tools.comparison

``python -m tools.benchmarks compare --write`` prints ``tools/benchmarks/compare.txt`` anew and runs
this. Tables are named by comments of the page, as in docs/measured.md (`tools.measured`). Pictures
are SVG: seconds by rows, peak memory by rows, and accuracy by seconds, one for each data set.
"""

from __future__ import annotations

import html
import math
import re
from typing import TYPE_CHECKING, NamedTuple

from tools.measured import REPOSITORY, cells, find, page

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PAGE = REPOSITORY / "docs" / "comparison.md"
SIZES, SETS = ("compare", "made rows"), ("compare", "data sets")
PLACES = re.compile(r"(<!-- pictures: (rows|data sets) -->\n).*?(<!-- end of pictures -->\n)", re.S)
COLOURS = {
    "bigsvm": "#1b7f5c", "bigsvm store": "#57b894", "bigsvm sampled": "#9bd4bd",
    "scikit-learn": "#6b7280", "scikit-learn-intelex": "#d98a1f", "LIBSVM": "#9c4a8b",
    "ThunderSVM": "#c9b300",
    "LIBLINEAR": "#3569c8", "Nystroem 300": "#d15b5b", "Nystroem 1000": "#8f1f1f",
}  # fmt: skip
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 380, 64, 190, 34, 46
Points = dict[str, list[tuple[float, float]]]


class Axis(NamedTuple):
    """One axis of a picture.

    Attributes
    ----------
    title : str
    logarithmic : bool
    """

    title: str
    logarithmic: bool = True


def rows_of(table: tuple[str, ...]) -> list[dict[str, str]]:
    """Read the rows of a printed table, by their headers."""
    head, _, *rows = find(*table).lines
    return [dict(zip(cells(head), cells(row), strict=True)) for row in rows]


def number(cell: str) -> float | None:
    """Read a figure without its range; None where it was not measured, or is only a bound."""
    text = cell.partition(" [")[0]
    return None if text == "-" or text.startswith(">") else float(text)


def points(rows: Sequence[dict[str, str]], x: str, y: str) -> Points:
    """Give the points of each contestant."""
    found: Points = {}
    for row in rows:
        pair = number(row[x]), number(row[y])
        if pair[0] is not None and pair[1] is not None:
            found.setdefault(row["who"], []).append((pair[0], pair[1]))
    return found


def ticks(low: float, high: float, axis: Axis) -> list[float]:
    """Choose round values of an axis."""
    if axis.logarithmic:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        return [10.0**p for p in powers]
    step = next(s for s in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20) if (high - low) / s <= 8)
    return [step * k for k in range(math.floor(low / step), math.ceil(high / step) + 1)]


def scale(values: Sequence[float], axis: Axis, start: float, end: float) -> Callable[..., float]:
    """Make a function from values to places between `start` and `end`."""
    marks = ticks(min(values), max(values), axis)
    by = math.log10 if axis.logarithmic else float
    low, high = by(marks[0]), by(marks[-1])
    span = (high - low) or 1.0
    return lambda value: start + (by(value) - low) / span * (end - start)


def picture(found: Points, x: Axis, y: Axis, title: str, *, lines: bool) -> str:
    """Draw the points of all contestants in SVG, joined where `lines` says so."""
    all_x = [point[0] for each in found.values() for point in each]
    all_y = [point[1] for each in found.values() for point in each]
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    place_x, place_y = scale(all_x, x, LEFT, right), scale(all_y, y, bottom, TOP)

    def text(px: float, py: float, words: str, more: str = "") -> str:
        return f'<text x="{px:.0f}" y="{py:.0f}" {more}>{html.escape(words)}</text>'

    drawn = [text(LEFT, 18, title, 'font-weight="bold"')]
    for value in ticks(min(all_x), max(all_x), x):
        px = place_x(value)
        drawn.append(f'<path d="M{px:.0f} {TOP}V{bottom}" stroke="#e3e5ea"/>')
        drawn.append(text(px, bottom + 16, f"{value:,.10g}", 'text-anchor="middle"'))
    for value in ticks(min(all_y), max(all_y), y):
        py = place_y(value)
        drawn.append(f'<path d="M{LEFT} {py:.0f}H{right}" stroke="#e3e5ea"/>')
        drawn.append(text(LEFT - 6, py + 4, f"{value:,.10g}", 'text-anchor="end"'))
    drawn.append(text((LEFT + right) / 2, HEIGHT - 8, x.title, 'text-anchor="middle"'))
    drawn.append(
        f'<text transform="translate(14 {(TOP + bottom) / 2:.0f}) rotate(-90)" '
        f'text-anchor="middle">{html.escape(y.title)}</text>'
    )
    for k, (who, each) in enumerate(found.items()):
        colour = COLOURS[who]
        places = [(place_x(a), place_y(b)) for a, b in sorted(each)]
        if lines:
            path = "L".join(f"{px:.1f} {py:.1f}" for px, py in places)
            drawn.append(f'<path d="M{path}" stroke="{colour}" stroke-width="2" fill="none"/>')
        drawn += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="4" fill="{colour}"/>'
                  for px, py in places]  # fmt: skip
        drawn.append(f'<circle cx="{right + 18}" cy="{TOP + 8 + 20 * k}" r="5" fill="{colour}"/>')
        drawn.append(text(right + 30, TOP + 12 + 20 * k, who))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
            *drawn,
            "</svg>\n",
        ]
    )


def pictures() -> dict[str, str]:
    """Draw all pictures; by their names."""
    seconds, rows = Axis("seconds of training"), Axis("rows")
    sizes, sets = rows_of(SIZES), rows_of(SETS)
    drawn = {
        "comparison-time": picture(points(sizes, "rows", "seconds"), rows, seconds,
                                   "made rows, 22 columns", lines=True),
        "comparison-memory": picture(points(sizes, "rows", "peak RSS MB"), rows,
                                     Axis("peak memory, MB"), "made rows, 22 columns", lines=True),
    }  # fmt: skip
    for name in dict.fromkeys(row["data"] for row in sets):
        found = points([row for row in sets if row["data"] == name], "seconds", "test accuracy %")
        drawn[f"comparison-{name}"] = picture(
            found, seconds, Axis("test accuracy, %", logarithmic=False), name, lines=False
        )
    return drawn


def written(text: str) -> str:
    """Return docs/comparison.md with its tables, and its list of pictures, written anew."""
    names = {
        "rows": ["time", "memory"],
        "data sets": dict.fromkeys(r["data"] for r in rows_of(SETS)),
    }
    titles = {"time": "seconds by rows", "memory": "peak memory by rows"}

    def listed(found: re.Match[str]) -> str:
        lines = [f"![{titles.get(name, f'accuracy by seconds, {name}')}](comparison-{name}.svg)\n"
                 for name in names[found[2]]]  # fmt: skip
        return "\n".join([found[1], *lines, found[3]])

    if len(PLACES.findall(text)) != len(names):
        raise ValueError(f"docs/comparison.md has no places for pictures of {' and '.join(names)}")
    return page(PLACES.sub(listed, text))


def main() -> None:
    """Write the page and its pictures."""
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    for name, text in pictures().items():
        (PAGE.parent / f"{name}.svg").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
