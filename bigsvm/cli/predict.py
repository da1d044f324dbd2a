"""``bigsvm predict``: labels or decision values for the rows of a store or of LIBSVM text."""

import tempfile
import time
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bigsvm.budget import BLOCK_SHARE, parse_bytes, show_bytes
from bigsvm.cli.inputs import (
    TextOptions,
    check_order,
    check_text_options,
    for_columns_of,
    has_columns,
    load_model,
    opened,
)
from bigsvm.cli.options import (
    OptionGroup,
    Rows,
    Threads,
    given,
    is_given,
    local,
    local_or_url,
)
from bigsvm.cli.outputs import Overwrite, predictions_path, say, say_result
from bigsvm.cli.session import SessionOptions, opened_session
from bigsvm.errors import MemoryBudgetError, ModelError
from bigsvm.files import descriptor_of, is_stream
from bigsvm.parameters.formulations import traits_of
from bigsvm.processors import default_threads
from bigsvm.report.progress import RowsProgress
from bigsvm.report.text import count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    import numpy as np
    from numpy.typing import NDArray

    from bigsvm.data.store import Store
    from bigsvm.executors.workforce import Workforce
    from bigsvm.models import KernelExpansion

ROW_BYTES = 48
"""Bytes per row: class, decision value, label, the class it stands for, input row number; and
decision values in order."""


@dataclass(frozen=True)
class WrittenOptions(OptionGroup):
    """What is written of each row, and where to."""

    output: str | None = given(
        None,
        "Write one prediction a line, in the order of the original input, to a file or URL; - is "
        "standard output, and the report then goes to standard error.",
        "--output", "-o", callback=local_or_url, metavar="FILE",
    )  # fmt: skip
    decision_function: bool = given(
        False,
        "Write decision values, positive for the second class, instead of labels; of many classes "
        "those of all functions, in a line.",
    )
    probability: bool = given(
        False,
        "Write the label and the probabilities of the classes, as LIBSVM does; of a model trained "
        "with --calibration.",
    )
    range_file: Path | None = given(
        None,
        "For a model file of LIBSVM: file of `svm-scale -s` to scale rows with.",
        "--range", callback=local, metavar="FILE",
    )  # fmt: skip


class PredictionOptions(SessionOptions):
    """What a prediction computes with, and what it says."""

    without = ("log",)


def command(
    context: typer.Context,
    *,
    store: Rows,
    model: Annotated[
        str,
        typer.Argument(
            callback=local_or_url,
            metavar="MODEL",
            help="A model of `bigsvm train`, or its URL, or a model of LIBSVM's.",
        ),
    ],
    written: WrittenOptions,
    overwrite: Overwrite = False,
    text: TextOptions,
    threads: Threads = None,
    options: PredictionOptions,
) -> None:
    """Predict, and compare with the labels of the rows where there are any.

    A classifier predicts labels, a regression values. A one-class model predicts 1 for a row like
    the training rows and -1 for others. Classifiers are compared by their accuracy, also of each
    class, by AUC (two classes), log loss and Brier score (with a calibration) and the confusion
    matrix; regressions by the mean squared error and R².

    Labels are decided by the decision values, with --probability too. With two classes the sign
    decides, so close to the threshold a label may have the smaller probability. With more classes
    there is a decision value for each pair of classes, (1, 2), (1, 3), …, (2, 3), …, positive for
    the second class of the pair, or one for each class.

    A model that `bigsvm export` wrote in LIBSVM's format scales rows by the .range file beside it.

    Rows are streamed. The model, some blocks of rows and 48 bytes for each row are in memory; if
    they take more than --memory, the command is refused. A conversion of LIBSVM text takes 32 MiB.

    With --scheduler the workers of a Dask cluster read the rows and compute, each with the whole
    model; the predictions are the same.

    \b
    Examples:
      bigsvm predict test.zarr model.safetensors
      bigsvm predict test.libsvm model.safetensors --output predicted.txt
      bigsvm predict new.parquet model.safetensors --output predicted.txt
      bigsvm predict test.csv model.safetensors --label price
      bigsvm predict test.zarr model.safetensors -o values.txt --decision-function --json
      bigsvm predict test.zarr model.safetensors -o probabilities.txt --probability
      bigsvm predict test.zarr model.safetensors --scheduler tcp://10.0.0.5:8786
      bigsvm predict s3://bucket/test.zarr s3://bucket/model.safetensors -o s3://bucket/predicted
    """
    output, probability = written.output, written.probability
    if probability and (written.decision_function or output is None):
        raise typer.BadParameter("--probability needs --output, and no --decision-function")
    started = time.monotonic()
    check_order(store, model, "bigsvm predict STORE MODEL")
    check_text_options(context, store, "cache_dir")
    budget = parse_bytes(text.memory)
    if written.decision_function and output is None:
        raise typer.BadParameter("--decision-function needs --output")
    path = None
    if output is not None:
        beside = f"{model}.range" if written.range_file is None else written.range_file
        path = predictions_path(output, (store, model, beside), overwrite=overwrite)
    elif overwrite:
        raise typer.BadParameter("--overwrite needs --output")
    with opened_session(options) as session:
        trained = load_model(model, written.range_file)
        if probability:
            _check_has_probabilities(trained, model)
        with (
            opened(
                store,
                text,
                session.display,
                session.interruption,
                model=trained,
                dtype="float64" if trained.support_vectors.dtype == "float64" else "float32",
            ) as rows,
            _file_of(path) as target,
            session.workers() as workers,
            session.interruption.raising(),
        ):
            trained, n_more = for_columns_of(trained, rows)
            if is_given(context, "memory"):
                _check_fits(trained, rows.rows.n_rows, budget)
            decide = deciding(
                trained, rows, budget, threads=threads, client=workers,
                on_progress=RowsProgress(session.display, "predicting", rows.rows.n_rows),
            )  # fmt: skip
            has_labels = not has_columns(store, text, trained) or bool(text.label)
            measures = predicted(trained, rows, decide, target, written, has_labels=has_labels)
            n_rows, costs = rows.rows.n_rows, _costs(workers, threads)
    _print(
        {
            **measures,
            "n_rows": n_rows,
            "seconds": time.monotonic() - started,
            "converged": trained.certificate.get("converged"),
            "output": None if path is None else str(path),
            "n_more_columns": n_more,
            **costs,
        },
        json=options.json,
        on_error=isinstance(path, Path) and descriptor_of(path) == 1,
    )


