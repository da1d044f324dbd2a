"""`L2SVC`: the classifier of squared hinge loss as a minimal enclosing ball."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bigsvm.estimators.classifier import Classifier

if TYPE_CHECKING:
    import os

    from bigsvm.kernels import Kernel


class L2SVC(Classifier):
    """L2 support vector classification: core vector machine, Frank-Wolfe, certified or sampled.

    Minimises ``½ (|w|² + b²) + C/2 Σ ξ²``, the squared hinge loss with a bias that is one of the
    weights, by the minimal enclosing ball that is its dual (frank-wolfe.txt; Tsang, Kwok & Cheung
    2005). A search among random samples finds most of the ball at a cost that does not depend on
    the number of rows; full sweeps then certify it, unless `certify` is False.

    Parameters
    ----------
    C : float, default 1.0
        Penalty of the loss; > 0. Twice the C of LIBLINEAR's squared hinge, and of ``SVC(loss=
        "squared_hinge")``, whose bias is not penalised.
    solver : {"pairwise", "mfw", "fw", "cvm"}
        How the ball is found from samples; see the table below.
    sampling : int, float or "all", default 60
        Rows of a sample: with 60, the farthest of them is among the farthest 5 % of all with
        probability 0.95. A float up to 1 is a share of all rows. Fewer are faster and find less.
    empty_samples : int, default 1
        Samples without a row outside the ball, one after the other, that end the search of
        ``"fw"``, ``"mfw"`` and ``"cvm"``; the first one ends it in the paper. More take longer and
        find more.
    first_points : {"random", "pair"}
        The first ball is that of 20 random rows, with one of each class at least, or of a random
        row and the row of a sample that is the farthest from it.
    ball_tol : float, default 1e-6
        ε: the ball is found when (1 + ε) times its radius encloses all points, round the centre
        that is returned or, where the duality gap shows so, round another (`bigsvm.duals.ball`).
        ``certificate_["ball"]`` says by which test, and the smallest ε of the returned centre.
    certify : bool, default True
        Whether full sweeps prove that. If False, training ends with the search, and the model is
        not certified: `stop_reason_` is ``"sampled"``. A search that fills its memory before that,
        and one against the rest, go on with growing parts of the rows, as `SVC` does. With
        ``"fw"``, ``"mfw"`` and ``"cvm"`` the search alone takes the rows as they are: it does not
        merge equal rows.
    kernel : {"rbf", "linear", "poly", "sigmoid", "laplacian", "precomputed"} or bigsvm.Kernel
        As `SVC` has it.
    degree : int, default 3
        Of the polynomial kernel.
    gamma : float or {"scale", "auto", "mean-distance"}
        ``"scale"`` and ``"auto"`` as `SVC` has them. ``"mean-distance"`` is
        1 / (2 · the average squared distance of two of 4096 rows).
    coef0 : float, default 0.0
        Of the polynomial and sigmoid kernels.
    class_weight : dict, "balanced" or None
    multiclass, decision_function_shape, break_ties, calibration, warm_start, selection,
    working_set, memory, disk_cache, cache_dir, checkpoint, checkpoint_every, max_iter, max_time,
    n_jobs, random_state
        As `SVC` has them; `selection` and `working_set` of certified training, `random_state` also
        of the samples.

    Attributes
    ----------
    classes_ : (k,) array
    support_ : (n_support,) int64
        Rows that are support vectors.
    support_vectors_ : (n_support, n_features) array or CSR
    n_support_ : (k,) int32
    dual_coef_ : (1, n_support) float64, of more than two classes (k - 1, n_support)
    intercept_ : (1,) float64, of more than two classes (k (k - 1) / 2,)
        The sum of the coefficients, as the kernel of the bias is 1.
    coef_ : (1, n_features) float64, of more than two classes (k (k - 1) / 2, n_features)
        Of the linear kernel only.
    converged_ : bool
        Whether a full sweep has certified `ball_tol`.
    gap_ : float or None
        Of the ball, in units of the margin: how far the farthest point is outside, or ten times
        the share that the duality gap is of the objective (`bigsvm.duals.ball`), whichever is less;
        None where nothing is certified. What it has to be is ``certificate_["tol"]``.
    stop_reason_, duality_gap_, objective_, n_iter_, certificate_, model_
        As `SVC` has them.
    n_features_in_ : int

    Notes
    -----
    What a search does with its samples (numbers are those of frank-wolfe.txt):

    =============  =================================  ==========================  ================
    solver         of each sample                     then                        ends at
    =============  =================================  ==========================  ================
    ``"fw"``       the farthest row                   one step towards it         an empty sample
                                                      (algorithm 2)
    ``"mfw"``      the farthest row                   one step towards it, or     an empty sample
                                                      away from the nearest
                                                      point (algorithm 3)
    ``"cvm"``      the farthest row joins             the core set is solved      an empty sample
                                                      again (algorithm 1)
    ``"pairwise"`` up to 4 of the farthest rows of    pair steps on the core      half of 16 to 64
                   16 to 64 samples join together     set                         samples empty
    =============  =================================  ==========================  ================

    A sample is empty if it has no row outside the ball. The first three are the paper's; the last
    one is not in it. It is the default because it finds more support vectors before it ends.

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

    def __init__(
        self,
        C: float = 1.0,
        *,
        solver: str = "pairwise",
        sampling: float | str = 60,
        empty_samples: int = 1,
        first_points: str = "random",
        ball_tol: float = 1e-6,
        certify: bool = True,
        kernel: str | Kernel = "rbf",
        degree: int = 3,
        gamma: float | str = "scale",
        coef0: float = 0.0,
        class_weight: dict[Any, float] | str | None = None,
        multiclass: str = "ovo",
        decision_function_shape: str = "ovr",
        break_ties: bool = False,
        calibration: str | None = None,
        warm_start: bool = False,
        selection: str = "auto",
        working_set: str = "auto",
        rows_at_once: int | None = None,
        shrinking: bool | None = None,
        memory: int | str = "1GB",
        disk_cache: int | str = 0,
        cache_dir: str | os.PathLike[str] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: float = 60.0,
        max_iter: int = -1,
        max_time: float | None = None,
        n_jobs: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self.C = C
        self.solver = solver
        self.sampling = sampling
        self.empty_samples = empty_samples
        self.first_points = first_points
        self.ball_tol = ball_tol
        self.certify = certify
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.class_weight = class_weight
        self.multiclass = multiclass
        self.decision_function_shape = decision_function_shape
        self.break_ties = break_ties
        self.calibration = calibration
        self.warm_start = warm_start
        self.selection = selection
        self.working_set = working_set
        self.rows_at_once = rows_at_once
        self.shrinking = shrinking
        self.memory = memory
        self.disk_cache = disk_cache
        self.cache_dir = cache_dir
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.max_iter = max_iter
        self.max_time = max_time
        self.n_jobs = n_jobs
        self.random_state = random_state
