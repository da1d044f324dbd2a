"""From decision values to probabilities: what a calibration is, and how it is fitted.

A support vector machine says on which side a row is, not how often it is right there. A calibration
learns that from rows that training has not seen, as the values of rows trained on are too good.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bigsvm.errors import DataError, ParameterError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Values = NDArray[np.float64]

METHODS = ("sigmoid", "isotonic")

SMALLEST_VALUE = 1e-250
"""Decision values below are 0: the inverse of their differences would leave float64."""
SAME_VALUES = 1e-14
"""Spread of decision values, as a share of the largest, that is nothing but rounding."""


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Probability of the positive class, as a monotone function of the decision value v.

    Of many classes it is that of the second class of each pair, or of each class against the rest;
    `bigsvm.coupling` makes probabilities of the classes of these.

    Attributes
    ----------
    method : {"sigmoid", "isotonic"}
    numbers : (2, m) float64
        For a sigmoid, ``1 / (1 + exp(-(a v + b)))``, a and b; m is 1, or the number of functions
        where each has its own. For an isotonic calibration ascending decision values and their
        probabilities: linear between them, constant beyond.
    n_rows : int or None
        Rows it was fitted on; None where the model came from elsewhere.

    Raises
    ------
    ParameterError
        Numbers of another shape, that are not finite, or that are no monotone function to [0, 1].
    """

    method: str
    numbers: Values
    n_rows: int | None = None

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ParameterError(
                f"calibration is {self.method!r}; it must be one of {', '.join(METHODS)}"
            )
        if self.n_rows is not None and not (isinstance(self.n_rows, int) and self.n_rows > 0):
            raise ParameterError(f"a calibration fitted on {self.n_rows!r} rows")
        numbers = self.numbers
        n_columns = numbers.shape[1] if numbers.ndim == 2 and len(numbers) == 2 else 0
        if not n_columns:
            raise ParameterError(f"a {self.method} calibration of shape {numbers.shape}")
        if numbers.dtype != np.float64 or not np.isfinite(numbers).all():
            raise ParameterError("the numbers of a calibration must be finite, in float64")
        if self.method == "isotonic":
            x, probability = numbers
            ascending = (x[1:] > x[:-1]).all() and (probability[1:] >= probability[:-1]).all()
            if not ascending or probability[0] < 0 or probability[-1] > 1:
                raise ParameterError("an isotonic calibration must ascend, from 0 to 1 at most")

    def probability(self, values: Values) -> Values:
        """Probability of the positive class for decision values, in [0, 1].

        Parameters
        ----------
        values : (n,) or (n, n_functions) float64

        Returns
        -------
        float64 of the same shape
        """
        if self.method == "isotonic":
            probabilities: Values = np.interp(values, *self.numbers)
            return probabilities
        # Only where there are probabilities.
        from scipy.special import expit

        slope, offset = self.numbers
        with np.errstate(over="ignore", under="ignore"):
            probabilities = expit(slope * values + offset)
        return probabilities


def fit_calibration(
    method: str,
    values: Values,
    positive: NDArray[np.bool_],
    weights: Values | None = None,
) -> Calibration:
    """Fit a calibration to rows that the values do not come from.

    Parameters
    ----------
    method : {"sigmoid", "isotonic"}
    values : (n,) float64
        Decision values.
    positive : (n,) bool
        Which rows are of the positive class: some, not all.
    weights : (n,) float64, optional
        Positive; 2 is the row twice.

    Raises
    ------
    DataError
        A decision value is not finite.
    ParameterError
    """
    check_values(values)
    weights = np.ones(len(values)) if weights is None else weights
    values = np.where(np.abs(values) < SMALLEST_VALUE, 0.0, values)
    # A power of two, so that values come back to the bit.
    exponent = int(np.frexp(np.abs(values).max())[1])
    fit = _isotonic if method == "isotonic" else _sigmoid
    numbers = fit(np.ldexp(values, -exponent), positive, weights)
    numbers[0] = np.ldexp(numbers[0], exponent if method == "isotonic" else -exponent)
    return Calibration(method=method, numbers=numbers, n_rows=len(values))


def check_values(values: Values) -> None:
    """Refuse decision values that are not finite.

    Raises
    ------
    DataError
    """
    if not np.isfinite(values).all():
        raise DataError(
            "decision values of the rows held out for the calibration are not finite; scale the "
            "features, or choose another kernel"
        )


def platt_targets(of_class: Values) -> Values:
    """Targets of rows that are of a class, for sums of the weights of classes (Platt 1999)."""
    targets: Values = (of_class + 1) / (of_class + 2)
    return targets


def _sigmoid(values: Values, positive: NDArray[np.bool_], weights: Values) -> Values:
    """Fit slope and offset, (2, 1), to values in [-1, 1]: maximum likelihood of Platt's targets.

    With N+ and N- rows of the classes they are ``(N+ + 1) / (N+ + 2)`` and ``1 / (N- + 2)``, which
    keeps the slope finite where the values separate the classes (Platt 1999, section 2.2; Lin, Lin,
    Weng 2007). A slope below 0 would say that predictions are better turned round; as with an
    isotonic calibration, the probability is then the same for all rows.
    """
    # 10 MB that models without a calibration do without.
    from scipy import optimize
    from scipy.special import expit, logit

    of_positive, of_negative = weights[positive].sum(), weights[~positive].sum()
    target = np.where(positive, platt_targets(of_positive), 1 / (of_negative + 2))
    share = weights / weights.sum()
    prior = float(logit(share @ target))
    mean = share @ values
    spread = float(np.sqrt(share @ (values - mean) ** 2))
    if spread <= SAME_VALUES:
        return np.array([[0.0], [prior]])
    rows = np.stack([(values - mean) / spread, np.ones(len(values))])

    def loss(x: Values) -> float:
        scores = x @ rows
        return float(share @ (np.logaddexp(0, scores) - target * scores))

    def gradient(x: Values) -> Values:
        slopes: Values = rows @ (share * (expit(x @ rows) - target))
        return slopes

    def hessian(x: Values) -> Values:
        p = expit(x @ rows)
        curvature: Values = (rows * (share * p * (1 - p))) @ rows.T
        return curvature

    # The gradient may not get as small as that by rounding; Newton's steps then change nothing.
    slope, offset = optimize.minimize(
        loss,
        np.array([0.0, prior]),
        jac=gradient,
        hess=hessian,
        method="trust-exact",
        options={"gtol": 1e-12, "maxiter": 100, "max_trust_radius": 1e12},
    ).x
    if slope <= 0:
        return np.array([[0.0], [prior]])
    return np.array([[slope / spread], [offset - slope * mean / spread]])


def _isotonic(values: Values, positive: NDArray[np.bool_], weights: Values) -> Values:
    """Fit thresholds and their probabilities, (2, k), to values in [-1, 1] by least squares."""
    # Memory that models without a calibration do without.
    from sklearn.isotonic import IsotonicRegression

    fitted = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
    fitted.fit(values, positive.astype(np.float64), weights)
    return np.stack([fitted.X_thresholds_, fitted.y_thresholds_])
