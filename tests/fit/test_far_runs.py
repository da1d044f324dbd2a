"""Fits on stores at URLs: the bits of a folder, whatever the network does, or saved and resumed."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from support.same import assert_same_model
from support.stores import make_chunks_small

import bigsvm
from bigsvm.data import schema, shards, storage
from bigsvm.errors import DataCorruptionError, UnreachableError
from bigsvm.training import run as training_run

_numbers = itertools.count()

MEMORY = "4MB"
"""Less than what would keep the rows in memory."""
FITS = {
    "sweeps": lambda **options: bigsvm.SVC(gamma=0.02, memory=MEMORY, **options),
    "pairs": lambda **options: bigsvm.SVC(gamma=0.02, memory=MEMORY, **options),
    "search": lambda **options: bigsvm.L2SVC(
        gamma=0.02, memory=MEMORY, certify=False, ball_tol=0.01, **options
    ),
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Stores of many chunks: two classes, and three."""
    folder, rng = tmp_path_factory.mktemp("stores"), np.random.default_rng(0)
    X = rng.normal(size=(4000, 40)).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        make_chunks_small(patch)
        patch.setattr(schema, "CHUNK_BYTES", 1 << 14)
        for n_classes in (2, 3):
            y = np.floor(np.clip(X[:, 0] + 0.1 * X[:, 1] + n_classes / 2, 0, n_classes - 1))
            bigsvm.write_store(folder / f"{n_classes}.zarr", X, y)
    return folder


@pytest.fixture(
    scope="module",
    params=[
        "sweeps",
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("pairs", "search")),
    ],
)
def case(request, stores):
    """What makes an estimator, a store in a folder, and the model that is trained on it."""
    path = stores / ("3.zarr" if request.param == "pairs" else "2.zarr")
    make = FITS[request.param]
    return make, path, make().fit(path).model_


@pytest.fixture
def url(case, faulty, s3_server, monkeypatch):
    """URL of a copy of the store, behind the proxy; a request for each chunk."""
    monkeypatch.setattr(shards, "REQUEST_BYTES", 0)
    return s3_server.upload(case[1], f"s3://bucket/run-{next(_numbers)}.zarr")


@pytest.mark.slow
def test_faults_do_not_change_a_bit(case, url, faulty):
    make, _, model = case
    # In every run some, and in a long run one of a hundred and one of a thousand.
    faulty.refused, faulty.cut = 0.03, 0.02
    far = make().fit(url).model_
    assert_same_model(far, model)
    assert far.certificate["bytes_read"] > 0
    assert faulty.faults["refused"] > 0
    assert faulty.faults["cut"] > 0


@pytest.mark.parametrize("case", ["pairs"], indirect=True)
def test_a_server_that_is_down_is_waited_for(case, url, faulty):
    make, _, model = case
    faulty.go_dark(after=110, seconds=2)
    assert_same_model(make().fit(url).model_, model)
    assert faulty.faults["dark"] > 0


@pytest.mark.slow
def test_half_a_minute_without_a_server_is_waited_for(case, url, faulty):
    make, _, model = case
    faulty.go_dark(after=110, seconds=30)
    assert_same_model(make().fit(url).model_, model)
    assert faulty.faults["dark"] > 0


@pytest.mark.slow
def test_a_server_that_stays_down_ends_the_run_which_is_resumed(
    case, url, faulty, tmp_path, monkeypatch
):
    make, _, model = case
    monkeypatch.setenv(storage.TIMEOUT_VARIABLE, "0.2")
    for after in (100, 130):
        # The checkpoint is saved at the failure alone.
        estimator = make(checkpoint=tmp_path / "run", checkpoint_every=1000)
        faulty.go_dark(after=after, seconds=1000)
        with pytest.raises(UnreachableError, match="cannot be reached") as caught:
            estimator.fit(url)
        assert not isinstance(caught.value, DataCorruptionError)
        assert list((tmp_path / "run").glob("generation-*"))
        faulty.light()
    assert_same_model(estimator.fit(url).model_, model)


@pytest.mark.parametrize("case", ["search"], indirect=True)
def test_a_time_limit_ends_a_wait(case, url, faulty, monkeypatch):
    make, _, _ = case
    # The time is over as soon as the server gives no more answers.
    clock = SimpleNamespace(monotonic=lambda: 1e9 if faulty.is_dark else 0.0)
    monkeypatch.setattr(training_run, "time", clock)
    faulty.go_dark(after=100, seconds=1000)
    with pytest.warns(ConvergenceWarning, match="time limit"):
        model = make(max_time=3000).fit(url).model_
    assert faulty.faults["dark"] > 0
    assert model.certificate["stop_reason"] == "time_limit"
