"""The benchmark harness: turns, ratios, bounds, tables and limits, mostly without training."""

import argparse
import inspect
import shlex
from importlib import import_module

import pytest
from attacks import random

from tools import coordinator_at_scale
from tools.benchmarks import __main__ as command
from tools.benchmarks import bench, suites
from tools.benchmarks import results as shown
from tools.benchmarks.bench import Suite
from tools.benchmarks.children import REPOSITORY, Finished
from tools.benchmarks.data import DataSet, made
from tools.benchmarks.results import Case, Number, Results, Run

TEXTS = REPOSITORY / "tools" / "benchmarks"


def run(who, seconds, *, case="toy", turn=0, n_rows=100, gave_up=False, layout="dense", **answer):
    """A fit of a case of `n_rows` rows."""
    facts = {"n_rows": n_rows, "n_columns": 3, "density": 0.5}
    answer = {"peak_rss": 10**6, "n_support": 10, **answer, "seconds": seconds}
    if gave_up:
        answer = {"seconds": seconds, "peak_rss": 10**6}
    return Run(Case(case, DataSet(case), {}, facts=facts), who, layout, turn, answer, 0.1, gave_up)


def results(*runs, **options):
    return Results(tuple(runs), argparse.Namespace(**options))


@pytest.mark.parametrize(
    ("values", "text"),
    [([], "-"), ([1.234], "1.23"), ([3.0, 1.0, 2.0], "2.00 [1.00-3.00]")],
)
def test_median_and_range(values, text):
    assert shown.median_range(values) == text


def test_table_is_markdown_with_straight_columns():
    text = shown.table(["who", "s"], [["store", 1.5], ["x", 10]])
    assert text.splitlines() == [
        "| who   | s   |",
        "|-------|-----|",
        "| store | 1.5 |",
        "| x     | 10  |",
    ]


def test_noise_is_the_spread_over_the_median():
    said = shown.noise([0.1, 0.2, 0.1])
    assert said.startswith("noise: a fixed GEMM before each run took 100 [100-200] ms")
    assert said.endswith("spread 100% over the median")


def test_exponent_is_that_of_a_power():
    assert shown.exponent([(n, 3 * n**1.7) for n in (10, 20, 80)]) == pytest.approx(1.7)
    assert shown.exponent([(10, 1.0)]) is None


def test_ratios_are_taken_within_a_turn():
    found = results(
        run("a", 2.0), run("b", 1.0), run("b", 5.0, turn=1), run("a", 9.0, turn=2),
        run("b", 3.0, turn=2), run("b", 1.0, case="other"),
    )  # fmt: skip
    row = found.row(found.cases[0], "a")
    assert row.ratios("b") == [2.0, 3.0]
    assert row.ratio("b") == Number(2.5)
    assert row.ratio("nobody") is None
    assert row.ratio(None) is None
    assert shown.ratio_to("b")(row) == "2.50 [2.00-3.00]"
    assert [r.case.name for r in found.rows("a")] == ["toy"]


def test_lines_are_in_the_order_in_which_contestants_were_asked():
    runs = (run("b", 1.0), run("a", 1.0))
    assert results(*runs).contestants == ["b", "a"]
    found = Results(runs, argparse.Namespace(), asked=("a", "nobody", "b"))
    assert [row.who for row in found.lines(wide=False, by_contestant=False)] == ["a", "b"]


def test_values_are_of_the_answer_or_of_the_run():
    row = results(run("a", 2.0, n_kernel_evaluations=3000), run("a", 4.0, turn=1)).rows("a")[0]
    assert row.values("evaluations_in_floors") == [3.0]
    assert row.median("seconds") == 3.0
    assert row.median("gap") is None
    assert row.last("gap") == "-"
    assert shown.cell(row, "n_support:.1f") == "10.0"
    assert shown.cell(row, "gap:.1f") == "-"
    assert shown.spread("seconds", digits=0, scale=10)(row) == "30 [20-40]"
    assert shown.most_megabytes(row) == "1"


def test_seconds_are_counted_in_floors_of_the_own_fit_or_of_ours_in_the_same_turn():
    found = results(
        run("store", 2.0, floor_seconds=0.5), run("memory", 1.0, floor_seconds=0.25),
        run("sklearnex", 4.0), run("memory", 1.0, turn=1),
    )  # fmt: skip
    case = found.cases[0]
    assert found.row(case, "store").in_floors() == [4.0]
    assert found.row(case, "sklearnex").in_floors() == [16.0]
    assert found.row(case, "memory").median_in_floors == 4.0
    assert results(run("sklearn", 1.0)).rows("sklearn")[0].median_in_floors is None


