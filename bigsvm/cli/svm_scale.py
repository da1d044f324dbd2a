"""``bigsvm svm-scale``: LIBSVM text with scaled columns, as LIBSVM's program writes it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bigsvm.cli.inputs import is_standard_input
from bigsvm.cli.libsvm_words import as_number, read_words
from bigsvm.cli.outputs import check_apart, check_model_path, say_lines
from bigsvm.cli.signals import Interruption
from bigsvm.errors import DataError
from bigsvm.report.progress import Display

if TYPE_CHECKING:
    from bigsvm.cli.libsvm_words import Words
    from bigsvm.interchange.text_scaling import TextScaling

MOST_NAMED = 5
"""Columns named in a warning."""


def command(
    words: Annotated[list[str] | None, typer.Argument(metavar="[OPTIONS] TEXT")] = None,
) -> None:
    """Scale LIBSVM text as LIBSVM's svm-scale does: with its options, to standard output.

    Columns are mapped to the range from -l to -u. `bigsvm scale` scales stores, and has other ways.

    \b
    -l LOWER   smallest value of each column (-1)
    -u UPPER   largest value of each column (1)
    -y LO UP   scale the targets too, to this range
    -s FILE    write the limits of the columns to this file
    -r FILE    scale by the limits in this file

    \b
    Examples:
      bigsvm svm-scale -l 0 -s train.range train > train.scaled
      bigsvm svm-scale -r train.range test > test.scaled
    """
    given = read_words(words or [], letters="lusr", pairs="y")
    if len(given.files) != 1 or is_standard_input(given.files[0]):
        raise typer.BadParameter("give one file of LIBSVM text; it is read twice")
    [text] = given.files
    save, restore = given.text("s"), given.text("r")
    if save is not None and restore is not None:
        raise typer.BadParameter("give one of -s and -r")
    if save is not None:
        check_model_path(Path(save), "range")
        check_apart((text,), {"-s": save})
    with Interruption() as interruption, Display(quiet=given.quiet) as display:
        with interruption.raising():
            scaling = _found(given, text) if restore is None else _restored(restore, text, display)
            if save is not None:
                _save(scaling, Path(save))
                if len(scaling.low) and scaling.low[0] != scaling.high[0]:
                    display.warn(f"index 0 is scaled, and {save} has no place for it")
            say_lines(scaling.lines(text))
        if scaling.n_written > scaling.n_read:
            display.warn(
                f"{scaling.n_read} entries became {scaling.n_written}, as zeros were mapped to "
                "other values; if no value is negative, -l 0 keeps zeros"
            )


def _found(given: "Words", text: str) -> "TextScaling":
    """Find the limits in the text."""
    from bigsvm.interchange.text_scaling import TextScaling

    lower, upper = given.number("l", -1.0), given.number("u", 1.0)
    targets = None
    if (ends := given.values.get("y")) is not None:
        targets = as_number(ends[0], "-y"), as_number(ends[1], "-y")
    for low, high in [(lower, upper), *([] if targets is None else [targets])]:
        if not low < high:
            raise typer.BadParameter(f"the range is from {low:g} to {high:g}; it must ascend")
    return TextScaling.of_text(text, lower=lower, upper=upper, targets=targets)


def _restored(restore: str, text: str, display: Display) -> "TextScaling":
    """Read the limits from a file, and name the columns that it lacks."""
    import numpy as np

    from bigsvm.interchange.range_file import read_range
    from bigsvm.interchange.text_scaling import TextScaling, largest_index

    ranges = read_range(restore, with_targets=True)
    largest = largest_index(text)
    scaling = TextScaling.of_range(ranges, largest + 1)
    missing = np.setdiff1d(np.arange(1, largest + 1), ranges.indices)
    if len(missing):
        named = ", ".join(map(str, missing[:MOST_NAMED].tolist()))
        named += ", …" if len(missing) > MOST_NAMED else ""
        display.line(
            f"{len(missing)} indices that are not in {restore} become 0, as they were constant "
            f"where it was made or did not occur: {named}"
        )
    return scaling


def _save(scaling: "TextScaling", path: Path) -> None:
    from bigsvm.files import replace_synced

    try:
        replace_synced(path, scaling.range_text().encode())
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}") from error
