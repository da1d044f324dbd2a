"""The command line: ``bigsvm convert | scale | plan | train | cv | predict | …``.

The input is words and files; the output is files, results on standard output and an exit code: 0
done, an unconverged model included, which says so; 1 unexpected; 2 wrong usage or bad input; 3 an
unconverged model with ``--fail-unconverged``; 130, 143 and 129 stopped by SIGINT (Ctrl-C), SIGTERM
and SIGHUP. A command is a module with a function `command`, which is listed here and imported when
it is called; options of ``train`` are made in `options` from `bigsvm.parameters`. What takes long
to import is imported by the command that needs it, when it runs.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
import typer.core

from bigsvm.allocator import share_freed_memory
from bigsvm.cli.failures import AS_JSON, reported
from bigsvm.cli.libsvm_words import SETTINGS
from bigsvm.cli.streams import secure_streams
from bigsvm.version import __version__

COMMANDS = {
    "convert": "Convert LIBSVM text or files of other programs to a store.",
    "append": "Append rows to a store, all of them or none.",
    "drop": "Write a store without some rows of another one.",
    "scale": "Scale the columns of a store into a new store.",
    "split": "Part the rows of a store into several stores, at random.",
    "info": "Tell what a store, a model or a checkpoint folder holds.",
    "plan": "Say what training will take: time, memory and disk.",
    "train": "Train a model on rows of any size, within a memory budget.",
    "cv": "Cross-validate, and show the scores.",
    "search": "Search the best parameters, as LIBSVM's grid.py does.",
    "easy": "Convert, scale, search, train and predict at once.",
    "predict": "Predict, and compare with the labels where there are any.",
    "report": "Write a report of a model or a run as one page for a browser.",
    "watch": "Show a run that another process trains, from its log.",
    "inspect": "List the training rows whose labels look wrong.",
    "export": "Write a model or a store in the format of another library.",
    "demo": "Train on bundled data, be killed half way, resume, predict.",
    "warm-up": "Compile everything, which else the first runs do.",
    "svm-train": "Train as LIBSVM's svm-train does, with its options.",
    "svm-scale": "Scale as LIBSVM's svm-scale does, with its options.",
    "svm-predict": "Predict as LIBSVM's svm-predict does, with its options.",
    "libsvm-programs": "Write executables with the names of these three.",
}
"""What each command does, for the list of all; its own help tells more."""


@cache
def _loaded(name: str) -> Any:  # noqa: ANN401 (a command of Click)
    """Import a command, and make what Typer runs."""
    command = import_module(f"bigsvm.cli.{name.replace('-', '_')}").command
    alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    if name.startswith("svm-"):
        alone.command(name, context_settings=SETTINGS)(command)
    else:
        from bigsvm.cli.options import with_flat_options

        alone.command(name, cls=_InPanels)(with_flat_options(command))
    return typer.main.get_command(alone)


class _Lazy(Mapping[str, Any]):
    """All commands by name, each of which is imported when it is asked for."""

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 (a command of Click)
        COMMANDS[name]  # or a KeyError
        return _loaded(name)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class _Commands(typer.core.TyperGroup):
    """Turns errors into one line on standard error and an exit code."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 (of Typer)
        super().__init__(**settings | {"commands": {}})
        self.commands = _Lazy()  # type: ignore[assignment]  # nothing is added to it

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401 (a context of Click)
        """Names of all commands, none of which is imported."""
        return list(COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 (of Click)
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 (a context of Click)
        """Refuse empty words, which as paths would mean the current folder."""
        if not args:
            return super().parse_args(ctx, args)  # which shows the help
        ctx.meta[AS_JSON] = "--json" in args
        with reported(ctx):
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
        from bigsvm.cli.panels import CLUSTER, panels_left_out

        panels: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                is_argument = parameter.param_type_name == "argument"
                panel = getattr(parameter, "rich_help_panel", None)
                panel = "Arguments" if is_argument else panel or "Options"
                panels.setdefault(panel, []).append(record)
        for heading in (CLUSTER, "Options"):  # last, as few need them
            if heading in panels:
                panels[heading] = panels.pop(heading)
        left_out = panels_left_out(ctx)
        for heading, records in panels.items():
            if heading in left_out:
                continue
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

    With --json an error is one JSON object too, on standard error.

    Exit codes: 0 done (a model that did not converge says so and still counts as done),
    1 unexpected error, 2 wrong usage or bad input, 3 a model that did not converge with
    --fail-unconverged, 130 stopped by Ctrl-C, 143 by SIGTERM, 129 by SIGHUP.
    """


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
