"""The verdict on a case of the random check: refused in one sentence, right, wrong, or raw.

``judge(case)`` fits, predicts and saves, and holds all of it to `attacks.oracle`.
"""

from __future__ import annotations

import os
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from attacks import oracle
from attacks.cases import ONE_CLASS, REGRESSIONS, contained, dense, fitted, rows_of

import bigsvm
from bigsvm.errors import BigsvmError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attacks.cases import Fitted, Rows
    from numpy.typing import NDArray

    F8 = NDArray[np.float64]

LONGEST = 400
"""Characters of a sentence."""
UNCERTIFIED = ("interrupted", "callback", "time_limit", "sampled", "core_full")
"""Ends whose certificate has figures of float32, or of an earlier point."""


class Ended(NamedTuple):
    """How a case ended: "right", "refused", "wrong" or "raw", and why in words."""

    how: str
    why: str = ""


def judge(case: dict[str, Any], *, kill_at: int | None = None) -> Ended:
    """Run a case and hold its result to the oracle; or end this process at an event of the fit.

    Its way is that of small problems, where it says so, or our own solver's.
    """
    os.environ["BIGSVM_SMALL"] = "auto" if case.get("way") == "small" else "never"
    try:
        with tempfile.TemporaryDirectory() as name:
            rows, folder = rows_of(case), Path(name)
            try:
                found = fitted(case, rows, folder, kill_at=kill_at)
            except (BigsvmError, ValueError, TypeError) as error:
                return refusal(error)
            if case.get("spoil"):
                return Ended("wrong", f"{case['spoil']} was not refused")
            faults = list(checked(case, found, rows, folder))
    except AssertionError as error:
        return Ended("wrong", str(error))
    except Exception:
        return Ended("raw", traceback.format_exc(limit=-4))
    return Ended("wrong", "; ".join(faults)) if faults else Ended("right")


def refusal(error: Exception) -> Ended:
    """Judge a refusal: one sentence, and not an error of Python's own."""
    text = str(error)
    innermost = traceback.extract_tb(error.__traceback__)[-1].filename
    if not (isinstance(error, BigsvmError) or "sklearn" in innermost):
        return Ended("raw", "".join(traceback.format_exception(error, limit=-4)))
    is_own = isinstance(error, BigsvmError)
    if is_own and ("\n" in text or not 0 < len(text) <= LONGEST):
        return Ended("wrong", f"refused in {len(text)} characters: {text[:600]!r}")
    return Ended("refused", f"{type(error).__name__}: {text}")


def checked(case: dict[str, Any], found: Fitted, rows: Rows, folder: Path) -> Iterator[str]:
    """Yield what is wrong with a fitted estimator."""
    model, reason = found.estimator, found.estimator.stop_reason_
    for category, text in found.warned:
        if not issubclass(category, UserWarning) or "\n" in text or len(text) > LONGEST:
            yield f"{category.__name__}: {text[:600]!r}"
    if model.converged_ != (reason == "converged"):
        yield f"converged_ is {model.converged_} with {reason}"
    said = any("did not converge" in text for _, text in found.warned)
    if reason != "sampled" and said == model.converged_:
        yield f"converged_ is {model.converged_}, and that it did not converge was said: {said}"
    kernel = dict(model.model_.kernel.describe())
    centre = (
        None if found.is_sparse or kernel["name"] == "cauchy of attacks" else found.X.mean(axis=0)
    )
    yield from _gamma(case, found, kernel)
    others = np.arange(len(found.X)) if kernel["name"] == "precomputed" else found.X
    K = oracle.gram(found.X, others, kernel, centre=centre)
    if case["formulation"] == "l2-svc" or case["params"].get("fit_intercept"):
        K = oracle.Gram(K.values + 1.0, K.terms + 1.0)
    if case["params"].get("calibration") is None:
        yield from _point(case, found, K)
    yield from _values(case, found, rows, kernel, centre, folder)


