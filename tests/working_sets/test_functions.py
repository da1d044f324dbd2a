"""Functions with working sets of their own among all rows: as those that share active rows."""

import naive
import numpy as np
import pytest
from support.problems import classes_of_blobs, dense_alpha, gram
from support.resuming import Moments, assert_resumed_to_the_same_bits, with_checkpoint
from training.test_one_vs_rest import KINDS, alone, functions

from bigsvm.duals.functions import FUNCTIONS_AT_ONCE, functions_in_turn
from bigsvm.training.checkpoint import Checkpoint
from bigsvm.training.result import StopReason
from bigsvm.training.state import Limits

SETTINGS = {"working_set": 120, "active_rows": 120, "slots": 60}


@pytest.fixture
def by_functions(monkeypatch):
    """Few functions are many, and slices, pieces and parts several."""
    for name, value in {
        "working_sets.functions.MANY_FUNCTIONS": 2,
        "executors.local.EVALUATIONS_AT_ONCE": 2e4,
        "training.certify.EXACT_EVALUATIONS": 0,
        "training.run.REFRESH": 64,
        "duals.box.SCAN_ROWS": 100,
    }.items():
        monkeypatch.setattr(f"bigsvm.{name}", value)


def tolerance(kind):
    return 1e-6 if kind == "l2-svc" else 1e-4


@pytest.mark.usefixtures("by_functions")
@pytest.mark.parametrize("kind", KINDS)
def test_each_function_is_the_run_of_its_own(kind):
    n, k = 700, 5
    X, label = classes_of_blobs(n, k, overlap=0.4)
    given = {"kind": kind, "tol": tolerance(kind), **SETTINGS}
    run = functions(X, label, **given)
    result = run.run()
    assert result.certificate.converged
    assert result.certificate.n_working_sets == result.certificate.n_sweeps > 1
    K, alpha = gram(X), dense_alpha(result, n)
    for c in range(k):
        own = alone(X, label, c, **given).run()
        expected = np.zeros(n)
        expected[own.support] = own.alpha
        scale = max(1.0, np.abs(K @ expected).max())
        np.testing.assert_allclose(K @ alpha[:, c], K @ expected, atol=2e-3 * scale)


@pytest.mark.usefixtures("by_functions")
def test_the_gap_is_that_of_the_dense_problems():
    n, k = 500, 4
    X, label = classes_of_blobs(n, k, overlap=0.5)
    weights = np.random.default_rng(1).choice([0.0, 0.5, 3.0], n)
    result = functions(X, label, sample_weight=weights, tol=1e-5, **SETTINGS).run()
    assert result.certificate.converged
    K, alpha, gaps = gram(X), dense_alpha(result, n), []
    for c in range(k):
        sign = np.where(label == c, 1.0, -1.0)
        bounds = sign * 5.0 * weights
        lower, upper = np.minimum(bounds, 0), np.maximum(bounds, 0)
        assert ((lower <= alpha[:, c]) & (alpha[:, c] <= upper)).all()
        gaps.append(naive.kkt_gap(K, sign, lower, upper, alpha[:, c]))
    assert max(gaps) <= 2e-5
    assert not alpha[weights == 0].any()


@pytest.mark.usefixtures("by_functions")
@pytest.mark.parametrize("kind", KINDS)
def test_resumed_at_every_kind_of_moment_it_gives_the_same_bits(tmp_path, kind):
    X, label = classes_of_blobs(500, 3, overlap=0.4)
    given = {"kind": kind, "tol": tolerance(kind), **SETTINGS}

    def kind_of_moment():
        count, state = run.count, run.state
        of_functions = len(state.set_sizes) > 0 and not len(state.active)
        turn = int((state.pair[::4] > 0).sum()) if of_functions else -1
        return str(count.phase), of_functions, count.rows_done > 0, turn

    moments = Moments(kind_of_moment)
    run = functions(X, label, limits=Limits(interrupted=moments), **given)
    whole = run.run()
    assert whole.certificate.converged
    kinds = moments.by_kind
    # In the working sets of different functions, and within the sweep of what has moved in all.
    assert len({turn for phase, of, _, turn in kinds if phase == "solve" and of}) > 1
    assert any(phase == "sweep" and of and within for phase, of, within, _ in kinds)
    firsts = sorted(ats[len(ats) // 2] for ats in kinds.values())
    train = with_checkpoint(lambda **saving: functions(X, label, **saving, **given).run())
    assert_resumed_to_the_same_bits(train, tmp_path, firsts, whole, then=(5, -1))


@pytest.mark.usefixtures("by_functions")
def test_interrupted_while_sets_are_chosen_it_gives_the_same_bits(tmp_path):
    """Among too many violators the choice is random; a resumed run makes the same one."""
    X, label = classes_of_blobs(500, 3, overlap=0.4)
    whole = functions(X, label, **SETTINGS).run()
    train = with_checkpoint(lambda **saving: functions(X, label, **saving, **SETTINGS).run())
    assert_resumed_to_the_same_bits(train, tmp_path, [1, 2, 3], whole)


@pytest.mark.usefixtures("by_functions")
@pytest.mark.parametrize("phase", ["solve", "sweep"])
def test_saved_run_is_resumed_with_memory_for_active_rows(tmp_path, phase):
    X, label = classes_of_blobs(500, 3, overlap=0.4)

    def look():
        return (
            run.count.phase == phase and run.count.n_sweeps == 1 and (run.state.pair[::4] > 0).any()
        )

    with Checkpoint(tmp_path / "run", {}) as checkpoint:
        run = functions(
            X, label, checkpoint=checkpoint, limits=Limits(interrupted=look), **SETTINGS
        )
        assert run.run().certificate.stop_reason is StopReason.INTERRUPTED
        assert len(run.state.set_sizes) == 3
        assert not len(run.state.active)
    with Checkpoint(tmp_path / "run", {}) as checkpoint:
        result = functions(X, label, checkpoint=checkpoint, working_set=400, active_rows=3000).run()
    assert result.certificate.converged


@pytest.mark.parametrize(("n", "k"), [(30, 3), (50, FUNCTIONS_AT_ONCE), (10, 37)])
@pytest.mark.parametrize("copied", [0, 1000])
def test_functions_in_turn_are_contiguous_copies_or_views(monkeypatch, n, k, copied):
    monkeypatch.setattr("bigsvm.duals.functions.COPIED_ROWS", copied)
    one, other = np.random.default_rng(0).standard_normal((2, n, k))
    found = list(functions_in_turn(one, other))
    assert [c for c, _ in found] == list(range(k))
    for c, (a, b) in found:
        np.testing.assert_array_equal(a, one[:, c])
        np.testing.assert_array_equal(b, other[:, c])
        assert a.flags.c_contiguous == (copied > 0)


@pytest.mark.usefixtures("by_functions")
def test_start_at_the_optimum_takes_few_steps():
    X, label = classes_of_blobs(600, 4, overlap=0.5)
    cold = functions(X, label, **SETTINGS).run()
    warm = functions(X, label, start=dense_alpha(cold, 600), **SETTINGS).run()
    assert warm.certificate.converged
    assert warm.certificate.n_iter < 0.1 * cold.certificate.n_iter
