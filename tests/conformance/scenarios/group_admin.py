"""ListGroups, DescribeGroups, DeleteGroups and OffsetDelete."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.delete_groups import DeleteGroupsRequest
from kclient.protocol.messages.describe_groups import DescribeGroupsRequest
from kclient.protocol.messages.list_groups import ListGroupsRequest
from kclient.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.conformance.members import Member, leave, new_group, settled, subscription
from tests.conformance.run import Run
from tests.conformance.scenario import scenario
from tests.conformance.scenarios.offset_commit import commit
from tests.conformance.scenarios.offset_fetch import committed, of


def delete_offsets(group: str, topic: str, *partitions: int) -> OffsetDeleteRequest:
    """A request to delete committed offsets of one topic."""
    parts = [OffsetDeleteRequestPartition(index) for index in partitions]
    return OffsetDeleteRequest(group, [OffsetDeleteRequestTopic(topic, parts)])


# Listing


@scenario("ListGroups")
async def groups_in_every_version(run: Run) -> None:
    await settled(run)
    await committed(run, "offsets")
    await run.ask_each(ListGroupsRequest(), *range(6), listing=True)


@scenario("ListGroups")
async def many_groups(run: Run) -> None:
    for number in range(8):
        await committed(run, f"g{number}")
    await run.ask_each(ListGroupsRequest(), 0, 5, listing=True)


@scenario("ListGroups")
async def groups_in_some_states(run: Run) -> None:
    await settled(run)
    await committed(run, "offsets")
    for states in (["Stable"], ["Empty"], ["empty"], ["Stable", "Empty"], ["Dead"], ["nonsense"]):
        await run.ask_each(ListGroupsRequest(states), 4, 5, note=str(states), listing=True)


@scenario("ListGroups")
async def groups_of_some_types(run: Run) -> None:
    await settled(run)
    await committed(run, "offsets")
    for types in (["classic"], ["Classic"], ["consumer"], ["consumer", "classic"]):
        await run.ask(ListGroupsRequest([], types), 5, str(types), listing=True)
    await run.ask(ListGroupsRequest(["Empty"], ["classic"]), 5, "both", listing=True)


@scenario("ListGroups")
async def states_of_a_group(run: Run) -> None:
    one = await settled(run, kind="connect")
    two = Member(run, one.group, kind="connect")
    second = await two.begin_join()
    await run.ask(ListGroupsRequest(), 5, "joining", listing=True)
    await one.join()
    await two.joined(second)
    await run.ask(ListGroupsRequest(), 5, "syncing", listing=True)
    await run.quietly(leave(one.group, (one.id, None), (two.id, None)), 5)
    await run.ask(ListGroupsRequest(), 5, "empty", listing=True)


# Describing


@scenario("DescribeGroups")
async def a_group_in_every_version(run: Run) -> None:
    member = await settled(run)
    await run.ask_each(DescribeGroupsRequest([member.group]), *range(7))


@scenario("DescribeGroups", ErrorCode.GROUP_ID_NOT_FOUND)
async def unknown_groups(run: Run) -> None:
    await new_group(run)
    await run.ask_each(DescribeGroupsRequest([run.name("nowhere")]), 0, 3, 5, 6)


@scenario("DescribeGroups", ErrorCode.GROUP_ID_NOT_FOUND)
async def a_group_without_a_name(run: Run) -> None:
    await new_group(run)
    await run.ask_each(DescribeGroupsRequest([""]), 0, 5, 6)


@scenario("DescribeGroups")
async def states_while_members_come_and_go(run: Run) -> None:
    one = await settled(run)
    asked = DescribeGroupsRequest([one.group])
    two = Member(run, one.group)
    second = await two.begin_join()
    await run.ask(asked, 6, "joining")
    await one.join()
    await two.joined(second)
    await run.ask(asked, 6, "syncing")
    await one.sync(assignments={one.id: b"1", two.id: b"2"})
    await run.ask(asked, 6, "stable")
    await run.quietly(leave(one.group, (one.id, None), (two.id, None)), 5)
    await run.ask(asked, 6, "empty")


@scenario("DescribeGroups")
async def many_members(run: Run) -> None:
    one = await settled(run, instance="0", protocols={"range": b"0"})
    for number in range(1, 7):
        data = {"range": b"%d" % number}
        await Member(run, one.group, instance=str(number), protocols=data).begin_join()
    await run.ask_each(DescribeGroupsRequest([one.group]), 0, 5)


@scenario("DescribeGroups")
async def a_group_of_offsets_alone(run: Run) -> None:
    _, group = await committed(run)
    await run.ask_each(DescribeGroupsRequest([group]), 0, 5, 6)


@scenario("DescribeGroups")
async def operations_on_groups(run: Run) -> None:
    member = await settled(run)
    asked = DescribeGroupsRequest([member.group, run.name("nowhere")], True)
    await run.ask_each(asked, 3, 5, 6)


@scenario("DescribeGroups")
async def static_members_are_named(run: Run) -> None:
    member = await settled(run, instance="one")
    await run.ask_each(DescribeGroupsRequest([member.group]), 3, 4, 5)


@scenario("DescribeGroups")
async def several_groups(run: Run) -> None:
    one, two = await settled(run, "a"), await settled(run, "b")
    await run.ask(DescribeGroupsRequest([two.group, run.name("nowhere"), one.group]), 5)
    await run.ask(DescribeGroupsRequest([one.group, one.group]), 5, "twice")
    await run.ask_each(DescribeGroupsRequest([]), 0, 5, note="none")


@scenario("DescribeGroups")
async def many_are_described(run: Run) -> None:
    names = [(await committed(run, stem))[1] for stem in "abcdefgh"]
    await run.ask_each(DescribeGroupsRequest([*names, run.name("nowhere")]), 0, 6)


# Deleting


@scenario("DeleteGroups")
async def groups_are_deleted_in_every_version(run: Run) -> None:
    for version in range(3):
        topic, group = await committed(run, f"v{version}")
        await run.ask(DeleteGroupsRequest([group]), version)
        await run.ask(of(group, topic), 7, "its offsets")


@scenario("DeleteGroups", ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND)
async def groups_that_can_not_be_deleted(run: Run) -> None:
    member = await settled(run)
    await run.ask_each(DeleteGroupsRequest([member.group]), 0, 2, note="with a member")
    await run.ask_each(DeleteGroupsRequest([run.name("nowhere")]), 0, 2, note="unknown")


@scenario("DeleteGroups", ErrorCode.GROUP_ID_NOT_FOUND)
async def groups_without_names_are_not_deleted(run: Run) -> None:
    await new_group(run)
    await run.ask_each(DeleteGroupsRequest([""]), 0, 2)


@scenario("DeleteGroups")
async def several_are_deleted(run: Run) -> None:
    names = [(await committed(run, stem))[1] for stem in "abcdefgh"]
    await run.ask(DeleteGroupsRequest([*names, run.name("nowhere")]), 2)
    _, group = await committed(run, "other")
    await run.ask(DeleteGroupsRequest([group, group]), 2, "twice")
    await run.ask_each(DeleteGroupsRequest([]), 0, 2, note="none")


@scenario("DeleteGroups")
async def a_group_that_all_have_left(run: Run) -> None:
    member = await settled(run)
    await run.quietly(leave(member.group, (member.id, None)), 5)
    await run.ask(DeleteGroupsRequest([member.group]), 2)
    await run.ask(DescribeGroupsRequest([member.group]), 6)


# Offsets


@scenario("OffsetDelete")
async def offsets_are_forgotten(run: Run) -> None:
    topic, group = await committed(run)
    await run.ask(delete_offsets(group, topic, 0), 0)
    await run.ask(of(group, topic, partitions=(0, 1)), 7)
    await run.ask(delete_offsets(group, topic, 0), 0, "again")


@scenario("OffsetDelete", ErrorCode.GROUP_ID_NOT_FOUND)
async def offsets_of_unknown_groups(run: Run) -> None:
    topic = await run.topic()
    await new_group(run)
    await run.ask(delete_offsets(run.name("nowhere"), topic, 0), 0)
    await run.ask(OffsetDeleteRequest(run.name("nowhere")), 0, "no topics")


@scenario("OffsetDelete", ErrorCode.INVALID_GROUP_ID)
async def offsets_of_a_group_without_a_name(run: Run) -> None:
    topic = await run.topic()
    await new_group(run)
    await run.ask(delete_offsets("", topic, 0), 0)


@scenario("OffsetDelete", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
async def offsets_of_unknown_topics(run: Run) -> None:
    topic, group = await committed(run)
    await run.ask(delete_offsets(group, run.name("nowhere"), 0), 0)
    await run.ask(delete_offsets(group, topic, 0, 7), 0, "partition 7")
    await run.ask(OffsetDeleteRequest(group), 0, "no topics")


@scenario("OffsetDelete", ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
async def offsets_of_topics_that_are_subscribed(run: Run) -> None:
    topic, other = await run.topic(), await run.topic("other")
    member = await settled(run, protocols={"range": subscription(topic)})
    who = {"generation": member.generation, "member": member.id}
    for name in (topic, other):
        await run.quietly(commit(member.group, name, 3, **who), 9)
        await run.ask(delete_offsets(member.group, name, 0), 0)


@scenario("OffsetDelete", ErrorCode.NON_EMPTY_GROUP)
async def offsets_of_other_kinds_of_members(run: Run) -> None:
    topic = await run.topic()
    member = await settled(run, kind="connect")
    await run.ask(delete_offsets(member.group, topic, 0), 0)
