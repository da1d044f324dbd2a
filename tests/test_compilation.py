"""How functions are compiled."""

import gc
import os
import resource
import subprocess
import sys
from types import SimpleNamespace

import numba
import numpy as np
import pytest
from command_line import REPOSITORY, error_of, libsvm_text, two_clouds

from bigsvm import compilation
from bigsvm.cli import warm_up
from bigsvm.compilation import compilations, compiled, inlined, inner

pytestmark = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")


class Looks(numba.core.event.Listener):
    """Whether garbage is collected when a compilation begins and when it has ended."""

    def __init__(self):
        self.enabled = []

    def on_start(self, event):
        self.enabled.append(gc.isenabled())

    def on_end(self, event):
        self.enabled.append(gc.isenabled())


@pytest.mark.parametrize("was_enabled", [True, False])
def test_no_garbage_is_collected_while_functions_are_compiled(was_enabled):
    part = inner(lambda x: x + 1, cache=False)
    whole = compiled(lambda x: 2 * part(x), cache=False)
    looks = Looks()
    if not was_enabled:
        gc.disable()
    try:
        with compilations() as counted, numba.core.event.install_listener("numba:compile", looks):
            assert whole(1) == 4
        assert gc.isenabled() == was_enabled
    finally:
        gc.enable()
    assert counted.n_functions == 2
    assert looks.enabled == [False, False, False, was_enabled]


def test_garbage_is_collected_again_after_a_function_that_does_not_compile():
    with pytest.raises(numba.TypingError):
        compiled(lambda x: x.absent, cache=False)(1)
    assert gc.isenabled()


def test_decorators_take_options():
    assert compiled(cache=False)(lambda x, y: x / y)(1.0, 0.0) == float("inf")
    with pytest.raises(ZeroDivisionError):
        compiled(cache=False, error_model="python")(lambda x, y: x / y)(1.0, 0.0)
    part = inlined(lambda x: x + 1, cache=False)
    assert compiled(lambda x: part(x), cache=False)(1) == 2


def test_functions_that_do_not_say_so_make_no_arrays():
    make = lambda n: np.zeros(n).sum()  # noqa: E731 (it is compiled twice)
    assert compiled(make, cache=False, allocates=True)(3) == 0.0
    with pytest.raises(numba.core.errors.NumbaError, match="Only accept returning of array"):
        compiled(make, cache=False)(3)


def test_passes_that_are_left_out_are_passes_of_numba():
    known = numba.core.typed_passes, numba.core.untyped_passes, numba.core.compiler
    for name in compilation.UNNEEDED:
        assert any(hasattr(module, name) for module in known), name
    double = compiled(lambda x: 2 * x, cache=False)
    assert double(2) == 4
    [passes] = double.get_metadata(double.signatures[0])["pipeline_times"].values()
    assert any("native_lowering" in name for name in passes)
    assert not any("inline_closure_likes" in name for name in passes)


class TestWhatIsSaid:
    def test_a_block_that_compiles_says_so_first_and_how_much_at_its_end(self, monkeypatch):
        monkeypatch.setattr(compilation, "_not_kept", [])
        part, said = inner(lambda x: x + 1, cache=False), []
        whole = compiled(lambda x: 2 * part(x), cache=False)
        kept = SimpleNamespace(cache_path="/kept")
        monkeypatch.setattr(type(whole), "stats", property(lambda self: kept))
        with compilations(said.append):
            whole(1)
        first, last = said
        assert first.startswith("compiling for this processor, first for test_compilation, about")
        assert last.startswith("compiled 2 functions in ")
        assert last.endswith(" s; later runs load this from /kept")
        with compilations(said.append):
            whole(1)
        assert len(said) == 2

    def test_code_that_is_not_kept_is_no_promise(self):
        said = []
        with compilations(said.append):
            compiled(lambda x: x + 1, cache=False)(1)
        assert [line.partition("; ")[2] for line in said] == ["it is not kept"]

    def test_the_folder_is_named_with_what_it_has(self, tmp_path):
        def gram():
            pass

        gram.__module__ = "bigsvm.core.gram"
        dispatcher, folder = SimpleNamespace(py_func=gram), tmp_path / "kept"
        said = compilation._begins(dispatcher, str(folder))
        assert "first for kernel values, about 10 s of CPU time" in said
        assert f"it is kept in {folder}, which has none" in said
        folder.mkdir()
        for name in ("a.nbi", "b.nbi", "b.1.nbc"):
            (folder / name).touch()
        assert f"some seconds; {folder} has 2 functions" in compilation._begins(
            dispatcher, str(folder)
        )

    def test_each_module_of_the_core_has_a_purpose(self):
        modules = {path.stem for path in (REPOSITORY / "bigsvm" / "core").glob("[a-z]*.py")}
        assert set(compilation.PURPOSES) == modules


