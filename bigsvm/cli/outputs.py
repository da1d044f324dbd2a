"""What a command writes: files, looked at before the work, which may take hours; and results."""

import errno
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bigsvm.cli.streams import discard_output
from bigsvm.errors import BigsvmError, DataError, ModelError, ParameterError
from bigsvm.files import LIBSVM_MODEL, descriptor_of, is_stream, is_url, lies_in
from bigsvm.report.text import as_columns, as_json

if TYPE_CHECKING:
    from bigsvm.data.store import Store

STANDARD_OUTPUT = Path("/dev/stdout")
_FILE_URL = "file://"
_START_BYTES = 1 << 20
"""Bytes that tell what a file is."""

_STARTS: dict[str, tuple[str, Callable[[bytes], bool]]] = {
    # A safetensors header begins after its length; records in JSON have the word too.
    "bigsvm": ("a model", lambda start: start[8:9] == b"{" and b'"bigsvm"' in start),
    "libsvm": ("LIBSVM's model", lambda start: start.startswith(LIBSVM_MODEL)),
    # The second field of a graph is its producer.
    "range": (
        "a file of svm-scale",
        lambda start: start.startswith((b"x\n", b"y\n", b"x\r\n", b"y\r\n")),
    ),
    "onnx": ("an ONNX graph of bigsvm's", lambda start: b"\x12\x06bigsvm" in start[:32]),
}
"""What files are called, and how those begin that may be replaced by one of their kind."""

_WRITTEN = {"MODEL": "the model", "--log": "the log", "--picture": "the picture"}
"""What outputs are called in messages."""

Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a file that is there.")]
OverwriteStore = Annotated[
    bool,
    typer.Option("--overwrite", help="Replace a store once the new one is whole; not at a URL."),
]


def say(text: str, *, on_error: bool = False) -> None:
    """Write a result to standard output, or to standard error if predictions go to the former."""
    if on_error:
        print(text, file=sys.stderr)
        return
    with _standard_output():
        typer.echo(text)


def say_result(
    record: Mapping[str, object],
    lines: Iterable[tuple[str, object]],
    *,
    json: bool,
    on_error: bool = False,
) -> None:
    """Write a result: one JSON object for a program, or names and values for a person."""
    say(as_json(record) if json else as_columns(lines), on_error=on_error)


def say_store(
    store: "Store", done: str, seconds: float, *, json: bool, skipped: dict[str, int] | None = None
) -> None:
    """Write what a new store is, how long it took, and what of the input was skipped."""
    from bigsvm.report.describe import store_lines, store_record
    from bigsvm.report.text import peak_rss_bytes

    if json:
        record = store_record(store) | ({} if skipped is None else {"skipped": skipped})
        say(as_json({**record, "seconds": seconds, "peak_rss_bytes": peak_rss_bytes()}))
        return
    named = [f"{what.replace('_', ' ')}: {n}" for what, n in (skipped or {}).items() if n]
    lines = [*store_lines(store), ("skipped", ", ".join(named) or None)]
    say(as_columns([*lines, (f"{done} in", f"{seconds:.1f} s")]))


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


def check_model_path(path: str | Path, kind: str = "bigsvm", *, overwrite: bool = False) -> None:
    """Refuse a path or URL that no model can be written to, and a file of another kind.

    A file of the kind, which is one of `_STARTS`, is replaced; with `overwrite` any file is.
    """
    if not (isinstance(path, str) and is_url(path)):
        _check_place(path := Path(path), "model", ModelError)
    start = _start_of(path, "MODEL")
    called, is_one = _STARTS[kind]
    if start and not (overwrite or is_one(start)):
        raise ModelError(
            f"{path} exists and is not {called}, so it is not replaced; give another name, or "
            "remove it first"
        )


def _start_of(path: str | Path, name: str) -> bytes:
    """Return the first bytes of a file or object; none where there is nothing, or a stream."""
    if isinstance(path, str) and is_url(path):
        # NumPy, which comes with it, takes long to import.
        from bigsvm.data.objects import start_of_object

        return start_of_object(path, name, _START_BYTES)
    path = Path(path)
    if is_stream(path) or not path.exists():
        return b""
    with path.open("rb") as file:
        return file.read(_START_BYTES)


