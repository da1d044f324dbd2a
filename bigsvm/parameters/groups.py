"""Parameters in groups, which `TrainingParameters` and the estimators inherit."""

import math
from collections.abc import Collection
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING

from bigsvm.parameters.declaration import (
    ABOVE_0,
    AT_LEAST_1,
    BALL,
    CRAMMER_SINGER,
    KERNEL,
    PAPERS,
    POSITIVE,
    RESOURCES,
    SIZE,
    STOPPING,
    Kind,
    Rule,
    parameter,
)
from bigsvm.parameters.formulations import BALLS, OTHERS
from bigsvm.parameters.names import (
    CoolingName,
    FirstPointsName,
    KernelName,
    OrderName,
    SelectionName,
    SolverName,
    SubproblemName,
    WorkingSetName,
    kernels_with,
)

if TYPE_CHECKING:
    from bigsvm.kernels import Kernel
else:
    # Annotations are read at runtime, for their words, and the class itself imports NumPy.
    Kernel = "bigsvm.Kernel"


@dataclass(kw_only=True, eq=False, repr=False)
class KernelParameters:
    """The kernel, of every formulation."""

    kernel: KernelName | Kernel = parameter(
        "rbf",
        """
        Kernel of two rows.

        With ``"precomputed"`` X holds the kernel values of the rows with one another, (n, n), in
        memory, a store, a Zarr or a Dask array; for a prediction those of its rows with all rows of
        the training, (m, n), in their order (of a store, that of what was written to it).
        """,
        recorded=True,
        panel=KERNEL,
        kind=Kind(
            (object,),
            "the name of a kernel, or an instance of one",
            '{"rbf", "linear", "poly", "sigmoid", "laplacian", "matern32", "matern52", "cosine", '
            '"tanimoto", "intersection", "chi2", "precomputed"} or bigsvm.Kernel',
        ),
    )
    degree: int = parameter(
        3,
        "Degree of the polynomial kernel.",
        recorded=True,
        panel=KERNEL,
        kernels=kernels_with("degree"),
        kind=Kind((Real,), "a number", "int"),
    )
    gamma: float | str | tuple[float, ...] = parameter(
        "scale",
        """
        A number, 'scale' (1 / (columns * variance)), 'auto' (1 / columns) or 'mean-distance' (1 /
        (2 * average squared distance of two rows)).

        The variance is that of all entries of X, ``X.var()``. With sample weights it is the
        weighted one, so that a weight of 2 is the row twice and of 0 its absence; scikit-learn's
        SVC takes the plain one. The average distance is that of 4096 rows.

        From Python it may be an array of a number for each column, for the rbf kernel: ``exp(-sum
        of gamma_k (a_k - b_k)²)``.
        """,
        recorded=True,
        panel=KERNEL,
        kernels=kernels_with("gamma"),
        kind=Kind(
            (Real, str, Collection),
            "'scale', 'auto', 'mean-distance' or a number",
            'float or {"scale", "auto", "mean-distance"} or array-like (n_features,)',
        ),
    )
    coef0: float = parameter(
        0.0,
        "Constant of the polynomial and sigmoid kernels.",
        recorded=True,
        panel=KERNEL,
        kernels=kernels_with("coef0"),
    )


@dataclass(kw_only=True, eq=False, repr=False)
class BallParameters:
    """How the minimal enclosing ball of l2-svc and l2-one-class is found."""

    solver: SolverName = parameter(
        "pairwise",
        """
        How the ball is found from samples of the rows.

        The table in the notes of `L2SVC` says what each does with a sample.
        """,
        panel=PAPERS,
        formulations=BALLS,
    )
    sampling: float | str = parameter(
        60,
        """
        Rows of a sample: a number, a share of all rows, or 'all'.

        With 60, the farthest of them is among the farthest 5 % of all rows with probability 0.95. A
        float up to 1 is a share. Fewer are faster and find less.
        """,
        panel=BALL,
        formulations=BALLS,
        metavar="ROWS|SHARE|all",
        kind=Kind(
            (Real, str), "a number of rows, a share of them, or 'all'", 'int, float or "all"'
        ),
        rule=Rule(
            lambda value: (
                value == "all"
                if isinstance(value, str)
                else 0 < value <= 1 or (math.isfinite(value) and value == int(value) > 1)
            ),
            "a number of rows, a share of them more than 0 and at most 1, or 'all'",
        ),
    )
    empty_samples: int = parameter(
        1,
        """
        With the solvers 'fw', 'mfw' and 'cvm': samples in a row without a row outside the ball that
        end the search.

        The first one ends it in the paper. More take longer and find more.
        """,
        panel=PAPERS,
        formulations=BALLS,
        rule=AT_LEAST_1,
    )
    first_points: FirstPointsName = parameter(
        "random",
        """
        The first ball is that of 20 random rows, or of a pair.

        The random rows have one of each class at least. The pair is a random row and the row of a
        sample that is the farthest from it.
        """,
        panel=PAPERS,
        formulations=BALLS,
    )
    ball_tol: float = parameter(
        1e-6,
        """
        The search for the ball ends within this share of the radius.

        It ends when samples have no row outside (1 + ball_tol) times the radius; a certified run
        goes on with sweeps until `tol`. ``certificate_["ball"]`` says whether that ball encloses
        all rows, and by which test: round the centre that is returned or, where the duality gap
        shows so, round another (`bigsvm.duals.ball`).
        """,
        panel=BALL,
        formulations=BALLS,
        rule=POSITIVE,
    )


