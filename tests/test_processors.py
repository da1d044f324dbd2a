"""Processors that a run may use beside others: affinity, quotas, limits, workers."""

import os
import sys
from contextlib import ExitStack

import dask.array as da
import numpy as np
import pytest
from command_line import two_clouds
from joblib import Parallel, delayed
from threadpoolctl import threadpool_info, threadpool_limits

import bigsvm
from bigsvm import processors
from bigsvm.errors import ParameterError
from bigsvm.processors import available_processors, count_threads, default_threads, one_blas_thread

X, Y = two_clouds(60)
ESTIMATORS = {
    "SVC": bigsvm.SVC, "SVR": bigsvm.SVR, "OneClassSVM": bigsvm.OneClassSVM,
    "CrammerSingerSVC": bigsvm.CrammerSingerSVC,
}  # fmt: skip


@pytest.fixture(autouse=True)
def limited_from_outside(monkeypatch):
    """The environment is the user's, whatever other tests have started in this process."""
    monkeypatch.setattr(processors, "IS_LIMITED", True)


@pytest.fixture
def eight(monkeypatch, tmp_path):
    """A machine of eight processors without limits, whatever this one has."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(processors, "OWN_CONTROL_GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(processors, "CONTROL_GROUPS", tmp_path / "groups")
    monkeypatch.setattr(processors, "_openmp", lambda: ())
    for variable in ("LOKY_MAX_CPU_COUNT", "OMP_NUM_THREADS"):
        monkeypatch.delenv(variable, raising=False)
    processors._quota.cache_clear()
    yield tmp_path
    processors._quota.cache_clear()


def threads_of(n_jobs=None, name="SVC"):
    """Threads that an estimator trains with."""
    return ESTIMATORS[name](n_jobs=n_jobs)._parameters().n_threads


@pytest.mark.usefixtures("eight")
def test_all_processors_are_used_where_nothing_limits_them():
    assert available_processors() == default_threads() == threads_of() == threads_of(-1) == 8


@pytest.mark.fault("threads")
@pytest.mark.parametrize(
    ("variable", "text", "none", "minus_one"),
    [
        ("LOKY_MAX_CPU_COUNT", "3", 3, 3),
        ("LOKY_MAX_CPU_COUNT", "99", 8, 8),
        ("OMP_NUM_THREADS", "2", 2, 8),
        ("OMP_NUM_THREADS", "4,2", 4, 8),
        ("OMP_NUM_THREADS", "", 8, 8),
        ("OMP_NUM_THREADS", "many", 8, 8),
    ],
)
@pytest.mark.usefixtures("eight")
def test_limits_of_the_environment_hold(variable, text, none, minus_one, monkeypatch):
    monkeypatch.setenv(variable, text)
    assert [threads_of(name=name) for name in ESTIMATORS] == [none] * 4
    assert threads_of(-1) == minus_one


@pytest.mark.fault("threads")
@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/\n", {"cpu.max": "200000 100000"}, 2),
        ("0::/\n", {"cpu.max": "150000 100000"}, 2),  # as joblib, up to the next whole number
        ("0::/\n", {"cpu.max": "max 100000"}, 8),
        ("0::/a/b\n", {"a/cpu.max": "300000 100000", "a/b/cpu.max": "max 100000"}, 3),
        ("0::/a\n", {"cpu.max": "100000 100000"}, 1),  # a group that cannot be seen from here
        (
            "4:memory:/\n3:cpu,cpuacct:/x\n0::/\n",
            {"cpu/x/cpu.cfs_quota_us": "400000", "cpu/x/cpu.cfs_period_us": "100000"},
            4,
        ),
        ("3:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8),
    ],
)
def test_a_quota_of_processors_holds(own, files, expected, eight):
    (eight / "cgroup").write_text(own)
    for name, text in files.items():
        path = eight / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    assert available_processors() == threads_of() == threads_of(-1) == expected


@pytest.mark.fault("threads")
@pytest.mark.parametrize("api", [None, "openmp"])
def test_a_limit_of_threadpoolctl_holds_while_it_lasts(api, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    before = default_threads()
    with threadpool_limits(1, user_api=api):
        assert default_threads() == threads_of() == 1
    assert default_threads() == before


@pytest.mark.fault("threads")
def test_matrix_products_have_one_thread_while_asked_for():
    before = blas_threads()
    assert before
    with threadpool_limits(2, user_api="blas"):
        with one_blas_thread():
            assert set(blas_threads()) == {1}
        assert set(blas_threads()) == {2}
    assert blas_threads() == before


@pytest.mark.fault("threads")
def test_the_limit_ends_with_the_last_thread_that_asked_for_it():
    """Tasks of several threads of a worker overlap; each has one thread until its end."""
    with threadpool_limits(2, user_api="blas"):
        one, other = ExitStack(), ExitStack()
        one.enter_context(one_blas_thread())
        other.enter_context(one_blas_thread())
        one.close()
        assert set(blas_threads()) == {1}
        other.close()
        assert set(blas_threads()) == {2}


def test_libraries_are_looked_for_once(monkeypatch):
    with one_blas_thread():
        pass
    monkeypatch.setattr("threadpoolctl.ThreadpoolController", None)
    with one_blas_thread():
        assert default_threads() >= 1


def blas_threads():
    return [found["num_threads"] for found in threadpool_info() if found["user_api"] == "blas"]


@pytest.mark.fault("threads")
@pytest.mark.parametrize("backend", ["threading", pytest.param("loky", marks=pytest.mark.slow)])
def test_a_worker_of_joblib_has_one_thread(backend):
    seen = Parallel(n_jobs=2, backend=backend)(delayed(threads_of)(n) for n in (None, 2))
    assert seen == [1, 2]


@pytest.mark.fault("threads")
@pytest.mark.usefixtures("eight")
def test_a_child_of_multiprocessing_has_one_thread(monkeypatch):
    monkeypatch.setattr("multiprocessing.process.parent_process", lambda: object())
    assert [threads_of(n_jobs) for n_jobs in (None, -1)] == [1, 8]


@pytest.mark.fault("threads")
@pytest.mark.parametrize(("n_jobs", "expected"), [(-1, 8), (-2, 7), (-8, 1), (-99, 1), (3, 3)])
@pytest.mark.usefixtures("eight")
def test_negative_n_jobs_are_joblibs(n_jobs, expected):
    assert count_threads(n_jobs) == count_threads(np.int64(n_jobs)) == threads_of(n_jobs)
    assert threads_of(n_jobs) == expected


@pytest.mark.fault("threads")
@pytest.mark.parametrize("n_jobs", [0, 1.5, "2"])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_others_are_refused_in_predictions_too(n_jobs, name):
    with pytest.raises(ParameterError, match=f"n_jobs is {n_jobs!r}; it must be"):
        ESTIMATORS[name](n_jobs=n_jobs).fit(X, Y)
    fitted = ESTIMATORS[name]().fit(X, Y).set_params(n_jobs=n_jobs)
    for rows in (X, da.from_array(X)):
        with pytest.raises(ParameterError, match=f"n_jobs is {n_jobs!r}; it must be"):
            fitted.predict(rows)


@pytest.mark.fault("threads")
@pytest.mark.parametrize("threads", [0, 1.5, "2"])
def test_a_model_checks_its_threads(threads):
    model = bigsvm.SVC().fit(X, Y).model_
    for predict in (model.decision_function, model.decide):
        with pytest.raises(ParameterError, match=f"threads is {threads!r}; it must be"):
            predict(X, threads=threads)
    np.testing.assert_array_equal(model.decide(X, threads=-1), model.decide(X))


@pytest.mark.usefixtures("eight")
def test_predictions_have_as_many_threads_as_training(monkeypatch):
    fitted, threads = bigsvm.SVC(n_jobs=-2).fit(X, Y), []
    decide = bigsvm.KernelExpansion.decision_function

    def watched(self, source, *, threads=1, seen=threads):
        seen.append(threads)
        return decide(self, source, threads=threads)

    monkeypatch.setattr(bigsvm.KernelExpansion, "decision_function", watched)
    fitted.predict(X)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    fitted.set_params(n_jobs=None).predict(X)
    assert threads == [7, 3]


@pytest.mark.parametrize(("is_limited", "threads"), [(False, 8), (True, 1)])
@pytest.mark.usefixtures("eight")
def test_what_dask_sets_for_its_workers_is_no_limit_here(is_limited, threads, monkeypatch):
    monkeypatch.setattr(processors, "IS_LIMITED", is_limited)
    monkeypatch.setitem(sys.modules, "distributed.nanny", sys)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert default_threads() == threads


def test_the_same_threads_give_the_same_bits(monkeypatch):
    asked = bigsvm.SVC(n_jobs=1).fit(X, Y)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    limited = bigsvm.SVC().fit(X, Y)
    assert limited.dual_coef_.tobytes() == asked.dual_coef_.tobytes()


def test_a_run_keeps_its_number_of_threads(monkeypatch):
    parameters = bigsvm.SVC()._parameters()
    before = parameters.n_threads
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert parameters.n_threads == before


@pytest.mark.usefixtures("eight")
def test_processors_are_counted_where_there_is_no_affinity(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity")  # as on macOS
    assert available_processors() == os.cpu_count()
