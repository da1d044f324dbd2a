"""Training time on real data, beside scikit-learn, scikit-learn-intelex and the floor.

    python tools/benchmarks/peers.py [--data a9a w8a mnist] [--repeats 3] [--sklearn-repeats 1]

Each measurement is a process of its own, and the competitors take turns (A B C A B C …), because
the machine's speed drifts. The first round tries every competitor with dense and with CSR rows; the
faster layout is kept for the rounds after it; scikit-learn's SVC, the slowest by far, gets the
last layout alone: CSR by default (a9a: 28 s, against 41 s dense). It is given up after `--give-up`
times the seconds of the slower of ``store`` and ``memory``, start-up included, and its figures are
then lower bounds, ">": what the fit itself had taken until then. Ratios are taken within a round. A
competitor that is not installed is left out; ``pip install 'bigsvm[bench]'`` has them all.

store      ``bigsvm train`` of a Zarr store, out of core; its own count of seconds
memory     ``bigsvm.SVC().fit`` of float32 arrays
sklearn    scikit-learn's SVC, cache 200 MB
sklearnex  scikit-learn-intelex's SVC, float32, cache 200 MB: its best setting
floor      one sweep of all rows with the final support vectors, in the process of ``memory``
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from common import (
    DATA_SETS,
    FIT_BEGAN,
    Finished,
    bigsvm_command,
    data_folder,
    machine,
    median_range,
    megabytes,
    round_ratios,
    run_checked,
    table,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from common import DataSet

PEERS = ("store", "memory", "sklearnex", "sklearn")
LAYOUTS = ("dense", "csr")
ESTIMATOR = {"memory": "bigsvm", "sklearnex": "sklearnex", "sklearn": "sklearn"}


class Measured(NamedTuple):
    """One fit: who, on which layout, in which round, what came out, and the GEMM before it."""

    peer: str
    layout: str
    round: int
    child: Finished
    calibration: float

    @property
    def seconds(self) -> float:
        """Of training alone, by the child's own clock; if it was given up, until then."""
        if not self.child.gave_up:
            return float(self.child.answer["seconds"])
        for line in self.child.stdout.splitlines():
            if line.startswith(FIT_BEGAN):
                return self.child.ended - float(line.removeprefix(FIT_BEGAN))
        return 0.0


class Setting(NamedTuple):
    """What every measurement of a run has in common."""

    folder: Path
    threads: int
    memory: str
    give_up: float


def fit_once(*arguments: object, threads: int, give_up_after: float | None = None) -> Finished:
    script = Path(__file__).with_name("fit_once.py")
    command = [sys.executable, str(script), *map(str, arguments)]
    return run_checked(command, threads=threads, give_up_after=give_up_after)


def train_store(data: DataSet, layout: str, setting: Setting) -> Finished:
    """Train out of core through the command line."""
    return run_checked(
        bigsvm_command(
            "train",
            setting.folder / f"{data.name}.{layout}.zarr",
            setting.folder / "model.safetensors",
            *("--C", data.C, "--gamma", data.gamma, "--tol", 1e-3),
            *("--memory", setting.memory, "--threads", setting.threads, "--json"),
        ),
        threads=setting.threads,
    )


def measure(
    peer: str,
    layout: str,
    data: DataSet,
    turn: int,
    setting: Setting,
    give_up_after: float | None = None,
) -> Measured:
    """Look at the machine's speed, then train once."""
    calibration = fit_once("calibrate", threads=setting.threads).answer["seconds"]
    if peer == "store":
        child = train_store(data, layout, setting)
    else:
        arguments = ("fit", ESTIMATOR[peer], layout, data.name, setting.folder)
        child = fit_once(*arguments, threads=setting.threads, give_up_after=give_up_after)
    measured = Measured(peer, layout, turn, child, calibration)
    print(
        f"  round {turn + 1} {peer} {layout}: {'> ' * child.gave_up}{measured.seconds:.2f} s, "
        f"peak {megabytes(child.peak_rss)} MB",
        file=sys.stderr,
        flush=True,
    )
    return measured


def interleave(
    data: DataSet,
    peers: Sequence[str],
    *,
    repeats: dict[str, int],
    layouts: Sequence[str],
    setting: Setting,
) -> list[Measured]:
    """Measure in rounds; every layout in the first, each competitor's faster one afterwards."""
    if "store" in peers:
        for layout in layouts:
            train_store(data, layout, setting)  # fills the cache of compiled code on disk
    first: list[Measured] = []
    for layout in layouts:
        for p in peers:
            if p == "sklearn" and layout != layouts[-1]:
                continue
            limit = patience(p, first, setting)
            first.append(measure(p, layout, data, 0, setting, limit))
    kept = {
        p: min((m for m in first if m.peer == p), key=lambda m: m.seconds).layout for p in peers
    }
    measured = [m for m in first if kept[m.peer] == m.layout]
    for turn in range(1, max(repeats.values())):
        for p in peers:
            if turn < repeats[p]:
                limit = patience(p, measured, setting)
                measured.append(measure(p, kept[p], data, turn, setting, limit))
    return measured


