"""A signal before there is anything to save."""

import os
import signal

import numpy as np
import pytest
from command_line import run_here, two_clouds

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
    with Interruption() as interruption:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGUSR1)
        assert interruption.times_asked() == 2
        assert not interruption.requested()
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
