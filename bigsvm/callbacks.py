"""Callbacks for estimators: `EarlyStopping` and `CheckpointCallback`.

``estimator.set_callbacks(...)`` takes these and scikit-learn's, such as
``sklearn.callback.ProgressBar``; it needs scikit-learn 1.9. A callback of one's own is a
`Callback`, or any object with the methods of scikit-learn's protocol.
"""

from __future__ import annotations

import time
from math import inf
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import xxhash

from bigsvm.errors import ParameterError
from bigsvm.training import events

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    Listen: TypeAlias = Callable[[events.Event], str | None]


class Callback:
    """A callback that takes the events of a fit, and may end it.

    It is set on the estimator itself, also where that is searched for or is a step of a pipeline.
    A subclass overrides `listener`. The other methods are scikit-learn's protocol, and do nothing.
    """

    def setup(self, estimator: Any, context: Any) -> None:  # noqa: ANN401 (as scikit-learn has it)
        """Do nothing before the fit."""

    def teardown(self, estimator: Any, context: Any) -> None:  # noqa: ANN401 (likewise)
        """Do nothing after the fit."""

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:  # noqa: ANN401 (likewise)
        """Do nothing before a task."""

    def on_fit_task_end(self, estimator: Any, context: Any) -> bool:  # noqa: ANN401 (likewise)
        """Do nothing after a task; a fit goes on."""
        return False

    def listener(self, estimator: Any) -> Listen:  # noqa: ANN401 (any estimator)
        """Return what is called with each event of one fit.

        Parameters
        ----------
        estimator : estimator
            With its parameters, before the fit.

        Returns
        -------
        callable
            Takes an event of `bigsvm.training.events`. Returns why the fit is to end, in words, or
            None if it is to go on.
        """
        return lambda event: None


class EarlyStopping(Callback):
    """Ends a fit before it has converged.

    The estimator is fitted and can predict. `converged_` is False, `stop_reason_` is "callback",
    and ``certificate_["stopped_by"]`` and the `ConvergenceWarning` say why.

    Parameters
    ----------
    gap : float, optional
        End after a sweep that shows a gap of at most this, in units of `tol`'s.
    improvement : float, optional
        End after a sweep that raised the dual objective by less than this share of it.
    seconds : float, optional
        End when training has taken this time, within about a second.

    Raises
    ------
    ParameterError
        None of the three is given, or one is not a number > 0. From `fit`: `gap` or `improvement`
        is given, and training has no sweeps over all rows to judge by, as there are none for class
        pairs and with ``certify=False``.

    Examples
    --------
    >>> import warnings
    >>> import bigsvm
    >>> from bigsvm.callbacks import EarlyStopping
    >>> from sklearn.datasets import make_moons
    >>> X, y = make_moons(500, noise=0.3, random_state=0)
    >>> model = bigsvm.SVC(C=1000, gamma=10, working_set="all")
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     model = model.set_callbacks(EarlyStopping(seconds=1e-6)).fit(X, y)
    >>> model.converged_, model.stop_reason_
    (False, 'callback')
    """

    def __init__(
        self,
        *,
        gap: float | None = None,
        improvement: float | None = None,
        seconds: float | None = None,
    ) -> None:
        given: dict[str, Any] = {"gap": gap, "improvement": improvement, "seconds": seconds}
        if all(value is None for value in given.values()):
            raise ParameterError("EarlyStopping has no gap, improvement or seconds; give one")
        for name, value in given.items():
            if value is not None and not (isinstance(value, Real) and 0 < float(value) < inf):
                raise ParameterError(f"{name} of EarlyStopping is {value!r}; give a number > 0")
        self.gap, self.improvement, self.seconds = gap, improvement, seconds

    def listener(self, estimator: Any) -> Listen:  # noqa: ANN401 (any estimator)
        """Return what looks at each event of a fit."""
        needs_sweeps = self.gap is not None or self.improvement is not None
        if needs_sweeps and not getattr(estimator, "certify", True):
            raise ParameterError(
                "EarlyStopping has a gap or an improvement, which are of sweeps over all rows, and "
                "certify=False makes none; give seconds"
            )
        began, last = time.monotonic(), [-inf]

        def look(event: events.Event) -> str | None:
            if isinstance(event, events.PairsUnderWay) and needs_sweeps:
                raise ParameterError(
                    "EarlyStopping has a gap or an improvement, which are of sweeps over all rows, "
                    "and class pairs are trained each on its own; give seconds, or a larger tol"
                )
            passed = time.monotonic() - began
            if self.seconds is not None and passed >= self.seconds:
                return f"training has taken {passed:.3g} s, the limit is {self.seconds:g} s"
            if isinstance(event, events.Swept):
                before, last[0] = last[0], event.objective
                if self.gap is not None and event.gap <= self.gap:
                    return f"the gap is {event.gap:.3g}, at most {self.gap:g}"
                share = (event.objective - before) / max(abs(event.objective), 1e-300)
                if self.improvement is not None and share < self.improvement:
                    return f"a sweep raised the objective by {share:.2g} of it"
            return None

        return look


class CheckpointCallback(Callback):
    """Keeps a checkpoint of each fit in a folder of its own, for folds and searches.

    `checkpoint` of an estimator is the folder of one run: the second fit of a cross-validation
    finds the checkpoint of another run there. This callback names a folder in `folder` by the data
    and the problem of the fit. A search that was interrupted is repeated by the same program: fits
    that had ended are read, and the one that was interrupted goes on. ``checkpoint_every`` of the
    estimator is the time between two saves.

    Parameters
    ----------
    folder : path

    Raises
    ------
    ParameterError
        From `fit`: the estimator has a `checkpoint` or `checkpoint_copy` too.

    Examples
    --------
    >>> import os
    >>> import tempfile
    >>> import bigsvm
    >>> from bigsvm.callbacks import CheckpointCallback
    >>> from sklearn.datasets import make_moons
    >>> from sklearn.model_selection import cross_val_score
    >>> X, y = make_moons(200, noise=0.2, random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = bigsvm.SVC(gamma=1.0).set_callbacks(CheckpointCallback(folder))
    ...     scores = cross_val_score(model, X, y, cv=3)
    ...     len(os.listdir(folder))
    3
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = folder

    def folder_of(self, fingerprint: Mapping[str, str]) -> str:
        """Name the folder of a run by what its checkpoint must agree with."""
        words = "\n".join(f"{name} {fingerprint[name]}" for name in sorted(fingerprint))
        return str(Path(self.folder) / xxhash.xxh3_128_hexdigest(words.encode()))
