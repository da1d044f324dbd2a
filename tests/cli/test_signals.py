"""A signal before there is anything to save."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from command_line import REPOSITORY, run_here, two_clouds

from bigsvm import write_store
from bigsvm.cli.signals import Interruption
from bigsvm.fit import gamma


@pytest.fixture(autouse=True)
def hang_ups_have_an_effect():
    """They are ignored where the tests run under ``nohup``."""
    previous = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, previous)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_exit_code_says_which_signal_it_was(tmp_path, monkeypatch, signum):
    """While the weighted variance is computed, which ``--gamma scale`` needs of weighted rows."""
    X, y = two_clouds(300)
    write_store(tmp_path / "s.zarr", X, y, np.full(300, 2.0))
    parts = gamma._parts

    def signalled(block):
        os.kill(os.getpid(), signum)
        yield from parts(block)

    monkeypatch.setattr(gamma, "_parts", signalled)
    ended = run_here("train", tmp_path / "s.zarr", tmp_path / "m", code=128 + signum)
    assert ended.stderr.splitlines()[-1].endswith("nothing was written")
    assert not (tmp_path / "m").exists()


def test_a_hang_up_that_is_ignored_stays_ignored():
    """As ``nohup`` has it."""
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interruption() as interruption:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not interruption.requested()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, previous)


def test_further_hang_ups_do_not_end_a_command_at_once():
    with Interruption() as interruption:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGHUP)
        assert interruption.exit_code == 128 + signal.SIGHUP


def test_a_run_that_is_asked_is_counted_and_goes_on():
    previous = signal.getsignal(signal.SIGUSR1)
    with Interruption() as interruption:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGUSR1)
        assert interruption.times_asked() == 2
        assert not interruption.requested()
    assert signal.getsignal(signal.SIGUSR1) is previous


@pytest.mark.parametrize("moment", ["bigsvm.cli", "typer", "bigsvm.conversion.from_text", "end"])
def test_a_question_before_and_after_there_is_a_run_does_not_end_the_process(tmp_path, moment):
    """At imports that every command has, and those of one command, and when it has ended."""
    script = (
        "import os, signal, sys\n"
        "def ask(name='end', *_):\n"
        f"    if name == {moment!r}:\n"
        "        print('asked', flush=True)\n"
        "        os.kill(os.getpid(), signal.SIGUSR1)\n"
        "sys.meta_path.insert(0, type('Asks', (), {'find_spec': staticmethod(ask)}))\n"
        "from bigsvm.__main__ import main\n"
        "code = main()\n"
        "ask()\n"
        "sys.exit(code)\n"
    )
    (tmp_path / "rows").write_text("1 1:1\n-1 2:1\n")
    ended = subprocess.run(
        [sys.executable, "-c", script, "convert", "rows", "rows.zarr", "-q"],
        capture_output=True, text=True, cwd=tmp_path, timeout=120,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip
    assert (ended.returncode, ended.stdout.count("asked")) == (0, 1), ended.stderr
