"""`bigsvm train`, run in this process: results, options, errors, checkpoints."""

import json
import re
import shlex
from dataclasses import asdict
from datetime import datetime

import numpy as np
import pytest
from command_line import LITTLE, answer, error_of, libsvm_text, run_here

from bigsvm import KernelExpansion, open_store
from bigsvm.cli.runs import Run
from bigsvm.errors import CheckpointError, DataError


class TestTrain:
    def test_json_has_the_certificate_and_what_it_cost(self, data, tmp_path):
        record = answer("train", data / "train.zarr", tmp_path / "m", "--C", "2", "--gamma", "0.3")
        promised = (
            "converged stop_reason objective gap duality_gap n_support n_bounded n_sweeps "
            "n_kernel_evaluations row_misses seconds peak_rss_bytes"
        )
        assert set(promised.split()) <= record.keys()
        assert record["converged"] is True
        assert record["stop_reason"] == "converged"
        assert 0 <= record["gap"] <= 1e-3
        certificate = KernelExpansion.load(tmp_path / "m").certificate
        assert {name: record[name] for name in certificate} == certificate
        assert (record["n_rows"], record["n_features"]) == (300, 6)
        assert record["classes"] == [-1, 1]

    def test_text_on_standard_output_progress_on_standard_error(self, data, tmp_path):
        ended = run_here("train", data / "train.zarr", tmp_path / "m")
        assert "converged: a full sweep certified the tolerance" in ended.stdout
        assert "sweep 1: gap" in ended.stderr
        assert "\x1b" not in ended.stdout + ended.stderr
        assert run_here("train", data / "train.zarr", tmp_path / "m", "-q").stderr == ""

    def test_every_parameter_arrives(self, data, tmp_path):
        options = (
            *("--C", "3", "--gamma", "auto", "--kernel", "poly", "--degree", "2"),
            *("--coef0", "1.5", "--tol", "0.01", "--class-weight", "-1:2", "--class-weight", "1:3"),
            *("--selection", "second-order", "--memory", "100MB", "--threads", "1", "--seed", "7"),
            *("--max-iter", "1000000", "--max-time", "2h", "--checkpoint-every", "5m"),
            *("--checkpoint", tmp_path / "run"),
        )
        run_here("train", data / "train.zarr", tmp_path / "m", *options)
        model = KernelExpansion.load(tmp_path / "m")
        recorded = model.provenance["parameters"]
        expected = {
            "C": 3.0, "kernel": "poly", "degree": 2, "gamma": "auto", "coef0": 1.5, "tol": 0.01,
            "class_weight": [2.0, 3.0], "selection": "second-order", "memory": "100MB",
            "threads": 1, "seed": 7, "max_iter": 1000000, "max_seconds": 7200.0,
            "checkpoint_every": 300.0,
        }  # fmt: skip
        assert {name: recorded[name] for name in expected} == expected
        assert model.kernel.describe()["gamma"] == pytest.approx(1 / 6)

    def test_balanced_weights(self, data, tmp_path):
        run_here("train", data / "train.zarr", tmp_path / "m", "--class-weight", "balanced")
        weights = KernelExpansion.load(tmp_path / "m").provenance["parameters"]["class_weight"]
        counts = dict(open_store(data / "train.zarr").attributes.label_counts)
        assert weights == pytest.approx([150 / counts[-1], 150 / counts[1]])

    def test_text_trains_the_same_model_and_leaves_nothing(self, data, tmp_path):
        cache = tmp_path / "cache"
        options = ("--C", "2", "--gamma", "0.3", "--cache-dir", cache)
        ended = run_here("train", data / "train.libsvm", tmp_path / "m", *options)
        assert f"temporary store in {cache}" in ended.stderr
        assert list(cache.iterdir()) == []
        direct, from_text = (KernelExpansion.load(m) for m in (data / "model", tmp_path / "m"))
        assert np.array_equal(direct.coefficients, from_text.coefficients)
        assert np.array_equal(direct.support_vectors, from_text.support_vectors)

    def test_leftovers_of_a_killed_process_are_removed(self, data, tmp_path):
        left = tmp_path / "bigsvm-text-killed"
        left.mkdir()
        (left / "lock").touch()
        other = tmp_path / "bigsvm-text-not-ours"
        other.mkdir()
        run_here("train", data / "train.libsvm", tmp_path / "m", "--cache-dir", tmp_path)
        assert not left.exists()
        assert other.exists()

    def test_an_unconverged_model_is_written_and_says_so(self, data, many, tmp_path):
        options = (*LITTLE, "--quiet", "--json")
        ended = run_here("train", many / "many.zarr", tmp_path / "m", *options)
        record = json.loads(ended.stdout)
        assert (record["converged"], record["stop_reason"]) == (False, "max_iter")
        assert ended.stderr.startswith("bigsvm: warning: the model has not converged: the limit")
        assert KernelExpansion.load(tmp_path / "m").certificate["converged"] is False
        assert "had not converged" in run_here("predict", data / "test.zarr", tmp_path / "m").stdout

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (["--C", "-1"], "C is -1.0"),
            (["--gamma", "big"], "--gamma 'big'"),
            (["--memory", "much"], "--memory 'much' is not a size"),
            (["--memory", "1kB"], "too little"),
            (["--max-time", "soon"], "--max-time 'soon'"),
            (["--checkpoint-every", "0"], "--checkpoint-every '0'"),
            (["--class-weight", "3"], "--class-weight '3'"),
            (["--class-weight", "balanced", "--class-weight", "1:2"], "'balanced' alone"),
            (["--class-weight", "1:2", "--class-weight", "1:3"], "'1:3'"),
            (["--class-weight", "5:2"], "names 5.0"),
        ],
    )
    def test_a_bad_value_is_named(self, data, tmp_path, options, words):
        assert words in error_of("train", data / "train.zarr", tmp_path / "m", *options)
        assert not (tmp_path / "m").exists()

    @pytest.mark.parametrize("option", ["--kernel", "--selection"])
    def test_a_bad_choice_is_wrong_usage(self, data, tmp_path, option):
        ended = run_here("train", data / "train.zarr", tmp_path / "m", option, "no", code=2)
        assert option in ended.stderr

    def test_other_files_are_not_replaced_by_a_model(self, data):
        before = (data / "test.libsvm").read_bytes()
        assert "not a model" in error_of("train", data / "train.zarr", data / "test.libsvm")
        assert (data / "test.libsvm").read_bytes() == before

    def test_a_model_that_cannot_be_written_is_found_before_training(self, data, tmp_path):
        missing = tmp_path / "missing" / "m"
        assert f"{missing.parent} is not a folder" in error_of(
            "train", data / "train.zarr", missing
        )
        assert "is a folder" in error_of("train", data / "train.zarr", tmp_path)

    def test_missing_paths_are_refused(self, tmp_path):
        assert "no such store or file" in error_of("train", tmp_path / "none", tmp_path / "m")

    @pytest.mark.parametrize(("memory", "given"), [("40MB", 40_000_000), ("10MB", 32 << 20)])
    def test_text_is_converted_within_the_budget(self, data, tmp_path, monkeypatch, memory, given):
        def convert(*arguments, memory, **options):
            raise DataError(f"converting in {memory}")

        monkeypatch.setattr("bigsvm.conversion.from_text.convert", convert)
        options = (data / "test.libsvm", tmp_path / "m", "--memory", memory)
        assert f"converting in {given}" in error_of("train", *options)

    def test_more_than_two_classes(self, tmp_path):
        (tmp_path / "three").write_text("1 1:1\n2 1:2\n3 1:3\n")
        assert answer("train", tmp_path / "three", tmp_path / "m")["classes"] == [1, 2, 3]
        (tmp_path / "one").write_text("1 1:1\n1 1:2\n")
        assert "y has one class only" in error_of("train", tmp_path / "one", tmp_path / "m")

    def test_the_store_or_what_to_resume_is_needed(self, tmp_path):
        assert "--resume" in run_here("train", code=2).stderr
        ended = run_here("train", "a", "b", "--resume", tmp_path, code=2)
        assert "--resume needs neither" in ended.stderr