def patience(peer: str, measured: Sequence[Measured], setting: Setting) -> float | None:
    """Seconds that scikit-learn is given, start-up included; None is for ever."""
    ours = [[m.seconds for m in measured if m.peer == own] for own in ("store", "memory")]
    slower = max((min(seconds) for seconds in ours if seconds), default=None)
    return None if slower is None or peer != "sklearn" else setting.give_up * slower


def floors(measured: Measured, n_rows: int) -> str:
    """Kernel evaluations ÷ (n · n_SV), which no noise touches; '-' where nobody counted."""
    answer = measured.child.answer
    if "n_kernel_evaluations" not in answer:
        return "-"
    return f"{answer['n_kernel_evaluations'] / (n_rows * answer['n_support']):.2f}"


def report(name: str, prepared: dict[str, Any], measured: Sequence[Measured]) -> str:
    """Lay out the table of one data set."""
    by_peer = {p: [m for m in measured if m.peer == p] for p in PEERS}
    turns = sorted({m.round for m in measured})
    rounds = [{m.peer: m.seconds for m in measured if m.round == turn} for turn in turns]
    rows = []
    for peer, runs in by_peer.items():
        if not runs:
            continue
        answer = runs[-1].child.answer
        bound = "> " * any(m.child.gave_up for m in runs)
        rows.append(
            [
                peer,
                runs[0].layout,
                bound + median_range([m.seconds for m in runs]),
                bound + median_range(round_ratios(rounds, peer, "store")),
                bound + median_range(round_ratios(rounds, peer, "memory")),
                megabytes(max(m.child.peak_rss for m in runs)),
                f"{answer['objective']:.3f}" if answer else "-",
                answer.get("n_support", "-"),
                floors(runs[-1], prepared["n_rows"]),
            ]
        )
    floor_runs = [m for m in by_peer["memory"] if "floor_seconds" in m.child.answer]
    floor = [m.child.answer["floor_seconds"] for m in floor_runs]
    if floor:
        rows.append(["floor", floor_runs[0].layout, median_range(floor), *["-"] * 5, "1.00"])
    lines = [
        f"{name}: {prepared['n_rows']} rows x {prepared['n_columns']}, "
        f"density {prepared['density']:.3f}",
        "",
        table(
            [
                "who",
                "rows",
                "seconds",
                "ratio to store",
                "ratio to memory",
                "peak RSS MB",
                "dual objective",
                "SVs",
                "evaluations in floors",
            ],
            rows,
        ),
        "",
    ]
    if floor:
        share = [m.seconds / m.child.answer["floor_seconds"] for m in floor_runs]
        lines.append(f"memory takes {median_range(share)} floors in seconds")
    gemm = [m.calibration * 1e3 for m in measured]
    lines.append(
        f"noise: a fixed GEMM before each run took {median_range(gemm, digits=0)} ms, "
        f"spread {max(gemm) / statistics.median(gemm) - 1:.0%} over the median"
    )
    return "\n".join(lines)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", choices=tuple(DATA_SETS), default=list(DATA_SETS))
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=list(LAYOUTS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sklearn-repeats", type=int, default=1, help="it takes minutes")
    parser.add_argument("--give-up", type=float, default=20.0, help="see above")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory", default="1GB", help="budget of the store's run")
    options = parser.parse_args(arguments)
    if min(options.repeats, options.sklearn_repeats, options.threads) < 1:
        parser.error("--repeats, --sklearn-repeats and --threads must be at least 1")
    return options


def installed(peers: Sequence[str]) -> list[str]:
    """Leave out, and say so, what cannot be imported here."""
    found = []
    for peer in peers:
        if peer == "sklearnex" and importlib.util.find_spec("sklearnex") is None:
            print("skipped sklearnex: scikit-learn-intelex is not installed", file=sys.stderr)
        else:
            found.append(peer)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    if data_folder() is None:
        print("skipped: no data sets; name their folder in BIGSVM_DATA", file=sys.stderr)
        return 0
    peers = installed(options.peers)
    repeats = dict.fromkeys(peers, options.repeats)
    if "sklearn" in repeats:
        repeats["sklearn"] = min(options.sklearn_repeats, options.repeats)
    print(machine(options.threads))
    with tempfile.TemporaryDirectory() as folder:
        setting = Setting(Path(folder), options.threads, options.memory, options.give_up)
        for name in options.data:
            data = DATA_SETS[name]
            prepared = fit_once("prepare", name, folder, threads=options.threads).answer
            measured = interleave(
                data, peers, repeats=repeats, layouts=options.layouts, setting=setting
            )
            print(f"\n{report(name, prepared, measured)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
