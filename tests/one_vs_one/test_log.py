"""Results of pairs: joined, as a dense table says, and kept beside a checkpoint."""

from dataclasses import asdict, replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigsvm.data.in_memory import ArrayRows
from bigsvm.errors import CheckpointError, MemoryBudgetError
from bigsvm.one_vs_one import log as log_module
from bigsvm.one_vs_one.log import BYTES_PER_COEFFICIENT, NAME, PairLog, Slot, Solved
from bigsvm.training.checkpoint import Checkpoint
from bigsvm.training.result import PHASES, Certificate, StopReason
from bigsvm.training.state import Counters, Phase, first_state
from bigsvm.votes import pair_classes, pair_number

SOURCE = ArrayRows(np.zeros((50, 1)))
CERTIFICATE = Certificate(
    converged=True, stop_reason=StopReason.CONVERGED, tol=1e-3, objective=2.0, gap=1e-4,
    duality_gap=None, n_support=0, n_bounded=1, n_sweeps=2, n_iter=10, n_kernel_evaluations=100,
    row_misses=3, row_reads=0, n_working_sets=1, rows_swept=20, bytes_read=0, seconds=0.5,
    seconds_by_phase=dict(zip(PHASES, (0.125, 0.0, 0.25, 0.0625, 0.0625), strict=True)),
)  # fmt: skip


def solved(rows, values, intercept=0.5, **certificate):
    rows = np.asarray(rows, np.int32)
    return Solved(
        rows, np.asarray(values, float), intercept, np.nan, replace(CERTIFICATE, **certificate)
    )


def finish(log, number, *arguments, **options):
    log.finish(number, solved(*arguments, **options))


def counters(**given):
    """Counters of a pair of three rows in progress."""
    state = np.random.default_rng(0).bit_generator.state
    return asdict(Counters(phase=Phase.SOLVE, scope=3, random_state=state, **given))


def arrays(alpha=0.0):
    """Arrays of such a pair."""
    return first_state(np.full(3, alpha))._asdict()


def begun(log, number, **options):
    slot = Slot(log, **options)
    slot.begin(number)
    return slot


@given(
    columns=st.lists(
        st.dictionaries(st.integers(0, 49), st.floats(0.1, 9), max_size=8), min_size=1, max_size=10
    ),
    order=st.randoms(use_true_random=False),
)
def test_joined_pairs_agree_with_a_dense_table(columns, order):
    log = PairLog(None, len(columns), SOURCE, most_bytes=1e9)
    table = np.zeros((50, len(columns)))
    numbers = list(range(len(columns)))
    order.shuffle(numbers)
    for number in numbers[:-1]:  # one is never begun
        rows = sorted(columns[number])
        values = [columns[number][row] for row in rows]
        table[rows, number] = values
        finish(log, number, rows, values, intercept=float(number))
    support, found = log.coefficients(50)
    np.testing.assert_array_equal(support, np.flatnonzero(table.any(axis=1)))
    np.testing.assert_array_equal(found.toarray(), table[support])
    found.check_format(full_check=True)
    assert found.has_sorted_indices
    assert log.n_finished == len(columns) - 1
    assert log.total("n_iter") == 10 * (len(columns) - 1)
    assert log.records["intercept"].sum() == sum(numbers[:-1])


@pytest.mark.parametrize("k", [2, 3, 7])
def test_pairs_are_numbered_as_in_libsvm(k):
    first, second = pair_classes(k)
    expected = [(a, b) for a in range(k) for b in range(a + 1, k)]
    assert list(zip(first.tolist(), second.tolist(), strict=True)) == expected
    numbers = pair_number(*np.array(expected).T, k)
    np.testing.assert_array_equal(numbers, np.arange(len(expected)))


def test_finished_pairs_are_read_back(tmp_path):
    with Checkpoint(tmp_path, {}) as checkpoint:
        log = PairLog(checkpoint, 4, SOURCE, most_bytes=1e9)
        finish(log, 2, [3, 7], [1.5, -2.5])
        assert not log.is_saved
        log.save()
        assert log.is_saved
        finish(log, 0, [7], [4.0], intercept=-1.0, objective=None)
        Slot(log).save({}, {})
        again = PairLog(checkpoint, 4, SOURCE, most_bytes=1e9)
    assert again.records.tobytes() == log.records.tobytes()
    assert again.n_finished == 2
    for found, expected in zip(again.coefficients(50), log.coefficients(50), strict=True):
        found, expected = (getattr(x, "toarray", lambda x=x: x)() for x in (found, expected))
        np.testing.assert_array_equal(found, expected)


