"""Modules of the core are run when they are first used, by one thread, and are modules then."""

import os
import subprocess
import sys
import threading
from types import ModuleType

import pytest
from command_line import REPOSITORY

from bigsvm import core
from bigsvm.compilation import modules_run_when_used
from bigsvm.core import crammer_singer, smo
from bigsvm.duals.crammer_singer import Cooling, Order, RowSolver
from bigsvm.working_sets.subproblem import REFRESH, Progress

FEW = """
import bigsvm.core, sys
from bigsvm.core import smo, gram
from bigsvm.core import text as parser
assert "numba" not in sys.modules
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package whose module `slow` notes that it is run, waits, and then has its names."""
    folder = tmp_path / "lazy_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "slow.py").write_text(
        "import sys, time\nruns = sys.modules['lazy_package'].runs\nruns.append(1)\n"
        "time.sleep(0.1)\nlate = len(runs)\n"
    )
    (folder / "broken.py").write_text("raise OSError('not yet')")
    monkeypatch.syspath_prepend(tmp_path)
    import lazy_package

    lazy_package.runs = []
    lazy_package.__getattr__ = modules_run_when_used("lazy_package")
    yield lazy_package
    for name in list(sys.modules):
        if name.startswith("lazy_package"):
            del sys.modules[name]


def test_importing_runs_nothing():
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    subprocess.run([sys.executable, "-c", FEW], check=True, env=env)


def test_using_runs_it_once_though_threads_meet(package):
    from lazy_package import slow

    assert not package.runs
    assert slow.__spec__.name == "lazy_package.slow"
    assert not hasattr(slow, "__warningregistry__")
    assert not package.runs
    seen = []
    threads = [threading.Thread(target=lambda: seen.append(slow.late)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [1, 1, 1, 1]
    assert type(slow) is ModuleType
    assert sys.modules["lazy_package.slow"] is slow is package.slow


def test_replacing_a_name_runs_it_first(package):
    from lazy_package import slow

    slow.late = "replaced"
    assert package.runs == [1]
    assert slow.late == "replaced"


def test_what_could_not_be_run_is_run_again(package):
    from lazy_package import broken

    for _ in range(2):
        with pytest.raises(OSError, match="not yet"):
            _ = broken.anything


def test_the_core_has_no_other_modules():
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = core.nothing


def test_numbers_that_python_knows_are_those_of_the_core():
    assert (Progress.CONVERGED, Progress.STEPS_SPENT, Progress.STALLED) == (
        smo.CONVERGED, smo.STEPS_SPENT, smo.STALLED,
    )  # fmt: skip
    assert REFRESH == smo.REFRESH or smo.REFRESH == 32  # as tests of the core make it
    for kind in (RowSolver, Order):
        for member in kind:
            assert member == getattr(crammer_singer, member.name)
    assert (Cooling.NONE, Cooling.LOG) == (crammer_singer.NO_COOLING, crammer_singer.LOG)
