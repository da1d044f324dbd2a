"""`tools.site`: every section is on a page, links are led to pages, and faults are found."""

import re
from pathlib import Path

import pytest

from tools.site import check, markdown
from tools.site.build import MADE, Site
from tools.site.pages import GUIDE, Made

REPOSITORY = Path(__file__).resolve().parents[2]
HOMES = {
    "docs/guide.md": "guide/index",
    "docs/guide.md#train": "guide/train",
    "docs/guide.md#more-of-it": "guide/train#more-of-it",
    "examples/one.py": "gallery/one",
}


@pytest.fixture(scope="module")
def site():
    return Site(REPOSITORY, "https://forge.example/files")


def test_a_page_is_cut_at_its_headings_but_not_in_code():
    text = "# T\n\nbefore\n\n## One\n\na\n\n```sh\n## no heading\n```\n\n### Two\n\nb\n"
    before, sections = markdown.cut(text)
    assert before == "# T\n\nbefore\n\n"
    assert sections == {"One": "a\n\n```sh\n## no heading\n```", "Two": "b"}
    assert markdown.nested(text) == {"One": ("Two",)}


def test_a_page_of_one_section_has_its_heading_and_one_of_several_has_a_title():
    sections = {"One": "a", "Two": "b"}
    assert markdown.assemble(Made("x", ("One",)), sections) == "# One\n\na\n"
    both = markdown.assemble(Made("x", ("One", "Two"), "Both"), sections)
    assert both == "# Both\n\n## One\n\na\n\n## Two\n\nb\n"


@pytest.mark.parametrize(
    ("pages", "words"),
    [
        ([Made("x", ("One",))], r"docs/x\.md .* differ in the sections \['Two'\]"),
        ([Made("x", ("One", "Two", "Three"))], r"\['Three'\]"),
        ([Made("x", ("One", "Two")), Made("y", ("One",))], r"twice: \['One'\]"),
    ],
)
def test_a_section_that_is_not_on_one_page_is_refused(pages, words):
    with pytest.raises(ValueError, match=words):
        markdown.check_sections("docs/x.md", ["One", "Two"], pages)


@pytest.mark.parametrize(
    ("link", "there"),
    [
        ("[a](guide.md#train)", "[a](guide/train.md)"),
        ("[a](guide.md#more-of-it)", "[a](guide/train.md#more-of-it)"),
        ("[a](guide.md)", "[a](guide/index.md)"),
        ("[a](../examples/one.py)", "[a](gallery/one.rst)"),
        ("[a](../tools/some.py)", "[a](https://forge.example/tools/some.py)"),
        ("[a](https://b.example/c)", "[a](https://b.example/c)"),
        ("[a](#here)", "[a](#here)"),
        ("```\n[a](guide.md)\n```", "```\n[a](guide.md)\n```"),
    ],
)
def test_links_of_files_become_links_of_pages(link, there):
    text = markdown.relinked(link, "docs/some.md", "some", HOMES, "https://forge.example")
    assert text == there


def test_without_an_address_a_file_that_is_not_on_the_site_is_only_named():
    assert markdown.relinked("[a](../LICENSE)", "docs/some.md", "some", HOMES, "") == "a"


def test_a_link_to_a_section_of_the_same_page_stays_on_it():
    text = markdown.relinked(
        "[a](#more-of-it) [b](#train)", "docs/guide.md", "guide/train", HOMES, ""
    )
    assert text == "[a](#more-of-it) [b](train.md)"


def test_tables_of_limits_are_parted_from_others():
    shown = '<!-- table: ["a"] -->\n\n| who | s |\n|---|---|\n| a | 1 |\n\n'
    limits = '<!-- table: ["b"] -->\n\n| what | limit | found |\n|---|---|---|\n| a | 1 | 2 |\n'
    assert markdown.without_limits(f"Words.\n\n{shown}{limits}") == (f"Words.\n\n{shown}", limits)


def test_limits_of_the_project_are_on_the_page_for_developers(site):
    assert "| limit " not in "".join(
        text for name, text in site.pages.items() if name.startswith("measured/")
    )
    assert "sklearnex ÷ ours, a9a" in site.pages["developers/measured.md"]


