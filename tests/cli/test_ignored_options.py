"""No option is silently ignored: it changes the result, or is refused in one sentence."""

import functools
import json
import re

import numpy as np
import pytest
import scipy.sparse as sp
import typer
from command_line import error_of, run_here

import bigsvm
from bigsvm.cli import app
from bigsvm.errors import ParameterError
from bigsvm.models import KernelExpansion
from bigsvm.parameters import FIELDS
from bigsvm.parameters.declaration import declaration_of
from bigsvm.parameters.formulations import BALLS, FORMULATIONS

COMMANDS = typer.main.get_command(app).commands
CHANGES = {
    "loss": "squared_hinge", "C": "7", "nu": "0.3", "epsilon": "0.3", "solver": "cvm",
    "sampling": "7", "empty_samples": "3", "first_points": "pair", "ball_tol": "0.3",
    "certify": None, "subproblem": "fixed-point",
    "order": "worst", "cooling": "log", "fit_intercept": None, "gamma": "2", "kernel": "linear",
    "degree": "2",
    "coef0": "0.7", "tol": "0.5", "class_weight": "balanced", "multiclass": "ovr",
    "calibration": "sigmoid", "selection": "mvp", "working_set": "all", "seed": "5",
    "shrinking": None, "rows_at_once": "1", "memory": "9MB", "max_iter": "1",
    "disk_cache": "9MB", "cache_dir": "cache",
    "checkpoint_every": "1s", "zero_based": "yes",
}  # fmt: skip
"""Another value of each option of `train` that may change a model."""
LIMITS = {
    "threads", "max_seconds", "formulation", "checkpoint", "checkpoint_copy", "exact_objective",
}  # fmt: skip
"""Limits, a checkpoint and an exact objective apply to every run; the test loops over the
formulation."""
SPELLED = {
    "certify": "--no-certify",
    "shrinking": "--no-shrinking",
    "fit_intercept": "--fit-intercept",
}
AT_SIZE = ("seed", "working_set", "selection", "shrinking", "rows_at_once")
"""They matter where rows do not all fit, and are looked at there."""
STORES = {"eps-svr": "values", "nu-svr": "values", "crammer-singer": "three"}


def option(name):
    return SPELLED.get(name, f"--{name.replace('_', '-')}")


