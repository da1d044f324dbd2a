"""Files of models.

One safetensors file: flat tensors and a JSON text, so that loading cannot run code. The text holds
a hash of everything, and a file in which any bit has changed is refused. Format 2 is that of models
with several functions; those with one are in format 1, which earlier versions read too.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import xxhash

from bigsvm.calibration import Calibration
from bigsvm.data.scaler import Scaler
from bigsvm.errors import BigsvmError, ModelError
from bigsvm.files import local_path, part_of
from bigsvm.kernels import kernel_from

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from bigsvm.models.expansion import KernelExpansion

FORMAT_VERSION = 2


def write_model(model: KernelExpansion, path: str | os.PathLike[str]) -> None:
    """Write a model to one file, whole or not at all."""
    # Saves 1 MB where a model is used and thrown away.
    import safetensors

    target = local_path(path, "path")
    tensors = {"intercepts": np.atleast_1d(model.intercept), "support": model.support}
    coefficients = model.coefficients
    tensors |= _tensors(
        "coefficients", coefficients if model.rule is None else sp.csr_array(coefficients)
    )
    if model.centre is not None:
        tensors["centre"] = model.centre
    if model.bounds is not None:
        tensors["bounds"] = model.bounds
    calibration = None
    if model.calibration is not None:
        tensors["calibration"] = model.calibration.numbers
        calibration = {"method": model.calibration.method, "n_rows": model.calibration.n_rows}
    if model.scaler is not None:
        tensors["scaler.offset"] = model.scaler.offset
        tensors["scaler.factor"] = model.scaler.factor
    tensors |= _tensors("support_vectors", model.support_vectors)
    tensors = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    header = {
        "format_version": 1,
        "formulation": model.formulation,
        "kernel": model.kernel.describe(),
        "classes": None if model.classes is None else list(model.classes),
        "n_features": int(model.support_vectors.shape[1]),
        "scaler": None if model.scaler is None else model.scaler.method,
        "calibration": calibration,
        "certificate": dict(model.certificate),
        "provenance": dict(model.provenance),
    }
    if model.rule is not None:
        header |= {"format_version": FORMAT_VERSION, "rule": model.rule}
    text = json.dumps(header, sort_keys=True, default=_plain)
    metadata = {"bigsvm": text, "xxh3_128": _digest(text, tensors)}
    try:
        _replace_synced(target, tensors, metadata)
    except (OSError, safetensors.SafetensorError) as error:
        raise ModelError(f"cannot write the model {path}: {error}") from error


def read_model(
    path: str | os.PathLike[str], make: Callable[..., KernelExpansion]
) -> KernelExpansion:
    """Read the attributes of a model from its file, check every byte of it, and `make` it.

    Raises
    ------
    ModelError
        Not a bigsvm model, damaged, or written by a newer version.
    """
    # Saves 1 MB where a model is used and thrown away.
    import safetensors

    local_path(path, "path")
    try:
        with safetensors.safe_open(str(path), "numpy") as file:
            metadata = file.metadata() or {}
            if "bigsvm" not in metadata:
                raise ModelError(f"{path} is not a bigsvm model: it has no bigsvm header")
            tensors = {name: file.get_tensor(name) for name in file.keys()}
        text = metadata["bigsvm"]
        if _digest(text, tensors) != metadata.get("xxh3_128"):
            raise ModelError(f"{path} is damaged: its content does not match its hash")
        header = json.loads(text)
        if header["format_version"] > FORMAT_VERSION:
            raise ModelError(
                f"{path} has format {header['format_version']}, newer than {FORMAT_VERSION}; "
                "use the version of bigsvm that wrote it"
            )
        return make(**_attributes(header, tensors))
    except ModelError:
        raise
    except OSError as error:
        raise ModelError(f"cannot read the model {path}: {error}") from error
    except (safetensors.SafetensorError, BigsvmError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path} is not a whole bigsvm model: {error}") from error


def _attributes(header: dict[str, Any], tensors: dict[str, NDArray[Any]]) -> dict[str, Any]:
    n, d = len(tensors["support"]), int(header["n_features"])
    rule = header["rule"] if header["format_version"] > 1 else None
    classes, intercepts = header["classes"], tensors["intercepts"]
    shape = (n,) if rule is None else (n, len(intercepts))
    vectors = _matrix(tensors, "support_vectors", (n, d))
    coefficients = _matrix(tensors, "coefficients", shape)
    if rule is None and (intercepts.shape != (1,) or (classes is not None and len(classes) != 2)):
        raise ValueError("it does not have two classes, or none, and one intercept")
    if sp.issparse(coefficients) != (rule is not None):
        raise ValueError("its coefficients are dense if, and only if, there is no rule")
    if rule is not None and (intercepts.dtype != np.float64 or not np.isfinite(intercepts).all()):
        raise ValueError("its intercepts are not finite numbers of float64")
    bounds = tensors.get("bounds")
    if bounds is not None and (bounds.dtype != np.float64 or not (bounds > 0).all()):
        raise ValueError("its bounds are not numbers of float64, > 0")
    # Models of earlier versions have none.
    calibration = header.get("calibration")
    if calibration is not None:
        calibration = Calibration(**calibration, numbers=tensors["calibration"])
    scaler = None
    if header["scaler"] is not None:
        scaler = Scaler(header["scaler"], tensors["scaler.offset"], tensors["scaler.factor"])
        if scaler.n_columns != d:
            raise ValueError(f"its scaler has {scaler.n_columns} columns instead of {d}")
    return dict(
        kernel=kernel_from(header["kernel"]),
        support_vectors=vectors,
        coefficients=coefficients,
        intercept=float(intercepts[0]) if rule is None else intercepts,
        centre=tensors.get("centre"),
        support=tensors["support"],
        classes=classes,
        formulation=header["formulation"],
        rule=rule,
        calibration=calibration,
        bounds=bounds,
        scaler=scaler,
        certificate=header["certificate"],
        provenance=header["provenance"],
    )


def _tensors(name: str, matrix: Any) -> dict[str, Any]:  # noqa: ANN401 (an array or CSR)
    """Flat tensors of an array, or of the three that CSR is made of."""
    if not sp.issparse(matrix):
        return {name: matrix}
    return {
        f"{name}.data": matrix.data,
        f"{name}.indices": matrix.indices.astype(np.int64),
        f"{name}.indptr": matrix.indptr.astype(np.int64),
    }


def _matrix(tensors: dict[str, NDArray[Any]], name: str, shape: tuple[int, ...]) -> Any:  # noqa: ANN401 (an array or CSR)
    """Put an array or CSR together again.

    Raises
    ------
    ValueError
        Of another shape, with an index out of range, or a value that is not finite.
    """
    matrix: Any = tensors.get(name)
    if matrix is None:
        three = tuple(tensors[f"{name}.{part}"] for part in ("data", "indices", "indptr"))
        if any(part.dtype.kind != "i" for part in three[1:]):
            raise ValueError(f"the indices of its {name} are no whole numbers")
        matrix = sp.csr_array(three, shape=shape)
        matrix.check_format(full_check=True)
        if max(matrix.nnz, *shape) <= np.iinfo(np.int32).max:
            # As support vectors had before they were saved; scikit-learn takes no other type.
            three = matrix.data, matrix.indices.astype(np.int32), matrix.indptr.astype(np.int32)
            matrix = sp.csr_array(three, shape=shape)
    values = matrix.data if sp.issparse(matrix) else matrix
    if matrix.shape != shape or not np.isfinite(values).all():
        raise ValueError("the shapes or values of its tensors contradict each other")
    return matrix


def _plain(value: object) -> object:
    """Give NumPy's numbers as JSON has them, and whatever else as text."""
    return value.item() if isinstance(value, np.generic) else repr(value)


def _replace_synced(path: Path, tensors: dict[str, NDArray[Any]], metadata: dict[str, str]) -> None:
    """Replace a file, whole or not at all, straight from the tensors: support vectors are many."""
    # Saves 1 MB where a model is used and thrown away.
    import safetensors.numpy

    with part_of(path) as part:
        part.touch()
        mode = part.stat().st_mode
        safetensors.numpy.save_file(tensors, part, metadata)
        part.chmod(mode)  # what it writes only the owner may read


def _digest(text: str, tensors: Mapping[str, NDArray[Any]]) -> str:
    """Hash of the header and of every tensor with its name, dtype and shape."""
    hasher = xxhash.xxh3_128(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        hasher.update(f"{name} {tensor.dtype.str} {tensor.shape}".encode())
        hasher.update(np.ascontiguousarray(tensor).reshape(-1).view(np.uint8).data)
    return hasher.hexdigest()
