"""Offsets that Admin sets for groups, where what it knows of topics isn't true any more."""

from __future__ import annotations

import pytest

from kclient import (
    Admin,
    Consumer,
    NewTopic,
    OffsetSpec,
    RequestTimedOut,
    TopicPartition,
)
from kclient.testing import Cluster

PARTITION, OTHER = TopicPartition("flights", 0), TopicPartition("flights", 7)


async def test_a_topic_that_was_created_anew_since_it_was_looked_up_takes_offsets() -> None:
    async with Cluster() as cluster, Admin(cluster.bootstrap) as admin:
        await admin.create_topics([NewTopic("flights", partitions=1)])
        await admin.list_offsets({PARTITION: OffsetSpec.LATEST})
        async with Admin(cluster.bootstrap) as other:
            await other.delete_topics(["flights"])
            await other.create_topics([NewTopic("flights", partitions=1)])
        await admin.alter_consumer_group_offsets("audit", {PARTITION: 3}, timeout=2.0)
        async with Consumer(cluster.bootstrap, group="audit") as consumer:
            found = await consumer.committed([PARTITION])
    assert found[PARTITION] is not None
    assert found[PARTITION].offset == 3


async def test_a_partition_that_a_topic_does_not_have_is_waited_for_and_named() -> None:
    async with Cluster() as cluster, Admin(cluster.bootstrap) as admin:
        await admin.create_topics([NewTopic("flights", partitions=1)])
        with pytest.raises(RequestTimedOut, match=r"flights-7"):
            await admin.alter_consumer_group_offsets("audit", {OTHER: 3}, timeout=0.5)
