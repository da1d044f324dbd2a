"""`bigsvm convert`, run in this process."""

import numpy as np
import pytest
from command_line import answer, error_of, run_here

from bigsvm import open_store


class TestConvert:
    def test_the_store_holds_what_the_text_says(self, data, rows):
        store = open_store(data / "train.zarr")
        X, y = rows
        original = store.original_rows()
        assert np.array_equal(store.rows.read(0, 300), X[original])
        assert np.array_equal(store.labels(), y[original])

    def test_json(self, data, tmp_path):
        record = answer("convert", data / "train.libsvm", data / "test.libsvm", tmp_path / "both")
        assert (record["n_rows"], record["n_columns"], record["layout"]) == (400, 6, "dense")
        assert record["sources"] == ["train.libsvm", "test.libsvm"]
        assert sum(item["rows"] for item in record["label_counts"]) == 400
        assert record["seconds"] > 0
        assert record["peak_rss_bytes"] > 1e7

    @pytest.mark.parametrize(
        ("options", "layout", "shuffled", "n_columns"),
        [
            (["--sparse"], "csr", True, 6),
            (["--layout", "sparse", "--features", "9"], "csr", True, 9),
            (["--dense", "--no-shuffle", "--zero-based", "yes"], "dense", False, 7),
        ],
    )
    def test_options(self, data, tmp_path, options, layout, shuffled, n_columns):
        run_here("convert", data / "train.libsvm", tmp_path / "store", *options)
        attributes = open_store(tmp_path / "store").attributes
        assert (attributes.layout, attributes.shuffled) == (layout, shuffled)
        assert attributes.n_columns == n_columns

    def test_dtype_seed_and_overwrite(self, data, tmp_path):
        run_here("convert", data / "train.libsvm", tmp_path / "store")
        options = ("--overwrite", "--dtype", "float64", "--seed", "5")
        run_here("convert", data / "train.libsvm", tmp_path / "store", *options)
        attributes = open_store(tmp_path / "store").attributes
        assert (attributes.dtype, attributes.seed) == ("float64", 5)

    def test_skipped_lines_are_reported(self, data, tmp_path):
        text = tmp_path / "remarks.libsvm"
        text.write_text("# both classes\n1 1:2 # one\n\n-1 qid:3 2:1\n")
        ended = run_here("convert", text, tmp_path / "store")
        assert "empty lines: 1, comments: 2, qids: 1" in ended.stdout
        record = answer("convert", text, tmp_path / "again")
        assert record["skipped"] == {"empty_lines": 1, "comments": 2, "qids": 1}
        ended = run_here("convert", data / "test.libsvm", tmp_path / "clean")
        assert "comments" not in ended.stdout

    def test_standard_input(self, tmp_path):
        run_here("convert", "-", tmp_path / "store", stdin="1 1:2\n-1 2:1\n")
        assert open_store(tmp_path / "store").rows.n_rows == 2

    def test_a_bad_line_is_named_with_its_place(self, tmp_path):
        text = tmp_path / "bad.libsvm"
        text.write_text("1 1:2\n1 1:x\n")
        assert f"{text}:2:5" in error_of("convert", text, tmp_path / "store")
        assert [path.name for path in tmp_path.iterdir()] == ["bad.libsvm"]

    def test_text_is_checked(self, data, tmp_path):
        """As checkdata.py of LIBSVM's tools does."""
        run_here("convert", "--strict", data / "train.libsvm", tmp_path / "store")
        (tmp_path / "text").write_text("1 1:2\n\n-1 1:1\n")
        assert "text:2" in error_of("convert", "--strict", tmp_path / "text", tmp_path / "s")

    @pytest.mark.parametrize("source", ["parts", "parts/part-*", "parts/part-0000?"])
    def test_folders_and_patterns_are_their_files(self, source, data, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "parts").mkdir()
        lines = (data / "train.libsvm").read_text().splitlines(keepends=True)
        for i, name in enumerate(("part-00001", "part-00000")):
            (tmp_path / "parts" / name).write_text("".join(lines[i::2]))
        (tmp_path / "parts" / "_SUCCESS").touch()
        run_here("convert", "parts/part-00000", "parts/part-00001", "files")
        run_here("convert", source, "store")
        made, expected = (open_store(tmp_path / name) for name in ("store", "files"))
        assert made.attributes.fingerprint == expected.attributes.fingerprint
        assert made.attributes.sources == ("part-00000", "part-00001")

    def test_folders_without_text_are_refused(self, data, tmp_path):
        (tmp_path / "parts").mkdir()
        for source, told in (
            (tmp_path / "parts", "there are no files in this folder"),
            (tmp_path / "p*.txt", "no file matches"),
            (data / "train.zarr", "this is Zarr and no text; a store is used as it is"),
            (tmp_path, "there are folders in this folder; give the files"),
        ):
            assert told in error_of("convert", source, tmp_path / "store")

    def test_an_existing_store_stays(self, data):
        assert "already exists" in error_of("convert", data / "test.libsvm", data / "train.zarr")

    def test_two_layouts_are_one_too_many(self, data, tmp_path):
        ended = run_here(
            "convert", data / "train.libsvm", tmp_path / "s", "--dense", "--sparse", code=2
        )
        assert "one of" in ended.stderr

    def test_quiet(self, data, tmp_path):
        ended = run_here("convert", data / "train.libsvm", tmp_path / "store", "--quiet")
        assert ended.stderr == ""


class TestCheckingAlone:
    """`--strict` without a store."""

    def test_text_is_read_and_nothing_is_written(self, tmp_path):
        (tmp_path / "x.libsvm").write_text("1 1:2 3:4\n-1 2:1\n")
        told = answer("convert", tmp_path / "x.libsvm", "--strict")
        assert told == {
            "n_rows": 2, "n_entries": 3, "smallest_index": 1, "largest_index": 3
        }  # fmt: skip
        assert [path.name for path in tmp_path.iterdir()] == ["x.libsvm"]

    def test_several_sources(self, tmp_path):
        for name in ("1", "2"):
            (tmp_path / name).write_text("1 1:2\n")
        assert answer("convert", tmp_path / "1", tmp_path / "2", "--strict")["n_rows"] == 2

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("1 1:2\n# comment\n", ":2:1"),
            ("1 1:2", "newline"),
            ("1 1:2 1:3\n", ":1:"),
            ("", "no rows"),
        ],
    )
    def test_faults_are_named(self, text, message, tmp_path):
        (tmp_path / "x").write_text(text)
        assert message in error_of("convert", tmp_path / "x", "--strict")

    def test_a_store_is_needed_otherwise(self, tmp_path):
        (tmp_path / "x").write_text("1 1:2\n")
        assert "--strict" in run_here("convert", tmp_path / "x", code=2).stderr
