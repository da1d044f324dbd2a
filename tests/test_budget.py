"""Sizes, and plans that add up."""

import math
import re

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bigsvm.budget import (
    GRAM_SHARE,
    GRAM_SHARE_OF_FUNCTIONS,
    MOST_VALUES,
    machine_bytes,
    packed_bytes,
    parse_bytes,
    plan_training,
    show_bytes,
)
from bigsvm.errors import MemoryBudgetError, ParameterError
from bigsvm.gram import KernelTiles, Partners
from bigsvm.kernels import make_kernel


@pytest.mark.parametrize(("text", "size"), [
    ("4GB", 4 * 10**9), ("4gb", 4 * 10**9), ("4 GB", 4 * 10**9), ("4G", 4 * 10**9),
    ("512MiB", 512 * 2**20), ("512Mi", 512 * 2**20), ("1.5g", 1_500_000_000), ("1TB", 10**12),
    ("2TiB", 2**41), ("3k", 3000), ("3KiB", 3072), (".5k", 500), ("800000000", 800_000_000),
    ("12b", 12), (" 7 ", 7), (7, 7), (7.9, 7), ("1.0000001", 1),
])  # fmt: skip
def test_sizes(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", [
    "", "GB", "4XB", "-4GB", "4,5GB", "1e9", "4 G B", "four", "4GBs", "0", 0, -1, "0.5", "0GB",
    math.nan, math.inf, "nan", "9" * 400,
])  # fmt: skip
def test_invalid_sizes_are_refused(text):
    with pytest.raises(ParameterError, match="is not a size"):
        parse_bytes(text)


def test_the_sizes_that_there_are_are_named():
    with pytest.raises(ParameterError, match=r"write it like 4GB, .*, or 50% of that of this"):
        parse_bytes("auto")
    with pytest.raises(ParameterError, match=r"disk_cache 'auto' is not .* or 800000000$"):
        parse_bytes("auto", "disk_cache")


@pytest.mark.parametrize(("n", "text"), [
    (0, "0 bytes"), (999, "999 bytes"), (1000, "1 kB"), (1234567, "1.235 MB"), (4e9, "4 GB"),
    (5.2e12, "5200 GB"),
])  # fmt: skip
def test_shown(n, text):
    assert show_bytes(n) == text


problems = st.fixed_dictionaries({
    "n_rows": st.integers(2, 10**8),
    "n_columns": st.integers(1, 10**7),
    "bytes_per_row": st.floats(4, 10**6),
    "row_alignment": st.integers(1, 10**5),
    "threads": st.integers(1, 64),
    "n_outputs": st.sampled_from([1, 1, 2, 10, 1000]),
    "gram_share": st.sampled_from([GRAM_SHARE, GRAM_SHARE_OF_FUNCTIONS]),
    "resident_bytes": st.integers(0, 10**9),
})  # fmt: skip


def named_size(problem, memory=1000):
    """The size that a refusal says is enough, and its message."""
    with pytest.raises(MemoryBudgetError) as refusal:
        plan_training(memory, **problem)
    message = str(refusal.value)
    number, unit = message.rsplit("at least about ", 1)[1].split()
    return parse_bytes(f"{float(number):f}{unit}"), message


