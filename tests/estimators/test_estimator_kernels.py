"""Kernels beyond LIBSVM's: absolute distances, and a formula of one's own."""

import functools
from dataclasses import dataclass, field, replace
from typing import get_args

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import svm as peers
from sklearn.datasets import make_moons
from sklearn.metrics.pairwise import laplacian_kernel

import bigsvm
from bigsvm import kernels
from bigsvm.errors import CheckpointError, DataError, ModelError, ParameterError
from bigsvm.identity import PYTHON
from bigsvm.kernels import KERNELS
from bigsvm.models import KernelExpansion
from bigsvm.parameters import names


@dataclass(frozen=True, kw_only=True)
class Cauchy(bigsvm.Kernel):
    """``1 / (1 + |a - b|² / width²)``."""

    name = "cauchy of tests"
    width: float = 1.0

    def from_products(self, dots, norms_rows, norms_columns):
        squared = np.add.outer(norms_rows, norms_columns) - 2 * dots
        return 1 / (1 + np.maximum(squared, 0) / self.width**2)


def cauchy(A, B, width=0.7):
    squared = ((A[:, None, :] - B[None, :, :]) ** 2).sum(axis=2)
    return 1 / (1 + squared / width**2)


CASES = [
    ({"kernel": "laplacian", "gamma": 0.8}, lambda A, B: laplacian_kernel(A, B, gamma=0.8)),
    ({"kernel": Cauchy(width=0.7)}, cauchy),
]


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X, y = make_moons(300, noise=0.3, random_state=0)
    X = np.hstack([X, rng.standard_normal((300, 3))]) * (rng.random((300, 5)) < 0.7)
    return X, y


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize(("options", "formula"), CASES)
def test_same_model_as_by_the_formula(rows, options, formula, form):
    X, y = rows
    ours = bigsvm.SVC(C=2.0, tol=1e-6, **options).fit(form(X), y)
    peer = peers.SVC(C=2.0, tol=1e-6, kernel=formula).fit(X, y)
    assert ours.converged_
    np.testing.assert_allclose(
        ours.decision_function(form(X)), peer.decision_function(X), atol=1e-4
    )


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize(("options", "formula"), CASES)
def test_many_rows_and_duplicates(options, formula, form):
    X, y = make_moons(9000, noise=0.3, random_state=1)
    X = np.round(X, 1)
    ours = bigsvm.SVC(tol=1e-3, **options).fit(form(X), y)
    assert ours.converged_
    beta = ours.model_.coefficients
    f = formula(X, X[ours.support_]) @ beta
    sign = np.where(y == 1, 1.0, -1.0)
    g = sign - f
    alpha = np.zeros(len(y))
    alpha[ours.support_] = beta
    rises = np.where(sign > 0, alpha < 1, alpha < 0)
    falls = np.where(sign > 0, alpha > 0, alpha > -1)
    assert g[rises].max() - g[falls].min() <= 2e-3


def test_custom_kernel_is_saved_and_loaded(rows, tmp_path, monkeypatch):
    X, y = rows
    fitted = bigsvm.SVC(kernel=Cauchy(width=0.7)).fit(X, y)
    fitted.model_.save(tmp_path / "m.safetensors")
    loaded = KernelExpansion.load(tmp_path / "m.safetensors")
    assert loaded.kernel == Cauchy(width=0.7)
    monkeypatch.delitem(KERNELS, "cauchy of tests")
    with pytest.raises(ModelError, match="import the module"):
        KernelExpansion.load(tmp_path / "m.safetensors")


def test_custom_kernel_by_name_is_refused_without_its_parameters(rows):
    with pytest.raises(
        ParameterError, match=r"'cauchy of tests' has the parameter width.*kernel=Cauchy\("
    ):
        bigsvm.SVC(kernel="cauchy of tests").fit(*rows)


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (lambda dots: 1.0, "float; it must"),
        (lambda dots: dots.tolist(), "list; it must"),
        (lambda dots: dots[:, :1], r"array of shape \(\d+, 1\) of float64"),
        (lambda dots: dots[:1], r"array of shape \(1, \d+\) of float64"),
        (lambda dots: dots.ravel(), r"array of shape \(\d+,\) of float64"),
        (lambda dots: dots + 1j, "of complex128"),
        (lambda dots: dots.astype(str), "of <U"),
    ],
    ids=["a number", "a list", "a column", "a row", "flat", "complex", "text"],
)
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_a_formula_that_gives_something_else_is_named(rows, returned, words, form, monkeypatch):
    X, y = rows
    values = Cauchy.from_products
    monkeypatch.setattr(
        Cauchy, "from_products", lambda self, *products: returned(values(self, *products))
    )
    with pytest.raises(
        ParameterError, match=f"the kernel cauchy of tests returns .*{words}.*shape of the"
    ):
        bigsvm.SVC(kernel=Cauchy(), n_jobs=2).fit(form(X), y)