def _check_new(path: str | Path, name: str, *, overwrite: bool) -> None:
    """Refuse to replace a file that is not empty, unless that is asked for."""
    if _start_of(path, name) and not overwrite:
        raise ParameterError(
            f"{path} exists, so it is not replaced; give another {name}, or --overwrite"
        )


def check_apart(
    inputs: Iterable[str | Path | None],
    files: Mapping[str, str | Path | None],
    folders: Mapping[str, Path | None] | None = None,
) -> None:
    """Refuse outputs that are or lie in an input, one that has an input in it, and two at a place.

    Other names of the same file, by links, are seen. Outputs are given by the names of their
    options or arguments: `files` are replaced as wholes, files and stores; `folders` may have other
    things in them.
    """
    read = [_plain(text) for text in inputs if text is not None]
    outputs = {**files, **(folders or {})}
    given = {name: str(path) for name, path in outputs.items() if path is not None}
    for name, path in reversed(given.items()):
        if any(_is_in(path, each) or (name in files and _is_in(each, path)) for each in read):
            raise ParameterError(
                f"{path} is part of the input, so it is not replaced; give another {name}"
            )
        if name in files and not is_stream(Path(path)) and _is_standard_output(Path(path)):
            raise ParameterError(f"{path} is where standard output goes; give another {name}")
        for other in files.keys() & given.keys() - {name}:
            if _is_in(path, given[other]):
                raise ParameterError(
                    f"{name} is {path}, where {_WRITTEN.get(other, other)} will be; give another"
                )


def _plain(text: str | Path) -> str:
    """Return the path of a local file that was given as a URL; other texts as they are."""
    if not str(text).startswith(_FILE_URL):
        return str(text)
    from urllib.request import url2pathname  # imported here, as few give URLs and it is large

    return url2pathname(str(text)[len(_FILE_URL) :])


def _is_in(path: str, other: str) -> bool:
    """Whether a path or URL is another one or in it; neither needs to be there."""
    if is_url(path) or is_url(other):
        return f"{path}/".startswith(f"{other.rstrip('/')}/")
    place = Path(os.path.realpath(other))
    return lies_in(Path(path), other) or Path(os.path.realpath(path)).is_relative_to(place)


def predictions_path(
    output: str,
    inputs: Iterable[str | Path],
    *,
    overwrite: bool,
    what: str = "predictions",
    name: str = "--output",
) -> str | Path:
    """Destination of predictions: a file, a URL, a device, a pipe, or for ``-`` standard output.

    Refuses inputs, and files that are there unless `overwrite`. `what` is written, and `name` is
    the name of the option or argument, for messages.
    """
    path: str | Path = output
    if not is_url(output):
        path = STANDARD_OUTPUT if output == "-" else Path(output)
        if descriptor_of(path) == 1 and sys.stdout is None:
            raise DataError(f"standard output is closed; name a file to write the {what} to")
        if is_stream(path) and not path.is_dir():
            return path
        _check_place(path, what, DataError)
        if _is_standard_output(path):
            raise DataError(f"{path} is where standard output goes; give {name} -, or another file")
    check_apart(inputs, {name: path})
    _check_new(path, name, overwrite=overwrite)
    return path


def _is_standard_output(path: Path) -> bool:
    """Whether standard output goes to this file."""
    if sys.stdout is None:
        return False
    try:
        return os.path.samestat(os.stat(path), os.fstat(1))
    except OSError:
        return False


def check_image_path(path: Path | None, name: str, *, overwrite: bool) -> None:
    """Refuse a path that no image can be written to, and --overwrite without one."""
    if path is None:
        if overwrite:
            raise typer.BadParameter(f"--overwrite needs {name}")
        return
    _check_place(path, "image", DataError)
    _check_new(path, name, overwrite=overwrite)


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
