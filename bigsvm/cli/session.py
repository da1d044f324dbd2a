"""Session: what a long command has while it runs: signals, progress, a log, a cluster, and rows."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from bigsvm.budget import check_labels_fit, parse_bytes
from bigsvm.cli.clusters import ClusterOptions, opened_client
from bigsvm.cli.failures import in_options, options_of
from bigsvm.cli.inputs import TextOptions, opened
from bigsvm.cli.options import Json, Quiet, local
from bigsvm.cli.signals import Interruption
from bigsvm.report.progress import Display, TrainingProgress
from bigsvm.training import events

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bigsvm.cli.runs import Run
    from bigsvm.data.store import Store
    from bigsvm.executors.workforce import Workforce
    from bigsvm.parameters import TrainingParameters
    from bigsvm.report.run_log import RunLog

Log = Annotated[
    Path | None,
    typer.Option(
        "--log",
        callback=local,
        metavar="FILE",
        help="Append what happens to a file, one JSON object with the time a line.",
        show_default="log.jsonl in the folder of --checkpoint",
    ),
]


@dataclass(frozen=True)
class SessionOptions(ClusterOptions):
    """What a command that trains computes with, and what it says meanwhile and at the end."""

    log: Log = None
    json: Json = False
    quiet: Quiet = False


class Session(NamedTuple):
    """What a command has while it runs; `opened_session` makes it."""

    interruption: Interruption
    display: Display
    show: TrainingProgress
    log: RunLog
    client: Any
    cluster: ClusterOptions

    def listen(self, event: events.Event) -> None:
        """Log an event, and show it."""
        self.log(event)
        self.show(event)

    def listen_to_many(self, event: events.Event) -> None:
        """Log an event of one of many fits; of these only what moves is shown."""
        self.log(event)
        if not isinstance(event, events.Planned | events.Swept) and not (
            isinstance(event, events.Checkpointed) and not self.display.is_asked
        ):
            self.show(event)

    def note(self, event: str, record: dict[str, Any]) -> None:
        """Write a line of the log, if there is one."""
        self.log.write(event, record)

    def warn(self, sentences: Iterable[str], command: Any) -> None:  # noqa: ANN401 (of Click)
        """Show warnings, with the options of a command in place of parameters."""
        for sentence in sentences:
            self.display.warn(in_options(sentence, options_of(command)))

    def hooks(self, listener: events.Listener) -> events.Hooks:
        """Return hooks of a run that signals end, and that the cluster computes for."""
        return events.Hooks(
            listener=listener,
            interrupted=self.interruption.requested,
            times_asked=self.interruption.times_asked,
            client=self.client,
            terms=self.cluster.terms(),
        )

    @contextmanager
    def rows_to_train(self, run: Run, parameters: TrainingParameters) -> Iterator[Store]:
        """Open the rows of a run for a while."""
        text = TextOptions(**vars(run.read), memory=parameters.memory, cache_dir=run.cache_folder)
        with opened(run.source, text, self.display, self.interruption) as store:
            check_labels_fit(parse_bytes(parameters.memory), store.rows.n_rows)
            yield store

    @contextmanager
    def workers(self) -> Iterator[Workforce | None]:
        """Give the workers of the cluster, or None; the display tells who they are."""
        if self.client is None:
            yield None
            return
        from bigsvm.fit.trainer import workforce_of

        workers = workforce_of(self.hooks(self.listen))
        try:
            yield workers
        finally:
            workers.close()


@contextmanager
def opened_session(options: SessionOptions, checkpoint: Path | None = None) -> Iterator[Session]:
    """Open what a command has while it runs; without --log, its checkpoint has the log."""
    from bigsvm.report.run_log import RunLog

    with (
        Interruption() as interruption,
        Display(quiet=options.quiet, times_asked=interruption.times_asked) as display,
        RunLog(options.log, checkpoint, warn=display.warn) as run_log,
        opened_client(options, display, interruption) as client,
    ):
        show = TrainingProgress(display)
        yield Session(interruption, display, show, run_log, client, options)
