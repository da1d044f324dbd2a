"""``bigsvm report``: one HTML page about a model or a run, from what its files hold."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bigsvm.budget import parse_bytes
from bigsvm.cli.info import kind_of
from bigsvm.cli.inputs import (
    TextOptions,
    check_text_options,
    for_columns_of,
    has_columns,
    load_model,
    opened,
)
from bigsvm.cli.options import Json, Quiet, Threads, local
from bigsvm.cli.outputs import Overwrite, check_apart, check_image_path, say_result
from bigsvm.cli.predict import WrittenOptions, deciding, predicted
from bigsvm.cli.runs import NAME as RUN_FILE
from bigsvm.cli.runs import Run, run_lines
from bigsvm.cli.signals import Interruption
from bigsvm.errors import DataError, ModelError, ParameterError
from bigsvm.files import is_url, local_path, replace_synced
from bigsvm.report.progress import Display, RowsProgress
from bigsvm.report.run_log import NAME as LOG
from bigsvm.report.run_log import is_log

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from bigsvm.data.store import Store
    from bigsvm.models import KernelExpansion

_PLACE = "MODEL|RUN|LOG"
_NO_LOG = (
    "No log is known, and a model has none in it: give --log FILE here and to bigsvm train, or the "
    "folder of its --checkpoint."
)


def command(
    context: typer.Context,
    *,
    place: Annotated[
        str,
        typer.Argument(
            metavar=_PLACE,
            help="A model, or its URL; the checkpoint folder of a run or a search; a log.",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", callback=local, metavar="FILE", help="The page."),
    ] = Path("report.html"),
    overwrite: Overwrite = False,
    log: Annotated[
        Path | None,
        typer.Option(
            "--log", callback=local, metavar="FILE", help="The log of the run that made the model."
        ),
    ] = None,
    test: Annotated[
        str | None,
        typer.Option(
            "--test",
            metavar="STORE|FILE",
            help="Rows that were not trained on, to compare predictions with their labels.",
        ),
    ] = None,
    text: TextOptions,
    threads: Threads = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write one HTML page about a model or a run.

    The page tells of the data, the parameters, the certificate and the support vectors; with a log
    also of convergence, memory and the points of a search; with --test of predictions. Nothing is
    trained again. The page needs neither other files nor a network. Pictures need matplotlib.

    A checkpoint folder has a log in it. The model of its run is read too, if it is a local file
    that this run has written.

    \b
    Examples:
      bigsvm report model.safetensors
      bigsvm report model.safetensors --test test.zarr --log run.jsonl --output model.html
      bigsvm report run
    """
    from bigsvm.report import page
    from bigsvm.report.pictures import figure_of

    figure_of("the pictures of a report are drawn")
    path: str | Path = place if is_url(place) else local_path(place, _PLACE)
    check_image_path(output, "--output", overwrite=overwrite)
    check_apart([place, log, test], {"--output": output})
    if test is not None:
        check_text_options(context, test, "cache_dir")
    run, model, sections = None, None, list[tuple[str, Iterable[str]]]()
    if not isinstance(path, Path) or (path.is_file() and not is_log(path)):
        model = load_model(path)
    elif path.is_file():
        log = path
    else:
        log = path / LOG if log is None and (path / LOG).is_file() else log
        if log is None and kind_of(path) == "store":
            raise DataError(f"{path} is no run with a log; `bigsvm info` describes stores")
        if (path / RUN_FILE).exists():
            run = Run.load(path)
    told, note = None if log is None else page.told_by(log, model), ""
    if run is not None and told is not None and told.ended is not None and not is_url(run.model):
        try:
            model = load_model(Path(run.model))
        except ModelError as error:
            note = f"The model is not shown: {error}"
        if model is not None and not page.is_of(told.ended, model):
            model, note = None, f"{run.model} is not the model that this run has written."
    if isinstance(path, Path) and path.is_dir() and kind_of(path) == "run":
        sections.append(("Run", [page.table(run_lines(path)), page.paragraphs([note])]))
    if model is not None:
        sections += page.model_sections(model, path if run is None else run.model)
    if told is not None:
        chosen = model.provenance.get("parameters", {}) if model is not None else {}
        memory = (chosen if run is None else run.parameters).get("memory")
        sections += page.log_sections(told, memory)
    else:
        sections.append(("Convergence", [page.paragraphs([_NO_LOG])]))
    if test is not None:
        if model is None:
            raise ParameterError(f"--test is given, and {path} has no model; name the model")
        with Interruption() as interruption, Display(quiet=quiet) as display:
            with opened(test, text, display, interruption, model=model) as rows:
                labelled = not has_columns(test, text, model) or bool(text.label)
                if rows.rows.fingerprint() == model.provenance.get("data"):
                    test = f"{test}, on which the model was trained"
                with interruption.raising():
                    found = _compared(model, rows, text.memory, threads, display, labelled)
        sections.append(("Test rows", page.compared_section(test, *found)))
    title = f"bigsvm {'model' if run is None and model is not None else 'run'} {place}"
    replace_synced(output, page.page_of(title, sections).encode())
    say_result({"page": str(output)}, [("page", output)], json=json)


def _compared(
    model: "KernelExpansion",
    rows: "Store",
    memory: str,
    threads: int | None,
    display: Display,
    labelled: bool,
) -> "tuple[Mapping[str, Any], NDArray[Any] | None, NDArray[Any] | None, NDArray[Any] | None]":
    """Return measures of predictions, what is true, and of one function values and probabilities.

    They are what `compared_section` takes.
    """
    import numpy as np

    from bigsvm.report import quality

    model, _ = for_columns_of(model, rows)
    n_rows, values = rows.rows.n_rows, None
    progress = RowsProgress(display, "predicting", n_rows)
    decide = deciding(model, rows, parse_bytes(memory), threads=threads, on_progress=progress)
    if model.rule is None:
        values = np.empty(n_rows)

    def decide_and_keep(keep: "Callable[..., None]") -> "NDArray[np.int64]":
        def both(part: slice, given: "NDArray[np.float64]") -> None:
            keep(part, given)
            if values is not None:
                values[part] = given

        return decide(keep=both)

    measures = predicted(model, rows, decide_and_keep, None, WrittenOptions(), has_labels=labelled)
    names = [-1.0, 1.0] if model.kind == "one-class" else model.classes
    true = rows.labels() if labelled else None
    if true is not None and names is not None:
        true = quality.codes_of(true, names)
    positive = None
    if values is not None and model.calibration is not None and model.n_probabilities == 2:
        positive = model.probabilities_of(values)[:, 1]
    return {**measures, "n_rows": n_rows}, true, values, positive
