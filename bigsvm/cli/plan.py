"""``bigsvm plan``: what training will take, before it is begun."""

from typing import TYPE_CHECKING

import typer

from bigsvm.budget import show_bytes
from bigsvm.cli.options import ReadOptions, Rows
from bigsvm.cli.outputs import check_apart, say_result
from bigsvm.cli.session import SessionOptions, opened_session
from bigsvm.cli.train import TrainingOptions, check_used
from bigsvm.report.progress import duration
from bigsvm.report.text import count

if TYPE_CHECKING:
    from bigsvm.fit.forecast import Forecast, Range
    from bigsvm.report.describe import Lines


def command(
    context: typer.Context,
    *,
    store: Rows,
    read: ReadOptions,
    options: SessionOptions,
    training: TrainingOptions,
) -> None:
    """Say what training will take: support vectors, time, memory and disk, as ranges.

    Samples of the rows are trained with these options, which are those of `bigsvm train`. The
    samples grow until they take some percent of the expected time. With --scheduler it says what
    --worker-memory has to be for the workers that there are.

    \b
    Examples:
      bigsvm plan train.zarr --C 10 --gamma 0.05 --memory 4GB
      bigsvm plan train.zarr --C 10 --gamma 0.05 --json
    """
    from bigsvm.fit.forecast import forecast

    run = training.run_on(store, read)
    check_used(context, run, training.checkpoint)
    check_apart((run.source,), {"--log": options.log}, {"--cache-dir": run.cache_folder})
    parameters = run.training_parameters(training.checkpoint)
    with (
        opened_session(options) as session,
        session.rows_to_train(run, parameters) as rows,
    ):
        planned = forecast(
            rows.rows,
            rows.labels(),
            rows.sample_weight(),
            parameters,
            session.hooks(session.listen_to_many),
        )
        session.note("Forecast", planned.as_dict())
    say_result(planned.as_dict(), _lines(planned), json=options.json)


def _lines(planned: "Forecast") -> "Lines":
    sample = planned.samples[-1]

    def counted(values: "Range") -> str:
        low, expected, high = (count(round(value)) for value in values)
        return f"about {expected} ({low} to {high})"

    workers, each = planned.worker_memory, None
    if workers is not None:
        each = (
            f"at least {show_bytes(workers.least)} on each worker; from {show_bytes(workers.once)} "
            "on they read each row once"
        )
    low, expected, high = map(duration, planned.seconds)
    return [
        ("rows", count(planned.n_rows)),
        ("support vectors", counted(planned.n_support)),
        ("sweeps", counted(planned.n_sweeps)),
        ("time", f"about {expected} ({low} to {high})"),
        ("memory", show_bytes(planned.memory_bytes)),
        ("worker memory", each),
        ("disk", show_bytes(planned.disk_bytes)),
        (
            "from samples",
            f"{len(planned.samples)}, the largest of {count(sample.n_rows)} rows in "
            f"{duration(sample.seconds)}",
        ),
    ]
