"""The duality gap from a sample, of runs that a time limit ends at a point of unknown outputs."""

import numpy as np
import pytest
from support.problems import blobs, decomposition, dense_alpha, gram

from bigsvm.duals.box import BoxDual
from bigsvm.duals.formulations import CSVC, OneClass
from bigsvm.errors import StoreError
from bigsvm.training import events, loop
from bigsvm.training.result import StopReason
from bigsvm.training.sampled_gap import ROWS, SPANS, sampled_gap, sampled_rows
from bigsvm.training.state import Limits


def out_of_time(X, y, **options):
    """Run until the time limit, which comes while the first working set is solved."""

    def listener(event):
        if isinstance(event, events.Solving):
            run._run.watch._started = -np.inf

    run = decomposition(X, y, limits=Limits(max_seconds=1e9), listener=listener, **options)
    certificate = (result := run.run()).certificate
    assert certificate.stop_reason is StopReason.TIME_LIMIT
    assert (certificate.n_sweeps, certificate.gap, certificate.duality_gap) == (0, None, None)
    return result


def test_a_sample_of_all_rows_has_the_gap_of_the_definition():
    X, y = blobs(900, overlap=2.0)
    result = out_of_time(X, y, C=1e3)
    alpha = dense_alpha(result, len(y))
    expected = BoxDual(CSVC(sign=y, C=1e3)).optimality(alpha, gram(X) @ alpha).duality_gap
    certificate = result.certificate
    assert certificate.sampled_duality_gap == pytest.approx(expected, rel=1e-6)
    assert (certificate.sampled_rows, certificate.sampled_duality_gap_deviation) == (len(y), 0.0)


def test_an_estimate_is_within_its_errors():
    X, y = blobs(4000, overlap=2.0)
    result = out_of_time(X, y, C=10.0)
    alpha, certificate = dense_alpha(result, len(y)), result.certificate
    dual = BoxDual(CSVC(sign=y, C=10.0))
    outputs = gram(X, 0.5)[:, result.support] @ alpha[result.support]
    exact = dual.optimality(alpha, outputs).duality_gap
    assert certificate.sampled_rows == ROWS
    assert 0 < certificate.sampled_duality_gap_deviation < 0.2 * exact
    error = abs(certificate.sampled_duality_gap - exact)
    assert error < 5 * certificate.sampled_duality_gap_deviation


@pytest.mark.parametrize("n_support", [0, 10, 10**5, 10**9])
@pytest.mark.parametrize("n_rows", [1, 63, 65, ROWS, ROWS + 1, 10**6, 10**9])
def test_sampled_rows_are_some_rows_in_spans(n_rows, n_support):
    rows = sampled_rows(n_rows, n_support)
    assert 0 <= rows[0] <= rows[-1] < n_rows
    assert (np.diff(rows) > 0).all()
    assert 0 < len(rows) <= min(n_rows, ROWS)
    assert len(rows) == n_rows or np.count_nonzero(np.diff(rows) > 1) < SPANS


def test_a_point_that_is_no_solution_has_no_gap():
    dual = BoxDual(OneClass(n_rows=100, nu=0.5))
    assert sampled_gap(dual, np.zeros(100), pytest.fail) is None  # must add up to more


def test_without_support_vectors_no_row_is_read():
    y = np.array([1, -1] * 50, np.int8)
    found = sampled_gap(BoxDual(CSVC(sign=y, C=2.0)), np.zeros(100), pytest.fail)
    assert found.gap == pytest.approx(200.0)  # all losses are 1, and the objective is 0


def test_rows_that_cannot_be_read_leave_the_gap_unknown(monkeypatch):
    def fail(*_):
        raise StoreError("gone")

    monkeypatch.setattr(loop, "sampled_gap", fail)
    result = out_of_time(*blobs(900, overlap=2.0), C=1e3)
    assert result.certificate.sampled_duality_gap is None


def test_interrupted_runs_end_without_an_estimate():
    stop = []
    run = decomposition(
        *blobs(900, overlap=2.0), C=1e3, limits=Limits(interrupted=lambda: bool(stop)),
        listener=lambda event: isinstance(event, events.Solving) and stop.append(1),
    )  # fmt: skip
    certificate = run.run().certificate
    assert (certificate.stop_reason, certificate.sampled_rows) == (StopReason.INTERRUPTED, None)