@pytest.fixture
def still(monkeypatch):
    """A clock that stands still."""
    monkeypatch.setattr(log_module, "time", SimpleNamespace(monotonic=lambda: 5.0))


@pytest.mark.usefixtures("still")
def test_seconds_by_phase_are_summed_and_read_back(tmp_path):
    """The pairs together may take longer than the run, as they may be trained at once."""
    once = CERTIFICATE.seconds_by_phase
    with Checkpoint(tmp_path, {}) as checkpoint:
        log = PairLog(checkpoint, 4, SOURCE, most_bytes=1e9)
        finish(log, 2, [3, 7], [1.5, -2.5])
        finish(log, 0, [7], [4.0])
        log.save()
        again = PairLog(checkpoint, 4, SOURCE, most_bytes=1e9)
    assert log.seconds < sum(once.values()) * 2
    expected = {name: 2 * seconds for name, seconds in once.items()}
    assert log.seconds_by_phase() == again.seconds_by_phase() == expected


@pytest.mark.usefixtures("still")
def test_time_outside_the_pairs_is_in_the_rest(tmp_path):
    with Checkpoint(tmp_path, {}) as checkpoint:
        log = PairLog(checkpoint, 4, SOURCE, most_bytes=1e9)
        finish(log, 2, [3, 7], [1.5, -2.5])
        log._before["seconds"] = 100.0
        log.save()
        again = PairLog(checkpoint, 4, SOURCE, most_bytes=1e9)
    phases = again.seconds_by_phase()
    assert sum(phases.values()) == pytest.approx(again.seconds)
    once = CERTIFICATE.seconds_by_phase
    assert {**phases, "rest": 0.0} == {**once, "rest": 0.0}


class Recorder:
    """Checks nothing, recomputes one pair, and remembers what it was asked."""

    recomputed = frozenset({2})

    def choose(self, pairs, n_support):
        self.asked = list(zip(pairs.tolist(), n_support.tolist(), strict=True))

    def fault_of(self, entry):
        return ""


@pytest.mark.parametrize("cut", [0, 1, 16, 20])
def test_entries_are_counted_before_they_are_read(tmp_path, cut):
    """The last entry has no support vectors; if bytes of it are cut off, it is not there."""
    check = Recorder()
    with Checkpoint(tmp_path, {}) as checkpoint:
        log = PairLog(checkpoint, 4, SOURCE, most_bytes=1e9)
        for number, rows in ((2, [3, 7]), (0, [1]), (3, [])):
            finish(log, number, rows, np.ones(len(rows)))
        log.save()
        data = (tmp_path / NAME).read_bytes()
        (tmp_path / NAME).write_bytes(data[: len(data) - cut])
        again = PairLog(checkpoint, 4, SOURCE, most_bytes=1e9, check=check)
    assert check.asked == [(2, 2), (0, 1), (3, 0)][: 2 if cut else 3]
    assert again.n_finished == len(check.asked)
    assert again.n_not_recomputed == again.n_finished - 1


def test_a_pair_in_progress_stays_while_others_are_trained(tmp_path):
    """In another order, as with another memory."""
    state, values = arrays(alpha=4.0), counters(n_iter=7)
    with Checkpoint(tmp_path, {}) as checkpoint:
        log = PairLog(checkpoint, 4, SOURCE, most_bytes=1e9)
        begun(log, 3).save(state, values)
        again = PairLog(checkpoint, 4, SOURCE, most_bytes=1e9)
        finish(again, 0, [1], [1.0])
        again.save()
        assert checkpoint.latest().values["n_iter"] == 17
        third = PairLog(checkpoint, 4, SOURCE, most_bytes=1e9)
        assert third.in_progress == (3,)
        slot = begun(third, 1)
        assert slot.latest() is None
        slot.begin(3)
        assert slot.latest().values == values
        np.testing.assert_array_equal(slot.latest().arrays["alpha"], state["alpha"])
        slot.finish(solved([2], [1.0]))
        slot.save({}, {})
        assert checkpoint.latest().values["pairs"] == []
        assert PairLog(checkpoint, 4, SOURCE, most_bytes=1e9).in_progress == ()