def _gamma(case: dict[str, Any], found: Fitted, kernel: dict[str, Any]) -> Iterator[str]:
    asked, d = case["params"].get("gamma", "scale"), found.X.shape[1]
    if "gamma" not in kernel or case["params"].get("calibration"):
        return
    if asked == "scale":
        mean = np.average(found.X.mean(axis=1), weights=found.weights)
        variance = np.average(((found.X - mean) ** 2).mean(axis=1), weights=found.weights)
        # Columns that are alike in all rows leave rounding.
        asked = 1.0 if variance <= 1e-28 * mean**2 else 1.0 / (d * variance)
    elif asked == "auto":
        asked = 1.0 / d
    elif isinstance(asked, str):
        return
    if isinstance(asked, list):
        if list(kernel["gamma"]) != asked:
            yield f"gamma is {kernel['gamma']!r}, not {asked!r}"
    elif not abs(kernel["gamma"] - asked) <= 1e-6 * asked:
        yield f"gamma is {kernel['gamma']!r}, not {asked!r}"


class Function(NamedTuple):
    """The problem of one function: its rows, their signs or targets, and their bounds."""

    rows: NDArray[np.int64]
    target: F8
    bound: F8


def class_bounds(case: dict[str, Any], found: Fitted, codes: NDArray[np.int64], k: int) -> F8:
    """Bounds of all rows by their class and weight, (n,); of two sides, as of many classes."""
    given, weight = case["params"].get("class_weight"), np.ones(k)
    if given == "balanced":
        counts = np.bincount(codes[found.weights > 0], minlength=k)
        weight = counts.sum() / (np.count_nonzero(counts) * np.maximum(counts, 1))
    elif given is not None:
        of = dict(map(tuple, given))
        weight = np.array([of.get(label, 1.0) for label in found.estimator.classes_.tolist()])
    weights = weight[codes] * found.weights
    C = getattr(found.estimator, "C", 1.0)
    return np.multiply(C, weights, out=np.zeros(len(codes)), where=weights > 0)


def functions_of(
    case: dict[str, Any], found: Fitted, codes: NDArray[np.int64]
) -> Iterator[Function]:
    """State the problem of each function; of some labels a pair, or one against the rest."""
    formulation, every = case["formulation"], np.arange(len(found.y))
    if formulation in (*REGRESSIONS, *ONE_CLASS):
        bound = class_bounds(case, found, np.zeros(len(every), np.int64), 1)
        is_regression = formulation in REGRESSIONS
        target = found.y.astype(np.float64) if is_regression else np.ones(len(every))
        yield Function(every, target, bound)
        return
    rule, k = found.estimator.model_.rule, len(found.estimator.classes_)
    bound = class_bounds(case, found, codes, k)
    if rule == "ovr":
        for r in range(k):
            sides = (codes == r).astype(np.int64)
            if case["params"].get("class_weight") == "balanced":
                bound = class_bounds(case, found, sides, 2)
            yield Function(every, np.where(sides == 1, 1.0, -1.0), bound)
        return
    for first, second in oracle.pairs(k):
        rows = np.flatnonzero((codes == first) | (codes == second))
        yield Function(rows, np.where(codes[rows] == second, 1.0, -1.0), bound[rows])


