"""Install wheels and sdists in bare environments, and run what the README begins with.

    python -m tools.packaging.bare dist/*

Each Python of the range that is on the PATH gets an environment for each file, with nothing but the
requirements of the package. There the example of the README is run, and the first commands of its
shell blocks: the demonstration, and a conversion, a training and a prediction of digits.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

VERSIONS = ("3.11", "3.12", "3.13", "3.14")
"""Versions of Python that the tests of each change run on."""
_ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_WRITE_DIGITS = """
from sklearn.datasets import dump_svmlight_file, load_digits
images, digits = load_digits(return_X_y=True)
dump_svmlight_file(images[:1200] / 16, digits[:1200], "train.libsvm", zero_based=False)
dump_svmlight_file(images[1200:] / 16, digits[1200:], "test.libsvm", zero_based=False)
"""


def commands_of(readme: str) -> tuple[str, list[str]]:
    """Python example of a README, and the shell commands that are run where it is installed.

    Parameters
    ----------
    readme : str
        Its text.

    Raises
    ------
    ValueError
        If the README has no example of Python, or no command of bigsvm.
    """
    blocks = _BLOCK.findall(readme)
    example = next((text for kind, text in blocks if kind == "python"), None)
    lines = [line for kind, text in blocks if kind == "sh" for line in text.splitlines()]
    parts = [part.strip() for line in lines for part in line.split("&&")]
    # In a block that makes an environment, the program is that of the environment.
    commands = [
        part.removeprefix(".venv/bin/")
        for part in parts
        if part.removeprefix(".venv/bin/").startswith("bigsvm ")
    ]
    if example is None or not commands:
        raise ValueError("the README has no example of Python, or no command of bigsvm")
    return example, commands


def pythons() -> Iterator[tuple[str, str]]:
    """Versions of Python that run here, each with its program."""
    this = "{}.{}".format(*sys.version_info)
    for version in VERSIONS:
        program = sys.executable if version == this else shutil.which(f"python{version}")
        # pyenv has programs for versions that are not chosen; these fail.
        asked = program and subprocess.run([program, "-c", ""], capture_output=True, check=False)
        if program and asked and asked.returncode == 0:
            yield version, program


def try_out(python: str, distribution: Path, example: str, commands: Sequence[str]) -> None:
    """Install a distribution in a new environment, and run the example and the commands there.

    Raises
    ------
    subprocess.CalledProcessError
        If one of them fails.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = folder / "environment"
        programs = environment / "bin"
        # The checkout is neither where commands run nor on the path: what is installed is tried.
        variables = {
            key: value
            for key, value in os.environ.items()
            if key not in {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "NUMBA_CACHE_DIR"}
        } | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}

        def run(*command: str) -> None:
            subprocess.run(command, cwd=folder, env=variables, check=True)

        run(python, "-m", "venv", str(environment))
        run(str(programs / "python"), "-m", "pip", "install", "--quiet", str(distribution))
        run(str(programs / "python"), "-c", example)
        run(str(programs / "python"), "-c", _WRITE_DIGITS)
        for command in commands:
            run("bash", "-euo", "pipefail", "-c", command)


def main(arguments: list[str] | None = None) -> int:
    """Try each distribution on each Python; 1 if one fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("distributions", nargs="+", type=Path, help="wheels and sdists")
    options = parser.parse_args(arguments)
    example, commands = commands_of((_ROOT / "README.md").read_text(encoding="utf-8"))
    rows = []
    for version, program in pythons():
        for distribution in options.distributions:
            start = time.monotonic()
            try:
                try_out(program, distribution.resolve(), example, commands)
                outcome = "ok"
            except subprocess.CalledProcessError as failed:
                outcome = f"FAILED: {failed}"
            seconds = time.monotonic() - start
            rows.append((version, distribution.name, outcome))
            print(f"Python {version}, {distribution.name}: {outcome}, {seconds:.0f} s", flush=True)
    missing = [version for version in VERSIONS if version not in {row[0] for row in rows}]
    if missing:
        print(f"not here: Python {', '.join(missing)}")
    return int(any(outcome != "ok" for _, _, outcome in rows) or not rows)


if __name__ == "__main__":
    sys.exit(main())
