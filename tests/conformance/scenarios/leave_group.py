"""LeaveGroup: one member, several, static ones, and unknown ones."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.conformance.members import Member, join, leave, new_group, settled
from tests.conformance.run import Run
from tests.conformance.scenario import scenario


@scenario("LeaveGroup")
async def in_every_version(run: Run) -> None:
    for version in range(6):
        member = await settled(run, f"v{version}")
        asked = LeaveGroupRequest(member.group, member.id)
        await run.ask(leave(member.group, (member.id, None)) if version >= 3 else asked, version)
        await member.heartbeat("it is none any more")


@scenario("LeaveGroup", ErrorCode.UNKNOWN_MEMBER_ID)
async def unknown_members_and_groups(run: Run) -> None:
    member = await settled(run)
    nowhere = run.name("nowhere")
    for group, note in ((member.group, "nobody"), (nowhere, "no group")):
        await run.ask_each(LeaveGroupRequest(group, "nobody"), 0, 2, note=note)
        await run.ask_each(leave(group, ("nobody", None)), 3, 5, note=note)
        await run.ask_each(leave(group, ("", None)), 3, 5, note=f"{note}, no id")


@scenario("LeaveGroup", ErrorCode.INVALID_GROUP_ID)
async def a_group_without_a_name(run: Run) -> None:
    await new_group(run)
    await run.ask(LeaveGroupRequest("", "nobody"), 2)
    await run.ask_each(leave("", ("nobody", None)), 3, 5)


@scenario("LeaveGroup")
async def several_at_once(run: Run) -> None:
    one = await settled(run, instance="one")
    two = Member(run, one.group, instance="two")
    second = await two.begin_join()
    await one.join()
    await two.joined(second)
    await run.ask(leave(one.group, (one.id, None), ("nobody", None), ("", "two")), 5)
    await one.heartbeat("the first")
    await two.heartbeat("the second")


@scenario("LeaveGroup", ErrorCode.FENCED_INSTANCE_ID)
async def static_members(run: Run) -> None:
    member = await settled(run, instance="one")
    await run.ask_each(leave(member.group, ("nobody", "one")), 3, 5, note="another's id")
    await run.ask_each(leave(member.group, ("", "unknown")), 3, 5, note="an unknown instance")
    await run.ask_each(leave(member.group, (member.id, "unknown")), 3, 5, note="id, no instance")
    await run.ask(leave(member.group, ("", "one")), 5, "the instance alone")
    await member.heartbeat("it is none any more")


@scenario("LeaveGroup")
async def nobody_at_all(run: Run) -> None:
    member = await settled(run)
    await run.ask_each(leave(member.group), 3, 5)
    await member.heartbeat("it is still one")


@scenario("LeaveGroup")
async def the_same_member_twice(run: Run) -> None:
    member = await settled(run)
    await run.ask(leave(member.group, (member.id, None), (member.id, None)), 5)


@scenario("LeaveGroup")
async def one_that_got_its_id_and_never_joined(run: Run) -> None:
    group = await new_group(run)
    found = await run.ask(join(group), 9)
    await run.ask(leave(group, (found.member_id, None)), 5)
    await run.ask(join(group, found.member_id), 9, "it comes after all")


@scenario("LeaveGroup")
async def the_others_are_notified(run: Run) -> None:
    one = await settled(run)
    two = Member(run, one.group)
    second = await two.begin_join()
    await one.join()
    await two.joined(second)
    await one.sync(assignments={one.id: b"1", two.id: b"2"})
    reason = MemberIdentity(two.id, None, "done")
    await run.ask(LeaveGroupRequest(one.group, members=[reason]), 5, "with a reason")
    await one.heartbeat("the other")
    await one.join("the other")


@scenario("LeaveGroup")
async def one_that_waits_for_others(run: Run) -> None:
    one = await settled(run)
    two = Member(run, one.group)
    second = await two.begin_join()
    await run.ask(leave(one.group, (one.id, None)), 5, "who was waited for")
    await two.joined(second)
