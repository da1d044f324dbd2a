"""`run.json`, and how `--resume` and `info` read it, also if it is forged."""

import json
import os
import shutil

import numpy as np
import pytest
from command_line import LITTLE, answer, error_of, run_here

import bigsvm
from bigsvm.cli.runs import Run, _digest
from bigsvm.errors import CheckpointError
from bigsvm.report.describe import certificate_lines
from bigsvm.training.result import Certificate, StopReason
from tests.training.forged import forge, newest


@pytest.fixture
def run(many, tmp_path):
    """Folder of a run that was stopped, and its model."""
    run_here("train", many / "many.zarr", tmp_path / "m", *LITTLE, "--checkpoint", tmp_path / "run")
    return tmp_path / "run"


def rewrite(folder, **changes):
    """Change entries of the record; the hash fits."""
    path = folder / "run.json"
    record = json.loads(path.read_text())
    record.update(changes)
    record.pop("xxh3")
    record["xxh3"] = _digest(record)
    path.write_text(json.dumps(record))


CHANGES = {
    "a source that is a number": {"source": 7},
    "no source": {"source": ""},
    "a null byte": {"source": "/a\0b"},
    "a relative model": {"model": "m"},
    "a model that is a list": {"model": ["/m"]},
    "an infinite version": {"format_version": float("inf")},
    "a version of words": {"format_version": "2"},
    "a huge number": {"parameters": {"C": 10**400}},
    "an unknown parameter": {"parameters": {"checkpoint": "/elsewhere"}},
    "parameters of another kind": {"parameters": [1]},
    "no parameters": {"parameters": {}},
    "no formulation": {"parameters": {"C": 1.0}},
    "a deep weight": {"parameters": {"class_weight": [[[[1]]]]}},
    "weights of words": {"parameters": {"class_weight": [["a", "b"]]}},
    "a cache that is no path": {"cache_dir": 1},
    "a copy that is no URL": {"parameters": {"formulation": "c-svc", "checkpoint_copy": 7}},
    "an unknown numbering": {"zero_based": "perhaps"},
}


@pytest.mark.fault("forged-files")
@pytest.mark.parametrize("change", CHANGES)
def test_a_record_of_other_kinds_is_refused(run, change):
    rewrite(run, **CHANGES[change])
    for words in (("train", "--resume", run), ("info", run)):
        assert "run.json is damaged" in error_of(*words)


@pytest.mark.fault("forged-files")
def test_a_record_that_is_nested_without_end_is_refused(tmp_path):
    (tmp_path / "run.json").write_text('{"a":' * 10**5)
    assert "nested too deeply" in error_of("train", "--resume", tmp_path)


@pytest.mark.fault("forged-files")
@pytest.mark.parametrize(
    "values",
    [
        {"n_iter": None}, {"n_iter": 10**400}, {"seconds": "long"}, {"gap": []}, {"gap": 10**400},
        {"n_pairs": 3, "n_finished": "all"}, {"phase": {}}, {"n_sweeps": -1},
    ],
)  # fmt: skip
def test_info_shows_what_it_can_of_values_of_other_kinds(run, values):
    for generation in run.glob("generation-*"):
        forge(generation, values=values)
    assert answer("info", run)["kind"] == "run"
    assert "generation" in run_here("info", run).stdout


@pytest.mark.fault("links-and-pipes")
def test_record_does_not_replace_the_target_of_a_link(data, tmp_path):
    folder, precious = tmp_path / "run", tmp_path / "precious"
    folder.mkdir()
    precious.write_text("kept")
    (folder / "run.json").symlink_to(precious)
    message = error_of("train", data / "train.zarr", tmp_path / "m", "--checkpoint", folder)
    assert "run.json is a link" in message
    assert precious.read_text() == "kept"
    assert not (tmp_path / "m").exists()


@pytest.mark.fault("links-and-pipes")
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_the_record_is_a_file_of_the_folder(run, tmp_path, kind):
    path = run / "run.json"
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere") if kind == "link" else os.mkfifo(path)
    assert "run.json is damaged" in error_of("train", "--resume", run)


@pytest.mark.fault("links-and-pipes")
def test_resume_does_not_write_where_another_users_record_says(run, tmp_path, monkeypatch):
    before = (tmp_path / "m").read_bytes()
    monkeypatch.setattr("bigsvm.cli.runs.os.geteuid", lambda: os.getuid() + 1)
    message = error_of("train", "--resume", run, "--max-iter", "-1")
    assert "was written by another user" in message
    assert "--checkpoint" in message
    assert (tmp_path / "m").read_bytes() == before
    with pytest.raises(CheckpointError, match="another user"):
        Run.load(run, own=True)
    assert answer("info", run)["kind"] == "run"


def test_resume_says_what_it_will_replace(run, tmp_path):
    ended = run_here("train", "--resume", run, "--max-iter", "-1")
    assert f"{tmp_path / 'm'} will be replaced when the run ends" in ended.stderr
    (tmp_path / "m").unlink()
    assert "will be replaced" not in run_here("train", "--resume", run).stderr


