"""The benchmark of very many columns, at a size that takes seconds."""

import pytest

from tools.benchmarks import __main__ as command
from tools.benchmarks.suites import many_columns


@pytest.mark.slow
@pytest.mark.fault("many-columns")
def test_a_small_run_holds(capsys):
    arguments = ["--rows", "3000", "--columns", "2000000", "--memory", "150MB"]
    assert command.main(["many_columns", *arguments]) == 0
    printed = capsys.readouterr().out
    assert printed.count("holds") == 9
    assert "does not hold" not in printed


def test_text_has_its_columns(tmp_path):
    path = tmp_path / "text"
    many_columns.write_text(path, n_rows=50, n_columns=5000)
    lines = path.read_text().splitlines()
    assert len(lines) == 51
    columns = [[int(word.split(":")[0]) for word in line.split()[1:]] for line in lines]
    assert max(map(max, columns)) == 5000
    assert all(found == sorted(set(found)) for found in columns)
