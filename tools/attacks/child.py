"""Commands of bigsvm in children that may crash, hang or take memory, and how they ended."""

from __future__ import annotations

import io
import os
import re
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

MOST_ADDRESS_SPACE = 12 << 30
"""Hard memory limit of a child, which protects the machine; the peak is judged separately."""
SLACK = 64 << 20
"""Bytes that a child may take beyond its budget: the interpreter's own memory."""
USAGE_EXIT_CODE = 2
EXPECTED_CODES = (0, USAGE_EXIT_CODE)
ERROR = re.compile(r'(?m)^(?:bigsvm: error: .*|\{"error": .*\})$')
"""The line of an error, which is an object with ``--json``."""


class Ended(NamedTuple):
    """How a command ended.

    Attributes
    ----------
    code : int
        Exit code, negative the signal that ended it.
    out, err : str
    seconds : float
    peak : int
        Most bytes of memory that it took, beside what its parent had before.
    hung : bool
        Whether it was ended at the time limit.
    """

    code: int
    out: str
    err: str
    seconds: float
    peak: int
    hung: bool

    def fault(self, *, memory: int | None = None) -> str | None:
        """Say what is wrong with how it ended; None where nothing is."""
        if self.hung:
            return "hang"
        if self.code < 0:
            return f"signal {signal.Signals(-self.code).name}"
        if "Traceback (most recent call last)" in self.err + self.out:
            last = [line for line in self.err.splitlines() if line.strip()][-1:]
            return f"traceback: {''.join(last)[:120]}"
        if self.code not in EXPECTED_CODES:
            return f"exit code {self.code}"
        if self.code == USAGE_EXIT_CODE and not ERROR.search(self.err):
            return "exit code 2 without a message"
        if memory is not None and self.peak > memory + SLACK:
            return f"{self.peak / 1e6:.0f} MB of memory"
        return None


def in_child(work: Callable[[], int], *, seconds: float) -> Ended:
    """Fork a child that does some work and ends with the code it returns.

    The parent must have no threads at work. A child takes nothing but memory to start: thousands
    of them are affordable.
    """
    began = time.monotonic()
    # An idle child has the memory that a child begins with: less than the parent's.
    idle = _forked(lambda: 0, seconds=seconds)
    ended = _forked(work, seconds=seconds)
    return ended._replace(peak=max(ended.peak - idle.peak, 0), seconds=time.monotonic() - began)


def _forked(work: Callable[[], int], *, seconds: float) -> Ended:
    """Fork one child; its peak is all of its memory."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        pid = os.fork()
        if pid == 0:
            _work(work, out.fileno(), err.fileno())
        hung = not _wait(pid, seconds)
        if hung:
            os.kill(pid, signal.SIGKILL)
        _, status, usage = os.wait4(pid, 0)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read(1 << 20).decode(errors="replace"))
        code = os.waitstatus_to_exitcode(status)
        return Ended(code, *texts, 0.0, usage.ru_maxrss * 1024, hung)


def command(arguments: Sequence[str | Path], *, seconds: float) -> Ended:
    """Run one command line of bigsvm in a child."""
    return in_child(lambda: _main(arguments), seconds=seconds)


def fresh(arguments: Sequence[str | Path]) -> None:
    """Run a command line in this process, which is to succeed: it compiles what children use.

    Raises
    ------
    RuntimeError
        It did not succeed.
    """
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = _main(arguments)
    if code:
        raise RuntimeError(f"{' '.join(map(str, arguments))} ended with {code}: {err.getvalue()}")


@contextmanager
def copied(folder: Path) -> Iterator[Path]:
    """Copy a folder to one beside it, and remove the copy in the end."""
    copy = folder.parent / "copy"
    shutil.copytree(folder, copy, symlinks=True)
    try:
        yield copy
    finally:
        shutil.rmtree(copy)


def filled(words: Sequence[str], folder: Path) -> list[str]:
    """Put a folder in the place of ``{}``."""
    return [word.replace("{}", str(folder)) for word in words]


def table(counts: Mapping[str, Counter[str]], outcomes: Sequence[str]) -> str:
    """Lay out how often things ended in each way."""
    width = max(map(len, counts), default=10)
    lines = [f"{'':{width}}" + "".join(f"  {name:>10}" for name in outcomes)]
    for what, row in counts.items():
        lines.append(f"{what:{width}}" + "".join(f"  {row[name]:10}" for name in outcomes))
    return "\n".join(lines)


def _main(arguments: Sequence[str | Path]) -> int:
    import bigsvm.cli

    given = sys.argv
    sys.argv = ["bigsvm", *map(str, arguments)]
    try:
        return bigsvm.cli.main()
    finally:
        sys.argv = given


def _work(work: Callable[[], int], out: int, err: int) -> None:
    """Be the child: never returns."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESS_SPACE, MOST_ADDRESS_SPACE))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        sys.stdout = os.fdopen(1, "w", errors="replace", closefd=False)
        sys.stderr = os.fdopen(2, "w", errors="replace", closefd=False)
        code = work()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


def _wait(pid: int, seconds: float) -> bool:
    """Wait until a child has ended; False where it has not in this time."""
    handle = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        return bool(poll.poll(seconds * 1000))
    finally:
        os.close(handle)