def _point(case: dict[str, Any], found: Fitted, K: oracle.Gram) -> Iterator[str]:
    """Hold box, sums, gaps and objective to the certificate."""
    model, formulation = found.estimator, case["formulation"]
    expansion, certificate = model.model_, model.certificate_
    if case["params"].get("loss") == "squared_hinge":
        formulation += " squared hinge"
    beta = np.zeros((len(found.y), np.size(expansion.intercept)))
    beta[expansion.support] = dense(expansion.coefficients).reshape(-1, beta.shape[1])
    if not (np.isfinite(beta).all() and np.isfinite(expansion.intercept).all()):
        yield "a coefficient or an intercept is not finite"
        return
    codes = np.zeros(len(beta), np.int64)
    if hasattr(model, "classes_"):
        codes = np.searchsorted(model.classes_, found.y)
    if formulation == "crammer-singer":
        bound = class_bounds(case, found, codes, beta.shape[1])
        kept = np.unique(codes[bound > 0])  # classes without a weight are left out
        places = np.minimum(np.searchsorted(kept, codes), len(kept) - 1)
        standings = [oracle.standing_of_classes(K, beta[:, kept], places, bound)]
    else:
        standings = []
        for column, function in enumerate(functions_of(case, found, codes)):
            intercept = float(np.ravel(expansion.intercept)[column])
            of_rows = beta[function.rows, column]
            if np.count_nonzero(beta[:, column]) != np.count_nonzero(of_rows):
                yield f"function {column} has coefficients of rows that are not its own"
            sides = {float(side) for side in function.target[function.bound > 0]}
            is_of_sides = formulation not in (*REGRESSIONS, *ONE_CLASS)
            if (is_of_sides and len(sides) < 2) or not (of_rows.any() or model.converged_):
                continue  # a class was left out, or the function was never begun
            extra = {"epsilon": certificate.get("epsilon")}
            if formulation == "nu-svc":
                extra["rho"], fault = _rho(model, function, of_rows)
                if fault:
                    yield fault
            part = oracle.Gram(*(M[np.ix_(function.rows, function.rows)] for M in K))
            made = oracle.variables(
                formulation, of_rows, intercept, function.target, function.bound,
                model.get_params(deep=False), extra,
            )  # fmt: skip
            one = oracle.standing(part, made)
            if formulation == "nu-svc" and extra["rho"] == 0:
                # The thresholds may have crossed, and only their middle is known.
                one = one._replace(duality_gap_error=np.inf)
            if formulation == "nu-svr":
                size, most = np.abs(of_rows).sum(), model.nu * function.bound.sum()
                one = one._replace(objective=one.objective + extra["epsilon"] * size)
                is_full = size >= most * (1 - 1e-9)
                if size > most * (1 + 1e-9) or not (
                    is_full or not model.converged_ or extra["epsilon"] <= 2 * model.tol
                ):
                    yield f"sums: |beta| adds up to {size:.9g}, and nu asks for {most:.9g}"
                if not is_full:
                    one = one._replace(objective_error=np.inf, duality_gap_error=np.inf)
            standings.append(one)
    for one in standings:
        yield from one.faults
    yield from _certificate(case, model, standings)


def _rho(model: Any, function: Function, beta: F8) -> tuple[float, str]:
    """Rho of a function of nu-svc, by which its coefficients were divided."""
    totals = [function.bound[function.target * side > 0].sum() for side in (-1, 1)]
    rho = min(0.5 * model.nu * sum(totals), *totals) / max(beta[function.target > 0].sum(), 1e-300)
    said = model.certificate_.get("rho")
    if said is None:  # of many functions: 0 where nothing was divided
        return (0.0 if abs(rho - 1) <= 1e-9 else rho), ""
    fault = "" if abs(rho - (said or 1.0)) <= 1e-9 * rho else f"rho is {said}, not {rho}"
    return said, fault


def _certificate(
    case: dict[str, Any], model: Any, standings: list[oracle.Standing]
) -> Iterator[str]:
    """Hold the gaps and the objective that the certificate says to those of the point."""
    said, formulation = model.certificate_, case["formulation"]
    if model.converged_:
        times = 2.0 if formulation == "nu-svr" else 1.0  # two groups, each within tol of its own
        for one in standings:
            if not one.gap <= times * model.tol + one.gap_error:
                error = f"{one.gap_error=:.2g}"
                yield f"KKT gap {one.gap:.6g} of a converged run, tol {model.tol:g}, {error}"
    if said["stop_reason"] in UNCERTIFIED:
        return
    if not standings or said["gap"] is None:
        return
    gap, gap_error = max((one.gap, one.gap_error) for one in standings)
    most, most_error = max((one.most_gap, one.gap_error) for one in standings)
    if formulation != "nu-svr" and not gap - gap_error <= said["gap"] <= most + most_error:
        yield f"gap_ is {said['gap']:.9g}, but {gap:.9g} by the oracle, {gap_error=:.2g}"
    for name in ("objective", "duality_gap"):
        found = sum(getattr(one, name) for one in standings)
        error = sum(getattr(one, f"{name}_error") for one in standings)
        if said[name] is not None and not abs(found - said[name]) <= error:
            yield f"{name}_ is {said[name]:.12g}, but {found:.12g} by the oracle, {error=:.2g}"


