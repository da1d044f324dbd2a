"""Killing a process at every step by which it changes files."""

import fcntl
import itertools
import os
import signal
import sys
import traceback
import warnings

STEPS = (
    (os, "mkdir"),
    (os, "rename"),
    (os, "replace"),
    (os, "unlink"),
    (os, "rmdir"),
    (fcntl, "flock"),
)
"""Functions before which a process is killed."""


def killed_at_every_step(work, *, also=(), every=1):
    """Do some work in child processes, each of which is killed `every` steps later than the last.

    Yields the number of steps that a child has done before it was killed, until one ends by itself.

    Parameters
    ----------
    work : callable
        Without arguments.
    also : sequence of (module, name)
        Functions that are steps as well.
    """
    steps = [*STEPS, *also]
    for n in itertools.count(step=every):
        with warnings.catch_warnings():
            # Python 3.12 warns of forks beside threads.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            _work_until(work, steps, n)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if status == 0:
            return
        assert status == -signal.SIGKILL
        yield n


def _work_until(work, steps, n):
    """Be the child: never returns."""
    left = iter(range(n))

    def counted(function):
        def call(*arguments, **options):
            if next(left, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **options)

        return call

    code = 1
    try:
        for module, name in steps:
            setattr(module, name, counted(getattr(module, name)))
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)