class TestCheckpoint:
    def test_a_run_stopped_by_a_limit_is_resumed_by_its_directory_alone(self, many, tmp_path):
        run = tmp_path / "a run"
        options = (*LITTLE, "--checkpoint", run)
        ended = run_here("train", many / "many.zarr", tmp_path / "m", *options)
        command = ended.stderr.strip().rpartition(": ")[2]
        assert answer("info", run)["resume"] == command
        program, *arguments = shlex.split(command)
        assert program == "bigsvm"
        record = answer(*arguments)
        assert record["converged"]
        assert record["model"] == str(tmp_path / "m")
        assert record["n_sweeps"] > 1
        assert KernelExpansion.load(tmp_path / "m").certificate["converged"]

    def test_another_C_is_refused_by_name_and_the_run_stays_as_it_was(self, data, tmp_path):
        options = ("--gamma", "0.3", "--checkpoint", tmp_path / "run")
        run_here("train", data / "train.zarr", tmp_path / "m", "--C", "2", *options)
        before = (tmp_path / "run" / "run.json").read_bytes()
        arguments = ("train", data / "train.zarr", tmp_path / "m", *options)
        assert "C (checkpoint: 2.0, now: 3.0)" in error_of(*arguments, "--C", "3")
        message = error_of("train", "--resume", tmp_path / "run", "--C", "3")
        assert "C (checkpoint: 2.0, now: 3.0)" in message
        assert (tmp_path / "run" / "run.json").read_bytes() == before
        assert answer("train", "--resume", tmp_path / "run")["converged"]

    def test_text_is_read_again_by_a_resumed_run(self, many, tmp_path):
        run, text = tmp_path / "run", many / "many.libsvm"
        options = (*LITTLE, "--checkpoint", run, "--class-weight", "1:2")
        run_here("train", text, tmp_path / "m", *options)
        record = answer("train", "--resume", run, "--max-iter", "-1")
        assert record["converged"]
        assert record["n_sweeps"] > 1
        assert answer("info", run)["source"] == str(text)

    def test_standard_input_cannot_be_resumed(self, tmp_path):
        message = error_of("train", "-", tmp_path / "m", "--checkpoint", tmp_path / "run")
        assert "standard input" in message

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (None, "has no run.json"),
            (b"{", "is damaged"),
            (b"[]", "is damaged"),
            (b'{"format_version": 99, "bigsvm": "9.9"}', "resume with bigsvm 9.9"),
            (b'{"format_version": 1, "bigsvm": "0.1", "nonsense": 1}', "is damaged"),
        ],
    )
    def test_resume_of_another_folder_is_refused(self, tmp_path, content, words):
        if content is not None:
            (tmp_path / "run.json").write_bytes(content)
        assert words in error_of("train", "--resume", tmp_path)


