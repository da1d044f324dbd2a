"""README.md and the pages in docs/ do what they say, and name what exists."""

import re
from pathlib import Path

import pytest
from typer.main import get_command

from bigsvm.cli import app
from tools import check_layers
from tools.site.build import MADE

REPOSITORY = Path(__file__).parents[1]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
PAGES = {
    path.relative_to(REPOSITORY).as_posix(): path.read_text(encoding="utf-8")
    for path in (
        REPOSITORY / "README.md",
        REPOSITORY / ".github" / "CONTRIBUTING.md",
        *sorted((REPOSITORY / "docs").glob("*.md")),
    )
}


def test_the_first_two_blocks_are_the_main_job_and_the_tests():
    (demo_kind, demo), (tests_kind, tests), *_ = BLOCKS
    assert demo_kind == tests_kind == "sh"
    assert demo.strip() == (
        "python3 -m venv .venv && .venv/bin/pip install -q -e . && .venv/bin/bigsvm demo"
    )
    assert tests.strip() == (
        "python3 -m venv .venv && .venv/bin/pip install -q -e '.[test]' "
        "&& .venv/bin/pytest -n auto -m 'not slow'"
    )


def test_the_example_runs(capsys):
    (example,) = [text for kind, text in BLOCKS if kind == "python"]
    exec(compile(example, "README.md", "exec"), {"__name__": "__main__"})
    score, converged = capsys.readouterr().out.split()
    assert float(score) > 0.9
    assert converged == "True"


def test_its_other_commands_are_commands_of_the_guide():
    kind, commands = BLOCKS[-1]
    assert (kind, len(BLOCKS)) == ("sh", 4)
    assert set(commands.splitlines()) <= set(PAGES["docs/guide.md"].splitlines())


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 250


@pytest.mark.parametrize("page", ["README.md", "docs/guide.md"])
def test_every_option_a_page_names_exists(page):
    options = {"--help"} | {
        name
        for command in (get_command(app), *get_command(app).commands.values())
        for parameter in command.params
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    assert set(re.findall(r"(?<![\w-])--[a-zA-Z][\w-]*", PAGES[page])) <= options


@pytest.mark.parametrize("page", PAGES)
def test_every_file_a_page_links_to_exists(page):
    folder = (REPOSITORY / page).parent
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", PAGES[page]) if "://" not in link]
    if folder.name == "docs":  # pages that are made have tests of their own
        links = [link for link in links if link.split("/")[0] not in MADE]
    assert [link for link in links if not (folder / link).exists()] == []


@pytest.mark.parametrize("page", [page for page in PAGES if page != "docs/papers.md"])
def test_every_file_a_page_names_exists(page):
    named = set(re.findall(r"`((?:bigsvm|tests|tools|docs|examples)/[\w/.]+)`", PAGES[page]))
    assert [name for name in named if not (REPOSITORY / name).exists()] == []


def test_every_file_the_ci_script_names_exists():
    script = (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8")
    named = set(re.findall(r"(?:tests|tools)/[\w/.]+", script))
    assert named
    assert [name for name in named if not (REPOSITORY / name).exists()] == []


def test_contributing_has_the_layers_in_their_order():
    rows = re.findall(r"^\| (`.+?) \| ", PAGES[".github/CONTRIBUTING.md"], re.MULTILINE)
    layers = [name.rstrip("/") for row in rows for name in re.findall(r"`([\w/]+)`", row)]
    assert layers[: len(check_layers.ORDER) - 1] == list(check_layers.ORDER[:-1])


def anchors(page):
    """Return the anchors of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", PAGES[page], re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_every_section_a_page_links_to_exists(page):
    folder = (REPOSITORY / page).parent
    missing = []
    for file, anchor in re.findall(r"\]\(([^)#:\s]*)#([^)\s]+)\)", PAGES[page]):
        target = (folder / file).resolve().relative_to(REPOSITORY).as_posix() if file else page
        if anchor not in anchors(target):
            missing.append(f"{target}#{anchor}")
    assert missing == []


def test_the_readme_and_the_first_page_of_the_site_link_to_every_page():
    links = set(re.findall(r"\]\(([^)#\s]+)", README))
    assert {"CHANGELOG.md", "examples", ".github/CONTRIBUTING.md", "docs/index.md"} <= links
    links |= {f"docs/{link}" for link in re.findall(r"\]\(([^)#\s]+)", PAGES["docs/index.md"])}
    assert PAGES.keys() - {"README.md"} <= links
