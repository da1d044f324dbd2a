"""One against the rest in the outer loop: against dense problems, and as any other run."""

import functools

import naive
import numpy as np
import pytest
from support.problems import classes_of_blobs, decomposition, dense_alpha, gram
from support.resuming import Moments, StopAt, assert_resumed_to_the_same_bits, with_checkpoint
from support.same import assert_same_bits

from bigsvm.conversion.from_arrays import write_store
from bigsvm.core import smo
from bigsvm.data.store import open_store
from bigsvm.duals.ball import BallDual, L2Classification
from bigsvm.duals.box import BoxDual, rule_of
from bigsvm.duals.formulations import CSVC, NuClassification, SquaredHingeSVC
from bigsvm.duals.functions import FunctionsDual
from bigsvm.duals.one_vs_rest import OneVsRest
from bigsvm.training.result import StopReason
from bigsvm.training.state import Limits
from bigsvm.working_sets.lanes import FunctionLane

KINDS = {
    "c-svc": functools.partial(CSVC, C=5.0),
    "squared hinge": functools.partial(SquaredHingeSVC, C=5.0),
    "nu-svc": functools.partial(NuClassification, nu=0.1),
    "l2-svc": functools.partial(L2Classification, C=5.0),
}
# The long tests of one sum and of two; the others nightly.
SOME_KINDS = [
    pytest.param(kind, marks=[] if kind in ("c-svc", "nu-svc") else pytest.mark.slow)
    for kind in KINDS
]


def functions(X, label, *, kind="c-svc", sample_weight=None, sides=None, rule="auto", **options):
    """A run of all functions with a small working set."""
    k = int(label.max()) + 1
    formulation = OneVsRest(
        label=label,
        class_weight=sides or ((1.0, 1.0),) * k,
        make=KINDS[kind],
        sample_weight=sample_weight,
    )
    chosen = rule_of(rule)
    duals = tuple(
        BallDual(function, chosen, largest=2.2) if kind == "l2-svc" else BoxDual(function, chosen)
        for function in formulation.functions
    )
    dual = FunctionsDual(formulation, duals)
    return decomposition(X, None, dual=dual, offset=formulation.offset, **options)


def alone(X, label, c, *, kind="c-svc", sample_weight=None, **options):
    """The run of one function, as a classifier of two classes."""
    sign = np.where(label == c, 1, -1).astype(np.int8)
    formulation = KINDS[kind](sign=sign, sample_weight=sample_weight)
    dual = BoxDual(formulation)
    if kind == "l2-svc":
        dual = BallDual(formulation, smo.SECOND_ORDER, largest=2.2)
    return decomposition(X, None, dual=dual, offset=formulation.offset, **options)


@pytest.mark.parametrize("rule", ["second-order", "hmg", "mvp"])
@pytest.mark.parametrize("size", [40, 60])
def test_each_function_has_the_optimum_of_its_dense_problem(size, rule):
    """With weights of rows, one of which is 0, and of sides; in one working set, and in several."""
    n, k = 60, 4
    X, label = classes_of_blobs(n, k)
    weights = np.random.default_rng(1).choice([0.5, 1.0, 3.0], n)
    weights[5] = 0.0
    sides = tuple((0.5 + 0.25 * c, 1.0 + c) for c in range(k))
    result = functions(
        X, label, sample_weight=weights, sides=sides, working_set=size, tol=1e-5, rule=rule
    ).run()
    K, alpha = gram(X), dense_alpha(result, n)
    objectives, gaps, duality_gaps = [], [], []
    for c in range(k):
        sign = np.where(label == c, 1.0, -1.0)
        bounds = 5.0 * weights * np.where(sign > 0, sides[c][1], sides[c][0])
        lower, upper = np.minimum(sign * bounds, 0), np.maximum(sign * bounds, 0)
        oracle = naive.solve(K, sign, lower, upper, np.zeros(n), tol=1e-7)
        found = alpha[:, c]
        assert ((lower <= found) & (found <= upper)).all()
        assert found.sum() == pytest.approx(0, abs=1e-10)
        objectives.append(naive.objective(K, sign, found))
        assert objectives[-1] == pytest.approx(naive.objective(K, sign, oracle), rel=1e-6)
        gaps.append(naive.kkt_gap(K, sign, lower, upper, found))
        gap = naive.duality_gap(K, sign, bounds, found, result.thresholds[c])
        duality_gaps.append(gap)
    certificate = result.certificate
    assert certificate.converged
    assert certificate.objective == pytest.approx(sum(objectives), rel=1e-9)
    assert certificate.gap == pytest.approx(max(gaps), rel=1e-3, abs=1e-9)
    assert certificate.gap <= 1e-5
    assert certificate.duality_gap == pytest.approx(sum(duality_gaps), abs=1e-6)
    assert certificate.n_support == np.count_nonzero(alpha.any(axis=1))
    assert not alpha[5].any()


