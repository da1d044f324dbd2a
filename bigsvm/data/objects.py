"""Objects under a URL that are written: whole files, one request each, tried again as reads are."""

from __future__ import annotations

import concurrent.futures
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from bigsvm.data.place import Prefix, is_not_supported
from bigsvm.data.waiting import together
from bigsvm.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_READ_ONLY = frozenset({"http", "https"})
"""Protocols that fsspec does not write by."""
_AT_ONCE = 16
"""Objects that are deleted at once: a store of a terabyte has thousands."""
_PART_BYTES = 8 << 20
"""Bytes of an object in memory while it is downloaded; most models are smaller."""
_PREFIX = "bigsvm-file-"


class Objects:
    """Writes the objects below a place.

    Parameters
    ----------
    place : Prefix

    Raises
    ------
    ParameterError
        Its protocol only reads.
    """

    def __init__(self, place: Prefix) -> None:
        if place.protocol in _READ_ONLY:
            raise ParameterError(
                f"{place}: nothing is written by {place.protocol}://; give a URL of object "
                "storage, such as s3://bucket/name"
            )
        self.place = place

    def put(self, name: str, path: Path) -> None:
        """Write an object from a file, which is never whole in memory; it may replace another.

        Raises
        ------
        OSError
            The file cannot be read.
        StoreError
        """
        url = f"{self.place.url}/{name}"
        with path.open("rb") as file:

            def call(fs: Any) -> None:
                key = fs._strip_protocol(url)
                if self.place.protocol not in ("s3", "s3a"):
                    self.place.answer(fs, "put_file", str(path), key)
                    return
                # put_file holds a whole file in memory, or sends parts, which stay and cost money
                # if the process is killed.
                bucket, key, _ = fs.split_path(key)
                file.seek(0)
                self.place.answer(fs, "call_s3", "put_object", Bucket=bucket, Key=key, Body=file)

            self.place.tried(url, call)

    def write(self, name: str, data: bytes) -> None:
        """Write an object; it may replace another.

        Raises
        ------
        StoreError
        """
        self._pipe(name, data)

    def create(self, name: str, data: bytes) -> bool:
        """Write an object unless there is one of this name with other content.

        In one step, where the storage has one (If-None-Match of S3).

        Returns
        -------
        bool
            False if there is another one.

        Raises
        ------
        StoreError
        """
        try:
            self._pipe(name, data, mode="create")
        except FileExistsError:
            # The answer to an earlier try may have been lost.
            return self._holds(name, data)
        return True

    def _pipe(self, name: str, data: bytes, **mode: str) -> None:
        url = f"{self.place.url}/{name}"

        def call(fs: Any) -> None:
            key = fs._strip_protocol(url)
            try:
                self.place.answer(fs, "pipe_file", key, data, **mode)
            except Exception as error:
                if not (mode and is_not_supported(error)):
                    raise
                if self.place.exists(name):
                    raise FileExistsError(url) from error
                self.place.answer(fs, "pipe_file", key, data)

        self.place.tried(url, call)

    def _holds(self, name: str, data: bytes) -> bool:
        try:
            return self.place.part(name, 0, len(data) + 1) == data
        except FileNotFoundError:
            return False

    def names(self) -> list[str]:
        """Names of all objects below the place, sorted.

        Raises
        ------
        StoreError
        """

        def call(fs: Any) -> list[str]:
            below = fs._strip_protocol(self.place.url) + "/"
            found = self.place.answer(fs, "find", below)
            return sorted(key[len(below) :] for key in found if key.startswith(below))

        try:
            return self.place.tried(self.place.url, call)
        except FileNotFoundError:
            return []

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects, several at once; those that do not exist are left out.

        Raises
        ------
        StoreError
        """
        jobs = [partial(self._delete, name) for name in names]
        if jobs:
            with concurrent.futures.ThreadPoolExecutor(min(_AT_ONCE, len(jobs))) as threads:
                together(threads, jobs)

    def _delete(self, name: str) -> None:
        url = f"{self.place.url}/{name}"
        with suppress(FileNotFoundError):
            self.place.tried(
                url, lambda fs: self.place.answer(fs, "rm_file", fs._strip_protocol(url))
            )
