"""Training by the workers of a Dask cluster: what they do, what it costs, and how it scales.

    python -m tools.benchmarks cluster --part work [--rows 500000] [--memory 500MB] [--repeats 3]
    python -m tools.benchmarks cluster --part scaling [--workers 1 2 4 8]
    python -m tools.benchmarks cluster --part storage [--rows 10000000] [--memory 1GB]

Rows are those of ``few`` of `synthetic.py` with 54 columns, C 1 and gamma 0.5: some 7 % become
support vectors. All workers are processes of this machine with one thread each.

work     One process with two threads, one worker and two workers train the same store in turns.
         The certificate computes whole products in all of them, so that the numbers of kernel
         values can be compared. Limits: the same model to the bit; as many kernel values, 85 % of
         them on workers; the coordinator reads less than 5 % of the rows; at most 8.1 bytes come
         back for each row swept; at most 1.05 times what has moved is sent to each worker; two
         workers take at most 1.5 times as long as two threads.
scaling  Workers in slowed-down time: each sleeps until --nanoseconds for each kernel value have
         gone by, and --rate for the bytes that it is sent and sends back. So many workers need
         little of a processor. *Far* is what the coordinator waits for its workers; *near* is all
         the rest, which counts as many times as kernel values are slowed down. Limits: far work is
         80 % efficient, seconds of 1 worker ÷ (P × seconds of P workers), and a cost model, whose
         constants are those of 1 worker, is right within 15 %. The model is printed for up to
         10⁹ rows, for a link of --link bytes a second.
storage  Two workers train a store that an S3 server on this machine has (moto, which is made for
         tests and slow): two clouds of 54 columns, written block by block. The peak memory of each
         process is printed.
"""

from __future__ import annotations

import functools
import hashlib
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

