"""Files of models.

One safetensors file: flat tensors and a JSON text, so that loading cannot run code. The text holds
a hash of everything, and a file in which any bit has changed is refused. Format 2 is that of models
with several functions; those with one are in format 1, which earlier versions read too. Format 3
has a scaler that lists its columns, with one function or several. Times of training are left out
unless they are asked for, so two runs of the same fit write equal files.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import xxhash

from bigsvm.data.objects import file_to_read, file_to_write
from bigsvm.declared import is_count
from bigsvm.errors import BigsvmError, ModelError
from bigsvm.files import LIBSVM_MODEL, open_regular, parse_json, part_of
from bigsvm.models.contents import FORMAT_VERSION, attributes_of, header_and_tensors

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    Model = TypeVar("Model")

DTYPES = ("F32", "F64", "I64")
"""Dtypes of tensors, by their names in safetensors."""
MOST_HEADER_BYTES = 16 << 20
"""Largest JSON header in bytes: room for a hundred thousand classes. Parsing takes up to twenty
times as much."""


_HEADER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
"""Writes the header of a safetensors file as safetensors does."""


def write_model(
    attributes: Mapping[str, Any], path: str | os.PathLike[str], *, timings: bool = False
) -> None:
    """Write the attributes of a model to one file or object; see `KernelExpansion.save`."""
    # Saves 1 MB where a model is used and thrown away.
    import safetensors

    header, tensors = header_and_tensors(attributes, timings=timings)
    text = json.dumps(header, sort_keys=True, default=_plain)
    try:
        with file_to_write(path, "path", what="model") as target:
            write_tensors(target, text, tensors)
    except (OSError, safetensors.SafetensorError) as error:
        raise ModelError(f"cannot write the model {path}: {error}") from error


def read_model(path: str | os.PathLike[str], make: Callable[..., Model]) -> Model:
    """Read the attributes of a model from its file and `make` it; see `KernelExpansion.load`."""
    try:
        with file_to_read(path, "path") as source:
            return _read(source, path, make)
    except OSError as error:
        raise ModelError(f"cannot read the model {path}: {error}") from error


def _read(source: Path, path: str | os.PathLike[str], make: Callable[..., Model]) -> Model:
    """Read a model from a file of this machine, which messages call `path`."""
    # Saves 1 MB where a model is used and thrown away.
    import safetensors

    try:
        # Opening a pipe would wait for a writer, and nothing could interrupt that.
        with open_regular(source, follow_links=True) as plain:
            if plain.read(len(LIBSVM_MODEL)) == LIBSVM_MODEL:
                raise ModelError(f"{path} is a model of LIBSVM; read it by bigsvm.load")
        text, tensors = read_tensors(source)
        if text is None:
            raise ModelError(f"{path} is not a bigsvm model: it has no bigsvm header")
        return make(**attributes_of(_header(text, path), tensors))
    except ModelError:
        raise
    except (
        safetensors.SafetensorError, BigsvmError, ValueError, KeyError, TypeError,
    ) as error:  # fmt: skip
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ModelError(
            f"{path} is not a whole bigsvm model: {what}; take another copy, or train it again"
        ) from error


def _header(text: str, path: object) -> dict[str, Any]:
    """Parse the JSON header of a known format version."""
    header = parse_json(text)
    if not isinstance(header, dict):
        raise ValueError("its header is no object")
    version = header["format_version"]
    if not is_count(version) or version < 1:
        raise ValueError(f"format_version is {version!r}")
    if version > FORMAT_VERSION:
        raise ModelError(
            f"{path} has format {version}, newer than {FORMAT_VERSION}; "
            "use the version of bigsvm that wrote it"
        )
    return header


def _plain(value: object) -> object:
    """Give NumPy's numbers as JSON has them, and other objects as text."""
    return value.item() if isinstance(value, np.generic) else repr(value)


def write_tensors(path: Path, text: str, tensors: dict[str, NDArray[Any]]) -> None:
    """Write a text, tensors and their hash to a safetensors file, whole or not at all."""
    # Saves 1 MB where a model is used and thrown away.
    import safetensors.numpy

    metadata = {"bigsvm": text, "xxh3_128": digest_of_tensors(text, tensors)}
    with part_of(path) as part:
        part.touch()
        mode = part.stat().st_mode
        # Straight from the tensors: support vectors are many.
        safetensors.numpy.save_file(tensors, part, metadata)
        part.chmod(mode)  # what it writes only the owner may read
        _sort_metadata(part)


def _sort_metadata(path: Path) -> None:
    """Put the metadata in order, which safetensors writes in another one each time."""
    with path.open("r+b") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        text = _HEADER.encode(header).encode()
        if len(text) > size:
            raise OSError(f"{path}: a header of {len(text)} bytes has no room in {size}")
        file.seek(8)
        file.write(text.ljust(size))


def read_tensors(path: Path) -> tuple[str | None, dict[str, NDArray[Any]]]:
    """Read what `write_tensors` wrote; the text is None, and no hash compared, if there is none."""
    import safetensors

    with safetensors.safe_open(str(path), "numpy") as file:
        metadata = file.metadata() or {}
        text = metadata.get("bigsvm")
        if text is None:
            return None, {}
        if len(text) > MOST_HEADER_BYTES:
            raise ValueError(f"its header has {len(text)} characters")
        tensors = {name: _tensor(file, name) for name in file.keys()}
    if digest_of_tensors(text, tensors) != metadata.get("xxh3_128"):
        raise ValueError("its content does not match its hash")
    return text, tensors


def _tensor(file: Any, name: str) -> NDArray[Any]:  # noqa: ANN401 (safetensors has no types)
    """Read a tensor of a known dtype; NumPy lacks some dtypes of safetensors."""
    dtype = file.get_slice(name).get_dtype()
    if dtype not in DTYPES:
        raise ValueError(f"{name} is {dtype}")
    tensor: NDArray[Any] = file.get_tensor(name)
    return tensor


def digest_of_tensors(text: str, tensors: Mapping[str, NDArray[Any]]) -> str:
    """Hash of the header and of every tensor with its name, dtype and shape."""
    hasher = xxhash.xxh3_128(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        hasher.update(f"{name} {tensor.dtype.str} {tensor.shape}".encode())
        hasher.update(np.ascontiguousarray(tensor).reshape(-1).view(np.uint8).data)
    return hasher.hexdigest()
