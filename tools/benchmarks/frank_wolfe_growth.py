"""``frank_wolfe.py growth``: seconds and speed-up over CVM, against the number of rows.

The paper's figure 3, on its web series: Frank-Wolfe and modified Frank-Wolfe without a certificate,
and CVM. Gamma is that of each data set, C of all is --C: the paper does not tell its own. All end
as the paper's do, at the first sample without a point outside. Runs take turns, the data sets
one after the other. The speed-up is over LibCVM's way, of the same round; where that was given up,
a lower bound, "≥".
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any, NamedTuple

from common import exponent, machine, median_range, noise, round_ratios, table
from frank_wolfe_speed import LIBCVM, ball, in_turns, libcvm, seconds_of
from timed_fits import UNHALVED, Fit, gamma_of, is_there, read

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from pathlib import Path

NAMES = {"fw": "FW", "mfw": "MFW"}
GAVE_UP = "time_limit"


class Size(NamedTuple):
    """The rounds of one data set of the series."""

    name: str
    n_rows: int
    rounds: list[dict[str, Fit]]

    def median(self, who: str) -> float:
        """Seconds."""
        return statistics.median(turn[who].seconds for turn in self.rounds)

    def speed_ups(self, who: str) -> list[float]:
        """Seconds of LibCVM's way ÷ theirs, by round."""
        return round_ratios(seconds_of(self.rounds), LIBCVM, who)

    @property
    def bound(self) -> str:
        """What stands before a speed-up."""
        gave_up = any(GAVE_UP in turn[LIBCVM].reasons for turn in self.rounds)
        return "≥ " if gave_up else ""


def report(sizes: Sequence[Size]) -> str:
    """Lay out seconds, speed-ups, and what seconds grow with."""
    lines = [
        [
            size.name,
            size.n_rows,
            who,
            median_range([turn[who].seconds for turn in size.rounds]),
            "-" if who == LIBCVM else f"{size.bound}{median_range(size.speed_ups(who), digits=1)}",
            f"{statistics.median(turn[who].n_support for turn in size.rounds):.0f}",
            f"{statistics.median(turn[who].accuracy for turn in size.rounds):.2f}",
            ", ".join(sorted({reason for turn in size.rounds for reason in turn[who].reasons})),
        ]
        for who in sizes[0].rounds[0]
        for size in sizes
    ]
    header = ["data", "rows", "who", "seconds", "speed-up", "SVs", "test accuracy %", "stopped"]
    text = table(header, lines)
    if len(sizes) < 2:
        return text
    grown = [
        [who, f"{exponent([(size.n_rows, size.median(who)) for size in sizes]):.2f}"]
        for who in sizes[0].rounds[0]
    ]
    return f"{text}\n\n{table(['who', 'time ~ n^'], grown)}"


def draw(sizes: Sequence[Size], path: Path) -> None:
    """Draw the figure: seconds, and speed-ups, against the rows."""
    from matplotlib.figure import Figure

    rows = [size.n_rows for size in sizes]
    figure = Figure(figsize=(9, 4), layout="constrained")
    time, speed_up = figure.subplots(1, 2)
    for who in sizes[0].rounds[0]:
        time.plot(rows, [size.median(who) for size in sizes], "o-", label=who)
        if who != LIBCVM:
            medians = [statistics.median(size.speed_ups(who)) for size in sizes]
            speed_up.plot(rows, medians, "o-", label=who)
    time.set_ylabel("seconds")
    speed_up.set_ylabel(f"speed-up over {LIBCVM}")
    for axes in (time, speed_up):
        axes.set(xscale="log", yscale="log", xlabel="rows")
        axes.grid(visible=True, which="both", alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=150)


def run(options: argparse.Namespace) -> int:
    """Measure the data sets that are there, the smallest first."""
    if options.figure is not None:
        _check_drawing(options.figure)
    chosen = [name for name in options.data if is_there(name)]
    if not chosen:
        return 0
    print(f"{machine(options.threads)}; C {options.C:g}")
    sizes, calibrations = [], []
    for name in chosen:
        parts = read(name)
        shared: dict[str, Any] = {
            "C": options.C,
            "gamma": gamma_of(parts.x, UNHALVED),
            "threads": options.threads,
        }
        asked = [
            ball(called, solver=solver, certify=False, **shared) for solver, called in NAMES.items()
        ]
        asked.append(libcvm(give_up=options.give_up, **shared))
        rounds, found = in_turns(asked, parts, options.repeats)
        sizes.append(Size(name, len(parts.y), rounds))
        calibrations += found
    sizes.sort(key=lambda size: size.n_rows)
    print(f"\n{report(sizes)}\n\n{noise(calibrations)}", flush=True)
    if options.figure is not None:
        draw(sizes, options.figure)
        print(f"drawn to {options.figure.name}")
    return 0


def _check_drawing(path: Path) -> None:
    """Find out before the run whether its end can be drawn."""
    try:
        import matplotlib  # noqa: F401 (only whether it is there)
    except ModuleNotFoundError:
        raise SystemExit("--figure needs matplotlib: pip install 'bigsvm[plot]'") from None
    if not path.absolute().parent.is_dir():
        raise SystemExit(f"--figure {path}: there is no folder {path.absolute().parent}")
