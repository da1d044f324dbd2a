"""``bigsvm libsvm-programs``: executables with the names of LIBSVM's programs, for scripts."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from bigsvm.cli.options import local
from bigsvm.cli.outputs import Overwrite, say
from bigsvm.errors import ParameterError
from bigsvm.files import part_of

PROGRAMS = ("svm-train", "svm-predict", "svm-scale")


def command(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", callback=local, help="Folder to write them to."),
    ],
    overwrite: Overwrite = False,
) -> None:
    """Write svm-train, svm-predict and svm-scale, which run the commands of these names.

    Scripts that call LIBSVM's programs, and its grid.py and easy.py, go on as they are if the
    folder comes first in PATH. The programs run the Python that writes them.

    \b
    Examples:
      bigsvm libsvm-programs programs
      PATH="$PWD/programs:$PATH" sh experiments.sh
    """
    for path in (folder / name for name in PROGRAMS):
        if path.exists() and not overwrite:
            raise ParameterError(f"{path} exists; name another folder, or give --overwrite")
    folder.mkdir(parents=True, exist_ok=True)
    for name in PROGRAMS:
        # -P: a folder named bigsvm where a script runs is not the package.
        run = f'exec {shlex.quote(sys.executable)} -P -m bigsvm {name} "$@"'
        with part_of(folder / name) as part:
            part.write_text(f"#!/bin/sh\n{run}\n")
            part.chmod(0o755)
        say(str(folder / name))
