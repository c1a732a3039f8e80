"""Groups on virtual time: sessions and rebalances last exactly as long as Kafka documents."""

from __future__ import annotations

import asyncio

from kclient.error_codes import ErrorCode
from kclient.testing import Cluster, run_virtually
from tests.unit.testing.group_calls import beat, commit, fetch_offsets, find, join, sync
from tests.unit.testing.raw_peer import RawPeer

NONE = ErrorCode.NONE


async def coordinator(cluster: Cluster) -> str:
    """The address of the broker that coordinates g."""
    async with RawPeer.to(cluster.bootstrap) as peer:
        found = (await peer.call(find("g"), 6)).coordinators[0]
    return f"{found.host}:{found.port}"


async def alone(peer: RawPeer, **options: int) -> tuple[str, int]:
    """A group of one: member id and generation."""
    asked = await peer.call(join("g", **options), 9)
    joined = await peer.call(join("g", asked.member_id, **options), 9)
    await peer.call(sync("g", joined.generation_id, joined.member_id), 5)
    return joined.member_id, joined.generation_id


def test_the_initial_delay_is_honoured() -> None:
    async def main() -> None:
        configs = {"group.initial.rebalance.delay.ms": 3_000}
        async with Cluster(broker_configs=configs) as cluster:
            async with RawPeer.to(await coordinator(cluster)) as peer:
                begun = asyncio.get_running_loop().time()
                await alone(peer)
                assert 3.0 <= asyncio.get_running_loop().time() - begun < 3.1

    run_virtually(main())


def test_sessions_go_on_while_members_live_and_offsets_expire_after_a_week() -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            cluster.create_topic("t")
            async with RawPeer.to(await coordinator(cluster)) as peer:
                member_id, generation = await alone(peer)
                for _ in range(100):
                    await asyncio.sleep(9.9)
                    got = await peer.call(beat("g", generation, member_id), 4)
                    assert got.error_code == NONE
                await peer.call(
                    commit("g", "t", (0, 5), generation=generation, member_id=member_id), 9
                )
                await asyncio.sleep(7 * 86_400)
                got = await peer.call(fetch_offsets("g"), 9)
                assert got.groups[0].topics[0].partitions[0].committed_offset == 5
                await asyncio.sleep(1_000)
                await peer.call(fetch_offsets("g"), 9)  # each request makes it check
                await asyncio.sleep(1)
                got = await peer.call(fetch_offsets("g"), 9)
                assert got.groups[0].topics == []

    run_virtually(main(), limit=8 * 86_400)


def test_the_same_seed_gives_the_same_members() -> None:
    async def main() -> str:
        async with Cluster(seed=3) as cluster:
            async with RawPeer.to(await coordinator(cluster)) as peer:
                return (await alone(peer))[0]

    assert run_virtually(main()) == run_virtually(main())
