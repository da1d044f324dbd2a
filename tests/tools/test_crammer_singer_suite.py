"""The experiments of Crammer and Singer's paper, on tiny data."""

import gzip

import numpy as np
import pytest

import bigsvm
from tools.benchmarks import crammer_singer
from tools.benchmarks.__main__ import main
from tools.benchmarks.crammer_singer import read


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Of data sets: four overlapping classes of each."""
    monkeypatch.setenv("BIGSVM_DATA", str(tmp_path))
    for name in ("usps", "mnist"):
        for seed, part in enumerate(("", ".t")):
            rng = np.random.default_rng(seed)
            y = rng.integers(4, size=90)
            x = np.random.default_rng(9).random((4, 5))[y] + 0.25 * rng.random((90, 5))
            rows = (
                f"{label} " + " ".join(f"{k + 1}:{v:.4f}" for k, v in enumerate(row))
                for label, row in zip(y, x, strict=True)
            )
            (tmp_path / f"{name}{part}.libsvm.gz").write_bytes(
                gzip.compress("\n".join(rows).encode())
            )
    return tmp_path


def lines_of(printed, first):
    """Cells of the lines of a table whose first cell is this."""
    found = [[cell.strip() for cell in line.split("|")[1:-1]] for line in printed.splitlines()]
    return [cells for cells in found if cells and cells[0] == first]


@pytest.mark.usefixtures("folder")
def test_the_tolerances_end_at_one_objective_and_take_more_steps(capsys):
    assert main(["crammer_singer", "--part", "epsilon", "--data", "usps"]) == 0
    lines = lines_of(capsys.readouterr().out, "usps")
    assert [line[1] for line in lines] == ["0.1", "0.01", "0.001", "0.0001"]
    steps = [int(line[2]) for line in lines]
    assert steps == sorted(steps)
    assert float(lines[-1][3]) == pytest.approx(steps[-1] / steps[0], abs=0.01)
    objectives = [float(line[6]) for line in lines]
    assert objectives == sorted(objectives)
    assert objectives[1] == pytest.approx(objectives[-1], rel=1e-2)


@pytest.mark.usefixtures("folder")
def test_every_order_raises_the_objective_towards_the_same_one(capsys):
    given = ["crammer_singer", "--part", "cooling", "--data", "usps", "--most-steps", "30000"]
    assert main(given) == 0
    printed = capsys.readouterr().out
    ends = []
    for order in crammer_singer.ORDERS:
        ((_, *shown, ended),) = lines_of(printed, order)
        objectives = [float(value) for value in shown]
        assert objectives == sorted(objectives)
        ends.append(objectives[-1])
        assert int(ended) <= 30_000
    np.testing.assert_allclose(ends, ends[0], rtol=1e-3)
    assert "0.001 after 7 steps, the linear one after 998" in printed


@pytest.mark.usefixtures("folder")
def test_the_ladder_counts_steps_and_the_kernel_rows_of_a_cache(capsys):
    assert (
        main(["crammer_singer", "--part", "ladder", "--sizes", "40", "80", "--most-steps", "5000"])
        == 0
    )
    printed = capsys.readouterr().out
    for size in ("40", "80"):
        lines = lines_of(printed, size)
        assert [line[1] for line in lines] == list(crammer_singer.ORDERS)
        assert lines[0][3] == "1.0000"
        assert all(0 < int(line[5]) <= int(size) for line in lines)


@pytest.mark.parametrize(
    ("ended", "other_ended", "shown"),
    [(True, True, "0.2500"), (True, False, "< 0.2500"), (False, True, "> 0.2500"),
     (False, False, "-")],
)  # fmt: skip
def test_a_ratio_to_a_run_that_was_stopped_is_a_bound(ended, other_ended, shown):
    found = {"n_iter": 50, "converged": ended}
    assert crammer_singer.ratio(found, {"n_iter": 200, "converged": other_ended}) == shown


@pytest.mark.usefixtures("folder")
def test_the_opponent_is_the_same_machine_of_two_classes_once_for_each(capsys, monkeypatch):
    monkeypatch.setattr(crammer_singer, "COARSE_C", (1.0,))
    monkeypatch.setattr(crammer_singer, "COARSE_TIMES", (1.0, 2.0))
    (parts,) = read("usps")
    values = []
    for c in np.unique(parts.y):
        model = bigsvm.CrammerSingerSVC(2.0, gamma=crammer_singer.gamma_of(parts, 3.0), tol=1e-3)
        values.append(model.fit(parts.x, parts.y == c).decision_function(parts.test_x))
    wrong = int((np.argmax(values, axis=0) != parts.test_y).sum())
    assert crammer_singer.one_vs_rest(parts, 2.0, 3.0, 1e-3) == wrong
    assert main(["crammer_singer", "--part", "tables", "--data", "usps", "--validated", "60"]) == 0
    ((_, rows, each, limit, ours, rest, gain, *chosen),) = lines_of(capsys.readouterr().out, "usps")
    assert (rows, each, limit) == ("90", "22", "4.38")
    assert float(gain) == pytest.approx(float(rest) - float(ours), abs=0.02)
    assert all("C 1, gamma " in one for one in chosen)


@pytest.mark.usefixtures("folder")
def test_changed_labels_are_looked_for_among_the_most_doubtful(capsys, monkeypatch):
    monkeypatch.setattr(crammer_singer, "CHANGED", 0.05)
    given = ["crammer_singer", "--part", "doubt", "--data", "usps", "--shown", "2"]
    assert main(given) == 0
    *shown, found = lines_of(capsys.readouterr().out, "usps")
    assert len(shown) == 2
    assert float(shown[0][3]) >= float(shown[1][3])
    assert found[1:3] == ["90", "4"]
    shares = [float(share) for share in found[3:]]
    assert shares == sorted(shares)
    assert shares[-1] == 100.0


@pytest.mark.usefixtures("folder")
def test_the_polynomial_is_of_rows_divided_by_their_norm(capsys):
    assert main(["crammer_singer", "--part", "polynomial", "--data", "mnist", "--C", "1", "8"]) == 0
    lines = lines_of(capsys.readouterr().out, "mnist")
    assert [line[2] for line in lines] == ["1", "8"]
    (parts,) = read("mnist")
    x, test_x = (part / np.linalg.norm(part, axis=1)[:, None] for part in (parts.x, parts.test_x))
    model = bigsvm.CrammerSingerSVC(
        kernel="precomputed", tol=1e-3
    ).fit((0.5 * (x @ x.T + 1)) ** 9, parts.y)  # fmt: skip
    predicted = model.predict((0.5 * (test_x @ x.T + 1)) ** 9)
    assert float(lines[0][5]) == pytest.approx(100 * (predicted != parts.test_y).mean(), abs=0.01)
    assert lines[0][6] == "1.24"


def test_sets_that_are_not_there_are_skipped(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("BIGSVM_DATA", str(tmp_path))
    assert main(["crammer_singer", "--part", "epsilon", "--data", "usps"]) == 0
    printed = capsys.readouterr()
    assert "skipped usps" in printed.err
    assert not printed.out
