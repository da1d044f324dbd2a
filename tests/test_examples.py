"""Every example runs, from another folder, and says what it is there to show."""

import runpy
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

REPOSITORY = Path(__file__).parents[1]

SHOWS = {
    "train_from_libsvm.py": ["converged: True", "support vectors", "accuracy"],
    "grid_search.py": ["best: {'svc__C'", "accuracy on the test rows: 0.9"],
    "bad_model.py": ["rows: 63", "100% of rows at C", "random folds 100.0%, folds by patient 50"],
    "boundaries.py": ["converged: ", "support vectors of 100000 rows", "passes over all rows"],
    "molecules.py": ["tanimoto: ", "accuracy 9"],
    "noise_scale.py": ["found: 0.2", "in the band of 90 %"],
    "novelty.py": ["converged; outside: ", "ROC curve 0.9"],
    "parquet_folder.py": ["12000 rows of 8 files, 6 columns", "accuracy on a new table 9"],
    "reliability.py": ["sigmoid: Brier score 0.1", "isotonic: Brier score 0.1"],
    "spectra.py": ["R² 0.99"],
    "texts.py": ["words", "converged, accuracy 8"],
    "dask_larger_than_memory.py": ["converged after", "lazy: dask.array", "accuracy: 0.999"],
    "all_ten_digits.py": ["45 pairs, stopped: {'converged': 45}", "votes: accuracy 0.99"],
    "wrong_labels.py": ["converged, ", "of 20 wrong labels 20 are", "looks like 9, was 9"],
    "cluster.py": ["2 workers did", "accuracy: 0.9", "the model of one machine is the same"],
    "core_sets.py": ["sampled: 0 sweeps", "converged: ", "accuracy 0.99"],
    "own_kernel.py": ["converged, ", "support vectors, accuracy 9"],
    "resume_after_interruption.py": [
        "max_iter",
        "max_iter",
        "again: converged",
        "killed and resumed: ",
    ],
}


SLOW = ("cluster.py", "resume_after_interruption.py")


def test_every_example_is_run():
    assert {path.name for path in (REPOSITORY / "examples").glob("*.py")} == SHOWS.keys()


@pytest.mark.parametrize(
    "name",
    [
        # Its cluster takes seconds; what workers do is tested with one that tests share.
        # The killed run is a command of its own.
        pytest.param(name, marks=pytest.mark.slow if name in SLOW else [])
        for name in SHOWS
    ],
)
def test_example(name, tmp_path, monkeypatch, capsys, no_own_kernels):
    path = str(REPOSITORY / "examples" / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [path])
    runpy.run_path(path, run_name="__main__")
    plt.close("all")
    out, err = capsys.readouterr()
    assert err == ""
    for words in SHOWS[name]:
        assert words in out
