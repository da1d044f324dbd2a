"""Crammer and Singer's experiments as Crammer & Singer 2001 describes them, on raw rows.

    python -m tools.benchmarks crammer_singer --part epsilon [--data usps mnist-5000 letter]

epsilon     figure 4: steps and test error by the tolerance
cooling     figure 5: the objective by the number of steps, with a fixed and a cooled level
ladder      figure 6: steps and kernel rows of each improvement, by the number of rows
tables      tables 1 and 2, figure 7: test errors beside one-vs-rest
prepared    tables 1 and 2, figure 7 of rows that are smoothed, normalised or whitened
polynomial  the last experiment of section 7: degree 9, rows divided by their norm
doubt       figure 8: rows with the largest ‖τ‖, and labels that were changed

Rows are those of the files, divided by one constant, the largest value of the training part: with a
gamma that is relative to the distances of rows, that changes nothing. No row or column is scaled,
centred or smoothed. The data of isolet and shuttle are not there.

``tables`` chooses C = 1 / β and gamma by cross-validation as the paper does: 5 folds, or 10 of the
small sets vowel and glass. To save time it does so on at most --validated random rows and with
--validation-tol. The final runs have the paper's ε = 0.001. The opponent is the paper's: the same
machine of two classes, without bias, once for each class. glass has no test part: five folds are
the test, and C and gamma are chosen anew in each. ``prepared`` has C-SVC as the
opponent, one against the rest and one against one. How rows are prepared, C and gamma were chosen
by cross-validation of the training part, and are read from ``crammer_singer_chosen.json``, which
says on how many rows and with what error; the program that chose them is not kept. The other parts
have a C and a gamma of their own (``GIVEN`` in `tools.benchmarks.crammer_singer`).

All figures are counts or errors, and have no noise; speed is not measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tools.benchmarks.bench import Suite

if TYPE_CHECKING:
    import argparse

METHODS = ("crammer-singer", "one-vs-rest")


def run(options: argparse.Namespace) -> int:
    """Print the tables of a part."""
    from tools.benchmarks import crammer_singer

    return crammer_singer.run(options)


def part(*data: str, more: tuple[tuple[str, dict[str, Any]], ...] = ()) -> Suite:
    """Make a part that has some problems by default, and options of its own."""
    names: dict[str, Any] = {"nargs": "+", "metavar": "NAME", "default": list(data)}
    named = (("--data", names),) if data else ()
    return Suite(program=run, threads=1, folder=False, more=named + more)


MOST_STEPS: tuple[str, dict[str, Any]] = ("--most-steps", {"type": int, "default": 100_000})
SETS = ("usps", "letter", "satimage", "mnist-5000", "letter-5000", "vowel", "glass")
PARTS = {
    "epsilon": part("usps", "mnist-5000", "letter"),
    "cooling": part(
        *("usps", "mnist-5000"), more=(("--rows", {"type": int, "default": 2000}), MOST_STEPS)
    ),
    "ladder": part(
        more=(
            ("--sizes", {"type": int, "nargs": "+", "default": [1000, 2000, 4000]}),
            ("--ladder-tol", {"type": float, "default": 0.01}),
            MOST_STEPS,
        )
    ),
    "tables": part(
        *SETS,
        more=(
            ("--methods", {"nargs": "+", "choices": METHODS, "default": list(METHODS)}),
            ("--validated", {"type": int, "default": 1000, "help": "rows of cross-validations"}),
            ("--validation-tol", {"type": float, "default": 0.01}),
        ),
    ),
    "prepared": part("mnist", *SETS),
    "polynomial": part(
        "mnist", more=(("--C", {"type": float, "nargs": "+", "default": [1.0, 8.0]}),)
    ),
    "doubt": part(
        *("usps", "mnist-5000"),
        more=(("--shown", {"type": int, "default": 6, "help": "rows of each set"}),),
    ),
}
