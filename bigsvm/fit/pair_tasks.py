"""What a worker of a cluster does for pairs of classes: it trains whole pairs, one after the other.

It gets the problems and the numbers of the rows of some classes once, and then tasks of some pairs.
It reads these rows itself where it can, else they are sent with their numbers.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigsvm.allocator import give_back_freed_memory
from bigsvm.data.chosen import ChosenRows
from bigsvm.data.rows import bytes_of, stack_rows
from bigsvm.data.sources import ArrayRows
from bigsvm.data.views import HeldRows
from bigsvm.executors.messages import Done
from bigsvm.executors.tasks import open_job, watch_for_end
from bigsvm.fit.pair_problems import HELD_SHARE
from bigsvm.fit.pair_trainer import PairTrainer
from bigsvm.fit.trainer import Trainer
from bigsvm.one_vs_one.class_rows import ClassRows
from bigsvm.one_vs_one.small import SmallPairs
from bigsvm.training import events
from bigsvm.training.saving import Saver
from bigsvm.training.state import Limits

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.arrays import F8, I8
    from bigsvm.budget import TrainingPlan
    from bigsvm.data.row_source import RowSource
    from bigsvm.data.rows import Rows
    from bigsvm.executors.messages import Ascending, SentJob
    from bigsvm.executors.worker_state import OpenJob
    from bigsvm.fit.pair_problems import ClassPairs
    from bigsvm.one_vs_one.class_rows import HeldClasses
    from bigsvm.one_vs_one.log import Solved
    from bigsvm.parameters import TrainingParameters


class SmallClasses(NamedTuple):
    """What `SmallPairs` is made with, the same wherever its pairs are solved."""

    n_bytes: float
    most_rows: int


class SentProblems:
    """The problems of all pairs, without rows, as they are sent to workers.

    Parameters
    ----------
    name : str
        Name of the batch; the rows of a batch are kept under it.
    problem : ClassPairs
        Without weights.
    parameters : TrainingParameters
    most_held_rows : float
        Of the budget, see `PairBudget`.
    small : SmallClasses or None
        None if no pairs are solved together.
    source : RowSource
        Source of the rows; its traits are sent, not its rows.
    """

    def __init__(
        self,
        name: str,
        problem: ClassPairs,
        parameters: TrainingParameters,
        *,
        most_held_rows: float,
        small: SmallClasses | None,
        source: RowSource,
    ) -> None:
        self.name, self.problem, self.parameters = name, problem.among(None), parameters
        self.most_held_rows, self.small = most_held_rows, small
        self.n_columns, self.dtype, self.is_sparse = (
            source.n_columns, source.dtype, source.is_sparse,
        )  # fmt: skip
        self._traits = source.bytes_per_row, source.is_shuffled, source.share_drawn

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return int(self.problem.class_weight.nbytes)

    def source_of(self, values: Rows) -> RowSource:
        """Rows that were sent, as a source with the traits of the one that they are from."""
        source = ArrayRows(values)
        source.bytes_per_row, source.is_shuffled, source.share_drawn = self._traits
        return source


class SentRows:
    """Some rows of the classes of a batch, as they are sent to workers.

    Parameters
    ----------
    numbers : Ascending
        Which of all rows they are.
    codes : (m,) unsigned integers
        Class of each.
    weights : (m,) float64 or None
    values : (m, d) or None
        The rows themselves, where workers cannot read them.
    """

    def __init__(
        self,
        numbers: Ascending,
        codes: NDArray[np.unsignedinteger[Any]],
        weights: F8 | None,
        values: Rows | None,
    ) -> None:
        self.numbers, self.codes, self.weights, self.values = numbers, codes, weights, values

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        parts = [part for part in (self.codes, self.weights, self.values) if part is not None]
        return self.numbers.nbytes + sum(map(bytes_of, parts))

    def __sizeof__(self) -> int:
        return 100 + self.nbytes


class PairGroup(NamedTuple):
    """Pairs that are trained in one task.

    Attributes
    ----------
    pairs : (m, 2) int64
    are_small : bool
        Whether `SmallPairs` solves them; those that it leaves unsolved have runs of their own.
    plans : dict
        Plan of a pair, by its number of rows.
    """

    pairs: I8
    are_small: bool
    plans: dict[int, TrainingPlan]


class _SentBudget(NamedTuple):
    """Plans that the coordinator has made."""

    most_held_rows: float
    plans: dict[int, TrainingPlan]

    def plan(self, n_rows: int, row_alignment: int) -> TrainingPlan:
        """Return the plan of a pair of `n_rows` rows; all are held."""
        return self.plans[n_rows]


class _BatchRows(NamedTuple):
    """The rows of the classes of a batch on a worker; `numbers` are those among all rows."""

    held: HeldClasses
    numbers: I8
    problem: ClassPairs


def train_pairs(sent: SentJob, pieces: list[Any], group: PairGroup) -> Done:
    """Train pairs; the values of the result are a `Solved` for each, with the bits of one machine.

    It ends early if the result is not needed any more.
    """
    wall, cpu = time.perf_counter(), time.thread_time()
    job, about = open_job(sent), pieces[0]
    before = job.bytes_read
    other_bytes = int((1 - HELD_SHARE) * job.process.memory)
    batch: _BatchRows = job.kept((about.name,), lambda: _batch_rows(job, pieces), other_bytes)
    tiles = job.tiles(exact=False)
    with Trainer(
        about.parameters, tiles.kernel, tiles.centre, offset=tiles.offset, hooks=events.Hooks()
    ) as trainer:
        solved = _solved(trainer, about, batch, group)
    for place, result in enumerate(solved):
        solved[place] = result._replace(rows=batch.numbers[result.rows])
    give_back_freed_memory()
    evaluations = sum(result.certificate.n_kernel_evaluations for result in solved)
    return Done(
        solved, evaluations, job.bytes_read - before,
        time.perf_counter() - wall, time.thread_time() - cpu,
    )  # fmt: skip


def _solved(
    trainer: Trainer, about: SentProblems, batch: _BatchRows, group: PairGroup
) -> list[Solved]:
    """Solve the pairs of a group in their order; stop when the results are not needed."""
    results: list[Solved | None] = [None] * len(group.pairs)
    if group.are_small and about.small is not None:
        with (
            trainer.exact_tiles() as exact,
            SmallPairs(
                batch.held.of, exact, batch.problem.bounds_of_class, tol=about.parameters.tol,
                threads=1, n_bytes=about.small.n_bytes, nu=batch.problem.nu,
                most_rows=about.small.most_rows,
            ) as small,
        ):  # fmt: skip
            for part in small.parts(group.pairs, batch.held):
                for place, one in zip(
                    part.tolist(), small.solve(group.pairs[part], batch.held), strict=True
                ):
                    results[place] = one
    is_given_up = watch_for_end()
    budget = _SentBudget(about.most_held_rows, group.plans)
    train = PairTrainer(lambda n_rows: trainer, batch.problem, budget, about.parameters)
    for place, (first, second) in enumerate(group.pairs.tolist()):
        if is_given_up():
            break
        if results[place] is None:
            results[place] = train(
                (first, second), batch.held.pair(first, second),
                saver=Saver(None, every=np.inf, listener=events.ignore, keeps_ends=False),
                limits=Limits(interrupted=is_given_up), listener=events.ignore,
            )  # fmt: skip
    return [result for result in results if result is not None]


def _batch_rows(job: OpenJob, pieces: list[Any]) -> tuple[_BatchRows, int]:
    """Bring the rows of a batch; also returns their bytes."""
    about: SentProblems = pieces[0]
    parts: list[SentRows] = pieces[1:]
    numbers = np.concatenate([part.numbers.numbers() for part in parts])
    codes = np.concatenate([part.codes for part in parts])
    weights = None
    if parts[0].weights is not None:
        weights = np.concatenate([part.weights for part in parts if part.weights is not None])
    source: RowSource
    if job.source is None:
        values = stack_rows(
            [part.values for part in parts], about.n_columns, about.dtype, sparse=about.is_sparse
        )
        source = about.source_of(values)
    else:
        values = job.source.take(numbers)
        source = HeldRows(ChosenRows(job.source, numbers), values)
    classes = ClassRows(source, codes, len(about.problem.classes))
    problem = about.problem.among(weights)
    n_bytes = bytes_of(values) + numbers.nbytes + codes.nbytes + classes.nbytes
    n_bytes += 0 if weights is None else weights.nbytes
    return _BatchRows(classes.in_place(), numbers, problem), n_bytes
