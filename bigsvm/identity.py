"""What an object computes, as a hash that is the same in another process.

Two functions of one name may compute different things, such as one that was edited and run again.
So the hash is made of the code, with its constants, defaults, the values it captures, and the
functions that it calls. What an installed package defines counts by its name and the version of the
package. Line numbers, names of files and docstrings do not count.
"""

from __future__ import annotations

import builtins
import copyreg
import dis
import functools
import operator
import sys
import sysconfig
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

if TYPE_CHECKING:
    from collections.abc import Iterable

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
NOT_COMPARABLE = "not comparable"
"""Start of the identity of an object that cannot be compared with others."""
_PLAIN = (type(None), bool, int, float, complex, str, bytes, range, type(...))
_HAS_DOCSTRING = 0x4000000
"""A flag of code, from Python 3.13 on."""
_UFUNC_MODULES = ("numpy", "scipy.special")
"""Modules where a ufunc is looked for: it does not say where it is defined."""
_NOT_COMPUTED = frozenset((
    "__dict__", "__weakref__", "__module__", "__qualname__", "__doc__", "__annotations__",
    "__firstlineno__", "__static_attributes__", "__abstractmethods__", "_abc_impl",
    "__dataclass_fields__", "__dataclass_params__", "__orig_bases__", "__parameters__",
    "__annotate__", "__annotate_func__", "__annotations_cache__", "__slotnames__",
))  # fmt: skip
"""Attributes of a class that say nothing about what it computes, or say it again."""
_LOOK_ANYWHERE = ("eval", "exec", "globals", "__import__")
"""Built-in functions by which code uses what it does not name."""


def identity_of(*values: object, versions: bool = True) -> str:
    """Tell what objects compute: functions, classes, instances, and plain values.

    The text is equal for objects that compute the same; of others it is `NOT_COMPARABLE`, and why.
    If `versions`, the versions of the packages count from which functions are imported.
    """
    try:
        return f"{PYTHON}-{_Walk(versions=versions).digest(values)}"
    except Exception as error:
        # Objects may be anything, and raise anything when they are looked at.
        return f"{NOT_COMPARABLE} ({error or type(error).__name__})"


