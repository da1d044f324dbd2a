"""What training loads beside itself: every module it does without is memory for the data."""

import inspect
import os
import subprocess
import sys

import numpy as np
import pytest
from command_line import REPOSITORY

import bigsvm
from bigsvm import write_store
from bigsvm.cli import COMMANDS

ROWS = """
import numpy as np
X = np.random.default_rng(0).random((40, 3), np.float32)
y = np.arange(40) % 2
"""
ROWS_IN_MEMORY = f"""{ROWS}
from bigsvm.data.sources import as_row_source
from bigsvm.fit.train import train_model
from bigsvm.parameters import TrainingParameters
train_model(as_row_source(X), y, None, TrainingParameters())
"""
CALIBRATED = """
train_model(as_row_source(X), y, None, TrainingParameters(calibration="sigmoid"))
"""
ESTIMATOR = f"""{ROWS}
SVC().fit(X, y)
"""
SMALL = """
import os
os.environ.pop("BIGSVM_SMALL", None)  # as users have it
import numpy as np
import scipy.sparse as sp
import bigsvm
X = np.random.default_rng(0).normal(size=(60, 4))
y, three = (X[:, 0] > 0).astype(int), np.digitize(X[:, 0], [-0.4, 0.4])
for rows in (X, X.astype(np.float32), sp.csr_array(np.where(X > 0, X, 0))):
    bigsvm.SVC().fit(rows, y).predict(rows)
bigsvm.SVC().fit(X, three).decision_function(X)
bigsvm.SVR(kernel="poly").fit(X, X[:, 0]).predict(X)
"""
TEXT = """
import os
os.environ.pop("BIGSVM_SMALL", None)  # as users have it
from bigsvm.cli import main
for words in (
    "svm-train -q rows model", "svm-train -q -v 3 rows", "svm-predict rows model predicted",
    "svm-scale -s range rows", "svm-scale -r range rows", "info model",
    "train rows few.safetensors --quiet", "predict rows few.safetensors --output answers",
    "info few.safetensors", "convert rows rows.zarr", "scale rows.zarr scaled.zarr",
    "info scaled.zarr", "train scaled.zarr scaled.safetensors --quiet",
    "predict scaled.zarr scaled.safetensors --output scaled",
    "cv rows", "export few.safetensors few.model --to libsvm",
):
    sys.argv = ["bigsvm", *words.split()]
    assert main() == 0, words
"""
LOADED = """
from bigsvm.cli import main
import bigsvm
assert bigsvm.load("few.safetensors").converged_
sys.argv = ["bigsvm", "info", "few.safetensors"]
assert main() == 0
"""
COMMAND = """
from bigsvm.cli import main
sys.argv = ["bigsvm", "train", "few.zarr", "few.safetensors", "--quiet"]
assert main() == 0
"""
HEAVY = {"numba", "dask", "zarr", "distributed", "fsspec"}
CLASSES = (
    *("SVC", "NuSVC", "L2SVC", "CrammerSingerSVC", "SVR", "NuSVR", "OneClassSVM", "L2OneClassSVM"),
    *("Kernel", "KernelExpansion", "SearchCV", "AdviceWarning", "HistoryDisplay", "SearchDisplay"),
)
CLOUD = ("distributed", "tornado", "s3fs", "gcsfs", "adlfs", "aiobotocore")