@pytest.mark.parametrize(
    "formulation", [bigsvm.SVR, bigsvm.NuSVR, bigsvm.OneClassSVM, bigsvm.NuSVC]
)
def test_every_formulation_takes_custom_kernels(rows, formulation):
    X, y = rows
    for options, _ in CASES:
        assert formulation(**options).fit(X, y).converged_


@pytest.fixture
def _registry(monkeypatch):
    """Forgets the kernels that a test defines."""
    monkeypatch.setattr("bigsvm.kernels.KERNELS", dict(KERNELS))


@pytest.mark.fault("dropped-parameters")
@pytest.mark.usefixtures("_registry")
def test_a_parameter_that_repr_does_not_show_is_in_the_fingerprint(rows, tmp_path):
    @dataclass(frozen=True, kw_only=True)
    class Hidden(Cauchy):
        name = "hidden"
        width: float = field(default=1.0, repr=False)

    bigsvm.SVC(kernel=Hidden(width=0.7), checkpoint=tmp_path / "run").fit(*rows)
    with pytest.raises(CheckpointError, match=r"kernel \(checkpoint: .*width=0\.7.*width=2\.0"):
        bigsvm.SVC(kernel=Hidden(width=2.0), checkpoint=tmp_path / "run").fit(*rows)


@pytest.mark.fault("dropped-parameters")
@pytest.mark.usefixtures("_registry")
@pytest.mark.parametrize("estimator", [bigsvm.SVC, bigsvm.SVR, bigsvm.OneClassSVM])
def test_a_kernel_that_depends_on_more_than_its_fields_is_refused(rows, estimator):
    """It was trained with, and a saved model of it was another one when loaded."""

    class Attribute(Cauchy):
        name = "attribute"

        def __init__(self, scale=1.0):
            super().__init__(width=scale)
            object.__setattr__(self, "scale", scale)

    class Needed(Cauchy):
        name = "needed"

        def __init__(self, scale):
            object.__setattr__(self, "scale", scale)

    for kernel in (Attribute(2.0), Needed(1.0)):
        with pytest.raises(ParameterError, match="depends on 'scale', which is no field of"):
            estimator(kernel=kernel).fit(*rows)


@pytest.mark.usefixtures("_registry")
def test_kernel_may_keep_values_derived_from_its_fields(rows):
    @dataclass(frozen=True, kw_only=True)
    class Derived(Cauchy):
        name = "derived"

        def __post_init__(self):
            object.__setattr__(self, "squared", self.width**2)

        @functools.cached_property
        def half(self):
            return self.width / 2

    kernel = Derived(width=0.7)
    assert kernel.half == 0.35
    assert bigsvm.SVC(kernel=kernel).fit(*rows).converged_


@dataclass(frozen=True, kw_only=True)
class Hellinger(Cauchy):
    """Only for rows without negative values."""

    name = "hellinger"

    def check_rows(self, values):
        if values.min(initial=0) < 0:
            raise DataError(f"a row has the value {values.min():g}; it must not be negative")


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_a_kernel_refuses_rows_in_training_and_in_prediction(rows, form, dtype, n_classes):
    X = np.abs(rows[0]).astype(dtype)
    wrong = X.copy()
    wrong[150, 3] = -0.25
    y = np.arange(300) % n_classes
    fitted = bigsvm.SVC(kernel=Hellinger()).fit(form(X), y)
    assert fitted.predict(form(X)).shape == (300,)
    with pytest.raises(DataError, match=r"a row has the value -0.25; it must not be negative"):
        fitted.predict(form(wrong))
    with pytest.raises(DataError, match=r"a row has the value -0.25; it must not be negative"):
        bigsvm.SVC(kernel=Hellinger()).fit(form(wrong), y)


BUILT_IN = list(get_args(names.KernelName))


@pytest.mark.usefixtures("_registry")
@pytest.mark.parametrize("name", [*BUILT_IN, "cauchy of tests"])
def test_a_class_with_the_name_of_another_kernel_is_refused_where_it_is_defined(name, rows):
    held = KERNELS[name]
    with pytest.raises(
        ParameterError, match=f"has the name '{name}', which is that of .*{held.__name__}"
    ):
        type("Own", (bigsvm.Kernel,), {"name": name, "from_products": Cauchy.from_products})
    with pytest.raises(ParameterError, match="give it another name"):
        type(held.__name__, (Cauchy,), {"name": name, "__module__": "elsewhere"})
    assert kernels.KERNELS[name] is held


def cell(source):
    """Run a cell as a notebook does; returns the class that it defines."""
    space = {"__name__": "__main__", "np": np, "bigsvm": bigsvm, "dataclass": dataclass}
    exec(source, space)
    return space["Edited"]


