"""Events in the life of group members, on every kind of broker: callbacks, errors, new partitions.

Assignments and commits in a stable group are in ``test_consumer_groups``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

import kclient
from kclient.broker_errors import FencedInstanceId, InconsistentGroupProtocol
from kclient.types import TopicPartition
from tests.behaviours.reading import write
from tests.behaviours.test_consumer_groups import SETTINGS, member, shared, until

BY_HAND = {**SETTINGS, "enable_auto_commit": False}


async def test_callbacks_may_seek_pause_and_commit(broker, topic, producer) -> None:
    name = await topic()
    await write(await producer(), name, [b"%d" % n for n in range(20)])
    part = TopicPartition(name, 0)
    reported: list[str] = []

    async def assigned(partitions: Sequence[TopicPartition]) -> None:
        for one in partitions:
            consumer.seek(one, 5)
            consumer.pause(one)
            await asyncio.sleep(0.05)
            consumer.resume(one)
        reported.append("assigned")

    async def revoked(partitions: Sequence[TopicPartition]) -> None:
        await consumer.commit()
        reported.append("revoked")

    consumer: kclient.Consumer[Any, Any] = kclient.Consumer(
        broker.bootstrap,
        name,
        group=name,
        on_assigned=assigned,
        on_revoked=revoked,
        **BY_HAND,
    )
    async with consumer:
        records = await consumer.poll(max_records=3, timeout=20.0)
        assert [record.offset for record in records] == [5, 6, 7]
        await consumer.unsubscribe()
        assert reported == ["assigned", "revoked"]
        found = (await consumer.committed([part]))[part]
        assert found is not None and found.offset == 8


async def test_what_a_callback_raises_reaches_the_next_call_and_the_consumer_goes_on(
    broker, topic, producer
) -> None:
    name = await topic()
    await write(await producer(), name, [b"%d" % n for n in range(5)])

    def assigned(partitions: Sequence[TopicPartition]) -> None:
        raise LookupError("the user's own")

    async with kclient.Consumer(
        broker.bootstrap, name, group=name, on_assigned=assigned, **SETTINGS
    ) as consumer:
        with pytest.raises(LookupError, match="the user's own"):
            while True:
                await consumer.poll(timeout=20.0)
        values = [record.value for record in await consumer.poll(timeout=20.0)]
        assert values[:1] == [b"0"]


async def test_who_unsubscribes_leaves_at_once_and_may_come_back(broker, topic) -> None:
    name = await topic(partitions=4)
    how = {**SETTINGS, "session_timeout": 30.0}  # without waiting for the session to expire
    async with (
        member(broker.bootstrap, name, name, **how) as first,
        kclient.Consumer(broker.bootstrap, name, group=name, **how) as second,
    ):
        await until(lambda: len(first.owned) == len(second.assignment) == 2)
        await second.unsubscribe()
        assert not second.assignment
        await until(lambda: shared([first], name, 4), 15.0)
        second.subscribe(name)
        await until(lambda: len(first.owned) == len(second.assignment) == 2)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_added_partitions_are_assigned(broker, topic, producer, strategy: str) -> None:
    name = await topic(partitions=2)
    how = {"partition_assignment_strategy": strategy, "metadata_max_age": 1.0}
    async with (
        member(broker.bootstrap, name, name, **how) as first,
        member(broker.bootstrap, name, name, **how) as second,
    ):
        await until(lambda: shared([first, second], name, 2))
        async with kclient.Admin(broker.bootstrap) as admin:
            await admin.create_partitions({name: 5})
        await until(lambda: shared([first, second], name, 5))
        out = await producer(metadata_max_age=1.0)
        await write(out, name, [b"%d" % n for n in range(50)], partitions=5)
        await until(lambda: len({*first.values, *second.values}) == 50)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_a_wish_to_rejoin_makes_a_generation_and_moves_nothing(
    broker, topic, strategy: str
) -> None:
    name = await topic(partitions=4)
    how = {"partition_assignment_strategy": strategy}
    async with (
        member(broker.bootstrap, name, name, **how) as first,
        member(broker.bootstrap, name, name, **how) as second,
    ):
        await until(lambda: shared([first, second], name, 4))
        owned = set(first.owned), set(second.owned)
        before = first.consumer.group_metadata().generation_id
        first.consumer.rejoin("to see what happens")
        await until(lambda: first.consumer.group_metadata().generation_id > before)
        await until(lambda: (first.owned, second.owned) == owned)


async def test_a_group_takes_the_assignor_that_all_members_have(broker, topic) -> None:
    name = await topic(partitions=4)
    some = {"partition_assignment_strategy": ("roundrobin", "range")}
    async with (
        member(broker.bootstrap, name, name, **some) as first,
        member(broker.bootstrap, name, name, partition_assignment_strategy="range") as second,
    ):
        await until(lambda: shared([first, second], name, 4))
        runs = sorted(sorted(part.partition for part in one.owned) for one in (first, second))
        assert runs == [[0, 1], [2, 3]]


async def test_who_shares_no_assignor_with_the_group_is_refused_in_words(broker, topic) -> None:
    name = await topic(partitions=2)
    async with member(broker.bootstrap, name, name, partition_assignment_strategy="range") as one:
        await until(lambda: shared([one], name, 2))
        async with kclient.Consumer(
            broker.bootstrap,
            name,
            group=name,
            partition_assignment_strategy="roundrobin",
            **SETTINGS,
        ) as other:
            with pytest.raises(InconsistentGroupProtocol, match=name):
                await other.poll(timeout=20.0)
        assert shared([one], name, 2)


async def test_of_two_with_one_instance_id_the_first_is_fenced(broker, topic) -> None:
    name = await topic(partitions=2)
    if broker.version < (2, 3, 0):  # which brought them
        return
    async with kclient.Consumer(
        broker.bootstrap, name, group=name, group_instance_id="one", **SETTINGS
    ) as first:
        await until(lambda: len(first.assignment) == 2)
        async with member(broker.bootstrap, name, name, group_instance_id="one") as second:
            await until(lambda: shared([second], name, 2))
            with pytest.raises(FencedInstanceId, match="one"):
                while True:
                    await first.poll(timeout=20.0)
            assert shared([second], name, 2)


async def test_groups_read_apart_from_each_other(broker, topic, producer) -> None:
    name = await topic()
    await write(await producer(), name, [b"%d" % n for n in range(10)])
    async with (
        member(broker.bootstrap, f"{name}-a", name) as first,
        member(broker.bootstrap, f"{name}-b", name) as second,
    ):
        await until(lambda: len(first.values) == len(second.values) == 10)
        part = TopicPartition(name, 0)
        await first.consumer.commit({part: 3})
        found = await second.consumer.committed([part])
        assert found[part] is None or found[part].offset != 3


async def test_what_was_handed_over_is_committed_at_intervals(broker, topic, producer) -> None:
    name = await topic()
    await write(await producer(), name, [b"%d" % n for n in range(10)])
    part = TopicPartition(name, 0)
    async with (
        member(broker.bootstrap, name, name, auto_commit_interval=0.2) as reader,
        kclient.Consumer(broker.bootstrap, group=name, **BY_HAND) as looker,
    ):
        await until(lambda: len(reader.values) == 10)
        async with asyncio.timeout(20.0):
            found = None
            while found is None or found.offset < 10:
                found = (await looker.committed([part]))[part]
        assert found.offset == 10


async def test_a_commit_that_nobody_waits_for_is_made_in_order(broker, topic, producer) -> None:
    name = await topic()
    await write(await producer(), name, [b"%d" % n for n in range(10)])
    part = TopicPartition(name, 0)
    async with kclient.Consumer(broker.bootstrap, name, group=name, **BY_HAND) as consumer:
        await consumer.poll(max_records=1, timeout=20.0)
        outcomes = [consumer.commit_nowait({part: offset}) for offset in (3, 9, 6)]
        await asyncio.gather(*outcomes)
        found = (await consumer.committed([part]))[part]
        assert found is not None and found.offset == 6
