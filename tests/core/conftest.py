import pytest
from smo_problems import JIT

from bigsvm.core import smo


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Without the compiler a block of 1024 takes 30 ms a step. Short ones are several, too."""
    if not JIT:
        monkeypatch.setattr(smo, "BLOCK", 8)
        monkeypatch.setattr(smo, "REFRESH", 32)
