"""LIBSVM's own programs, from the folder that ``LIBSVM_PROGRAMS`` names, or from the PATH."""

import os
import shutil
import subprocess

import pytest

PROGRAMS = {
    name: shutil.which(name, path=os.environ.get("LIBSVM_PROGRAMS"))
    for name in ("svm-train", "svm-predict", "svm-scale")
}
needs_programs = pytest.mark.skipif(
    None in PROGRAMS.values(),
    reason="no programs of LIBSVM in LIBSVM_PROGRAMS or on the PATH",
)


def program(name, *arguments, cwd=None):
    """Run one of LIBSVM's programs to its end; what it has printed on standard output."""
    command = [PROGRAMS[name], *map(str, arguments)]
    ended = subprocess.run(
        command, check=True, capture_output=True, timeout=1800, text=True, cwd=cwd
    )
    return ended.stdout
