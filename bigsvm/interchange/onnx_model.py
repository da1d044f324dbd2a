"""A model as an ONNX graph of plain operators, which any runtime has, in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from bigsvm.errors import ModelError
from bigsvm.interchange.fitted import model_of
from bigsvm.votes import OF_CLASSES, OF_PAIRS, pair_classes

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

    from bigsvm.models import KernelExpansion

OPSET = 17
MOST_BYTES = 2**31 - 1
"""Largest ONNX graph in bytes: it is one protocol buffer message, with dense support vectors."""


def to_onnx(model: KernelExpansion | BaseEstimator) -> Any:  # noqa: ANN401 (onnx.ModelProto; onnx is an extra)
    """Make a graph of input ``X`` (n, d) float64 and outputs ``label`` (n,) and ``values`` (n,).

    Labels are int64 if all classes are whole numbers, else float64 or strings; a regression has no
    labels. Values are decision values, (n, n_functions) for many classes, or the predictions of a
    regression. A sigmoid calibration adds ``probabilities`` (n, k). Where there are pairs of many
    classes, or the calibration is isotonic, it is left out, as ONNX has no operator for it. X is
    not scaled: the graph of a model of scaled rows scales it.

    Parameters
    ----------
    model : KernelExpansion or fitted estimator of bigsvm

    Raises
    ------
    ModelError
        If onnx is not installed, or cannot express the kernel or the rule of many classes.
    """
    model = model_of(model)
    if model.rule not in (None, "ovo", *OF_CLASSES):
        raise ModelError(f"the rule {model.rule} cannot be written as ONNX; ovo can")
    try:
        import onnx
        from onnx import TensorProto, helper, numpy_helper
    except ImportError as error:
        raise ModelError(f"{error}; pip install 'bigsvm[onnx]'") from None

    nodes: list[Any] = []
    constants: list[Any] = []

    def constant(name: str, value: Any) -> str:  # noqa: ANN401
        constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def apply(operator: str, *inputs: str, to: str, **attributes: Any) -> str:  # noqa: ANN401
        nodes.append(helper.make_node(operator, list(inputs), [to], **attributes))
        return to

    vectors: Any = model.support_vectors
    # A graph holds offsets, factors and a centre besides the vectors.
    n_bytes = 8 * (vectors.shape[0] + 3) * vectors.shape[1]
    if n_bytes > MOST_BYTES:
        raise ModelError(
            f"{vectors.shape[0]} support vectors of {vectors.shape[1]} columns would take "
            f"{n_bytes} bytes, and a graph has at most {MOST_BYTES}; export it as LIBSVM's text"
        )
    dense = vectors.toarray() if sp.issparse(vectors) else np.asarray(vectors)
    dense = dense.astype(np.float64)
    rows = "X"
    if model.scaler is not None:
        # Plain operators: the Scaler of ONNX-ML gives float32 only.
        scaler = model.scaler.of_all_columns()
        offset = constant("scaler_offset", scaler.offset[None, :])
        moved = apply("Sub", rows, offset, to="moved_rows")
        factor = constant("scaler_factor", scaler.factor[None, :])
        rows = apply("Mul", moved, factor, to="scaled_rows")
    if model.kernel.is_shift_invariant and model.centre is not None:
        dense = dense - model.centre
        rows = apply("Sub", rows, constant("centre", model.centre[None, :]), to="centred")
    factors = model.kernel.column_factors
    if factors is not None:
        dense = dense * factors
        rows = apply("Mul", rows, constant("column_factors", factors[None, :]), to="by_column")
    dots = apply("MatMul", rows, constant("support_vectors", dense.T), to="dots")
    described = model.kernel.describe()
    name = described["name"]
    gamma = constant("gamma", np.float64(1.0 if factors is not None else described.get("gamma", 1)))

    def norms() -> tuple[str, str]:
        ones = constant("ones", np.ones((dense.shape[1], 1)))
        of_rows = apply("MatMul", apply("Mul", rows, rows, to="squares"), ones, to="squared_norms")
        return of_rows, constant("vector_norms", (dense**2).sum(axis=1)[None, :])

    def scaled_distances() -> str:
        both = apply("Add", *norms(), to="both_norms")
        twice = apply("Mul", dots, constant("two", np.float64(2.0)), to="twice_dots")
        apart = apply("Sub", both, twice, to="squared_distances")
        apart = apply("Max", apart, constant("zero", np.float64(0.0)), to="not_negative")
        return apply("Mul", apart, gamma, to="scaled")

    match name:
        case "linear":
            kernel = dots
        case "rbf" | "rbf-by-column":
            exponents = apply("Neg", scaled_distances(), to="exponents")
            kernel = apply("Exp", exponents, to="kernel")
        case "matern32" | "matern52":
            length = constant("length", np.float64(6.0 if name == "matern32" else 10.0))
            squared = apply("Mul", scaled_distances(), length, to="squared_lengths")
            r = apply("Sqrt", squared, to="lengths")
            polynomial = apply("Add", r, constant("unit", np.float64(1.0)), to="first_terms")
            if name == "matern52":
                third = apply("Mul", squared, constant("third", np.float64(1 / 3)), to="third_term")
                polynomial = apply("Add", polynomial, third, to="terms")
            decay = apply("Exp", apply("Neg", r, to="exponents"), to="decay")
            kernel = apply("Mul", polynomial, decay, to="kernel")
        case "cosine":
            of_rows, of_vectors = norms()
            roots = (
                apply("Sqrt", of_rows, to="lengths"),
                apply("Sqrt", of_vectors, to="vector_lengths"),
            )
            lengths = apply("Mul", *roots, to="both_lengths")
            # The product with a row of zeros is 0, and so is the quotient.
            is_zero = apply("Equal", lengths, constant("zero", np.float64(0.0)), to="is_zero")
            unit = constant("unit", np.float64(1.0))
            divisor = apply("Where", is_zero, unit, lengths, to="divisor")
            kernel = apply("Div", dots, divisor, to="kernel")
        case "poly" | "sigmoid":
            scaled = apply("Mul", dots, gamma, to="scaled")
            offset = constant("coef0", np.float64(described["coef0"]))
            shifted = apply("Add", scaled, offset, to="shifted")
            if described["name"] == "sigmoid":
                kernel = apply("Tanh", shifted, to="kernel")
            else:
                degree = constant("degree", np.float64(described["degree"]))
                kernel = apply("Pow", shifted, degree, to="kernel")
        case _:
            raise ModelError(f"the kernel {name} cannot be written as ONNX")
    coefficients: Any = model.coefficients
    coefficients = coefficients.toarray() if sp.issparse(coefficients) else coefficients
    summed = apply("MatMul", kernel, constant("coefficients", coefficients), to="sums")
    intercept = constant("intercept", np.asarray(model.intercept, np.float64))
    values = apply("Add", summed, intercept, to="values")
    shape = ["n"] if model.rule is None else ["n", model.n_functions]
    outputs = [helper.make_tensor_value_info("values", TensorProto.DOUBLE, shape)]
    labels = (-1, 1) if model.kind == "one-class" else model.classes
    if labels is not None:
        array, kind = _label_array(labels)
        if model.rule in OF_CLASSES:
            apply("ArgMax", values, to="index", axis=1, keepdims=0)
        else:
            threshold = constant("threshold", np.float64(0.0))
            positive = apply("Greater", values, threshold, to="is_positive")
            kind_of_sign = TensorProto.INT64 if model.rule is None else TensorProto.DOUBLE
            sign = "index" if model.rule is None else "second_wins"
            nodes.append(helper.make_node("Cast", [positive], [sign], to=kind_of_sign))
        if model.rule == "ovo":
            first, second = pair_classes(len(labels))
            classes = np.arange(len(labels))
            # A vote that the second class wins is one that the first does not.
            moved = (second[:, None] == classes).astype(np.float64) - (first[:, None] == classes)
            moves = apply("MatMul", "second_wins", constant("moved", moved), to="moved_votes")
            none_moved = constant("first_wins", (len(labels) - 1.0 - classes)[None, :])
            votes = apply("Add", moves, none_moved, to="votes")
            apply("ArgMax", votes, to="index", axis=1, keepdims=0)
        apply("Gather", constant("classes", array), "index", to="label")
        outputs.insert(0, helper.make_tensor_value_info("label", kind, ["n"]))
    made = model.calibration if has_probabilities(model) else None
    if made is not None:
        slope, offset = made.numbers if model.rule else made.numbers[:, 0]
        steep = apply("Mul", values, constant("calibration_slope", slope), to="steep_values")
        logit = apply("Add", steep, constant("calibration_offset", offset), to="logits")
    if made is not None and model.rule is not None:
        apply("Softmax", logit, to="probabilities", axis=1)
    elif made is not None:
        positive = apply("Sigmoid", logit, to="positive")
        negative = apply("Sub", constant("one", np.float64(1.0)), positive, to="negative")
        last = constant("last", np.array([1]))
        columns = [
            apply("Unsqueeze", side, last, to=f"{side}_column") for side in (negative, positive)
        ]
        apply("Concat", *columns, to="probabilities", axis=1)
    if made is not None:
        shape = ["n", len(model.classes or ())]
        outputs.append(helper.make_tensor_value_info("probabilities", TensorProto.DOUBLE, shape))
    matrix = helper.make_tensor_value_info("X", TensorProto.DOUBLE, ["n", model.n_features])
    graph = helper.make_graph(nodes, "bigsvm", [matrix], outputs, constants)
    whole = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="bigsvm"
    )
    onnx.checker.check_model(whole)
    return whole


def has_probabilities(model: KernelExpansion) -> bool:
    """Whether the graph of a model has its probabilities."""
    made = model.calibration
    return made is not None and made.method == "sigmoid" and model.rule not in OF_PAIRS


def _label_array(labels: Any) -> tuple[Any, int]:  # noqa: ANN401
    """Labels as ONNX has them, and their type there."""
    from onnx import TensorProto

    if any(isinstance(label, str) for label in labels):
        return np.asarray([str(label) for label in labels], object), TensorProto.STRING
    if all(float(label).is_integer() and -(2**63) <= label < 2**63 for label in labels):
        return np.asarray(labels, np.int64), TensorProto.INT64
    for label in labels:
        if float(label) != label:
            raise ModelError(
                f"the label {label} fits neither int64 nor float64, the types that ONNX graphs "
                "have here; train with other labels"
            )
    return np.asarray(labels, np.float64), TensorProto.DOUBLE
