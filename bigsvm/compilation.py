"""Compilation: Numba compiles a function when it is first called, and keeps the code on disk.

The first call on a machine therefore takes seconds, and later ones do not. The code is kept in the
folder that the environment variable ``NUMBA_CACHE_DIR`` names, or beside the modules. Where nothing
can be written, code that is there is loaded, and other code is compiled by each process.

Every function of `bigsvm.core` is decorated by one of `compiled`, `inner` and `inlined`. Their
options are the same as far as possible, because Numba compiles functions of its own, such as
``max``, again for each set of options.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Decorated = Any
"""A function that Numba compiles; Numba has no types."""

PURPOSES = {
    "climb": "steps of Crammer and Singer's dual",
    "crammer_singer": "steps of Crammer and Singer's dual",
    "csr": "sparse rows",
    "duplicates": "equal rows",
    "field_kernels": "kernels of fields",
    "functions": "several functions",
    "gram": "kernel values",
    "products": "dense rows",
    "records": "rows in a random order",
    "row_choice": "working sets",
    "sampled_steps": "sampled balls",
    "small_pairs": "pairs of small classes",
    "smo": "pair steps",
    "text": "text",
    "wide": "columns of sparse rows",
}
"""What the functions of each module of the core are for, in words of users."""
FIRST_SECONDS = 10
"""CPU seconds of a first fit, about: `tools/compilation.py` prints some below and some above."""

_not_kept: list[str] = []
"""Why compiled code cannot be kept: the first reason that this process has met, if any."""


_running = threading.RLock()
"""Held while a file of the core is run; one for all, so that threads cannot lock each other out."""
# A process that is forked while another thread runs a file would wait for ever.
os.register_at_fork(
    before=_running.acquire, after_in_parent=_running.release, after_in_child=_running.release
)


def modules_run_when_used(package: str) -> Callable[[str], ModuleType]:
    """Make ``__getattr__`` of a package, which gives its modules; their files are not yet run."""

    def module_of(name: str) -> ModuleType:
        full = f"{package}.{name}"
        if name.startswith("__") or (spec := find_spec(full)) is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with _running:
            if full not in sys.modules:
                module = module_from_spec(spec)
                module.__class__ = _RunWhenUsed
                sys.modules[full] = module
        setattr(sys.modules[package], name, sys.modules[full])
        return sys.modules[full]

    return module_of


class _RunWhenUsed(ModuleType):
    """A module whose file is run when something of it is first read or replaced.

    Other threads wait until it has run. Names such as ``__spec__`` are there before.
    """

    def __getattribute__(self, name: str) -> object:
        if not name.startswith("__"):
            _run(self)
        return ModuleType.__getattribute__(self, name)  # not super(): the class has changed

    def __setattr__(self, name: str, value: object) -> None:
        if not name.startswith("__"):
            _run(self)
        ModuleType.__setattr__(self, name, value)


def _run(module: ModuleType) -> None:
    """Run the file of a module, once."""
    spec = module.__spec__
    with _running:
        # It reads itself while it is run, and another thread may have run it meanwhile.
        if spec is None or spec.loader is None or spec.loader_state == "begun":
            return
        spec.loader_state = "begun"
        try:
            spec.loader.exec_module(module)
        except BaseException:
            spec.loader_state = None
            raise
        module.__class__ = ModuleType


def compiled(function: Decorated = None, /, **options: object) -> Decorated:
    """Compile a function when it is first called, and keep its code.

    It does not hold the interpreter's lock. A division by zero gives what it gives in NumPy.
    Options are those of ``numba.njit``, instead of or besides those of bigsvm; and `allocates`,
    without which a function may neither make arrays nor return any: references to arrays are then
    not counted, which is less to compile and to run. Without a function the result is a decorator.
    """
    return _decorated(function, options)


def inner(function: Decorated = None, /, **options: object) -> Decorated:
    """Compile a function that only compiled functions call, as `compiled` does.

    Numba does not write the code that takes arguments from Python, which is large. So a call from
    Python ends the process: `tests/core/test_inner_functions.py` looks that there is none.
    """
    return _decorated(function, {"no_cpython_wrapper": True, **options})


def inlined(function: Decorated = None, /, **options: object) -> Decorated:
    """Compile a function as a part of each compiled function that calls it.

    Each copy is compiled anew, which takes long. LLVM moves small functions into their callers by
    itself, so few need this.
    """
    return _decorated(function, {"inline": "always", **options})


def _decorated(function: Decorated, options: dict[str, object]) -> Decorated:
    from numba import config, njit

    if function is None:
        return lambda each: _decorated(each, options)
    _listen()
    _fork_between_compilations()
    # The code that C would call is left out.
    chosen: dict[str, object] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
    chosen |= {"cache": True, "allocates": False, **options}
    chosen["_nrt"] = chosen.pop("allocates")  # Numba's run time, which counts references
    is_kept = chosen.pop("cache") and not config.DISABLE_JIT
    made = njit(**chosen, pipeline_class=_passes())(function)
    if is_kept:
        made._cache = _files()(function)  # Numba's own option fails where it finds no folder
    return made


UNNEEDED = {
    "WithLifting", "InlineClosureLikes", "MakeFunctionToJitFunction", "FindLiterallyCalls",
    "LiteralUnroll", "LiteralPropagationSubPipelinePass", "InlineOverloads", "NopythonRewrites",
    "RewriteDynamicRaises", "AnnotateTypes", "DumpParforDiagnostics",
}  # fmt: skip
"""Passes of Numba's for what no function of the core has: ``with``, closures, expressions of whole
arrays, exceptions with values. They are 6 % of the time; such a function is refused without them,
or is compiled otherwise."""


@cache
def _passes() -> Decorated:
    """Return Numba's compiler without the passes that are not needed."""
    from numba.core import compiler, compiler_machinery

    class Passes(compiler.CompilerBase):  # type: ignore[misc] # Numba has no types
        def define_pipelines(self) -> list[Decorated]:
            given = compiler.DefaultPassBuilder.define_nopython_pipeline(self.state)
            chosen = compiler_machinery.PassManager("core")
            for each, text in given.passes:
                if each.__name__ not in UNNEEDED:
                    chosen.add_pass(each, text)
            chosen.finalize()
            return [chosen]

    return Passes


