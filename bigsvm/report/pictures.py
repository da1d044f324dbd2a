"""Files of pictures by matplotlib, which is an extra."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from bigsvm.errors import DataError, ParameterError
from bigsvm.files import replace_synced

if TYPE_CHECKING:
    from pathlib import Path

SUFFIXES = (".png", ".svg", ".pdf")


def check_picture(path: Path) -> None:
    """Refuse a picture that cannot be drawn, before the search."""
    if path.suffix not in SUFFIXES:
        raise ParameterError(f"{path} must end in {', '.join(SUFFIXES)}, the kinds of pictures")
    figure_of("pictures are drawn")


def figure_of(done: str) -> Any:  # noqa: ANN401 (a class of matplotlib)
    """Return the class of figures; `done` says in a message what matplotlib is for."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ParameterError(
            f"{done} by matplotlib ({error}); pip install 'bigsvm[plot]'"
        ) from None
    return Figure


def write_figure(figure: Any, path: Path, kind: str, failure: str) -> None:  # noqa: ANN401
    """Write a figure, whole or not at all; `failure` begins the message where it cannot be."""
    content = io.BytesIO()
    figure.savefig(content, format=kind)
    try:
        replace_synced(path, content.getvalue())
    except OSError as error:
        raise DataError(f"{failure}: {error}") from error
