"""Sources of text as streams of bytes: files, standard input, decompressed by their extension."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import select
import sys
import zlib
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import IO, TYPE_CHECKING, TypeAlias

import fsspec
import zstandard

from bigsvm.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Buffer

Source: TypeAlias = "str | os.PathLike[str]"
"""A path, a URL that fsspec opens, or "-" for standard input."""

STANDARD_INPUT = "-"

_DAMAGE = (EOFError, OSError, zlib.error, lzma.LZMAError, zstandard.ZstdError)


class _ZstdStream(io.RawIOBase):
    """Decompressed bytes of a zstd file: all of its frames, and an error where it is cut off.

    `zstandard`'s own reader ends at the first frame unless told otherwise, and takes a truncated
    file for a short one.
    """

    # Four bytes can stand for a block of 128 KiB: a piece becomes 16 MiB at most.
    _PIECE = 1 << 9
    _READ = 1 << 17

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._compressed = memoryview(b"")
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        target = memoryview(buffer).cast("B")
        while not self._ready:
            self._compressed = self._compressed or memoryview(self._raw.read(self._READ))
            if not self._compressed:
                if self._frame is not None:
                    raise EOFError("the last zstd frame is incomplete")
                return 0
            if self._frame is None:
                self._frame = zstandard.ZstdDecompressor().decompressobj()
            piece = self._compressed[: self._PIECE]
            self._ready = memoryview(self._frame.decompress(piece))
            taken = len(piece) - len(self._frame.unused_data)
            self._compressed = self._compressed[taken:]
            if self._frame.eof:
                self._frame = None
        n = min(len(target), len(self._ready))
        target[:n] = self._ready[:n]
        self._ready = self._ready[n:]
        return n


class _Awaited(io.RawIOBase):
    """A file descriptor, read when there is something to read; it stays open.

    A signal that comes just before a read begins to wait is noticed by nobody until something has
    been read, which of a pipe may be never. Waiting ends now and then instead.
    """

    _SECONDS = 0.25

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        while not select.select([self._fd], [], [], self._SECONDS)[0]:
            pass
        target = memoryview(buffer).cast("B")
        piece = os.read(self._fd, len(target))
        target[: len(piece)] = piece
        return len(piece)


def _standard_input() -> IO[bytes]:
    try:
        fd = sys.stdin.fileno()
    except (OSError, ValueError):  # something else has taken its place
        return sys.stdin.buffer
    return io.BufferedReader(_Awaited(fd), 1 << 20)


class ByteStream:
    """Bytes of one source, decompressed, with errors that name it.

    Attributes
    ----------
    name : str
        What to call the source in messages.
    size : int or None
        Bytes of the source as stored (before decompression), None where unknown.
    """

    def __init__(
        self, name: str, *, raw: IO[bytes], text: IO[bytes], size: int | None = None
    ) -> None:
        self.name = name
        self.size = size
        self._raw = raw
        self._text = text
        self._n_read = 0

    def read(self, n_bytes: int) -> bytes:
        """Return `n_bytes` bytes, fewer only at the end.

        Raises
        ------
        DataError
            If the source cannot be read or decompressed.
        """
        pieces: list[bytes] = []
        missing = n_bytes
        try:
            while missing:
                piece = self._text.read(missing)
                if not piece:
                    break
                pieces.append(piece)
                missing -= len(piece)
        except _DAMAGE as error:
            raise DataError(
                f"{self.name}: cannot be read to its end ({error or type(error).__name__}); the "
                "file is damaged or cut off: fetch it again"
            ) from error
        self._n_read += n_bytes - missing
        return b"".join(pieces)

    def position(self) -> int:
        """Bytes of the source taken so far: stored bytes where `size` is known, else text."""
        return self._n_read if self.size is None else self._raw.tell()


def _decompress(name: str, raw: IO[bytes]) -> IO[bytes]:
    """`raw` itself, or the decompressor that the extension of `name` asks for."""
    match PurePath(name).suffix.lower():
        case ".gz":
            return gzip.GzipFile(fileobj=raw, mode="rb")  # type: ignore[return-value]
        case ".bz2":
            return bz2.BZ2File(raw, "rb")
        case ".xz":
            return lzma.LZMAFile(raw, "rb")
        case ".zst":
            return io.BufferedReader(_ZstdStream(raw), 1 << 20)
    return raw


def source_name(source: Source) -> str:
    """Name of a source without its directories."""
    text = os.fspath(source)
    return "standard input" if text == STANDARD_INPUT else PurePath(text).name


def source_size(source: Source) -> int | None:
    """Bytes of a local file, or None where that is unknown.

    Raises
    ------
    DataError
        If it may not be looked at.
    """
    path = Path(source)
    try:
        return path.stat().st_size if path.is_file() else None
    except OSError as error:
        raise _unreadable(os.fspath(source), error) from error


def _unreadable(name: str, error: Exception) -> DataError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    remedy = "" if isinstance(error, ImportError) else "; check the path"  # says what to install
    return DataError(f"{name}: cannot be opened ({reason}){remedy}")


def is_compressed(source: Source) -> bool:
    """Whether the extension of `source` names a compression."""
    return PurePath(source).suffix.lower() in {".gz", ".bz2", ".xz", ".zst"}


@contextmanager
def open_source(source: Source) -> Iterator[ByteStream]:
    """Open a source for reading; standard input stays open afterwards.

    Raises
    ------
    DataError
        If there is nothing that can be read.
    """
    text = os.fspath(source)
    if text == STANDARD_INPUT:
        stream = _standard_input()
        yield ByteStream("standard input", raw=stream, text=stream)
        return
    size = source_size(text)
    try:
        raw = fsspec.open(text, "rb").open() if "://" in text else Path(text).open("rb")
    except (OSError, ValueError, ImportError) as error:
        raise _unreadable(text, error) from error
    with raw:
        yield ByteStream(text, raw=raw, text=_decompress(text, raw), size=size)
