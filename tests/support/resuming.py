"""A run that is interrupted or killed, and gone on with, ends at the bits of an undisturbed one."""

import contextlib
import pickle
import random
import signal
import time

from bigsvm.training.checkpoint import Checkpoint
from bigsvm.training.state import Limits
from support import processes
from support.same import assert_same_bits


class StopAt:
    """Interrupts a run when it has been asked so often; −1 is never."""

    def __init__(self, moment=-1):
        self.moment, self.count = moment, 0

    def __call__(self):
        self.count += 1
        return self.count == self.moment


class Until:
    """Interrupts a run from the moment on that it has told of something; its `listen` listens."""

    def __init__(self, wanted):
        self.wanted, self.reached = wanted, False

    def __call__(self):
        return self.reached

    def listen(self, event):
        self.reached |= self.wanted(event)


class Moments:
    """Notes what a run is doing each time it asks whether to stop, and lets it go on.

    Parameters
    ----------
    describe : callable
        Without arguments; returns the kind of the moment.
    """

    def __init__(self, describe):
        self._describe, self.seen = describe, []

    def __call__(self):
        self.seen.append(self._describe())
        return False

    @property
    def by_kind(self):
        """Moments, counted from 1, by their kind."""
        found = {}
        for moment, kind in enumerate(self.seen, start=1):
            found.setdefault(kind, []).append(moment)
        return found


def with_checkpoint(train):
    """Let ``train(checkpoint=, limits=)`` be an attempt, see `assert_resumed_to_the_same_bits`."""

    def attempt(folder, interrupted):
        with Checkpoint(folder, {}) as checkpoint:
            return train(checkpoint=checkpoint, limits=Limits(interrupted=interrupted))

    return attempt


def assert_resumed_to_the_same_bits(
    attempt, folder, firsts, whole, *, then=(3, -1), same=assert_same_bits
):
    """Interrupt a run at each of some moments, and go on from there in a few more steps.

    Parameters
    ----------
    attempt : callable
        ``attempt(folder, interrupted)`` begins the run, or goes on with the one that is saved in a
        folder; the result has a ``certificate``.
    folder : Path
        Each run is saved in a folder of its own in it.
    firsts : iterable of int
        How often each run has been asked when it is first interrupted.
    whole : object
        The result of the undisturbed run.
    then : sequence of int
        When it is interrupted next, counted from where it goes on; the last is never, −1.
    same : callable
        Compares a result with `whole`.
    """
    n_interrupted = 0
    for first in firsts:
        for moment in (first, *then):
            result = attempt(folder / str(first), StopAt(moment))
            certificate = result.certificate
            if not isinstance(certificate, dict):
                certificate = certificate.as_dict()
            if certificate["stop_reason"] != "interrupted":
                break
            n_interrupted += 1
        same(result, whole)
    assert n_interrupted > 0, "no run was interrupted"


def assert_killed_to_the_same_bits(
    train,
    folder,
    *,
    arguments=(),
    times=2,
    at_least=1,
    pause=0.2,
    same=assert_same_bits,
    after_kill=None,
):
    """Kill a process again and again, each time after it has saved something new.

    Parameters
    ----------
    train : callable
        ``train(folder, *arguments)``, a function of a module, trains with a checkpoint in a folder,
        and returns the result.
    folder : Path
    arguments : sequence
    times, at_least : int
        Most and fewest kills.
    pause : float
        Seconds; random times up to this one pass between a save and the kills after `at_least`.
    same : callable
        Compares the result with that of a process that was not killed.
    after_kill : callable, optional
        Is called with the folder of the checkpoint after each kill.

    Returns
    -------
    The result of the process that was not killed.
    """
    rng, kills = random.Random(0), 0
    whole_run, killed_run = ((train, folder / name, arguments) for name in ("whole", "killed"))
    assert processes.run(_train_and_save, *whole_run) == 0
    while kills < times:
        before = _newest(folder / "killed")
        process = processes.start(_train_and_save, *killed_run)
        while _newest(folder / "killed") == before and process.is_alive():
            time.sleep(0.002)
        if kills >= at_least:  # the first ones at once: they have not ended
            time.sleep(rng.uniform(0, pause))
        process.kill()
        process.join()
        if process.exitcode != -signal.SIGKILL:
            break
        kills += 1
        if after_kill is not None:
            after_kill(folder / "killed")
    assert kills >= at_least
    assert processes.run(_train_and_save, *killed_run) == 0
    killed, whole = (
        pickle.loads((folder / f"{name}.result").read_bytes()) for name in ("killed", "whole")
    )
    same(killed, whole)
    return whole


def _train_and_save(train, folder, arguments):
    result = train(folder, *arguments)
    folder.with_suffix(".result").write_bytes(pickle.dumps(result))


def _newest(folder):
    return max((path.name for path in folder.glob("generation-*")), default="")


def newest_file(folder):
    """What was written last in a folder, and when; files may go while this looks."""
    times = []
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            times.append((path.stat().st_mtime_ns, path))
    return max(times, default=None)
