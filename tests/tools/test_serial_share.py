"""The benchmark of the serial share: simulated threads, its arithmetic, and one run of it."""

import fit_once
import pytest
import serial_share
from data_sets import data_set
from serial_share import Call, Ledger, Measured

from bigsvm.team import Team


@pytest.mark.parametrize(
    ("n_threads", "longest"),
    [(1, 10.0), (2, 6.0), (3, 5.0), (8, 4.0)],
)
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


def answer(serial, shared, longest, evaluations=7):
    total = serial + shared
    return {
        "total": total, "serial": serial, "steps": serial / 2, "shared": shared,
        "longest": longest, "elapsed": serial + longest, "n_kernel_evaluations": evaluations,
    }  # fmt: skip


def test_report_and_checks():
    good = Measured("good", [answer(0.1, 0.9, 0.9)], [answer(0.05, 0.8, 0.1)])
    bad = Measured("bad", [answer(0.5, 0.5, 0.5)], [answer(0.5, 0.5, 0.25, 8)])
    line = serial_share.report([good, bad]).splitlines()[3]
    assert [cell.strip() for cell in line.split("|")[1:-1]] == [
        "bad", "1.00", "50.0", "25.0", "1.8", "2.0", "2.0", "1.3"
    ]  # fmt: skip
    failing = [check.name for check in serial_share.checks([good, bad]) if not check.holds]
    assert failing == ["bad: serial share", "bad: 8 threads", "bad: kernel values"]


@pytest.mark.parametrize("threads", [1, 8])
def test_what_a_fit_takes_is_divided(threads, tmp_path):
    data = data_set("few-3000")
    fit_once.prepare(data, tmp_path)
    team = Team.share_out
    found = serial_share.fit("dense", data, tmp_path, threads)
    assert Team.share_out is team
    assert found["n_kernel_evaluations"] > 0
    assert found["total"] == pytest.approx(found["serial"] + found["shared"])
    assert found["elapsed"] == pytest.approx(found["serial"] + found["longest"])
    assert 0 < found["steps"] < found["serial"]
    assert (found["longest"] < found["shared"]) == (threads > 1)
