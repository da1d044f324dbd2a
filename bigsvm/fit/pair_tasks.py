"""What a worker of a cluster does for pairs of classes: it trains whole pairs, one after the other.

It gets the problems and the numbers of the rows of some classes once, and then tasks of some pairs.
It reads these rows itself where it can, else they are sent with their numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from bigsvm.allocator import give_back_freed_memory
from bigsvm.data.in_memory import ArrayRows
from bigsvm.data.rows import bytes_of
from bigsvm.data.wrappers import ChosenRows, HeldRows
from bigsvm.executors.shared import put_together
from bigsvm.executors.tasks import watch_for_end
from bigsvm.executors.worker_state import PROCESS, Cost
from bigsvm.fit.pair_problems import HELD_SHARE
from bigsvm.fit.trainer import Trainer
from bigsvm.one_vs_one.class_rows import ClassRows
from bigsvm.one_vs_one.small import SmallPairs
from bigsvm.training import events
from bigsvm.training.state import Limits

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from bigsvm.arrays import I8
    from bigsvm.budget import TrainingPlan
    from bigsvm.data.row_source import RowSource
    from bigsvm.executors.messages import Ascending, Done, SentJob
    from bigsvm.executors.shared import Part
    from bigsvm.executors.worker_state import OpenJob
    from bigsvm.fit.pair_problems import ClassPairs
    from bigsvm.one_vs_one.class_rows import HeldClasses
    from bigsvm.one_vs_one.log import Solved
    from bigsvm.parameters import TrainingParameters


class SmallClasses(NamedTuple):
    """What `SmallPairs` is made with, the same wherever its pairs are solved."""

    n_bytes: float
    most_rows: int


class SentBatch(NamedTuple):
    """The problems of all pairs, and which rows the classes of a batch have.

    Attributes
    ----------
    problem : ClassPairs
        With the weights of these rows.
    parameters : TrainingParameters
    most_held_rows : float
        Of the budget.
    small : SmallClasses or None
        None if no pairs are solved together.
    numbers : Ascending
        Which of all rows they are.
    codes : (m,) unsigned integers
        Class of each.
    traits : dict
        Attributes of the source of all rows, for rows that are sent.
    """

    problem: ClassPairs
    parameters: TrainingParameters
    most_held_rows: float
    small: SmallClasses | None
    numbers: Ascending
    codes: NDArray[np.unsignedinteger[Any]]
    traits: dict[str, Any]


class PairGroup(NamedTuple):
    """Pairs that are trained in one task.

    Attributes
    ----------
    pairs : (m, 2) int64
    are_small : bool
        Whether `SmallPairs` solves them; those that it leaves unsolved have runs of their own.
    plans : dict
        Plan of a pair, by its number of rows: as on one machine, as it decides bits.
    """

    pairs: I8
    are_small: bool
    plans: dict[int, TrainingPlan]


class _BatchRows(NamedTuple):
    """The rows of the classes of a batch on a worker; `numbers` are those among all rows."""

    held: HeldClasses
    numbers: I8
    about: SentBatch


def train_pairs(sent: SentJob, parts: list[Part], group: PairGroup) -> Done:
    """Train pairs; the values of the result are a `Solved` for each, with the bits of one machine.

    It ends early if the result is not needed any more.
    """
    job = PROCESS.job(sent)
    cost = Cost(job)
    other_bytes = int((1 - HELD_SHARE) * job.run.memory)
    batch: _BatchRows = job.kept((parts[0].name,), lambda: _batch_rows(job, parts), other_bytes)
    tiles = job.tiles(exact=False)
    with Trainer(
        batch.about.parameters, tiles.kernel, tiles.centre, offset=tiles.offset
    ) as trainer:
        solved = _solved(trainer, batch, group)
    for place, result in enumerate(solved):
        solved[place] = result._replace(rows=batch.numbers[result.rows])
    give_back_freed_memory()
    return cost.done(solved, sum(one.certificate.n_kernel_evaluations for one in solved))


def _solved(trainer: Trainer, batch: _BatchRows, group: PairGroup) -> list[Solved]:
    """Solve the pairs of a group in their order; stop when the results are not needed."""
    about = batch.about
    results: list[Solved | None] = [None] * len(group.pairs)
    if group.are_small and about.small is not None:
        with (
            trainer.tiles.with_threads(1).exact() as exact,
            SmallPairs(
                batch.held.of, exact, about.problem.bounds_of_class, tol=about.parameters.tol,
                threads=1, n_bytes=about.small.n_bytes, nu=about.problem.nu,
                most_rows=about.small.most_rows,
            ) as small,
        ):  # fmt: skip
            for part in small.parts(group.pairs, batch.held):
                for place, one in zip(
                    part.tolist(), small.solve(group.pairs[part], batch.held), strict=True
                ):
                    results[place] = one
    is_given_up = watch_for_end()
    for place, (first, second) in enumerate(group.pairs.tolist()):
        if is_given_up():
            break
        if results[place] is None:
            rows = batch.held.pair(first, second)
            n_rows = rows.source.n_rows
            results[place] = about.problem.solve(
                (first, second), rows, trainer, group.plans[n_rows],
                compare=n_rows <= about.most_held_rows,
                saver=None, limits=Limits(interrupted=is_given_up), listener=events.ignore,
            )  # fmt: skip
    return [result for result in results if result is not None]


def _batch_rows(job: OpenJob, parts: list[Part]) -> tuple[_BatchRows, int]:
    """Bring the rows of a batch; also returns their bytes."""
    about, values = put_together(parts)
    numbers = about.numbers.numbers()
    source: RowSource
    if job.source is None:
        source = ArrayRows(values)
        vars(source).update(about.traits)
    else:
        values = job.source.take(numbers)
        source = HeldRows(ChosenRows(job.source, numbers), values)
    classes = ClassRows(source, about.codes, len(about.problem.classes))
    weights = about.problem.weights
    n_bytes = bytes_of(values) + numbers.nbytes + about.codes.nbytes + classes.nbytes
    n_bytes += 0 if weights is None else weights.nbytes
    return _BatchRows(classes.in_place(), numbers, about), n_bytes
