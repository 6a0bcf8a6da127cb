"""The command tree, assembled from the command files; only the requested branch is loaded."""

import importlib
import os
import platform
from dataclasses import dataclass
from typing import Annotated

import typer

from millstream import __version__
from millstream.cli.errors import enable_tracebacks

COMPLETION_VARIABLE = "_MILLSTREAM_COMPLETE"
EXIT_CODES = "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 the cluster cannot be reached, 130 interrupted."


@dataclass(frozen=True, slots=True)
class CommandFile:
    """The module of a command, with `command` (a single command) or `app` (a group of commands)."""

    module: str
    is_group: bool = False


COMMANDS = {
    "serve": CommandFile("millstream.cli.serve"),
    "cluster": CommandFile("millstream.cli.cluster", is_group=True),
    "broker": CommandFile("millstream.cli.broker", is_group=True),
    "topic": CommandFile("millstream.cli.topic", is_group=True),
    "group": CommandFile("millstream.cli.group", is_group=True),
    "queue": CommandFile("millstream.cli.queue", is_group=True),
    "produce": CommandFile("millstream.cli.produce"),
    "consume": CommandFile("millstream.cli.consume"),
    "telemetry": CommandFile("millstream.cli.telemetry", is_group=True),
    "pipeline": CommandFile("millstream.cli.pipeline", is_group=True),
    "backup": CommandFile("millstream.cli.backup", is_group=True),
    "log": CommandFile("millstream.cli.log", is_group=True),
    "sim": CommandFile("millstream.cli.sim"),
    "chaos": CommandFile("millstream.cli.chaos"),
    "config": CommandFile("millstream.cli.config", is_group=True),
}


def build_app(command: str | None) -> typer.Typer:
    """The command tree with only the branch of `command`, or the whole tree if there is no such command."""
    app = typer.Typer(
        help="Run a Millstream node, and work with topics, groups and messages of any Kafka-compatible cluster.",
        epilog=EXIT_CODES,
        no_args_is_help=True,
        # Shell completion would cost every command some milliseconds to load.
        add_completion=command not in COMMANDS or COMPLETION_VARIABLE in os.environ,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(root)
    names = [command] if command in COMMANDS else list(COMMANDS)
    for name in names:
        module = importlib.import_module(COMMANDS[name].module)
        if COMMANDS[name].is_group:
            app.add_typer(module.app, name=name)
        else:
            app.command(name)(module.command)
    return app


def show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"millstream {__version__} (Python {platform.python_version()})")
        raise typer.Exit


def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
    debug: Annotated[
        bool,
        typer.Option(
            "--debug", envvar="MILLSTREAM_DEBUG", help="Show tracebacks and the client library's log."
        ),
    ] = False,
) -> None:
    del version  # its callback has already answered
    if debug:
        enable_tracebacks()