def write(folder, n_rows):
    """Stores of two and three classes and of values, of the same rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 6)).astype(np.float32)
    values = X[:, 0] + 0.7 * rng.normal(size=n_rows)
    bigsvm.write_store(folder / "two.zarr", X, np.where(values > 0, 1.0, -1.0))
    bigsvm.write_store(folder / "three.zarr", X, np.digitize(values, [-0.5, 0.5]).astype(float))
    bigsvm.write_store(folder / "values.zarr", X, values)
    return folder


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return write(tmp_path_factory.mktemp("small"), 240)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    return write(tmp_path_factory.mktemp("large"), 2500)


@functools.cache
def trained(store, *arguments):
    """What a run makes and shows, without times; or the sentence it is refused with."""
    model = store.parent / "model"
    ended = run_here("train", store, model, "--threads", "1", *arguments, code=None)
    if ended.exit_code == 2:
        [*_, line] = ended.stderr.splitlines()
        return line
    assert ended.exit_code == 0, ended.stderr
    made = KernelExpansion.load(model)
    parts = (made.support, made.coefficients, made.intercept)
    parts = [p.toarray() if sp.issparse(p) else np.asarray(p) for p in parts]
    certificate = dict(made.certificate)
    for name in ("seconds", "seconds_by_phase", "cpu_idle", "bytes_read"):
        certificate.pop(name, None)
    shown = re.sub(r"[\d.]+ s\b|threads waited.*", "", ended.stderr)
    return (
        *((part.shape, part.tobytes()) for part in parts),
        json.dumps(certificate, default=str),
        made.rule,
        made.calibration,
        shown,
    )


def is_refused(outcome):
    return isinstance(outcome, str) and outcome.startswith("bigsvm: error: ")


def walked(folder, formulation, name, *context):
    """Outcomes without and with an option, or None where `context` has it already."""
    store = folder / f"{STORES.get(formulation, 'two')}.zarr"
    if name == "multiclass" and formulation in ("c-svc", "nu-svc", "l2-svc"):
        store = folder / "three.zarr"
    base = ("--formulation", formulation, *context)
    value = CHANGES[name]
    given = [option(name)] if value is None else [option(name), value]
    return trained(store, *base), trained(store, *base, *given)


def test_the_walk_knows_every_option_of_training():
    options = {name for name, field in FIELDS.items() if declaration_of(field).panel is not None}
    assert set(CHANGES) | LIMITS == options | {"zero_based"}


@pytest.mark.fault("dropped-parameters")
@pytest.mark.parametrize(
    "context",
    [
        (),
        pytest.param(("--kernel", "poly"), marks=pytest.mark.slow),
        pytest.param(("--working-set", "all"), marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    "formulation",
    [
        pytest.param(name, marks=pytest.mark.slow) if name == "crammer-singer" else name
        for name in FORMULATIONS
    ],
)
def test_an_option_of_training_changes_something_or_is_refused(
    small, formulation, context, monkeypatch
):
    monkeypatch.chdir(small)
    for name in CHANGES:
        if name in AT_SIZE or option(name) in context:
            continue
        if name == "disk_cache" and formulation in BALLS:
            continue  # of rows that a search leaves to pair steps: tests/estimators/test_l2_svc.py
        without, having = walked(small, formulation, name, *context)
        assert not is_refused(without)
        assert is_refused(having) or having != without, (name, "is ignored")


@pytest.mark.fault("dropped-parameters")
@pytest.mark.parametrize(
    "formulation",
    ["c-svc", "nu-svr", "l2-svc", pytest.param("crammer-singer", marks=pytest.mark.slow)],
)
def test_no_option_is_ignored_beside_a_linear_kernel(small, formulation):
    for name in ("gamma", "degree", "coef0"):
        without, having = walked(small, formulation, name, "--kernel", "linear")
        assert not is_refused(without)
        assert is_refused(having)
        assert f"--{name} is for " in having
        assert "means nothing for linear" in having


@pytest.mark.slow
@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_options_for_rows_that_do_not_all_fit(large, formulation):
    for name in AT_SIZE:
        without, having = walked(large, formulation, name, "--memory", "6MB")
        assert not is_refused(without)
        assert is_refused(having) or having != without, (name, "is ignored")


@pytest.mark.fault("dropped-parameters")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("train", "S", "m", "--disk-cache", "1MB"), "kernel rows of --working-set all"),
        (
            ("train", "S", "m", "--working-set", "all", "--formulation", "l2-svc", "--no-certify"),
            "leave one of the two out",
        ),
        (("train", "S", "m", "--shrinking"), "--shrinking is for --working-set all"),
        (("train", "S", "m", "--no-shrinking"), "--shrinking is for --working-set all"),
        (("train", "S", "m", "--rows-at-once", "1"), "kernel rows of --working-set all"),
        (
            ("train", "S", "m", "--shrinking", "--working-set", "all", "--disk-cache", "9MB"),
            "--disk-cache keeps whole ones; leave one",
        ),
        (
            ("train", "S", "m", "--no-shrinking", "--working-set", "all", "--formulation",
             "l2-svc", "--no-certify"),
            "without a certificate there are none",
        ),
        (("train", "S", "m", "--checkpoint-every", "5s"), "name a --checkpoint"),
        (("train", "S", "m", "--zero-based", "no"), "--zero-based is for LIBSVM text, and"),
        (("train", "S", "m", "--cache-dir", "c"), "--cache-dir is for LIBSVM text, and"),
        (
            ("train", "S", "m", "--selection", "mvp", "--formulation", "l2-svc", "--no-certify"),
            "a search for a ball with --no-certify needs none",
        ),
        (("predict", "S", "M", "--memory", "5kB"), "and blocks of rows need some more; give"),
        (("predict", "S", "M", "--cache-dir", "c"), "--cache-dir is for LIBSVM text"),
        (("predict", "S", "M", "--zero-based", "auto"), "--zero-based is for LIBSVM text"),
        (("predict", "S", "M", "--decision-function"), "--decision-function needs --output"),
        (("predict", "S", "M", "--probability"), "--probability needs --output"),
        (("scale", "S", "o.zarr", "--cache-dir", "c"), "--cache-dir is for LIBSVM text"),
        (("scale", "S", "o.zarr", "--zero-based", "no"), "--zero-based is for LIBSVM text"),
        (("scale", "S", "o.zarr", "--method", "standard", "--lower", "0"), "limits of minmax"),
        (("inspect", "M", "S", "--memory", "64MB"), "--memory is for LIBSVM text"),
        (("inspect", "M", "S", "--side", "2", "--json"), "draws nothing"),
        (("convert", "T", "o.zarr", "--no-shuffle", "--seed", "3"), "--no-shuffle does without"),
        (("convert", "T", "o.zarr", "--dense", "--sparse"), "give one of --dense"),
    ],
)  # fmt: skip
def test_option_without_an_effect_beside_others_is_refused(
    data, tmp_path, monkeypatch, arguments, words
):
    monkeypatch.chdir(tmp_path)
    names = {"S": data / "test.zarr", "M": data / "model", "T": data / "test.libsvm"}
    assert words in error_of(*(names.get(word, word) for word in arguments))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.fault("dropped-parameters")
@pytest.mark.parametrize("estimator", [bigsvm.SVC, bigsvm.NuSVR, bigsvm.CrammerSingerSVC])
def test_python_refuses_room_for_kernel_rows_that_nobody_keeps(rows, estimator):
    words = "disk_cache keeps the kernel rows of working_set=.* less time to compute than to read"
    with pytest.raises(ParameterError, match=words):
        estimator(disk_cache="1MB").fit(*rows)
    estimator(disk_cache=0).fit(*rows)


@pytest.mark.fault("dropped-parameters")
def test_python_refuses_shrinking_that_no_run_looks_at(rows):
    X, y = rows
    with pytest.raises(ParameterError, match="disk_cache keeps whole ones"):
        bigsvm.SVC(shrinking=True, working_set="all", disk_cache="9MB").fit(X, y)
    many = np.arange(len(X)) % 3
    with pytest.raises(ParameterError, match="kernel rows that all functions share"):
        bigsvm.SVC(shrinking=True, working_set="all", multiclass="ovr").fit(X, many)
    bigsvm.SVC(shrinking=True).fit(X, y)  # scikit-learn's default


def test_python_is_as_silent_as_scikit_learn(rows):
    bigsvm.SVC(kernel="linear", degree=5, coef0=2.0, gamma=3.0).fit(*rows)


def test_the_words_beside_text_are_taken(data, tmp_path):
    """The same options, where there is text."""
    more = ("--cache-dir", tmp_path / "c", "--zero-based", "no", "--memory", "64MB")
    run_here("train", data / "train.libsvm", tmp_path / "m", *more)
    run_here("predict", data / "test.libsvm", tmp_path / "m", *more)
    run_here("scale", data / "test.libsvm", tmp_path / "s.zarr", *more)
