"""README.md and the pages in docs/ do what they say, and name what exists."""

import re
from pathlib import Path

import pytest
from typer.main import get_command

from bigsvm.cli import app
from tools.benchmarks import __main__ as suites

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
    ((kind, example),) = BLOCKS[2:]
    assert kind == "python"
    exec(compile(example, "README.md", "exec"), {"__name__": "__main__"})
    score, converged = capsys.readouterr().out.split()
    assert float(score) > 0.9
    assert converged == "True"


@pytest.fixture(scope="module")
def options():
    """The options of the command line and of the benchmarks."""
    root = get_command(app)
    named = {
        name
        for command in root.commands.values()
        for parameter in command.params
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    for name in suites.names():
        named |= suites.parser_of(name, suites.module_of(name))._option_string_actions.keys()
    return named


@pytest.mark.parametrize("page", ["README.md", "docs/guide.md"])
def test_every_option_a_page_names_exists(page, options):
    assert set(re.findall(r"(?<![\w-])--[a-zA-Z][\w-]*", PAGES[page])) <= options


@pytest.mark.parametrize("page", PAGES)
def test_every_file_a_page_links_to_exists(page):
    folder = (REPOSITORY / page).parent
    links = re.findall(r"\]\(([^)#\s]+)", PAGES[page])
    assert [link for link in links if "://" not in link and not (folder / link).exists()] == []


def test_the_readme_links_to_every_page():
    links = set(re.findall(r"\]\(([^)#\s]+)", README))
    assert {"CHANGELOG.md", "examples"} | PAGES.keys() - {"README.md"} <= links
