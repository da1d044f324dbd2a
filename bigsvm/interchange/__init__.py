"""Models in the formats of LIBSVM, scikit-learn and ONNX.

The input is a `KernelExpansion`, or a file of LIBSVM; the output is a file, a graph or an
estimator, or a `KernelExpansion`. What a format cannot say is refused. A new format is a module
with a function of a model, which `fitted.model_of` finds in an estimator; the command line offers
it in `bigsvm.cli.export`.
"""

from bigsvm.interchange.libsvm_model import read_libsvm_model, write_libsvm_model
from bigsvm.interchange.onnx_model import to_onnx
from bigsvm.interchange.sklearn_estimator import to_scikit_learn

__all__ = ["read_libsvm_model", "to_onnx", "to_scikit_learn", "write_libsvm_model"]
