"""Every output of every command, against what may be at its path already: one table."""

import os
import shlex
import shutil
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import typer
from command_line import BIGSVM, error_of, libsvm_text, run_here, shell, two_clouds

import bigsvm
from bigsvm.cli import app
from bigsvm.cli.easy import MADE
from bigsvm.errors import BigsvmError
from bigsvm.interchange.libsvm_model import write_libsvm_model
from bigsvm.models import KernelExpansion
from bigsvm.selection.split import split_store

COMMANDS = typer.main.get_command(app).commands
GRID = "--log2-C 0,1,1 --log2-gamma 0,1,1 --folds 2 -q"
REFUSED, REPLACED, MADE_THERE, KEPT = "refused", "replaced", "made there", "kept"


class Output(NamedTuple):
    """An output: a command, and what it does where its path has something.

    X is the output; rows, store, model, multi, like and folds are what is read. All names end in
    .png, as only pictures have to.
    """

    words: str
    file: str = REFUSED
    """At another file."""
    folder: str = REFUSED
    """At a folder with a file in it."""
    dangling: str = MADE_THERE
    """At a link to nothing."""


STORE = {"dangling": REFUSED}
FOLDER = {"folder": KEPT, "dangling": REFUSED}
TABLE = {
    ("convert", "store"): [
        Output("convert rows X -q", **STORE),
        Output("convert rows X -q --overwrite", **STORE),
    ],
    ("scale", "output"): [
        Output("scale store X -q", **STORE),
        Output("scale store X -q --overwrite", **STORE),
        Output("scale store X --like like -q --overwrite", **STORE),
    ],
    ("drop", "new"): [Output("drop store 0,3 X -q", **STORE)],
    ("split", "outputs"): [
        Output("split store X other -q", **STORE),
        Output("split store other X -q", **STORE),
    ],
    ("export", "output"): [
        Output("export store X --to libsvm -q"),
        Output("export store X --to libsvm -q --overwrite", file=REPLACED),
        Output("export model X --to libsvm"),
        Output("export model X --to libsvm --overwrite", file=REPLACED),
        Output("export model X --to onnx"),
        Output("export model X --to onnx --overwrite", file=REPLACED),
    ],
    ("train", "model"): [
        Output("train store X --gamma 0.3 -q"),
        Output("train rows X --gamma 0.3 -q"),
    ],
    ("train", "log"): [Output("train store other --gamma 0.3 -q --log X")],
    ("train", "checkpoint"): [Output("train store other -q --checkpoint X", **FOLDER)],
    ("cv", "log"): [
        Output("cv store --folds folds -q --log X"),
        Output("cv store --folds 2 --groups folds -q --log X"),
    ],
    ("cv", "checkpoint"): [Output("cv store --folds folds -q --checkpoint X", **FOLDER)],
    ("search", "model"): [Output(f"search store X {GRID}")],
    ("search", "log"): [Output(f"search store {GRID} --log X")],
    ("search", "checkpoint"): [Output(f"search store {GRID} --checkpoint X", **FOLDER)],
    ("search", "picture"): [
        Output(f"search store {GRID} --picture X"),
        Output(f"search store {GRID} --picture X --overwrite", file=REPLACED),
    ],
    ("plan", "log"): [Output("plan store -q --log X")],
    ("easy", "directory"): [Output("easy rows rows --directory X -q", **STORE)],
    ("easy", "log"): [Output("easy rows --directory other -q --log X", dangling="not run")],
    ("predict", "output"): [
        Output("predict store model -q -o X"),
        Output("predict rows model -q -o X --overwrite", file=REPLACED),
    ],
    ("report", "output"): [
        Output("report model -q -o X --test rows"),
        Output("report model -q -o X --overwrite", file=REPLACED),
    ],
    ("inspect", "image"): [
        Output("inspect multi store --side 2 -q --image X"),
        Output("inspect multi store --side 2 -q --image X --overwrite", file=REPLACED),
    ],
    ("demo", "directory"): [Output("demo --directory X", **STORE)],
    ("svm-train", "words"): [Output("svm-train -q rows X")],
    ("svm-predict", "words"): [Output("svm-predict -q rows model X", file=REPLACED)],
    ("svm-scale", "words"): [Output("svm-scale -s X rows")],
}
"""Commands of each output of each command."""
READ = {
    "sources", "store", "like", "place", "model", "resume", "folds", "groups", "scheduler_file",
    "tls_ca_file", "tls_cert", "tls_key",
    "source", "range_file", "train", "test", "log", "start",
}  # fmt: skip
"""Arguments and options that are read, unless `TABLE` has them for the command."""
NOTHING_REPLACED = {"cache_dir", "checkpoint", "folder"}
"""Folders for what has new names, of other commands; `plan` has a checkpoint and writes none.
That of `libsvm-programs` is in `test_svm_programs.py`."""
NAMES = ("rows", "store", "model", "multi", "like", "folds")
CASES = [pytest.param(output, id=output.words) for outputs in TABLE.values() for output in outputs]


