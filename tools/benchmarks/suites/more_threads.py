"""Ways to use more threads: what they gain, or would, by counts.

    python -m tools.benchmarks more_threads --part sets [--data a9a crowded-50000 arm-40000 nu-svc]
    python -m tools.benchmarks more_threads --part sets --data crowded-100000
        --contestants 'one at a time' 'as it is'
    python -m tools.benchmarks more_threads --part rows [--data a9a w8a few-100000 …]

sets  disjoint working sets, solved side by side and joined by an exact line search: 2, 4 and 8
      random parts of a working set, or neighbourhoods of the active rows
      (`tools.benchmarks.side_by_side`). ``longest`` counts the steps of the longest set of each
      round: those that are taken one after the other. Fits do so where a scope is crowded
      (`bigsvm.working_sets.crowd`); ``one at a time`` does without
rows  kernel rows ahead of steps: after each batch, the rows without a kernel row that violate most
      are computed by other threads while this one takes steps. ``asked`` is how often the row for
      which steps stop next is among them, ``used`` how many of them steps use later at all. An
      upper bound of the gain: each other thread computes rows for as long as steps take until the
      next batch, no more than the batch takes, and only those that are used count

Every fit is a process of its own, on one thread, with rows in memory; ``arm-N`` is the regression
and ``nu-svc`` the ν-SVC of the suite `pair_steps`. Parts of work are done one after the other and
timed as by `serial_share`, but what threads share is divided among them without loss. Batches of
kernel rows of a working set that is solved alone are another matter: ``rows by one`` leaves them to
one thread, and ``rows by all`` divides them, at 85 % of what as many threads might do.
"""

from __future__ import annotations

import itertools
import time
import warnings
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

from tools.benchmarks.bench import Suite
from tools.benchmarks.data import DATA_SETS, data_set
from tools.benchmarks.results import Case, Row, case_of, median_range
from tools.benchmarks.suites import pair_steps
from tools.benchmarks.suites.serial_share import Call, Ledger

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    import numpy as np
    from numpy.typing import NDArray

AS_IT_IS, ONE = "as it is", "one at a time"
DIVIDED = {
    f"{n} {kind}": (n, kind == "neighbourhoods")
    for kind in ("parts", "neighbourhoods")
    for n in (2, 4, 8)
}
THREADS, WITH_ROWS_AHEAD = (1, 4, 8, 64), (2, 8)
SHARED = 0.85
"""Share of n threads' work that a batch of rows gets if they divide it: 1.7 for two threads."""


def cases(options: argparse.Namespace) -> list[Case]:
    """List the data sets, and two runs of many steps."""
    found = []
    for name in options.data:
        if name == "nu-svc":
            found.append(Case(name, DATA_SETS["a9a"], pair_steps.CLASSES))
            continue
        data = data_set(name)
        is_regression = name.partition("-")[0] == pair_steps.FAMILY
        case = case_of(data)
        found.append(case._replace(parameters=pair_steps.REGRESSION) if is_regression else case)
    return found


