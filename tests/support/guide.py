"""The pages whose blocks of shell and Python are run, in order, in an empty folder."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "guide.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
GUIDE = BLOCK.findall(PAGE)
"""Kind and text of each block of the guide."""


def follow_page(blocks, name, place, programs, **variables):
    """Follow a page from beginning to end in the folder `place`; `programs` is a folder to use.

    Python runs in this process, or with variables of the environment in one of its own.
    """
    command = programs / "bigsvm"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m bigsvm "$@"\n')
    command.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(REPOSITORY),
        **variables,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        for kind, text in blocks:
            is_python = kind == "python"
            if is_python and not variables:
                # Each block imports all it uses.
                exec(compile(text, name, "exec"), {"__name__": "__main__"})
                continue
            words = [sys.executable] if is_python else ["bash", "-euo", "pipefail"]
            ended = subprocess.run(
                [*words, "-c", text], capture_output=True, text=True, check=False, env=environment
            )
            assert ended.returncode == 0, f"{text}\n{ended.stdout}\n{ended.stderr}"
            if not is_python:
                assert "warning" not in ended.stderr.lower(), f"{text}\n{ended.stderr}"
