"""Sums and rows that are computed again in this process, without a cluster."""

import numpy as np
import pytest
import scipy.sparse as sp
from support.problems import blobs

from bigsvm.data.sources import as_row_source
from bigsvm.errors import ClusterError
from bigsvm.executors.audit import Auditor, RowsAudit, RowsReadAgain, SumsAudit
from bigsvm.executors.executor import WeightedRows
from bigsvm.executors.replies import ReplyError
from bigsvm.executors.tasks import Halves
from bigsvm.executors.workforce import Traffic
from bigsvm.gram import KernelTiles, Partners
from bigsvm.gram.partners import PARTNERS_PER_TILE, rows_at
from bigsvm.kernels import RBF

N = 1300


class Problem:
    """Sums over all rows, as workers compute them; calls have whole tiles where it is by halves."""

    def __init__(self, *, sparse=False, k=1, exact=False, halves=False, at_once=N, initial=None):
        X, _ = blobs(N)
        self.X = sp.csr_array(np.where(X > 0, X, 0)) if sparse else X
        rng = np.random.default_rng(0)
        self.weights = rng.standard_normal((N, k) if k > 1 else N)
        self.weighted = WeightedRows(
            self.weights, lambda places: rows_at(self.X[places]), at_once=at_once
        )
        again = RowsReadAgain(as_row_source(self.X), Traffic())
        self.auditor = Auditor(again, KernelTiles(RBF(gamma=0.5)))
        self.exact, self.is_halves, self.initial = exact, halves, initial
        step = PARTNERS_PER_TILE if halves else 100
        self.spans = [np.arange(N)[low : low + step] for low in range(0, N, step)]

    def audit(self):
        initial = self.initial
        return SumsAudit(
            self.auditor, self.weighted, [len(span) for span in self.spans],
            self.spans.__getitem__, exact=self.exact,
            among=np.arange(N) if self.is_halves else None,
            initial_of=lambda number: None if initial is None else initial[self.spans[number]],
        )  # fmt: skip

    def sums(self, number):
        """What a worker returns."""
        tiles, span = self.auditor.tiles(exact=self.exact), self.spans[number]
        pieces, sparse = list(self.weighted.sent("")), sp.issparse(self.X)
        if self.is_halves:
            own = next(self.weighted.sent(""))
            own.start, own.rows, own.weights = int(span[0]), self.X[span], self.weights[span]
            halves = Halves(tiles, own, is_sparse=sparse)
            for piece in pieces:
                halves.add(piece)
            return halves.sums
        sums = np.zeros((len(span), *self.weights.shape[1:]))
        if self.initial is not None:
            sums[:] = self.initial[span]
        for piece in pieces:
            partners = Partners(tiles.values, piece.rows, for_sparse_rows=sparse)
            tiles.multiply(self.X[span], partners, piece.weights, sums)
        return sums


KINDS = {
    "plain": {},
    "pieces": {"at_once": 256},
    "sparse": {"sparse": True, "at_once": 256},
    "functions": {"k": 3, "at_once": 512},
    "float64": {"exact": True},
    "halves": {"exact": True, "halves": True, "at_once": 512},
    "halves of sparse functions": {"exact": True, "halves": True, "sparse": True, "k": 3},
    "continued": {"initial": np.linspace(-1, 1, N), "at_once": 256},
}


@pytest.mark.parametrize("name", KINDS)
def test_right_sums_have_the_same_bits(name):
    """Those that are chosen before the pass, and the first of each worker."""
    problem = Problem(**KINDS[name])
    audit = problem.audit()
    assert len(audit.places) == min(8, len(problem.spans))
    assert sum(1 for _ in audit.sent("name")) == len(problem.weighted.spans())
    for number in range(len(problem.spans)):
        found = audit.verify(number, f"worker {number % 2}", problem.sums(number), exactly=True)
        assert found is (number in audit.places or number < 2)
    audit.finish()


