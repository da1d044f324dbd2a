"""Where results go: files, devices, pipes, standard output, and never over what is read."""

import json
import os
import threading
from pathlib import Path

import pytest
from command_line import BIGSVM, error_of, run_here, shell

import bigsvm
from bigsvm.errors import ModelError, ParameterError
from bigsvm.files import descriptor_of, lies_in
from bigsvm.models import KernelExpansion

LABELS = {"-1", "1"}


@pytest.fixture(scope="module")
def expected(data, tmp_path_factory):
    output = tmp_path_factory.mktemp("expected") / "labels"
    run_here("predict", data / "test.zarr", data / "model", "-o", output)
    return output.read_text()


class TestStreams:
    @pytest.mark.fault("local-paths")
    @pytest.mark.parametrize("name", ["/dev/stdout", "-", "/dev/fd/1", "/proc/self/fd/1"])
    def test_the_file_of_a_group_of_commands_is_written_into(self, data, tmp_path, expected, name):
        script = f'{{ echo before; {BIGSVM} predict "$1" "$2" -o {name}; echo after; }} > "$3"'
        ended = shell(script, data / "test.zarr", data / "model", tmp_path / "all")
        assert (tmp_path / "all").read_text() == f"before\n{expected}after\n"
        assert "accuracy" in ended.stderr
        assert os.listdir(tmp_path) == ["all"]

    @pytest.mark.fault("local-paths")
    def test_link_to_standard_output_is_written_into(self, data, tmp_path, expected):
        (tmp_path / "link").symlink_to("/dev/stdout")
        script = f'{{ {BIGSVM} predict "$1" "$2" -o "$3" --json; }} >> "$4"'
        (tmp_path / "all").write_text("before\n")
        shell(script, data / "test.zarr", data / "model", tmp_path / "link", tmp_path / "all")
        assert (tmp_path / "all").read_text() == f"before\n{expected}"
        assert (tmp_path / "link").is_symlink()

    def test_predictions_go_into_pipes(self, data, expected):
        script = f'{BIGSVM} predict "$1" "$2" -o - --json | cat'
        ended = shell(script, data / "test.zarr", data / "model")
        assert ended.stdout == expected
        assert json.loads(ended.stderr)["n_rows"] == 100

    def test_decision_values_go_into_pipes(self, data):
        script = f'{BIGSVM} predict "$1" "$2" -o - --decision-function -q'
        ended = shell(script, data / "test.zarr", data / "model")
        assert len([float(line) for line in ended.stdout.splitlines()]) == 100

    def test_a_named_pipe_is_written_into_and_stays(self, data, tmp_path, expected):
        os.mkfifo(tmp_path / "pipe")
        read = []
        reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_text()))
        reader.start()
        run_here("predict", data / "test.zarr", data / "model", "-o", tmp_path / "pipe")
        reader.join(60)
        assert read == [expected]
        assert (tmp_path / "pipe").is_fifo()

    def test_a_reader_that_has_seen_enough_is_no_error(self, data):
        script = f'{{ {BIGSVM} predict "$1" "$2" -o -; echo "code $?" >&2; }} | true'
        ended = shell(script, data / "test.zarr", data / "model")
        assert "code 0" in ended.stderr

    @pytest.mark.fault("local-paths")
    @pytest.mark.parametrize("command", ["train", "export", "inspect"])
    def test_a_model_or_an_image_does_not_replace_an_open_file(self, data, tmp_path, command):
        (tmp_path / "all").write_text("before\n")
        words = {
            "train": 'train "$1" /dev/stdout',
            "export": 'export "$2" /dev/fd/1 --to libsvm',
            "inspect": 'inspect "$2" "$1" --image /dev/stdout',
        }[command]
        arguments = (data / "train.zarr", data / "model", tmp_path / "all")
        ended = shell(f'{BIGSVM} {words} >> "$3"', *arguments, code=2)
        assert "is a device, a pipe or an open file" in ended.stderr
        assert (tmp_path / "all").read_text() == "before\n"

    @pytest.mark.fault("local-paths")
    def test_a_model_is_not_saved_over_an_open_file(self, data, tmp_path):
        model = KernelExpansion.load(data / "model")
        with open(tmp_path / "open", "w") as file:
            name = f"/dev/fd/{file.fileno()}"
            assert descriptor_of(Path(name)) == file.fileno()
            with pytest.raises(ModelError, match="Not a file, so it is not replaced"):
                model.save(name)
        assert (tmp_path / "open").read_bytes() == b""

    def test_the_file_that_standard_output_goes_to_is_refused(self, data, tmp_path):
        script = f'{BIGSVM} predict "$1" "$2" -o "$3" > "$3"'
        arguments = (data / "test.zarr", data / "model", tmp_path / "out")
        assert "give --output -" in shell(script, *arguments, code=2).stderr

    def test_closed_standard_output_is_refused(self, data):
        script = f'{BIGSVM} predict "$1" "$2" -o - >&-'
        ended = shell(script, data / "test.zarr", data / "model", code=2)
        assert "standard output is closed" in ended.stderr


