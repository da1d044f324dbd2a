"""Conversion between the attributes of a model and the header and tensors of its file.

A matching hash proves that a file is unchanged, not who wrote it. So this module checks the type of
every field, the dtype, shape and range of every tensor, and that they agree with each other, before
they are used. A model that passes can predict, be described and be exported.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from bigsvm import votes
from bigsvm.calibration import Calibration
from bigsvm.data.scaler import Scaler
from bigsvm.declared import ascend_below, check_fields, is_count
from bigsvm.encoding import ENCODING, check_encoding
from bigsvm.errors import brief
from bigsvm.identity import PYTHON
from bigsvm.kernels import identity_of_kernel, kernel_from
from bigsvm.models.certificate import check_certificate
from bigsvm.parameters.formulations import FORMULATIONS, traits_of
from bigsvm.training.result import MEASURED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from bigsvm.declared import Kind
    from bigsvm.kernels import Kernel

FORMAT_VERSION = 3
"""Newest version of the format; a model is written in the oldest that can hold it."""
LARGEST_CLASS = float(np.finfo(np.float64).max)
MOST_COLUMNS = np.iinfo(np.int32).max
"""Column indices are int32 wherever rows are multiplied."""
PROVENANCE = {
    "first_index": ({0, 1}, None),
    "n_rows": (int, None),
    **dict.fromkeys(("bigsvm", "data", "kernel", "read from"), (str, None)),
    **dict.fromkeys(("parameters", "estimator"), dict),
    "left_out": [int],
    "feature_names": ([str], None),
    "encoding": (ENCODING, None),
}
"""Entries of the provenance that are read later."""
HEADER: dict[str, Kind] = {
    "formulation": {"c-svc squared hinge", *FORMULATIONS},
    "kernel": dict,
    "classes": (list, None),
    "scaler": (str, None),
    "calibration": ({"method": str, "n_rows": (int, None)}, None),
    "certificate": dict,
    "provenance": dict,
}
"""Fields of the header; models of earlier versions have no calibration."""
RULE: dict[int, dict[str, Kind]] = {
    2: {"rule": set(votes.RULES)},
    3: {"rule": (set(votes.RULES), None)},
}
"""Fields that it has besides, by its format version."""


def header_and_tensors(
    attributes: Mapping[str, Any], *, timings: bool
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the JSON header and flat tensors of a file, for attributes of a `KernelExpansion`.

    Without `timings` its certificate lacks what differs between two runs of the same fit.
    """
    left_out = () if timings else MEASURED
    rule, scaler, calibration = (attributes[name] for name in ("rule", "scaler", "calibration"))
    vectors, coefficients = attributes["support_vectors"], attributes["coefficients"]
    tensors = {"intercepts": np.atleast_1d(attributes["intercept"])}
    tensors |= {
        name: attributes[name]
        for name in ("support", "centre", "bounds")
        if attributes[name] is not None
    }
    tensors |= _flat("support_vectors", vectors)
    tensors |= _flat("coefficients", coefficients if rule is None else sp.csr_array(coefficients))
    if calibration is not None:
        tensors["calibration"] = calibration.numbers
    if scaler is not None:
        tensors |= {"scaler.offset": scaler.offset, "scaler.factor": scaler.factor}
        if scaler.columns is not None:
            tensors["scaler.columns"] = scaler.columns.astype(np.int64)
    classes = attributes["classes"]
    header: dict[str, Any] = {
        "format_version": 1,
        "formulation": attributes["formulation"],
        "kernel": attributes["kernel"].describe(),
        "classes": None if classes is None else list(classes),
        "n_features": int(vectors.shape[1]),
        "scaler": None if scaler is None else scaler.method,
        "calibration": None
        if calibration is None
        else {"method": calibration.method, "n_rows": calibration.n_rows},
        "certificate": {
            name: value for name, value in attributes["certificate"].items() if name not in left_out
        },
        "provenance": dict(attributes["provenance"]),
    }
    if rule is not None:
        header |= {"format_version": 2, "rule": rule}
    if "scaler.columns" in tensors:
        header |= {"format_version": FORMAT_VERSION, "rule": rule}
    return header, {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}


