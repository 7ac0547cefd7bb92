"""The commands: ``hushprice demo | fit | twin | plan | evaluate | simulate | compare | serve | ...``.

A command's module is imported when the command is called: a server needs no Matplotlib, and answers come sooner.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup

from hushprice.errors import HushpriceError
from hushprice.version import __version__

COMMANDS = {  # name: module and function, or its Typer application where it has commands of its own
    "demo": "demo:demo",
    "fit": "fit:fit",
    "twin": "twin:twin",
    "plan": "plan:plan",
    "evaluate": "evaluate:evaluate",
    "simulate": "simulate:simulate",
    "compare": "simulate:compare_command",
    "scaling": "simulate:scaling",
    "study": "study:study",
    "paper": "paper:app",
    "audit": "audit:audit",
    "list": "listing:list_command",
    "serve": "serve:serve",
    "keys": "serve:keys",
    "verify": "serve:verify",
}


class Commands(TyperGroup):
    """The commands of :data:`COMMANDS`, each imported at its first use."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            module, _, name = COMMANDS[cmd_name].partition(":")
            target = getattr(import_module(f"hushprice.cli.commands.{module}"), name)
            if not isinstance(target, typer.Typer):
                one = typer.Typer(add_completion=False, rich_markup_mode="rich")
                one.command(name=cmd_name)(target)
                target = one
            command = typer.main.get_command(target)
            command.name = cmd_name
            self.add_command(command, cmd_name)
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in COMMANDS:  # a word that is none: the nearest is looked for among all of them
            for name in COMMANDS:
                self.get_command(ctx, name)
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=Commands,
    name="hushprice",
    help="Set prices for arriving customers, learn demand while earning. Start with: hushprice demo",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hushprice {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Entry point: a refusal is one line on standard error, not a traceback."""
    try:
        app()
    except HushpriceError as problem:
        Console(stderr=True).print(f"[bold red]error:[/bold red] {escape(str(problem))}", highlight=False)
        sys.exit(2)
