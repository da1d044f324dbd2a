"""One checkpoint for all pairs: stopped, killed, damaged, and gone on with to the same bits."""

import json

import numpy as np
import pytest
from support.one_vs_one import train, values
from support.problems import clouds
from support.resuming import StopAt, assert_killed_to_the_same_bits, assert_resumed_to_the_same_bits
from support.same import assert_same_bits

from bigsvm.errors import CheckpointError
from bigsvm.one_vs_one import small as small_pairs
from bigsvm.one_vs_one.log import NAME
from bigsvm.training.events import Hooks
from bigsvm.training.generations import newest_manifest

pytestmark = pytest.mark.usefixtures("pairs_by_runs")

KINDS = {
    "c-svc": {"C": 5.0},
    "nu-svc": {"formulation": "nu-svc", "nu": 0.2},
    "l2-svc": {"formulation": "l2-svc", "C": 3.0},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("every", [60.0, 1e-9])
@pytest.mark.parametrize("threads", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_resumed_at_every_moment_it_gives_the_same_bits(tmp_path, kind, every, threads):
    """Saved at its end only, and after every pair and slice; one pair at a time, and two."""
    X, y = clouds(k=4, n=120)
    asked = StopAt()
    whole = train(X, y, hooks=Hooks(interrupted=asked), **KINDS[kind]).functions
    assert whole.certificate.converged
    within = 0

    def attempt(folder, interrupted):
        nonlocal within
        found = train(
            X, y, hooks=Hooks(interrupted=interrupted), checkpoint=str(folder),
            checkpoint_every=every, threads=threads, **KINDS[kind],
        ).functions  # fmt: skip
        within += len(newest_manifest(folder)["values"]["pairs"])
        return found

    firsts = range(1, asked.count, max(1, asked.count // 5))
    assert_resumed_to_the_same_bits(attempt, tmp_path, firsts, whole, then=(2, 7, 1, -1))
    assert within > 3


def test_a_finished_run_is_not_trained_again(tmp_path):
    X, y = clouds()
    whole = train(X, y, checkpoint=str(tmp_path)).functions
    again = train(X, y, checkpoint=str(tmp_path), max_iter=0).functions
    assert_same_bits(again, whole)


@pytest.mark.parametrize("max_iter", [0, 1, 200, 500])
def test_the_limit_of_steps_is_of_all_pairs(tmp_path, max_iter):
    X, y = clouds()
    whole = train(X, y, C=5.0).functions
    assert whole.certificate.n_iter > 550
    found = train(X, y, C=5.0, checkpoint=str(tmp_path), max_iter=max_iter)
    certificate, pairs = found.functions.certificate, found.functions.pairs
    assert (certificate.converged, certificate.stop_reason) == (False, "max_iter")
    assert certificate.n_iter <= max_iter
    assert certificate.gap is None
    assert pairs["n_begun"] < pairs["n_pairs"] == 6
    assert pairs["worst"][0]["stop_reason"] != "converged"
    if max_iter:
        assert np.isfinite(values(found, X, X)).all()
    ended = train(X, y, C=5.0, checkpoint=str(tmp_path)).functions
    np.testing.assert_allclose(
        ended.coefficients.toarray(), whole.coefficients.toarray(), atol=1e-3
    )


def test_a_pair_that_was_never_begun_is_a_function_of_0():
    found = train(*clouds(), max_iter=0).functions
    assert found.coefficients.shape == (0, 6)
    assert not found.intercepts.any()
    assert found.pairs["worst"][0] == {
        "classes": [0, 1], "stop_reason": None, "gap": None, "n_support": 0, "n_iter": 0,
    }  # fmt: skip


def test_the_limit_of_time_is_of_all_pairs(tmp_path):
    found = train(*clouds(k=8), max_seconds=1e-9, checkpoint=str(tmp_path)).functions
    assert found.certificate.stop_reason == "time_limit"
    assert train(*clouds(k=8), checkpoint=str(tmp_path)).functions.certificate.converged


def test_a_stalled_pair_does_not_end_the_others(monkeypatch):
    monkeypatch.setattr("bigsvm.training.loop.PATIENCE", 0)
    found = train(*clouds(), tol=1e-30).functions
    assert found.certificate.stop_reason == "stalled"
    assert found.pairs["n_begun"] == 6
    assert not found.certificate.converged


@pytest.mark.parametrize(("change", "words"), [
    ({"C": 2.0}, r"C \(checkpoint: 1.0, now: 2.0\)"),
    ({"gamma": 0.1}, "kernel"),
    ({"class_weight": {0: 2.0}}, "class weights"),
    ({"loss": "squared_hinge"}, "formulation"),
])  # fmt: skip
def test_another_problem_is_refused_by_name(tmp_path, change, words):
    X, y = clouds(n=60)
    train(X, y, checkpoint=str(tmp_path))
    with pytest.raises(CheckpointError, match=words):
        train(X, y, checkpoint=str(tmp_path), **change)
    with pytest.raises(CheckpointError, match="labels and weights"):
        train(X, y[::-1], checkpoint=str(tmp_path))


class TestLog:
    @pytest.fixture
    def half(self, tmp_path):
        """Folder of a run that was stopped with some pairs finished."""
        asked = StopAt()
        X, y = clouds(k=5)
        train(X, y, hooks=Hooks(interrupted=asked))
        stopped = Hooks(interrupted=StopAt(asked.count // 2))
        train(X, y, hooks=stopped, checkpoint=str(tmp_path))
        assert 0 < newest_manifest(tmp_path)["values"]["n_finished"] < 10
        return tmp_path

    def whole(self):
        return train(*clouds(k=5)).functions

    def resumed(self, folder):
        return train(*clouds(k=5), checkpoint=str(folder)).functions

    def test_log_is_only_appended_to(self, half):
        before = (half / NAME).read_bytes()
        assert_same_bits(self.resumed(half), self.whole())
        after = (half / NAME).read_bytes()
        assert after.startswith(before)
        assert len(after) > len(before)

    @pytest.mark.parametrize("cut", [1, 9, 40])
    def test_truncated_entry_of_the_log_is_trained_again(self, half, cut):
        log = half / NAME
        log.write_bytes(log.read_bytes()[:-cut])
        assert_same_bits(self.resumed(half), self.whole())
        assert_same_bits(self.resumed(half), self.whole())

    @pytest.mark.parametrize("place", [3, 20, 300])
    def test_damaged_log_does_not_change_the_result(self, half, place):
        log = half / NAME
        data = bytearray(log.read_bytes())
        data[place] ^= 4
        log.write_bytes(data)
        assert_same_bits(self.resumed(half), self.whole())

    def test_log_of_another_run_is_not_used(self, half, tmp_path):
        """Not even of the same rows, labels and pairs; of the same run it is, wherever it lies."""
        other = tmp_path / "other"
        train(*clouds(k=5), C=0.01, checkpoint=str(other))
        (half / NAME).write_bytes((other / NAME).read_bytes())
        assert_same_bits(self.resumed(half), self.whole())
        again = train(*clouds(k=5), checkpoint=str(half), max_iter=0).functions
        assert again.certificate.converged

    def test_log_without_a_generation_is_not_used(self, half):
        for path in half.glob("generation-*/*"):
            path.unlink()
        for path in half.glob("generation-*"):
            path.rmdir()
        assert_same_bits(self.resumed(half), self.whole())

    def test_a_full_disk_says_so_and_the_run_goes_on_elsewhere(self, half, monkeypatch):
        def full(descriptor):
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr("bigsvm.one_vs_one.log.os.fsync", full)
            with pytest.raises(CheckpointError, match=r"No space left .* is intact"):
                self.resumed(half)
        assert_same_bits(self.resumed(half), self.whole())


def train_in_process(folder, pairs, threads):
    """Train pairs in runs of their own, or small ones together."""
    if pairs == "by runs":
        small_pairs.MOST_ROWS = 0
        X, y = clouds(n=2400, k=8, spread=0.5)
    else:
        X, y = clouds(n=9000, k=30, spread=0.5)
    given = {"checkpoint": str(folder), "checkpoint_every": 0.1, "threads": threads}
    return train(X, y, C=10.0, **given).functions


@pytest.mark.slow
@pytest.mark.parametrize(("pairs", "threads"), [("by runs", 1), ("by runs", 2), ("together", 1)])
def test_killed_several_times_it_gives_the_same_bits(tmp_path, pairs, threads):
    """A real process, `kill -9` at random moments, each after it has got on a little."""
    whole = assert_killed_to_the_same_bits(train_in_process, tmp_path, arguments=(pairs, threads))
    assert whole.certificate.converged


def test_the_generation_tells_how_far_the_run_is(tmp_path):
    X, y = clouds(k=5)
    whole = train(X, y, checkpoint=str(tmp_path)).functions
    values = newest_manifest(tmp_path)["values"]
    assert (values["n_finished"], values["n_pairs"]) == (10, 10)
    assert values["n_iter"] == whole.certificate.n_iter
    assert values["gap"] == whole.certificate.gap
    assert values["objective"] == pytest.approx(whole.certificate.objective)
    assert json.dumps(whole.pairs)
