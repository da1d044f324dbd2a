"""LIBSVM text, ``label index:value …``, read in chunks of bounded size and parsed in threads.

What is read, what is refused:

* Values are finite decimal numbers, read as Python's `float` reads them. So are labels, or all of
  them are words that begin with a letter (`bigsvm.conversion.label_words`).
* Indices ascend strictly within a row, from 0 or 1 to 2**31 - 2.
* Tabs, trailing spaces, carriage returns, ``+1``, comments after ``#``, a byte order mark at the
  start and a missing newline at the end are fine.
* Empty lines and comments are skipped and counted; ``qid:3`` before the first entry is dropped and
  counted (groups mean nothing to a support vector machine). ``strict`` refuses all of these.
* Anything else is a `ParseError` with file, line and column, both counted from 1, columns in bytes.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigsvm.conversion.label_words import (
    ClassNames,
    Words,
    first_label,
    is_word,
    place_of_number,
    without_words,
)
from bigsvm.conversion.plain_text import PLAIN_BYTES, plain_rows
from bigsvm.conversion.streams import DECOMPRESSION_BYTES, ByteStream, Source, open_source
from bigsvm.conversion.text_rows import MAX_INDEX, TextCounts, TextRows
from bigsvm.core import text as core
from bigsvm.data.signatures import table_format
from bigsvm.errors import ParseError, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from bigsvm.core.text import TextFault

CHUNK_BYTES = 1 << 22
"""Text parsed at once by one thread: its arrays are too small for malloc to return their memory
to the system, which would fault pages in again for every chunk."""

MAX_LINE_BYTES = 64 << 20
"""A file without newlines is refused here, instead of being read into memory whole; it is room for
four million entries of 16 bytes in a row."""

_LINE_SHOWN = 1 << 16
"""Bytes of a wrong line, and of the next, that are examined to name the format."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_NO_INDEX = 2**62
# The smallest float64 that rounds to infinity as float32: the largest one and half a unit.
_FLOAT32_END = 2.0**128 - 2.0**103


class _Chunk(NamedTuple):
    """One chunk, parsed up to `problem`, which is at byte `offset` of `text`.

    There may be none. If labels are words, `words` has them.
    """

    rows: TextRows
    counts: TextCounts
    n_lines: int
    problem: TextFault | None
    offset: int
    text: bytes
    words: Words | None = None


def _fix_up(
    text: bytes | memoryview, fixups: NDArray[np.int64], rows: TextRows, largest: float
) -> tuple[TextFault | None, int]:
    """Read the numbers `core.parse` was not certain of; the first that is no float64, if any."""
    for start, end, place in fixups.tolist():
        word = bytes(text[start:end])
        value = float(word)
        if place < 0:
            if np.isinf(value):
                return core.TextFault.LABEL, start
            digits = word.lstrip(b"+-0")
            if digits.isdigit() and int(digits) != abs(value):
                return core.TextFault.LABEL_ROUNDED, start
            rows.labels[-1 - place] = value
        elif abs(value) >= largest:
            return core.TextFault.RANGE, start
        else:
            rows.values[place] = value
    return None, 0


def parse_chunk(
    text: bytes | memoryview,
    *,
    dtype: np.dtype[np.float32] | np.dtype[np.float64],
    smallest_index: int = 0,
    strict: bool = False,
    has_words: bool = False,
    plain_bytes: int = PLAIN_BYTES,
) -> _Chunk:
    """Parse whole lines; a problem is returned, not raised, as the line number is not known here.

    The text ends with a newline. `strict` refuses comments, empty lines and qid. `has_words` says
    whether labels are words. Compiled code is used for more text than `plain_bytes`, and for what
    `plain_rows` leaves to it.
    """
    original, words = text, None
    if has_words:
        text, words = without_words(text)
    largest = _FLOAT32_END if dtype == np.float32 else np.inf
    plain = None
    if len(text) <= plain_bytes:
        plain = plain_rows(
            bytes(text), dtype=dtype, smallest_index=smallest_index, largest=largest, strict=strict
        )
    if plain is None:
        chunk = _compiled(text, dtype, smallest_index, largest, strict=strict)
    else:
        n_lines = bytes(text).count(b"\n")
        chunk = _Chunk(*plain, n_lines=n_lines, problem=None, offset=0, text=b"")
    if words is not None and not chunk.problem and len(words.of_rows) < chunk.counts.rows:
        problem, offset = core.TextFault.LABEL_AMONG_WORDS, place_of_number(original)
        chunk = chunk._replace(problem=problem, offset=offset)
    return chunk._replace(text=bytes(original) if chunk.problem else b"", words=words)


