"""``bigsvm train``: a store to a model, out of core, interruptible and resumable."""

import inspect
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bigsvm.budget import show_bytes
from bigsvm.cli.inputs import check_text_options, load_model
from bigsvm.cli.options import (
    ROWS,
    OptionGroup,
    ReadOptions,
    is_given,
    local,
    local_or_url,
    option,
    parse_class_weight,
)
from bigsvm.cli.outputs import check_apart, check_model_path, say_result
from bigsvm.cli.runs import NAME as RUN_FILE
from bigsvm.cli.runs import (
    Run,
    absolute,
    check_is_read_again,
    check_source,
    of_run,
    resume_command,
)
from bigsvm.cli.session import SessionOptions, opened_session
from bigsvm.errors import ParameterError, UnreachableError
from bigsvm.files import is_url
from bigsvm.parameters import FIELDS
from bigsvm.parameters.checks import check_parameters
from bigsvm.parameters.declaration import PANELS, STOPPING, declaration_of, option_of
from bigsvm.parameters.formulations import BALLS
from bigsvm.report.text import peak_rss_bytes
from bigsvm.training import events
from bigsvm.training.result import StopReason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bigsvm.data.store import Store
    from bigsvm.models import KernelExpansion

UNCONVERGED_CODE = 3
"""Exit code of --fail-unconverged."""


class TrainingOptions(OptionGroup):
    """An option for each parameter of training; `values` are those of a `Run`."""

    def __init__(self, **values: Any) -> None:  # noqa: ANN401 (of any option)
        self.checkpoint: Path | None = values.pop("checkpoint")
        weights = parse_class_weight(list(values["class_weight"] or []))
        values["class_weight"] = list(weights.items()) if isinstance(weights, dict) else weights
        if values["cache_dir"] is not None:
            values["cache_dir"] = os.path.abspath(values["cache_dir"])
        self.values = values

    @classmethod
    def options(cls) -> list[inspect.Parameter]:
        """Return the options as arguments, by panel."""
        return [
            option(name)
            for panel in PANELS
            for name, field in FIELDS.items()
            if declaration_of(field).panel == panel and name not in cls.without
        ]

    def run_on(self, source: str, read: ReadOptions, *, model: str = "") -> Run:
        """Return the run that trains with these options."""
        values = {**self.values, **of_run(read)}
        return Run(source=absolute(source), model=model).updated(values)


def command(
    context: typer.Context,
    *,
    store: Annotated[str | None, ROWS] = None,
    model: Annotated[
        str | None,
        typer.Argument(
            callback=local_or_url, metavar="MODEL", help="File or URL to write the model to."
        ),
    ] = None,
    read: ReadOptions,
    resume: Annotated[
        Path | None,
        typer.Option(
            "--resume",
            callback=local,
            metavar="DIR",
            help="Go on with the run in this checkpoint folder, which knows the rest.",
        ),
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option(
            "--start",
            callback=local,
            metavar="MODEL",
            help="Start from a model of these rows, or of the store before rows were appended.",
        ),
    ] = None,
    options: SessionOptions,
    training: TrainingOptions,
    fail_unconverged: Annotated[
        bool,
        typer.Option(
            "--fail-unconverged",
            help="Exit with code 3 if the model did not converge; it is written all the same.",
            rich_help_panel=STOPPING,
        ),
    ] = False,
) -> None:
    """Train a model on a store of any size, within a memory budget.

    With more than two classes, a function is trained for each pair of classes, on their rows alone.

    Training ends when a sweep over all rows certifies the tolerance. Ctrl-C and SIGTERM end it
    within about a second: the run is saved to the checkpoint, and the model so far is written,
    marked as not converged. A second signal ends it at once.

    \b
    Examples:
      bigsvm train train.zarr model.safetensors --C 10 --gamma 0.05
      bigsvm train train.zarr model.safetensors --memory 4GB --checkpoint run --max-time 8h
      bigsvm train --resume run
      bigsvm train --resume run --scheduler tcp://10.0.0.5:8786
      bigsvm train train.zarr new.safetensors --C 10 --gamma 0.05 --start model.safetensors
      bigsvm train houses.parquet model.safetensors --formulation eps-svr --label price
      bigsvm train a9a.libsvm model.safetensors --class-weight -1:1 --class-weight +1:3
      bigsvm train houses.zarr model.safetensors --formulation eps-svr --epsilon 0.05
      bigsvm train digits.zarr model.safetensors --formulation crammer-singer --C 10
    """
    checkpoint = training.checkpoint
    if resume is not None:
        if checkpoint is not None or start is not None or not (model is None or is_url(model)):
            raise typer.BadParameter("--resume needs neither MODEL, --checkpoint nor --start")
        values = {**training.values, **of_run(read)}
        changes = {name: value for name, value in values.items() if is_given(context, name)}
        run, checkpoint = Run.load(resume, own=True).updated(changes), resume
        check_source(run, store, model, resume, names_copy=is_given(context, "checkpoint_copy"))
    else:
        if store is None or model is None:
            raise typer.BadParameter("give STORE and MODEL, or --resume DIR")
        check_model_path(model)
        run = training.run_on(store, read, model=absolute(model))
    if checkpoint is not None:
        check_is_read_again(run.source)
    check_used(context, run, checkpoint)
    code, failed = _train(
        context, run, checkpoint, options, names_model=resume is None, start=start
    )
    raise typer.Exit(UNCONVERGED_CODE if failed and fail_unconverged and not code else code)


