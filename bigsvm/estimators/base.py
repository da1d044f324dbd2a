"""What all estimators share: scikit-learn's conventions around one training function."""

from __future__ import annotations

import html
import inspect
import os
import warnings
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from bigsvm.data.rows import is_sparse
from bigsvm.errors import AdviceWarning, ParameterError, brief
from bigsvm.estimators.arguments import IGNORED, SharedArguments, calibration_in, warn_of_ignored
from bigsvm.estimators.bases import BaseEstimator, CallbackSupportMixin, with_callbacks
from bigsvm.estimators.evaluation import EvaluatesRows
from bigsvm.estimators.training_rows import TakesTrainingRows
from bigsvm.estimators.watching import (
    FitWatch,
    History,
    StoppedByCtrlC,
    Tasks,
    callbacks_of,
    folder_of_checkpoints,
)
from bigsvm.executors.clients import worker_terms
from bigsvm.kernels import Precomputed, takes_kernel_matrix
from bigsvm.parameters import FIELDS, TrainingParameters
from bigsvm.parameters.declaration import check_value, declaration_of
from bigsvm.parameters.formulations import FormulationName, gap_name
from bigsvm.processors import count_threads
from bigsvm.training.events import Hooks
from bigsvm.training.result import StopReason

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.data.row_source import RowSource
    from bigsvm.data.row_values import Order
    from bigsvm.data.rows import Rows
    from bigsvm.estimators.watching import Columns
    from bigsvm.fit.forecast import Forecast
    from bigsvm.models import KernelExpansion
    from bigsvm.training.events import Event

CONVERTED = frozenset({"random_state", "cache_dir", "n_jobs", "checkpoint", "max_time"})
"""Estimator parameters with another name or another form in `TrainingParameters`."""


