"""aiokafka's transactions; it knows groups there by their name only, and has no admin for them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import aiokafka
from aiokafka.errors import KafkaError

from tests.foreign.clients.aiokafka_help import (
    consuming,
    played,
    producing,
    read,
    refusal,
    take,
    until,
    write,
)
from tests.foreign.scene import Feature, Scene, equal, true
from tests.foreign.transactions import (
    BATCH,
    COPIED,
    COPIED_PARTITIONS,
    END,
    ENDS,
    PARTITIONS,
    expected,
    gives_up,
    values,
)

_COMMITTED = {"isolation_level": "read_committed"}


async def _write(made: Any, topic: str, partition: int, some: Sequence[bytes]) -> list[int]:
    sent = [await made.send(topic, value, partition=partition) for value in some]
    return [(await one).offset for one in sent]


async def _end(made: Any, commit: bool) -> None:
    if commit:
        await made.commit_transaction()
    else:
        await made.abort_transaction()


@played
async def transactions_commit(scene: Scene) -> object:
    """Five over three partitions; a sixth, open one holds ``read_committed`` back."""
    topic = scene.topic("transactions", PARTITIONS)
    seen: dict[str, object] = {}
    async with producing(scene, transactional_id=scene.name("id")) as made:
        for number, commit in enumerate(ENDS):
            await made.begin_transaction()
            for partition in range(PARTITIONS):
                await _write(made, topic, partition, values(number, partition))
            await _end(made, commit)
        async with made.transaction():
            pass  # an empty one
        await made.begin_transaction()
        equal(await _write(made, topic, 0, [b"open"]), [END])
        for level, more in (("read_uncommitted", [b"open"]), ("read_committed", [])):
            wanted = [expected(p, level) for p in range(PARTITIONS)]
            wanted[0] = wanted[0] + more
            count = sum(map(len, wanted))
            async with consuming(scene, isolation_level=level) as reader:
                reader.assign([aiokafka.TopicPartition(topic, p) for p in range(PARTITIONS)])
                await reader.seek_to_beginning()
                found = await take(reader, count)
                equal(await reader.getmany(timeout_ms=300), {}, f"more for {level}")
            for p in range(PARTITIONS):
                equal([m.value for m in found if m.partition == p], wanted[p], f"{level} {p}")
            seen[level] = [m.offset for m in found if m.partition == 0]
        await _end(made, True)
    (last,) = await read(scene, topic, 1, start=END, **_COMMITTED)
    equal([last.value, last.offset], [b"open", END])
    return seen


@played
async def transactions_offsets(scene: Scene) -> object:
    """An abort leaves the committed offset; a commit moves it."""
    source, target, group = scene.topic("source"), scene.topic("target"), scene.name("group")
    await write(scene, source, [b"%d" % n for n in range(10)])
    where = aiokafka.TopicPartition(source, 0)
    settings = {"group_id": group, "auto_offset_reset": "earliest"}
    async with (
        producing(scene, transactional_id=scene.name("id")) as made,
        consuming(scene, source, **settings) as reader,
    ):

        async def copy(commit: bool) -> int | None:
            """Copy four; the offset that was committed before it."""
            found: int | None = await reader.committed(where)
            await made.begin_transaction()
            await _write(made, target, 0, [m.value for m in await take(reader, 4)])
            ends = {where: await reader.position(where)}
            await made.send_offsets_to_transaction(ends, group)
            await _end(made, commit)
            return found

        async def committed(offset: int | None) -> None:
            async def look() -> bool:  # it doesn't ask for offsets that no transaction holds
                return bool(await reader.committed(where) == offset)

            await until(look, f"{offset} committed")

        await copy(False)
        await committed(None)
        reader.seek(where, 0)
        equal(await copy(True), None, "committed by the aborted transaction")
        await committed(4)
        equal(await copy(True), 4)
        await committed(8)
    found = await read(scene, target, 8, **_COMMITTED)
    equal([int(m.value) for m in found], list(range(8)), "values")
    return [m.offset for m in found]


@played
async def transactions_fence(scene: Scene) -> object:
    """Its open transaction is aborted; all that it does is refused."""
    topic, name = scene.topic("fence"), scene.name("id")
    async with producing(scene, transactional_id=name) as zombie:
        await zombie.begin_transaction()
        await _write(zombie, topic, 0, [b"zombie"])
        async with producing(scene, transactional_id=name) as second:
            late = await refusal(_write(zombie, topic, 0, [b"late"]), KafkaError)
            error = await refusal(zombie.commit_transaction(), KafkaError)
            async with second.transaction():
                await _write(second, topic, 0, [b"second"])
    equal([m.value for m in await read(scene, topic, 1, **_COMMITTED)], [b"second"])
    every = await read(scene, topic, 2)
    equal([m.value for m in every], [b"zombie", b"second"])
    return {
        "record": type(late).__name__,
        "commit": type(error).__name__,
        "at": [m.offset for m in every],
    }


async def _copy_some(scene: Scene, places: tuple[str, str, str], done: list[int]) -> None:
    """One copier: some transactions, then it leaves one open; ``done`` is what is copied."""
    source, target, group = places
    partitions = [aiokafka.TopicPartition(source, p) for p in range(COPIED_PARTITIONS)]
    settings = {"group_id": group, "auto_offset_reset": "earliest", **_COMMITTED}
    async with AsyncExitStack() as stack:
        made = await stack.enter_async_context(producing(scene, transactional_id=f"{group}-id"))
        reader = await stack.enter_async_context(consuming(scene, source, **settings))
        for number in range(9):
            if sum(done) == COPIED:
                return
            await made.begin_transaction()
            some = await take(reader, min(BATCH, COPIED - sum(done)))
            for m in some:
                await made.send(target, m.value, partition=m.partition)
            ends = {aiokafka.TopicPartition(source, m.partition): m.offset + 1 for m in some}
            await made.send_offsets_to_transaction(ends, group)
            await _end(made, not gives_up(number))
            if gives_up(number):
                for one, offset in zip(partitions, done, strict=True):
                    reader.seek(one, offset)
            else:
                for one, end in ends.items():
                    done[one.partition] = end
        await made.begin_transaction()
        for p in range(COPIED_PARTITIONS):
            await _write(made, target, p, [b"lost"])
        await made.client.close()  # as if its process had died


@played
async def transactions_copy(scene: Scene) -> object:
    """Copiers one after the other, each with the transactional id of the one before it."""
    source = scene.topic("source", COPIED_PARTITIONS)
    target = scene.topic("target", COPIED_PARTITIONS)
    for p in range(COPIED_PARTITIONS):
        some = [b"%d" % n for n in range(p, COPIED, COPIED_PARTITIONS)]
        await write(scene, source, some, partition=p)
    copiers, done = 0, [0] * COPIED_PARTITIONS
    group = scene.name("group")
    while sum(done) < COPIED:
        await asyncio.wait_for(_copy_some(scene, (source, target, group), done), 60)
        copiers += 1
    found = await read(scene, target, COPIED, COPIED_PARTITIONS, **_COMMITTED)
    equal(sorted(int(m.value) for m in found), list(range(COPIED)), "values")
    true(copiers > 2, "several copiers")
    return copiers


PLAYED: tuple[Feature, ...] = (
    transactions_commit,
    transactions_offsets,
    transactions_fence,
    transactions_copy,
)
