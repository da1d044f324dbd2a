"""What a command writes: files, looked at before the work, which may take hours; and results."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import typer

from bigsvm.cli.inputs import LIBSVM_MODEL
from bigsvm.errors import BigsvmError, DataError, ModelError

_STARTS: dict[str, tuple[str, Callable[[bytes], bool]]] = {
    "bigsvm": ("a model", lambda start: b'"bigsvm"' in start),
    "libsvm": ("LIBSVM's model", lambda start: start.startswith(LIBSVM_MODEL)),
    # The second field of a graph is its producer.
    "onnx": ("an ONNX graph of bigsvm's", lambda start: b"\x12\x06bigsvm" in start[:32]),
}
"""What files are called, and how those begin that may be replaced by one of their kind."""


def say(text: str) -> None:
    """Write a result to standard output.

    Raises
    ------
    DataError
        There is no room for it.
    """
    try:
        typer.echo(text)
    except BrokenPipeError:
        raise  # whoever reads has seen enough: the command ends without a word
    except OSError as error:
        # What is left in the buffer would fail again when the process ends.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        raise DataError(
            f"standard output cannot be written to ({error.strerror}); what was to be shown is "
            "lost, and files that were written are whole"
        ) from error


def check_model_path(path: Path, kind: str = "bigsvm") -> None:
    """Refuse a path that no model can be written to, or had better not.

    Parameters
    ----------
    path : Path
    kind : {"bigsvm", "libsvm", "onnx"}
        What will be written; a file of this kind is replaced.

    Raises
    ------
    ModelError
    """
    _check_place(path, "model", ModelError)
    if path.exists() and path.stat().st_size:
        with path.open("rb") as file:
            start = file.read(1 << 20)
        called, is_one = _STARTS[kind]
        if not is_one(start):
            raise ModelError(
                f"{path} exists and is not {called}, so it is not replaced; give another name, or "
                "remove it first"
            )


def check_predictions_path(path: Path, *, source: str, model: Path) -> None:
    """Refuse a path that no predictions can be written to, and what they are made of.

    Raises
    ------
    DataError
    """
    _check_place(path, "predictions", DataError)
    _check_no_input(path, source, model, "--output")


def check_image_path(path: Path, *, source: str, model: Path) -> None:
    """Refuse a path that no image can be written to, and what it is made of.

    Raises
    ------
    DataError
    """
    _check_place(path, "image", DataError)
    _check_no_input(path, source, model, "--image")


def _check_no_input(path: Path, source: str, model: Path, option: str) -> None:
    resolved = path.resolve()
    for needed in (Path(source).resolve(), model.resolve()):
        if needed in (resolved, *resolved.parents):
            raise DataError(
                f"{path} is part of the input, so it is not replaced; give another {option}"
            )


def _check_place(path: Path, what: str, error: type[BigsvmError]) -> None:
    if str(path) == "-":
        raise error(f"- is no file; name one to write the {what} to")
    if path.is_dir():
        raise error(f"{path} is a folder; name the file to write the {what} to")
    if path.exists() and not path.is_file():
        raise error(
            f"{path} is a device or a pipe, which the {what} would take the place of; name a file"
        )
    if not (path.parent.is_dir() and os.access(path.parent, os.W_OK)):
        raise error(f"{path.parent} is not a folder that can be written to; make it first")
