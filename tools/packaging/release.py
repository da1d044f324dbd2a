"""Make this checkout the one to release: addresses in place of placeholders, and a version.

    python -m tools.packaging.release --address https://forge.example/x --site https://x.example
    python -m tools.packaging.release --version 0.2.0 --date 2026-12-24
    python -m tools.packaging.release --tag v0.2.0

``--version`` begins a release: the version and the changelog are then committed and tagged.
``--address`` and ``--site`` are for the workflow that builds the tagged commit. What they write is
built and not committed, so that a fork releases with its own addresses. ``--tag`` checks the tag of
the version.
"""

from __future__ import annotations

import argparse
import datetime
import re
import sys
from pathlib import Path
from urllib.parse import urlsplit

PLACEHOLDER = "https://bigsvm.invalid"
"""Address of the repository in committed files. Names that end in .invalid are never registered."""
SITE = "https://docs.bigsvm.invalid"
"""That of the documentation, to which the "?" of an estimator in a notebook leads."""
WITH_ADDRESS = (
    "pyproject.toml",
    "CITATION.cff",
    ".github/SECURITY.md",
    ".github/CODE_OF_CONDUCT.md",
    "tools/packaging/conda/recipe.yaml",
    "tools/packaging/Containerfile",
)
"""Files with the placeholder."""
README = "README.md"
VERSION = "bigsvm/version.py"
CHANGELOG = "CHANGELOG.md"
WITH_VERSION = (
    (VERSION, r'^__version__ = ".*"$', '__version__ = "{version}"'),
    ("CITATION.cff", r"^version: .*$", "version: {version}"),
    ("CITATION.cff", r"^date-released: .*$", "date-released: {date}"),
    ("tools/packaging/conda/recipe.yaml", r'^  version: ".*"$', '  version: "{version}"'),
)
"""Files that have the version or its date, each with the line that has it."""
_VERSION_LINE = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)
_NUMBERS = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")
_LINK = re.compile(r"(!?\[[^\]]*\]\()([^)#\s]+)")
_UNRELEASED = "## [Unreleased]\n"


class Refused(Exception):
    """The checkout, or what was asked for, is not fit for a release."""


def fill(folder: Path, address: str, site: str) -> None:
    """Write the addresses of the repository and of the site over placeholders, and into links.

    Links of the README are relative, and the page of a package index has no files beside it: there
    they lead to the files of the tag.

    Parameters
    ----------
    folder : Path
        Root of a checkout.
    address : str
        Address of the repository.
    site : str
        Address of the documentation.

    Raises
    ------
    Refused
        If an address is none, or a file has no placeholder, as after a first call. Nothing is
        then written.
    """
    address, site = _address("--address", address), _address("--site", site)
    written = {}
    for name in WITH_ADDRESS:
        text = _read(folder / name)
        if PLACEHOLDER not in text:
            raise Refused(
                f"{name} has no {PLACEHOLDER}: has it been filled already? Take a fresh checkout"
            )
        written[name] = text.replace(PLACEHOLDER, address).replace(SITE, site)
    tag = f"v{version_of(folder)}"
    written[README] = _LINK.sub(
        lambda link: link[1] + _absolute(link[2], f"{address}/{{kind}}/{tag}", link[1][0] == "!"),
        _read(folder / README),
    )
    for name, text in written.items():
        (folder / name).write_text(text, encoding="utf-8")


