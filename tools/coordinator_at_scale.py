"""Simulate the coordinator of 10⁹ rows: what it holds, receives and computes, by two designs.

    python -m tools.coordinator_at_scale [--rows 1e9] [--support 1e5] [--workers 100] [--real 1e7]

Two designs are compared, without kernel values and without a network:

here     alpha, outputs and signs of all rows are on the coordinator, as bigsvm has them. The real
         functions score and choose among ``--real`` rows with fake outputs. Their bytes and CPU
         seconds are those of ``--rows`` in proportion.
there    outputs, signs and bounds of a row stay with the worker that has it. The coordinator has
         the numbers and alpha of the rows that have moved. To choose rows, workers send histograms
         of their scores: of the upper 16 bits of float32, then of the lower 16 bits within one bin.
         That gives the exact limit of the chosen scores, so the same rows are chosen. Outputs are
         saved by workers, and not counted. All ``--rows`` fake scores of one choice are made, and
         what the coordinator does is timed.

A run has ``--passes`` passes over all rows, each with one choice; `cluster --part scaling` counts
as many times the rows in the sums that come back.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import xxhash

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Histogram = tuple[NDArray[np.int64], NDArray[np.int64]]

UNIT_ROWS = 1 << 20
"""Rows of a worker that are made and counted together."""
CHOSEN = 20_000
"""Rows of a choice."""
ROW_BYTES = 25
"""Bytes of a chosen row besides its features: number, alpha and output 8 each, sign 1."""
MEAN = -4.0
"""Mean of the fake scores, whose deviation is 1: one row of 30 000 violates."""


class Figures(NamedTuple):
    """What one design takes of the coordinator: bytes held, and of a pass received and CPU s."""

    state: float
    received: float
    seconds: float
    saved: float
    saving: float


def ordered(scores: NDArray[np.float32]) -> NDArray[np.uint32]:
    """Return numbers of 32 bits that are ordered as the scores."""
    bits = scores.view(np.uint32)
    return np.where(bits >> 31, ~bits, bits | np.uint32(1 << 31))


def histogram(keys: NDArray[np.uint32], above: int | None) -> Histogram:
    """Count the upper 16 bits of keys, or the lower ones of those whose upper ones are `above`."""
    if above is None:
        counts = np.bincount(keys >> 16, minlength=1 << 16)
    else:
        counts = np.bincount(keys[keys >> 16 == above] & 0xFFFF, minlength=1 << 16)
    bins = np.flatnonzero(counts)
    return bins, counts[bins]


def merged(histograms: Sequence[Histogram]) -> NDArray[np.int64]:
    """Add histograms up."""
    total = np.zeros(1 << 16, np.int64)
    for bins, counts in histograms:
        total[bins] += counts
    return total


def bin_of(total: NDArray[np.int64], rank: int) -> tuple[int, int]:
    """Return the bin of the key with this rank, 1 for the largest, and its rank in the bin."""
    from_above = np.cumsum(total[::-1])
    place = int(np.searchsorted(from_above, rank))
    before = int(from_above[place - 1]) if place else 0
    return len(total) - 1 - place, rank - before


def limit_of(units: Callable[[int | None], list[Histogram]], count: int) -> tuple[int, int]:
    """Return the key of the `count`-th largest score, and how many equal to it are chosen.

    `units` returns the histograms of all workers; it is called once for each round.
    """
    upper, rank = bin_of(merged(units(None)), count)
    lower, rank = bin_of(merged(units(upper)), rank)
    return upper << 16 | lower, rank


def fake_scores(unit: int, n: int) -> NDArray[np.float32]:
    """Make the scores of a unit of rows."""
    return np.random.default_rng(unit).standard_normal(n, np.float32) + np.float32(MEAN)


def there(n_rows: int, n_support: int, n_workers: int) -> Figures:
    """Choose among the rows of workers, and time what the coordinator does."""
    sizes = [min(UNIT_ROWS, n_rows - k) for k in range(0, n_rows, UNIT_ROWS)]
    received, spent = 0, 0.0

    def counted(above: int | None) -> list[Histogram]:
        nonlocal received, spent
        began, made = time.process_time(), []
        for first in range(n_workers):  # a worker sends one histogram, of all of its units
            own = range(first, len(sizes), n_workers)
            total = merged([histogram(ordered(fake_scores(u, sizes[u])), above) for u in own])
            bins = np.flatnonzero(total)
            made.append((bins, total[bins]))
        received += sum(bins.nbytes + counts.nbytes for bins, counts in made)
        spent += time.process_time() - began
        return made

    began = time.process_time()
    limit_of(counted, min(CHOSEN, n_rows))
    seconds = time.process_time() - began - spent
    numbers = np.sort(np.random.default_rng(0).choice(n_rows, n_support, replace=False))
    alpha, moved = np.zeros(n_support), numbers[:: max(1, n_support // CHOSEN)]
    began = time.process_time()
    alpha[np.searchsorted(numbers, moved)] += 1.0
    digest = xxhash.xxh3_128(alpha)
    digest.update(numbers)
    saving = time.process_time() - began
    state = numbers.nbytes + alpha.nbytes + CHOSEN * ROW_BYTES + 2 * 8 * (1 << 16)
    saved = numbers.nbytes + alpha.nbytes
    return Figures(state, received + CHOSEN * ROW_BYTES, seconds + saving, saved, saving)


def here(n_rows: int, real: int, n_support: int) -> Figures:
    """Score and choose among real rows by bigsvm, in proportion to all."""
    from bigsvm.duals.box import BoxDual
    from bigsvm.duals.formulations import CSVC
    from bigsvm.duals.picking import Wanted

    rng, times = np.random.default_rng(0), n_rows / real
    sign = np.where(rng.random(real, np.float32) < 0.5, 1, -1).astype(np.int8)
    dual = BoxDual(CSVC(sign=sign, C=1.0))
    alpha = np.zeros(real)
    moved = rng.choice(real, max(1, int(n_support / times)), replace=False)
    alpha[moved] = 0.5 * sign[moved]
    outputs = rng.standard_normal(real) - MEAN
    outputs *= sign
    added = [np.ones(min(UNIT_ROWS, real - k)) for k in range(0, real, UNIT_ROWS)]
    tracemalloc.start()
    began = time.process_time()
    for number, sums in enumerate(added):
        start = number * UNIT_ROWS
        xxhash.xxh3_128_digest(sums)
        outputs[start : start + len(sums)] += 0.0 * sums
    standing = dual.optimality(alpha, outputs)
    dual.select(alpha, outputs, standing, Wanted(CHOSEN, CHOSEN, 1.0, rng, tol=1e-3))
    seconds = time.process_time() - began
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    began = time.process_time()
    for array in (alpha, outputs):
        xxhash.xxh3_128_digest(array)
    saving = time.process_time() - began
    state = alpha.nbytes + outputs.nbytes + sign.nbytes + peak
    saved = alpha.nbytes + outputs.nbytes
    return Figures(*(times * x for x in (state, outputs.nbytes, seconds, saved, saving)))


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the options."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name, default, words in (
        ("rows", 1e9, "rows"), ("support", 1e5, "support vectors"), ("workers", 100, "workers"),
        ("passes", 16, "passes over all rows"), ("real", 1e7, "rows that bigsvm scores"),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=float, default=default, help=words)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Print what the coordinator of both designs takes."""
    from tools.benchmarks.results import table

    given = parse(argv)
    n, k, passes = int(given.rows), int(given.support), int(given.passes)
    designs = {
        "here": here(n, min(n, int(given.real)), k),
        "there": there(n, k, int(given.workers)),
    }
    print(f"{n:.0e} rows, {k:.0e} support vectors, {int(given.workers)} workers, {passes} passes")
    print(table(
        ("state of rows", "held, GB", "bytes a row", "received, GB", "CPU s of passes",
         "checkpoint, GB", "CPU s of a checkpoint"),
        [
            (name, f"{each.state / 1e9:.4g}", f"{each.state / n:.3g}",
             f"{passes * each.received / 1e9:.3g}", f"{passes * each.seconds:.3g}",
             f"{each.saved / 1e9:.3g}", f"{each.saving:.3g}")
            for name, each in designs.items()
        ],
    ))  # fmt: skip


if __name__ == "__main__":
    main()
