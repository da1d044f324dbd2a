"""Random fits, held to a slow float64 oracle: refused in one sentence, or right.

    python tools/reliability.py random [--cases 1000] [--seed 0] [--first 0] [--jobs 1]
    python tools/reliability.py random --case '{"formulation": ...}'
    python tools/reliability.py random --corpus

A case is drawn from formulation × kernel × container × weights × classes × tolerance × budget ×
threads × interruption × workers (`draw`), and judged by `attacks.verdict`. Faults are printed with
the command that runs their case alone. Case i of a seed is always the same, until the drawing
changes; the fields of a case are all that it is, so that cases that failed are kept in
``tools/attacks/random_cases.json``, which ``--corpus`` and the tests run.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import random
import re
import select
import shlex
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SECONDS = 60
"""CPU seconds of a case, at most: most take less than one."""
BUSY = 15
"""Times as many seconds may pass, on a busy machine."""
CORPUS = Path(__file__).with_name("random_cases.json")
SCRIPT = Path(__file__).parents[1] / "reliability.py"
KERNELS = (
    "linear",
    "poly",
    "rbf",
    "rbf",
    "rbf",
    "rbf by column",
    "sigmoid",
    "laplacian",
    "precomputed",
    "own",
    "cosine",
    "matern32",
    "matern52",
    "intersection",
    "tanimoto",
    "chi2",
)
NONNEGATIVE = ("intersection", "tanimoto", "chi2")
WITH_GAMMA = ("poly", "rbf", "sigmoid", "laplacian", "matern32", "matern52", "chi2")
ARRAYS = ("array", "array", "fortran", "memmap", "dask", "zarr")
"""Containers that a kernel matrix may have."""
CONTAINERS = (
    *ARRAYS,
    "list",
    "csr",
    "csc",
    "coo",
    "pandas",
    "polars",
    "stored",
    "shuffled",
    "text",
)
PREDICTED_IN = (*ARRAYS, "list", "csr", "csc", "coo", "pandas", "polars", "shuffled")
SPOILT = ("nan", "inf", "negative weight", "mask", "short y", "one class")
COLUMNS = ("formulation", "cases", "refused", "right", "wrong", "raw", "interrupted", "on workers")


def draw(seed: int, number: int) -> dict[str, Any]:
    """Draw a case."""
    rng = random.Random(f"bigsvm {seed} {number}")
    formulation = rng.choice(
        ("c-svc", "c-svc", "nu-svc", "one-class", "eps-svr", "nu-svr", "l2-svc", "l2-one-class",
         "crammer-singer")
    )  # fmt: skip
    is_classifier = formulation in ("c-svc", "nu-svc", "l2-svc", "crammer-singer")
    k = rng.choice((2, 2, 2, 3, 4, 6)) if is_classifier else 2
    n = rng.choice((2, 3, 5, 12, 30, 60, 60, 120, 120, 250, 400))
    d = rng.choice((1, 2, 3, 5, 5, 12, 30))
    data = {"n": max(n, k), "d": d, "classes": k, "seed": rng.randrange(10**6)}
    params: dict[str, Any] = {"kernel": rng.choice(KERNELS), "n_jobs": rng.choice((1, 2))}
    case = {"formulation": formulation, "data": data, "params": params}

    def maybe(share: float) -> bool:
        return rng.random() < share

    # -- data
    data["dtype"] = rng.choice(("float32", "float32", "float64", "float64", "int16"))
    data["whole"] = data["dtype"] == "int16"
    for name, share, value in (
        ("noise", 0.3, rng.choice((0.1, 3.0))), ("zeros", 0.3, rng.choice((0.5, 0.95))),
        ("decades", 0.1, rng.choice((2, 4))), ("offset", 0.12, rng.choice((10.0, 1e3, 1e4))),
        ("scale", 0.08, rng.choice((1e-3, 1e2))), ("constant", 0.1, True),
        ("repeats", 0.2, 0.5), ("singleton", 0.05, True),
        ("labels", 0.6, rng.choice(("text", "bool", "float"))),
        ("target", 0.3, rng.choice((1e-3, 1e3))), ("target_offset", 0.1, 1e3),
    ):  # fmt: skip
        data |= {name: value} if maybe(share) else {}
    if data["whole"]:
        data.pop("decades", None)
    if maybe(0.45):
        case["weights"] = rng.choice(
            ("uniform", "uniform", "zeros", "zeros", "whole", "whole", "extreme", "class")
        )
    if is_classifier and maybe(0.25):
        case["params"]["class_weight"] = "balanced"
    # -- the problem
    if formulation in ("nu-svc", "one-class", "nu-svr"):
        params["nu"] = rng.choice((0.001, 0.05, 0.2, 0.5, 0.9, 1.0))
    if formulation not in ("nu-svc", "one-class"):
        params["C"] = rng.choice((1e-3, 0.1, 1.0, 1.0, 10.0, 100.0, 1e4, 1e6))
    if formulation == "eps-svr":
        params["epsilon"] = rng.choice((0.0, 0.01, 0.1, 0.1, 1e4))
    if params["kernel"] in WITH_GAMMA and maybe(0.7):
        params["gamma"] = rng.choice(("auto", 1e-3, 0.1, 0.5, 2.0, "mean-distance"))
    if params["kernel"] == "rbf by column":
        gammas = [rng.choice((0.0, 1e-3, 0.1, 0.5, 2.0)) for _ in range(d)]
        params |= {"kernel": "rbf", "gamma": gammas}
    if params["kernel"] in NONNEGATIVE and maybe(0.95):
        data["nonnegative"] = True
    if params["kernel"] in ("poly", "sigmoid"):
        params["coef0"] = rng.choice((0.0, 1.0, -0.5))
    if params["kernel"] == "poly":
        params["degree"] = rng.choice((1, 2, 3, 5))
    if formulation == "c-svc" and maybe(0.15):
        params["loss"] = "squared_hinge"
    if formulation.startswith("l2-"):
        params["solver"] = rng.choice(("pairwise", "pairwise", "mfw", "fw", "cvm"))
        if maybe(0.2):
            params["certify"] = False
        if maybe(0.3):
            params["ball_tol"] = rng.choice((1e-3, 1e-4, 1e-8))
    params["tol"] = rng.choice((1e-1, 1e-2, 1e-3, 1e-3, 1e-3, 1e-4, 1e-6))
    if formulation == "crammer-singer":
        params["fit_intercept"] = maybe(0.4)
        if maybe(0.15):
            params["subproblem"] = "fixed_point"
    elif is_classifier and k > 2:
        params["multiclass"] = rng.choice(("ovo", "ovo", "ddag", "ovr"))
        if params["multiclass"] == "ovo":
            params["break_ties"] = maybe(0.3)
    if maybe(0.1) and n >= 60:
        params["calibration"] = (
            rng.choice(("sigmoid", "isotonic")) if is_classifier
            else "laplace" if formulation.endswith("svr") else "density"
        )  # fmt: skip
    # -- how it is run
    if maybe(0.3):
        params["working_set"] = "all"
        if formulation == "crammer-singer":
            params["order"] = rng.choice(("auto", "worst", "active", "sequential", "random"))
        elif params.get("multiclass") != "ovr":
            params["shrinking"] = rng.choice((None, True, False))
            params["rows_at_once"] = rng.choice((None, 1, 4))
        if maybe(0.15):
            params |= {"disk_cache": "10MB"} | (
                {"shrinking": False} if "shrinking" in params else {}
            )
    if formulation != "crammer-singer" and maybe(0.4):
        params["selection"] = rng.choice(("hmg", "second-order", "mvp"))
    params["memory"] = rng.choice(("64MB", "64MB", "8MB", "1MB", "least"))
    steep = params.get("C", 0.0) * data.get("scale", 1.0) ** 2
    if max(steep, params.get("C", 0.0)) >= 1e4 or formulation.startswith("l2-"):
        # It may take millions of steps.
        params["max_time"] = 5.0
    if maybe(0.08):
        params["max_iter"] = rng.choice((0, 1, 7, 40))
    case["as_many"] = maybe(0.3)
    if maybe(0.2):
        case["interrupt"] = rng.choice((1, 2, 3, 5, 9, 20)) * (-1 if maybe(0.1) else 1)
    if maybe(0.04):
        case["workers"] = rng.choice((1, 2))
    if maybe(0.04):
        case["spoil"] = rng.choice(SPOILT if is_classifier else SPOILT[:4])
        case.pop("interrupt", None)
    of_matrix = params["kernel"] == "precomputed"
    case["container"] = rng.choice((*ARRAYS, "stored", "shuffled") if of_matrix else CONTAINERS)
    if case.get("spoil") == "mask":
        case["container"] = rng.choice(("array", "dask", "stored"))
    case["predict_in"] = rng.choice(ARRAYS if of_matrix else PREDICTED_IN)
    # A run that is interrupted is our own solver's, and so is the one that it must agree with.
    if number % 2 and "interrupt" not in case:
        case["way"] = "small"
    return case


# -- a process that judges cases -----------------------------------------------------------------


class Judge:
    """A process that judges one case after the other, and is replaced where it hangs or dies."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._process: Any = None

    def __call__(self, case: dict[str, Any]) -> tuple[str, str]:
        """Return how a case ended, and why."""
        process = self._process or self._start()
        with suppress(BrokenPipeError):
            process.stdin.write(json.dumps(case) + "\n")
            process.stdin.flush()
        # The process ends itself, with its stack, where a case takes too long.
        ready, _, _ = select.select([process.stdout], [], [], 2 * BUSY * self._seconds + 300)
        line = process.stdout.readline() if ready else ""
        if line:
            how, why = json.loads(line)
            return how, why
        if ready:
            with suppress(subprocess.TimeoutExpired):
                process.wait(60)
        process.kill()
        ended = process.wait()
        how = f"it hung or died, with status {ended}"
        if ended == -signal.SIGPROF:
            how = f"it took more than {self._seconds:g} seconds of processor time"
        self._errors.seek(0)
        why = f"{how}:\n…{self._errors.read()[-3000:]}"
        self.close()
        return "raw", why

    def _start(self) -> subprocess.Popen[str]:
        self._errors = tempfile.TemporaryFile("w+")
        command = [sys.executable, str(SCRIPT), "random", "--judge", str(self._seconds)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )  # fmt: skip
        return self._process

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._errors.close()
            with suppress(BrokenPipeError):
                self._process.communicate()
            self._process = None


