"""`bigsvm train` on data of many classes: models, what they say, and runs that are killed."""

import json
import signal
import time

import numpy as np
import pytest
from command_line import answer, error_of, finish, libsvm_text, run_here, start
from sklearn.datasets import make_blobs

import bigsvm
from bigsvm import KernelExpansion, open_store, write_store
from bigsvm.one_vs_one.log import NAME
from bigsvm.training.generations import newest_manifest

OPTIONS = ("--C", "2", "--gamma", "0.05", "--threads", "1")


def rows_of_classes(k, n, *, d=3, seed=0):
    X, y = make_blobs(n, centers=k, n_features=d, cluster_std=4, random_state=seed)
    return X.astype(np.float32), y


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A store of five classes, LIBSVM text of other rows, and a model of the store."""
    path = tmp_path_factory.mktemp("many")
    X, y = rows_of_classes(5, 500)
    write_store(path / "train.zarr", X[:400], y[:400])
    (path / "test.libsvm").write_text(libsvm_text(X[400:], y[400:]))
    run_here("train", path / "train.zarr", path / "model", *OPTIONS)
    return path


@pytest.mark.parametrize("multiclass", ["ovo", "ddag"])
@pytest.mark.parametrize("formulation", ["c-svc", "nu-svc", "l2-svc"])
def test_trained_model_is_that_of_the_estimator(folder, tmp_path, formulation, multiclass):
    given = ("--formulation", formulation, "--multiclass", multiclass, "--gamma", "0.05")
    given += ("--nu", "0.2") if formulation == "nu-svc" else ("--C", "2")
    record = answer("train", folder / "train.zarr", tmp_path / "m", *given)
    assert (record["converged"], record["rule"], record["n_functions"]) == (True, multiclass, 10)
    assert record["classes"] == [0, 1, 2, 3, 4]
    kind = {"c-svc": bigsvm.SVC, "nu-svc": bigsvm.NuSVC, "l2-svc": bigsvm.L2SVC}[formulation]
    chosen = {"nu": 0.2} if formulation == "nu-svc" else {"C": 2.0}
    fitted = kind(multiclass=multiclass, gamma=0.05, **chosen).fit(folder / "train.zarr")
    model = KernelExpansion.load(tmp_path / "m")
    assert model.rule == multiclass
    assert (model.coefficients != fitted.model_.coefficients).nnz == 0
    np.testing.assert_array_equal(model.intercept, fitted.model_.intercept)
    run_here("predict", folder / "test.libsvm", tmp_path / "m", "-o", tmp_path / "labels")
    rows = rows_of_classes(5, 500)[0][400:]
    np.testing.assert_array_equal(np.loadtxt(tmp_path / "labels"), fitted.predict(rows))


def test_info_of_a_multiclass_model(folder, tmp_path):
    shown = run_here("train", folder / "train.zarr", tmp_path / "m", *OPTIONS).stdout
    assert "5: 0, 1, 2, 3, 4" in shown
    worst = KernelExpansion.load(tmp_path / "m").certificate["pairs"]["worst"][0]
    first, second = worst["classes"]
    for text in (shown, run_here("info", tmp_path / "m").stdout):
        assert f"10 converged; the worst is {first} and {second}: KKT gap" in text
    assert answer("info", tmp_path / "m")["certificate"]["pairs"]["n_pairs"] == 10
    record = answer("predict", folder / "test.libsvm", tmp_path / "m")
    assert record["accuracy"] > 0.5


def test_untrained_pairs_are_reported(folder, tmp_path):
    ended = run_here("train", folder / "train.zarr", tmp_path / "m", *OPTIONS, "--max-iter", "100")
    assert "has not converged: the limit of steps was reached" in ended.stderr
    assert "never begun; the worst is" in ended.stdout


def test_libsvms_text_predicts_the_same(folder, tmp_path):
    run_here("export", folder / "model", tmp_path / "text", "--to", "libsvm")
    for name, model in (("ours", folder / "model"), ("theirs", tmp_path / "text")):
        run_here("predict", folder / "test.libsvm", model, "-o", tmp_path / name)
    assert (tmp_path / "ours").read_text() == (tmp_path / "theirs").read_text()
    run_here("train", folder / "train.zarr", tmp_path / "graph", *OPTIONS, "--multiclass", "ddag")
    message = error_of("export", tmp_path / "graph", tmp_path / "text", "--to", "libsvm")
    assert "the rule is ddag" in message


def test_weights_of_classes_are_by_label(folder, tmp_path):
    weights = ("--class-weight", "3:4", "--class-weight", "0:0.5")
    run_here("train", folder / "train.zarr", tmp_path / "m", *OPTIONS, *weights)
    model = KernelExpansion.load(tmp_path / "m")
    assert model.provenance["parameters"]["class_weight"] == [0.5, 1, 1, 4, 1]


@pytest.mark.parametrize(("options", "words"), [
    (("--formulation", "eps-svr", "--multiclass", "ddag"), "--multiclass is for c-svc, nu-svc"),
])  # fmt: skip
def test_invalid_options_are_refused(folder, tmp_path, options, words):
    assert words in error_of("train", folder / "train.zarr", tmp_path / "m", *options)
    assert "'all' is not one of 'ovo', 'ddag', 'ovr'" in run_here(
        "train", folder / "train.zarr", tmp_path / "m", "--multiclass", "all", code=2
    ).stderr  # fmt: skip


@pytest.mark.parametrize(
    "label", ["9007199254740993", "-36028797018963969", "+123456789012345678901"]
)
def test_labels_that_would_be_rounded_are_refused(tmp_path, label):
    (tmp_path / "text").write_text(f"1 1:2\n{label} 1:1\n2 1:3\n")
    message = error_of("convert", tmp_path / "text", tmp_path / "s.zarr")
    assert f"text:2:1: label '{label}' is a whole number that float64 does not hold" in message
    assert not (tmp_path / "s.zarr").exists()


@pytest.mark.parametrize("label", [2**53, 2**60, -(2**63), 10**22])
def test_large_labels_that_are_numbers_of_float64_are_kept(tmp_path, label):
    (tmp_path / "text").write_text(f"1 1:2\n{label} 1:1\n00{abs(label)} 1:3\n1e300 1:3\n")
    run_here("convert", tmp_path / "text", tmp_path / "s.zarr", "--no-shuffle")
    found = open_store(tmp_path / "s.zarr").labels().tolist()
    assert found == [1, label, abs(label), 1e300]


class TestKilled:
    TRAINING = (*OPTIONS, "--quiet", "--json")
    SAVED = ("--checkpoint-every", "0.2s", "--checkpoint")

    @pytest.fixture(scope="class")
    @classmethod
    def store(cls, tmp_path_factory):
        path = tmp_path_factory.mktemp("store") / "blobs.zarr"
        write_store(path, *rows_of_classes(12, 6000, d=6))
        return path

    def progress(self, run):
        manifest = newest_manifest(run) if run.exists() else None
        return None if manifest is None else manifest["values"]

    @pytest.mark.slow
    def test_killed_run_loses_at_most_an_interval_and_ends_at_the_same_bits(self, store, tmp_path):
        finish(start("train", store, tmp_path / "whole", *self.TRAINING))
        run = tmp_path / "run"
        command = ("train", store, tmp_path / "model", *self.TRAINING, *self.SAVED, run)
        saved, seconds, kills = 0, 0.0, 0
        for pause in (0.1, 0.35):
            child = start(*command)
            while child.poll() is None:
                values = self.progress(run)
                if values is not None and values["n_finished"] > saved:
                    break
                time.sleep(0.005)
            time.sleep(pause)
            child.kill()
            child.communicate()
            kills += child.returncode == -signal.SIGKILL
            values = self.progress(run)
            # Nothing that was saved is done again.
            assert values["n_finished"] > saved
            assert values["seconds"] > seconds
            saved, seconds = values["n_finished"], values["seconds"]
            log = (run / NAME).read_bytes()
        assert kills >= 1
        assert f"{saved} of 66 done" in run_here("info", run).stdout
        assert answer("info", run)["progress"]["n_pairs"] == 66
        out, _ = finish(start("train", "--resume", run, "--json"))
        assert json.loads(out)["converged"]
        assert (run / NAME).read_bytes().startswith(log[: len(log) // 2])
        model, whole = (KernelExpansion.load(tmp_path / name) for name in ("model", "whole"))
        for name in ("data", "indices", "indptr"):
            one, other = (getattr(made.coefficients, name) for made in (model, whole))
            assert one.tobytes() == other.tobytes(), name
        assert model.intercept.tobytes() == whole.intercept.tobytes()
        assert model.support_vectors.tobytes() == whole.support_vectors.tobytes()
        for name in ("objective", "gap", "n_iter", "n_sweeps", "pairs"):
            assert model.certificate[name] == whole.certificate[name], name
