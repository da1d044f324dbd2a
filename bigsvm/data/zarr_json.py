"""Metadata of the groups and arrays of a store, as Zarr version 3 writes them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bigsvm.data.schema import ZSTD_LEVEL

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bigsvm.data.schema import ArraySpec

NAME = "zarr.json"
_LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}
_ZSTD = {"name": "zstd", "configuration": {"level": ZSTD_LEVEL, "checksum": True}}


def write_group(folder: Path, attributes: Mapping[str, Any]) -> None:
    """Make a folder that is a group, or write the attributes of the group again."""
    folder.mkdir(exist_ok=True)
    _write(folder, {"attributes": attributes, "zarr_format": 3, "node_type": "group"})


def write_array(folder: Path, spec: ArraySpec) -> None:
    """Make a folder that is an array without chunks."""
    folder.mkdir()
    rest = spec.shape[1:]
    sharding = {
        "chunk_shape": [spec.chunk_rows, *rest],
        "codecs": [_LITTLE, _ZSTD],
        "index_codecs": [_LITTLE, {"name": "crc32c"}],
        "index_location": "end",
    }
    shard_rows = spec.chunk_rows * spec.chunks_per_shard
    _write(
        folder,
        {
            "shape": spec.shape,
            "data_type": spec.dtype.name,
            "chunk_grid": {
                "name": "regular",
                "configuration": {"chunk_shape": [shard_rows, *rest]},
            },
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": spec.fill_value if spec.dtype.kind == "i" else "NaN",
            "codecs": [{"name": "sharding_indexed", "configuration": sharding}],
            "attributes": {},
            "zarr_format": 3,
            "node_type": "array",
            "storage_transformers": [],
        },
    )


def _write(folder: Path, content: Mapping[str, Any]) -> None:
    (folder / NAME).write_text(json.dumps(content, indent=2), encoding="utf-8")