def attributes_of(header: Mapping[str, Any], tensors: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """Check the JSON header and tensors of a file; returns the arguments of `KernelExpansion`."""
    fields = HEADER | RULE.get(header["format_version"], {})
    check_fields("the header", header, fields, required=fields.keys() - {"calibration"})
    rule = header["rule"] if "rule" in fields else None
    formulation, provenance = header["formulation"], header["provenance"]
    classes = _classes(header["classes"])
    if (classes is None) != (traits_of(formulation).learns != "classes"):
        raise ValueError(f"classes do not belong to the formulation {formulation}")
    support = _vector(tensors, "support", np.int64)
    # LIBSVM's model of one class has no decision function.
    is_constant = len(support) == 0 and classes is not None and len(classes) == 1
    if rule is None and classes is not None and len(classes) != 2 and not is_constant:
        raise ValueError(f"it has {len(classes)} classes and no rule for them")
    n, d = len(support), header["n_features"]
    if not is_count(d) or not 1 <= d <= MOST_COLUMNS:
        raise ValueError(f"it has {d!r} columns")
    check_fields("provenance", provenance, PROVENANCE)
    left_out, names = provenance.get("left_out", []), provenance.get("feature_names")
    if left_out and not ascend_below(np.array(left_out), len(classes or ())):
        raise ValueError(f"left_out is {brief(left_out)}, of {len(classes or ())} classes")
    if names is not None and len(names) != d:
        raise ValueError(f"it has names of {len(names)} columns instead of {d}")
    check_encoding(provenance.get("encoding"), names)
    rows = provenance.get("n_rows") or np.iinfo(np.int64).max
    if n and not 0 <= support.min() <= support.max() < rows:
        raise ValueError("support has a number that is no row of the training data")
    vectors = _matrix(tensors, "support_vectors", (n, d), (np.float32, np.float64))
    if provenance.get("read from") == "libsvm" and not sp.issparse(vectors):
        raise ValueError("LIBSVM's support vectors are not sparse")
    intercepts = _vector(tensors, "intercepts", np.float64)
    if is_constant and intercepts.any():
        raise ValueError("it has one class and an intercept")
    if rule is None and len(intercepts) != 1:
        raise ValueError(f"it has {len(intercepts)} intercepts and no rule for them")
    shape = (n,) if rule is None else (n, len(intercepts))
    coefficients = _matrix(tensors, "coefficients", shape, (np.float64,))
    if sp.issparse(coefficients) != (rule is not None):
        raise ValueError("its coefficients are dense if, and only if, there is no rule")
    centre = _vector(tensors, "centre", np.float64, size=d)
    bounds = _vector(tensors, "bounds", np.float64, size=n)
    if bounds is not None and (rule != "crammer-singer" or not (bounds > 0).all()):
        raise ValueError("bounds are numbers > 0 of the rule crammer-singer")
    certificate = header["certificate"]
    check_certificate(certificate, n_classes=len(classes or ()))
    calibration = header.get("calibration")  # models of earlier versions have none
    kernel = kernel_from(header["kernel"])
    _compare_formula(kernel, provenance.get("kernel"))
    return dict(
        kernel=kernel,
        support_vectors=vectors,
        coefficients=coefficients,
        intercept=float(intercepts[0]) if rule is None else intercepts,
        centre=centre,
        support=support,
        classes=classes,
        formulation=formulation,
        rule=rule,
        calibration=None
        if calibration is None
        else Calibration(**calibration, numbers=tensors["calibration"]),
        bounds=bounds,
        scaler=_scaler(header["scaler"], tensors, d),
        certificate=certificate,
        provenance=provenance,
    )


def _compare_formula(kernel: Kernel, trained: str | None) -> None:
    """Warn where the class of a kernel of one's own computes something else than in training.

    `trained` is its identity then; None of built-in kernels, and in models of earlier versions.
    """
    identity = identity_of_kernel(kernel, versions=False)
    # Code of another version of Python cannot be compared.
    words = [word for word in (identity, trained) if (word or "").startswith(f"{PYTHON}-")]
    if len(words) == 2 and words[0] != words[1]:
        warnings.warn(
            f"the class of the kernel {kernel.name!r} computes something else now than when the "
            "model was trained; define it as it was, or train the model again",
            UserWarning,
            stacklevel=6,
        )


def _flat(name: str, matrix: Any) -> dict[str, Any]:  # noqa: ANN401 (an array or CSR)
    """Flat tensors of an array, or of the three that CSR is made of."""
    if not sp.issparse(matrix):
        return {name: matrix}
    return {
        f"{name}.data": matrix.data,
        f"{name}.indices": matrix.indices.astype(np.int64),
        f"{name}.indptr": matrix.indptr.astype(np.int64),
    }


def _classes(labels: Any) -> Any:  # noqa: ANN401 (of labels of any kind)
    """Labels: distinct numbers, words or booleans; or None."""
    if labels is None:
        return None
    if not labels:
        raise ValueError("classes are an empty list")
    kinds = {type(label) for label in labels}
    if kinds - {int, float} and kinds not in ({str}, {bool}):
        raise ValueError("classes are of different types")
    numbers = [label for label in labels if not isinstance(label, str)]
    # Integers may be larger than 64 bits, but are compared with float64 labels.
    if not all(abs(label) <= LARGEST_CLASS for label in numbers):
        raise ValueError("a class is not a finite number of float64")
    if len(set(labels)) != len(labels):
        raise ValueError("a class is there twice")
    return labels


def _scaler(method: Any, tensors: Mapping[str, NDArray[Any]], d: int) -> Scaler | None:  # noqa: ANN401 (as JSON has it)
    if method is None:
        return None
    columns = tensors.get("scaler.columns")
    width = None if columns is None else d
    offset, factor = tensors["scaler.offset"], tensors["scaler.factor"]
    scaler = Scaler(method, offset, factor, columns, width)
    if scaler.n_columns != d:
        raise ValueError(f"its scaler has {scaler.n_columns} columns instead of {d}")
    return scaler


def _vector(
    tensors: Mapping[str, NDArray[Any]],
    name: str,
    dtype: type[np.int64] | type[np.float64],
    *,
    size: int | None = None,
) -> Any:  # noqa: ANN401 (an array, or None where it may be absent)
    """Return a finite one-dimensional array of a dtype; with `size` it may be absent."""
    vector = tensors.get(name) if size is not None else tensors[name]
    if vector is None:
        return None
    if vector.dtype != dtype or vector.ndim != 1 or size not in (None, len(vector)):
        raise ValueError(f"{name} is {vector.dtype} of shape {vector.shape}")
    if not np.isfinite(vector).all():
        raise ValueError(f"{name} has a value that is not finite")
    return vector


def _matrix(
    tensors: Mapping[str, NDArray[Any]],
    name: str,
    shape: tuple[int, ...],
    dtypes: tuple[type[np.floating[Any]], ...],
) -> Any:  # noqa: ANN401 (an array or CSR)
    """Rebuild an array or a CSR matrix; a ValueError says what is wrong with it."""
    matrix: Any = tensors.get(name)
    if matrix is None:
        matrix = _csr(
            tensors[f"{name}.data"], tensors[f"{name}.indices"], tensors[f"{name}.indptr"], shape
        )
    values = matrix.data if sp.issparse(matrix) else matrix
    if matrix.shape != shape or values.dtype not in dtypes:
        raise ValueError(f"{name} is {values.dtype} of shape {matrix.shape} instead of {shape}")
    if not np.isfinite(values).all():
        raise ValueError(f"{name} has a value that is not finite")
    return matrix


def _csr(
    data: NDArray[Any], indices: NDArray[Any], indptr: NDArray[Any], shape: tuple[int, ...]
) -> sp.csr_array:
    if indices.dtype != np.int64 or indptr.dtype != np.int64:
        raise ValueError("the indices of a sparse tensor are not int64")
    matrix = sp.csr_array((data, indices, indptr), shape=shape)
    matrix.check_format(full_check=True)
    if len(indices) != indptr[-1]:
        raise ValueError("a sparse tensor has more entries than its rows")
    if max(matrix.nnz, *shape) <= np.iinfo(np.int32).max:
        # Support vectors had this type before they were saved; scikit-learn takes no other.
        arrays = matrix.data, matrix.indices.astype(np.int32), matrix.indptr.astype(np.int32)
        matrix = sp.csr_array(arrays, shape=shape)
    matrix.sort_indices()
    if not matrix.has_canonical_format:
        raise ValueError("a sparse tensor has an entry twice")
    return matrix