@pytest.mark.fault("links-and-pipes")
def test_resume_opens_no_url_that_the_command_does_not_name(run, monkeypatch):
    opened = []
    monkeypatch.setattr("bigsvm.cli.session.opened", lambda source, *_: opened.append(source))
    url = "http://127.0.0.1:9/rows.libsvm"
    rewrite(run, source=url)
    message = error_of("train", "--resume", run)
    assert f"bigsvm train {url} --resume {run}" in message
    assert opened == []
    assert answer("info", run)["resume"].startswith(f"bigsvm train {url} --resume {run}")
    with pytest.raises(TypeError):  # named, it is opened
        run_here("train", url, "--resume", run)
    assert opened == [url]


def test_resume_takes_no_other_store(run, many, data):
    message = error_of("train", data / "train.zarr", "--resume", run)
    assert f"was begun with {many / 'many.zarr'}" in message
    assert answer("train", many / "many.zarr", "--resume", run, "--max-iter", "-1")["converged"]


@pytest.mark.fault("text")
@pytest.mark.parametrize("resumed", [False, True])
def test_a_pipe_cannot_be_read_again(run, tmp_path, resumed):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    words = (pipe, tmp_path / "m", "--checkpoint", tmp_path / "new")
    if resumed:
        rewrite(run, source=str(pipe))
        words = ("--resume", run)
    message = error_of("train", *words)
    assert "is a pipe or a device, which cannot be read again" in message
    assert not (tmp_path / "new").exists()


@pytest.mark.fault("surroundings")
def test_a_folder_that_is_removed_in_mid_run_is_one_line(many, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    save = Run.save

    def remove(self, directory):
        save(self, directory)
        shutil.rmtree(directory)

    monkeypatch.setattr(Run, "save", remove)
    words = ("train", many / "many.zarr", tmp_path / "m", *LITTLE, "--checkpoint", folder)
    assert "was removed while the run was using it" in error_of(*words)
    assert sorted(path.name for path in tmp_path.iterdir()) == []


@pytest.mark.fault("surroundings")
def test_a_disk_that_is_full_at_a_save_is_one_line_and_leaves_nothing_half(
    many, tmp_path, monkeypatch
):
    def full(path, data):
        path.write_bytes(bytes(data)[: len(data) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("bigsvm.training.checkpoint.write_synced", full)
    folder = tmp_path / "run"
    words = ("train", many / "many.zarr", tmp_path / "m", *LITTLE, "--checkpoint", folder)
    assert "No space left on device" in error_of(*words)
    assert not (tmp_path / "m").exists()
    assert sorted(path.name for path in folder.iterdir()) == ["lock", "log.jsonl", "run.json"]


class TestRunsOfEstimators:
    """Folders that an estimator has saved to, which no command has begun."""

    @pytest.fixture
    def saved(self, tmp_path):
        rng = np.random.default_rng(0)
        X, y = rng.standard_normal((300, 3)), rng.integers(0, 2, 300)
        folder = tmp_path / "saved"
        bigsvm.SVC(C=50, checkpoint=folder).fit(X, y)
        return folder

    def test_info_describes_them(self, saved):
        record = answer("info", saved)
        assert (record["kind"], record["source"], record["model"]) == ("run", None, None)
        assert record["progress"]["n_iter"] > 20
        assert record["progress"]["fingerprint"]["C"] == "50"
        assert "fit again" in record["resume"]
        shown = run_here("info", saved).stdout
        assert "KKT gap" in shown
        assert "C 50" in shown
        assert "fit again" in shown

    def test_without_a_whole_generation_there_is_nothing_to_describe(self, saved):
        (newest(saved) / "manifest.json").write_bytes(b"")
        assert "no whole generation" in error_of("info", saved)

    def test_a_command_cannot_resume_them(self, saved):
        assert "has no run.json" in error_of("train", "--resume", saved)


def test_the_last_gap_is_shown_after_a_stop_between_sweeps():
    certificate = Certificate(
        converged=False, stop_reason=StopReason.TIME_LIMIT, tol=0.001, objective=None, gap=None,
        duality_gap=None, n_support=3, n_bounded=1, n_sweeps=1, n_iter=5, n_kernel_evaluations=9,
        row_misses=0, row_reads=0, n_working_sets=1, rows_swept=9, bytes_read=0, seconds=1.0,
        seconds_by_phase={"rest": 1.0},
    ).as_dict()  # fmt: skip
    lines = dict(certificate_lines(certificate | {"last_gap": 12.2}))
    assert lines["KKT gap"] == "12.2 at the last sweep (tol 0.001)"
    assert "not known" in dict(certificate_lines(certificate))["KKT gap"]
    assert dict(certificate_lines(certificate))["duality gap"] == "-"
    sampled = {"sampled_duality_gap_deviation": 0.25, "sampled_rows": 1024}
    lines = dict(certificate_lines(certificate | {"sampled_duality_gap": 2.5} | sampled))
    assert lines["duality gap"] == (
        "about 2.5, standard error 0.25: an estimate from a sample of 1 024 rows, not certified"
    )
