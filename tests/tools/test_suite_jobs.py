"""What suites measure by functions of their own, at tiny sizes; and small runs of whole suites."""

import gzip
import itertools
import json
import time
from types import SimpleNamespace

import numpy as np
import pytest
from command_line import libsvm_text, two_clouds

from bigsvm import open_store
from bigsvm.data import zarr_arrays
from bigsvm.gram import KernelTiles, Partners
from bigsvm.gram.partners import rows_at
from bigsvm.gram.spans import Team
from bigsvm.kernels import RBF
from tools.benchmarks import __main__ as command
from tools.benchmarks import contestants
from tools.benchmarks.data import data_set
from tools.benchmarks.suites import (
    at_size,
    conversion,
    own_kernels,
    parity,
    parse,
    reading,
    serial_share,
    small_problems,
    unscaled,
)
from tools.benchmarks.suites.serial_share import Call, Ledger

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """Rows made up under the names of real ones."""
    X, y = two_clouds(150)
    X += 3  # with the origin among the rows a linear function of one class is 0 everywhere
    for name, target in (("heart_scale", y), ("mpg.scale", X[:, 0] ** 2 + X[:, 1])):
        with gzip.open(tmp_path / f"{name}.libsvm.gz", "wt") as file:
            file.write(libsvm_text(X, target))
    monkeypatch.setenv("BIGSVM_DATA", str(tmp_path))
    return tmp_path


# The serial share.


@pytest.mark.parametrize(("n_threads", "longest"), [(1, 10.0), (2, 6.0), (3, 5.0), (8, 4.0)])
def test_each_part_goes_to_the_first_thread_that_is_free(n_threads, longest):
    assert Call([1.0, 2.0, 3.0, 4.0], n_threads).longest == longest


def test_parts_within_a_part_are_not_counted_for_themselves():
    ledger, done = Ledger(), []

    def outer(part):
        ledger.share_out(None, lambda inner: done.append((part, inner)), ["a", "b"], 1)

    ledger.share_out(None, outer, [1, 2, 3], 7)
    assert done == [(part, inner) for part in (1, 2, 3) for inner in "ab"]
    (call,) = ledger.calls
    assert (len(call.seconds), call.n_threads) == (3, 8)


def test_each_pair_of_a_lane_is_a_part():
    ledger = Ledger()
    lanes = [SimpleNamespace(slot=None) for _ in range(3)]
    waiting = iter("abcd")

    def train(lane):
        for _ in waiting:
            ledger.mark()

    ledger.share_out(None, train, lanes, 2)
    (call,) = ledger.calls
    assert (len(call.seconds), call.n_threads) == (4 + 3, 3)


def test_the_pairs_of_a_single_lane_share_out_their_own_work():
    ledger = Ledger()

    def train(lane):
        ledger.share_out(None, lambda part: None, "abc", 7)

    ledger.share_out(None, train, [SimpleNamespace(slot=None)], 0)
    (call,) = ledger.calls
    assert (len(call.seconds), call.n_threads) == (3, 8)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("few-3000", {"C": 32.0, "gamma": 2.0}),
        ("arm-3000", {"formulation": "SVR", "C": 1.0, "gamma": 0.125, "epsilon": 0.3}),
    ],
)
def test_the_seconds_of_a_fit_are_divided(name, parameters, tmp_path):
    contestants.prepare(
        {"data": list(data_set(name)), "folder": str(tmp_path), "labels": "",
         "layouts": ["dense"], "distances": False, "stores": False}
    )  # fmt: skip
    job = {"who": serial_share.OURS, "name": name, "folder": str(tmp_path), "layout": "dense",
           "parameters": parameters}  # fmt: skip
    before = Team.share_out, KernelTiles.multiply
    found = serial_share.fit(job)
    assert (Team.share_out, KernelTiles.multiply) == before
    assert found["n_kernel_evaluations"] > 0
    assert 0 < found["serial"] < 100
    assert found["busy"] > 1
    phases = found["phases"]
    assert sum(phases.values()) == pytest.approx(found["seconds"])
    # So few rows are one working set, and no sums are needed.
    assert min(phases[name] for name in ("rows", "steps", "certificate", "other")) > 0
    shared = found["seconds"] * (1 - found["serial"] / 100)
    saved = found["seconds"] - found["elapsed"]
    assert saved == pytest.approx(shared - shared / found["busy"])


def test_the_seconds_of_steps_within_steps_are_counted_once():
    ledger = Ledger()

    def steps(n, *, deep):
        until = time.thread_time() + 0.01
        while time.thread_time() < until:
            pass
        return ledger.timed(steps)(n, deep=False) if deep else n

    began = time.thread_time()
    assert ledger.timed(steps)(3, deep=True) == 3
    assert 0.02 <= ledger.phases["steps"] <= time.thread_time() - began


