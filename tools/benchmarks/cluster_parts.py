"""What the parts of a run on workers take, by a clock around the methods that do them."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PARTS = ("passes", "steps", "scans", "labels", "checkpoints", "scheduling", "tasks", "ends")
"""Parts of a run, in seconds of the coordinator:

passes       it waits for its workers: their kernel values, and what each pass takes besides
steps        working sets: kernel rows and pair steps
scans        it looks at all rows: their scores, and the rows that are chosen
labels       labels are read and numbered, and rows are put in order
checkpoints  the state is written
scheduling   calls are given to workers, and replies are checked
tasks        Dask is asked for tasks
ends         workers are opened and closed, rows are copied, and the result is certified
"""


class Clock:
    """Divides the time of one thread among parts: a part within another one has its own time."""

    def __init__(self) -> None:
        self.seconds, self.n_passes = dict.fromkeys(PARTS, 0.0), 0
        self.saves, self.saved = 0, 0
        self._parts: list[str] = []
        self._since, self._thread = 0.0, threading.get_ident()

    def _account(self) -> None:
        now = time.perf_counter()
        if self._parts:
            self.seconds[self._parts[-1]] += now - self._since
        self._since = now

    @contextmanager
    def of(self, part: str) -> Iterator[None]:
        """Count the time of a block, if it is of the thread of this clock."""
        if threading.get_ident() != self._thread:
            yield
            return
        self._account()
        self._parts.append(part)
        try:
            yield
        finally:
            self._account()
            self._parts.pop()

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function whose calls are counted."""

        def counted(*given: Any, **named: Any) -> Any:  # noqa: ANN401 (as what it stands for)
            with self.of(part):
                return function(*given, **named)

        return counted

    def patches(self) -> list[Any]:
        """List what to replace while a fit is under way."""
        from bigsvm.data.store import Store
        from bigsvm.executors.audit import SumsAudit
        from bigsvm.executors.passes import Pass
        from bigsvm.executors.workforce import Workforce
        from bigsvm.fit.single import SingleReduction
        from bigsvm.training.loop import Decomposition
        from bigsvm.training.saving import Saver
        from bigsvm.training.sweep import Passes

        in_order = Pass.in_order

        def waited(under_way: Any, *, ahead: int) -> Iterator[Any]:  # noqa: ANN401
            results = in_order(under_way, ahead=ahead)
            self.n_passes += 1
            while True:
                with self.of("passes"):
                    result = next(results, None)
                if result is None:
                    return
                yield result

        methods: dict[Any, dict[str, str]] = {
            Store: {"labels": "labels"},
            SingleReduction: dict.fromkeys(("__init__", "arrange", "recorded"), "labels"),
            Decomposition: {"_solve": "steps", "_select": "scans", "_certify": "ends"},
            Passes: dict.fromkeys(("sweep", "grow", "fill"), "scans"),
            Pass: {"top_up": "scheduling", "_finished": "scheduling"},
            SumsAudit: {"verify": "ends", "finish": "ends"},
            Workforce: {"submit": "tasks"},
        }
        write = Saver.write

        def counted(saver: Any, arrays: Any, values: Any) -> None:  # noqa: ANN401
            self.saves += 1
            self.saved += sum(array.nbytes for array in arrays.values())
            with self.of("checkpoints"):
                write(saver, arrays, values)

        patches = [
            mock.patch.object(Pass, "in_order", waited),
            mock.patch.object(Saver, "write", counted),
        ]
        for owner, parts in methods.items():
            patches += [
                mock.patch.object(owner, name, self.timed(part, getattr(owner, name)))
                for name, part in parts.items()
            ]
        return patches


def timed_run(job: dict[str, Any]) -> dict[str, Any]:
    """Train a store on one worker with a checkpoint; seconds of each part, and counts."""
    import bigsvm
    from tools.benchmarks.contestants import TOL
    from tools.benchmarks.suites import cluster

    store = bigsvm.open_store(Path(job["folder"]) / f"{job['name']}.dense.zarr")
    given, watched, clock = dict(job["parameters"]), cluster.Watched(), Clock()
    every = given.pop("every")
    model = bigsvm.SVC(**given, tol=TOL, memory=job["memory"], n_jobs=1)
    with ExitStack() as stack:
        client = cluster.local_cluster(stack, 1)
        cluster.warm_up(model, client)
        for patch in (watched.patches()[0], *clock.patches()):
            stack.enter_context(patch)
        folder = Path(job["folder"]) / f"run-{job['name']}-{job['turn']}"
        model.set_params(checkpoint=str(folder), checkpoint_every=every)
        began = time.perf_counter()
        with clock.of("ends"):
            model.fit(store, client=client)
        found = {"seconds": time.perf_counter() - began, "n_passes": clock.n_passes}
        found |= {**clock.seconds, "saves": clock.saves, "saved": clock.saved}
        empty = cluster.seconds_of_empty_pass(store, client)
    return found | counts_of(model, watched) | {"empty": empty}


def counts_of(model: Any, watched: Any) -> dict[str, Any]:  # noqa: ANN401
    """Count what the seconds of a run are proportional to."""
    traffic, certificate = watched.workforce.traffic, model.certificate_
    return {
        "n_support": len(model.support_), "n_tasks": traffic.tasks,
        "evaluations": traffic.evaluations, "moved": traffic.bytes_moved,
        "returned": traffic.bytes_returned, "swept": certificate["rows_swept"],
    }  # fmt: skip
