"""The demo: honest data, and a kill that hits."""

import json
import sys

import numpy as np
import pytest
from command_line import REPOSITORY, finish, run_here, start

from bigsvm.cli.digits import enlarged, load_digits_split, vary
from bigsvm.report.progress import Display


class TestDigits:
    def test_held_out_images_are_none_of_those_that_are_enlarged(self):
        digits = load_digits_split(0)
        train = {image.tobytes() for image in digits.train_images}
        assert len(digits.train_images) + len(digits.test_images) == 1797
        assert not any(image.tobytes() in train for image in digits.test_images)
        for labels in (digits.train_labels, digits.test_labels):
            assert set(labels) == {-1.0, 1.0}
            assert abs(labels.mean()) < 0.05

    def test_the_copies_are_near_their_images_and_always_the_same(self):
        digits = load_digits_split(0)
        n, m = 3000, len(digits.train_images)
        X, y = enlarged(digits, n, seed=0)
        images = X.compute(scheduler="synchronous")
        assert images.shape == (n, 64)
        assert images.dtype == np.float32
        assert images.min() >= 0
        assert images.max() <= 1
        assert np.array_equal(y, digits.train_labels[np.arange(n) % m])
        again, _ = enlarged(digits, n, seed=0)
        assert np.array_equal(images, again.compute(scheduler="synchronous"))
        # Nearer to the image each was made of than to most others.
        own = np.linalg.norm(images[:m] - digits.train_images, axis=1)
        others = np.linalg.norm(images[:m] - np.roll(digits.train_images, 1, axis=0), axis=1)
        assert np.median(own) < 0.5 * np.median(others)
        assert len(np.unique(images, axis=0)) == n

    def test_image_without_variation_is_unchanged(self, monkeypatch):
        for name in ("LARGEST_SHIFT", "LARGEST_ROTATION", "NOISE"):
            monkeypatch.setattr(f"bigsvm.cli.digits.{name}", 0.0)
        images = load_digits_split(0).train_images[:50]
        np.testing.assert_allclose(vary(images, np.random.default_rng(0)), images, atol=1e-6)


def test_a_folder_that_is_not_empty_is_refused(tmp_path):
    (tmp_path / "mine").touch()
    assert "not empty" in run_here("demo", "--directory", tmp_path, code=2).stderr


def test_progress_bar_of_the_demo_ends_before_its_commands(tmp_path, monkeypatch):
    class Started(Exception):
        pass

    bars = []

    class Watched(Display):
        def __enter__(self):
            bars.append(self)
            return super().__enter__()

        def __exit__(self, *exception):
            bars.remove(self)
            super().__exit__(*exception)

    def start_command(demo, arguments):
        assert bars == []
        raise Started

    monkeypatch.setattr("bigsvm.cli.demo.Display", Watched)
    monkeypatch.setattr("bigsvm.cli.demo._start", start_command)
    with pytest.raises(Started):
        run_here("demo", "--rows", "2000", "--directory", tmp_path / "demo")


@pytest.mark.slow
def test_demo_reports_a_run_too_quick_to_be_killed(tmp_path, monkeypatch):
    """However slow the machine is: the kill waits for more checkpoints than there will be."""
    monkeypatch.setattr("bigsvm.cli.demo.CHECKPOINTS_BEFORE_KILL", sys.maxsize)
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    folder = tmp_path / "demo"
    out = run_here("demo", "--rows", "2000", "--directory", folder, "--quiet").stdout
    assert "ended before it could be killed" in out
    assert "Accuracy on the held-out digits" in out
    assert (folder / "train.safetensors").exists()


@pytest.mark.slow
def test_the_kill_hits_and_the_run_is_resumed():
    record = json.loads(finish(start("demo", "--json", "--quiet"))[0])
    assert record["memory"] < record["bytes_of_rows"]
    assert record["killed"]["n_iter"] > 0
    assert record["killed"]["lost"] < 2.5
    assert record["train"]["converged"]
    assert record["train"]["n_iter"] > record["killed"]["n_iter"]
    assert record["predict"]["accuracy"] > 0.98
