"""What `peers.py` prints: a table per data set, then ratios over all of them, held against limits.

A ratio above 1 says how many times longer, or larger, somebody was. Where somebody was stopped, it
is a lower bound, ">", and it is not known whether a limit holds that is above it.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any, NamedTuple

from common import (
    FAILS,
    FIT_BEGAN,
    HOLDS,
    Finished,
    median_range,
    megabytes,
    noise,
    round_ratios,
    table,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PEERS = ("store", "memory", "sklearnex", "sklearn")
OURS = ("store", "memory")
VARIANTS = ("store", "memory", "faster of both")

RATIO_EACH = 1.5
RATIO_LARGE = 4.0
LARGE_ROWS = 100_000
RATIO_MEAN = 3.0
RATIO_MEAN_SKLEARN = 15.0
MEMORY_SHARE = 0.5
MANY_SUPPORT_VECTORS = 0.2
"""Share of the rows from which on a floor is most of what there is to do."""
FLOORS_OF_MANY, FLOORS_OF_FEW = (1.5, 2.5), (3.0, 6.0)
"""Kernel evaluations and seconds, in floors."""


class Measured(NamedTuple):
    """One fit.

    Attributes
    ----------
    peer, layout : str
    round : int
    child : Finished
    calibration : float
        Seconds of a fixed GEMM just before it.
    floor : float or None
        Seconds of one sweep with the final support vectors in the same round and layout; only of
        our own fits.
    """

    peer: str
    layout: str
    round: int
    child: Finished
    calibration: float
    floor: float | None = None

    @property
    def seconds(self) -> float:
        """Of training alone, by the child's own clock; if it was given up, until then."""
        if not self.child.gave_up:
            return float(self.child.answer["seconds"])
        for line in self.child.stdout.splitlines():
            if line.startswith(FIT_BEGAN):
                return self.child.ended - float(line.removeprefix(FIT_BEGAN))
        return 0.0

    @property
    def peak_rss(self) -> int:
        """Bytes until the end of training, where the child says so; until its own end otherwise."""
        return int(self.child.answer.get("peak_rss", self.child.peak_rss))


class Outcome(NamedTuple):
    """A data set and all fits of it, each competitor's in one layout.

    Attributes
    ----------
    prepared : dict
        n_rows, n_columns, density.
    """

    name: str
    prepared: dict[str, Any]
    measured: Sequence[Measured]

    @property
    def n_rows(self) -> int:
        """Rows trained on."""
        return int(self.prepared["n_rows"])

    def of(self, peer: str | None) -> list[Measured]:
        """Fits of one competitor."""
        return [m for m in self.measured if m.peer == peer]

    @property
    def faster(self) -> str | None:
        """Which of `OURS` took less time."""
        medians = {
            p: statistics.median([m.seconds for m in self.of(p)]) for p in OURS if self.of(p)
        }
        return min(medians, key=lambda peer: medians[peer]) if medians else None

    @property
    def variants(self) -> tuple[str | None, ...]:
        """Who each of `VARIANTS` is."""
        return (*(p if self.of(p) else None for p in OURS), self.faster)

    @property
    def has_many_support_vectors(self) -> bool:
        """Whether they are so many that a floor is most of the work."""
        counts = [m.child.answer["n_support"] for p in OURS for m in self.of(p)]
        return bool(counts) and statistics.median(counts) >= MANY_SUPPORT_VECTORS * self.n_rows

    @property
    def rounds(self) -> list[dict[str, float]]:
        """Seconds by competitor, per round."""
        turns = sorted({m.round for m in self.measured})
        return [{m.peer: m.seconds for m in self.measured if m.round == turn} for turn in turns]

    def ratio(self, peer: str, own: str | None) -> Number | None:
        """Seconds of `peer` ÷ seconds of `own`, median over the rounds."""
        ratios = [] if own is None else round_ratios(self.rounds, peer, own)
        if not ratios:
            return None
        return Number(statistics.median(ratios), any(m.child.gave_up for m in self.of(peer)))

    def evaluations(self, m: Measured) -> float | None:
        """Kernel evaluations ÷ (n · n_SV), which no noise touches; None where nobody counted."""
        answer = m.child.answer
        if "n_kernel_evaluations" not in answer:
            return None
        return float(answer["n_kernel_evaluations"] / (self.n_rows * answer["n_support"]))

    def floors(self, m: Measured) -> float | None:
        """Seconds ÷ those of a floor: its own, for others that of `memory` in the same round."""
        floors = {
            own.peer: own.floor for own in self.measured if own.round == m.round and own.floor
        }
        floor = m.floor or floors.get("memory") or floors.get("store")
        return m.seconds / floor if floor else None

    def peak_share(self, peer: str | None) -> float | None:
        """Peak of memory ÷ that of sklearnex, largest over the rounds."""
        others = [m.peak_rss for m in self.of("sklearnex")]
        own = [m.peak_rss for m in self.of(peer)]
        return max(own) / max(others) if own and others else None

    def median(self, peer: str | None, value: Callable[[Measured], float | None]) -> float | None:
        """Median over the rounds of something that not every fit has."""
        values = [v for m in self.of(peer) if (v := value(m)) is not None]
        return statistics.median(values) if values else None


