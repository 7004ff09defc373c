"""What a command line says."""

from collections.abc import Sequence
from typing import Any

import pytest
import typer.main

from srpo import cli


def parse(arguments: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """The verb, e.g. ``track sync``, and its parameters by the names that its function has; nothing is run.

    Raises:
        typer.TyperException: if the command line has no such verb or option, or one is missing.
    """
    context: Any = typer.main.get_command(cli.app).make_context("srpo", [*arguments])
    while context._protected_args:
        name, command, rest = context.command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(name, rest, parent=context)
    return context.command_path.removeprefix("srpo "), context.params


def fails(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Run the command line, expect one line of error and return it."""
    assert cli.main([str(argument) for argument in arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("srpo: error: ")
    assert error.count("\n") == 1
    return error
