"""What is written twice for packages is the same: Pythons, requirements, commands."""

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from tools.packaging import bare

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
RECIPE = yaml.safe_load((ROOT / "tools/packaging/conda/recipe.yaml").read_text(encoding="utf-8"))
WORKFLOWS = {
    path.name: yaml.safe_load(path.read_text(encoding="utf-8"))
    for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))
}
CONDA_NAMES = {"dask": "dask-core", "safetensors": "python-safetensors", "xxhash": "python-xxhash"}
"""Names of packages where conda-forge has others."""


def test_conda_has_the_requirements_of_the_wheel():
    required = [Requirement(text) for text in PROJECT["dependencies"]]
    # Those of some machines only are no requirements of a package for all of them.
    expected = {
        f"{CONDA_NAMES.get(each.name, each.name)} {each.specifier}"
        for each in required
        if each.marker is None
    }
    python, *found = RECIPE["requirements"]["run"]
    assert set(found) == expected
    assert python == "python >=${{ python_min }}"
    assert PROJECT["requires-python"] == f">={RECIPE['context']['python_min']}"
    program, home = RECIPE["build"]["python"]["entry_points"][0].split(" = ")
    assert {program: home} == PROJECT["scripts"]


def test_each_python_that_is_named_is_tested():
    named = re.findall(r"Python :: (3\.\d+)'", str(PROJECT["classifiers"]))
    assert tuple(named) == bare.VERSIONS
    assert PROJECT["requires-python"] == f">={bare.VERSIONS[0]}"
    tests = WORKFLOWS["tests.yml"]["jobs"]
    oldest = tests["checks"]["steps"][1]["with"]["python-version"]
    assert (oldest, *tests["tests"]["strategy"]["matrix"]["python"]) == bare.VERSIONS
    for name in ("tests.yml", "release.yml"):
        installed = WORKFLOWS[name]["jobs"]["installed"]
        assert tuple(installed["strategy"]["matrix"]["python"]) == bare.VERSIONS


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_runs_what_exists_and_may_do_little(name):
    workflow = WORKFLOWS[name]
    assert workflow["permissions"] == {"contents": "read"}
    commands = [
        step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step
    ]
    assert commands
    for command in commands:
        for module in re.findall(r"python -m (tools[\w.]*)", command):
            assert importlib.util.find_spec(module), module
        for script in re.findall(r"\.ci/\w+", command):
            assert (ROOT / script).exists()


def test_the_first_commands_of_the_readme_are_tried():
    example, commands = bare.commands_of((ROOT / "README.md").read_text(encoding="utf-8"))
    assert "bigsvm.SVC(" in example
    assert [command.split()[1] for command in commands] == ["demo", "convert", "train", "predict"]


@pytest.mark.parametrize(
    "readme", ["", "```python\nimport bigsvm\n```\n", "```sh\nbigsvm demo\n```\n"]
)
def test_a_readme_without_an_example_or_a_command_is_refused(readme):
    with pytest.raises(ValueError, match="no example of Python, or no command"):
        bare.commands_of(readme)


def test_the_folder_does_not_hide_the_library_of_its_name():
    """A program of tools has `tools` first on its path, and Zarr imports `packaging`."""
    code = "import packaging.version; print(packaging.__file__)"
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT / "tools", capture_output=True, text=True, check=True
    )
    assert ROOT not in Path(found.stdout.strip()).parents or ".venv" in found.stdout
