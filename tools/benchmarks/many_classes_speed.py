"""``many_classes.py speed``: all ten digits of mnist, beside others and beside separate runs.

All train the same rows, values divided by 255, with the same C, gamma and tol; each in a process of
its own, in turns, after a tiny problem of each. The seconds are those of ``fit`` alone. Ours have
rows of --layout, the others what is their best.

ovo             one-vs-one
sklearnex       scikit-learn-intelex's SVC, which is one-vs-one too: dense rows, a cache of 200 MB
ovr             one-vs-rest, all classes together
separate        as many runs of the binary `SVC`, each class against the rest: the sum of them
crammer-singer  Crammer and Singer's

Held is that ovo is twice as fast as sklearnex, its labels as good but for 0.05 points; that ovr
takes at most 0.4 of the seconds of the separate runs and of their kernel evaluations; and that
crammer-singer takes at most twice as long as ovr. Ratios are taken within a round, and of them the
median.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from common import (
    Check,
    fit_once,
    installed,
    machine,
    median_range,
    megabytes,
    noise,
    round_ratios,
    run_checked,
    table,
    verdicts,
)
from many_classes_common import METHODS, is_there
from timed_fits import say

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

FASTER = 2.0
POINTS = 0.05
JOINT = 0.4
TIMES_OVR = 2.0

Round = dict[str, dict[str, Any]]
"""Answers of one round, by name."""


class Setting(NamedTuple):
    """What all runs have in common."""

    folder: Path
    C: float
    gamma: float
    tol: float
    layout: str
    threads: int

    def parameters(self, who: str) -> str:
        """Give what somebody trains with, as JSON."""
        layout = "dense" if who == "sklearnex" else self.layout
        return json.dumps({"C": self.C, "gamma": self.gamma, "tol": self.tol, "layout": layout})


def once(*arguments: object, threads: int) -> dict[str, Any]:
    script = Path(__file__).with_name("many_classes_once.py")
    return run_checked([sys.executable, str(script), *map(str, arguments)], threads=threads).answer


def in_turns(who: Sequence[str], setting: Setting, repeats: int) -> tuple[list[Round], list[float]]:
    """Let each train once a round; also seconds of a fixed product before each run."""
    rounds: list[Round] = []
    calibrations = []
    for turn in range(repeats):
        rounds.append({})
        for name in who:
            calibration = fit_once("calibrate", threads=setting.threads).answer
            calibrations.append(float(calibration["seconds"]))
            rounds[-1][name] = found = once(
                "fit", name, setting.folder, setting.parameters(name), threads=setting.threads
            )
            say(
                f"  round {turn + 1} {name}: {found['seconds']:.2f} s, {found['accuracy']:.2f} %, "
                f"peak {megabytes(found['peak_rss'])} MB"
            )
    return rounds, calibrations


def ratios(rounds: Sequence[Round], over: str, under: str, what: str = "seconds") -> list[float]:
    """Ratios of `what` within rounds."""
    values = [
        {name: answer[what] for name, answer in turn.items() if what in answer} for turn in rounds
    ]
    return round_ratios(values, over, under)


def report(rounds: Sequence[Round]) -> str:
    """Lay out the runs."""
    lines = []
    for name in rounds[0]:
        answers = [turn[name] for turn in rounds]
        last = answers[-1]
        evaluations = last.get("n_kernel_evaluations")
        lines.append(
            [
                name,
                median_range([a["seconds"] for a in answers]),
                median_range(ratios(rounds, name, "ovo")) if "ovo" in rounds[0] else "-",
                f"{last['accuracy']:.2f}",
                last["n_support"],
                "-" if evaluations is None else f"{evaluations / 1e9:.2f}",
                last.get("n_iter", "-"),
                megabytes(max(a["peak_rss"] for a in answers)),
                last.get("converged", "-"),
            ]
        )
    header = [
        *("who", "seconds", "÷ ovo", "test accuracy %", "SVs", "10^9 evaluations", "steps"),
        *("peak RSS MB", "converged"),
    ]
    return table(header, lines)


def checks(rounds: Sequence[Round]) -> list[Check]:
    """Hold the medians against what is promised, of those that ran."""
    found = []
    ran = rounds[0].keys()
    if {"ovo", "sklearnex"} <= ran:
        times = statistics.median(ratios(rounds, "sklearnex", "ovo"))
        found.append(
            Check("sklearnex ÷ ovo, seconds", f"{times:.2f}", f"≥ {FASTER:g}", times >= FASTER)
        )
        ours, theirs = (
            statistics.median(turn[name]["accuracy"] for turn in rounds)
            for name in ("ovo", "sklearnex")
        )
        found.append(
            Check(
                "ovo - sklearnex, points of accuracy",
                f"{ours - theirs:+.3f}",
                f"≥ -{POINTS:g}",
                ours - theirs >= -POINTS - 1e-9,
            )
        )
    for over, under, what, limit in (
        ("ovr", "separate", "seconds", JOINT),
        ("ovr", "separate", "n_kernel_evaluations", JOINT),
        ("crammer-singer", "ovr", "seconds", TIMES_OVR),
    ):
        if {over, under} <= ran:
            times = statistics.median(ratios(rounds, over, under, what))
            shown = what.removeprefix("n_").replace("_", " ")
            found.append(
                Check(f"{over} ÷ {under}, {shown}", f"{times:.2f}", f"≤ {limit:g}", times <= limit)
            )
    for name in (*METHODS, "separate"):
        if name in ran:
            converged = all(turn[name]["converged"] for turn in rounds)
            found.append(Check(f"{name} converged", str(converged), "True", converged))
    return found


def run(options: argparse.Namespace) -> int:
    """Measure mnist, if it is there."""
    if not is_there("mnist"):
        return 0
    who = installed(options.who)
    if not who:
        return 0
    print(machine(options.threads), flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        prepared = once("prepare", "mnist", options.rows, folder, threads=options.threads)
        gamma = prepared["gamma"] if options.gamma is None else options.gamma
        setting = Setting(folder, options.C, gamma, options.tol, options.layout, options.threads)
        rounds, calibrations = in_turns(who, setting, options.repeats)
    n_rows, n_columns, n_classes = prepared["shape"]
    print(
        f"mnist: {n_rows} rows x {n_columns}, {n_classes} classes, {prepared['n_tested']} to test "
        f"on; {prepared['scaled']}; C {options.C:g}, gamma {gamma:.4g}, tol {options.tol:g}; ours "
        f"{options.layout}\n\n{report(rounds)}\n\n{noise(calibrations)}\n\n"
        f"{verdicts(checks(rounds))}"
    )
    return 0
