"""Where a store is: a folder of this machine, or the objects under a URL.

Objects are read by fsspec. Its file systems have errors of their own, and so have the libraries
below them. Here each becomes one of these:

* `FileNotFoundError`: there is no such file. The storage has answered so, and lists no such name.
* `StoreError`: access is refused, credentials or the bucket are missing. Trying again is no help.
* `UnreachableError`: everything else, after `store_timeout` seconds of trying again.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import math
import os
import random
import re
import time
from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from bigsvm.data.schema import REMEDY
from bigsvm.data.waiting import LOOK_SECONDS, look_now, together, wait
from bigsvm.errors import ParameterError, StoreError, UnreachableError
from bigsvm.files import is_url, lies_in, local_path, open_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from pathlib import Path

T = TypeVar("T")

TIMEOUT_VARIABLE = "BIGSVM_STORE_TIMEOUT"
"""Environment variable: seconds for which an object that cannot be reached is tried again."""
_TIMEOUT = 300.0
"""Restarts of servers and failures of networks are usually shorter."""
_CONNECT_SECONDS = 10
"""A server that takes longer to accept a connection is down or overloaded."""
_ANSWER_SECONDS = 60
"""A server that sends nothing for longer has lost the request."""
_SLOWEST = 100e3
"""Bytes per second; a connection that sends fewer is taken for broken."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
"""Seconds between two tries: short at first, as most faults are; doubled each time."""

_DRIVERS = {
    "s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs",
    "abfss": "adlfs", "http": "aiohttp", "https": "aiohttp", "memory": "fsspec",
}  # fmt: skip
"""Protocols of URLs, and the package that fsspec needs for each."""
_WITHOUT_LISTS = frozenset({"http", "https"})
"""Protocols that cannot list names."""
_FROM_THE_END = frozenset({"s3", "s3a", "gs", "gcs", "http", "https", "memory"})
"""Protocols that read the last bytes of an object without asking for its size."""
_HARMLESS = frozenset({
    "account_name", "anon", "client_kwargs", "default_location", "endpoint_url", "profile",
    "project", "region_name", "requester_pays", "use_ssl", "verify",
})  # fmt: skip
"""Storage options that hold no secrets. All others are left out where they are written down."""


_WRONG = frozenset({
    301, "301", "PermanentRedirect", "AuthorizationHeaderMalformed", "InvalidBucketName",
    "IllegalLocationConstraintException",
})  # fmt: skip
"""Codes of errors that the same request gets again, as with another region."""
_WRONG_CALLS = (TypeError, NotImplementedError)
"""Errors of drivers that do not know an option or a request."""


class Place(ABC):
    """A folder, or the objects under a URL. ``place / name`` is below it; `str` names it.

    Attributes
    ----------
    is_far : bool
        Whether reading takes a request to another machine.
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

        Parameters
        ----------
        where : path or URL
        storage_options : mapping, optional
            Arguments of the file system of fsspec; only for URLs.
        name : str
            Name of the parameter, for messages.

        Raises
        ------
        ParameterError
            The protocol is unknown, the URL has credentials or a query in it, its driver is not
            installed, or options were given with a path.
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

        Raises
        ------
        FileNotFoundError, NotADirectoryError
            It does not exist.
        OSError
            The system does not let it be read.
        StoreError
            It is larger than `limit` bytes, or cannot be reached.
        """

    @abstractmethod
    def read_each(self, names: Sequence[str], limit: int) -> list[bytes | None]:
        """Read several files as `read` does, at once if they are far; None for those missing."""

    @abstractmethod
    def tail(self, name: str, size: int) -> bytes:
        """Read the last `size` bytes of a file; fewer if it is shorter. Raises as `read`."""

    @abstractmethod
    def part(self, name: str, offset: int, size: int) -> bytes:
        """Read `size` bytes of a file from `offset`; fewer if it ends before. Raises as `read`."""

    def exists(self, name: str) -> bool:
        """Whether there is a file of this name. Raises as `read`."""
        try:
            self.part(name, 0, 1)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True