def set_version(folder: Path, version: str, date: str) -> None:
    """Write a version, and its date, into the package, the changelog and the citation.

    Parameters
    ----------
    folder : Path
        Root of a checkout.
    version : str
        Three numbers with points between them, greater than the version that is there; the version
        that is there if the changelog has none yet.
    date : str
        Day of the release, as ISO 8601 writes it.

    Raises
    ------
    Refused
        If the version is none or too small, the date is none, or the changelog has nothing that is
        not released. Nothing is then written.
    """
    now = version_of(folder)
    changelog = _read(folder / CHANGELOG)
    first = not re.search(r"^## \[\d", changelog, re.MULTILINE)
    if _numbers(version) < _numbers(now) or (version == now and not first):
        raise Refused(f"--version {version} is not greater than {now}, the version in {VERSION}")
    try:
        datetime.date.fromisoformat(date)
    except ValueError:
        raise Refused(f"--date {date!r} is no day: write it as 2026-12-24") from None
    before, unreleased, after = changelog.partition(_UNRELEASED)
    changes = re.split(r"^## \[", after, maxsplit=1, flags=re.MULTILINE)[0]
    if not unreleased or not re.search(r"^- ", changes, re.MULTILINE):
        raise Refused(f"{CHANGELOG} has no change under {_UNRELEASED.strip()!r}: say what is new")
    written = {CHANGELOG: f"{before}{_UNRELEASED}\n## [{version}] - {date}\n{after}"}
    for name, line, form in WITH_VERSION:
        text = written.get(name) or _read(folder / name)
        line_now = form.format(version=version, date=date)
        written[name], found = re.subn(line, line_now, text, count=1, flags=re.MULTILINE)
        if not found:
            raise Refused(f"{name} has no line {form.split('{')[0]!r}…: write it back")
    for name, text in written.items():
        (folder / name).write_text(text, encoding="utf-8")


def check_tag(folder: Path, tag: str) -> None:
    """Refuse a tag that is not that of the version, and a version that the changelog has not."""
    version = version_of(folder)
    if tag != f"v{version}":
        raise Refused(
            f"the tag {tag} is not v{version}, of the version in {VERSION}: tag v{version}"
        )
    if f"\n## [{version}] - " not in _read(folder / CHANGELOG):
        raise Refused(
            f"{CHANGELOG} has no section [{version}]: run this with --version before you tag"
        )


def version_of(folder: Path) -> str:
    """Version of a checkout."""
    found = _VERSION_LINE.search(_read(folder / VERSION))
    if found is None:
        raise Refused(f'{VERSION} has no line __version__ = "…"')
    return found[1]


def _address(option: str, given: str) -> str:
    """Return an address without a slash at its end."""
    parts = urlsplit(given)
    if parts.scheme != "https" or not parts.netloc or parts.query or parts.fragment:
        raise Refused(f"{option} {given!r} is no address of a page: write it as https://…/bigsvm")
    return given.rstrip("/")


def _absolute(target: str, files: str, is_image: bool) -> str:
    """Address of what a link of the README leads to; an address stays as it is."""
    if "://" in target:
        return target
    return f"{files.format(kind='raw' if is_image else 'blob')}/{target}"


def _numbers(version: str) -> tuple[int, ...]:
    found = _NUMBERS.fullmatch(version)
    if found is None:
        raise Refused(f"--version {version!r} is not three numbers with points, as 1.4.0 is")
    return tuple(map(int, found.groups()))


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def main(arguments: list[str] | None = None, folder: Path = Path()) -> int:
    """Do what the options say; 2 if it is refused."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--address", help="address of the repository, for all that is built")
    parser.add_argument("--site", help="address of the documentation; needed with --address")
    parser.add_argument("--version", help="the new version; the changelog gets a section for it")
    parser.add_argument(
        "--date", default=datetime.date.today().isoformat(), help="its day (default: today)"
    )
    parser.add_argument("--tag", help="fail if the version is not that of this tag")
    options = parser.parse_args(arguments)
    if not (options.address or options.version or options.tag):
        parser.error("give --address, --version or --tag")
    if (options.address is None) != (options.site is None):
        parser.error("give --address and --site together: both are in the metadata")
    try:
        if options.version:
            set_version(folder, options.version, options.date)
        if options.tag:
            check_tag(folder, options.tag)
        if options.address:
            fill(folder, options.address, options.site)
    except Refused as refused:
        print(refused, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
