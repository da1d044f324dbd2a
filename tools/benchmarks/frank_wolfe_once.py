"""One measurement of ``frank_wolfe.py scale``, in a process of its own: prints one JSON object.

    frank_wolfe_once.py make STORE ROWS       write a store of connections, see kdd_like.py
    frank_wolfe_once.py read STORE            seconds of one pass over its rows, the best of two
    frank_wolfe_once.py fit STORE PARAMETERS  train a ball once; PARAMETERS is a JSON object of
                                              `TrainingParameters`, gamma one of the readings of
                                              `timed_fits.py`

A fit is timed after a tiny one with the same parameters, and its peak of memory is that of the
process when it ends; accuracy, on fresh rows, comes after it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kdd_like
from common import peak_so_far

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from bigsvm.data.rows import RowsAt
    from bigsvm.training.events import Event

BLOCK_BYTES = 64 << 20
TINY_ROWS = 1000
FRESH_ROWS, FRESH_SEED = 100_000, 1


def read(store: Path) -> dict[str, Any]:
    """Stream all rows twice."""
    from bigsvm import open_store

    source, seconds = open_store(store).rows, []
    for _ in range(2):
        started = time.perf_counter()
        n_rows = sum(len(block.values) for block in source.blocks(BLOCK_BYTES))
        seconds.append(time.perf_counter() - started)
    return {"seconds": min(seconds), "n_rows": n_rows}


class Watching:
    """Counts what a search does: rows drawn, the largest core set, and the steps of its rounds.

    The first round is not counted: what is done once, which may depend on the number of rows, came
    before its end.
    """

    def __init__(self) -> None:
        self.rows_drawn = self.core = 0
        self._rounds: list[tuple[float, int]] = []

    def listen(self, event: Event) -> None:
        """Look at a round of the search."""
        from bigsvm.training.events import Searching

        if isinstance(event, Searching):
            self.core = max(self.core, event.size)
            self._rounds = [*self._rounds[:1], (time.perf_counter(), event.steps)]

    def seconds_per_step(self) -> float | None:
        """Of all rounds but the first; None where there were no steps in others."""
        if len(self._rounds) < 2 or self._rounds[1][1] == self._rounds[0][1]:
            return None
        (began, before), (ended, after) = self._rounds
        return (ended - began) / (after - before)

    def count_draws(self) -> None:
        """Have searches of this process draw rows that are counted; no result says how many."""
        from bigsvm.data.random_rows import RandomRows

        draw = RandomRows.draw

        def counted(rows: RandomRows, count: int) -> Iterator[tuple[NDArray[np.int64], RowsAt]]:
            self.rows_drawn += count
            return draw(rows, count)

        RandomRows.draw = counted


def fit(store: Path, given: dict[str, Any]) -> dict[str, Any]:
    """Train once."""
    from timed_fits import gamma_of

    from bigsvm import open_store
    from bigsvm.data.sources import as_row_source
    from bigsvm.estimators.fitting import train_model
    from bigsvm.estimators.parameters import Hooks, TrainingParameters

    gamma = gamma_of(open_store(store).rows, given["gamma"])
    threads = int(os.environ["OMP_NUM_THREADS"])
    parameters = TrainingParameters(**{**given, "gamma": gamma}, threads=threads)
    tiny = kdd_like.block_rows(0, n_rows=TINY_ROWS, seed=FRESH_SEED)
    labels = kdd_like.block_draws(0, n_rows=TINY_ROWS, seed=FRESH_SEED).labels
    train_model(as_row_source(tiny), labels, None, parameters)

    opened = open_store(store)
    source, labels = opened.rows, opened.labels()
    watching = Watching()
    watching.count_draws()
    started = time.perf_counter()
    model = train_model(source, labels, None, parameters, Hooks(listener=watching.listen))
    seconds = time.perf_counter() - started
    peak_rss = peak_so_far(os.getpid())
    certificate = model.certificate
    names = (
        *("converged", "stop_reason", "n_support", "n_iter", "n_sweeps"),
        *("bytes_read", "n_kernel_evaluations"),
    )
    return {
        **{name: certificate[name] for name in names},
        "seconds": seconds,
        "peak_rss": peak_rss,
        "n_rows": source.n_rows,
        "core": watching.core,
        "rows_drawn": watching.rows_drawn,
        "seconds_per_step": watching.seconds_per_step(),
        "accuracy": accuracy(model, threads=parameters.threads),
    }


def accuracy(model: Any, *, threads: int | None) -> float:  # noqa: ANN401 (a KernelExpansion)
    """Test on fresh rows: %."""
    from bigsvm.data.sources import as_row_source

    right = 0
    for block, start in enumerate(range(0, FRESH_ROWS, kdd_like.BLOCK_ROWS)):
        shape = {"n_rows": min(kdd_like.BLOCK_ROWS, FRESH_ROWS - start), "seed": FRESH_SEED}
        values = model.decision_function(
            as_row_source(kdd_like.block_rows(block, **shape)), threads=threads
        )
        right += int(((values > 0) == (kdd_like.block_draws(block, **shape).labels > 0)).sum())
    return 100 * right / FRESH_ROWS


def main(arguments: Sequence[str]) -> None:
    match arguments:
        case ["make", store, n_rows]:
            kdd_like.write(Path(store), n_rows=int(n_rows))
            answer: dict[str, Any] = {"n_rows": int(n_rows)}
        case ["read", store]:
            answer = read(Path(store))
        case ["fit", store, parameters]:
            answer = fit(Path(store), json.loads(parameters))
        case _:
            raise SystemExit(__doc__)
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1:])
