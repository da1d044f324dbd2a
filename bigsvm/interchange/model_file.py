"""Files of models, of bigsvm and of LIBSVM, which their first bytes tell apart."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bigsvm.errors import ModelError
from bigsvm.files import LIBSVM_MODEL, is_url, open_regular
from bigsvm.models import KernelExpansion

if TYPE_CHECKING:
    import os


def read_model_file(
    path: str | os.PathLike[str],
    *,
    n_features: int | None = None,
    range_file: str | os.PathLike[str] | None = None,
) -> KernelExpansion:
    """Read a model that bigsvm or LIBSVM wrote; LIBSVM's are not read from URLs.

    `n_features` and `range_file` are only for a model of LIBSVM, as for `read_libsvm_model`.
    """
    if isinstance(path, str) and is_url(path):
        if (n_features, range_file) != (None, None):
            raise ModelError(
                f"{path} is a URL, and n_features and range_file are for LIBSVM's models, which "
                "are read from this machine; leave them out, or copy the model"
            )
        return KernelExpansion.load(path)
    try:
        start = _start_of(path)
    except OSError as error:
        raise ModelError(f"cannot read the model {path}: {error.strerror}") from error
    if start == LIBSVM_MODEL:
        from bigsvm.interchange.libsvm_model import read_libsvm_model

        return read_libsvm_model(path, n_features=n_features, range_file=range_file)
    if not _is_model(start):
        raise ModelError(f"{path} is no model, neither of `bigsvm train` nor of LIBSVM")
    for name, value, why in (
        ("n_features", n_features, "which knows its columns"),
        ("range_file", range_file, "which scales rows by itself if it has to"),
    ):
        if value is not None:
            raise ModelError(f"{path} is a model of bigsvm, {why}; leave {name} out")
    return KernelExpansion.load(path)


def is_model_file(path: str | os.PathLike[str]) -> bool:
    """Whether a file on this machine begins like a model."""
    try:
        return _is_model(_start_of(path))
    except OSError:
        return False


def _start_of(path: str | os.PathLike[str]) -> bytes:
    with open_regular(Path(path), follow_links=True) as file:
        return file.read(len(LIBSVM_MODEL))


def _is_model(start: bytes) -> bool:
    # A safetensors header begins so, after its length.
    return start == LIBSVM_MODEL or start[8:] == b"{"
