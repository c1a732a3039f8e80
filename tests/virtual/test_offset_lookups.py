"""ListOffsets on several brokers, on virtual time: what isn't committed isn't found."""

from __future__ import annotations

import asyncio

from kclient.error_codes import ErrorCode
from kclient.testing import Cluster
from kclient.types import OffsetSpec
from tests.unit.testing.batches import NOW, batch_bytes
from tests.unit.testing.calls import list_offsets, produce
from tests.unit.testing.raw_peer import RawPeer
from tests.virtual.test_replication import LEADER, SOON, on, write

NOWHERE = (ErrorCode.NONE, -1)
LATER = NOW + 5000


async def find(cluster: Cluster, timestamp: int, version: int = 7) -> tuple[ErrorCode, int]:
    """Code and offset, as t's leader returns them."""
    async with RawPeer.to(cluster.brokers[cluster.leader("t")].address) as peer:
        response = await peer.call(list_offsets("t", timestamp), version)
    found = response.topics[0].partitions[0]
    return ErrorCode(found.error_code), found.offset


async def half_committed(cluster: Cluster) -> None:
    """All have two records, and brokers 1 and 2 two more, which are newer."""
    assert await write(cluster, 2) is ErrorCode.NONE
    await asyncio.sleep(SOON)
    cluster.isolate(3)
    async with RawPeer.to(cluster.brokers[1].address) as peer:
        await peer.call(produce("t", batch_bytes(2, timestamp=LATER), acks=LEADER), 12)
    await asyncio.sleep(SOON)
    assert [cluster.log("t", broker=one).end_offset for one in (1, 2, 3)] == [4, 4, 2]


def test_times_of_records_that_are_not_committed_are_not_found() -> None:
    @on()
    async def _(cluster: Cluster) -> None:
        await half_committed(cluster)
        assert await find(cluster, OffsetSpec.LATEST) == (ErrorCode.NONE, 2)
        assert await find(cluster, NOW) == (ErrorCode.NONE, 0)
        assert await find(cluster, LATER) == NOWHERE
        assert await find(cluster, OffsetSpec.MAX_TIMESTAMP) == NOWHERE
        cluster.reconnect()
        await asyncio.sleep(SOON)
        assert await find(cluster, LATER) == (ErrorCode.NONE, 2)
        assert await find(cluster, OffsetSpec.MAX_TIMESTAMP) == (ErrorCode.NONE, 3)


def test_a_new_leader_reports_unknown_for_all_but_what_is_committed() -> None:
    @on()
    async def _(cluster: Cluster) -> None:
        await half_committed(cluster)
        cluster.move_leader("t", 0, 2)
        for timestamp in (OffsetSpec.LATEST, OffsetSpec.MAX_TIMESTAMP, LATER, LATER + 100):
            assert await find(cluster, timestamp) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
        assert await find(cluster, OffsetSpec.LATEST, 4) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        assert await find(cluster, NOW) == (ErrorCode.NONE, 0)
        assert await find(cluster, OffsetSpec.EARLIEST) == (ErrorCode.NONE, 0)
        cluster.reconnect()
        await asyncio.sleep(SOON)
        assert await find(cluster, OffsetSpec.LATEST) == (ErrorCode.NONE, 4)
