"""Objects under a URL that are written: whole files, one request each, tried again as reads are."""

from __future__ import annotations

import concurrent.futures
import errno
import tempfile
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigsvm.data.place import Place, Prefix
from bigsvm.data.storage import is_not_supported
from bigsvm.errors import ParameterError, StoreError
from bigsvm.files import is_url, local_path
from bigsvm.folders import temporary_folder
from bigsvm.interruption import together

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator

_READ_ONLY = frozenset({"http", "https"})
"""Protocols that fsspec does not write by."""
_AT_ONCE = 16
"""Objects that are deleted at once: a store of a terabyte has thousands."""
_MOST_OF_A_PUT = 5 << 30
"""Most bytes of one request to S3."""
_PART_BYTES = 8 << 20
"""Bytes of an object in memory while it is downloaded; most models are smaller."""
_PREFIX = "bigsvm-file-"


class Objects:
    """Writes the objects below a place; a protocol that only reads is refused."""

    def __init__(self, place: Prefix) -> None:
        if place.protocol in _READ_ONLY:
            raise ParameterError(
                f"{place}: nothing is written by {place.protocol}://; give a URL of object "
                "storage, such as s3://bucket/name"
            )
        self.place = place

    def put(self, name: str, path: Path) -> None:
        """Write an object from a file, which is not read as a whole; it may replace another.

        By one request, but of S3 by several for more than 5 GiB. Raises `OSError` if the file
        cannot be read.
        """
        url, size = f"{self.place.url}/{name}", path.stat().st_size
        is_one_put = self.place.protocol in ("s3", "s3a") and size <= _MOST_OF_A_PUT
        with path.open("rb") as file:

            def call(fs: Any) -> None:
                key = fs._strip_protocol(url)
                if not is_one_put:
                    self.place.storage.answer(fs, "put_file", str(path), key, n_bytes=size)
                    return
                # put_file of S3 holds a file in memory, or sends parts, which stay and cost money
                # if the process is killed.
                bucket, key, _ = fs.split_path(key)
                file.seek(0)
                self.place.storage.answer(
                    fs, "call_s3", "put_object",
                    Bucket=bucket, Key=key, Body=file, n_bytes=size,
                )  # fmt: skip

            self._tried(url, call, n_bytes=size)

    def _tried(self, url: str, call: Callable[[Any], None], *, n_bytes: int) -> None:
        try:
            self.place.storage.tried(url, call, n_bytes=n_bytes)
        except FileNotFoundError as error:
            raise StoreError(
                f"{url}: cannot be written, as there is no such bucket or container; check the URL"
            ) from error

    def write(self, name: str, data: bytes) -> None:
        """Write an object; it may replace another."""
        self._pipe(name, data)

    def create(self, name: str, data: bytes) -> bool:
        """Write an object unless there is one of this name with other content; False if there is.

        In one step, where the storage has one (If-None-Match of S3). Servers that do not know it,
        and say so, are asked for the object first.
        """
        try:
            self._pipe(name, data, mode="create")
        except FileExistsError:
            # The answer to an earlier try may have been lost.
            return self._holds(name, data)
        return True

    def _pipe(self, name: str, data: bytes, **mode: Any) -> None:
        url = f"{self.place.url}/{name}"

        def call(fs: Any) -> None:
            key = fs._strip_protocol(url)
            try:
                self.place.storage.answer(fs, "pipe_file", key, data, **mode)
            except Exception as error:
                if not (mode and is_not_supported(error)):
                    raise
                if self.place.exists(name):
                    raise FileExistsError(url) from error
                self.place.storage.answer(fs, "pipe_file", key, data)

        self._tried(url, call, n_bytes=len(data))

    def _holds(self, name: str, data: bytes) -> bool:
        try:
            return self.place.part(name, 0, len(data) + 1) == data
        except FileNotFoundError:
            return False

    def names(self) -> list[str]:
        """Names of all objects below the place, sorted."""

        def call(fs: Any) -> list[str]:
            below = fs._strip_protocol(self.place.url) + "/"
            found = self.place.storage.answer(fs, "find", below)
            return sorted(key[len(below) :] for key in found if key.startswith(below))

        try:
            return self.place.storage.tried(self.place.url, call)
        except FileNotFoundError:
            return []

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects, several at once; those that do not exist are left out."""
        jobs = [partial(self._delete, name) for name in names]
        if jobs:
            with concurrent.futures.ThreadPoolExecutor(min(_AT_ONCE, len(jobs))) as threads:
                together(threads, jobs)

    def _delete(self, name: str) -> None:
        url = f"{self.place.url}/{name}"
        with suppress(FileNotFoundError):
            self.place.storage.tried(
                url, lambda fs: self.place.storage.answer(fs, "rm_file", fs._strip_protocol(url))
            )


@contextmanager
def file_to_write(path: str | os.PathLike[str], name: str, *, what: str) -> Iterator[Path]:
    """Give the path of this machine to write a file to, which goes to its URL after the block.

    An object of this name is replaced. `name` is that of the parameter and `what` the content of
    the file, for messages. Raises `OSError` if there is no room for a temporary file. If the
    storage cannot be reached or refuses, the file is kept on this machine, and the `StoreError`
    names it.
    """
    if not (isinstance(path, str) and is_url(path)):
        yield local_path(path, name)
        return
    objects, key = _object_of(path, name)
    with temporary_folder(None, _PREFIX) as folder:
        file = folder / "file"
        yield file
        try:
            objects.put(key, file)
        except StoreError as error:
            kept = Path(tempfile.mkdtemp(prefix="bigsvm-kept-"), key)
            file.rename(kept)
            raise type(error)(f"{error}. The {what} is whole in {kept}") from error


@contextmanager
def file_to_read(path: str | os.PathLike[str], name: str) -> Iterator[Path]:
    """Give the path of a file on this machine, or of a temporary copy of the object at a URL.

    `name` is that of the parameter, for messages. Raises `OSError` if there is no such object or no
    room for a copy, and `StoreError` if the storage cannot be reached or refuses.
    """
    if not (isinstance(path, str) and is_url(path)):
        yield local_path(path, name)
        return
    place, key = _split(path, name)
    with temporary_folder(None, _PREFIX) as folder:
        download(place, key, folder / "file")
        yield folder / "file"


def download(place: Place, name: str, path: Path) -> None:
    """Copy an object to a new file, in parts.

    Raises `OSError` if there is no such object, or no room for it.
    """
    with path.open("xb") as file:
        while True:
            try:
                part = place.part(name, file.tell(), _PART_BYTES)
            except FileNotFoundError:
                raise FileNotFoundError(
                    errno.ENOENT, "there is no such object", f"{place}/{name}"
                ) from None
            file.write(part)
            if len(part) < _PART_BYTES:
                return


def start_of_object(url: str, name: str, size: int) -> bytes:
    """First bytes of the object that is to be replaced; empty if there is none."""
    objects, key = _object_of(url, name)
    try:
        return objects.place.part(key, 0, size)
    except FileNotFoundError:
        return b""


def _split(url: str, name: str) -> tuple[Prefix, str]:
    """Return the place that an object is in, and its name there."""
    folder, _, key = url.rpartition("/")
    place = Place.of(folder, name=name) if key and not folder.endswith("/") else None
    if not isinstance(place, Prefix):
        raise ParameterError(
            f"{name} is {url!r}, which names no file; give a URL such as s3://bucket/name"
        )
    return place, key


def _object_of(url: str, name: str) -> tuple[Objects, str]:
    place, key = _split(url, name)
    return Objects(place), key
