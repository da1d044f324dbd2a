"""Tests of small problems: fits go the way that users' fits go."""

import pytest


@pytest.fixture(autouse=True)
def _small_way(monkeypatch):
    monkeypatch.setenv("BIGSVM_SMALL", "auto")
