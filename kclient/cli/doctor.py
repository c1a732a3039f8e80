"""``kclient doctor``: tries each step of a connection, and names what is wrong and what to change.

It prints what ``kclient.doctor`` finds. Settings come from a properties file, of which no value is
printed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from kclient.config import AdminConfig
from kclient.errors import InvalidConfig
from kclient.foreign_settings import counterpart, normalised
from kclient.properties import pairs_of

if TYPE_CHECKING:
    from kclient.doctor.findings import Step

_FAILED = 1
_TIMEOUT = 5.0
_MAX_TIMEOUT = 60.0  # asyncio's own for TLS handshakes


def _seconds(given: object) -> float:
    try:
        seconds = float(str(given))
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= _MAX_TIMEOUT:
        raise typer.BadParameter(f"{str(given)!r} is no number from 0.1 to {_MAX_TIMEOUT:g}")
    return seconds


def doctor(
    bootstrap: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT,...", help="Addresses; else those of the settings."),
    ] = None,
    properties: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Properties file, as Java's and librdkafka's clients."),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("-X", metavar="NAME=VALUE", help="A setting over the file's; repeatable."),
    ] = None,
    timeout: Annotated[
        float, typer.Option(parser=_seconds, metavar="SECONDS", help="Limit of each step.")
    ] = _TIMEOUT,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document instead of text.")
    ] = False,
) -> int:
    """Find out why a client can't connect: DNS, TCP, TLS, Kafka, login, advertised listeners.

    The exit code is 0 if all is well, 1 if something is wrong, 2 if an option is.
    """
    config = _config(bootstrap, properties, setting or ())
    printer = _Printer(config, as_json=as_json)
    from kclient.doctor.examination import examine  # loads the network

    asyncio.run(examine(config, printer.take, timeout=timeout))
    return printer.finish()


def _config(bootstrap: str | None, file: str | None, given: Sequence[str]) -> AdminConfig:
    try:
        pairs = dict(pairs_of(file)) if file is not None else {}
        for one in given:
            name, equals, value = one.partition("=")
            if not equals or not name.strip():  # not shown, as it may be a secret
                raise typer.BadParameter("a setting is NAME=VALUE", param_hint="'-X'")
            pairs = {key: old for key, old in pairs.items() if normalised(key) != normalised(name)}
            pairs[name.strip()] = value
        rows = [counterpart(name) for name in pairs]
        if not bootstrap and not any(row is not None and row.ours == "bootstrap" for row in rows):
            raise typer.BadParameter(
                "give HOST:PORT, or bootstrap.servers in --properties or -X",
                param_hint="'--bootstrap'",
            )
        return AdminConfig.of(AdminConfig.from_properties(pairs), {"bootstrap": bootstrap or None})
    except InvalidConfig as error:
        raise typer.BadParameter(str(error)) from None


class _Printer:
    """Prints steps as they come, or all of them as JSON.

    Args:
        config: The settings.
        as_json: Print JSON.
    """

    def __init__(self, config: AdminConfig, *, as_json: bool) -> None:
        self._protocol = config.security.protocol
        self._console = None if as_json else Console(highlight=False, soft_wrap=True)
        self._steps: list[Step] = []

    def take(self, step: Step) -> None:
        """Take the next step."""
        if self._console is not None:
            self._print(self._console, step)
        self._steps.append(step)

    def _print(self, console: Console, step: Step) -> None:
        if not self._steps or self._steps[-1].address != step.address:
            role = "bootstrap" if step.broker is None else f"advertised by broker {step.broker}"
            console.print(f"[bold]{escape(step.address)}[/bold] ({role}, {self._protocol})")
        style, word = ("green", "ok  ") if step.ok else ("red", "FAIL")
        console.print(f"  [{style}]{word}[/{style}] {step.name:<12}{escape(step.detail)}")
        if step.cause is not None:
            console.print(f"       [bold]Cause:[/bold]  {step.cause.value}")
            console.print(f"       [bold]Change:[/bold] {escape(step.advice or '')}")

    def finish(self) -> int:
        """Print the end; return the exit code."""
        wrong = sum(not step.ok for step in self._steps)
        if self._console is None:
            typer.echo(
                json.dumps(
                    {"ok": not wrong, "steps": [step.to_dict() for step in self._steps]}, indent=2
                )
            )
        elif wrong:
            problems = "1 problem" if wrong == 1 else f"{wrong} problems"
            self._console.print(f"[red]{problems}[/red] found")
        else:
            self._console.print("[green]All is well.[/green]")
        return _FAILED if wrong else 0
