"""Files of models.

One safetensors file: flat tensors and a JSON text, so that loading cannot run code. The text holds
a hash of everything, and a file in which any bit has changed is refused.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import xxhash

from bigsvm.calibration import Calibration
from bigsvm.data.scaler import Scaler
from bigsvm.errors import BigsvmError, ModelError
from bigsvm.files import sync_directory, sync_tree
from bigsvm.kernels import kernel_from

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from bigsvm.models.expansion import KernelExpansion

FORMAT_VERSION = 1


def write_model(model: KernelExpansion, path: str | os.PathLike[str]) -> None:
    """Write a model to one file, whole or not at all."""
    # Saves 1 MB where a model is used and thrown away.
    import safetensors

    tensors = {
        "coefficients": model.coefficients,
        "intercepts": np.array([model.intercept]),
        "support": model.support,
    }
    if model.centre is not None:
        tensors["centre"] = model.centre
    calibration = None
    if model.calibration is not None:
        tensors["calibration"] = model.calibration.numbers
        calibration = {"method": model.calibration.method, "n_rows": model.calibration.n_rows}
    if model.scaler is not None:
        tensors["scaler.offset"] = model.scaler.offset
        tensors["scaler.factor"] = model.scaler.factor
    vectors: Any = model.support_vectors
    if sp.issparse(vectors):
        tensors["support_vectors.data"] = vectors.data
        tensors["support_vectors.indices"] = vectors.indices.astype(np.int64)
        tensors["support_vectors.indptr"] = vectors.indptr.astype(np.int64)
    else:
        tensors["support_vectors"] = vectors
    tensors = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    header = {
        "format_version": FORMAT_VERSION,
        "formulation": model.formulation,
        "kernel": model.kernel.describe(),
        "classes": None if model.classes is None else list(model.classes),
        "n_features": int(model.support_vectors.shape[1]),
        "scaler": None if model.scaler is None else model.scaler.method,
        "calibration": calibration,
        "certificate": dict(model.certificate),
        "provenance": dict(model.provenance),
    }
    text = json.dumps(header, sort_keys=True, default=_plain)
    metadata = {"bigsvm": text, "xxh3_128": _digest(text, tensors)}
    try:
        _replace_synced(Path(path), tensors, metadata)
    except (OSError, safetensors.SafetensorError) as error:
        raise ModelError(f"cannot write the model {path}: {error}") from error


def read_model(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the attributes of a `KernelExpansion` from its file, and check every byte of it.

    Raises
    ------
    ModelError
        Not a bigsvm model, damaged, or written by a newer version.
    """
    # Saves 1 MB where a model is used and thrown away.
    import safetensors

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
        return _attributes(header, tensors)
    except ModelError:
        raise
    except OSError as error:
        raise ModelError(f"cannot read the model {path}: {error}") from error
    except (safetensors.SafetensorError, BigsvmError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path} is not a whole bigsvm model: {error}") from error


def _attributes(header: dict[str, Any], tensors: dict[str, NDArray[Any]]) -> dict[str, Any]:
    n, d = len(tensors["support"]), int(header["n_features"])
    vectors: Any
    if "support_vectors" in tensors:
        vectors = tensors["support_vectors"]
    else:
        names = ("data", "indices", "indptr")
        parts = tuple(tensors[f"support_vectors.{name}"] for name in names)
        vectors = sp.csr_array(parts, shape=(n, d))
        vectors.check_format(full_check=True)
    values = vectors.data if sp.issparse(vectors) else vectors
    finite = np.isfinite(values).all() and np.isfinite(tensors["coefficients"]).all()
    if vectors.shape != (n, d) or tensors["coefficients"].shape != (n,) or not finite:
        raise ValueError("the shapes or values of its tensors contradict each other")
    classes = header["classes"]
    if tensors["intercepts"].shape != (1,) or (classes is not None and len(classes) != 2):
        raise ValueError("it does not have two classes, or none, and one intercept")
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
        coefficients=tensors["coefficients"],
        intercept=float(tensors["intercepts"][0]),
        centre=tensors.get("centre"),
        support=tensors["support"],
        classes=classes,
        formulation=header["formulation"],
        calibration=calibration,
        scaler=scaler,
        certificate=header["certificate"],
        provenance=header["provenance"],
    )


def _plain(value: object) -> object:
    """Give NumPy's numbers as JSON has them, and whatever else as text."""
    return value.item() if isinstance(value, np.generic) else repr(value)


def _replace_synced(path: Path, tensors: dict[str, NDArray[Any]], metadata: dict[str, str]) -> None:
    """Replace a file, whole or not at all, straight from the tensors: support vectors are many."""
    # Saves 1 MB where a model is used and thrown away.
    import safetensors.numpy

    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        part = Path(folder) / path.name
        part.touch()
        mode = part.stat().st_mode
        safetensors.numpy.save_file(tensors, part, metadata)
        part.chmod(mode)  # what it writes only the owner may read
        sync_tree(Path(folder))
        os.replace(part, path)
    sync_directory(path.parent)


def _digest(text: str, tensors: Mapping[str, NDArray[Any]]) -> str:
    """Hash of the header and of every tensor with its name, dtype and shape."""
    hasher = xxhash.xxh3_128(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        hasher.update(f"{name} {tensor.dtype.str} {tensor.shape}".encode())
        hasher.update(np.ascontiguousarray(tensor).reshape(-1).view(np.uint8).data)
    return hasher.hexdigest()
