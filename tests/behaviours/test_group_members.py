"""Members of a group with a protocol of their own, on every kind of broker."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

import kclient
from kclient.errors import (
    ClientClosed,
    FencedInstanceId,
    InconsistentGroupProtocol,
    InvalidSessionTimeout,
    KafkaError,
    NoCommonVersion,
    RequestTimedOut,
)

TASKS = [f"task-{n}" for n in range(12)]
SECONDS = 60.0


class Pool:
    """Assigns tasks round-robin, and keeps the callbacks that it got."""

    def __init__(self, name: str = "in-turn", type: str = "test-pool") -> None:
        self.name = name
        self.type = type
        self.capacity = 1
        self.reported: list[tuple[str, Any]] = []

    def metadata(self) -> bytes:
        return json.dumps({"capacity": self.capacity}).encode()

    def assign(self, members: Sequence[kclient.JoinedMember]) -> Mapping[str, bytes]:
        weights = [m.member_id for m in members for _ in range(json.loads(m.metadata)["capacity"])]
        shares: dict[str, list[str]] = {m.member_id: [] for m in members}
        for index, task in enumerate(TASKS):
            shares[weights[index % len(weights)]].append(task)
        return {member: json.dumps(share).encode() for member, share in shares.items()}

    async def on_assigned(self, assignment: kclient.GroupAssignment) -> None:
        self.reported.append(("assigned", tasks_of(assignment)))

    def on_revoked(self, assignment: kclient.GroupAssignment) -> None:
        self.reported.append(("revoked", tasks_of(assignment)))

    def on_lost(self, error: KafkaError) -> None:
        self.reported.append(("lost", error))


def tasks_of(assignment: kclient.GroupAssignment) -> list[str]:
    return list(json.loads(assignment.data)) if assignment.data else []


@pytest.fixture
async def joining(broker) -> AsyncIterator[Callable[..., Any]]:
    """Create members of one group, and close them at the end."""
    group = f"pool-{uuid.uuid4().hex[:8]}"
    async with AsyncExitStack() as stack:

        async def join(pool: Any = None, **settings: Any) -> kclient.GroupMember:
            settings = {"session_timeout": 6.0, "heartbeat_interval": 0.3, **settings}
            member = kclient.GroupMember(
                broker.bootstrap, group=group, protocol=pool or Pool(), **settings
            )
            return await stack.enter_async_context(member)

        yield join


async def shared(*members: kclient.GroupMember) -> dict[str, int]:
    """Wait until one generation of these members has all tasks; return each member's tasks."""
    async with asyncio.timeout(SECONDS):
        while True:
            found = [member.assignment for member in members]
            if all(one is not None for one in found):
                tasks = [task for one in found if one is not None for task in tasks_of(one)]
                generations = {one.generation for one in found if one is not None}
                if len(generations) == 1 and sorted(tasks) == sorted(TASKS):
                    return {
                        task: index
                        for index, one in enumerate(found)
                        if one is not None
                        for task in tasks_of(one)
                    }
            await asyncio.sleep(0.05)


async def test_one_member_gets_all(joining) -> None:
    pool = Pool()
    member = await joining(pool)
    assignment = await member.joined(SECONDS)
    assert tasks_of(assignment) == TASKS
    assert assignment.is_leader
    assert member.assignment == assignment
    assert member.generation == assignment.generation
    health = member.health()
    assert health.ok
    assert health.group.state == "STABLE"
    assert health.group.member_id == assignment.member_id
    assert health.group.last_heartbeat_age is not None
    await member.close()
    assert pool.reported == [("assigned", TASKS), ("revoked", TASKS)]


async def test_members_share_and_those_who_leave_give_back(joining) -> None:
    members = [await joining() for _ in range(3)]
    owners = await shared(*members)
    assert [list(owners.values()).count(n) for n in range(3)] == [4, 4, 4]
    await members[0].close()
    await shared(*members[1:])
    members.append(await joining())
    await shared(*members[1:])
    assert members[0].assignment is None


async def test_metadata_that_changed_reaches_the_leader(joining) -> None:
    pools = [Pool(), Pool()]
    members = [await joining(pool) for pool in pools]
    await shared(*members)
    for pool, member in zip(pools, members, strict=True):
        pool.capacity += 2
        member.rejoin("more capacity")
        async with asyncio.timeout(SECONDS):
            while True:
                owners = list((await shared(*members)).values())
                if pools[1].capacity == 3 and owners.count(0) == 6:
                    break
                if pools[1].capacity == 1 and owners.count(0) == 9:
                    break
                await asyncio.sleep(0.05)