class Work(Ledger):
    """A ledger that keeps batches of kernel rows, outside of parts, for themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.total = self.row_seconds = self.not_counted = 0.0

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Count the seconds of the block as those of a batch."""
        is_inside, began = self._is_inside, time.thread_time()
        self._is_inside = True
        try:
            yield
        finally:
            self._is_inside = is_inside
            if not is_inside:
                self.row_seconds += time.thread_time() - began

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Leave the seconds of the block out."""
        began = time.thread_time()
        yield
        self.not_counted += time.thread_time() - began

    def elapsed(self, threads: int, *, divides_rows: bool) -> float:
        """Seconds with so many threads."""
        parts = [call for call in self.calls if call.n_threads > 1]
        rest = sum(sum(call.seconds) for call in self.calls if call.n_threads == 1)
        serial = self.total - rest - self.row_seconds - sum(sum(part.seconds) for part in parts)
        side_by_side = sum(
            part._replace(n_threads=min(threads, part.n_threads)).longest for part in parts
        )
        rows = self.row_seconds
        if divides_rows and threads > 1:
            rows /= SHARED * threads
        return serial + side_by_side + rest / threads + rows


def trained(job: dict[str, Any], work: Work, patches: list[Any]) -> dict[str, Any]:
    """Train once with `patches`, after a fit that loads the compiled code; the certificate."""
    import numpy as np

    from bigsvm.gram.row_cache import KernelRowCache
    from bigsvm.gram.spans import Team
    from tools.benchmarks.contestants import estimator, few_of_each, own_solver, read_rows

    warnings.simplefilter("ignore")  # the first fit says that it was stopped
    x, y = read_rows(job), np.load(Path(job["folder"]) / f"{job['name']}.y.npy")
    job = {**job, "who": "memory"}
    few = few_of_each(y, pair_steps.FIRST_ROWS)
    with own_solver():
        estimator(job, max_iter=pair_steps.FIRST_STEPS).fit(x[few], y[few])
    model, ensure = estimator(job), KernelRowCache.ensure

    def share_out(*given: Any, **named: Any) -> None:  # noqa: ANN401 (as `Ledger.share_out`)
        work.share_out(*given, **named)

    def timed_ensure(*given: Any, **named: Any) -> None:  # noqa: ANN401 (as `ensure`)
        with work.batch():
            ensure(*given, **named)

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(Team, "share_out", share_out))
        stack.enter_context(mock.patch.object(KernelRowCache, "ensure", timed_ensure))
        for patch in patches:
            stack.enter_context(patch)
        began = time.thread_time()
        model.fit(x, y)
        work.total = time.thread_time() - began - work.not_counted
    certificate: dict[str, Any] = model.certificate_
    return certificate


# -- sets side by side -------------------------------------------------------------------------


class Crowds:
    """Notes what each of several sets of a crowd takes; they are solved one after the other here.

    `side_by_side` counts the steps that other threads would take, while the longest set is solved.
    """

    def __init__(self, work: Work) -> None:
        self._work, self.side_by_side = work, 0
        self._seconds = dict[int, float]()

    def patches(self) -> list[Any]:
        """Return what has to be in place during the run."""
        from bigsvm.duals.pair_steps import STEPS
        from bigsvm.working_sets.lanes import FunctionProblems

        advance, advance_set = FunctionProblems.advance, FunctionProblems._advance
        close, work = FunctionProblems.close, self._work

        def noted(problem: Any, lane: Any, *given: Any) -> None:  # noqa: ANN401 (as its original)
            number, began = lane.function, time.thread_time()
            advance_set(problem, lane, *given)
            spent = time.thread_time() - began
            self._seconds[number] = self._seconds.get(number, 0.0) + spent

        def inside(problem: Any, **given: Any) -> Any:  # noqa: ANN401 (as its original)
            work._is_inside = True
            try:
                return advance(problem, **given)
            finally:
                work._is_inside = False

        def noted_close(problem: Any) -> None:  # noqa: ANN401 (as its original)
            close(problem)
            seconds = list(self._seconds.values())
            self._seconds.clear()
            if seconds:
                work.calls.append(Call(seconds, max(2, len(seconds))))
                steps = problem._each[:, STEPS]
                self.side_by_side += int(steps.sum() - steps.max())

        return [
            mock.patch.object(FunctionProblems, "_advance", noted),
            mock.patch.object(FunctionProblems, "advance", inside),
            mock.patch.object(FunctionProblems, "close", noted_close),
        ]


def fit_side_by_side(job: dict[str, Any]) -> dict[str, Any]:
    """Train once, with sets side by side or not; counts, and seconds by threads."""
    from bigsvm.training.loop import Decomposition
    from bigsvm.working_sets.crowd import CrowdedRows
    from tools.benchmarks.side_by_side import SideBySide

    work, (n_sets, of_neighbours) = Work(), DIVIDED.get(job["who"], (0, False))

    def share_out(solve: Callable[[int], None], count: int) -> None:
        work.share_out(None, solve, range(count), n_helpers=count - 1)

    loop, crowds = SideBySide(n_sets, share_out, of_neighbours=of_neighbours), Crowds(work)

    def solve(training: Decomposition) -> None:
        loop.solve(training)

    patches = [mock.patch.object(Decomposition, "_solve", solve)] if n_sets else crowds.patches()
    if job["who"] != AS_IT_IS:
        patches.append(mock.patch.object(CrowdedRows, "n_sets", 1))
    certificate = trained(job, work, patches)
    names = (
        "converged", "objective", "duality_gap", "n_iter", "n_sweeps", "n_working_sets",
        "n_kernel_evaluations",
    )  # fmt: skip
    return {name: certificate[name] for name in names} | {
        "seconds": work.total,
        "longest": loop.longest if n_sets else certificate["n_iter"] - crowds.side_by_side,
        "rows by one": [work.elapsed(n, divides_rows=False) for n in THREADS],
        "rows by all": [work.elapsed(n, divides_rows=True) for n in THREADS],
    }


def gains(rows: str) -> Callable[[Row], str]:
    """Show the least seconds one at a time, or as it is, by a row's, for each number of threads."""

    def shown(row: Row) -> str:
        before, after = (
            [min(turns) for turns in zip(*line.values(rows), strict=True)]
            for line in (row.of(ONE) if row.of(ONE).runs else row.of(AS_IT_IS), row)
        )
        return ", ".join(f"{a / b:.2f}" for a, b in zip(before, after, strict=True))

    return shown


