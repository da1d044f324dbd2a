"""Exact kernel support vector machines on data larger than memory."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# It looks at the environment, which others may change later.
import bigsvm.processors as _processors  # noqa: F401 (imported for that effect)
from bigsvm.version import __version__ as __version__

if TYPE_CHECKING:
    from bigsvm.changes.append import append as append
    from bigsvm.changes.drop import drop as drop
    from bigsvm.conversion.from_arrays import write_store as write_store
    from bigsvm.conversion.from_text import convert as convert
    from bigsvm.conversion.scaling import scale_store as scale_store
    from bigsvm.data.store import open_store as open_store
    from bigsvm.errors import AdviceWarning as AdviceWarning
    from bigsvm.estimators.crammer_singer import CrammerSingerSVC as CrammerSingerSVC
    from bigsvm.estimators.l2_svc import L2SVC as L2SVC
    from bigsvm.estimators.l2_svc import C_path as C_path
    from bigsvm.estimators.load import load as load
    from bigsvm.estimators.one_class import L2OneClassSVM as L2OneClassSVM
    from bigsvm.estimators.one_class import OneClassSVM as OneClassSVM
    from bigsvm.estimators.svc import SVC as SVC
    from bigsvm.estimators.svc import NuSVC as NuSVC
    from bigsvm.estimators.svr import SVR as SVR
    from bigsvm.estimators.svr import NuSVR as NuSVR
    from bigsvm.kernels import Kernel as Kernel
    from bigsvm.models import KernelExpansion as KernelExpansion
    from bigsvm.report.displays import HistoryDisplay as HistoryDisplay
    from bigsvm.report.displays import SearchDisplay as SearchDisplay
    from bigsvm.selection.cross_validation import cross_validate as cross_validate
    from bigsvm.selection.search_cv import SearchCV as SearchCV

# Resolved on first use, so that the command line starts in a fraction of a second.
_HOMES = {
    "AdviceWarning": "bigsvm.errors",
    "C_path": "bigsvm.estimators.l2_svc",
    "CrammerSingerSVC": "bigsvm.estimators.crammer_singer",
    "HistoryDisplay": "bigsvm.report.displays",
    "SearchDisplay": "bigsvm.report.displays",
    "L2SVC": "bigsvm.estimators.l2_svc",
    "SearchCV": "bigsvm.selection.search_cv",
    "SVC": "bigsvm.estimators.svc",
    "NuSVC": "bigsvm.estimators.svc",
    "SVR": "bigsvm.estimators.svr",
    "NuSVR": "bigsvm.estimators.svr",
    "L2OneClassSVM": "bigsvm.estimators.one_class",
    "OneClassSVM": "bigsvm.estimators.one_class",
    "Kernel": "bigsvm.kernels",
    "KernelExpansion": "bigsvm.models",
    "append": "bigsvm.changes.append",
    "convert": "bigsvm.conversion.from_text",
    "drop": "bigsvm.changes.drop",
    "load": "bigsvm.estimators.load",
    "cross_validate": "bigsvm.selection.cross_validation",
    "open_store": "bigsvm.data.store",
    "scale_store": "bigsvm.conversion.scaling",
    "write_store": "bigsvm.conversion.from_arrays",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:  # noqa: ANN401 (whatever the name stands for)
    if name not in _HOMES:
        raise AttributeError(f"module 'bigsvm' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
