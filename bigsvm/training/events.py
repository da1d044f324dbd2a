"""What a run tells its listener: typed events, no text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from bigsvm.duals.box_problem import Optimality
    from bigsvm.executors.messages import WorkerTerms


class Planned(NamedTuple):
    """The run is about to start, or to continue.

    `working_set` is the most rows of a working set, `projected` the bytes of each part of the
    memory by name, `resumed_sweeps` the sweeps that an earlier process completed, 0 for a new run.
    """

    n_rows: int
    n_columns: int
    working_set: int
    projected: dict[str, int]
    resumed_sweeps: int


class ManyClasses(NamedTuple):
    """More than half of the labels differ from one another: they could be targets."""

    n_classes: int
    n_rows: int

    @property
    def sentence(self) -> str:
        """Text for users."""
        return (
            f"y has {self.n_classes} classes in {self.n_rows} rows; if these are targets of a "
            "regression, train one with SVR (--formulation eps-svr)"
        )


class ClassesLeftOut(NamedTuple):
    """No row of some classes has a weight, so that they are not trained."""

    classes: list[Any]

    @property
    def sentence(self) -> str:
        """Text for users."""
        shown = ", ".join(repr(label) for label in self.classes[:5])
        more = f" and {len(self.classes) - 5} more" if len(self.classes) > 5 else ""
        return (
            f"no row of the classes {shown}{more} has a positive weight; they are left out of "
            "training, and never predicted"
        )


class TakenAsRecorded(NamedTuple):
    """Results of pairs are taken from the log of a checkpoint without computing them anew.

    They are `n_pairs` of the `n_finished` pairs that earlier processes have finished.
    """

    n_pairs: int
    n_finished: int

    @property
    def sentence(self) -> str:
        """Text for users."""
        return (
            f"the results of {self.n_pairs} of {self.n_finished} finished pairs are taken as "
            "recorded: their rows, bounds and sums were checked, their gaps and intercepts were "
            "not computed anew"
        )


class TierChosen(NamedTuple):
    """Whether kernel rows are kept on disk, and why, in a sentence."""

    reason: str


class Searching(NamedTuple):
    """Random samples are searched for points outside the ball; `size` is that of the core set.

    `gap` is the Frank-Wolfe gap as far as the last samples show it, as a share of the squared
    radius; it has to get to `tol`.
    """

    size: int
    steps: int
    radius: float
    gap: float
    tol: float


class Merged(NamedTuple):
    """Equal rows of one class have become one variable each: `n_different` of `n_rows` are left.

    Rows without weight are not among these.
    """

    n_rows: int
    n_different: int

    @property
    def sentence(self) -> str:
        """Text for users."""
        return (
            f"{self.n_rows} rows, {self.n_different} different: equal rows of one class are "
            "trained as one"
        )


class Solving(NamedTuple):
    """The working set is being solved: pair steps of the run so far, KKT gap within the set.

    Attributes
    ----------
    working_set : int
        Working sets that were solved before this one.
    objective : float or None
        Dual objective of the run at this point; NaN where it is not known, as after a resume.
    n_violating : int or None
        Active rows that violated by more than the tolerance when this set was chosen. They are not
        counted for every set, as that takes time.
    best_gap : float or None
        Smallest KKT gap over all rows that a sweep has found so far.
    seconds : float
        Time of training so far, earlier processes included.
    """

    size: int
    steps: int
    gap: float
    working_set: int = 0
    objective: float | None = None
    n_violating: int | None = None
    best_gap: float | None = None
    seconds: float = 0.0


class Sweeping(NamedTuple):
    """A sweep is under way: `rows_done` of `n_rows`.

    `tasks`, `bytes_sent` and `bytes_returned` are what the workers of a cluster have done and
    exchanged with this process since it began; 0 without workers.
    """

    sweep: int
    rows_done: int
    n_rows: int
    n_columns: int
    tasks: int = 0
    bytes_sent: int = 0
    bytes_returned: int = 0


class Swept(NamedTuple):
    """A sweep is complete, and the whole problem's state is known.

    Attributes
    ----------
    gap, tol : float
        KKT gap over all rows, and where it has to get to.
    seconds : float
        Time of training so far, earlier processes included.
    cpu_idle : float or None
        Share of the threads' time in the passes over rows since the sweep before in which they
        waited: 1 − CPU time of the process / (time × threads). Waiting for a processor that another
        process has counts; other work of this process hides some. On a cluster the time and the
        threads are those of the workers' tasks, 1 − CPU time of the tasks / (time × threads of all
        workers). None where there was no pass, as all rows were active.
    of_functions : tuple
        Standing of each function, of several that share nothing but the kernel.
    """

    sweep: int
    gap: float
    tol: float
    objective: float
    n_support: int
    n_bounded: int
    seconds: float
    cpu_idle: float | None
    of_functions: tuple[Optimality, ...] = ()

    def of_function(self, function: int) -> Swept:
        """Return what the sweep has shown of one function."""
        standing = self.of_functions[function]
        return self._replace(
            gap=standing.gap,
            objective=standing.objective,
            n_support=standing.n_support,
            n_bounded=standing.n_bounded,
            of_functions=(),
        )


class Tested(NamedTuple):
    """A run without a certificate has evaluated its model at rows that it had not seen.

    After training on `trained` rows, `error` is the share of mistakes at `fresh` rows, and
    `deviation` its standard error.
    """

    trained: int
    fresh: int
    error: float
    deviation: float


class TasksUnderWay(NamedTuple):
    """Workers make whole fits of a cross-validation or a search."""

    done: int
    n_tasks: int


class Sampled(NamedTuple):
    """A fit of a sample of the rows has been made for a forecast."""

    n_rows: int
    n_support: int
    n_sweeps: int
    seconds: float


class Calibrating(NamedTuple):
    """Training is over, and a calibration is being fitted: `rows_done` of the rows held out."""

    rows_done: int
    n_rows: int


class PairsUnderWay(NamedTuple):
    """Pairs of classes are trained one after the other: `done` of `n_pairs`, earlier ones included.

    `work_done` of `work` is the same as work is estimated: the squares of their rows. The objective
    is the sum and the gap the largest of the finished pairs, 0 of none. `n_support` and `n_bounded`
    are sums over them; a row may be a support vector of several. `seconds` is the time of training,
    earlier processes included.
    """

    done: int
    n_pairs: int
    work_done: float
    work: float
    objective: float
    gap: float
    n_support: int
    n_bounded: int
    seconds: float


class OfPair(NamedTuple):
    """An event of the training of one pair of classes, by their numbers; the pair takes long."""

    pair: tuple[int, int]
    event: Event


class Joined(NamedTuple):
    """A worker of the cluster takes part from now on."""

    address: str
    threads: int


class Left(NamedTuple):
    """A worker of the cluster has gone; others do its tasks."""

    address: str
    threads: int


class Checkpointed(NamedTuple):
    """A generation of the checkpoint has been written whole."""

    generation: int
    seconds: float


WARNINGS = (ManyClasses, ClassesLeftOut)
"""Events of which users are warned."""
Event: TypeAlias = (
    ManyClasses
    | ClassesLeftOut
    | Planned
    | Merged
    | TakenAsRecorded
    | TierChosen
    | Searching
    | Solving
    | Sweeping
    | Swept
    | Tested
    | PairsUnderWay
    | OfPair
    | TasksUnderWay
    | Sampled
    | Calibrating
    | Joined
    | Left
    | Checkpointed
)
Listener: TypeAlias = Callable[[Event], None]


def ignore(event: Event) -> None:
    """Listen to nothing."""


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """Who watches a run, who may stop it, and who computes.

    The listener is told every event. `interrupted` is asked several times a second whether the run
    is to end. `times_asked` returns how often the run was asked to save itself now. `client` is the
    cluster that computes passes; None for this process; `terms` are those of its workers,
    None for the usual ones.
    `checkpoint_of` names the folder of the
    checkpoint by its fingerprint; None for the one that the parameters name. `by_steps` says
    whether the listener has to hear of every step, or may end the run: such a run is that of our
    own solver, however small.
    """

    listener: Listener = ignore
    interrupted: Callable[[], bool] = field(default=lambda: False)
    times_asked: Callable[[], int] = field(default=lambda: 0)
    client: Any = None
    terms: WorkerTerms | None = None
    by_steps: bool = False
    checkpoint_of: Callable[[Mapping[str, str]], str] | None = None