class Folder(Place):
    """A folder of this machine.

    Attributes
    ----------
    path : Path
        Absolute.
    """

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

    def read_each(self, names: Sequence[str], limit: int) -> list[bytes | None]:
        """Read several files; None for those that do not exist."""

        def read(name: str) -> bytes | None:
            try:
                return self.read(name, limit)
            except (FileNotFoundError, NotADirectoryError):
                return None

        return [read(name) for name in names]

    def tail(self, name: str, size: int) -> bytes:
        """Read the last `size` bytes of a file."""
        with open_regular(self.path / name, follow_links=False) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - size))
            return file.read(size)

    def part(self, name: str, offset: int, size: int) -> bytes:
        """Read `size` bytes of a file from `offset`."""
        with open_regular(self.path / name, follow_links=False) as file:
            file.seek(offset)
            return file.read(size)


class Prefix(Place):
    """The objects whose URLs begin with that of this place.

    Pickled without the storage options that may hold secrets: another process has credentials of
    its own, from its environment.

    Attributes
    ----------
    url : str
        Without a slash at its end.
    protocol : str
        What is before ``://``, in small letters.
    """

    is_far = True

    def __init__(
        self, url: str, storage_options: Mapping[str, Any], *, name: str = "the URL of a store"
    ) -> None:
        protocol, _, rest = url.partition("://")
        self.protocol, rest = protocol.lower(), rest.rstrip("/")
        self.url = f"{protocol}://{rest}"
        self._options = dict(storage_options)
        if self.protocol not in _DRIVERS:
            raise ParameterError(
                f"{name} is {_without_secrets(self.url)!r}, and no store is read by "
                f"{self.protocol}://; known are {', '.join(f'{p}://' for p in _DRIVERS)}, and "
                "paths of this machine"
            )
        host, _, key = rest.partition("/")
        if "@" in host and self.protocol not in ("az", "abfs", "abfss"):
            raise ParameterError(
                f"{name} is {_without_secrets(self.url)!r}, with credentials in it, which messages "
                "would show; give them by the environment or storage_options"
            )
        if self.protocol in _WITHOUT_LISTS and ("?" in key or "#" in key):
            raise ParameterError(
                f"{name} is {_without_secrets(self.url)!r}, with a query in it, which belongs to a "
                "single file; give the URL of the folder"
            )
        if not host:
            raise ParameterError(
                f"{name} is {self.url!r}, without a bucket or server; give the whole URL"
            )
        self._opened: tuple[int, Any] | None = None

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
        return _harmless(self._options)

    def read(self, name: str, limit: int) -> bytes:
        """Read an object below this place, in one request."""
        data = self.part(name, 0, limit + 1)
        _check_size(self / name, len(data), limit)
        return data

    def read_each(self, names: Sequence[str], limit: int) -> list[bytes | None]:
        """Read several objects at once; None for those that do not exist."""

        def read(name: str) -> bytes | None:
            try:
                return self.read(name, limit)
            except FileNotFoundError:
                return None

        if not names:
            return []
        with concurrent.futures.ThreadPoolExecutor(len(names)) as threads:
            return together(threads, [partial(read, name) for name in names])

    def tail(self, name: str, size: int) -> bytes:
        """Read the last `size` bytes of an object."""
        url = f"{self.url}/{name}"
        if self.protocol in _FROM_THE_END:
            data = self._of(url, -size, None)
        else:
            whole = self.tried(url, lambda fs: self.answer(fs, "info", fs._strip_protocol(url)))
            data = self._of(url, max(0, whole["size"] - size), whole["size"])
        return self._whole(name, data, size)

    def part(self, name: str, offset: int, size: int) -> bytes:
        """Read `size` bytes of an object from `offset`."""
        return self._whole(name, self._of(f"{self.url}/{name}", offset, offset + size), size)

    # -- requests ------------------------------------------------------------------------------

    def _of(self, url: str, start: int, end: int | None) -> bytes:
        """Bytes ``start … end - 1`` of an object."""
        return self.tried(url, lambda fs: self._range(fs, url, start, end))

    def _range(self, fs: Any, url: str, start: int, end: int | None) -> bytes:
        path = fs._strip_protocol(url)
        try:
            data: bytes = self.answer(fs, "cat_file", path, start=start, end=end)
        except Exception as error:
            if _is_past_the_end(error):
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

    def answer(self, fs: Any, method: str, *args: Any, n_bytes: int = 0, **kwargs: Any) -> Any:
        """Call a method of the file system, and look several times a second while it works.

        `n_bytes` is the size of what is sent, which takes its time.
        """
        if not fs.async_impl:
            return getattr(fs, method)(*args, **kwargs)
        coroutine: Coroutine[Any, Any, Any] = getattr(fs, f"_{method}")(*args, **kwargs)
        future = asyncio.run_coroutine_threadsafe(coroutine, fs.loop)
        try:
            # Only some drivers have a time-out of their own.
            end = time.monotonic() + max(store_timeout(), _ANSWER_SECONDS) + n_bytes / _SLOWEST
            while True:
                try:
                    return future.result(LOOK_SECONDS)
                except TimeoutError:
                    if future.done() or time.monotonic() > end:
                        raise
                look_now()
        finally:
            future.cancel()

    def tried(self, url: str, call: Callable[[Any], T], *, n_bytes: int = 0) -> T:
        """Return what `call` gives for the file system; tried again with growing pauses.

        Parameters
        ----------
        url : str
            URL of the object, for messages.
        call : callable
            Given the file system of fsspec; uses `answer`.
        n_bytes : int
            Size of what is sent.

        Raises
        ------
        FileNotFoundError, FileExistsError
            As the storage has answered.
        StoreError
            Access is refused, or it cannot be reached.
        """
        timeout = store_timeout()
        end, pause = time.monotonic() + timeout + n_bytes / _SLOWEST, _FIRST_PAUSE
        while True:
            try:
                fs = self._file_system()
                try:
                    return call(fs)
                except FileNotFoundError as error:
                    self._confirm_absence(fs, url, error)
                    raise
            except (FileNotFoundError, FileExistsError, ParameterError, StoreError):
                raise
            except Exception as error:
                refusal = _refusal(error)
                if refusal is not None:
                    raise StoreError(f"{url}: {refusal}") from error
                if time.monotonic() + pause > end:
                    raise UnreachableError(
                        f"{url}: cannot be reached ({_reason(error)}), tried for {timeout:g} s; "
                        f"check the network and the server, then try again ({TIMEOUT_VARIABLE} "
                        "sets the seconds)"
                    ) from error
            # Clients that failed together should not come back together.
            wait(pause * random.uniform(0.5, 1))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _confirm_absence(self, fs: Any, url: str, error: FileNotFoundError) -> None:
        """Have the storage list the names beside one that it has not found.

        Raises
        ------
        StoreError
            The bucket does not exist.
        ConnectionError
            It lists the name.
        """
        if _code(error) == "NoSuchBucket":
            bucket = self.url.partition("://")[2].partition("/")[0]
            raise StoreError(
                f"{url}: there is no bucket or container {bucket!r}; check its name, and the "
                "endpoint and region"
            ) from error
        if self.protocol in _WITHOUT_LISTS:
            return
        path = fs._strip_protocol(url)
        try:
            listed = self.answer(fs, "ls", path.rpartition("/")[0], detail=False)
        except (FileNotFoundError, PermissionError):
            return
        if path in listed:
            raise ConnectionError("the storage lists the object, but does not give it")

    def _file_system(self) -> Any:
        """Open the file system of fsspec, once for each process."""
        if self._opened is None or self._opened[0] != os.getpid():
            self._opened = os.getpid(), _file_system(self.protocol, self._options)
        return self._opened[1]


