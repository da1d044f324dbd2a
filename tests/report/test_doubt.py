"""Rows whose labels look wrong, as a table and as images in characters."""

import io

import numpy as np
from rich.console import Console

from bigsvm.report.doubt import half_blocks, table


def test_pixels_are_halves_of_characters():
    image = np.array([[0.0, 1.0, 0.0, 1.0], [0.0, 0.0, 1.0, 1.0], [1.0, 0.4, 0.5, 0.0]])
    assert half_blocks(image, coloured=False).plain == " ▀▄█\n▀ ▀ "


def test_with_colours_they_are_shades_of_grey():
    image = np.array([[0.0, 1.0], [0.5, 0.25]])
    console = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(half_blocks(image, coloured=True))
    shown = console.file.getvalue()
    assert shown.count("▀") == 2
    assert "38;2;0;0;0;48;2;128;128;128" in shown
    assert "38;2;255;255;255;48;2;64;64;64" in shown


def test_labels_are_written_whole():
    """Seven digits are one too many for ``%g``."""
    share = {"label": 1234568.0, "share": 1.0}
    one = {"row": 3, "label": 1234567.0, "looks_like": 1234568.0, "doubt": 1.0, "margin": -1.0}
    last = table([{**one, "could_be": [share]}]).splitlines()[-1]
    assert last.split() == ["3", "1234567", "1234568", "1.000", "-1", "1234568", "100%"]
