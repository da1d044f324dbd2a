"""The Numba core: kernel values, pair steps, text parsing. Arrays in, arrays out, no I/O.

A file of `core` imports no other one, and of bigsvm the decorators of `bigsvm.compilation` alone:
Numba's cache on disk notices changes of the file that a function is in, but not of files that it
imports. So small functions such as `_fma` are written again in each file that needs them.
"""
