"""The experiments of Crammer and Singer's paper, on tiny data."""

import gzip
import json

import numpy as np
import pytest

import bigsvm
from tools.benchmarks import crammer_singer
from tools.benchmarks.__main__ import main
from tools.benchmarks.crammer_singer import read
from tools.benchmarks.preparations import PREPARATIONS, prepared


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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.usefixtures("folder")
def test_prepared_rows_are_trained_with_what_was_chosen_for_them(capsys):
    assert main(["crammer_singer", "--part", "prepared", "--data", "usps"]) == 0
    printed = capsys.readouterr().out
    chosen = json.loads(crammer_singer.CHOSEN.read_text())["usps"]
    (parts,) = read("usps")
    for method, model in (("crammer-singer", bigsvm.CrammerSingerSVC()), ("ovr", bigsvm.SVC())):
        (one,) = chosen[method]
        ready = prepared(parts, one["rows"])
        model.set_params(C=one["C"], gamma=one["gamma"], tol=1e-3)
        if method == "ovr":
            model.set_params(multiclass="ovr")
        wrong = (model.fit(ready.x, ready.y).predict(ready.test_x) != ready.test_y).sum()
        ((_, error, _, of_all, *_),) = lines_of(printed, method)
        assert of_all == f"{wrong} of 90"
        assert error == f"{100 * wrong / 90:.2f}"
        assert f"{method}: C {one['C']:g}, gamma {one['gamma']:.4g} " in printed
    (last,) = [line for line in lines_of(printed, "usps") if line[3][0] in "+-"]
    assert float(last[3]) == pytest.approx(float(last[2]) - float(last[1]), abs=0.02)
    assert lines_of(printed, "usps: ovo converged")[0][-1] == "holds"


def test_a_choice_has_what_the_table_says_of_it():
    chosen = json.loads(crammer_singer.CHOSEN.read_text())
    assert set(chosen) == set(crammer_singer.PROBLEMS)
    for name, methods in chosen.items():
        for choices in methods.values():
            assert len(choices) == max(1, crammer_singer.PROBLEMS[name].folds)
            assert all(choice["rows"] in PREPARATIONS for choice in choices)
            assert all(min(choice["C"], choice["gamma"]) > 0 for choice in choices)


def test_problems_are_read_as_the_paper_has_them(classes, monkeypatch):
    classes("letter", 60, n_classes=3, largest=15)
    classes("glass.scale", 61, n_classes=3)
    plain = crammer_singer.PROBLEMS["letter"]._replace(n_trained=None)
    monkeypatch.setitem(crammer_singer.PROBLEMS, "letter", plain)
    (whole,) = read("letter")
    assert whole.x.dtype == np.float32
    assert whole.x.max() == 1
    assert whole.test_x.max() <= 1
    folds = read("glass")
    assert [len(fold.test_y) for fold in folds] == [13, 12, 12, 12, 12]
    assert {len(fold.y) + len(fold.test_y) for fold in folds} == {61}
    # The first rows of the other file may be trained on too.
    monkeypatch.setitem(crammer_singer.PROBLEMS, "letter", plain._replace(n_trained=70))
    (moved,) = read("letter")
    assert (len(moved.y), len(moved.test_y)) == (70, 50)
    np.testing.assert_array_equal(moved.x[60:], whole.test_x[:10])
    np.testing.assert_array_equal(moved.test_x, whole.test_x[10:])
    np.testing.assert_array_equal(moved.y, np.concatenate([whole.y, whole.test_y[:10]]))
    # Random rows of a larger size go on from those of a smaller one.
    monkeypatch.setitem(crammer_singer.PROBLEMS, "letter", plain._replace(n_rows=20))
    (few,) = read("letter")
    np.testing.assert_array_equal(whole.x[crammer_singer.some_rows(60, 40)[:20]], few.x)


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_all_sets_are_lines_of_one_table(capsys, monkeypatch):
    monkeypatch.setattr(crammer_singer, "COARSE_C", (1.0,))
    monkeypatch.setattr(crammer_singer, "COARSE_TIMES", (1.0,))
    given = ["--data", "usps", "mnist", "--validated", "40"]
    assert main(["crammer_singer", "--part", "tables", *given]) == 0
    header, _, *lines = [
        line for line in capsys.readouterr().out.splitlines() if line.startswith("|")
    ]
    assert header.split("|")[1].strip() == "problem"
    assert [line.split("|")[1].strip() for line in lines] == ["usps", "mnist"]


def test_sets_that_are_not_there_are_skipped(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("BIGSVM_DATA", str(tmp_path))
    assert main(["crammer_singer", "--part", "epsilon", "--data", "usps"]) == 0
    printed = capsys.readouterr()
    assert "skipped usps" in printed.err
    assert not printed.out
