"""Shrinking: the same optimum, fewer kernel values, and the same bits after any interruption."""

import numpy as np
import pytest
from support.problems import blobs, decomposition, gram, target
from support.resuming import (
    StopAt,
    assert_killed_to_the_same_bits,
    assert_resumed_to_the_same_bits,
    with_checkpoint,
)
from support.same import assert_same_bits

from bigsvm.duals.box import BoxDual, rule_of
from bigsvm.duals.formulations import (
    CSVC,
    EpsilonSVR,
    NuClassification,
    NuRegression,
    OneClass,
    SquaredHingeSVC,
)
from bigsvm.duals.kept_rows import kept_of, with_kept
from bigsvm.papers import shrinking
from bigsvm.papers.disk import DiskCache
from bigsvm.papers.shrinking import ShrinkingProblem
from bigsvm.training import run as training_run
from bigsvm.training.checkpoint import Checkpoint
from bigsvm.training.result import StopReason
from bigsvm.training.state import Limits

FORMULATIONS = {
    "c-svc": lambda X, y: CSVC(sign=y, C=300.0),
    "squared": lambda X, y: SquaredHingeSVC(sign=y, C=100.0),
    "nu-svc": lambda X, y: NuClassification(sign=y, nu=0.3),
    "one-class": lambda X, y: OneClass(n_rows=len(y), nu=0.3),
    "eps-svr": lambda X, y: EpsilonSVR(target=target(X, noise=0.3), C=10.0, epsilon=0.1),
    "nu-svr": lambda X, y: NuRegression(target=target(X, noise=0.3), C=3.0, nu=0.4),
}


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """Look for settled rows so often that small problems have some."""
    monkeypatch.setattr("bigsvm.papers.shrinking.PERIOD", 64)


def run(kind, *, shrinking, n=700, rule="hmg", slots=100, **options):
    X, y = blobs(n, overlap=0.7)
    formulation = FORMULATIONS[kind](X, y)
    dual = BoxDual(formulation, rule_of(rule), shrinking=shrinking)
    return decomposition(
        X, y, dual=dual, whole=True, working_set=n, slots=slots, gamma=0.3, **options
    )


def exact_gap(kind, result, n=700):
    """The KKT gap of a point by its definition, in float64, over all rows."""
    X, y = blobs(n, overlap=0.7)
    formulation = FORMULATIONS[kind](X, y)
    alpha = formulation.zeros(n)
    alpha[result.support] = result.alpha
    outputs = gram(X, 0.3) @ formulation.per_output(alpha)
    everything = np.arange(n)
    gaps = []
    for group in range(formulation.n_groups):
        up, low = [-np.inf], [np.inf]
        for (box, ridge, own), a in formulation.with_alpha(alpha, everything):
            if own == group:
                gradient = box.linear - outputs - ridge * a
                up.append(gradient[a < box.upper].max(initial=-np.inf))
                low.append(gradient[a > box.lower].min(initial=np.inf))
        gaps.append(max(up) - min(low))
    return max(gaps)


@pytest.mark.parametrize(
    "rule", [pytest.param("mvp", marks=pytest.mark.slow), "second-order", "hmg"]
)
@pytest.mark.parametrize("kind", FORMULATIONS)
def test_the_optimum_is_the_same(kind, rule, monkeypatch):
    sizes = []
    shrink = ShrinkingProblem._shrink

    def noted(self):
        shrink(self)
        sizes.append(self.size)

    monkeypatch.setattr(ShrinkingProblem, "_shrink", noted)
    shrunk = run(kind, shrinking=True, rule=rule).run()
    whole = run(kind, shrinking=False, rule=rule).run()
    assert shrunk.certificate.converged
    assert exact_gap(kind, shrunk) <= 1.001e-3
    assert shrunk.certificate.objective == pytest.approx(whole.certificate.objective, rel=1e-5)
    # A ridge leaves no variable at its upper bound, so there is less to leave out.
    assert min(sizes) < (0.95 if kind == "squared" else 0.8) * 700


def test_rows_left_out_cost_no_kernel_values():
    shrunk, whole = (
        run("c-svc", shrinking=shrinking, slots=20).run().certificate for shrinking in (True, False)
    )
    assert shrunk.n_kernel_evaluations < 0.7 * whole.n_kernel_evaluations


