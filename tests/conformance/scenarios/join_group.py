"""JoinGroup: new members, static ones, rebalances, and refused members."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from tests.conformance.members import Member, join, new_group, settled, subscription
from tests.conformance.run import Run
from tests.conformance.scenario import scenario


@scenario("JoinGroup", ErrorCode.MEMBER_ID_REQUIRED)
async def in_every_version(run: Run) -> None:
    for version in range(10):
        group = await new_group(run, f"v{version}")
        peer = run.peer()
        found = await peer.ask(join(group), version, "without an id")
        if found.error_code:
            await peer.ask(join(group, found.member_id), version, "with the id")


@scenario("JoinGroup", ErrorCode.INVALID_SESSION_TIMEOUT)
async def session_timeouts(run: Run) -> None:
    group = await new_group(run)
    for timeout in (0, -1, 5999, 1_800_001):
        await run.ask_each(join(group, session_ms=timeout), 0, 4, 9, note=f"{timeout} ms")
    for timeout in (6000, 1_800_000):
        await run.ask(join(group, session_ms=timeout), 9, f"{timeout} ms")


@scenario("JoinGroup", ErrorCode.INVALID_GROUP_ID)
async def a_group_without_a_name(run: Run) -> None:
    await new_group(run)
    await run.ask_each(join(""), 0, 4, 6, 9)


@scenario("JoinGroup", ErrorCode.UNKNOWN_MEMBER_ID)
async def unknown_members(run: Run) -> None:
    group = await new_group(run)
    await run.ask_each(join(group, "nobody"), 0, 4, 9, note="a group that there isn't")
    member = await settled(run, "there")
    await run.ask_each(join(member.group, "nobody"), 0, 4, 9, note="a group that there is")
    static = join(member.group, "nobody", instance="unknown")
    await run.ask_each(static, 5, 9, note="a static one")


@scenario("JoinGroup", ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
async def protocols_that_do_not_fit(run: Run) -> None:
    member = await settled(run)
    group = member.group
    for note, asked in (
        ("another kind", join(group, kind="connect")),
        ("another protocol", join(group, protocols={"sticky": b""})),
        ("none at all", join(group, protocols={})),
        ("no kind", join(group, kind="")),
    ):
        await run.ask_each(asked, 0, 3, note=note)
        await run.ask(asked, 9, note)
    fresh = await new_group(run, "fresh")
    await run.ask_each(join(fresh, protocols={}), 0, 9, note="none in a new group")
    await run.ask_each(join(fresh, kind=""), 0, 9, note="no kind in a new group")


@scenario("JoinGroup")
async def a_second_member(run: Run) -> None:
    one = await settled(run)
    two = Member(run, one.group)
    second = await two.begin_join("the second")
    await one.heartbeat("it is told to join again")
    await one.join("the first again")
    await two.joined(second)
    await one.sync("the leader", assignments={one.id: b"1", two.id: b"2"})
    await two.sync("the other")


@scenario("JoinGroup")
async def the_protocol_that_all_can_and_most_want(run: Run) -> None:
    offered = {"a": b"1a", "b": b"1b"}, {"b": b"2b", "a": b"2a"}, {"b": b"3b", "c": b"3c"}
    one = await settled(run, protocols={"b": b"0b", "a": b"0a", "c": b"0c"})
    others = [Member(run, one.group, protocols=protocols) for protocols in offered]
    pending = [await other.begin_join() for other in others]
    await one.join("the first")
    for other, answer in zip(others, pending, strict=True):
        await other.joined(answer)


@scenario("JoinGroup")
async def many_members(run: Run) -> None:
    one = await settled(run, instance="0", protocols={"range": b"0"})
    others = [
        Member(run, one.group, instance=str(number), protocols={"range": b"%d" % number})
        for number in range(1, 7)
    ]
    pending = [await other.begin_join() for other in others]
    await one.join("the leader")
    for other, answer in zip(others, pending, strict=True):
        await other.joined(answer)


@scenario("JoinGroup")
async def joining_again_changes_nothing_for_a_follower(run: Run) -> None:
    one = await settled(run)
    two = Member(run, one.group)
    second = await two.begin_join()
    await one.join()
    await two.joined(second)
    await one.sync(assignments={one.id: b"1", two.id: b"2"})
    follower = two if one.leads else one
    await follower.join("the follower, as before")
    await follower.join("the same, in an old version", version=3)


@scenario("JoinGroup")
async def a_leader_that_joins_again_begins_anew(run: Run) -> None:
    member = await settled(run)
    await member.join("the leader")
    await member.sync(assignments={member.id: b"new"})
    await member.heartbeat()


@scenario("JoinGroup")
async def a_member_that_wants_something_else(run: Run) -> None:
    one = await settled(run)
    two = Member(run, one.group)
    second = await two.begin_join()
    await one.join()
    await two.joined(second)
    await one.sync(assignments={one.id: b"1", two.id: b"2"})
    two.joining["protocols"] = {"range": subscription("flights")}
    second = await two.begin_join("with another subscription")
    await two.rebalancing()
    await one.heartbeat()
    await one.join()
    await two.joined(second)


@scenario("JoinGroup")
async def static_members(run: Run) -> None:
    for version in (5, 8, 9):
        group = await new_group(run, f"v{version}")
        one = Member(run, group, instance="one")
        await one.join(version=version)
        await one.sync(assignments={one.id: b"all"})
        two = Member(run, group, instance="two")
        second = await two.begin_join("the second", version=version)
        await one.join("the first again", version=version)
        await two.joined(second)


@scenario("JoinGroup", ErrorCode.FENCED_INSTANCE_ID)
async def a_static_member_that_was_replaced(run: Run) -> None:
    old = await settled(run, instance="one")
    new = Member(run, old.group, instance="one")
    await new.join("the new one")
    await new.sync("the new one")
    await old.heartbeat("the old one")
    await old.sync("the old one")
    await old.join("the old one")
    await new.heartbeat("the new one")


@scenario("JoinGroup")
async def a_static_leader_that_comes_back(run: Run) -> None:
    for version in (5, 8, 9):
        old = await settled(run, f"v{version}", instance="one")
        new = Member(run, old.group, instance="one")
        await new.join("as before", version=version)
        changed = Member(run, old.group, instance="one", protocols={"range": b"other"})
        await changed.join("with another subscription", version=version)


@scenario("JoinGroup")
async def a_member_that_leaves_while_others_join(run: Run) -> None:
    one = await settled(run)
    two, three = Member(run, one.group), Member(run, one.group)
    second, third = await two.begin_join("the second"), await three.begin_join("the third")
    await one.join("the first")
    await two.joined(second)
    await three.joined(third)


@scenario("JoinGroup")
async def a_reason(run: Run) -> None:
    group = await new_group(run)
    found = await run.ask(join(group, reason="because"), 9)
    await run.ask(join(group, found.member_id, reason="because"), 9)


@scenario("JoinGroup")
async def client_ids_begin_member_ids(run: Run) -> None:
    group = await new_group(run)
    for client in ("", None, "ä b"):
        await run.peer(client).ask(join(group), 9, repr(client))
