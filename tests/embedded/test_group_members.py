"""Members of a group on sockets: user code that really blocks the loop, and a crowd of members."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack

import pytest

import kclient
from kclient.testing import Cluster

QUICK = {"group.min.session.timeout.ms": 100}
SECONDS = 60.0


class Everything:
    """Everybody is told how many they are."""

    name, type = "everything", "crowd"

    def metadata(self) -> bytes:
        return b""

    def assign(self, members: Sequence[kclient.JoinedMember]) -> Mapping[str, bytes]:
        return {one.member_id: b"%d" % len(members) for one in members}


async def test_user_code_that_blocks_the_loop_past_a_heartbeat_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Cluster(brokers=1, broker_configs=QUICK) as cluster:
        async with kclient.GroupMember(
            cluster.bootstrap,
            group="g",
            protocol=Everything(),
            session_timeout=30.0,
            heartbeat_interval=0.05,
        ) as member:
            await member.joined(SECONDS)
            with caplog.at_level(logging.WARNING, "kclient.group"):
                async with asyncio.timeout(SECONDS):
                    while not member.health().group.late_heartbeats:
                        time.sleep(0.3)  # noqa: ASYNC251 - that is what users do
                        await asyncio.sleep(0.07)
            assert member.health().group.longest_block >= 0.2
            assert any("the event loop was blocked" in r.getMessage() for r in caplog.records)


async def test_thirty_members_share_one_generation_and_all_hear_of_the_end_of_half_of_them() -> (
    None
):
    async with Cluster(brokers=3) as cluster, AsyncExitStack() as stack:
        members = [
            kclient.GroupMember(
                cluster.bootstrap, group="crowd", protocol=Everything(), heartbeat_interval=0.1
            )
            for _ in range(30)
        ]
        for member in members:
            await stack.enter_async_context(member)
        await told(members, b"30")
        await asyncio.gather(*(member.close() for member in members[::2]))
        await told(members[1::2], b"15")
        assert len({member.generation for member in members[1::2]}) == 1
        assert sum(member.health().group.is_leader for member in members) == 1


async def told(members: Sequence[kclient.GroupMember], data: bytes) -> None:
    async with asyncio.timeout(SECONDS):
        while any(m.assignment is None or m.assignment.data != data for m in members):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
