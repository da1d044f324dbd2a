"""What `plan` says of a fit before, beside what the fit then takes.

    python -m tools.benchmarks plan [--cases NAME …] [--share 1.0]

Each case is a process: it plans a fit and then makes it, on the same threads. Limits, for fits of
LONG seconds or more: support vectors are right within a factor of 1.5, seconds within 2, and
planning takes at most a tenth of the fit. --share makes all cases smaller.

A fit of class pairs estimates its time itself while it runs. Its first estimate stands beside that
of `plan`; other fits only know when a sweep ends.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from tools.benchmarks.bench import Suite
from tools.benchmarks.children import machine, run_checked
from tools.benchmarks.data import data_folder, data_set, is_skipped, load
from tools.benchmarks.results import at_most, table, verdicts

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from bigsvm.callbacks import Callback
    from bigsvm.training import events

LONG = 10.0
MOST_SUPPORT, MOST_SECONDS, MOST_PLANNING = 1.5, 2.0, 0.1


class Case(NamedTuple):
    """A fit: the name of a class of `bigsvm`, of a data set, and parameters besides its own."""

    estimator: str
    data: str
    parameters: dict[str, Any]
    all_classes: bool = False


CASES = {
    "two classes of digits": Case("SVC", "mnist", {}),
    "ten classes of digits": Case("SVC", "mnist", {}, all_classes=True),
    "few": Case("SVC", "few-1000000", {"C": 1.0}),
    "many": Case("SVC", "many-200000", {}),
    "nu": Case("NuSVC", "many-200000", {"nu": 0.2}),
    "squared hinge": Case("SVC", "many-60000", {"loss": "squared_hinge", "C": 1.0}),
    "regression": Case("SVR", "smooth-150000", {"epsilon": 0.1}),
    "one class": Case("OneClassSVM", "few-400000", {"nu": 0.05}),
}


def own_estimate(kept: list[float]) -> Callback:
    """Make a callback that keeps how many seconds a fit of class pairs first says it takes."""
    from bigsvm.callbacks import Callback
    from bigsvm.report.progress import Pace
    from bigsvm.training import events

    class Keeping(Callback):
        def listener(self, estimator: Any) -> Callable[[events.Event], None]:  # noqa: ANN401
            began, pace = time.perf_counter(), Pace()

            def listen(event: events.Event) -> None:
                if isinstance(event, events.PairsUnderWay) and not kept:
                    left = pace.seconds_left(event.work_done, event.work)
                    if left is not None:
                        kept.append(time.perf_counter() - began + left)

            return listen

    return Keeping()


def plan_and_fit(name: str, share: float, memory: str, threads: int) -> dict[str, Any]:
    """Plan a case and fit it."""
    import bigsvm

    case = CASES[name]
    data = data_set(case.data)
    if case.all_classes:
        data = data._replace(positive=())
    n_rows = int(share * (data.n_made or 60_000))
    x, y = load(data, data_folder(), n_rows=n_rows)
    given = {"C": data.C, "gamma": data.gamma, **case.parameters}
    if "nu" in given:
        del given["C"]
    model = getattr(bigsvm, case.estimator)(memory=memory, n_jobs=threads, **given)
    x = x.astype("float32")
    began = time.perf_counter()
    planned = model.plan(x, y)
    planning = time.perf_counter() - began
    own: list[float] = []
    model.set_callbacks(own_estimate(own))
    began = time.perf_counter()
    model.fit(x, y)
    return {
        "planning": planning,
        "own": own[0] if own else None,
        "seconds": time.perf_counter() - began,
        "n_support": len(model.support_),
        "planned": planned.as_dict(),
    }


def program(options: argparse.Namespace) -> int:
    """Run the cases one after the other."""
    lines, limits = [], []
    for name in options.cases:
        if is_skipped(data_set(CASES[name].data)):
            continue
        given = (name, options.share, options.memory, options.threads)
        call = f"import json; from {__name__} import plan_and_fit; "
        call += f"print(json.dumps(plan_and_fit(*{given!r})))"
        answer = run_checked([sys.executable, "-c", call], threads=options.threads).answer
        seconds, planned = answer["seconds"], answer["planned"]
        expected = {key: planned[key]["expected"] for key in ("seconds", "n_support")}
        off = {key: expected[key] / max(answer[key], 1e-9) for key in expected}
        ranges = {key: "{low:.0f}-{high:.0f}".format(**planned[key]) for key in expected}
        lines.append(
            [
                name, planned["n_rows"], f"{seconds:.1f}",
                f"{expected['seconds']:.1f} [{ranges['seconds']}]", f"{off['seconds']:.2f}",
                "-" if answer["own"] is None else f"{answer['own'] / seconds:.2f}",
                answer["n_support"], f"{expected['n_support']:.0f} [{ranges['n_support']}]",
                f"{off['n_support']:.2f}", f"{answer['planning'] / seconds:.0%}",
                planned["samples"][-1]["n_rows"],
            ]
        )  # fmt: skip
        if seconds >= LONG:
            worst = {key: max(value, 1 / max(value, 1e-9)) for key, value in off.items()}
            limits += [
                at_most(f"{name}: seconds off", worst["seconds"], limit=MOST_SECONDS),
                at_most(f"{name}: SVs off", worst["n_support"], limit=MOST_SUPPORT),
                at_most(f"{name}: planning ÷ fit", answer["planning"] / seconds,
                        limit=MOST_PLANNING),
            ]  # fmt: skip
    header = [
        "fit", "rows", "seconds", "planned [range]", "ratio", "own ratio", "SVs",
        "planned [range] ", "ratio ", "planning", "last sample",
    ]  # fmt: skip
    print(f"{machine(options.threads)}\n\n{table(header, lines)}\n\n{verdicts(limits)}")
    return 0 if all(all(limit.holds) for limit in limits) else 1


SUITE = Suite(
    program=program,
    memory="500MB",
    threads=2,
    folder=False,
    more=(
        ("--cases", {"nargs": "+", "choices": list(CASES), "default": list(CASES)}),
        ("--share", {"type": float, "default": 1.0}),
    ),
)