@pytest.fixture
def many_phases(monkeypatch):
    """Small enough that scopes, active rows, working sets, slices and pieces are several."""
    for name, value in {
        "executors.local.EVALUATIONS_AT_ONCE": 2e4,
        "training.certify.EXACT_EVALUATIONS": 0,
        "executors.executor.ROWS_AT_ONCE": 450,
        "working_sets.choice.FIRST_SCOPE": 240,
        "working_sets.choice.DIRECT_ROWS": 0,
        "working_sets.choice.SMALLEST_SET": 100,
        "working_sets.choice.BAND": (0.6, 0.7),
        "training.run.REFRESH": 64,
        "working_sets.lanes.REFRESH": 64,
        "duals.box.SCAN_ROWS": 100,
        "duals.functions.SCAN_ROWS": 100,
    }.items():
        monkeypatch.setattr(f"bigsvm.{name}", value)


@pytest.mark.usefixtures("many_phases")
@pytest.mark.parametrize("kind", SOME_KINDS)
def test_in_many_parts_each_function_is_the_run_of_its_own(kind):
    n, k = 1200, 4
    X, label = classes_of_blobs(n, k, overlap=0.8)
    settings = {"kind": kind, "working_set": 300, "active_rows": 700, "tol": 1e-4}
    result = functions(X, label, **settings).run()
    assert result.certificate.converged
    assert result.certificate.n_working_sets > 2
    K, alpha = gram(X), dense_alpha(result, n)
    total = 0.0
    for c in range(k):
        own = alone(X, label, c, **settings).run()
        total += own.certificate.objective
        expected = np.zeros(n)
        expected[own.support] = own.alpha
        scale = max(1.0, np.abs(K @ expected).max())
        np.testing.assert_allclose(K @ alpha[:, c], K @ expected, atol=2e-3 * scale)
    assert result.certificate.objective == pytest.approx(total, rel=1e-5, abs=1e-4)


def kind_of_moment(run):
    """What a run is doing when it asks whether to stop: its phase, and how far within it."""
    count, state = run.count, run.state
    within = bool(len(state.working)) and count.sub_steps > 0
    turn = round_ = -1
    if len(state.set_sizes):
        turn = int((state.pair[::4] > 0).any())  # whether any function has ended
    elif len(state.pair) > 2:
        turn, round_ = state.pair[-3:-1].tolist()
    own = within and len(state.set_sizes) > 0
    return str(count.phase), count.rows_done > 0, within, turn > 0, round_, own


