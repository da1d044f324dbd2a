"""Child processes of the benchmarks: what they report, and those that are stopped."""

import signal
import sys

import pytest

from tools.benchmarks import children


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('noise\n{"a": 1}\n', {"a": 1}),
        ('{\n "a": 1\n}', {"a": 1}),
        ("no json", {}),
        ("[1]", {}),
        ("", {}),
    ],
)
def test_answer_is_the_last_line_or_the_whole(text, value):
    assert children.last_json(text) == value


def test_child_reports_answer_threads_and_memory():
    program = (
        "import json, os; x = bytearray(100_000_000); "
        "x[::1024] = b'1' * len(x[::1024]); "
        "print('talk'); print(json.dumps({'threads': os.environ['OMP_NUM_THREADS']})); "
        "import time; time.sleep(1)"
    )
    finished = children.run_child([sys.executable, "-c", program], threads=2)
    assert finished.returncode == 0
    assert finished.answer == {"threads": "2"}
    assert 100_000_000 < finished.peak_rss < 300_000_000
    assert finished.seconds > finished.cpu_seconds > 0
    assert finished.fit_began is None


def test_peak_of_a_child_is_not_that_of_a_larger_parent():
    x = bytearray(250_000_000)
    x[::4096] = b"1" * len(x[::4096])
    finished = children.run_child([sys.executable, "-c", "import time; time.sleep(1)"], threads=1)
    assert 1_000_000 < finished.peak_rss < 150_000_000
    assert len(x) == 250_000_000


def test_child_that_takes_too_long_is_given_up():
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    finished = children.run_checked(command, threads=1, give_up_after=0.5)
    assert finished.gave_up


def test_a_fit_has_its_time_from_the_moment_it_begins():
    program = (
        "import time; time.sleep(1); print('fit began at', repr(time.time()), flush=True); "
        "time.sleep(60)"
    )
    command = [sys.executable, "-c", program]
    finished = children.run_checked(command, threads=1, give_up_after=0.4, of_the_fit=True)
    assert finished.gave_up
    assert finished.seconds > 1.3
    assert finished.ended - finished.fit_began > 0.3
    assert children.fit_began("fit began at 1") is None  # the line may not be complete
    assert children.fit_began("fit began at 17.5\nfit be") == 17.5


def test_what_comes_after_a_fit_is_not_given_up():
    program = (
        "import time; print('fit began at', repr(time.time()), flush=True); "
        "print('fit ended', flush=True); time.sleep(0.8)"
    )
    command = [sys.executable, "-c", program]
    finished = children.run_checked(command, threads=1, give_up_after=0.4, of_the_fit=True)
    assert not finished.gave_up
    assert finished.seconds > 0.8


def test_child_may_be_killed_while_it_runs():
    finished = children.run_child(
        [sys.executable, "-c", "import time; time.sleep(60)"],
        threads=1,
        while_running=lambda child: child.send_signal(signal.SIGKILL),
    )
    assert finished.returncode == -signal.SIGKILL
    assert finished.answer == {}


def test_failed_child_ends_the_benchmark_with_its_own_words():
    with pytest.raises(SystemExit, match=r"(?s)ended with 1:.*no such thing"):
        children.run_checked([sys.executable, "-c", "raise OSError('no such thing')"], threads=1)
