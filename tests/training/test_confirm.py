"""Outputs of earlier processes: held against alpha before a run is certified."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from support.problems import blobs, decomposition, definition, dense_alpha, gram
from support.resuming import StopAt
from support.same import assert_same_bits

from bigsvm.errors import CheckpointError
from bigsvm.executors.executor import Exact
from bigsvm.executors.local import LocalExecutor
from bigsvm.executors.working_rows import WorkingRows
from bigsvm.training import certify as certifying
from bigsvm.training.checkpoint import Checkpoint
from bigsvm.training.confirm import confirm
from bigsvm.training.state import Limits
from tests.training.forged import array_of, forge, newest

X, Y = blobs(600)


@pytest.fixture(autouse=True)
def _not_all_in_float64(monkeypatch):
    """As in large runs."""
    monkeypatch.setattr(certifying, "EXACT_EVALUATIONS", 0)


def stopped(folder, moment=16):
    """Stop a run somewhere; returns its generation."""
    with Checkpoint(folder, {}) as checkpoint:
        limits = Limits(interrupted=StopAt(moment))
        decomposition(X, Y, working_set=150, limits=limits, checkpoint=checkpoint).run()
    return newest(folder)


def resumed(folder):
    with Checkpoint(folder, {}) as checkpoint:
        return decomposition(X, Y, working_set=150, checkpoint=checkpoint).run()


def hidden(generation):
    """Outputs that are exact for support rows, and have all others far from violating."""
    alpha = array_of(generation, "alpha")
    return np.where(alpha == 0, 3.0 * Y, gram(X) @ alpha)


def nothing_active(generation):
    """Give the arrays of a state right after a sweep."""
    names = ("active", "active_alpha", "active_outputs", "working", "working_alpha")
    empty = {name: array_of(generation, name)[:0] for name in (*names, "working_gradient")}
    return {**empty, "pair": np.full(2, -1)}


@pytest.mark.fault("forged-files")
def test_outputs_that_hide_violations_do_not_certify_a_point(tmp_path):
    generation = stopped(tmp_path / "run")
    forge(
        generation,
        arrays={**nothing_active(generation), "outputs": hidden(generation)},
        values={"phase": "select", "n_sweeps": 1, "rows_done": 0, "columns_done": 0, "scope": 600},
    )
    result = resumed(tmp_path / "run")
    assert result.certificate.converged
    _, gap, _ = definition(X, Y, dense_alpha(result, 600), result.thresholds[0])
    assert gap < 2e-3


def test_unconfirmed_outputs_would_certify_a_wrong_point(tmp_path, monkeypatch):
    """The test above can fail."""
    generation = stopped(tmp_path / "run")
    forge(
        generation,
        arrays={**nothing_active(generation), "outputs": hidden(generation)},
        values={"phase": "select", "n_sweeps": 1, "rows_done": 0, "columns_done": 0, "scope": 600},
    )
    monkeypatch.setattr("bigsvm.training.loop.confirm", lambda *_, **__: 0.0)
    result = resumed(tmp_path / "run")
    _, gap, _ = definition(X, Y, dense_alpha(result, 600), result.thresholds[0])
    assert gap > 1e-2


def test_a_run_that_is_resumed_has_the_same_bits(tmp_path):
    generation = stopped(tmp_path / "run", moment=20)
    assert array_of(generation, "alpha").any()
    found, whole = resumed(tmp_path / "run"), decomposition(X, Y, working_set=150).run()
    assert_same_bits(found, whole)


@pytest.mark.parametrize("k", [1, 3])
def test_confirm_replaces_wrong_outputs_and_measures_the_rest(k):
    rng = np.random.default_rng(0)
    beta = rng.standard_normal((600, k)) * (rng.random((600, 1)) < 0.2)
    exact = gram(X) @ beta
    outputs = exact.copy()
    outputs[7], outputs[10:20] = 5.0, outputs[10:20] + 1e-3
    if k == 1:
        beta, exact, outputs = beta[:, 0], exact[:, 0], outputs[:, 0]
    run = decomposition(X, Y, working_set=150)._run
    # Support rows in several pieces, and outputs in several parts.
    plan = replace(run.plan, active_rows=50, gram_bytes=8 * k * 250, block_bytes=4 * 5 * 50)
    resumed = SimpleNamespace(
        plan=plan, source=run.source, tiles=run.tiles, computed_outputs=False,
        state=SimpleNamespace(outputs=outputs, alpha=beta), per_output=lambda alpha: alpha,
    )  # fmt: skip
    executor = LocalExecutor(run.source, run.tiles, block_bytes=plan.block_bytes)
    rows = WorkingRows(run.source)

    def confirmed(tol):
        with run.tiles.exact() as tiles:
            in_float64 = Exact(executor, tiles, rows.gather, at_once=50)
            return confirm(resumed, executor, rows, in_float64, tol=tol)

    most = confirmed(0.02)
    np.testing.assert_allclose(outputs[7], exact[7], atol=1e-12)
    np.testing.assert_allclose(outputs[10:20], exact[10:20] + 1e-3, rtol=1e-12)
    assert most == pytest.approx(1e-3, rel=0.05)
    # A tolerance below the rounding of float32: right outputs stay, to the bit.
    before = outputs.copy()
    confirmed(1e-10)
    np.testing.assert_allclose(outputs[10:20], exact[10:20], atol=1e-12)
    outputs[10:20] = before[10:20]
    np.testing.assert_array_equal(outputs, before)


@pytest.mark.fault("forged-files")
def test_a_point_that_is_not_feasible_is_never_certified(tmp_path):
    """Not even one that has come past all other checks."""
    run = decomposition(X, Y, working_set=150)
    run.state.alpha[:] = 2.0
    with pytest.raises(CheckpointError, match="no solution of this problem: alpha of row"):
        run._certify()
