"""Estimators within what skl2onnx converts, such as a pipeline with a scaler.

skl2onnx asks an estimator that it does not know for its methods ``onnx_parser``,
``onnx_shape_calculator`` and ``onnx_converter``, and calls what they return.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bigsvm.errors import ModelError
from bigsvm.interchange.onnx_model import to_onnx

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

LEAST_OPSET = 13
"""Oldest operators with the arguments that `to_onnx` gives them."""


def declared_outputs(estimator: BaseEstimator, scope: Any, inputs: Any) -> list[Any]:  # noqa: ANN401 (skl2onnx's)
    """Declare the outputs of `to_onnx`, with their types."""
    from onnx import TensorProto
    from skl2onnx.common.data_types import DoubleTensorType, Int64TensorType, StringTensorType

    kinds = {
        TensorProto.DOUBLE: DoubleTensorType,
        TensorProto.INT64: Int64TensorType,
        TensorProto.STRING: StringTensorType,
    }
    return [
        scope.declare_local_variable(
            output.name,
            kinds[tensor.elem_type]([None, *(size.dim_value for size in tensor.shape.dim[1:])]),
        )
        for output in to_onnx(estimator).graph.output
        for tensor in (output.type.tensor_type,)
    ]


def add_graph(scope: Any, operator: Any, container: Any) -> None:  # noqa: ANN401 (skl2onnx's)
    """Add the graph of `to_onnx` to the one that is being made."""
    from onnx import TensorProto, helper
    from skl2onnx.helpers.integration import add_onnx_graph

    if container.target_opset < LEAST_OPSET:
        raise ModelError(
            f"target_opset is {container.target_opset}, and the graph of bigsvm takes "
            f"{LEAST_OPSET} at least; raise it, or leave it out"
        )
    whole = to_onnx(operator.raw_operator)
    for node in whole.graph.node:
        node.name = node.output[0]
        node.input[:] = ["X_double" if name == "X" else name for name in node.input]
    # The step before may give float32.
    cast = helper.make_node("Cast", ["X"], ["X_double"], name="X_double", to=TensorProto.DOUBLE)
    whole.graph.node.insert(0, cast)
    add_onnx_graph(scope, operator, container, whole)
