"""What most of the time of training went into, in a sentence for users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bigsvm.report.text import count, plural
from bigsvm.training.result import CLUSTER_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping

LEAST_SECONDS = 1.0
"""Shorter runs need no advice."""
MUCH = 0.5
"""Share of the time from which a phase is called most of it."""
AGAIN = 10
"""Kernel rows computed for each support vector from which memory was short of room for them: 3 to 6
are usual with much memory, as each working set begins anew, and hundreds with little."""
MANY_STEPS = 10
"""Steps for each support vector from which their number depends on C more than on the rows."""
IDLE = 0.3
"""Share of their time in which threads wait, below which there is work for more of them."""
SLOWER = 1.5
"""Times as long as this process alone from which workers are called slower: its threads may be
faster or slower than theirs."""


def slower_than_alone(costs: Mapping[str, Any]) -> str | None:
    """Say that this process would have been faster without the workers of a cluster.

    None where it would not, where what it lost is short, and where there were none.
    """
    waited, alone = (costs.get(name) for name in CLUSTER_SECONDS)
    if waited is None or alone is None or waited < SLOWER * alone + LEAST_SECONDS:
        return None
    return (
        f"this process waited {waited:.1f} s for the workers, and would have done their work in "
        f"about {alone:.1f} s: it is faster without them"
    )


def most_of_the_time(certificate: Mapping[str, Any], *, of_one: bool) -> str | None:
    """Say which phase took the most time, and what the measured figures say would help.

    None for a run that was short, and where the phases are not known. `of_one` says whether the
    model is a single function, whose steps use one thread.
    """
    phases = certificate.get("seconds_by_phase")
    if not phases or not (total := sum(phases.values())) >= LEAST_SECONDS:
        return None
    name, seconds = max(phases.items(), key=lambda item: item[1])
    told = _TOLD.get(name)
    if told is None:
        return None
    share = seconds / total
    begin = "most of the time" if share >= MUCH else "the largest part of the time"
    what, helps = told(certificate)
    if name == "steps" and of_one:
        helps = f"{helps}; more threads would not help" if helps else "more threads would not help"
    advice = f"; {helps}" if helps else ""
    return f"{begin}, {share:.0%}, went into {what}{advice}"


def _sweeps(certificate: Mapping[str, Any]) -> tuple[str, str]:
    vectors = plural(certificate["n_support"], "support vector")
    idle = certificate.get("cpu_idle")
    helps = ""
    if idle is not None and idle < IDLE and certificate.get("disk_tier") is None:
        helps = "the threads were busy, so more of them would help where there are processors"
    elif idle is not None and idle > 1 - IDLE and certificate["bytes_read"] > 0:
        helps = "the threads waited, as for reading rows: a faster disk or more memory would help"
    return f"kernel values of all rows with {vectors}", helps


def _kernel_rows(certificate: Mapping[str, Any]) -> tuple[str, str]:
    fetched, n_support = certificate["row_misses"], certificate["n_support"]
    helps = ""
    if fetched > AGAIN * max(n_support, 1):
        helps = (
            f"{count(fetched)} kernel rows were computed for "
            f"{plural(n_support, 'support vector')}: more memory would keep more of them"
        )
    return "kernel values among the rows that were being solved", helps


def _steps(certificate: Mapping[str, Any]) -> tuple[str, str]:
    n_iter, n_support = certificate["n_iter"], max(certificate["n_support"], 1)
    helps = ""
    if n_iter > MANY_STEPS * n_support:
        helps = "a smaller C or a larger tol takes fewer of them"
    return f"{plural(n_iter, 'step')} of the solver", helps


def _certificate(certificate: Mapping[str, Any]) -> tuple[str, str]:
    return "checking the result in double precision", ""


def _rest(certificate: Mapping[str, Any]) -> tuple[str, str]:
    return "choosing rows, saving and other small work in one thread", ""


_TOLD = {
    "certificate": _certificate,
    "sweeps": _sweeps,
    "kernel_rows": _kernel_rows,
    "steps": _steps,
    "rest": _rest,
}
"""What each phase is to users."""
