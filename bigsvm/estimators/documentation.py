"""Where the documentation of an installed bigsvm is on the web."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, metadata


@cache
def site() -> str:
    """Address of the site, without a slash at its end; empty while a release has not filled it in.

    It is the one that the metadata of the package name as ``Documentation``.
    """
    try:
        urls = metadata("bigsvm").get_all("Project-URL") or []
    except PackageNotFoundError:
        return ""
    found = dict(each.split(", ", 1) for each in urls).get("Documentation", "")
    # Names that end in .invalid are never registered: it is the placeholder of a checkout.
    return "" if ".invalid" in found else found.rstrip("/")
