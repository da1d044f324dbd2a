import os

import pytest
from row_contracts import make_chunks_small


@pytest.fixture(autouse=True)
def no_flushing(monkeypatch):
    """Hundreds of stores need not survive a loss of power; one test asks whether one would."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def small_chunks(monkeypatch):
    """Make stores of small data have many chunks in several shards."""
    make_chunks_small(monkeypatch)
