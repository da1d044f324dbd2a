"""Tables that Arrow reads: Parquet, Feather and Arrow files, CSV with a header, lazy frames.

Rows come in record batches, whose columns are made numbers here: booleans, whole numbers, floats
and decimals. Words are labels, or become one-hot columns. The library is pyarrow, an extra.
"""

from __future__ import annotations

import re
from contextlib import ExitStack, contextmanager, nullcontext
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bigsvm.conversion.batches import Batch, Batches
from bigsvm.conversion.columns import listed, missing_values
from bigsvm.conversion.encoder import encoded, kinds_of, learned
from bigsvm.conversion.parts import files_of
from bigsvm.conversion.streams import open_bytes, open_source, source_size
from bigsvm.data.frames import arrow_values, is_pandas
from bigsvm.data.rows import is_instance
from bigsvm.data.signatures import HEAD_BYTES, separator_of
from bigsvm.encoding import names_of_x
from bigsvm.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bigsvm.conversion.columns import Columns
    from bigsvm.conversion.streams import ByteStream, Source
    from bigsvm.encoding import Encoding

MOST_ROWS = 1 << 16
"""Most rows of a batch: larger ones are not read faster."""
MOST_CSV_BLOCK = 4 << 20
"""Most bytes of CSV that are parsed together."""
ROW_GROUP_SHARE = 0.25
"""Share of the memory that a row group of Parquet may take."""
PAGE_BYTES = 4 << 20
"""Bytes that a column takes while it is decoded page by page: a dictionary, a page, and copies."""
PARQUET_BUFFER = 1 << 16
"""Bytes of a column that are read together."""
PARQUET, ARROW, STREAM = b"PAR1", b"ARROW1", b"\xff\xff\xff\xff"
OWN_HEADS = (PARQUET, ARROW, STREAM)
"""First bytes of formats other than CSV."""


def check_library() -> None:
    """Refuse to go on without pyarrow."""
    try:
        import pyarrow  # noqa: F401 (whether it is there)
    except ImportError as error:
        raise DataError(
            f"tables are read by pyarrow ({error}); pip install 'bigsvm[tables]'"
        ) from None


class Part(NamedTuple):
    """One file, or all of a lazy table; `name` is what messages call it.

    `batches` takes names of columns and a number of rows, and gives record batches of these
    columns.
    """

    name: str
    schema: Any
    batches: Callable[[list[str], int], Iterator[Any]]


