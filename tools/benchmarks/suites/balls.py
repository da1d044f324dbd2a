"""Balls beside C-SVC, and beside a core vector machine of LibCVM's kind.

    python -m tools.benchmarks balls [--data a9a w8a mnist] [--times 1] [--give-up 120]

The exact C-SVC, the certified ball and sampled ones (certify=False) take turns. ``LibCVM's way`` is
our own code with solver "cvm", which adds one point of each sample, as LibCVM does; its search ends
after --give-up seconds, and it is then what it had become. C and gamma are those that all other
benchmarks have for these rows. With --times FACTOR, gamma is FACTOR / the average squared distance
of two rows, and C is 1 for a9a and 64 for the others. Balls have another loss than C-SVC: the same
C is not the same model. mnist is 0-4 against 5-9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tools.benchmarks.bench import Suite
from tools.benchmarks.data import data_set
from tools.benchmarks.results import Case, Row, ratio_to

if TYPE_CHECKING:
    import argparse

C_SVC, LIBCVM = "C-SVC", "LibCVM's way"
SAMPLING, FEW = 59, 4
"""Rows of a sample: as in the paper, and where speed counts more than half a percent."""
C_OF_TIMES = {"a9a": 1.0}
C_OF_OTHERS = 64.0
MACHINES: dict[str, tuple[str, dict[str, Any]]] = {
    C_SVC: ("SVC", {}),
    "ball, certified": ("L2SVC", {"sampling": SAMPLING}),
    "ball, sampled": ("L2SVC", {"sampling": SAMPLING, "certify": False}),
    f"ball, samples of {FEW}": ("L2SVC", {"sampling": FEW, "certify": False}),
    "ball, sampled, mfw": ("L2SVC", {"sampling": SAMPLING, "certify": False, "solver": "mfw"}),
    LIBCVM: ("L2SVC", {"sampling": SAMPLING, "certify": False, "solver": "cvm"}),
}


def cases(options: argparse.Namespace) -> list[Case]:
    """List the data sets with their C and gamma."""
    found = []
    for data in map(data_set, options.data):
        C, kernel = data.C, {"gamma": data.gamma}
        if options.times is not None:
            C, kernel = C_OF_TIMES.get(data.name, C_OF_OTHERS), {"times": options.times}
        found.append(Case(data.name, data, {"C": C if options.C is None else options.C, **kernel}))
    return found


def fit(job: dict[str, Any]) -> dict[str, Any]:
    """Train once, and test on the test part."""
    import bigsvm
    from tools.benchmarks.contestants import threads, train_and_test

    kind, given = MACHINES[job["who"]]
    if job["who"] == LIBCVM:
        given = {**given, "max_time": job["give_up"]}
    return train_and_test(
        job, getattr(bigsvm, kind)(**job["parameters"], **given, n_jobs=threads())
    )


def heading(row: Row) -> str:
    facts, given = row.case.facts, row.case.parameters
    return (
        f"{row.case.name}: {facts['n_rows']} rows x {facts['n_columns']}; C {given['C']:g}, gamma "
        f"{given['gamma']:.4g}"
    )


SUITE = Suite(
    cases=cases,
    data=("a9a", "w8a", "mnist"),
    contestants=tuple(MACHINES),
    columns=(
        *("who", "seconds"),
        (f"÷ {C_SVC}", ratio_to(C_SVC)),
        *("SVs", "test accuracy %", "stopped"),
    ),
    heading=heading,
    table_of_each_case=True,
    do="tools.benchmarks.suites.balls:fit",
    layout="suitable",
    distances=True,
    give_up=120.0,
    patience=lambda who, runs, options: None,
    more=(
        ("--C", {"type": float, "default": None, "help": "of all data sets"}),
        ("--times", {"type": float, "default": None, "help": "see above"}),
    ),
)
