"""Crammer and Singer's machine in the outer loop: against dense problems, and as any other run."""

import tracemalloc

import naive
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.svm import LinearSVC
from support.problems import classes_of_blobs, dense_alpha, gram, multiclass
from support.resuming import Moments, assert_resumed_to_the_same_bits, with_checkpoint
from support.same import assert_same_bits

from bigsvm.budget import plan_training
from bigsvm.conversion.from_arrays import write_store
from bigsvm.data.store import open_store
from bigsvm.kernels import make_kernel
from bigsvm.training.result import StopReason
from bigsvm.training.state import Limits

SOLVERS = ("exact", "fixed_point")


def assert_is_feasible(alpha, label, bounds):
    upper = bounds[:, None] * np.eye(alpha.shape[1])[label]
    assert (alpha <= upper).all()
    np.testing.assert_allclose(alpha.sum(axis=1), 0, atol=1e-12 * max(bounds))


KERNELS = {
    "rbf": ({"gamma": 0.5}, make_kernel("rbf", gamma=0.5)),
    "poly": (
        {"gamma": 0.3, "coef0": 1.0, "degree": 2},
        make_kernel("poly", gamma=0.3, coef0=1.0, degree=2),
    ),
    "linear": ({}, make_kernel("linear")),
}


@pytest.mark.parametrize("subproblem", SOLVERS)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("C", [0.05, 1.0, 20.0])
def test_a_dense_problem_has_the_same_optimum(C, kernel, subproblem):
    """With weights, one of which is 0; the rows are more than a working set."""
    n, k = 60, 4
    X, label = classes_of_blobs(n, k)
    weights = np.random.default_rng(1).choice([0.5, 1.0, 3.0], n)
    weights[5] = 0.0
    parameters, given = KERNELS[kernel]
    K = naive.kernel_matrix(X, X, kernel, **parameters)
    oracle = naive.crammer_singer(K, label, k, C * weights)
    expected, _ = naive.multiclass_objectives(K, label, k, C * weights, oracle)
    result = multiclass(
        X, label, C=C, kernel=given, subproblem=subproblem, sample_weight=weights,
        working_set=40, tol=1e-5,
    ).run()  # fmt: skip
    assert result.certificate.converged
    alpha = dense_alpha(result, n)
    assert_is_feasible(alpha, label, C * weights)
    assert not alpha[5].any()
    found, primal = naive.multiclass_objectives(K, label, k, C * weights, alpha)
    assert found == pytest.approx(expected, rel=1e-6)
    # Each row's share of the gap is at most C_i ψ_i.
    assert primal - found <= C * weights.sum() * 1e-5
    certificate = result.certificate
    assert certificate.objective == pytest.approx(found, rel=1e-9)
    assert certificate.duality_gap == pytest.approx(primal - found, abs=1e-8 * found)
    assert certificate.duality_gap >= -1e-12 * found  # at the optimum it is rounding
    psi = naive.multiclass_violations(np.eye(k)[label] - K @ alpha, label, C * weights, alpha)
    assert certificate.gap == pytest.approx(psi.max(), rel=1e-3, abs=1e-9)
    assert certificate.gap <= 1e-5
    assert certificate.n_support == np.count_nonzero(alpha.any(axis=1))
    assert result.thresholds == ()


@pytest.mark.slow  # the oracle's linear systems have 3000 unknowns
@pytest.mark.parametrize("subproblem", SOLVERS)
def test_a_dense_problem_of_3000_variables_has_the_same_optimum(subproblem):
    X, label = classes_of_blobs(300, 10)
    K, bounds = gram(X), np.full(300, 5.0)
    oracle = naive.crammer_singer(K, label, 10, bounds)
    expected, _ = naive.multiclass_objectives(K, label, 10, bounds, oracle)
    result = multiclass(X, label, C=5.0, subproblem=subproblem, working_set=200, tol=1e-4).run()
    assert result.certificate.objective == pytest.approx(expected, rel=1e-6)


def test_both_solvers_and_orders_end_at_one_optimum():
    X, label = classes_of_blobs(400, 5)
    found = [
        multiclass(X, label, C=3.0, tol=1e-7, subproblem=solver, order=order, cooling=cooling).run()
        for solver, order, cooling in [
            ("exact", "auto", None), ("exact", "worst", None), ("exact", "active", "log"),
            ("exact", "random", None), ("fixed_point", "auto", None),
        ]
    ]  # fmt: skip
    for other in found[1:]:
        assert other.certificate.objective == pytest.approx(found[0].certificate.objective)
        np.testing.assert_allclose(dense_alpha(other, 400), dense_alpha(found[0], 400), atol=1e-5)
    # The contraction leaves no traces of rounding among the coefficients.
    assert found[0].certificate.n_support == found[4].certificate.n_support


