"""``kclient dev-cluster``: a Kafka cluster in memory, at ports that stay, to develop against.

It is ``kclient.testing.Cluster`` with a signal handler. Not for production, and it prints so.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import signal
import socket
from collections.abc import Callable, Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from kclient.errors import BrokerError, InvalidArgument
from kclient.testing import Cluster

_ENDING = (signal.SIGINT, signal.SIGTERM)
_MOST_BROKERS = 100
_MOST_PORT = 65_535


def _whole(least: int, most: int) -> Callable[[object], int]:
    """A parser of whole numbers whose error names what was given, as Typer's own doesn't."""

    def parse(given: object) -> int:
        text = str(given)  # a default comes as the number that it is
        if not text.isdecimal() or not least <= int(text) <= most:
            raise typer.BadParameter(f"{text!r} is no whole number from {least} to {most}")
        return int(text)

    return parse


def dev_cluster(
    brokers: Annotated[
        int,
        typer.Option(parser=_whole(1, _MOST_BROKERS), metavar="COUNT", help="How many brokers."),
    ] = 1,
    port: Annotated[
        int,
        typer.Option(
            parser=_whole(0, _MOST_PORT),
            metavar="PORT",
            help="Port of the first broker; the others have the next ones. 0: any that are free.",
        ),
    ] = 9092,
    host: Annotated[
        str, typer.Option(help="Address where brokers listen, and that clients connect to.")
    ] = "127.0.0.1",
    topic: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME[:PARTITIONS]", help="A topic to begin with; may be repeated."),
    ] = None,
    auto_create_topics: Annotated[
        bool, typer.Option(help="Make topics that a client asks for and that aren't there.")
    ] = True,
    racks: Annotated[
        str | None, typer.Option(metavar="RACK,...", help="The rack of each broker, in order.")
    ] = None,
) -> None:
    """Run a Kafka cluster in memory, to develop against. Not for production.

    It ends with Ctrl-C or SIGTERM, and all it has is gone then.
    """
    _check_ports(port, brokers)
    topics = [_parsed_topic(one) for one in topic or ()]
    try:
        cluster = Cluster(
            brokers,
            auto_create_topics=auto_create_topics,
            racks=_parsed_racks(racks, brokers),
            host=host,
            port=port,
        )
    except InvalidArgument as error:
        raise typer.BadParameter(str(error), param_hint="'--host'") from None
    try:
        asyncio.run(_serve(cluster, topics))
    except OSError as error:
        raise _not_opened(error, host, port, brokers) from None


async def _serve(cluster: Cluster, topics: Sequence[tuple[str, int]]) -> None:
    ending = asyncio.Event()
    loop = asyncio.get_running_loop()
    with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C cancels this task instead
        for number in _ENDING:
            loop.add_signal_handler(number, ending.set)
    async with cluster:
        for name, partitions in topics:
            try:
                cluster.create_topic(name, partitions=partitions)
            except BrokerError as error:
                raise typer.BadParameter(str(error), param_hint="'--topic'") from None
        _greet(cluster)
        await ending.wait()
        for number in _ENDING:  # a second one ends it at once
            loop.remove_signal_handler(number)


def _greet(cluster: Cluster) -> None:
    count = len(cluster.brokers)
    brokers = "1 broker that behaves" if count == 1 else f"{count} brokers that behave"
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"kclient dev-cluster: {brokers} like Apache Kafka 4.3, for development")
    console.print(f"bootstrap: [bold]{escape(cluster.bootstrap)}[/bold]")
    if cluster.topics:
        described = (f"{name} ({cluster.partition_count(name)})" for name in cluster.topics)
        console.print(f"topics (partitions): {', '.join(described)}")
    console.print("Not for production: everything is in memory, and gone when this ends (Ctrl-C).")


def _check_ports(port: int, brokers: int) -> None:
    most = _MOST_PORT + 1 - brokers
    if port > most:
        raise typer.BadParameter(
            f"{port} leaves too few ports for {brokers} brokers: 0 to {most} is allowed",
            param_hint="'--port'",
        )


def _parsed_topic(text: str) -> tuple[str, int]:
    name, _, count = text.partition(":")
    if not name or (":" in text and not (count.isdecimal() and int(count) > 0)):
        raise typer.BadParameter(
            f"{text!r} must be NAME or NAME:PARTITIONS, such as flights:6", param_hint="'--topic'"
        )
    return name, int(count or 1)


def _parsed_racks(text: str | None, brokers: int) -> list[str] | None:
    if text is None:
        return None
    racks = [one.strip() for one in text.split(",")]
    if len(racks) != brokers or not all(racks):
        raise typer.BadParameter(
            f"{text!r} must name {brokers} racks, one for each broker, with commas between",
            param_hint="'--racks'",
        )
    return racks


def _not_opened(error: OSError, host: str, port: int, brokers: int) -> typer.BadParameter:
    """Return the error for a listener that couldn't be opened."""
    if error.errno == errno.EADDRINUSE:
        taken = next((one for one in range(port, port + brokers) if _is_taken(host, one)), port)
        wanted = str(port) if brokers == 1 else f"{port} to {port + brokers - 1}"
        return typer.BadParameter(
            f"{taken} is in use on {host}; {wanted} must be free, and 0 finds free ports",
            param_hint="'--port'",
        )
    if error.errno == errno.EACCES:
        return typer.BadParameter(
            f"{port} needs more rights than this user has; take one from 1024 on, or 0",
            param_hint="'--port'",
        )
    return typer.BadParameter(
        f"{host!r} can't be listened on ({error.strerror or error}): it must be an address of "
        "this machine",
        param_hint="'--host'",
    )


def _is_taken(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError:
        return True
    return False
