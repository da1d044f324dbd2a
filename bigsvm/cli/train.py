"""``bigsvm train``: a store to a model, out of core, interruptible and resumable."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bigsvm.budget import check_labels_fit, parse_bytes, show_bytes
from bigsvm.cli.failures import in_options, options_of
from bigsvm.cli.inputs import opened
from bigsvm.cli.options import (
    CacheDir,
    Json,
    Memory,
    Quiet,
    Threads,
    ZeroBased,
    ZeroBasedText,
    is_given,
    local,
    parse_class_weight,
    parse_gamma,
    parse_sampling,
    parse_seconds,
)
from bigsvm.cli.outputs import check_apart, check_model_path, say
from bigsvm.cli.runs import Run, absolute, check_is_read_again, check_source, resume_command
from bigsvm.cli.signals import Interruption
from bigsvm.cli.training_options import (
    PARAMETERS,
    CalibrationMethod,
    CoolingName,
    FirstPointsName,
    FormulationName,
    KernelName,
    Loss,
    Multiclass,
    OrderName,
    Selection,
    SolverName,
    Subproblem,
    WorkingSet,
    check_used,
)
from bigsvm.report.progress import Display, TrainingProgress
from bigsvm.report.text import as_columns, as_json
from bigsvm.training import events
from bigsvm.training.result import StopReason

if TYPE_CHECKING:
    from bigsvm.models import KernelExpansion


def command(
    context: typer.Context,
    store: Annotated[
        str | None,
        typer.Argument(
            metavar="STORE", help="A store, or LIBSVM text, which becomes a temporary store."
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Argument(callback=local, metavar="MODEL", help="File to write the model to."),
    ] = None,
    formulation: Annotated[
        FormulationName, typer.Option("--formulation", help="What is trained.")
    ] = FormulationName.C_SVC,
    c: Annotated[
        float, typer.Option("--C", help="Penalty of the loss; not for nu-svc, one-class.")
    ] = 1.0,
    nu: Annotated[
        float, typer.Option("--nu", help="Of nu-svc, one-class, nu-svr: share of support vectors.")
    ] = 0.5,
    epsilon: Annotated[
        float, typer.Option("--epsilon", help="Of eps-svr: half-width of the tube.")
    ] = 0.1,
    loss: Annotated[Loss, typer.Option("--loss", help="Of c-svc.")] = Loss.HINGE,
    solver: Annotated[
        SolverName,
        typer.Option("--solver", help="Of balls (l2-…): how the ball is found from samples."),
    ] = SolverName.PAIRWISE,
    sampling: Annotated[
        str,
        typer.Option(
            "--sampling",
            metavar="ROWS|SHARE|all",
            help="Of balls (l2-…): rows of a sample.",
        ),
    ] = "60",
    empty_samples: Annotated[
        int,
        typer.Option(
            "--empty-samples",
            help="Of balls, with --solver fw, mfw and cvm: samples in a row without a row outside "
            "the ball that end the search.",
        ),
    ] = 1,
    first_points: Annotated[
        FirstPointsName,
        typer.Option(
            "--first-points",
            help="Of balls (l2-…): the first ball is that of 20 random rows, or of a pair.",
        ),
    ] = FirstPointsName.RANDOM,
    ball_tol: Annotated[
        float,
        typer.Option("--ball-tol", help="Of balls (l2-…): found within this share of the radius."),
    ] = 1e-6,
    certify: Annotated[
        bool,
        typer.Option(
            "--certify/--no-certify",
            help="Of classifiers and balls (l2-…): whether sweeps prove the tolerance, or training "
            "ends when more rows would gain next to nothing.",
        ),
    ] = True,
    subproblem: Annotated[
        Subproblem,
        typer.Option(
            "--subproblem", help="Of crammer-singer: how the variables of a row are solved for."
        ),
    ] = Subproblem.EXACT,
    order: Annotated[
        OrderName,
        typer.Option(
            "--order",
            help="Of crammer-singer: which row is solved for next. All but 'auto' are the paper's, "
            "with --working-set all.",
        ),
    ] = OrderName.AUTO,
    cooling: Annotated[
        CoolingName,
        typer.Option(
            "--cooling", help="Of --order active: how the level of violations comes down to --tol."
        ),
    ] = CoolingName.NONE,
    fit_intercept: Annotated[
        bool,
        typer.Option(
            "--fit-intercept/--no-fit-intercept",
            help="Of crammer-singer: whether each function has a bias, one of its weights.",
        ),
    ] = False,
    gamma: Annotated[
        str,
        typer.Option(
            "--gamma",
            help="A number, 'scale' (1 / (columns * variance)), 'auto' (1 / columns) or "
            "'mean-distance' (1 / (2 * average squared distance of two rows)).",
        ),
    ] = "scale",
    kernel: Annotated[KernelName, typer.Option("--kernel")] = KernelName.RBF,
    degree: Annotated[int, typer.Option("--degree", help="Of the polynomial kernel.")] = 3,
    coef0: Annotated[float, typer.Option("--coef0", help="Of poly and sigmoid.")] = 0.0,
    tol: Annotated[
        float,
        typer.Option(
            "--tol",
            help="KKT gap over all rows at which training has converged; of crammer-singer the "
            "largest violation. Of balls there is --ball-tol.",
        ),
    ] = 1e-3,
    class_weight: Annotated[
        list[str] | None,
        typer.Option(
            "--class-weight",
            metavar="balanced|LABEL:WEIGHT",
            help="Factor of C for a class; LABEL:WEIGHT may be repeated.",
        ),
    ] = None,
    multiclass: Annotated[
        Multiclass,
        typer.Option(
            "--multiclass",
            help="Of more than two classes: votes of all pairs, a graph of them, or each class "
            "against the rest.",
        ),
    ] = Multiclass.OVO,
    calibration: Annotated[
        CalibrationMethod | None,
        typer.Option(
            "--calibration",
            help="Of two classes: hold out a tenth of the rows, and fit probabilities on them.",
        ),
    ] = None,
    memory: Memory = "1GB",
    disk_cache: Annotated[
        str,
        typer.Option(
            "--disk-cache",
            metavar="SIZE",
            help="Kernel rows kept in --cache-dir, with --working-set all.",
        ),
    ] = "0",
    cache_dir: CacheDir = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            "--checkpoint",
            callback=local,
            metavar="DIR",
            help="Folder on a local disk to save the run to. The same command again resumes it.",
        ),
    ] = None,
    checkpoint_every: Annotated[
        str, typer.Option("--checkpoint-every", metavar="TIME", help="Between two saves.")
    ] = "60s",
    max_time: Annotated[
        str | None,
        typer.Option("--max-time", metavar="TIME", help="Stop after 60, 60s, 5m or 2h."),
    ] = None,
    max_iter: Annotated[
        int, typer.Option("--max-iter", help="Stop after so many pair steps; -1 is never.")
    ] = -1,
    selection: Annotated[
        Selection, typer.Option("--selection", help="How a pair of variables is chosen.")
    ] = Selection.AUTO,
    working_set: Annotated[
        WorkingSet,
        typer.Option(
            "--working-set", help="Parts of the rows, or all at once (kernel rows on demand)."
        ),
    ] = WorkingSet.AUTO,
    shrinking: Annotated[
        bool | None,
        typer.Option(
            "--shrinking/--no-shrinking",
            help="With --working-set all: leave rows that stay at a bound out until the end is "
            "near. By default where memory holds few kernel rows and there is no --disk-cache.",
        ),
    ] = None,
    rows_at_once: Annotated[
        int | None,
        typer.Option(
            "--rows-at-once",
            help="With --working-set all: most kernel rows that are computed together. By default "
            "as many as pays.",
        ),
    ] = None,
    threads: Threads = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the samples training starts from.")] = 0,
    zero_based: ZeroBasedText = ZeroBased.AUTO,
    resume: Annotated[
        Path | None,
        typer.Option(
            "--resume",
            callback=local,
            metavar="DIR",
            help="Go on with the run in this checkpoint folder, which knows the rest.",
        ),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a model on a store of any size, within a memory budget.

    Of more than two classes, a function is trained for each pair of them, on its rows alone.

    Training ends when a sweep over all rows certifies the tolerance. Ctrl-C and SIGTERM end it
    within about a second: the run is saved to the checkpoint, and the model so far is written,
    marked as not converged. A second signal ends it at once.

    \b
    Examples:
      bigsvm train train.zarr model.safetensors --C 10 --gamma 0.05
      bigsvm train train.zarr model.safetensors --memory 4GB --checkpoint run --max-time 8h
      bigsvm train --resume run
      bigsvm train a9a.libsvm model.safetensors --class-weight -1:1 --class-weight +1:3
      bigsvm train houses.zarr model.safetensors --formulation eps-svr --epsilon 0.05
      bigsvm train digits.zarr model.safetensors --formulation crammer-singer --C 10
    """
    weights = parse_class_weight(class_weight or [])
    values: dict[str, Any] = {
        "formulation": formulation.value,
        "loss": loss.value,
        "solver": solver.value,
        "sampling": parse_sampling(sampling),
        "empty_samples": empty_samples,
        "first_points": first_points.value,
        "ball_tol": ball_tol,
        "certify": certify,
        "subproblem": subproblem.value,
        "order": order.value,
        "cooling": cooling.value,
        "fit_intercept": fit_intercept,
        "C": c,
        "nu": nu,
        "epsilon": epsilon,
        "gamma": parse_gamma(gamma),
        "kernel": kernel.value,
        "degree": degree,
        "coef0": coef0,
        "tol": tol,
        "class_weight": list(weights.items()) if isinstance(weights, dict) else weights,
        "multiclass": multiclass.value,
        "calibration": None if calibration is None else calibration.value,
        "selection": selection.value,
        "working_set": working_set.value,
        "shrinking": shrinking,
        "rows_at_once": rows_at_once,
        "disk_cache": disk_cache,
        "seed": seed,
        "memory": memory,
        "threads": threads,
        "checkpoint_every": parse_seconds(checkpoint_every, "--checkpoint-every"),
        "max_seconds": None if max_time is None else parse_seconds(max_time, "--max-time"),
        "max_iter": max_iter,
        "cache_dir": None if cache_dir is None else os.path.abspath(cache_dir),
        "zero_based": zero_based.value,
    }
    if resume is not None:
        if model is not None or checkpoint is not None:
            raise typer.BadParameter("--resume needs neither MODEL nor --checkpoint")
        given = {
            name: values[name] for option, name in PARAMETERS.items() if is_given(context, option)
        }
        run, checkpoint = Run.load(resume, own=True).updated(given), resume
        check_source(run, store, resume)
    else:
        if store is None or model is None:
            raise typer.BadParameter("give STORE and MODEL, or --resume DIR")
        check_model_path(model)
        run = Run(source=absolute(store), model=os.path.abspath(model)).updated(values)
    if checkpoint is not None:
        check_is_read_again(run.source)
    check_used(context, run, checkpoint)
    told = partial(in_options, options=options_of(context.command))
    names_model = resume is None
    raise typer.Exit(_train(run, checkpoint, told, names_model=names_model, json=json, quiet=quiet))


