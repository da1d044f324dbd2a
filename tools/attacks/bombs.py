"""Small files that ask for much memory when they are read.

    python tools/reliability.py bombs [--only store …]

Each file is read by a command with a memory budget of 60 MB, in a child whose peak is measured. It
must be refused or read, within the budget and the interpreter.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import struct
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import zstandard
from attacks.child import command, copied, filled, fresh
from attacks.searches import SEARCHING, make_files
from attacks.subjects import MEMORY, MEMORY_BYTES, SECONDS, TRAINING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HOLE = 8 << 30
"""Bytes of a sparse file: it takes no room on the disk, and does not fit the memory."""


class Bomb(NamedTuple):
    """A file that is put into a copy of good ones, and the command that reads it."""

    name: str
    put: Callable[[Path], object]
    command: list[str]


def _zeros(n_bytes: int) -> bytes:
    """Compress zeros with zstd, in one frame that says how many there are."""
    piece = bytes(1 << 24)
    packer = zstandard.ZstdCompressor(level=19).compressobj(size=n_bytes)
    packed = [packer.compress(piece) for _ in range(n_bytes // len(piece))]
    return b"".join([*packed, packer.flush()])


def _put_chunk(chunk: bytes) -> Callable[[Path], object]:
    """Put other bytes where the first chunk of y is, and make the shard's index fit."""

    def put(folder: Path) -> None:
        import google_crc32c

        path = folder / "data" / "y" / "c" / "0"
        n = len(json.loads((folder / "data/zarr.json").read_text())["attributes"]["bigsvm"][
            "manifest"]["y"])  # fmt: skip
        index = struct.pack("<QQ", 0, len(chunk)) + b"\xff" * (16 * (n - 1))
        index += struct.pack("<I", google_crc32c.value(index))
        path.write_bytes(chunk + index)

    return put


def _stretch(name: str, n_bytes: int = HOLE) -> Callable[[Path], object]:
    """Make a file longer by a hole."""
    return lambda folder: os.truncate(next(iter(sorted(folder.glob(name)))), n_bytes)


def _write(name: str, data: bytes | str) -> Callable[[Path], object]:
    content = data.encode() if isinstance(data, str) else data
    return lambda folder: (folder / name).write_bytes(content)


def _large_dictionary() -> bytes:
    """Make an .xz file whose header alone asks for a dictionary."""
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 16}]
    packed = bytearray(lzma.compress(b"1 1:1\n-1 1:2\n" * 50, filters=filters))
    at = packed.index(b"\x21\x01", 12) + 2
    packed[at] = 40  # 4 GiB − 1
    header = slice(12, 12 + (packed[12] + 1) * 4)
    packed[header.stop - 4 : header.stop] = struct.pack(
        "<I", zlib.crc32(packed[header.start : header.stop - 4])
    )
    return bytes(packed)


def _wide_window() -> bytes:
    parameters = zstandard.ZstdCompressionParameters(window_log=31, enable_ldm=False)
    return zstandard.ZstdCompressor(compression_params=parameters).compress(b"1 1:1\n" * 99)


def _gzip_line() -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    parts = [packer.compress(b"1 1:" + b"1" * (1 << 24)) for _ in range(64)]
    return b"".join([*parts, packer.flush()])


def _libsvm_model(vectors: str, *, total: int = 2, classes: int = 2, counts: str = "1 1") -> str:
    labels = "1 -1" if classes == 2 else ""
    return (
        f"svm_type c_svc\nkernel_type rbf\ngamma 0.5\nnr_class {classes}\ntotal_sv {total}\n"
        f"rho 0\nlabel {labels}\nnr_sv {counts}\nSV\n{vectors}"
    )


def _safetensors(shape: list[int]) -> bytes:
    header = {"support": {"dtype": "F64", "shape": shape, "data_offsets": [0, 8]}}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(8)


def _foreign(n_bytes: int) -> Callable[[Path], object]:
    """Write a foreign Zarr array whose one small chunk file decodes to other sizes."""

    def put(folder: Path) -> None:
        import zarr

        array = zarr.create_array(
            folder / "foreign", shape=(300, 6), chunks=(300, 6), dtype="f4",
            compressors=zarr.codecs.ZstdCodec(),
        )  # fmt: skip
        array[:] = 1
        (folder / "foreign" / "c" / "0" / "0").write_bytes(_zeros(n_bytes))

    return put


_TRAIN = ["train", "{}/data", "{}/out", *TRAINING]
_PREDICT = ["predict", "{}/data", "{}/model", "--memory", MEMORY]
_INFO = ["info", "{}/model"]
_RESUME = ["train", "{}/data", "{}/out", *TRAINING, "--checkpoint", "{}/run"]
_PAIRS = ["train", "{}/classes/data", "{}/out", *TRAINING, "--checkpoint", "{}/pairs"]
_SEARCH = [*SEARCHING]