def _judge_lines(seconds: float) -> None:
    """Judge the cases of standard input; a line of JSON is the answer to each."""
    from attacks.verdict import judge

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    # The stack, and then the signal's own action, which is the end.
    faulthandler.register(signal.SIGPROF, chain=True)
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        faulthandler.dump_traceback_later(BUSY * seconds, exit=True)
        how, why = judge(json.loads(line))
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_PROF, 0)
        answers.write(json.dumps([how, why]) + "\n")
        answers.flush()


# -- the table -----------------------------------------------------------------------------------


def run(cases: Sequence[dict[str, Any]], jobs: int, seconds: float) -> Iterator[tuple[Any, ...]]:
    """Judge cases in some processes; yields each with its answer, in their order."""
    from concurrent.futures import ThreadPoolExecutor
    from queue import SimpleQueue

    idle: SimpleQueue[Judge] = SimpleQueue()
    judges = [Judge(seconds) for _ in range(jobs)]
    for each in judges:
        idle.put(each)

    def one(case: dict[str, Any]) -> tuple[dict[str, Any], str, str]:
        judge = idle.get()
        try:
            return case, *judge(case)
        finally:
            idle.put(judge)

    try:
        with ThreadPoolExecutor(jobs) as pool:
            yield from pool.map(one, cases)
    finally:
        for each in judges:
            each.close()