@pytest.mark.parametrize("slots", [20, 700])
def test_memory_and_threads_change_no_bit(slots):
    reference = run("c-svc", shrinking=True, slots=60).run()
    assert_same_bits(run("c-svc", shrinking=True, slots=slots, threads=2).run(), reference)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[pytest.mark.slow] if "svr" in kind else [])
        for kind in FORMULATIONS
    ],
)
@pytest.mark.parametrize("rule", ["second-order", pytest.param("hmg", marks=pytest.mark.slow)])
def test_resumed_at_every_moment_it_gives_the_same_bits(tmp_path, kind, rule, monkeypatch):
    monkeypatch.setattr("bigsvm.papers.shrinking.VALUES_AT_ONCE", 1 << 12)
    monkeypatch.setattr("bigsvm.training.run.REFRESH", 96)  # steps between two saves
    tol = 1e-3 if kind == "c-svc" else 1e-5
    options = {"shrinking": True, "rule": rule, "n": 400, "tol": tol}
    watch = StopAt()
    undisturbed = run(kind, limits=Limits(interrupted=watch), **options).run()
    assert undisturbed.certificate.converged
    left_out = False

    def train(**saving):
        nonlocal left_out
        one = run(kind, **saving, **options)
        result = one.run()
        left_out |= len(one.state.pair) > 2
        return result

    firsts = range(1, watch.count, max(3, watch.count // 5))
    assert_resumed_to_the_same_bits(
        with_checkpoint(train), tmp_path, firsts, undisturbed, then=(2, 7, -1)
    )
    assert left_out, "no run was stopped while rows were left out"


@pytest.mark.parametrize("on_disk", [False, True])
def test_shrunken_checkpoint_is_resumed_without_shrinking(tmp_path, monkeypatch, caplog, on_disk):
    """As in more memory than before, or with rows on disk, where `shrinking=None` keeps all."""
    disk = None
    if on_disk:
        disk = DiskCache(
            tmp_path / "rows", capacity_bytes=10**8, fingerprint={"a": "b"}, value_seconds=1.0
        )
    monkeypatch.setattr("bigsvm.training.run.REFRESH", 96)
    for moment in range(200, 2000, 150):
        with Checkpoint(tmp_path / str(moment), {}) as checkpoint:
            limits = Limits(interrupted=StopAt(moment))
            stopped = run("c-svc", shrinking=True, checkpoint=checkpoint, limits=limits)
            stopped.run()
            if len(stopped.state.pair) == 2:
                continue
            result = run("c-svc", shrinking=False, checkpoint=checkpoint, disk=disk).run()
        assert result.certificate.converged
        assert exact_gap("c-svc", result) <= 1.001e-3
        assert (result.certificate.row_reads > 0) is on_disk
        assert not caplog.messages  # such as of a file that is in use
        return
    raise AssertionError("no run was stopped while rows were left out")


@pytest.mark.parametrize("max_iter", [0, 100, 1000, 3000])
def test_out_of_steps_the_gap_is_that_of_all_rows(max_iter):
    result = run("c-svc", shrinking=True, limits=Limits(max_iter=max_iter)).run()
    assert result.certificate.n_iter <= max_iter
    if not result.certificate.converged:
        assert result.certificate.stop_reason is StopReason.MAX_ITER
        assert result.certificate.gap == pytest.approx(exact_gap("c-svc", result), rel=1e-3)


def test_a_checkpoint_whose_rows_left_out_make_no_sense_is_refused():
    dual = run("c-svc", shrinking=True)._run.dual
    kept = np.ones(700, np.bool_)
    kept[:100] = False
    last = with_kept(np.array([0, 599]), kept)
    np.testing.assert_array_equal(kept_of(last, 700), kept)
    assert dual.knows_last(last, 700)
    assert not dual.knows_last(last, 900)
    assert not dual.knows_last(with_kept(np.array([0, 650]), kept), 700)
    assert not dual.knows_last(with_kept(np.array([0, 1]), np.zeros(700, np.bool_)), 700)
    last[-1] = -1  # bits of rows that are not there
    assert not dual.knows_last(last, 700)


def train_in_process(folder):
    shrinking.PERIOD, training_run.REFRESH = 64, 96
    with Checkpoint(folder, {}) as checkpoint:
        return run(
            "c-svc", shrinking=True, n=2500, checkpoint=checkpoint, checkpoint_every=0.05
        ).run()


@pytest.mark.slow
def test_killed_several_times_it_gives_the_same_bits(tmp_path):
    """A real process, `kill -9` at random times, each after it has saved something new."""
    assert_killed_to_the_same_bits(train_in_process, tmp_path, times=4, at_least=2, pause=0.1)
