import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.svm import SVC as PeerSVC
from support.problems import blobs, decomposition, definition, dense_alpha, gram, target
from support.resuming import (
    StopAt,
    Until,
    assert_killed_to_the_same_bits,
    assert_resumed_to_the_same_bits,
    with_checkpoint,
)
from support.same import assert_same_bits

from bigsvm.conversion.from_arrays import write_store
from bigsvm.core import smo
from bigsvm.data.sources import as_row_source
from bigsvm.data.store import open_store
from bigsvm.duals.box import BoxDual
from bigsvm.duals.formulations import (
    CSVC,
    EpsilonSVR,
    NuClassification,
    NuRegression,
    OneClass,
    SquaredHingeSVC,
)
from bigsvm.errors import MemoryBudgetError
from bigsvm.executors import local
from bigsvm.papers.costs import TierDecision
from bigsvm.papers.disk import DiskCache
from bigsvm.training import events
from bigsvm.training.checkpoint import Checkpoint
from bigsvm.training.result import StopReason
from bigsvm.training.state import Limits


@pytest.fixture(scope="module")
def problem():
    return blobs()


@pytest.fixture(scope="module")
def reference(problem):
    return decomposition(*problem).run()


@pytest.mark.parametrize("rule", ["mvp", "second-order", "hmg"])
@pytest.mark.parametrize("sparse", [False, True])
def test_certificate_is_what_the_definitions_say(problem, rule, sparse):
    X, y = problem
    rows = sp.csr_array(X) if sparse else X
    result = decomposition(rows, y, rule=rule).run()
    certificate = result.certificate
    alpha = dense_alpha(result, len(y))
    objective, gap, duality_gap = definition(X, y, alpha, result.thresholds[0])
    assert certificate.stop_reason is StopReason.CONVERGED
    assert gap <= 1.02e-3
    assert certificate.objective == pytest.approx(objective, rel=1e-7)
    assert certificate.gap == pytest.approx(gap, abs=2e-5)
    assert certificate.duality_gap == pytest.approx(duality_gap, abs=1e-4)
    assert abs(alpha.sum()) < 1e-9
    assert certificate.n_support == np.count_nonzero(alpha)
    assert certificate.n_bounded == np.count_nonzero(np.abs(alpha) == 1.0)
    assert certificate.n_sweeps > 1


def test_agrees_with_libsvm(problem, reference):
    X, y = problem
    peer = PeerSVC(C=1.0, gamma=0.5, tol=1e-4).fit(X.astype(np.float64), y)
    alpha = np.zeros(len(y))
    alpha[peer.support_] = peer.dual_coef_[0]
    objective, _, _ = definition(X, y, alpha, peer.intercept_[0])
    assert reference.certificate.objective == pytest.approx(objective, rel=1e-5)
    assert reference.thresholds[0] == pytest.approx(peer.intercept_[0], abs=2e-3)


def test_threads_do_not_change_the_bits(problem, reference):
    assert_same_bits(decomposition(*problem, threads=3).run(), reference)


def test_blocks_do_not_change_the_bits(problem, reference):
    assert_same_bits(decomposition(*problem, block_bytes=1 << 20).run(), reference)


def test_bits_do_not_depend_on_the_number_of_cache_slots(problem, reference):
    scarce = decomposition(*problem, slots=40).run()
    assert_same_bits(scarce, reference)
    assert scarce.certificate.row_misses > reference.certificate.row_misses


def test_a_store_gives_the_optimum_of_its_rows_in_memory(problem, reference, tmp_path):
    X, y = problem
    rows = write_store(tmp_path / "s.zarr", X, y.astype(float)).rows
    order = open_store(tmp_path / "s.zarr").original_rows()
    result = decomposition(rows, y[order]).run()
    assert result.certificate.objective == pytest.approx(reference.certificate.objective, rel=1e-6)
    assert result.certificate.bytes_read >= 2 * X.nbytes


FORMULATIONS = {
    "c-svc": lambda X, y: CSVC(sign=y, C=30.0),
    "squared": lambda X, y: SquaredHingeSVC(sign=y, C=3.0),
    "nu-svc": lambda X, y: NuClassification(sign=y, nu=0.2),
    "one-class": lambda X, y: OneClass(n_rows=len(y), nu=0.15),
    "eps-svr": lambda X, y: EpsilonSVR(target=target(X), C=2.0, epsilon=0.02),
    "nu-svr": lambda X, y: NuRegression(target=target(X), C=2.0, nu=0.2),
}