def _compiled(
    text: bytes | memoryview,
    dtype: np.dtype[np.float32] | np.dtype[np.float64],
    smallest_index: int,
    largest: float,
    *,
    strict: bool,
) -> _Chunk:
    """Parse by compiled code; the text of the chunk is left out."""
    buffer, Count = np.frombuffer(text, np.uint8), core.Count
    n_lines, n_colons = core.count(buffer)
    labels = np.empty(n_lines)
    indptr = np.empty(n_lines + 1, np.int64)
    indptr[0] = 0
    indices = np.empty(n_colons, np.int32)
    values = np.empty(n_colons, dtype)
    fixups = np.empty((n_lines + n_colons, 3), np.int64)
    counts = np.zeros(len(Count), np.int64)
    counts[Count.SMALLEST_INDEX], counts[Count.LARGEST_INDEX] = _NO_INDEX, -1
    code, offset = core.parse(
        buffer,
        labels,
        indptr[1:],
        indices,
        values,
        fixups,
        counts,
        smallest_index,
        largest,
        int(strict),
    )
    problem = core.TextFault(code) or None
    n_rows, n_entries = int(counts[Count.ROWS]), int(counts[Count.ENTRIES])
    indptr = indptr[: n_rows + 1]
    np.cumsum(indptr, out=indptr)
    rows = TextRows(labels, indptr, indices, values)
    uncertain, where = _fix_up(text, fixups[: counts[Count.FIXUPS]], rows, largest)
    if uncertain:
        problem, offset = uncertain, where
    rows = TextRows(labels[:n_rows], indptr, indices[:n_entries], values[:n_entries])
    has_entries = counts[Count.LARGEST_INDEX] >= 0
    counted = TextCounts(
        rows=n_rows,
        entries=n_entries,
        empty_lines=int(counts[Count.EMPTY_LINES]),
        comments=int(counts[Count.COMMENTS]),
        qids=int(counts[Count.QIDS]),
        smallest_index=int(counts[Count.SMALLEST_INDEX]) if has_entries else None,
        largest_index=int(counts[Count.LARGEST_INDEX]) if has_entries else None,
    )
    return _Chunk(rows, counted, n_lines, problem, offset, b"")


def _describe(
    problem: TextFault, token: str, dtype: np.dtype[np.float32] | np.dtype[np.float64]
) -> str:
    """Say what is wrong with `token`, and what would be right."""
    shown = repr(shortened(token))
    # "1:nan" comes here as "nan" where the value is wrong, as a whole where the index is.
    number = token.lstrip("+-").lower()
    if "\0" in token:
        return f"NUL byte in {shown}; this is not text, or UTF-16: convert it to ASCII or UTF-8"
    match problem:
        case core.TextFault.LABEL if ":" in token:
            return f"no label before {shown}; every line starts with a number (0 if it is unknown)"
        case core.TextFault.LABEL if "," in token:
            return f"several labels, {shown}; multilabel data must be split into one file per label"
        case core.TextFault.LABEL if "\ufffd" in token:
            return f"label {shown} is not UTF-8; convert the text to UTF-8"
        case core.TextFault.LABEL_AMONG_WORDS:
            return (
                f"label {shown} does not begin with a letter, as labels before it do; write all "
                "labels as numbers, or all as words"
            )
        case core.TextFault.LABEL_ROUNDED:
            return (
                f"label {shown} is a whole number that float64 does not hold; renumber the labels, "
                "or write a target with a decimal point"
            )
        case core.TextFault.INDEX if token.startswith("-") or token.startswith("+"):
            return f"index {shown} has a sign; indices are whole numbers from 0 or 1, without sign"
        case core.TextFault.INDEX:
            return f"{shown} is not index:value with a whole number as index"
        case core.TextFault.INDEX_TOO_SMALL:
            return (
                f"index 0 in {shown}, but the indices were said to start at 1; use zero_based='yes'"
            )
        case core.TextFault.INDEX_TOO_LARGE:
            return f"index {shown} is beyond the limit {MAX_INDEX}; renumber or hash the features"
        case core.TextFault.ORDER:
            return (
                f"index of {shown} is not larger than the one before it; sort each line by index "
                "and remove duplicates"
            )
        case core.TextFault.VALUE if not token:
            return "no value after the colon; write index:value without spaces"
        case core.TextFault.RANGE:
            return f"value {shown} is too large for {dtype}; " + (
                "use dtype='float64', or rescale it" if dtype == np.float32 else "rescale it"
            )
        case core.TextFault.EMPTY_LINE:
            return "empty line, refused by strict; remove it"
        case core.TextFault.COMMENT:
            return "comment, refused by strict; remove it"
        case core.TextFault.QID if token.startswith("qid:") and token[4:].isdigit():
            return f"{shown} is refused by strict; remove it"
        case core.TextFault.QID:
            return f"{shown} is not qid: and a whole number; remove it"
    what = "label" if problem is core.TextFault.LABEL else "value"
    if number in {"nan", "inf", "infinity"} or (
        problem is core.TextFault.LABEL and _is_number(token)
    ):
        return f"{what} {shown} is not finite; remove the row, or put a number in its place"
    if number.startswith("0x"):
        return f"{what} {shown} is hexadecimal; write it as a decimal number"
    hint = (
        "; write all labels as numbers, or all as words that begin with a letter"
        if problem is core.TextFault.LABEL
        else "; write a decimal number"
    )
    return f"{what} {shown} is not a number{hint}"


