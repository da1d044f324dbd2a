"""`bigsvm svm-train`, `svm-predict` and `svm-scale` beside LIBSVM's own programs, on real data."""

import gzip
import os
import re
from pathlib import Path

import numpy as np
import pytest
from command_line import run_here
from support.libsvm_programs import needs_programs, program

FOLDER = Path(os.environ.get("BIGSVM_DATA") or Path(__file__).parents[3] / "shared" / "data")
pytestmark = [pytest.mark.slow, pytest.mark.real_data, needs_programs]

JOBS = {
    "two classes": ("heart_scale", "heart_scale", "-c 8 -g 0.03"),
    "the textbook example": ("a1a", "a1a.t", ""),
    "weights": ("heart_scale", "heart_scale", "-w1 3 -w-1 0.5 -t 1 -g 0.1 -r 1 -d 2"),
    "many classes": ("glass.scale", "glass.scale", "-c 10"),
    "many rows": ("satimage.scale", "satimage.scale.t", "-c 16 -g 1"),
    "nu-svc": ("heart_scale", "heart_scale", "-s 1 -n 0.4"),
    "one class": ("heart_scale", "heart_scale", "-s 2 -n 0.2"),
    "regression": ("mpg.scale", "mpg.scale", "-s 3 -p 0.5 -c 10"),
    "nu-svr": ("housing_scale", "housing_scale", "-s 4 -n 0.4 -c 10"),
}


def unpacked(name, folder):
    """A data set as text in a folder; its name."""
    packed = FOLDER / f"{name}.libsvm.gz"
    if not packed.exists():
        pytest.skip(f"no {packed}")
    (folder / name).write_bytes(gzip.decompress(packed.read_bytes()))
    return name


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def forms(text):
    """Text in which numbers are N, and spaces and words are left."""
    return re.sub(r"-?[0-9.]+(e[-+][0-9]+)?", "N", text)


@pytest.mark.parametrize("job", JOBS)
def test_files_and_lines_are_libsvms(job, folder):
    train, test, options = JOBS[job]
    train, test = unpacked(train, folder), unpacked(test, folder)
    options = [*options.split(), "-e", "1e-4"]
    said = run_here("svm-train", *options, train).stdout
    expected = program("svm-train", *options, train, "theirs.model", cwd=folder)
    expected = re.sub(r"^[.*]+\n", "", expected)  # its progress
    if "many" in job:  # LIBSVM prints a block for each pair of classes, and ours the last line
        expected = expected.splitlines(keepends=True)[-1]
    assert forms(said) == forms(expected)
    for name in ("nu", "C", "epsilon", "obj", "rho"):
        values = [re.findall(rf"\b{name} = (-?[\d.]+)", printed) for printed in (said, expected)]
        assert len(values[0]) == len(values[1]) <= 1
        np.testing.assert_allclose(*(np.array(each, float) for each in values), rtol=5e-4)
    models = [
        Path(name).read_text().partition("SV\n") for name in (f"{train}.model", "theirs.model")
    ]
    assert forms(models[0][0]) == forms(models[1][0])
    headers = (model[0].splitlines() for model in models)
    for line, other in zip(*headers, strict=True):
        if not line.startswith(("rho", "total_sv", "nr_sv")):  # what training has found
            assert line == other
    vectors, others = (
        {" ".join(line.split(" ")[line.count(" ") - line.count(":") :]) for line in lines}
        for lines in (model[2].splitlines(keepends=True) for model in models)
    )
    assert len(vectors & others) >= 0.95 * max(len(vectors), len(others))
    for line in models[0][2].splitlines(keepends=True):
        assert line.endswith(" \n")
        for word in line.split():
            index, _, value = word.rpartition(":")
            assert value == format(float(value), ".8g" if index else ".17g")
    for model in (f"{train}.model", "theirs.model"):
        printed = run_here("svm-predict", test, model, "ours.txt").stdout
        should = program("svm-predict", test, model, "theirs.txt", cwd=folder)
        ours, theirs = Path("ours.txt").read_bytes(), Path("theirs.txt").read_bytes()
        if train in ("mpg.scale", "housing_scale"):
            np.testing.assert_allclose(np.loadtxt("ours.txt"), np.loadtxt("theirs.txt"), rtol=1e-4)
            assert forms(printed) == forms(should)
        elif job == "one class":  # support vectors are at the threshold itself
            assert (np.loadtxt("ours.txt") != np.loadtxt("theirs.txt")).mean() < 0.03
            assert forms(printed) == forms(should)
        else:
            assert ours == theirs
            assert printed == should


@pytest.mark.parametrize(
    ("name", "options", "error"),
    [
        ("heart_scale", "-c 8 -g 0.03", 0), ("heart_scale", "-s 1 -n 0.4", 0),
        ("heart_scale", "-s 2 -n 0.2", 0), ("mpg.scale", "-s 3 -c 10", 1e-4),
        ("mpg.scale", "-s 4 -c 10", 1e-4), ("glass.scale", "-c 10", 5e-3),
    ],
)  # fmt: skip
def test_probabilities_are_libsvms(name, options, error, folder):
    """LIBSVM couples them roughly with many classes; predicted targets are rounded to float32."""
    unpacked(name, folder)
    options = [*options.split(), "-b", "1"]
    run_here("svm-train", "-q", *options, name)
    program("svm-train", "-q", *options, name, "theirs.model", cwd=folder)
    models = (f"{name}.model", "theirs.model")
    headers = [Path(model).read_text().partition("SV\n")[0] for model in models]
    assert forms(headers[0]) == forms(headers[1])
    for model in models:
        printed = run_here("svm-predict", "-b", "1", name, model, "ours.txt").stdout
        should = program("svm-predict", "-b", "1", name, model, "theirs.txt", cwd=folder)
        ours, theirs = Path("ours.txt").read_text(), Path("theirs.txt").read_text()
        if not error:
            assert (printed, ours) == (should, theirs)
            continue
        assert (forms(printed), forms(ours)) == (forms(should), forms(theirs))
        numbers = [
            np.loadtxt(text.splitlines(), skiprows=int(ours[0] == "l")) for text in (ours, theirs)
        ]
        np.testing.assert_allclose(*numbers, atol=error)


@pytest.mark.parametrize("options", ["", "-l 0", "-l 0 -u 5", "-y 0 1"])
@pytest.mark.parametrize(
    "names", [("heart_scale",) * 2, ("a1a", "a1a.t"), ("satimage.scale", "satimage.scale.t")]
)
def test_scaled_text_is_libsvms_byte_for_byte(names, options, folder):
    train, test = (unpacked(name, folder) for name in names)
    found = run_here("svm-scale", *options.split(), "-s", "ours.range", train).stdout
    assert found == program("svm-scale", *options.split(), "-s", "theirs.range", train, cwd=folder)
    assert Path("ours.range").read_bytes() == Path("theirs.range").read_bytes()
    found = run_here("svm-scale", "-r", "theirs.range", test).stdout
    assert found == program("svm-scale", "-r", "theirs.range", test, cwd=folder)
