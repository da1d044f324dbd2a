"""The certificate: what float32 got wrong is found, wherever it matters."""

import naive
import numpy as np
import pytest
import scipy.sparse as sp
from support.problems import blobs, decomposition, dense_alpha, gram

from bigsvm.data.sources import as_row_source
from bigsvm.duals.ball import BallDual, L2Classification
from bigsvm.duals.box import BoxDual
from bigsvm.duals.formulations import CSVC, SquaredHingeSVC
from bigsvm.errors import DataError
from bigsvm.executors.executor import Exact, Products
from bigsvm.executors.working_rows import WorkingRows
from bigsvm.gram import KernelTiles
from bigsvm.interruption import checked_by
from bigsvm.kernels import RBF
from bigsvm.training.certify import certify


@pytest.fixture(scope="module")
def solved():
    """A problem, its rows' kernel, and the optimum."""
    X, y = blobs(600, overlap=0.7)
    return X, y, gram(X), dense_alpha(decomposition(X, y, tol=1e-5).run(), len(y))


@pytest.fixture
def large(monkeypatch):
    """Treat it as too large for outputs of all rows in float64; sums of several parts."""
    monkeypatch.setattr("bigsvm.training.certify.EXACT_EVALUATIONS", 0)


@pytest.fixture
def narrow(monkeypatch):
    """Have several tiles, of which some are divided, and threads."""
    for name, value in {
        "partners.PARTNERS_PER_TILE": 64,
        "partners.NARROWEST_SPARSE_TILE": 8,
        "partners.SPARSE_TILE_BYTES": 8 * 38 * 32,
        "tiles.PARTNERS_PER_TILE": 64,
        "tiles.ROWS_PER_TILE": 24,
        "tiles.WORTH_SHARING": 0.0,
    }.items():
        monkeypatch.setattr(f"bigsvm.gram.{name}", value)
    monkeypatch.setattr("bigsvm.executors.executor.PARTNERS_PER_TILE", 64)


def look_at(*args, **options):
    return certified(*args, **options).standing


def certified(
    X, y, alpha, outputs, *, tol=1e-3, C=1.0, offset=0.0, dual=None, rows_at_once=1 << 14, **options
):
    source = as_row_source(X)
    with KernelTiles(
        RBF(gamma=0.5), centre=source.column_means(), dtype=np.float64, offset=offset
    ) as tiles:
        exact = Exact(Products(source), tiles, WorkingRows(source).gather, at_once=rows_at_once)
        dual = dual or BoxDual(CSVC(sign=y, C=C))
        return certify(dual, exact, alpha, outputs, tol=tol, **options)


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("of", ["support", "others"])
def test_bits_of_outputs_do_not_depend_on_the_rows_at_once_or_on_threads(of, sparse, k):
    rng = np.random.default_rng(0)
    X, _ = blobs(450, d=40)
    if sparse:
        X *= rng.random(X.shape) < 0.3
    beta = rng.standard_normal((450, k)) * (rng.random((450, 1)) < 0.8)
    beta = beta[:, 0] if k == 1 else beta
    support = np.flatnonzero(beta.reshape(450, -1).any(axis=1))
    rows = np.arange(3, 450) if of == "others" else support
    source = as_row_source(sp.csr_array(X) if sparse else X)
    found, n_evaluations = [], set()
    for rows_at_once, threads in ((10_000, 1), (64, 2), (100, 3), (3 * 64, 8), (50, 1)):
        with KernelTiles(RBF(gamma=0.5), dtype=np.float64, threads=threads) as tiles:
            exact = Exact(Products(source), tiles, WorkingRows(source).gather, at_once=rows_at_once)
            found.append(exact.outputs(rows, beta))
            n_evaluations.add(tiles.n_evaluations)
    np.testing.assert_allclose(found[0], (gram(X) @ beta)[rows], atol=1e-12)
    np.testing.assert_allclose(found.pop(), found[0], atol=1e-12)
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
    n, m = len(rows), len(support)
    halves = sum(min(64, n - a) * (n - a) for a in range(0, n, 64))
    assert n_evaluations == {halves if of == "support" else n * m}