@given(problems, st.floats(1, 1000))
def test_a_plan_adds_up(problem, factor):
    memory = int(named_size(problem)[0] * factor)
    plan = plan_training(memory, **problem)
    assert sum(plan.projected.values()) <= memory
    assert min(plan.projected.values()) >= 0
    assert 1 <= plan.working_set <= problem["n_rows"]
    assert plan.working_set >= min(64, problem["n_rows"])
    assert plan.block_bytes == plan.projected["blocks read ahead"]
    assert plan.gram_bytes == plan.projected["kernel rows"]
    # Two chunks, the second read ahead, where there are two.
    chunk = min(problem["row_alignment"], problem["n_rows"])
    chunks = 2 if problem["row_alignment"] < problem["n_rows"] else 1
    assert plan.block_bytes >= int(chunks * chunk * problem["bytes_per_row"])
    # The kernel rows hold what the solver cannot do without, and nothing that it cannot use.
    assert plan.working_set <= plan.widest_set <= plan.active_rows
    padded = -(-plan.widest_set // 1024) * 1024
    assert plan.gram_bytes // (4 * padded) >= 4
    assert plan.gram_bytes <= 4 * padded * max(plan.working_set, 4)


@settings(max_examples=300)
@given(problems)
def test_a_refusal_names_a_size_that_is_enough(problem):
    size, message = named_size(problem)
    assert f"{problem['n_rows']} rows of {problem['n_columns']} columns" in message
    assert "memory is 1 kB" in message
    for part in ("state of the rows", "scratch of threads and reader", "blocks read ahead"):
        assert re.search(rf"{part} [0-9.e+]+ (GB|MB|kB|bytes)", message)
    assert plan_training(size, **problem).working_set >= min(64, problem["n_rows"])


@given(problems)
@example(
    {
        "resident_bytes": 100113, "n_rows": 59, "n_columns": 3946605, "bytes_per_row": 998393.0,
        "row_alignment": 11, "threads": 1, "n_outputs": 1000, "gram_share": 0.55,
    }
)  # fmt: skip
def test_a_refusal_names_the_least_that_is_taken(problem):
    size, _ = named_size(problem)
    with pytest.raises(MemoryBudgetError):
        plan_training(int(0.99 * size) - 1, **problem)


def test_little_memory_is_used_whole():
    """What kernel rows leave over is for more rows."""
    problem = {
        "n_rows": 8_000, "n_columns": 1_000, "bytes_per_row": 4_000.0, "row_alignment": 500,
        "threads": 1,
    }  # fmt: skip
    least, _ = named_size(problem)
    for factor in (1.1, 1.3, 2, 3):
        memory = int(least * factor)
        plan = plan_training(memory, **problem)
        assert sum(plan.projected.values()) > 0.99 * memory


@given(problems, st.floats(0, 1))
def test_memory_is_planned_or_refused(problem, factor):
    """Between too little and enough a plan is made or refused, and nothing else happens."""
    memory = int(named_size(problem)[0] * factor)
    try:
        plan = plan_training(memory, **problem)
    except MemoryBudgetError:
        return
    assert plan.working_set >= min(64, problem["n_rows"])
    assert plan.working_set <= plan.widest_set <= plan.active_rows
    padded = -(-plan.widest_set // 1024) * 1024
    assert plan.gram_bytes // (4 * padded) >= min(4, plan.widest_set)


def test_more_memory_is_never_worse():
    problem = {
        "n_rows": 10**6, "n_columns": 100, "bytes_per_row": 400.0, "row_alignment": 1000,
        "threads": 2,
    }  # fmt: skip
    plans = [plan_training(m * 10**8, **problem) for m in range(1, 60)]
    sizes = [plan.working_set for plan in plans]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]


def test_a_small_problem_takes_no_more_than_it_needs():
    plan = plan_training(
        4 * 10**9, n_rows=100, n_columns=5, bytes_per_row=40.0, row_alignment=1, threads=2
    )
    assert plan.working_set == 100
    assert plan.gram_bytes == 4 * 1024 * 100


def test_functions_trained_together_are_added_up_and_refused_with_their_numbers():
    problem = {
        "n_rows": 60_000, "n_columns": 784, "bytes_per_row": 3136.0, "row_alignment": 1000,
        "threads": 2,
    }  # fmt: skip
    one = plan_training(10**9, **problem)
    assert one == plan_training(10**9, n_outputs=1, **problem)
    ten = plan_training(10**9, n_outputs=10, **problem)
    rows = "state of the rows"
    # Alpha and outputs of before and after a certificate, and the scores of all rows.
    assert ten.projected[rows] - one.projected[rows] == (9 * 4 * 8 + 5) * 60_000
    per_row = [plan.projected["active rows"] / plan.active_rows for plan in (one, ten)]
    assert per_row[1] - per_row[0] == pytest.approx(9 * 91, abs=1)
    with pytest.raises(MemoryBudgetError, match="columns and 1000 functions") as refusal:
        plan_training(10**9, n_outputs=1000, **problem)
    assert f"{rows} {show_bytes((24 + 32 * 999) * 60_000)}" in str(refusal.value)


def test_working_sets_of_many_functions_stay_in_the_caches_where_memory_is_little():
    problem = {"n_rows": 20_000, "n_columns": 32, "bytes_per_row": 128, "row_alignment": 1,
               "threads": 2, "n_outputs": 1000}  # fmt: skip
    enlarged = plan_training(800_000_000, **problem)
    assert 1000 * enlarged.working_set <= MOST_VALUES
    assert plan_training(4 * 10**9, **problem).working_set > enlarged.working_set


def test_sparse_rows_of_a_million_columns_fit_a_gigabyte():
    """Scratch is for the values a row has, not for those it might have were it dense."""
    plan = plan_training(
        10**9, n_rows=20_000, n_columns=1_355_191, bytes_per_row=5460.0, row_alignment=1, threads=2
    )
    assert plan.working_set > 1000


@pytest.mark.parametrize(
    ("width", "entries"), [(300, 12), (50_000, 60), (2_000_000, 3), (9000, 2000)]
)
def test_packed_sparse_rows_take_no_more_than_is_planned(width, entries):
    rng = np.random.default_rng(0)
    n = 700
    indptr = np.arange(n + 1) * entries
    indices = np.concatenate(
        [np.sort(rng.choice(width, entries, replace=False)) for _ in range(n)]
    ).astype(np.int32)
    values = np.ones(n * entries, np.float32)
    rows = sp.csr_array((values, indices, indptr), shape=(n, width))
    with KernelTiles(make_kernel("linear")) as tiles:
        packed = Partners(tiles.values, rows, for_sparse_rows=True).nbytes
    assert packed <= n * (packed_bytes(width, 8 * entries) + 16)


def test_rows_that_take_less_when_packed_leave_memory_for_more_active_rows():
    sizes = {"n_rows": 20_000, "n_columns": 50_000, "bytes_per_row": 900.0}
    given = {"row_alignment": 1, "threads": 1, **sizes}
    tiles = plan_training(500_000_000, **given)
    lists = plan_training(500_000_000, **given, packed_row_bytes=2000.0)
    assert tiles.active_rows < 10_000
    assert lists.active_rows == 20_000
    assert lists.working_set > tiles.working_set
    assert sum(lists.projected.values()) <= 500_000_000


class TestShares:
    def test_a_share_is_one_of_the_memory_of_the_machine(self):
        assert parse_bytes("50%") == machine_bytes() // 2
        assert parse_bytes(" 12.5 % ") == machine_bytes() // 8

    @pytest.mark.parametrize("share", ["0%", "101%", "%", "-5%"])
    def test_others_are_refused(self, share):
        with pytest.raises(ParameterError, match="memory"):
            parse_bytes(share)

    def test_of_the_disk_or_of_a_worker_there_is_none(self):
        with pytest.raises(ParameterError, match="disk_cache is '50%'; give a size like 4GB"):
            parse_bytes("50%", "disk_cache")

    @pytest.mark.parametrize(
        ("groups", "files"),
        [
            ("0::/a/b\n", {"a/memory.max": "4000000", "a/b/memory.max": "max"}),
            ("5:memory:/a\n", {"memory/a/memory.limit_in_bytes": "4000000"}),
        ],
    )
    def test_control_groups_limit_it(self, groups, files, tmp_path, monkeypatch):
        (tmp_path / "own").write_text(groups)
        for name, text in files.items():
            path = tmp_path / "groups" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        monkeypatch.setattr("bigsvm.processors.OWN_CONTROL_GROUPS", tmp_path / "own")
        monkeypatch.setattr("bigsvm.processors.CONTROL_GROUPS", tmp_path / "groups")
        machine_bytes.cache_clear()
        try:
            assert parse_bytes("50%") == 2_000_000
        finally:
            machine_bytes.cache_clear()