@pytest.mark.parametrize("name", ["plain", "continued", "functions"])
def test_a_worker_that_is_known_is_checked_at_the_end_of_a_pass(name, monkeypatch):
    """Where none of the sums that were chosen before the pass is its own."""
    monkeypatch.setattr("bigsvm.executors.audit.SHARE", 0.0)
    problem = Problem(**KINDS[name])
    problem.auditor.known.update("abc")
    for spoil, refused in [(1.0, False), (1.05, True), (0.0, True), (-1.0, True)]:
        audit = problem.audit()
        for worker, number in zip("abc", set(range(13)) - set(audit.places), strict=False):
            sums = problem.sums(number) * (spoil if worker == "b" else 1.0)
            assert not audit.verify(number, worker, sums, exactly=True)
        if refused:
            with pytest.raises(ClusterError, match=r"worker b returned another sum .* were used"):
                audit.finish()
        else:
            audit.finish()


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(
    "spoil",
    [
        lambda sums: 1.05 * sums,
        lambda sums: 0.0 * sums,
        lambda sums: -sums,
        lambda sums: sums + np.nan,
        lambda sums: np.nextafter(sums, np.inf),
    ],
)
def test_wrong_sums_of_a_worker_are_seen_in_its_first_reply(name, spoil):
    problem = Problem(**KINDS[name])
    audit = problem.audit()
    for number in (0, 2):
        with pytest.raises(ReplyError, match=r"^returned another sum than this process computes: "):
            audit.verify(number, f"worker {number}", spoil(problem.sums(number)), exactly=True)


@pytest.mark.parametrize("name", KINDS)
def test_sums_of_another_processor_are_right_within_rounding(name):
    problem = Problem(**KINDS[name])
    audit = problem.audit()
    sums = problem.sums(1)
    near = sums * (1 + (1e-12 if problem.exact else 1e-6))
    assert audit.verify(1, "a", near, exactly=False)
    with pytest.raises(ReplyError):
        audit.verify(1, "b", near, exactly=True)
    with pytest.raises(ReplyError):
        audit.verify(1, "c", sums + 0.5 * np.abs(problem.weights).sum(), exactly=False)


def test_one_sum_that_is_not_finite_is_seen_in_any_reply():
    problem = Problem()
    audit = problem.audit()
    unchecked = next(number for number in range(13) if number not in audit.places)
    assert audit.verify(unchecked, "worker", problem.sums(unchecked), exactly=True)
    sums = problem.sums(unchecked)
    assert not audit.verify(unchecked, "worker", sums, exactly=True)
    sums[17] = np.inf
    with pytest.raises(ReplyError, match="inf instead of"):
        audit.verify(unchecked, "worker", sums, exactly=True)


def test_sums_that_overflow_here_too_are_those_of_the_rows():
    problem = Problem()
    problem.weights[40] = np.inf
    audit = problem.audit()
    assert not np.isfinite(problem.sums(2)).any()
    for number in range(13):
        assert audit.verify(number, "worker", problem.sums(number), exactly=True)


def test_kernel_values_are_counted_and_few():
    problem = Problem()
    audit = problem.audit()
    for number in range(13):
        audit.verify(number, "worker", problem.sums(number), exactly=True)
    assert 8 * N <= audit.n_evaluations <= 9 * N < 0.01 * N * N


@pytest.mark.parametrize("sparse", [False, True])
def test_rows_are_read_again(sparse):
    X = Problem(sparse=sparse).X + np.arange(1, N + 1, dtype=np.float32)[:, None]
    X = sp.csr_array(X) if sparse else X  # no two rows are equal, and none is its double
    asked = [np.arange(low, low + 50) for low in range(0, N, 50)]
    audit = RowsAudit(RowsReadAgain(as_row_source(X), Traffic()), asked)
    assert len(audit.places) == 8
    for number, rows in enumerate(asked):
        found = audit.verify(number, f"worker {number % 2}", X[rows], exactly=True)
        assert found is (number in audit.places or number < 2)
    for worker, spoiled in [
        ("scaled", X * np.float32(2)),
        ("shifted", X[np.roll(np.arange(N), 1)]),
    ]:
        with pytest.raises(ReplyError, match=r"^returned another row \d+ than this process reads"):
            audit.verify(7, worker, spoiled[asked[7]], exactly=False)
