"""From decision values to probabilities: what a calibration is, and how it is fitted.

A support vector machine says on which side a row is, not how often it is right there. A calibration
learns that from rows that training has not seen, as the values of rows trained on are too good.

Of one class it is ten marks that divide the rows inside, and those outside, into parts of the same
size (Que and Lin, One-class SVM probabilistic outputs; LIBSVM has them since version 3.3). Of a
regression it is the scale of a Laplace distribution of the targets around the predictions (Lin and
Weng 2004).
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
"""Methods for classes."""
N_MARKS = 10
"""Marks of a density, as LIBSVM's files have them."""
SHAPES: dict[str, tuple[int, int | None]] = {
    "sigmoid": (2, None),
    "isotonic": (2, None),
    "density": (1, N_MARKS),
    "laplace": (1, 1),
}
"""Rows and columns of the numbers of each method; None is any number from 1 on."""
LEAST_DENSITY = 1e-3
"""Probability that a row below all marks is inside, and that one above all is outside: LIBSVM's."""
OUTLIER = 5.0
"""Residuals above so many standard deviations do not count, as in LIBSVM."""
SMALLEST_VALUE = 1e-250
"""Decision values below are 0: the inverse of their differences would leave float64."""
SAME_VALUES = 1e-14
"""Spread of decision values, as a share of the largest, that is nothing but rounding."""


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Probability of the positive class, as a monotone function of the decision value v.

    Of many classes it is that of the second class of each pair, or of each class against the rest;
    `bigsvm.coupling` makes probabilities of the classes of these. Of one class it is that of a row
    inside. Of a regression it is no probability, but says how far targets are from predictions.

    Attributes
    ----------
    method : {"sigmoid", "isotonic", "density", "laplace"}
    numbers : (2, m), (1, 10) or (1, 1) float64
        For a sigmoid, ``1 / (1 + exp(-(a v + b)))``, a and b; m is 1, or the number of functions
        where each has its own. For an isotonic calibration ascending decision values and their
        probabilities: linear between them, constant beyond. For a density the ten marks, ascending:
        with j of them at or below v the probability is j / 10, but 0.001 for none and 0.999 for
        all. For a Laplace distribution its scale, >= 0, in units of the targets.
    n_rows : int or None
        Rows it was fitted on; None where the model came from elsewhere.
    """

    method: str
    numbers: Values
    n_rows: int | None = None

    def __post_init__(self) -> None:
        if self.method not in SHAPES:
            raise ParameterError(
                f"calibration is {self.method!r}; it must be one of {', '.join(SHAPES)}"
            )
        if self.n_rows is not None and not (isinstance(self.n_rows, int) and self.n_rows > 0):
            raise ParameterError(f"a calibration fitted on {self.n_rows!r} rows")
        numbers, (n_rows, n_columns) = self.numbers, SHAPES[self.method]
        fits = numbers.ndim == 2 and len(numbers) == n_rows and numbers.shape[1] > 0
        if not fits or numbers.shape[1] != (n_columns or numbers.shape[1]):
            raise ParameterError(f"a {self.method} calibration of shape {numbers.shape}")
        if numbers.dtype != np.float64 or not np.isfinite(numbers).all():
            raise ParameterError("the numbers of a calibration must be finite, in float64")
        if self.method == "isotonic":
            x, probability = numbers
            ascending = (x[1:] > x[:-1]).all() and (probability[1:] >= probability[:-1]).all()
            if not ascending or probability[0] < 0 or probability[-1] > 1:
                raise ParameterError("an isotonic calibration must ascend, from 0 to 1 at most")
        elif self.method == "density" and (np.diff(numbers[0]) < 0).any():
            raise ParameterError("the marks of a density calibration must ascend")
        elif self.method == "laplace" and numbers[0, 0] < 0:
            raise ParameterError(f"the scale of a Laplace distribution is {numbers[0, 0]}, below 0")

    def probability(self, values: Values) -> Values:
        """Probability of the positive class for decision values, (n,) or (n, n_functions)."""
        if self.method == "laplace":
            raise ParameterError("a regression has no classes, and so no probabilities of them")
        probabilities: Values
        if self.method == "isotonic":
            probabilities = np.interp(values, *self.numbers)
            return probabilities
        if self.method == "density":
            marks = self.numbers[0]
            below = np.searchsorted(marks, values, side="right") / len(marks)
            probabilities = np.clip(below, LEAST_DENSITY, 1 - LEAST_DENSITY)
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
    """Fit a sigmoid or isotonic calibration to rows that the values, (n,), do not come from.

    Some rows, not all, are of the positive class. A weight is positive; 2 is the row twice.
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
    """Refuse decision values that are not finite."""
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


def fit_density(values: Values, weights: Values | None = None) -> Calibration:
    """Fit the marks of one class to rows that the decision values, (n,), do not come from.

    Fifths of the rows outside, and of those inside, are between the numbers t_0 … t_10, t_5 being
    0; the marks are the middles of neighbours. A row is inside from 0 on. A weight is positive; 2
    is the row twice.
    """
    check_values(values)
    weights = np.ones(len(values)) if weights is None else weights
    order = np.argsort(values, kind="stable")
    values, weights = values[order], weights[order]
    n_outside = int(np.searchsorted(values, 0.0))
    half = N_MARKS // 2
    ends = np.zeros(2 * half + 1)  # 0 stands for a side without rows too
    fifths = np.arange(half + 1)
    if n_outside:
        summed = np.cumsum(weights[:n_outside])
        places = np.searchsorted(summed, fifths[:-1] * summed[-1] / half, side="right")
        ends[:half] = values[np.minimum(places, n_outside - 1)]
    if n_outside < len(values):
        summed = np.cumsum(weights[n_outside:])
        places = np.searchsorted(summed, fifths[1:] * summed[-1] / half, side="left")
        ends[half + 1 :] = values[n_outside + np.minimum(places, len(summed) - 1)]
    marks = ends[:-1] / 2 + ends[1:] / 2
    return Calibration(method="density", numbers=marks[None], n_rows=len(values))


def fit_laplace(residuals: Values, weights: Values | None = None) -> Calibration:
    """Fit the scale of a Laplace distribution to residuals of rows that were not trained on.

    The scale of largest likelihood is the mean size of the residuals, (n,), which are targets minus
    predictions. As in LIBSVM, those above five standard deviations do not count. A weight is
    positive; 2 is the row twice.
    """
    check_values(residuals)
    sizes = np.abs(residuals)
    weights = np.ones(len(sizes)) if weights is None else weights
    counted = sizes <= OUTLIER * np.sqrt(2) * np.average(sizes, weights=weights)
    scale = np.average(sizes[counted], weights=weights[counted])
    return Calibration(method="laplace", numbers=np.array([[scale]]), n_rows=len(sizes))
