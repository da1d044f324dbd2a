"""What a command is given: a store, or LIBSVM text that becomes a temporary one."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from bigsvm import folders
from bigsvm.budget import parse_bytes
from bigsvm.cli.options import (
    COLUMN_OPTIONS,
    TABLE_OPTIONS,
    CacheDir,
    Memory,
    ReadOptions,
    ZeroBased,
    is_given,
)
from bigsvm.errors import (
    BigsvmError,
    DataError,
    ParameterError,
    StoreError,
    UnreachableError,
)
from bigsvm.files import is_url
from bigsvm.report.progress import ConvertingProgress

if TYPE_CHECKING:
    from collections.abc import Iterator

    import typer

    from bigsvm.cli.signals import Interruption
    from bigsvm.conversion.writing import ConversionProgress, OnProgress
    from bigsvm.data.store import Store
    from bigsvm.models import KernelExpansion
    from bigsvm.report.progress import Display

_PREFIX = "bigsvm-text-"
_SMALLEST_CONVERSION = 32 << 20
"""The least that `convert` accepts. A budget below it is for training alone."""


@dataclass(frozen=True)
class TextOptions(ReadOptions):
    """How rows are read that become a temporary store."""

    memory: Memory = "1GB"
    cache_dir: CacheDir = None


def is_standard_input(source: str) -> bool:
    """Whether this means standard input: ``-``."""
    from bigsvm.conversion.streams import STANDARD_INPUT

    return source == STANDARD_INPUT


def is_text(source: str) -> bool:
    """Whether this is read as LIBSVM text; a store is a folder, or a URL that `is_far_store`."""
    if is_standard_input(source):
        return True
    return not (is_far_store(source) if "://" in source else Path(source).is_dir())


def is_far_store(url: str) -> bool:
    """Whether a URL is that of a store: it ends in ``.zarr``, or a ``zarr.json`` is below it."""
    from bigsvm.data.place import Place

    if url.rstrip("/").endswith(".zarr"):
        return True
    try:
        # Some servers answer any request by a page.
        return Place.of(url).part("zarr.json", 0, 1) == b"{"
    except UnreachableError:
        raise
    except (FileNotFoundError, ParameterError, StoreError):
        return False  # a single file may be readable where names are not listed


def load_model(model: str | Path, range_file: Path | None = None) -> KernelExpansion:
    """Read a model of ``bigsvm train``, or one of LIBSVM's and the file to scale its rows by."""
    from bigsvm.interchange.model_file import read_model_file

    return read_model_file(model, range_file=range_file)


def check_order(source: str, model: str | Path, usage: str) -> None:
    """Refuse a model in place of rows, and rows in place of a model; the usage says the order."""
    from bigsvm.interchange.model_file import is_model_file

    if is_url(str(model)):
        return
    if is_model_file(source) and not is_model_file(model):
        raise DataError(f"{source} is a model, and {model} is none; write `{usage}`")


def for_columns_of(model: KernelExpansion, store: Store) -> tuple[KernelExpansion, int]:
    """Widen a model for rows of LIBSVM text that have more columns than its training data.

    Rows and models that are not of text are left alone: a prediction refuses other columns. Also
    returns how many columns the training data did not have; 0 for a model of LIBSVM's, which does
    not say how many there were.
    """
    # Imported here, as it imports NumPy.
    from bigsvm.models.widened import widened

    n_columns = store.rows.n_columns
    if model.provenance.get("read from") == "libsvm":
        # A kernel matrix in LIBSVM's text has a number in front.
        numbered = model.kernel.name == "precomputed" and store.first_index == 0
        return widened(model, n_columns - numbered), 0
    is_text = store.first_index is not None and store.first_index == model.first_index
    if not is_text or model.kernel.name == "precomputed":
        return model, 0
    return widened(model, n_columns), max(0, n_columns - model.n_features)


def check_text_options(context: typer.Context, source: str, *more: str) -> None:
    """Refuse options for rows that become a store, if a store was given."""
    is_table = any(is_given(context, option) for option in TABLE_OPTIONS)
    if is_table and is_given(context, "zero_based"):
        raise ParameterError("--zero-based is for LIBSVM text, which has no columns with names")
    for option in (*COLUMN_OPTIONS, "zero_based", *more):
        if is_given(context, option) and not (is_table or is_text(source)):
            raise ParameterError(
                f"--{option.replace('_', '-')} is for LIBSVM text, and {source} is a store; leave "
                "it out"
            )


def has_columns(source: str, options: ReadOptions, model: KernelExpansion | None) -> bool:
    """Whether columns have names: they are asked for, or a file has those of the model."""
    if options.names_columns or model is None or is_standard_input(source) or "://" in source:
        return options.names_columns
    from bigsvm.conversion.formats import has_features

    return has_features(source, model.input_names)


