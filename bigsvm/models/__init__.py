"""What training leaves: a function of few rows, its files, and what it predicts."""

from bigsvm.models.expansion import KernelExpansion

__all__ = ["KernelExpansion"]
