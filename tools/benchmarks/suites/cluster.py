"""Training by the workers of a Dask cluster: what they do, what it costs, and how it scales.

    python -m tools.benchmarks cluster --part work [--rows 500000] [--memory 500MB] [--repeats 3]
    python -m tools.benchmarks cluster --part scaling [--workers 1 2 4 8]
    python -m tools.benchmarks cluster --part model [--sizes 220000 440000 880000]
    python -m tools.benchmarks cluster --part bytes [--rows 300000]
    python -m tools.benchmarks cluster --part storage [--rows 10000000] [--memory 1GB]

Rows are those of ``few`` of `synthetic.py` with 54 columns, C 0.4 and gamma 0.5: some 7 % become
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
         the rest, which counts as many times as kernel values are slowed down. *Whole run* is
         T(1) ÷ (P × T(P)) of both together. Limits: far work is 80 % efficient, which is the time
         that kernel values take ÷ (P × the wait for P workers), and a model of the wait is right
         within 15 %. It has the kernel values, bytes and passes of the run, and the seconds of a
         pass without kernel values, measured with P workers.
model    One worker trains three sizes, with a checkpoint every five seconds. The seconds of each
         part of a run (`tools.benchmarks.cluster_parts.PARTS`) are modelled by the run of the
         second size, in proportion to the work, and held against the third one: first with its own
         counts, then with those of the second. The last table tells what runs of up to 10⁹ rows
         take with more workers, and how far that is beyond what was measured. A line is left out if
         more than 15 % of it is in parts that the model misses by more than 15 %. Scheduling grows
         with workers as `tools.fake_workers` measures it.
bytes    Two workers of 28 MB each train 65 MB of rows, of which 86 % would fit on them: once with a
         coordinator of 100 MB, and once with one of 1 GB, where it has room for all rows. Who reads
         and sends what is that of the certificate, in times the bytes of the rows. *Few moved* is
         the share of all bytes sent and returned that are sums of passes in which at most 1 % of
         the rows had moved: sums that were sent as differences could save no more. Limits: the
         workers read 3 times the rows, the coordinator 5 % of them, without what it reads again to
         check workers; the two have the bits of one process with as much memory.
storage  Two workers train a store that an S3 server on this machine has (`tools.object_server`):
         two clouds of 54 columns, written block by block. CPU seconds and peak memory of each
         process are printed, those of the server apart. Limits: certified, at most 10⁴ support
         vectors, 20 minutes.
"""

from __future__ import annotations

import functools
import hashlib
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

