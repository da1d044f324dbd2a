"""The README does what it says: its blocks run, in order, as they stand there."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from bigsvm.cli import app
from bigsvm.data.store import open_store
from bigsvm.models import KernelExpansion
from tools.benchmarks import __main__ as suites

REPOSITORY = Path(__file__).parents[1]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
SETUP, GUIDE = BLOCKS[:2], BLOCKS[2:]


def test_the_first_two_blocks_are_the_main_job_and_the_tests():
    (demo_kind, demo), (tests_kind, tests) = SETUP
    assert demo_kind == tests_kind == "sh"
    assert demo.strip() == (
        "python3 -m venv .venv && .venv/bin/pip install -q -e . && .venv/bin/bigsvm demo"
    )
    assert tests.strip() == (
        "python3 -m venv .venv && .venv/bin/pip install -q -e '.[test]' "
        "&& .venv/bin/pytest -n auto -m 'not slow'"
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An empty folder in which the guide has been followed from beginning to end."""
    place = tmp_path_factory.mktemp("guide")
    programs = tmp_path_factory.mktemp("bin")
    command = programs / "bigsvm"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m bigsvm "$@"\n')
    command.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(REPOSITORY),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        for kind, text in GUIDE:
            if kind == "python":
                # Each block imports all it uses.
                exec(compile(text, "README.md", "exec"), {"__name__": "__main__"})
                continue
            ended = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", text],
                capture_output=True,
                text=True,
                check=False,
                env=environment,
            )
            assert ended.returncode == 0, f"{text}\n{ended.stdout}\n{ended.stderr}"
            assert "warning" not in ended.stderr.lower(), f"{text}\n{ended.stderr}"
    return place


def test_the_guide_is_shell_and_python_and_runs(folder):
    assert {kind for kind, _ in GUIDE} == {"sh", "python"}
    made = {
        "train.zarr",
        "scaled.zarr",
        "test-scaled.zarr",
        "model.safetensors",
        "digits.safetensors",
        "digits.model",
        "graph.safetensors",
        "run",
        "dask.zarr",
    }
    assert made <= set(os.listdir(folder))


def test_the_scaled_test_rows_are_scaled_as_those_of_the_model(folder):
    model = KernelExpansion.load(folder / "scaled.safetensors")
    assert open_store(folder / "test-scaled.zarr").scaler == model.scaler is not None


def test_predictions_are_in_the_order_of_the_text(folder):
    predicted = (folder / "predicted.txt").read_text().splitlines()
    truth = [line.split()[0] for line in (folder / "test.libsvm").read_text().splitlines()]
    right = sum(p == t for p, t in zip(predicted, truth, strict=True))
    values = [float(line) for line in (folder / "values.txt").read_text().splitlines()]
    assert [value > 0 for value in values] == [label == "1" for label in predicted]
    assert right / len(truth) == json.loads((folder / "predicted.json").read_text())["accuracy"]
    assert right / len(truth) > 0.9


def test_ten_digits_are_told_apart(folder):
    predicted = (folder / "digits.txt").read_text().split()
    truth = [line.split()[0] for line in (folder / "digits-test.libsvm").read_text().splitlines()]
    assert sum(p == t for p, t in zip(predicted, truth, strict=True)) / len(truth) > 0.9
    rules = [
        KernelExpansion.load(folder / f"{name}.safetensors").rule for name in ("digits", "graph")
    ]
    assert rules == ["ovo", "ddag"]


def test_probabilities_suit_the_labels(folder):
    head, *lines = (folder / "probabilities.txt").read_text().splitlines()
    assert head == "labels 0 1"
    truth = [line.split()[0] for line in (folder / "test.libsvm").read_text().splitlines()]
    of_the_truth = [float(line.split()[1 + int(t)]) for line, t in zip(lines, truth, strict=True)]
    assert sum(of_the_truth) / len(truth) > 0.9


def test_the_labels_that_were_made_wrong_are_the_most_doubtful(folder):
    listed = json.loads((folder / "doubtful.json").read_text())["doubtful"]
    assert len(listed) == 100
    assert {3, 200, 512} <= {one["row"] for one in listed[:6]}


def test_the_model_is_that_of_a_converged_run(folder):
    assert KernelExpansion.load(folder / "model.safetensors").certificate["converged"] is True


def test_every_option_it_names_exists():
    root = get_command(app)
    options = {
        name
        for command in root.commands.values()
        for parameter in command.params
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    for name in suites.names():
        options |= suites.parser_of(name, suites.module_of(name))._option_string_actions.keys()
    named = set(re.findall(r"(?<![\w-])--[a-zA-Z][\w-]*", README))
    assert named <= options


def test_every_row_of_a_measured_table_was_printed_by_a_benchmark():
    printed = {
        line
        for path in (REPOSITORY / "tools" / "benchmarks").glob("*.txt")
        for line in path.read_text(encoding="utf-8").splitlines()
    }
    _, _, rest = README.partition("\n## Measured\n")
    section = rest.partition("\n## ")[0]
    rows = {line for line in section.splitlines() if line.startswith("|")}
    assert rows <= printed
    assert bool(rows) == bool(printed)


def test_files_it_refers_to_exist():
    for name in ("CHANGELOG.md", ".github/CONTRIBUTING.md", "docs/papers.md", "examples"):
        assert name in README
        assert (REPOSITORY / name).exists()
