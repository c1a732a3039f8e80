"""Metadata: brokers, topics by name and by id, what isn't there, automatic creation."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.conformance.run import Run
from tests.conformance.scenario import scenario

_ALL = range(14)
NOWHERE = bytes(range(1, 17))


def by_name(*names: str, create: bool = False, operations: bool = False) -> MetadataRequest:
    """A request for topics by their names."""
    wanted = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(
        wanted,
        allow_auto_topic_creation=create,
        include_topic_authorized_operations=operations,
    )


def by_id(*ids: bytes, name: str | None = None) -> MetadataRequest:
    """A request for topics by their ids."""
    return MetadataRequest(
        [MetadataRequestTopic(one, name) for one in ids], allow_auto_topic_creation=False
    )


@scenario("Metadata")
async def topics_by_name_in_every_version(run: Run) -> None:
    one, two = await run.topic("one"), await run.topic("two", 3)
    wanted = [MetadataRequestTopic(name=name) for name in (two, one)]
    await run.ask_each(MetadataRequest(wanted), *_ALL)


@scenario("Metadata", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
async def many_topics(run: Run) -> None:
    topics = [await run.topic(f"t{one}") for one in range(8)]
    await run.ask_each(by_name(*topics, run.name("nowhere"), run.name("neither")), 5, 12)


@scenario("Metadata")
async def all_topics(run: Run) -> None:
    await run.topic("only")
    await run.ask(MetadataRequest([]), 0, "empty means all", listing=True)
    await run.ask_each(MetadataRequest(None), 1, 9, 12, listing=True)


@scenario("Metadata")
async def no_topics(run: Run) -> None:
    await run.ask_each(MetadataRequest([]), 1, 4, 8, 12, 13)


@scenario("Metadata", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
async def an_unknown_topic_that_may_not_be_created(run: Run) -> None:
    await run.ask_each(by_name(run.name("nowhere")), *range(4, 14))


@scenario("Metadata", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
async def known_and_unknown_topics_together(run: Run) -> None:
    topic = await run.topic()
    await run.ask_each(by_name(run.name("nowhere"), topic, run.name("neither")), 5, 12)


@scenario("Metadata", ErrorCode.INVALID_TOPIC_EXCEPTION)
async def names_that_no_topic_may_have(run: Run) -> None:
    for name in ("", ".", "..", "a b", "a/b", "ä", "x" * 250):
        for create in (False, True):
            await run.ask(by_name(name, create=create), 12, f"{name[:9]!r}, {create}")
    await run.ask(by_name("a b"), 5)


@scenario("Metadata", ErrorCode.UNKNOWN_TOPIC_ID)
async def topics_by_id(run: Run) -> None:
    topic = await run.topic()
    topic_id = await run.topic_id(topic)
    await run.ask_each(by_id(topic_id), 12, 13)
    await run.ask_each(by_id(NOWHERE), 12, 13)
    await run.ask_each(by_id(NOWHERE, topic_id), 12, 13)


@scenario("Metadata", ErrorCode.INVALID_REQUEST)
async def ids_before_the_version_that_may_ask_for_them(run: Run) -> None:
    topic = await run.topic()
    topic_id = await run.topic_id(topic)
    await run.ask_each(by_id(topic_id), 10, 11, note="id alone")
    await run.ask_each(by_id(topic_id, name=topic), 10, 11, note="id and name")
    await run.ask_each(by_id(bytes(16)), 10, 11, note="neither")


@scenario("Metadata")
async def id_and_name_together(run: Run) -> None:
    topic = await run.topic()
    topic_id = await run.topic_id(topic)
    await run.ask_each(by_id(topic_id, name=topic), 12, 13)
    await run.ask_each(by_id(topic_id, name="another"), 12, 13)


@scenario("Metadata", ErrorCode.UNKNOWN_SERVER_ERROR)
async def neither_id_nor_name(run: Run) -> None:
    await run.ask_each(by_id(bytes(16)), 12, 13)


@scenario("Metadata")
async def the_same_topic_twice(run: Run) -> None:
    topic = await run.topic()
    await run.ask_each(by_name(topic, topic), 4, 12)
    await run.ask(by_name(run.name("nowhere"), run.name("nowhere")), 12)


@scenario("Metadata")
async def authorized_operations(run: Run) -> None:
    topic = await run.topic()
    wanted = [MetadataRequestTopic(name=topic), MetadataRequestTopic(name=run.name("nowhere"))]
    await run.ask(MetadataRequest(wanted, False, True, True), 8)
    await run.ask(MetadataRequest(wanted, False, True, False), 10)
    await run.ask(MetadataRequest(wanted, False, False, True), 12)
    await run.ask(MetadataRequest([], False, True, True), 9)


@scenario("Metadata", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
async def a_topic_that_is_asked_for_is_created(run: Run) -> None:
    name = run.name("made")
    await run.ask(by_name(name, create=True), 12, "first")
    await run.wait_led(name)
    await run.ask(by_name(name, create=True), 12, "then")


@scenario("Metadata")
async def old_versions_always_create(run: Run) -> None:
    name = run.name("made")
    wanted = MetadataRequest([MetadataRequestTopic(name=name)])
    await run.ask(wanted, 3, "first")
    await run.wait_led(name)
    await run.ask(wanted, 3, "then")


@scenario("Metadata", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
async def a_name_that_collides_is_not_created(run: Run) -> None:
    await run.topic("under_score")
    await run.ask(by_name(run.name("under.score"), create=True), 12)


@scenario("Metadata")
async def a_deleted_topic_is_gone(run: Run) -> None:
    topic = await run.topic()
    topic_id = await run.topic_id(topic)
    await run.delete_topic(topic)
    await run.ask(by_name(topic), 12)
    await run.ask(by_id(topic_id), 12)


@scenario("Metadata")
async def a_topic_made_again_has_another_id(run: Run) -> None:
    topic = await run.topic()
    await run.ask(by_name(topic), 12)
    await run.delete_topic(topic)
    await run.topic()
    await run.ask(by_name(topic), 12)
