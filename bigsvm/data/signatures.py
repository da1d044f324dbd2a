"""Detection of compressions and other formats by the first bytes of a file.

File names are not used: ``.gz`` may be missing, or be followed by the query of a URL.
"""

from __future__ import annotations

import re

HEAD_BYTES = 512
"""Bytes that `compression` and `other_format` examine: the mark of a tar archive is at byte 257."""

_COMPRESSIONS = (
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"]\x00\x00", "lzma"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
)
_SKIPPABLE_ZSTD = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18")
"""Frames without content, with which parallel compressors begin."""

_TABLE = "name the column of its labels, as with --label, label= or the y of fit"
_OTHER_TABLE = "read it into an array and use bigsvm.write_store"
_UNPACK = "unpack it, and give what is in it"
_OTHERS = (
    (b"PK\x03\x04", "a zip archive", _UNPACK),
    (b"PK\x05\x06", "an empty zip archive", "give LIBSVM text"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", _UNPACK),
    (b"Rar!\x1a\x07", "a rar archive", _UNPACK),
    (b"\x04\x22\x4d\x18", "compressed with lz4", "decompress it first, as with `lz4 -dc`"),
    (b"\x02\x21\x4c\x18", "compressed with lz4", "decompress it first, as with `lz4 -dc`"),
    (b"\x1f\x9d", "compressed with compress (.Z)", "decompress it first, as with `zcat`"),
    (b"LZIP", "compressed with lzip", "decompress it first, as with `lzip -dc`"),
    (b"\x89LZO", "compressed with lzop", "decompress it first, as with `lzop -dc`"),
    (b"\xff\x06\x00\x00sNaPpY", "compressed with snappy", "decompress it first"),
    (b"\x89HDF\r\n\x1a\n", "HDF5 (or .h5ad, .mat)", _TABLE),
    (b"MATLAB 5.0 MAT-file", "a MATLAB file", _OTHER_TABLE),
    (b"PAR1", "Parquet", _TABLE),
    (b"ARROW1", "Arrow", _TABLE),
    (b"FEA1", "Feather", _TABLE),
    (b"ORC", "ORC", _OTHER_TABLE),
    (b"Obj\x01", "Avro", _OTHER_TABLE),
    (b"SQLite format 3\x00", "an SQLite database", _OTHER_TABLE),
    (b"\x93NUMPY", "a NumPy array (.npy)", _TABLE),
    (b"\xff\xfe", "UTF-16 or UTF-32", "convert it to UTF-8, as with `iconv -t UTF-8`"),
    (b"\xfe\xff", "UTF-16", "convert it to UTF-8, as with `iconv -t UTF-8`"),
    (b"\x00\x00\xfe\xff", "UTF-32", "convert it to UTF-8, as with `iconv -t UTF-8`"),
    (b"%PDF", "a PDF document", "give LIBSVM text"),
    (b"\x89PNG", "a PNG image", "give LIBSVM text"),
    (b"\x7fELF", "a program", "give LIBSVM text"),
    (b"version https://git-lfs", "a Git LFS pointer, not the file", "fetch it with `git lfs pull`"),
    (b"svm_type ", "a model of LIBSVM", "give the rows, as LIBSVM text"),
    (b"solver_type ", "a model of LIBLINEAR", "give the rows, as LIBSVM text"),
)
_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_SAFETENSORS = re.compile(rb"[\s\S]{3}\x00{5}\{\"")
"""Length of the header, below 16 MB, and the beginning of the header."""
_ARFF = re.compile(rb"@relation\b", re.IGNORECASE)
_MARKUP = re.compile(rb"<[!?a-z]", re.IGNORECASE)
_JSON = re.compile(rb"[\[{]")
_TAR_PLACE, _TAR = 257, b"ustar"


def compression(head: bytes) -> str | None:
    """Compression of a file by its first bytes; None if it has none that bigsvm can undo."""
    for start, name in _COMPRESSIONS:
        if head.startswith(start):
            return name
    return "zstd" if _SKIPPABLE_ZSTD.match(head) else None


def other_format(head: bytes) -> tuple[str, str] | None:
    """Format of a file by its first bytes, and the remedy; None if it may be LIBSVM text."""
    for start, what, remedy in _OTHERS:
        if head.startswith(start):
            return what, remedy
    if head[_TAR_PLACE:].startswith(_TAR):
        return "a tar archive", "extract the file in it, as with `tar -xO`"
    if _PICKLE.match(head):
        return "a pickle", "load it where it comes from and use bigsvm.write_store"
    if _SAFETENSORS.match(head):
        return "a safetensors file, as models are", "give the rows, as LIBSVM text"
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if _MARKUP.match(text):
        return "HTML or XML, perhaps the page of an error", "fetch the file itself"
    if _ARFF.match(text):
        return "ARFF", _OTHER_TABLE
    if _JSON.match(text):
        return "JSON", _OTHER_TABLE
    return None


_ENTRY = re.compile(rb"\d+:[-+]?[\d.]+(?:e[-+]?\d+)?", re.IGNORECASE)
_PAIR = re.compile(rb"[^,;|]*:[^,;|]*")
_SEPARATORS = ((b"\t", "tabs", "TSV"), (b",", "commas", "CSV"), (b";", "semicolons", "CSV"))


def separator_of(line: bytes) -> str:
    """Separator of the values of a header: a tab, a comma or a semicolon, the most frequent."""
    counts = [(line.count(separator), separator.decode()) for separator, _, _ in _SEPARATORS]
    most, separator = max(counts, key=lambda found: found[0])
    return separator if most else ","


_FEWEST_VALUES = 3
"""Fewest space-separated values without indices that count as a table row; two may be a typo."""


def table_format(line: bytes, following: bytes) -> str | None:
    """Name the table format of a line without entries, and the remedy.

    The lines are one that is not LIBSVM text, and the one after it. Returns None if the line has
    entries, ``index:value``, or looks like a typo.
    """
    line = line.split(b"#", 1)[0].strip()
    words = line.split()
    if any(word.startswith(b"|") for word in words):
        return f"this is text of Vowpal Wabbit, not LIBSVM text; {_OTHER_TABLE}"
    if any(_PAIR.fullmatch(word) for word in words):
        return None
    guesses = [(line.count(separator) + 1, name, what) for separator, name, what in _SEPARATORS]
    spaces = len(words), "spaces", "a table"
    n_values, name, what = next((guess for guess in guesses if guess[0] > 1), spaces)
    if n_values < _FEWEST_VALUES and what == "a table":
        return None
    if any(_ENTRY.fullmatch(word) for word in following.split()):
        return "this line is a header, which LIBSVM text has none of; remove it"
    return (
        f"{n_values} values separated by {name}, without index:value, are {what}, not LIBSVM "
        f"text; {_TABLE}"
    )
