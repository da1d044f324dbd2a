"""``bigsvm warm-up``: compile everything now, so that later runs load the code."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from bigsvm.cli.options import Json, Quiet
from bigsvm.cli.outputs import say_result
from bigsvm.errors import DataError, ParameterError
from bigsvm.report.progress import Display
from bigsvm.report.text import count
from bigsvm.small.rule import SWITCH

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.conversion.writing import DType
    from bigsvm.parameters.names import KernelName

    Job = tuple[str, Callable[[], object]]

_ROWS = 300
"""Rows of a job: enough for each part of a run to be used, and few enough to take no time."""
_MANY_ROWS = 1200
"""Rows of a job with more than one block of support vectors, 512 of them."""
_CLASSES = 20
"""Classes of a job, so many that a support vector has no weight in most functions."""
_COLUMNS = 64
"""Columns of a job: with fewer, its models would be so small that they predict by NumPy."""
_LISTED_COLUMNS = 20_000
"""Columns of sparse rows of which a tile exceeds the cache, so that it is laid out in lists."""


def command(json: Json = False, quiet: Quiet = False) -> None:
    """Compile everything for this processor, which else the first runs do.

    The code is kept in the folder that the environment variable NUMBA_CACHE_DIR names, or beside
    the modules. Run this when an image of a container is built, on the kind of processor on which
    the container will run.

    \b
    Examples:
      bigsvm warm-up
      NUMBA_CACHE_DIR=/opt/numba bigsvm warm-up
    """
    import tempfile
    import warnings

    from numba import config

    from bigsvm.compilation import compilations, why_not_kept
    from bigsvm.core.gram import weighted_sums

    if config.DISABLE_JIT:
        raise ParameterError("NUMBA_DISABLE_JIT is set, so that nothing is compiled; unset it")
    with (
        Display(quiet=quiet, takes_warnings=False) as display,
        compilations() as counted,
        tempfile.TemporaryDirectory() as folder,
        _own_solver(),
        warnings.catch_warnings(),
    ):
        # The models are not used, so their warnings do not matter.
        warnings.simplefilter("ignore")
        jobs = list(_jobs(Path(folder)))
        for i, (what, job) in enumerate(jobs):
            display.move("warming up", f"{what}, {i} of {len(jobs)} jobs", i, len(jobs))
            job()
            if (why := why_not_kept()) is not None:
                raise DataError(why)
    place, n, seconds = weighted_sums.stats.cache_path, counted.n_functions, counted.seconds
    record = {"n_functions": n, "seconds": seconds, "folder": place}
    lines = [("compiled", f"{count(n)} functions in {seconds:.1f} s"), ("folder", place)]
    say_result(record, lines, json=json)


@contextmanager
def _own_solver() -> Iterator[None]:
    """Solve small problems by bigsvm's own solver for a while: LIBSVM's compiles nothing."""
    before = os.environ.get(SWITCH)
    os.environ[SWITCH] = "never"
    try:
        yield
    finally:
        if before is None:
            del os.environ[SWITCH]
        else:
            os.environ[SWITCH] = before


def _jobs(folder: Path) -> Iterator["Job"]:
    """Yield small jobs that together use each compiled function, with their names."""
    import numpy as np
    import scipy.sparse as sp

    from bigsvm.conversion.writing import DType
    from bigsvm.data.statistics import FEW_ENTRIES, moments_of
    from bigsvm.estimators.l2_svc import L2SVC
    from bigsvm.estimators.svc import SVC
    from bigsvm.working_sets.choice import DIRECT_ROWS

    random = np.random.default_rng(0)
    many, noise = (
        random.normal(size=(_MANY_ROWS, _COLUMNS)).round(3),
        random.integers(3, size=_MANY_ROWS),
    )
    dense = many[:_ROWS]
    sparse = sp.csr_matrix(np.where(dense > 0, dense, 0.0))
    two, three = dense[:, 0] > 0, np.digitize(dense[:, 0], [-0.5, 0.5])
    for name, X in {
        "float64": dense, "float32": dense.astype(np.float32),
        "sparse float64": sparse, "sparse float32": sparse.astype(np.float32),
    }.items():  # fmt: skip
        for machine, y in _machines(two, three, dense[:, 0]):
            yield f"{machine!r}, {name}", _fit(machine, X, y)
    # More rows than take part at once: equal ones are looked for. Zeros and ones, and other whole
    # numbers, are laid out as bytes.
    large = random.normal(size=(DIRECT_ROWS + 1, 4)).round(3)
    positive = sp.csr_matrix(np.maximum(large, 0.0))
    kinds = {"dense": large, "sparse": positive, "0/1": positive.sign(), "whole": positive.ceil()}
    for name, X in kinds.items():
        for dtype in (np.float64, np.float32):
            yield f"many rows, {name}", _fit(SVC(), X.astype(dtype), large[:, 0] > 0)
    for name in ("0/1", "whole"):
        signal = large[:_ROWS, 0]
        for machine, y in _machines(signal > 0, np.digitize(signal, [-0.5, 0.5]), signal):
            yield f"{machine!r}, {name}", _fit(machine, kinds[name][:_ROWS], y)
    # Rows that share few features are laid out in lists.
    columns = np.sort(random.integers(_LISTED_COLUMNS, size=dense.shape), axis=1)
    starts = np.arange(0, columns.size + 1, _COLUMNS)
    wide = sp.csr_matrix((dense.ravel(), columns.ravel(), starts), (_ROWS, _LISTED_COLUMNS))
    wide.sum_duplicates()
    for dtype in (np.float64, np.float32):
        yield "rows of many columns", _fit(SVC(), wide.astype(dtype), two)
    # Of few entries the moments are computed by NumPy; few samples need no rows in advance.
    n = FEW_ENTRIES // _COLUMNS + 1
    for dtype in (np.float64, np.float32):
        full = sp.csr_matrix(np.ones((n, _COLUMNS), dtype))
        yield "moments of sparse rows", partial(list, moments_of(full))
    yield "balls of more rows", _fit(L2SVC(solver="cvm"), large, large[:, 0] > 0)
    yield "many support vectors", _fit(SVC(multiclass="ovr"), many, noise)
    # Of many functions each has few weights.
    bins = np.argsort(np.argsort(dense[:, 0])) // (_ROWS // _CLASSES)
    for dtype in (np.float64, np.float32):
        yield "many classes", _fit(SVC(), dense.astype(dtype), bins)
    for form in ("dense", "sparse"):
        yield f"text, {form}", _text(folder / form, dense if form == "dense" else sparse, two)
    for dtype in get_args(DType):
        yield f"much text, {dtype}", _much_text(folder / f"much {dtype}", dtype)
    for X in (dense, sparse):
        for kernel in _KERNELS:
            yield kernel, _fit(SVC(kernel=kernel), np.abs(X), two)


_KERNELS: "tuple[KernelName, ...]" = (
    "laplacian", "poly", "linear", "sigmoid", "cosine", "matern32", "tanimoto", "intersection",
    "chi2",
)  # fmt: skip
"""Kernels whose code is another than that of rbf: of matern32, matern52 has the code."""


def _machines(
    two: "NDArray[Any]", three: "NDArray[Any]", targets: "NDArray[Any]"
) -> Iterator[tuple[Any, Any]]:
    """Yield an estimator of each kind, and its labels or targets."""
    from bigsvm.estimators.crammer_singer import CrammerSingerSVC
    from bigsvm.estimators.l2_svc import L2SVC
    from bigsvm.estimators.one_class import L2OneClassSVM, OneClassSVM
    from bigsvm.estimators.svc import SVC, NuSVC
    from bigsvm.estimators.svr import SVR, NuSVR
    from bigsvm.parameters.names import SelectionName

    many = three + 3 * two
    for selection in get_args(SelectionName):
        yield SVC(selection=selection, working_set="all"), two
    yield SVC(memory="2MB"), two
    yield SVC(calibration="sigmoid"), two
    yield SVC(loss="squared_hinge"), two
    yield NuSVC(nu=0.1), two
    for multiclass in ("ovo", "ovr"):
        yield SVC(multiclass=multiclass), many
        yield L2SVC(multiclass=multiclass), many
    yield NuSVC(nu=0.1), three
    for solver in ("pairwise", "cvm", "mfw", "fw"):
        for certify in (True, False):
            yield L2SVC(solver=solver, certify=certify, ball_tol=0.1), two
    yield L2OneClassSVM(), None
    yield OneClassSVM(nu=0.2), None
    yield SVR(), targets
    yield NuSVR(), targets
    yield CrammerSingerSVC(), three
    yield CrammerSingerSVC(subproblem="fixed_point"), three
    for order in ("worst", "active", "sequential", "random"):
        yield CrammerSingerSVC(order=order, working_set="all"), three


def _fit(machine: Any, X: Any, y: Any) -> Callable[[], object]:  # noqa: ANN401 (as `fit` takes them)
    return lambda: machine.fit(X, y).predict(X)


def _text(folder: Path, X: Any, y: "NDArray[Any]") -> Callable[[], object]:  # noqa: ANN401 (rows)
    """Convert, scale, train on and predict rows from LIBSVM text."""

    def job() -> None:
        from sklearn.datasets import dump_svmlight_file

        from bigsvm.conversion.from_text import convert
        from bigsvm.conversion.scaling import scale_store
        from bigsvm.estimators.svc import SVC

        folder.mkdir()
        dump_svmlight_file(X, y, str(folder / "rows.libsvm"), zero_based=False)
        store = convert(folder / "rows.libsvm", folder / "rows.zarr")
        scaled = scale_store(store, folder / "scaled.zarr", method="maxabs")
        for each in (store, scaled):
            SVC().fit(each).score(each)

    return job


def _much_text(folder: Path, dtype: "DType") -> Callable[[], object]:
    """Convert more text than is read without compiled code."""

    def job() -> None:
        from bigsvm.conversion.from_text import convert
        from bigsvm.conversion.plain_text import PLAIN_BYTES
        from bigsvm.data.shuffle import FEW_WORDS

        folder.mkdir()
        line = "".join(["1", *(f" {column}:1" for column in range(_COLUMNS)), "\n"])
        # An entry has a word for its column, and one at least for its value.
        n_rows = 1 + max(PLAIN_BYTES // len(line), FEW_WORDS // (2 * _COLUMNS))
        (folder / "rows.libsvm").write_text(n_rows * line)
        convert(folder / "rows.libsvm", folder / "rows.zarr", layout="sparse", dtype=dtype)

    return job
