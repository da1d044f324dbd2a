"""Rows whose labels look wrong: as records, as a table, and, of images, drawn."""

from __future__ import annotations

from math import isqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.errors import DataError, ParameterError
from bigsvm.report.pictures import figure_of, write_figure
from bigsvm.report.text import as_table, label_text, number

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from rich.text import Text

    from bigsvm.models import KernelExpansion
    from bigsvm.models.doubt import Doubtful

    Images = NDArray[np.float64]
    Records = list[dict[str, Any]]

NEGLIGIBLE = 0.005
"""Shares below it are not shown."""
ON = 0.5
"""Share of the range of an image: without colours, pixels above it are drawn."""
IMAGES_A_LINE = 5
MOST_IMAGES = 200
"""In a file. matplotlib takes 11 seconds for them, 30 for twice as many, more than 240 for 1400."""
LEAST_SHARE = 0.25
"""Smallest share of the pixels of an image that are columns: images stay a few times the rows."""
_DRAWN = "images are drawn into files"


def records(model: KernelExpansion, doubtful: Doubtful, originals: Sequence[int]) -> Records:
    """Describe rows, with their numbers in the input, as JSON can say it."""
    classes = list(model.classes or ())
    described = []
    for i, row in enumerate(originals):
        shares = doubtful.distribution[i]
        order = np.argsort(-shares, kind="stable")
        shown = order[shares[order] >= NEGLIGIBLE].tolist()
        described.append(
            {
                "row": row,
                "label": classes[doubtful.label[i]],
                "looks_like": classes[doubtful.looks_like[i]],
                "doubt": float(doubtful.doubt[i]),
                "margin": float(doubtful.margin[i]),
                "could_be": [{"label": classes[r], "share": float(shares[r])} for r in shown],
            }
        )
    return described


def table(described: Records) -> str:
    """Lines for a person."""
    head = ("row", "label", "looks like", "doubt", "margin", "could be")
    lines = [head]
    for record in described:
        shares = [f"{label_text(c['label'])} {c['share']:.0%}" for c in record["could_be"]]
        labels = label_text(record["label"]), label_text(record["looks_like"])
        figures = f"{record['doubt']:.3f}", number(record["margin"], 3)
        lines.append((str(record["row"]), *labels, *figures, ", ".join(shares)))
    return as_table(lines)


# -- images ------------------------------------------------------------------------------------


def check_number(count: int) -> None:
    """Refuse more rows than a file of images has room for."""
    if count > MOST_IMAGES:
        raise ParameterError(
            f"{count} rows are to be drawn, and an image has room for {MOST_IMAGES}; give a lower "
            "--doubtful, or leave --image out"
        )


def image_side(model: KernelExpansion, side: int | None, *, wanted: bool) -> int | None:
    """Pixels on a side of the rows as images; None where they are none.

    The user may give the side: pixels past the last column are 0 then. If images are `wanted`, rows
    that are none are refused, and drawing must be possible.
    """
    if wanted:
        figure_of(_DRAWN)
    columns = model.n_features
    if side is not None and columns > side**2:
        raise ParameterError(
            f"side is {side}, but rows have {columns} columns, more than {side} x {side}; give "
            f"{isqrt(columns - 1) + 1}, or leave it out"
        )
    if side is not None and columns < LEAST_SHARE * side**2:
        raise ParameterError(
            f"side is {side}, but rows have {columns} columns, of {side} x {side} pixels less "
            f"than {LEAST_SHARE:.0%}; give {isqrt(columns - 1) + 1}, or leave it out"
        )
    pixels = side or isqrt(columns)
    if model.kernel.product == "lookup" or (side is None and pixels**2 != columns):
        if wanted or side is not None:
            raise DataError(f"rows of {columns} columns are no square images; leave --image out")
        return None
    return pixels


def images(model: KernelExpansion, doubtful: Doubtful, side: int) -> Images:
    """Pixels of rows, (m, side, side), from 0 to 1 each; as they were before they were scaled."""
    rows: Any = model.support_vectors[doubtful.places]
    values = np.asarray(rows if isinstance(rows, np.ndarray) else rows.toarray(), np.float64)
    if model.scaler is not None:
        factor = model.scaler.factor
        values = values / np.where(factor == 0, 1.0, factor) + model.scaler.offset
    pixels = np.zeros((len(values), side * side))
    pixels[:, : values.shape[1]] = values
    low, high = pixels.min(axis=1, keepdims=True), pixels.max(axis=1, keepdims=True)
    scaled: Images = (pixels - low) / np.where(high > low, high - low, 1.0)
    return scaled.reshape(-1, side, side)


def drawing(described: Records, drawn: Images) -> str:
    """Draw images for the terminal, as many beside each other as it has room for."""
    # Not needed for a table or for JSON.
    from rich.columns import Columns
    from rich.console import Console, Group
    from rich.text import Text

    console = Console(highlight=False, markup=False)
    coloured = console.color_system is not None
    with console.capture() as captured:
        console.print(
            Columns(
                [
                    Group(Text(_caption(record)), half_blocks(image, coloured=coloured))
                    for record, image in zip(described, drawn, strict=True)
                ],
                padding=(1, 2),
            ),
            end="",
        )
    return captured.get()


def half_blocks(image: NDArray[np.float64], *, coloured: bool) -> Text:
    """Draw an image (s, s) in characters of two pixels each, one above the other.

    In shades of grey; without colours, pixels that are bright.
    """
    from rich.color import Color
    from rich.style import Style
    from rich.text import Text

    padded = np.pad(image, ((0, len(image) % 2), (0, 0)))
    if not coloured:
        on = padded >= ON
        characters = np.array(list(" ▀▄█"))[on[::2] + 2 * on[1::2]]
        return Text("\n".join("".join(line) for line in characters))
    levels = np.round(255 * padded).astype(int)
    text = Text()
    for upper, lower in zip(levels[::2].tolist(), levels[1::2].tolist(), strict=True):
        for above, below in zip(upper, lower, strict=True):
            colours = (Color.from_rgb(level, level, level) for level in (above, below))
            text.append("▀", Style(color=next(colours), bgcolor=next(colours)))
        text.append("\n")
    text.right_crop()
    return text


def write_png(path: Path, described: Records, drawn: Images) -> None:
    """Draw images into a PNG file, whole or not at all."""
    n_lines = max(1, -(-len(described) // IMAGES_A_LINE))
    size = (2 * IMAGES_A_LINE, 2.2 * n_lines)
    figure = figure_of(_DRAWN)(figsize=size, layout="constrained")
    for i, (record, image) in enumerate(zip(described, drawn, strict=True)):
        axes = figure.add_subplot(n_lines, IMAGES_A_LINE, i + 1)
        axes.imshow(image, cmap="gray")
        axes.set_title(_caption(record), fontsize=8)
        axes.axis("off")
    write_figure(figure, path, "png", f"cannot write the image {path}")


def _caption(record: dict[str, Any]) -> str:
    label, looks_like = label_text(record["label"]), label_text(record["looks_like"])
    return f"{record['row']}: {label}, like {looks_like}"
