"""Tests of the simulation of a coordinator whose rows' state is with workers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tools import coordinator_at_scale as simulation


@given(
    hnp.arrays(np.float32, st.integers(1, 60), elements=st.floats(-3, 3, width=32)),
    st.integers(1, 5),
    st.data(),
)
def test_two_rounds_of_histograms_find_the_limit_of_the_largest_scores(scores, n_workers, data):
    scores += np.float32(0)  # −0 is 0
    count = data.draw(st.integers(1, len(scores)))
    keys = simulation.ordered(scores)

    def units(above):
        return [simulation.histogram(part, above) for part in np.array_split(keys, n_workers)]

    key, n_equal = simulation.limit_of(units, count)
    limit = np.sort(scores)[len(scores) - count]
    assert scores[keys == key].tolist() == [limit] * np.count_nonzero(scores == limit)
    assert np.count_nonzero(scores > limit) + n_equal == count


def test_the_state_of_rows_on_the_coordinator_takes_17_bytes_a_row(capsys):
    simulation.main(["--rows", "2e6", "--real", "2e6", "--support", "1e3", "--workers", "3"])
    lines = [line.split("|") for line in capsys.readouterr().out.splitlines() if "| here" in line]
    [[_, _, _, per_row, *_]] = lines
    assert 17 < float(per_row) <= 17 * 1.3  # and what a part of rows takes while it is scored


@pytest.mark.parametrize("n_rows", [1, 1000])
def test_few_rows(n_rows):
    figures = simulation.there(n_rows, 1, 2)
    assert figures.received > 0
