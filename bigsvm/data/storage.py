"""Storage: the file systems of fsspec, and how often their requests are tried.

Their errors, and those of the libraries below them, become one of these:

* `FileNotFoundError`: there is no such file. The storage has answered so, and lists no such name.
* `StoreError`: access is refused, credentials or the bucket are missing. Trying again is no help.
* `UnreachableError`: everything else, after `store_timeout` seconds of trying again.
"""

from __future__ import annotations

import math
import os
import random
import re
import time
from typing import TYPE_CHECKING, Any, TypeVar

from bigsvm.errors import ParameterError, StoreError, UnreachableError
from bigsvm.interruption import CHECK_SECONDS, check_interrupt, wait

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

_WRONG = frozenset({
    301, "301", "PermanentRedirect", "AuthorizationHeaderMalformed", "InvalidBucketName",
    "IllegalLocationConstraintException",
})  # fmt: skip
"""Codes of errors that the same request gets again, as with another region."""
_WRONG_CALLS = (TypeError, NotImplementedError)
"""Errors of drivers that do not know an option or a request."""


def without_secrets(url: str) -> str:
    """Return a URL without user, password and query."""
    return re.sub(r"://[^/]*@", "://…@", url).partition("?")[0]


def _chain(error: BaseException) -> list[BaseException]:
    """Return an error, and those that it came from."""
    chain = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    return chain


def code_of(error: BaseException) -> str | int | None:
    """Return the code of an error that the storage itself has named."""
    for link in _chain(error):
        response = getattr(link, "response", None)
        if isinstance(response, dict):
            code: str | None = response.get("Error", {}).get("Code")
            return code
        for attribute in ("status", "statuscode_of", "code"):
            status = getattr(link, attribute, None)
            if isinstance(status, int):
                return status
    return None


def is_not_supported(error: Exception) -> bool:
    """Whether the storage has said that it does not know such a request."""
    return code_of(error) in ("NotImplemented", "501", 501)


def is_past_the_end(error: Exception) -> bool:
    """Whether bytes were asked for behind the last one of an object."""
    return code_of(error) in ("InvalidRange", "416", 416)


def refusal_of(error: Exception) -> str | None:
    """Return a sentence about an error that trying again does not help; None for others."""
    names = {type(link).__name__ for link in _chain(error)}
    if names & {
        "NoCredentialsError", "PartialCredentialsError", "ProfileNotFound",
        "DefaultCredentialsError", "TokenRetrievalError", "CredentialRetrievalError",
        "ClientAuthenticationError",
    }:  # fmt: skip
        return (
            f"there are no valid credentials ({reason_of(error)}); set them in the environment of "
            "the process, as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY for S3, or give "
            "storage_options"
        )
    if isinstance(error, PermissionError) or code_of(error) in (401, 403):
        return (
            f"access is refused ({reason_of(error)}); check the credentials, and that they may "
            "list and read these objects, or write and delete them where they are made. S3 also "
            "answers so for objects that do not exist, if names may not be listed"
        )
    if (
        code_of(error) in _WRONG
        or isinstance(error, _WRONG_CALLS)
        or "ParamValidationError" in names
    ):
        return (
            f"the request is not one that the storage takes ({reason_of(error)}); check the name "
            "of the bucket, the endpoint, the region and storage_options"
        )
    return None


def reason_of(error: BaseException) -> str:
    """Describe an error in a few words, on one line and without URLs that hold secrets."""
    text = " ".join(str(error).split()) or type(error).__name__
    return without_secrets(text)[:200]


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

DRIVERS = {
    "s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs",
    "abfss": "adlfs", "http": "aiohttp", "https": "aiohttp", "memory": "fsspec",
}  # fmt: skip
"""Protocols of URLs, and the package that fsspec needs for each."""
WITHOUT_LISTS = frozenset({"http", "https"})
"""Protocols that cannot list names."""
_HARMLESS = frozenset({
    "account_name", "anon", "client_kwargs", "default_location", "endpoint_url", "profile",
    "project", "region_name", "requester_pays", "use_ssl", "verify",
})  # fmt: skip
"""Storage options that hold no secrets. All others are left out where they are written down."""


