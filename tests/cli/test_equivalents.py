"""The guide's table of what is called otherwise in LIBSVM: each row is run."""

import re

import pytest
from command_line import REPOSITORY, libsvm_text, run_here, two_clouds

TABLE = re.compile(r"\| LIBSVM \| bigsvm \|\n\|[-|]+\|\n((?:\|.*\n)+)")
ROWS = [
    tuple(cell.strip() for cell in line.strip("|\n").split(" | ", 1))
    for line in TABLE.search((REPOSITORY / "docs/guide.md").read_text())[1].splitlines()
]

FIT = ("train", "rows.zarr", "made", "--gamma", "0.3")
RUNS = {
    "`svm-scale -l 0 -u 1 -s FILE`": [
        ("scale", "rows.zarr", "made", "--lower", "0", "--upper", "1")
    ],
    "`svm-scale -r FILE`": [("scale", "rows.zarr", "made", "--like", "range")],
    "`svm-train -s 0`, 1, 2, 3, 4": [
        (*FIT, "--formulation", name)
        for name in ("c-svc", "nu-svc", "one-class", "eps-svr", "nu-svr")
    ],
    "`-t 0`, 1, 2, 3, 4": [
        ("train", "rows.zarr", "made", "--kernel", name)
        for name in ("linear", "poly", "rbf", "sigmoid")
    ]
    + [("train", "matrix.zarr", "made", "--kernel", "precomputed")],
    "`-c`, `-g`, `-n`, `-p`, `-d`, `-r`, `-e`": [
        (*FIT, "--C", "2", "--tol", "0.01"),
        (*FIT, "--formulation", "nu-svr", "--nu", "0.4"),
        (*FIT, "--formulation", "eps-svr", "--epsilon", "0.2"),
        (*FIT, "--kernel", "poly", "--degree", "2", "--coef0", "1"),
    ],
    "`-w1 3 -w-1 1`": [(*FIT, "--class-weight", "1:3", "--class-weight", "-1:1")],
    "`-m 1000`": [(*FIT, "--memory", "1GB")],
    "`-h` (shrinking)": [(*FIT, "--shrinking", "--working-set", "all")],
    "`-b 1`": [
        (*FIT, "--calibration", "sigmoid"),
        ("predict", "rows.zarr", "made", "--probability", "-o", "out"),
    ],
    "`-v 5`": [("cv", "rows.zarr", "--folds", "5", "--gamma", "0.3")],
    "`grid.py`, `easy.py`": [("search", "rows.zarr", "--folds", "3"), ("easy", "rows.libsvm")],
    "`svm-predict`": [("predict", "rows.libsvm", "model")],
    "`subset.py`, `checkdata.py`": [
        ("split", "rows.zarr", "one.zarr", "two.zarr"),
        ("convert", "rows.libsvm", "--strict"),
    ],
    "`svm_load_model` in Python": [],
}


def test_every_row_is_run():
    assert [row[0] for row in ROWS] == list(RUNS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Rows as text and as a store, a kernel matrix, a file of ranges, and a model."""
    from bigsvm import write_store

    path = tmp_path_factory.mktemp("equivalents")
    X, y = two_clouds(240)
    (path / "rows.libsvm").write_text(libsvm_text(X, y))
    write_store(path / "rows.zarr", X, y)
    write_store(path / "matrix.zarr", X @ X.T, y)
    run_here("scale", path / "rows.libsvm", path / "scaled.zarr", "-q")
    run_here("train", path / "rows.zarr", path / "model", "--gamma", "0.3", "-q")
    ranges = "\n".join(f"{i} -5 5" for i in range(1, X.shape[1] + 1))
    (path / "range").write_text(f"x\n-1 1\n{ranges}\n")
    return path


SEARCHES = [pytest.mark.slow]  # a search takes ten seconds


@pytest.mark.parametrize(
    ("left", "right"),
    [pytest.param(*row, id=row[0], marks=SEARCHES * ("easy.py" in row[0])) for row in ROWS],
)
def test_a_row_is_run_with_the_options_that_it_names(left, right, folder, tmp_path, monkeypatch):
    for name in folder.iterdir():
        (tmp_path / name.name).symlink_to(name)
    monkeypatch.chdir(tmp_path)
    commands = RUNS[left]
    for command in commands:
        run_here(*command)
    typed = {word for command in commands for word in command}
    missing = [option for option in re.findall(r"--[a-zA-Z][\w-]*", right) if option not in typed]
    assert not missing, f"the row names {missing}, which no command here has"
