"""``bigsvm svm-predict``: predictions with the options, files and output of LIBSVM's program."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bigsvm.budget import parse_bytes
from bigsvm.cli.inputs import TextOptions, for_columns_of, load_model, opened
from bigsvm.cli.libsvm_words import (
    check_labels_are_numbers,
    error_and_correlation,
    noise_lines,
    read_words,
)
from bigsvm.cli.outputs import STANDARD_OUTPUT, predictions_path, say
from bigsvm.cli.predict import deciding, kept_probabilities, room_for
from bigsvm.cli.signals import Interruption
from bigsvm.errors import ModelError
from bigsvm.files import local_path
from bigsvm.report.progress import Display

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from bigsvm.data.store import Store
    from bigsvm.models import KernelExpansion

MEMORY = "1GB"
_NO_LABELS = "label normal outlier"
"""Header of the predictions of one class."""


def command(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[OPTIONS] TEST_FILE MODEL OUTPUT")
    ] = None,
) -> None:
    """Predict as LIBSVM's svm-predict does: with its options, its files and its output.

    MODEL is a model file of LIBSVM's or of bigsvm's. The predictions go to OUTPUT, one a line; - is
    standard output, and the accuracy then goes to standard error.

    \b
    -b 0|1     whether to write probabilities, and the label of the largest; of a regression to say
               how far targets are from predictions; the model must have them
    -q         no output

    \b
    Example:
      bigsvm svm-predict heart_scale heart_scale.model predicted
    """
    given = read_words(words or [], letters="b")
    if len(given.files) != 3:
        raise typer.BadParameter("give the rows, the model and the file of predictions")
    test, model_file, output = given.files
    local_path(output, "OUTPUT")
    wants_probabilities = bool(given.choice("b", ("labels", "probabilities")))
    inputs = (test, model_file, f"{model_file}.range")
    path = Path(predictions_path(output, inputs, overwrite=True))
    with Interruption() as interruption, Display(quiet=True) as display:
        model = load_model(model_file)
        check_labels_are_numbers(model.classes, model_file)
        if wants_probabilities and model.calibration is None:
            raise ModelError(f"{model_file} has no probabilities; train it with -b 1")
        with (
            opened(
                test,
                TextOptions(memory=MEMORY),
                display,
                interruption,
                model=model,
                dtype="float64",
            ) as store,
            interruption.raising(),
        ):
            check_labels_are_numbers(store.class_names, test)
            model, n_more = for_columns_of(model, store)
            if n_more and not given.quiet:
                display.warn(f"the rows have {n_more} more columns than the training data")
            predicted = _predict(model, store, path, wants_probabilities=wants_probabilities)
            labels = store.labels()
    if not given.quiet:
        on_error = path == STANDARD_OUTPUT
        said = [*(noise_lines(model) if wants_probabilities else ())]
        said += _quality(model, predicted, labels)
        say("\n".join(said), on_error=on_error)


def _predict(
    model: "KernelExpansion", store: "Store", path: Path, *, wants_probabilities: bool
) -> "NDArray[np.float64]":
    """Write the predictions of all rows; returns their labels or values."""
    import numpy as np

    from bigsvm.report.predictions import lines_with_probabilities, write_lines

    n_rows, by_probability = store.rows.n_rows, wants_probabilities and model.classes is not None
    likeliest = np.empty(n_rows, np.int64)
    with room_for(model, n_rows, path, "probabilities" if wants_probabilities else None) as room:

        def keep(part: slice, values: "NDArray[np.float64]") -> None:
            kept_values = values
            if by_probability:
                of_classes = model.probabilities_of(values)
                likeliest[part] = _likeliest(of_classes, _step(model))
                kept_values = values if model.rule is None else of_classes
            if room is not None:
                room[part] = kept_values

        codes = deciding(model, store, parse_bytes(MEMORY))(keep=keep)
        codes = likeliest if by_probability else codes
        predicted = _predicted(model, codes, room)
        order = np.argsort(store.original_rows(), kind="stable")
        lines: Iterator[str] = (f"{value:.17g}\n" for value in predicted[order].tolist())
        if wants_probabilities and model.n_probabilities:
            # LIBSVM lists the classes in the order of its model file.
            step, probabilities = _step(model), kept_probabilities(model, room)
            names = [f"{label:g}" for label in model.classes or (-1, 1)]
            header = f"labels {' '.join(names[::step])}" if model.classes else _NO_LABELS
            lines = lines_with_probabilities(
                header, names, codes, order, lambda part: probabilities(part)[:, ::step],
                "{:g}".format,
            )  # fmt: skip
        write_lines(path, lines)
    return predicted


def _step(model: "KernelExpansion") -> int:
    """Step of LIBSVM's order of the classes, whose first of two labels is the second class here."""
    return -1 if model.rule is None else 1


def _likeliest(probabilities: "NDArray[np.float64]", step: int) -> "NDArray[np.int64]":
    """Places of the largest probabilities; of equal ones that of the label LIBSVM lists first."""
    places: NDArray[np.int64] = probabilities[:, ::step].argmax(axis=1)
    return places if step == 1 else probabilities.shape[1] - 1 - places


def _predicted(
    model: "KernelExpansion",
    codes: "NDArray[np.int64]",
    values: Any,  # noqa: ANN401 (what `room_for` gives)
) -> "NDArray[np.float64]":
    """Labels, or the values of a regression."""
    import numpy as np

    if model.kind == "one-class":
        return np.where(codes == 1, 1.0, -1.0)
    if model.classes is None:
        return np.asarray(values)
    return np.asarray(model.classes, np.float64)[codes]


def _quality(
    model: "KernelExpansion", predicted: "NDArray[np.float64]", labels: "NDArray[np.float64]"
) -> "Iterator[str]":
    """Yield the lines that LIBSVM prints about predictions."""
    if model.classes is None and model.kind != "one-class":
        error, correlation = error_and_correlation(predicted, labels)
        yield f"Mean squared error = {error:g} (regression)"
        yield f"Squared correlation coefficient = {correlation:g} (regression)"
        return
    correct, total = int((predicted == labels).sum()), len(labels)
    yield f"Accuracy = {100 * correct / total:g}% ({correct}/{total}) (classification)"
