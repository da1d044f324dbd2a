"""What every way of training has around its run: rows, plan and kernel; checkpoint; the model."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from bigsvm.data.kernel_matrix import support_rows, training_matrix
from bigsvm.fit.fingerprint import fingerprint_of, provenance_of
from bigsvm.fit.gamma import find_kernel
from bigsvm.fit.memory import hold_and_plan
from bigsvm.fit.trainer import Trainer, limits_of, open_checkpoint
from bigsvm.kernels import Kernel, Precomputed
from bigsvm.models import KernelExpansion
from bigsvm.training.saving import Saver

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from bigsvm.budget import TrainingPlan
    from bigsvm.data.row_source import RowSource
    from bigsvm.data.scaler import Scaler
    from bigsvm.parameters import TrainingParameters
    from bigsvm.training.events import Hooks


@dataclass(frozen=True)
class Setting:
    """What a run has besides its problem.

    Attributes
    ----------
    parameters : TrainingParameters
    hooks : Hooks
    source : RowSource
        All rows, held in memory where they fit.
    plan : TrainingPlan
    kernel : Kernel
    centre : (d,) float64 or None
        Subtracted from the rows.
    scaler : Scaler or None
        Of the rows, which their model keeps.
    """

    parameters: TrainingParameters
    hooks: Hooks
    source: RowSource
    plan: TrainingPlan
    kernel: Kernel
    centre: NDArray[np.float64] | None
    scaler: Scaler | None

    @classmethod
    def of(
        cls,
        parameters: TrainingParameters,
        source: RowSource,
        sample_weight: NDArray[np.float64] | None,
        hooks: Hooks,
        **planned: Any,
    ) -> Self:
        """Hold rows, plan the memory and find the kernel.

        Raises
        ------
        DataError, MemoryBudgetError
        """
        if parameters.takes_kernel_matrix:
            source = training_matrix(source)
        scaler = source.scaler  # before the run, so that a damaged one does not come out at its end
        source, plan = hold_and_plan(parameters, source, **planned)
        return cls.planned(parameters, source, sample_weight, hooks, plan, scaler)

    @classmethod
    def planned(
        cls,
        parameters: TrainingParameters,
        source: RowSource,
        sample_weight: NDArray[np.float64] | None,
        hooks: Hooks,
        plan: TrainingPlan,
        scaler: Scaler | None,
    ) -> Self:
        """Find the kernel of rows whose plan is made."""
        kernel, centre = find_kernel(
            parameters,
            source,
            sample_weight,
            block_bytes=plan.block_bytes,
            interrupted=hooks.interrupted,
        )
        return cls(parameters, hooks, source, plan, kernel, centre, scaler)

    def fingerprint(self, **problem: Any) -> dict[str, str]:
        """List what a checkpoint must agree with; arguments are those of `fingerprint_of`."""
        return fingerprint_of(self.source, self.kernel, **problem)

    @contextmanager
    def running(
        self, fingerprint: dict[str, str], *, offset: float
    ) -> Iterator[tuple[Trainer, dict[str, Any]]]:
        """Open the checkpoint and give a trainer, and what its methods are told of the run."""
        parameters, hooks = self.parameters, self.hooks
        with (
            Trainer(parameters, self.kernel, self.centre, offset=offset) as trainer,
            open_checkpoint(parameters, fingerprint) as checkpoint,
        ):
            every, listener = parameters.checkpoint_every, hooks.listener
            saver = Saver(checkpoint, every=every, listener=listener)
            limits = limits_of(parameters, hooks)
            yield trainer, {"saver": saver, "limits": limits, "listener": listener}

    def model(
        self,
        fingerprint: dict[str, str],
        class_weights: Iterable[float] | None,
        support: NDArray[np.int64],
        certificate: dict[str, Any],
        **attributes: Any,
    ) -> KernelExpansion:
        """Make the model of some support rows."""
        source, kernel = self.source, self.kernel
        of_matrix = isinstance(kernel, Precomputed)
        return KernelExpansion(
            kernel=kernel,
            support_vectors=support_rows(source, support) if of_matrix else source.take(support),
            centre=self.centre,
            support=support,
            scaler=self.scaler,
            certificate={**certificate, "kernel_is_definite": kernel.is_definite},
            provenance=provenance_of(self.parameters, source, class_weights, fingerprint),
            **attributes,
        )
