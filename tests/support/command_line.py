"""What a command line says, without running it."""

from collections.abc import Sequence
from typing import Any

import typer.main

from srpo import cli


def parse(arguments: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """The verb, e.g. ``track sync``, and its parameters by the names that its function has.

    Raises:
        typer.TyperException: if the command line has no such verb or option, or one is missing.
    """
    context: Any = typer.main.get_command(cli.app).make_context("srpo", [*arguments])
    while context._protected_args:
        name, command, rest = context.command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(name, rest, parent=context)
    return context.command_path.removeprefix("srpo "), context.params
