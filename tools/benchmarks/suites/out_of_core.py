"""Train on a store larger than the memory budget: peak memory, sweeps, and what a kill costs.

    python -m tools.benchmarks out_of_core [--rows 5000000] [--memory 1GB] [--folder DIR]

Makes the store of `overlap.py` unless DIR has it, then checks

memory   the peak resident set, watched from outside, is at most the budget + 40 bytes a row + what
         the interpreter takes for a tiny store under the same budget, with Zarr imported: a store
         of few chunks is read without it
loop     it converges in at most 12 sweeps
resume   a run killed with SIGKILL at a random moment after its first checkpoint, and started again
         with the same command, loses at most one checkpoint interval of work and ends at the same
         dual objective

and exits with 1 if one of them does not hold, with 2 if the budget would hold the store.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bigsvm.budget import parse_bytes
from bigsvm.cli.options import parse_seconds
from bigsvm.errors import ParameterError
from bigsvm.training.generations import newest_manifest
from tools.benchmarks.bench import TINY_ROWS, Suite
from tools.benchmarks.children import Finished, bigsvm_command, machine, run_checked, run_child
from tools.benchmarks.results import Limit, megabytes, memory_limit, must, table, verdicts

if TYPE_CHECKING:
    import argparse
    import subprocess

MAX_SWEEPS = 12
C, GAMMA = 10, 0.1  # as overlap.py says; not imported from it, to keep this process small

WITH_ZARR = "import runpy, bigsvm.data.zarr_arrays; runpy.run_module('bigsvm', run_name='__main__')"
"""Program that runs bigsvm's command with what a store of many chunks has imported."""

ATTEMPTS = 3
"""A run that ended before its kill is started again, to be killed earlier."""


class Kill(NamedTuple):
    """What a kill interrupted.

    Attributes
    ----------
    after : float
        Seconds from the start of the run to the kill.
    lost : float
        Seconds of work since the state that the newest whole checkpoint holds.
    """

    after: float
    lost: float


def newest_checkpoint(folder: Path) -> float | None:
    """Find up to when the newest whole checkpoint has the work: `time.time`, None without one.

    That is when its saving began. What was done after it, the saving included, is lost.
    """
    manifest = newest_manifest(folder)
    return None if manifest is None else float(manifest["snapshot_time"])


def make_store(path: Path, *, n_rows: int, n_columns: int, threads: int) -> None:
    command = [sys.executable, "-m", "tools.benchmarks.overlap", str(path)]
    made = run_checked([*command, str(n_rows), str(n_columns)], threads=threads)
    peak = megabytes(made.peak_rss)
    print(f"made {path.name} in {made.seconds:.0f} s, peak {peak} MB", flush=True)


def train_command(store: Path, work: Path, options: argparse.Namespace) -> list[str]:
    """Give the command that trains, is killed, and is given again."""
    return bigsvm_command(
        *("train", store, work / "model.safetensors"),
        *("--C", C, "--gamma", GAMMA, "--tol", 1e-3),
        *("--memory", options.memory, "--threads", options.threads),
        *("--checkpoint", work / "checkpoint", "--checkpoint-every", options.checkpoint_every),
        "--json",
    )


def train(store: Path, work: Path, options: argparse.Namespace) -> Finished:
    """Train from the start, in a new folder."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    return run_checked(train_command(store, work, options), threads=options.threads)


def interpreter(store: Path, work: Path, options: argparse.Namespace) -> int:
    """Train from the start with the libraries of a larger store; the peak in bytes."""
    shutil.rmtree(work)
    work.mkdir()
    program, _, _, *arguments = train_command(store, work, options)
    return run_checked([program, "-c", WITH_ZARR, *arguments], threads=options.threads).peak_rss


def kill_once(
    store: Path, work: Path, options: argparse.Namespace, *, latest: float
) -> Kill | None:
    """Start a run and kill it; None where it ended before its moment came.

    Parameters
    ----------
    latest : float
        The moment of the kill is random between the first checkpoint and this many seconds after
        the start.
    """
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    kills: list[Kill] = []

    def kill(child: subprocess.Popen[bytes]) -> None:
        started = time.time()
        folder = work / "checkpoint"
        while newest_checkpoint(folder) is None:
            if _ended(child.pid):
                return
            time.sleep(0.01)
        first = time.time() - started
        moment = started + random.uniform(first, max(first, latest))
        while time.time() < moment:
            if _ended(child.pid):
                return
            time.sleep(0.01)
        os.kill(child.pid, signal.SIGKILL)
        now = time.time()
        kills.append(Kill(now - started, now - (newest_checkpoint(folder) or started)))

    ended = run_child(
        train_command(store, work, options), threads=options.threads, while_running=kill
    )
    return kills[0] if kills and ended.returncode == -signal.SIGKILL else None


def _ended(pid: int) -> bool:
    """Look whether a child has ended, and leave its exit status to be collected."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def resume_checks(
    store: Path, work: Path, whole: Finished, options: argparse.Namespace
) -> list[Limit]:
    """Kill a run, give its command again, and compare with the undisturbed run."""
    latest = 0.9 * whole.seconds
    for _ in range(ATTEMPTS):
        kill = kill_once(store, work, options, latest=latest)
        if kill is not None:
            break
        latest /= 2
    else:
        return [must("killed after a checkpoint", "ended before", "needs a longer run", False)]
    resumed = run_checked(train_command(store, work, options), threads=options.threads)
    interval = parse_seconds(options.checkpoint_every, "--checkpoint-every")
    objectives = [float(run.answer["objective"]) for run in (whole, resumed)]
    print(
        f"killed after {kill.after:.1f} s; resumed, it took {resumed.seconds:.1f} s more "
        f"({whole.seconds:.1f} s undisturbed), peak {megabytes(resumed.peak_rss)} MB",
        flush=True,
    )
    return [
        must(
            "work lost, s",
            f"{kill.lost:.1f}",
            f"{interval:.1f}",
            kill.lost <= interval,
        ),
        must(
            "objective after resume",
            f"{objectives[1]!r}",
            f"{objectives[0]!r}",
            objectives[0] == objectives[1],
        ),
        must(
            "resumed run converged",
            str(resumed.answer["converged"]),
            "True",
            resumed.answer["converged"] is True,
        ),
    ]


