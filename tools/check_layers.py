"""Fail on an import in bigsvm/ that goes against the order of the layers, or is part of a circle.

    python tools/check_layers.py [PACKAGE_FOLDER]

A module imports from its own layer and from lower ones, and no module imports itself by way of
others. A wing is imported only by those that choose it. Imports inside functions, imports for type
checking only and ``import_module("...")`` count like any other: an order with exceptions is none.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ORDER = (
    "version",
    "errors",
    "declared",
    "encoding",
    "interruption",
    "arrays",
    "votes",
    "calibration",
    "coupling",
    "files",
    "folders",
    "allocator",
    "compilation",
    "processors",
    "budget",
    "identity",
    "kernels",
    "core",
    "data",
    "conversion",
    "gram",
    "executors",
    "parameters",
    "duals",
    "working_sets",
    "training",
    "balls",
    "one_vs_one",
    "models",
    "interchange",
    "changes",
    "papers",
    "kept",
    "small",
    "fit",
    "report",
    "callbacks",
    "estimators",
    "selection",
    "cli",
    "__main__",
)
"""Lowest first; a layer is a module or a folder of bigsvm/."""

WINGS = {
    "changes": frozenset({"estimators.base", "cli"}),
    "conversion": frozenset(
        {
            "estimators.evaluation",
            "estimators.training_rows",
            "changes",
            "interchange",
            "report",
            "selection",
            "cli",
        }
    ),
    "papers": frozenset({"fit.choices", "fit.trainer", "kept"}),
    "kept": frozenset({"fit.trainer"}),
    "small": frozenset({"cli.warm_up", "fit.train", "fit.small_way"}),
    "report": frozenset({"estimators.watching", "selection", "cli"}),
    "selection": frozenset({"cli"}),
    "cli": frozenset({"__main__"}),
}
"""Layers that the everyday way does without, and the modules or layers above that choose them. No
other one imports them."""

CORE_MAY_IMPORT = frozenset(
    {"numpy", "numba", "llvmlite", "math", "enum", "typing", "collections", "__future__"}
)
"""All that bigsvm/core/ sees: arithmetic, and the words for records and codes. No I/O; and not even
its own siblings, because Numba's cache on disk does not notice that another file has changed."""

OPTIONS_OF_COMPILATION = "compilation"
"""The one module of bigsvm/ that core imports: its decorators do not change results."""

HARMLESS_NAMES = frozenset({"__version__"})
"""What any layer may take from ``bigsvm`` itself; the rest is re-exported from some layer."""


class Import(NamedTuple):
    """One imported module, absolute, as in ``a.b.c``; `name` is what is taken from it, or None."""

    line: int
    module: str
    name: str | None


class Offence(NamedTuple):
    """An import that the order forbids."""

    path: Path
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}"