def test_two_classes_are_the_classifier_without_bias_and_twice_its_c():
    """M₁ = −M₂ = w / 2, so that ½(|M₁|² + |M₂|²) + C Σ ξ = ½ (½ |w|² + 2 C Σ ξ)."""
    n, C = 120, 1.5
    X, label = classes_of_blobs(n, 2)
    K, sign = gram(X), np.where(label == 0, 1.0, -1.0)
    result = multiclass(X, label, C=C, tol=1e-7).run()
    alpha = dense_alpha(result, n)
    np.testing.assert_allclose(alpha[:, 0], -alpha[:, 1], atol=1e-12)
    # Without bias the dual has no sum: a variable more, with no kernel values, takes it up.
    free = np.pad(K, (0, 1))
    lower, upper = np.where(sign > 0, 0.0, -2 * C), np.where(sign > 0, 2 * C, 0.0)
    binary = naive.solve(
        free, np.append(sign, 0.0), np.append(lower, -1e9), np.append(upper, 1e9), np.zeros(n + 1),
        tol=1e-7,
    )  # fmt: skip
    np.testing.assert_allclose(2 * alpha[:, 0], binary[:n], atol=1e-5)
    objective = naive.objective(K, sign, binary[:n])
    assert result.certificate.objective == pytest.approx(0.5 * objective, rel=1e-7)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_linear_machine_of_liblinear_has_the_same_functions(weighted):
    """½ Σ |M_r|² + C Σ ξ_i there as well: its C is this one's."""
    n, k, C = 300, 4, 0.3
    X, label = classes_of_blobs(n, k)
    weights = np.random.default_rng(0).choice([0.5, 2.0], n) if weighted else None
    result = multiclass(
        X, label, C=C, kernel=make_kernel("linear"), sample_weight=weights, tol=1e-6
    ).run()
    reference = LinearSVC(
        multi_class="crammer_singer", C=C, fit_intercept=False, tol=1e-8, max_iter=10**6
    )
    reference.fit(X.astype(np.float64), label, sample_weight=weights)
    functions = dense_alpha(result, n).T @ X.astype(np.float64)
    # Of equal functions for all classes nothing depends; the least norm has none.
    expected = reference.coef_ - reference.coef_.mean(axis=0)
    np.testing.assert_allclose(functions, expected, atol=2e-4 * np.abs(expected).max())


@pytest.mark.parametrize("working_set", [80, 400])
def test_a_kernel_of_k_plus_1_has_biases(working_set):
    X, label = classes_of_blobs(150, 3)
    bounds = np.full(150, 4.0)
    oracle = naive.crammer_singer(gram(X) + 1, label, 3, bounds)
    expected, _ = naive.multiclass_objectives(gram(X) + 1, label, 3, bounds, oracle)
    result = multiclass(
        X, label, C=4.0, fit_intercept=True, tol=1e-5, working_set=working_set
    ).run()
    assert result.certificate.objective == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(dense_alpha(result, 150).sum(axis=0), oracle.sum(axis=0), atol=1e-3)


def test_a_row_twice_is_a_row_with_weight_2():
    X, label = classes_of_blobs(200, 3)
    twice = np.arange(0, 200, 3)
    weights = np.ones(200)
    weights[twice] = 2.0
    settings = {"C": 2.0, "tol": 1e-7}
    weighted = multiclass(X, label, sample_weight=weights, **settings).run()
    repeated = multiclass(
        np.concatenate([X, X[twice]]), np.concatenate([label, label[twice]]), **settings
    ).run()
    assert repeated.certificate.objective == pytest.approx(weighted.certificate.objective)
    alpha = dense_alpha(repeated, 200 + len(twice))
    alpha[twice] += alpha[200:]
    np.testing.assert_allclose(alpha[:200], dense_alpha(weighted, 200), atol=1e-5)


@pytest.fixture
def many_phases(monkeypatch):
    """Small enough that scopes, active rows, working sets, slices and pieces are several."""
    for name, value in {
        "executors.local.EVALUATIONS_AT_ONCE": 2e4,
        "training.certify.EXACT_EVALUATIONS": 0,
        "executors.executor.ROWS_AT_ONCE": 450,
        "working_sets.choice.FIRST_SCOPE": 300,
        "working_sets.choice.DIRECT_ROWS": 0,
        "working_sets.choice.SMALLEST_SET": 100,
        "working_sets.choice.BAND": (0.6, 0.7),
        "duals.row_steps.SLICE_WORK": 1 << 19,
        "duals.crammer_singer.SCAN_ROWS": 100,
    }.items():
        monkeypatch.setattr(f"bigsvm.{name}", value)


