"""Reduction: how labelled rows are made to problems, and their results to functions of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np

from bigsvm.errors import ParameterError
from bigsvm.fit.trainer import limits_of
from bigsvm.training.saving import Saver

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import scipy.sparse as sp
    from numpy.typing import NDArray

    from bigsvm.arrays import F8, I8
    from bigsvm.budget import TrainingPlan
    from bigsvm.data.row_source import RowSource
    from bigsvm.fit.fingerprint import Recorded
    from bigsvm.fit.held_out import HeldOut
    from bigsvm.fit.trainer import Trainer
    from bigsvm.models import KernelExpansion
    from bigsvm.parameters import TrainingParameters
    from bigsvm.training.checkpoint import Checkpoint
    from bigsvm.training.events import Hooks
    from bigsvm.training.result import Certificate

    MakeReduction: TypeAlias = Callable[
        [
            RowSource,
            NDArray[Any] | None,
            F8 | None,
            TrainingParameters,
            Hooks,
            KernelExpansion | None,
        ],
        "Reduction[Any]",
    ]


class Certified(Protocol):
    """Result of a run."""

    @property
    def certificate(self) -> Certificate:
        """What the run has proved, and what it cost."""


Result = TypeVar("Result", bound=Certified)
Result_co = TypeVar("Result_co", bound=Certified, covariant=True)


class RunResources(NamedTuple):
    """What a run is given besides its problems.

    Attributes
    ----------
    trainer : Trainer
    plan : TrainingPlan
    parameters : TrainingParameters
    hooks : Hooks
    checkpoint : Checkpoint or None
    """

    trainer: Trainer
    plan: TrainingPlan
    parameters: TrainingParameters
    hooks: Hooks
    checkpoint: Checkpoint | None

    def control(self) -> dict[str, Any]:
        """Return the arguments ``saver``, ``limits`` and ``listener`` of a run as a whole."""
        every, listener = self.parameters.checkpoint_every, self.hooks.listener
        return {
            "saver": Saver(
                self.checkpoint,
                every=every,
                listener=listener,
                times_asked=self.hooks.times_asked,
            ),
            "limits": limits_of(self.parameters, self.hooks),
            "listener": listener,
        }


class ModelFunctions(NamedTuple):
    """The functions of a model, over support vectors that they share.

    Attributes
    ----------
    support : (p,) int64
        Rows with a coefficient in any function.
    coefficients : (p,) or (p, k) float64, or CSR (p, k)
    intercept : float or (k,) float64
    certificate : dict
        As JSON has it.
    bounds : (p,) float64 or None
        As `KernelExpansion` has them.
    """

    support: I8
    coefficients: F8 | sp.csr_array
    intercept: float | F8
    certificate: dict[str, Any]
    bounds: F8 | None = None

    def grouped(self, label: NDArray[np.integer[Any]]) -> ModelFunctions:
        """Group support vectors by their classes `label`, (p,); within a class they keep the order.

        LIBSVM and scikit-learn order them so: an estimator shows the arrays of its model as theirs.
        """
        order = np.argsort(label, kind="stable")
        return self._replace(support=self.support[order], coefficients=self.coefficients[order])


class Problems(Protocol[Result_co]):
    """Problems of the rows of one source that one run solves.

    `bigsvm.fit.train.run_problems` calls the methods in the order in which they are here.
    """

    @property
    def offset(self) -> float:
        """What is added to every kernel value."""

    @property
    def sample_weight(self) -> F8 | None:
        """Weights of the rows that gamma is computed from."""

    def plan(self, source: RowSource) -> tuple[RowSource, TrainingPlan]:
        """Divide the memory; return the rows, held in memory where they fit, and the plan."""

    def recorded(self) -> Recorded:
        """Describe the problems for the fingerprint."""

    def arrange(self, source: RowSource) -> None:
        """Choose the order of training, and the point it starts from."""

    def run(self, resources: RunResources) -> Result_co:
        """Solve the problems."""


class Reduction(Problems[Result], Protocol[Result]):
    """The problems that labelled rows are reduced to, and the way back to a model."""

    @property
    def name(self) -> str:
        """Name of the formulation."""

    @property
    def classes(self) -> list[Any] | None:
        """Classes of the model."""

    @property
    def class_weight(self) -> Sequence[float] | None:
        """Weight of each class."""

    @property
    def rule(self) -> str | None:
        """How classes are told from several functions, as `KernelExpansion.rule`."""

    @property
    def held_out(self) -> HeldOut | None:
        """Rows that are kept for the calibration."""

    def functions(self, result: Result) -> ModelFunctions:
        """Make the functions of the model."""


def refuse_start(start: KernelExpansion | None) -> None:
    """Refuse a model to start from, where classes are reduced to several problems.

    Raises
    ------
    ParameterError
    """
    if start is not None:
        raise ParameterError("a model of many classes starts from no other; leave it out")
