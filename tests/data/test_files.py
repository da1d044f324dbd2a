"""Files that are whole or absent."""

import os

import pytest

from bigsvm.files import replace_synced


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_interrupted_replacement_leaves_nothing(tmp_path, monkeypatch, error):
    path = tmp_path / "model"
    replace_synced(path, b"old")

    def stop(*_):
        raise error

    monkeypatch.setattr(os, "replace", stop)
    with pytest.raises(error):
        replace_synced(path, b"new")
    assert os.listdir(tmp_path) == ["model"]
    assert path.read_bytes() == b"old"
