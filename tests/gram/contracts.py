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
        out = fetched(tier, np.array(variables, np.int64))
        np.testing.assert_allclose(out, K[variables], atol=1e-6)

    def test_padding_past_the_last_variable_is_not_written(self, tier, K):
        out = np.full((2, 64), -3, np.float32)
        tier.fetch(np.array([5, 1]), out, np.arange(2))
        np.testing.assert_array_equal(out[:, 30:], -3)
        np.testing.assert_allclose(out[:, :30], K[[5, 1]], atol=1e-6)

    @pytest.mark.parametrize("slots", [[4, 5, 6], [9, 0, 5]])
    def test_each_row_is_written_to_its_slot_and_the_other_slots_stay(self, tier, K, slots):
        buffer = np.full((10, 30), -3, np.float32)
        tier.fetch(np.array([8, 9, 2]), buffer, np.array(slots))
        np.testing.assert_allclose(buffer[slots], K[[8, 9, 2]], atol=1e-6)
        np.testing.assert_array_equal(np.delete(buffer, slots, axis=0), -3)

    def test_bits_are_the_same_each_time_and_in_each_batch(self, tier):
        whole = fetched(tier, np.arange(30))
        np.testing.assert_array_equal(whole, whole.T)
        for variables in ([4], [20, 4, 11], [4]):
            out = fetched(tier, np.array(variables))
            np.testing.assert_array_equal(out, whole[variables])

    def test_offered_rows_are_fetched_unchanged(self, tier):
        rows = fetched(tier, np.array([6, 12, 1]))
        lent = rows.copy()
        tier.offer(np.array([6, 12, 1]), lent, np.arange(3))
        lent[:] = np.nan  # rows are lent, not given: the memory goes to others
        again = fetched(tier, np.array([6, 12, 1]))
        np.testing.assert_array_equal(again, rows)

    def test_rows_are_offered_from_their_slots(self, tier):
        buffer = np.zeros((4, 64), np.float32)
        tier.fetch(np.array([3, 2]), buffer, np.array([3, 1]))
        tier.offer(np.array([3, 2]), buffer, np.array([3, 1]))
        np.testing.assert_array_equal(fetched(tier, np.array([2, 3])), buffer[[1, 3], :30])


def fetched(tier, variables):
    """Kernel rows of `variables`, in order."""
    rows = np.full((len(variables), 30), np.nan, np.float32)
    tier.fetch(variables, rows, np.arange(len(variables)))
    return rows
