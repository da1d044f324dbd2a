"""Clusters of this machine's processes, and what a fit on one waits for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from unittest import mock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import ExitStack

N_COLUMNS, C, GAMMA = 54, 0.4, 0.5
"""The problem that workers are measured with: rows of ``few``."""
WORKER_MEMORY = "1500MB"


class Watched:
    """Keeps the workforce of a fit, and times what waits for it."""

    def __init__(self) -> None:
        self.workforce: Any = None
        self.far, self.passes = 0.0, 0

    def patches(self) -> list[Any]:
        """List what to replace while the fit is under way."""
        from bigsvm.executors import cluster
        from bigsvm.fit import trainer

        open_workforce, in_order = trainer.workforce_of, cluster.Pass.in_order

        def keep(*given: Any, **named: Any) -> Any:  # noqa: ANN401 (as what it stands for)
            self.workforce = open_workforce(*given, **named)
            return self.workforce

        def timed(under_way: Any, *, ahead: int) -> Iterator[Any]:  # noqa: ANN401
            results = in_order(under_way, ahead=ahead)
            self.passes += 1
            while True:
                began = time.perf_counter()
                result = next(results, None)
                self.far += time.perf_counter() - began
                if result is None:
                    return
                yield result

        return [
            mock.patch.object(trainer, "workforce_of", keep),
            mock.patch.object(cluster.Pass, "in_order", timed),
        ]


def local_cluster(stack: ExitStack, n_workers: int) -> Any:  # noqa: ANN401 (a client)
    """Start workers that are processes of this machine."""
    from distributed import Client, LocalCluster

    cluster = stack.enter_context(
        LocalCluster(
            n_workers=n_workers, threads_per_worker=1, processes=True, dashboard_address=None,
            memory_limit=WORKER_MEMORY,
        )
    )  # fmt: skip
    client = stack.enter_context(Client(cluster))
    client.wait_for_workers(n_workers)
    return client


def warm_up(model: Any, client: Any) -> None:  # noqa: ANN401 (an estimator, and a client)
    """Fit a small problem, so that compiled code is loaded here and on the workers."""
    import numpy as np

    random = np.random.default_rng(0)
    x = random.standard_normal((20_000, N_COLUMNS), dtype=np.float32) / 4
    with mock.patch("bigsvm.executors.cluster.LATENCY", 0.0):
        model.fit(x, (x[:, 0] > 0).astype(float), client=client)
