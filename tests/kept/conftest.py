"""A file with short segments, and a kernel that is said to be slow."""

from dataclasses import dataclass

import numpy as np
import pytest

from bigsvm.kept import choice, segments, tiles
from bigsvm.kernels import Kernel

SHORT = 64


@dataclass(frozen=True, kw_only=True)
class Own(Kernel):
    """rbf by a formula of one's own."""

    name = "own-of-tests-of-kept"
    gamma: float = 0.5

    def from_products(self, dots, norms_rows, norms_columns):
        distances = np.add.outer(norms_rows, norms_columns) - 2 * dots
        return np.exp(-self.gamma * np.maximum(distances, 0))


@pytest.fixture
def own():
    return Own()


@pytest.fixture
def short(monkeypatch):
    """Segments of few values."""
    for module in (segments, tiles, choice):
        monkeypatch.setattr(module, "WIDTH", SHORT)
    monkeypatch.setattr(choice, "BUFFER_BYTES", tiles.BUFFER_BYTES * SHORT // 1024)


@pytest.fixture
def slow(short, monkeypatch):
    """Every kernel is measured to take a microsecond a value."""
    monkeypatch.setattr(choice, "_tried", lambda *_: (1e-6, True))