def imports_of(tree: ast.AST, *, package: Sequence[str]) -> Iterator[Import]:
    """Every import of a module whose package is `package` (for a relative import to start from)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(node.lineno, alias.name, None)
        elif isinstance(node, ast.ImportFrom):
            start = list(package[: len(package) - node.level + 1]) if node.level else []
            module = ".".join([*start, *([node.module] if node.module else [])])
            for alias in node.names:
                yield Import(node.lineno, module, alias.name)
        elif isinstance(node, ast.Call) and node.args:
            function = node.func
            called = function.attr if isinstance(function, ast.Attribute) else ""
            called = function.id if isinstance(function, ast.Name) else called
            target = node.args[0]
            if (
                called in {"import_module", "__import__"}
                and isinstance(target, ast.Constant)
                and isinstance(target.value, str)
            ):
                prefix = ".".join(package) if target.value.startswith(".") else ""
                yield Import(node.lineno, prefix + target.value, None)


def forbidden(found: Import, *, name: str, root: str) -> str | None:
    """Why the module of this name may not do this import, or None where it may."""
    parts, own = found.module.split("."), name.split(".")
    layer = own[1]
    if layer == "core" and parts[1:] == [OPTIONS_OF_COMPILATION] and parts[0] == root:
        return None
    if layer == "core" and (parts[0] == root or parts[0] not in CORE_MAY_IMPORT):
        what = found.module if found.name is None else f"{found.module}.{found.name}"
        return f"core imports {what}; it may import only {', '.join(sorted(CORE_MAY_IMPORT))}"
    if parts[0] != root:
        return None
    target = parts[1] if len(parts) > 1 else found.name
    if target in HARMLESS_NAMES:
        return None
    if target not in ORDER:
        if len(parts) > 1:
            return f"{layer} imports {target}, which is not in the order of the layers"
        what = root if found.name is None else f"{target} from {root}"
        return f"{layer} imports {what}, which hides the layer: import the module that defines it"
    if ORDER.index(target) > ORDER.index(layer):
        return f"{layer} imports {target}, which lies above it"
    choosers = WINGS.get(target, frozenset({layer})) | {target}
    if not choosers & {layer, ".".join(own[1:])}:
        return f"{layer} imports {target}, a wing: only {', '.join(sorted(choosers))} may"
    return None


Modules: TypeAlias = dict[str, tuple[Path, list["Import"]]]


def modules_of(folder: Path) -> Modules:
    """Path and imports of each module of the package in `folder`, by its name as in ``a.b.c``."""
    modules: Modules = {}
    for path in sorted(folder.rglob("*.py")):
        inside = path.relative_to(folder)
        package = (folder.name, *inside.parts[:-1])
        name = ".".join(package if inside.stem == "__init__" else (*package, inside.stem))
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        modules[name] = path, list(imports_of(tree, package=package))
    return modules


def offences(modules: Modules, root: str) -> list[Offence]:
    """All imports of the package `root` that the order forbids, ordered by file and line."""
    found: set[Offence] = set()
    for name, (path, imports) in modules.items():
        if name == root:
            continue  # the public names, imported lazily from everywhere
        layer = name.split(".")[1]
        if layer not in ORDER:
            found.add(Offence(path, 1, f"{layer} is not in the order of the layers: add it"))
            continue
        for item in imports:
            reason = forbidden(item, name=name, root=root)
            if reason is not None:
                found.add(Offence(path, item.line, reason))
    return sorted(found)


def circles(modules: Modules) -> list[list[str]]:
    """Circles of imports: module, what it imports, …, module again.

    A module is named in one circle at most, and each circle is a shortest one of its first module.
    An import of ``a.b.c`` does not count as one of ``a.b``.
    """
    imported: dict[str, list[str]] = {}
    for name, (_, imports) in modules.items():
        targets = {
            whole if (whole := f"{item.module}.{item.name}") in modules else item.module
            for item in imports
        }
        imported[name] = sorted(targets & modules.keys())
    named: set[str] = set()
    found = []
    for name in modules:
        circle = _way_back(name, imported)
        if circle and not named.intersection(circle):
            named.update(circle)
            found.append(circle)
    return found


def _way_back(name: str, imported: dict[str, list[str]]) -> list[str]:
    """Return a shortest way of imports from a module to itself; empty if there is none."""
    ways, seen = [[name]], {name}
    for way in ways:  # which grows
        for target in imported[way[-1]]:
            if target == name:
                return [*way, name]
            if target not in seen:
                seen.add(target)
                ways.append([*way, target])
    return []


def main(arguments: Sequence[str]) -> int:
    folder = Path(arguments[0]) if arguments else Path(__file__).parents[1] / "bigsvm"
    if not folder.is_dir():
        print(f"{folder} is not a folder: give the folder of the package", file=sys.stderr)
        return 2
    modules = modules_of(folder.resolve())
    against, around = offences(modules, folder.resolve().name), circles(modules)
    for offence in against:
        print(offence)
    for circle in around:
        print("circle of imports:", " -> ".join(circle))
    if against or around:
        print(f"{len(against)} imports against the order, {len(around)} circles of imports")
        return 1
    print("layers: in order, without circles")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
