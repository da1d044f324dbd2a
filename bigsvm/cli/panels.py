"""Headings of options in the help, and ``--help-all``, which shows those that few need too."""

import inspect
from typing import Annotated

import typer

from bigsvm.parameters.declaration import BALL, CRAMMER_SINGER, PAPERS

TABLES, CLUSTER = "Tables and arrays", "Cluster"
RARE = (BALL, CRAMMER_SINGER, PAPERS, TABLES, CLUSTER)
"""Headings of options that few need."""
MOST_IN_HELP = 40
"""Options that a help shows all of: some 80 lines, two screens."""
_SHOWS_ALL = "bigsvm.cli.help_all"


def _show_all(context: typer.Context, wanted: bool) -> None:
    """Show the help with all options, and exit."""
    if wanted and not context.resilient_parsing:
        context.meta[_SHOWS_ALL] = True
        typer.echo(context.get_help())
        raise typer.Exit


HELP_ALL = inspect.Parameter(
    "help_all",
    inspect.Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[
        bool,
        typer.Option(
            "--help-all",
            callback=_show_all,
            is_eager=True,
            help=f"Show the options of these headings too: {'; '.join(RARE)}.",
        ),
    ],
)
"""Option of commands with more options than `MOST_IN_HELP`."""


def panels_left_out(context: typer.Context) -> tuple[str, ...]:
    """Headings that the help of a command leaves out: those that few need, if there are many."""
    has_option = any(made.name == HELP_ALL.name for made in context.command.params)
    return RARE if has_option and not context.meta.get(_SHOWS_ALL) else ()
