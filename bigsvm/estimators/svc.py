"""`SVC` and `NuSVC`: classifiers, for arrays in memory and for stores on disk."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from bigsvm.estimators.arguments import KKT_GAP, IgnoredClassArguments, documented
from bigsvm.estimators.classifier import Classifier
from bigsvm.parameters.training import again

if TYPE_CHECKING:
    from bigsvm.parameters.names import LossName


@documented
@dataclass(eq=False, repr=False)
class SVC(Classifier, IgnoredClassArguments):
    """C-support vector classification, exact, out of core, resumable, certified.

    Trains on NumPy arrays and SciPy sparse matrices as scikit-learn's `SVC` does, and on a store, a
    Zarr array or a Dask array without ever holding it in memory.

    Attributes
    ----------
    classes_ : (k,) array
    support_ : (n_support,) int64
        Rows that are support vectors, ascending; of more than two classes grouped by class, as
        scikit-learn has them for any number, and ascending within each.
    support_vectors_ : (n_support, n_features) array or CSR
    class_weight_ : (k,) float64
        Factors of `C` for each class.
    n_support_ : (k,) int32
        Support vectors of each class.
    dual_coef_ : (1, n_support) float64, of more than two classes (k - 1, n_support)
        CSR if the rows were sparse.
    intercept_ : (1,) float64, of more than two classes (k (k - 1) / 2,)
    coef_ : (1, n_features) float64, of more than two classes (k (k - 1) / 2, n_features)
        For the linear kernel only, and not to be written to; CSR if the rows were sparse.
    gamma_ : float
        Gamma of the kernel as a number, also where `gamma` is a word.
    converged_ : bool
    stop_reason_ : str
    gap_, duality_gap_, objective_ : float or None
        KKT gap over all rows, primal minus dual objective, dual objective; None where an
        interrupted run has not completed a sweep.
    n_iter_ : (1,) int64, of more than two classes (k (k - 1) / 2,)
        Pair steps; (1,) with ``multiclass="ovr"``, which has one run. None from a million pairs on.
    certificate_ : dict
        All that training proved and cost.
    history_ : dict of (sweeps,) arrays
        ``"objective"``, ``"gap"``, ``"n_support"`` and ``"n_bounded"`` at the end of each
        ``"sweep"`` of this `fit`, and the ``"seconds"`` of training until then.
    working_set_history_ : dict of (sets,) arrays
        Of each ``"working_set"`` its ``"n_rows"``, the dual ``"objective"`` of the run and the
        ``"gap"`` within the set at its end, the ``"seconds"`` until then, and ``"best_gap"``, the
        smallest gap over all rows so far. ``"n_violating"`` are the active rows that violated
        before; NaN where not counted. Empty for class pairs and for small problems, which have no
        working sets.
    model_ : KernelExpansion
        The model itself, which can be saved.
    fit_status_ : int
        0 if training came to the end that was asked for, else 1.
    shape_fit_ : (int, int)
        Rows and columns of the training data.
    n_features_in_ : int

    See Also
    --------
    NuSVC : `nu`, a share of the rows, in place of `C`.
    L2SVC : Squared hinge loss, for very many rows.
    CrammerSingerSVC : One machine for all classes.
    SearchCV : Choose `C` and `gamma`.

    References
    ----------
    Fan, R.-E., Chen, P.-H. and Lin, C.-J. (2005). Working set selection using second order
    information for training support vector machines. Journal of Machine Learning Research 6,
    1889–1918.

    Glasmachers, T. and Igel, C. (2006). Maximum-gain working set selection for SVMs. Journal of
    Machine Learning Research 7, 1437–1466.

    Examples
    --------
    >>> import bigsvm
    >>> from sklearn.datasets import make_moons
    >>> X, y = make_moons(200, noise=0.1, random_state=0)
    >>> model = bigsvm.SVC(C=10, gamma=1).fit(X, y)
    >>> model.converged_, bool(model.gap_ <= model.tol)
    (True, True)
    """

    _formulation = "c-svc"

    C: float = again(
        "C",
        text="""
        Penalty of the loss; > 0.

        ``inf`` allows no loss: the hard margin, with the loss ``"hinge"``. Where there is none,
        training ends unconverged and says so.
        """,
    )
    _: KW_ONLY
    loss: LossName = again("loss")
    tol: float = again("tol", text=KKT_GAP)


@documented
@dataclass(kw_only=True, eq=False, repr=False)
class NuSVC(Classifier, IgnoredClassArguments):
    """ν-support vector classification: told the share of support vectors instead of C.

    Minimises ``½ |w|² − ν n ρ + Σ max(0, ρ − y (w·φ(x) + b))`` (Chang & Lin 2001, section 2.2, with
    w, b and ρ times n); what is learnt is divided by ρ, as LIBSVM does.

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
    coef_ : (1, n_features) float64, of more than two classes (k (k - 1) / 2, n_features)
        For the linear kernel only.
    gamma_ : float
        Gamma of the kernel as a number, also where `gamma` is a word.
    converged_, stop_reason_, gap_, duality_gap_, objective_, n_iter_
        As `SVC` has them.
    certificate_, history_, fit_status_, shape_fit_, model_
        As `SVC` has them.
    n_features_in_ : int

    See Also
    --------
    SVC : The same with `C`.
    NuSVR : Regression with `nu`.

    References
    ----------
    Chang, C.-C. and Lin, C.-J. (2001). LIBSVM: a library for support vector machines.

    Examples
    --------
    >>> import bigsvm
    >>> from sklearn.datasets import make_moons
    >>> X, y = make_moons(200, noise=0.1, random_state=0)
    >>> model = bigsvm.NuSVC(nu=0.1, gamma=1).fit(X, y)
    >>> model.converged_, len(model.support_) >= 0.1 * len(X)
    (True, True)
    """

    _formulation = "nu-svc"

    nu: float = again("nu")
    tol: float = again("tol", text=KKT_GAP)
