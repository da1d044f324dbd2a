"""The experiments of Glasmachers and Igel's paper, on tiny data."""

import gzip

import numpy as np
import pytest
from sklearn.svm import SVC

from tools.benchmarks import hmg
from tools.benchmarks.__main__ import main


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Of a small spambase: two overlapping classes."""
    monkeypatch.setenv("BIGSVM_DATA", str(tmp_path))
    rng = np.random.default_rng(0)
    y = np.sort(rng.choice([-1, 1], 80))  # the file has one class after the other
    x = rng.standard_normal((80, 57)) + 0.2 * y[:, None]
    rows = (
        f"{label} " + " ".join(f"{k + 1}:{v:.4f}" for k, v in enumerate(row))
        for label, row in zip(y, x, strict=True)
    )
    (tmp_path / "spambase.libsvm.gz").write_bytes(gzip.compress("\n".join(rows).encode()))
    return tmp_path


def lines_of(printed):
    """Cells of all lines of the table below its header."""
    lines = [line for line in printed.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:]]


@pytest.mark.parametrize("n_rows", hmg.STRATEGIES.values(), ids=hmg.STRATEGIES)
@pytest.mark.parametrize("capacity", [2, 7, 80])
def test_each_strategy_has_the_optimum(n_rows, capacity):
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((80, 3)), rng.choice([-1.0, 1.0], 80)
    gram = np.exp(-0.5 * ((x[:, None] - x[None]) ** 2).sum(axis=-1))
    peer = SVC(C=2.0, kernel="precomputed", tol=1e-8).fit(gram, y)
    beta = np.zeros(80)
    beta[peer.support_] = peer.dual_coef_[0]
    optimum = np.abs(beta).sum() - 0.5 * beta @ gram @ beta
    first = int(np.flatnonzero(y > 0)[0]), int(np.flatnonzero(y < 0)[0])
    steps, objective = hmg.solve(gram, y, 2.0, 1e-6, n_rows, capacity, first)
    assert steps > 80
    assert objective == pytest.approx(optimum, rel=1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_the_gain_is_the_most_that_a_step_within_the_box_adds(seed):
    rng = np.random.default_rng(seed)
    upper = rng.choice([0.0, 1.0], 2)
    beta, g, k = upper - rng.choice([0.0, 0.3, 1.0], 2), rng.standard_normal(2), rng.random()
    row = np.array([1.0, k])
    step, gain = hmg._gain(0, 1, row, g, beta, upper, 1.0)
    steps = np.linspace(-1, 1, 20_001)
    ends = np.array([beta[0] + steps, beta[1] - steps])
    inside = ((ends <= upper[:, None] + 1e-12) & (ends >= upper[:, None] - 1 - 1e-12)).all(axis=0)
    gains = steps * (g[0] - g[1]) - (1 - k) * steps**2
    assert gain == pytest.approx(gains[inside].max(), abs=1e-7)
    assert step == pytest.approx(steps[inside][gains[inside].argmax()], abs=1e-3)


@pytest.mark.usefixtures("folder")
def test_strategies_stand_beside_the_paper(capsys):
    assert main(["hmg", "--part", "rows", "--trials", "3"]) == 0
    lines = lines_of(capsys.readouterr().out)
    assert [line[:2] for line in lines] == [
        ["one row", "3"],
        ["two rows", "3"],
        ["whole cache", "1"],
    ]
    assert len({line[5] for line in lines}) == 1
    assert [line[6] for line in lines] == ["14023", "10563", "7280"]


@pytest.mark.usefixtures("folder")
def test_regimes_mark_solutions_of_which_all_rows_are(capsys):
    assert main(["hmg", "--part", "regimes", "--factors", "1", "1000", "--share", "0.2"]) == 0
    lines = lines_of(capsys.readouterr().out)
    assert [line[0] for line in lines] == ["50", "50", "50000", "50000"]
    for line in lines:
        assert float(line[5]) > 0
        assert ("all" in line[4]) == (float(line[2].rstrip("%")) >= 99)
    assert "all" in lines[1][4]


def test_without_the_data_nothing_is_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("BIGSVM_DATA", str(tmp_path))
    assert main(["hmg", "--part", "rows"]) == 0
    assert "|" not in capsys.readouterr().out