def table(counts: dict[str, Counter[str]]) -> str:
    """Return the table: a row for each formulation, and the sum."""
    total: Counter[str] = Counter()
    for count in counts.values():
        total.update(count)
    rows = [COLUMNS, *(
        (name, *(str(count[column]) for column in COLUMNS[1:]))
        for name, count in (*sorted(counts.items()), ("all", total))
    )]  # fmt: skip
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    marks = ["-" * (width + 2) for width in widths]
    marks[1:] = [f"{mark[:-1]}:" for mark in marks[1:]]
    return "\n".join([lines[0], f"|{'|'.join(marks)}|", *lines[1:]])


def report(cases: Sequence[dict[str, Any]], jobs: int, seconds: float) -> int:
    """Judge cases, print faults as they come and the table; returns how many faults there are."""
    counts: dict[str, Counter[str]] = {}
    refusals: Counter[str] = Counter()
    faults = 0
    for number, (case, how, why) in enumerate(run(cases, jobs, seconds)):
        count = counts.setdefault(case["formulation"], Counter())
        count.update([how, "cases"])
        count["interrupted"] += bool(case.get("interrupt")) and how != "refused"
        count["on workers"] += bool(case.get("workers")) and how != "refused"
        if how == "refused":
            refusals[re.sub(r"[-+]?\d[\d.,e+]*|'[^']*'", "…", why)[:110]] += not case.get("spoil")
        if how in ("wrong", "raw"):
            faults += 1
            words = shlex.quote(json.dumps(case))
            print(f"case {number}: {how}: {why}\n    python tools/reliability.py random --case "
                  f"{words}", flush=True)  # fmt: skip
    print(f"\n{table(counts)}")
    print("\nrefused, though nothing was spoilt on purpose:")
    for sentence, times in refusals.most_common():
        if times:
            print(f"{times:5d} {sentence}")
    print(f"\n{len(cases)} cases, {faults} faults")
    return faults


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="CPU seconds, most for a case"
    )
    parser.add_argument("--case", help="one case as JSON, judged in this process")
    parser.add_argument("--corpus", action="store_true", help=f"the cases of {CORPUS.name}")
    parser.add_argument("--judge", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--kill-at", type=int, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Run the command line."""
    options = parse(arguments)
    if options.judge is not None:
        _judge_lines(options.judge)
        return 0
    if options.case is not None:
        from attacks.verdict import judge

        how, why = judge(json.loads(options.case), kill_at=options.kill_at)
        print(f"{how}: {why}")
        return int(how in ("wrong", "raw"))
    if options.corpus:
        cases = [each["case"] for each in json.loads(CORPUS.read_text())]
    else:
        numbers = range(options.first, options.first + options.cases)
        cases = [draw(options.seed, number) for number in numbers]
    print(f"$ python tools/reliability.py {shlex.join(['random', *arguments])}\n", flush=True)
    return int(report(cases, options.jobs, options.seconds) > 0)