# -- kernel rows ahead of steps ----------------------------------------------------------------


class Batch(NamedTuple):
    """A batch of rows: those of the working set that are fetched, the first asked for; and ahead.

    `seconds` are those of the batch and of the steps after it.
    """

    fetched: NDArray[np.int64]
    ahead: NDArray[np.int64]
    seconds: list[float]


class Noted(NamedTuple):
    """Batches of a working set; when its rows were fetched last, and whether steps used them."""

    batches: list[Batch]
    stamps: NDArray[np.int64]
    used: NDArray[np.bool_]

    def look_at(self, cache: Any) -> None:  # noqa: ANN401 (a `KernelRowCache`)
        """Note which rows in memory have been used since they were fetched."""
        owners, stamps = cache._owner[: cache._n_filled], cache.used[: cache._n_filled]
        held = owners >= 0
        owners, stamps = owners[held], stamps[held]
        self.used[owners[stamps > self.stamps[owners]]] = True


class AheadOfSteps:
    """Notes the batches of each working set of a run."""

    def __init__(self, work: Work) -> None:
        self.noted: list[Noted] = []
        self._work, self._open, self._last = work, dict[int, Noted](), [0.0, 0.0]

    def patches(self) -> list[Any]:
        """Return what has to be in place during the run."""
        import numpy as np

        from bigsvm.core import smo
        from bigsvm.gram.row_cache import BATCH, KernelRowCache
        from bigsvm.working_sets.subproblem import SubProblem

        choose, close, take_steps = SubProblem._most_wanted, KernelRowCache.close, smo.run
        work = self._work

        def most_wanted(problem: Any, row: int, tol: float) -> Any:  # noqa: ANN401
            wanted, quiet = choose(problem, row, tol)
            with work.uncounted():
                cache, n_all = problem.cache, len(quiet)
                if id(cache) not in self._open:
                    fresh = Noted([], np.zeros(n_all, np.int64), np.zeros(n_all, np.bool_))
                    self._open[id(cache)] = fresh
                    self.noted.append(fresh)
                noted = self._open[id(cache)]
                noted.look_at(cache)
                noted.stamps[wanted] = problem.steps.stamp
                score, still = np.empty(n_all, np.float32), np.empty(n_all, np.bool_)
                problem.steps.violations(score, still)
                score[cache.slots[:n_all] >= 0] = score[wanted] = -np.inf
                ahead = np.argsort(-score, kind="stable")[:BATCH]
                self._last = [-work.row_seconds, 0.0]
                noted.batches.append(Batch(wanted, ahead[score[ahead] > 0.5 * tol], self._last))
            return wanted, quiet

        def timed_steps(*given: Any) -> Any:  # noqa: ANN401
            if self._last[0] <= 0:
                self._last[0] += work.row_seconds
            began = time.thread_time()
            found = take_steps(*given)
            self._last[1] += time.thread_time() - began
            return found

        def noted_close(cache: Any) -> None:  # noqa: ANN401 (as its original)
            if id(cache) in self._open:
                self._open.pop(id(cache)).look_at(cache)
            close(cache)

        return [
            mock.patch.object(SubProblem, "_most_wanted", most_wanted),
            mock.patch.object(smo, "run", timed_steps),
            mock.patch.object(KernelRowCache, "close", noted_close),
        ]

    def shares(self) -> dict[str, float]:
        """Shares, in %: fetched rows that were used, and what there is to say of those ahead."""
        fetched = ahead = fetched_used = ahead_used = asked = batches = 0
        for noted in self.noted:
            later: set[int] = set()
            for k, batch in reversed(list(enumerate(noted.batches))):
                first, mine = batch.ahead.tolist(), batch.fetched.tolist()
                fetched, ahead = fetched + len(mine), ahead + len(first)
                ahead_used += sum(v in later and bool(noted.used[v]) for v in first)
                if k + 1 < len(noted.batches):
                    batches += 1
                    asked += noted.batches[k + 1].fetched[0] in first
                later.update(mine)
            fetched_used += int(noted.used.sum())
        return {
            "fetched": fetched,
            "fetched used": 100 * fetched_used / max(fetched, 1),
            "ahead used": 100 * ahead_used / max(ahead, 1),
            "asked": 100 * asked / max(batches, 1),
        }

    def spared(self, threads: int, used: float) -> float:
        """Seconds of batches that other threads do before, if the share `used` is of use."""
        return sum(
            min(after.seconds[0], (threads - 1) * before.seconds[1] * used)
            for noted in self.noted
            for before, after in itertools.pairwise(noted.batches)
        )


