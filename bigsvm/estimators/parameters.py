"""What a run is asked for: parameters in plain values, and who watches it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from bigsvm.budget import parse_bytes
from bigsvm.calibration import METHODS
from bigsvm.duals.box import SelectionRule
from bigsvm.duals.formulations import check_epsilon, check_nu
from bigsvm.errors import ParameterError
from bigsvm.kernels import Kernel, make_kernel, resolve_gamma
from bigsvm.training import events

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FORMULATIONS = ("c-svc", "nu-svc", "one-class", "eps-svr", "nu-svr")
LOSSES = ("hinge", "squared_hinge")
WORKING_SETS = ("auto", "all")


@dataclass(frozen=True, kw_only=True)
class TrainingParameters:
    """What a model is trained with; the meaning of each is the estimators'.

    Resources (memory, threads, checkpoint, limits) do not change the answer, and may be others when
    a run is resumed.
    """

    formulation: str = "c-svc"
    loss: str = "hinge"
    C: float = 1.0
    nu: float = 0.5
    epsilon: float = 0.1
    kernel: str | Kernel = "rbf"
    degree: int = 3
    gamma: float | str = "scale"
    coef0: float = 0.0
    tol: float = 1e-3
    class_weight: Mapping[float, float] | str | None = None
    calibration: str | None = None
    selection: str = "auto"
    working_set: str = "auto"
    seed: int = 0
    memory: int | str = "1GB"
    kernel_rows: int | None = None
    disk_cache: int | str = 0
    cache_dir: str | None = None
    threads: int | None = None
    checkpoint: str | None = None
    checkpoint_every: float = 60.0
    max_iter: int = -1
    max_seconds: float = float("inf")

    def check(self) -> None:
        """Refuse values that mean nothing before any work is done.

        Raises
        ------
        ParameterError
        """
        if not isinstance(self.kernel, Kernel):
            make_kernel(self.kernel, coef0=self.coef0, degree=self.degree)
        resolve_gamma(self.gamma, n_features=1, variance=1.0)
        SelectionRule.from_name(self.selection)
        parse_bytes(self.memory)
        self.disk_cache_bytes()
        if self.working_set not in WORKING_SETS:
            raise ParameterError(
                f"working_set is {self.working_set!r}; it must be one of {', '.join(WORKING_SETS)}"
            )
        for name, word, known in (
            ("formulation", self.formulation, FORMULATIONS),
            ("loss", self.loss, LOSSES),
        ):
            if word not in known:
                raise ParameterError(f"{name} is {word!r}; it must be one of {', '.join(known)}")
        if self.loss != "hinge" and self.formulation != "c-svc":
            raise ParameterError(f"loss {self.loss!r} is for c-svc, not {self.formulation}")
        if self.calibration not in (None, *METHODS):
            raise ParameterError(
                f"calibration is {self.calibration!r}; it must be one of {', '.join(METHODS)}, or "
                "None"
            )
        if self.calibration is not None and self.formulation not in ("c-svc", "nu-svc"):
            raise ParameterError(
                f"calibration is {self.calibration!r}, but {self.formulation} has no classes to "
                "have probabilities of; leave it out"
            )
        check_nu(self.nu)
        check_epsilon(self.epsilon)
        for name, value in (("C", self.C), ("tol", self.tol)):
            if not (np.isfinite(value) and value > 0):
                raise ParameterError(f"{name} is {value!r}; it must be a finite number > 0")
        if not self.checkpoint_every > 0:
            raise ParameterError(f"checkpoint_every is {self.checkpoint_every!r}; it must be > 0")
        if self.threads is not None and self.threads < 1:
            raise ParameterError(f"threads is {self.threads!r}; it must be at least 1")
        if not self.max_seconds > 0:
            raise ParameterError(f"max_seconds is {self.max_seconds!r}; it must be > 0")
        if self.max_iter != -1 and self.max_iter < 0:
            raise ParameterError(f"max_iter is {self.max_iter!r}; it must be >= 0, or -1 for none")

    def disk_cache_bytes(self) -> int:
        """Bytes of kernel rows on disk, 0 for none."""
        return 0 if str(self.disk_cache).strip() in ("0", "0.0") else parse_bytes(self.disk_cache)


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """Who watches a run, and who may stop it."""

    listener: events.Listener = events.ignore
    interrupted: Callable[[], bool] = field(default=lambda: False)
