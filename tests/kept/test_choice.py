"""Fits with kernel values on disk have the bits of fits without, and say what was decided."""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from papers.disk_rows import the_file
from support.problems import blobs, classes_of_blobs
from support.resuming import Until
from support.same import assert_same_model

import bigsvm
from bigsvm.data.sources import as_row_source
from bigsvm.errors import ParameterError
from bigsvm.fit.train import train_model
from bigsvm.kept import choice
from bigsvm.kernels import RBF, Kernel
from bigsvm.parameters import TrainingParameters
from bigsvm.training.events import Hooks, Solving, TierChosen
from kept.conftest import Own

pytestmark = pytest.mark.usefixtures("short")
X, Y = blobs(600, overlap=1.5)
SMALL = {"memory": "3MB", "n_jobs": 1}


def fitted(folder, X=X, y=Y, kind=bigsvm.SVC, **given):
    """Fit with kernel values on disk in a folder, or without."""
    disk = {} if folder is None else {"disk_cache": "9MB", "cache_dir": folder}
    return kind(**({"kernel": Own(), "C": 5.0} | SMALL | given), **disk).fit(X, y)


def counted(model):
    return model.certificate_["n_kernel_evaluations"]


def test_first_fit_computes_fewer_values_and_the_next_one_very_few(tmp_path, slow):
    alone, first = fitted(None), fitted(tmp_path)
    again = fitted(tmp_path)
    for model in (first, again):
        assert_same_model(model.model_, alone.model_)
        assert "values of rows that move are kept on disk" in model.certificate_["disk_tier"]
    assert counted(again) < counted(first) < counted(alone)
    assert again.certificate_["row_reads"] > 0
    assert alone.certificate_["disk_tier"] is None


@pytest.mark.parametrize(
    ("kind", "y", "given"),
    [
        (bigsvm.SVR, X[:, 0] + 0.1 * X[:, 1], {"epsilon": 0.05}),
        (bigsvm.OneClassSVM, None, {"nu": 0.3, "C": None}),
        pytest.param(bigsvm.SVC, Y, {"loss": "squared_hinge"}, marks=pytest.mark.slow),
        pytest.param(bigsvm.NuSVC, Y, {"nu": 0.4, "C": None}, marks=pytest.mark.slow),
    ],
)
def test_formulations_have_the_same_bits(tmp_path, slow, kind, y, given):
    given = {"C": 5.0} | given
    given = {name: value for name, value in given.items() if value is not None}
    models = []
    for folder in (None, tmp_path, tmp_path):
        disk = {} if folder is None else {"disk_cache": "9MB", "cache_dir": folder}
        models.append(kind(kernel=Own(), **SMALL, **given, **disk).fit(X, y))
    alone, first, again = models
    assert_same_model(first.model_, alone.model_)
    assert_same_model(again.model_, alone.model_)
    assert counted(again) < counted(alone)


@pytest.mark.parametrize("multiclass", ["ovr", pytest.param("ovo", marks=pytest.mark.slow)])
def test_many_classes_have_the_same_bits(tmp_path, slow, multiclass):
    rows, label = classes_of_blobs(450, 3, overlap=1.5)
    alone, first, again = (
        fitted(folder, rows, label, multiclass=multiclass) for folder in (None, tmp_path, tmp_path)
    )
    assert_same_model(first.model_, alone.model_)
    assert_same_model(again.model_, alone.model_)


def test_crammer_singer_has_the_same_bits(tmp_path, slow):
    rows, label = classes_of_blobs(400, 3, overlap=1.5)
    alone, first, again = (
        fitted(folder, rows, label, bigsvm.CrammerSingerSVC)
        for folder in (None, tmp_path, tmp_path)
    )
    assert_same_model(first.model_, alone.model_)
    assert_same_model(again.model_, alone.model_)


def test_sparse_rows_have_the_same_bits_with_two_threads(tmp_path, slow):
    rows = sp.csr_array(X * (np.abs(X) > 0.7))
    alone, first, again = (fitted(folder, rows, n_jobs=2) for folder in (None, tmp_path, tmp_path))
    assert_same_model(first.model_, alone.model_)
    assert_same_model(again.model_, alone.model_)
    assert counted(again) < counted(alone)


def test_another_C_and_other_labels_use_what_is_there(tmp_path, slow):
    fitted(tmp_path)
    for given in ({"C": 1.0}, {"C": 5.0, "y": np.where(X[:, 0] > 0, 1, -1)}):
        alone, again = fitted(None, **given), fitted(tmp_path, **given)
        assert_same_model(again.model_, alone.model_)
        assert counted(again) < 0.8 * counted(alone)


@pytest.mark.parametrize("given", [{"kernel": Own(gamma=0.4)}, {"X": X + np.float32(0.01)}])
def test_another_kernel_and_other_rows_do_not_use_it(tmp_path, slow, given):
    fitted(tmp_path)
    first, fresh = fitted(tmp_path, **given), fitted(tmp_path / "empty", **given)
    assert_same_model(first.model_, fitted(None, **given).model_)
    assert counted(first) == counted(fresh)


