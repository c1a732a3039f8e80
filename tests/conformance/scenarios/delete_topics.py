"""DeleteTopics: by name and by id, and requests that mix them up."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.conformance.run import Run
from tests.conformance.scenario import scenario
from tests.conformance.scenarios.metadata import NOWHERE


def by_name(*names: str) -> DeleteTopicsRequest:
    """A request of versions before 6."""
    return DeleteTopicsRequest(topic_names=list(names), timeout_ms=30_000)


def by_state(*topics: tuple[str | None, bytes]) -> DeleteTopicsRequest:
    """A request of version 6: a name or an id of each topic."""
    return DeleteTopicsRequest([DeleteTopicState(*one) for one in topics], timeout_ms=30_000)


@scenario("DeleteTopics")
async def by_name_in_every_version(run: Run) -> None:
    for version in range(1, 6):
        await run.ask(by_name(await run.topic(f"v{version}")), version)
    await run.ask(by_state((await run.topic("v6"), bytes(16))), 6)


@scenario("DeleteTopics", ErrorCode.UNKNOWN_TOPIC_ID)
async def by_id(run: Run) -> None:
    topic = await run.topic()
    topic_id = await run.topic_id(topic)
    await run.ask(by_state((None, topic_id)), 6)
    await run.wait_gone(topic)
    await run.ask(by_state((None, topic_id)), 6, "again")
    await run.ask(by_state((None, NOWHERE)), 6, "one that never was")


@scenario("DeleteTopics", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
async def an_unknown_topic(run: Run) -> None:
    name = run.name("nowhere")
    await run.ask_each(by_name(name), 1, 4, 5)
    await run.ask(by_state((name, bytes(16))), 6)
    await run.ask_each(by_name(""), 1, 5, note="no name")


@scenario("DeleteTopics", ErrorCode.INVALID_REQUEST)
async def name_and_id_or_neither(run: Run) -> None:
    topic = await run.topic()
    topic_id = await run.topic_id(topic)
    await run.ask(by_state((topic, topic_id)), 6, "both")
    await run.ask(by_state((None, bytes(16))), 6, "neither")


@scenario("DeleteTopics", ErrorCode.INVALID_REQUEST)
async def the_same_topic_twice(run: Run) -> None:
    topic = await run.topic()
    topic_id = await run.topic_id(topic)
    await run.ask(by_name(topic, topic), 5, "by name")
    await run.ask(by_state((None, topic_id), (None, topic_id)), 6, "by id")
    await run.ask(by_state((topic, bytes(16)), (None, topic_id)), 6, "by both")
    nowhere = run.name("nowhere")
    await run.ask(by_name(nowhere, nowhere), 5, "unknown")


@scenario("DeleteTopics")
async def none_at_all(run: Run) -> None:
    await run.ask_each(by_name(), 1, 5)
    await run.ask(by_state(), 6)


@scenario("DeleteTopics")
async def several_at_once(run: Run) -> None:
    topics = [await run.topic(f"t{one}") for one in range(5)]
    await run.ask(by_name(*topics, run.name("nowhere")), 5)