def test_no_bit_of_a_saved_run_flips_unseen(tmp_path):
    run = Run(source="/s.zarr", model="/m", parameters={"C": 1.5, "tol": 1e-3, "memory": "1GB"})
    run.save(tmp_path)
    path = tmp_path / "run.json"
    content, refused = path.read_bytes(), 0
    for place in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            assert Run.load(tmp_path) == run  # of white space between words
        except CheckpointError:
            refused += 1
    assert refused > 6 * len(content)


def test_a_run_saved_without_a_hash_is_read(tmp_path):
    run = Run(source="/s.zarr", model="/m", parameters={"formulation": "c-svc"})
    record = {"format_version": 1, "bigsvm": "0.1.0", **asdict(run)}
    (tmp_path / "run.json").write_text(json.dumps(record))
    assert Run.load(tmp_path) == run


@pytest.mark.parametrize(("given", "words"), [
    (("1:2", "+1:3"), r"'\+1:3' gives the label 1 a second weight"),
    (("1:2", "one"), "'one' is not understood"),
])  # fmt: skip
def test_invalid_class_weights_are_refused(data, tmp_path, given, words):
    options = [word for weight in given for word in ("--class-weight", weight)]
    found = error_of("train", data / "train.zarr", tmp_path / "m", *options)
    assert re.search(words, str(found))