@dataclass(kw_only=True, eq=False, repr=False)
class KernelMachine(CallbackSupportMixin, BaseEstimator, TakesTrainingRows, EvaluatesRows):
    """An estimator that trains a `KernelExpansion`; subclasses say which, and what it predicts."""

    _formulation: ClassVar[FormulationName]
    _own_parameters: ClassVar[frozenset[str]] = frozenset({"warm_start", "verbose", *IGNORED})
    """Parameters that the estimator uses itself and does not pass on to training."""

    # scikit-learn shows the texts of the parameters in a notebook if there is a link to them.
    _doc_link_module = "bigsvm"

    @property
    def _doc_link_template(self) -> str:
        """Page of an estimator on the site; its docstring below while there is no site."""
        from bigsvm.estimators.documentation import site  # no fit needs it

        name = "bigsvm.{estimator_name}"
        return f"{site()}/reference/{name}.html" if site() else f"#{name}"

    def _html_repr(self) -> str:
        """Diagram of scikit-learn's, and below it the docstring, to which its "?" leads."""
        name, text = type(self).__name__, html.escape(inspect.getdoc(type(self)) or "")
        shown = f"<summary>Documentation of {name}</summary><pre>{text}</pre>"
        return f'{super()._html_repr()}<details id="bigsvm.{name}">{shown}</details>'

    @with_callbacks
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        y_order: Order | None = None,
        client: Any = None,
        worker_memory: int | str | None = None,
        worker_wait: float | None = None,
        **table: Any,
    ) -> Self:
        """Train.

        Parameters
        ----------
        X : path of a store, Store, or container
            (n, d). An array or a scipy.sparse matrix; a data frame of pandas, Polars, Arrow or
            Dask; an array of Dask, Zarr or h5py; a group of Zarr or h5py that is CSR in anndata's
            encoding; an AnnData. A container that is not an array in memory is read in blocks that
            fit in `memory`, or refused if no block fits. A store has its own labels and weights. If
            it was scaled, predictions of rows that are not scaled apply the same scaling. Files,
            lazy tables and batches that `write_store` takes are written to a temporary store in
            `cache_dir` where more than one pass needs it.
        y : (n,) array or RowValues, or name
            Labels or targets; ignored by one-class formulations. If it is None, a store's own are
            used. Beside a shuffled store an array needs `y_order`. Of a file or a lazy table, the
            name of the column or array of labels.
        sample_weight : (n,) array or RowValues, or name, optional
            In [0, ∞); beside a shuffled store as `y`. Of a file, the name of a column or array.
        y_order : {"input", "store"}, optional
            Only beside a store: order of `y` and `sample_weight`. A shuffled store has its rows in
            another order than its input. ``"input"`` is that of the input, ``"store"`` that of the
            rows of the store. `RowValues`, of `Store.row_values`, know their order.
        client : distributed.Client, optional
            The workers of its Dask cluster compute the passes over the rows; without it this
            process does, whatever clients are open, and blocks of Dask's collections are computed
            by Dask's own choice. The model has the same bits. Workers must be able to read a store
            themselves, by the same path or a URL. Blocks of Dask arrays and data frames stay on the
            workers that have or compute them, and a checkpoint of such a run is resumed with the
            same blocks; other rows are sent.
            `memory` is that of this process, which keeps the coefficients and solves the working
            sets. The estimator does not keep the client.
        worker_memory : int or str, optional
            Bytes that a run may take on each worker, or a size like ``"4GB"``: for rows that stay
            there, and for those it is sent. By default half of the worker's memory limit.
        worker_wait : float, optional
            Seconds that the run waits for a first worker, or for another one when all are gone; by
            default without limit, as a queue or a cluster that grows may take long. `max_time` and
            Ctrl-C end it at any time.
        **table
            Of a table with words or missing values: `categories`, `max_categories`, `missing`,
            `missing_indicator` and `unknown`, as `write_store` takes them.

        Returns
        -------
        self
            Fitted; a `ConvergenceWarning` says so if training did not converge, and an
            `AdviceWarning` if it did, but the model is of little use.

        Raises
        ------
        ParameterError, DataError, MemoryBudgetError, CheckpointError, StoreError
        ClusterError
            The client is closed, or the package `distributed` is not installed; the cluster has no
            workers, or they cannot run bigsvm or read the rows.
        KeyboardInterrupt
            Ctrl-C, within about a second. The estimator is then fitted as far as training got,
            unless it had not begun: `converged_` is False and `stop_reason_` "interrupted". With
            `checkpoint` the run is saved. A second Ctrl-C ends it at once.
        """
        warn_of_ignored(type(self).__name__, self.get_params(deep=False))
        metadata = None if sample_weight is None else {"sample_weight": sample_weight}
        told = {"estimator": self, "X": X, "y": y, "metadata": metadata}
        # Imported here, as training takes Numba, and making an estimator does not.
        from bigsvm.fit.advice import scaling_hint
        from bigsvm.fit.train import train_model

        task = self._init_callback_context(max_subtasks=None).call_on_fit_task_begin(**told)
        terms = None
        if any(given is not None for given in (client, worker_memory, worker_wait)):
            terms = worker_terms(client, worker_memory, worker_wait)
        source, labels, weights = self._training_data(X, y, sample_weight, y_order, client, **table)
        label_type = None if labels is None else labels.dtype
        start = self._start(labels)
        if start is not None and start.provenance.get("n_rows") != source.n_rows:
            # Few need it.
            from bigsvm.changes.start import continued

            start = continued(start, X)
        # Handed over rather than lent: those of a store would take 8 bytes a row for the whole run.
        last_reference = [labels]
        del labels
        parameters, keeper = self._parameters(), folder_of_checkpoints(self)
        if keeper is not None:
            parameters.checkpoint = _path("folder", keeper.folder)
        with StoppedByCtrlC() as stop, FitWatch(self, task, stop) as watch:
            hooks = Hooks(
                listener=watch,
                interrupted=watch.has_stopped,
                client=client,
                terms=terms,
                by_steps=bool(callbacks_of(self)),
                checkpoint_of=None if keeper is None else keeper.folder_of,
            )
            model = train_model(
                source, last_reference.pop(), weights, parameters, hooks, start=start
            )
            model = watch.explained(model)
            self._adopt(model)
            if label_type is not None and label_type.kind == "U":
                # As scikit-learn has it: of objects only where `y` was.
                self.classes_: NDArray[Any] = np.asarray(model.classes, label_type)
            of_sweeps, of_sets = watch.history.arrays()
            self.history_: Columns = of_sweeps
            self.working_set_history_: Columns = of_sets
        task.call_on_fit_task_end(**told, reconstruction_attributes={})
        reason = StopReason(self.certificate_["stop_reason"])
        if not (self.converged_ or reason.is_uncertified):
            gap, last = "unknown", self.certificate_.get("last_gap")
            if self.gap_ is not None:
                gap = f"{self.gap_:.3g}"
            elif last is not None:
                gap = f"{last:.3g} at the last sweep"
            tol = self.certificate_["tol"]
            by = self.certificate_.get("stopped_by")
            hint = scaling_hint(self.model_)
            if not len(self.support_):
                hint = "it has no support vectors yet, so that it predicts the same for all rows"
            warnings.warn(
                f"training did not converge: {reason.sentence}{'' if by is None else f', as {by}'} "
                f"({gap_name(self._formulation)} {gap}, tol {tol:g})"
                f"{'' if hint is None else f'; {hint}'}",
                ConvergenceWarning,
                stacklevel=3,
            )
        if self.model_.doubt:
            warnings.warn(self.model_.doubt, ConvergenceWarning, stacklevel=3)
        if self.certificate_["advice"]:
            warnings.warn("; ".join(self.certificate_["advice"]), AdviceWarning, stacklevel=3)
        return self

    def plan(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        y_order: Order | None = None,
        client: Any = None,
        worker_memory: int | str | None = None,
    ) -> Forecast:
        """Say what `fit` with the same arguments will take, from fits of samples of the rows.

        The samples are nested and grow until they take some percent of the expected time. The
        estimator is not changed.

        Parameters
        ----------
        X, y, sample_weight, y_order, client, worker_memory
            As `fit` takes them.

        Returns
        -------
        Forecast
            Support vectors, sweeps and seconds as ranges, bytes of memory and disk. Seconds are
            those of this machine without other load. With a client also the least `worker_memory`
            for the workers that there are, and that with which they read each row once.

        Raises
        ------
        ParameterError, DataError, MemoryBudgetError, StoreError, ClusterError
            As `fit` would raise them, or the kernel is precomputed.

        Examples
        --------
        >>> import numpy as np
        >>> from bigsvm import SVC
        >>> X = np.random.default_rng(0).standard_normal((300, 2))
        >>> planned = SVC(C=1.0, gamma=0.5).plan(X, X[:, 0] > 0)
        >>> planned.n_rows, len(planned.samples)
        (300, 1)
        """
        # Few need it.
        from bigsvm.fit.forecast import forecast

        terms = worker_terms(client, worker_memory)
        planned = clone(self)
        source, labels, weights = planned._training_data(X, y, sample_weight, y_order, client)
        hooks = Hooks(client=client, terms=terms)
        return forecast(source, labels, weights, planned._parameters(), hooks)

    def save(self, path: str | os.PathLike[str], *, timings: bool = False) -> None:
        """Write the fitted estimator to one file, whole or not at all; `bigsvm.load` reads it.

        It is the file of `model_`, with the parameters that only the estimator has.

        Parameters
        ----------
        path : path or URL
        timings : bool
            As for `KernelExpansion.save`.

        Raises
        ------
        ModelError
            The file cannot be written.
        StoreError
            The URL cannot be written to.
        """
        check_is_fitted(self)
        given = self.get_params(deep=False)
        own = {
            name: given[name]
            for name in sorted(self._own_parameters - IGNORED.keys())
            if isinstance(given.get(name), bool | int | float | str)
        }
        provenance = {**self.model_.provenance, "estimator": own}
        replace(self.model_, provenance=provenance).save(path, timings=timings)

    # skl2onnx asks for these three, and so converts pipelines that end here.

    def onnx_parser(self) -> Any:
        """Return the function by which skl2onnx learns the outputs, those of `to_onnx`."""
        from bigsvm.interchange.onnx_pipeline import declared_outputs

        return partial(declared_outputs, self)

    def onnx_shape_calculator(self) -> Any:
        """Return a function that does nothing, as the parser has declared all shapes."""
        return lambda operator: None

    def onnx_converter(self) -> Any:
        """Return the function that adds the graph of `to_onnx` to skl2onnx's."""
        from bigsvm.interchange.onnx_pipeline import add_graph

        return add_graph

    @with_callbacks
    def _fit_rows(
        self,
        source: RowSource,
        labels: NDArray[Any] | None,
        weights: NDArray[np.float64] | None,
        hooks: Hooks,
        start: KernelExpansion | None = None,
    ) -> Self:
        """Train on rows that `_training_data` has prepared; the caller looks whether it converged.

        The arguments are those of `train_model`.
        """
        from bigsvm.fit.train import train_model

        told = {"estimator": self, "X": source, "y": labels, "metadata": {"sample_weight": weights}}
        task = self._init_callback_context(max_subtasks=None).call_on_fit_task_begin(**told)
        history, tasks = History(), Tasks(self, task)

        def listener(event: Event) -> None:
            history(event)
            hooks.listener(event)
            tasks(event)

        watched = replace(
            hooks,
            listener=listener,
            by_steps=bool(callbacks_of(self)),
            interrupted=lambda: hooks.interrupted() or tasks.stopped_by is not None,
        )
        model = train_model(source, labels, weights, self._parameters(), watched, start=start)
        if not hooks.interrupted():
            model = tasks.explained(model)
        self._take(model, source, history)
        task.call_on_fit_task_end(**told, reconstruction_attributes={})
        return self

    def _take(self, model: KernelExpansion, source: RowSource, history: History) -> None:
        """Show a model that was trained on rows that `_training_data` has prepared."""
        self._keep_names(source.feature_names)
        self._adopt(model)
        self.history_, self.working_set_history_ = history.arrays()

    # -- in between ------------------------------------------------------------------------------

    def _parameters(self) -> TrainingParameters:
        check_value(SharedArguments.__dataclass_fields__["verbose"], self.verbose)
        given = self.get_params(deep=False)
        passed = {name: given[name] for name in self._passed()}
        passed["calibration"] = calibration_in(given)
        return TrainingParameters(
            formulation=self._formulation,
            seed=_seed(self.random_state),
            cache_dir=_path("cache_dir", self.cache_dir),
            threads=None if self.n_jobs is None else count_threads(self.n_jobs),
            checkpoint=_path("checkpoint", self.checkpoint),
            max_seconds=float("inf") if self.max_time is None else self.max_time,
            **passed,
        )

    @classmethod
    @cache
    def _passed(cls) -> tuple[str, ...]:
        """Names of the parameters that training takes as they are."""
        names = sorted(set(cls._get_param_names()) - CONVERTED - cls._own_parameters)
        for name in names:
            if name not in FIELDS or not declaration_of(FIELDS[name]).is_used_by(cls._formulation):
                raise ParameterError(
                    f"{cls.__name__} has the parameter {name!r}, which training of "
                    f"{cls._formulation} does not use; remove it, or name it in _own_parameters "
                    "if only the estimator uses it"
                )
        return tuple(names)

    @classmethod
    @cache
    def _get_param_names(cls) -> list[str]:
        """Names as scikit-learn finds them in the signature, which takes it longer each time."""
        names: list[str] = super()._get_param_names()  # type: ignore[misc] # not annotated
        return names

    def _start(self, labels: NDArray[Any] | None) -> KernelExpansion | None:
        """Give the model to go on from, if there is to be one."""
        return getattr(self, "model_", None) if self.warm_start else None

    def _adopt(self, model: KernelExpansion) -> None:
        """Show a model under scikit-learn's names."""
        self.model_ = model
        self.support_: NDArray[np.int64] = model.support
        of_matrix = isinstance(model.kernel, Precomputed)
        self.support_vectors_: Rows = np.empty((0, 0)) if of_matrix else model.support_vectors
        self.intercept_: NDArray[np.float64] = self._intercepts(model)
        self.certificate_: dict[str, Any] = dict(model.certificate)
        # None in a model of LIBSVM, which has no certificate.
        certified = self.certificate_.get
        self.converged_: bool | None = certified("converged")
        self.stop_reason_: str | None = certified("stop_reason")
        self.gap_: float | None = certified("gap")
        self.duality_gap_: float | None = certified("duality_gap")
        self.objective_: float | None = certified("objective")
        self.n_iter_: Any = certified("n_iter")  # of classifiers an array
        self.n_support_: NDArray[np.int32] = self._count_support(model)
        self.n_features_in_: int = model.n_features
        if model.encoding is not None:
            self._keep_names(model.input_names)
            self.n_features_in_ = len(self.feature_names_in_)
        reason = self.stop_reason_
        is_uncertified = reason is not None and StopReason(reason).is_uncertified
        # As in scikit-learn: 0 if the fit came to the end that was asked for.
        self.fit_status_: int = int(not (is_uncertified or self.converged_ is not False))
        n_rows = model.provenance.get("n_rows")
        if n_rows is not None:  # a model of LIBSVM does not say it
            self.shape_fit_: tuple[int, int] = (n_rows, model.n_features)

    # Not attributes, which would take memory of their own where there are many functions.

    @property
    def dual_coef_(self) -> NDArray[np.float64] | sp.csr_array:
        """Coefficients of the support vectors, (1, n_support); CSR if the vectors are sparse."""
        return self._as_vectors(self.model_.coefficients[None, :])

    @property
    def coef_(self) -> NDArray[np.float64] | sp.csr_array:
        """Coefficients of the columns, (n_functions, n_features); of the linear kernel only.

        They can not be written to, as a model does not follow them. CSR if the vectors are sparse.
        """
        if self.model_.kernel.name != "linear":
            raise AttributeError("coef_ is there with the linear kernel only")
        given: Any = self.model_.coefficients
        coefficients = self._as_vectors(given[None, :]) if given.ndim == 1 else given.T
        weights = self._sign_of(self.model_) * (coefficients @ self.model_.support_vectors)
        if is_sparse(weights):
            weights = sp.csr_array(weights)
        (weights.data if is_sparse(weights) else weights).flags.writeable = False
        return weights

    def _as_vectors(self, coefficients: Any) -> Any:
        """Show coefficients as CSR where the support vectors are, as scikit-learn does."""
        if is_sparse(self.support_vectors_):
            return sp.csr_array(coefficients)
        return coefficients.toarray() if is_sparse(coefficients) else coefficients

    @staticmethod
    def _sign_of(model: KernelExpansion) -> float:
        """Sign of scikit-learn's functions beside those of a model."""
        return 1.0

    @property
    def gamma_(self) -> float | NDArray[np.float64]:
        """Gamma of the kernel as a number, or a number for each column; none of some kernels."""
        gamma = self.model_.kernel.describe().get("gamma")
        if gamma is None:
            raise AttributeError(f"the kernel {self.model_.kernel.name} has no gamma")
        return np.array(gamma) if isinstance(gamma, tuple) else float(gamma)

    def _intercepts(self, model: KernelExpansion) -> NDArray[np.float64]:
        """Show intercepts as scikit-learn does."""
        return np.array([model.intercept])

    def _count_support(self, model: KernelExpansion) -> NDArray[np.int32]:
        """Support vectors, as scikit-learn counts them."""
        return np.array([len(model.support)], np.int32)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = takes_kernel_matrix(self.kernel)
        tags.input_tags.sparse = not tags.input_tags.pairwise
        return tags


def _seed(random_state: Any) -> Any:
    """Return a seed: a number drawn from a generator of NumPy's; others as they are, None as 0."""
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(np.iinfo(np.int32).max))
    return 0 if random_state is None else random_state


def _path(name: str, path: Any) -> str | None:
    """Return a path as a str."""
    if path is None:
        return None
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise ParameterError(f"{name} is {brief(path)}; it must be a path or None")
    return str(os.fspath(path))
