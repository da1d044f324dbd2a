"""What all tests share. It also puts this folder on the path: ``import naive``."""

import pytest
from hypothesis import settings

# The first example of a property may compile a kernel.
settings.register_profile("bigsvm", deadline=None)
settings.load_profile("bigsvm")


@pytest.fixture
def pairs_by_runs(monkeypatch):
    """Pairs of classes have runs of their own, however small they are."""
    monkeypatch.setattr("bigsvm.training.small_pairs.MOST_ROWS", 0)