def _train(
    run: Run,
    checkpoint: Path | None,
    told: Callable[[str], str],
    *,
    names_model: bool,
    json: bool,
    quiet: bool,
) -> int:
    """Train, write the model, report the result; returns the exit code.

    `told` rewrites the library's messages with the names of options; they may name the model.
    """
    from bigsvm.estimators.fitting import train_model
    from bigsvm.estimators.parameters import Hooks

    parameters = run.training_parameters(checkpoint)
    parameters.check()
    path = Path(run.model)
    check_model_path(path)
    cache_dir = None if run.cache_dir is None else Path(run.cache_dir)
    check_apart(run.source, path, {"--checkpoint": checkpoint, "--cache-dir": cache_dir})
    with Interruption() as interruption, Display(quiet=quiet) as display:
        show = TrainingProgress(display)
        if path.exists() and not names_model:
            display.line(f"{path} will be replaced when the run ends")

        def listener(event: events.Event) -> None:
            # Only now the checkpoint is known to belong to this run.
            if isinstance(event, events.Planned) and checkpoint is not None:
                run.save(checkpoint)
            show(event)

        with opened(
            run.source,
            memory=parse_bytes(parameters.memory),
            cache_dir=cache_dir,
            zero_based=ZeroBased(run.zero_based),
            display=display,
            interruption=interruption,
        ) as opened_store:
            check_labels_fit(parse_bytes(parameters.memory), opened_store.rows.n_rows)
            trained = train_model(
                opened_store.rows,
                opened_store.labels(),
                opened_store.sample_weight(),
                parameters,
                Hooks(listener=listener, interrupted=interruption.requested),
            )
            n_rows = opened_store.rows.n_rows
        trained.save(path)
        reason = StopReason(trained.certificate["stop_reason"])
        if reason.is_uncertified:
            display.line(f"the model is not certified: {reason.sentence}")
        elif not trained.certificate["converged"]:
            hint = ""
            # A resumed run would stall again.
            if checkpoint is not None and reason is not StopReason.STALLED:
                hint = f": {resume_command(checkpoint, reason, source=run.source)}"
            display.warn(told(f"the model has not converged: {reason.sentence}{hint}"))
        if parameters.calibration is not None and trained.calibration is None:
            display.warn("the model has no probabilities: they are fitted after training")
        if trained.doubt:
            display.warn(told(trained.doubt))
    _print(trained, path, n_rows, json=json)
    return interruption.exit_code


def _print(model: "KernelExpansion", path: Path, n_rows: int, *, json: bool) -> None:
    from bigsvm.report.describe import (
        calibration_record,
        calibration_text,
        certificate_lines,
        classes_text,
    )
    from bigsvm.report.resources import peak_rss_bytes

    peak = peak_rss_bytes()
    if json:
        record = {
            **model.certificate,
            "model": str(path),
            "n_rows": n_rows,
            "n_features": model.n_features,
            "classes": None if model.classes is None else list(model.classes),
            "rule": model.rule,
            "n_functions": model.n_functions,
            "calibration": calibration_record(model),
            "peak_rss_bytes": peak,
        }
        say(as_json(record))
        return
    lines = [
        ("model", path),
        ("classes", classes_text(model)),
        *certificate_lines(model.certificate, model.classes, formulation=model.formulation),
        ("probabilities", calibration_text(model)),
        ("peak memory", show_bytes(peak)),
    ]
    say(as_columns(lines))