@pytest.fixture(scope="session")
def inputs(tmp_path_factory):
    """A folder with what the commands read."""
    folder = tmp_path_factory.mktemp("inputs")
    X, y = two_clouds(40, 4)
    (folder / "rows.png").write_text(libsvm_text(X, y))
    bigsvm.write_store(folder / "store.png", X, y)
    bigsvm.scale_store(folder / "store.png", folder / "like.png")
    bigsvm.SVC(gamma=0.3).fit(X, y).model_.save(folder / "model.png")
    multi = bigsvm.CrammerSingerSVC(gamma=0.3).fit(folder / "store.png")
    multi.save(folder / "multi.png")
    np.savetxt(folder / "folds.png", np.arange(40) % 2, "%d")
    return folder


@pytest.fixture
def place(inputs, tmp_path, monkeypatch):
    """Give a copy of that folder, which is the current one."""
    folder = shutil.copytree(inputs, tmp_path / "place")
    monkeypatch.chdir(folder)
    return folder


def words_of(output, path):
    """Words of a command, with this path for X; the test is skipped where a package is missing."""
    if "onnx" in output.words.split():
        pytest.importorskip("onnx")
    names = {**{name: f"{name}.png" for name in (*NAMES, "other")}, "X": os.fspath(path)}
    first_parts = [word.partition("/") for word in shlex.split(output.words)]
    return [f"{names.get(name, name)}{slash}{rest}" for name, slash, rest in first_parts]


