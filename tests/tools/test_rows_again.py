"""The map of kernel rows that default runs fetch again, at tiny sizes."""

import numpy as np
import pytest

from tools.benchmarks.__main__ import main
from tools.benchmarks.suites import rows_again
from tools.benchmarks.suites.rows_again import Counted


class Below:
    def fetch(self, variables, rows, slots):
        rows[slots] = 1.0


def test_rows_are_counted_as_what_they_are():
    counted, rows = Counted(), np.zeros((9, 5), np.float32)

    def fetch(active, working, variables):
        tier = counted.begin(np.array(active), np.array(working)).over(Below())
        for some in variables:
            tier.fetch(np.array(some), rows, np.arange(len(some)))

    fetch([1, 5, 7], [1, 7], [[0], [0, 1]])  # 1 again in a set
    fetch([1, 5, 7], [5, 7], [[0, 1]])  # 7 again among the active
    fetch([5, 7], [5, 7], [[0]])  # 5 again in the run
    assert (counted.fetched, counted.again, counted.again_active) == (6, 1, 2)
    assert counted.ever == {1, 5, 7}


def test_saving_of_a_disk_is_the_extra_cost_of_computing():
    disk = {"writing": 1e-4, "reading": 4e-4}
    cell = {
        "n_rows": 100, "again_active": 20, "again_in_run": 40, "distinct": 10, "length": 50.0,
        "computing": 1e-3, "short": disk, "whole": disk,
    }  # fmt: skip
    found = rows_again.saved(cell)
    assert found["saved_by_short"] == pytest.approx(20 * 5e-4)
    # 40 rows are read instead of computed; 10 are computed to their whole length, and written.
    assert found["saved_by_whole"] == pytest.approx(40 * 6e-4 - 10 * 1.1e-3)


@pytest.mark.usefixtures("in_process", "classes")
def test_a_map_at_tiny_sizes(table_of, capsys):
    given = ["--columns", "10", "--rows", "300", "--factors", "1", "4"]
    assert main(["rows_again", *given]) == 0
    printed = capsys.readouterr()
    assert "skipped mnist" in printed.err
    lines = table_of(printed.out, "10 dense")
    assert [line[0] for line in lines] == ["1", "4"]
    for _, _, fetched, _, _, again, *_, by_short, by_whole in lines:
        assert int(fetched) > int(again) >= 0
        assert by_short.endswith("%")
        assert by_whole[0] in "+-"
    assert "could save more than 2%: " in printed.out
