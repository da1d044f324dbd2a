"""The benchmark of pair steps at tiny sizes: its problem, its table, its verdict."""

from types import SimpleNamespace

import numpy as np
import pair_steps
import pytest

from bigsvm.core import smo


@pytest.fixture
def little_memory(monkeypatch):
    """Reading a whole cache of rows for the noise is not the test's business."""
    monkeypatch.setattr(pair_steps, "READ_BYTES", 1 << 16)


def test_problem_is_a_kernel_matrix_of_two_classes():
    labels, rows = pair_steps.make_problem(1100)
    width = len(pair_steps.fresh_state(labels).alpha)
    assert rows.shape == (1100, width)
    K = rows[:, :1100]
    np.testing.assert_array_equal(np.diag(K), 1)
    np.testing.assert_allclose(K, K.T, rtol=1e-5)
    assert not rows[:, 1100:].any()
    assert np.linalg.eigvalsh(K[:100, :100].astype(float)).min() > -1e-5
    assert set(labels) == {-1.0, 1.0}


def test_time_is_per_variable_and_step(monkeypatch):
    clock = iter([10.0, 11.0])
    monkeypatch.setattr(pair_steps, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    problem = pair_steps.make_problem(50)
    assert pair_steps.nanoseconds(problem, smo.MVP, 4) == pytest.approx(1e9 / (4 * 50))


def test_every_rule_and_size_has_a_line(little_memory, capsys):
    given = ["--sizes", "40", "70", "--steps", "30", "--repeats", "2", "--check"]
    assert pair_steps.main(given) == 0
    printed = capsys.readouterr().out
    lines = [line.split("|")[1:-1] for line in printed.splitlines() if line.startswith("|")]
    found = [(size.strip(), rule.strip()) for size, rule, _ in lines[2:]]
    assert found == [(size, rule) for size in ("40", "70") for rule in pair_steps.RULES]
    assert all("[" in time for *_, time in lines[2:])
    assert "noise: " in printed
    assert "limit" not in printed  # neither size has one


@pytest.mark.parametrize(
    ("limit", "check", "code"), [(0.0, True, 1), (0.0, False, 0), (1e9, True, 0)]
)
def test_limit_is_judged_and_fails_only_where_asked(
    limit, check, code, little_memory, monkeypatch, capsys
):
    monkeypatch.setattr(pair_steps, "LIMIT", limit)
    monkeypatch.setattr(pair_steps, "LIMITED_SIZE", 40)
    given = ["--sizes", "40", "--steps", "30", "--repeats", "1", *["--check"] * check]
    assert pair_steps.main(given) == code
    verdict = capsys.readouterr().out.splitlines()[-1]
    assert verdict.endswith(": holds" if limit else ": does not hold")


def test_sizes_are_positive(capsys):
    with pytest.raises(SystemExit):
        pair_steps.parse(["--sizes", "0"])
    assert "at least 1" in capsys.readouterr().err
