"""What is in the file of a model, and what is not."""

from pathlib import Path

import numpy as np
import pytest

import bigsvm
from bigsvm.report.describe import certificate_lines
from bigsvm.training.result import MEASURED

BEFORE_TIMINGS_WERE_LEFT_OUT = Path(__file__).with_name("with_timings.safetensors")
"""Written by `KernelExpansion.save` when it wrote the whole certificate: an SVC of eight rows."""


def rows(n_classes, n_rows):
    rng = np.random.default_rng(n_classes)
    y = rng.integers(0, n_classes, n_rows)
    return (rng.normal(size=(n_rows, 3)) + 0.6 * y[:, None]).astype(np.float32), y


FITS = {
    "of LIBSVM": (bigsvm.SVC(), rows(2, 120)),
    "of our own solver": (bigsvm.SVC(max_iter=10**6), rows(2, 120)),
    "of class pairs": (bigsvm.SVC(max_iter=10**6), rows(3, 120)),
    "of a ball": (bigsvm.L2SVC(), rows(2, 120)),
    "with probabilities": (bigsvm.SVC(calibration="sigmoid"), rows(2, 120)),
}


@pytest.mark.parametrize("name", FITS)
def test_two_runs_of_the_same_fit_write_equal_files(name, tmp_path):
    estimator, (X, y) = FITS[name]
    paths = [tmp_path / str(number) for number in range(6)]
    for path in paths[:2]:
        estimator.fit(X, y).save(path)
    for path in paths[2:]:  # safetensors orders some of it at random
        estimator.save(path)
    assert {path.read_bytes() for path in paths} == {paths[0].read_bytes()}


def test_a_file_has_what_was_measured_if_asked(tmp_path):
    X, y = rows(2, 60)
    model = bigsvm.SVC().fit(X, y).model_
    model.save(tmp_path / "whole", timings=True)
    model.save(tmp_path / "plain")
    whole, plain = (
        bigsvm.KernelExpansion.load(tmp_path / name).certificate for name in ("whole", "plain")
    )
    assert whole == model.certificate
    assert whole["seconds"] > 0
    assert plain == {name: value for name, value in whole.items() if name not in MEASURED}


def test_a_model_without_times_is_described_without_them(tmp_path):
    X, y = rows(2, 60)
    model = bigsvm.SVC().fit(X, y).model_
    model.save(tmp_path / "m")
    told = dict(certificate_lines(bigsvm.KernelExpansion.load(tmp_path / "m").certificate))
    before = dict(certificate_lines(model.certificate))
    assert before["cost"].startswith(told["cost"] + ", ")
    assert told["time"] is None
    assert told["training"] == before["training"]


def test_files_from_before_are_read():
    loaded = bigsvm.load(BEFORE_TIMINGS_WERE_LEFT_OUT)
    assert loaded.certificate_["seconds"] > 0
    assert set(loaded.certificate_["seconds_by_phase"]) > {"steps"}
    X = np.repeat([[0.0], [1.0]], 4, axis=0)
    assert loaded.predict(X).tolist() == [0] * 4 + [1] * 4
