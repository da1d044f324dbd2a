"""Training time on real data, beside scikit-learn, scikit-learn-intelex and the floor.

    python tools/benchmarks/peers.py [--data a9a w8a mnist few-100000] [--repeats 3]

Each measurement is a process of its own, and the competitors take turns (A B C A B C …), because
the machine's speed drifts. The first round tries every competitor with dense and with CSR rows; the
faster layout is kept for the rounds after it; scikit-learn's SVC, the slowest by far, gets the
last layout alone: CSR by default (a9a: 28 s, against 41 s dense). It is given up after `--give-up`
times the seconds of the slower of ``store`` and ``memory``, start-up included, and its figures are
then lower bounds, ">": what the fit itself had taken until then. Ratios are taken within a round. A
competitor that is not installed is left out; ``pip install 'bigsvm[bench]'`` has them all.

``few-100000`` is made by `synthetic.py`, and always there. What is printed last holds all data sets
against the limits of `peers_report.py`. Peak memory is that of a process until its fit ends; of
``store``, until the process ends.

store      ``bigsvm train`` of a Zarr store, out of core; its own count of seconds
memory     ``bigsvm.SVC().fit`` of float32 arrays
sklearn    scikit-learn's SVC, cache 200 MB
sklearnex  scikit-learn-intelex's SVC, float32, cache 200 MB: its best setting
floor      what ``decision_function`` of the training set takes: one sweep with the final support
           vectors over the same rows, of ``memory`` in its process, of ``store`` over the store
           right after it; the seconds of others are counted in floors of ``memory``
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from common import REPOSITORY, Finished, bigsvm_command, machine, megabytes, run_checked
from data_sets import DATA_SETS, data_set, is_skipped
from peers_report import OURS, PEERS, Measured, Outcome, report, summary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from data_sets import DataSet

LAYOUTS = ("dense", "csr")
ESTIMATOR = {"memory": "bigsvm", "sklearnex": "sklearnex", "sklearn": "sklearn"}

LEAST_PATIENCE = 10.0
"""Seconds: to start up takes one or two, and tiny problems are for trying this script."""


class Setting(NamedTuple):
    """What every measurement of a run has in common."""

    folder: Path
    threads: int
    memory: str
    give_up: float


def fit_once(
    *arguments: object,
    threads: int,
    give_up_after: float | None = None,
    checkout: Path = REPOSITORY,
) -> Finished:
    script = Path(__file__).with_name("fit_once.py")
    command = [sys.executable, str(script), *map(str, arguments)]
    return run_checked(command, threads=threads, give_up_after=give_up_after, checkout=checkout)


def train_store(
    data: DataSet, layout: str, setting: Setting, give_up_after: float | None = None
) -> Finished:
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
        give_up_after=give_up_after,
    )


def store_floor(data: DataSet, layout: str, setting: Setting) -> float:
    """Time one sweep with the model that `train_store` has just written."""
    child = fit_once("floor", layout, data.name, setting.folder, threads=setting.threads)
    return float(child.answer["seconds"])


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
        child = train_store(data, layout, setting, give_up_after)
        floor = None if child.gave_up else store_floor(data, layout, setting)
    else:
        arguments = ("fit", ESTIMATOR[peer], layout, data.name, setting.folder)
        child = fit_once(*arguments, threads=setting.threads, give_up_after=give_up_after)
        floor = child.answer.get("floor_seconds")
    measured = Measured(peer, layout, turn, child, calibration, floor)
    print(
        f"  round {turn + 1} {peer} {layout}: {'> ' * child.gave_up}{measured.seconds:.2f} s, "
        f"peak {megabytes(measured.peak_rss)} MB",
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
    ours = [[m.seconds for m in measured if m.peer == own] for own in OURS]
    slower = max((min(seconds) for seconds in ours if seconds), default=None)
    if slower is None or peer != "sklearn":
        return None
    return max(setting.give_up * slower, LEAST_PATIENCE)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data",
        nargs="+",
        metavar="NAME",
        type=data_set,
        default=list(DATA_SETS.values()),
        help=f"of {', '.join(DATA_SETS)}, or made: few-N, many-N, crowded-N",
    )
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
    chosen = [data for data in options.data if not is_skipped(data)]
    if not chosen:
        return 0
    peers = installed(options.peers)
    repeats = dict.fromkeys(peers, options.repeats)
    if "sklearn" in repeats:
        repeats["sklearn"] = min(options.sklearn_repeats, options.repeats)
    print(machine(options.threads))
    outcomes = []
    with tempfile.TemporaryDirectory() as folder:
        setting = Setting(Path(folder), options.threads, options.memory, options.give_up)
        for data in chosen:
            prepared = fit_once("prepare", data.name, folder, threads=options.threads).answer
            layouts = [layout for layout in options.layouts if layout in data.layouts]
            layouts = layouts or list(data.layouts)
            measured = interleave(data, peers, repeats=repeats, layouts=layouts, setting=setting)
            outcomes.append(Outcome(data.name, prepared, measured))
            print(f"\n{report(outcomes[-1])}", flush=True)
    print(f"\n{summary(outcomes)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
