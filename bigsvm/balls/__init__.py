"""Minimal enclosing balls: random-sampled search for the farthest row, and the core set it grows.

The input is a ball dual and random rows of a source; the output is a core set with its weights and
a certificate. `search` has what all searches share, `batched` the rounds of one with pair steps;
those of the papers are in `bigsvm.papers`. A new solver of balls is a `Search`, which
`bigsvm.papers.stepwise.search_of` gives its name.
"""