def test_a_model_is_not_written_to_a_file_called_minus(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "- is no file; name one" in error_of("train", data / "train.zarr", "-")
    assert not (tmp_path / "-").exists()


@pytest.mark.fault("labels")
@pytest.mark.parametrize("form", ["text", "store"])
@pytest.mark.parametrize("formulation", ["c-svc", "nu-svc", "l2-svc", "crammer-singer"])
def test_targets_are_no_classes(form, formulation, tmp_path):
    X = np.random.default_rng(0).normal(size=(30, 2)).astype(np.float32)
    source = tmp_path / "targets.libsvm"
    source.write_text(libsvm_text(X, np.arange(30) / 4))
    if form == "store":
        run_here("convert", source, tmp_path / "targets.zarr")
        source = tmp_path / "targets.zarr"
    said = error_of("train", source, tmp_path / "m", "--formulation", formulation)
    assert "0.25 is a target of a regression" in said
    assert "--formulation eps-svr" in said
    assert not (tmp_path / "m").exists()
    run_here("train", source, tmp_path / "m", "--formulation", "eps-svr")


@pytest.mark.fault("labels")
def test_very_many_classes_cause_a_warning(tmp_path):
    X = np.random.default_rng(0).normal(size=(30, 2)).astype(np.float32)
    (tmp_path / "text").write_text(libsvm_text(X, np.arange(30) % 20))
    said = run_here("train", tmp_path / "text", tmp_path / "m", "--quiet").stderr
    assert said.count("bigsvm: warning: y has 20 classes in 30 rows") == 1


class TestFailUnconverged:
    def test_a_model_that_did_not_converge_is_written_and_fails(self, many, tmp_path):
        command = ("train", many / "many.zarr", tmp_path / "m", *LITTLE)
        assert "has not converged" in run_here(*command, "--fail-unconverged", code=3).stderr
        assert not KernelExpansion.load(tmp_path / "m").certificate["converged"]
        run_here(*command)

    def test_a_model_that_converged_does_not_fail(self, data, tmp_path):
        run_here("train", data / "train.zarr", tmp_path / "m", "--fail-unconverged")


class TestLog:
    def test_a_log_has_events_with_their_times(self, data, tmp_path):
        log = tmp_path / "log"
        run_here("train", data / "train.zarr", tmp_path / "m", "--log", log)
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        assert [line["event"] for line in lines[:1]] == ["Planned"]
        assert {"Swept", "Ended"} <= {line["event"] for line in lines}
        moments = [datetime.fromisoformat(line["time"]) for line in lines]
        assert moments == sorted(moments)
        assert moments[0].utcoffset().total_seconds() == 0
        assert lines[-1]["stop_reason"] == "converged"
        run_here("train", data / "train.zarr", tmp_path / "m", "--log", log)
        assert len(log.read_text().splitlines()) > len(lines)

    def test_a_run_that_fails_says_why(self, data, tmp_path):
        command = ("train", data / "train.zarr", tmp_path / "m", "--log", tmp_path / "log")
        error_of(*command, "--formulation", "nu-svc", "--nu", "1")
        [line] = (tmp_path / "log").read_text().splitlines()
        assert json.loads(line)["event"] == "failed"
        assert "nu is 1" in json.loads(line)["error"]

    def test_another_file_is_not_written_to(self, data, tmp_path):
        command = ("train", data / "train.zarr", tmp_path / "m", "--log")
        assert "is not a log of a run" in error_of(*command, data / "model")
        assert "cannot be written" in error_of(*command, tmp_path / "none" / "log")
        assert "not a URL" in error_of(*command, "s3://bucket/log")