async def test_heartbeats_go_on_while_the_protocol_takes_longer_than_the_session(joining) -> None:
    slow = Pool()
    member = await joining(slow)
    await member.joined(SECONDS)

    async def on_revoked(_: Any) -> None:
        await asyncio.sleep(8)

    slow.on_revoked = on_revoked  # type: ignore[assignment]
    other = await joining()
    await shared(member, other)
    assert "lost" not in [what for what, _ in slow.reported]
    slow.on_revoked = lambda _: None  # type: ignore[assignment]


async def test_a_static_member_comes_back_and_the_others_do_not_notice(joining, broker) -> None:
    try:
        member = await joining(group_instance_id="one")
        await member.joined(SECONDS)
    except NoCommonVersion as refused:
        assert broker.version < (2, 3)
        assert "static members need brokers from 2.3 on" in str(refused)
        return
    other = Pool()
    second = await joining(other, group_instance_id="two", session_timeout=30.0)
    await shared(member, second)
    await second.joined(SECONDS)  # and has been notified of it
    count, generation = len(other.reported), second.generation
    for _ in range(3):
        await member.close()
        member = await joining(group_instance_id="one", session_timeout=30.0)
        await member.joined(SECONDS)
        assert await shared(member, second)
    assert len(other.reported) == count
    assert second.generation == generation
    await member.close(leave=True)
    await shared(second)


async def test_a_static_member_that_is_replaced_is_notified_and_does_not_fight_back(
    joining, broker
) -> None:
    if broker.version < (2, 3):
        with pytest.raises(NoCommonVersion):
            await (await joining(group_instance_id="one")).joined(SECONDS)
        return
    pool = Pool()
    first = await joining(pool, group_instance_id="one")
    await first.joined(SECONDS)
    second = await joining(group_instance_id="one")
    await second.joined(SECONDS)
    with pytest.raises(FencedInstanceId, match="group_instance_id one"):
        await first.wait_for_rebalance(SECONDS)
    with pytest.raises(FencedInstanceId):
        first.rejoin("in vain")
    generation = second.generation
    await asyncio.sleep(1.0)
    assert second.generation == generation
    assert pool.reported[-1][0] == "lost"


async def test_a_member_that_shares_no_protocol_is_refused(joining) -> None:
    member = await joining()
    await member.joined(SECONDS)
    for pool in (Pool(name="at-random"), Pool(type="consumer")):
        stranger = await joining(pool)
        with pytest.raises(InconsistentGroupProtocol, match="must share a protocol type"):
            await stranger.joined(SECONDS)
    assert tasks_of(await member.joined(SECONDS)) == TASKS


async def test_a_session_that_is_too_long_for_the_brokers_is_named(joining) -> None:
    member = await joining(session_timeout=3000.0)
    with pytest.raises(InvalidSessionTimeout, match="set session_timeout within"):
        await member.joined(SECONDS)


async def test_what_assign_raises_is_the_users_and_the_others_go_on(joining) -> None:
    pool = Pool()
    member = await joining(pool)
    await member.joined(SECONDS)
    other = await joining()
    await shared(member, other)
    (leader, follower), broken = (member, other), pool
    if not member.health().group.is_leader:
        (leader, follower), broken = (other, member), other._host._protocol

    def assign(_: Any) -> Any:
        raise ZeroDivisionError("a bug of the user")

    broken.assign = assign  # type: ignore[method-assign]
    leader.rejoin("a test")
    with pytest.raises(ZeroDivisionError, match="a bug of the user"):
        async with asyncio.timeout(SECONDS):
            while True:
                await leader.wait_for_rebalance()
    await shared(leader, follower)
    assert follower.health().group.is_leader


async def test_waits_end_in_time_and_say_why(joining) -> None:
    pool = Pool()

    async def on_assigned(_: Any) -> None:
        await asyncio.sleep(3)

    pool.on_assigned = on_assigned  # type: ignore[method-assign, assignment]
    member = await joining(pool)
    with pytest.raises(RequestTimedOut, match=r"nothing new in 0\.01 s: it is \w+"):
        await member.joined(0.01)
    with pytest.raises(RequestTimedOut, match=r"nothing new in 0\.2 s: it is STABLE"):
        await member.joined(SECONDS)
        await member.wait_for_rebalance(0.2)


async def test_iterating_gives_each_assignment_and_ends_with_the_close(joining) -> None:
    member = await joining()
    seen: list[int] = []

    async def iterate() -> None:
        async for assignment in member.assignments():
            seen.append(len(tasks_of(assignment)))  # noqa: PERF401 - looked at meanwhile

    iterating = asyncio.ensure_future(iterate())
    await member.joined(SECONDS)
    other = await joining()
    await shared(member, other)
    await member.close()
    await iterating
    assert seen == [12, 6]
    with pytest.raises(ClientClosed):
        await member.joined()
    assert not member.health().ok
