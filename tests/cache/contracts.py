"""What every `RowTier` must do: one class, inherited once for each implementation."""

import naive
import numpy as np
import pytest


class RowTierContract:
    """Subclasses define the fixture `make`: from rows (m, d) float32, a tier of their rbf rows."""

    gamma = 0.3

    @pytest.fixture
    def data(self):
        return np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)

    @pytest.fixture
    def K(self, data):
        return naive.kernel_matrix(data, data, "rbf", gamma=self.gamma)

    @pytest.fixture
    def tier(self, make, data):
        return make(data)

    @pytest.mark.parametrize("variables", [[0], [29], [3, 4, 5], [7, 2, 19, 0], []])
    def test_rows_are_plain_kernel_values_in_the_order_asked_for(self, tier, K, variables):
        out = np.full((len(variables), 30), np.nan, np.float32)
        tier.fetch(np.array(variables, np.int64), out)
        np.testing.assert_allclose(out, K[variables], atol=1e-6)

    def test_what_is_past_the_last_variable_stays(self, tier, K):
        out = np.full((2, 64), -3, np.float32)
        tier.fetch(np.array([5, 1]), out)
        np.testing.assert_array_equal(out[:, 30:], -3)
        np.testing.assert_allclose(out[:, :30], K[[5, 1]], atol=1e-6)

    def test_rows_may_be_written_into_part_of_a_buffer(self, tier, K):
        buffer = np.full((10, 30), -3, np.float32)
        tier.fetch(np.array([8, 9]), buffer[4:6])
        np.testing.assert_allclose(buffer[4:6], K[[8, 9]], atol=1e-6)
        np.testing.assert_array_equal(np.delete(buffer, [4, 5], axis=0), -3)

    def test_bits_are_the_same_each_time_and_in_each_batch(self, tier):
        whole = np.empty((30, 30), np.float32)
        tier.fetch(np.arange(30), whole)
        np.testing.assert_array_equal(whole, whole.T)
        for variables in ([4], [20, 4, 11], [4]):
            out = np.empty((len(variables), 30), np.float32)
            tier.fetch(np.array(variables), out)
            np.testing.assert_array_equal(out, whole[variables])

    def test_what_is_offered_comes_back_as_it_was(self, tier):
        rows = np.empty((3, 30), np.float32)
        tier.fetch(np.array([6, 12, 1]), rows)
        lent = rows.copy()
        tier.offer(np.array([6, 12, 1]), lent)
        lent[:] = np.nan  # rows are lent, not given: the memory goes to others
        again = np.empty((3, 30), np.float32)
        tier.fetch(np.array([6, 12, 1]), again)
        np.testing.assert_array_equal(again, rows)

    def test_a_view_may_be_offered(self, tier):
        buffer = np.zeros((4, 64), np.float32)
        tier.fetch(np.array([3, 2]), buffer[1:3])
        tier.offer(np.array([3, 2]), buffer[1:3, :30])
        again = np.empty((1, 30), np.float32)
        tier.fetch(np.array([2]), again)
        np.testing.assert_array_equal(again[0], buffer[2, :30])