from tools.benchmarks import cluster_model
from tools.benchmarks.bench import Suite
from tools.benchmarks.cluster_storage import PENALTY, storage
from tools.benchmarks.data import made
from tools.benchmarks.results import (
    Case,
    Limit,
    Results,
    Row,
    at_least,
    at_most,
    case_of,
    megabytes,
    must,
    spread,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

N_COLUMNS, C, GAMMA = 54, 0.4, 0.5
WORKER_MEMORY = "1500MB"
HERE, ONE, TWO = "2 threads", "1 worker", "2 workers"
WORKERS = {ONE: 1, TWO: 2}
MOST_TIMES, LEAST_FAR, MOST_READ, MOST_BACK, MOST_SENT = 1.5, 0.85, 0.05, 8.1, 1.05
LEAST_EFFICIENT, MOST_WRONG = 0.8, 0.15
LITTLE, MUCH, OF_WORKERS = "100MB here", "1GB here", "28MB"
MOST_READ_BY_WORKERS, SHARE_OF_FEW = 3.0, 0.01
NANOSECONDS, RATE = 20.0, 62.5e6
"""Nanoseconds of a kernel value and bytes a second, both slowed down."""
EMPTY_PASSES = 15
"""The first of them read the rows; their median does not."""


def problem(options: argparse.Namespace) -> Case:
    """Describe the rows that workers are measured with."""
    return case_of(made("few", options.rows)._replace(n_columns=N_COLUMNS, C=C, gamma=GAMMA))


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


def train(job: dict[str, Any]) -> dict[str, Any]:
    """Train once, on threads or on workers."""
    import bigsvm
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
        warm_up(model, client)
        watched.far = 0.0
        began = time.perf_counter()
        model.fit(store, client=client)
        seconds = time.perf_counter() - began
    certificate = model.certificate_
    n_bytes = store.rows.n_rows * store.rows.bytes_per_row
    answer = {
        "seconds": seconds,
        "n_support": len(model.support_),
        "digest": digest_of(model),
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


def read_and_sent(job: dict[str, Any]) -> dict[str, Any]:
    """Train in this process, then on two workers of little memory; what its certificate counts."""
    import bigsvm
    from tools.benchmarks.contestants import TOL

    store = bigsvm.open_store(Path(job["folder"]) / f"{job['name']}.dense.zarr")
    memory = job["who"].removesuffix(" here")
    model = bigsvm.SVC(**job["parameters"], tol=TOL, memory=memory, n_jobs=1)
    digests, few = [], list[int]()
    with ExitStack() as stack:
        client = local_cluster(stack, 2)
        warm_up(model, client)
        stack.enter_context(count_sums_of_few(few))
        for given in ({}, {"client": client, "worker_memory": OF_WORKERS}):
            began = time.perf_counter()
            model.fit(store, **given)
            seconds = time.perf_counter() - began
            digests.append(digest_of(model))
    certificate = model.certificate_
    n_bytes = store.rows.n_rows * store.rows.bytes_per_row
    answer = {
        name: certificate[name] / n_bytes
        for name in ("bytes_read", "bytes_checked", "bytes_sent", "bytes_fetched")
    }
    return answer | {
        "seconds": seconds,
        "n_support": len(model.support_),
        "n_sweeps": certificate["n_sweeps"],
        "tasks": certificate["tasks"],
        "by_workers": sum(certificate["bytes_read_by_workers"]) / n_bytes,
        "sums": (certificate["bytes_returned"] - certificate["bytes_fetched"]) / n_bytes,
        "few": sum(few) / (certificate["bytes_sent"] + certificate["bytes_returned"]),
        "is_same": len(set(digests)) == 1,
    }


def count_sums_of_few(counts: list[int]) -> Any:  # noqa: ANN401 (a patch)
    """Note the bytes of the sums of passes on workers in which few rows had moved."""
    from bigsvm.executors.cluster import ClusterExecutor

    run = ClusterExecutor.run

    def counted(executor: Any, weighted: Any, **given: Any) -> Iterator[Any]:  # noqa: ANN401
        for partial in run(executor, weighted, **given):
            if weighted.n <= SHARE_OF_FEW * executor.source.n_rows:
                counts.append(partial.added.nbytes)
            yield partial

    return mock.patch.object(ClusterExecutor, "run", counted)


def digest_of(model: Any) -> str:  # noqa: ANN401 (an estimator)
    """Hash what a fit has found, to the last bit."""
    found = hashlib.sha256()
    for array in (model.support_, model.model_.coefficients, model.intercept_):
        found.update(array.tobytes())
    return f"{found.hexdigest()[:8]} {model.certificate_['objective']!r}"


def bytes_limits(results: Results) -> list[Limit]:
    """Hold what is read against what is promised."""
    limits = []
    for row in (*results.rows(LITTLE), *results.rows(MUCH)):
        who, is_same = row.who, row.last("is_same")
        limits += [
            at_most(f"{who}: by workers", row.last("by_workers"), limit=MOST_READ_BY_WORKERS),
            at_most(f"{who}: read here, of rows", row.last("bytes_read"), limit=MOST_READ),
            must(f"{who}: bits of one process", is_same, "the same", is_same),
        ]
    return limits


BYTES = Suite(
    cases=lambda options: [problem(options)],
    contestants=(LITTLE, MUCH),
    columns=(
        *("who", "seconds", "SVs"),
        ("sweeps", "n_sweeps"),
        ("tasks", "tasks"),
        ("read by workers", lambda row: f"{row.last('by_workers'):.2f}"),
        ("read here", lambda row: f"{row.last('bytes_read'):.3f}"),
        ("again here", lambda row: f"{row.last('bytes_checked'):.2f}"),
        ("sent", lambda row: f"{row.last('bytes_sent'):.2f}"),
        ("rows back", lambda row: f"{row.last('bytes_fetched'):.2f}"),
        ("sums back", lambda row: f"{row.last('sums'):.2f}"),
        ("few moved", lambda row: f"{row.last('few'):.1%}"),
    ),
    limits=bytes_limits,
    do="tools.benchmarks.suites.cluster:read_and_sent",
    stores=True,
    memory="1GB",
    repeats=1,
    threads=1,
    more=(("--rows", {"type": int, "default": 300_000}),),
)


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
    cases=lambda options: [problem(options)],
    contestants=(HERE, ONE, TWO),
    columns=(
        *("who", "seconds"),
        ("waiting for workers", spread("far")),
        "SVs",
        ("kernel values", "n_kernel_evaluations"),
        ("on workers", lambda row: f"{row.last('far_share', 0.0):.1%}"),
        ("rows read here", lambda row: f"{row.last('read_share'):.2f}"),
        ("moved MB", lambda row: megabytes(row.last("moved", 0))),
        ("back MB", lambda row: megabytes(row.last("returned", 0))),
        ("tasks", "tasks"),
        ("model", "digest"),
    ),
    limits=work_limits,
    do="tools.benchmarks.suites.cluster:train",
    stores=True,
    memory="500MB",
    threads=2,
    more=(("--rows", {"type": int, "default": 500_000}),),
)


def slow_down(nanoseconds: float, rate: float) -> None:
    """Make the tasks of this process take their time: those of a worker, by its own call."""
    from bigsvm.data.rows import bytes_of
    from bigsvm.executors import tasks

    pieces_seen: set[str] = set()

    def slowed(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def sleep_on(*given: Any) -> Any:  # noqa: ANN401 (as what it stands for)
            began = time.perf_counter()
            done = function(*given)
            n_bytes = bytes_of(done.values)
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
        setattr(tasks, name, slowed(function))


def slowed_run(job: dict[str, Any]) -> dict[str, Any]:
    """Train on slow workers; what was waited for, computed and sent."""
    import bigsvm
    from tools.benchmarks.contestants import TOL

    store = bigsvm.open_store(Path(job["folder"]) / f"{job['name']}.dense.zarr")
    given, watched = dict(job["parameters"]), Watched()
    n_workers, slowness = given.pop("workers"), given.pop("slowness")
    model = bigsvm.SVC(**given, tol=TOL, memory=job["memory"], n_jobs=1)
    with ExitStack() as stack:
        client = local_cluster(stack, n_workers)
        warm_up(model, client)
        client.run(slow_down, *slowness)
        for patch in watched.patches():
            stack.enter_context(patch)
        began = time.perf_counter()
        model.fit(store, client=client)
        seconds = time.perf_counter() - began
        far, passes = watched.far, watched.passes
        empty_pass = seconds_of_empty_pass(store, client)
    traffic = watched.workforce.traffic
    return {
        "seconds": seconds, "far": far, "near": seconds - far, "passes": passes,
        "evaluations": traffic.evaluations, "moved": traffic.bytes_moved,
        "returned": traffic.bytes_returned, "empty_pass": empty_pass,
        "n_support": len(model.support_),
    }  # fmt: skip


def seconds_of_empty_pass(store: Any, client: Any) -> float:  # noqa: ANN401
    """Measure a product that needs a message to each worker, and next to no kernel values."""
    import numpy as np

    from bigsvm.executors.cluster import ClusterExecutor
    from bigsvm.executors.executor import WeightedRows
    from bigsvm.executors.workforce import Workforce
    from bigsvm.gram import KernelTiles
    from bigsvm.gram.partners import rows_at
    from bigsvm.kernels import RBF

    workforce, seconds = Workforce(client), []
    try:
        workforce.wait_for_workers()
        with KernelTiles(RBF(gamma=GAMMA), threads=1) as tiles:
            executor = ClusterExecutor(workforce, store.rows, tiles, block_bytes=1 << 26)
            rows = np.arange(0, store.rows.n_rows, executor.unit_rows)
            partner = rows_at(store.rows.read(0, 1))
            for _ in range(EMPTY_PASSES):
                began = time.perf_counter()
                weighted = WeightedRows.held(partner, np.ones(1))
                executor.at_rows(rows, weighted, exact=False)
                seconds.append(time.perf_counter() - began)
    finally:
        workforce.close()
    return float(np.median(seconds))


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
    def of(cls, row: Row) -> Costs:
        """Find the constants of a run."""
        n_rows, n_support = row.case.facts["n_rows"], row.last("n_support")
        return cls(
            row.last("evaluations") / (n_rows * n_support),
            row.last("moved") / (n_support * (4 * N_COLUMNS + 8)),
            row.last("returned") / (8 * n_rows),
            row.last("near") / n_support,
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


def value_seconds(n_columns: int) -> float:
    """Seconds of a kernel value of dense rows, at the speed of this machine."""
    from bigsvm.gram.tiles import SECONDS_PER_ENTRY, SECONDS_PER_VALUE

    return SECONDS_PER_VALUE + SECONDS_PER_ENTRY[False] * n_columns


def slower(row: Row) -> float:
    """By how many times kernel values are slowed down."""
    return float(row.whole.options.nanoseconds * 1e-9 / value_seconds(N_COLUMNS))


def modelled(row: Row) -> tuple[float, float, float]:
    """Seconds of kernel values, bytes and passes by the model; each run has its own counts."""
    # The more workers there are, the more products are worth sending.
    options, given = row.whole.options, row.case.parameters
    values, n_bytes = Costs.of(row).far(
        row.case.facts["n_rows"], row.last("n_support"), N_COLUMNS, given["workers"],
        value=options.nanoseconds * 1e-9, rate=options.rate,
    )  # fmt: skip
    return values, n_bytes, row.last("passes") * row.last("empty_pass")


def efficiency(row: Row) -> float:
    """Seconds of kernel values ÷ those that all workers were waited for."""
    each = row.whole.options.nanoseconds * 1e-9
    return float(
        each * row.last("evaluations") / (row.case.parameters["workers"] * row.last("far"))
    )


def whole_run(row: Row) -> float:
    """Seconds of a run where near work is slowed down as kernel values are."""
    return float(row.last("far") + slower(row) * row.last("near"))


def efficiency_of_whole(row: Row) -> str:
    """T(1) ÷ (P × T(P)) of whole runs; nothing without a run of one worker."""
    alone = [other for other in row.whole.rows() if other.case.parameters["workers"] == 1]
    if not alone:
        return "-"
    return f"{whole_run(alone[0]) / (row.case.parameters['workers'] * whole_run(row)):.0%}"


def problem_shown(results: Results) -> str:
    row, options = results.rows()[-1], results.options
    return (
        f"{options.rows} rows x {N_COLUMNS}, {row.last('n_support')} support vectors; a kernel "
        f"value takes {options.nanoseconds:g} ns, {slower(row):.0f} times as long as it would; "
        f"{options.rate / 1e6:g} MB/s"
    )


def costs_shown(results: Results) -> str:
    """Say what the run with the most workers cost."""
    row = max(results.rows(), key=lambda row: row.case.parameters["workers"])
    most = Costs.of(row)
    return (
        f"Costs with {row.case.name} workers: {most.floors:.2f} floors on workers, "
        f"{most.moved_times:.2f} times the support vectors moved, {most.returned_times:.2f} x 8 "
        f"bytes a row back, {1e3 * most.near_per_support:.2f} ms of the coordinator a support "
        "vector."
    )


def scaling_limits(results: Results) -> list[Limit]:
    """Hold the efficiency of far work, and the model, against the limits."""
    found = []
    for row in results.rows():
        name, wrong = f"{row.case.name} workers", sum(modelled(row)) / row.last("far") - 1
        found += [
            at_least(f"{name}: efficiency of far work", efficiency(row), limit=LEAST_EFFICIENT),
            at_most(f"{name}: model off by", abs(wrong), limit=MOST_WRONG),
        ]
    return found


def slow_cases(options: argparse.Namespace) -> list[Case]:
    """List numbers of workers."""
    case, slowness = problem(options), (options.nanoseconds, options.rate)
    return [
        case._replace(
            name=str(p), parameters={**case.parameters, "workers": p, "slowness": slowness}
        )
        for p in sorted(options.workers)
    ]


SCALING = Suite(
    cases=slow_cases,
    contestants=("workers",),
    columns=(
        ("workers", lambda row: row.case.name),
        ("far, s", spread("far", digits=1)),
        ("floors", lambda row: f"{Costs.of(row).floors:.2f}"),
        ("passes", "passes"),
        (
            "model: values + bytes + passes",
            lambda row: " + ".join(f"{seconds:.1f}" for seconds in modelled(row)),
        ),
        ("empty pass, ms", spread("empty_pass", digits=0, scale=1e3)),
        ("near, s", spread("near", digits=1)),
        ("near, slowed", lambda row: f"{slower(row) * row.last('near'):.0f}"),
        ("efficiency", lambda row: f"{efficiency(row):.0%}"),
        ("whole run", efficiency_of_whole),
    ),
    before=problem_shown,
    after=costs_shown,
    limits=scaling_limits,
    do="tools.benchmarks.suites.cluster:slowed_run",
    stores=True,
    repeats=1,
    threads=1,
    memory="500MB",
    more=(
        ("--rows", {"type": int, "default": 500_000}),
        ("--workers", {"type": int, "nargs": "+", "default": [1, 2, 4, 8]}),
        ("--nanoseconds", {"type": float, "default": NANOSECONDS}),
        ("--rate", {"type": float, "default": RATE, "help": "bytes a second"}),
    ),
)
STORAGE = Suite(
    program=storage,
    memory="1GB",
    more=(
        ("--rows", {"type": int, "default": 10_000_000}),
        ("--C", {"type": float, "default": PENALTY, "help": "the more, the fewer support vectors"}),
    ),
)
PARTS = {
    "work": WORK,
    "scaling": SCALING,
    "model": cluster_model.MODEL,
    "bytes": BYTES,
    "storage": STORAGE,
}
