"""What most of the time went into, in words, and advice only where figures say that it helps."""

import pytest

from bigsvm.report.time_spent import (
    AGAIN,
    LEAST_SECONDS,
    MANY_STEPS,
    most_of_the_time,
    slower_than_alone,
)
from bigsvm.training.result import PHASES


def told(phase, *, share=0.8, of_one=True, **figures):
    seconds = dict.fromkeys(PHASES, 10 * (1 - share) / (len(PHASES) - 1)) | {phase: 10 * share}
    counts = {"n_support": 1000, "n_iter": 1000, "row_misses": 1000, "bytes_read": 0}
    certificate = {**counts, "cpu_idle": None, **figures, "seconds_by_phase": seconds}
    return most_of_the_time(certificate, of_one=of_one)


@pytest.mark.parametrize("phase", PHASES)
def test_the_phase_is_named_with_its_share(phase):
    assert told(phase).startswith("most of the time, 80%, went into ")
    assert told(phase, share=0.4).startswith("the largest part of the time, 40%, went into ")


def test_support_vectors_of_sweeps_are_counted():
    assert "kernel values of all rows with 12 000 support vectors" in told(
        "sweeps", n_support=12_000
    )


@pytest.mark.parametrize(
    ("phase", "figures", "advice"),
    [
        ("sweeps", {"cpu_idle": 0.05}, "more of them would help"),
        ("sweeps", {"cpu_idle": 0.9, "bytes_read": 1}, "faster disk or more memory"),
        ("kernel_rows", {"row_misses": AGAIN * 1000 + 1}, "more memory"),
        ("steps", {"n_iter": MANY_STEPS * 1000 + 1}, "smaller C or a larger tol"),
    ],
)
def test_advice_is_given_only_where_the_figures_say_so(phase, figures, advice):
    assert advice in told(phase, **figures)
    assert advice not in told(phase)


def test_threads_do_not_help_steps_of_one_function():
    assert "more threads would not help" in told("steps")
    assert "threads" not in told("steps", of_one=False)
    assert "threads" not in told("sweeps", cpu_idle=0.5)


def test_short_runs_and_unknown_phases_are_not_told():
    short = dict.fromkeys(PHASES, LEAST_SECONDS / 10)
    for seconds in (None, {}, short, {"of another version": 9.0}):
        assert most_of_the_time({"seconds_by_phase": seconds}, of_one=True) is None


@pytest.mark.parametrize(
    ("waited", "alone", "is_told"),
    [(12.0, 3.0, True), (12.0, 9.0, False), (1.0, 0.1, False), (None, None, False)],
)
def test_workers_that_are_slower_than_this_process_are_told(waited, alone, is_told):
    costs = {} if waited is None else {"seconds_waited": waited, "seconds_alone": alone}
    told = slower_than_alone(costs)
    assert (told is not None) == is_told
    if is_told:
        assert "waited 12.0 s" in told
        assert "about 3.0 s" in told
