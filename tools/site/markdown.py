"""Cut long pages into pages of the site, and lead the links of Markdown to these."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tools.site.pages import Made

_FENCE = re.compile(r"^(`{3,}|~{3,}).*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^(#{2,3}) (.+)$", re.MULTILINE)
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]*)\)")


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """Change a text but for its fenced blocks."""
    parts, end = [], 0
    for fence in _FENCE.finditer(text):
        parts += [change(text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, change(text[end:])])


def slug(heading: str) -> str:
    """Anchor of a heading, as forges make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def cut(text: str) -> tuple[str, dict[str, str]]:
    """Cut a page at its headings of the second and third level.

    Returns
    -------
    before : str
        What is before the first of them.
    sections : dict of str to str
        What is below each heading, without the heading.
    """
    spans = [(each.start(), each.end()) for each in _FENCE.finditer(text)]
    found = [
        each
        for each in _HEADING.finditer(text)
        if not any(first < each.start() < last for first, last in spans)
    ]
    ends = [each.start() for each in found[1:]] + [len(text)]
    sections = {
        each[2]: text[each.end() : end].strip("\n") for each, end in zip(found, ends, strict=True)
    }
    return text[: found[0].start()], sections


def nested(text: str) -> dict[str, tuple[str, ...]]:
    """Headings of the second level, each with those of the third level below it."""
    found: dict[str, tuple[str, ...]] = {}
    for level, heading in _HEADING.findall(_FENCE.sub("", text)):
        if len(level) == 2:
            found[heading] = ()
        else:
            last = next(reversed(found))
            found[last] = (*found[last], heading)
    return found


def assemble(page: Made, sections: Mapping[str, str]) -> str:
    """Text of a page of some sections; of one section alone the heading is the title."""
    title = page.title or page.sections[0]
    if len(page.sections) == 1:
        return f"# {title}\n\n{sections[page.sections[0]]}\n"
    parts = [f"## {name}\n\n{sections[name]}" for name in page.sections]
    return "\n\n".join([f"# {title}", *parts]) + "\n"


def check_sections(name: str, sections: Iterable[str], pages: Iterable[Made]) -> None:
    """Refuse sections that are on no page, or on two, and pages of sections that are not there.

    Raises
    ------
    ValueError
        With the sections.
    """
    placed = [section for page in pages for section in page.sections]
    known = set(sections)
    if wrong := sorted(known.symmetric_difference(placed)):
        raise ValueError(f"{name} and tools/site/pages.py differ in the sections {wrong}")
    if twice := sorted({section for section in placed if placed.count(section) > 1}):
        raise ValueError(f"tools/site/pages.py has these sections of {name} twice: {twice}")


def without_limits(text: str) -> tuple[str, str]:
    """Part a text that ``tools.measured`` has written from its tables with a column ``limit``.

    Returns
    -------
    others : str
    limits : str
    """
    blocks = re.split(r"^(?=<!-- )", text, flags=re.MULTILINE)
    limits = [block for block in blocks if re.search(r"^\|.*\| limit +\|", block, re.MULTILINE)]
    return "".join(block for block in blocks if block not in limits), "".join(limits)


def relinked(text: str, origin: str, place: str, homes: Mapping[str, str], files: str) -> str:
    """Lead the links of a text to pages of the site, or to the repository.

    Parameters
    ----------
    text : str
    origin : str
        Path in the repository that the links of the text are relative to.
    place : str
        Path of the page below ``docs``, without its suffix.
    homes : mapping of str to str
        Where a file, or ``file#anchor``, of the repository is on the site: a path below ``docs``
        without suffix, with an anchor where it has one.
    files : str
        Address of the repository's files. While there is none, their links are left out.
    """

    def link(found: re.Match[str]) -> str:
        image, words, target = found.groups()
        if re.match(r"[a-z]+:", target) or not target:
            return found[0]
        file, _, anchor = target.partition("#")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), file or origin))
        if not file:
            path = origin
        home = homes.get(f"{path}#{anchor}") or homes.get(path)
        if home is None:
            if image or not file:
                return found[0]
            return f"[{words}]({files}/{path})" if files else words
        page, _, of_home = home.partition("#")
        anchor = of_home if f"{path}#{anchor}" in homes else anchor
        if page == place and anchor:
            return f"{image}[{words}](#{anchor})"
        there = posixpath.relpath(page, posixpath.dirname(place) or ".")
        suffix = "" if image else ".rst" if page.startswith("gallery/") else ".md"
        return f"{image}[{words}]({there}{suffix}{'#' + anchor if anchor else ''})"

    return outside_code(text, lambda part: _LINK.sub(link, part))