def _is_number(token: str) -> bool:
    try:
        float(token)
    except ValueError:
        return False
    return True


@dataclass(eq=False)
class LibsvmReader:
    """Iterate over the rows of several sources, as one data set, chunk by chunk.

    Sources that cannot be opened, decompressed or parsed are found while iterating.

    Parameters
    ----------
    sources : sequence of paths
        "-" is standard input; gzip, bzip2, xz and zstd are decompressed.
    smallest_index : int
        0, or 1 to refuse index 0.
    strict : bool
        Refuse comments, empty lines, qid and a missing newline at the end of a source.
    threads : int
        Threads that parse; reading and decompressing take place in the calling one.
    chunk_bytes : int
        Text parsed at once by a thread. At most ``threads + 2`` chunks exist at a time, each with
        arrays of at most nine times its size (three times, where rows have a few entries).
    max_line_bytes : int
        Longer lines are refused.
    decompression_bytes : int
        Memory that decompression may take.

    Attributes
    ----------
    counts : TextCounts
        What the chunks handed out so far contain.
    class_names : ClassNames
        Words that were labels; these are numbered as they come.
    """

    sources: Sequence[Source]
    _: KW_ONLY
    dtype: np.dtype[np.float32] | np.dtype[np.float64]
    smallest_index: int = 0
    strict: bool = False
    threads: int = 2
    chunk_bytes: int = CHUNK_BYTES
    max_line_bytes: int = MAX_LINE_BYTES
    decompression_bytes: int = DECOMPRESSION_BYTES
    counts: TextCounts = field(default_factory=TextCounts, init=False)
    class_names: ClassNames = field(default_factory=ClassNames, init=False)
    _has_words: bool | None = field(default=None, init=False)  # the first row decides
    _plain_bytes: int = field(default=PLAIN_BYTES, init=False)  # what may still be read as such

    def __post_init__(self) -> None:
        self.chunk_bytes = min(self.chunk_bytes, self.max_line_bytes)

    def __iter__(self) -> Iterator[TextRows]:
        with ThreadPoolExecutor(self.threads, thread_name_prefix="bigsvm-parse") as pool:
            for source in self.sources:
                yield from self._rows_of(source, pool)

    def _rows_of(self, source: Source, pool: ThreadPoolExecutor) -> Iterator[TextRows]:
        pending: deque[tuple[bytearray, Future[_Chunk]]] = deque()
        free: list[bytearray] = []
        line = 0
        taken_before = self.counts.bytes_read

        def parsed(name: str, most: int) -> Iterator[TextRows]:
            """Rows of the oldest chunks, until `most` are left."""
            nonlocal line
            while len(pending) > most:
                buffer, job = pending.popleft()
                chunk = self._checked(job.result(), name, line)
                free.append(buffer)
                line += chunk.n_lines
                yield chunk.rows

        with open_source(source, memory_bytes=self.decompression_bytes) as stream:
            for buffer, n_bytes in self._cut(stream, free):
                self.counts.bytes_read = taken_before + stream.position()
                if self._has_words is None:
                    label = first_label(memoryview(buffer)[:n_bytes])
                    self._has_words = None if label is None else is_word(label)
                job = pool.submit(
                    parse_chunk,
                    memoryview(buffer)[:n_bytes],
                    dtype=self.dtype,
                    smallest_index=self.smallest_index,
                    strict=self.strict,
                    has_words=bool(self._has_words),
                    plain_bytes=self._plain_bytes,
                )
                self._plain_bytes = max(0, self._plain_bytes - n_bytes)
                pending.append((buffer, job))
                yield from parsed(stream.name, self.threads)
            yield from parsed(stream.name, 0)

    def _cut(self, stream: ByteStream, free: list[bytearray]) -> Iterator[tuple[bytearray, int]]:
        """Chunks of whole lines, each ending with a newline: the first bytes of buffers.

        `free` has buffers that may be filled again.
        """
        mark = memoryview(bytearray(len(_BYTE_ORDER_MARK)))
        rest = bytes(mark[: stream.readinto(mark)]).removeprefix(_BYTE_ORDER_MARK)
        buffer = self._buffer(rest, free)
        held, line = len(rest), 1
        while n := stream.readinto(memoryview(buffer)[held : held + self.chunk_bytes]):
            stop = held + n
            first = buffer.find(b"\n", held, stop) + 1 or stop
            if first - 1 > self.max_line_bytes:
                raise ParseError(
                    f"{stream.name}:{line}:1: line longer than {self.max_line_bytes} bytes; this "
                    "is not LIBSVM text, its lines do not end with a newline, or they need more "
                    "memory"
                )
            end = buffer.rfind(b"\n", held, stop) + 1
            full, held = buffer, stop - end
            buffer = self._buffer(memoryview(full)[end:stop], free)
            if end:
                line += full.count(b"\n", 0, end)
                yield full, end
        if held and buffer[held - 1] != ord("\n"):
            if self.strict:
                raise ParseError(
                    f"{stream.name}:{line}:{held + 1}: no newline at the end, refused by "
                    "strict; the file may be cut off"
                )
            buffer[held] = ord("\n")
            held += 1
        if held:
            yield buffer, held

    def _buffer(self, held: bytes | memoryview, free: list[bytearray]) -> bytearray:
        """Buffer that begins with `held`, and has room for a chunk and a newline behind it."""
        size = len(held) + self.chunk_bytes + 1
        buffer = free.pop() if free else bytearray(size)
        if len(buffer) < size:
            buffer = bytearray(size)
        buffer[: len(held)] = held
        return buffer

    def _checked(self, chunk: _Chunk, name: str, lines_before: int) -> _Chunk:
        """Count the chunk, or raise its problem as an error that says where it is."""
        if not chunk.problem:
            self.counts.add(chunk.counts)
            if chunk.words is None:
                return chunk
            labels = self.class_names.numbers(chunk.words, name)
            return chunk._replace(rows=chunk.rows._replace(labels=labels))
        text, offset = chunk.text, chunk.offset
        line = lines_before + text.count(b"\n", 0, offset) + 1
        column = offset - (text.rfind(b"\n", 0, offset) + 1) + 1
        rest = text[offset : offset + 200].split(b"\n", 1)[0]
        # Nothing at all stands where a value is missing.
        token = b"" if rest[:1].isspace() else (rest.split(maxsplit=1) or [b""])[0]
        what = None
        if chunk.problem in (core.TextFault.LABEL, core.TextFault.INDEX):
            start = offset - (column - 1)
            whole = text[start : start + _LINE_SHOWN].split(b"\n", 2)
            what = table_format(whole[0], whole[1] if len(whole) > 1 else b"")
        what = what or _describe(chunk.problem, token.decode("utf-8", "replace"), self.dtype)
        raise ParseError(f"{name}:{line}:{column}: {what}")
