"""Models of many classes made by scikit-learn, until they are trained."""

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import make_blobs
from sklearn.svm import SVC

from bigsvm.kernels import make_kernel
from bigsvm.models import KernelExpansion
from bigsvm.votes import pair_functions


def blobs(k, *, n=240, seed=0):
    """Rows of k classes that overlap, and their labels 0 … k - 1."""
    return make_blobs(n, centers=k, n_features=3, cluster_std=5, random_state=seed)


def of_scikit_learn(fitted, *, rule="ovo", classes=None):
    """The model that a fitted `SVC` of three or more classes with the rbf kernel is."""
    sparse = sp.issparse(fitted.dual_coef_)
    dual = fitted.dual_coef_.toarray() if sparse else fitted.dual_coef_
    vectors = sp.csr_array(fitted.support_vectors_) if sparse else fitted.support_vectors_
    return KernelExpansion(
        kernel=make_kernel("rbf", gamma=fitted._gamma),
        support_vectors=vectors,
        coefficients=pair_functions(dual, fitted.n_support_),
        intercept=-fitted.intercept_,
        centre=None,
        support=fitted.support_.astype(np.int64),
        classes=fitted.classes_.tolist() if classes is None else classes,
        rule=rule,
    )


def fitted_on(k, *, sparse=False, **parameters):
    """An `SVC`, its model, and rows that are not its own."""
    X, y = blobs(k)
    form = sp.csr_array if sparse else np.asarray
    fitted = SVC(C=2, decision_function_shape="ovo", **parameters).fit(form(X), y)
    return fitted, of_scikit_learn(fitted), form(blobs(k, seed=1)[0])
