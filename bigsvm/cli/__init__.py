"""The command line: ``bigsvm convert | scale | plan | train | cv | predict | …``.

The input is words and files; the output is files, results on standard output and an exit code: 0
done, an unconverged model included, which says so; 1 unexpected; 2 wrong usage or bad input; 3 an
unconverged model with ``--fail-unconverged``; 130, 143 and 129 stopped by SIGINT (Ctrl-C), SIGTERM
and SIGHUP. A command is a module with a function `command`, which is listed here; options of
``train`` are made in `options` from `bigsvm.parameters`. What takes long to import is imported by
the command that needs it, when it runs.
"""

from collections.abc import Callable
from typing import Annotated, Any

import typer
import typer.core

from bigsvm.allocator import share_freed_memory
from bigsvm.cli import (
    convert,
    cv,
    demo,
    easy,
    export,
    info,
    inspect,
    plan,
    predict,
    scale,
    search,
    split,
    svm_predict,
    svm_scale,
    svm_train,
    train,
    warm_up,
)
from bigsvm.cli.failures import reported
from bigsvm.cli.libsvm_words import SETTINGS
from bigsvm.cli.options import with_flat_options
from bigsvm.cli.streams import secure_streams
from bigsvm.version import __version__


class _Commands(typer.core.TyperGroup):
    """Turns errors into one line on standard error and an exit code."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 (a context of Click)
        """Refuse empty words, which as paths would mean the current folder."""
        if not args:
            return super().parse_args(ctx, args)  # which shows the help
        with reported():
            for before, word in zip(["", *args], args, strict=False):
                option, equals, value = word.partition("=")
                if not word or (option.startswith("--") and equals and not value):
                    name = option or before
                    where = f"after {name} " if name else ""
                    raise typer.BadParameter(
                        f"a word of the command {where}is empty; leave it out, or write . for the "
                        "current folder"
                    )
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 (a context of Click)
        with reported(ctx, self):
            return super().invoke(ctx)


class _InPanels(typer.core.TyperCommand):
    """A command whose help has its options under the headings of their panels."""

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 (of Click)
        panels: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                is_argument = parameter.param_type_name == "argument"
                panel = getattr(parameter, "rich_help_panel", None)
                panel = "Arguments" if is_argument else panel or "Options"
                panels.setdefault(panel, []).append(record)
        panels["Options"] = panels.pop("Options")  # last
        for heading, records in panels.items():
            with formatter.section(heading):
                formatter.write_dl(records)


app = typer.Typer(
    name="bigsvm",
    cls=_Commands,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"bigsvm {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Exact kernel support vector machines on data larger than memory.

    \b
    bigsvm convert train.libsvm train.zarr
    bigsvm train train.zarr model.safetensors --C 1 --gamma 0.008 --checkpoint run
    bigsvm predict test.libsvm model.safetensors --output predicted.txt
    bigsvm info model.safetensors
    bigsvm demo

    Results go to standard output, progress to standard error.

    Exit codes: 0 done (a model that did not converge says so and still counts as done),
    1 unexpected error, 2 wrong usage or bad input, 3 a model that did not converge with
    --fail-unconverged, 130 stopped by Ctrl-C, 143 by SIGTERM, 129 by SIGHUP.
    """


_COMMANDS: dict[str, Callable[..., None]] = {
    "convert": convert.command,
    "scale": scale.command,
    "split": split.command,
    "info": info.command,
    "plan": plan.command,
    "train": train.command,
    "cv": cv.command,
    "search": search.command,
    "easy": easy.command,
    "predict": predict.command,
    "inspect": inspect.command,
    "export": export.command,
    "demo": demo.command,
    "warm-up": warm_up.command,
}
for _name, _command in _COMMANDS.items():
    app.command(_name, cls=_InPanels)(with_flat_options(_command))
app.command("svm-train", context_settings=SETTINGS)(svm_train.command)
app.command("svm-scale", context_settings=SETTINGS)(svm_scale.command)
app.command("svm-predict", context_settings=SETTINGS)(svm_predict.command)


def main() -> int:
    """Run the command line of this process and return its exit code."""
    share_freed_memory()
    secure_streams()
    try:
        app(prog_name="bigsvm")
    except SystemExit as end:
        if isinstance(end.code, int):
            return end.code
        return 0 if end.code is None else 1
    return 0


__all__ = ["app", "main"]