def _put_large(path: Path) -> None:
    """Write a file of tensors whose header describes a hole."""
    offsets = {"dtype": "F64", "shape": [1 << 29, 2], "data_offsets": [0, HOLE]}
    text = json.dumps({"alpha": offsets}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    os.truncate(path, 8 + len(text) + HOLE)


def _write_first(name: str) -> Callable[[Path], object]:
    """Write many lists, which take twenty times as much memory as in the file."""
    data = b"[" + b"[]," * ((1 << 21) // 3 - 4) + b"[]]"
    return lambda folder: min(folder.glob(name)).write_bytes(data)


def _text(name: str) -> list[str]:
    return ["train", f"{{}}/{name}", "{}/out", *TRAINING]


def bombs() -> list[Bomb]:
    """List all of them."""
    chunk = _zeros(4 << 30)
    far = "1 2147483646:1\n-1 1:1\n"
    return [
        Bomb("store, a chunk of 4 GiB of zeros", _put_chunk(chunk), _TRAIN),
        Bomb("store, a chunk of 256 MiB of zeros", _put_chunk(_zeros(256 << 20)), _PREDICT),
        Bomb("store, a shard with a hole", _stretch("data/y/c/0"), _TRAIN),
        Bomb("store, rows with a hole", _stretch("data/X/c/0/0"), _TRAIN),
        Bomb("store, attributes with a hole", _stretch("data/zarr.json"), _TRAIN),
        Bomb("store, metadata with a hole", _stretch("data/y/zarr.json"), _TRAIN),
        Bomb("text, xz with a dictionary of 4 GiB", _write("t.xz", _large_dictionary()),
             _text("t.xz")),
        Bomb("text, zstd with a window of 2 GiB", _write("t.zst", _wide_window()), _text("t.zst")),
        Bomb("text, gzip of one line of 1 GiB", _write("t.gz", _gzip_line()), _text("t.gz")),
        Bomb("text, one line of zeros", lambda folder: (
            (folder / "t").touch(), os.truncate(folder / "t", HOLE)), _text("t")),
        Bomb("text, an index of 2147483646", _write("t", far * 2), _text("t")),
        Bomb("model, with a hole", _stretch("model"), _INFO),
        Bomb("model, a shape of 2^60", _write("model", _safetensors([1 << 60])), _INFO),
        Bomb("model, a header of 2^40 bytes", _write("model", struct.pack("<Q", 1 << 40) + b"{}"),
             _PREDICT),
        Bomb("LIBSVM model, an index of 2147483646", _write("model", _libsvm_model(far)), _PREDICT),
        Bomb("LIBSVM model, described", _write("model", _libsvm_model(far)), _INFO),
        Bomb("LIBSVM model, 2^31 support vectors",
             _write("model", _libsvm_model(far, total=1 << 31, counts=f"{1 << 30} {1 << 30}")),
             _PREDICT),
        Bomb("LIBSVM model, 2^20 classes",
             _write("model", _libsvm_model(far, classes=1 << 20)), _PREDICT),
        Bomb("LIBSVM model, with a hole", lambda folder: (
            (folder / "model").write_text(_libsvm_model(far)),
            os.truncate(folder / "model", HOLE)), _PREDICT),
        Bomb("checkpoint, an array with a hole", _stretch("run/generation-*/alpha.bin"), _RESUME),
        Bomb("checkpoint, a manifest with a hole", _stretch("run/generation-*/manifest.json"),
             _RESUME),
        Bomb("checkpoint, a record with a hole", _stretch("run/run.json"), ["info", "{}/run"]),
        Bomb("checkpoint, a log of pairs with a hole", _stretch("pairs/pairs.log"), _PAIRS),
        Bomb("checkpoint, a log of pairs of zeros", lambda folder: (
            (folder / "pairs/pairs.log").write_bytes(b""),
            os.truncate(folder / "pairs/pairs.log", HOLE)), _PAIRS),
        Bomb("search, points with a hole", lambda folder: [
            os.truncate(path, HOLE) for path in (folder / "search/models").iterdir()], _SEARCH),
        Bomb("search, a point of 8 GiB that its header describes",
             lambda folder: _put_large(next((folder / "search/models").iterdir())), _SEARCH),
        Bomb("search, a result with a hole", _stretch("search/fits/*"), _SEARCH),
        Bomb("search, a result of nested lists", _write_first("search/fits/*"), _SEARCH),
        Bomb("search, a record with a hole", _stretch("search/selection.json"), _SEARCH),
        Bomb("foreign Zarr, a chunk of 4 GiB of zeros", _foreign(4 << 30),
             ["info", "{}/foreign"]),
    ]  # fmt: skip


def make(folder: Path) -> None:
    """Write the good files."""
    make_files(folder)
    # Rows of few whole numbers have kernels of their own, which compile in a hundred megabytes.
    (folder / "text").write_text("1 2:1 500:1\n-1 1:1 900:1\n" * 5)
    fresh(["train", folder / "text", folder / "out", *TRAINING])
    fresh(["export", folder / "out", folder / "exported", "--to", "libsvm"])
    for data, model in (("text", "exported"), ("data", "model")):
        fresh(["predict", folder / data, folder / model])
    for name in ("out", "exported", "text"):
        (folder / name).unlink()


def main(argv: Sequence[str]) -> int:
    """Print the table; the exit code says whether there is a fault."""
    parser = argparse.ArgumentParser(prog="reliability.py bombs", description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="words in the names of bombs")
    options = parser.parse_args(argv)
    faults = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "files"
        folder.mkdir()
        make(folder)
        chosen = bombs()
        width = max(len(bomb.name) for bomb in chosen)
        print(f"{'':{width}}  {'MB':>6}  answer")
        for bomb in chosen:
            if options.only and not any(word in bomb.name for word in options.only):
                continue
            with copied(folder) as copy:
                bomb.put(copy)
                ended = command(filled(bomb.command, copy), seconds=SECONDS)
            fault = ended.fault(memory=MEMORY_BYTES)
            faults += fault is not None
            last = ended.err.strip().splitlines()[-1:] if ended.code else ["read"]
            answer = f"FAULT: {fault}" if fault else "".join(last).replace(str(copy), "")
            print(f"{bomb.name:{width}}  {ended.peak / 1e6:6.0f}  {answer[:140]}", flush=True)
    return int(faults > 0)
