"""Streams of bytes from files, URLs and standard input, decompressed by their first bytes."""

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
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import zstandard

from bigsvm.data.signatures import HEAD_BYTES, compression, other_format
from bigsvm.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Buffer

Source: TypeAlias = "str | os.PathLike[str]"
"""A path, a URL that fsspec opens, or "-" for standard input."""

STANDARD_INPUT = "-"
LIBSVM = "LIBSVM text"

DECOMPRESSION_BYTES = 128 << 20
"""Default memory limit of decompression in bytes: the default of the `zstd` program."""
_LARGEST_WINDOW = 1 << 31
"""Largest window of zstd in bytes on 64-bit machines; its library refuses a larger limit."""

_ZSTD_PIECE = 1 << 9
"""Bytes that are decompressed together: four can stand for a block of 128 KiB, all for 16 MiB."""
_BUFFER_BYTES = 1 << 20
_WAIT_SECONDS = 0.25

_DAMAGE = (EOFError, OSError, zlib.error, lzma.LZMAError, zstandard.ZstdError)


class _Pieces(io.RawIOBase):
    """The bytes that an iterator yields, piece by piece."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest = pieces, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        target = memoryview(buffer).cast("B")
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        n = min(len(target), len(self._rest))
        target[:n], self._rest = self._rest[:n], self._rest[n:]
        return n


def _zstd_pieces(raw: IO[bytes], memory_bytes: int) -> Iterator[bytes]:
    """Decompress a zstd file: all of its frames, and an error where it is cut off.

    `zstandard`'s own reader ends at the first frame unless told otherwise, and takes a truncated
    file for a short one.
    """
    frame: zstandard.ZstdDecompressionObj | None = None
    while stored := memoryview(raw.read(1 << 17)):
        while stored:
            if frame is None:
                most = min(memory_bytes, _LARGEST_WINDOW)
                frame = zstandard.ZstdDecompressor(max_window_size=most).decompressobj()
            piece = stored[:_ZSTD_PIECE]
            yield frame.decompress(piece)
            stored = stored[len(piece) - len(frame.unused_data) :]
            if frame.eof:
                frame = None
    if frame is not None:
        raise EOFError("the last zstd frame is incomplete")


def _xz_pieces(raw: IO[bytes], memory_bytes: int) -> Iterator[bytes]:
    """Decompress an xz or lzma file: all of its streams, within a limit of memory.

    `lzma.LZMAFile` has no limit: a file of a few bytes can ask for a dictionary of 4 GiB.
    """
    rest = b""
    while True:
        # The format allows padding with zeros between and after streams.
        while not (rest := rest.lstrip(b"\0")):
            rest = raw.read(1 << 16)
            if not rest:
                return
        stream = lzma.LZMADecompressor(memlimit=memory_bytes)
        while not stream.eof:
            if stream.needs_input and not rest:
                rest = raw.read(1 << 16)
                if not rest:
                    raise EOFError("the last xz stream is incomplete")
            yield stream.decompress(rest, _BUFFER_BYTES)
            rest = b""
        rest = stream.unused_data


class _Continued(io.RawIOBase):
    """A stream whose first bytes have already been read."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        self._head, self._rest = memoryview(head), rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        target = memoryview(buffer).cast("B")
        if not self._head:
            return self._rest.readinto(target)  # type: ignore[attr-defined,no-any-return]
        piece = self._head[: len(target)]
        self._head = self._head[len(target) :]
        target[: len(piece)] = piece
        return len(piece)


def _remote_pieces(file: IO[bytes]) -> Iterator[bytes]:
    """Read a file that fsspec opened, whose file systems have errors of their own, as OSError."""
    while True:
        try:
            piece = file.read(_BUFFER_BYTES)
        except OSError:
            raise
        except Exception as error:
            raise OSError(str(error) or type(error).__name__) from error
        if not piece:
            return
        yield piece


def _awaited_pieces(fd: int) -> Iterator[bytes]:
    """Read a file descriptor when there is something to read; it stays open.

    A signal that comes just before a read starts to wait is handled only after the read, which may
    never end if the file is a pipe. Therefore each wait ends after a short time.
    """
    while True:
        while not select.select([fd], [], [], _WAIT_SECONDS)[0]:
            pass
        piece = os.read(fd, _BUFFER_BYTES)
        if not piece:
            return
        yield piece


def _standard_input() -> IO[bytes]:
    try:
        fd = sys.stdin.fileno()
    except (OSError, ValueError):  # something else has taken its place
        return sys.stdin.buffer
    return _buffered(_awaited_pieces(fd))


def _buffered(pieces: Iterator[bytes]) -> IO[bytes]:
    return io.BufferedReader(_Pieces(pieces), _BUFFER_BYTES)


class ByteStream:
    """Bytes of one source, decompressed, with errors that name it.

    `size` is its bytes as stored, before decompression; None where that is unknown.
    """

    def __init__(
        self,
        name: str,
        *,
        raw: IO[bytes],
        memory_bytes: int = DECOMPRESSION_BYTES,
        size: int | None = None,
        kind: str = LIBSVM,
    ) -> None:
        self.name = name
        self.size = size
        self._memory_bytes = memory_bytes
        self._raw = raw
        self._text = _text_of(name, raw, memory_bytes, kind)
        self._n_read = 0

    def readinto(self, target: memoryview) -> int:
        """Fill `target`; the number of bytes, fewer than it has only at the end."""
        n = 0
        try:
            while n < len(target):
                more = self._text.readinto(target[n:])  # type: ignore[attr-defined]
                if not more:
                    break
                n += more
        except _DAMAGE as error:
            raise _damaged(self.name, error, self._memory_bytes) from error
        self._n_read += n
        return n

    def position(self) -> int:
        """Bytes of the source taken so far: stored bytes where `size` is known, else text."""
        return self._n_read if self.size is None else self._raw.tell()


