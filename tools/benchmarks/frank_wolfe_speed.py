"""``frank_wolfe.py speed``: balls beside C-SVC, and beside a core vector machine of LibCVM's kind.

All train the same rows in one process, in turns, after a tiny problem of each: the exact C-SVC, the
certified ball, and sampled ones (certify=False). ``LibCVM's way`` is our own code with solver
"cvm", which adds one point of each sample, as LibCVM does; it is stopped after --give-up seconds,
and is then what it had become. C and gamma are those that all other
benchmarks have for these rows (`data_sets.py`), or --C and --gamma; with a gamma of
`TIMES_DISTANCE`, as ``mean-distance`` is one, C is that of the table below. Balls have another loss
than C-SVC: the same C is not the same model.

mnist is 0-4 against 5-9. Its rows are an array, those of the others CSR; all are float32.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from common import machine, median_range, noise, round_ratios, table
from data_sets import DATA_SETS
from fit_once import calibrate
from timed_fits import (
    SAMPLING,
    TIMES_DISTANCE,
    Contestant,
    Fit,
    Parts,
    fit,
    five_and_more,
    gamma_of,
    is_there,
    read,
    say,
    warm_up,
)

import bigsvm

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

C = {"a9a": 1.0, "w8a": 64.0, "mnist": 64.0}
FEW = 4
"""Rows of a sample where speed counts more than the last half of a percent."""
C_SVC, LIBCVM = "C-SVC", "LibCVM's way"


def ball(
    name: str,
    *,
    C: float,
    gamma: float,
    threads: int,
    sampling: int = SAMPLING,
    **parameters: Any,  # noqa: ANN401 (of L2SVC)
) -> Contestant:
    """Describe somebody who finds a ball from samples, of 59 rows by default."""

    def make() -> bigsvm.L2SVC:
        return bigsvm.L2SVC(C, sampling=sampling, gamma=gamma, n_jobs=threads, **parameters)

    return Contestant(name, make)


def libcvm(*, give_up: float, **shared: Any) -> Contestant:  # noqa: ANN401 (of `ball`)
    """Describe the core vector machine that takes one point a round."""
    return ball(LIBCVM, solver="cvm", certify=False, max_time=give_up, **shared)


def contestants(gamma: float, C: float, options: argparse.Namespace) -> list[Contestant]:
    """List who takes part."""
    shared: dict[str, Any] = {"C": C, "gamma": gamma, "threads": options.threads}
    return [
        Contestant(C_SVC, lambda: bigsvm.SVC(C=C, gamma=gamma, n_jobs=options.threads)),
        ball("ball, certified", **shared),
        ball("ball, sampled", certify=False, **shared),
        ball(f"ball, samples of {FEW}", certify=False, sampling=FEW, **shared),
        ball("ball, sampled, mfw", certify=False, solver="mfw", **shared),
        libcvm(give_up=options.give_up, **shared),
    ]


def in_turns(
    asked: Sequence[Contestant], parts: Parts, repeats: int
) -> tuple[list[dict[str, Fit]], list[float]]:
    """Let each train once a round; also seconds of a fixed product before each run."""
    warm_up(asked, parts)
    rounds: list[dict[str, Fit]] = []
    calibrations = []
    for turn in range(repeats):
        rounds.append({})
        for one in asked:
            calibrations.append(calibrate()["seconds"])
            rounds[-1][one.name] = found = fit(one, parts)
            say(
                f"  {parts.name} round {turn + 1} {one.name}: {found.seconds:.2f} s, "
                f"{found.accuracy:.2f} %"
            )
    return rounds, calibrations


def seconds_of(rounds: Sequence[dict[str, Fit]]) -> list[dict[str, float]]:
    """Seconds alone, by round and name."""
    return [{name: found.seconds for name, found in turn.items()} for turn in rounds]


def report(parts: Parts, rounds: Sequence[dict[str, Fit]]) -> str:
    """Lay out the runs on a data set."""
    seconds = seconds_of(rounds)
    lines = []
    for name in rounds[0]:
        fits = [turn[name] for turn in rounds]
        lines.append(
            [
                name,
                median_range([f.seconds for f in fits]),
                median_range(round_ratios(seconds, name, C_SVC)),
                f"{statistics.median(f.n_support for f in fits):.0f}",
                f"{statistics.median(f.accuracy for f in fits):.2f}",
                ", ".join(sorted({reason for f in fits for reason in f.reasons})),
            ]
        )
    header = ["who", "seconds", f"÷ {C_SVC}", "SVs", "test accuracy %", "stopped"]
    return table(header, lines)


def setting(parts: Parts, options: argparse.Namespace) -> tuple[float, float]:
    """C and gamma that all train with."""
    usual = DATA_SETS[parts.name]
    if options.gamma in TIMES_DISTANCE:
        return options.C or C[parts.name], gamma_of(parts.x, options.gamma)
    # Theirs is that of raw values.
    scaled = usual.gamma * parts.divided_by**2
    return options.C or usual.C, float(options.gamma or scaled)


def run(options: argparse.Namespace) -> int:
    """Measure the data sets that are there."""
    chosen = [name for name in options.data if is_there(name)]
    if not chosen:
        return 0
    print(machine(options.threads))
    calibrations: list[float] = []
    for name in chosen:
        parts = read(name)
        if name == "mnist":
            parts = five_and_more(parts)
        penalty, gamma = setting(parts, options)
        asked = contestants(gamma, penalty, options)
        rounds, found = in_turns(asked, parts, options.repeats)
        calibrations += found
        said = [
            f"{name}: {len(parts.y)} rows x {parts.x.shape[1]}",
            f"C {penalty:g}, gamma {gamma:.4g}",
            *([parts.scaled] if parts.scaled else []),
        ]
        print(f"\n{'; '.join(said)}\n\n{report(parts, rounds)}", flush=True)
    print(f"\n{noise(calibrations)}")
    return 0
