"""The benchmark of parity with LIBSVM, on rows made up under the names of real ones."""

import gzip

import parity
import pytest
from command_line import libsvm_text, two_clouds


@pytest.fixture
def folder(monkeypatch, tmp_path):
    X, y = two_clouds(150)
    X += 3  # with the origin among the rows a linear function of one class is 0 everywhere
    for name, target in (("heart_scale", y), ("mpg.scale", X[:, 0] ** 2 + X[:, 1])):
        with gzip.open(tmp_path / f"{name}.libsvm.gz", "wt") as file:
            file.write(libsvm_text(X, target))
    monkeypatch.setenv("BIGSVM_DATA", str(tmp_path))


@pytest.mark.usefixtures("folder")
def test_every_formulation_is_compared(capsys):
    assert parity.main(["--data", "heart_scale", "mpg.scale", "--kernels", "rbf", "linear"]) == 0
    lines = [line.split("|")[1:3] for line in capsys.readouterr().out.splitlines()[2:-1]]
    found = {(data.strip(), formulation.strip()) for data, formulation in lines}
    assert {("heart_scale", "nu-svc"), ("mpg.scale", "eps-svr"), ("mpg.scale", "nu-svr")} <= found


@pytest.mark.usefixtures("folder")
def test_what_is_apart_or_missing_is_said(monkeypatch, capsys):
    monkeypatch.setattr(parity, "VALUES", 0.0)
    assert parity.main(["--data", "heart_scale", "abalone_scale", "--kernels", "rbf"]) == 1
    printed = capsys.readouterr()
    assert "does not hold" in printed.out
    assert "skipped abalone_scale" in printed.err