@contextmanager
def opened(
    source: str,
    options: TextOptions,
    display: Display,
    interruption: Interruption,
    *,
    model: KernelExpansion | None = None,
    first_index: int | None = None,
    min_features: int | None = None,
    dtype: Literal["float32", "float64"] = "float32",
) -> Iterator[Store]:
    """Open a store, or convert other rows to one that is removed afterwards.

    Parameters
    ----------
    options : TextOptions
        A conversion takes 32 MiB where the memory is less.
    model : KernelExpansion or None
        Gives `first_index`, `min_features` and names of columns: those of its training data.
    first_index : int or None
        Index of the first column in other text, where the options say nothing.
    min_features : int or None
        Smallest number of columns.
    dtype : {"float32", "float64"}
        Type of the temporary store of text.
    """
    from bigsvm.data.store import open_store
    from bigsvm.data.workspace import put_back

    memory, zero_based = parse_bytes(options.memory), options.zero_based
    if model is not None:
        first_index, min_features = model.first_index, model.n_features
    if zero_based is ZeroBased.AUTO and first_index is not None:
        zero_based = ZeroBased.YES if first_index == 0 else ZeroBased.NO
    is_local = not is_standard_input(source) and "://" not in source
    if is_local:
        put_back(Path(source))
    is_table = has_columns(source, options, model)
    if not (is_table or is_text(source)):
        yield open_store(source)
        return
    if is_local and not Path(source).exists():
        raise DataError(f"{source}: no such store or file; check the path")
    # Reading text and writing stores take 0.4 MB, which opening a store does without.
    from bigsvm.conversion.from_text import convert

    with temporary_folder(options.cache_dir) as folder:
        what = "has columns with names" if is_table else "is read as LIBSVM text"
        display.line(f"{source} {what}: converting it to a temporary store in {folder.parent}")
        name = f"the temporary store of {source} in {folder.parent} (--cache-dir)"
        with _called(folder / "data.zarr", name):
            if is_table:
                with interruption.raising():
                    yield _store_of_table(
                        source, folder / "data.zarr", options, model,
                        max(memory, _SMALLEST_CONVERSION), watched(display, interruption),
                    )  # fmt: skip
                return
            with interruption.raising():
                store = convert(
                    source,
                    folder / "data.zarr",
                    memory=max(memory, _SMALLEST_CONVERSION),
                    zero_based=zero_based.value,
                    min_features=min_features,
                    dtype=dtype,
                    on_progress=watched(display, interruption),
                )
            interruption.check()
            yield store


def _store_of_table(
    source: str,
    path: Path,
    options: TextOptions,
    model: KernelExpansion | None,
    memory: int,
    report: OnProgress,
) -> Store:
    """Write the rows of a file with named columns as a store, as a model needs them."""
    from bigsvm.conversion.formats import Asked, chooses_columns
    from bigsvm.conversion.from_arrays import batches_of, written
    from bigsvm.data.place import Place

    if model is not None and (options.categories or options.missing):
        raise ParameterError(
            "--categories and --missing are for training, and a model keeps them; leave them out"
        )
    names = encoding = None
    if model is not None and chooses_columns(source):
        names, encoding = model.input_names, model.encoding
    asked = Asked.of(
        options.label, options.weight, rows=options.rows, memory=memory,
        features=options.features or names, encoding=encoding, **options.encode,
    )  # fmt: skip
    return written(Place.of(path), batches_of(source, asked), budget=memory, report=report)


@contextmanager
def _called(path: Path, name: str) -> Iterator[None]:
    """Replace a temporary path in errors by a name that the user knows."""
    try:
        yield
    except BigsvmError as error:
        message = str(error)
        if str(path) not in message:
            raise
        raise type(error)(message.replace(str(path), name)) from error


def watched(display: Display, interruption: Interruption) -> OnProgress:
    """Listen to a conversion: shows it, and stops it when asked to."""
    show = ConvertingProgress(display)

    def on_progress(progress: ConversionProgress) -> None:
        interruption.check()
        if progress.stage == "write":
            # Nothing waits for input any more; the last steps must not be cut in two.
            interruption.stop_raising()
        show(progress)

    return on_progress


@contextmanager
def temporary_folder(parent: Path | None) -> Iterator[Path]:
    """Make a folder that goes away, at the latest when the next process looks for such folders."""
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(folders.temporary_folder(parent, _PREFIX))
        except OSError as error:
            where = Path(tempfile.gettempdir()) if parent is None else parent
            raise DataError(
                f"{where}: cannot be written ({error.strerror}); use --cache-dir"
            ) from error
        yield folder