def why_not_kept() -> str | None:
    """Say why this process cannot keep compiled code, and the remedy; None if it has kept all."""
    if not _not_kept:
        return None
    return (
        f"compiled code cannot be kept ({_not_kept[0]}), so that each process compiles it again; "
        "set NUMBA_CACHE_DIR to a folder that can be written to, or run `bigsvm warm-up` where the "
        "package can be, as when an image is built"
    )


def _cannot_keep(reason: object) -> None:
    """Log once that compiled code cannot be kept."""
    if not _not_kept:
        import logging  # imported here, as help and errors do not need it

        _not_kept.append(str(reason))
        logging.getLogger("bigsvm").warning("%s", why_not_kept())


@cache
def _files() -> Decorated:
    """Return the class of Numba's that keeps the code of a function, one that never fails."""
    from pickle import UnpicklingError

    from numba.core import caching

    class ReadOnly:
        """A folder whose code is loaded, and to which nothing needs to be written."""

        def ensure_cache_path(self: Decorated) -> None:
            os.stat(self.get_cache_path())

    class Places(caching.CompileResultCacheImpl):  # type: ignore[misc] # as above
        _locator_classes = (
            *caching.CompileResultCacheImpl._locator_classes,
            type("ReadOnlyGiven", (ReadOnly, caching.UserProvidedCacheLocator), {}),
            type("ReadOnlyBeside", (ReadOnly, caching.InTreeCacheLocator), {}),
        )

    class Files(caching.FunctionCache):  # type: ignore[misc] # as above
        _impl_class = Places
        _cache_path = None

        def __init__(self, function: Decorated) -> None:
            self._fault: object = None
            try:
                super().__init__(function)
            except OSError as error:
                self._stop(error)
            except RuntimeError:
                self._stop("there is no folder that can be written to")

        def _stop(self, fault: object) -> None:
            self._fault = fault
            self.disable()

        def load_overload(self, *asked: Decorated) -> Decorated:
            """Load code; where there is none, look before it is compiled whether it can be kept."""
            found = None
            try:
                try:
                    found = super().load_overload(*asked)
                except (EOFError, UnpicklingError):
                    self.flush()  # damaged, as after a power cut
                if found is None and self._enabled:
                    caching._CacheLocator.ensure_cache_path(self._impl.locator)
            except OSError as error:
                self._stop(error)
            if found is None and self._fault is not None:
                _cannot_keep(self._fault)
            return found

        def save_overload(self, *made: Decorated) -> None:
            try:
                super().save_overload(*made)
            except OSError as error:
                self._stop(error)
                _cannot_keep(error)

    return Files