@pytest.mark.usefixtures("many_phases")
@pytest.mark.parametrize(("kind", "rule"), [
    ("c-svc", "second-order"), ("c-svc", "hmg"), ("nu-svc", "second-order"),
    ("l2-svc", "second-order"),
])  # fmt: skip
def test_resumed_at_every_kind_of_moment_it_gives_the_same_bits(tmp_path, kind, rule):
    """In passes and working sets, in each round, at the middle one of the moments of a kind."""
    X, label = classes_of_blobs(700, 3, overlap=0.6)
    settings = {
        "working_set": 250, "active_rows": 400, "tol": 1e-3, "kind": kind, "rule": rule,
        "slots": 120,
    }  # fmt: skip
    if kind == "l2-svc":
        settings["tol"] = 1e-5
    moments = Moments(lambda: kind_of_moment(observed))
    observed = functions(X, label, limits=Limits(interrupted=moments), **settings)
    whole = observed.run()
    assert whole.certificate.converged
    assert whole.certificate.n_sweeps > 1
    kinds = moments.by_kind
    assert {phase for phase, *_ in kinds} >= {"solve", "sweep", "grow"}
    # In a working set of all functions, between them and in a later round; and in one of each.
    for own in (False, True):
        assert any(within and turn for _, _, within, turn, _, of in kinds if of is own)
    assert any(within and round_ > 0 for _, _, within, _, round_, _ in kinds)
    firsts = sorted(ats[len(ats) // 2] for ats in kinds.values())
    train = with_checkpoint(lambda **saving: functions(X, label, **saving, **settings).run())
    assert_resumed_to_the_same_bits(train, tmp_path, firsts, whole, then=(5, -1))


@pytest.mark.usefixtures("many_phases")
@pytest.mark.parametrize("kind", SOME_KINDS)
def test_functions_solved_in_parallel_have_the_same_bits(tmp_path, kind, monkeypatch):
    """And so they are if they are stopped meanwhile, wherever each of them is."""
    lanes = []
    monkeypatch.setattr(
        "bigsvm.working_sets.lanes.FunctionLane",
        lambda *given, **named: lanes.append(FunctionLane(*given, **named)) or lanes[-1],
    )
    X, label = classes_of_blobs(900, 4, overlap=0.6)
    settings = {"working_set": 200, "active_rows": 700, "tol": 1e-3, "kind": kind, "slots": 900}
    if kind == "l2-svc":
        settings["tol"] = 1e-5
    expected = functions(X, label, **settings).run()
    assert all(lane.tiles.threads == 1 for lane in lanes)
    lanes.clear()
    asked = StopAt()
    found = functions(X, label, threads=3, limits=Limits(interrupted=asked), **settings).run()
    assert_same_bits(found, expected)
    assert max(lane.buffer.n_shared // len(lane.buffer.values) for lane in lanes) == 3
    # The last one is when its point is being certified.
    firsts = [*range(1, asked.count, max(5, asked.count // 4)), asked.count - 4]
    train = with_checkpoint(
        lambda **saving: functions(X, label, threads=3, **saving, **settings).run()
    )
    assert_resumed_to_the_same_bits(train, tmp_path, firsts, expected, then=(9, -1))


@pytest.mark.parametrize("kind", KINDS)
def test_bits_do_not_depend_on_cache_slots_or_blocks(kind):
    X, label = classes_of_blobs(700, 4)
    settings = {"working_set": 300, "active_rows": 400, "kind": kind}
    reference = functions(X, label, **settings).run()
    scarce = functions(X, label, slots=40, block_bytes=1 << 20, **settings).run()
    assert_same_bits(scarce, reference)
    assert scarce.certificate.row_misses > reference.certificate.row_misses


def test_a_start_is_added_up_and_gone_on_from():
    X, label = classes_of_blobs(600, 4)
    settings = {"working_set": 150, "active_rows": 200, "tol": 1e-3}
    cold = functions(X, label, **settings).run()
    warm = functions(X, label, start=dense_alpha(cold, 600), **settings).run()
    assert warm.certificate.converged
    assert warm.certificate.n_iter < 0.1 * cold.certificate.n_iter


def test_a_store_is_streamed_to_the_optimum_of_its_rows_in_memory(tmp_path):
    X, label = classes_of_blobs(1500, 5)
    settings = {"working_set": 500, "active_rows": 800}
    rows = write_store(tmp_path / "s.zarr", X, label.astype(float)).rows
    order = open_store(tmp_path / "s.zarr").original_rows()
    result = functions(rows, label[order], **settings).run()
    reference = functions(X, label, **settings).run()
    assert result.certificate.converged
    assert result.certificate.objective == pytest.approx(reference.certificate.objective, rel=1e-5)
    assert result.certificate.bytes_read >= 2 * X.nbytes


@pytest.mark.parametrize("most", [1, 300])
def test_out_of_steps_it_says_so_with_a_duality_gap(most):
    n, k = 700, 4  # fewer would be polished
    X, label = classes_of_blobs(n, k)
    result = functions(X, label, working_set=100, limits=Limits(max_iter=most)).run()
    assert result.certificate.stop_reason is StopReason.MAX_ITER
    assert result.certificate.n_iter == most
    K, alpha = gram(X), dense_alpha(result, n)
    expected = sum(
        naive.duality_gap(
            K, np.where(label == c, 1.0, -1.0), np.full(n, 5.0), alpha[:, c], result.thresholds[c]
        )
        for c in range(k)
    )
    assert result.certificate.duality_gap == pytest.approx(expected, rel=1e-6)
    assert expected > 0.1
