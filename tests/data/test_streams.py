"""Sources are recognised by their first bytes: compressed text is read, other formats refused."""

import bz2
import gzip
import io
import json
import lzma
import pickle
import subprocess
import sys
import tarfile
import zipfile
import zlib
from pathlib import Path

import fsspec
import numpy as np
import pytest
import zstandard

from bigsvm.conversion.from_text import convert
from bigsvm.conversion.libsvm import LibsvmReader
from bigsvm.conversion.streams import open_source
from bigsvm.errors import DataError, ParseError
from bigsvm.report.text import peak_rss_bytes

TEXT = b"".join(b"%d 1:%d 3:0.5\n" % (i, i) for i in range(300))
COMPRESSORS = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "lzma": lambda data: lzma.compress(data, lzma.FORMAT_ALONE),
    "zst": zstandard.ZstdCompressor().compress,
}


def labels_of(source, **options):
    reader = LibsvmReader([source], dtype=np.dtype(np.float64), **options)
    return [label for chunk in reader for label in chunk.labels.tolist()]


@pytest.fixture
def write(tmp_path):
    def write(content, name):
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write


@pytest.mark.fault("text")
@pytest.mark.parametrize("name", ["x", "x.libsvm", "x.txt", "x.zip", "x.gz", "x.xz", "x.zst"])
@pytest.mark.parametrize("kind", COMPRESSORS)
def test_compressions_are_undone_whatever_the_name(write, kind, name):
    assert labels_of(write(COMPRESSORS[kind](TEXT), name)) == list(range(300))


@pytest.mark.parametrize("name", ["x.gz", "x.bz2", "x.xz", "x.zst"])
def test_text_named_as_if_compressed_is_text(write, name):
    assert labels_of(write(TEXT, name)) == list(range(300))
    assert labels_of(write(b"", name)) == []


@pytest.mark.fault("text")
@pytest.mark.parametrize("kind", COMPRESSORS)
def test_compressed_standard_input(monkeypatch, kind):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(COMPRESSORS[kind](TEXT))))
    assert labels_of("-") == list(range(300))


@pytest.mark.fault("text")
@pytest.mark.parametrize("kind", COMPRESSORS)
def test_compressed_url_with_a_query_and_in_a_chain(tmp_path, kind):
    with fsspec.open(f"memory://x.{kind}?version=3", "wb") as file:
        file.write(COMPRESSORS[kind](TEXT))
    assert labels_of(f"memory://x.{kind}?version=3") == list(range(300))
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("inside", COMPRESSORS[kind](TEXT))
    assert labels_of(f"zip://inside::file://{tmp_path}/x.zip") == list(range(300))


def archive_of(text):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        member = tarfile.TarInfo("x.libsvm")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
    return file.getvalue()


def zipped(text):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x.libsvm", text)
    return file.getvalue()


def saved(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.fault("text")
@pytest.mark.parametrize(
    ("content", "what"),
    [
        (zipped(TEXT), "this is a zip archive, not LIBSVM text; unpack it"),
        (archive_of(TEXT), "this is a tar archive, not LIBSVM text; extract"),
        (gzip.compress(archive_of(TEXT)), "this is a tar archive compressed with gzip, not"),
        (gzip.compress(gzip.compress(TEXT)), "compressed twice, gzip in gzip; decompress it once"),
        (b"7z\xbc\xaf\x27\x1c\0\x04" + bytes(100), "this is a 7z archive"),
        (b"\x04\x22\x4d\x18" + bytes(100), "this is compressed with lz4, not.*lz4 -dc"),
        (b"\x89HDF\r\n\x1a\n" + bytes(100), "this is HDF5.*--label"),
        (b"PAR1" + bytes(100), "this is Parquet.*--label"),
        (saved(np.zeros((3, 2))), r"this is a NumPy array \(\.npy\)"),
        (pickle.dumps([1, 2]), "this is a pickle"),
        ("1 1:2\n".encode("utf-16"), "this is UTF-16 or UTF-32, not LIBSVM text; convert"),
        (b"<!DOCTYPE html><p>404 Not Found", "this is HTML or XML.*fetch the file itself"),
        (json.dumps([{"y": 1}]).encode(), "this is JSON"),
        (b"@RELATION iris\n@DATA\n", "this is ARFF"),
        (b"svm_type c_svc\nkernel_type rbf\n", "this is a model of LIBSVM, not LIBSVM text"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer.*git lfs pull"),
    ],
)
@pytest.mark.parametrize("name", ["x.libsvm", "x.gz"])
def test_other_formats_are_named(write, content, what, name):
    path = write(content, name)
    with pytest.raises(DataError, match=what) as caught:
        labels_of(path)
    assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.fault("text")
@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        ("1,2.5,3\n", "1:1", "3 values separated by commas, without index:value, are CSV"),
        ("1, 2.5, 3\n", "1:1", "3 values separated by commas"),
        ("1;2.5;3\n", "1:1", "3 values separated by semicolons.*are CSV"),
        ("1\t2.5\t3\n", "1:3", "3 values separated by tabs.*are TSV"),
        ('"y","x"\n1,2\n', "1:1", "2 values separated by commas"),
        ("1 2.5 3\n", "1:3", "3 values separated by spaces, without index:value, are a table"),
        ("y,when\n1,12:30\n", "1:1", "2 values separated by commas"),
        ("1 1:2\n1,2,3\n", "2:1", "3 values separated by commas"),
        ("label x1 x2\n1 1:2\n", "1:7", "this line is a header.*remove it"),
        ("label\tx1\n1\t1:2\n", "1:7", "this line is a header"),
        ("1000 20 3\n1 1:2\n", "1:6", "this line is a header"),
        ("1 |f a:1 b\n", "1:3", "this is text of Vowpal Wabbit"),
        ("1,2 1:2\n", "1:1", "several labels, '1,2'; multilabel"),
        ("1 1\n1 1:2\n", "1:3", "'1' is not index:value"),
    ],
)
def test_tables_and_headers_are_named(write, text, place, what):
    path = write(text.encode(), "x.csv")
    with pytest.raises(ParseError, match=what) as caught:
        labels_of(path)
    assert str(caught.value).startswith(f"{path}:{place}: ")


