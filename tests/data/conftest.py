import os

import pytest

from bigsvm.data import schema, writer


@pytest.fixture(autouse=True)
def no_flushing(monkeypatch):
    """Hundreds of stores need not survive a loss of power; one test asks whether one would."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def small_chunks(monkeypatch):
    """Make stores of small data have many chunks in several shards."""
    monkeypatch.setattr(schema, "CHUNK_BYTES", 1 << 12)
    monkeypatch.setattr(schema, "VECTOR_CHUNK_BYTES", 1 << 9)
    monkeypatch.setattr(writer, "_SHARD_BYTES", 1 << 15)
    monkeypatch.setattr(writer, "_VECTOR_SHARD_BYTES", 3 << 12)
    monkeypatch.setattr(writer, "_BLOCK_BYTES", 1 << 12)
