"""``bigsvm svm-train``: training with the options, the files and the output of LIBSVM's program."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bigsvm.cli.failures import in_options, options_of
from bigsvm.cli.inputs import TextOptions, is_standard_input, opened
from bigsvm.cli.libsvm_words import (
    FORMULATIONS,
    PARAMETERS,
    as_number,
    check_labels_are_numbers,
    error_and_correlation,
    noise_lines,
    read_words,
)
from bigsvm.cli.outputs import check_apart, check_model_path, say
from bigsvm.cli.signals import Interruption
from bigsvm.parameters import FIELDS, TrainingParameters
from bigsvm.parameters.checks import check_parameters
from bigsvm.parameters.declaration import declaration_of
from bigsvm.parameters.formulations import CALIBRATIONS, traits_of
from bigsvm.report.progress import Display, TrainingProgress
from bigsvm.report.text import label_text
from bigsvm.training.events import Hooks

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from bigsvm.cli.libsvm_words import Words
    from bigsvm.data.store import Store
    from bigsvm.models import KernelExpansion

KERNELS = ("linear", "poly", "rbf", "sigmoid", "precomputed")
DEFAULT_GAMMA = "auto"


def command(
    context: typer.Context,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[OPTIONS] TRAINING_SET [MODEL]")
    ] = None,
) -> None:
    """Train as LIBSVM's svm-train does: with its options, its model file and its output.

    MODEL is by default the name of TRAINING_SET and .model, in the current folder. LIBSVM's
    svm-predict reads it, and so does bigsvm. `bigsvm train` has more: checkpoints, stores, its own
    model file.

    \b
    -s TYPE    0 c-svc (default), 1 nu-svc, 2 one-class, 3 epsilon-svr, 4 nu-svr
    -t KERNEL  0 linear, 1 polynomial, 2 rbf (default), 3 sigmoid, 4 precomputed
    -d -g -r   degree (3), gamma (1 / columns) and coef0 (0) of the kernel
    -c -n -p   C (1), nu (0.5), and epsilon of the loss of epsilon-svr (0.1)
    -e TOL     tolerance (0.001)
    -m MB      memory of the whole training (1000)
    -h 0|1     accepted and ignored: rows that need not move are always left out
    -v N       cross-validation with N folds in place of a model; the folds are always the same
    -b 0|1     whether the model has probabilities, or of a regression the scale of its noise; a
               tenth of the rows is held out for them
    -wi W      weight of class i (1)
    -q         no output

    \b
    Examples:
      bigsvm svm-train -s 0 -t 2 -c 8 -g 0.03 heart_scale
      bigsvm svm-train -s 3 -p 0.05 housing_scale housing.model
    """
    given = read_words(words or [], letters="stdgrcnpemhbv", weighted=True)
    n_folds = _folds(given)
    if not 1 <= len(given.files) <= 2:
        raise typer.BadParameter("give the training set, and after it the model if you like")
    source = given.files[0]
    path = Path(given.files[-1] if len(given.files) == 2 else f"{Path(source).name}.model")
    if n_folds is None:
        if len(given.files) == 1 and is_standard_input(source):
            raise typer.BadParameter("standard input has no name to make that of the model from")
        check_model_path(path, "libsvm")
        check_apart((source,), {"MODEL": path})
    values = _values(given)
    parameters = TrainingParameters(**values)
    check_parameters(parameters)
    with Interruption() as interruption, Display(quiet=given.quiet) as display:
        for letter in _without_effect(given, values):
            display.warn(f"-{letter} has no effect on {values['formulation']} here; leave it out")
        with opened(
            source,
            TextOptions(memory=parameters.memory),
            display,
            interruption,
            dtype="float64",  # so that the support vectors are written as they were read
        ) as store:
            check_labels_are_numbers(store.class_names, source)
            labels = store.labels()
            named = _in_order(labels, store.original_rows())
            weights = {label: given.weights.get(label, 1.0) for label in named}
            for label in given.weights.keys() - weights.keys():
                display.warn(f"no row has the label {label_text(label)}, which -w gives a weight")
            if given.weights and has_classes(parameters.formulation):
                parameters = replace(parameters, class_weight=weights)
            if n_folds is not None:
                with interruption.raising():
                    lines, told = _cross_validation(store, parameters, n_folds)
            else:
                from bigsvm.report.describe import model_warnings

                hooks = Hooks(
                    listener=TrainingProgress(display), interrupted=interruption.requested
                )
                trained = _trained(store, labels, parameters, hooks)
                told = list(model_warnings(trained))
                lines = list(_report(trained, parameters, len(labels)))
        if n_folds is None:
            from bigsvm.interchange.libsvm_model import write_libsvm_model

            write_libsvm_model(trained, path, labels=named if trained.classes else None)
        for sentence in told:
            display.warn(in_options(sentence, options_of(context.command)))
    if not given.quiet or n_folds is not None:
        say("\n".join(lines))
    raise typer.Exit(interruption.exit_code)


def _folds(given: "Words") -> int | None:
    """Return the number of folds; None without ``-v``."""
    if (word := given.text("v")) is None:
        return None
    if not word.isdecimal() or int(word) < 2:
        raise typer.BadParameter(f"-v is {word!r}; it must be a number of folds, at least 2")
    return int(word)


def _trained(
    store: "Store",
    labels: "NDArray[Any]",
    parameters: TrainingParameters,
    hooks: Hooks,
) -> "KernelExpansion":
    """Train; the support vectors have the order of the text."""
    from bigsvm.fit.train import train_model

    trained = train_model(store.rows, labels, store.sample_weight(), parameters, hooks)
    return in_order_of_input(trained, store.original_rows())


def _cross_validation(
    store: "Store", parameters: TrainingParameters, n_folds: int
) -> tuple[list[str], list[str]]:
    """Give the lines that LIBSVM prints of a cross-validation, over all folds, and warnings."""
    import numpy as np

    from bigsvm.estimators.load import estimator_of
    from bigsvm.selection.cross_validation import cross_validate

    tested: list[tuple[NDArray[Any], NDArray[Any]]] = []

    def add(estimator: Any, X: Any, y: "NDArray[Any]") -> float:  # noqa: ANN401 (scikit-learn's)
        tested.append((np.asarray(estimator.predict(X)), y))
        return 0.0  # scores are not shown

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cross_validate(estimator_of(parameters), store, cv=n_folds, scoring=add)
    told = [str(warning.message) for warning in caught]
    predicted, labels = map(np.concatenate, zip(*tested, strict=True))
    if not parameters.formulation.endswith("svr"):
        right = 100 * int((predicted == labels).sum()) / len(labels)
        return [f"Cross Validation Accuracy = {right:g}%"], told
    error, correlation = error_and_correlation(predicted, labels)
    return [
        f"Cross Validation Mean squared error = {error:g}",
        f"Cross Validation Squared correlation coefficient = {correlation:g}",
    ], told


def has_classes(formulation: str) -> bool:
    """Whether labels are classes."""
    return formulation in ("c-svc", "nu-svc")


def _values(given: "Words") -> dict[str, Any]:
    """Parameters of training by their names."""
    values: dict[str, Any] = {
        "formulation": FORMULATIONS[given.choice("s", FORMULATIONS)],
        "kernel": KERNELS[given.choice("t", KERNELS, default=KERNELS.index("rbf"))],
        "gamma": DEFAULT_GAMMA,
        "memory": "1000MB",
    }
    for letter, name in PARAMETERS.items():
        word = given.text(letter)
        if word is not None:
            values[name] = as_number(word, f"-{letter}")
    if values["gamma"] == 0:  # LIBSVM's own default
        values["gamma"] = DEFAULT_GAMMA
    if (size := given.text("m")) is not None:
        values["memory"] = as_number(size, "-m") * 1e6
    if given.choice("b", ("no probabilities", "probabilities")):
        values["calibration"] = CALIBRATIONS[traits_of(values["formulation"]).learns][0]
    given.choice("h", ("no shrinking", "shrinking"), default=1)
    return values


def _without_effect(given: "Words", values: dict[str, Any]) -> "Iterator[str]":
    """Yield the letters of options that training does not use; LIBSVM ignores them silently."""
    if given.text("h") == "0":
        yield "h"
    for letter, name in PARAMETERS.items():
        declared = declaration_of(FIELDS[name])
        of_kernel = declared.kernels is None or values["kernel"] in declared.kernels
        if letter in given.values and not (
            of_kernel and declared.is_used_by(values["formulation"])
        ):
            yield letter
    if given.weights and not has_classes(values["formulation"]):
        yield "w"


def _in_order(labels: "NDArray[np.float64]", original: "NDArray[np.int64]") -> list[float]:
    """Labels as LIBSVM lists them: as they first occur, but +1 before -1 if there are these two."""
    import numpy as np

    values, codes = np.unique(labels, return_inverse=True)
    first = np.full(len(values), len(labels))
    np.minimum.at(first, codes, original)
    ordered: list[float] = values[np.argsort(first)].tolist()
    return [1.0, -1.0] if ordered == [-1.0, 1.0] else ordered


def in_order_of_input(model: "KernelExpansion", original: "NDArray[np.int64]") -> "KernelExpansion":
    """Put the support vectors of a model in the order of the rows of the input."""
    import numpy as np

    order = np.argsort(original[model.support], kind="stable")
    vectors, coefficients = model.support_vectors[order], model.coefficients[order]
    bounds = None if model.bounds is None else model.bounds[order]
    return replace(
        model,
        support=model.support[order],
        support_vectors=vectors,
        coefficients=coefficients,
        bounds=bounds,
    )


def _report(
    model: "KernelExpansion", parameters: TrainingParameters, n_rows: int
) -> "Iterator[str]":
    """Yield the lines that LIBSVM prints of one function, or of many the last one of them."""
    certificate = model.certificate
    yield from noise_lines(model)
    if model.rule is None:
        yield f"optimization finished, #iter = {certificate['n_iter']}"
        if certificate["objective"] is not None:
            yield from _values_of_function(model, parameters, n_rows)
        yield f"nSV = {certificate['n_support']}, nBSV = {certificate['n_bounded']}"
    if has_classes(parameters.formulation):
        yield f"Total nSV = {certificate['n_support']}"


def _values_of_function(
    model: "KernelExpansion", parameters: TrainingParameters, n_rows: int
) -> "Iterator[str]":
    """Yield the lines on one function: the parameter it implies, its objective and ρ."""
    certificate, formulation = model.certificate, parameters.formulation
    if certificate.get("rho") == 0 and formulation == "nu-svc":  # there is no margin to divide by
        yield "C = inf"
        return
    scale = 1.0
    if formulation in ("c-svc", "eps-svr") and parameters.class_weight is None:
        yield f"nu = {float(abs(model.coefficients).sum()) / (parameters.C * n_rows):.6f}"
    elif formulation == "nu-svc":
        scale = certificate["rho"]  # LIBSVM divides the function by its margin
        yield f"C = {1 / scale:.6f}"
    elif formulation == "nu-svr":
        yield f"epsilon = {certificate['epsilon']:.6f}"
    objective = -certificate["objective"] / scale**2
    yield f"obj = {objective:.6f}, rho = {-float(model.intercept):.6f}"
