"""Pairs of small classes, solved together: as by their own runs, and resumed to the same bits."""

import numpy as np
import pytest
from support.one_vs_one import train
from support.problems import clouds
from support.reductions import trained_by
from support.resuming import StopAt, assert_resumed_to_the_same_bits

from bigsvm import write_store
from bigsvm.fit.one_vs_one import OneVsOneReduction
from bigsvm.one_vs_one.small import SmallPairs
from bigsvm.parameters import TrainingParameters
from bigsvm.training.events import Hooks

NU = {"formulation": "nu-svc", "nu": 0.15}


@pytest.fixture
def of_few(monkeypatch):
    """Groups are of few classes, and parts of few cells."""
    monkeypatch.setattr("bigsvm.one_vs_one.small.GROUP_ROWS", 40)
    monkeypatch.setattr("bigsvm.one_vs_one.small.CELLS", 2)


@pytest.fixture
def solved(monkeypatch):
    """How many pairs have been solved together."""
    found = []

    def solve(self, *given, **named):
        answers = of_class(self, *given, **named)
        found.append(sum(one is not None for one in answers))
        return answers

    of_class = SmallPairs.solve
    monkeypatch.setattr(SmallPairs, "solve", solve)
    return found


def alone(X, y, weights=None, **given):
    """Every pair by a run of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bigsvm.one_vs_one.small.MOST_ROWS", 0)
        return train(X, y, weights, **given).functions


def assert_same_functions(found, expected):
    np.testing.assert_array_equal(found.support, expected.support)
    one, other = found.coefficients, expected.coefficients
    np.testing.assert_allclose(one.toarray(), other.toarray(), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(found.intercepts, expected.intercepts, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found.rho, expected.rho, rtol=1e-6)
    # Of nu-SVC it is small, whatever its terms.
    objective = expected.certificate.objective
    assert found.certificate.objective == pytest.approx(objective, rel=1e-9, abs=1e-9)
    assert found.certificate.n_bounded == expected.certificate.n_bounded
    assert found.certificate.n_support == expected.certificate.n_support


@pytest.mark.usefixtures("of_few")
@pytest.mark.parametrize("kernel", ["rbf", "linear"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("own", [{"C": 3.0}, NU], ids=["c-svc", "nu-svc"])
def test_small_pairs_agree_with_runs_of_their_own(solved, kernel, weighted, threads, own):
    X, y = clouds(n=150, k=6, d=10, seed=3)
    weights = np.random.default_rng(0).choice([0.0, 0.5, 2.0], len(y)) if weighted else None
    given = {**own, "kernel": kernel, "threads": threads, "class_weight": "balanced"}
    found = train(X, y, weights, **given).functions
    assert found.certificate.converged
    assert len(solved) > 2
    assert sum(solved) == 15
    solved.clear()
    assert_same_functions(found, alone(X, y, weights, **given))
    assert not solved


@pytest.mark.usefixtures("of_few")
def test_larger_classes_are_trained_by_themselves(monkeypatch, solved):
    monkeypatch.setattr("bigsvm.one_vs_one.small.MOST_ROWS", 40)
    X, y = clouds(n=240, k=6)
    small = (np.bincount(y) <= 40).sum()
    assert 2 < small < 6
    found = train(X, y, C=5.0).functions
    assert sum(solved) == small * (small - 1) // 2
    assert found.certificate.converged
    assert_same_functions(found, alone(X, y, C=5.0))


@pytest.mark.usefixtures("of_few")
@pytest.mark.parametrize("given", [
    {"loss": "squared_hinge"}, {"selection": "hmg"}, {"working_set": "all"},
    {**NU, "selection": "hmg"},
])  # fmt: skip
def test_unsupported_problems_are_not_solved_together(solved, given):
    X, y = clouds(n=100, k=4)
    assert train(X, y, **given).functions.certificate.converged
    assert not solved


@pytest.mark.usefixtures("of_few")
def test_unsolved_pairs_are_trained_by_themselves(monkeypatch):
    X, y = clouds(n=120, k=5)
    expected = alone(X, y, C=5.0)
    of_class = SmallPairs.solve

    def solve(self, *given, **named):
        return [one if i % 2 else None for i, one in enumerate(of_class(self, *given, **named))]

    monkeypatch.setattr(SmallPairs, "solve", solve)
    found = train(X, y, C=5.0).functions
    assert found.certificate.converged
    assert_same_functions(found, expected)


@pytest.mark.usefixtures("of_few")
@pytest.mark.parametrize(("every", "given"), [(60.0, {"C": 5.0}), (1e-9, {"C": 5.0}), (60.0, NU)])
def test_resumed_at_every_moment_it_gives_the_same_bits(
    tmp_path, monkeypatch, solved, every, given
):
    """In the middle of a batch: some pairs solved together before, some after, some by runs."""
    monkeypatch.setattr("bigsvm.one_vs_one.small.MOST_ROWS", 40)
    X, y = clouds(n=240, k=6)
    asked = StopAt()
    whole = train(X, y, **given, hooks=Hooks(interrupted=asked)).functions
    assert len(solved) > 1
    assert 0 < sum(solved) < 15

    def attempt(folder, interrupted):
        return train(
            X, y, **given, hooks=Hooks(interrupted=interrupted), checkpoint=str(folder),
            checkpoint_every=every,
        ).functions  # fmt: skip

    assert_resumed_to_the_same_bits(
        attempt, tmp_path, range(1, asked.count, max(1, asked.count // 5)), whole
    )


@pytest.mark.usefixtures("of_few")
@pytest.mark.parametrize("max_iter", [1, 100, 300])
def test_the_limit_of_steps_is_of_all_pairs_and_a_run_goes_on_from_it(tmp_path, max_iter):
    X, y = clouds(n=120, k=5)
    whole = train(X, y, C=5.0).functions
    assert whole.certificate.n_iter > max_iter
    folder = str(tmp_path)
    found = train(X, y, C=5.0, checkpoint=folder, max_iter=max_iter).functions
    assert found.certificate.stop_reason == "max_iter"
    assert found.certificate.n_iter <= max_iter
    rest = train(X, y, C=5.0, checkpoint=folder).functions
    assert rest.certificate.converged
    # A run that is out of steps solves for few rows without any: its pair has other last bits.
    assert_same_functions(rest, whole)


@pytest.mark.usefixtures("of_few")
def test_small_pairs_of_a_store_agree_with_its_rows_in_memory(tmp_path, solved):
    X, y = clouds(n=150, k=6)
    store = write_store(tmp_path / "s.zarr", X.astype(np.float32), y.astype(float))
    given = TrainingParameters(tol=1e-6, threads=1, C=5.0)
    found = trained_by(OneVsOneReduction, store.rows, store.labels(), None, given).functions
    assert sum(solved) == 15
    expected = train(X.astype(np.float32), y, C=5.0).functions
    assert found.certificate.converged
    assert found.certificate.objective == pytest.approx(expected.certificate.objective, rel=1e-6)
