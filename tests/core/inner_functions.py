"""Calls of functions that only compiled functions may call."""

from functools import cache

from numba import njit


@cache
def called(function):
    """A function that Python may call, and that does what an inner function does."""
    return njit(lambda *arguments: function(*arguments))