def fit_noting_rows(job: dict[str, Any]) -> dict[str, Any]:
    """Train once; how many rows are known ahead, and the seconds that this may spare."""
    work = Work()
    rows = AheadOfSteps(work)
    certificate = trained(job, work, rows.patches())
    found = rows.shares()
    gained = {}
    for n in WITH_ROWS_AHEAD:
        spared = rows.spared(n, found["ahead used"] / 100)
        for name, divides, each in (("one", False, 1.0), ("all", True, SHARED * n)):
            gained[f"{name} {n}"] = 100 * spared / each / work.elapsed(n, divides_rows=divides)
    return {
        **found,
        **gained,
        "seconds": work.total,
        "batches": sum(len(noted.batches) for noted in rows.noted),
        "row seconds": 100 * work.row_seconds / work.total,
        "step seconds": 100 * sum(b.seconds[1] for n in rows.noted for b in n.batches) / work.total,
        "converged": certificate["converged"],
    }


def percent(name: str, digits: int = 1) -> Callable[[Row], str]:
    """Show the median of a share."""
    return lambda row: f"{row.median(name):.{digits}f}"


PARTS = {
    "sets": Suite(
        cases=cases,
        data=("a9a", "crowded-50000", "arm-40000", "nu-svc"),
        contestants=(ONE, AS_IT_IS, *DIVIDED),
        columns=(
            *("data", "who"),
            ("evaluations, million", lambda row: f"{row.last('n_kernel_evaluations') / 1e6:.0f}"),
            *("sweeps", ("sets", "n_working_sets"), "steps", ("longest", "longest")),
            ("CPU s", lambda row: median_range(row.values("seconds"))),
            ("objective", "objective:.9g"),
            *(
                (f"{rows}: gain of {', '.join(map(str, THREADS))} threads", gains(rows))
                for rows in ("rows by one", "rows by all")
            ),
        ),
        do="tools.benchmarks.suites.more_threads:fit_side_by_side",
        layout="last",
        threads=1,
    ),
    "rows": Suite(
        cases=cases,
        data=("a9a", "w8a", "few-100000", "crowded-50000", "mnist"),
        contestants=("noted",),
        columns=(
            "data",
            ("CPU s", lambda row: median_range(row.values("seconds"))),
            *(("batches", "batches"), ("rows", "fetched")),
            *(("batches, % of CPU", percent("row seconds")), ("steps, %", percent("step seconds"))),
            ("fetched, used %", percent("fetched used")),
            *(("ahead, used %", percent("ahead used")), ("asked %", percent("asked"))),
            *(
                (f"rows by {name}: % of {n} threads", percent(f"{name} {n}"))
                for name in ("one", "all")
                for n in WITH_ROWS_AHEAD
            ),
        ),
        do="tools.benchmarks.suites.more_threads:fit_noting_rows",
        layout="last",
        threads=1,
        wide=True,
    ),
}
