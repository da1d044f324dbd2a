"""Pages of the reference: of public names, of commands, and of the packages of the code."""

from __future__ import annotations

import ast
import inspect
import re
from typing import TYPE_CHECKING, Any

import typer

import bigsvm
from bigsvm.cli import app
from tools.site.pages import GROUPS, OF_MODULES, PANELS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_EXAMPLES = re.compile(r"\x08\n(.*?)(?=\n\n|\Z)", re.DOTALL)


def members(public: type) -> list[str]:
    """Public methods and properties that bigsvm defines for a class."""
    found = []
    for name in sorted(dir(public)):
        value = inspect.getattr_static(public, name)
        plain = inspect.unwrap(getattr(value, "__func__", value))
        own = inspect.isfunction(plain) and plain.__module__.startswith("bigsvm")
        if not name.startswith("_") and (own or isinstance(value, property)):
            found.append(name)
    return found


def name_page(module: str, name: str, public: Any) -> str:  # noqa: ANN401 (a class or a function)
    """Page, in reStructuredText, of a public name."""
    title = f"{module}.{name}"
    lines = [title, "=" * len(title), "", f".. currentmodule:: {module}", ""]
    if inspect.isclass(public):
        lines.append(f".. autoclass:: {name}")
        for member in () if issubclass(public, Warning) else members(public):
            is_property = isinstance(inspect.getattr_static(public, member), property)
            lines += ["", f"   .. auto{'property' if is_property else 'method'}:: {member}"]
    else:
        lines.append(f".. autofunction:: {name}")
    return "\n".join([*lines, ""])


def names_pages() -> dict[str, str]:
    """Text of the page of each public name, by its path below ``docs``, and of their index.

    Raises
    ------
    ValueError
        If a public name is in no group of the reference.
    """
    grouped = [name for names in GROUPS.values() for name in names]
    if sorted(grouped) != list(bigsvm.__all__):
        wrong = sorted(set(grouped).symmetric_difference(bigsvm.__all__))
        raise ValueError(f"GROUPS of tools/site/pages.py and the public names differ in {wrong}")
    pages = {}
    index = [
        "# Reference",
        "",
        "Every public name, with its parameters, what it returns, and an example that runs. Names",
        "that are not here may change at any time. [Commands](commands/index.md) have pages of",
        "their own.",
        "",
    ]
    of_groups = [(title, "bigsvm", names) for title, names in GROUPS.items()]
    of_modules = [(f"`{module}`", module, names) for module, names in OF_MODULES.items()]
    for title, module, names in of_groups + of_modules:
        index += [f"## {title}", "", "| name | |", "|---|---|"]
        home = __import__(module, fromlist=list(names))
        for name in names:
            public = getattr(home, name)
            page = f"{module}.{name}"
            pages[f"reference/{page}.rst"] = name_page(module, name, public)
            first = (inspect.getdoc(public) or "").split("\n\n")[0].replace("\n", " ")
            index.append(f"| [`{name}`]({page}.rst) | {_cell(first)} |")
        index += ["", "```{toctree}", ":hidden:", f":caption: {title.strip('`')}", ""]
        index += [f"{name} <{module}.{name}>" for name in names]
        index += ["```", ""]
    index += ["```{toctree}", ":hidden:", ":caption: Command line", "", "commands/index", "```", ""]
    pages["reference/index.md"] = "\n".join(index)
    return pages


def commands_pages() -> dict[str, str]:
    """Text of the page of each command, by its path below ``docs``, and of their index."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    index = ["# Commands", "", "| command | |", "|---|---|"]
    pages = {}
    for name, command in commands.items():
        pages[f"reference/commands/{name}.md"] = "\n".join(_command(name, command))
        first = (command.help or "").split("\n\n")[0].replace("\n", " ")
        index.append(f"| [`bigsvm {name}`]({name}.md) | {_cell(first)} |")
    index += ["", "```{toctree}", ":hidden:", "", *commands, "```", ""]
    pages["reference/commands/index.md"] = "\n".join(index)
    return pages


def _command(name: str, command: Any) -> Iterator[str]:  # noqa: ANN401 (Typer's or Click's)
    yield f"# bigsvm {name}\n"
    yield _EXAMPLES.sub(lambda found: f"```text\n{found[1]}\n```", command.help or "") + "\n"
    panels: dict[str, list[Any]] = {}
    for parameter in command.params:
        is_argument = parameter.param_type_name == "argument"
        title = "Arguments" if is_argument else (parameter.rich_help_panel or "Options")
        panels.setdefault(title, []).append(parameter)
    order = [*(title for title in PANELS if title in panels), *panels]
    for title in dict.fromkeys(order):
        parameters = panels[title]
        yield f"## {title}\n\n| {'argument' if title == 'Arguments' else 'option'} | default | |"
        yield "|---|---|---|"
        for each in parameters:
            spelled = " ".join([*each.opts, *each.secondary_opts])
            if each.param_type_name == "argument":
                spelled = each.metavar or each.name
            elif each.metavar:
                spelled = f"{spelled} {each.metavar}"
            default = each.default
            default = getattr(default, "value", default)
            shown = "" if default in (None, False, True, ()) else f"`{default}`"
            needed = "required" if each.required else shown
            yield f"| `{_cell(spelled)}` | {_cell(needed)} | {_cell(each.help or '')} |"
        yield ""


def rooms_pages(package: Path) -> dict[str, str]:
    """Text of the page of each package below the folder of bigsvm, by its path below ``docs``."""
    pages = {}
    for folder in sorted(path.parent for path in package.glob("*/__init__.py")):
        summary, _, rest = _docstring(folder / "__init__.py").partition("\n\n")
        lines = [f"# bigsvm/{folder.name}", "", summary, "", rest, "", "| module | |", "|---|---|"]
        for module in sorted(folder.glob("*.py")):
            if module.name != "__init__.py":
                first = _docstring(module).split("\n\n")[0].replace("\n", " ")
                lines.append(f"| `{module.stem}` | {_cell(first)} |")
        pages[f"developers/rooms/{folder.name}.md"] = "\n".join([*lines, ""])
    return pages


def _docstring(module: Path) -> str:
    """Docstring of a module as Markdown; it is not imported."""
    text = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    text = re.sub(r"::\n(\n(?:    .*\n|\n)+)", r":\n\1", f"{text}\n")
    return text.replace("``", "`").strip()


def _cell(text: str) -> str:
    """Text as a cell of a table of Markdown."""
    text = text.replace("``", "`").replace("\n", " ")
    return re.sub(r"(?<!\\)\|", r"\\|", text)