@pytest.mark.usefixtures("large", "narrow")
def test_bits_of_a_certificate_do_not_depend_on_the_rows_at_once(solved):
    X, y, K, alpha = solved
    noisy = K @ alpha + np.random.default_rng(0).normal(scale=1e-4, size=len(y))
    found = []
    for rows_at_once in (10_000, 64, 200):
        outputs = noisy.copy()
        standing = look_at(X, y, alpha.copy(), outputs, rows_at_once=rows_at_once)
        found.append(
            (
                outputs.tobytes(),
                standing.objective,
                standing.gap,
                standing.duality_gap,
                standing.thresholds,
            )
        )
    assert found[0] == found[1] == found[2]
    assert found[0][0] != noisy.tobytes()


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("rows_at_once", [37, 10_000])
def test_outputs_of_support_rows_are_recomputed(solved, rows_at_once):
    X, y, K, alpha = solved
    f = K @ alpha
    rng = np.random.default_rng(0)
    outputs = f + rng.normal(scale=1e-4, size=len(y))
    standing = look_at(X, y, alpha.copy(), outputs, rows_at_once=rows_at_once)
    support = alpha != 0
    np.testing.assert_allclose(outputs[support], f[support], atol=1e-12)
    assert standing.objective == pytest.approx(y @ alpha - 0.5 * alpha @ f, rel=1e-12)


@pytest.mark.usefixtures("large")
def test_a_row_that_errors_may_hide_a_violation_on_is_recomputed(solved):
    X, y, K, alpha = solved
    f = K @ alpha
    rest = np.flatnonzero(alpha == 0)
    b = BoxDual(CSVC(sign=y, C=1.0)).optimality(alpha, f).thresholds[0]
    row = rest[np.argmin((y * (f + b))[rest])]
    outputs = f + np.where(alpha != 0, 2e-3 * (-1.0) ** np.arange(len(y)), 0.0)
    outputs[row] = y[row] * 0.99 - b  # looks like a violation by 0.01
    standing = look_at(X, y, alpha.copy(), outputs)
    assert outputs[row] == pytest.approx(f[row], abs=1e-12)
    assert standing.gap < 1e-4
    far = rest[np.argmax((y * (f + b))[rest])]
    outputs = f + 1e-7
    look_at(X, y, alpha.copy(), outputs)
    assert outputs[far] == f[far] + 1e-7


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize(("error", "enough"), [(1e-7, True), (1e-2, False)])
def test_few_support_rows_are_recomputed_for_a_certain_gap(monkeypatch, error, enough):
    monkeypatch.setattr("bigsvm.training.certify.TRIED", 50)
    X, y = blobs(600, overlap=0.7)
    K = gram(X) + 1
    beta = y * naive.l2_svc(K * np.outer(y, y) + np.eye(600) / 5.0)
    f = K @ beta
    outputs = f + error * (-1.0) ** np.arange(600)
    dual = BallDual(L2Classification(sign=y, C=5.0), largest=2.2)
    standing = look_at(X, y, beta.copy(), outputs, offset=1.0, dual=dual)
    recomputed = np.abs(outputs - f) < 1e-10
    n_support = np.count_nonzero(beta)
    assert recomputed[beta == 0].any() <= (not enough)
    assert np.count_nonzero(recomputed) < n_support // 2 if enough else recomputed[beta != 0].all()
    assert standing.gap <= 1e-3
    assert standing.objective == pytest.approx(
        0.5 * np.abs(beta).sum(), rel=1e-6 if enough else 1e-9
    )


# -- of many support rows, few of which are near the threshold ------------------------------------


BOUND = 1.0


@pytest.fixture(scope="module", params=[1e-4, 0.02], ids=["optimal", "not optimal"])
def crowded(request):
    """A problem most of whose support rows are at a bound, its kernel, a point, where it stands."""
    X, y = blobs(2000, d=2)
    K, run = gram(X), decomposition(X, y, C=BOUND, tol=request.param)
    alpha = dense_alpha(run.run(), len(y))
    return X, y, K @ alpha, alpha, BoxDual(CSVC(sign=y, C=BOUND)).optimality(alpha, K @ alpha)


@pytest.fixture
def sampled(large, monkeypatch):
    """Few rows show how much outputs are off, and how exact the objective is."""
    monkeypatch.setattr("bigsvm.training.certify.TRIED", 100)
    monkeypatch.setattr("bigsvm.training.certify.OBJECTIVE_ERROR", 1e-4)


