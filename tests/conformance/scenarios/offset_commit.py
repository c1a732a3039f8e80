"""OffsetCommit: of members and of readers without a group's protocol, and what is refused."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.delete_groups import DeleteGroupsRequest
from kclient.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.conformance.members import Member, new_group, settled
from tests.conformance.run import Run
from tests.conformance.scenario import scenario
from tests.conformance.scenarios.metadata import NOWHERE


def commit(
    group: str,
    topic: str | bytes,
    *offsets: int,
    generation: int = -1,
    member: str = "",
    instance: str | None = None,
    metadata: str | None = "",
    epoch: int = -1,
) -> OffsetCommitRequest:
    """Offsets of the partitions of one topic, from partition 0 on; by name, or by id (v10)."""
    parts = [
        OffsetCommitRequestPartition(index, offset, epoch, committed_metadata=metadata)
        for index, offset in enumerate(offsets)
    ]
    name, topic_id = ("", topic) if isinstance(topic, bytes) else (topic, bytes(16))
    return OffsetCommitRequest(
        group,
        generation,
        member,
        instance,
        topics=[OffsetCommitRequestTopic(name, topic_id, parts)],
    )


@scenario("OffsetCommit")
async def by_a_member_in_every_version(run: Run) -> None:
    topic, member = await run.topic(partitions=2), await settled(run)
    who = {"generation": member.generation, "member": member.id}
    for version in range(2, 10):
        await run.ask(commit(member.group, topic, version, 7, **who), version)
    topic_id = await run.topic_id(topic)
    await run.ask(commit(member.group, topic_id, 10, 7, **who), 10)


@scenario("OffsetCommit")
async def by_a_reader_without_members(run: Run) -> None:
    topic, group = await run.topic(), await new_group(run)
    for version in range(2, 10):
        await run.ask(commit(group, topic, version), version)
    await run.ask(commit(group, await run.topic_id(topic), 10), 10)


@scenario("OffsetCommit", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
async def unknown_topics_and_partitions(run: Run) -> None:
    topic, group = await run.topic(), await new_group(run)
    await run.ask_each(commit(group, run.name("nowhere"), 1), 2, 8, 9)
    await run.ask_each(commit(group, topic, 1, 1), 2, 9, note="partition 1")
    both = commit(group, topic, 1)
    both.topics += commit(group, run.name("nowhere"), 1).topics
    await run.ask(both, 9, "beside one that there is")
    await run.ask(commit(group, await run.topic_id(topic), 1, 1), 10, "partition 1")


@scenario("OffsetCommit", ErrorCode.UNKNOWN_TOPIC_ID)
async def unknown_topic_ids(run: Run) -> None:
    topic, group = await run.topic(), await new_group(run)
    await run.ask(commit(group, NOWHERE, 1), 10)
    await run.ask(commit(group, bytes(16), 1), 10, "zero")
    both = commit(group, await run.topic_id(topic), 1)
    both.topics += commit(group, NOWHERE, 1).topics
    await run.ask(both, 10, "beside one that there is")


@scenario("OffsetCommit", ErrorCode.OFFSET_METADATA_TOO_LARGE)
async def metadata(run: Run) -> None:
    topic, group = await run.topic(), await new_group(run)
    for text in (None, "", "note", "x" * 4096, "x" * 4097):
        size = "null" if text is None else f"{len(text)} characters"
        await run.ask_each(commit(group, topic, 1, metadata=text), 2, 9, note=size)


@scenario("OffsetCommit")
async def a_group_without_a_name(run: Run) -> None:
    topic = await run.topic()
    await new_group(run)
    await run.ask_each(commit("", topic, 1), 2, 9)
    await run.ask(commit("", topic, 1, generation=1, member="nobody"), 9, "of a member")
    await run.quietly(DeleteGroupsRequest([""]), 2)  # other runs must find no group


@scenario("OffsetCommit", ErrorCode.UNKNOWN_MEMBER_ID)
async def unknown_members(run: Run) -> None:
    topic, member = await run.topic(), await settled(run)
    asked = commit(member.group, topic, 1, generation=1, member="nobody")
    await run.ask_each(asked, 2, 9)
    await run.ask_each(commit(member.group, topic, 1), 2, 9, note="a reader beside members")
    asked = commit(member.group, topic, 1, generation=1, member=member.id, instance="x")
    await run.ask_each(asked, 7, 9, note="no instance")


@scenario("OffsetCommit", ErrorCode.ILLEGAL_GENERATION)
async def generations(run: Run) -> None:
    topic, member = await run.topic(), await settled(run)
    for generation in (0, 2, -1):
        asked = commit(member.group, topic, 1, generation=generation, member=member.id)
        await run.ask_each(asked, 2, 9, note=f"generation {generation}")
    nowhere = run.name("nowhere")
    asked = commit(nowhere, topic, 1, generation=1, member="nobody")
    await run.ask_each(asked, 2, 8, 9, note="a group that there isn't")


@scenario("OffsetCommit", ErrorCode.REBALANCE_IN_PROGRESS)
async def while_others_join(run: Run) -> None:
    topic, one = await run.topic(), await settled(run)
    two = Member(run, one.group)
    second = await two.begin_join()
    await run.ask(commit(one.group, topic, 1, generation=1, member=one.id), 9, "joining")
    await one.join()
    await two.joined(second)
    await run.ask(commit(one.group, topic, 1, generation=2, member=one.id), 9, "syncing")
    await run.ask(commit(one.group, topic, 1, generation=1, member=one.id), 9, "the generation ago")


@scenario("OffsetCommit", ErrorCode.FENCED_INSTANCE_ID)
async def of_another_instance(run: Run) -> None:
    topic, member = await run.topic(), await settled(run, instance="one")
    asked = commit(member.group, topic, 1, generation=1, member="nobody", instance="one")
    await run.ask_each(asked, 7, 9)


@scenario("OffsetCommit")
async def offsets_that_make_no_sense(run: Run) -> None:
    topic, group = await run.topic(), await new_group(run)
    for offset in (-1, -2, 1 << 62):
        await run.ask(commit(group, topic, offset), 9, str(offset))


@scenario("OffsetCommit")
async def nothing(run: Run) -> None:
    topic, group = await run.topic(), await new_group(run)
    await run.ask_each(OffsetCommitRequest(group), 2, 9, 10)
    await run.ask_each(commit(group, topic), 2, 9, note="no partitions")


@scenario("OffsetCommit")
async def a_topic_twice(run: Run) -> None:
    topic, group = await run.topic(partitions=2), await new_group(run)
    asked = commit(group, topic, 1)
    asked.topics += commit(group, topic, 2, 3).topics
    await run.ask_each(asked, 2, 9)
