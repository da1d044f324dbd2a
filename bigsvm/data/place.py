"""Where a store is: a folder of this machine, or the objects under a URL."""

from __future__ import annotations

import concurrent.futures
import os
from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any

from bigsvm.data.schema import REMEDY
from bigsvm.data.storage import DRIVERS, WITHOUT_LISTS, Storage, is_past_the_end, without_secrets
from bigsvm.errors import ParameterError, StoreError
from bigsvm.files import is_url, lies_in, local_path, open_regular
from bigsvm.interruption import together

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

_FROM_THE_END = frozenset({"s3", "s3a", "gs", "gcs", "http", "https", "memory"})
"""Protocols that read the last bytes of an object without asking for its size."""


class Place(ABC):
    """A folder, or the objects under a URL. ``place / name`` is below it; `str` names it.

    `is_far` tells whether reading takes a request to another machine.
    """

    is_far: bool

    @staticmethod
    def of(
        where: str | os.PathLike[str],
        storage_options: Mapping[str, Any] | None = None,
        *,
        name: str = "the path of a store",
    ) -> Place:
        """Find the place that a path or a URL names; nothing is read.

        The storage options are arguments of the file system of fsspec, only for URLs. `name` is
        that of the parameter, for messages. A URL with credentials or a query in it is refused.
        """
        if isinstance(where, str) and is_url(where):
            return Prefix(where, storage_options or {}, name=name)
        if storage_options:
            raise ParameterError(
                f"storage_options are for URLs, and {name} is {os.fspath(where)!r}; leave them out"
            )
        # Files are read later, when the process may be in another directory.
        return Folder(local_path(where, name).absolute())

    @abstractmethod
    def __str__(self) -> str: ...

    @abstractmethod
    def __truediv__(self, name: str) -> Place: ...

    @property
    @abstractmethod
    def name(self) -> str:
        """Last part of the path or URL."""

    @abstractmethod
    def read(self, name: str, limit: int) -> bytes:
        """Read a file below this place.

        Raises `FileNotFoundError` or `NotADirectoryError` if it does not exist, another `OSError`
        if the system does not let it be read, and `StoreError` if it is larger than `limit` bytes
        or cannot be reached.
        """

    def read_each(self, names: Sequence[str], limit: int) -> list[bytes | None]:
        """Read several files as `read` does, at once if they are far; None for those missing."""

        def read(name: str) -> bytes | None:
            try:
                return self.read(name, limit)
            except (FileNotFoundError, NotADirectoryError):
                return None

        if not (self.is_far and names):
            return [read(name) for name in names]
        with concurrent.futures.ThreadPoolExecutor(len(names)) as threads:
            return together(threads, [partial(read, name) for name in names])

    @abstractmethod
    def tail(self, name: str, size: int) -> bytes:
        """Read the last `size` bytes of a file; fewer if it is shorter. Raises as `read`."""

    @abstractmethod
    def part(self, name: str, offset: int, size: int) -> bytes:
        """Read `size` bytes of a file from `offset`; fewer if it ends before. Raises as `read`."""

    def parts(self, name: str, spans: Iterable[tuple[int, int]]) -> list[bytes]:
        """Read parts of a file, each given by its offset and size; see `part`."""
        return [self.part(name, offset, size) for offset, size in spans]

    def exists(self, name: str) -> bool:
        """Whether there is a file of this name. Raises as `read`."""
        try:
            self.part(name, 0, 1)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True


class Folder(Place):
    """A folder of this machine, by its absolute path."""

    is_far = False

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    def __truediv__(self, name: str) -> Folder:
        return Folder(self.path / name)

    def __reduce__(self) -> tuple[Any, ...]:
        return Folder, (self.path,)

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.path.name

    def read(self, name: str, limit: int) -> bytes:
        """Read a file below this folder; links are not followed."""
        with open_regular(self.path / name, follow_links=False) as file:
            size = os.fstat(file.fileno()).st_size
            _check_size(self / name, size, limit)
            return file.read(size)

    def tail(self, name: str, size: int) -> bytes:
        """Read the last `size` bytes of a file."""
        with open_regular(self.path / name, follow_links=False) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - size))
            return file.read(size)

    def part(self, name: str, offset: int, size: int) -> bytes:
        """Read `size` bytes of a file from `offset`."""
        return self.parts(name, [(offset, size)])[0]

    def parts(self, name: str, spans: Iterable[tuple[int, int]]) -> list[bytes]:
        """Read parts of a file, which is opened once."""
        with open_regular(self.path / name, follow_links=False) as file:
            return [os.pread(file.fileno(), size, offset) for offset, size in spans]


