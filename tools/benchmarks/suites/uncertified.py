"""Training without a certificate beside certified training: CPU time and test accuracy.

    python -m tools.benchmarks uncertified --part svc [--data w8a mnist …] [--repeats 3]
    python -m tools.benchmarks uncertified --part l2-svc [--data w8a …]
    python -m tools.benchmarks uncertified --part full-core
    python -m tools.benchmarks uncertified --part balls

svc        SVC with ``certify=False`` and with ``certify=True`` take turns on the same rows in
           memory, in one thread. mnist is 0-4 against 5-9. Files have a test file; what is made is
           tested on the next 50 000 rows of the same maker. The second table has the estimates of
           the growing parts: rows trained on, error at fresh rows, its standard error, and whether
           two successive estimates differ by less than their standard error, which is the plainest
           rule for an end; training itself fits a line (`bigsvm.training.learning_curve`). Limits:
           at most 35 % of the certified CPU time, of a million rows 10 %, and at most 0.5 points
           less accuracy
l2-svc     the same of L2SVC
full-core  L2SVC on noisy labels (a fifth of them, 10 columns), whose core set does not fit in the
           memory: test accuracy with and without a certificate, and SVC's
balls      L2SVC with a certificate: which test ended the run, and what ε holds for the centre that
           is returned
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from tools.benchmarks.bench import Suite
from tools.benchmarks.results import (
    Limit,
    Results,
    Row,
    at_most,
    data_cases,
    given,
    made_up,
    of,
    table,
)

if TYPE_CHECKING:
    from collections.abc import Callable

SETTLED, CERTIFIED = "uncertified", "certified"
SHARE, SHARE_OF_MANY, MANY, POINTS = 35.0, 10.0, 1_000_000, 0.5
WARM_ROWS = 9000
"""With fewer rows no part of them is tried first, and nothing of that is compiled."""
N_TEST, NOISE, NOISY_COLUMNS = 50_000, 0.2, 10
NOISY_ROWS = (4000, 8000, 16_000, 32_000)
NOISY: dict[str, tuple[str, dict[str, Any]]] = {
    "L2SVC no certificate": ("L2SVC", {"certify": False}), "L2SVC": ("L2SVC", {}),
    "SVC": ("SVC", {}),
}  # fmt: skip


def fit(job: dict[str, Any], kind: str = "SVC") -> dict[str, Any]:
    """Train an estimator of a kind once, and keep the estimates of the growing parts."""
    import bigsvm
    from bigsvm.estimators import base
    from bigsvm.estimators.watching import FitWatch
    from bigsvm.training import events
    from tools.benchmarks.contestants import train_and_test

    estimates: list[tuple[int, float, float]] = []

    class Watch(FitWatch):
        def __call__(self, event: events.Event) -> None:
            if isinstance(event, events.Tested):
                if estimates and event.trained <= estimates[-1][0]:  # another fit
                    estimates.clear()
                estimates.append((event.trained, event.error, event.deviation))
            super().__call__(event)

    given = {**job["parameters"], "certify": job["who"] == CERTIFIED}
    model = getattr(bigsvm, kind)(**given, tol=1e-3, memory="4GB", n_jobs=1)
    with mock.patch.object(base, "FitWatch", Watch):
        answer = train_and_test(job, model, tiny=(WARM_ROWS, -1))
    names = ("rows_used", "test_error", "test_error_deviation")
    return answer | {name: model.certificate_.get(name) for name in names} | {
        "estimates": estimates
    }  # fmt: skip


def fit_l2(job: dict[str, Any]) -> dict[str, Any]:
    """Do so with L2SVC."""
    return fit(job, "L2SVC")


def fit_noisy(job: dict[str, Any]) -> dict[str, Any]:
    """Train once on noisy labels, and test."""
    import numpy as np

    import bigsvm
    from tools.benchmarks.contestants import timed

    rng, n = np.random.default_rng(0), job["parameters"]["rows"]
    x = rng.standard_normal((NOISY_ROWS[-1] + N_TEST, NOISY_COLUMNS)).astype(np.float32)
    y = np.sign(x[:, 0] * x[:, 1] + x[:, 2] + 0.5 * x[:, 3])
    y[rng.random(len(y)) < NOISE] *= -1
    kind, given = NOISY[job["who"]]
    model = getattr(bigsvm, kind)(C=1.0, gamma=0.1, memory="300MB", n_jobs=1, **given)
    answer = timed(model, x[:n], y[:n])
    return answer | {"accuracy": 100 * model.score(x[-N_TEST:], y[-N_TEST:])}


def fit_ball(job: dict[str, Any]) -> dict[str, Any]:
    """Train a ball with a certificate, and say by which test it is certified."""
    import numpy as np

    import bigsvm
    from tools.benchmarks.contestants import read_rows, timed

    y = np.load(Path(job["folder"]) / f"{job['name']}.y.npy")
    model = bigsvm.L2SVC(**job["parameters"], n_jobs=1)
    answer = timed(model, read_rows(job), y)
    names = ("test", "eps", "farthest_gap", "losses_gap")
    answer |= {name: model.certificate_["ball"][name] for name in names}
    return answer | {"tol": model.certificate_["tol"]}


def cpu(who: str) -> Callable[[Row], str]:
    return lambda row: f"{row.of(who).median('cpu_seconds') or 0:.2f}"


def share(row: Row) -> float:
    """Give the CPU time without a certificate in % of that with one."""
    certified = row.of(CERTIFIED).median("cpu_seconds") or float("inf")
    return 100 * (row.of(SETTLED).median("cpu_seconds") or 0) / certified


def lost(row: Row) -> float:
    """Give the points of accuracy lost."""
    return float(row.of(CERTIFIED).last("accuracy", 0) - row.of(SETTLED).last("accuracy", 0))


def estimated(row: Row) -> str:
    settled = row.of(SETTLED)
    error, deviation = (
        100 * settled.last(name, 0) for name in ("test_error", "test_error_deviation")
    )
    return f"{error:.2f} ± {deviation:.2f}"


def curves(results: Results) -> str:
    """Lay out the estimates of each case's last fit."""
    lines: list[list[object]] = []
    for row in results.rows(SETTLED):
        before: tuple[float, float] | None = None
        for trained, error, deviation in row.last("estimates"):
            less = "-"
            if before is not None:
                standard = (deviation**2 + before[1] ** 2) ** 0.5
                less = "yes" if abs(error - before[0]) < standard else ""
            shown = f"{100 * error:.2f}", f"{100 * deviation:.2f}"
            lines.append([row.case.name, trained, *shown, less])
            before = (error, deviation)
    return table(["data", "trained on", "error %", "standard error", "differs by less"], lines)


