"""What the process gives back, seen from outside by its resident memory."""

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import os, threading
import numpy as np
from bigsvm.allocator import give_back_freed_memory, share_freed_memory

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")

if {share}:
    share_freed_memory()
held = []
barrier = threading.Barrier(4)
def fill():
    parts = [np.ones(1 << 13) for _ in range(800)]  # 64 kB each, from the heap
    barrier.wait()  # one that is late would take what another has freed
    held.append(parts[::10])
threads = [threading.Thread(target=fill) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
before = resident()
if {give}:
    give_back_freed_memory()
print(before - resident())
"""


def freed(*, give, share=False):
    script = SCRIPT.format(give=give, share=share)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(
    not (Path("/proc/self/statm").exists() and hasattr(ctypes.CDLL(None), "malloc_trim")),
    reason="for glibc, on a system that tells a process's memory",
)
def test_holes_are_given_back():
    assert freed(give=False) == 0
    assert freed(give=True) > 100 << 20
    assert freed(give=True, share=True) > 100 << 20
