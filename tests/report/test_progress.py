"""Progress: plain lines into a file, a bar on a terminal, and no invented figures."""

import os
import pty
import re
import subprocess
import sys
import threading

import numba
import pytest

from bigsvm.report.progress import (
    LINE_EVERY,
    MOST_NAMED,
    Display,
    RowsProgress,
    TrainingProgress,
)
from bigsvm.report.text import bytes_on_disk, peak_rss_bytes
from bigsvm.training import events

RUN = [
    events.Planned(1000, 5, 100, {"rows": 5_000_000}, 2),
    events.Solving(100, 12345, 0.25),
    events.Sweeping(3, 200, 1000, 40),
    events.Sweeping(3, 600, 1000, 40),
    events.Swept(3, 0.125, 1e-3, -1.5, 42, 7, 75.0, 0.125),
    events.Swept(4, 0.0625, 1e-3, -1.5, 42, 7, 76.0, None),
    events.Checkpointed(9, 0.5),
]

TOTALS = (-1.5, 1e-3, 42, 7, 75.0)
"""What finished pairs have come to."""


def test_plain_lines(capsys):
    with Display(quiet=False) as display:
        show = TrainingProgress(display)
        for event in RUN:
            show(event)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "1 000 rows, 5 columns; working sets of up to 100 rows; 5 MB of arrays",
        "resumed after sweep 2",
        "sweep 3: gap 0.125 (tol 0.001), objective -1.5, 42 support vectors, 7 bounded, "
        "1 min 15 s, threads waited for 12% of it",
        "sweep 4: gap 0.0625 (tol 0.001), objective -1.5, 42 support vectors, 7 bounded, "
        "1 min 16 s",
        "checkpoint 9 written in 0.50 s",
    ]


def test_different_rows_and_how_far_a_working_set_is(capsys):
    asked = []
    with Display(quiet=False, times_asked=lambda: len(asked)) as display:
        show = TrainingProgress(display)
        show(events.Merged(1200, 1000))
        show(RUN[0])
        asked.append(None)
        show(events.Solving(100, 12345, 0.25, 3, 17.5, 42, 1.5, 10.0))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("1 200 rows, 1 000 different, 5 columns; ")
    assert lines[-1] == (
        "solving 100 rows: 12 345 steps, gap of these rows 0.25, objective 17.5, 42 violators, "
        "best gap of all rows 1.5"
    )


def test_workers_are_named_when_they_come_and_go(capsys):
    with Display(quiet=False) as display:
        show = TrainingProgress(display)
        show(events.Joined("tcp://10.0.0.1:1", 1))
        show(events.Joined("tcp://10.0.0.2:1", 4))
        show(events.Left("tcp://10.0.0.2:1", 4))
    assert capsys.readouterr().err.splitlines() == [
        "worker tcp://10.0.0.1:1 has joined: 1 worker, 1 thread now",
        "worker tcp://10.0.0.2:1 has joined: 2 workers, 5 threads now",
        "worker tcp://10.0.0.2:1 has gone, and others do its tasks: 1 worker, 1 thread now",
    ]


def test_fits_of_workers_and_of_samples(capsys):
    asked = []
    with Display(quiet=False, times_asked=lambda: len(asked)) as display:
        show = TrainingProgress(display)
        show(events.Joined("tcp://10.0.0.1:1", 1))
        show(events.TasksUnderWay(0, 5))
        asked.append(None)
        show(events.TasksUnderWay(2, 5))
        show(events.Sampled(2000, 1234, 2, 1.25))
    assert capsys.readouterr().err.splitlines()[1:] == [
        "fits of workers: 2 of 5 tasks done, 1 worker",
        "2 000 rows took 1.2 s: 1 234 support vectors",
    ]


def test_of_hundreds_of_workers_the_first_are_named_and_all_that_go(capsys, monkeypatch):
    monkeypatch.setattr("bigsvm.report.progress.LINE_EVERY", 0.0)
    with Display(quiet=False) as display:
        show = TrainingProgress(display)
        for i in range(300):
            show(events.Joined(f"tcp://10.0.0.1:{i}", 2))
        show(events.Left("tcp://10.0.0.1:250", 2))
        show(events.Sweeping(1, 200, 1000, 40))
    *joined, left, sweeping = capsys.readouterr().err.splitlines()
    assert len(joined) == MOST_NAMED
    assert left.endswith("299 workers, 598 threads now")
    assert "200 of 1 000 rows, 299 workers" in sweeping