def check_used(context: typer.Context, run: Run, checkpoint: Path | None) -> None:
    """Refuse options that this run would ignore; LIBSVM ignores them silently."""
    parameters = run.parameters
    formulation, kernel = parameters["formulation"], parameters.get("kernel", "rbf")
    for name, field in FIELDS.items():
        declared = declaration_of(field)
        for names, what in ((declared.formulations, formulation), (declared.kernels, kernel)):
            if is_given(context, name) and names is not None and what not in names:
                raise ParameterError(
                    f"{option_of(field)} is for {', '.join(names)}, and means nothing for {what}; "
                    "leave it out"
                )
    if is_given(context, "checkpoint_every") and checkpoint is None:
        raise ParameterError(
            "--checkpoint-every is the time between two saves; name a --checkpoint to save to"
        )
    searches = parameters["formulation"] in BALLS and not parameters.get("certify", True)
    if is_given(context, "selection") and searches:
        raise ParameterError(
            "--selection is for pair steps, and a search for a ball with --no-certify needs none; "
            "leave it out"
        )
    if is_given(context, "shrinking") and parameters.get("working_set", "auto") != "all":
        raise ParameterError(
            "--shrinking is for --working-set all, and other runs always leave out rows that need "
            "not move; give that too, or leave it out"
        )
    has_rows_on_disk = str(parameters.get("disk_cache", 0)) != "0"
    check_text_options(context, run.source, *(() if has_rows_on_disk else ("cache_dir",)))


def _train(
    context: typer.Context,
    run: Run,
    checkpoint: Path | None,
    options: SessionOptions,
    *,
    names_model: bool,
    start: Path | None,
) -> tuple[int, bool]:
    """Train, write the model and report the result.

    Returns the exit code, 0 or that of a signal, and whether the model should have converged, and
    has not.
    """
    from bigsvm.fit.train import train_model
    from bigsvm.report.describe import model_warnings

    parameters = run.training_parameters(checkpoint)
    check_parameters(parameters)
    path = run.model if is_url(run.model) else Path(run.model)
    check_model_path(path)
    folders = {"--checkpoint": checkpoint, "--cache-dir": run.cache_folder}
    check_apart((run.source, start), {"MODEL": path, "--log": options.log}, folders)
    with opened_session(options, checkpoint) as session:
        if isinstance(path, Path) and path.exists() and not names_model:
            session.display.line(f"{path} will be replaced when the run ends")

        def listener(event: events.Event) -> None:
            # Only now the checkpoint is known to belong to this run.
            if isinstance(event, events.Planned) and checkpoint is not None:
                run.save(checkpoint)
            session.listen(event)

        with session.rows_to_train(run, parameters) as opened_store:
            first = None if start is None else _model_to_start_from(start, opened_store)
            with _saying_how_to_resume(run, checkpoint):
                trained = train_model(
                    opened_store.rows,
                    opened_store.labels(),
                    opened_store.sample_weight(),
                    parameters,
                    session.hooks(listener),
                    start=first,
                )
            n_rows = opened_store.rows.n_rows
        trained.save(path)
        reason = StopReason(trained.certificate["stop_reason"])
        if reason.is_uncertified:
            session.display.line(f"the model is not certified: {reason.sentence}")
        resume = None if checkpoint is None else resume_command(checkpoint, run, reason)
        session.warn(model_warnings(trained, resume=resume), context.command)
        peak = {"peak_rss_bytes": peak_rss_bytes()}
        session.note("Ended", {"model": str(path), **trained.certificate, **peak})
    _print(trained, path, n_rows, json=options.json)
    failed = not (reason.is_uncertified or trained.certificate["converged"])
    return session.interruption.exit_code, failed


def _model_to_start_from(path: Path, store: "Store") -> "KernelExpansion":
    """Read a model, and give its support vectors the places that they have in a store."""
    from bigsvm.changes.start import continued

    return continued(load_model(path), store)


@contextmanager
def _saying_how_to_resume(run: Run, checkpoint: Path | None) -> "Iterator[None]":
    """Name the command that resumes a run whose store cannot be reached any more."""
    try:
        yield
    except UnreachableError as error:
        if checkpoint is None or not os.path.lexists(checkpoint / RUN_FILE):
            raise
        command = resume_command(checkpoint, run)
        raise UnreachableError(f"{error}. The run is saved; resume it by: {command}") from error


def _print(model: "KernelExpansion", path: str | Path, n_rows: int, *, json: bool) -> None:
    from bigsvm.report.describe import (
        calibration_record,
        calibration_text,
        certificate_lines,
        classes_text,
    )

    record = {
        **model.certificate,
        "model": str(path),
        "n_rows": n_rows,
        "n_features": model.n_features,
        "classes": None if model.classes is None else list(model.classes),
        "rule": model.rule,
        "n_functions": model.n_functions,
        "calibration": calibration_record(model),
        "peak_rss_bytes": peak_rss_bytes(),
    }
    lines = [
        ("model", path),
        ("classes", classes_text(model)),
        *certificate_lines(model.certificate, model.classes, formulation=model.formulation),
        ("probabilities", calibration_text(model)),
        ("peak memory", show_bytes(record["peak_rss_bytes"])),
    ]
    say_result(record, lines, json=json)
