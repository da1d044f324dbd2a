"""Minimal enclosing balls: random-sampled search for the farthest row, and the core set it grows.

In come a ball dual and random rows of a source, out come a core set with its weights and a
certificate. `search` has what all searches share, `sampled` and `stepwise` their rounds. A new
solver of balls is a `Search`, which `searches` gives its name.
"""
