"""The program itself: it starts at once, names its commands and says how they are used."""

import subprocess
import sys

import pytest
from command_line import REPOSITORY, finish, run_here, start
from typer.main import get_command

from bigsvm import __version__
from bigsvm.cli import app

COMMANDS = ("convert", "scale", "info", "train", "predict", "demo")
SLOW_MODULES = ("numba", "sklearn", "dask", "zarr", "scipy", "numpy", "rich.progress")


class TestStart:
    def test_starts_without_the_modules_that_take_long_to_import(self):
        code = f"""
import sys
import bigsvm.cli
print([name for name in {SLOW_MODULES} if name in sys.modules])
"""
        ended = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=REPOSITORY
        )
        assert ended.stdout.strip() == "[]"

    def test_ends_without_looking_for_garbage_among_what_was_imported(self):
        code = """
import gc, sys
from bigsvm.__main__ import main
sys.argv = ["bigsvm", "--version"]
try:
    main()
finally:
    print(len(gc.get_objects()) < gc.get_freeze_count())
"""
        ended = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=False,
            cwd=REPOSITORY,
        )
        assert ended.stdout.splitlines()[-1] == "True"

    def test_version(self):
        assert run_here("--version").stdout == f"bigsvm {__version__}\n"

    def test_help_names_every_command(self):
        shown = run_here("--help").stdout
        assert all(command in shown for command in COMMANDS)

    @pytest.mark.parametrize("command", COMMANDS)
    def test_help_of_a_command_has_examples(self, command):
        shown = run_here(command, "--help").stdout
        assert f"Examples:\n    bigsvm {command}" in shown or f"\n    bigsvm {command}" in shown
        assert "\x1b" not in shown

    @pytest.mark.parametrize(
        ("typed", "words"),
        [
            ("train --kernel r", ["rbf"]),
            ("train --gamma ", ["scale", "auto", "mean-distance"]),
            ("search --formulation nu-s", ["nu-svc", "nu-svr"]),
            ("train --class-weight b", ["balanced"]),
            ("cv --scoring roc_auc_ovr", ["roc_auc_ovr", "roc_auc_ovr_weighted"]),
            ("convert --layout ", ["auto", "dense", "sparse"]),
            ("sp", ["split"]),
        ],
    )
    def test_tab_completes_values(self, typed, words):
        line = ["bigsvm", *typed.split(" ")]
        told = {"COMP_WORDS": " ".join(line), "COMP_CWORD": str(len(line) - 1)}
        out, _ = finish(start(env={"_BIGSVM_COMPLETE": "complete_bash", **told}))
        assert out.split() == words

    @pytest.mark.parametrize(
        ("words", "value"),
        [
            ("train --kernel RBF", "rbf"),
            ("plan --formulation C-SVC", "c-svc"),
            ("train --gamma Scale", "scale"),
            ("convert --layout DENSE", "dense"),
            ("convert --dtype Float64", "float64"),
            ("scale --method MinMax", "minmax"),
            ("export --to ONNX", "onnx"),
            ("predict --zero-based NO", "no"),
        ],
    )
    def test_words_of_a_list_are_known_in_capitals(self, words, value):
        name, option, word = words.split()
        command = get_command(app).commands[name]
        context = command.make_context(name, ["a", *["b"][: name != "plan"], option, word])
        [parameter] = [made.name for made in command.params if option in made.opts]
        assert context.params[parameter] == value

    def test_an_unknown_option_is_wrong_usage(self):
        assert "--nonsense" in run_here("train", "--nonsense", code=2).stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("train", "", "m"),
        ("train", "train.zarr", ""),
        ("train", "train.zarr", "m", "--checkpoint", ""),
        ("train", "train.zarr", "m", "--checkpoint="),
        ("train", "train.zarr", "m", "--cache-dir", ""),
        ("train", "--resume", ""),
        ("info", ""),
        ("convert", "text", ""),
        ("predict", "train.zarr", "m", "--output", ""),
    ],
)
def test_empty_words_are_not_the_current_folder(data, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.zarr").symlink_to(data / "train.zarr")
    before = sorted(tmp_path.iterdir())
    assert "is empty" in run_here(*arguments, code=2).stderr
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(("shell", "words"), [("bash", "bigsvm exp"), ("zsh", "bigsvm exp")])
def test_shells_complete_commands(shell, words):
    environment = {
        "_BIGSVM_COMPLETE": f"complete_{shell}", "COMP_WORDS": words, "COMP_CWORD": "1",
        "_TYPER_COMPLETE_ARGS": words,
    }  # fmt: skip
    out, _ = finish(start(env=environment))
    assert "export" in out