def limits(results: Results) -> list[Limit]:
    """Hold comparisons against the limits."""
    found = []
    for row in results.rows():
        name = row.case.name
        if row.of(SETTLED).runs and row.of(CERTIFIED).runs:
            limit = SHARE_OF_MANY if row.case.data.n_made >= MANY else SHARE
            found += [
                at_most(f"% of the certified CPU time, {name}", share(row), limit=limit),
                at_most(f"points of accuracy lost, {name}", lost(row), limit=POINTS),
            ]
    return found


DO = "tools.benchmarks.suites.uncertified"
SVC = Suite(
    cases=data_cases,
    data=("w8a", "mnist", "few-100000", "few-1000000"),
    contestants=(SETTLED, CERTIFIED),
    columns=(
        "data",
        ("CPU s", cpu(SETTLED)),
        ("certified", cpu(CERTIFIED)),
        ("%", lambda row: f"{share(row):.1f}"),
        ("accuracy", of(SETTLED, "accuracy:.2f")),
        ("certified", of(CERTIFIED, "accuracy:.2f")),
        ("points lost", lambda row: f"{lost(row):.2f}"),
        ("stop", of(SETTLED, "stopped")),
        ("rows used", of(SETTLED, "rows_used")),
        ("estimated error %", estimated),
        ("SVs", of(SETTLED, "n_support")),
        ("certified", of(CERTIFIED, "n_support")),
    ),
    wide=True,
    after=curves,
    limits=limits,
    do=f"{DO}:fit",
    layout="suitable",
    threads=1,
)
PARTS = {
    "svc": SVC,
    "l2-svc": replace(SVC, data=("w8a", "few-100000", "many-50000"), do=f"{DO}:fit_l2"),
    "full-core": Suite(
        cases=lambda options: [made_up(str(n), rows=n) for n in NOISY_ROWS],
        contestants=tuple(NOISY),
        columns=(
            ("rows", lambda row: row.case.name),
            *(
                column
                for who in NOISY
                for column in (
                    (f"{who} %", of(who, "accuracy:.1f")),
                    ("stop", of(who, "stopped")),
                    ("CPU s", of(who, "cpu_seconds:.1f")),
                )
            ),
        ),
        wide=True,
        do=f"{DO}:fit_noisy",
        one_process=True,
        repeats=1,
        threads=1,
        folder=False,
    ),
    "balls": Suite(
        cases=data_cases,
        data=("a9a", "w8a"),
        contestants=("L2SVC",),
        columns=(
            "data",
            ("C", given("C", "{}")),
            ("gamma", given("gamma", "{}")),
            ("certified by", "test"),
            ("eps", "eps:.3g"),
            ("farthest row", "farthest_gap:.3g"),
            ("duality gap", "losses_gap:.3g"),
            ("tol", "tol:.3g"),
        ),
        do=f"{DO}:fit_ball",
        layout="csr",
        repeats=1,
        threads=1,
    ),
}