class Prefix(Place):
    """The objects whose URLs begin with that of this place.

    Pickled without the storage options that may hold secrets: another process has credentials of
    its own, from its environment. `url` has no slash at its end; `protocol` is what is before
    ``://``, in small letters; `storage` answers requests for these objects.
    """

    is_far = True

    def __init__(
        self, url: str, storage_options: Mapping[str, Any], *, name: str = "the URL of a store"
    ) -> None:
        protocol, _, rest = url.partition("://")
        self.protocol, rest = protocol.lower(), rest.rstrip("/")
        self.url = f"{protocol}://{rest}"
        self.storage = Storage(self.protocol, storage_options)
        if self.protocol not in DRIVERS:
            raise ParameterError(
                f"{name} is {without_secrets(self.url)!r}, and no store is read by "
                f"{self.protocol}://; known are {', '.join(f'{p}://' for p in DRIVERS)}, and "
                "paths of this machine"
            )
        host, _, key = rest.partition("/")
        if "@" in host and self.protocol not in ("az", "abfs", "abfss"):
            raise ParameterError(
                f"{name} is {without_secrets(self.url)!r}, with credentials in it, which messages "
                "would show; give them by the environment or storage_options"
            )
        if self.protocol in WITHOUT_LISTS and ("?" in key or "#" in key):
            raise ParameterError(
                f"{name} is {without_secrets(self.url)!r}, with a query in it, which belongs to a "
                "single file; give the URL of the folder"
            )
        if not host:
            raise ParameterError(
                f"{name} is {self.url!r}, without a bucket or server; give the whole URL"
            )

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> Prefix:
        below = object.__new__(Prefix)
        below.__dict__ = {**self.__dict__, "url": f"{self.url}/{name}"}
        return below

    def __reduce__(self) -> tuple[Any, ...]:
        return Prefix, (self.url, self.harmless_options())

    @property
    def name(self) -> str:
        """Last part of the URL."""
        return self.url.rpartition("/")[2]

    def harmless_options(self) -> dict[str, Any]:
        """Storage options without those that may hold secrets."""
        return self.storage.harmless_options()

    def read(self, name: str, limit: int) -> bytes:
        """Read an object below this place, in one request."""
        data = self.part(name, 0, limit + 1)
        _check_size(self / name, len(data), limit)
        return data

    def tail(self, name: str, size: int) -> bytes:
        """Read the last `size` bytes of an object."""
        url = f"{self.url}/{name}"
        if self.protocol in _FROM_THE_END:
            data = self._of(url, -size, None)
        else:
            whole = self.storage.tried(
                url, lambda fs: self.storage.answer(fs, "info", fs._strip_protocol(url))
            )
            data = self._of(url, max(0, whole["size"] - size), whole["size"])
        return self._whole(name, data, size)

    def part(self, name: str, offset: int, size: int) -> bytes:
        """Read `size` bytes of an object from `offset`."""
        return self._whole(name, self._of(f"{self.url}/{name}", offset, offset + size), size)

    # -- requests ------------------------------------------------------------------------------

    def _of(self, url: str, start: int, end: int | None) -> bytes:
        """Bytes ``start … end - 1`` of an object."""
        return self.storage.tried(url, lambda fs: self._range(fs, url, start, end))

    def _range(self, fs: Any, url: str, start: int, end: int | None) -> bytes:
        path = fs._strip_protocol(url)
        try:
            data: bytes = self.storage.answer(fs, "cat_file", path, start=start, end=end)
        except Exception as error:
            if is_past_the_end(error):
                return b""
            raise
        return data

    def _whole(self, name: str, data: bytes, size: int) -> bytes:
        if len(data) > size:
            raise StoreError(
                f"{self.url}/{name}: the server sends whole files where a part is asked for; use a "
                "server that answers requests for ranges of bytes"
            )
        return data


def lies_below(place: Place, other: Place) -> bool:
    """Whether a place, where nothing need be yet, is below another one."""
    if isinstance(place, Folder) and isinstance(other, Folder):
        return lies_in(place.path.parent, other.path)
    return str(place).startswith(f"{other}/")


def _check_size(place: Place, size: int, limit: int) -> None:
    """Refuse a file that is larger than any of a store."""
    if size > limit:
        raise StoreError(f"{place}: larger than {limit} bytes, which no store needs; {REMEDY}")
