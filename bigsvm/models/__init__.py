"""Models: what training leaves, what it predicts, and its file.

The input is a kernel, support vectors, coefficients and a certificate; the output is decision
values and classes of rows, which `prediction` streams, and one file, which `files` writes. A new
attribute of a model is a field of `expansion.KernelExpansion`; `contents` writes and checks it. A
new rule for many classes has its place in `bigsvm.votes`.
"""

from bigsvm.models.expansion import KernelExpansion

__all__ = ["KernelExpansion"]
