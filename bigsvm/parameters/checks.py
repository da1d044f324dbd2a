"""Checks of parameters before any work is done: each one alone, and beside the others."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import TYPE_CHECKING

from bigsvm.budget import parse_bytes
from bigsvm.errors import ParameterError, brief
from bigsvm.files import is_url, local_path
from bigsvm.parameters.declaration import check_value, is_too_large
from bigsvm.parameters.formulations import BALLS, CALIBRATIONS, CLASSIFIERS, OTHERS, traits_of
from bigsvm.parameters.training import FIELDS

if TYPE_CHECKING:
    from bigsvm.parameters.training import TrainingParameters


OF_PAPERS = (
    "working_set", "order", "cooling", "empty_samples", "disk_cache", "shrinking", "rows_at_once",
)  # fmt: skip
"""Parameters that ask for a mode of `bigsvm.papers`."""


def check_parameters(p: TrainingParameters) -> None:
    """Refuse values that mean nothing, alone or beside others."""
    _check_values(p)
    if p.class_weight is not None:
        _check_class_weight(p)
    if p.calibration is not None:
        _check_calibration(p)
    if [name for name in OF_PAPERS if getattr(p, name) != FIELDS[name].default]:
        _check_modes_of_papers(p)
    if p.loss != "hinge" and p.formulation != "c-svc":
        raise ParameterError(f"loss {p.loss!r} is for c-svc, not {p.formulation}")
    has_hard_form = p.formulation == "eps-svr" or (p.formulation, p.loss) == ("c-svc", "hinge")
    if p.C == math.inf and not has_hard_form:
        raise ParameterError(
            f"C is inf, which is for eps-svr and for c-svc with the loss 'hinge', not for "
            f"{p.formulation} with the loss {p.loss!r}; give a finite number"
        )


def _check_values(p: TrainingParameters) -> None:
    """Refuse a value that its parameter cannot have."""
    from bigsvm.kernels import Kernel, make_kernel, resolve_gamma

    if callable(p.kernel):
        raise ParameterError(
            f"kernel is {p.kernel!r}; it must be the name of a kernel, or an instance of "
            "bigsvm.Kernel: for a function give kernel='precomputed' and its values for all "
            "pairs of rows, (n, n), as X"
        )
    for name, field in FIELDS.items():
        value = getattr(p, name)
        if value is not field.default:  # `tests/parameters` look at the defaults
            check_value(field, value)
    for name in ("checkpoint", "cache_dir"):
        path = getattr(p, name)
        if path is not None:
            local_path(path, name)
    if p.checkpoint_copy is not None:
        _check_copy(p.checkpoint_copy, p.checkpoint)
    if isinstance(p.kernel, Kernel):
        p.kernel.check()
    else:
        gamma = p.gamma if isinstance(p.gamma, tuple) else 1.0
        make_kernel(p.kernel, coef0=p.coef0, degree=p.degree, gamma=gamma)
    if not isinstance(p.gamma, tuple):
        resolve_gamma(p.gamma, n_features=1, variance=1.0)
    parse_bytes(p.memory)


def _check_copy(copy: str, checkpoint: str | None) -> None:
    """Refuse a copy of no checkpoint, and one to a folder."""
    if not is_url(copy):
        raise ParameterError(
            f"checkpoint_copy is {copy!r}; it must be a URL, such as s3://bucket/run"
        )
    if checkpoint is None:
        raise ParameterError(
            f"checkpoint_copy is {copy!r}, and there is no checkpoint to be copied; "
            "give checkpoint='run' too, a folder of this machine, or leave it out"
        )


def _check_class_weight(p: TrainingParameters) -> None:
    """Refuse class weights that are not numbers, or of a formulation without classes."""
    if p.formulation not in CLASSIFIERS:
        raise ParameterError(
            f"class_weight is for {_listed(CLASSIFIERS)}; {p.formulation} has no "
            "classes: give the rows weights"
        )
    if isinstance(p.class_weight, Mapping):
        for label, weight in p.class_weight.items():
            number: object = weight
            if not isinstance(number, Real) or is_too_large(number):
                raise ParameterError(
                    f"class_weight of {brief(label)} is {brief(weight)}; it must be a number"
                )


def _check_calibration(p: TrainingParameters) -> None:
    """Refuse a calibration of another kind of formulation."""
    fitting = CALIBRATIONS[traits_of(p.formulation).learns]
    if p.calibration not in fitting:
        raise ParameterError(
            f"calibration is {p.calibration!r}; of {p.formulation} it must be "
            f"{' or '.join(map(repr, fitting))}, or be left out"
        )


def _check_modes_of_papers(p: TrainingParameters) -> None:
    """Refuse parameters of the papers' modes that no run would follow."""
    if p.order != "auto" and p.working_set != "all":
        raise ParameterError(
            f"order={p.order!r} is one of all rows together; leave it out, or give "
            "working_set='all' too"
        )
    if p.cooling not in (None, "none") and p.order != "active":
        raise ParameterError(
            f"cooling={p.cooling!r} lowers the level of order='active'; leave it out, or "
            "give order='active' and working_set='all' too"
        )
    if p.empty_samples > 1 and p.solver == "pairwise":
        raise ParameterError(
            f"empty_samples is {p.empty_samples}, but solver='pairwise' ends when a share "
            "of many samples is empty; choose the solver 'mfw', 'fw' or 'cvm', or leave "
            "empty_samples out"
        )
    if p.keeps_values and not _is_own_kernel(p.kernel):
        raise ParameterError(
            "disk_cache keeps the kernel rows of working_set='all', or the values of a slow kernel "
            "of your own; those of bigsvm's kernels take less time to compute than to read in "
            "other runs: leave disk_cache out, or give working_set='all' too"
        )
    _check_shrinking(p)
    _check_rows_at_once(p)
    if p.working_set == "all" and not p.certify:
        raise ParameterError(
            "certify is False, and such training works on a growing part of the rows, but "
            "working_set='all' on all of them; leave one of the two out"
        )


