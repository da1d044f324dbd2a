"""`fit` with the client of a cluster: what people do with an estimator, and what is refused."""

import pickle
import sys

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.datasets import make_moons
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bigsvm
from bigsvm.errors import ClusterError, ParameterError
from bigsvm.executors import tasks
from bigsvm.report.describe import model_lines
from bigsvm.training.result import CLUSTER_COSTS, CLUSTER_SECONDS
from bigsvm.training.run import Watch

ROWS = np.random.default_rng(0).normal(size=(3000, 4)).astype(np.float32)
LABELS = (ROWS[:, 0] * ROWS[:, 1] > 0.2 * ROWS[:, 2]).astype(int)
WEIGHTS = 1.0 + (np.arange(len(ROWS)) % 3)
# The memory is too little for all rows to be active, so there are passes for the workers.
SHARED = {"gamma": 0.5, "memory": "2MB"}
ESTIMATORS = {
    "SVC": bigsvm.SVC(C=0.3, tol=0.1, **SHARED),
    "CrammerSingerSVC": bigsvm.CrammerSingerSVC(C=0.3, tol=0.1, **SHARED),
    "SVR": bigsvm.SVR(C=0.1, tol=0.1, **SHARED),
    "OneClassSVM": bigsvm.OneClassSVM(nu=0.1, tol=0.1, **SHARED),
}
MOONS = make_moons(200, noise=0.2, random_state=0)


@pytest.fixture(scope="module", autouse=True)
def all_workers_are_warm(cluster):
    """Workers have loaded what they need, so that none opens late on a busy machine."""
    from distributed import Client

    with Client(cluster, set_as_default=False) as client:
        workers = client.scheduler_info(n_workers=-1)["workers"]
        client.gather([
            client.submit(tasks.open_worker, "run", None, workers=[address], pure=False)
            for address in workers
        ])  # fmt: skip


def assert_same_model(one, other):
    assert np.array_equal(one.support_, other.support_)
    assert np.array_equal(one.dual_coef_, other.dual_coef_)
    assert np.array_equal(one.intercept_, other.intercept_)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_model_trained_by_workers_has_the_same_bits(client, name):
    here = clone(ESTIMATORS[name]).fit(ROWS, LABELS, sample_weight=WEIGHTS)
    there = clone(ESTIMATORS[name]).fit(ROWS, LABELS, sample_weight=WEIGHTS, client=client)
    assert_same_model(here, there)
    costs = {name: there.certificate_[name] for name in CLUSTER_COSTS}
    assert costs["n_workers"] == 2
    assert costs["tasks"] > 0
    assert min(costs["bytes_sent"], costs["bytes_returned"]) > 8 * costs["tasks"]
    assert min(there.certificate_[name] for name in CLUSTER_SECONDS) > 0
    assert not {*CLUSTER_COSTS, *CLUSTER_SECONDS} & here.certificate_.keys()


def test_the_costs_of_a_cluster_are_kept_in_models(client, tmp_path):
    fitted = clone(ESTIMATORS["SVC"]).fit(ROWS, LABELS, client=client)
    fitted.model_.save(tmp_path / "model", timings=True)
    loaded = bigsvm.KernelExpansion.load(tmp_path / "model")
    assert loaded.certificate == fitted.certificate_
    again = fitted.certificate_["tasks_again"]
    [line] = [text for name, text in model_lines(loaded, tmp_path / "model") if name == "cluster"]
    n_tasks = fitted.certificate_["tasks"]
    assert str(line).startswith(f"2 workers, {n_tasks} tasks, {again} started again, ")


def test_the_idle_share_is_that_of_the_workers(client, monkeypatch):
    threads, cpu_seconds, add = [], [], Watch.add

    def noted(self, partial, **options):
        threads.append(options["threads"])
        cpu_seconds.append(partial.cpu_seconds)
        add(self, partial, **options)

    monkeypatch.setattr(Watch, "add", noted)
    fitted = clone(ESTIMATORS["SVC"]).set_params(n_jobs=1).fit(ROWS, LABELS, client=client)
    assert max(threads) == 2  # fewer while a worker is late
    assert min(cpu_seconds) > 0
    assert 0 <= fitted.certificate_["cpu_idle"] < 1


def test_an_estimator_does_not_keep_the_client(client):
    fitted = bigsvm.SVC().fit(*MOONS, client=client, worker_memory="100MB")
    assert "client" not in fitted.get_params()
    assert not [name for name, value in vars(fitted).items() if value is client]
    assert "client" not in repr(fitted.model_.provenance)
    assert_same_model(fitted, pickle.loads(pickle.dumps(fitted)))
    assert_same_model(fitted, clone(fitted).fit(*MOONS))


