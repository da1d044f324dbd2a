"""The random check of tools/reliability.py: its corpus, its drawing, and that it sees faults."""

import json

import naive
import numpy as np
import pytest
from attacks import cases, oracle, random, verdict

CORPUS = json.loads(random.CORPUS.read_text())
PLAIN = {
    "formulation": "c-svc",
    "data": {"n": 40, "d": 3, "seed": 5},
    "params": {"kernel": "rbf", "gamma": 0.5, "C": 2.0, "n_jobs": 1, "memory": "64MB"},
    "container": "array",
    "predict_in": "csr",
}


@pytest.mark.parametrize("kept", CORPUS, ids=[each["why"] for each in CORPUS])
@pytest.mark.filterwarnings("ignore")
def test_a_case_that_failed_once_is_right(kept):
    assert verdict.judge(kept["case"]).how in ("right", "refused")


def test_a_case_is_drawn_again_by_its_number_and_is_all_fields():
    drawn = [random.draw(0, number) for number in range(300)]
    assert drawn == [random.draw(0, number) for number in range(300)]
    assert drawn == json.loads(json.dumps(drawn))
    assert {case["formulation"] for case in drawn} == set(cases.ESTIMATORS)
    assert {case["container"] for case in drawn} == set(random.CONTAINERS)
    assert {case["params"]["kernel"] for case in drawn} >= {*random.NONNEGATIVE, "cosine"}
    assert any(isinstance(case["params"].get("gamma"), list) for case in drawn)
    assert any(case.get("workers") for case in drawn)
    assert any(case.get("interrupt", 0) < 0 for case in drawn)


@pytest.mark.parametrize("seed", range(5))
def test_the_oracle_agrees_with_the_definitions(seed):
    rng = np.random.default_rng(seed)
    X, sign = rng.standard_normal((12, 2)), np.where(np.arange(12) % 2, 1.0, -1.0)
    alpha = sign * np.round(rng.random(12), 1)
    K = oracle.gram(X, X, {"name": "rbf", "gamma": 0.7})
    found = oracle.standing(K, oracle.variables("c-svc", alpha, 0.3, sign, np.ones(12), {}, {}))
    dense = naive.kernel_matrix(X, X, "rbf", gamma=0.7)
    lower, upper = np.minimum(sign, 0), np.maximum(sign, 0)
    assert found.gap == pytest.approx(naive.kkt_gap(dense, sign, lower, upper, alpha))
    assert found.objective == pytest.approx(naive.objective(dense, sign, alpha))
    # The duality gap of a point whose sum is not 0 has a term of the threshold.
    expected = naive.duality_gap(dense, sign, np.ones(12), alpha, 0.3) + 0.3 * alpha.sum()
    assert found.duality_gap == pytest.approx(expected)


@pytest.mark.parametrize(
    "name", ["cosine", "matern32", "matern52", "intersection", "tanimoto", "chi2"]
)
def test_the_oracle_has_the_kernels_of_fields(name):
    rng = np.random.default_rng(0)
    A, B = rng.poisson(0.7, (9, 4)).astype(float), rng.poisson(0.7, (7, 4)).astype(float)
    A[0] = B[0] = 0
    found = oracle.gram(A, B, {"name": name, "gamma": 0.3})
    np.testing.assert_allclose(found.values, naive.kernel_matrix(A, B, name, gamma=0.3), atol=1e-14)


def test_the_oracle_has_rbf_by_column():
    rng = np.random.default_rng(0)
    A, B, gamma = rng.normal(size=(9, 3)), rng.normal(size=(7, 3)), (0.0, 0.5, 2.0)
    found = oracle.gram(A, B, {"name": "rbf-by-column", "gamma": gamma}, centre=A.mean(axis=0))
    factors = np.sqrt(gamma)
    expected = naive.kernel_matrix(A * factors, B * factors, "rbf", gamma=1.0)
    np.testing.assert_allclose(found.values, expected, atol=1e-14)


@pytest.mark.parametrize("near", [0.0, 1e-12, 1.0 - 1e-12])
def test_a_variable_next_to_its_bound_may_be_at_it_or_not(near):
    # Of two rows that are nearly alike: with one of them at a bound, it cannot move on.
    X, sign = np.array([[0.0], [0.1], [3.0]]), np.array([1.0, -1.0, 1.0])
    alpha = np.array([near, -0.5, 0.5 - near])
    K = oracle.gram(X, X, {"name": "rbf", "gamma": 0.7})
    found = oracle.standing(K, oracle.variables("c-svc", alpha, 0.0, sign, np.ones(3), {}, {}))
    dense = naive.kernel_matrix(X, X, "rbf", gamma=0.7)
    box = np.minimum(sign, 0), np.maximum(sign, 0)
    at_bound = np.array([np.rint(near), *alpha[1:]])
    assert found.gap == pytest.approx(naive.kkt_gap(dense, sign, *box, at_bound), abs=1e-9)
    assert found.most_gap == pytest.approx(naive.kkt_gap(dense, sign, *box, alpha), abs=1e-9)


def change_coefficients(model):
    model.coefficients[0] *= 1.5


def change_intercept(model):
    object.__setattr__(model, "intercept", model.intercept + 0.1)


def change_gap(model):
    model.certificate["gap"] = 1e-6


def change_objective(model):
    model.certificate["objective"] *= 1 + 1e-8


FAULTS = {
    "sums: group 0": change_coefficients,
    "duality_gap_ is": change_intercept,
    "gap_ is 1e-06": change_gap,
    "objective_ is": change_objective,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_fit_is_seen(fault, monkeypatch):
    original = cases.bigsvm.SVC._adopt

    def adopt(self, model):
        FAULTS[fault](model)
        original(self, model)

    monkeypatch.setattr(cases.bigsvm.SVC, "_adopt", adopt)
    ended = verdict.judge(PLAIN)
    assert ended.how == "wrong"
    assert fault in ended.why


def test_errors_that_are_no_refusals_are_raw(monkeypatch):
    def fail(*arguments):
        raise ValueError("broadcast")

    monkeypatch.setattr(cases.bigsvm.SVC, "_adopt", fail)
    assert verdict.judge(PLAIN).how == "raw"
    assert verdict.judge({**PLAIN, "spoil": "nan"}).how == "refused"
    assert verdict.judge({**PLAIN, "params": {**PLAIN["params"], "C": -1.0}}).how == "refused"


def test_a_case_that_takes_too_much_processor_time_is_ended_with_its_stack():
    judge = random.Judge(0.2)  # less than it takes to import NumPy and compiled code
    how, why = judge(PLAIN)
    judge.close()
    assert how == "raw"
    assert "it took more than 0.2 seconds of processor time" in why
    assert 'File "' in why


@pytest.mark.slow
def test_a_process_that_died_is_replaced():
    judge = random.Judge(600)
    assert judge(PLAIN) == ("right", "")
    judge._process.kill()
    how, why = judge(PLAIN)
    assert (how, why[:15]) == ("raw", "it hung or died")
    assert judge(PLAIN) == ("right", "")
    judge.close()
