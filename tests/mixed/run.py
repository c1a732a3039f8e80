"""Runs the groups of several assignors at the same time, each with a topic of its own.

The tests and `python -m tests.mixed` call it. Most of a run is waiting for sessions to end, so that
four groups take hardly longer than one.
"""

from __future__ import annotations

import asyncio
import secrets
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mixed.assignors import FOREIGN
from tests.mixed.metronome import Metronome
from tests.mixed.play import play
from tests.mixed.process import Settings
from tests.mixed.scenario import Outcome, Scenario, Stuck
from tests.mixed.writer import Writer
from tests.support import raw_admin

SESSION, HEARTBEAT = 6.0, 1.0
"""Seconds; brokers allow no shorter session."""
PARTITIONS = 12
RATE = 10.0
"""Records per second for each partition."""
_APART = 1.5
"""Seconds between two groups: their programs don't start all at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What is to be played.

    Attributes:
        ours: Members of kclient in each group.
        long: Each client leaves, dies and freezes.
        more: Further clients, where they have the assignor.
    """

    ours: int = 2
    long: bool = False
    more: Mapping[str, Sequence[str]] | None = None


def run(
    bootstrap: str, assignors: Sequence[str], wishes: Wishes, emit: Callable[[str], object]
) -> dict[str, Outcome]:
    """Run the groups: assignor -> the outcome of its group; blocks."""
    return asyncio.run(_run(bootstrap, assignors, wishes, emit))


async def _run(
    bootstrap: str, assignors: Sequence[str], wishes: Wishes, emit: Callable[[str], object]
) -> dict[str, Outcome]:
    with tempfile.TemporaryDirectory() as folder, Metronome() as metronome:
        outcomes = await asyncio.gather(
            *(
                _one(bootstrap, assignor, wishes, metronome, Path(folder), emit, place * _APART)
                for place, assignor in enumerate(assignors)
            )
        )
    return dict(zip(assignors, outcomes, strict=True))


async def _one(
    bootstrap: str,
    assignor: str,
    wishes: Wishes,
    metronome: Metronome,
    folder: Path,
    emit: Callable[[str], object],
    later: float,
) -> Outcome:
    """Play one group."""
    await asyncio.sleep(later)
    mine = folder / assignor
    mine.mkdir()
    name = f"mixed-{assignor}-{secrets.token_hex(4)}"
    await asyncio.to_thread(raw_admin.create_topic, bootstrap, name, partitions=PARTITIONS)
    settings = Settings(
        bootstrap=bootstrap,
        topic=name,
        group=name,
        assignor=assignor,
        session=SESSION,
        heartbeat=HEARTBEAT,
    )
    writer = Writer(bootstrap, name, PARTITIONS, RATE)
    await writer.start()
    scene = Scenario(settings, PARTITIONS, writer, metronome, mine, emit)
    began = time.monotonic()
    foreign = [*FOREIGN[assignor], *((wishes.more or {}).get(assignor, ()))]
    try:
        try:
            await play(scene, wishes.ours, foreign, long=wishes.long)
        finally:
            await writer.stop()
        await scene.drained()
        outcome = await scene.finish()
    except Stuck as error:
        outcome = scene.judged()
        outcome.wrong.insert(0, str(error))
    finally:
        await scene.abandon()
    outcome.wrong += [f"a record was not written: {one}" for one in writer.failures[:3]]
    emit(f"{assignor}: over after {time.monotonic() - began:.1f} s")
    return outcome