def run_checks(whole: Finished, *, budget: int, n_rows: int, baseline: int) -> list[Limit]:
    """Check memory and loop of the undisturbed run."""
    answer = whole.answer
    limit = memory_limit(budget, n_rows=n_rows, baseline=baseline)
    return [
        must("peak RSS, MB", megabytes(whole.peak_rss), megabytes(limit), whole.peak_rss <= limit),
        must("sweeps", str(answer["n_sweeps"]), str(MAX_SWEEPS), answer["n_sweeps"] <= MAX_SWEEPS),
        must("converged", str(answer["converged"]), "True", answer["converged"] is True),
    ]


def describe(whole: Finished, *, n_rows: int) -> str:
    """Lay out what the undisturbed run reports about itself."""
    answer = whole.answer
    floor = n_rows * answer["n_support"]
    return table(
        ["what", "value"],
        [
            ["seconds of training", f"{answer['seconds']:.1f}"],
            ["seconds of the process", f"{whole.seconds:.1f}"],
            ["dual objective", f"{answer['objective']:.4f}"],
            ["KKT gap", f"{answer['gap']:.3g}"],
            ["primal-dual gap", f"{answer['duality_gap']:.3g}"],
            ["support vectors", answer["n_support"]],
            ["of these bounded", answer["n_bounded"]],
            ["kernel evaluations in floors", f"{answer['n_kernel_evaluations'] / floor:.2f}"],
            ["kernel rows computed", answer["row_misses"]],
            ["peak RSS by its own count, MB", megabytes(answer["peak_rss_bytes"])],
        ],
    )


def bytes_of_rows(options: argparse.Namespace) -> int:
    """Bytes of X, float32."""
    return int(options.rows * options.columns * 4)


def benchmark(folder: Path, options: argparse.Namespace) -> list[Limit]:
    """Make what is missing, run everything, print what was measured."""
    budget = parse_bytes(options.memory)
    store = folder / f"overlap-{options.rows}x{options.columns}.zarr"
    tiny = folder / f"overlap-{TINY_ROWS}x{options.columns}.zarr"
    for path, n_rows in ((tiny, TINY_ROWS), (store, options.rows)):
        if not path.exists():
            make_store(path, n_rows=n_rows, n_columns=options.columns, threads=options.threads)
    train(tiny, folder / "tiny-run", options)  # compiles, which takes memory of its own
    baseline = interpreter(tiny, folder / "tiny-run", options)
    whole = train(store, folder / "run", options)
    size = megabytes(bytes_of_rows(options))
    print(
        f"{options.rows} x {options.columns} float32, {size} MB, budget "
        f"{megabytes(budget)} MB, interpreter {megabytes(baseline)} MB\n\n"
        f"{describe(whole, n_rows=options.rows)}\n",
        flush=True,
    )
    checks = run_checks(whole, budget=budget, n_rows=options.rows, baseline=baseline)
    if not options.no_resume:
        checks += resume_checks(store, folder / "killed-run", whole, options)
    return checks


def run(options: argparse.Namespace) -> int:
    """Run everything; 1 where something does not hold, 2 where nothing would be out of core."""
    try:
        budget, size = parse_bytes(options.memory), bytes_of_rows(options)
        parse_seconds(options.checkpoint_every, "--checkpoint-every")
    except ParameterError as error:
        print(error, file=sys.stderr)
        return 2
    if size <= budget:
        print(
            f"{megabytes(size)} MB of rows are not more than the budget of {megabytes(budget)} MB, "
            "so nothing would be out of core: give more --rows or less --memory",
            file=sys.stderr,
        )
        return 2
    random.seed(options.seed)
    print(machine(options.threads))
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        checks = benchmark(folder, options)
    print(verdicts(checks))
    return 0 if all(all(check.holds) for check in checks) else 1


SUITE = Suite(
    program=run,
    memory="1GB",
    more=(
        ("--rows", {"type": int, "default": 5_000_000}),
        ("--columns", {"type": int, "default": 200}),
        ("--checkpoint-every", {"default": "10s", "metavar": "SECONDS"}),
        ("--no-resume", {"action": "store_true", "default": False, "help": "leave the kill out"}),
        ("--seed", {"type": int, "default": None, "help": "of the moment of the kill"}),
    ),
)