def test_a_fit_that_was_stopped_is_a_lower_bound():
    found = results(run("memory", 1.0), run("sklearn", 21.0, gave_up=True))
    row = found.rows("sklearn")[0]
    assert shown.spread("seconds")(row) == "> 21.00"
    assert shown.ratio_to("memory")(row) == "> 21.00"
    assert row.ratio("memory") == Number(21.0, at_least=True)
    assert row.ratios("memory", "n_support") == []
    assert shown.cell(row, "n_support") == "-"


def test_geometric_mean_needs_all_and_is_a_bound_where_one_is():
    assert shown.geometric_mean([2.0, Number(8.0)]) == Number(4.0)
    assert shown.geometric_mean([2.0, Number(8.0, at_least=True)]) == Number(4.0, at_least=True)
    assert shown.geometric_mean([2.0, None]) is None
    assert shown.geometric_mean([0.0, 2.0]) == Number(0.0)


def test_limits_hold_do_not_hold_or_are_not_known():
    bound = Number(3.0, at_least=True)
    limits = [
        shown.at_least("a", 2.0, 1.0, bound, None, limit=2),
        shown.at_least("b", bound, limit=4, shown="≥ {:.2f}"),
        shown.at_most("c", 2.0, 2.5, bound, None, limit=2, digits=0),
        shown.must("d", "True", True, True),
    ]
    assert [limit.holds for limit in limits] == [
        (True, False, True, None), (None,), (True, False, None, None), (True,)
    ]  # fmt: skip
    rows = shown.verdicts([limits[1], limits[3]]).splitlines()[2:]
    assert [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows] == [
        ["b", "> 3.00", "≥ 4.00", "not known"],
        ["d", "True", "True", "holds"],
    ]
    (row,) = shown.verdicts([limits[0]], ["w", "x", "y", "z"]).splitlines()[2:]
    assert [cell.strip() for cell in row.split("|")[1:-1]] == [
        "a", "≥ 2", "2.00, holds", "1.00, does not hold", "> 3.00, holds", "-"
    ]  # fmt: skip


def measure(monkeypatch, tmp_path, suite, speed, *arguments):
    """Run a suite whose children take the seconds that `speed` says; who was asked, and results."""
    asked = []

    def run_checked(command, *, threads, give_up_after=None, **options):
        job = bench.json.loads(command[-1])[0]
        if job["do"] == "prepare":
            n = job["data"][5]
            facts = {"n_rows": n, "n_columns": 3, "density": 0.5, "n_classes": 2}
            return Finished(0, 1.0, 1, facts, "", "")
        if job["do"] == "calibrate":
            return Finished(0, 1.0, 1, {"seconds": 0.1}, "", "")
        asked.append((job["who"], job["layout"], job["name"]))
        seconds = speed.get(asked[-1][:2], 5.0)
        gave_up = give_up_after is not None and seconds > give_up_after
        answer = {} if gave_up else {"seconds": seconds, "n_support": 9}
        said = "fit began at 100.5\n"
        return Finished(0, 1.0, 7, answer, said, "", gave_up, 100.5 + (give_up_after or 0))

    monkeypatch.setattr(bench, "run_checked", run_checked)
    monkeypatch.setattr(bench, "is_installed", lambda who: who != "sklearnex")
    monkeypatch.setitem(command.sys.modules, f"{suites.__name__}.toy", argparse.Namespace(
        SUITE=suite, __doc__="Toy."
    ))  # fmt: skip
    options = command.parse("toy", arguments)
    return asked, bench.Bench(suite, options, tmp_path).measure()


CASES = [shown.case_of(made("crowded", n)) for n in (100, 200)]


def test_the_faster_layout_is_kept_and_the_slow_take_part_once(monkeypatch, tmp_path):
    suite = Suite(
        cases=lambda _: CASES[:1], contestants=("memory", "sklearnex", "sklearn"), layout="best",
        repeats=3, once=("sklearn",),
    )  # fmt: skip
    asked, found = measure(monkeypatch, tmp_path, suite, {("memory", "csr"): 2.0})
    assert [pair[:2] for pair in asked] == [
        ("memory", "dense"), ("memory", "csr"), ("sklearn", "csr"), ("memory", "csr"),
        ("memory", "csr"),
    ]  # fmt: skip
    assert [(r.who, r.layout, r.turn) for r in found.runs] == [
        ("memory", "csr", 0), ("sklearn", "csr", 0), ("memory", "csr", 1), ("memory", "csr", 2)
    ]  # fmt: skip
    assert found.runs[0].answer["peak_rss"] == 7