class Number(NamedTuple):
    """Something measured; `at_least` where it would have been more, had one waited."""

    value: float
    at_least: bool = False

    def __str__(self) -> str:
        return f"{'> ' * self.at_least}{self.value:.2f}"


def shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def report(outcome: Outcome) -> str:
    """Lay out the table of one data set."""
    rows = []
    for peer in PEERS:
        runs = outcome.of(peer)
        if not runs:
            continue
        answer = runs[-1].child.answer
        bound = "> " * any(m.child.gave_up for m in runs)
        share = outcome.peak_share(peer)
        in_floors = [v for m in runs if (v := outcome.floors(m)) is not None]
        rows.append(
            [
                peer,
                runs[0].layout,
                bound + median_range([m.seconds for m in runs]),
                bound + median_range(round_ratios(outcome.rounds, peer, "store")),
                bound + median_range(round_ratios(outcome.rounds, peer, "memory")),
                megabytes(max(m.peak_rss for m in runs)),
                "-" if share is None else f"{share:.0%}",
                f"{answer['objective']:.3f}" if answer else "-",
                answer.get("n_support", "-"),
                answer.get("n_sweeps", "-"),
                shown(outcome.evaluations(runs[-1])),
                bound + median_range(in_floors),
            ]
        )
    for peer in OURS:
        runs = [m for m in outcome.of(peer) if m.floor]
        if runs:
            seconds = median_range([m.floor for m in runs if m.floor])
            rows.append([f"floor of {peer}", runs[0].layout, seconds, *["-"] * 7, "1.00", "1.00"])
    prepared = outcome.prepared
    lines = [
        f"{outcome.name}: {prepared['n_rows']} rows x {prepared['n_columns']}, "
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
                "of sklearnex's",
                "dual objective",
                "SVs",
                "sweeps",
                "evaluations in floors",
                "seconds in floors",
            ],
            rows,
        ),
        "",
        noise([m.calibration for m in outcome.measured]),
    ]
    return "\n".join(lines)


def summary(outcomes: Sequence[Outcome]) -> str:
    """Hold every data set, and the means over them, against the limits, for each of `VARIANTS`."""
    lines = []
    for outcome in outcomes:
        large = outcome.name == "mnist" or outcome.n_rows >= LARGE_ROWS
        ratios = [outcome.ratio("sklearnex", own) for own in outcome.variants]
        limit = RATIO_LARGE if large else RATIO_EACH
        lines.append(held(f"sklearnex ÷ ours, {outcome.name}", ratios, at_least=limit))
    for peer, limit in (("sklearnex", RATIO_MEAN), ("sklearn", RATIO_MEAN_SKLEARN)):
        per_data_set = [[o.ratio(peer, own) for own in o.variants] for o in outcomes]
        means = [geometric_mean(ratios) for ratios in zip(*per_data_set, strict=True)]
        what = f"{peer} ÷ ours, geometric mean of {len(outcomes)}"
        lines.append(held(what, means, at_least=limit))
    for outcome in outcomes:
        shares = [as_number(outcome.peak_share(own)) for own in outcome.variants]
        what = f"peak RSS ÷ sklearnex's, {outcome.name}"
        lines.append(held(what, shares, at_most=MEMORY_SHARE))
    for outcome in outcomes:
        limits = FLOORS_OF_MANY if outcome.has_many_support_vectors else FLOORS_OF_FEW
        for what, value, limit in zip(
            ("evaluations", "seconds"), (outcome.evaluations, outcome.floors), limits, strict=True
        ):
            floors = [as_number(outcome.median(own, value)) for own in outcome.variants]
            lines.append(held(f"{what} in floors, {outcome.name}", floors, at_most=limit))
    return table(["what", "limit", *VARIANTS], lines)


def geometric_mean(ratios: Sequence[Number | None]) -> Number | None:
    """Of all; None where one is missing, a lower bound where one is."""
    known = [ratio for ratio in ratios if ratio is not None]
    if not known or len(known) < len(ratios):
        return None
    bounded = any(ratio.at_least for ratio in known)
    if min(ratio.value for ratio in known) == 0:  # stopped before its fit began
        return Number(0.0, bounded)
    return Number(statistics.geometric_mean([ratio.value for ratio in known]), bounded)


def as_number(value: float | None) -> Number | None:
    return None if value is None else Number(value)


def held(
    what: str,
    values: Sequence[Number | None],
    *,
    at_least: float | None = None,
    at_most: float | None = None,
) -> list[str]:
    """Make a line of the summary: each value and whether the limit holds for it."""
    cells = []
    for value in values:
        if value is None:
            cells.append("-")
        elif at_least is not None and value.at_least and value.value < at_least:
            cells.append(f"{value}, not known")
        else:
            holds = value.value >= at_least if at_least is not None else value.value <= at_most
            cells.append(f"{value}, {HOLDS if holds else FAILS}")
    limit = f"≥ {at_least:g}" if at_least is not None else f"≤ {at_most:g}"
    return [what, limit, *cells]
