"""Fake workers that answer at once, without a network, to measure what scheduling costs.

    python -m tools.fake_workers [--workers 10 100 400 1000] [--tasks 8] [--repeats 3]

Prints the CPU milliseconds of the coordinator for each result of a pass, and those of the first
filling: all that happens before the first result. Submitting a task to Dask and fetching its result
are not among them.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
from collections import deque
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from bigsvm.executors.messages import Unit

WORKERS, TASKS = (10, 100, 400, 1000), 8


def fake_workforce(n_workers: int, *, threads: int = 1, keeps: dict[Any, int] | None = None) -> Any:  # noqa: ANN401 (a class made here)
    """Return a `Workforce` of workers that answer in the order of asking, one at each step.

    If units are sent, `keeps` gets how often a worker was sent each. The attribute `asked` has the
    tasks that wait for an answer, and `filled` the CPU time at the first step.
    """
    from bigsvm.executors import replies
    from bigsvm.executors.messages import Done, NotKept, Opened
    from bigsvm.executors.workforce import Worker, Workforce

    # Tasks that take so long are not late, however long the coordinator takes itself.
    answer = replies.sign(Done(np.zeros(1), 1, 0, 1e6, 1e6))

    class Task(SimpleNamespace):
        """A future of Dask's."""

        use: Callable[[Any], None]

        def release(self) -> None:
            self.is_released = True

        def answer(self) -> None:
            reply: Future[Any] = Future()
            answers: Any = None
            if self.name != "bigsvm-ping":
                answers = [self.answer_of(*given) for given in self.given[-1]]
            reply.set_result(answers)
            self.use(reply)

        def answer_of(self, unit: Unit, *_: Any) -> Any:  # noqa: ANN401 (rows of any kind)
            if keeps is None:
                return answer
            key = id(self.worker), *unit[:2]
            if unit.rows is not None:
                keeps[key] = keeps.get(key, 0) + 1
            return answer if key in keeps else NotKept()

    class FakeWorkforce(Workforce):
        def __init__(self) -> None:
            client = SimpleNamespace(
                loop=SimpleNamespace(asyncio_loop=None),
                scheduler=SimpleNamespace(address="fake://"),
                status="running",
            )
            super().__init__(client)
            self.asked: deque[Task] = deque()
            self.filled = 0.0
            for number in range(n_workers):
                self.join(f"fake://{number}")

        def join(self, name: str) -> None:
            """Add a worker that has opened."""
            self.workers[name] = Worker(name, threads, name, Opened({}, 1 << 30, 1 << 30))
            self.changes += 1

        def submit(self, worker: Any, name: str, function: Any, *given: Any) -> Task:  # noqa: ANN401
            return Task(worker=worker, name=name, function=function, given=given, is_released=False)

        def want(self, n_tasks: int, name: str) -> None:
            pass

        def when_done(self, future: Any, use: Callable[[Any], None], worker: Any) -> None:  # noqa: ANN401
            future.use = use
            self.asked.append(future)

        def step(self) -> None:
            self.filled = self.filled or time.process_time()
            self.asked.popleft().answer()

    return FakeWorkforce()


def fake_pass(workforce: Any, n_calls: int, *, parts: int = 1) -> Any:  # noqa: ANN401 (imported late)
    """Return a `Pass` of calls, of which some need the same unit, and which can send units."""
    from bigsvm.executors.messages import SentJob, Unit
    from bigsvm.executors.passes import Pass
    from bigsvm.executors.replies import Expected
    from bigsvm.executors.workforce import Call

    units = [Unit(k // parts, k // parts + 1) for k in range(n_calls)]
    calls = [Call(passed, unit, (), Expected((1,))) for unit in units]
    fill = lambda unit: (unit._replace(rows=True), 1)  # noqa: E731
    return Pass(workforce, SentJob("fake", "fake", b""), calls, name="fake", fill=fill)


def passed(n_workers: int, n_tasks: int) -> dict[str, float]:
    """Run a pass of so many tasks a worker; returns CPU seconds a result, and of the filling."""
    count = n_tasks * n_workers
    workforce = fake_workforce(n_workers)
    gc.collect()
    began = time.process_time()
    results = fake_pass(workforce, count).in_order(ahead=count)
    assert sum(1 for _ in results) == count
    seconds = time.process_time() - began
    filling = workforce.filled - began
    return {"result": (seconds - filling) / count, "filling": filling}


def measured(n_workers: int, n_tasks: int) -> dict[str, float]:
    """Run a pass in a process of its own."""
    program = "; ".join(
        [
            "import json",
            "from tools.fake_workers import passed",
            f"print(json.dumps(passed({n_workers}, {n_tasks})))",
        ]
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True,
        cwd=Path(__file__).parents[1],
    )  # fmt: skip
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    """Print a row for each number of workers."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, nargs="+", default=WORKERS)
    parser.add_argument("--tasks", type=int, default=TASKS, help="tasks of a pass for each worker")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print(f"{'workers':>8} {'ms a result':>20} {'ms of the first filling':>24}")
    for n_workers in options.workers:
        runs = [measured(n_workers, options.tasks) for _ in range(options.repeats)]
        cells = []
        for key in ("result", "filling"):
            found = sorted(1e3 * run[key] for run in runs)
            cells.append(f"{found[0]:.3f} to {found[-1]:.3f}")
        print(f"{n_workers:8} {cells[0]:>20} {cells[1]:>24}")


if __name__ == "__main__":
    main()