def test_every_page_has_a_title_and_no_link_of_a_file(site):
    for name, text in site.pages.items():
        assert text.startswith("# ") or text.splitlines()[1].startswith("==="), name
        assert "](../tools/" not in text, name
        assert "](../README" not in text, name


@pytest.mark.parametrize("name", ["index.md", "how_it_works.md"])
def test_links_to_pages_that_are_made_lead_there(site, name):
    text = (REPOSITORY / "docs" / name).read_text(encoding="utf-8")
    there = site.relinked(text, f"docs/{name}", name.removesuffix(".md"))
    made = [link for link in re.findall(r"\]\(([^)#]+)", there) if link.split("/")[0] in MADE]
    assert made
    assert [link for link in made if link not in site.pages] == []


def test_the_guide_is_whole_on_its_pages(site):
    guide = (REPOSITORY / "docs" / "guide.md").read_text(encoding="utf-8")
    _, sections = markdown.cut(guide)
    for group in GUIDE.values():
        for page in group:
            text = site.pages[f"guide/{page.name}.md"]
            for section in page.sections:
                for line in sections[section].splitlines():
                    assert "](" in line or line in text, (page.name, line)


def test_a_new_page_has_its_place(tmp_path):
    for name in ("bigsvm", "examples", ".github", "README.md", "CHANGELOG.md"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    (tmp_path / "docs").mkdir()
    for path in (REPOSITORY / "docs").glob("*.md"):
        (tmp_path / "docs" / path.name).symlink_to(path)
    for name in ("records.md", "another.md"):
        (tmp_path / "docs" / name).unlink(missing_ok=True)
        (tmp_path / "docs" / name).write_text("# New\n", encoding="utf-8")
    pages = Site(tmp_path).pages
    assert "\n/records\n" in pages["measured/index.md"]
    assert "\n/another\n" in pages["developers/index.md"]


def test_each_command_and_each_package_has_a_page(site):
    assert "reference/commands/train.md" in site.pages
    assert "developers/rooms/training.md" in site.pages
    assert "--checkpoint-every" in site.pages["reference/commands/train.md"]


@pytest.fixture
def built(tmp_path):
    """A built site of three pages with one link too few."""
    (tmp_path / "guide").mkdir()
    (tmp_path / "index.html").write_text('<a href="guide/a.html#x">a</a>')
    (tmp_path / "guide" / "a.html").write_text('<p id="x"><a href="../b.html">b</a>')
    (tmp_path / "b.html").write_text('<a href="https://c.example/">c</a>')
    return tmp_path


def test_clicks_are_counted_from_the_first_page(built):
    assert check.clicks(check.read(built)) == {"index.html": 0, "guide/a.html": 1, "b.html": 2}


def test_links_that_lead_nowhere_are_found(built):
    assert check.broken(check.read(built), built) == []
    (built / "b.html").write_text('<a href="guide/a.html#y"></a><img src="no.png">')
    assert check.broken(check.read(built), built) == [
        "b.html: guide/a.html#y leads to no anchor",
        "b.html: no.png leads to no file",
    ]


def test_tasks_that_are_far_or_absent_are_found(built, monkeypatch):
    monkeypatch.setattr(check, "TASKS", {"near": "guide/a#x", "far": "b", "none": "guide/a#z"})
    monkeypatch.setattr(check, "CLICKS", 1)
    assert check.tasks_not_found(check.read(built)) == [
        "far: b is more than 1 clicks from the start page",
        "none: guide/a#z is not there",
    ]


def test_public_names_without_an_entry_are_found(built, tmp_path, monkeypatch):
    frozen = tmp_path / "frozen.txt"
    frozen.write_text("bigsvm.SVC | C = 1.0 | positional\nbigsvm train | --C\nbigsvm.x | y\n")
    monkeypatch.setattr(check, "FROZEN", frozen)
    (built / "b.html").write_text('<dt id="bigsvm.x"></dt>')
    assert check.names_not_there(check.read(built)) == ["bigsvm.SVC has no entry in the reference"]


def test_a_site_with_a_fault_ends_in_1(built, capsys):
    assert check.main(built) == 1
    assert "choose C and gamma: guide/search is not there" in capsys.readouterr().out