READ_ONLY = """
import os, sys
from numba.core import caching

def refuse(self):
    raise OSError(30, "Read-only file system", self.get_cache_path())

caching._CacheLocator.ensure_cache_path = refuse
"""
"""Numba finds that it can write to no folder at all: this user may be one that nothing stops."""
ELSEWHERE = "caching.InTreeCacheLocator.get_cache_path = lambda self: '/none'\n"
"""Nor is there code beside the modules."""
MODULE = """
from bigsvm.compilation import compiled, inner

@inner
def next_one(x):
    return x + 1

@compiled
def twice(x):
    return 2 * next_one(x)
"""
CALL = """
import logging
from twice import twice

logging.getLogger("bigsvm").info("nothing")
print(twice(2), sum(twice.stats.cache_hits.values()))
"""
NOT_KEPT = "compiled code cannot be kept"


def python(script, *arguments, cwd, most_bytes=None, **environment):
    """Run a script as a process, with a limit of the bytes of a file; returns its outputs."""

    def limit():
        if most_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))

    path = os.pathsep.join([str(cwd), str(REPOSITORY)])
    ended = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        capture_output=True, text=True, cwd=cwd, preexec_fn=limit, timeout=300,
        env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **environment},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended.stdout, ended.stderr


@pytest.fixture
def module(tmp_path):
    """Give a folder with a module of two compiled functions."""
    (tmp_path / "twice.py").write_text(MODULE)
    return tmp_path


class TestCodeThatCannotBeKept:
    @pytest.mark.parametrize("folder", ["", "/dev/null/none"])
    def test_without_a_folder_functions_are_compiled_and_it_is_said_once(self, module, folder):
        out, err = python(READ_ONLY + CALL, cwd=module, NUMBA_CACHE_DIR=folder)
        assert out == "6 0\n"
        [line] = err.splitlines()
        assert line.startswith(f"{NOT_KEPT} (there is no folder that can be written to), so that")
        assert "set NUMBA_CACHE_DIR" in line
        assert "`bigsvm warm-up`" in line

    def test_a_full_disk_is_said_once(self, module):
        folder = module / "full"
        out, err = python(CALL, cwd=module, NUMBA_CACHE_DIR=str(folder), most_bytes=0)
        assert out == "6 0\n"
        [line] = err.splitlines()
        assert line.startswith(f"{NOT_KEPT} ([Errno 27] File too large)")
        assert [name for _, _, names in os.walk(folder) for name in names] == []

    def test_a_module_in_an_archive_is_compiled(self, module):
        script = (
            "import sys, zipfile\n"
            "zipfile.ZipFile('archive.zip', 'w').write('twice.py')\n"
            "sys.path[:] = ['archive.zip', *(p for p in sys.path if p not in ('', sys.argv[1]))]\n"
        )
        nowhere = {"HOME": "/dev/null", "XDG_CACHE_HOME": "/dev/null"}
        out, err = python(script + CALL, module, cwd=module, **nowhere)
        assert out == "6 0\n"
        [line] = err.splitlines()
        assert line.startswith(NOT_KEPT)

    @pytest.mark.parametrize("given", [True, False])
    def test_code_in_a_folder_that_cannot_be_written_to_is_loaded(self, module, given):
        folder = {"NUMBA_CACHE_DIR": str(module / "kept") if given else ""}
        assert python(CALL, cwd=module, **folder) == ("6 0\n", "")
        assert python(READ_ONLY + CALL, cwd=module, **folder) == ("6 1\n", "")

    def test_damaged_code_is_compiled_and_kept_again(self, module):
        folder = {"NUMBA_CACHE_DIR": ""}
        assert python(CALL, cwd=module, **folder) == ("6 0\n", "")
        for index in module.rglob("*.nbi"):
            index.write_bytes(b"")
        assert python(CALL, cwd=module, **folder) == ("6 0\n", "")
        assert python(CALL, cwd=module, **folder) == ("6 1\n", "")

    @pytest.mark.slow
    def test_a_command_says_so_once(self, tmp_path):
        X, y = two_clouds(50)
        (tmp_path / "rows").write_text(libsvm_text(X, y))
        script = READ_ONLY + ELSEWHERE + "from bigsvm.__main__ import main\nsys.exit(main())"
        words = ("convert", "rows", "rows.zarr")
        out, err = python(script, *words, cwd=tmp_path, NUMBA_CACHE_DIR="")
        assert "50, 6" in out
        assert err.count(f"bigsvm: warning: {NOT_KEPT}") == err.count(NOT_KEPT) == 1
        assert "compiling for this processor" not in err

    @pytest.mark.slow
    def test_a_fit_says_so_once(self, tmp_path):
        script = READ_ONLY + ELSEWHERE + "import bigsvm\nbigsvm.SVC().fit([[0], [1]], [0, 1])"
        _, err = python(script, cwd=tmp_path, NUMBA_CACHE_DIR="")
        assert len(err.splitlines()) == err.count(NOT_KEPT) == 1

    def test_warming_up_where_nothing_is_kept_is_refused(self, monkeypatch):
        monkeypatch.setattr(compilation, "_not_kept", [])
        monkeypatch.setattr(
            warm_up, "_jobs", lambda folder: [("job", lambda: compilation._cannot_keep("a reason"))]
        )
        assert f"error: {NOT_KEPT} (a reason)" in error_of("warm-up", "-q")