def test_what_a_device_is_sent_and_returns_is_counted():
    ledger, rows = Ledger(), np.ones((40, 3), np.float32)
    with ledger.watching(), KernelTiles(RBF(gamma=1.0)) as tiles:
        partners = Partners.of_rows_like(tiles.values, rows_at(rows[:10]))
        tiles.multiply(rows, partners, np.ones(10), np.zeros(40))
        tiles.evaluate(rows[:5], partners, np.empty((5, 10), np.float32))
        with tiles.exact() as exact:
            of_exact = Partners.of_rows_like(exact.values, rows_at(rows))
            exact.multiply(rows, of_exact, np.ones(40), np.zeros(40))
    # Partners once; sums in float64, kernel values in float32; nothing of the certificate.
    assert ledger.sent == 4 * 3 * (40 + 10 + 5)
    assert ledger.returned == 8 * 40 + 4 * 5 * 10
    assert ledger.n_products == 2
    assert min(ledger.phases[name] for name in ("far", "rows", "certificate")) > 0


def test_a_device_leaves_what_is_not_its_own():
    phases = {"far": 6.0, "rows": 4.0, "steps": 1.0, "certificate": 0.5, "other": 0.5}
    answer = {"phases": phases, "sent": 0, "returned": int(serial_share.BUS), "n_products": 0}
    assert serial_share.with_device(answer, 10) == pytest.approx(2.0 + 1.0 + 1.0)


def test_there_are_ten_kinds_of_runs():
    assert len(serial_share.RUNS) == 10
    named = [case.data.name for case in serial_share.RUNS.values()]
    # Rows are prepared once for runs that come one after the other.
    assert len([1 for a, b in itertools.pairwise(named) if a != b]) == len(set(named)) - 1


# Slow kernels.


@pytest.mark.parametrize(
    "which",
    [
        pytest.param(own_kernels.COLD, marks=pytest.mark.slow),
        own_kernels.ANOTHER_C,
        pytest.param(own_kernels.RESUMED, marks=pytest.mark.slow),
        pytest.param(own_kernels.C_PATH, marks=pytest.mark.slow),
    ],
)
def test_rows_on_disk_save_kernel_values_of_a_slow_kernel_and_change_nothing(which, tmp_path):
    name = "few-2000" if which == own_kernels.ANOTHER_C else "few-3000"
    contestants.prepare(
        {"data": list(data_set(name)), "folder": str(tmp_path), "labels": "",
         "layouts": ["dense"], "distances": False, "stores": False}
    )  # fmt: skip
    parameters = {"C": 32.0, "gamma": 2.0, "run": which, "microseconds": 0.1,
                  "working_set": "auto"}  # fmt: skip
    job = {"name": name, "folder": str(tmp_path), "layout": "dense", "memory": "20MB",
           "parameters": parameters}  # fmt: skip
    without, with_disk = (
        own_kernels.fit(job | {"who": who}) for who in own_kernels.SUITE.contestants
    )
    assert without["converged"]
    assert without["bits"] == with_disk["bits"]
    assert without["n_read"] == 0 < with_disk["n_read"]
    assert with_disk["n_values"] < without["n_values"]
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


# Parity.


def test_every_formulation_and_kernel_is_compared(folder):
    verdicts = {}
    for who in parity.SUITE.contestants:
        case = SimpleNamespace(name="heart_scale")
        name = "heart_scale" if parity.SUITE.takes_part(who, case, None) else "mpg.scale"
        if who.split()[1] not in ("rbf", "linear"):
            continue
        line = parity.compare({"who": who, "name": name, "parameters": {"tol": 1e-5}})
        verdicts[who] = line["verdict"]
        assert line["has_nu"] == (who.split()[0] in ("nu-svc", "nu-svr", "one-class"))
        json.dumps(line)
    assert set(verdicts.values()) == {"holds"}
    assert len(verdicts) == 10


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, "holds"),
        ({"values": 2e-3}, "does not hold"),
        ({"labels": 1}, "does not hold"),
        ({"nu_fails": True, "peer_gap": 400.0}, "does not hold"),
        ({"objective": 2e-4, "peer_gap": 400.0}, "theirs is not at tol"),
        ({"objective": 2e-4, "peer_gap": 400.0, "gap": 101.0}, "does not hold"),
    ],
)
def test_the_gaps_decide_whose_model_is_wrong(changed, verdict):
    line = {"objective": 0.0, "values": 0.0, "labels": 0, "nu_fails": False, "gap": 1.0}
    assert parity.verdict({**line, "peer_gap": 1.0, **changed}) == verdict


# Text.