class ArrowBatches(Batches):
    """Rows of some parts, whose columns have the same names.

    Each callable in `parts` opens a part; it is a context manager. All parts have the columns of
    the first one, which is checked at once. `size` is the bytes of all parts as stored. `once` says
    that they can be read once only.
    """

    def __init__(
        self,
        parts: Sequence[Callable[[], Any]],
        asked: Columns,
        *,
        size: int | None = None,
        once: bool = False,
    ) -> None:
        self._parts, self.size, self.weighted = parts, size, asked.weight is not None
        self._takes_all = asked.features is None
        self._first = ExitStack()
        part = self._first.enter_context(parts[0]())
        self.name = part.name
        self._columns = asked.of(part.schema.names, part.name)
        self.feature_names = self._features = self._columns.features or ()
        self._words, self.dtype = kinds_of(part.schema, self._columns, part.name)
        self._opened: Part | None = part
        self.n_columns = len(self._features)
        if once and asked.encode.is_asked and asked.encoding is None:
            raise DataError(
                f"{self.name}: categories and missing take a pass of their own, and this is read "
                "once only; write it to a file first"
            )
        if asked.encoding is not None:
            self._encode_by(asked.encoding)

    def prepare(self, budget: int, report: Callable[[], None]) -> None:
        """Learn the categories, and what missing values become."""
        if not self._columns.encode.is_asked or self.encoding is not None:
            return

        def tables(names: Sequence[str]) -> Iterator[Any]:
            for _, table, _ in self._tables(names, budget // 8, len(names)):
                report()
                yield table

        encoding, n_rows = learned(tables, self._columns, self._words, self.name, budget)
        if encoding is not None:
            self._encode_by(encoding)
            # Of words and indicators most columns are 0.
            width = 2 * len(self._features) if self.is_sparse else self.n_columns
            self.size = n_rows * width * (self.dtype.itemsize + 4)

    def _encode_by(self, encoding: Encoding) -> None:
        self.encoding, self.feature_names = encoding, names_of_x(encoding)
        self.n_columns, self.is_sparse = len(self.feature_names), bool(encoding["categories"])

    def batches(self, memory: int) -> Iterator[Batch]:
        """Yield record batches of all parts, as numbers."""
        names, last, first = [*self._features, *self._columns.beside], None, 0
        for part, table, following in self._tables(names, memory, self.n_columns):
            first = first if part is last else 0  # rows of a file are counted from its own first
            yield self._batch(part, table, first, following)
            last, first = part, first + table.num_rows

    def _tables(
        self, names: Sequence[str], memory: int, n_columns: int
    ) -> Iterator[tuple[Part, Any, Iterator[Any]]]:
        """Yield the parts with their record batches, and those that follow in the part.

        A batch of `n_columns` columns of float64 takes half of the memory at most.
        """
        import pyarrow

        most = memory // (2 * 8 * max(n_columns, len(names)))
        rows = max(1, min(MOST_ROWS, most))
        for open_part in self._parts:
            with self._first if self._opened is not None else ExitStack() as stack:
                part = self._opened or stack.enter_context(open_part())
                if self._opened is None:
                    self._check_like_first(part)
                self._opened = None
                batches = read(part, part.batches(list(names), rows))
                for table in batches:
                    yield part, table, batches
                    del table
            # What Arrow has freed, it keeps for itself unless it is asked.
            pyarrow.default_memory_pool().release_unused()

    def _check_like_first(self, part: Part) -> None:
        self._columns.of(part.schema.names, part.name)
        if self._takes_all:
            self._columns.check_only(part.schema.names, part.name, self.name)
        words, dtype = kinds_of(part.schema, self._columns, part.name)
        if words != self._words:
            raise DataError(
                f"{part.name}: {listed(sorted(words ^ self._words))} holds words here or in "
                f"{self.name}, and numbers in the other; write both with the same types"
            )
        if dtype.itemsize > self.dtype.itemsize:
            raise DataError(
                f"{part.name}: has values of {dtype}, but {self.name} of {self.dtype}; write both "
                "with the same types"
            )

    def _batch(self, part: Part, table: Any, first: int, following: Iterator[Any]) -> Batch:
        features = table.select(list(self._features))
        fills = self.encoding is not None and self.encoding["fills"] is not None
        if not fills and any(column.null_count for column in features.columns):
            raise self._missing(part, features, following)
        beside = [
            _beside(table.column(name), name, part.name, first) for name in self._columns.beside
        ]
        y = beside[0] if self._columns.label is not None else None
        if self.encoding is None:
            values = arrow_values(features, self.dtype)
        else:
            values = encoded(self.encoding, features, self.dtype, part.name, first)
        if self.is_sparse:
            values = sp.csr_array(values)
        return Batch(values, y, beside[-1] if self.weighted else None)

    def _missing(self, part: Part, table: Any, following: Iterator[Any]) -> DataError:
        """Say which columns of a part have missing values, and how many, from a batch on."""
        counts = dict.fromkeys(self._features, 0)
        n_rows = 0
        while table is not None:
            n_rows += table.num_rows
            for name in counts:
                counts[name] += table.column(name).null_count
            table = next(following, None)
        return missing_values(counts, part.name, learned=self._columns.encoding is not None)


def _beside(column: Any, name: str, where: str, first: int) -> Any:
    """Labels or weights of a record batch, as an array of numbers or of words."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if column.null_count:
        row = first + column.is_null().to_pylist().index(True)
        raise DataError(
            f"{where}: column {name!r} has no value in row {row} (from 0); remove the row"
        )
    kind = column.type
    if pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
    elif pa.types.is_temporal(kind) or pa.types.is_nested(kind):
        raise DataError(
            f"{where}: column {name!r} holds {kind}; labels and weights must be numbers or words"
        )
    return column.to_numpy(zero_copy_only=False)


def read(part: Part, batches: Iterator[Any]) -> Iterator[Any]:
    """Yield the batches of a part, with Arrow's errors as ours."""
    import pyarrow as pa

    while True:
        try:
            batch = next(batches, None)
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(part.name, error) from error
        if batch is None:
            return
        yield batch


def _unreadable(name: str, error: Exception, *, lines_before: int = 0) -> DataError:
    """Say why a file cannot be read; Arrow counts the rows after the lines before."""
    text = " ".join(str(error).split())
    text = re.sub(r"(?<=Row #)\d+", lambda row: str(int(row[0]) + lines_before), text)
    return DataError(f"{name}: cannot be read ({text}); check the file, or fetch it again")


# -- files -------------------------------------------------------------------------------------


def files(sources: Sequence[Source], asked: Columns, *, memory: int) -> ArrowBatches:
    """Open files of one data set: Parquet, Feather or Arrow, and CSV, each by its first bytes.

    Sources are files, folders, patterns and URLs of fsspec; "-" is CSV from standard input. CSV may
    be compressed.
    """
    check_library()
    found = files_of(sources)
    sizes = [source_size(source) for source in found]
    size = None if None in sizes else sum(size or 0 for size in sizes)
    parts = [_Opener(source, asked, memory) for source in found]
    return ArrowBatches(parts, asked, size=size, once="-" in map(str, found))


class _Opener:
    """Opens a file when it is its turn."""

    def __init__(self, source: Source, asked: Columns, memory: int) -> None:
        self._source, self._asked, self._memory = source, asked, memory

    @contextmanager
    def __call__(self) -> Iterator[Part]:
        import pyarrow as pa

        name = str(self._source)
        if name == "-":
            with self._csv(name) as part:
                yield part
            return
        with open_bytes(name) as file:
            head = file.read(HEAD_BYTES)
            file.seek(0)
            try:
                if head.startswith(PARQUET):
                    yield _parquet(name, file, self._asked, memory=self._memory)
                    return
                if head.startswith((ARROW, STREAM)):
                    yield _ipc(name, file, is_stream=head.startswith(STREAM))
                    return
            except (pa.ArrowException, OSError) as error:
                raise _unreadable(name, error) from error
        with self._csv(name) as part:
            yield part

    @contextmanager
    def _csv(self, name: str) -> Iterator[Part]:
        block = max(1 << 16, min(MOST_CSV_BLOCK, self._memory // 64))
        with (
            open_source(name, memory_bytes=self._memory // 2, kind="CSV") as stream,
            _csv(stream, self._asked, block=block) as part,
        ):
            yield part


def _parquet(name: str, file: IO[bytes], asked: Columns, *, memory: int) -> Part:
    """Open Parquet, whose row groups are read in parts that fit in a share of the memory.

    A column of a row group is decoded whole, and some of its rows are kept: a row group that is
    larger than the share is decoded once for each part. Few columns are decoded page by page.
    Words that become columns are read as dictionaries, which do not repeat them.
    """
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    opened = ParquetFile(file, buffer_size=PARQUET_BUFFER, pre_buffer=False)
    schema = opened.schema_arrow
    if asked.encode.is_asked or asked.encoding is not None:
        words = [name for name in schema.names if name not in asked.beside]
        opened = ParquetFile(
            file, buffer_size=PARQUET_BUFFER, pre_buffer=False, read_dictionary=words
        )

    def batches(columns: list[str], rows: int) -> Iterator[Any]:
        share = int(memory * ROW_GROUP_SHARE)
        for i in range(opened.num_row_groups):
            n_rows = opened.metadata.row_group(i).num_rows
            if 8 * n_rows * len(columns) > share >= PAGE_BYTES * len(columns):
                yield from opened.iter_batches(
                    batch_size=rows, row_groups=[i], columns=columns, use_threads=False
                )
                continue
            step = max(1, min(n_rows, share // (8 * len(columns))))
            for start in range(0, n_rows, step):
                part = np.arange(start, min(start + step, n_rows))
                # Taken, as a slice would keep the whole column.
                read = [opened.read_row_group(i, [c]).column(0).take(part) for c in columns]
                yield from pa.table(read, names=columns).to_batches(max_chunksize=rows)

    return Part(name, schema, batches)


def _ipc(name: str, file: IO[bytes], *, is_stream: bool) -> Part:
    from pyarrow import ipc

    opened = ipc.open_stream(file) if is_stream else ipc.open_file(file)

    def batches(columns: list[str], rows: int) -> Iterator[Any]:
        whole = opened if is_stream else map(opened.get_batch, range(opened.num_record_batches))
        for batch in whole:
            yield from sliced(batch.select(columns), rows)

    return Part(name, opened.schema, batches)


def sliced(batch: Any, rows: int) -> Iterator[Any]:
    """Yield a record batch, or a table, in parts of at most so many rows."""
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


@contextmanager
def _csv(stream: ByteStream, asked: Columns, *, block: int) -> Iterator[Part]:
    """Open CSV; types are those of the first block, in which whole numbers become float64.

    Each block of whole lines is parsed by itself. A reader of Arrow would read ahead in a thread of
    its own, which crashes now and then where a file is refused.
    """
    import pyarrow as pa
    from pyarrow import csv

    blocks = _whole_lines(stream, block)
    first = next(blocks, b"")
    parse = csv.ParseOptions(delimiter=separator_of(first.split(b"\n", 1)[0]))

    def table_of(text: bytes, names: list[str] | None = None, **types: Any) -> Any:
        options = csv.ReadOptions(
            use_threads=False, block_size=len(text) + 1, column_names=names or []
        )
        return csv.read_csv(
            pa.BufferReader(text), read_options=options, parse_options=parse, **types
        )

    try:
        found = table_of(first).schema
        kinds = {field.name: _type_of_csv(field, asked) for field in found}
        types = csv.ConvertOptions(column_types=kinds, strings_can_be_null=True)
        table = table_of(first, convert_options=types)
    except pa.ArrowException as error:
        raise _unreadable(stream.name, error) from error

    def batches(columns: list[str], rows: int) -> Iterator[Any]:
        read, n_lines = table, first.count(b"\n")
        while True:
            for batch in read.to_batches():
                yield from sliced(_labels_of_text(batch.select(columns), asked.label), rows)
            while not (text := next(blocks, b"")).strip():
                if not text:
                    return
                n_lines += text.count(b"\n")
            try:
                read = table_of(text, found.names, convert_options=types)
            except pa.ArrowException as error:
                raise _unreadable(stream.name, error, lines_before=n_lines) from error
            n_lines += text.count(b"\n")

    yield Part(stream.name, table.schema, batches)


def _whole_lines(stream: ByteStream, size: int) -> Iterator[bytes]:
    """Yield the bytes of a stream in pieces of whole lines, of some `size` at most.

    Raises
    ------
    DataError
        A line is longer.
    """
    rest = b""
    while True:
        piece = memoryview(bytearray(size))
        piece = piece[: stream.readinto(piece)]
        if not piece:
            break
        text = rest + bytes(piece)
        end = text.rfind(b"\n") + 1
        if not end and len(text) > size:
            raise DataError(
                f"{stream.name}: a line has more than {size} bytes; check the file, or give more "
                "memory"
            )
        rest = text[end:]
        if end:
            yield text[:end]
    if rest:
        yield rest


def _type_of_csv(field: Any, asked: Columns) -> Any:
    """Type of a column of CSV: words for labels, which are made numbers later; else floats."""
    import pyarrow as pa

    known = () if asked.encoding is None else asked.encoding["categories"]
    if field.name == asked.label or field.name in known:
        return pa.string()
    is_number = pa.types.is_integer(field.type) or pa.types.is_null(field.type)
    return pa.float64() if is_number else field.type


def _labels_of_text(batch: Any, label: str | None) -> Any:
    """Return a record batch whose labels are numbers if all of them are."""
    import pyarrow as pa

    place = -1 if label is None else batch.schema.get_field_index(label)
    if place < 0:
        return batch
    for kind in (pa.int64(), pa.float64()):
        try:
            return batch.set_column(place, label, batch.column(place).cast(kind))
        except pa.ArrowInvalid:
            continue
    return batch


# -- tables of other libraries that are read lazily ---------------------------------------------


def lazy_table(X: Any, asked: Columns) -> ArrowBatches:
    """Open a data set or reader of Arrow, or a lazy frame of Polars."""
    name, is_polars = type(X).__name__, is_instance(X, "polars", "LazyFrame")

    @contextmanager
    def open_part() -> Iterator[Part]:
        if is_polars:
            check_library()
            yield Part(name, X.head(0).collect().to_arrow().schema, _polars_batches)
        elif hasattr(X, "to_batches"):
            yield Part(name, X.schema, _dataset_batches)
        else:
            yield Part(name, X.schema, _reader_batches)

    def _polars_batches(columns: list[str], rows: int) -> Iterator[Any]:
        for frame in X.select(columns).collect_batches(chunk_size=rows):
            for batch in frame.to_arrow().to_batches():
                yield from sliced(batch, rows)

    def _dataset_batches(columns: list[str], rows: int) -> Iterator[Any]:
        yield from X.to_batches(
            columns=columns, batch_size=rows, batch_readahead=1, fragment_readahead=0,
            use_threads=False,
        )  # fmt: skip

    def _reader_batches(columns: list[str], rows: int) -> Iterator[Any]:
        for batch in X:
            yield from sliced(batch.select(columns), rows)

    return ArrowBatches([open_part], asked, once=not hasattr(X, "to_batches") and not is_polars)


def frame(X: Any, asked: Columns) -> ArrowBatches:
    """Open a data frame of pandas, Polars or Arrow in memory."""
    check_library()
    import pyarrow as pa

    def pandas_batches(columns: list[str], rows: int) -> Iterator[Any]:
        kinds = pa.schema([schema.field(name) for name in columns])
        for start in range(0, len(X), rows):
            part = X.iloc[start : start + rows][columns]
            # A column of text may be of several chunks, which a record batch cannot be made of.
            yield from pa.Table.from_pandas(part, kinds, preserve_index=False).to_batches()

    def arrow_batches(columns: list[str], rows: int) -> Iterator[Any]:
        yield from table.select(columns).to_batches(max_chunksize=rows)

    table: Any = None if is_pandas(X) else pa.table(X)
    batches = pandas_batches if table is None else arrow_batches
    schema = _schema_of_pandas(X) if table is None else table.schema
    return ArrowBatches([lambda: nullcontext(Part("X", schema, batches))], asked)


def _schema_of_pandas(X: Any) -> Any:
    """Types of the columns of a frame, of which each must have values of one type."""
    import pyarrow as pa

    fields: list[Any] = []
    for name in X.columns:
        try:
            fields += pa.Schema.from_pandas(X[[name]], preserve_index=False)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise DataError(
                f"X: column {name!r} is not read ({error}); make all its values numbers or text"
            ) from None
    return pa.schema(fields)
