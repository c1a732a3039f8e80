"""Play a scenario on both sides and return where they differ, as a diff of field paths."""

from __future__ import annotations

import asyncio
import difflib
import secrets
from collections.abc import Iterator
from typing import Any

from kclient.error_codes import ErrorCode
from tests.conformance.normalisation import Rule, normalised
from tests.conformance.places import Place, embedded
from tests.conformance.plain import code_name
from tests.conformance.run import Exchange, Run, Transcript
from tests.conformance.scenario import Scenario

_CONTEXT = 2


async def play_both(
    scenario: Scenario, real: Place, seed: int = 0
) -> tuple[Transcript, Transcript]:
    """The transcripts of the embedded cluster and of the real one; both play at the same time."""
    token = secrets.token_hex(4)
    async with embedded(scenario.nodes, seed) as ours, asyncio.TaskGroup() as tasks:
        mine = tasks.create_task(play(scenario, ours, token))
        theirs = tasks.create_task(play(scenario, real, token))
    return mine.result(), theirs.result()


async def play(scenario: Scenario, place: Place, token: str) -> Transcript:
    """The transcript of one side."""
    async with Run(place, token) as run:
        try:
            await scenario.play(run)
        except Exception as error:
            lines = "\n".join(render(run.transcript.exchanges))
            error.add_note(f"{scenario.name} on {place.kind}, after:\n{lines}")
            raise
    return run.transcript


def difference(ours: Transcript, theirs: Transcript, rules: list[Rule]) -> str:
    """A unified diff, from Kafka's responses to ours; empty if they agree."""
    mine, real = (list(render(normalised(one, rules))) for one in (ours, theirs))
    lines = difflib.unified_diff(real, mine, "Apache Kafka", "embedded", "", "", _CONTEXT, "")
    return "\n".join(lines)


def missing_codes(scenario: Scenario, theirs: Transcript) -> list[str]:
    """Error codes that a scenario is there to show, and that Kafka didn't return."""
    seen = "\n".join(render(theirs.exchanges))
    return sorted(code_name(one) for one in scenario.codes if f"= {code_name(one)}" not in seen)


def shown_codes(theirs: Transcript) -> set[ErrorCode]:
    """All error codes that Kafka returned."""
    seen = "\n".join(render(theirs.exchanges))
    return {one for one in ErrorCode if one and f"= {code_name(one)}" in seen}


def render(exchanges: list[Exchange]) -> Iterator[str]:
    """One line per field: number of the exchange, request, path, value."""
    for number, exchange in enumerate(exchanges, 1):
        head = f"{number} {exchange.asked}"
        if isinstance(exchange.answer, str):
            yield f"{head}: {exchange.answer}"
            continue
        for path, value in _flat(exchange.answer, ""):
            yield f"{head}: {path} = {value}"


def _flat(value: Any, path: str) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict) and value:
        for name, one in value.items():
            yield from _flat(one, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list) and value:
        for index, one in enumerate(value):
            yield from _flat(one, f"{path}[{index}]")
    else:
        yield path, value if isinstance(value, str) and "(" in value else repr(value)
