"""`SVC` and `NuSVC`: classifiers, for arrays in memory and for stores on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bigsvm.estimators.classifier import Classifier

if TYPE_CHECKING:
    import os

    from bigsvm.kernels import Kernel


class SVC(Classifier):
    """C-support vector classification, exact, out of core, resumable, certified.

    Trains on NumPy arrays and SciPy sparse matrices as scikit-learn's `SVC` does, and on a store, a
    Zarr array or a Dask array without ever holding it in memory.

    Parameters
    ----------
    C : float, default 1.0
        Penalty of the loss; > 0.
    loss : {"hinge", "squared_hinge"}
        ``C Σ ξ``, or ``C Σ ξ²``.
    kernel : {"rbf", "linear", "poly", "sigmoid", "laplacian", "precomputed"} or bigsvm.Kernel
        With ``"precomputed"`` X holds the kernel values of the rows with one another, (n, n), in
        memory, a store, a Zarr or a Dask array; for a prediction those of its rows with all rows of
        the training, (m, n), in their order (of a store, that of what was written to it).
    degree : int, default 3
        Of the polynomial kernel.
    gamma : float or {"scale", "auto", "mean-distance"}
        ``"scale"`` is 1 / (n_features · X.var()), ``"auto"`` 1 / n_features, ``"mean-distance"``
        1 / (2 · the average squared distance of two of 4096 rows). With sample weights the
        variance is the weighted one, so that a weight of 2 is the row twice and of 0 its absence;
        scikit-learn's SVC takes the plain one.
    coef0 : float, default 0.0
        Of the polynomial and sigmoid kernels.
    tol : float, default 1e-3
        KKT gap over all rows at which training has converged.
    certify : bool, default True
        Whether training goes on until a sweep over all rows certifies `tol`. If False, it works on
        a growing random part of the rows and ends when the others would gain less than half a point
        of test error, which fresh rows show (`bigsvm.training.learning_curve`), at a cost that does
        not depend on their number: `stop_reason_` is ``"settled"``, and `certificate_` has the test
        error, its standard error and the rows used. A run that comes to all rows, as one of at most
        8192 does, is certified after all. Of a source that is neither in memory nor shuffled, one
        pass draws the rows.
    class_weight : dict, "balanced" or None
    multiclass : {"ovo", "ddag", "ovr"}
        How more than two classes are told apart. ``"ovo"`` and ``"ddag"`` train a function for each
        pair of them, on its rows alone: each has a vote, or a decision graph asks k - 1 of them.
        ``"ovr"`` trains one for each class against the rest, all together, and the largest decides.
    decision_function_shape : {"ovr", "ovo"}
        What `decision_function` is of more than two classes: a value for each class, or for each
        pair.
    break_ties : bool, default False
        Whether of classes with as many votes the one with the largest value wins, not the first.
    calibration : {"sigmoid", "isotonic"} or None
        How decision values become probabilities: by a sigmoid (Platt 1999), or by the best
        ascending function, for many thousands of rows. It is fitted, once, on a tenth of the rows,
        which are not trained on; which they are depends on the data alone. None is no
        probabilities, and all rows are trained on. Of two classes only.
    warm_start : bool, default False
        Whether `fit` starts from the model of the last one, which must be of the same rows: after a
        change of C, of a weight or of epsilon it takes fewer steps. Of two classes only.
    selection : {"auto", "second-order", "hmg", "mvp"}
        How the solver chooses a pair of variables.
    working_set : {"auto", "all"}
        ``"auto"`` works on parts of the rows, chosen anew as training goes on. ``"all"`` takes pair
        steps over all rows at once, with kernel rows on demand: the papers' own algorithm. All rows
        have to fit in `memory`, and the kernel rows get the rest of it.
    shrinking : bool or None
        Whether rows whose variables are pushed against a bound leave the pair steps of
        ``working_set="all"`` and their kernel rows, until the end is near. None is yes where memory
        holds less than a tenth of all kernel rows, and no with a `disk_cache`, which keeps whole
        ones. Other runs always leave out rows that
        need not move: False is refused there.
    rows_at_once : int or None
        Most kernel rows that ``working_set="all"`` computes together. None is up to 24 while there
        is room, and 12 of dense rows, 1 of sparse ones, that take the place of others: a dozen
        dense rows take little longer than one. With 1 and ``selection="hmg"`` a step computes one
        new row at most, unless both variables of the last pair are at a bound.
    memory : int or str, default "1GB"
        Bytes that all arrays of training together may take.
    disk_cache : int or str, default 0
        Bytes of kernel rows that may be kept on disk where memory holds too few of them, with
        ``working_set="all"``. Rows are kept only where reading one back is cheaper than computing
        it, which is measured first. They serve later runs on the same data with the same kernel.
    cache_dir : path or None
        Folder for them; None is the system's for temporary files.
    checkpoint : path or None
        Directory to save the run to and to resume it from.
    checkpoint_every : float, default 60.0
        Seconds between two saves.
    max_iter : int, default -1
        Limit of pair steps; -1 is none.
    max_time : float or None
        Limit in seconds.
    n_jobs : int or None
        Number of threads. None is all processors within the CPU affinity, control group quotas,
        LOKY_MAX_CPU_COUNT, OMP_NUM_THREADS and OpenMP's `threadpool_limits`, and one thread in a
        worker of joblib or multiprocessing. -1 is all processors within affinity, quotas and
        LOKY_MAX_CPU_COUNT, -2 all but one. The Dask scheduler sets the threads of a lazy
        prediction.
    random_state : int, numpy.random.RandomState or None
        Seed of the random samples training starts from, and of the choice among more violating rows
        than a working set holds; None is 0, so that a fit is repeatable.
    probability, cache_size, verbose
        Accepted for compatibility with scikit-learn and ignored; values other than its defaults
        cause a warning that names what to use instead.

    Attributes
    ----------
    classes_ : (k,) array
    support_ : (n_support,) int64
        Rows that are support vectors, ascending; of more than two classes grouped by class, as
        scikit-learn has them for any number, and ascending within each.
    support_vectors_ : (n_support, n_features) array or CSR
    n_support_ : (k,) int32
        Support vectors of each class.
    dual_coef_ : (1, n_support) float64, of more than two classes (k - 1, n_support)
    intercept_ : (1,) float64, of more than two classes (k (k - 1) / 2,)
    coef_ : (1, n_features) float64, of more than two classes (k (k - 1) / 2, n_features)
        Of the linear kernel only.
    converged_ : bool
    stop_reason_ : str
    gap_, duality_gap_, objective_ : float or None
        KKT gap over all rows, primal minus dual objective, dual objective; None where an
        interrupted run has not completed a sweep.
    n_iter_ : int
        Pair steps.
    certificate_ : dict
        All that training proved and cost.
    model_ : KernelExpansion
        The model itself, which can be saved.
    n_features_in_ : int

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

    def __init__(
        self,
        C: float = 1.0,
        *,
        loss: str = "hinge",
        kernel: str | Kernel = "rbf",
        degree: int = 3,
        gamma: float | str = "scale",
        coef0: float = 0.0,
        tol: float = 1e-3,
        certify: bool = True,
        class_weight: dict[Any, float] | str | None = None,
        multiclass: str = "ovo",
        decision_function_shape: str = "ovr",
        break_ties: bool = False,
        calibration: str | None = None,
        warm_start: bool = False,
        selection: str = "auto",
        working_set: str = "auto",
        rows_at_once: int | None = None,
        memory: int | str = "1GB",
        disk_cache: int | str = 0,
        cache_dir: str | os.PathLike[str] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: float = 60.0,
        max_iter: int = -1,
        max_time: float | None = None,
        n_jobs: int | None = None,
        random_state: int | None = None,
        shrinking: bool | None = None,
        probability: bool | str = False,
        cache_size: float = 200,
        verbose: bool = False,
    ) -> None:
        self.C = C
        self.loss = loss
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.tol = tol
        self.certify = certify
        self.class_weight = class_weight
        self.multiclass = multiclass
        self.decision_function_shape = decision_function_shape
        self.break_ties = break_ties
        self.calibration = calibration
        self.warm_start = warm_start
        self.selection = selection
        self.working_set = working_set
        self.rows_at_once = rows_at_once
        self.memory = memory
        self.disk_cache = disk_cache
        self.cache_dir = cache_dir
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.max_iter = max_iter
        self.max_time = max_time
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.shrinking = shrinking
        self.probability = probability
        self.cache_size = cache_size
        self.verbose = verbose


