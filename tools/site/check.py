"""Check the built pages: every link inside leads somewhere, and tasks are found in a few clicks.

    python -m tools.site.check build/site

It walks the links of the start page as a reader does, and prints what is wrong.
"""

from __future__ import annotations

import posixpath
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

from tools.site.pages import CLICKS, TASKS

FROZEN = Path(__file__).parents[2] / "tests" / "public_surface.txt"
_STATIC = ("_static/", "_images/", "_downloads/", "_sources/")
"""Folders of Sphinx's own files and of pictures, which must exist but have no links."""


class Page(HTMLParser):
    """Links and anchors of a page; links of its article alone count as clicks of a reader.

    Attributes
    ----------
    links : list of str
    anchors : set of str
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a link, a picture or an anchor."""
        given = dict(attrs)
        if named := given.get("id"):
            self.anchors.add(named)
        target = given.get("href" if tag == "a" else "src" if tag in ("img", "script") else "")
        if target:
            self.links.append(target)


def read(folder: Path) -> dict[str, Page]:
    """Pages of a built site, by their path."""
    return {
        path.relative_to(folder).as_posix(): Page(path.read_text(encoding="utf-8"))
        for path in sorted(folder.rglob("*.html"))
        if not path.relative_to(folder).as_posix().startswith(_STATIC)
    }


def target_of(page: str, link: str) -> tuple[str, str] | None:
    """Path and anchor of a link of a page; None of one that leads out of the site."""
    if re.match(r"[a-z]+:|//", link):
        return None
    path, _, anchor = unquote(link).partition("#")
    path = path.partition("?")[0]
    whole = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
    return whole, anchor


def broken(pages: dict[str, Page], folder: Path) -> list[str]:
    """Links of a site that lead nowhere."""
    found = []
    for name, page in pages.items():
        for link in page.links:
            target = target_of(name, link)
            if target is None:
                continue
            path, anchor = target
            if not (folder / path).exists():
                found.append(f"{name}: {link} leads to no file")
            elif anchor and path in pages and anchor not in pages[path].anchors:
                found.append(f"{name}: {link} leads to no anchor")
    return found


def clicks(pages: dict[str, Page], start: str = "index.html") -> dict[str, int]:
    """Least number of clicks from the start page to each page."""
    distance, front = {start: 0}, [start]
    while front:
        new = []
        for name in front:
            for link in pages[name].links:
                target = target_of(name, link)
                if target and target[0] in pages and target[0] not in distance:
                    distance[target[0]] = distance[name] + 1
                    new.append(target[0])
        front = new
    return distance


def tasks_not_found(pages: dict[str, Page]) -> list[str]:
    """Tasks that take more clicks than they may, or whose place is not there."""
    distance, wrong = clicks(pages), []
    for task, place in TASKS.items():
        path, _, anchor = place.partition("#")
        page = pages.get(f"{path}.html")
        if page is None or (anchor and anchor not in page.anchors):
            wrong.append(f"{task}: {place} is not there")
        elif distance.get(f"{path}.html", CLICKS + 1) > CLICKS:
            wrong.append(f"{task}: {place} is more than {CLICKS} clicks from the start page")
    return wrong


def names_not_there(pages: dict[str, Page]) -> list[str]:
    """Public names of the frozen surface that have no entry in the reference."""
    lines = FROZEN.read_text(encoding="utf-8").splitlines()
    names = {line.split(" |")[0] for line in lines if line.startswith("bigsvm.")}
    anchors = {each for page in pages.values() for each in page.anchors}
    return [f"{name} has no entry in the reference" for name in sorted(names - anchors)]


def main(folder: Path) -> int:
    """Print what is wrong with a built site; 1 if there is anything."""
    pages = read(folder)
    wrong = [*broken(pages, folder), *tasks_not_found(pages), *names_not_there(pages)]
    for line in wrong:
        print(line)
    links = sum(len(page.links) for page in pages.values())
    print(f"{len(pages)} pages, {links} links, {len(TASKS)} tasks: {len(wrong)} faults")
    return min(len(wrong), 1)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
