"""All sub-commands put together, and how errors are shown: one line each.

Imported by ``main`` once Typer and Rich are known to be there.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import kclient
from kclient.cli import dev_cluster, doctor

app = typer.Typer(
    help="Tools of kclient, an asyncio client for Apache Kafka.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("dev-cluster")(dev_cluster.dev_cluster)
app.command("doctor")(doctor.doctor)

_INTERRUPTED = 130
"""What shells expect after Ctrl-C: 128 and the number of SIGINT."""


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kclient {kclient.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_show_version, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Options that come before a sub-command."""


def run() -> int:
    """Run the command of the process's arguments; returns the exit code."""
    try:
        result = app(prog_name="kclient", standalone_mode=False)
    except typer.TyperException as error:
        text = " ".join(error.format_message().split())
        sys.stderr.write(f"kclient: {text}\n")
        return error.exit_code
    except (typer.Abort, KeyboardInterrupt):
        return _INTERRUPTED
    return result if isinstance(result, int) else 0