def test_a_resumed_run_uses_what_was_written(tmp_path, slow):
    rows, labels = blobs(900, overlap=1.5)

    def train(hooks=None, **options):
        parameters = TrainingParameters(
            C=5.0,
            kernel=Own(),
            memory="3MB",
            threads=1,
            checkpoint=str(tmp_path / "run"),
            **options,
        )
        return train_model(as_row_source(rows), labels, None, parameters, hooks)

    disk = {"disk_cache": "9MB", "cache_dir": str(tmp_path / "rows")}
    alone = fitted(None, rows, labels).model_
    steps = alone.certificate["n_iter"] // 5
    until = Until(lambda event: isinstance(event, Solving) and event.steps >= steps)
    stopped = train(Hooks(interrupted=until, listener=until.listen), **disk)
    assert stopped.certificate["stop_reason"] == "interrupted"
    before = stopped.certificate["n_kernel_evaluations"]
    resumed = train(**disk)
    assert_same_model(resumed, alone)
    assert resumed.certificate["row_reads"] > stopped.certificate["row_reads"]
    assert resumed.certificate["n_kernel_evaluations"] < alone.certificate["n_kernel_evaluations"]
    assert before > 0


def test_what_was_decided_is_told(slow, tmp_path):
    told = []
    parameters = TrainingParameters(
        C=5.0, kernel=Own(), memory="3MB", threads=1, disk_cache="9MB", cache_dir=str(tmp_path)
    )
    model = train_model(as_row_source(X), Y, None, parameters, Hooks(listener=told.append))
    reasons = [event.reason for event in told if isinstance(event, TierChosen)]
    assert reasons == [model.certificate["disk_tier"]]


# -- where it does not pay, or cannot be right --------------------------------------------------


def refused(folder, **given):
    """Fit; the bits are those of a fit without, and the reason is returned."""
    model = fitted(folder, **given)
    assert_same_model(model.model_, fitted(None, **given).model_)
    assert not folder.is_dir() or not list(folder.iterdir())
    assert "computed again" in model.certificate_["disk_tier"]
    return model.certificate_["disk_tier"]


def test_a_fast_kernel_computes_its_values(tmp_path, monkeypatch):
    monkeypatch.setattr(choice, "WORTH_KEEPING", 1e9)
    assert "ns to read: kernel values are computed again" in refused(tmp_path / "rows")


@pytest.mark.parametrize("ratio", [4.9, 5.1])
def test_values_are_kept_where_they_cost_five_times_their_reading(tmp_path, monkeypatch, ratio):
    each = ratio * choice.READ_SECONDS / choice.WIDTH
    monkeypatch.setattr(choice, "_tried", lambda *_: (each, True))
    kept = fitted(tmp_path / "rows").certificate_["disk_tier"]
    assert ("are kept on disk" in kept) == (ratio > 5)


@dataclass(frozen=True, kw_only=True)
class Lopsided(Kernel):
    """The same formula, whose float64 values depend on the order of its arguments."""

    name = "lopsided-of-tests-of-kept"

    def from_products(self, dots, norms_rows, norms_columns):
        return np.exp(-0.5 * np.maximum(norms_rows[:, None] - 2 * dots + norms_columns, 0))


def test_a_kernel_that_is_not_symmetric_to_the_last_bit_is_computed(tmp_path, monkeypatch):
    monkeypatch.setattr(choice, "WORTH_KEEPING", 0.0)
    assert "not symmetric to the last bit" in refused(tmp_path / "rows", kernel=Lopsided())
    assert "are kept" in fitted(tmp_path / "rows").certificate_["disk_tier"]


def test_a_folder_that_is_a_file_is_as_without(tmp_path, slow):
    (tmp_path / "rows").write_text("")
    assert "the disk cannot be used" in refused(tmp_path / "rows")


def test_a_file_in_use_is_as_without(tmp_path, slow):
    fitted(tmp_path)
    path = the_file(tmp_path)
    content = path.read_bytes()
    with path.open("r+b") as held:
        import fcntl

        fcntl.flock(held, fcntl.LOCK_EX)
        again = fitted(tmp_path)
    assert "in use by another process" in again.certificate_["disk_tier"]
    assert_same_model(again.model_, fitted(None).model_)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("row_alignment", "has_workers", "why"),
    [(256, False, "the rows do not fit in memory"), (1, True, "workers compute kernel values")],
)
def test_rows_that_are_not_here_are_computed(row_alignment, has_workers, why):
    source = SimpleNamespace(row_alignment=row_alignment)
    decision, _ = choice._examined(None, source, None, has_workers=has_workers)
    assert not decision.keep
    assert why in decision.reason


def test_too_little_memory_to_read_them(tmp_path, monkeypatch):
    monkeypatch.setattr(choice, "_tried", lambda *_: (1e-6, True))
    assert "no memory to read them" in refused(tmp_path / "rows", memory="1MB")


def test_values_of_a_kernel_that_nobody_recognises_are_removed(tmp_path, slow):
    look = {"up": eval("lambda values: np.exp(values)", {"np": np})}

    @dataclass(frozen=True, kw_only=True)
    class Hidden(Own):
        name = "hidden-of-tests-of-kept"

        def from_products(self, dots, norms_rows, norms_columns):
            distances = np.add.outer(norms_rows, norms_columns) - 2 * dots
            return eval("f(d)", {"f": look["up"], "d": -0.5 * np.maximum(distances, 0)})

    model = fitted(tmp_path, kernel=Hidden())
    assert "are kept" in model.certificate_["disk_tier"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kernel", ["rbf", RBF(gamma=0.5)])
def test_kernels_of_bigsvm_are_refused(tmp_path, kernel):
    with pytest.raises(ParameterError, match="less time to compute than to read"):
        fitted(tmp_path, kernel=kernel)
