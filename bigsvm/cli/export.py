"""``bigsvm export``: a model in the format of another library."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bigsvm.cli.inputs import load_model
from bigsvm.cli.options import local, local_or_url
from bigsvm.cli.outputs import check_model_path
from bigsvm.cli.signals import Interruption
from bigsvm.errors import ModelError
from bigsvm.files import lies_in
from bigsvm.report.progress import Display
from bigsvm.votes import OF_PAIRS


class Format(StrEnum):
    """What a model can be written as."""

    LIBSVM = "libsvm"
    ONNX = "onnx"


def command(
    model: Annotated[
        str,
        typer.Argument(
            callback=local_or_url,
            metavar="MODEL",
            help="A model of `bigsvm train`, or its URL, or a model of LIBSVM's.",
        ),
    ],
    output: Annotated[
        Path, typer.Argument(callback=local, metavar="OUTPUT", help="File to write.")
    ],
    to: Annotated[Format, typer.Option("--to", help="LIBSVM's model text, or an ONNX graph.")],
) -> None:
    """Write a model in the format of another library.

    A sigmoid calibration goes with it, except that ONNX has none of pairs of many classes; an
    isotonic one has no place in these formats.
    If the model was trained on scaled rows, the ONNX graph scales rows itself. For LIBSVM's text,
    OUTPUT.range is written too: `svm-scale -r` scales rows with it for svm-predict.

    \b
    Examples:
      bigsvm export model.safetensors a9a.model --to libsvm
      bigsvm export model.safetensors a9a.onnx --to onnx
    """
    with Interruption() as interruption, interruption.raising():
        _export(model, output, to)


def _export(model: str, output: Path, to: Format) -> None:
    check_model_path(output, to.value)
    if lies_in(output, model):
        raise ModelError(f"{output} is the model itself; write to another file")
    trained = load_model(model)
    made = trained.calibration
    if made is not None and made.method == "isotonic":
        Display(quiet=True).warn(f"{to.value} has no isotonic calibration: no probabilities there")
    elif made is not None and to is Format.ONNX and trained.rule in OF_PAIRS:
        Display(quiet=True).warn("onnx has no probabilities of pairs of classes: there are none")
    if to is Format.LIBSVM:
        from bigsvm.interchange.libsvm_model import range_path, write_libsvm_model

        if trained.scaler is not None:
            beside = range_path(output)
            check_model_path(beside, "range")
            if lies_in(beside, model):
                raise ModelError(f"{beside} is the model itself; write to another file")
        write_libsvm_model(trained, output)
        return
    from bigsvm.files import replace_synced
    from bigsvm.interchange.onnx_model import to_onnx

    graph = to_onnx(trained).SerializeToString()
    try:
        replace_synced(output, graph)
    except OSError as error:
        raise ModelError(f"cannot write the graph {output}: {error}") from error
