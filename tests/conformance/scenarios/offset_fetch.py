"""OffsetFetch: committed offsets of one group and of several, by name and by id."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.conformance.members import new_group, settled
from tests.conformance.run import Run, until
from tests.conformance.scenario import scenario
from tests.conformance.scenarios.metadata import NOWHERE
from tests.conformance.scenarios.offset_commit import commit


def of(group: str, *topics: str, partitions: tuple[int, ...] = (0,)) -> OffsetFetchRequest:
    """A request of versions before 8; without a topic for all."""
    wanted = [OffsetFetchRequestTopic(name, list(partitions)) for name in topics]
    return OffsetFetchRequest(group, wanted if topics else None)


def of_groups(
    *groups: tuple[str, list[str | bytes] | None],
    partitions: tuple[int, ...] = (0,),
    member: tuple[str | None, int] = (None, -1),
) -> OffsetFetchRequest:
    """A request of version 8 or later; with None for all topics of a group."""
    wanted = []
    for group, topics in groups:
        asked = [
            OffsetFetchRequestTopics("", one, list(partitions))
            if isinstance(one, bytes)
            else OffsetFetchRequestTopics(one, bytes(16), list(partitions))
            for one in topics or ()
        ]
        wanted.append(OffsetFetchRequestGroup(group, *member, None if topics is None else asked))
    return OffsetFetchRequest(groups=wanted)


async def committed(run: Run, stem: str = "group") -> tuple[str, str]:
    """A topic with two partitions, and a group with committed offsets in it."""
    topic, group = await run.topic(stem=f"{stem}-flights", partitions=2), await new_group(run, stem)
    await run.quietly(commit(group, topic, 3, 5, metadata="note", epoch=0), 9)
    return topic, group


@scenario("OffsetFetch")
async def in_every_version(run: Run) -> None:
    topic, group = await committed(run)
    await run.ask_each(of(group, topic, partitions=(0, 1)), *range(1, 8))
    await run.ask_each(of_groups((group, [topic]), partitions=(0, 1)), 8, 9)
    topic_id = await run.topic_id(topic)
    await run.ask(of_groups((group, [topic_id]), partitions=(0, 1)), 10)


@scenario("OffsetFetch")
async def all_offsets(run: Run) -> None:
    _, group = await committed(run)
    await run.ask_each(of(group), 2, 5, 7)
    await run.ask_each(of_groups((group, None)), 8, 9, 10)


@scenario("OffsetFetch")
async def nothing_was_committed(run: Run) -> None:
    topic, group = await run.topic(), await new_group(run)
    await run.ask_each(of(group, topic), 1, 2, 5, 7)
    await run.ask_each(of_groups((group, [topic])), 8, 9)
    await run.ask_each(of(group), 2, 7, note="all")
    await run.ask_each(of_groups((group, None)), 8, 10, note="all")


@scenario("OffsetFetch")
async def unknown_topics_and_partitions(run: Run) -> None:
    topic, group = await committed(run)
    await run.ask_each(of(group, run.name("nowhere")), 1, 7)
    await run.ask_each(of(group, topic, partitions=(0, 7)), 1, 7, note="partition 7")
    await run.ask(of_groups((group, [run.name("nowhere"), topic])), 8)


@scenario("OffsetFetch", ErrorCode.UNKNOWN_TOPIC_ID)
async def unknown_topic_ids(run: Run) -> None:
    topic, group = await committed(run)
    topic_id = await run.topic_id(topic)
    await run.ask(of_groups((group, [NOWHERE])), 10)
    await run.ask(of_groups((group, [bytes(16), topic_id])), 10, "zero, and one that there is")


@scenario("OffsetFetch")
async def several_groups(run: Run) -> None:
    one, two = await committed(run, "a"), await committed(run, "b")
    fresh = await new_group(run, "c")
    asked = of_groups((two[1], [two[0]]), (one[1], None), (fresh, [one[0]]))
    await run.ask_each(asked, 8, 9)


@scenario("OffsetFetch")
async def a_group_without_a_name(run: Run) -> None:
    topic = await run.topic()
    await new_group(run)
    await run.ask_each(of("", topic), 1, 5, 7)
    await run.ask_each(of_groups(("", [topic])), 8, 9)


@scenario("OffsetFetch")
async def no_groups_and_no_topics(run: Run) -> None:
    _, group = await committed(run)
    await run.ask_each(of_groups(), 8, 9, 10)
    await run.ask_each(of_groups((group, [])), 8, 10, note="no topics")
    none = OffsetFetchRequest(group, [])
    await run.ask_each(none, 1, 2, 7, note="no topics")


@scenario("OffsetFetch")
async def stable_offsets(run: Run) -> None:
    topic, group = await committed(run)
    asked = of(group, topic)
    asked.require_stable = True
    await run.ask(asked, 7)
    more = of_groups((group, [topic]))
    more.require_stable = True
    await run.ask_each(more, 8, 9)


@scenario("OffsetFetch")
async def a_member_and_its_epoch(run: Run) -> None:
    topic, member = await run.topic(), await settled(run)
    for who in ((member.id, 1), (member.id, 9), ("nobody", 1), (None, 4)):
        asked = of_groups((member.group, [topic]), member=who)
        await run.ask(asked, 9, f"epoch {who[1]}, {'a' if who[0] else 'no'} member")


@scenario("OffsetFetch")
async def a_deleted_topic(run: Run) -> None:
    topic, group = await committed(run)
    await run.delete_topic(topic)

    async def forgotten() -> bool:
        found = await run.quietly(of(group, topic), 7)
        return bool(found.topics[0].partitions[0].committed_offset < 0)

    await until(forgotten)
    await run.ask(of(group, topic), 7)
    await run.ask(of_groups((group, [topic])), 8)


@scenario("OffsetFetch")
async def the_last_commit_counts(run: Run) -> None:
    topic, group = await committed(run)
    await run.quietly(commit(group, topic, 1, metadata=None), 9)
    await run.ask(of(group, topic, partitions=(0, 1)), 7)