def test_a_grid_search_passes_a_client_on(client):
    search = GridSearchCV(bigsvm.SVC(memory="2MB"), {"C": [0.1, 1]}, cv=2)
    weights = 1.0 + np.arange(len(MOONS[0])) % 2
    search.fit(*MOONS, sample_weight=weights, client=client)
    alone = clone(search).fit(*MOONS, sample_weight=weights)
    assert search.best_params_ == alone.best_params_
    assert_same_model(search.best_estimator_, alone.best_estimator_)


def test_metadata_routing_passes_a_client_on(client):
    weights = 1.0 + np.arange(len(MOONS[0])) % 2
    with sklearn.config_context(enable_metadata_routing=True):
        machine = bigsvm.SVC().set_fit_request(client=True, sample_weight=True)
        machine.set_score_request(sample_weight=False)
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        pipeline = make_pipeline(scaler, machine)
        pipeline.fit(*MOONS, client=client, sample_weight=weights)
        alone = clone(pipeline).fit(*MOONS, sample_weight=weights)
    assert_same_model(pipeline["svc"], alone["svc"])


def test_a_pipeline_passes_a_client_on(client):
    pipeline = make_pipeline(StandardScaler(), bigsvm.SVC())
    weights = 1.0 + np.arange(len(MOONS[0])) % 2
    pipeline.fit(*MOONS, svc__client=client, svc__sample_weight=weights)
    alone = clone(pipeline).fit(*MOONS, svc__sample_weight=weights)
    assert_same_model(pipeline["svc"], alone["svc"])


def test_fit_predict_passes_a_client_on(client):
    detector = bigsvm.OneClassSVM(nu=0.2)
    assert np.array_equal(
        detector.fit_predict(MOONS[0], client=client), detector.fit_predict(MOONS[0])
    )


def test_a_path_passes_a_client_on(client):
    there = bigsvm.C_path(bigsvm.SVC(), *MOONS, C=[1, 10], client=client, worker_memory="100MB")
    for one, other in zip(there, bigsvm.C_path(bigsvm.SVC(), *MOONS, C=[1, 10]), strict=True):
        assert_same_model(one, other)


@pytest.mark.parametrize("pairs", ["ovo", "ddag", "ovr"])
def test_many_classes_are_trained_with_a_client(client, pairs):
    X, y = MOONS
    many = y + 2 * (X[:, 0] > 0.5)
    estimator = bigsvm.SVC(multiclass=pairs)
    assert_same_model(estimator.fit(X, many, client=client), clone(estimator).fit(X, many))


def test_an_open_client_changes_nothing(client):
    with client.as_current():
        before = client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.transition_counter)
        bigsvm.SVC(memory="2MB").fit(ROWS[:500], LABELS[:500])
        after = client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.transition_counter)
    assert before == after


# -- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["tcp://127.0.0.1:8786", 3, object(), False])
def test_what_is_no_client_is_refused(wrong):
    with pytest.raises(ParameterError, match=r"client is .*distributed\.Client"):
        bigsvm.SVC().fit(*MOONS, client=wrong)


def test_a_cluster_is_no_client(cluster):
    with pytest.raises(ParameterError, match=r"it must be a distributed\.Client"):
        bigsvm.SVC().fit(*MOONS, client=cluster)


def test_a_closed_client_is_refused(cluster):
    from distributed import Client

    closed = Client(cluster, set_as_default=False)
    closed.close()
    with pytest.raises(ClusterError, match="client is closed; make a new one"):
        bigsvm.SVC().fit(*MOONS, client=closed)


def test_an_asynchronous_client_is_refused(cluster):
    import asyncio

    from distributed import Client

    async def fit():
        async with Client(
            cluster.scheduler_address, asynchronous=True, set_as_default=False
        ) as client:
            bigsvm.SVC().fit(*MOONS, client=client)

    with pytest.raises(ParameterError, match="client is asynchronous"):
        asyncio.run(fit())


def test_without_distributed_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ClusterError, match=r"pip install 'bigsvm\[cluster\]'$"):
        bigsvm.SVC().fit(*MOONS, client="tcp://127.0.0.1:8786")


def test_the_memory_of_workers_needs_a_client():
    with pytest.raises(ParameterError, match="worker_memory is '1GB', but there are no workers"):
        bigsvm.SVC().fit(*MOONS, worker_memory="1GB")


@pytest.mark.parametrize("wrong", ["much", 0, -5, [1]])
def test_a_memory_of_workers_that_is_no_size_is_refused(client, wrong):
    with pytest.raises(ParameterError, match=r"worker_memory .* size"):
        bigsvm.SVC().fit(*MOONS, client=client, worker_memory=wrong)