def _is_own_kernel(kernel: object) -> bool:
    """Whether kernel values are computed by a formula of NumPy, as those of bigsvm are not."""
    from bigsvm.kernels import Kernel, KernelCode

    return isinstance(kernel, Kernel) and kernel.code == KernelCode.FORMULA


def _check_shrinking(p: TrainingParameters) -> None:
    """Refuse shrinking that no run would do."""
    if p.shrinking is None or p.working_set != "all":
        return  # other runs always leave rows out; the estimators warn of False
    _check_pair_steps(p, "shrinking")
    if p.shrinking and p.disk_cache_bytes():
        raise ParameterError(
            "shrinking makes kernel rows shorter, and disk_cache keeps whole ones; leave one "
            "of them out"
        )


def _check_rows_at_once(p: TrainingParameters) -> None:
    """Refuse a number of kernel rows that no run would use."""
    from bigsvm.gram.row_cache import BATCH

    if p.rows_at_once is None:
        return
    if not 1 <= p.rows_at_once <= BATCH:
        raise ParameterError(f"rows_at_once is {p.rows_at_once!r}; it must be from 1 to {BATCH}")
    if p.working_set != "all":
        raise ParameterError(
            "rows_at_once is for the kernel rows of working_set='all'; give that too, or leave "
            "rows_at_once out"
        )
    _check_pair_steps(p, "rows_at_once")


def _check_pair_steps(p: TrainingParameters, name: str) -> None:
    """Refuse a parameter of pair steps where a run takes none."""
    if p.formulation not in OTHERS:
        raise ParameterError(
            f"{name} is for pair steps, and {p.formulation} has none; leave it out"
        )
    if p.formulation in BALLS and not p.certify:
        raise ParameterError(
            f"{name} is for pair steps, and without a certificate there are none; leave it out"
        )


def _listed(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"