@pytest.fixture(params=["all", "some"])
def watched(request, monkeypatch):
    """Whether all rows of a working set are looked at after each step, or some; in short slices."""
    if request.param == "some":
        monkeypatch.setattr("bigsvm.core.crammer_singer.WATCHED", 64)
        monkeypatch.setattr("bigsvm.training.run.REFRESH", 200)


def kind_of_moment(run):
    """What a run is doing: its phase, and whether within a pass, a working set."""
    count, state = run.count, run.state
    within = bool(len(state.working)) and count.sub_steps > 0
    return str(count.phase), count.rows_done > 0, within, count.scope


@pytest.mark.usefixtures("many_phases", "watched")
@pytest.mark.parametrize("subproblem", SOLVERS)
def test_resumed_at_every_kind_of_moment_it_gives_the_same_bits(tmp_path, subproblem):
    """In passes and working sets, at the middle one of the moments of a kind."""
    X, label = classes_of_blobs(1200, 4, overlap=0.8)
    settings = {
        "C": 5.0, "working_set": 300, "active_rows": 700, "subproblem": subproblem, "tol": 0.03,
    }  # fmt: skip
    moments = Moments(lambda: kind_of_moment(observed))
    observed = multiclass(X, label, limits=Limits(interrupted=moments), **settings)
    whole = observed.run()
    assert whole.certificate.converged
    assert whole.certificate.n_sweeps > 2
    kinds = moments.by_kind
    assert {phase for phase, *_ in kinds} >= {"solve", "sweep", "grow"}
    assert {(phase, within) for phase, within, *_ in kinds} >= {("sweep", True), ("grow", True)}
    assert any(within for _, _, within, _ in kinds)  # in the middle of a working set
    assert {scope for *_, scope in kinds} == {300, 525, 1200}
    firsts = sorted(ats[len(ats) // 2] for ats in kinds.values())
    train = with_checkpoint(lambda **saving: multiclass(X, label, **saving, **settings).run())
    assert_resumed_to_the_same_bits(train, tmp_path, firsts, whole, then=(5, 1, -1))


ORDERS = [
    ("worst", None), ("active", None), ("active", "log"), ("sequential", None), ("random", None),
]  # fmt: skip


@pytest.mark.parametrize(("order", "cooling"), ORDERS)
def test_resumed_in_an_order_of_the_paper_it_gives_the_same_bits(
    tmp_path, monkeypatch, order, cooling
):
    """Stopped in the middle of passes over all rows, at several levels, and with few slots."""
    monkeypatch.setattr("bigsvm.duals.row_steps.SLICE_WORK", 4 * 256 * 150)
    X, label = classes_of_blobs(250, 4)
    settings = {"C": 2.0, "order": order, "cooling": cooling, "tol": 0.03, "seed": 3}
    moments = Moments(lambda: (observed.count.sub_steps, int(observed.state.pair[0])))
    observed = multiclass(X, label, limits=Limits(interrupted=moments), **settings)
    whole = observed.run()
    assert whole.certificate.converged
    assert any(steps % 250 for steps, _ in moments.seen)
    if cooling or order in ("sequential", "random"):
        assert len({last for _, last in moments.seen}) > 2
    firsts = range(2, len(moments.seen), max(1, len(moments.seen) // 6))
    train = with_checkpoint(
        lambda **saving: multiclass(X, label, slots=40, **saving, **settings).run()
    )
    assert_resumed_to_the_same_bits(train, tmp_path, firsts, whole)


@pytest.mark.usefixtures("watched")
def test_bits_do_not_depend_on_cache_slots_or_blocks():
    X, label = classes_of_blobs(700, 4)
    settings = {"C": 5.0, "working_set": 300, "active_rows": 400}
    reference = multiclass(X, label, **settings).run()
    scarce = multiclass(X, label, slots=40, block_bytes=1 << 20, **settings).run()
    assert_same_bits(scarce, reference)
    assert scarce.certificate.row_misses > reference.certificate.row_misses


def test_a_start_is_added_up_and_gone_on_from():
    X, label = classes_of_blobs(600, 4)
    settings = {"C": 5.0, "working_set": 150, "active_rows": 200, "tol": 1e-3}
    cold = multiclass(X, label, **settings).run()
    start = dense_alpha(cold, 600)
    warm = multiclass(X, label, start=start, **settings).run()
    assert warm.certificate.converged
    assert warm.certificate.n_iter < 0.1 * cold.certificate.n_iter
    assert warm.certificate.objective >= cold.certificate.objective * (1 - 1e-9)


def test_a_store_is_streamed_to_the_optimum_of_its_rows_in_memory(tmp_path):
    X, label = classes_of_blobs(1500, 5)
    settings = {"C": 2.0, "working_set": 500, "active_rows": 800}
    rows = write_store(tmp_path / "s.zarr", X, label.astype(float)).rows
    order = open_store(tmp_path / "s.zarr").original_rows()
    result = multiclass(rows, label[order], **settings).run()
    reference = multiclass(X, label, **settings).run()
    assert result.certificate.converged
    assert result.certificate.objective == pytest.approx(reference.certificate.objective, rel=1e-5)
    assert result.certificate.bytes_read >= 2 * X.nbytes


class Arrays:
    """Looks at the bytes of all arrays at every twentieth look of a run up from its work."""

    def __init__(self):
        self.most = self.looks = 0

    def __call__(self):
        self.looks += 1
        if self.looks % 20:
            return False
        arrays = tracemalloc.DomainFilter(inclusive=True, domain=np.lib.tracemalloc_domain)
        traces = tracemalloc.take_snapshot().filter_traces([arrays]).traces
        self.most = max(self.most, sum(trace.size for trace in traces))
        return False


def test_a_store_larger_than_its_memory_is_trained_within_it(tmp_path, monkeypatch):
    n, k, memory = 4000, 8, 7_500_000
    monkeypatch.setattr("bigsvm.data.schema.CHUNK_BYTES", 1 << 16)
    monkeypatch.setattr("bigsvm.data.arrays.SHARD_BYTES", 1 << 19)
    monkeypatch.setattr("bigsvm.data.store_writer._BLOCK_BYTES", 1 << 19)
    X, label = classes_of_blobs(n, k, d=500, overlap=0.5)
    assert X.nbytes > memory
    write_store(tmp_path / "s.zarr", X, label.astype(float))
    del X
    store = open_store(tmp_path / "s.zarr")
    rows = store.rows
    plan = plan_training(
        memory, n_rows=n, n_columns=500, bytes_per_row=rows.bytes_per_row,
        row_alignment=rows.row_alignment, threads=1, n_outputs=k,
    )  # fmt: skip
    assert plan.active_rows < n / 4
    arrays = Arrays()
    tracemalloc.start()
    try:
        run = multiclass(
            rows, label[store.original_rows()], gamma=1e-3, C=0.2, tol=0.1, plan=plan,
            limits=Limits(interrupted=arrays),
        )  # fmt: skip
        certificate = run.run().certificate
    finally:
        tracemalloc.stop()
    assert certificate.converged
    assert certificate.bytes_read > 2 * 4 * 500 * n
    assert 2 * 8 * n * k < arrays.most < memory


def test_sparse_rows_are_as_good():
    X, label = classes_of_blobs(500, 4)
    X[np.abs(X) < 0.5] = 0
    settings = {"C": 2.0, "tol": 1e-6}
    of_dense = multiclass(X, label, **settings).run()
    of_sparse = multiclass(sp.csr_array(X), label, **settings).run()
    assert of_sparse.certificate.objective == pytest.approx(of_dense.certificate.objective)


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("most", [1, 300])
def test_out_of_steps_it_says_so_with_a_duality_gap(most):
    X, label = classes_of_blobs(500, 4)
    result = multiclass(X, label, C=5.0, working_set=200, limits=Limits(max_iter=most)).run()
    assert result.certificate.stop_reason is StopReason.MAX_ITER
    assert result.certificate.n_iter == most
    alpha = dense_alpha(result, 500)
    found, primal = naive.multiclass_objectives(gram(X), label, 4, np.full(500, 5.0), alpha)
    assert result.certificate.duality_gap == pytest.approx(primal - found, rel=1e-6)
    assert result.certificate.duality_gap > 0.1


def test_a_zero_row_of_a_linear_kernel_is_wrong_and_no_trouble():
    X, label = classes_of_blobs(200, 3)
    X -= X.mean(axis=0)
    X[7] = 0
    result = multiclass(sp.csr_array(X), label, C=2.0, kernel=make_kernel("linear"), tol=1e-5).run()
    assert result.certificate.converged
    assert dense_alpha(result, 200)[7, label[7]] == 2.0
