"""Models in the formats of LIBSVM, scikit-learn and ONNX.

The input is a `KernelExpansion`, or a file of LIBSVM; the output is a file, a graph or an
estimator, or a `KernelExpansion`. What a format cannot say is refused. A new format is a module
with a function of a model, which `fitted.model_of` finds in an estimator; the command line offers
it in `bigsvm.cli.export`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bigsvm.interchange.libsvm_model import read_libsvm_model, write_libsvm_model
    from bigsvm.interchange.onnx_model import to_onnx
    from bigsvm.interchange.sklearn_estimator import to_scikit_learn

# Resolved on first use: a model of bigsvm needs no reader of text, which takes Numba.
_HOMES = {
    "read_libsvm_model": "libsvm_model",
    "to_onnx": "onnx_model",
    "to_scikit_learn": "sklearn_estimator",
    "write_libsvm_model": "libsvm_model",
}
__all__ = ["read_libsvm_model", "to_onnx", "to_scikit_learn", "write_libsvm_model"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 (whatever the name stands for)
    if name not in _HOMES:
        raise AttributeError(f"module 'bigsvm.interchange' has no attribute {name!r}")
    return getattr(import_module(f"bigsvm.interchange.{_HOMES[name]}"), name)
