"""``bigsvm cv``: scores by cross-validation on a store of any size."""

import time
from typing import TYPE_CHECKING

import typer

from bigsvm.budget import show_bytes
from bigsvm.cli.options import ReadOptions, Rows
from bigsvm.cli.outputs import check_apart, say_result
from bigsvm.cli.runs import check_is_read_again
from bigsvm.cli.selecting import FoldOptions, FoldTrainingOptions, opened_fits
from bigsvm.cli.session import SessionOptions
from bigsvm.cli.train import check_used
from bigsvm.report.text import number

if TYPE_CHECKING:
    from bigsvm.selection.record import FoldFit


def command(
    context: typer.Context,
    *,
    store: Rows,
    folds: FoldOptions,
    read: ReadOptions,
    options: SessionOptions,
    training: FoldTrainingOptions,
) -> None:
    """Cross-validate: train on the other folds, predict each fold, and show the scores.

    A fold gives weight 0 to the rows that it tests, so that no rows are copied. Each fit is
    certified like one of `bigsvm train`, whose options this command has; --max-time and --max-iter
    limit each fit. With --checkpoint, the same command goes on after a signal or a kill, and has
    the same scores. With --scheduler each fold is a task for a worker, where it fits, unless one
    run trains all folds.

    \b
    Examples:
      bigsvm cv train.zarr --C 10 --gamma 0.05
      bigsvm cv train.libsvm --folds 10 --scoring accuracy --scoring roc_auc --checkpoint cv
      bigsvm cv houses.zarr --formulation eps-svr --folds folds.txt
    """
    run, checkpoint = training.run_on(store, read), training.checkpoint
    if checkpoint is not None:
        check_is_read_again(run.source)
    check_used(context, run, checkpoint)
    folders = {"--checkpoint": checkpoint, "--cache-dir": run.cache_folder}
    check_apart((run.source, folds.folds, folds.groups), {"--log": options.log}, folders)
    started = time.monotonic()
    with (
        opened_fits(run, folds, options, checkpoint) as (fits, session),
        fits.recorded(checkpoint),
    ):
        from bigsvm.selection.cross_validation import folds_fitted
        from bigsvm.selection.record import fit_warnings

        n_folds = len(fits.folds)

        def on_fit(fold: int, result: "FoldFit") -> None:
            session.display.line(f"fold {fold + 1} of {n_folds}: {fold_text(result)}")
            session.note("Fitted", {"fold": fold, **result._asdict()})

        results = [result for result, _ in folds_fitted(fits, on_fit=on_fit)]
        told = fit_warnings(results, run.parameters["formulation"])
        session.warn(told, context.command)
        session.note("Ended", {"n_fits": len(results)})
    _print(results, fits.data.source.n_rows, time.monotonic() - started, json=options.json)


def fold_text(result: "FoldFit") -> str:
    """Describe a fit of a fold in a line."""
    scores = ", ".join(f"{name} {number(score)}" for name, score in result.scores.items())
    unconverged = "" if result.as_asked else ", not converged"
    n_support = result.certificate["n_support"]
    return f"{scores}, {n_support} support vectors, {result.fit_seconds:.1f} s{unconverged}"


def _print(results: "list[FoldFit]", n_rows: int, seconds: float, *, json: bool) -> None:
    from bigsvm.report.text import peak_rss_bytes
    from bigsvm.selection.cross_validation import table_of
    from bigsvm.selection.record import advice_of

    table = table_of(results)
    record = {
        **{name: getattr(value, "tolist", lambda v=value: v)() for name, value in table.items()},
        "n_rows": n_rows,
        "seconds": seconds,
        "peak_rss_bytes": peak_rss_bytes(),
    }
    means = {
        name: f"{number(table[f'mean_test_{name}'])} ± {number(table[f'std_test_{name}'], 3)}"
        for name in results[0].scores
    }
    lines = [
        *means.items(),
        *((f"fold {fold}", fold_text(result)) for fold, result in enumerate(results, 1)),
        ("took", f"{seconds:.1f} s"),
        ("peak memory", show_bytes(record["peak_rss_bytes"])),
        ("advice", advice_of(results)),
    ]
    say_result(record, lines, json=json)
