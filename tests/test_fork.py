"""A process that is forked while other threads of its parent are at work."""

import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, sys, threading, time
import numpy as np
import bigsvm
from bigsvm.core import gram
assert gram.MR  # the core is run when it is first used
from numba.core.compiler_lock import global_compiler_lock
held = threading.Event()
def load():
    with global_compiler_lock:
        held.set()
        time.sleep(0.5)
threading.Thread(target=load).start()
held.wait()
child = os.fork()
if child == 0:
    signal.alarm(300)
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 2)), np.arange(40) % 2
    bigsvm.SVC().fit(X, y).predict(X)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.fault("surroundings")
def test_a_fork_while_another_thread_loads_compiled_code_trains():
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    assert ended.stdout == "0\n", ended.stderr
