"""What rows cost decides whether they are kept on disk, or whether there is nothing to keep."""

import pytest
from support.problems import blobs
from support.resuming import Until
from support.same import assert_same_model

import bigsvm
from bigsvm.data.sources import as_row_source
from bigsvm.fit.train import train_model
from bigsvm.papers import disk
from bigsvm.papers.costs import TierDecision, decide
from bigsvm.papers.disk import DiskCache
from bigsvm.parameters import TrainingParameters
from bigsvm.training.events import Hooks, Solving
from papers.disk_rows import NOT_KEPT, Computing, N, fetched, fill, hits, offer, open_tier


@pytest.mark.parametrize(
    ("compute", "row_bytes", "keep", "reason"),
    [
        (9e-4, 198_000, True, "about 0.9 ms to compute and 0.2 ms to read: rows are kept on disk"),
        (2e-4, 898_000, False, "0.2 ms to compute and 0.9 ms to read: rows are computed again"),
        (2e-4, 188_000, False, "compute and 0.19 ms to read: rows are computed again, not kept"),
    ],
)
def test_rows_are_kept_where_reading_is_clearly_cheaper(compute, row_bytes, keep, reason):
    decision = decide(compute_seconds=compute, row_bytes=row_bytes)
    assert decision.keep == keep
    assert reason in decision.reason


def test_no_file_is_made_when_rows_are_not_kept(tmp_path):
    below = Computing()
    with open_tier(tmp_path / "cache", below, decision=NOT_KEPT) as tier:
        offer(tier, 1)
        assert hits(tier, 1) == []
        tier.drain()
        fetched(tier, 1, 0, 2)
        assert below.batches[-1] == [1, 0, 2]
        assert tier.decision is NOT_KEPT
        assert (tier.n_hits, tier.n_dropped, tier.nbytes) == (0, 0, 0)
    assert list(tmp_path.iterdir()) == []


def cache(folder, *, value_seconds):
    return DiskCache(
        folder, capacity_bytes=1 << 20, fingerprint={"a": "b"}, value_seconds=value_seconds
    )


def test_rows_that_are_there_are_used_though_they_are_cheap(tmp_path):
    below = Computing()
    with cache(tmp_path, value_seconds=1.0).opened(N).over(Computing()) as tier:
        assert tier.decision.keep
        fill(tier, 1, 2, 3)
    for folder, found in ((tmp_path, [1, 2, 3]), (tmp_path / "other", [])):
        with cache(folder, value_seconds=1e-12).opened(N).over(below) as tier:
            assert hits(tier, *range(5)) == found
    assert not (tmp_path / "other").exists()


# -- runs: a refusal is as if nothing had been given ---------------------------------------------

X, Y = blobs(1800, overlap=2.0)
FORMULATIONS = {
    "hinge": lambda **options: bigsvm.SVC(C=5.0, gamma=0.5, **options),
    "squared hinge": lambda **options: bigsvm.SVC(
        C=5.0, gamma=0.5, loss="squared_hinge", **options
    ),
    "nu": lambda **options: bigsvm.NuSVC(nu=0.4, gamma=0.5, **options),
}
SCARCE = {"working_set": "all", "memory": "2MB", "n_jobs": 1}
"""Memory for less than a tenth of the kernel rows: settled rows are left out by default."""


def no_disk(folder):
    """A folder that is a file."""
    folder.write_text("")
    return folder


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(make, id=name, marks=pytest.mark.slow if name == "squared hinge" else [])
        for name, make in FORMULATIONS.items()
    ],
)
@pytest.mark.parametrize("refusal", ["cost", "disk"])
def test_a_refusal_is_as_if_nothing_had_been_given(tmp_path, make, refusal, monkeypatch):
    alone = make(**SCARCE).fit(X, Y)
    folder = tmp_path / "rows"
    if refusal == "disk":
        no_disk(folder)
        monkeypatch.setattr(disk, "decide", lambda **_: TierDecision(True, "kept"))
    refused = make(disk_cache="100MB", cache_dir=folder, **SCARCE).fit(X, Y)
    assert_same_model(refused.model_, alone.model_)
    for name in ("n_iter", "n_kernel_evaluations", "row_misses", "row_reads", "n_sweeps"):
        assert refused.certificate_[name] == alone.certificate_[name], name
    assert ("not kept" if refusal == "cost" else "cannot be used") in refused.certificate_[
        "disk_tier"
    ]
    whole = make(shrinking=False, **SCARCE).fit(X, Y)
    assert whole.certificate_["n_kernel_evaluations"] != alone.certificate_["n_kernel_evaluations"]


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("n_steps", [pytest.param(1, marks=pytest.mark.slow), 2500])
def test_a_resumed_run_keeps_to_what_was_decided(tmp_path, keeps, n_steps, monkeypatch):
    """Though another machine, or rows that another run has left, would lead to the contrary."""

    def deciding(keep):
        monkeypatch.setattr(disk, "decide", lambda **_: TierDecision(keep, "as told"))

    def train(name, hooks=None, **options):
        parameters = TrainingParameters(
            C=5.0, gamma=0.5, working_set="all", memory="2MB", threads=1, disk_cache="100MB",
            cache_dir=str(tmp_path / f"rows {name}"), **options,
        )  # fmt: skip
        return train_model(as_row_source(X), Y, None, parameters, hooks)

    deciding(keeps)
    whole = train("whole")
    checkpoint = {"checkpoint": str(tmp_path / "run")}
    until = Until(lambda event: isinstance(event, Solving) and event.steps >= n_steps)
    stopped = train("run", Hooks(interrupted=until, listener=until.listen), **checkpoint)
    assert stopped.certificate["stop_reason"] == "interrupted"
    deciding(not keeps)
    if not keeps:
        train("run")  # leaves rows there
    resumed = train("run", **checkpoint)
    assert_same_model(resumed, whole)
    assert (resumed.certificate["row_reads"] > 0) == keeps
