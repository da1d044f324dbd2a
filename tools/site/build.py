"""Write the pages that are made of other texts, and lead links to where things are on the site."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.site import markdown, reference
from tools.site.pages import FOR_DEVELOPERS, GUIDE, LIMITS, MEASURED, Made

if TYPE_CHECKING:
    from pathlib import Path

MADE = ("guide", "measured", "reference", "developers")
"""Folders below ``docs`` that are written by `write`, and are not committed."""
CUT = ("guide.md", "measured.md")
"""Pages below ``docs`` that are not on the site as they are."""
_ESTIMATORS = Made("estimators", ("Which estimator", "Limits"), "Which estimator, and limits")
"""Page of the guide that is made of sections of the README."""
_WITH_GUIDE = {
    "Training": ("/gallery/bad_model",),
    "Problems": ("estimators", "/problems"),
    "Coming from": ("/from_others",),
    "Cluster": ("/cluster",),
}
"""Pages of their own among those of the guide, by group."""
_EVIDENCE = ("comparison", "records", "papers")
"""Pages below ``docs`` beside the measured ones, where they are there."""
_OF_USERS = ("index", "start", "problems", "from_others", "cluster")


class Site:
    """The made pages of a repository, and where its files are on the site.

    Parameters
    ----------
    repository : Path
        Root of a checkout.
    files : str, optional
        Address of the files of the repository on the web, for links to what is not on the site.
    """

    def __init__(self, repository: Path, files: str = "") -> None:
        self.repository, self.files = repository, files
        self.homes = {
            "README.md": "index",
            "README.md#how-fast-it-is": "measured/index",
            "docs/guide.md": "guide/index",
            "docs/measured.md": "measured/index",
            "CHANGELOG.md": "developers/changelog",
            ".github/CONTRIBUTING.md": "developers/contributing",
            "examples": "gallery/index",
        }
        for path in (repository / "docs").glob("*.md"):
            self.homes.setdefault(f"docs/{path.name}", path.stem)
        for path in (repository / "examples").glob("*.py"):
            self.homes[f"examples/{path.name}"] = f"gallery/{path.stem}"
        self._guide = [page for group in GUIDE.values() for page in group]
        ours = {name for page in MEASURED for name in page.sections}
        headings = markdown.nested(self._read("docs/measured.md"))
        others = tuple(name for name in headings if name not in ours)
        self._for_developers = Made("measured", others, FOR_DEVELOPERS)
        self._place("docs/guide.md", "guide", self._guide)
        self._place("README.md", "guide", [_ESTIMATORS])
        self._place("docs/measured.md", "measured", list(MEASURED))
        self._place("docs/measured.md", "developers", [self._for_developers])
        self.pages: dict[str, str] = {}
        self._add_guide()
        self._add_measured()
        self._add_developers()
        self.pages |= reference.names_pages() | reference.commands_pages()
        self.homes |= {f"docs/{name}": name.rpartition(".")[0] for name in self.pages}

    def relinked(self, text: str, origin: str, page: str) -> str:
        """Lead the links of a text of the file `origin` to pages, from the page `page`."""
        return markdown.relinked(text, origin, page, self.homes, self.files)

    def write(self) -> None:
        """Write the made pages that differ from what is there, and remove others."""
        docs = self.repository / "docs"
        for folder in MADE:
            for path in (docs / folder).rglob("*.*"):
                if path.relative_to(docs).as_posix() not in self.pages:
                    path.unlink()
        for name, text in self.pages.items():
            path = docs / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                path.write_text(text, encoding="utf-8")

    def _place(self, origin: str, folder: str, pages: list[Made]) -> None:
        """Note where the sections of a file are; of a page of one section it is the page."""
        for page in pages:
            for section in page.sections:
                home = f"{folder}/{page.name}"
                if len(page.sections) > 1:
                    home += f"#{markdown.slug(section)}"
                self.homes[f"{origin}#{markdown.slug(section)}"] = home

    def _cut(self, origin: str, folder: str, pages: list[Made]) -> str:
        """Add pages made of sections of a file; what is before its first section is returned."""
        before, sections = markdown.cut(self._read(origin))
        self._assemble(origin, folder, pages, sections)
        return before

    def _assemble(
        self, origin: str, folder: str, pages: list[Made], sections: dict[str, str]
    ) -> None:
        for page in pages:
            place = f"{folder}/{page.name}"
            text = markdown.assemble(page, sections)
            self.pages[f"{place}.md"] = self.relinked(text, origin, place)

    def _add_guide(self) -> None:
        origin, pages = "docs/guide.md", self._guide
        nested = markdown.nested(self._read(origin))
        sections = [name for pair in nested.items() for name in (pair[0], *pair[1])]
        markdown.check_sections(origin, sections, pages)
        before = self._cut(origin, "guide", pages)
        self._cut("README.md", "guide", [_ESTIMATORS])
        # The paragraph that lists all sections: they are below, by group.
        before = "\n\n".join(part for part in before.split("\n\n") if " · " not in part)
        before = before.replace("# The guide", "# User guide")
        index = [self.relinked(before, origin, "guide/index")]
        for group in [*GUIDE, *(name for name in _WITH_GUIDE if name not in GUIDE)]:
            names = [page.name for page in GUIDE.get(group, ())] + list(_WITH_GUIDE.get(group, ()))
            index.append(_toctree(names, caption=group))
        self.pages["guide/index.md"] = "\n".join(index)

    def _add_measured(self) -> None:
        origin, for_developers = "docs/measured.md", self._for_developers
        nested = markdown.nested(self._read(origin))
        markdown.check_sections(origin, nested, [*MEASURED, for_developers])
        before, sections = markdown.cut(self._read(origin))
        limits = []
        for page in MEASURED:
            for name in page.sections:
                sections[name], of_section = markdown.without_limits(sections[name])
                if of_section:
                    limits.append(f"### {name}: limits\n\n{of_section.strip()}")
        self._assemble(origin, "measured", list(MEASURED), sections)
        sections[LIMITS] = "\n\n".join(limits)
        with_limits = for_developers._replace(sections=(*for_developers.sections, LIMITS))
        self._assemble(origin, "developers", [with_limits], sections)
        names = [page.name for page in MEASURED]
        names += [f"/{name}" for name in _EVIDENCE if f"docs/{name}.md" in self.homes]
        # First where the figures are, then how to read them.
        head, notes = before.split("\n\n* ", 1)
        text = f"{head}\n\n{_toctree(names)}\n## How to read the tables\n\n* {notes}"
        self.pages["measured/index.md"] = self.relinked(text, origin, "measured/index")

    def _add_developers(self) -> None:
        for name, origin in (("changelog", "CHANGELOG.md"), ("contributing", None)):
            origin = origin or ".github/CONTRIBUTING.md"
            place = f"developers/{name}"
            self.pages[f"{place}.md"] = self.relinked(self._read(origin), origin, place)
        rooms = reference.rooms_pages(self.repository / "bigsvm")
        self.pages |= rooms
        known = {*_OF_USERS, *_EVIDENCE, *(name.removesuffix(".md") for name in CUT)}
        own = sorted(path.stem for path in (self.repository / "docs").glob("*.md"))
        names = [f"/{name}" for name in own if name not in known]
        index = [
            "# Developers",
            "",
            "For those who change bigsvm, or want to know why it does what it does.",
            "",
            _toctree([*names, "contributing", "changelog", "measured"]),
            _toctree([f"rooms/{path.split('/')[-1][:-3]}" for path in rooms], caption="Packages"),
        ]
        self.pages["developers/index.md"] = "\n".join(index)

    def _read(self, name: str) -> str:
        return (self.repository / name).read_text(encoding="utf-8")


def _toctree(names: list[str], caption: str = "") -> str:
    """Directive that lists pages."""
    options = [f":caption: {caption}"] if caption else []
    return "\n".join(["```{toctree}", *options, ":maxdepth: 1", "", *names, "```", ""])
