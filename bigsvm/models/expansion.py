"""KernelExpansion: what training leaves, ``h(x) = Σ_t coefficient_t k(x, s_t) + intercept``.

For many classes there are several such functions h over the same support vectors s_t, and a rule
that decides by their values; each kernel value is computed once for all functions.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from bigsvm import votes
from bigsvm.coupling import class_probabilities
from bigsvm.data.kernel_matrix import prediction_matrix
from bigsvm.data.row_source import PREDICTION_BLOCKS, RowSource
from bigsvm.data.rows import check_finite
from bigsvm.data.sources import as_row_source
from bigsvm.data.wrappers import in_scale_of
from bigsvm.errors import DataError, ParameterError, brief, shortened, shown
from bigsvm.executors.clients import workers_of
from bigsvm.models.certificate import doubt_of
from bigsvm.models.columns import check_first_index, check_names, check_number
from bigsvm.models.files import read_model, write_model
from bigsvm.parameters.formulations import CALIBRATIONS, traits_of
from bigsvm.processors import count_threads

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    import scipy.sparse as sp
    from distributed import Client
    from numpy.typing import ArrayLike, NDArray

    from bigsvm.calibration import Calibration
    from bigsvm.data.rows import Rows
    from bigsvm.data.scaler import Scaler
    from bigsvm.data.store import Store
    from bigsvm.encoding import Encoding
    from bigsvm.executors.workforce import Workforce
    from bigsvm.gram.partners import Weights
    from bigsvm.kernels import Kernel

    RowsLike: TypeAlias = (
        RowSource | Store | str | os.PathLike[str] | ArrayLike | sp.spmatrix | sp.sparray
    )

_SHOWN_CLASSES = 6


def label_array(classes: Any) -> NDArray[Any]:  # noqa: ANN401 (a list of any labels)
    """Labels of a model as an array, words as objects.

    NumPy makes floats of whole numbers around 2**63.
    """
    if isinstance(classes[0], str):
        return np.asarray(classes, object)
    whole = all(isinstance(label, int) for label in classes)
    unsigned = whole and min(classes) >= 0 and 2**63 <= max(classes) < 2**64
    return np.asarray(classes, np.uint64 if unsigned else None)


@dataclass(frozen=True, kw_only=True, repr=False)
class KernelExpansion:
    """A trained decision function.

    Attributes
    ----------
    kernel : Kernel
    support_vectors : Rows
        (n_support, d), as they were in the training data: scaled, if those were. Of a kernel
        matrix (n, n) it is (n_support, n + 1): only numbers, from 1, are there, in column 0.
    coefficients : (n_support,) float64, or (n_support, n_functions) CSR
        Signed: positive where the support vector pulls towards the second class (of the pair; or
        towards the class whose function it is).
    intercept : float, or (n_functions,) float64
    centre : (d,) float64 or None
        Subtracted from both arguments of a shift-invariant kernel, for float32's sake.
    support : (n_support,) int64
        Rows of the training data that the support vectors were.
    classes : list of numbers or of str, or None
        The labels that a negative and a positive decision value stand for, or those of many
        classes; a single one where LIBSVM has seen no other, and all decision values are 0. None
        where decision values are what is predicted, or say how much a row is like the others.
    formulation : str
        As `bigsvm.duals.formulations` names it.
    rule : str or None
        How a class is decided by the values of several functions: one of
        `bigsvm.votes.RULES`. None if there is one function.
    scaler : Scaler or None
        How the training data were scaled. Predictions scale rows that are not scaled.
    calibration : Calibration or None
        Makes probabilities of the classes from decision values; of a regression, how far targets
        are from predictions.
    bounds : (n_support,) float64 or None
        For crammer-singer, C · weight of each support vector. Its coefficients are between minus
        this number and this number; the nearer they are, the more its label is in doubt.
    certificate : dict
        Why training stopped, what it proved and what it cost; see `bigsvm.training.result`.
    provenance : dict
        Version, parameters, and the fingerprint of the training data.

    Raises
    ------
    ParameterError
        Shapes that contradict each other, the rule or the classes.

    See Also
    --------
    load : The fitted estimator of a file.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> import bigsvm
    >>> X, y = make_moons(200, noise=0.1, random_state=0)
    >>> bigsvm.SVC(C=10, gamma=1).fit(X, y).model_.save("moons.safetensors")
    >>> model = bigsvm.KernelExpansion.load("moons.safetensors")
    >>> model.n_features, model.decision_function(X).shape
    (2, (200,))
    """

    kernel: Kernel
    support_vectors: Rows
    coefficients: Weights
    intercept: float | NDArray[np.float64]
    centre: NDArray[np.float64] | None
    support: NDArray[np.int64]
    classes: list[float] | list[int] | list[str] | None
    formulation: str = "c-svc"
    rule: str | None = None
    scaler: Scaler | None = None
    calibration: Calibration | None = None
    bounds: NDArray[np.float64] | None = None
    certificate: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n_classes = len(self.classes or ())
        of_functions: tuple[int, ...] = ()
        if self.rule is not None:
            of_functions = (votes.n_functions(self.rule, n_classes),)
        wanted = ((len(self.support), *of_functions), of_functions, len(self.support))
        shapes = (self.coefficients.shape, np.shape(self.intercept), self.support_vectors.shape[0])
        if shapes != wanted or (self.rule is not None and n_classes < 2):
            raise ParameterError(
                f"coefficients {shapes[0]}, intercepts {shapes[1]} and {shapes[2]} support "
                f"vectors; with the rule {self.rule} of {n_classes} classes, and as many rows in "
                f"support, they must be {wanted[0]}, {wanted[1]} and {wanted[2]}"
            )
        factors = self.kernel.column_factors
        if factors is not None and factors.shape != self.support_vectors.shape[1:]:
            raise ParameterError(
                f"a kernel with {len(factors)} gammas of support vectors with "
                f"{self.support_vectors.shape[1]} columns"
            )
        if self.bounds is not None and self.bounds.shape != self.support.shape:
            raise ParameterError(
                f"bounds {self.bounds.shape} of {len(self.support)} support vectors; one for each"
            )
        if self.calibration is not None:
            self._check_calibration(self.calibration)
        if self.centre is not None and self.centre.shape != self.support_vectors.shape[1:]:
            raise ParameterError(
                f"a centre of shape {self.centre.shape} of support vectors with "
                f"{self.support_vectors.shape[1]} columns"
            )

    def __repr__(self) -> str:
        classes = ""
        if self.classes is not None:
            first = [
                shown(shortened(label) if isinstance(label, str) else brief(label))
                for label in self.classes[:_SHOWN_CLASSES]
            ]
            more = ["…"] if len(self.classes) > _SHOWN_CLASSES else []
            classes = f", {len(self.classes)} classes ({', '.join(first + more)})"
        return (
            f"<KernelExpansion {self.formulation}: {self.kernel}, {len(self.support)} support "
            f"vectors, {self.n_features} columns{classes}>"
        )

    def _check_calibration(self, calibration: Calibration) -> None:
        method, learns = calibration.method, traits_of(self.formulation).learns
        if method not in CALIBRATIONS[learns]:
            raise ParameterError(
                f"a {method} calibration of {self.formulation}; it must be "
                f"{' or '.join(CALIBRATIONS[learns])}"
            )
        if learns == "classes" and len(self.classes or ()) < 2:
            raise ParameterError("a calibration of one class or of none; it needs two at least")
        each = calibration.numbers.shape[1]
        several = self.n_functions if self.rule in votes.OF_PAIRS else 1
        if method == "sigmoid" and each not in (1, several):
            raise ParameterError(
                f"a sigmoid calibration of {each} functions, of a model of {self.n_functions}"
            )

    @property
    def n_probabilities(self) -> int:
        """Number of probabilities of a row: of each class; of one class, to be outside or inside.

        0 of a regression.
        """
        if self.classes is not None:
            return len(self.classes)
        return 2 if traits_of(self.formulation).learns == "rows" else 0

    @property
    def left_out(self) -> list[int]:
        """Places of classes of which no row had a weight: they are never predicted."""
        return list(self.provenance.get("left_out", []))

    @property
    def n_functions(self) -> int:
        """Number of functions: 1, or the number that the rule needs."""
        return int(np.size(self.intercept))

    @property
    def n_features(self) -> int:
        """Columns of the training data; of a kernel matrix, those of kernel values."""
        return int(self.support_vectors.shape[1]) - self._is_of_kernel_matrix

    @property
    def _is_of_kernel_matrix(self) -> bool:
        return self.kernel.product == "lookup"

    # -- prediction ------------------------------------------------------------------------------

    def decision_function(
        self,
        source: RowsLike,
        *,
        threads: int = 1,
        block_bytes: int = PREDICTION_BLOCKS,
        on_progress: Callable[[int], None] | None = None,
        client: Client | Workforce | None = None,
    ) -> NDArray[np.float64]:
        """Decision values of all rows of a source, streamed in blocks.

        They are computed in the precision of the rows; in float64 where float32 would be off by
        more than `bigsvm.models.prediction.ENOUGH`, for a kernel matrix or a kernel of one's own,
        and where the support vectors are few: of at most `bigsvm.models.small.FEW_NUMBERS` numbers.

        Parameters
        ----------
        source : array, sparse matrix, store, Dask or Zarr array, or RowSource
            With `n_features` columns; scaled as the training data were, or not at all.
        threads : int
        block_bytes : int
            Bytes of the two blocks of rows that exist at once, if rows are not in memory. Sparse
            support vectors, which are prepared in groups, take as much again.
        on_progress : callable, optional
            Called with the number of rows done, several times a second; the pass ends if it raises.
        client : distributed.Client or Workforce, optional
            Its workers compute, and read the rows where they can; each keeps the whole model. The
            values have the same bits.

        Returns
        -------
        (n_rows,) float64, or (n_rows, n_functions) where there is a rule
            `decide` tells the classes without holding all of the latter.

        Raises
        ------
        DataError
            Another number of columns, or column 0 was another index in the LIBSVM text, or the
            rows are of a store that was scaled in another way; an array has values that are not
            finite.
        ClusterError, MemoryBudgetError
            The client or its cluster cannot be used; the model does not fit on a worker.
        """
        source = _row_source(source)
        values = np.empty((source.n_rows, *np.shape(self.intercept)))
        self._stream(source, values.__setitem__, threads, block_bytes, on_progress, client)
        return values

    def decide(
        self,
        source: RowsLike,
        *,
        rule: str | None = None,
        keep: Callable[[slice, NDArray[np.float64]], None] | None = None,
        threads: int = 1,
        block_bytes: int = PREDICTION_BLOCKS,
        on_progress: Callable[[int], None] | None = None,
        client: Client | Workforce | None = None,
    ) -> NDArray[np.int64]:
        """Classes of all rows of a source, streamed as by `decision_function`.

        Values of all functions exist for some rows at a time: `executors.VALUES_AT_ONCE` at most,
        or those of one row.

        Parameters
        ----------
        source, threads, block_bytes, on_progress, client
            As for `decision_function`.
        rule : str, optional
            Another one of the same functions: "ddag" or "ovo-break-ties" in place of "ovo".
        keep : callable, optional
            Given the decision values of rows ``start … stop - 1``, one part after the other.

        Returns
        -------
        (n_rows,) int64
            Places in `classes`; of one function 1 where its value is positive, else 0.

        Raises
        ------
        DataError
            As for `decision_function`.
        ParameterError
            A rule of other functions.
        """
        rule = self.rule if rule is None else rule
        n_classes = len(self.classes or ())
        if rule is not None and rule != self.rule:
            votes.n_functions(rule, n_classes)
            if self.rule is None or (rule in votes.OF_PAIRS) != (self.rule in votes.OF_PAIRS):
                raise ParameterError(f"rule is {rule!r}; the functions are those of {self.rule}")
        source = _row_source(source)
        codes = np.empty(source.n_rows, np.int64)

        def reduce(rows: slice, values: NDArray[np.float64]) -> None:
            if keep is not None:
                keep(rows, values)
            codes[rows] = values > 0 if rule is None else votes.decide(values, rule, n_classes)

        self._stream(source, reduce, threads, block_bytes, on_progress, client)
        return codes

    def class_values(
        self,
        source: RowsLike,
        *,
        threads: int = 1,
        block_bytes: int = PREDICTION_BLOCKS,
        client: Client | Workforce | None = None,
    ) -> NDArray[np.float64]:
        """Values of the classes, (n_rows, k) float64, streamed as by `decide`.

        For class pairs they are the votes, plus less than half a vote for the sum of the pairs'
        values (`votes.one_vs_rest_values`). For functions of one class each they are the values.

        Parameters
        ----------
        source, threads, block_bytes, client
            As for `decision_function`.

        Raises
        ------
        DataError
            As for `decision_function`.
        ParameterError
            The model is not one of many classes.
        """
        if self.rule is None:
            raise ParameterError("the model has one function; its values are decision_function's")
        n_classes, of_pairs = len(self.classes or ()), self.rule in votes.OF_PAIRS

        def of_functions(values: NDArray[np.float64]) -> NDArray[np.float64]:
            return votes.one_vs_rest_values(values, n_classes) if of_pairs else values

        return self._of_classes(source, of_functions, threads, block_bytes, client)

    def probabilities(
        self,
        source: RowsLike,
        *,
        threads: int = 1,
        block_bytes: int = PREDICTION_BLOCKS,
        client: Client | Workforce | None = None,
    ) -> NDArray[np.float64]:
        """Probabilities of the classes, (n_rows, k) float64, streamed as by `decide`.

        Of one class (n_rows, 2): to be outside, and inside.

        Parameters
        ----------
        source, threads, block_bytes, client
            As for `decision_function`.

        Raises
        ------
        DataError
            As for `decision_function`.
        ParameterError
            The model has no calibration, or is a regression.
        """
        return self._of_classes(source, self.probabilities_of, threads, block_bytes, client)

    def probabilities_of(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Probabilities of the classes, (n, k), for values of `decision_function`.

        Raises
        ------
        ParameterError
            The model has no calibration, or is a regression.
        """
        if self.calibration is None:
            raise ParameterError("the model has no calibration; train it with one")
        k, left_out = self.n_probabilities, self.left_out
        if not left_out:
            return class_probabilities(self.calibration, values, self.rule, k)
        kept = np.delete(np.arange(k), left_out)
        functions = kept
        if self.rule in votes.OF_PAIRS:
            functions = np.flatnonzero(np.isin(votes.pair_classes(k), kept).all(axis=0))
        probabilities = np.zeros((len(values), k))
        probabilities[:, kept] = class_probabilities(
            self.calibration, values[:, functions], self.rule, len(kept)
        )
        return probabilities

    def _of_classes(
        self,
        rows: RowsLike,
        of_functions: Callable[[NDArray[np.float64]], NDArray[np.float64]],
        threads: int,
        block_bytes: int,
        client: Client | Workforce | None,
    ) -> NDArray[np.float64]:
        """Values of the classes, (n_rows, k), made from those of the functions."""
        source = _row_source(rows)
        of_classes = np.empty((source.n_rows, self.n_probabilities))

        def reduce(rows: slice, values: NDArray[np.float64]) -> None:
            of_classes[rows] = of_functions(values)

        self._stream(source, reduce, threads, block_bytes, None, client)
        return of_classes

    def _stream(
        self,
        source: RowSource,
        use: Callable[[slice, NDArray[np.float64]], None],
        threads: int,
        block_bytes: int,
        on_progress: Callable[[int], None] | None,
        client: Client | Workforce | None,
    ) -> None:
        """Hand decision values to `use`, some rows at a time."""
        # Imported here, as a model that predicts nothing does without.
        from bigsvm.models.prediction import Functions, are_small, stream, stream_small

        threads = count_threads(threads, "threads")
        if self._is_of_kernel_matrix:
            source = prediction_matrix(source, self.n_features)
        else:
            self.check_columns(source.n_columns, source.first_index, source.feature_names)
            if source.scaler is not None or self.scaler is not None:
                source = in_scale_of(source, self.scaler)
        functions = Functions(
            self.kernel, self.support_vectors, self.coefficients, self.intercept, self.centre
        )
        with nullcontext() if client is None else workers_of(client) as workforce:
            (stream_small if are_small(functions) else stream)(
                functions, source, use, threads=threads, block_bytes=block_bytes,
                on_progress=on_progress, workforce=workforce,
            )  # fmt: skip

    @property
    def kind(self) -> str:
        """The formulation of LIBSVM whose models predict like this one."""
        like = {"c-svc squared hinge": "c-svc", "l2-svc": "c-svc", "l2-one-class": "one-class"}
        return like.get(self.formulation, self.formulation)

    @property
    def doubt(self) -> str | None:
        """Why a converged model may still be of no use, in a sentence; None if it may not."""
        return doubt_of(self.certificate, self.formulation, self.classes)

    @property
    def first_index(self) -> int | None:
        """Index of column 0 in the LIBSVM text it was trained on, None where that was no text."""
        index = self.provenance.get("first_index")
        return None if index is None else int(index)

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the columns of the training data; None if they had none."""
        names = self.provenance.get("feature_names")
        return None if names is None else tuple(names)

    @property
    def input_names(self) -> tuple[str, ...] | None:
        """Names of the columns of a table to predict: `feature_names`, or those it encodes."""
        return self.feature_names if self.encoding is None else tuple(self.encoding["columns"])

    @property
    def encoding(self) -> Encoding | None:
        """How the columns were made from those of a table; see `bigsvm.encoding`. None if not."""
        return self.provenance.get("encoding")

    def check_columns(
        self,
        n_columns: int,
        first_index: int | None = None,
        feature_names: tuple[str, ...] | None = None,
    ) -> None:
        """Refuse rows whose columns differ from those of the training data.

        Parameters
        ----------
        n_columns : int
        first_index : int, optional
            Index of column 0, if the rows come from LIBSVM text.
        feature_names : tuple of str, optional
            Names of the columns, if they have any.

        Raises
        ------
        DataError
            The number of columns, the first index or the names differ.
        """
        if self._is_of_kernel_matrix:
            return  # with or without its numbers
        if self.encoding is not None and n_columns != self.n_features:
            raise DataError(
                f"the rows have {n_columns} columns, and the model makes its {self.n_features} of "
                "those of a table; give a file, or a data frame of pandas, Polars or Arrow, with "
                f"the columns {', '.join(map(brief, self.encoding['columns'][:5]))}"
            )
        of_libsvm = self.provenance.get("read from") == "libsvm"
        check_number(n_columns, self.n_features, model_of_libsvm=of_libsvm)
        check_first_index(first_index, self.first_index)
        check_names(feature_names, self.feature_names)

    # -- files -----------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, timings: bool = False) -> None:
        """Write the model to one file, whole or not at all.

        Parameters
        ----------
        path : path or URL
            A URL such as ``s3://bucket/model.safetensors`` takes the extra ``bigsvm[cloud]``; the
            model is whole in a temporary file first.
        timings : bool
            Whether to keep what differs between two runs of the same fit, such as the
            ``"seconds"`` of `certificate`: ``"seconds_by_phase"``, ``"cpu_idle"``,
            ``"disk_tier"`` and what workers of a cluster did. Without them the files of both
            runs are equal.

        Raises
        ------
        ModelError
            The file cannot be written.
        StoreError
            The URL cannot be written to.
        """
        write_model(vars(self), path, timings=timings)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> KernelExpansion:
        """Read a model file and check every byte of it.

        Parameters
        ----------
        path : path or URL

        Raises
        ------
        ModelError
            Not a bigsvm model, damaged, or written by a newer version.
        StoreError
            The URL cannot be read, or not reached for a while; see `open_store`.
        """
        return read_model(path, cls)


def _row_source(rows: RowsLike) -> RowSource:
    """Rows of any container to predict; an array in memory must be finite."""
    if isinstance(rows, RowSource):
        return rows
    source = as_row_source(rows)
    if source.row_alignment == 1:
        step = source.rows_per_block(PREDICTION_BLOCKS)
        for start in range(0, source.n_rows, step):
            check_finite(source.read(start, min(start + step, source.n_rows)), start)
    return source