@pytest.mark.slow
@pytest.mark.parametrize("name", conversion.FILES)
def test_files_to_convert_are_text_that_is_read(name, monkeypatch, tmp_path):
    monkeypatch.setattr(conversion, "ROWS", 20)
    job = {"name": name, "folder": str(tmp_path), "parameters": {"megabytes": 0.001}}
    found = conversion.convert(job | {"who": conversion.PEER})
    assert found["megabytes"] == (tmp_path / f"{name}.libsvm").stat().st_size / 1e6 > 0
    if name == "ten":
        assert len((tmp_path / "ten.libsvm").read_text().splitlines()) == 10
        ours = conversion.convert(job | {"who": conversion.OURS, "checkout": None})
        assert len(ours["fingerprint"]) > 8
        assert (tmp_path / "ten.zarr").is_dir()


@pytest.mark.parametrize("name", [*parse.MADE, "a9a"])
def test_readers_agree_on_every_kind_of_file(name, tmp_path, monkeypatch):
    monkeypatch.setenv("BIGSVM_DATA", str(tmp_path))
    (tmp_path / "a9a.libsvm.gz").write_bytes(gzip.compress(b"1 1:0.5 123:2\n-1 7:1\n"))
    monkeypatch.setattr(parse, "kept_memory", lambda: SimpleNamespace(malloc_trim=trimmed.append))
    trimmed = []
    for who in parse.READERS:
        given = {"megabytes": 0.01, "fresh": who == parse.PEER}
        job = {"name": name, "who": who, "folder": str(tmp_path), "parameters": given}
        assert parse.read(job)["rate"] > 0
    assert trimmed == [0]


def test_readers_that_disagree_end_the_benchmark(tmp_path, monkeypatch):
    path = tmp_path / "text"
    path.write_text("1 1:1\n")
    monkeypatch.setattr(parse, "read_chunks", lambda *_: 2)
    with pytest.raises(SystemExit, match="disagree"):
        parse.check(path, 1, 1)


# Whole suites.


@pytest.mark.slow
def test_regression_and_one_class_hold_at_a_small_size(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("BIGSVM_DATA", str(tmp_path))
    assert command.main(["at_size", "--sizes", "6000", "--memory", "30MB"]) == 0
    printed = capsys.readouterr()
    assert "skipped cpusmall" in printed.err
    lines = [line for line in printed.out.splitlines() if line.startswith("| made-6000")]
    assert [line.split()[2] for line in lines[:2]] == ["eps-svr", "one-class"]
    assert sum("holds" in line for line in lines) == 6
    monkeypatch.setattr(at_size, "MOST_SWEEPS", 0)
    monkeypatch.setattr(at_size, "RUNS", at_size.RUNS[:1])
    assert command.main(["at_size", "--sizes", "3000", "--memory", "30MB"]) == 1
    assert "does not hold" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("suite", ["small_problems", "unscaled"])
def test_small_problems_are_fitted_by_all_and_compared(suite, folder, capsys, monkeypatch):
    monkeypatch.setattr(small_problems, "COSTS", (1.0,))
    monkeypatch.setattr(small_problems, "GAMMAS", (1.0,))
    monkeypatch.setattr(
        unscaled, "PROBLEMS", unscaled.PROBLEMS[::2]
    )  # a linear one and a polynomial
    given = [suite, "--data", "heart_scale", "none", "--repeats", "1"]
    assert command.main([*given, "--contestants", "bigsvm", "sklearn"]) == 0
    printed = capsys.readouterr()
    assert "skipped none" in printed.err
    lines = [line for line in printed.out.splitlines() if line.startswith("| heart_scale")]
    assert len(lines) == {"small_problems": 1, "unscaled": 2}[suite]
    assert "geometric mean" in printed.out
    if suite == "unscaled":
        assert all("converged" in line for line in lines)
        accuracies = [line.split("|")[-2].split() for line in lines]
        assert all(float(ours) == pytest.approx(float(peer), abs=1) for ours, peer in accuracies)


# Reading.


@pytest.mark.parametrize("layout", reading.LAYOUTS)
def test_all_ways_read_all_rows_of_one_store(layout, tmp_path, monkeypatch):
    monkeypatch.setattr(zarr_arrays, "HAS_ZARRS", zarr_arrays.HAS_ZARRS)  # it is set back
    job = {"name": layout, "folder": str(tmp_path), "parameters": {"megabytes": 0.1}}
    found = {who: reading.read({**job, "who": who}) for who in reading.SUITE.contestants}
    store = open_store(tmp_path / f"{layout}.zarr")
    assert store.rows.is_sparse == (layout == "csr")
    assert {run["n_rows"] for run in found.values()} == {store.rows.n_rows}