def contents(folder):
    """What is in a folder: of files their bytes, of links where they lead."""
    return {
        path: os.readlink(path) if path.is_symlink() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def check_refused(output, path, folder):
    before = contents(folder)
    told = error_of(*words_of(output, path))
    assert len(told.splitlines()) == 1
    assert contents(folder) == before


def test_the_table_has_each_output_of_each_command():
    found = set()
    for name, command in COMMANDS.items():
        for parameter in command.params:
            metavar, kind = parameter.metavar or "", str(parameter.type_descriptor.annotation)
            words = (
                "FILE",
                "DIR",
                "STORE",
                "MODEL",
                "OUT",
                "OPTIONS",
                "SOURCE",
                "TRAIN",
                "TEST",
                "NEW",
            )
            if "Path" in kind or any(word in metavar for word in words):
                found.add((name, parameter.name))
    assert set(TABLE) <= found
    assert {name for _, name in found - set(TABLE)} <= READ | NOTHING_REPLACED


@pytest.mark.parametrize("output", CASES)
class TestOutputs:
    def test_another_file(self, output, place):
        Path("X.png").write_text("precious\n")
        if output.file == REFUSED:
            check_refused(output, "X.png", place)
            return
        before = contents(place)
        run_here(*words_of(output, "X.png"))
        after = contents(place)
        assert after[place / "X.png"] != before.pop(place / "X.png")
        assert {path: after[path] for path in before} == before

    @pytest.mark.parametrize("name", NAMES)
    def test_an_input_by_any_name(self, output, place, name):
        path = Path(f"{name}.png")
        if name not in output.words.split():
            return
        os.symlink(path, "link.png")
        (place / "beside").mkdir()
        others = [path, f"beside/../{path}", place / path, "link.png"]
        if path.is_dir():
            others += [path / "inside.png", "link.png/inside.png"]
        else:
            os.link(path, "hard.png")
            others.append("hard.png")
        for other in others:
            check_refused(output, other, place)

    def test_a_folder(self, output, place):
        Path("X.png").mkdir()
        Path("X.png/precious").write_text("precious\n")
        if output.folder == REFUSED:
            check_refused(output, "X.png", place)
            return
        before = contents(place)
        run_here(*words_of(output, "X.png"))
        after = contents(place)
        assert {path: after[path] for path in before} == before

    def test_a_link_to_nothing(self, output, place):
        os.symlink("nothing.png", "X.png")
        if output.dangling == REFUSED:
            check_refused(output, "X.png", place)
        elif output.dangling == MADE_THERE:
            run_here(*words_of(output, "X.png"))
            assert os.readlink("X.png") == "nothing.png"
            assert Path("nothing.png").stat().st_size


@pytest.mark.parametrize(
    "words",
    [
        "train store X --log X", "train store X --checkpoint X", "train store other --log other",
        "train store other --log X --checkpoint X",
        "cv store --log X --checkpoint X", "cv store --folds folds --log X --checkpoint X/in",
        f"search store X {GRID} --log X", f"search store X {GRID} --picture X",
        f"search store {GRID} --log X --picture X",
        f"search store {GRID} --picture X --checkpoint X",
        "split store X X", "split store X X/in.png", "split store X/in.png X",
        *(f"easy rows --directory folder --log folder/{name}" for name in MADE),
        "easy rows --directory X --log X",
    ],
)  # fmt: skip
def test_two_outputs_at_one_place(place, words):
    check_refused(Output(words), "X.png", place)


@pytest.mark.parametrize(
    "words", ["svm-scale -s out rows.png", "train store.png out", "cv store.png --log out"]
)
def test_standard_output_and_another_output_at_one_place(place, words):
    told = shell(f"{BIGSVM} {words} > out", code=2).stderr
    assert "out is where standard output goes" in told


def test_a_split_that_fails_half_way_leaves_nothing(place):
    bigsvm.write_store("there.png", np.eye(4), [0, 1, 0, 1])
    before = contents(place)
    assert "there.png: already exists" in error_of("split", "store.png", "new.png", "there.png")
    assert contents(place) == before


@pytest.mark.parametrize("number", [1, 2])
def test_a_split_that_is_interrupted_leaves_nothing(place, number):
    before, seen = contents(place), []

    def stop(progress):
        seen.append(progress.done == progress.total)
        if sum(seen) == number:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        split_store(bigsvm.open_store("store.png"), ["one", "two"], on_progress=stop)
    assert contents(place) == before


@pytest.mark.parametrize("text", ['{"bigsvm": 1}', 'import "bigsvm"', '        {"bigs'])
def test_a_text_that_names_the_program_is_no_model(place, text):
    Path("X.png").write_text(text)
    check_refused(Output("train store X --gamma 0.3 -q"), "X.png", place)


def test_a_record_of_something_else_in_a_checkpoint_folder_is_not_replaced(place):
    Path("run").mkdir()
    Path("run/run.json").write_text('{"scripts": {}}')
    assert "run.json" in error_of("train", "store.png", "m", "-q", "--checkpoint", "run")
    assert Path("run/run.json").read_text() == '{"scripts": {}}'


def test_a_model_is_replaced_by_another(place):
    for words in ("train store model --C 3 -q", "train store model --C 5 -q"):
        run_here(*words_of(Output(words), ""))
    assert KernelExpansion.load("model.png").certificate["converged"]


class TestPython:
    """Functions replace files, as others do, and stores only where that is asked for."""

    @pytest.mark.parametrize(
        "write",
        [
            lambda path: bigsvm.write_store(path, np.eye(4), [0, 1, 0, 1]),
            lambda path: bigsvm.scale_store("like.png", path),
            lambda path: bigsvm.convert("rows.png", path),
            lambda path: split_store(bigsvm.open_store("like.png"), ["new", path]),
            lambda path: KernelExpansion.load("model.png").save(path),
            lambda path: write_libsvm_model(KernelExpansion.load("model.png"), path),
            lambda path: bigsvm.SVC(checkpoint=path).fit(np.eye(4), [0, 1, 0, 1]),
        ],
        ids=[
            "write_store",
            "scale_store",
            "convert",
            "split_store",
            "save",
            "libsvm",
            "checkpoint",
        ],
    )
    def test_a_store_is_not_replaced(self, place, write):
        before = contents(place)
        with pytest.raises(BigsvmError):
            write("store.png")
        assert contents(place) == before
