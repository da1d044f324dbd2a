"""Rows and variables: the merged problem is the same problem, and its solution is dealt out."""

import numpy as np
import pytest
import scipy.sparse as sp

from bigsvm.data.sources import as_row_source
from bigsvm.duals.formulations import CSVC
from bigsvm.fit import variables as module
from bigsvm.fit.train import train_model
from bigsvm.fit.variables import make_variables
from bigsvm.parameters import TrainingParameters


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch):
    monkeypatch.setattr(module, "DIRECT_ROWS", 0)


@pytest.fixture(params=[np.asarray, sp.csr_array], ids=["dense", "sparse"])
def repeated(request):
    """300 rows of which 100 differ, half of them with labels that contradict each other."""
    rng = np.random.default_rng(0)
    few = rng.standard_normal((100, 3)).astype(np.float32)
    X = few[rng.integers(0, 100, 300)]
    y = np.where(X[:, 0] + rng.standard_normal(300) > 0, 1, -1).astype(np.int8)
    return as_row_source(request.param(X)), X, y


@pytest.mark.parametrize("weighted", [False, True])
def test_the_merged_problem_is_that_of_its_rows(repeated, weighted):
    source, X, y = repeated
    weights = np.random.default_rng(1).integers(0, 3, 300) / 2 if weighted else None
    formulation = CSVC(sign=y, C=2.0, class_weight=(1.0, 3.0), sample_weight=weights)
    variables = make_variables(source, formulation, merge=True)
    kept = np.arange(300) if weights is None else np.flatnonzero(weights)
    different = {(X[i].tobytes(), y[i]) for i in kept}
    assert len(different) == variables.source.n_rows == len(variables.formulation) < len(kept)
    rows = variables.source.read(0, len(different))
    rows = rows.toarray() if sp.issparse(rows) else rows
    box, each = variables.formulation.box(slice(None)), formulation.box(slice(None))
    for v in range(len(different)):
        same = (X == rows[v]).all(axis=1) & (y == box.linear[v])
        assert box.upper[v] == pytest.approx(each.upper[same].sum())
        assert box.lower[v] == pytest.approx(each.lower[same].sum())
    assert not (np.diff(variables.groups.first) > 0).all()  # in random order


def test_coefficients_are_dealt_out_up_to_each_bound(repeated):
    source, _, y = repeated
    weights = np.random.default_rng(1).random(300) + 0.5
    formulation = CSVC(sign=y, C=2.0, sample_weight=weights)
    variables = make_variables(source, formulation, merge=True)
    box = variables.formulation.box(slice(None))
    rng = np.random.default_rng(2)
    share = rng.choice([0.0, 0.3, 1.0], len(box.linear))
    beta = share * (box.upper + box.lower)
    support = np.flatnonzero(beta)
    rows, coefficients = variables.spread(formulation, support, beta[support])
    assert (np.diff(rows) > 0).all()
    assert coefficients.all()
    each = formulation.box(rows)
    assert (coefficients <= each.upper).all()
    assert (coefficients >= each.lower).all()
    dealt = np.zeros(300)
    dealt[rows] = coefficients
    for v, (a, b) in enumerate(
        zip(variables.groups.starts[:-1], variables.groups.starts[1:], strict=True)
    ):
        members = variables.groups.rows[a:b]
        assert dealt[members].sum() == pytest.approx(beta[v], abs=1e-12)
        inside = formulation.box(members)
        free = (dealt[members] != 0) & (dealt[members] != inside.upper + inside.lower)
        assert free.sum() <= 1


def test_a_variable_of_one_row_keeps_its_bits(repeated):
    source, _, y = repeated
    formulation = CSVC(sign=y, C=0.1)
    variables = make_variables(source, formulation, merge=True)
    alone = np.flatnonzero(np.diff(variables.groups.starts) == 1)
    bound = variables.formulation.box(alone)
    beta = bound.upper + bound.lower
    _, coefficients = variables.spread(formulation, alone, beta)
    assert np.isin(coefficients, [0.1, -0.1]).all()


def test_rows_of_a_shuffled_store_are_trained_in_its_order(repeated):
    source, X, y = repeated
    source.is_shuffled = True
    variables = make_variables(source, CSVC(sign=y, C=1.0), merge=True)
    assert (np.diff(variables.groups.first) > 0).all()
    different = {(X[i].tobytes(), y[i]) for i in range(300)}
    assert len(variables.groups) == len(different)


def test_rows_are_not_merged_when_few_or_when_not_asked_for(repeated, monkeypatch):
    source, _, y = repeated
    formulation = CSVC(sign=y, C=1.0)
    assert make_variables(source, formulation, merge=False) == (source, formulation, None)
    monkeypatch.setattr(module, "DIRECT_ROWS", 300)
    assert make_variables(source, formulation, merge=True) == (source, formulation, None)


def test_training_on_merged_rows_finds_the_optimum_of_all(repeated):
    source, _, y = repeated
    parameters = {"C": 2.0, "gamma": 0.5, "tol": 1e-5}
    merged = train_model(source, y, None, TrainingParameters(**parameters))
    whole = train_model(source, y, None, TrainingParameters(**parameters, working_set="all"))
    objective = whole.certificate["objective"]
    assert merged.certificate["objective"] == pytest.approx(objective, rel=1e-6)
    assert merged.certificate["n_support"] == len(merged.support) == len(merged.coefficients)
    X = source.read(0, 300)
    np.testing.assert_allclose(
        merged.decision_function(as_row_source(X)),
        whole.decision_function(as_row_source(X)),
        atol=1e-4,
    )