def test_stopped_contestant_is_not_run_again_for_the_case(monkeypatch, tmp_path):
    suite = Suite(cases=lambda _: CASES, contestants=("memory", "sklearn"), repeats=2, give_up=3.0)
    speed = {("memory", "dense"): 1.0}
    asked, found = measure(monkeypatch, tmp_path, suite, speed)
    assert [who for who, *_ in asked] == ["memory", "sklearn", "memory"] * 2
    stopped = found.rows("sklearn")[0]
    assert stopped.gave_up
    assert stopped.values("seconds") == [3.0]


def test_stopped_contestant_is_not_run_for_larger_cases(monkeypatch, tmp_path):
    suite = Suite(
        cases=lambda _: CASES, contestants=("memory", "sklearn"), repeats=1, give_up=3.0,
        growing=True,
    )  # fmt: skip
    for name in ("crowded-100.npy", "crowded-1000.npy"):
        (tmp_path / name).touch()
    (tmp_path / "crowded-100.dense.zarr").mkdir()
    asked, found = measure(monkeypatch, tmp_path, suite, {("memory", "dense"): 1.0})
    assert [(who, name) for who, _, name in asked] == [
        ("memory", "crowded-100"), ("sklearn", "crowded-100"), ("memory", "crowded-200")
    ]  # fmt: skip
    assert found.contestants == ["memory"]
    assert found.notes == ("sklearn was given up at 100 rows after 3 s",)
    assert [path.name for path in tmp_path.iterdir()] == ["crowded-1000.npy"]


def test_another_checkout_takes_turns_with_ours(monkeypatch, tmp_path):
    (tmp_path / "bigsvm").mkdir()
    suite = Suite(cases=lambda _: CASES[:1], contestants=("this", "sklearn"), repeats=1, base=True)
    asked, found = measure(monkeypatch, tmp_path, suite, {}, "--base", str(tmp_path))
    assert [who for who, *_ in asked] == ["this", "this", "sklearn"]
    assert found.contestants == ["this", "base", "sklearn"]
    runs = [run("this", 1.0, cpu_seconds=1.0, n_kernel_evaluations=5),
            run("base", 1.0, cpu_seconds=2.0, n_kernel_evaluations=5)]  # fmt: skip
    text = bench.beside_base(results(*runs))
    assert "| toy  | this | 1.00        | 2.00    | 0.50   | the same    |" in text
    assert text.endswith("geometric mean 0.50")


def test_other_libraries_may_have_another_layout(monkeypatch, tmp_path):
    suite = Suite(
        cases=lambda _: CASES[:1], contestants=("this", "sklearn"), layout="csr",
        peer_layout="dense", repeats=2,
    )  # fmt: skip
    asked, _ = measure(monkeypatch, tmp_path, suite, {})
    assert [pair[:2] for pair in asked] == [("this", "csr"), ("sklearn", "dense")] * 2


def test_without_data_a_case_is_skipped(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("BIGSVM_DATA", str(tmp_path))
    suite = Suite(cases=lambda _: [shown.case_of(DataSet("none"))], contestants=("memory",))
    asked, found = measure(monkeypatch, tmp_path, suite, {})
    assert (asked, found.runs) == ([], ())
    assert "skipped none: no file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("suite", "wrong"),
    [
        ("growth", ["--sizes", "0"]), ("growth", ["--repeats", "0"]), ("peers", ["--sizes", "5"]),
        ("growth", ["--memory", "much"]), ("crowded", ["--give-up", "5"]),
        ("crowded", ["--base", "/nowhere"]), ("peers", ["--contestants", "nobody"]),
        ("many_classes", ["--C", "0"]), ("class_memory", ["--rows-per-class", "-1"]),
        ("rows_again", ["--factors", "1", "0"]), ("out_of_core", ["--rows", "0"]),
        ("parity", ["--folder", "/tmp"]), ("parity", ["--tol", "nan"]),
    ],
)  # fmt: skip
def test_invalid_options_are_refused(suite, wrong, capsys):
    with pytest.raises(SystemExit):
        command.parse(suite, wrong)
    assert wrong[0] in capsys.readouterr().err


