"""What ``bigsvm cv`` and ``bigsvm search`` share: their options, and the folds of a store."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigsvm.cli.options import OptionGroup, given, local
from bigsvm.cli.session import opened_session
from bigsvm.cli.train import TrainingOptions
from bigsvm.errors import DataError, ParameterError
from bigsvm.parameters.checks import check_parameters
from bigsvm.parameters.formulations import CLASSIFIERS, REGRESSIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bigsvm.cli.runs import Run
    from bigsvm.cli.session import Session, SessionOptions
    from bigsvm.data.row_values import RowValues
    from bigsvm.data.store import Store
    from bigsvm.selection.fits import FoldFits


def _scores() -> list[str]:
    """Name all scores; only who completes such a name waits for scikit-learn."""
    from sklearn.metrics import get_scorer_names

    from bigsvm.selection.scores import CONSISTENCY

    return [*get_scorer_names(), CONSISTENCY]


@dataclass(frozen=True)
class FoldOptions(OptionGroup):
    """Options of the folds and their scores."""

    panel = "Folds"
    folds: str = given(
        "5",
        "Number of folds, stratified for classes; or a text file with the number of the fold that "
        "tests it for each row of the input, -1 for none.",
        metavar="N|FILE",
    )  # fmt: skip
    groups: Path | None = given(
        None,
        "Text file with a whole number for each row of the input; rows with the same number are in "
        "the same fold.",
        callback=local, metavar="FILE",
    )  # fmt: skip
    scoring: list[str] | None = given(
        None, "A score of scikit-learn's, such as roc_auc; may be given several times.",
        metavar="NAME", autocompletion=_scores,
        show_default="accuracy, or r2 and neg_mean_squared_error; consistency of one-class without "
        "labels 1 and -1",
    )  # fmt: skip


class FoldTrainingOptions(TrainingOptions):
    """An option for each parameter, except those of a single run."""

    without = ("checkpoint_copy",)


@contextmanager
def opened_fits(
    run: Run,
    options: FoldOptions,
    session_options: SessionOptions,
    checkpoint: Path | None,
) -> Iterator[tuple[FoldFits, Session]]:
    """Open the folds of a store or of text for a while; a signal ends it with its exit code."""
    parameters = run.training_parameters(None)
    check_parameters(parameters)
    if options.scoring is not None:
        from bigsvm.selection.scores import check_metrics

        check_metrics(options.scoring)
    with (
        opened_session(session_options, checkpoint) as session,
        session.rows_to_train(run, parameters) as store,
    ):
        from bigsvm.estimators.load import estimator_of
        from bigsvm.selection.fits import FoldFits
        from bigsvm.selection.steps import Steps

        groups = None if options.groups is None else _numbers_in(options.groups, store)
        scoring = options.scoring or _usual_scores(parameters.formulation, store)
        fits = FoldFits(
            Steps(estimator_of(parameters)), store, None, None,
            cv=_cv_of(options.folds, store, parameters.formulation, grouped=groups is not None),
            groups=groups, y_order=None, scoring=scoring,
            hooks=session.hooks(session.listen_to_many),
        )  # fmt: skip
        try:
            yield fits, session
        except KeyboardInterrupt:
            if checkpoint is not None:
                told = f"what is finished is in {checkpoint}; the same command goes on"
                session.display.line(told)
            raise


def _usual_scores(formulation: str, store: Store) -> list[str]:
    """Name the scores of a formulation."""
    if formulation in CLASSIFIERS:
        return ["accuracy"]
    if formulation in REGRESSIONS:
        return ["r2", "neg_mean_squared_error"]
    if set(store.labels().tolist()) == {-1.0, 1.0}:
        return ["accuracy"]
    from bigsvm.selection.scores import CONSISTENCY, ONE_CLASS

    if formulation == ONE_CLASS:
        return [CONSISTENCY]
    raise DataError(
        f"{formulation} predicts 1 and -1, and the rows do not have these two labels, so that "
        "there is nothing to compare with; give rows with labels 1 and -1, or take one-class, "
        "whose nu is compared with the rows outside"
    )


def _cv_of(folds: str, store: Store, formulation: str, *, grouped: bool) -> Any:  # noqa: ANN401 (what scikit-learn splits by)
    """Read the option of the folds; rows in the order of their input are shuffled."""
    from sklearn.model_selection import KFold, StratifiedKFold

    try:
        n_folds = int(folds)
    except ValueError:
        if grouped:
            raise ParameterError(
                f"--folds {folds} names the fold of each row, so that --groups means nothing; "
                "leave one out"
            ) from None
        return _numbers_in(Path(folds), store)
    if n_folds < 2:
        raise ParameterError(f"--folds is {n_folds}; it must be at least 2")
    if grouped or store.rows.is_shuffled:
        return n_folds
    kind = StratifiedKFold if formulation in CLASSIFIERS else KFold
    return kind(n_folds, shuffle=True, random_state=0)


def _numbers_in(path: Path, store: Store) -> RowValues:
    """Read a whole number a row, in the order of the input; returns them in that of the store."""
    import numpy as np

    try:
        numbers = np.loadtxt(path, np.int64, ndmin=1)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as whole numbers, one a line: {error}") from error
    if len(numbers) != store.rows.n_rows:
        raise DataError(f"{path} has {len(numbers)} numbers; there are {store.rows.n_rows} rows")
    return store.row_values(numbers, order="input")