class NuSVC(Classifier):
    """ν-support vector classification: told the share of support vectors instead of C.

    Minimises ``½ |w|² − ν n ρ + Σ max(0, ρ − y (w·φ(x) + b))`` (libsvm-2.2.txt, section 2.2, with
    w, b and ρ times n); what is learnt is divided by ρ, as LIBSVM does.

    Parameters
    ----------
    nu : float, default 0.5
        In (0, 1]: at most this share of the rows (by weight) is on the wrong side of its margin, at
        least this share are support vectors. At most twice the share of the smaller class.
    kernel : {"rbf", "linear", "poly", "sigmoid", "laplacian", "precomputed"} or bigsvm.Kernel
    degree : int, default 3
        Of the polynomial kernel.
    gamma : float or {"scale", "auto", "mean-distance"}
        ``"scale"`` is 1 / (n_features · X.var()), ``"auto"`` 1 / n_features, ``"mean-distance"``
        1 / (2 · the average squared distance of two of 4096 rows). With sample weights the
        variance is the weighted one, so that a weight of 2 is the row twice and of 0 its absence;
        scikit-learn's SVC takes the plain one.
    coef0 : float, default 0.0
        Of the polynomial and sigmoid kernels.
    tol : float, default 1e-3
        KKT gap over all rows at which training has converged.
    certify : bool, default True
        As `SVC` has it.
    class_weight : dict, "balanced" or None
        Factors of the rows' weights.
    multiclass, decision_function_shape, break_ties, calibration, warm_start, selection,
    working_set, memory, disk_cache, cache_dir, checkpoint, checkpoint_every, max_iter, max_time,
    n_jobs, random_state
        As `SVC` has them.
    shrinking, probability, cache_size, verbose
        Accepted for compatibility with scikit-learn and ignored; values other than its defaults
        cause a warning that names what to use instead.

    Attributes
    ----------
    classes_ : (k,) array
    support_ : (n_support,) int64
        Rows that are support vectors.
    support_vectors_ : (n_support, n_features) array or CSR
    n_support_ : (k,) int32
    dual_coef_ : (1, n_support) float64, of more than two classes (k - 1, n_support)
    intercept_ : (1,) float64, of more than two classes (k (k - 1) / 2,)
    coef_ : (1, n_features) float64, of more than two classes (k (k - 1) / 2, n_features)
        Of the linear kernel only.
    converged_, stop_reason_, gap_, duality_gap_, objective_, n_iter_, certificate_, model_
        As `SVC` has them.
    n_features_in_ : int
    """

    _formulation = "nu-svc"

    def __init__(
        self,
        *,
        nu: float = 0.5,
        kernel: str | Kernel = "rbf",
        degree: int = 3,
        gamma: float | str = "scale",
        coef0: float = 0.0,
        tol: float = 1e-3,
        certify: bool = True,
        class_weight: dict[Any, float] | str | None = None,
        multiclass: str = "ovo",
        decision_function_shape: str = "ovr",
        break_ties: bool = False,
        calibration: str | None = None,
        warm_start: bool = False,
        selection: str = "auto",
        working_set: str = "auto",
        rows_at_once: int | None = None,
        memory: int | str = "1GB",
        disk_cache: int | str = 0,
        cache_dir: str | os.PathLike[str] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: float = 60.0,
        max_iter: int = -1,
        max_time: float | None = None,
        n_jobs: int | None = None,
        random_state: int | None = None,
        shrinking: bool | None = None,
        probability: bool | str = False,
        cache_size: float = 200,
        verbose: bool = False,
    ) -> None:
        self.nu = nu
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.tol = tol
        self.certify = certify
        self.class_weight = class_weight
        self.multiclass = multiclass
        self.decision_function_shape = decision_function_shape
        self.break_ties = break_ties
        self.calibration = calibration
        self.warm_start = warm_start
        self.selection = selection
        self.working_set = working_set
        self.rows_at_once = rows_at_once
        self.memory = memory
        self.disk_cache = disk_cache
        self.cache_dir = cache_dir
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.max_iter = max_iter
        self.max_time = max_time
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.shrinking = shrinking
        self.probability = probability
        self.cache_size = cache_size
        self.verbose = verbose
