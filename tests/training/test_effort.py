"""What a run costs, in units that no machine changes: sweeps, and kernel evaluations in floors."""

import pytest
from support.problems import blobs, decomposition

from bigsvm.data.in_memory import ArrayRows

MANY, FEW = 2.0, 4.0
"""Most floors of so few rows where a fifth or more of them are support vectors, and elsewhere."""


class Streamed(ArrayRows):
    """Rows that count as not being in memory."""

    def __init__(self, X):
        super().__init__(X)
        self.row_alignment = 500


@pytest.mark.parametrize("wrap", [ArrayRows, Streamed])
@pytest.mark.parametrize(
    ("overlap", "C", "floors"), [(0.4, 10.0, FEW), (1.0, 0.1, MANY), (1.0, 1.0, MANY)]
)
def test_sweeps_and_kernel_evaluations_are_few(overlap, C, floors, wrap):
    X, y = blobs(24_000, overlap=overlap)
    source = wrap(X)
    source.is_shuffled = True  # blobs come in random order
    result = decomposition(
        source, y, C=C, gamma=0.1, working_set=6144, active_rows=9600, block_bytes=1 << 20,
        threads=2,
    ).run()  # fmt: skip
    certificate = result.certificate
    assert certificate.converged
    assert (certificate.n_support >= 0.2 * len(y)) == (floors == MANY)
    assert certificate.n_sweeps <= 3
    assert certificate.n_kernel_evaluations <= floors * len(y) * certificate.n_support


@pytest.mark.slow
def test_memory_for_fewer_kernel_rows_than_there_are_free_variables_is_no_cliff():
    """In working sets without room for all of them, the 237 free rows take 522 sets."""
    X, y = blobs(3000, overlap=0.5)
    certificate = decomposition(
        X, y, C=1000.0, gamma=1.0, working_set=120, slots=120, widest_set=400, active_rows=2000
    ).run().certificate  # fmt: skip
    assert certificate.converged
    assert certificate.n_support - certificate.n_bounded > 1.5 * 120
    assert certificate.n_working_sets <= 50