def test_a_sweep_says_what_workers_have_done_and_exchanged(capsys, monkeypatch):
    monkeypatch.setattr("bigsvm.report.progress.LINE_EVERY", 0.0)
    with Display(quiet=False) as display:
        show = TrainingProgress(display)
        show(events.Joined("tcp://10.0.0.1:1", 2))
        show(events.Sweeping(1, 200, 1000, 40, 17, 2 * 10**6, 3 * 10**3))
    sweeping = capsys.readouterr().err.splitlines()[-1]
    assert sweeping.endswith("1 worker, 17 tasks, 2 MB sent, 3 kB returned")


def test_a_resumed_run_says_what_it_takes_as_recorded(capsys):
    with Display(quiet=False) as display:
        TrainingProgress(display)(events.TakenAsRecorded(33, 45))
    assert capsys.readouterr().err.startswith("the results of 33 of 45 finished pairs are taken as")


def test_checkpoints_every_second_are_not_a_line_each(capsys, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("bigsvm.report.progress.time.monotonic", lambda: now[0])
    with Display(quiet=False) as display:
        show = TrainingProgress(display)
        for generation in range(1, 26):
            show(events.Checkpointed(generation, 0.5))
            now[0] += 1
    shown = [int(line.split()[1]) for line in capsys.readouterr().err.splitlines()]
    assert shown == list(range(1, 26, round(LINE_EVERY)))


@pytest.mark.parametrize("quiet", [False, True])
def test_a_command_says_once_that_it_compiles(quiet, capsys):
    with Display(quiet=quiet):
        for _ in range(2):
            numba.njit(lambda x: x + 1)(1)
    assert capsys.readouterr().err.count("compiling for this processor") == (not quiet)


def test_quiet_leaves_warnings(capsys):
    with Display(quiet=True) as display:
        show = TrainingProgress(display)
        for event in RUN:
            show(event)
        display.warn("careful")
    assert capsys.readouterr().err == "bigsvm: warning: careful\n"


class _Recorder(Display):
    """Remembers what would move."""

    def __init__(self):
        super().__init__(quiet=False)
        self.moves = []

    def move(self, what, note, done, total):
        self.moves.append((what, note, done, total))


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("bigsvm.report.progress.time.monotonic", lambda: now[0])
    return now


def test_rate_and_time_left_are_of_this_process_and_this_sweep(clock):
    display = _Recorder()
    show = TrainingProgress(display)
    # Resumed in the middle of a sweep: the first 600 rows were another process's.
    show(events.Sweeping(3, 600, 1000, 40))
    clock[0] += 2
    show(events.Sweeping(3, 700, 1000, 40))
    clock[0] += 10
    show(events.Sweeping(4, 100, 1000, 40))
    assert display.moves == [
        ("sweep 3", "600 of 1 000 rows", 600, 1000),
        ("sweep 3", "700 of 1 000 rows, 50 rows/s, this sweep ends in 6.0 s", 700, 1000),
        ("sweep 4", "100 of 1 000 rows", 100, 1000),
    ]


def test_a_calibration_moves_over_the_rows_held_out():
    recorder = _Recorder()
    TrainingProgress(recorder)(events.Calibrating(500, 2000))
    assert recorder.moves == [("calibrating", "500 of 2 000 rows held out", 500, 2000)]


def test_time_left_of_pairs_is_of_this_process_and_of_their_work(clock):
    recorder = _Recorder()
    show = TrainingProgress(recorder)
    # Resumed after 10 pairs: they are not of this process.
    show(events.PairsUnderWay(10, 45, 100.0, 500.0, *TOTALS))
    clock[0] += 2
    show(events.PairsUnderWay(10, 45, 110.0, 500.0, *TOTALS))  # too little to tell the pace
    clock[0] += 2
    show(events.PairsUnderWay(11, 45, 200.0, 500.0, *TOTALS))
    clock[0] += 0.01  # too soon after the last one to be shown
    show(events.PairsUnderWay(12, 45, 210.0, 500.0, *TOTALS))
    show(events.PairsUnderWay(45, 45, 500.0, 500.0, *TOTALS))
    assert recorder.moves == [
        ("pairs of classes", "10 of 45 done", 100.0, 500.0),
        ("pairs of classes", "10 of 45 done", 110.0, 500.0),
        ("pairs of classes", "11 of 45 done, all end in about 12.0 s", 200.0, 500.0),
        ("pairs of classes", "45 of 45 done, all end in about 0.0 s", 500.0, 500.0),
    ]


def test_rows_progress(clock):
    display = _Recorder()
    show = RowsProgress(display, "predicting", 1000)
    clock[0] += 2
    show(500)
    note = "500 of 1 000 rows, 250 rows/s, ends in 2.0 s"
    assert display.moves == [("predicting", note, 500, 1000)]


def test_progress_without_a_terminal_is_a_line_now_and_then(clock, capsys):
    with Display(quiet=False) as display:
        for _ in range(25):
            clock[0] += 1
            display.move("reading", "some", 1, 2)
    assert capsys.readouterr().err == "reading: some\n" * 2


PROGRAM = """
import time
from bigsvm.report.progress import Display, TrainingProgress
from bigsvm.training.events import Checkpointed, Planned, Solving, Sweeping, Swept
with Display(quiet=False) as display:
    show = TrainingProgress(display)
    for event in EVENTS:
        show(event)
        time.sleep(0.3)
""".replace("EVENTS", repr(RUN))


def on_a_terminal(environment):
    """What the program above writes to a terminal."""
    ours, theirs = pty.openpty()
    written = []

    def read():
        try:
            while piece := os.read(ours, 4096):
                written.append(piece)
        except OSError:
            pass  # how Linux says that the other end is closed

    reader = threading.Thread(target=read)
    reader.start()
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120", **environment},
        check=False,
    )
    os.close(theirs)
    reader.join()
    os.close(ours)
    text = b"".join(written).decode()
    assert ended.returncode == 0, text
    assert ended.stdout == b""
    return text