class Storage:
    """What is behind the URLs of a protocol, one of DRIVERS; opened once for each process.

    Pickled without the options that may hold secrets: another process has credentials of its own,
    from its environment. The options are arguments of the file system of fsspec.
    """

    def __init__(self, protocol: str, options: Mapping[str, Any]) -> None:
        self.protocol, self._options = protocol, dict(options)
        self._opened: tuple[int, Any] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Storage, (self.protocol, self.harmless_options())

    def harmless_options(self) -> dict[str, Any]:
        """Options without those that may hold secrets."""
        return _harmless(self._options)

    def answer(self, fs: Any, method: str, *args: Any, n_bytes: int = 0, **kwargs: Any) -> Any:
        """Call a method of the file system, and check several times a second while it works.

        `n_bytes` is the size of what is sent, which takes its time.
        """
        if not fs.async_impl:
            return getattr(fs, method)(*args, **kwargs)
        # Imported here, as stores of this machine do without.
        import asyncio

        coroutine: Coroutine[Any, Any, Any] = getattr(fs, f"_{method}")(*args, **kwargs)
        future = asyncio.run_coroutine_threadsafe(coroutine, fs.loop)
        try:
            # Only some drivers have a time-out of their own.
            end = time.monotonic() + max(store_timeout(), _ANSWER_SECONDS) + n_bytes / _SLOWEST
            while True:
                try:
                    return future.result(CHECK_SECONDS)
                except TimeoutError:
                    if future.done() or time.monotonic() > end:
                        raise
                check_interrupt()
        finally:
            future.cancel()

    def tried(self, url: str, call: Callable[[Any], T], *, n_bytes: int = 0) -> T:
        """Return what `call` gives for the file system; tried again with growing pauses.

        `call` is given the file system of fsspec, and uses `answer`. Messages name `url`; `n_bytes`
        is the size of what is sent. A `FileNotFoundError` or `FileExistsError` is what the storage
        has answered.
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
                refusal = refusal_of(error)
                if refusal is not None:
                    raise StoreError(f"{url}: {refusal}") from error
                if time.monotonic() + pause > end:
                    raise UnreachableError(
                        f"{url}: cannot be reached ({reason_of(error)}), tried for {timeout:g} s; "
                        f"check the network and the server, then try again ({TIMEOUT_VARIABLE} "
                        "sets the seconds)"
                    ) from error
            # Clients that failed together should not come back together.
            wait(pause * random.uniform(0.5, 1))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _confirm_absence(self, fs: Any, url: str, error: FileNotFoundError) -> None:
        """Have the storage list the names beside one that it has not found.

        A `StoreError` says that the bucket does not exist, a `ConnectionError` that the name is
        listed.
        """
        if code_of(error) == "NoSuchBucket":
            bucket = url.partition("://")[2].partition("/")[0]
            raise StoreError(
                f"{url}: there is no bucket or container {bucket!r}; check its name, and the "
                "endpoint and region"
            ) from error
        if self.protocol in WITHOUT_LISTS:
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


def store_timeout() -> float:
    """Seconds for which an object that cannot be reached is tried again."""
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
            f"stores at {protocol}:// need the package {DRIVERS[protocol]}; install bigsvm[cloud]"
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
    elif protocol in WITHOUT_LISTS:
        import aiohttp

        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=_CONNECT_SECONDS, sock_read=_ANSWER_SECONDS
        )
        options["client_kwargs"] = {"timeout": timeout, **options.get("client_kwargs", {})}
    return options


def _harmless(options: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _harmless(value) if isinstance(value, dict) else value
        for name, value in options.items()
        if name in _HARMLESS
    }
