"""``bigsvm export``: a model in the format of another library, or a store as LIBSVM text."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bigsvm.cli.inputs import is_text, load_model
from bigsvm.cli.options import Memory, Quiet, is_given, local, local_or_url
from bigsvm.cli.outputs import Overwrite, check_apart, check_model_path, predictions_path
from bigsvm.cli.signals import Interruption
from bigsvm.errors import DataError, ModelError, ParameterError
from bigsvm.files import written
from bigsvm.report.progress import Display, RowsProgress


class Format(StrEnum):
    """What a model can be written as; a store becomes LIBSVM text only."""

    LIBSVM = "libsvm"
    ONNX = "onnx"


def command(
    context: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            callback=local_or_url,
            metavar="MODEL|STORE",
            help="A model of `bigsvm train`, or its URL, or a model of LIBSVM's; or a store.",
        ),
    ],
    output: Annotated[
        Path,
        typer.Argument(
            callback=local, metavar="OUTPUT", help="File to write; of a store also -, the output."
        ),
    ],
    to: Annotated[
        Format,
        typer.Option(
            "--to",
            case_sensitive=False,
            help="LIBSVM's text, of a model or of rows; or an ONNX graph.",
        ),
    ],
    overwrite: Overwrite = False,
    memory: Memory = "1GB",
    quiet: Quiet = False,
) -> None:
    """Write a model in the format of another library, or a store as LIBSVM text.

    A sigmoid calibration goes with it, except that ONNX has none of pairs of many classes; an
    isotonic one has no place in these formats.
    If the model was trained on scaled rows, the ONNX graph scales rows itself. For LIBSVM's text,
    OUTPUT.range is written too: `svm-scale -r` scales rows with it for svm-predict.

    A model of the same format is replaced, another file only with --overwrite.

    The rows of a store are written in the order of its input, with the digits that their values
    need. Those of a scaled store stay scaled. --memory is for stores, which are read in parts.

    \b
    Examples:
      bigsvm export model.safetensors a9a.model --to libsvm
      bigsvm export model.safetensors a9a.onnx --to onnx
      bigsvm export train.zarr train.libsvm --to libsvm
    """
    if not is_text(source):
        _export_store(source, output, to, memory, overwrite=overwrite, quiet=quiet)
        return
    if is_given(context, "memory"):
        raise ParameterError(f"--memory is for stores, and {source} is a model; leave it out")
    with Interruption() as interruption, interruption.raising():
        _export(source, output, to, overwrite=overwrite)


def _export_store(
    source: str, output: Path, to: Format, memory: str, *, overwrite: bool, quiet: bool
) -> None:
    """Write the rows of a store as text."""
    if to is not Format.LIBSVM:
        raise ParameterError(f"{source} is a store, which becomes LIBSVM text only: --to libsvm")
    path = predictions_path(str(output), (source,), overwrite=overwrite, what="rows", name="OUTPUT")
    with (
        Interruption() as interruption,
        Display(quiet=quiet) as display,
        interruption.raising(),
    ):
        from bigsvm.conversion.to_text import lines_of_store
        from bigsvm.data.store import open_store

        store = open_store(source)
        if store.attributes.has_weights:
            display.warn(f"{source} has weights, which LIBSVM text has no place for")
        lines = lines_of_store(
            store, memory=memory, on_progress=RowsProgress(display, "writing", len(store))
        )
        try:
            with written(Path(path)) as file:
                file.writelines(lines)
        except BrokenPipeError:
            return  # the reader has closed the pipe
        except OSError as error:
            raise DataError(f"cannot write the rows to {path}: {error}") from error


def _export(model: str, output: Path, to: Format, *, overwrite: bool) -> None:
    inputs = (model, f"{model}.range")
    check_model_path(output, to.value, overwrite=overwrite)
    check_apart(inputs, {"OUTPUT": output})
    trained = load_model(model)
    from bigsvm.votes import OF_PAIRS

    made = trained.calibration
    if made is not None and (
        made.method == "isotonic" or (to is Format.ONNX and made.method != "sigmoid")
    ):
        Display(quiet=True).warn(
            f"{to.value} has no {made.method} calibration: no probabilities there"
        )
    elif made is not None and to is Format.ONNX and trained.rule in OF_PAIRS:
        Display(quiet=True).warn("onnx has no probabilities of pairs of classes: there are none")
    if to is Format.LIBSVM:
        from bigsvm.interchange.libsvm_model import range_path, write_libsvm_model

        if trained.scaler is not None:
            beside = range_path(output)
            check_model_path(beside, "range", overwrite=overwrite)
            check_apart(inputs, {"OUTPUT": beside})
        write_libsvm_model(trained, output)
        return
    from bigsvm.files import replace_synced
    from bigsvm.interchange.onnx_model import to_onnx

    graph = to_onnx(trained).SerializeToString()
    try:
        replace_synced(output, graph)
    except OSError as error:
        raise ModelError(f"cannot write the graph {output}: {error}") from error
