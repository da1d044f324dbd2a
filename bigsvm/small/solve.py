"""LIBSVM, by scikit-learn's public classes, on a kernel matrix.

LIBSVM has unsigned variables and labels, bigsvm signed ones: ``alpha = y a``. ν-SVC's are divided
by ρ there, which is undone by what they have to add up to.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn import config_context
from sklearn.exceptions import ConvergenceWarning

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sklearn.svm._base import BaseLibSVM

    from bigsvm.arrays import F8
    from bigsvm.duals.box_problem import Formulation
    from bigsvm.parameters import TrainingParameters

SHARE = 0.9
"""LIBSVM's tolerance, as a share of that asked for: it has kernel values in float32."""
STEPS_BY_ROWS = 400_000_000
"""Most pair steps times rows. LIBSVM can not be interrupted, and takes about half a second for so
many; a problem that takes more is ill-conditioned, and the usual run goes on with it."""
MOST_STEPS = 2_000_000
"""Most pair steps of few rows, for the same reason."""


def solve(
    parameters: TrainingParameters,
    matrix: F8,
    answers: NDArray[Any] | None,
    bounds: F8 | None,
) -> BaseLibSVM | None:
    """Have scikit-learn fit a kernel matrix.

    Parameters
    ----------
    parameters : TrainingParameters
    matrix : (n, n) float64
    answers : (n,) array or None
        Numbers of the classes, or targets.
    bounds : (n,) float64 or None
        Factors of C of the rows, all above 0; None where all are 1.

    Returns
    -------
    scikit-learn estimator, or None
        None where it refuses the problem.
    """
    # scikit-learn's module takes some time to import, and other fits do without.
    from sklearn import svm

    n_rows = len(matrix)
    given: dict[str, Any] = {
        # A matrix that a function returns is checked less than one that is given.
        "kernel": lambda *_: matrix,
        "tol": SHARE * parameters.tol,
        "max_iter": min(MOST_STEPS, STEPS_BY_ROWS // n_rows),
    }
    match parameters.formulation:
        case "c-svc":
            estimator: Any = svm.SVC(C=parameters.C, **given)
        case "nu-svc":
            estimator = svm.NuSVC(nu=parameters.nu, **given)
        case "one-class":
            estimator = svm.OneClassSVM(nu=parameters.nu, **given)
        case "eps-svr":
            estimator = svm.SVR(C=parameters.C, epsilon=parameters.epsilon, **given)
        case _:
            estimator = svm.NuSVR(C=parameters.C, nu=parameters.nu, **given)
    checked = config_context(assume_finite=True, skip_parameter_validation=True)
    with checked, warnings.catch_warnings():
        # Whether it has converged is found out here.
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            if parameters.formulation == "one-class":
                return estimator.fit(matrix, sample_weight=bounds)
            return estimator.fit(matrix, answers, sample_weight=bounds)
        except ValueError:
            # Such as a nu that is feasible by a rounding error.
            return None


def alpha_of(solved: BaseLibSVM, problem: Formulation) -> F8:
    """Variables of all rows, (n,) or (n, 2), of a problem of one function."""
    alpha = problem.zeros(solved.shape_fit_[0])
    beta = np.asarray(solved.dual_coef_)[0]
    if problem.n_faces > 1:
        alpha[solved.support_, 0] = np.maximum(beta, 0.0)
        alpha[solved.support_, 1] = np.minimum(beta, 0.0)
        return alpha
    alpha[solved.support_] = beta
    sums = problem.sums(slice(None)) if problem.n_groups > 1 else None
    if sums is not None:
        for part, wanted in zip(problem.split(alpha, slice(None)), sums, strict=True):
            total = float(part.sum())
            if total:
                alpha[part != 0] *= wanted / total
    return alpha