def _check_has_probabilities(model: "KernelExpansion", path: str) -> None:
    """Refuse a model without probabilities of classes."""
    if model.calibration is None:
        raise ModelError(
            f"{path} has no calibration, and so no probabilities; train it with --calibration"
        )
    if not model.n_probabilities:
        raise ModelError(
            f"{path} is a regression, which has no classes and no probabilities of them; "
            "`bigsvm info` shows the scale of its noise"
        )


def deciding(
    model: "KernelExpansion",
    store: "Store",
    budget: int,
    *,
    threads: int | None = None,
    **others: Any,  # noqa: ANN401 (as `decide` takes them)
) -> "Callable[..., NDArray[np.int64]]":
    """Return `model.decide` of the rows of a store, in blocks of a share of a budget in bytes."""
    from bigsvm.data.row_source import PREDICTION_BLOCKS

    block_bytes = min(PREDICTION_BLOCKS, max(1, int(budget * BLOCK_SHARE)))
    threads = threads or default_threads()
    return partial(model.decide, store.rows, threads=threads, block_bytes=block_bytes, **others)


def predicted(
    model: "KernelExpansion",
    store: "Store",
    decide: "Callable[..., NDArray[np.int64]]",
    target: Path | None,
    written: WrittenOptions,
    *,
    has_labels: bool,
) -> dict[str, Any]:
    """Predict all rows, write what is wanted, and compare with their labels where they have any."""
    from bigsvm.report import quality

    names = [-1.0, 1.0] if model.kind == "one-class" else model.classes
    labels = store.labels()
    true = quality.codes_of(labels, names) if has_labels and names is not None else None
    score = None
    if true is not None and model.calibration is not None and model.n_probabilities:
        score = quality.ProbabilityScore()
    kept = _kept(model, written)
    with room_for(model, store.rows.n_rows, target, kept) as room:

        def keep(part: slice, values: "NDArray[np.float64]") -> None:
            of_classes = values
            if score is not None or kept == "probabilities":
                of_classes = model.probabilities_of(values)
            if score is not None and true is not None:
                score.add(of_classes, true[part])
            if room is not None:
                room[part] = of_classes if kept == "probabilities" else values

        codes = decide(keep=keep)
        if target is not None:
            from bigsvm.report.predictions import write_labels, write_values

            original = store.original_rows()
            if written.decision_function or names is None:
                write_values(target, room, original)
            else:
                made = kept_probabilities(model, room) if written.probability else None
                write_labels(target, codes, original, classes=names, probabilities=made)
        known = labels if has_labels else None
        measures = _measures(model, names, codes, true, known, room)
    return measures if score is None else measures | score.record()


def _costs(workers: "Workforce | None", threads: int | None) -> dict[str, Any]:
    """Return what the workers of a cluster have cost; nothing without one."""
    if workers is None:
        return {}
    from bigsvm.fit.trainer import costs_of

    return costs_of(workers, threads or default_threads())