@pytest.mark.parametrize("kind", FORMULATIONS)
@pytest.mark.parametrize("rule", ["second-order", pytest.param("hmg", marks=pytest.mark.slow)])
def test_resumed_at_every_moment_it_gives_the_same_bits(tmp_path, rule, kind, monkeypatch):
    """Each run gets a little further, whatever it is doing; the next one goes on from there."""
    monkeypatch.setattr("bigsvm.executors.local.EVALUATIONS_AT_ONCE", 2e4)
    monkeypatch.setattr("bigsvm.training.certify.EXACT_EVALUATIONS", 0)
    monkeypatch.setattr("bigsvm.executors.executor.ROWS_AT_ONCE", 450)
    monkeypatch.setattr("bigsvm.working_sets.choice.FIRST_SCOPE", 300)
    monkeypatch.setattr("bigsvm.working_sets.choice.DIRECT_ROWS", 0)
    monkeypatch.setattr("bigsvm.working_sets.choice.DIRECT_ROWS", 0)
    monkeypatch.setattr("bigsvm.working_sets.choice.SMALLEST_SET", 100)
    monkeypatch.setattr("bigsvm.working_sets.choice.BAND", (0.6, 0.7))
    X, y = blobs(1200, overlap=0.7)
    settings = {"working_set": 450, "active_rows": 900, "rule": rule}
    settings["formulation"] = FORMULATIONS[kind](X, y)
    watch = StopAt()
    whole = decomposition(X, y, limits=Limits(interrupted=watch), **settings).run()
    assert watch.count > 40
    phases, scopes, within = set(), set(), set()
    # Stopped there, and then a few times more on the way to the end.
    firsts = range(1, watch.count, max(1, watch.count // (12 if kind == "c-svc" else 5)))

    def train(**saving):
        run = decomposition(X, y, **saving, **settings)
        result = run.run()
        phases.add(str(run.count.phase))
        scopes.add(run.count.scope)
        if len(run.state.working):
            within.add(len(run.state.working) < len(run.state.active))
        return result

    assert_resumed_to_the_same_bits(
        with_checkpoint(train), tmp_path, firsts, whole, then=(2, 5, 11, 1, 23, -1)
    )
    with_sums = whole.certificate.converged and settings["formulation"].sums(slice(0, 9))
    expected = {"select", "solve", "sweep", "grow"} | ({"fill"} if with_sums else set())
    assert phases - {"fill"} <= expected
    assert scopes <= {300, 525, 1200}
    assert scopes >= ({300, 525, 1200} if kind == "c-svc" else {300, 1200})
    if kind == "c-svc":
        assert phases == expected
        assert within == {False, True}
    elif with_sums:
        assert "fill" in phases


def test_stopped_while_its_start_is_added_up_it_gives_the_same_bits(tmp_path, monkeypatch):
    """A start may be more rows than are active at once; whoever resumes does not give it again."""
    monkeypatch.setattr("bigsvm.executors.local.EVALUATIONS_AT_ONCE", 2e4)
    X, y = blobs(1200, overlap=0.7)
    start = dense_alpha(decomposition(X, y, C=0.5).run(), 1200)
    settings = {"working_set": 150, "active_rows": 200}
    assert np.count_nonzero(start) > 200
    watch = StopAt()
    whole = decomposition(X, y, start=start, limits=Limits(interrupted=watch), **settings).run()
    phases = []
    for moment in range(1, 40, 4):
        with Checkpoint(tmp_path / str(moment), {}) as checkpoint:
            limits = Limits(interrupted=StopAt(moment))
            decomposition(X, y, start=start, limits=limits, checkpoint=checkpoint, **settings).run()
            phases.append(checkpoint.latest().values["phase"])
            resumed = decomposition(X, y, checkpoint=checkpoint, **settings).run()
        assert_same_bits(resumed, whole)
    assert phases.count("fill") > 2


def train_in_process(folder):
    local.EVALUATIONS_AT_ONCE = 1e6
    X, y = blobs(3000)
    with Checkpoint(folder, {}) as checkpoint:
        return decomposition(
            X, y, C=10.0, working_set=750, checkpoint=checkpoint, checkpoint_every=0.2
        ).run()


@pytest.mark.slow  # what tests/cli/test_processes.py does to the command
def test_killed_several_times_it_gives_the_same_bits(tmp_path):
    """A real process, `kill -9` at random times, each after it has got on a little."""
    assert_killed_to_the_same_bits(train_in_process, tmp_path, times=4, at_least=2)


@pytest.mark.parametrize("max_iter", [0, 1, 50])
def test_max_iter_stops_with_an_exact_gap(problem, max_iter):
    X, y = problem
    result = decomposition(X, y, limits=Limits(max_iter=max_iter)).run()
    certificate = result.certificate
    assert certificate.n_iter == max_iter
    assert certificate.stop_reason is StopReason.MAX_ITER
    assert not certificate.converged
    _, gap, _ = definition(X, y, dense_alpha(result, len(y)), result.thresholds[0])
    assert gap > 1e-3
    assert certificate.gap == pytest.approx(gap, abs=2e-5)


def test_a_time_limit_stops_and_says_so(problem):
    result = decomposition(*problem, C=1e4, limits=Limits(max_seconds=1e-9)).run()
    assert result.certificate.stop_reason is StopReason.TIME_LIMIT
    assert not result.certificate.converged


def test_interrupted_before_the_first_sweep_no_gap_is_claimed():
    X, y = blobs(900, overlap=2.0)
    until = Until(lambda event: isinstance(event, events.Solving))
    result = decomposition(
        X, y, C=1e4, limits=Limits(interrupted=until), listener=until.listen
    ).run()
    assert result.certificate.gap is None
    assert result.certificate.objective is None
    assert len(result.support) > 0


def test_interrupted_while_rows_are_fetched_it_goes_on_from_there(problem, tmp_path, monkeypatch):
    X, y = problem
    store = write_store(tmp_path / "s.zarr", X, y.astype(float))
    source, y = store.rows, store.labels()
    take, until = source.take, Until(lambda event: False)

    def interrupted_take(indices):
        until.reached = True
        return take(indices)

    with Checkpoint(tmp_path / "run", {}) as checkpoint:
        with monkeypatch.context() as patch:
            patch.setattr(source, "take", interrupted_take)
            limits = Limits(interrupted=until)
            result = decomposition(source, y, limits=limits, checkpoint=checkpoint).run()
        assert result.certificate.stop_reason is StopReason.INTERRUPTED
        assert result.certificate.n_iter == 0
        assert len(result.support) == 0
        assert decomposition(source, y, checkpoint=checkpoint).run().certificate.converged


def test_interrupted_in_the_first_sweep_the_model_is_that_of_the_sample(monkeypatch):
    monkeypatch.setattr("bigsvm.executors.local.EVALUATIONS_AT_ONCE", 2e4)
    X, y = blobs(3000)
    y[X[:, 0] < -0.3] = -1  # far more of one class: the intercept is not 0
    until = Until(lambda event: isinstance(event, events.Sweeping))
    result = decomposition(
        X, y, limits=Limits(interrupted=until), listener=until.listen, working_set=900
    ).run()
    assert result.certificate.stop_reason is StopReason.INTERRUPTED
    assert result.certificate.gap is None
    chosen = result.support
    f = gram(X[chosen]) @ result.alpha
    free = np.abs(result.alpha) < 1
    assert result.thresholds[0] == pytest.approx((y[chosen] - f)[free].mean(), abs=1e-3)
    assert abs(result.thresholds[0]) > 0.05


def test_interrupted_later_the_gap_is_that_of_the_last_sweep():
    X, y = blobs(1200, overlap=1.5)
    until = Until(lambda event: isinstance(event, events.Swept) and event.sweep == 2)
    result = decomposition(
        X, y, C=1e3, limits=Limits(interrupted=until), listener=until.listen
    ).run()
    certificate = result.certificate
    assert certificate.stop_reason is StopReason.INTERRUPTED
    assert certificate.n_sweeps == 2
    alpha = dense_alpha(result, len(y))
    objective, gap, _ = definition(X, y, alpha, result.thresholds[0], C=1e3)
    assert certificate.gap == pytest.approx(gap, rel=1e-3)
    assert certificate.objective == pytest.approx(objective, rel=1e-4)


def test_interrupted_between_sweeps_what_has_been_gained_since_is_not_lost():
    X, y = blobs(1200, overlap=1.5)
    found = []
    for waited_for in (events.Swept, events.Solving):  # of what comes from the first sweep on
        swept = Until(lambda event: isinstance(event, events.Swept))

        def is_due(event, swept=swept, waited_for=waited_for):
            swept.listen(event)
            return swept.reached and isinstance(event, waited_for)

        until = Until(is_due)
        limits = Limits(interrupted=until)
        run = decomposition(X, y, C=1e3, tol=1e-6, limits=limits, listener=until.listen)
        found.append(run.run())
    at_sweep, later = found
    for result in found:
        assert result.certificate.stop_reason is StopReason.INTERRUPTED
        assert result.certificate.n_sweeps == 1
    assert at_sweep.certificate.gap > 0
    for name in ("gap", "objective", "duality_gap"):
        assert getattr(later.certificate, name) is None
    objectives = [
        definition(X, y, dense_alpha(result, len(y)), result.thresholds[0], C=1e3)[0]
        for result in found
    ]
    assert objectives[0] == pytest.approx(at_sweep.certificate.objective, rel=1e-4)
    assert objectives[1] > 1.001 * objectives[0]


def test_resumed_in_less_memory_a_large_working_set_is_given_up(tmp_path):
    X, y = blobs(1200, overlap=1.5)
    until = Until(lambda event: isinstance(event, events.Swept) and event.sweep == 1)
    with Checkpoint(tmp_path / "run", {}) as checkpoint:
        run = decomposition(
            X, y, C=1e3, working_set=800, checkpoint=checkpoint,
            limits=Limits(interrupted=until), listener=until.listen,
        )  # fmt: skip
        run.run()
        assert len(run.state.active) > 300
    with Checkpoint(tmp_path / "run", {}) as checkpoint:
        run = decomposition(X, y, C=1e3, working_set=300, checkpoint=checkpoint)
        result = run.run()
    assert result.certificate.converged
    assert len(run.state.active) <= 300


def test_resumed_in_less_memory_within_a_sweep_it_asks_for_more(tmp_path, monkeypatch):
    monkeypatch.setattr("bigsvm.executors.local.EVALUATIONS_AT_ONCE", 2e4)
    X, y = blobs(1200, overlap=1.5)
    until = Until(lambda event: isinstance(event, events.Sweeping))
    with Checkpoint(tmp_path / "run", {}) as checkpoint:
        decomposition(
            X, y, working_set=800, checkpoint=checkpoint,
            limits=Limits(interrupted=until), listener=until.listen,
        ).run()  # fmt: skip
    with (
        Checkpoint(tmp_path / "run", {}) as checkpoint,
        pytest.raises(MemoryBudgetError, match="middle of a sweep with 800 rows"),
    ):
        decomposition(X, y, working_set=300, checkpoint=checkpoint)


def test_a_tolerance_beyond_float32_stalls_and_says_so(problem):
    X, y = problem
    result = decomposition(
        np.tile(X, (6, 1)), np.tile(y, 6), tol=1e-12, C=0.1, working_set=1000
    ).run()
    assert result.certificate.stop_reason is StopReason.STALLED
    assert not result.certificate.converged
    assert result.certificate.gap > 1e-12


def test_a_rare_class_enters_the_first_sample():
    X, y = blobs(30_000)
    y[:] = -1
    y[12_345] = 1
    result = decomposition(X, y, working_set=2500).run()
    assert result.certificate.converged
    assert 12_345 in result.support


def test_events_of_a_run_come_in_order(problem):
    seen = []
    decomposition(*problem, listener=seen.append).run()
    kinds = [type(event) for event in seen]
    assert kinds[0] is events.Planned
    assert kinds[-1] is events.Swept
    swept = [event for event in seen if isinstance(event, events.Swept)]
    assert [event.sweep for event in swept] == list(range(1, len(swept) + 1))
    assert swept[-1].gap <= swept[-1].tol < swept[0].gap
    assert all(a.objective <= b.objective + 1e-6 for a, b in itertools.pairwise(swept))


def test_unshuffled_sources_are_sampled_row_by_row(problem):
    X, y = problem
    order = np.argsort(y, kind="stable")
    source = as_row_source(X[order])
    assert decomposition(source, y[order]).run().certificate.converged


# -- all rows as one working set ---------------------------------------------------------------


class Disk:
    """A disk cache that remembers its tiers."""

    def __init__(self, folder, monkeypatch, *, keep):
        monkeypatch.setattr(
            "bigsvm.papers.disk.decide",
            lambda **seconds: TierDecision(keep, "as the test says"),
        )
        self._cache = DiskCache(
            folder, capacity_bytes=1 << 26, fingerprint={"data": "blobs"}, value_seconds=1e-9
        )
        self.tiers = []

    def opened(self, n_variables, **options):
        self.tiers.append(self._cache.opened(n_variables, **options))
        return self.tiers[-1]


def whole(X, y, **options):
    return decomposition(X, y, whole=True, working_set=len(y), **options)


@pytest.mark.parametrize("rule", ["mvp", "second-order", "hmg"])
def test_all_rows_as_one_working_set_have_the_same_optimum(problem, reference, rule):
    scarce, plenty = (whole(*problem, rule=rule, slots=slots).run() for slots in (60, 1500))
    assert_same_bits(scarce, plenty)
    certificate = scarce.certificate
    assert certificate.converged
    assert certificate.n_working_sets == 1
    assert certificate.n_sweeps == 1
    assert certificate.objective == pytest.approx(reference.certificate.objective, rel=1e-6)
    assert certificate.row_misses > plenty.certificate.row_misses


def test_hmg_asks_for_no_more_than_a_row_in_a_step():
    """But for the steps after both of the last pair have reached a bound: few where C is large."""
    X, y = blobs(600)
    hmg, second = (
        whole(sp.csr_array(X), y, rule=rule, slots=32, C=100.0).run().certificate
        for rule in ("hmg", "second-order")
    )
    assert hmg.row_misses <= hmg.n_iter
    assert hmg.row_misses < second.row_misses


def test_hmg_asks_for_no_more_than_a_dense_row_in_a_step_where_that_is_asked_for():
    X, y = blobs(600)
    found = {}
    for rows_at_once in (1, None):
        dual = BoxDual(CSVC(sign=y, C=100.0), smo.HMG, rows_at_once=rows_at_once)
        found[rows_at_once] = whole(X, y, dual=dual, slots=32).run()
    assert_same_bits(found[1], found[None])
    one, many = (found[key].certificate for key in (1, None))
    assert one.row_misses <= one.n_iter < many.row_misses


def test_rows_on_disk_change_no_bit_and_serve_another_c(problem, tmp_path, monkeypatch):
    X, y = problem
    alone = whole(X, y, slots=60).run()
    disk = Disk(tmp_path, monkeypatch, keep=True)
    kept = whole(X, y, slots=60, disk=disk).run()
    assert_same_bits(kept, alone)
    assert 0 < kept.certificate.row_reads < kept.certificate.row_misses
    assert kept.certificate.disk_tier == "as the test says"
    computed = kept.certificate.row_misses - kept.certificate.row_reads
    other = whole(X, y, slots=60, disk=disk, C=2.0).run().certificate
    assert other.row_misses - other.row_reads < computed / 2
    assert len(disk.tiers) == 2


def test_disk_tier_that_does_not_keep_rows_writes_none(problem, tmp_path, monkeypatch):
    X, y = problem
    kept = whole(X, y, slots=60, disk=Disk(tmp_path, monkeypatch, keep=False)).run()
    assert kept.certificate.row_reads == 0
    assert not any(tmp_path.iterdir())


def test_interrupted_it_resumes_with_the_rows_it_had(problem, tmp_path, monkeypatch):
    X, y = problem
    until = Until(lambda event: isinstance(event, events.Solving))
    disk = Disk(tmp_path / "rows", monkeypatch, keep=True)
    options = {"C": 30.0, "slots": 60, "disk": disk}
    undisturbed = whole(X, y, **{**options, "disk": None}).run()
    with Checkpoint(tmp_path / "run", {}) as checkpoint:
        run = whole(
            X, y, checkpoint=checkpoint, limits=Limits(interrupted=until), listener=until.listen,
            **options,
        )  # fmt: skip
        assert run.run().certificate.stop_reason is StopReason.INTERRUPTED
    with Checkpoint(tmp_path / "run", {}) as checkpoint:
        resumed = whole(X, y, checkpoint=checkpoint, **options).run()
    assert_same_bits(resumed, undisturbed)
    assert disk.tiers[-1].n_hits > 60


def test_stopped_between_sweeps_the_last_gap_is_reported():
    X, y = blobs()
    swept, solved = [], []

    def listener(event):
        if isinstance(event, events.Swept):
            swept.append(event)
        elif isinstance(event, events.Solving) and swept:
            solved.append(event)

    limits = Limits(interrupted=lambda: bool(solved))
    result = decomposition(X, y, C=10.0, limits=limits, listener=listener).run()
    certificate = result.certificate
    assert (certificate.gap, certificate.last_gap) == (None, swept[-1].gap)
    assert decomposition(X, y).run().certificate.last_gap is None
