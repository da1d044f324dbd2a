"""Tests over all printed sets: which runs count, and what is printed."""

import pytest

from tools import measured
from tools.benchmarks import __main__ as command
from tools.benchmarks.suites import significance

HEAD = "| data | rows | C | solver | accuracy % | CPU seconds |\n|--|--|--|--|--|--|\n"


def text_of(arguments, *rows):
    lines = "".join(f"| {' | '.join(map(str, row))} |\n" for row in rows)
    return f"$ python -m tools.benchmarks sampled_balls {arguments}\n\n{HEAD}{lines}\n"


def of_set(name, C, times, accuracies, deviation=""):
    solvers = ("cvm", "fw", "mfw")
    return [
        (name, 9, C, solver, f"{accuracy}{deviation}", seconds)
        for solver, seconds, accuracy in zip(solvers, times, accuracies, strict=True)
    ]


@pytest.fixture
def texts(tmp_path, monkeypatch):
    monkeypatch.setattr(measured, "TEXTS", tmp_path)
    return tmp_path / "sampled_balls.txt"


def test_the_run_with_the_most_repeats_counts_and_others_do_not(texts):
    texts.write_text(
        text_of("--repeats 3", *of_set("w1a", 8, ("1.0 [0.9-1.1]", 2, 3), (98, 97, 96), " ± 0.1"))
        + text_of("--repeats 1", *of_set("w1a", 8, (7, 7, 7), (50, 50, 50)))
        + text_of("--repeats 9", *of_set("w1a", 64, (8, 8, 8), (50, 50, 50)))
        + text_of("--kernel poly --repeats 9", *of_set("w1a", 8, (9, 9, 9), (50, 50, 50)))
        + text_of("--repeats 2", *of_set("a1a", 2, ("> 300.00", "-", 4), (80, 80, 81)))
    )
    found = significance.printed()
    assert found == {
        "w1a": {"cvm": (3, 1.0, 98.0), "fw": (3, 2.0, 97.0), "mfw": (3, 3.0, 96.0)},
        "a1a": {"mfw": (2, 4.0, 81.0)},
    }


def test_sets_with_all_algorithms_are_tested(texts, capsys):
    names = ("w1a", "w3a", "w4a", "w5a")
    texts.write_text(
        text_of(
            "--repeats 1",
            *(row for k, name in enumerate(names)
              for row in of_set(name, 8, (10 + k, 1 + k, 5 + k), (99, 97, 98))),
            *of_set("w6a", 8, (1, 1, "-"), (99, 99, 99)),
        )
    )  # fmt: skip
    assert command.main(["significance"]) == 0
    printed = capsys.readouterr().out
    assert "sets: w1a, w3a, w4a, w5a\n" in printed
    (seconds,) = [line for line in printed.splitlines() if line.startswith("| measured    | sec")]
    # Each of the four is faster: the least p of four pairs.
    assert seconds.count("0, p 0.062; better on 4") == 2
    assert "inf, p 0 " in seconds
