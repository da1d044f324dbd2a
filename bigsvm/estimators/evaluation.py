"""Values of a fitted model at the rows of any container: at once, in blocks, or lazily."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from bigsvm.budget import parse_bytes
from bigsvm.data.containers import container_of, dask_array, is_named
from bigsvm.data.frames import frame_names, is_dask_frame, is_frame
from bigsvm.data.in_memory import ArrayRows, as_one_array
from bigsvm.data.row_source import DASK_BLOCK_BYTES, RowSource
from bigsvm.data.row_values import check_order, to_input_order
from bigsvm.data.rows import check_finite
from bigsvm.data.sources import as_row_source, as_store
from bigsvm.data.store import Store
from bigsvm.data.store_part import StorePart
from bigsvm.data.wrappers import ChosenRows, in_scale_of
from bigsvm.errors import ParameterError
from bigsvm.estimators.arguments import SharedArguments
from bigsvm.estimators.lazily import evaluated_beside_frame, evaluated_lazily, in_input_order
from bigsvm.models.widened import widened
from bigsvm.processors import count_threads

if TYPE_CHECKING:
    from collections.abc import Iterator

    import dask.array as da
    from numpy.typing import NDArray

    from bigsvm.data.row_values import Order
    from bigsvm.estimators.lazily import Evaluate
    from bigsvm.models import KernelExpansion


DOUBTFUL_VALUE = 1e-4
"""Share of the largest value of a function below which the sign of a sum in float32 is in doubt."""


class EvaluatesRows(SharedArguments):
    """An estimator whose model is evaluated at rows of any container."""

    model_: KernelExpansion
    _known: tuple[RowSource, NDArray[np.float64]] | None = None
    """Rows with values of the function that are known, while they are scored."""

    @contextmanager
    def _knowing(self, rows: RowSource, values: NDArray[np.float64] | None) -> Iterator[None]:
        """Let predictions of `rows` use values of the function that training has left, for a while.

        The values, (m,), are from float32 kernel values. Those near 0, whose signs are in doubt,
        are computed again.
        """
        if values is not None:
            largest = float(np.abs(values).max(initial=0.0))
            scale = max(1.0, largest, abs(float(self.model_.intercept)))
            near = np.flatnonzero(np.abs(values) <= DOUBTFUL_VALUE * scale)
            if len(near):
                values[near] = self._values(ChosenRows(rows, near), "store")
            self._known = rows, values
        try:
            yield
        finally:
            self._known = None

    def _values(self, X: Any, order: Order) -> NDArray[np.float64] | da.Array:
        """Values of the model's function, (n,), lazy where X is."""
        check_is_fitted(self)
        return self._stream(X, lambda values: values, np.float64, order)

    def _stream(self, X: Any, map_values: Any, dtype: Any, order: Order) -> Any:
        """Map the values of the model's one function, (n,), lazily where X is."""
        if self._known is not None and X is self._known[0]:
            return map_values(self._known[1])
        return self._evaluate(
            X,
            lambda model, rows, threads: map_values(model.decision_function(rows, threads=threads)),
            np.empty(0, dtype),
            order,
        )

    def _evaluate(self, X: Any, evaluate: Evaluate, of_none: NDArray[Any], order: Order) -> Any:
        """Evaluate the model at all rows, lazily where X is; X is as `fit` takes it.

        `evaluate` is given the model, rows and threads, and returns (n,) or (n, m). `of_none` is
        what that is of no rows. The order is that of the result for a store or its rows; other
        containers have one order.
        """
        if order != "store":
            check_order(order)
        memory, threads = parse_bytes(self.memory), count_threads(self.n_jobs)
        encoding = self.model_.encoding
        is_rows = isinstance(X, np.ndarray | RowSource | Store)
        if not is_rows and (is_named(X) or (encoding is not None and is_frame(X))):
            # Imported here, as rows in memory do not need it.
            from bigsvm.conversion.formats import features_of, has_features

            names = self.model_.input_names
            if has_features(X, names):
                X = features_of(X, names, encoding, memory=self.memory)
        if isinstance(X, StorePart):
            if order == "input":
                raise ParameterError(
                    "order is 'input', but rows that are chosen from a store have the order in "
                    "which they were chosen; leave it out"
                )
            X = X.rows
        if isinstance(X, RowSource):
            model = self._model_of(X.n_columns)
            values = _evaluate_blocks(model, X, evaluate, threads, memory // 8)
            return to_input_order(values, X.original_rows()) if order == "input" else values
        is_array = isinstance(X, np.ndarray)
        store = None if is_array else as_store(X)
        if store is not None:
            rows = store.rows
            model = self._model_of(rows.n_columns)
            model.check_columns(rows.n_columns, rows.first_index, rows.feature_names)
            # Imported here, as rows in memory do not need it.
            from dask.system import CPU_COUNT

            # Dask computes one block per processor at once, not one per thread of a fit.
            share = memory // (4 * CPU_COUNT)
            block_bytes = max(1 << 20, min(DASK_BLOCK_BYTES, share))
            array = in_scale_of(rows, model.scaler).as_dask(block_bytes=block_bytes)
            # Blocks no longer know whether they are scaled.
            values = evaluated_lazily(array, replace(model, scaler=None), evaluate, of_none)
            return in_input_order(values, rows) if order == "input" else values
        container = None if is_array else container_of(X)
        if container is not None and container.name == "DataArray":
            return self._evaluate(X.data, evaluate, of_none, order)
        if container is not None and container.is_lazy:
            if container.module == "zarr":
                array = as_row_source(X, memory=memory).as_dask()
            else:
                array = dask_array(X, memory=memory)
            model = self._model_of(array.shape[1])
            model.check_columns(array.shape[1], None, frame_names(X))
            evaluated = evaluated_beside_frame if is_dask_frame(X) else evaluated_lazily
            return evaluated(X if is_dask_frame(X) else array, model, evaluate, of_none)
        held = as_one_array(X, memory) if container is None else None
        if held is None:
            source = as_row_source(X, memory=memory)
            model = self._model_of(source.n_columns)
            return _evaluate_blocks(model, source, evaluate, threads, memory // 8)
        X = validate_data(
            self, X, accept_sparse="csr", accept_large_sparse=True, order="C",
            dtype=held.types, reset=False,
        )  # fmt: skip
        return evaluate(self._model_of(X.shape[1]), ArrayRows(X), threads)

    def _model_of(self, n_columns: int) -> KernelExpansion:
        """Return the model for rows with this many columns.

        The file of a model of LIBSVM only tells the last column that it uses (`load`), so there may
        be more.
        """
        if "n_features_in_" in vars(self):
            return self.model_
        return widened(self.model_, n_columns)


def _evaluate_blocks(
    model: KernelExpansion, source: RowSource, evaluate: Evaluate, threads: int, block_bytes: int
) -> Any:
    """Evaluate a model at rows that are read in blocks, two of which take `block_bytes`."""
    model.check_columns(source.n_columns, source.first_index, source.feature_names)
    rows = in_scale_of(source, model.scaler)
    # Blocks no longer know whether they are scaled.
    model = replace(model, scaler=None)
    values = []
    for start, block in rows.blocks(block_bytes):
        check_finite(block, start)
        values.append(evaluate(model, ArrayRows(block), threads))
    return np.concatenate(values)
