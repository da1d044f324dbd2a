"""The experiments of Glasmachers and Igel's paper, on tiny data."""

from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.svm import SVC

from tools.benchmarks import plain_hmg, whole_runs
from tools.benchmarks.__main__ import main, parse
from tools.benchmarks.data import DataSet
from tools.benchmarks.results import Case, Results, Run
from tools.benchmarks.suites import hmg


@pytest.fixture
def folder(classes):
    """A folder with a small spambase and mnist, whose classes overlap."""
    whole_runs.problem_of.cache_clear()
    yield classes
    whole_runs.problem_of.cache_clear()


@pytest.mark.parametrize("n_rows", hmg.STRATEGIES.values(), ids=hmg.STRATEGIES)
@pytest.mark.parametrize("capacity", [7, 80, 2])  # two take thousands of sets: nightly
def test_each_strategy_has_the_optimum(n_rows, capacity):
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((80, 3)), rng.choice([-1.0, 1.0], 80)
    gram = np.exp(-0.5 * ((x[:, None] - x[None]) ** 2).sum(axis=-1))
    peer = SVC(C=2.0, kernel="precomputed", tol=1e-8).fit(gram, y)
    beta = np.zeros(80)
    beta[peer.support_] = peer.dual_coef_[0]
    optimum = np.abs(beta).sum() - 0.5 * beta @ gram @ beta
    first = int(np.flatnonzero(y > 0)[0]), int(np.flatnonzero(y < 0)[0])
    steps, objective = plain_hmg.solve(gram, y, 2.0, 1e-6, n_rows, capacity, first)
    assert steps > 80
    assert objective == pytest.approx(optimum, rel=1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_the_gain_is_the_most_that_a_step_within_the_box_adds(seed):
    rng = np.random.default_rng(seed)
    upper = rng.choice([0.0, 1.0], 2)
    beta, g, k = upper - rng.choice([0.0, 0.3, 1.0], 2), rng.standard_normal(2), rng.random()
    row = np.array([1.0, k])
    step, gain = plain_hmg._gain(0, 1, row, g, beta, upper, 1.0)
    steps = np.linspace(-1, 1, 20_001)
    ends = np.array([beta[0] + steps, beta[1] - steps])
    inside = ((ends <= upper[:, None] + 1e-12) & (ends >= upper[:, None] - 1 - 1e-12)).all(axis=0)
    gains = steps * (g[0] - g[1]) - (1 - k) * steps**2
    assert gain == pytest.approx(gains[inside].max(), abs=1e-7)
    assert step == pytest.approx(steps[inside][gains[inside].argmax()], abs=1e-3)


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_strategies_stand_beside_the_paper(folder, table_of, capsys):
    folder("spambase", 80, n_columns=57)
    assert main(["hmg", "--part", "rows", "--repeats", "3"]) == 0
    printed = capsys.readouterr().out
    lines = [table_of(printed, name)[0] for name in hmg.STRATEGIES]
    assert [line[0] for line in lines] == ["3", "3", "1"]
    assert len({line[4] for line in lines}) == 1
    assert [line[5] for line in lines] == ["14023", "10563", "7280"]


@pytest.mark.usefixtures("in_process")
def test_regimes_mark_solutions_of_which_all_rows_are(folder, table_of, capsys):
    folder("spambase", 80, n_columns=57)
    given = ["--factors", "1", "1000", "--share", "0.2"]
    assert main(["hmg", "--part", "regimes", *given]) == 0
    printed = capsys.readouterr().out
    lines = [*table_of(printed, "50"), *table_of(printed, "50000")]
    assert len(lines) == 4
    for _, support, _, marked, values, *_ in lines:
        assert float(values) >= 0
        assert ("all" in marked) == (float(support.rstrip("%")) >= 99)
    assert "all" in lines[1][3]


@pytest.mark.usefixtures("in_process")
def test_rules_take_turns_and_agree(folder, table_of, capsys):
    folder("spambase", 80, n_columns=57)
    main(["hmg", "--part", "tables", "--repeats", "2"])
    printed = capsys.readouterr().out
    assert "spambase, cache of 47.2%" in printed
    lines = {rule: table_of(printed, rule)[0] for rule in hmg.RULES}
    assert len({line[5] for line in lines.values()}) == 1  # the objective
    assert all(int(line[0]) > 10 and "[" in line[3] for line in lines.values())
    assert [line[8] for line in lines.values()] == ["36610", "9228", "10563"]
    folder("mnist", 120, n_classes=10)
    main(["hmg", "--part", "caches", "--rows", "60", "--caches", "0.2", "1", "--repeats", "1"])
    printed = capsys.readouterr().out
    assert "mnist, first 60 rows" in printed
    assert [line[0] for line in table_of(printed, "100%")] == list(hmg.RULES)
    assert all(int(line[2]) <= 60 for line in table_of(printed, "100%"))  # none twice
    assert "| 1.12% | 1.45 | 1.16" in printed


@pytest.mark.usefixtures("in_process")
def test_a_problem_is_solved_with_and_without_shrinking(folder, table_of, capsys):
    folder("spambase", 80, n_columns=57)
    given = ["--data", "spambase", "mnist", "--rules", "hmg"]
    assert main(["hmg", "--part", "shrinking", *given]) == 0
    printed = capsys.readouterr()
    assert "skipped mnist" in printed.err
    lines = table_of(printed.out, "spambase")
    assert [line[:2] for line in lines] == [
        [share, "hmg"] for share in ("3.00%", "10.00%", "20.00%", "47.20%")
    ]
    assert all(int(step) > 10 for line in lines for step in line[2].split(" / "))
    found = table_of(printed.out, "largest relative difference of objectives")
    assert found[0][-1] == "holds"


@pytest.mark.usefixtures("in_process")
def test_the_objective_of_all_rows_is_computed_again(folder, table_of, capsys):
    folder("mnist", 120, n_classes=10, largest=255)
    assert main(["hmg", "--part", "mnist"]) == 1  # it is another problem than the paper's
    printed = capsys.readouterr().out
    assert len(table_of(printed, "120")) == 1
    ((between, _, holds),) = table_of(printed, "mnist, the optimum lies between")
    assert holds == "holds"
    lowest, highest = map(float, between.split(" and "))
    assert lowest <= highest
    ((objective, _, holds),) = table_of(printed, "mnist, objective in float64")
    assert float(objective) == pytest.approx(lowest, rel=1e-3)
    assert holds == "does not hold"
    assert table_of(printed, "mnist, constraints violated by, in C")[0][-1] == "holds"


def results(answers, share=0.01, name="toy", **given):
    case = Case(name, DataSet(name), {"share": share, **given})
    runs = [Run(case, who, "", 0, answer, 0.1) for who, answer in answers.items()]
    return Results(tuple(runs), SimpleNamespace())


@pytest.mark.parametrize(
    ("n_computed", "share", "verdicts"),
    [
        ({"hmg": 101}, 0.01, [True, True]),
        ({"hmg": 102}, 0.01, [False, True]),
        ({"hmg": 50, "mvp": 49}, 0.02, [True, False]),
        ({"hmg": 50, "mvp": 49}, 0.05, [True]),
    ],
)
def test_hmg_is_held_against_its_promise(n_computed, share, verdicts):
    answers = {
        rule: {"n_iter": 100, "n_computed": n_computed.get(rule, 1000)} for rule in hmg.RULES
    }
    limits = hmg.check_rows(results(answers, share))
    assert [limit.holds[0] for limit in limits] == verdicts


@pytest.mark.parametrize(
    ("changed", "verdicts"),
    [({}, [True, True, True]), ({"objective": 27_019.10, "n_support": 900}, [False, False, True])],
)
def test_the_solution_of_spambase_is_held_against_the_papers(changed, verdicts):
    answer = {
        "objective": 27_019.139, "n_support": 851, "n_bounded": 538, "n_rows": 4601, "n_iter": 100,
        "n_computed": 50, **changed,
    }  # fmt: skip
    limits = hmg.check_spambase(results(dict.fromkeys(hmg.RULES, answer), hmg.CACHE))
    assert [limit.holds[0] for limit in limits[:3]] == verdicts


@pytest.mark.parametrize(
    ("changed", "fails"),
    [
        ({}, []),
        ({"highest": 143_200.0}, [0, 1]),
        ({"objective": 143_199.05, "highest": 143_199.06, "lowest": 143_199.04}, [2]),
        ({"violation": 2e-6}, [3]),
        ({"n_support": 6200, "n_bounded": 2900}, [4, 5]),
    ],
)
def test_the_solution_of_mnist_is_held_against_the_papers(changed, fails):
    answer = {
        "lowest": 143_199.14, "highest": 143_199.16, "objective": 143_199.15, "violation": 1e-9,
        "n_rows": 60_000, "n_support": 6300, "n_bounded": 2760, **changed,
    }  # fmt: skip
    limits = hmg.check_mnist(results({"SVC": answer}))
    assert [i for i, limit in enumerate(limits) if not limit.holds[0]] == fails


@pytest.mark.parametrize(
    ("values", "objective", "verdicts"),
    [
        ([(2, 1)] * 3 + [(1, 2)], 1.0, [True, True]),
        ([(2, 1)] * 2 + [(1, 2)] * 2, 1.0, [True, False]),
        ([(2, 1)], 1.1, [False, True]),
    ],
)
def test_kernel_values_are_held_against_the_aim(values, objective, verdicts):
    runs = []
    for share, pair in zip(hmg.CONNECT_4, values, strict=False):
        answers = {
            who: {"n_kernel_evaluations": n, "objective": 1.0}
            for who, n in zip(("without", "with"), pair, strict=True)
        }
        answers["with"]["objective"] = objective
        found = results(answers, share, "mnist", rule="hmg")
        runs += [run._replace(case=run.case._replace(name=f"{share}")) for run in found.runs]
    limits = hmg.check_shrinking(Results(tuple(runs), SimpleNamespace()))
    assert [limit.holds[0] for limit in limits] == verdicts


def test_a_cache_is_a_share_of_the_kernel_matrix():
    with pytest.raises(SystemExit):
        parse("hmg", ["--part", "caches", "--caches", "2"])


def test_without_the_data_nothing_is_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("BIGSVM_DATA", str(tmp_path))
    assert main(["hmg", "--part", "rows"]) == 0
    assert "|" not in capsys.readouterr().out


@pytest.mark.real_data
def test_mnist_is_read_by_its_first_rows(request):
    if whole_runs.data_folder() is None:
        # Files that a checkout does not hold; the tests above do with rows that they make.
        pytest.skip("no folder of data sets")
    problem = whole_runs.problem_of("mnist", 50, dense=True)
    assert problem.x.shape == (50, 784)
    assert problem.x.max() == 255
    assert set(problem.y) == {-1.0, 1.0}
