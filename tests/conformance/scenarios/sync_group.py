"""SyncGroup and Heartbeat: assignments, generations, and removed members."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.heartbeat import HeartbeatRequest
from tests.conformance.members import Member, new_group, settled, sync
from tests.conformance.run import Run
from tests.conformance.scenario import scenario


@scenario("SyncGroup")
async def in_every_version(run: Run) -> None:
    for version in range(6):
        member = Member(run, await new_group(run, f"v{version}"))
        await member.begin_quietly()
        await member.sync("the leader", version=version, assignments={member.id: b"mine"})
        await member.sync("again", version=version)


@scenario("SyncGroup")
async def a_follower_waits_for_the_leader(run: Run) -> None:
    one = await settled(run)
    two = Member(run, one.group)
    second = await two.begin_join()
    await one.join()
    await two.joined(second)
    leader, follower = (one, two) if one.leads else (two, one)
    waiting = await follower.peer.begin(follower.sync_request(), 5, "the follower")
    await leader.sync("the leader", assignments={follower.id: b"yours"})
    await waiting.answer()


@scenario("SyncGroup")
async def assignments_of_strangers_are_dropped(run: Run) -> None:
    member = Member(run, await new_group(run))
    await member.begin_quietly()
    await member.sync(assignments={"stranger": b"x"})
    await member.sync("again")


@scenario("SyncGroup", ErrorCode.UNKNOWN_MEMBER_ID)
async def unknown_members_and_groups(run: Run) -> None:
    member = await settled(run)
    await run.ask_each(sync(member.group, 1, "nobody"), 0, 3, 5, note="nobody")
    await run.ask_each(sync(run.name("nowhere"), 1, "nobody"), 0, 5, note="no group")
    await run.ask_each(sync(member.group, 1, member.id, instance="x"), 3, 5, note="no instance")


@scenario("SyncGroup", ErrorCode.ILLEGAL_GENERATION)
async def generations_of_syncs(run: Run) -> None:
    member = await settled(run)
    for generation in (0, 2, -1):
        asked = sync(member.group, generation, member.id)
        await run.ask_each(asked, 0, 5, note=f"generation {generation}")


@scenario("SyncGroup", ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
async def protocols_that_are_not_the_groups(run: Run) -> None:
    member = await settled(run)
    for kind, protocol in (("connect", "range"), ("consumer", "sticky"), (None, None)):
        asked = sync(member.group, member.generation, member.id, kind=kind, protocol=protocol)
        await run.ask_each(asked, 4, 5, note=f"{kind}, {protocol}")


@scenario("SyncGroup", ErrorCode.INVALID_GROUP_ID)
async def a_sync_without_a_group(run: Run) -> None:
    await new_group(run)
    await run.ask_each(sync("", 1, "nobody"), 0, 5)


@scenario("SyncGroup", ErrorCode.REBALANCE_IN_PROGRESS)
async def a_sync_while_others_join(run: Run) -> None:
    one = await settled(run)
    two = Member(run, one.group)
    second = await two.begin_join()
    await one.sync()
    await one.join()
    await two.joined(second)


@scenario("SyncGroup", ErrorCode.FENCED_INSTANCE_ID)
async def a_sync_of_another_instance(run: Run) -> None:
    member = await settled(run, instance="one")
    await run.ask(sync(member.group, 1, "nobody", instance="one"), 5)
    await run.ask(sync(member.group, 1, member.id, instance="one"), 5, "the right one")


# Heartbeats


@scenario("Heartbeat")
async def heartbeats_in_every_version(run: Run) -> None:
    member = await settled(run)
    for version in range(5):
        await member.heartbeat(version=version)


@scenario("Heartbeat", ErrorCode.UNKNOWN_MEMBER_ID)
async def heartbeats_of_strangers(run: Run) -> None:
    member = await settled(run)
    await run.ask_each(HeartbeatRequest(member.group, 1, "nobody"), 0, 4)
    await run.ask_each(HeartbeatRequest(member.group, 1, ""), 0, 4, note="no id")
    await run.ask_each(HeartbeatRequest(run.name("nowhere"), 1, "nobody"), 0, 4, note="no group")
    await run.ask(HeartbeatRequest(member.group, 1, member.id, "x"), 4, "no instance")


@scenario("Heartbeat", ErrorCode.ILLEGAL_GENERATION)
async def generations_of_heartbeats(run: Run) -> None:
    member = await settled(run)
    for generation in (0, 2, -1):
        beat = HeartbeatRequest(member.group, generation, member.id)
        await run.ask_each(beat, 0, 4, note=f"generation {generation}")


@scenario("Heartbeat", ErrorCode.REBALANCE_IN_PROGRESS)
async def heartbeats_while_others_join(run: Run) -> None:
    one = await settled(run)
    two = Member(run, one.group)
    second = await two.begin_join()
    await one.heartbeat("joining")
    await one.join()
    await two.joined(second)
    await one.heartbeat("syncing")
    await two.heartbeat("syncing")


@scenario("Heartbeat", ErrorCode.INVALID_GROUP_ID)
async def a_heartbeat_without_a_group(run: Run) -> None:
    await new_group(run)
    await run.ask_each(HeartbeatRequest("", 1, "nobody"), 0, 4)


@scenario("Heartbeat", ErrorCode.FENCED_INSTANCE_ID)
async def heartbeats_of_another_instance(run: Run) -> None:
    member = await settled(run, instance="one")
    await run.ask_each(HeartbeatRequest(member.group, 1, "nobody", "one"), 3, 4)
    await member.heartbeat("the right one")
