"""Models in the formats of others."""

from bigsvm.interchange.libsvm_model import read_libsvm_model, write_libsvm_model
from bigsvm.interchange.onnx_model import to_onnx
from bigsvm.interchange.sklearn_estimator import to_scikit_learn

__all__ = ["read_libsvm_model", "to_onnx", "to_scikit_learn", "write_libsvm_model"]