COLOUR = re.compile(r"\x1b\[[0-9;]*[1-9][0-9;]*m")


def test_a_terminal_shows_a_bar_beside_the_lines():
    text = on_a_terminal({})
    assert "solving 100 rows" in text
    assert "600 of 1 000 rows" in text
    assert "sweep 3: gap 0.125" in text


def test_a_stage_of_unknown_length_does_not_inherit_the_length_of_the_last(monkeypatch):
    monkeypatch.setattr("bigsvm.report.progress.is_watched", lambda: True)
    with Display(quiet=False) as display:
        for what, done, total in (("sweep 1", 5, 10), ("sweep 1", 6, 10), ("solving", None, None)):
            display.move(what, "", done, total)
            [task] = display._bar.tasks
            assert (task.description, task.completed, task.total) == (what, done or 0, total)


def test_no_color_is_honoured():
    text = on_a_terminal({"NO_COLOR": "1"})
    assert "600 of 1 000 rows" in text
    assert not COLOUR.search(text)


def test_a_dumb_terminal_gets_lines_only():
    assert "\x1b" not in on_a_terminal({"TERM": "dumb"})


def test_peak_memory_is_that_of_this_process():
    # In a process of its own: whose peak does not start at this one's.
    code = "from bigsvm.report.text import peak_rss_bytes; print(peak_rss_bytes())"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert 1e6 < int(ended.stdout) < 100e6
    before = peak_rss_bytes()
    block = b"x" * 200_000_000
    assert peak_rss_bytes() >= min(before, len(block))


def test_bytes_on_disk(tmp_path):
    (tmp_path / "a").write_bytes(b"12345")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "c").write_bytes(b"123")
    assert bytes_on_disk(tmp_path) == 8


def test_a_folder_that_goes_away_while_it_is_measured_counts_nothing(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"12345")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "c").write_bytes(b"123")
    scan = os.scandir

    def scan_late(path):
        if os.fspath(path) == str(tmp_path / "b"):
            (tmp_path / "b" / "c").unlink()
            (tmp_path / "b").rmdir()
        return scan(path)

    monkeypatch.setattr(os, "scandir", scan_late)
    assert bytes_on_disk(tmp_path) == 5


def test_a_person_who_asks_is_told_where_the_run_is_and_that_it_was_saved(capsys):
    asked = []
    with Display(quiet=True, times_asked=lambda: len(asked)) as display:
        show = TrainingProgress(display)
        for event in RUN:
            show(event)
        asked.append("now")
        for event in (*RUN, *RUN):
            show(event)
    assert capsys.readouterr().err.splitlines() == [
        "solving 100 rows: 12 345 steps, gap of these rows 0.25",
        "checkpoint 9 written in 0.50 s",
    ]