def with_large_dictionary(text):
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 26, "mode": lzma.MODE_FAST}]
    return lzma.compress(text, filters=filters)


def with_large_window(text):
    parameters = zstandard.ZstdCompressionParameters(window_log=27, enable_ldm=True)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return compressor.compress(text) + compressor.flush()


@pytest.mark.fault("bombs")
@pytest.mark.parametrize("pack", [with_large_dictionary, with_large_window])
def test_large_dictionaries_are_refused_where_memory_is_small(write, tmp_path, pack):
    path = write(pack(TEXT), "x")
    with pytest.raises(DataError, match=r"decompressing it takes more than \d+ bytes; give more"):
        convert(path, tmp_path / "x.zarr", memory="64MB")
    assert convert(path, tmp_path / "x.zarr", memory="512MB").attributes.n_rows == 300


DICTIONARY_OF_4_GIB = """
import lzma, sys
from bigsvm.report.text import peak_rss_bytes
from bigsvm.conversion.libsvm import LibsvmReader
from bigsvm.conversion.streams import open_source
from bigsvm.errors import DataError
import numpy as np
before = peak_rss_bytes()
try:
    list(LibsvmReader([sys.argv[1]], dtype=np.dtype(float), decompression_bytes=32 << 20))
except DataError as error:
    print(error)
print(peak_rss_bytes() - before)
"""


@pytest.mark.fault("bombs")
def test_an_xz_that_asks_for_4_gib_takes_no_memory(write):
    packed = bytearray(lzma.compress(TEXT, check=lzma.CHECK_NONE))
    # The header of the block: sizes, LZMA2's number, size of its properties, the dictionary.
    header = slice(12, 20)
    assert packed[14:16] == b"\x21\x01"
    packed[16] = 40  # of 4 GiB less a byte
    packed[20:24] = zlib.crc32(packed[header]).to_bytes(4, "little")
    path = write(bytes(packed), "x.xz")
    done = subprocess.run(
        [sys.executable, "-c", DICTIONARY_OF_4_GIB, path],
        capture_output=True,
        text=True,
        check=True,
    )
    message, grown = done.stdout.splitlines()
    assert "decompressing it takes more than 33554432 bytes" in message
    assert int(grown) < 20_000_000


@pytest.mark.fault("bombs")
@pytest.mark.parametrize("kind", ["gz", "zst", "xz", "bz2"])
def test_a_line_that_expands_without_end_is_refused(write, kind):
    path = write(COMPRESSORS[kind](b"1 " + b" " * (64 << 20)), "x")
    Path("/proc/self/clear_refs").write_text("5")  # the peak of this process starts anew
    before = peak_rss_bytes()
    with pytest.raises(ParseError, match="line longer than 1000000 bytes"):
        labels_of(path, max_line_bytes=10**6)
    assert peak_rss_bytes() - before < 40_000_000


@pytest.mark.parametrize("kind", ["xz", "lzma"])
def test_xz_streams_with_padding_and_damage(write, kind):
    packed = COMPRESSORS[kind](TEXT)
    assert len(labels_of(write(packed + bytes(8) + packed + bytes(4), "x"))) == 600
    with pytest.raises(DataError, match="cannot be read to its end"):
        labels_of(write(packed[:-30], "x"))


@pytest.mark.fault("surroundings")
@pytest.mark.parametrize("url", ["reference://", "sftp://", "data://", "zip://", "nothing://x"])
def test_a_url_that_no_file_system_can_open_is_named(url):
    """Each of them has another way to say so: a TypeError, an ImportError, a ValueError."""
    with pytest.raises(DataError, match="cannot be opened"), open_source(url):
        pass


class Failing(io.RawIOBase):
    """A file of a library that has errors of its own."""

    def __init__(self, content, error):
        self._content, self._error = io.BytesIO(content), error

    def readable(self):
        return True

    def readinto(self, buffer):
        n = self._content.readinto(buffer)
        if not n:
            raise self._error
        return n


@pytest.mark.fault("surroundings")
@pytest.mark.parametrize("error", [RuntimeError("payload is not completed"), KeyError("part 2")])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("kept", [1, 2000])
def test_a_url_that_fails_in_the_middle_is_named(monkeypatch, error, pack, kept):
    noise = b"".join(b"%d 1:%d\n" % (i, i * 7919 % 1009) for i in range(2000))
    file = Failing(pack(noise)[:kept], error)
    monkeypatch.setattr(fsspec.core.OpenFile, "open", lambda self: file)
    with pytest.raises(DataError, match=r"memory://x: cannot be read to its end \(.*pa"):
        labels_of("memory://x")
    assert file.closed