class _Walk:
    """Hashes an object and everything that it refers to, in an order that its content decides."""

    def __init__(self, *, versions: bool) -> None:
        self._versions, self._hasher = versions, xxhash.xxh3_128()
        # Objects by their id, with the number of each visit. They are kept, so that ids stay valid.
        self._seen: dict[int, tuple[int, object]] = {}

    def digest(self, value: object) -> str:
        self._add(value)
        return self._hasher.hexdigest()

    def _word(self, *words: object) -> None:
        for word in words:
            data = word if isinstance(word, bytes) else str(word).encode(errors="surrogatepass")
            self._hasher.update(f"{len(data)}:".encode())
            self._hasher.update(data)

    def _add_all(self, kind: str, values: Iterable[object]) -> None:
        values = list(values)
        self._word(kind, len(values))
        for value in values:
            self._add(value)

    def _add(self, value: object) -> None:
        if type(value) in _PLAIN:
            self._word(type(value).__name__, hex(value) if type(value) is int else repr(value))
            return
        if type(value) not in (tuple, frozenset):  # equal ones may be one object, or several
            if id(value) in self._seen:
                self._word("again", self._seen[id(value)][0])
                return
            self._seen[id(value)] = len(self._seen), value
        name = self._imported(value)
        if name is not None:
            self._word("imported", name)
        elif type(value) in (tuple, list):
            self._add_all(type(value).__name__, value)  # type: ignore[arg-type]  # just looked at
        elif type(value) in (set, frozenset):
            each = [_Walk(versions=self._versions).digest(item) for item in value]  # type: ignore[attr-defined]  # just looked at
            self._word("set", *sorted(each))
        elif type(value) is dict:
            items: list[Any] = list(value.items())
            if all(type(key) is str for key in value):
                items.sort(key=operator.itemgetter(0))
            self._add_all("dict", items)
        elif type(value) is np.ndarray and value.dtype.kind != "O":
            self._word("array", value.dtype.descr, value.shape, value.tobytes())
        else:
            self._add_object(value)

    def _add_object(self, value: object) -> None:
        if isinstance(value, FunctionType):
            self._add_function(value)
        elif isinstance(value, type):
            self._add_class(value)
        elif isinstance(value, ModuleType):
            raise TypeError(f"the module {value.__name__} is of no installed package")
        elif isinstance(value, property):
            self._add_all("property", (value.fget, value.fset, value.fdel))
        elif isinstance(value, staticmethod | classmethod | MethodType):
            self._word(type(value).__name__)
            self._add_all("bound", (value.__func__, getattr(value, "__self__", None)))
        elif isinstance(value, functools.cached_property):
            self._add_all("cached property", (value.func,))
        elif isinstance(value, functools._lru_cache_wrapper):
            self._add_all("cached", (value.__wrapped__,))
        elif type(value).__name__ == "CPUDispatcher":  # of Numba, which pickles what it compiled
            self._add_all("compiled", (value.py_func, value.targetoptions))  # type: ignore[attr-defined]  # Numba
        else:
            self._add_all("instance", self._state(value))

    def _state(self, value: object) -> tuple[object, ...]:
        """Return the class and the state of an instance, as pickle has them."""
        if isinstance(value, BuiltinFunctionType) and value.__self__ is not None:
            return (getattr, value.__self__, value.__name__)
        reduce = copyreg.dispatch_table.get(type(value))
        reduced: Any = value.__reduce_ex__(4) if reduce is None else reduce(value)
        if not isinstance(reduced, tuple):
            raise TypeError(f"{reduced!r} is of no installed package")
        make, arguments, *state = reduced
        if state and isinstance(state[0], dict):
            # What was computed when it was first asked for depends on what is here.
            held = (item for kind in type(value).__mro__ for item in vars(kind).items())
            cached = {name for name, of in held if isinstance(of, functools.cached_property)}
            state[0] = {name: of for name, of in state[0].items() if name not in cached} or None
        # Iterators over items of lists and dictionaries are used up.
        return (make, arguments, *(list(s) if hasattr(s, "__next__") else s for s in state))

    def _add_function(self, function: FunctionType) -> None:
        self._word("function")
        cells = function.__closure__ or ()
        self._add_all("captured", (_content(cell) for cell in cells))
        self._add_all("defaults", (function.__defaults__, function.__kwdefaults__))
        self._add(vars(function))
        self._add_code(function.__code__, function.__globals__)

    def _add_code(self, code: CodeType, variables: dict[str, Any]) -> None:
        self._word(
            "code", code.co_flags & ~_HAS_DOCSTRING, code.co_argcount, code.co_posonlyargcount,
            code.co_kwonlyargcount, code.co_varnames, code.co_freevars, code.co_cellvars,
            code.co_exceptiontable,
        )  # fmt: skip
        instructions = list(dis.get_instructions(code))
        for place, instruction in enumerate(instructions):
            is_constant = instruction.opcode in dis.hasconst
            self._word(instruction.opname)
            if is_constant and isinstance(instruction.argval, CodeType):
                self._add_code(instruction.argval, variables)
            elif is_constant:
                self._add(instruction.argval)
            else:
                self._word(instruction.argrepr or instruction.arg)
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"):
                self._add_global(instruction.argval, variables, instructions[place + 1 :])
            elif instruction.opname == "IMPORT_NAME":
                is_relative = instructions[place - 2].argval != 0
                package = None if is_relative else self._package(instruction.argval)
                if package is None:
                    raise TypeError(
                        f"it imports {instruction.argval}, which is of no installed package"
                    )
                self._word(package)

    def _add_global(
        self, name: str, variables: dict[str, Any], following: list[dis.Instruction]
    ) -> None:
        """Add a global variable; of a module that is in no package, the attribute that is used."""
        if name not in variables:
            if name in _LOOK_ANYWHERE:
                raise TypeError(f"it calls {name}")
            self._word("builtin" if hasattr(builtins, name) else "undefined", name)
            return
        value = variables[name]
        for instruction in following:
            is_own = isinstance(value, ModuleType) and self._imported(value) is None
            if not is_own or instruction.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
                break
            value = getattr(value, instruction.argval, None)
        self._add(value)

    def _add_class(self, kind: type) -> None:
        self._word("class")
        self._add_all("bases", (*kind.__bases__, type(kind)))
        held = {name: held for name, held in vars(kind).items() if name not in _NOT_COMPUTED}
        slots = held.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            held.pop(name, None)  # its descriptor
        self._add(held)

    def _imported(self, value: Any) -> str | None:  # noqa: ANN401 (anything)
        """Name of what an installed package defines, with the version; None of other things."""
        if isinstance(value, ModuleType):
            package = self._package(value.__name__)
            return None if package is None else f"{value.__name__} {package}"
        name = getattr(value, "__qualname__", getattr(value, "__name__", None))
        modules = (getattr(value, "__module__", None),)
        for module in _UFUNC_MODULES if isinstance(value, np.ufunc) else modules:
            package = self._package(module) if isinstance(module, str) else None
            found = sys.modules.get(module or "")
            for part in name.split(".") if isinstance(name, str) else ():
                found = getattr(found, part, None)
            if package is not None and isinstance(name, str) and found is value:
                return f"{module}.{name} {package}"
        return None

    def _package(self, module: str) -> str | None:
        package = _package_of(module)
        return package if self._versions or package is None else ""


def _content(cell: Any) -> object:  # noqa: ANN401 (a cell)
    try:
        return (cell.cell_contents,)
    except ValueError:  # it is filled later
        return ()


@functools.cache
def _package_of(module: str) -> str | None:
    """Name and version of the installed package that has a module; None if it is in none."""
    top = module.partition(".")[0]
    if top == "bigsvm":
        return top  # whose version is recorded beside
    try:
        spec = find_spec(top)
    except ValueError:  # such as __main__
        return None
    origin = Path((spec and spec.origin) or "unknown")
    if {"site-packages", "dist-packages"} & set(origin.parts):
        found = _version_of(top)
        return None if found is None else f"{top} {found}"
    is_standard = top in sys.stdlib_module_names and (
        str(origin) in ("built-in", "frozen") or origin.is_relative_to(sysconfig.get_path("stdlib"))
    )
    return f"Python {PYTHON}" if is_standard else None


def _version_of(top: str) -> str | None:
    """Version of the package that has a module; None if it is not known."""
    # To look through all packages takes a third of a second.
    names = {"sklearn": "scikit-learn"}
    try:
        return version(names.get(top, top))
    except PackageNotFoundError:
        found = sorted(set(packages_distributions().get(top, ())))
        return ", ".join(f"{name} {version(name)}" for name in found) or None
