"""Running bigsvm as a person would: as a process, or in this one where that is not the point."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

REPOSITORY = Path(__file__).parents[1]
BIGSVM = f"{shlex.quote(sys.executable)} -m bigsvm"
"""The command, in scripts of the shell."""

LITTLE = ("--gamma", "0.3", "--memory", "10MB", "--max-iter", "1")
"""Too little memory for `many` rows at once, so that the first sweep finds work left to do."""


def run_here(*arguments, code=0, stdin=None):
    """Run a command in this process, and hold it to an exit code; None is any."""
    from bigsvm.cli import app

    ended = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)
    if ended.exception is not None and not isinstance(ended.exception, SystemExit):
        raise ended.exception
    assert code in (None, ended.exit_code), ended.stdout + ended.stderr
    return ended


def answer(*arguments):
    """Run a command with ``--json``; its one object."""
    [line] = run_here(*arguments, "--json").stdout.splitlines()
    return json.loads(line)


def start(*arguments, cwd=None, stdout=subprocess.PIPE, env=None, **options):
    """Start a command as a process, with `env` beside the environment of this one."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), **(env or {})}
    return subprocess.Popen(
        [sys.executable, "-m", "bigsvm", *map(str, arguments)],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env=environment,
        **options,
    )


def finish(child, code=0):
    """Wait for a process, and hold it to an exit code; returns both of its outputs."""
    try:
        out, err = child.communicate(timeout=1800)
    finally:
        child.kill()
    assert child.returncode == code, f"exit code {child.returncode}\n{out}\n{err}"
    return out, err


def shell(script, *arguments, code=0):
    """Run a script of the shell, in which ``$1`` and so on are the arguments."""
    ended = subprocess.run(
        ["sh", "-c", script, "sh", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        timeout=600,
    )
    assert ended.returncode == code, ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr
    return ended


def two_clouds(n_rows, n_columns=6, *, distance=1.0, seed=0):
    """Rows of two overlapping clouds and their labels -1 and +1."""
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(n_rows) < 0.4, 1.0, -1.0)
    X = rng.normal(size=(n_rows, n_columns)) + distance / 2 * y[:, None]
    return X.astype(np.float32), y


def libsvm_text(X, y, *, first_index=1):
    """LIBSVM text that reads back as exactly these float32 values."""
    lines = []
    for row, label in zip(X, y, strict=True):
        entries = [f"{j + first_index}:{float(v)!r}" for j, v in enumerate(row) if v]
        lines.append(" ".join([f"{label:g}", *entries]))
    return "\n".join(lines) + "\n"


def error_of(*arguments):
    """Run a command that must fail for a reason of the user's; that reason, a single line."""
    ended = run_here(*arguments, code=2)
    assert ended.stdout == ""
    last = ended.stderr.splitlines()[-1]
    if "--json" in arguments:
        return json.loads(last)["error"]
    assert last.startswith("bigsvm: error: ")
    return last
