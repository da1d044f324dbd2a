"""The suites, without training: what they show of runs, and what they hold against limits."""

import argparse

import pytest

from tools.benchmarks import bench
from tools.benchmarks import results as shown
from tools.benchmarks.data import DataSet
from tools.benchmarks.results import Case, Results, Run
from tools.benchmarks.suites import crowded, growth, pair_steps, peers


def run(who, seconds, *, case="toy", turn=0, n_rows=100, gave_up=False, **answer):
    """A fit of a case of `n_rows` rows, of which a tenth become support vectors."""
    facts = {"n_rows": n_rows, "n_columns": 3, "density": 0.5, "row_bytes csr": 10**6}
    given = {"peak_rss": 10**6, "n_support": n_rows // 10, **answer, "seconds": seconds}
    if gave_up:
        given = {"seconds": seconds, "peak_rss": 10**6}
    case = Case(case, DataSet(case, n_made=n_rows), {}, facts=facts)
    return Run(case, who, "dense", turn, given, 0.1, gave_up)


def results(*runs, interpreter=0, **options):
    return Results(tuple(runs), argparse.Namespace(**options), interpreter)


def failing(suite, found):
    """Names of what does not hold."""
    return [limit.name for limit in suite.SUITE.limits(found) if False in limit.holds]


def cells(text, of):
    """The cells of a line of a table."""
    for line in text.splitlines():
        found = [cell.strip() for cell in line.split("|")[1:-1]]
        if found and found[0] == of:
            return found[1:]
    raise AssertionError(f"no line of {of} in\n{text}")


def test_peers_have_ratios_floors_and_shares_of_memory():
    ours = {"objective": 1.0, "n_sweeps": 3}
    text = bench.report(
        peers.SUITE,
        results(
            run("store", 2.0, floor_seconds=0.5, n_kernel_evaluations=3000, **ours),
            run("memory", 1.0, floor_seconds=0.25, peak_rss=3 * 10**6, n_kernel_evaluations=1500,
                **ours),
            run("sklearnex", 4.0, peak_rss=4 * 10**6, objective=1.0),
            run("sklearn", 21.0, gave_up=True),
        ),
    )  # fmt: skip
    assert text.startswith("toy: 100 rows x 3, density 0.500\n")
    assert cells(text, "memory") == [
        "dense", "1.00", "0.50", "1.00", "3", "75%", "1.000", "10", "3", "1.50", "4.00"
    ]  # fmt: skip
    assert cells(text, "store")[-2:] == ["3.00", "4.00"]
    assert cells(text, "sklearnex")[-3:] == ["-", "-", "16.00"]
    assert cells(text, "sklearn")[1:4] == ["> 21.00", "> 10.50", "> 21.00"]
    assert cells(text, "floor of memory")[1] == "0.25"
    assert "spread 0% over the median" in text


def held(*runs):
    limits = peers.SUITE.limits(results(*runs))
    return shown.verdicts(limits, peers.SUITE.variants)


def test_peers_are_held_against_limits_for_both_of_ours_and_the_faster():
    floors = {"floor_seconds": 0.5, "n_kernel_evaluations": 2000}
    text = held(
        run("store", 2.0, **floors), run("memory", 1.0, **floors), run("sklearnex", 2.5),
        run("sklearn", 20.0, gave_up=True),
    )  # fmt: skip
    assert cells(text, "sklearnex ÷ ours, toy") == [
        "≥ 1.5", "1.25, does not hold", "2.50, holds", "2.50, holds"
    ]  # fmt: skip
    assert cells(text, "sklearn ÷ ours, geometric mean of 1") == [
        "≥ 15", "> 10.00, not known", "> 20.00, holds", "> 20.00, holds"
    ]  # fmt: skip
    assert cells(text, "peak RSS ÷ sklearnex's, toy") == ["≤ 0.5", *["1.00, does not hold"] * 3]
    assert cells(text, "evaluations in floors, toy") == ["≤ 3", *["2.00, holds"] * 3]
    assert cells(text, "seconds in floors, toy") == ["≤ 6", "4.00, holds", *["2.00, holds"] * 2]


def test_peers_that_did_not_take_part_are_not_held_against_anything():
    text = held(run("memory", 1.0), run("sklearnex", 2.0, case="b"), run("memory", 1.0, case="b"))
    assert cells(text, "sklearnex ÷ ours, toy")[1:] == ["-"] * 3
    assert cells(text, "sklearnex ÷ ours, geometric mean of 2")[1:] == ["-"] * 3
    assert cells(text, "seconds in floors, b")[1:] == ["-"] * 3


@pytest.mark.parametrize(
    ("name", "n_rows", "limit"),
    [("w8a", 99_999, "≥ 1.5"), ("mnist", 60_000, "≥ 4"), ("few-100000", 100_000, "≥ 4")],
)
def test_large_problems_have_a_larger_limit(name, n_rows, limit):
    text = held(*(run(who, 1.0, case=name, n_rows=n_rows) for who in ("memory", "sklearnex")))
    assert cells(text, f"sklearnex ÷ ours, {name}")[0] == limit


@pytest.mark.parametrize(("n_rows", "limits"), [(50, ("≤ 1.5", "≤ 2.5")), (51, ("≤ 3", "≤ 6"))])
def test_floors_are_limited_by_the_share_of_support_vectors(n_rows, limits):
    text = held(run("memory", 1.0, n_rows=n_rows, n_support=10))
    found = tuple(cells(text, f"{what} in floors, toy")[0] for what in ("evaluations", "seconds"))
    assert found == limits


def test_the_slow_are_given_a_multiple_of_our_seconds():
    options = argparse.Namespace(give_up=20.0)
    ours = [run("memory", 1.0), run("store", 5.0), run("store", 3.0, turn=1)]
    assert peers.patience("sklearn", ours[:1], options) == 20.0
    assert peers.patience("sklearn", ours, options) == 60.0
    assert peers.patience("sklearnex", ours, options) is None
    assert peers.patience("sklearn", [], options) is None
    assert peers.patience("sklearn", [run("memory", 0.1)], options) == peers.LEAST_PATIENCE


def overlapping(who="this", seconds=10.0, *, n_rows=200_000, floors=2.0, **changes):
    cost = floors * n_rows * (n_rows // 4)
    given = {"cpu_seconds": seconds, "converged": True, "n_kernel_evaluations": cost}
    return run(who, seconds, n_rows=n_rows, n_support=n_rows // 4, case=str(n_rows),
               **given, **changes)  # fmt: skip


@pytest.mark.parametrize(
    ("runs", "fails"),
    [
        ([overlapping(), overlapping("base", 20.0, floors=4)], set()),
        ([overlapping(), overlapping("base", 20.0, floors=3)], {"evaluations ÷ base"}),
        ([overlapping(n_rows=50_000), overlapping("base", 14.0, n_rows=50_000, floors=1)], set()),
        ([overlapping(), overlapping("base", 14.0, floors=4)], {"base ÷ CPU seconds"}),
        ([overlapping(), overlapping("sklearnex", 50.0)], set()),
        ([overlapping(), overlapping("sklearnex", 49.0)], {"sklearnex ÷ seconds"}),
        ([overlapping()._replace(answer={**overlapping().answer, "converged": False})],
         {"converged"}),
        ([overlapping(floors=4)], {"floors"}),
        ([overlapping(n_rows=1000), overlapping(n_rows=2000, floors=3)], {"most floors ÷ least"}),
        ([overlapping(peak_rss=10**8 + 10**7 + 10**6 + 40 * 200_000)], set()),
        ([overlapping(peak_rss=2 * 10**8)], {"peak RSS"}),
    ],
)  # fmt: skip
def test_overlapping_classes_are_held_against_limits(runs, fails):
    found = results(*runs, interpreter=10**7, memory="100MB", rows="memory", family="crowded")
    assert {name.partition(",")[0] for name in failing(crowded, found)} == fails


def test_overlapping_classes_have_counts_and_the_share_of_the_certificate():
    phases = {"certificate": 1.0, "sweeps": 3.0}
    ours = overlapping(n_working_sets=7, n_iter=99, seconds_by_phase=phases, objective=1.0)
    text = bench.report(
        crowded.SUITE, results(ours, run("sklearnex", 9.0, n_rows=200_000, case="200000"))
    )
    assert cells(text, "200000")[:9] == [
        "this", "25.0%", "2.00", "20000", "7", "99", "10.00", "25.0%", "10.00"
    ]  # fmt: skip
    assert "| sklearnex | 10.0% | -      | -                    | -    | -     | -   " in text


def sizes(**peaks):
    """Seconds as n², a tenth of the rows support vectors; peaks by size, in bytes."""
    return [
        run(who, 1e-6 * n**2, n_rows=n, case=str(n), peak_rss=peak)
        for who, of_size in peaks.items()
        for n, peak in of_size.items()
    ]


def test_growth_has_every_size_and_what_it_grows_with():
    mega = 10**6
    found = results(
        *sizes(
            store={1000: 100 * mega, 2000: 100 * mega + 30_000, 4000: 100 * mega + 100_000},
            sklearnex={1000: 100 * mega, 2000: 300 * mega},
        ),
        memory="60MB", interpreter=100 * mega,
    )  # fmt: skip
    text = f"{growth.budget(found)}\n{bench.report(growth.SUITE, found)}\n{growth.exponents(found)}"
    assert text.startswith("budget of store 60 MB, interpreter 100 MB")
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    assert [line[-1] for line in lines if line and line[0] == "store"] == ["-", "30", "35", "1.00"]
    assert [line[1:4] for line in lines if line and line[0] == "sklearnex"] == [
        ["1000", "1.00", "100"], ["2000", "4.00", "200"], ["1000 to 2000", "2.00", "1.00"]
    ]  # fmt: skip
    assert growth.exponents(results(*sizes(store={1000: 1}))) == ""


@pytest.mark.parametrize(
    ("peaks", "fails"),
    [
        ((150, 152, 154), []),
        ((150, 152, 155), ["bytes a row more, 50000 to 100000 rows"]),
        ((100, 152, 154), []),  # a small problem may need less
        ((162, 152, 154), ["peak RSS, MB, at 10000 rows"]),
    ],
)
def test_growth_of_memory_is_held_against_its_promise(peaks, fails):
    by_size = dict(zip((10_000, 50_000, 100_000), (10**6 * p for p in peaks), strict=True))
    runs = sizes(store=by_size, sklearnex=dict.fromkeys(by_size, 10**9))
    found = results(*runs, memory="60MB", interpreter=10**8)
    assert failing(growth, found) == fails
    assert len(growth.limits(found)) == 2
    assert growth.limits(results(*sizes(sklearnex={10: 1}), memory="1kB")) == []


@pytest.mark.parametrize(("changed", "fails"), [
    ({}, set()),
    ({"converged": False}, {"converged"}),
    ({"objective": 1.3}, {"objectives apart"}),
    ({"cpu_seconds": 9.0}, {"base ÷ CPU seconds"}),
])  # fmt: skip
def test_pair_steps_are_held_against_those_of_the_base(changed, fails):
    answer = {
        "converged": True, "objective": 1.0, "duality_gap": 0.1, "n_iter": 10, "cpu_seconds": 4.0,
        "seconds_by_phase": {"steps": 9.0, "rest": 1.0},
    }  # fmt: skip
    runs = [run("memory", 1.0, **{**answer, **changed}), run("base", 1.0, **answer)]
    runs[1].answer["cpu_seconds"] = 8.0
    case = runs[0].case._replace(parameters=pair_steps.REGRESSION)
    found = results(*(each._replace(case=case) for each in runs))
    assert {name.partition(": ")[2] for name in failing(pair_steps, found)} == fails
