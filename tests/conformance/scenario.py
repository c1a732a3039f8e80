"""What a scenario is, and the table of all of them.

    @scenario("Fetch", ErrorCode.OFFSET_OUT_OF_RANGE)
    async def an_offset_behind_the_end_is_out_of_range(run: Run) -> None:
        topic = await run.topic()
        await run.ask(fetch(topic, 0, offset=5), 12)

A scenario sends requests, and `Run` records the responses; it asserts nothing about a response, as
those of Apache Kafka define what is right. The error codes are those that the scenario is there to
show: the test fails where Kafka doesn't return them.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from kclient.error_codes import ErrorCode
from kclient.protocol.api_versions import API_NAMES
from tests.conformance.run import Run

Play: TypeAlias = Callable[[Run], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario.

    Attributes:
        name: File and function, as `fetch.an_offset_behind_the_end_is_out_of_range`.
        api: The API that it is about.
        codes: Error codes that it shows.
        nodes: How many brokers it needs.
        play: The function that runs it.
    """

    name: str
    api: str
    codes: frozenset[ErrorCode]
    nodes: int
    play: Play


_FOUND: dict[str, Scenario] = {}


def scenario(api: str, *codes: ErrorCode, nodes: int = 1) -> Callable[[Play], Play]:
    """Register a function as a scenario of `api`."""
    if api not in API_NAMES.values():
        raise ValueError(f"{api!r} is no API")

    def note(play: Play) -> Play:
        name = f"{play.__module__.rpartition('.')[2]}.{play.__name__}"
        if name in _FOUND:
            raise ValueError(f"two scenarios are called {name}")
        _FOUND[name] = Scenario(name, api, frozenset(codes), nodes, play)
        return play

    return note


def all_scenarios() -> dict[str, Scenario]:
    """Every scenario by its name."""
    from tests.conformance import scenarios

    for module in pkgutil.iter_modules(scenarios.__path__):
        importlib.import_module(f"{scenarios.__name__}.{module.name}")
    return dict(sorted(_FOUND.items()))
