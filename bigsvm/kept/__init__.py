"""Kernel values on disk, for runs with a slow kernel of one's own; only `fit/` chooses it.

`segments` is the file, `tiles` takes kernel values from it instead of computing them, and `choice`
says whether a run does so.
"""
