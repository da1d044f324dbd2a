"""`tools.packaging.release`: what a release needs is written whole, or not at all."""

import re
import shutil
import tomllib
from pathlib import Path

import pytest

from tools.packaging import release

ROOT = Path(__file__).parents[2]
ADDRESS = "https://forge.example/owner/bigsvm"
SITE = "https://owner.example/bigsvm"
FILLED = ("--address", ADDRESS, "--site", SITE)
FILES = sorted(
    {release.README, release.CHANGELOG, *release.WITH_ADDRESS}
    | {name for name, _, _ in release.WITH_VERSION}
)


@pytest.fixture
def checkout(tmp_path):
    """Copy the files that a release changes."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def texts(folder):
    return {name: (folder / name).read_text(encoding="utf-8") for name in FILES}


def run(checkout, *arguments):
    return release.main([str(argument) for argument in arguments], checkout)


class TestAddress:
    def test_it_replaces_all_placeholders(self, checkout):
        assert run(checkout, "--address", ADDRESS + "/", "--site", SITE + "/") == 0
        after = texts(checkout)
        assert [name for name in FILES if "bigsvm.invalid" in after[name]] == []
        urls = tomllib.loads(after["pyproject.toml"])["project"]["urls"]
        assert urls.pop("Documentation") == SITE
        assert urls["Source"] == ADDRESS
        assert all(url == ADDRESS or url.startswith(f"{ADDRESS}/") for url in urls.values())
        assert f"<{ADDRESS}/security/" in after[".github/SECURITY.md"]

    def test_links_of_the_readme_lead_to_files_of_the_tag(self, checkout):
        run(checkout, *FILLED)
        readme = (checkout / release.README).read_text(encoding="utf-8")
        version = release.version_of(checkout)
        assert f"]({ADDRESS}/blob/v{version}/docs/guide.md#many-classes)" in readme
        assert f"]({ADDRESS}/raw/v{version}/docs/measured.svg)" in readme
        assert "](#how-fast-it-is)" in readme
        assert "](https://github.com/cjlin1/liblinear)" in readme
        targets = re.findall(r"\]\(([^)#\s]+)", readme)
        assert [target for target in targets if "://" not in target] == []

    def test_a_second_one_is_refused(self, checkout, capsys):
        run(checkout, *FILLED)
        before = texts(checkout)
        assert run(checkout, *FILLED) == 2
        assert "has it been filled already? Take a fresh checkout" in capsys.readouterr().err
        assert texts(checkout) == before

    @pytest.mark.parametrize("option", ["--address", "--site"])
    @pytest.mark.parametrize(
        "address", ["forge.example/owner", "http://forge.example/x", "https://", "https://x.y/?a=b"]
    )
    def test_what_is_no_address_is_refused(self, checkout, capsys, option, address):
        before = texts(checkout)
        assert run(checkout, *FILLED, option, address) == 2
        assert f"{option} {address!r}" in capsys.readouterr().err
        assert texts(checkout) == before

    def test_all_files_with_the_placeholder_are_known(self):
        about_it = {"tools/packaging/release.py", ".github/CONTRIBUTING.md"}
        folders = [ROOT / name for name in ("bigsvm", "examples", "tools", ".github")]
        # Folders of docs/ are made when the site is built.
        files = [path for of in (ROOT, ROOT / "docs") for path in of.iterdir() if path.is_file()]
        files += [path for folder in folders for path in folder.rglob("*") if path.is_file()]
        found = {
            path.relative_to(ROOT).as_posix()
            for path in files
            if path.suffix != ".pyc" and release.PLACEHOLDER.encode() in path.read_bytes()
        }
        assert found - about_it == set(release.WITH_ADDRESS)


class TestVersion:
    def test_it_is_written_wherever_it_stands(self, checkout):
        assert run(checkout, "--version", "7.8.9", "--date", "2031-02-03") == 0
        after = texts(checkout)
        assert release.version_of(checkout) == "7.8.9"
        assert "\nversion: 7.8.9\ndate-released: 2031-02-03\n" in after["CITATION.cff"]
        assert '\n  version: "7.8.9"\n' in after["tools/packaging/conda/recipe.yaml"]
        sections = re.findall(r"^## .*$", after["CHANGELOG.md"], re.MULTILINE)
        assert sections[:2] == ["## [Unreleased]", "## [7.8.9] - 2031-02-03"]
        assert "## [Unreleased]\n\n## [7.8.9] - 2031-02-03\n\n### " in after["CHANGELOG.md"]

    def test_the_first_release_may_have_the_version_that_is_there(self, checkout):
        changelog = checkout / release.CHANGELOG
        changelog.write_text("# Changelog\n\n## [Unreleased]\n\n### Added\n\n- All of it.\n")
        version = release.version_of(checkout)
        assert run(checkout, "--version", version) == 0
        changelog.write_text(changelog.read_text().replace("ed]\n", "ed]\n\n- More of it.\n", 1))
        assert run(checkout, "--version", version) == 2

    @pytest.mark.parametrize(
        ("version", "date", "says"),
        [
            ("0.0.9", "2031-02-03", "is not greater than"),
            ("v7.8.9", "2031-02-03", "is not three numbers"),
            ("7.8", "2031-02-03", "is not three numbers"),
            ("7.08.9", "2031-02-03", "is not three numbers"),
            ("7.8.9", "03.02.2031", "is no day"),
        ],
    )
    def test_what_is_no_newer_version_is_refused(self, checkout, capsys, version, date, says):
        before = texts(checkout)
        assert run(checkout, "--version", version, "--date", date) == 2
        assert says in capsys.readouterr().err
        assert texts(checkout) == before

    def test_a_release_without_a_change_is_refused(self, checkout, capsys):
        run(checkout, "--version", "7.8.9")
        before = texts(checkout)
        assert run(checkout, "--version", "7.9.0") == 2
        assert "no change under '## [Unreleased]'" in capsys.readouterr().err
        assert texts(checkout) == before

    @pytest.mark.parametrize(("name", "line", "form"), release.WITH_VERSION[1:])
    def test_a_file_without_its_line_is_refused(self, checkout, capsys, name, line, form):
        path = checkout / name
        path.write_text(re.sub(line, "", path.read_text(encoding="utf-8"), flags=re.MULTILINE))
        before = texts(checkout)
        assert run(checkout, "--version", "7.8.9") == 2
        assert f"{name} has no line" in capsys.readouterr().err
        assert texts(checkout) == before


class TestTag:
    def test_that_of_the_version_is_taken(self, checkout):
        run(checkout, "--version", "7.8.9")
        assert run(checkout, "--tag", "v7.8.9", *FILLED) == 0

    def test_another_one_is_refused(self, checkout, capsys):
        run(checkout, "--version", "7.8.9")
        assert run(checkout, "--tag", "v7.8.8") == 2
        assert "is not v7.8.9" in capsys.readouterr().err

    def test_a_version_that_the_changelog_has_not_is_refused(self, checkout, capsys):
        changelog = checkout / release.CHANGELOG
        changelog.write_text("# Changelog\n\n## [Unreleased]\n")
        assert run(checkout, "--tag", f"v{release.version_of(checkout)}") == 2
        assert "CHANGELOG.md has no section" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ((), "give --address, --version or --tag"),
        (("--address", ADDRESS), "give --address and --site together"),
        (("--site", SITE, "--tag", "v1.0.0"), "give --address and --site together"),
    ],
)
def test_a_missing_option_is_named(checkout, capsys, given, says):
    with pytest.raises(SystemExit, match="2"):
        run(checkout, *given)
    assert says in capsys.readouterr().err
