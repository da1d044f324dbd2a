"""What a run is asked for: parameters in plain values, and who watches it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.budget import parse_bytes
from bigsvm.cache.resident import BATCH
from bigsvm.calibration import METHODS
from bigsvm.duals.ball import Solver
from bigsvm.duals.box import SelectionRule
from bigsvm.duals.formulations import check_epsilon, check_nu
from bigsvm.duals.simplex import Cooling, Order, RowSolver
from bigsvm.errors import ParameterError
from bigsvm.estimators.names import (
    BALLS,
    CLASSIFIERS,
    FORMULATIONS,
    REDUCTIONS,
    USED_IN,
    WITH_CLASSES,
)
from bigsvm.files import local_path
from bigsvm.kernels import Kernel, Precomputed, make_kernel, resolve_gamma
from bigsvm.processors import default_threads
from bigsvm.training import events
from bigsvm.training.search import FirstPoints

if TYPE_CHECKING:
    from collections.abc import Callable

LOSSES = ("hinge", "squared_hinge")
WORKING_SETS = ("auto", "all")

_NUMBER, _WHOLE, _WORD = ((Real,), "a number"), ((Integral,), "a whole number"), ((str,), "a word")
_SIZE = ((Real, str), "a number of bytes, or a size like '4GB'")
_NONE = type(None)
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    **dict.fromkeys(("C", "nu", "epsilon", "degree", "coef0", "tol", "ball_tol"), _NUMBER),
    **dict.fromkeys(("checkpoint_every", "max_seconds"), _NUMBER),
    **dict.fromkeys(("seed", "max_iter", "empty_samples"), _WHOLE),
    **dict.fromkeys(
        ("threads", "kernel_rows", "rows_at_once"), ((Integral, _NONE), "a whole number or None")
    ),
    **dict.fromkeys(
        (
            *("formulation", "loss", "selection", "solver", "working_set", "multiclass"),
            *("subproblem", "order", "first_points"),
        ),
        _WORD,
    ),
    "cooling": ((str, _NONE), "a word or None"),
    "shrinking": ((bool, np.bool_, _NONE), "True, False or None"),
    "sampling": ((Real, str), "a number of rows, a share of them, or 'all'"),
    **dict.fromkeys(("certify", "fit_intercept"), ((bool, np.bool_), "True or False")),
    **dict.fromkeys(("memory", "disk_cache"), _SIZE),
    **dict.fromkeys(("cache_dir", "checkpoint"), ((str, _NONE), "a path or None")),
    "kernel": ((str, Kernel), "the name of a kernel, or an instance of one"),
    "gamma": ((Real, str), "'scale', 'auto', 'mean-distance' or a number"),
    "class_weight": ((Mapping, str, _NONE), "'balanced', a dictionary or None"),
}
"""What a parameter must be an instance of, and how that is called."""
_IN_ESTIMATORS = {"seed": "random_state", "threads": "n_jobs", "max_seconds": "max_time"}
"""Parameters that the estimators call otherwise."""


def _listed(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _shown(name: str) -> str:
    return f"{name} ({_IN_ESTIMATORS[name]})" if name in _IN_ESTIMATORS else name


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
    solver: str = "pairwise"
    sampling: float | str = 60
    empty_samples: int = 1
    first_points: str = "random"
    ball_tol: float = 1e-6
    certify: bool = True
    fit_intercept: bool = False
    subproblem: str = "exact"
    order: str = "auto"
    cooling: str | None = None
    kernel: str | Kernel = "rbf"
    degree: int = 3
    gamma: float | str = "scale"
    coef0: float = 0.0
    tol: float = 1e-3
    class_weight: Mapping[float, float] | str | None = None
    multiclass: str = "ovo"
    calibration: str | None = None
    selection: str = "auto"
    working_set: str = "auto"
    shrinking: bool | None = None
    rows_at_once: int | None = None
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
        self._check_kinds()
        for name, path in (("checkpoint", self.checkpoint), ("cache_dir", self.cache_dir)):
            if path is not None:
                local_path(path, name)
        if isinstance(self.kernel, Kernel):
            self.kernel.check()
        else:
            make_kernel(self.kernel, coef0=self.coef0, degree=self.degree)
        resolve_gamma(self.gamma, n_features=1, variance=1.0)
        SelectionRule.from_name(self.selection)
        Solver.from_name(self.solver)
        RowSolver.from_name(self.subproblem)
        check_sampling(self.sampling)
        FirstPoints.from_name(self.first_points)
        self._check_empty_samples()
        parse_bytes(self.memory)
        if self.working_set not in WORKING_SETS:
            raise ParameterError(
                f"working_set is {self.working_set!r}; it must be one of {', '.join(WORKING_SETS)}"
            )
        self._check_order()
        self._check_disk_cache()
        self._check_shrinking()
        self._check_rows_at_once()
        if self.working_set == "all" and not self.certify:
            raise ParameterError(
                "certify is False, and such training works on a growing part of the rows, but "
                "working_set='all' on all of them; leave one of the two out"
            )
        for name, word, known in (
            ("formulation", self.formulation, FORMULATIONS),
            ("loss", self.loss, LOSSES),
            ("multiclass", self.multiclass, REDUCTIONS),
        ):
            if word not in known:
                raise ParameterError(f"{name} is {word!r}; it must be one of {', '.join(known)}")
        if self.loss != "hinge" and self.formulation != "c-svc":
            raise ParameterError(f"loss {self.loss!r} is for c-svc, not {self.formulation}")
        if self.class_weight is not None and self.formulation not in CLASSIFIERS:
            raise ParameterError(
                f"class_weight is for {_listed(CLASSIFIERS)}; {self.formulation} has no "
                "classes: give the rows weights"
            )
        if self.seed < 0:
            raise ParameterError(f"{_shown('seed')} is {self.seed!r}; it must be >= 0")
        if self.calibration not in (None, *METHODS):
            raise ParameterError(
                f"calibration is {self.calibration!r}; it must be one of {', '.join(METHODS)}, or "
                "None"
            )
        if self.calibration is not None and self.formulation not in WITH_CLASSES:
            lacks = "classes to have probabilities of"
            if self.formulation in CLASSIFIERS:
                lacks = f"probabilities, as {_listed(WITH_CLASSES)} of two classes have"
            raise ParameterError(
                f"calibration is {self.calibration!r}, but {self.formulation} has no {lacks}; "
                "leave it out"
            )
        check_nu(self.nu)
        check_epsilon(self.epsilon)
        for name, value in (("C", self.C), ("tol", self.tol), ("ball_tol", self.ball_tol)):
            if not (np.isfinite(value) and value > 0):
                raise ParameterError(f"{name} is {value!r}; it must be a finite number > 0")
        if not self.checkpoint_every > 0:
            raise ParameterError(f"checkpoint_every is {self.checkpoint_every!r}; it must be > 0")
        if self.threads is not None and self.threads < 1:
            raise ParameterError(f"{_shown('threads')} is {self.threads!r}; it must be at least 1")
        if not self.max_seconds > 0:
            raise ParameterError(f"{_shown('max_seconds')} is {self.max_seconds!r}; it must be > 0")
        if self.max_iter != -1 and self.max_iter < 0:
            raise ParameterError(f"max_iter is {self.max_iter!r}; it must be >= 0, or -1 for none")

    @property
    def takes_kernel_matrix(self) -> bool:
        """Whether rows are those of a kernel matrix."""
        return takes_kernel_matrix(self.kernel)

    @property
    def merges_rows(self) -> bool:
        """Whether equal rows may become one variable.

        Not if all kernel rows are those of one working set, nor in a search alone that takes a step
        for each sample: its cost does not depend on the number of rows, and its end depends on how
        often equal rows are drawn.
        """
        steps_only = (
            self.formulation in BALLS and not self.certify and self.solver != Solver.PAIRWISE
        )
        return self.working_set != "all" and not steps_only

    @property
    def compares_rows(self) -> bool:
        """Whether equal rows are looked for among all.

        A run that does not come to all of them has no time for that, and what it evaluates had
        better be rows as they come. A search for a ball has weights for equal rows.
        """
        searches = self.formulation in BALLS and self.multiclass != "ovr"
        return self.certify or searches

    @functools.cached_property
    def n_threads(self) -> int:
        """Number of threads, constant for a whole run; `default_threads` if none was given."""
        return self.threads or default_threads()

    def _check_kinds(self) -> None:
        """Refuse values that would be a TypeError somewhere below."""
        if callable(self.kernel):
            raise ParameterError(
                f"kernel is {self.kernel!r}; it must be the name of a kernel, or an instance of "
                "bigsvm.Kernel: for a function give kernel='precomputed' and its values for all "
                "pairs of rows, (n, n), as X"
            )
        for name, (kinds, called) in _KINDS.items():
            value = getattr(self, name)
            if not isinstance(value, kinds):
                raise ParameterError(f"{_shown(name)} is {value!r}; it must be {called}")
        weights: Any = self.class_weight
        if isinstance(weights, Mapping):
            for label, weight in weights.items():
                if not isinstance(weight, Real):
                    raise ParameterError(
                        f"class_weight of {label!r} is {weight!r}; it must be a number"
                    )

    def _check_order(self) -> None:
        """Refuse an order of rows that no run would follow."""
        order, cooling = Order.from_name(self.order), Cooling.from_name(self.cooling)
        if order is not Order.AUTO and self.working_set != "all":
            raise ParameterError(
                f"order={self.order!r} is one of all rows together; leave it out, or give "
                "working_set='all' too"
            )
        if cooling is not Cooling.NONE and order is not Order.ACTIVE:
            raise ParameterError(
                f"cooling={self.cooling!r} lowers the level of order='active'; leave it out, or "
                "give order='active' and working_set='all' too"
            )

    def _check_empty_samples(self) -> None:
        """Refuse a number of empty samples that means nothing."""
        if self.empty_samples < 1:
            raise ParameterError(f"empty_samples is {self.empty_samples!r}; it must be at least 1")
        if self.empty_samples > 1 and self.solver == Solver.PAIRWISE:
            raise ParameterError(
                f"empty_samples is {self.empty_samples}, but solver='pairwise' ends when a share "
                "of many samples is empty; choose the solver 'mfw', 'fw' or 'cvm', or leave "
                "empty_samples out"
            )

    def _check_disk_cache(self) -> None:
        """Refuse a disk cache that no run would use."""
        if not self.disk_cache_bytes():
            return
        if self.working_set != "all":
            raise ParameterError(
                "disk_cache keeps the kernel rows of working_set='all'; those of other runs are "
                "short, and computed again in less time than a disk takes: give that too, or leave "
                "disk_cache out"
            )

    def _check_shrinking(self) -> None:
        """Refuse a word on shrinking that no run would look at."""
        if self.shrinking is None:
            return
        if self.working_set != "all":
            if self.shrinking:
                return  # scikit-learn's default, which all other runs do
            raise ParameterError(
                "shrinking=False is for working_set='all': other runs always leave out rows that "
                "need not move; give that too, or leave shrinking out"
            )
        if self.formulation not in USED_IN["shrinking"]:
            raise ParameterError(
                f"shrinking is for pair steps, and {self.formulation} has none; leave it out"
            )
        if self.formulation in BALLS and not self.certify:
            raise ParameterError(
                "shrinking is for pair steps, and without a certificate there are none; leave it "
                "out"
            )
        if self.shrinking and self.disk_cache_bytes():
            raise ParameterError(
                "shrinking makes kernel rows shorter, and disk_cache keeps whole ones; leave one "
                "of them out"
            )

    def _check_rows_at_once(self) -> None:
        """Refuse a number of kernel rows that no run would look at."""
        if self.rows_at_once is None:
            return
        if not 1 <= self.rows_at_once <= BATCH:
            raise ParameterError(
                f"rows_at_once is {self.rows_at_once!r}; it must be from 1 to {BATCH}"
            )
        if self.working_set != "all":
            raise ParameterError(
                "rows_at_once is for the kernel rows of working_set='all'; give that too, or leave "
                "rows_at_once out"
            )
        if self.formulation not in USED_IN["rows_at_once"]:
            raise ParameterError(
                f"rows_at_once is for pair steps, and {self.formulation} has none; leave it out"
            )
        if self.formulation in BALLS and not self.certify:
            raise ParameterError(
                "rows_at_once is for pair steps, and without a certificate there are none; leave "
                "it out"
            )

    @property
    def may_shrink(self) -> bool:
        """Whether settled rows may leave the working set of all rows."""
        return (
            self.working_set == "all"
            and not self.disk_cache_bytes()
            and (self.shrinking is None or bool(self.shrinking))
        )

    def shrinks(self, *, rows_are_scarce: bool) -> bool:
        """Whether they do: where nothing is said, only where most kernel rows are not held."""
        return self.may_shrink and (rows_are_scarce if self.shrinking is None else True)

    def disk_cache_bytes(self) -> int:
        """Bytes of kernel rows on disk, 0 for none."""
        return (
            0
            if str(self.disk_cache).strip() in ("0", "0.0")
            else parse_bytes(self.disk_cache, "disk_cache")
        )


def takes_kernel_matrix(kernel: object) -> bool:
    """Whether the rows for this kernel are rows of a kernel matrix."""
    return kernel == Precomputed.name or isinstance(kernel, Precomputed)


def check_sampling(sampling: float | str) -> None:
    """Refuse what is no number of rows, share of all rows, or ``"all"``."""
    if isinstance(sampling, str):
        known = sampling == "all"
    else:
        known = 0 < sampling <= 1 or (np.isfinite(sampling) and sampling == int(sampling) > 1)
    if not known:
        raise ParameterError(
            f"sampling is {sampling!r}; it must be a number of rows, a share of them more than 0 "
            "and at most 1, or 'all'"
        )


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """Who watches a run, and who may stop it."""

    listener: events.Listener = events.ignore
    interrupted: Callable[[], bool] = field(default=lambda: False)
