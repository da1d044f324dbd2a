"""The Numba core: kernel values, pair steps, text parsing. Arrays in, arrays out, no I/O.

A file of `core` imports no other one, and of bigsvm the decorators of `bigsvm.compilation` alone:
Numba's cache on disk notices changes of the file that a function is in, but not of files that it
imports. So small functions such as `_fma` are written again in each file that needs them.

``from bigsvm.core import smo`` runs nothing: the file is run, and Numba imported, when something of
it is first used. After that it is a module like any other.
"""

from bigsvm.compilation import modules_run_when_used

__getattr__ = modules_run_when_used(__name__)
