"""Refuse rows whose columns are not those of the training data."""

from __future__ import annotations

from bigsvm.errors import DataError


def check_number(n_columns: int, n_features: int, *, model_of_libsvm: bool) -> None:
    """Refuse rows of another number of columns than the training data.

    A model of LIBSVM's text does not say how many there were.
    """
    if n_columns == n_features:
        return
    told = f"the rows have {n_columns} columns, the model was trained on {n_features}"
    if n_columns < n_features:
        raise DataError(
            f"{told}; give rows with all of them (of LIBSVM text whose last columns are "
            f"empty, convert it with n_features={n_features})"
        )
    if model_of_libsvm:
        raise DataError(
            f"the rows have {n_columns} columns, and the model of LIBSVM uses the first "
            f"{n_features}; read it with n_features={n_columns}"
        )
    raise DataError(f"{told}; give rows with these columns alone, or train a model on all of them")


def check_first_index(first_index: int | None, of_model: int | None) -> None:
    """Refuse rows whose LIBSVM text begins with another index; None fits both."""
    if first_index is None or of_model is None or first_index == of_model:
        return
    meant = "yes" if of_model == 0 else "no"
    raise DataError(
        f"column 0 of the rows is index {first_index} of their text, but index "
        f"{of_model} of the text the model was trained on; convert them with "
        f"--zero-based {meant}"
    )


def check_names(names: tuple[str, ...] | None, of_model: tuple[str, ...] | None) -> None:
    """Refuse rows whose columns have other names, or another order; None fits all."""
    if names is None or of_model is None or names == of_model:
        return
    column = next(i for i, name in enumerate(of_model) if name != names[i])
    order = "in another order" if sorted(names) == sorted(of_model) else "other columns"
    raise DataError(
        "The feature names should match those that were passed during fit: column "
        f"{column} (from 0) of the rows is {names[column]!r}, but the model was "
        f"trained on {of_model[column]!r} there ({order}); give the columns of the training "
        "data in their order"
    )
