"""`bigsvm info`, run in this process."""

from command_line import LITTLE, answer, error_of, run_here

from bigsvm import SVC


class TestInfo:
    def test_store(self, data):
        record = answer("info", data / "train.zarr")
        assert (record["kind"], record["n_rows"]) == ("store", 300)
        assert record["statistics"]["minimum"] < 0 < record["statistics"]["maximum"]
        assert record["bytes_on_disk"] > 0
        shown = run_here("info", data / "train.zarr").stdout
        assert record["fingerprint"] in shown
        assert "300 (300 different), 6" in shown

    def test_model(self, data):
        record = answer("info", data / "model")
        assert record["kind"] == "model"
        assert record["kernel"] == {"name": "rbf", "gamma": 0.3}
        assert record["certificate"]["converged"] is True
        assert "rbf, gamma 0.3" in run_here("info", data / "model").stdout

    def test_run(self, many, tmp_path):
        source = many / "many.zarr"
        run_here("train", source, tmp_path / "m", *LITTLE, "--checkpoint", tmp_path / "run")
        record = answer("info", tmp_path / "run")
        assert (record["kind"], record["source"]) == ("run", str(source))
        assert record["progress"]["n_sweeps"] == 1
        assert record["progress"]["gap"] > 1e-3
        shown = run_here("info", tmp_path / "run").stdout
        assert f"bigsvm train --resume {tmp_path / 'run'}" in shown
        assert f"{record['progress']['gap']:.4g} at the last sweep" in shown

    def test_gap_of_a_run_is_named_by_its_kind(self, many, tmp_path):
        options = ("--formulation", "crammer-singer", "--checkpoint", tmp_path / "run")
        run_here("train", many / "many.zarr", tmp_path / "m", *options)
        shown = run_here("info", tmp_path / "run").stdout
        assert "largest violation" in shown
        assert "KKT" not in shown

    def test_a_run_without_a_whole_generation(self, data, tmp_path):
        run_here("train", data / "train.zarr", tmp_path / "m", "--checkpoint", tmp_path / "run")
        for manifest in tmp_path.glob("run/generation-*/manifest.json"):
            manifest.write_bytes(b"damaged")
        assert answer("info", tmp_path / "run")["progress"] is None
        assert "nothing saved yet" in run_here("info", tmp_path / "run").stdout

    def test_other_paths_are_refused(self, data, tmp_path):
        assert "no such store, model or run" in error_of("info", tmp_path / "none")
        assert "not a store" in error_of("info", tmp_path)
        assert "neither of `bigsvm train` nor of LIBSVM" in error_of("info", data / "train.libsvm")

    def test_a_run_that_is_over_is_finished(self, data, tmp_path):
        run = tmp_path / "run"
        run_here("train", data / "train.zarr", tmp_path / "m", "--checkpoint", run)
        assert answer("info", run)["ended"] == {"stop_reason": "converged", "converged": True}
        shown = run_here("info", run).stdout
        assert "finished: a full sweep certified the tolerance" in shown
        (run / "ended.json").write_text(
            '{"format_version": 1, "stop_reason": "no", "converged": 1}'
        )
        assert answer("info", run)["ended"] is None

    def test_a_run_that_was_stopped_is_not_finished(self, many, tmp_path):
        run = tmp_path / "run"
        run_here("train", many / "many.zarr", tmp_path / "m", *LITTLE, "--checkpoint", run)
        assert answer("info", run)["ended"] == {"stop_reason": "max_iter", "converged": False}
        assert "ended: the limit of steps" in run_here("info", run).stdout
        (run / "ended.json").unlink()
        assert "not finished" in run_here("info", run).stdout

    def test_a_run_of_python_is_finished_too(self, data, tmp_path):
        SVC(checkpoint=tmp_path / "run").fit(data / "train.zarr")
        record = answer("info", tmp_path / "run")
        assert (record["source"], record["ended"]["converged"]) == (None, True)
        assert "finished" in run_here("info", tmp_path / "run").stdout
