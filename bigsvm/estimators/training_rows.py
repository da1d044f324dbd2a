"""Rows, labels and weights as `fit` and `score` are given them, checked."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils.validation import _check_sample_weight, column_or_1d, validate_data

from bigsvm.budget import check_labels_fit, parse_bytes
from bigsvm.data.containers import container_of, is_lazy_table
from bigsvm.data.frames import is_frame
from bigsvm.data.in_memory import ArrayRows, as_one_array, in_memory, labels_in_memory
from bigsvm.data.row_source import RowSource
from bigsvm.data.row_values import check_y_order
from bigsvm.data.sources import as_row_source, as_store
from bigsvm.errors import DataError, ParameterError
from bigsvm.estimators.arguments import SharedArguments

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.data.row_values import Order


class _NoPartialFit:
    """The attribute `partial_fit`, which estimators lack; the error says what there is instead."""

    def __get__(self, estimator: object, owner: type) -> NoReturn:
        raise AttributeError(
            f"{owner.__name__!r} has no attribute 'partial_fit', as every row may change the whole "
            "solution; give fit() all rows, in a store if memory does not hold them, and for more "
            "rows use bigsvm.append(store, X, y) and fit again with warm_start=True"
        )


class TakesTrainingRows(SharedArguments):
    """An estimator that is given rows of any container, with labels and weights beside them."""

    _needs_y: ClassVar[bool] = True

    # In the class, as __getattr__ would be called for every attribute that is looked for in vain.
    partial_fit: ClassVar[_NoPartialFit] = _NoPartialFit()

    def _training_data(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        y_order: Order | None,
        client: Any,
        **table: Any,
    ) -> tuple[RowSource, NDArray[Any] | None, NDArray[np.float64] | None]:
        source: RowSource
        labels: Any
        memory = parse_bytes(self.memory)
        is_array = isinstance(X, np.ndarray)
        opened = None if is_array and not table else self._opened(X, y, sample_weight, **table)
        given = type(X).__name__
        if opened is not None:
            X, y, sample_weight = opened
        store = None if is_array else as_store(X)
        y, sample_weight = labels_in_memory(y if self._needs_y else None, sample_weight, client)
        if y_order is not None:
            check_y_order(y_order, (y, sample_weight), beside_store=store is not None)
        held = None
        is_source = not is_array and isinstance(X, RowSource)
        if (
            store is None
            and opened is None
            and not is_source
            and (is_array or container_of(X) is None)
        ):
            held = as_one_array(X, memory)
        if store is not None:
            source = store.rows
            check_labels_fit(memory, source.n_rows)
            labels = store.labels() if y is None else store.beside(y, "y", y_order)
            weights = (
                store.sample_weight()
                if sample_weight is None
                else store.beside(sample_weight, "sample_weight", y_order)
            )
        elif held is None:
            if y is None and self._needs_y:
                raise DataError(f"y is None; labels are needed beside a {given}")
            source = as_row_source(X, memory=memory, client=client)
            labels, weights = y, sample_weight
        else:
            try:
                X, labels = self._validated(X, y, held.types)
                if sample_weight is not None:
                    sample_weight = _check_sample_weight(sample_weight, X, dtype=np.float64)
            except OverflowError:
                raise DataError(
                    "X, y or sample_weight has a whole number that float64 cannot hold; scale it"
                ) from None
            source = ArrayRows(X)
            source.copied_bytes = held.copied_bytes
            names = getattr(self, "feature_names_in_", None)
            source.feature_names = None if names is None else tuple(map(str, names))
            return source, labels, sample_weight
        self._keep_names(source.feature_names)
        try:
            weights = None if weights is None else np.asarray(weights, np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise DataError(f"sample_weight must be numbers: {error}") from None
        return source, column_or_1d(np.asarray(labels)) if self._needs_y else None, weights

    def _opened(
        self, X: Any, y: Any, sample_weight: Any, *, shuffle: bool = True, **table: Any
    ) -> tuple[RowSource, Any, Any] | None:
        """Rows, labels and weights of a source that has all of them; None for other rows.

        Such a source is a callable, or is named together with the column of its labels. `table`
        says how words and missing values of a table are encoded, as `Asked.of` takes it.
        """
        is_path, of_frame = isinstance(X, str | os.PathLike), bool(table) and is_frame(X)
        is_lazy = callable(X) or is_lazy_table(X)
        if not (isinstance(y, str) or is_lazy or table or (is_path and not self._needs_y)):
            return None
        # Imported here, as rows in memory do not need it.
        from bigsvm.conversion.formats import Asked, is_source, rows_of

        if of_frame and not isinstance(y, str):
            asked = Asked.of(None, None, memory=self.memory, **table)
            return rows_of(X, asked, shuffle=False, cache_dir=self.cache_dir).rows, y, sample_weight
        if not is_source(X):
            if table:
                raise ParameterError(
                    f"{', '.join(table)} of a {type(X).__name__}: words and missing values are "
                    "encoded of a file, a data frame or a lazy table; give one of these"
                )
            return None
        asked = Asked.of(y, sample_weight, memory=self.memory, **table)
        return rows_of(X, asked, shuffle=shuffle, cache_dir=self.cache_dir)

    def _to_score(
        self, X: Any, y: Any, sample_weight: Any, y_order: Order | None
    ) -> tuple[Any, Any, Any]:
        """Return the arguments of scikit-learn's `score`; without `y` a store's own labels."""
        encoding = getattr(getattr(self, "model_", None), "encoding", None)
        table = {"encoding": encoding} if encoding and isinstance(y, str) else {}
        opened = self._opened(X, y, sample_weight, shuffle=False, **table)
        if opened is not None:
            return opened
        store = as_store(X)
        y, sample_weight = labels_in_memory(y, sample_weight)
        if y_order is not None:
            check_y_order(y_order, (y, sample_weight), beside_store=store is not None)
        if store is None:
            return X, y, sample_weight
        labels = store.labels() if y is None else store.beside(y, "y", y_order)
        if sample_weight is not None:
            sample_weight = store.beside(sample_weight, "sample_weight", y_order)
        return store, labels, sample_weight

    def _validated(self, X: Any, y: Any, types: list[Any]) -> tuple[Any, Any]:
        """Check arrays in memory as scikit-learn does, which become of the first of some types."""
        if not self._needs_y:
            y = None
        if are_plain(X, y, types, needs_y=self._needs_y):
            # scikit-learn would return them as they are, after checks that take longer.
            self._keep_names(None)
            return X, y
        options: dict[str, Any] = {
            "accept_sparse": "csr",
            "accept_large_sparse": True,
            "order": "C",
            "dtype": types,
        }
        if not self._needs_y:
            return validate_data(self, X, **options), None
        X, y = validate_data(self, X, y, **options)
        return X, y

    def _keep_names(self, names: tuple[str, ...] | None) -> None:
        """Set `feature_names_in_` as scikit-learn does, or remove it if there are no names."""
        if names is not None:
            self.feature_names_in_: NDArray[Any] = np.array(names, object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_


def are_plain(X: Any, y: Any, types: list[Any], *, needs_y: bool) -> bool:
    """Whether X and y are arrays of NumPy that need no change, finite, with a label for each row.

    X is of one of some types. Labels are numbers or text.
    """
    if type(X) is not np.ndarray or X.ndim != 2 or not X.size or X.dtype not in types:
        return False
    if needs_y:
        if type(y) is not np.ndarray or y.shape != (len(X),) or not y.flags.c_contiguous:
            return False
        if y.dtype.kind not in "biuU" and not (y.dtype.kind == "f" and np.isfinite(y).all()):
            return False
    with np.errstate(over="ignore", invalid="ignore"):
        # A sum that is not finite proves nothing.
        return bool(X.flags.c_contiguous and np.isfinite(X.sum()))


class ScoresRows(TakesTrainingRows):
    """An estimator whose `score` is that of scikit-learn's mixins, for rows of any container."""

    def score(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        y_order: Order | None = None,
    ) -> float:
        """Score of the predictions: accuracy of a classifier, R² of a regression.

        Parameters
        ----------
        X : path of a store, Store, or container
            As `fit` takes it.
        y : (n,) array or RowValues, optional
            Labels or targets; without them a store's own are used.
        sample_weight : (n,) array or RowValues, optional
        y_order : {"input", "store"}, optional
            As `fit` takes it: order of `y` and `sample_weight` beside a shuffled store.

        Raises
        ------
        DataError, ParameterError
        """
        # A tenth of a second that training does without.
        from sklearn.metrics import accuracy_score, r2_score

        X, y, sample_weight = self._to_score(X, y, sample_weight, y_order)
        estimator: Any = self
        # Computed block by block, as scikit-learn does not know the length of what is lazy.
        predicted = in_memory(estimator.predict(X), "the prediction")
        score = accuracy_score if is_classifier(self) else r2_score
        return float(score(y, predicted, sample_weight=sample_weight))
