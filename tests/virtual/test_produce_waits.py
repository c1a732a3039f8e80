"""Produce with acks=all that waits in vain, on virtual time: it returns the records' offset."""

from __future__ import annotations

import asyncio

import pytest

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.produce import ProduceResponse
from kclient.testing import Cluster
from tests.unit.testing.batches import batch_bytes
from tests.unit.testing.calls import produce
from tests.unit.testing.raw_peer import RawPeer
from tests.virtual.test_replication import on, write


async def send(cluster: Cluster, version: int) -> ProduceResponse:
    """Two records for broker 1."""
    async with RawPeer.to(cluster.brokers[1].address) as peer:
        response: ProduceResponse = await peer.call(produce("t", batch_bytes(2)), version)
    return response


def test_the_offset_is_returned_when_the_request_times_out() -> None:
    @on()
    async def _(cluster: Cluster) -> None:
        await write(cluster, 3)
        cluster.disconnect(1, 3)
        answer = (await send(cluster, 12)).responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert (answer.base_offset, answer.current_leader.leader_id) == (3, -1)


@pytest.mark.parametrize(("version", "leader"), [(9, -1), (12, 2)])
def test_the_offset_and_the_new_leader_are_returned_when_the_leader_moves(
    version: int, leader: int
) -> None:
    @on()
    async def _(cluster: Cluster) -> None:
        await write(cluster, 3)
        cluster.disconnect(1, 3)
        sending = asyncio.ensure_future(send(cluster, version))
        await asyncio.sleep(1.0)
        cluster.move_leader("t", 0, 2)
        response = await sending
        answer = response.responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (answer.base_offset, answer.current_leader.leader_id) == (3, leader)
        assert [one.node_id for one in response.node_endpoints] == [leader] * (leader > 0)
