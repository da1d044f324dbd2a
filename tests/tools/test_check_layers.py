"""Layers import one way only, and modules in no circle: here, and in trees made up to offend."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
TOOL = REPOSITORY / "tools" / "check_layers.py"


def check(folder):
    return subprocess.run(
        [sys.executable, str(TOOL), str(folder)], capture_output=True, text=True, check=False
    )


def write_tree(folder, files):
    for name, text in files.items():
        path = folder / "bigsvm" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "bigsvm"


def test_this_repository_is_in_order():
    run = check(REPOSITORY / "bigsvm")
    assert run.returncode == 0, run.stdout


IN_ORDER = {
    "__init__.py": "from bigsvm.estimators.svc import SVC\n__version__ = '0'\n",
    "errors.py": "import json\n",
    "core/smo.py": "from __future__ import annotations\nimport math\nimport numpy as np\n",
    "data/rows.py": "from bigsvm.errors import BigsvmError\nfrom bigsvm.core import text\n",
    "data/schema.py": "from . import rows\nfrom .rows import blocks\nfrom ..budget import parse\n",
    "cli.py": "from bigsvm import __version__\nimport bigsvm.report.table\n",
    "fit/trainer.py": "from bigsvm.papers import disk\n",
}


def test_lower_layers_siblings_and_the_version_are_allowed(tmp_path):
    run = check(write_tree(tmp_path, IN_ORDER))
    assert run.returncode == 0, run.stdout


@pytest.mark.parametrize(
    ("file", "text", "line", "words"),
    [
        ("data/rows.py", "import bigsvm.cli\n", 1, "data imports cli"),
        ("errors.py", "\n\nfrom bigsvm.budget import Budget\n", 3, "errors imports budget"),
        ("data/rows.py", "from ..training import sweep\n", 1, "data imports training"),
        ("data/rows.py", "from bigsvm import models\n", 1, "data imports models"),
        ("duals/box.py", "def f():\n    from bigsvm.models import x\n", 2, "duals imports models"),
        (
            "gram/tiles.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import bigsvm.duals.box\n",
            3,
            "gram imports duals",
        ),
        (
            "budget.py",
            "import importlib\nx = importlib.import_module('bigsvm.report')\n",
            2,
            "budget imports report",
        ),
        ("estimators/svc.py", "from bigsvm import SVC\n", 1, "hides the layer"),
        ("report/table.py", "import bigsvm\n", 1, "hides the layer"),
        ("data/rows.py", "from bigsvm.novel import a, b\n", 1, "novel, which is not in the order"),
        (
            "fit/train.py",
            "import bigsvm.papers.disk\n",
            1,
            "a wing: only fit.choices, fit.trainer, kept, papers may",
        ),
        ("core/smo.py", "import os\n", 1, "core imports os"),
        ("core/smo.py", "from bigsvm.errors import X\n", 1, "core imports bigsvm.errors.X"),
        ("core/smo.py", "from . import gram\n", 1, "core imports bigsvm.core.gram"),
        ("novel/x.py", "", 1, "novel is not in the order"),
    ],
)
def test_an_offence_is_named_with_its_place(tmp_path, file, text, line, words):
    package = write_tree(tmp_path, {**IN_ORDER, file: text})
    run = check(package)
    assert run.returncode == 1
    [offence] = [told for told in run.stdout.splitlines() if told.startswith(str(package))]
    assert offence.startswith(f"{package / file}:{line}: ")
    assert words in offence


def test_every_offence_of_a_file_is_listed(tmp_path):
    package = write_tree(
        tmp_path, {"data/rows.py": "import bigsvm.cli\nfrom bigsvm.models import a, b\n"}
    )
    lines = check(package).stdout.splitlines()
    assert [line.split(":")[1] for line in lines[:-1]] == ["1", "2"]
    assert lines[-1] == "2 imports against the order, 0 circles of imports"


CIRCLES = {
    "two modules": (
        {"data/rows.py": "from . import scaler\n", "data/scaler.py": "from .rows import Rows\n"},
        "bigsvm.data.rows -> bigsvm.data.scaler -> bigsvm.data.rows",
    ),
    "for types only": (
        {
            "data/a.py": "if TYPE_CHECKING:\n    from bigsvm.data.b import B\n",
            "data/b.py": "def f():\n    import bigsvm.data.c\n",
            "data/c.py": "from bigsvm.data import a\n",
        },
        "bigsvm.data.a -> bigsvm.data.b -> bigsvm.data.c -> bigsvm.data.a",
    ),
    "a folder and its file": (
        {"data/__init__.py": "from bigsvm.data.a import A\n", "data/a.py": "import bigsvm.data\n"},
        "bigsvm.data -> bigsvm.data.a -> bigsvm.data",
    ),
    "the whole package": (
        {"__init__.py": "import bigsvm.errors\n", "errors.py": "from . import __version__\n"},
        "bigsvm -> bigsvm.errors -> bigsvm",
    ),
    "itself": ({"errors.py": "import bigsvm.errors\n"}, "bigsvm.errors -> bigsvm.errors"),
}


@pytest.mark.parametrize(("files", "circle"), CIRCLES.values(), ids=CIRCLES)
def test_a_circle_is_named_in_one_line(tmp_path, files, circle):
    run = check(write_tree(tmp_path, files))
    assert run.returncode == 1
    assert run.stdout.splitlines() == [
        f"circle of imports: {circle}",
        "0 imports against the order, 1 circles of imports",
    ]


def test_each_of_two_circles_is_named(tmp_path):
    files = {
        f"data/{name}.py": f"import bigsvm.data.{other}\n"
        for name, other in ("ab", "ba", "cd", "dc", "ea")
    }
    lines = check(write_tree(tmp_path, files)).stdout.splitlines()
    assert [line.split(": ")[1].count("->") for line in lines[:-1]] == [2, 2]


def test_modules_that_share_an_import_are_no_circle(tmp_path):
    files = {"data/a.py": "import bigsvm.data.c\n", "data/b.py": "import bigsvm.data.c\n"}
    files |= {"data/c.py": "", "data/__init__.py": "from bigsvm.data import a, b\n"}
    assert check(write_tree(tmp_path, files)).returncode == 0


def test_a_folder_that_is_not_there_is_an_error(tmp_path):
    run = check(tmp_path / "none")
    assert run.returncode == 2
    assert "is not a folder" in run.stderr