LINKS = {
    "link": lambda name, target: name.symlink_to(target),
    "hard link": lambda name, target: os.link(target, name),
    "link to a link": lambda name, target: (
        (name.parent / "first").symlink_to(target),
        name.symlink_to("first"),
    ),
}


class TestTwoNamesOfOneFile:
    @pytest.fixture
    def own(self, data, tmp_path):
        """Copies, as a hard link of the shared files would be too much trust."""
        for name in ("test.libsvm", "model"):
            (tmp_path / name).write_bytes((data / name).read_bytes())
        return tmp_path

    @pytest.mark.fault("local-paths")
    @pytest.mark.parametrize("kind", LINKS)
    @pytest.mark.parametrize("read", ["test.libsvm", "model"])
    def test_predictions_do_not_replace_what_they_are_made_of(self, own, kind, read):
        name = own / "other"
        LINKS[kind](name, own / read)
        before = (own / read).read_bytes()
        told = error_of("predict", own / "test.libsvm", own / "model", "-o", name)
        assert "other is part of the input" in told
        assert (own / read).read_bytes() == before

    @pytest.mark.fault("local-paths")
    @pytest.mark.parametrize("output", ["./test.libsvm", "sub/../test.libsvm", "link/test.libsvm"])
    def test_another_way_to_the_file_is_seen(self, own, output, monkeypatch):
        (own / "sub").mkdir()
        (own / "link").symlink_to(own)
        monkeypatch.chdir(own)
        assert "part of the input" in error_of("predict", "test.libsvm", "model", "-o", output)
        url = (own / "test.libsvm").as_uri()
        assert "part of the input" in error_of("predict", url, "model", "-o", output)

    @pytest.mark.parametrize("kind", LINKS)
    def test_an_exported_model_does_not_replace_the_model(self, own, kind):
        LINKS[kind](own / "other", own / "model")
        told = error_of("export", own / "model", own / "other", "--to", "libsvm")
        assert "exists and is not" in told or "is the model itself" in told
        KernelExpansion.load(own / "model")

    @pytest.mark.fault("local-paths")
    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (("s.zarr/model",), "is part of the input"),
            (("m", "--checkpoint", "s.zarr/run"), "is part of the input"),
            (("m", "--checkpoint", "link/run"), "is part of the input"),
            (("m", "--checkpoint", "m"), "where the model will be"),
            (("m", "--checkpoint", "m/run"), "where the model will be"),
            (("m", "--cache-dir", "./m"), "where the model will be"),
        ],
    )
    def test_a_run_keeps_data_model_and_checkpoint_apart(
        self, data, tmp_path, monkeypatch, arguments, words
    ):
        monkeypatch.chdir(tmp_path)
        run_here("convert", data / "test.libsvm", "s.zarr")
        (tmp_path / "link").symlink_to("s.zarr")
        before = sorted(tmp_path.rglob("*"))
        more = ("--disk-cache", "1MB", "--working-set", "all") if "--cache-dir" in arguments else ()
        assert words in error_of("train", "s.zarr", *arguments, *more)
        assert sorted(tmp_path.rglob("*")) == before

    def test_a_store_is_not_scaled_into_itself(self, data):
        with pytest.raises(ParameterError, match="lies in the store"):
            bigsvm.scale_store(data / "test.zarr", data / "test.zarr" / "scaled")


def test_a_path_lies_in_a_folder_before_it_exists(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    assert lies_in(tmp_path / "link" / "a" / "b", tmp_path)
    assert not lies_in(tmp_path / "a", tmp_path / "a")
    assert not lies_in(tmp_path, tmp_path / "link" / "a")