def _file_of(path: str | Path | None) -> "AbstractContextManager[Path | None]":
    """Give the file to write predictions to; one for a URL is sent there after the block."""
    from bigsvm.data.objects import file_to_write

    if path is None:
        return nullcontext()
    return file_to_write(path, "--output", what="file of predictions")


def _check_fits(model: "KernelExpansion", n_rows: int, budget: int) -> None:
    """Refuse predictions that take more memory than the budget."""
    import numpy as np

    vectors: Any = model.support_vectors
    if isinstance(vectors, np.ndarray):
        of_model, left = vectors.nbytes, 1 - BLOCK_SHARE
    else:
        of_model = vectors.data.nbytes + vectors.indices.nbytes + vectors.indptr.nbytes
        left = 1 - 2 * BLOCK_SHARE  # vectors that are laid out take as much as blocks of rows
    needed = of_model + ROW_BYTES * n_rows
    if needed > budget * left:
        raise MemoryBudgetError(
            f"the model takes {show_bytes(of_model)} and the predictions of {count(n_rows)} rows "
            f"{show_bytes(ROW_BYTES * n_rows)}, and blocks of rows need some more; give memory "
            f"{show_bytes(int(needed / left))}"
        )


def _kept(model: "KernelExpansion", written: WrittenOptions) -> str | None:
    """Say what is kept of each row: of one function its value, of several what is written."""
    if model.rule is None or written.decision_function:
        return "values"
    return "probabilities" if written.probability else None


@contextmanager
def room_for(
    model: "KernelExpansion", n_rows: int, output: Path | None, kept: str | None
) -> "Iterator[Any]":
    """Give what keeps values: of one function an array, of several a file beside `output`.

    The file has no name, so it disappears however the process ends. If the output is a device or a
    pipe, the file is in the system's temporary folder instead of beside the output.
    """
    import numpy as np

    if model.rule is None:
        yield np.empty(n_rows)
    elif kept is None or output is None:
        yield None
    else:
        from bigsvm.report.predictions import ValuesFile

        width = model.n_probabilities if kept == "probabilities" else model.n_functions
        folder = None if is_stream(output) else output.parent
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            yield ValuesFile(file, (n_rows, width))


def kept_probabilities(
    model: "KernelExpansion",
    room: Any,  # noqa: ANN401 (what `room_for` gives)
) -> "Callable[[NDArray[np.int64]], NDArray[np.float64]]":
    """Give the probabilities of rows that were kept, or whose values were."""
    if model.rule is None:
        return lambda part: model.probabilities_of(room[part])
    return lambda part: room[part]


def _measures(
    model: "KernelExpansion",
    names: "Sequence[float] | Sequence[str] | None",
    codes: "NDArray[np.int64]",
    true: "NDArray[np.int64] | None",
    labels: "NDArray[Any] | None",
    values: Any,  # noqa: ANN401 (what `room_for` gives)
) -> dict[str, Any]:
    """Compare predictions with what is known of the rows."""
    from bigsvm.report import quality

    measures: dict[str, Any] = {"accuracy": None, "n_correct": None}
    if traits_of(model.formulation).learns == "targets":
        if labels is None or labels.dtype == object:
            return measures
        return measures | quality.of_targets(values, labels)
    if model.kind == "one-class":
        measures["n_outliers"] = int((codes == 0).sum())
    if true is None or names is None:
        return measures
    measures |= quality.of_classes(codes, true, names)
    if model.rule is None and len(names) == 2:
        known = true >= 0
        measures["auc"] = quality.area_under_curve(values[known], true[known] == 1)
    return measures


def _more_columns(n_more: int) -> str | None:
    """Say how many columns the training data did not have."""
    if not n_more:
        return None
    return f"{count(n_more)} past those of the training data, where support vectors are 0"


def _print(record: dict[str, Any], *, json: bool, on_error: bool) -> None:
    from bigsvm.report.describe import cluster_line
    from bigsvm.report.quality import confusion_text, quality_lines
    from bigsvm.report.text import peak_rss_bytes
    from bigsvm.report.time_spent import slower_than_alone

    record["peak_rss_bytes"] = peak_rss_bytes()
    lines = [
        *quality_lines(record),
        ("rows", count(record["n_rows"])),
        ("more columns", _more_columns(record["n_more_columns"])),
        ("predictions", record["output"]),
        ("took", f"{record['seconds']:.2f} s"),
        ("cluster", cluster_line(record)),
        ("workers", slower_than_alone(record)),
        ("note", "the model had not converged" if record["converged"] is False else None),
    ]
    say_result(record, lines, json=json, on_error=on_error)
    confusion = confusion_text(record)
    if confusion is not None and not json:
        say(f"\n{confusion}", on_error=on_error)