def _head_of(stream: IO[bytes]) -> bytes:
    """Read the first bytes; a pipe may give them in pieces."""
    head = b""
    while len(head) < HEAD_BYTES and (piece := stream.read(HEAD_BYTES - len(head))):
        head += piece
    return head


def _decompress(kind: str | None, raw: IO[bytes], memory_bytes: int) -> IO[bytes]:
    """`raw` itself, or a stream that decompresses it."""
    match kind:
        case "gzip":
            return gzip.GzipFile(fileobj=raw, mode="rb")  # type: ignore[return-value]
        case "bzip2":
            return bz2.BZ2File(raw, "rb")
        case "xz" | "lzma":
            return _buffered(_xz_pieces(raw, memory_bytes))
        case "zstd":
            return _buffered(_zstd_pieces(raw, memory_bytes))
    return raw


def _text_of(name: str, raw: IO[bytes], memory_bytes: int, expected: str) -> IO[bytes]:
    """Bytes of the text in `raw`, decompressed; refuses what is damaged or no text."""
    try:
        head = _head_of(raw)
        kind = compression(head)
        text = _decompress(kind, io.BufferedReader(_Continued(head, raw), 1 << 16), memory_bytes)
        if kind is not None:
            head = _head_of(text)
            text = io.BufferedReader(_Continued(head, text), _BUFFER_BYTES)
    except _DAMAGE as error:
        raise _damaged(name, error, memory_bytes) from error
    if kind is not None and (inner := compression(head)) is not None:
        raise DataError(f"{name}: it is compressed twice, {inner} in {kind}; decompress it once")
    other = other_format(head)
    if other is not None:
        what, remedy = other
        packed = "" if kind is None else f" compressed with {kind}"
        raise DataError(f"{name}: this is {what}{packed}, not {expected}; {remedy}")
    return text


def _damaged(name: str, error: Exception, memory_bytes: int) -> DataError:
    # Neither module has a type for it; "Memory usage limit exceeded", "Frame requires too much
    # memory for decoding".
    if isinstance(error, lzma.LZMAError | zstandard.ZstdError) and "emory" in str(error):
        return DataError(
            f"{name}: decompressing it takes more than {memory_bytes} bytes; give more memory, or "
            "compress it with a smaller dictionary (xz -6, zstd without --long)"
        )
    return DataError(
        f"{name}: cannot be read to its end ({error or type(error).__name__}); the file is damaged "
        "or cut off: fetch it again"
    )


def source_name(source: Source) -> str:
    """Name of a source without its directories."""
    text = os.fspath(source)
    return "standard input" if text == STANDARD_INPUT else PurePath(text).name


def source_size(source: Source) -> int | None:
    """Bytes of a local file, or None where that is unknown."""
    path = Path(source)
    try:
        return path.stat().st_size if path.is_file() else None
    except OSError as error:
        raise _unreadable(os.fspath(source), error) from error


def _unreadable(name: str, error: Exception) -> DataError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    remedy = "" if isinstance(error, ImportError) else "; check the path"  # says what to install
    return DataError(f"{name}: cannot be opened ({reason}){remedy}")


def is_compressed(path: Path) -> bool:
    """Whether a local file is compressed, as far as it can be read."""
    try:
        with path.open("rb") as file:
            return compression(file.read(HEAD_BYTES)) is not None
    except OSError:
        return False


def _open_url(url: str) -> Any:
    # Few need it.
    import fsspec

    return fsspec.open(url, "rb")


@contextmanager
def open_bytes(source: Source) -> Iterator[IO[bytes]]:
    """Open a file or a URL as it is stored; its bytes can be read in any order."""
    text = os.fspath(source)
    try:
        # Kept while its file is read: a file in an archive is closed with it.
        place = _open_url(text) if "://" in text else None
        file: Any = Path(text).open("rb") if place is None else place.open()
    except (OSError, ValueError, ImportError) as error:
        raise _unreadable(text, error) from error
    except Exception as error:
        # fsspec's file systems have their own errors, and raise TypeError if a URL is incomplete.
        if "://" not in text:
            raise
        raise _unreadable(text, error) from error
    with file:
        yield file


@contextmanager
def open_source(
    source: Source, *, memory_bytes: int = DECOMPRESSION_BYTES, kind: str = LIBSVM
) -> Iterator[ByteStream]:
    """Open a source for reading; standard input stays open afterwards.

    `memory_bytes` is what decompression may take. Messages call the text that is expected `kind`.
    """
    text = os.fspath(source)
    if text == STANDARD_INPUT:
        stream = _standard_input()
        yield ByteStream("standard input", raw=stream, memory_bytes=memory_bytes, kind=kind)
        return
    size = source_size(text)
    with open_bytes(text) as file:
        raw: Any = _Pieces(_remote_pieces(file)) if "://" in text else file
        yield ByteStream(text, raw=raw, memory_bytes=memory_bytes, size=size, kind=kind)