def test_pairs_that_are_trained_at_once_are_saved_apart_from_what_is_worked_on(tmp_path):
    states = {number: arrays(alpha=float(number)) for number in (1, 2)}
    with Checkpoint(tmp_path, {}) as checkpoint:
        log = PairLog(checkpoint, 4, SOURCE, most_bytes=1e9)
        slots = {number: begun(log, number, copies=True) for number in states}
        for number, slot in slots.items():
            slot.save(states[number], counters(n_iter=number, gap=number / 10))
        states[1]["alpha"][:] = 7.0  # on its way to its next save
        finish(log, 0, [1], [1.0])
        slots[2].save(states[2], counters(n_iter=20, gap=0.1))
        saved = checkpoint.latest().values
        assert (saved["n_iter"], saved["gap"], saved["n_finished"]) == (31, 0.1, 1)
        again = PairLog(checkpoint, 4, SOURCE, most_bytes=1e9)
        assert set(again.in_progress) == {1, 2}
        slot = begun(again, 1, copies=True)
        slot.latest().arrays["alpha"][:] = 8.0  # by the run that goes on from there
        assert slot.latest().arrays["alpha"].tolist() == [1.0, 1.0, 1.0]
        assert slot.latest().values == counters(n_iter=1, gap=0.1)
        assert begun(again, 2).latest().values["n_iter"] == 20
        slot.finish(solved([2], [1.0]))
        assert again.in_progress == (2,)


def test_log_newer_than_the_generation_is_used(tmp_path):
    """Killed after the one was written and before the other."""
    with Checkpoint(tmp_path, {}) as checkpoint:
        log = PairLog(checkpoint, 4, SOURCE, most_bytes=1e9)
        slot = begun(log, 1)
        slot.save(arrays(), counters(n_iter=3))
        slot.finish(solved([4], [1.0]))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(checkpoint, "save", lambda arrays, values: 0)
            log.save()
        again = PairLog(checkpoint, 4, SOURCE, most_bytes=1e9)
        assert again.n_finished == 1
        assert begun(again, 1).latest() is None


def test_unfinished_pairs_are_in_the_result_and_not_in_the_log(tmp_path):
    with Checkpoint(tmp_path, {}) as checkpoint:
        log = PairLog(checkpoint, 4, SOURCE, most_bytes=1e9)
        slot = begun(log, 1)
        slot.save(arrays(), counters(n_iter=3))
        slot.leave(solved([4], [1.0], converged=False, stop_reason=StopReason.MAX_ITER))
        assert log.is_saved
        assert log.in_progress == ()  # whoever trains alone has its state
        assert checkpoint.latest().values["pairs"] == [1]
        assert log.reasons() == {StopReason.MAX_ITER: 1}
        assert log.coefficients(50)[0].tolist() == [4]
        assert not (tmp_path / NAME).exists()
        assert PairLog(checkpoint, 4, SOURCE, most_bytes=1e9).n_finished == 0


def test_a_checkpoint_of_one_pair_at_a_time_is_refused(tmp_path):
    with Checkpoint(tmp_path, {}) as checkpoint:
        checkpoint.save({"alpha": np.zeros(1)}, {"pair": 1, "of_pair": {}})
        with pytest.raises(CheckpointError, match=r"earlier bigsvm.*start in an empty directory"):
            PairLog(checkpoint, 4, SOURCE, most_bytes=1e9)


def test_coefficients_beyond_the_room_are_refused():
    log = PairLog(None, 2, SOURCE, most_bytes=3 * BYTES_PER_COEFFICIENT)
    finish(log, 0, [1, 2, 3], [1.0, 1.0, 1.0])
    with pytest.raises(MemoryBudgetError, match="the 4 coefficients of 2 of 2 pairs take 96 bytes"):
        finish(log, 1, [1], [1.0])