_counting: list[_Counting] = []
"""Counts that are under way."""


@cache
def _listen() -> None:
    """Pause Python's garbage collector while Numba compiles, and count what is compiled.

    The compiler makes many objects that stay: looking through them again and again takes a sixth
    of its time.
    """
    from numba.core import event

    class Listening(event.Listener):  # type: ignore[misc] # Numba has no types
        """One function at a time is compiled, with those that it calls inside it."""

        depth = 0
        pauses = False

        def on_start(self, event: Decorated) -> None:
            if not self.depth and gc.isenabled():
                gc.disable()
                self.pauses = True
            self.depth += 1
            for counting in tuple(_counting):
                counting.begin(event.data["dispatcher"])

        def on_end(self, event: object) -> None:
            for counting in tuple(_counting):
                counting.end()
            self.depth -= 1
            if not self.depth and self.pauses:
                self.pauses = False
                gc.enable()

    event.register("numba:compile", Listening())


@cache
def _fork_between_compilations() -> None:
    """Let a fork wait until no thread holds the lock of the compiler.

    A process forked while a thread loads compiled code would wait for ever for the lock of that
    thread, which the new process does not have.
    """
    from numba.core.compiler_lock import global_compiler_lock

    os.register_at_fork(
        before=global_compiler_lock.acquire,
        after_in_parent=global_compiler_lock.release,
        after_in_child=global_compiler_lock.release,
    )


@dataclass
class Compilations:
    """What has been compiled in a block, by any thread; code that is loaded does not count.

    Functions count for each type of arguments. `cpu_seconds` is the process's CPU time in the
    `seconds`.
    """

    n_functions: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0


def _begins(dispatcher: Decorated, folder: str | None) -> str:
    """Say what is about to be compiled, about how long it takes, and where it is kept.

    How many functions a run needs is known when it has ended. What is known before is how many have
    code in the folder; some of it may be that of another version.
    """
    module = dispatcher.py_func.__module__.rpartition(".")[2]
    what = f"compiling for this processor, first for {PURPOSES.get(module, module)}"
    if folder is None:
        return f"{what}; it is not kept"
    try:
        n = sum(name.endswith(".nbi") for name in os.listdir(folder))
    except OSError:
        n = 0  # the folder is made when the first function is kept
    if n:
        return f"{what}, some seconds; {folder} has {n} functions, and keeps what is compiled"
    return f"{what}, about {FIRST_SECONDS} s of CPU time; it is kept in {folder}, which has none"


class _Counting:
    """Counts what is compiled, function by function, each with those that it calls inside it."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.counted, self._tell = Compilations(), tell
        self._depth, self._began = 0, (0.0, 0.0)
        self._folder: str | None = None

    def begin(self, dispatcher: Decorated) -> None:
        if not self.counted.n_functions and not _not_kept:
            self._folder = dispatcher.stats.cache_path
            self._tell(_begins(dispatcher, self._folder))
        if not self._depth:
            self._began = time.monotonic(), time.process_time()
        self._depth += 1
        self.counted.n_functions += 1

    def end(self) -> None:
        self._depth -= 1
        if not self._depth:
            self.counted.seconds += time.monotonic() - self._began[0]
            self.counted.cpu_seconds += time.process_time() - self._began[1]

    def close(self) -> None:
        """Say what has been compiled and where it is kept, if anything has been and is."""
        n, seconds = self.counted.n_functions, self.counted.seconds
        if self._folder is not None and not _not_kept:
            functions = "1 function" if n == 1 else f"{n} functions"
            self._tell(
                f"compiled {functions} in {seconds:.1f} s; later runs load this from {self._folder}"
            )


@contextmanager
def compilations(tell: Callable[[str], None] = lambda text: None) -> Iterator[Compilations]:
    """Count what is compiled in a block; the counts are up to date when it ends.

    The thread that is about to compile the first function calls `tell` with a line about it, and
    the end of the block with one about all of them; nothing is said if nothing is compiled. Numba
    is not imported.
    """
    counting = _Counting(tell)
    _counting.append(counting)
    try:
        yield counting.counted
    finally:
        _counting.remove(counting)
        if counting.counted.n_functions:
            counting.close()
