"""The gap of the ball of a working set, beside its definition."""

import numpy as np
import pytest

from bigsvm.core import ball


@pytest.mark.parametrize("seed", range(4))
def test_the_gap_of_signed_variables_is_its_definition(seed):
    """Of variables on either side, one without bounds, and one that may not move."""
    rng = np.random.default_rng(seed)
    sign = rng.choice([-1.0, 1.0], 8)
    alpha, gradient = sign * rng.random(8), rng.normal(size=8)
    upper, lower = np.where(sign > 0, np.inf, 0.0), np.where(sign > 0, 0.0, -np.inf)
    upper[6], lower[6] = np.inf, -np.inf
    upper[7] = lower[7] = alpha[7] = 0.0
    bound = slice(0, 6)
    farthest = max(0.0, (sign * gradient)[bound].max())
    mean = alpha[bound] @ gradient[bound] / np.abs(alpha[bound]).sum()
    assert ball.gap_of_signed(alpha, gradient, lower, upper) == pytest.approx(
        farthest - mean, rel=1e-12
    )
    alpha[bound] = 0
    assert ball.gap_of_signed(alpha, gradient, lower, upper) == np.inf
