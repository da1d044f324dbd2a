"""Small training problems, runs on them, and the definition of their optimum."""

import numpy as np
import scipy.sparse as sp

from bigsvm.balls.search import ENDS, Search
from bigsvm.budget import TrainingPlan
from bigsvm.core import smo
from bigsvm.data.rows import RowsAt
from bigsvm.data.sources import as_row_source
from bigsvm.duals.ball import BallDual, L2Classification, L2OneClass, Solver
from bigsvm.duals.box import BoxDual, rule_of
from bigsvm.duals.crammer_singer import Cooling, CrammerSinger, CrammerSingerDual, Order, RowSolver
from bigsvm.duals.formulations import CSVC
from bigsvm.fit.choices import choice_of
from bigsvm.gram import KernelTiles
from bigsvm.kernels import RBF
from bigsvm.papers.stepwise import search_of
from bigsvm.parameters import TrainingParameters
from bigsvm.training import events
from bigsvm.training.loop import Decomposition
from bigsvm.training.result import StopReason
from bigsvm.training.run import Run
from bigsvm.training.saving import Saver
from bigsvm.training.state import Limits


def blobs(n=1500, d=5, seed=0, overlap=1.0):
    """Two Gaussian classes, (n, d) float32 and labels ±1."""
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(n) < 0.5, 1, -1)
    X = rng.standard_normal((n, d)) * overlap
    X[:, 0] += y
    X[:, 1] += np.sin(2 * X[:, 0])
    return X.astype(np.float32), y.astype(np.int8)


def classes_of_blobs(n=600, k=4, d=5, seed=0, overlap=1.0):
    """Gaussian classes that overlap, (n, d) float32 and labels 0 … k − 1, each of which occurs."""
    rng = np.random.default_rng(seed)
    label = rng.integers(k, size=n).astype(np.int32)
    label[:k] = np.arange(k)
    X = 1.2 * rng.standard_normal((k, d))[label] + overlap * rng.standard_normal((n, d))
    return X.astype(np.float32), label


def clouds(n=240, k=4, d=3, seed=0, spread=1.5):
    """Rows (n, d) of k overlapping clouds of different sizes, and labels 0 … k - 1."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % (2 * k + 1) % k)
    return rng.standard_normal((n, d)) + spread * rng.standard_normal((k, d))[y], y


def rows_at(m, d, seed=0, *, sparse=False, scale=1.0):
    """Some m of m + 3 rows of d features, in any order; three tenths of the entries are 0."""
    rng = np.random.default_rng(seed)
    X = (scale * rng.normal(size=(m + 3, d)) * (rng.random((m + 3, d)) < 0.7)).astype(np.float32)
    return RowsAt(sp.csr_array(X) if sparse else X, rng.permutation(m + 3)[:m])


def multiclass(
    X, label, *, C=1.0, subproblem="exact", order="auto", cooling=None, sample_weight=None,
    fit_intercept=False, **options,
):  # fmt: skip
    """A run of Crammer and Singer's problem, in the same circumstances."""
    formulation = CrammerSinger(
        label=label, n_classes=int(label.max()) + 1, C=C, sample_weight=sample_weight,
        fit_intercept=fit_intercept,
    )  # fmt: skip
    dual = CrammerSingerDual(
        formulation,
        RowSolver[subproblem.upper()],
        Order[order.upper()],
        Cooling[str(cooling).upper()],
        options.get("seed", 0),
    )
    whole = options.pop("whole", order != "auto")
    return decomposition(X, None, dual=dual, offset=formulation.offset, whole=whole, **options)


