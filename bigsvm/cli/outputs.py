"""What a command writes: files, looked at before the work, which may take hours; and results."""

import errno
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.request import url2pathname

import typer

from bigsvm.cli.streams import discard_output
from bigsvm.errors import BigsvmError, DataError, ModelError, ParameterError
from bigsvm.files import LIBSVM_MODEL, descriptor_of, is_stream, is_url, lies_in

STANDARD_OUTPUT = Path("/dev/stdout")
_FILE_URL = "file://"
_START_BYTES = 1 << 20
"""Bytes that tell what a file is."""

_STARTS: dict[str, tuple[str, Callable[[bytes], bool]]] = {
    "bigsvm": ("a model", lambda start: b'"bigsvm"' in start),
    "libsvm": ("LIBSVM's model", lambda start: start.startswith(LIBSVM_MODEL)),
    # The second field of a graph is its producer.
    "range": (
        "a file of svm-scale",
        lambda start: start.startswith((b"x\n", b"y\n", b"x\r\n", b"y\r\n")),
    ),
    "onnx": ("an ONNX graph of bigsvm's", lambda start: b"\x12\x06bigsvm" in start[:32]),
}
"""What files are called, and how those begin that may be replaced by one of their kind."""


def say(text: str, *, on_error: bool = False) -> None:
    """Write a result to standard output, or to standard error if predictions go to the former.

    Raises
    ------
    DataError
        The disk is full, or standard output is closed.
    """
    if on_error:
        print(text, file=sys.stderr)
        return
    with _standard_output():
        typer.echo(text)


def say_lines(lines: Iterable[str]) -> None:
    """Write lines, which end with newlines, to standard output; errors are those of `say`."""
    with _standard_output():
        sys.stdout.writelines(lines)
        sys.stdout.flush()


@contextmanager
def _standard_output() -> Iterator[None]:
    """Turn errors of writing to standard output into a `DataError`."""
    try:
        if sys.stdout is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        yield
    except OSError as error:
        discard_output()
        if isinstance(error, BrokenPipeError):
            return  # the reader has closed the pipe
        raise DataError(
            f"standard output cannot be written to ({error.strerror}); what was to be shown is "
            "lost, and files that were written are whole"
        ) from error


def check_model_path(path: str | Path, kind: str = "bigsvm") -> None:
    """Refuse a path that no model can be written to, or had better not.

    Parameters
    ----------
    path : path or URL
    kind : {"bigsvm", "libsvm", "range", "onnx"}
        What will be written; a file of this kind is replaced.

    Raises
    ------
    ModelError
    StoreError
        The URL cannot be reached.
    """
    start = b""
    if isinstance(path, str) and is_url(path):
        # NumPy, which comes with it, takes long to import.
        from bigsvm.data.objects import start_of_object

        start = start_of_object(path, "MODEL", _START_BYTES)
    else:
        path = Path(path)
        _check_place(path, "model", ModelError)
        if path.exists() and path.stat().st_size:
            with path.open("rb") as file:
                start = file.read(_START_BYTES)
    if start:
        called, is_one = _STARTS[kind]
        if not is_one(start):
            raise ModelError(
                f"{path} exists and is not {called}, so it is not replaced; give another name, or "
                "remove it first"
            )


def check_no_input(
    path: str | Path, inputs: Iterable[str | Path], name: str, error: type[BigsvmError] = DataError
) -> None:
    """Refuse to write to an input or into it, including by other names of the same file.

    Parameters
    ----------
    path : path or URL
    inputs : iterable of paths, URLs, or ``-``
    name : str
        Name of the option or argument, for messages.
    error : class
    """
    for text in map(str, inputs):
        if isinstance(path, str) and is_url(path):
            is_input = f"{path}/".startswith(f"{text.rstrip('/')}/")
        else:
            read = url2pathname(text[len(_FILE_URL) :]) if text.startswith(_FILE_URL) else text
            is_input = lies_in(Path(path), read)
        if is_input:
            raise error(f"{path} is part of the input, so it is not replaced; give another {name}")


def check_apart(source: str, model: str | Path, folders: Mapping[str, Path | None]) -> None:
    """Refuse a model inside the data, and run folders inside the data or at the model's path.

    Parameters
    ----------
    source : str
    model : path or URL
    folders : mapping
        Folders by the options that name them.

    Raises
    ------
    ModelError, ParameterError
    """
    check_no_input(model, (source,), "MODEL", ModelError)
    place = None if is_url(str(model)) else Path(os.path.realpath(model))
    for option, folder in folders.items():
        if folder is None:
            continue
        check_no_input(folder, (source,), option, ParameterError)
        resolved = Path(os.path.realpath(folder))
        if place in (resolved, *resolved.parents):
            raise ParameterError(f"{option} is {folder}, where the model will be; give another")


def predictions_path(
    output: str, inputs: Iterable[str | Path], *, what: str = "predictions", name: str = "--output"
) -> str | Path:
    """Destination of predictions: a file, a URL, a device, a pipe, or for ``-`` standard output.

    Parameters
    ----------
    output : path or URL
    inputs : iterable of paths, URLs, or ``-``
        Inputs of the predictions.
    what, name : str
        What is written, and the name of the option or argument, for messages.

    Raises
    ------
    DataError
        The predictions cannot be written there, or the output is one of the inputs.
    StoreError
        The URL cannot be reached.
    """
    if is_url(output):
        from bigsvm.data.objects import start_of_object

        check_no_input(output, inputs, name)
        start_of_object(output, name, 1)
        return output
    path = STANDARD_OUTPUT if output == "-" else Path(output)
    return _local_predictions_path(path, inputs, what, name)


def _local_predictions_path(
    output: Path, inputs: Iterable[str | Path], what: str, name: str
) -> Path:
    if descriptor_of(output) == 1 and sys.stdout is None:
        raise DataError(f"standard output is closed; name a file to write the {what} to")
    if is_stream(output) and not output.is_dir():
        return output
    _check_place(output, what, DataError)
    check_no_input(output, inputs, name)
    if sys.stdout is not None and _is_where_standard_output_goes(output):
        raise DataError(f"{output} is where standard output goes; give {name} -, or another file")
    return output


def _is_where_standard_output_goes(path: Path) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(1))
    except OSError:
        return False


def check_image_path(path: Path, *, source: str, model: str) -> None:
    """Refuse a path that no image can be written to, and what it is made of.

    Raises
    ------
    DataError
    """
    _check_place(path, "image", DataError)
    check_no_input(path, (source, model), "--image")


def _check_place(path: Path, what: str, error: type[BigsvmError]) -> None:
    if str(path) == "-":
        raise error(f"- is no file; name one to write the {what} to")
    if path.is_dir():
        raise error(f"{path} is a folder; name the file to write the {what} to")
    if is_stream(path):
        raise error(
            f"{path} is a device, a pipe or an open file, which the {what} would take the place "
            "of; name a file"
        )
    if not (path.parent.is_dir() and os.access(path.parent, os.W_OK)):
        raise error(f"{path.parent} is not a folder that can be written to; make it first")