@dataclass(kw_only=True, eq=False, repr=False)
class CrammerSingerParameters:
    """How the rows of Crammer and Singer's machine are solved for."""

    subproblem: SubproblemName = parameter(
        "exact",
        """
        How the variables of a row are solved for: by sorting, or by the paper's fixed point
        iteration.

        The iteration is that of section 5. Both end at the same model.
        """,
        panel=PAPERS,
        formulations=("crammer-singer",),
    )
    order: OrderName = parameter(
        "auto",
        """
        Which row is solved for next. All but 'auto' are the paper's, with working_set='all'.

        ``"worst"`` takes the row of largest ψ (section 4); ``"active"`` the worst of the rows with
        a coefficient, and another one only when none of these violates by more than a level
        (section 6); ``"sequential"`` and ``"random"`` all rows in turn, in their order or in
        another random one in each pass. ``"auto"`` takes rows with a coefficient first, but lets no
        other wait whose ψ is much larger, and chooses working sets.
        """,
        recorded=True,
        panel=PAPERS,
        formulations=("crammer-singer",),
    )
    cooling: CoolingName | None = parameter(
        None,
        """
        With order='active': how the level of violations comes down to tol.

        ``"log"`` is 0.999 / log₁₀(t + 10) after t steps (section 6); with None the level is `tol`
        from the start. The other two schedules of the paper, exponential and linear, are at a
        tolerance of 1e-3 after 7 and 998 steps, and therefore no options.
        """,
        recorded=True,
        panel=PAPERS,
        formulations=("crammer-singer",),
    )
    fit_intercept: bool = parameter(
        False,
        """
        Whether each function has a bias, one of its weights.

        1 is added to the kernel.
        """,
        recorded=True,
        panel=CRAMMER_SINGER,
        formulations=("crammer-singer",),
    )


@dataclass(kw_only=True, eq=False, repr=False)
class PairStepParameters:
    """How pair steps are taken; all formulations but Crammer and Singer's."""

    selection: SelectionName = parameter(
        "auto", "How a pair of variables is chosen.", panel=PAPERS, formulations=OTHERS
    )
    rows_at_once: int | None = parameter(
        None,
        """
        With working_set='all': most kernel rows that are computed together. By default as many as
        pays.

        None is up to 24 while there is room, and 12 of dense rows, 1 of sparse ones, that take the
        place of others: a dozen dense rows take little longer than one. With 1 and
        ``selection="hmg"`` a step computes one new row at most, unless both variables of the last
        pair are at a bound.
        """,
        panel=PAPERS,
        formulations=OTHERS,
    )
    shrinking: bool | None = parameter(
        None,
        """
        With working_set='all': leave rows that stay at a bound out until the end is near. By
        default where memory holds few kernel rows and none are kept on disk.

        Few are less than a tenth of all; a `disk_cache` keeps whole rows. Other runs always leave
        out rows that need not move; the estimators warn of False there.
        """,
        recorded=True,
        panel=PAPERS,
        formulations=OTHERS,
    )


@dataclass(kw_only=True, eq=False, repr=False)
class Resources:
    """What a run may take; none of them changes the answer."""

    working_set: WorkingSetName = parameter(
        "auto",
        """
        Parts of the rows, or all at once (kernel rows on demand).

        ``"auto"`` works on parts that are chosen anew as training goes on. ``"all"`` takes pair
        steps over all rows at once: the papers' own algorithm. All rows have to fit in `memory`,
        and the kernel rows get the rest of it.
        """,
        panel=PAPERS,
    )
    memory: int | str = parameter(
        "1GB",
        """
        Memory budget, for example 4GB, 512MiB, or 50% of that of this machine.

        Bytes that all arrays of training together may take. A share is one of the machine's memory,
        or of the limit of the control groups of this process.
        """,
        panel=RESOURCES,
        metavar="SIZE",
        kind=SIZE,
    )
    disk_cache: int | str = parameter(
        0,
        """
        Kernel rows kept in cache_dir, with working_set='all' or a kernel of one's own.

        Bytes of kernel rows that may be kept on disk where memory holds too few of them. Rows are
        kept only where reading one back from a local solid-state disk is cheaper than computing it,
        as the numbers of rows, columns and threads say, or where earlier runs have kept some. They
        serve later runs on the same data with the same kernel. Without working_set='all' they are
        for a kernel of one's own whose values take five times as long to compute as to read.
        """,
        panel=PAPERS,
        metavar="SIZE",
        kind=SIZE,
    )
    checkpoint_every: float = parameter(
        60.0, "Seconds between two saves.", panel=RESOURCES, metavar="TIME", rule=ABOVE_0
    )
    max_iter: int = parameter(
        -1,
        "Stop after this number of pair steps; -1 is never.",
        panel=STOPPING,
        rule=Rule(lambda value: value >= -1, ">= 0, or -1 for none"),
    )