def decomposition(X, y, *, C=1.0, gamma=0.5, working_set=400, tol=1e-3, rule="auto", **options):
    """A run with a small working set, so that it takes several sweeps."""
    if hasattr(X, "blocks"):
        source = X
    else:
        source = as_row_source(X)
        source.is_shuffled = True  # as the problems above are
    kernel = options.pop("kernel", None) or RBF(gamma=gamma)
    centre = None if source.is_sparse else source.column_means()
    tiles = KernelTiles(
        kernel, centre=centre, threads=options.pop("threads", 1), offset=options.pop("offset", 0.0)
    )
    padded = -(-working_set // 1024) * 1024
    slots = options.pop("slots", working_set)
    active_rows = options.pop("active_rows", working_set)
    block_bytes = options.pop("block_bytes", 1 << 14)
    widest_set = options.pop("widest_set", working_set)
    plan = options.pop("plan", None) or TrainingPlan(
        working_set,
        widest_set,
        active_rows,
        4 * padded * slots,
        block_bytes,
        {},
        max(1, active_rows // 2),
    )
    dual = options.pop("dual", None)
    if dual is None:
        formulation = options.pop("formulation", None) or CSVC(sign=y, C=C)
        dual = BoxDual(formulation, rule_of(rule))
    chosen = {name: options.pop(name) for name in ("whole", "disk", "certify") if name in options}
    run = Run(source, dual, tiles, plan, **saved(**options))
    return Decomposition(run, tol=tol, choice=choice_of(run, tol=tol, **chosen))


def saved(*, checkpoint=None, checkpoint_every=60.0, listener=events.ignore, **options):
    """Options of a run that is saved to a checkpoint, if there is one."""
    saver = None
    if checkpoint is not None:
        saver = Saver(checkpoint, every=checkpoint_every, listener=listener)
    return {"saver": saver, "listener": listener, **options}


def gram(X, gamma=0.5):
    """The rbf kernel by its definition, in float64."""
    X = np.asarray(X, np.float64)
    squared = ((X[:, None, :] - X[None, :, :]) ** 2).sum(axis=2)
    return np.exp(-gamma * squared)


def dense_alpha(result, n):
    """All coefficients, (n,) or (n, k), zeros included."""
    found = result.alpha.toarray() if sp.issparse(result.alpha) else result.alpha
    alpha = np.zeros((n, *found.shape[1:]))
    alpha[result.support] = found
    return alpha


def target(X, *, noise=0.0):
    """Values that depend on the first two columns of X, (n,) float64."""
    rng = np.random.default_rng(1)
    return (
        np.sin(2 * X[:, 0].astype(np.float64)) + 0.1 * X[:, 1] + noise * rng.standard_normal(len(X))
    )


def definition(X, y, alpha, intercept, *, C=1.0, gamma=0.5):
    """Dual objective, KKT gap and duality gap by their definitions, in float64."""
    K = gram(X, gamma)
    y = y.astype(np.float64)
    f = K @ alpha
    g = y - f
    upper, lower = np.where(y > 0, C, 0.0), np.where(y > 0, 0.0, -C)
    kkt = g[alpha < upper].max() - g[alpha > lower].min()
    dual = y @ alpha - 0.5 * alpha @ f
    primal = 0.5 * alpha @ f + C * np.maximum(0, 1 - y * (f + intercept)).sum()
    return dual, max(kkt, 0.0), primal - dual


class Ball:
    """A problem of a ball and a memory for it; each `search` and `train` is as a new process.

    Memory is for 700 points. Without y there is one class. Rows may step together by a model that
    is said to `lack` something.
    """

    def __init__(
        self, X, y, *, C=5.0, solver="pairwise", kernel=None, capacity=700, block_bytes=1 << 14,
        sample_weight=None, ball_tol=1e-8, tol=1e-5, sampling=60, seed=0, lack=None,
    ):  # fmt: skip
        self.source = X if hasattr(X, "blocks") else as_row_source(X)
        self.kernel = kernel or RBF(gamma=0.5)
        if y is None:
            formulation = L2OneClass(n_rows=self.source.n_rows, C=C, sample_weight=sample_weight)
        else:
            formulation = L2Classification(
                sign=np.asarray(y, np.int8), C=C, sample_weight=sample_weight
            )
        largest = 1.0 + formulation.offset + 1 / C
        self.dual = BallDual(formulation, smo.SECOND_ORDER, Solver(solver), largest, lack, ball_tol)
        self.plan = TrainingPlan(
            capacity, capacity, capacity, 4096 * capacity, block_bytes, {}, capacity
        )
        self._tol = tol
        self._search = {"ball_tol": ball_tol, "sampling": sampling, "seed": seed}

    def tiles(self, dtype=np.float32):
        centred = self.kernel.is_shift_invariant and not self.source.is_sparse
        centre = self.source.column_means() if centred else None
        return KernelTiles(
            self.kernel, centre=centre, threads=1, dtype=dtype, offset=self.dual.formulation.offset
        )

    def search(
        self, *, limits=None, checkpoint=None, tiles=None, certify=False, empty_samples=1,
        first_points="random", **options,
    ):  # fmt: skip
        parameters = TrainingParameters(
            **self._search, certify=certify, empty_samples=empty_samples, first_points=first_points
        )
        return search_of(self.dual.solver)(
            self.source, self.dual, tiles or self.tiles(), self.plan, parameters,
            limits=limits or Limits(), **saved(checkpoint=checkpoint, **options),
        )  # fmt: skip

    def train(self, *, limits=None, checkpoint=None, certify=True, **options):
        """Search and certify; go on where the checkpoint ends."""
        given = {"limits": limits or Limits(), "checkpoint": checkpoint, **options}
        tiles, begin = self.tiles(), {}
        if checkpoint is None or Search.is_next(
            saved(checkpoint=checkpoint)["saver"], self.dual, self.source.n_rows
        ):
            search = self.search(tiles=tiles, certify=certify, **given)
            reason = search.run()
            if reason is not StopReason.CORE_FULL and not (certify and reason in ENDS):
                return search.result(reason)
            begin = {"start": search.alpha() if certify else None, "watch": search.watch}
        run = Run(self.source, self.dual, tiles, self.plan, **begin, **saved(**given))
        certify = certify or not hasattr(self.dual.formulation, "sign")
        choice = choice_of(run, tol=self._tol, certify=certify)
        return Decomposition(run, tol=self._tol, choice=choice).run()