@pytest.mark.usefixtures("sampled")
@pytest.mark.parametrize("error", [1e-7, 1e-5, 1e-4])
def test_rows_near_the_threshold_decide_the_gaps(crowded, error):
    X, y, f, alpha, exact = crowded
    outputs = f + np.random.default_rng(0).uniform(-error, error, len(y))
    before = outputs.copy()
    standing, errors = certified(X, y, alpha.copy(), outputs, C=BOUND, tol=0.02)
    assert 100 <= np.count_nonzero(outputs != before) < np.count_nonzero(alpha) / 3
    # Errors are a mean and its standard error: one in a thousand is more than 3 times as large.
    assert 0 < abs(standing.objective - exact.objective) <= 3 * errors.objective
    assert abs(standing.duality_gap - exact.duality_gap) <= 3 * errors.duality_gap + 1e-9
    assert standing.gap == pytest.approx(exact.gap, rel=1e-9, abs=1e-12)
    assert standing.duality_gap == pytest.approx(exact.duality_gap, rel=0.02, abs=1e-9)
    assert standing.objective == pytest.approx(exact.objective, rel=1e-4)


@pytest.mark.usefixtures("sampled")
def test_an_exact_objective_can_be_asked_for(crowded):
    X, y, f, alpha, exact = crowded
    outputs = f + np.random.default_rng(0).uniform(-1e-5, 1e-5, len(y))
    standing, errors = certified(
        X, y, alpha.copy(), outputs, C=BOUND, tol=0.02, exact_objective=True
    )
    assert errors == (0.0, 0.0)
    np.testing.assert_allclose(outputs[alpha != 0], f[alpha != 0], atol=1e-12)
    assert standing.objective == pytest.approx(exact.objective, rel=1e-12)


@pytest.fixture(scope="module")
def scattered():
    """Rows so far from one another that nearly all are free support vectors; a point, its dual."""
    X, y = blobs(900, d=12, overlap=3.0)
    alpha = dense_alpha(decomposition(X, y, C=20.0, gamma=0.5, tol=1e-3).run(), len(y))
    assert np.count_nonzero((alpha != 0) & (np.abs(alpha) < 20.0)) > 700
    return X, y, gram(X) @ alpha, alpha, BoxDual(CSVC(sign=y, C=20.0))


@pytest.mark.usefixtures("sampled")
@pytest.mark.parametrize("towards_losses", [False, True])
def test_errors_of_free_rows_are_told_of_the_duality_gap(scattered, towards_losses):
    """Errors that cancel need few rows; errors that all add to the gap need all of them."""
    X, y, f, alpha, dual = scattered
    exact = dual.optimality(alpha, f)
    noise = np.random.default_rng(0).uniform(-1e-6, 1e-6, len(y))
    slopes = dual.slopes(alpha, f, np.arange(len(y)), exact)
    outputs = f + (1e-4 * np.sign(slopes) if towards_losses else noise)
    standing, errors = certified(X, y, alpha.copy(), outputs, C=20.0, tol=2e-3)
    n_recomputed = np.count_nonzero(np.abs(outputs - f) < 1e-11)
    if towards_losses:
        assert errors == (0.0, 0.0)
        assert n_recomputed >= np.count_nonzero(alpha)
    else:
        assert n_recomputed < 300
        assert 0 < abs(standing.duality_gap - exact.duality_gap) <= 3 * errors.duality_gap
    assert standing.gap == pytest.approx(exact.gap, rel=1e-9)
    assert standing.duality_gap == pytest.approx(exact.duality_gap, rel=0.02)


@pytest.mark.parametrize("formulation", [CSVC, SquaredHingeSVC])
def test_slopes_are_derivatives_of_the_duality_gap(formulation):
    rng = np.random.default_rng(0)
    y = np.where(rng.random(40) < 0.5, -1.0, 1.0)
    alpha = y * rng.choice([0.0, 0.3, 1.0], 40)
    dual, f = BoxDual(formulation(sign=y, C=1.0)), rng.standard_normal(40)
    standing, rows = dual.optimality(alpha, f), np.arange(40)
    slopes = dual.slopes(alpha, f, rows, standing)
    (group,) = standing.groups
    for row in rows:
        moved = []
        for step in (-1e-6, 1e-6):
            part = next(iter(dual._parts(alpha, f + step * (rows == row), None)))
            moved.append(float(alpha @ part.outputs) + part.slack(group.threshold))
        assert (moved[1] - moved[0]) / 2e-6 == pytest.approx(slopes[row], abs=1e-4)


