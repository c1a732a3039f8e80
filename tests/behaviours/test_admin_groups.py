"""Offsets of groups, set from outside, on every kind of broker."""

from __future__ import annotations

from typing import Any

import pytest

from kclient.broker_errors import UnknownMemberId
from kclient.errors import InvalidArgument, RequestTimedOut
from kclient.types import OffsetAndMetadata, TopicPartition
from tests.behaviours.reading import read, write


async def test_a_group_begins_at_the_offsets_that_were_set(
    admin: Any, topic: Any, producer: Any, consumer: Any
) -> None:
    name = await topic(partitions=2)
    await write(await producer(), name, [b"%d" % n for n in range(10)], partitions=2)
    client = await admin()
    group, first, second = f"{name}-audit", TopicPartition(name, 0), TopicPartition(name, 1)
    done = await client.alter_consumer_group_offsets(
        group, {first: 3, second: OffsetAndMetadata(4, None, "by hand")}
    )
    assert done == {first: None, second: None}
    member = await consumer(name, group=group)
    assert sorted((r.partition, r.offset) for r in await read(member, 3)) == [
        (0, 3),
        (0, 4),
        (1, 4),
    ]


async def test_a_group_with_members_accepts_no_offsets_from_outside(
    admin: Any, topic: Any, producer: Any, consumer: Any
) -> None:
    name = await topic()
    await write(await producer(), name, [b"v"])
    group = f"{name}-audit"
    member = await consumer(name, group=group, auto_offset_reset="earliest")
    await read(member, 1)
    with pytest.raises(UnknownMemberId, match="the group has members"):
        await (await admin()).alter_consumer_group_offsets(group, {TopicPartition(name, 0): 0})


async def test_one_unknown_topic_keeps_no_other_from_its_offset(admin: Any, topic: Any) -> None:
    name = await topic()
    client = await admin()
    known, unknown = TopicPartition(name, 0), TopicPartition(f"{name}-unknown", 0)
    outcomes = await client.alter_consumer_group_offsets(
        f"{name}-audit", {unknown: 1, known: 0}, timeout=1.0, return_errors=True
    )
    assert outcomes[known] is None
    assert isinstance(outcomes[unknown], RequestTimedOut)


async def test_offsets_that_no_group_can_have_are_refused(admin: Any, topic: Any) -> None:
    name = await topic()
    client = await admin()
    for group, offsets in (("", {}), ("g", {TopicPartition(name, 0): -1}), ("g", [1])):
        with pytest.raises(InvalidArgument):
            await client.alter_consumer_group_offsets(group, offsets)