def test_the_command_lists_its_suites_and_refuses_other_names(capsys):
    assert command.main(["--list"]) == 0
    listed = capsys.readouterr().out
    assert [line.split()[0] for line in listed.splitlines()] == command.names()
    assert all(len(line.split()) > 3 for line in listed.splitlines())
    assert command.main(["nothing"]) == 2
    assert "Suites: " in capsys.readouterr().err


@pytest.mark.parametrize("name", command.names())
def test_every_suite_has_options_and_says_how_it_is_called(name):
    module = command.module_of(name)
    assert f"python -m tools.benchmarks {name}" in module.__doc__
    for part in getattr(module, "PARTS", [None]):
        needed = [] if part is None else ["--part", part]
        suite = command.suite_of(name, needed)
        assert not (suite.one_process and suite.base)
        options = command.parse(name, needed)
        assert options.threads >= 1
        assert hasattr(options, "folder") is suite.folder
        assert command.parse(name, [*needed, "--output", "x.txt"]).output.name == "x.txt"
        place, _, function = suite.do.rpartition(":")
        job = getattr(import_module(place), function) if place else module
        writes = 'job["folder"]' in inspect.getsource(job)
        prepares = any(case.data.layouts for case in suite.cases(options))
        if suite.program is not None:
            source = inspect.getsource(inspect.getmodule(suite.program))
            writes, prepares = "options.folder" in source, False
        assert suite.folder is (writes or prepares)


@pytest.mark.parametrize("path", sorted(TEXTS.glob("*.txt")), ids=lambda path: path.stem)
def test_printed_texts_have_commands_that_exist(path):
    commands = [line[2:] for line in path.read_text().splitlines() if line.startswith("$ ")]
    assert commands
    for line in commands:
        words = shlex.split(line.replace("--base BASE", f"--base {REPOSITORY}"))
        if words[:3] == ["python", "tools/reliability.py", "random"]:
            random.parse(words[3:])
        elif words[:3] == ["python", "-m", "tools.coordinator_at_scale"]:
            coordinator_at_scale.parse(words[3:])
        else:
            assert words[:3] == ["python", "-m", "tools.benchmarks"]
            command.parse(words[3], words[4:])


def test_a_part_of_a_suite_has_options_of_its_own(capsys):
    for given in ([], ["--part", "nothing"], ["--part", "runs", "--most-steps", "9"]):
        with pytest.raises(SystemExit):
            command.parse("balls_at_scale", given)
    assert command.parse("balls_at_scale", ["--part", "steps", "--most-steps", "9"]).most_steps == 9
    with pytest.raises(SystemExit) as ended:
        command.parse("balls_at_scale", ["--help"])
    assert ended.value.code == 0
    assert "time of a step" in capsys.readouterr().out


@pytest.mark.parametrize("goes_its_own_way", [False, True])
def test_output_is_appended_to_a_file(goes_its_own_way, monkeypatch, tmp_path, capsys):
    def program(options):
        print("a table")
        return 1

    suite = Suite(program=program) if goes_its_own_way else Suite(cases=lambda _: CASES)
    monkeypatch.setattr(bench, "run", lambda suite, options: ("a table", False))
    monkeypatch.setitem(command.sys.modules, f"{suites.__name__}.toy", argparse.Namespace(
        SUITE=suite, __doc__="Toy."
    ))  # fmt: skip
    monkeypatch.setattr(command, "names", lambda: ["toy"])
    path = tmp_path / "printed.txt"
    for _ in range(2):
        assert command.main(["toy", "--output", str(path)]) == 1
    assert capsys.readouterr().out == "a table\n" * 2
    assert path.read_text() == f"$ python -m tools.benchmarks toy --output {path}\na table\n\n" * 2


@pytest.mark.slow
def test_a_made_problem_is_measured_from_end_to_end(capsys, tmp_path):
    given = ["peers", "--data", "few-300", "--contestants", "store", "memory", "sklearn"]
    given += ["--repeats", "2", "--memory", "50MB", "--output", str(tmp_path / "printed.txt")]
    assert command.main(given) == 1  # start-up is most of what so few rows take
    text = capsys.readouterr().out
    assert "few-300: 300 rows x 22, density 1.000" in text
    lines = [[cell.strip() for cell in line.split("|")] for line in text.splitlines()]
    cells = {line[1]: line for line in lines if len(line) > 3}
    assert "[" in cells["store"][3]
    assert float(cells["store"][11]) >= 1
    assert cells["sklearn"][8] == cells["memory"][8]
    assert (tmp_path / "printed.txt").read_text().startswith("$ python -m tools.benchmarks peers")