from tools.benchmarks.bench import Suite
from tools.benchmarks.children import machine
from tools.benchmarks.data import made
from tools.benchmarks.results import (
    Limit,
    Results,
    at_least,
    at_most,
    case_of,
    last,
    megabytes,
    must,
    spread,
    table,
    verdicts,
    who,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

N_COLUMNS, C, GAMMA = 54, 1.0, 0.5
HERE, ONE, TWO = "2 threads", "1 worker", "2 workers"
WORKERS = {ONE: 1, TWO: 2}
WORKER_MEMORY = "1500MB"
MOST_TIMES, LEAST_FAR, MOST_READ, MOST_BACK, MOST_SENT = 1.5, 0.85, 0.05, 8.1, 1.05
LEAST_EFFICIENT, MOST_WRONG = 0.8, 0.15
NANOSECONDS, RATE, LINK = 20.0, 62.5e6, 1.25e9
"""Of a kernel value, and bytes a second, in slowed-down time; bytes a second of a real link."""
SIZES = ((10**6, 10**4), (10**7, 10**5), (10**8, 10**5), (10**8, 10**6), (10**9, 10**6))
"""Rows and support vectors of the table of costs."""
TABLE_WORKERS = (1, 10, 100, 1000)
TABLE_COLUMNS = 100


class Spent(NamedTuple):
    """What a run with workers has taken.

    Attributes
    ----------
    far, near : float
        Seconds of waiting for workers, and all others.
    evaluations : int
        Kernel values that workers computed.
    moved, returned : int
        Bytes that each worker was sent, and those that came back from all.
    busy : float
        Seconds of all tasks.
    n_support : int
    """

    far: float
    near: float
    evaluations: int
    moved: int
    returned: int
    busy: float
    n_support: int


class Watched:
    """Keeps the workforce of a fit, and times what waits for it."""

    def __init__(self) -> None:
        self.workforce: Any = None
        self.far = 0.0

    def patches(self) -> list[Any]:
        """List what to replace while the fit is under way."""
        from bigsvm.executors import cluster
        from bigsvm.fit import trainer

        open_workforce, results_of = trainer.workforce_of, cluster.results_of

        def keep(*given: Any, **named: Any) -> Any:  # noqa: ANN401 (as what it stands for)
            self.workforce = open_workforce(*given, **named)
            return self.workforce

        def timed(*given: Any, **named: Any) -> Iterator[Any]:  # noqa: ANN401
            results = results_of(*given, **named)
            while True:
                began = time.perf_counter()
                result = next(results, None)
                self.far += time.perf_counter() - began
                if result is None:
                    return
                yield result

        return [
            mock.patch.object(trainer, "workforce_of", keep),
            mock.patch.object(cluster, "results_of", timed),
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


# -- work ------------------------------------------------------------------------------------------


def train(job: dict[str, Any]) -> dict[str, Any]:
    """Train once, on threads or on workers."""
    import bigsvm
    from bigsvm.fit import trainer
    from bigsvm.training.decomposition import Decomposition
    from tools.benchmarks.contestants import TOL

    store = bigsvm.open_store(Path(job["folder"]) / f"{job['name']}.dense.zarr")
    watched = Watched()
    model = bigsvm.SVC(**job["parameters"], tol=TOL, memory=job["memory"], n_jobs=2)
    with ExitStack() as stack:
        client, n_workers = None, WORKERS.get(job["who"], 0)
        if n_workers:
            client = local_cluster(stack, n_workers)
            for patch in watched.patches():
                stack.enter_context(patch)
        stack.enter_context(
            mock.patch.object(
                trainer, "Decomposition", functools.partial(Decomposition, by_halves=False)
            )
        )
        warm_up(model, client)
        watched.far = 0.0
        began = time.perf_counter()
        model.fit(store, client=client)
        seconds = time.perf_counter() - began
    found = hashlib.sha256()
    for array in (model.support_, model.dual_coef_, model.intercept_):
        found.update(array.tobytes())
    certificate = model.certificate_
    n_bytes = store.rows.n_rows * store.rows.bytes_per_row
    answer = {
        "seconds": seconds,
        "n_support": len(model.support_),
        "digest": f"{found.hexdigest()[:8]} {certificate['objective']!r}",
        "n_kernel_evaluations": certificate["n_kernel_evaluations"],
        "read_share": certificate["bytes_read"] / n_bytes,
    }
    if watched.workforce is not None:
        traffic = watched.workforce.traffic
        answer |= {
            "far": watched.far,
            "far_share": traffic.evaluations / certificate["n_kernel_evaluations"],
            "sent_times": traffic.bytes_sent / traffic.bytes_moved / n_workers,
            "returned": traffic.bytes_returned,
            "back": traffic.bytes_swept / traffic.rows_swept,
            "moved": traffic.bytes_moved,
            "tasks": traffic.tasks,
        }
    return answer


def work_limits(results: Results) -> list[Limit]:
    """Hold workers against what is promised of them."""
    limits = []
    for row in results.rows(HERE):
        workers = [row.of(name) for name in WORKERS if row.of(name).runs]
        digests = {run.answer["digest"] for line in (row, *workers) for run in line.runs}
        evaluations = {
            run.answer["n_kernel_evaluations"] for line in (row, *workers) for run in line.runs
        }
        limits += [
            must("models", len(digests), "one", len(digests) == 1),
            must("numbers of kernel values", len(evaluations), "one", len(evaluations) == 1),
        ]
        for line in workers:
            name = line.who
            limits += [
                at_least(f"{name}: of kernel values", line.last("far_share"), limit=LEAST_FAR),
                at_most(f"{name}: read here, of rows", line.last("read_share"), limit=MOST_READ),
                at_most(f"{name}: bytes back a row swept", line.last("back"), limit=MOST_BACK),
                at_most(f"{name}: sent, of moved", line.last("sent_times"), limit=MOST_SENT),
            ]
        if row.of(TWO).runs:
            limits.append(at_most(f"{TWO} ÷ {HERE}", row.of(TWO).ratio(HERE), limit=MOST_TIMES))
    return limits


WORK = Suite(
    cases=lambda options: [
        case_of(made("few", options.rows)._replace(n_columns=N_COLUMNS, C=C, gamma=GAMMA))
    ],
    contestants=(HERE, ONE, TWO),
    columns=(
        ("who", who),
        ("seconds", spread("seconds")),
        ("waiting for workers", spread("far")),
        ("SVs", last("n_support")),
        ("kernel values", last("n_kernel_evaluations")),
        ("on workers", lambda row: f"{row.last('far_share', 0.0):.1%}"),
        ("rows read here", lambda row: f"{row.last('read_share'):.2f}"),
        ("moved MB", lambda row: megabytes(row.last("moved", 0))),
        ("back MB", lambda row: megabytes(row.last("returned", 0))),
        ("tasks", last("tasks")),
        ("model", last("digest")),
    ),
    limits=work_limits,
    do="tools.benchmarks.suites.cluster:train",
    stores=True,
    memory="500MB",
    threads=2,
    more=(("--rows", {"type": int, "default": 500_000}),),
)


# -- scaling ---------------------------------------------------------------------------------------


def slow_down(nanoseconds: float, rate: float) -> None:
    """Make the tasks of this process take their time: those of a worker, by its own call."""
    from bigsvm.executors import tasks

    pieces_seen: set[str] = set()

    def slowed(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def sleep_on(*given: Any) -> Any:  # noqa: ANN401 (as what it stands for)
            began = time.perf_counter()
            done = function(*given)
            if isinstance(done, tasks.NotKept):
                return done
            n_bytes = tasks.bytes_of(done.values)
            for piece in given[1] if isinstance(given[1], list) else ():
                if piece.name not in pieces_seen:
                    pieces_seen.add(piece.name)
                    n_bytes += piece.nbytes
            seconds = done.evaluations * nanoseconds * 1e-9 + n_bytes / rate
            time.sleep(max(0.0, began + seconds - time.perf_counter()))
            return done._replace(seconds=seconds)

        return sleep_on

    for name in ("add_up", "add_up_halves", "take_rows"):
        function = getattr(tasks, name)
        setattr(tasks, name, slowed(getattr(function, "__wrapped__", function)))


def slowed_run(store: Any, options: argparse.Namespace, n_workers: int) -> Spent:  # noqa: ANN401
    """Train on slow workers."""
    import bigsvm
    from tools.benchmarks.contestants import TOL

    watched = Watched()
    model = bigsvm.SVC(C=C, gamma=GAMMA, tol=TOL, memory=options.memory, n_jobs=1)
    with ExitStack() as stack:
        client = local_cluster(stack, n_workers)
        client.run(slow_down, options.nanoseconds, options.rate)
        for patch in watched.patches():
            stack.enter_context(patch)
        began = time.perf_counter()
        model.fit(store, client=client)
        seconds = time.perf_counter() - began
    traffic = watched.workforce.traffic
    return Spent(
        watched.far, seconds - watched.far, traffic.evaluations, traffic.bytes_moved,
        traffic.bytes_returned, traffic.busy_seconds, len(model.support_),
    )  # fmt: skip


class Costs(NamedTuple):
    """Constants of the cost model, as one run has them.

    Attributes
    ----------
    floors : float
        Kernel values on workers, in floors: one floor is rows × support vectors.
    moved_times, returned_times : float
        Bytes moved, in bytes of the support vectors; bytes returned, in 8 bytes a row.
    near_per_support : float
        Seconds of the coordinator for each support vector, in one thread.
    """

    floors: float
    moved_times: float
    returned_times: float
    near_per_support: float

    @classmethod
    def of(cls, spent: Spent, *, n_rows: int, n_columns: int) -> Costs:
        """Find the constants of a run."""
        return cls(
            spent.evaluations / (n_rows * spent.n_support),
            spent.moved / (spent.n_support * (4 * n_columns + 8)),
            spent.returned / (8 * n_rows),
            spent.near / spent.n_support,
        )

    def far(
        self, n_rows: int, n_support: int, n_columns: int, n_workers: int, *, value: float,
        rate: float,
    ) -> tuple[float, float]:  # fmt: skip
        """Seconds of kernel values, and of bytes, with `n_workers` threads."""
        values = self.floors * n_rows * n_support * value / n_workers
        moved = self.moved_times * n_support * (4 * n_columns + 8) / rate
        back = self.returned_times * 8 * n_rows / rate / n_workers
        return values, moved + back


def seconds_of(value: float) -> str:
    """Show a time in the unit that suits it."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if value >= 2 * size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.2g} s"


def cost_table(costs: Costs, *, value: float, link: float) -> str:
    """Lay out what far work takes on P threads, and what does not shrink with P."""
    rows = []
    for n_rows, n_support in SIZES:
        far = [
            sum(costs.far(n_rows, n_support, TABLE_COLUMNS, p, value=value, rate=link))
            for p in TABLE_WORKERS
        ]
        moved = costs.moved_times * n_support * (4 * TABLE_COLUMNS + 8)
        near = costs.near_per_support * n_support
        rows.append(
            [
                f"{n_rows:.0e}", f"{n_support:.0e}", *map(seconds_of, far),
                f"{moved / 1e9:.2g}", seconds_of(near),
            ]
        )  # fmt: skip
    header = ["rows", "SVs", *(f"P = {p}" for p in TABLE_WORKERS), "moved, GB", "coordinator"]
    return table(header, rows)


def scaling(options: argparse.Namespace) -> int:
    """Train on more and more slow workers, and print the cost model."""
    import tempfile

    import bigsvm
    from bigsvm.gram.tiles import SECONDS_PER_ENTRY, SECONDS_PER_VALUE
    from tools.benchmarks import synthetic

    with tempfile.TemporaryDirectory() as folder:
        x, y = synthetic.make("few", options.rows, N_COLUMNS)
        store = bigsvm.write_store(Path(folder) / "rows.zarr", x, y)
        del x, y
        runs = {p: slowed_run(store, options, p) for p in options.workers}
    first = runs[options.workers[0]]
    costs = Costs.of(first, n_rows=options.rows, n_columns=N_COLUMNS)
    each = options.nanoseconds * 1e-9
    own = SECONDS_PER_VALUE + SECONDS_PER_ENTRY[False] * N_COLUMNS
    slower = each / own
    lines, limits = [], []
    for p, spent in runs.items():
        efficiency = options.workers[0] * first.far / (p * spent.far)
        values, n_bytes = costs.far(
            options.rows, spent.n_support, N_COLUMNS, p, value=each, rate=options.rate
        )
        predicted = values + n_bytes
        lines.append(
            [
                p, f"{spent.far:.1f}", f"{values:.1f} + {n_bytes:.1f}", f"{spent.near:.1f}",
                f"{slower * spent.near:.0f}", f"{efficiency:.0%}",
            ]
        )  # fmt: skip
        limits += [
            at_least(f"{p} workers: efficiency of far work", efficiency, limit=LEAST_EFFICIENT),
            at_most(f"{p} workers: model off by", abs(predicted / spent.far - 1), limit=MOST_WRONG),
        ]
    print(machine(1))
    print(
        f"\n{options.rows} rows x {N_COLUMNS}, {first.n_support} support vectors; a kernel value "
        f"takes {options.nanoseconds:g} ns, {slower:.0f} times as long as it would; "
        f"{options.rate / 1e6:g} MB/s\n"
    )
    header = ["workers", "far, s", "model: values + bytes", "near, s", "near, slowed", "efficiency"]
    print(table(header, lines))
    value = SECONDS_PER_VALUE + SECONDS_PER_ENTRY[False] * TABLE_COLUMNS
    print(
        f"\nCosts: {costs.floors:.2f} floors on workers, {costs.moved_times:.2f} times the support "
        f"vectors moved, {costs.returned_times:.2f} x 8 bytes a row back, "
        f"{1e3 * costs.near_per_support:.2f} ms of the coordinator a support vector.\n"
        f"Of {TABLE_COLUMNS} columns, {1e9 * value:.1f} ns a value, a link of "
        f"{options.link / 1e9:g} GB/s, P threads:\n"
    )
    print(cost_table(costs, value=value, link=options.link))
    print(f"\n{verdicts(limits)}")
    return 0 if all(all(limit.holds) for limit in limits) else 1


# -- storage ---------------------------------------------------------------------------------------

BUCKET = "rows"
CLOUD_BLOCK = 100_000
CLOUD_OFFSET = 0.4
"""Of the mean of a column from 0: a few thousand of 10⁷ rows become support vectors."""


def clouds(n_rows: int) -> tuple[Any, Any]:
    """Make a Dask array of rows around two centres, and labels."""
    import dask.array as da
    import numpy as np

    y = np.random.default_rng(0).integers(0, 2, n_rows)
    sides = da.from_array((CLOUD_OFFSET * (2 * y - 1)).astype(np.float32), chunks=CLOUD_BLOCK)
    noise = da.random.default_rng(1).standard_normal(
        (n_rows, N_COLUMNS), dtype=np.float32, chunks=(CLOUD_BLOCK, N_COLUMNS)
    )
    return noise + sides[:, None], y.astype(float)


def start_server(stack: ExitStack) -> str:
    """Start an S3 server with a bucket, and name it in the environment; returns its URL."""
    import os
    import re
    import subprocess
    import sys

    import boto3

    environment = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    stack.enter_context(mock.patch.dict(os.environ, environment))
    server = subprocess.Popen(
        [sys.executable, "-u", "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    stack.callback(server.wait)
    stack.callback(server.kill)
    assert server.stdout is not None
    address = next(filter(None, (re.search(r"http://[\d.:]+", line) for line in server.stdout)))[0]
    threading.Thread(target=server.stdout.read, daemon=True).start()
    stack.enter_context(mock.patch.dict(os.environ, {"AWS_ENDPOINT_URL": address}))
    boto3.client("s3", region_name="us-east-1").create_bucket(Bucket=BUCKET)
    return address


def peak_bytes() -> int:
    """Peak memory of this process."""
    import os

    from tools.benchmarks.children import peak_so_far

    return peak_so_far(os.getpid())


def storage(options: argparse.Namespace) -> int:
    """Write a store to object storage, and train it with two workers."""
    import subprocess
    import sys

    with ExitStack() as stack:
        start_server(stack)
        url = f"s3://{BUCKET}/clouds.zarr"
        began = time.perf_counter()
        # In a process of its own, whose memory is not that of the training.
        call = f"from {__name__} import write; write({url!r}, {options.rows}, {options.memory!r})"
        subprocess.run([sys.executable, "-c", call], check=True)
        written = time.perf_counter() - began
        import bigsvm

        model = bigsvm.SVC(C=1.0, gamma=1 / N_COLUMNS, memory=options.memory)
        client = local_cluster(stack, 2)
        began = time.perf_counter()
        model.fit(url, client=client)
        seconds = time.perf_counter() - began
        peaks = client.run(peak_bytes)
        certificate = model.certificate_
        print(machine(1))
        print(
            f"\n{options.rows} rows x {N_COLUMNS}, {4 * N_COLUMNS * options.rows / 1e9:.1f} GB: "
            f"written in {written:.0f} s, trained in {seconds:.0f} s, "
            f"{certificate['stop_reason']}, {certificate['n_support']} support vectors, "
            f"{certificate['n_sweeps']} sweeps\n"
        )
        lines = [["coordinator", options.memory, megabytes(peak_bytes())]]
        lines += [[address, WORKER_MEMORY, megabytes(peak)] for address, peak in peaks.items()]
        print(table(["process", "memory", "peak RSS MB"], lines))
    return 0 if certificate["converged"] else 1


def write(url: str, n_rows: int, memory: str) -> None:
    """Write the clouds to a store."""
    import bigsvm

    bigsvm.write_store(url, *clouds(n_rows), memory=memory)


PARTS = {
    "work": WORK,
    "storage": Suite(
        program=storage,
        memory="1GB",
        folder=False,
        more=(("--rows", {"type": int, "default": 10_000_000}),),
    ),
    "scaling": Suite(
        program=scaling,
        memory="500MB",
        folder=False,
        more=(
            ("--rows", {"type": int, "default": 500_000}),
            ("--workers", {"type": int, "nargs": "+", "default": [1, 2, 4, 8]}),
            ("--nanoseconds", {"type": float, "default": NANOSECONDS}),
            ("--rate", {"type": float, "default": RATE, "help": "bytes a second"}),
            ("--link", {"type": float, "default": LINK, "help": "bytes a second, of the table"}),
        ),
    ),
}
