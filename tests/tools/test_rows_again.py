"""The map of kernel rows that default runs fetch again, at tiny sizes."""

import numpy as np
import pytest
import rows_again
from rows_again import Cell, Counted, Disk


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


def test_what_a_disk_saves_is_what_computing_costs_more():
    cell = Cell("toy", 1.0, 10**6, 100, 50, 0, 20, 10, 50.0, 50e-3, 1.0)
    assert cell.computing == pytest.approx(1e-3)
    disk = Disk(writing=1e-4, reading=4e-4)
    assert cell.saved_by_short_rows(disk) == pytest.approx(20 * 5e-4)
    # 40 rows are read instead of computed; 10 are computed to their whole length, and written.
    assert cell.saved_by_whole_rows(disk) == pytest.approx(40 * 6e-4 - 10 * 1.1e-3)


def test_a_map_at_tiny_sizes(tmp_path, capsys):
    problem = rows_again.dense_problem(10, 300)
    found = rows_again.cells("toy", problem, (1.0, 4.0), tmp_path)
    assert [cell.factor for cell in found] == [1.0, 4.0]
    assert all(cell.fetched >= cell.distinct > 0 for cell in found)
    laid_out, winners = rows_again.report(found, tmp_path)
    assert laid_out.count("\n") == 3
    assert set(winners) <= set(found)
    assert "toy" in capsys.readouterr().err
