"""Making, writing, reading and waiting with aiokafka: what its features share."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiokafka
from aiokafka.admin import AIOKafkaAdminClient

from tests.foreign.scene import PATIENCE, Feature, Scene, true


def played(feature: Callable[[Scene], Awaitable[object]]) -> Feature:
    """A feature in a loop of its own."""

    @functools.wraps(feature)
    def run(scene: Scene) -> object:
        async def main() -> object:
            return await feature(scene)

        return asyncio.run(main())

    return run


def common(scene: Scene) -> dict[str, Any]:
    """What all clients have: where the brokers are, and how to log in."""
    login = {} if scene.login is None else scene.login.python()
    return {"bootstrap_servers": scene.bootstrap, **login}


@asynccontextmanager
async def producing(scene: Scene, **settings: Any) -> AsyncIterator[Any]:
    """A producer with aiokafka's own settings but for these."""
    made = aiokafka.AIOKafkaProducer(**common(scene), **settings)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


@asynccontextmanager
async def consuming(scene: Scene, *topics: str, **settings: Any) -> AsyncIterator[Any]:
    """A consumer that commits nothing of itself."""
    settings = {"enable_auto_commit": False, "fetch_max_wait_ms": 100, **settings}
    made = aiokafka.AIOKafkaConsumer(*topics, **common(scene), **settings)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


@asynccontextmanager
async def administering(scene: Scene) -> AsyncIterator[Any]:
    """An admin client."""
    made = AIOKafkaAdminClient(**common(scene))
    await made.start()
    try:
        yield made
    finally:
        await made.close()


async def write(
    scene: Scene,
    topic: str,
    values: Sequence[bytes],
    *,
    partition: int = 0,
    first_time: int | None = None,
    **settings: Any,
) -> list[int]:
    """Write values, 1 s apart if they have a time; return the acknowledged offsets."""
    async with producing(scene, **{"acks": "all", **settings}) as made:
        sent = [
            await made.send(
                topic,
                value,
                partition=partition,
                timestamp_ms=None if first_time is None else first_time + 1000 * n,
            )
            for n, value in enumerate(values)
        ]
        reported = [await asyncio.wait_for(one, PATIENCE) for one in sent]
    return [-1 if one is None else one.offset for one in reported]


async def take(reader: Any, count: int) -> list[Any]:
    """The next records of a consumer."""
    found: list[Any] = []
    deadline = time.monotonic() + PATIENCE
    while len(found) < count:
        true(time.monotonic() < deadline, f"only {len(found)} of {count} records came")
        answer = await reader.getmany(timeout_ms=200, max_records=count - len(found))
        for records in answer.values():
            found.extend(records)
    return found


async def read(
    scene: Scene, topic: str, count: int, partitions: int = 1, start: int = 0, **settings: Any
) -> list[Any]:
    """Read so many records by assignment."""
    async with consuming(scene, **settings) as reader:
        assigned = [aiokafka.TopicPartition(topic, p) for p in range(partitions)]
        reader.assign(assigned)
        for one in assigned:
            reader.seek(one, start)
        return await take(reader, count)


async def refusal(asked: Awaitable[object], *kinds: type[Exception]) -> Exception:
    """The error of these kinds that a call must raise."""
    try:
        answer = await asked
    except kinds as error:
        return error
    raise AssertionError(f"not refused, but answered {answer!r}")


async def until(look: Callable[[], Awaitable[bool]], what: str) -> None:
    """Look again and again until it is true."""
    deadline = time.monotonic() + PATIENCE
    while not await look():
        true(time.monotonic() < deadline, f"still not so after {PATIENCE:g} s: {what}")
        await asyncio.sleep(0.02)
