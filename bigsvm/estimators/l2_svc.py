"""`L2SVC`, the classifier of squared hinge loss as a minimal enclosing ball, and `C_path`."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

from sklearn.base import clone

from bigsvm.budget import parse_bytes
from bigsvm.errors import AdviceWarning, ParameterError
from bigsvm.estimators.arguments import KKT_GAP, documented
from bigsvm.estimators.classifier import Classifier
from bigsvm.parameters.groups import BallParameters
from bigsvm.parameters.training import again

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bigsvm.data.row_values import Order
    from bigsvm.estimators.base import KernelMachine


@documented
@dataclass(eq=False, repr=False)
class L2SVC(BallParameters, Classifier):
    """L2 support vector classification: core vector machine, Frank-Wolfe, certified or sampled.

    Minimises ``½ (|w|² + b²) + C/2 Σ ξ²``, the squared hinge loss with a bias that is one of the
    weights, by the minimal enclosing ball that is its dual (Frandi et al. 2013; Tsang, Kwok &
    Cheung 2005). A search among random samples finds most of the ball at a cost that does not
    depend on the number of rows; full sweeps then certify it, unless `certify` is False. C is twice
    that of LIBLINEAR's squared hinge, and of ``SVC(loss="squared_hinge")``, whose bias is not
    penalised.

    Without `certify` training ends with the search, and `stop_reason_` is ``"sampled"``. A search
    that fills its memory before that, and one against the rest, go on with growing parts of the
    rows, as `SVC` does. With ``"fw"``, ``"mfw"`` and ``"cvm"`` the search alone takes the rows as
    they are: it does not merge equal rows. `selection` and `working_set` are those of certified
    training; `random_state` is also the seed of the samples.

    Attributes
    ----------
    classes_ : (k,) array
    support_ : (n_support,) int64
        Rows that are support vectors.
    support_vectors_ : (n_support, n_features) array or CSR
    class_weight_ : (k,) float64
        Factors of `C` for each class.
    n_support_ : (k,) int32
    dual_coef_ : (1, n_support) float64, of more than two classes (k - 1, n_support)
    intercept_ : (1,) float64, of more than two classes (k (k - 1) / 2,)
        The sum of the coefficients, as the kernel of the bias is 1.
    coef_ : (1, n_features) float64, with more than two classes (k (k - 1) / 2, n_features)
        For the linear kernel only.
    gamma_ : float
        Gamma of the kernel as a number, also where `gamma` is a word.
    converged_ : bool
        Whether a full sweep has certified `tol`, as for `SVC`; `ball_tol` ends the search before.
    gap_ : float or None
        KKT gap of the margins. None if no sweep has looked at all rows.
    stop_reason_, duality_gap_, objective_, n_iter_
        As `SVC` has them.
    certificate_, history_, working_set_history_, fit_status_, shape_fit_, model_
        As `SVC` has them.
    n_features_in_ : int

    See Also
    --------
    SVC : Hinge loss, and a bias that is not penalised.
    L2OneClassSVM : The ball of rows without labels.

    Notes
    -----
    What a search does with its samples (numbers are those of Frandi et al. 2013):

    ==============  =================================  ==========================  ================
    solver          of each sample                     then                        ends at
    ==============  =================================  ==========================  ================
    ``"fw"``        the farthest row                   one step towards it         an empty sample
                                                       (algorithm 2)
    ``"mfw"``       the farthest row                   one step towards it, or     an empty sample
                                                       away from the nearest
                                                       point (algorithm 3)
    ``"cvm"``       the farthest row joins             the core set is solved      an empty sample
                                                       again (algorithm 1)
    ``"pairwise"``  up to 4 of the farthest rows of    pair steps on the core      half of 16 to 64
                    16 to 64 samples join together     set                         samples empty
    ==============  =================================  ==========================  ================

    A sample is empty if it has no row outside the ball. The first three are the paper's; the last
    one is not in it. It is the default because it finds more support vectors before it ends.

    References
    ----------
    Frandi, E., Ñanculef, R., Gasparo, M. G., Lodi, S. and Sartori, C. (2013). Training support
    vector machines using Frank-Wolfe optimization methods. International Journal of Pattern
    Recognition and Artificial Intelligence 27 (3).

    Tsang, I. W., Kwok, J. T. and Cheung, P.-M. (2005). Core vector machines: fast SVM training on
    very large data sets. Journal of Machine Learning Research 6, 363–392.

    Examples
    --------
    >>> import bigsvm
    >>> from sklearn.datasets import make_moons
    >>> X, y = make_moons(200, noise=0.1, random_state=0)
    >>> model = bigsvm.L2SVC(C=10, gamma=1).fit(X, y)
    >>> model.converged_, model.score(X, y) > 0.95
    (True, True)
    """

    _formulation = "l2-svc"

    C: float = again("C", text="Penalty of the loss; > 0.")
    _: KW_ONLY
    tol: float = again("tol", text=f"{KKT_GAP} The search for a ball ends at `ball_tol`.")


WORTH_STARTING = 3.0
"""A start from a model saves kernel values if the model took this many times those of the start."""


def C_path(
    estimator: KernelMachine,
    X: Any,
    y: Any = None,
    *,
    C: Sequence[float],
    sample_weight: Any = None,
    y_order: Order | None = None,
    client: Any = None,
    worker_memory: int | str | None = None,
    worker_wait: float | None = None,
) -> list[KernelMachine]:
    """Train with several values of C, each starting from the model before; the smallest is first.

    A start costs the kernel values of all rows with the support vectors of that model. Where memory
    is scarce and the model itself took little more, the next one starts anew.

    Parameters
    ----------
    estimator : SVC, L2SVC, CrammerSingerSVC, SVR, NuSVR or L2OneClassSVM
        Has all parameters but C, and is not changed. For more than two classes it must be a
        `CrammerSingerSVC`, as `warm_start` requires.
    X, y, sample_weight, y_order, client, worker_memory, worker_wait
        As its ``fit`` takes them.
    C : sequence of float

    Returns
    -------
    list of estimators
        Fitted, in the order of C. The ``certificate_`` of each has its cost.

    Raises
    ------
    ParameterError
        If the estimator has no C, no value is given, or there are more than two classes and the
        estimator trains several functions for them.

    See Also
    --------
    SearchCV : Choose `C` by cross-validation.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> import bigsvm
    >>> X, y = make_moons(200, noise=0.1, random_state=0)
    >>> models = bigsvm.C_path(bigsvm.SVC(gamma=1), X, y, C=[1, 10])
    >>> [(model.C, model.converged_) for model in models]
    [(1, True), (10, True)]
    """
    if "C" not in estimator.get_params() or not len(C):
        raise ParameterError(f"C is {list(C)}; give some values for an estimator that has a C")
    fitted: dict[float, KernelMachine] = {}
    last = None
    for value in sorted(set(C)):
        model = clone(estimator).set_params(C=value, warm_start=True)
        if last is not None and _saves_work(last):
            model.model_ = last.model_
        with warnings.catch_warnings():
            # The path may well begin where C is too small.
            warnings.simplefilter("ignore", AdviceWarning)
            last = fitted[value] = model.fit(
                X, y, sample_weight=sample_weight, y_order=y_order, client=client,
                worker_memory=worker_memory, worker_wait=worker_wait,
            )  # fmt: skip
        last.set_params(warm_start=estimator.warm_start)
    if last is not None and all(model.certificate_["advice"] for model in fitted.values()):
        warnings.warn("; ".join(last.certificate_["advice"]), AdviceWarning, stacklevel=2)
    return [fitted[value] for value in C]


def _saves_work(model: KernelMachine) -> bool:
    """Whether to start from a model: the kernel matrix fits in memory, or the model took long."""
    n_rows: int = model.model_.provenance["n_rows"]
    of_start = n_rows * len(model.model_.support)
    took: int = model.certificate_["n_kernel_evaluations"]
    return 4 * n_rows**2 <= parse_bytes(model.memory) or took >= WORTH_STARTING * of_start