def lies_below(place: Place, other: Place) -> bool:
    """Whether a place, where nothing need be yet, is below another one."""
    if isinstance(place, Folder) and isinstance(other, Folder):
        return lies_in(place.path.parent, other.path)
    return str(place).startswith(f"{other}/")


def store_timeout() -> float:
    """Seconds for which an object that cannot be reached is tried again.

    Raises
    ------
    ParameterError
        The environment variable is not a number of seconds.
    """
    text = os.environ.get(TIMEOUT_VARIABLE)
    if not text:
        return _TIMEOUT
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise ParameterError(f"{TIMEOUT_VARIABLE} is {text!r}; it must be a number of seconds")
    return seconds


def _file_system(protocol: str, options: Mapping[str, Any]) -> Any:
    """Open a file system that does not try again by itself, and has our time-outs."""
    # Few need it.
    import fsspec

    try:
        fs = fsspec.filesystem(
            protocol, use_listings_cache=False, **_with_timeouts(protocol, options)
        )
    except ImportError as error:
        raise ParameterError(
            f"stores at {protocol}:// need the package {_DRIVERS[protocol]}; install bigsvm[cloud]"
        ) from error
    fs.retries = 1  # s3fs tries as often; others do not look at it
    return fs


def _with_timeouts(protocol: str, options: Mapping[str, Any]) -> dict[str, Any]:
    options = dict(options)
    if protocol in ("s3", "s3a"):
        config = {
            "connect_timeout": _CONNECT_SECONDS,
            "read_timeout": _ANSWER_SECONDS,
            "retries": {"total_max_attempts": 1},
            "max_pool_connections": 32,
        }
        options["config_kwargs"] = {**config, **options.get("config_kwargs", {})}
    elif protocol in _WITHOUT_LISTS:
        import aiohttp

        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=_CONNECT_SECONDS, sock_read=_ANSWER_SECONDS
        )
        options["client_kwargs"] = {"timeout": timeout, **options.get("client_kwargs", {})}
    return options