EDITED = """
@dataclass(frozen=True, kw_only=True, slots=SLOTS)
class Edited(bigsvm.Kernel):
    name = "edited"
    width: float = 1.0
    def from_products(self, dots, norms_rows, norms_columns):
        return FACTOR * np.asarray(dots)
"""


@pytest.mark.usefixtures("_registry")
@pytest.mark.parametrize("slots", ["False", "True"])
def test_a_cell_that_is_run_again_replaces_its_kernel(slots, rows):
    source = EDITED.replace("SLOTS", slots)
    for factor in ("1", "1", "2"):
        kind = cell(source.replace("FACTOR", factor))
        assert kernels.KERNELS["edited"] is kind
        assert bigsvm.SVC(kernel=kind()).fit(*rows).converged_


@pytest.mark.usefixtures("_registry")
def test_a_class_with_slots_may_be_defined_in_a_function(rows):
    @dataclass(frozen=True, kw_only=True, slots=True)
    class Slotted(bigsvm.Kernel):
        name = "slotted"
        width: float = 1.0

        def from_products(self, dots, norms_rows, norms_columns):
            return self.width * np.asarray(dots)

    assert kernels.KERNELS["slotted"] is Slotted
    assert bigsvm.SVC(kernel=Slotted()).fit(*rows).converged_


@pytest.mark.usefixtures("_registry")
@pytest.mark.parametrize("base", [Cauchy, kernels.RBF])
def test_a_class_without_a_name_of_its_own_is_not_trained_with(base, rows):
    """A saved model of it would be loaded with the formula of the other class."""

    class Unnamed(base):
        def from_products(self, dots, norms_rows, norms_columns):
            return np.asarray(dots)

    kernel = Unnamed() if base is Cauchy else Unnamed(gamma=1.0)
    with pytest.raises(ParameterError, match="Unnamed has no name of its own, but that of"):
        bigsvm.SVC(kernel=kernel).fit(*rows)


@pytest.mark.usefixtures("_registry")
def test_the_formula_of_a_class_derived_from_a_built_in_one_is_used(rows):
    """Compiled code of the built-in kernel was."""

    class Flat(kernels.RBF):
        name = "flat"

        def from_products(self, dots, norms_rows, norms_columns):
            return np.exp(
                -0.01 * self.gamma * np.asarray(np.add.outer(norms_rows, norms_columns) - 2 * dots)
            )

    X, y = rows
    ours = bigsvm.SVC(kernel=Flat(gamma=1.0), tol=1e-6).fit(X, y)
    peer = peers.SVC(gamma=0.01, tol=1e-6).fit(X, y)
    np.testing.assert_allclose(ours.decision_function(X), peer.decision_function(X), atol=1e-3)


@pytest.mark.slow
@pytest.mark.usefixtures("_registry")
@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_model_says_that_its_kernel_computes_something_else_now(rows, n_classes, tmp_path):
    X, y = rows[0], np.arange(300) % n_classes
    source = EDITED.replace("SLOTS", "False")
    one = bigsvm.SVC(kernel=cell(source.replace("FACTOR", "1"))()).fit(X, y)
    one.save(tmp_path / "m")
    cell(source.replace("FACTOR", "1"))
    same = bigsvm.load(tmp_path / "m")
    cell(source.replace("FACTOR", "2"))
    for load in (bigsvm.load, KernelExpansion.load):
        with pytest.warns(UserWarning, match="kernel 'edited' computes something else now") as told:
            load(tmp_path / "m")
        assert len(told) == 1
    same.save(tmp_path / "again")
    with pytest.warns(UserWarning, match="computes something else now"):
        bigsvm.load(tmp_path / "again")


@pytest.mark.usefixtures("_registry")
def test_a_model_without_a_record_of_its_kernel_is_loaded_silently(rows, tmp_path):
    """Models of earlier versions, and those of another version of Python, cannot be compared."""
    source = EDITED.replace("SLOTS", "False")
    model = bigsvm.SVC(kernel=cell(source.replace("FACTOR", "1"))()).fit(*rows).model_
    assert model.provenance["kernel"].startswith(PYTHON)
    cell(source.replace("FACTOR", "2"))
    others = {name: value for name, value in model.provenance.items() if name != "kernel"}
    for provenance in (others, {**others, "kernel": "2.7-0"}):
        replace(model, provenance=provenance).save(tmp_path / "m")
        KernelExpansion.load(tmp_path / "m")  # a warning is an error here
    replace(model, provenance={**others, "kernel": 7}).save(tmp_path / "m")
    with pytest.raises(ModelError, match="kernel of provenance is 7"):
        KernelExpansion.load(tmp_path / "m")
    assert "kernel" not in bigsvm.SVC().fit(*rows).model_.provenance
