"""Training by the workers of a Dask cluster: what they do, what it costs, and how it scales.

    python -m tools.benchmarks cluster --part work [--rows 500000] [--memory 500MB] [--repeats 3]
    python -m tools.benchmarks cluster --part scaling [--workers 1 2 4 8]
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
         the rest, which counts as many times as kernel values are slowed down. Limits: far work is
         80 % efficient, which is the time that kernel values take ÷ (P × the wait for P workers),
         and a cost model is right within 15 %. Its constants are those of 1 worker, and the seconds
         of a pass without kernel values, measured with P workers. The model is printed for up to
         10⁹ rows, for a link of --link bytes a second.
storage  Two workers train a store that an S3 server on this machine has (moto, which is made for
         tests and slow): two clouds of 54 columns, written block by block. The peak memory of each
         process is printed.
"""

from __future__ import annotations

import hashlib
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tools.benchmarks.bench import Suite
from tools.benchmarks.cluster_scaling import LINK, NANOSECONDS, RATE, scaling
from tools.benchmarks.cluster_storage import storage
from tools.benchmarks.clusters import GAMMA, N_COLUMNS, C, Watched, local_cluster, warm_up
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
    who,
)

HERE, ONE, TWO = "2 threads", "1 worker", "2 workers"
WORKERS = {ONE: 1, TWO: 2}
MOST_TIMES, LEAST_FAR, MOST_READ, MOST_BACK, MOST_SENT = 1.5, 0.85, 0.05, 8.1, 1.05


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
    found = hashlib.sha256()
    for array in (model.support_, model.model_.coefficients, model.intercept_):
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