def _check_size(place: Place, size: int, limit: int) -> None:
    """Refuse a file that is larger than any of a store.

    Raises
    ------
    StoreError
    """
    if size > limit:
        raise StoreError(f"{place}: larger than {limit} bytes, which no store needs; {REMEDY}")


def _without_secrets(url: str) -> str:
    """Return a URL without user, password and query."""
    return re.sub(r"://[^/]*@", "://…@", url).partition("?")[0]


def _harmless(options: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _harmless(value) if isinstance(value, dict) else value
        for name, value in options.items()
        if name in _HARMLESS
    }


# -- what errors of fsspec and of the libraries below it mean ------------------------------------


def _chain(error: BaseException) -> list[BaseException]:
    """Return an error, and those that it came from."""
    chain = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    return chain


def _code(error: BaseException) -> str | int | None:
    """Return the code of an error that the storage itself has named."""
    for link in _chain(error):
        response = getattr(link, "response", None)
        if isinstance(response, dict):
            code: str | None = response.get("Error", {}).get("Code")
            return code
        for attribute in ("status", "status_code", "code"):
            status = getattr(link, attribute, None)
            if isinstance(status, int):
                return status
    return None


def is_not_supported(error: Exception) -> bool:
    """Whether the storage has said that it does not know such a request."""
    return _code(error) in ("NotImplemented", "501", 501)


def _is_past_the_end(error: Exception) -> bool:
    """Whether bytes were asked for behind the last one of an object."""
    return _code(error) in ("InvalidRange", "416", 416)


def _refusal(error: Exception) -> str | None:
    """Return a sentence about an error that trying again does not help; None for others."""
    names = {type(link).__name__ for link in _chain(error)}
    if names & {
        "NoCredentialsError", "PartialCredentialsError", "ProfileNotFound",
        "DefaultCredentialsError", "TokenRetrievalError", "CredentialRetrievalError",
        "ClientAuthenticationError",
    }:  # fmt: skip
        return (
            f"there are no valid credentials ({_reason(error)}); set them in the environment of "
            "the process, as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY for S3, or give "
            "storage_options"
        )
    if isinstance(error, PermissionError) or _code(error) in (401, 403):
        return (
            f"access is refused ({_reason(error)}); check the credentials, and that they may list "
            "and read these objects, or write and delete them where they are made. S3 also answers "
            "so for objects that do not exist, if names may not be listed"
        )
    if _code(error) in _WRONG or isinstance(error, _WRONG_CALLS) or "ParamValidationError" in names:
        return (
            f"the request is not one that the storage takes ({_reason(error)}); check the name of "
            "the bucket, the endpoint, the region and storage_options"
        )
    return None


def _reason(error: BaseException) -> str:
    """Describe an error in a few words, on one line and without URLs that hold secrets."""
    text = " ".join(str(error).split()) or type(error).__name__
    return _without_secrets(text)[:200]
