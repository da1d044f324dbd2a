import pytest
from smo_problems import JIT

from bigsvm.core import crammer_singer, smo


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Without the compiler a step on a block of 64 takes 1 to 2 ms, on several of 8 a third."""
    if not JIT:
        monkeypatch.setattr(smo, "BLOCK", 8)
        monkeypatch.setattr(crammer_singer, "BLOCK", 8)
        monkeypatch.setattr(smo, "REFRESH", 32)