@pytest.mark.parametrize("problem", [CSVC, SquaredHingeSVC])
def test_free_rows_whose_loss_has_no_limit_or_is_squared_are_in_doubt(scattered, problem):
    _, y, f, alpha, _ = scattered
    formulation = problem(sign=y, C=np.inf if problem is CSVC else 20.0)
    found = BoxDual(formulation).doubtful(alpha, f, tol=1e-3, error=1e-6)
    assert set(np.flatnonzero(alpha)) <= set(found)


@pytest.mark.usefixtures("sampled")
@pytest.mark.parametrize("among", ["free", "bounded", "at 0"])
def test_errors_hide_no_violation(crowded, among):
    """Neither of rows of one kind, nor do the errors of the others add one."""
    X, y, f, alpha, exact = crowded
    chosen = {
        "free": (alpha != 0) & (np.abs(alpha) < BOUND),
        "bounded": np.abs(alpha) == BOUND,
        "at 0": alpha == 0,
    }[among]
    gradient, b = y - f, exact.thresholds[0]
    rises, falls = alpha < BOUND * (y > 0), alpha > -BOUND * (y < 0)
    # All other outputs are wrong by as much, away from a violation.
    hidden = gradient - 0.5 * exact.gap * np.where(rises, 1.0, -1.0)
    violates = (rises & (gradient > b)) | (falls & (gradient < b))
    hidden[chosen & violates] = b
    outputs = y - hidden
    standing = look_at(X, y, alpha.copy(), outputs, C=BOUND, tol=1e-3)
    assert (standing.gap <= 1e-3) == (exact.gap <= 1e-3)
    assert standing.gap == pytest.approx(exact.gap, rel=1e-9)


@pytest.mark.usefixtures("sampled")
def test_errors_that_add_up_leave_no_objective_uncertain(crowded):
    """Errors that all raise the quadratic term: all support rows are recomputed."""
    X, y, f, alpha, exact = crowded
    outputs = f + 1e-2 * np.sign(alpha)
    standing = look_at(X, y, alpha.copy(), outputs, C=BOUND)
    if exact.gap <= 1e-3:
        np.testing.assert_allclose(outputs[alpha != 0], f[alpha != 0], atol=1e-12)
        assert standing.objective == pytest.approx(exact.objective, rel=1e-10)
    else:  # the run goes on
        assert standing.gap == pytest.approx(exact.gap, rel=1e-9)


@pytest.mark.usefixtures("large")
def test_interrupted_it_changes_nothing(solved):
    X, y, K, alpha = solved
    outputs = K @ alpha + np.where(alpha != 0, 0.5, 0.0)
    before = outputs.copy()
    for moment in range(1, 30):
        checks = iter(range(1, 1000))

        def check(checks=checks, moment=moment):
            if next(checks) == moment:
                raise InterruptedError

        try:
            with checked_by(check):
                look_at(X, y, alpha.copy(), outputs, rows_at_once=150)
        except InterruptedError:
            np.testing.assert_array_equal(outputs, before)
        else:
            break
    assert 4 < moment < 29


def test_outputs_that_are_no_numbers_are_not_optimal(solved):
    _, y, K, alpha = solved
    outputs = K @ alpha
    outputs[17] = np.nan
    with pytest.raises(DataError, match="row 17"):
        BoxDual(CSVC(sign=y, C=1.0)).optimality(alpha, outputs)


@pytest.mark.parametrize("sparse", [False, True])
def test_working_rows_are_those_of_the_source(sparse):
    import scipy.sparse as sp

    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 7)).astype(np.float32)
    source = as_row_source(sp.csr_array(X) if sparse else X)
    rows = WorkingRows(source)
    for size in (50, 50, 200, 1, 300):
        before = source.bytes_read
        wanted = rng.choice(300, size, replace=False)
        found = rows.gather(wanted)
        np.testing.assert_array_equal(found.toarray() if sparse else found, X[wanted])
        read = source.bytes_read
        again = rows.gather(wanted[::-1])
        np.testing.assert_array_equal(again.toarray() if sparse else again, X[wanted[::-1]])
        assert source.bytes_read == read >= before
