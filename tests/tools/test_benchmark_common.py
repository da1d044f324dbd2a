"""What the benchmarks share: tables, ratios, child processes, the objective against an oracle."""

import signal
import sys

import common
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.svm import SVC


def test_objective_is_that_of_a_double_loop():
    random = np.random.default_rng(0)
    x = random.standard_normal((7, 3)).astype(np.float32)
    beta = random.standard_normal(7)
    expected = np.abs(beta).sum()
    for i in range(7):
        for j in range(7):
            distance = sum((float(a) - float(b)) ** 2 for a, b in zip(x[i], x[j], strict=True))
            expected -= 0.5 * beta[i] * beta[j] * np.exp(-0.3 * distance)
    assert common.dual_objective(x, beta[None, :], 0.3) == pytest.approx(expected, rel=1e-12)
    assert common.dual_objective(sp.csr_matrix(x), beta, 0.3) == pytest.approx(expected, rel=1e-12)


def test_objective_of_a_model_does_not_depend_on_the_pieces_it_is_summed_in():
    random = np.random.default_rng(1)
    x = random.standard_normal((2500, 4))
    y = np.where(random.random(2500) < 0.5, -1.0, 1.0)
    model = SVC(C=0.5, gamma=0.2).fit(x, y)
    beta = model.dual_coef_[0]
    assert len(beta) > 1024
    decision = model.decision_function(x[model.support_]) - model.intercept_[0]
    expected = np.abs(beta).sum() - 0.5 * beta @ decision
    assert common.dual_objective(x[model.support_], beta, 0.2) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("values", "text"),
    [([], "-"), ([1.234], "1.23"), ([3.0, 1.0, 2.0], "2.00 [1.00-3.00]")],
)
def test_median_and_range(values, text):
    assert common.median_range(values) == text


def test_ratios_are_taken_within_a_round():
    rounds = [{"a": 2.0, "b": 1.0}, {"b": 5.0}, {"a": 9.0, "b": 3.0}]
    assert common.round_ratios(rounds, "a", "b") == [2.0, 3.0]


def test_table_is_markdown_with_straight_columns():
    text = common.table(["who", "s"], [["store", 1.5], ["x", 10]])
    assert text.splitlines() == [
        "| who   | s   |",
        "|-------|-----|",
        "| store | 1.5 |",
        "| x     | 10  |",
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('noise\n{"a": 1}\n', {"a": 1}),
        ('{\n "a": 1\n}', {"a": 1}),
        ("no json", {}),
        ("[1]", {}),
        ("", {}),
    ],
)
def test_answer_is_the_last_line_or_the_whole(text, value):
    assert common.last_json(text) == value


def test_noise_is_the_spread_over_the_median():
    said = common.noise([0.1, 0.2, 0.1])
    assert said.startswith("noise: a fixed GEMM before each run took 100 [100-200] ms")
    assert said.endswith("spread 100% over the median")


def test_verdicts_are_said_in_words():
    checks = [common.Check("a", "1", "2", True), common.Check("b", "3", "2", False)]
    lines = common.verdicts(checks).splitlines()
    assert [line.split("|")[-2].strip() for line in lines[2:]] == ["holds", "does not hold"]


def test_child_reports_answer_threads_and_memory():
    program = (
        "import json, os; x = bytearray(100_000_000); "
        "x[::1024] = b'1' * len(x[::1024]); "
        "print('talk'); print(json.dumps({'threads': os.environ['OMP_NUM_THREADS']})); "
        "import time; time.sleep(1)"
    )
    finished = common.run_child([sys.executable, "-c", program], threads=2)
    assert finished.returncode == 0
    assert finished.answer == {"threads": "2"}
    assert 100_000_000 < finished.peak_rss < 300_000_000
    assert finished.seconds > 0


def test_peak_of_a_child_is_not_that_of_a_larger_parent():
    x = bytearray(250_000_000)
    x[::4096] = b"1" * len(x[::4096])
    finished = common.run_child([sys.executable, "-c", "import time; time.sleep(1)"], threads=1)
    assert 1_000_000 < finished.peak_rss < 150_000_000
    assert len(x) == 250_000_000


def test_child_that_takes_too_long_is_given_up():
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    finished = common.run_checked(command, threads=1, give_up_after=0.5)
    assert finished.gave_up
    assert finished.seconds < 30


def test_child_may_be_killed_while_it_runs():
    finished = common.run_child(
        [sys.executable, "-c", "import time; time.sleep(60)"],
        threads=1,
        while_running=lambda child: child.send_signal(signal.SIGKILL),
    )
    assert finished.returncode == -signal.SIGKILL
    assert finished.answer == {}


def test_failed_child_ends_the_benchmark_with_its_own_words():
    with pytest.raises(SystemExit, match=r"(?s)ended with 1:.*no such thing"):
        common.run_checked([sys.executable, "-c", "raise OSError('no such thing')"], threads=1)
