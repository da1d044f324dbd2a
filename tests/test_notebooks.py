"""Notebooks run in a kernel of Jupyter, and a cell that trains can be interrupted there."""

import copy
import os
from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
for name in ("ipykernel", "ipywidgets", "matplotlib"):
    pytest.importorskip(name, reason=f"{name} is not installed")
# Jupyter's clients open sockets and event loops that they close late.
pytestmark = pytest.mark.filterwarnings("default")

REPOSITORY = Path(__file__).parents[1]
LONG = """
import numpy as np, bigsvm
rng = np.random.default_rng(0)
X = rng.normal(size=(8000, 10)).astype(np.float32)
y = X[:, 0] + 3 * rng.normal(size=8000) > 0
machine = bigsvm.SVC(C=100, gamma=0.01, memory="20MB")
"""
INTERRUPTED = """
import os, signal
from bigsvm.training.sweep import Passes
sweep, begun = Passes.sweep, []
def interrupted(self, *given, **options):
    begun.append(None)
    if len(begun) == 1:
        os.kill(os.getpid(), signal.SIGINT)
    return sweep(self, *given, **options)
Passes.sweep = interrupted
try:
    machine.fit(X, y)
except KeyboardInterrupt:
    print("interrupted in sweep", len(begun))
print(machine.converged_, machine.stop_reason_, machine.predict(X[:3]).shape)
"""


@pytest.fixture
def execute(tmp_path, monkeypatch):
    """Give a function that executes a notebook in a folder of its own."""
    paths = [str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))

    def run(notebook):
        # A kernel may lose the reply of a cell that is done (seen with ipykernel 7): it is tried
        # once more, and then as long as a busy machine needs.
        for seconds in (60, 1800):
            client = nbclient.NotebookClient(
                copy.deepcopy(notebook), timeout=seconds, startup_timeout=600,
                kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}},
            )  # fmt: skip
            try:
                return client.execute()
            except nbclient.exceptions.CellTimeoutError:
                if seconds == 1800:
                    raise

    return run


def text_of(cell):
    """What a cell has printed, and the names of the kinds of what it has shown."""
    printed = "".join(output.get("text", "") for output in cell.outputs)
    return printed + " ".join(kind for output in cell.outputs for kind in output.get("data", ()))


def test_the_notebook_shows_progress_a_picture_a_search_and_a_model(execute):
    path = REPOSITORY / "examples" / "watching_a_fit.ipynb"
    notebook = execute(nbformat.read(path, as_version=4))
    fit, history, search, scores, model = (
        text_of(cell) for cell in notebook.cells if cell.cell_type == "code"
    )
    # The picture shows the progress of several sweeps.
    assert "sweep 3: gap" in fit
    assert "text/html" in fit
    assert "widget-view" in search
    assert "best: {'C': " in search
    for shown in (history, scores, model):
        assert "image/png" in shown
    assert "['in' 'out'], accuracy 0." in model
    assert not [name for name in (history, search, scores, model) if "Warning" in name]


def test_a_cell_that_trains_is_interrupted_and_leaves_a_model(execute):
    cells = [nbformat.v4.new_code_cell(text) for text in (LONG, INTERRUPTED)]
    notebook = execute(nbformat.v4.new_notebook(cells=cells))
    said = text_of(notebook.cells[1])
    assert "interrupted in sweep 1" in said
    assert "False interrupted (3,)" in said