def modules_of(folder, *programs):
    """Names of all modules that are loaded after each of some programs of one process."""
    told = "print('modules:', *sys.modules, file=sys.stderr)"
    ended = subprocess.run(
        [sys.executable, "-c", "\n".join(["import sys", *(f"{p}\n{told}" for p in programs)])],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    assert ended.returncode == 0, ended.stderr
    lines = ended.stderr.splitlines()
    return [set(line.split()[1:]) for line in lines if line.startswith("modules: ")]


@pytest.fixture(scope="module")
def of_training(tmp_path_factory):
    """After an import of the package, training on rows in memory, and a calibration."""
    folder = tmp_path_factory.mktemp("rows")
    return modules_of(folder, "import bigsvm", ROWS_IN_MEMORY, CALIBRATED)


@pytest.fixture(scope="module")
def of_rows_in_memory(of_training):
    return of_training[1]


@pytest.fixture(scope="module")
def of_the_class_and_a_fit(tmp_path_factory):
    return modules_of(tmp_path_factory.mktemp("estimator"), "from bigsvm import SVC", ESTIMATOR)


@pytest.fixture(scope="module")
def of_the_estimator(of_the_class_and_a_fit):
    return of_the_class_and_a_fit[1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("command")
    rng = np.random.default_rng(0)
    write_store(folder / "few.zarr", rng.random((40, 3), np.float32), np.arange(40) % 2)
    return folder


@pytest.fixture(scope="module")
def of_the_command(folder):
    [loaded] = modules_of(folder, COMMAND)
    return loaded


def test_a_model_is_looked_at_without_what_it_may_need_later(of_the_command, folder):
    assert (folder / "few.safetensors").exists()
    [loaded] = modules_of(folder, LOADED)
    assert not loaded & HEAVY


def test_the_package_by_itself_loads_next_to_nothing(of_training):
    loaded = of_training[0]
    assert not loaded & {"numpy", "dask", "distributed", "fsspec", "s3fs", "sklearn", "asyncio"}


def test_small_fits_and_predictions_do_without_the_compiler(tmp_path):
    [loaded] = modules_of(tmp_path, SMALL)
    assert not loaded & (HEAVY | {"llvmlite"})
    # Nor do they need our own solver, workers, stores' conversion, or the papers' modes.
    assert not {
        name for name in loaded
        if name.startswith(("bigsvm.papers", "bigsvm.balls", "bigsvm.conversion", "bigsvm.cli"))
        or name in ("bigsvm.fit.trainer", "bigsvm.training.loop", "bigsvm.executors.cluster")
    }  # fmt: skip


def test_commands_of_small_text_do_without_the_compiler_and_zarr(tmp_path):
    rng = np.random.default_rng(0)
    rows = [f"{i % 2} 1:{a:.3f} 3:{b:.6g} 4:1" for i, (a, b) in enumerate(rng.normal(size=(60, 2)))]
    (tmp_path / "rows").write_text("\n".join(rows))
    [loaded] = modules_of(tmp_path, TEXT)
    assert not loaded & (HEAVY | {"llvmlite", "numcodecs"})


def test_a_class_is_there_without_what_it_may_need_later(of_the_class_and_a_fit):
    assert not of_the_class_and_a_fit[0] & HEAVY


@pytest.mark.slow  # their modules are imported alike
@pytest.mark.parametrize("name", [name for name in CLASSES if name != "SVC"])
def test_other_classes_are_there_without_what_they_may_need_later(tmp_path, name):
    [loaded] = modules_of(tmp_path, f"from bigsvm import {name}")
    assert not loaded & HEAVY


def test_the_table_has_every_public_class():
    classes = {name for name in bigsvm.__all__ if inspect.isclass(getattr(bigsvm, name))}
    assert set(CLASSES) == classes


@pytest.mark.parametrize("command", [None, *COMMANDS])
def test_help_loads_neither_the_core_nor_other_commands(tmp_path, command):
    words = [word for word in (command, "--help") if word is not None]
    program = f"from bigsvm.cli import main\nsys.argv = ['bigsvm', *{words}]\nassert main() == 0"
    [loaded] = modules_of(tmp_path, program)
    assert not loaded & (HEAVY | {"numpy", "scipy", "sklearn", "rich", "asyncio"})
    if command is None:
        homes = {f"bigsvm.cli.{name.replace('-', '_')}" for name in COMMANDS}
        assert not loaded & {*homes, "urllib.request", "bigsvm.cli.options"}


@pytest.mark.parametrize("module", CLOUD)
def test_nothing_of_clusters_and_clouds_is_loaded_unless_asked_for(
    of_rows_in_memory, of_the_estimator, of_the_command, module
):
    for loaded in (of_rows_in_memory, of_the_estimator, of_the_command):
        assert module not in loaded


@pytest.mark.parametrize(
    "module",
    ["dask", "zarr", "fsspec", "sklearn", "scipy.optimize", "pandas", "safetensors", "rich"],
)
def test_training_on_rows_in_memory_does_without(of_rows_in_memory, module):
    assert module not in of_rows_in_memory


def test_a_sigmoid_calibration_takes_no_more_than_an_optimiser(of_training):
    loaded = of_training[2]
    assert "scipy.optimize" in loaded
    assert not loaded & {"dask", "zarr", "sklearn", "pandas"}


@pytest.mark.parametrize(
    "module",
    [
        "matplotlib",
        "dask",
        "zarr",
        pytest.param(
            "rich",
            marks=pytest.mark.xfail(reason="sklearn.callback imports it, for its progress bar"),
        ),
        # Not ours to mend. Should it pass, a newer scikit-learn does without: take the mark away.
        pytest.param(
            "scipy.optimize",
            marks=pytest.mark.xfail(reason="the base classes of scikit-learn import scipy.stats"),
        ),
    ],
)
def test_the_estimator_does_without(of_the_estimator, module):
    assert module not in of_the_estimator


@pytest.mark.parametrize(
    "module", ["dask", "sklearn", "scipy.optimize", "pandas", "rich", "matplotlib"]
)
def test_the_train_command_does_without(of_the_command, module):
    assert module not in of_the_command