def _values(
    case: dict[str, Any],
    found: Fitted,
    rows: Rows,
    kernel: dict[str, Any],
    centre: F8 | None,
    folder: Path,
) -> Iterator[str]:
    """Hold decision values, predictions, probabilities and the saved model to the oracle."""
    model, expansion = found.estimator, found.estimator.model_
    kind = case["predict_in"]
    held_out = np.asarray(rows.held_out, np.float64)
    if kernel["name"] == "precomputed":
        held_out, vectors = held_out[:, found.order], expansion.support
    else:
        vectors = found.X[expansion.support]
    if kind in ("csr", "csc", "coo"):
        centre = None
    K = oracle.gram(held_out, vectors, kernel, centre=centre)
    F, error = oracle.outputs(
        K, dense(expansion.coefficients), expansion.intercept,
        single=np.can_cast(rows.X.dtype, np.float32),
    )  # fmt: skip
    where, order = folder / "held out", {}
    where.mkdir()
    given: Any
    if kind == "shuffled":
        given, order = str(where / "store"), {"order": "input"}
        bigsvm.write_store(given, rows.held_out, np.zeros(len(held_out)), memory="64MB")
    else:
        given = contained(kind, rows.held_out, where)
    values = np.asarray(expansion.decision_function(given))
    if kind == "shuffled":
        values = bigsvm.open_store(given).in_input_order(values)
    off = np.abs(values - F) - error
    if not (off <= 0).all():
        i = np.unravel_index(int(np.argmax(off)), off.shape)
        by = f"{values[i] - F[i]:.3g}, not {error[i]:.3g}"
        yield f"decision value of row {i[0]} is off by {by}, from {F[i]:.9g}"
        return
    predicted = np.asarray(model.predict(given, **order))
    yield from _predicted(case, model, values, predicted)
    model.save(folder / "model")
    again = bigsvm.load(folder / "model")
    if np.asarray(again.predict(given, **order)).tolist() != predicted.tolist():
        yield "the model that was saved predicts something else"
    if hasattr(model, "predict_proba"):
        shares = np.asarray(model.predict_proba(given, **order))
        if not ((shares >= 0).all() and np.allclose(shares.sum(axis=1), 1.0, rtol=0, atol=1e-12)):
            yield f"probabilities are from {shares.min()}, their sums {shares.sum(axis=1)[:5]}"


def _predicted(
    case: dict[str, Any], model: Any, values: F8, predicted: NDArray[Any]
) -> Iterator[str]:
    """Hold predictions, and the attributes of scikit-learn, to the values of the functions."""
    formulation, expansion = case["formulation"], model.model_
    if formulation in REGRESSIONS:
        expected: Any = values
    elif formulation in ONE_CLASS:
        expected = np.where(values >= 0, 1, -1)
    elif expansion.rule is None:
        expected = model.classes_[(values > 0).astype(int)]
    else:
        rule = "ovo-break-ties" if case["params"].get("break_ties") else expansion.rule
        expected = model.classes_[oracle.decide(values, rule, len(model.classes_))]
    if predicted.tolist() != np.asarray(expected).tolist():
        row = int(np.argmax(predicted != expected))
        yield f"row {row} is predicted as {predicted[row]!r}, not {expected[row]!r}"
    if expansion.rule is None:
        if not np.array_equal(np.ravel(dense(model.dual_coef_)), expansion.coefficients):
            yield "dual_coef_ is not that of the model"
    elif expansion.rule.startswith("ovo"):
        yield from _of_pairs(model)


def _of_pairs(model: Any) -> Iterator[str]:
    """Read the functions of pairs as scikit-learn's documentation says."""
    expansion, k = model.model_, len(model.classes_)
    of = dense(expansion.coefficients)
    dual, starts = dense(model.dual_coef_), np.concatenate([[0], np.cumsum(model.n_support_)])
    for number, (first, second) in enumerate(oracle.pairs(k)):
        beta = np.zeros(int(expansion.support.max(initial=-1)) + 1)
        for own, other in ((first, second), (second, first)):
            part = slice(starts[own], starts[own + 1])
            beta[model.support_[part]] = dual[other - (other > own), part]
        if not np.array_equal(beta[expansion.support], -of[:, number]):
            yield f"dual_coef_ of the pair {first}, {second} is not that of its function"
    if not np.array_equal(model.intercept_, -np.ravel(expansion.intercept)):
        yield "intercept_ is not that of the functions"
