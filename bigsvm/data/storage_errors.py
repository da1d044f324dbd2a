"""What the errors of fsspec, and of the libraries below it, mean."""

from __future__ import annotations

import re

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
