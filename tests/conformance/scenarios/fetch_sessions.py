"""Fetch sessions (KIP-227): incremental responses, forgotten topics, and refused epochs."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from tests.conformance.run import Run
from tests.conformance.scenario import scenario
from tests.conformance.scenarios.list_offsets import filled
from tests.conformance.scenarios.metadata import NOWHERE
from tests.unit.testing.batches import batch_bytes
from tests.unit.testing.calls import fetch, produce

V = 12
"""The last version with names; from 13 on there are ids."""


@scenario("Fetch")
async def a_session_reports_only_news(run: Run) -> None:
    topic = await run.topic(partitions=2)
    made = await run.ask(fetch(topic, 0, 1, session=(0, 0)), V)
    await run.ask(fetch(None, session=(made.session_id, 1)), V, "no news")
    await run.quietly(produce(topic, batch_bytes(2), partition=1), 9)
    await run.ask(fetch(None, session=(made.session_id, 2)), V, "of one partition")
    await run.ask(fetch(topic, 1, offset=2, session=(made.session_id, 3)), V, "read on")
    await run.ask(fetch(None, session=(made.session_id, 4)), V, "no news")


@scenario("Fetch")
async def a_session_in_every_version(run: Run) -> None:
    topic = await filled(run)
    topic_id = await run.topic_id(topic)
    for version in (7, 9, 11, 12, 13, 15, 17, 18):
        asked = topic_id if version >= 13 else topic
        made = await run.ask(fetch(asked, 0, session=(0, 0)), version)
        await run.ask(fetch(asked, 0, offset=6, session=(made.session_id, 1)), version)
        await run.ask(fetch(None, session=(made.session_id, 2)), version)


@scenario("Fetch")
async def partitions_come_and_go(run: Run) -> None:
    topic = await run.topic(partitions=3)
    made = await run.ask(fetch(topic, 0, session=(0, 0)), V)
    await run.ask(fetch(topic, 1, 2, session=(made.session_id, 1)), V, "two more")
    await run.quietly(produce(topic, batch_bytes(2), partition=0), 9)
    await run.quietly(produce(topic, batch_bytes(2), partition=2), 9)
    asked = fetch(topic, session=(made.session_id, 2), forget=(0,))
    await run.ask(asked, V, "one is forgotten")
    asked = fetch(topic, session=(made.session_id, 3), forget=(1, 2, 7))
    await run.ask(asked, V, "all are forgotten")
    await run.ask(fetch(None, session=(made.session_id, 4)), V, "the session is gone")


@scenario("Fetch", ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
async def sessions_that_there_are_not(run: Run) -> None:
    topic = await run.topic()
    for session in ((1, 1), (-1, 1), (0, 1), (1 << 30, 5)):
        await run.ask(fetch(topic, 0, session=session), V, str(session))
    await run.ask(fetch(await run.topic_id(topic), 0, session=(5, 1)), 13)


@scenario("Fetch", ErrorCode.INVALID_FETCH_SESSION_EPOCH)
async def epochs_of_sessions(run: Run) -> None:
    topic = await run.topic()
    made = await run.ask(fetch(topic, 0, session=(0, 0)), V)
    for epoch in (2, 7, -2):
        await run.ask(fetch(topic, 0, session=(made.session_id, epoch)), V, f"epoch {epoch}")
    await run.ask(fetch(topic, 0, session=(made.session_id, 1)), V, "the right one")
    await run.ask(fetch(topic, 0, session=(made.session_id, 1)), V, "once more")


@scenario("Fetch", ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
async def a_session_that_is_closed(run: Run) -> None:
    topic = await run.topic()
    made = await run.ask(fetch(topic, 0, session=(0, 0)), V)
    await run.ask(fetch(topic, 0, session=(made.session_id, -1)), V, "close it")
    await run.ask(fetch(None, session=(made.session_id, 1)), V, "use it")


@scenario("Fetch")
async def a_session_in_place_of_another(run: Run) -> None:
    topic = await run.topic()
    made = await run.ask(fetch(topic, 0, session=(0, 0)), V)
    again = await run.ask(fetch(topic, 0, session=(made.session_id, 0)), V, "anew")
    await run.ask(fetch(None, session=(made.session_id, 1)), V, "the old one")
    await run.ask(fetch(None, session=(again.session_id, 1)), V, "the new one")


@scenario("Fetch", ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
async def names_and_ids_do_not_mix(run: Run) -> None:
    topic = await run.topic()
    topic_id = await run.topic_id(topic)
    named = await run.ask(fetch(topic, 0, session=(0, 0)), 12)
    await run.ask(fetch(topic_id, 0, session=(named.session_id, 1)), 13)
    by_id = await run.ask(fetch(topic_id, 0, session=(0, 0)), 13)
    await run.ask(fetch(topic, 0, session=(by_id.session_id, 1)), 12)


@scenario("Fetch", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
async def errors_are_reported_each_time(run: Run) -> None:
    topic = await run.topic()
    made = await run.ask(fetch(topic, 0, 5, session=(0, 0)), V)
    for epoch in (1, 2):
        await run.ask(fetch(None, session=(made.session_id, epoch)), V)


@scenario("Fetch", ErrorCode.UNKNOWN_TOPIC_ID)
async def unknown_ids_in_a_session(run: Run) -> None:
    topic_id = await run.topic_id(await run.topic())
    made = await run.ask(fetch(topic_id, 0, session=(0, 0)), 13)
    await run.ask(fetch(NOWHERE, 0, session=(made.session_id, 1)), 13, "added")
    await run.ask(fetch(None, session=(made.session_id, 2)), 13, "once more")


@scenario("Fetch", ErrorCode.INCONSISTENT_TOPIC_ID)
async def a_topic_is_deleted_under_a_session(run: Run) -> None:
    topic = await run.topic()
    topic_id = await run.topic_id(topic)
    made = await run.ask(fetch(topic_id, 0, session=(0, 0)), 13)
    await run.delete_topic(topic)
    await run.ask(fetch(None, session=(made.session_id, 1)), 13, "deleted")
    await run.topic()
    await run.ask(fetch(None, session=(made.session_id, 2)), 13, "made again")


@scenario("Fetch")
async def what_was_reported_comes_last(run: Run) -> None:
    topic = await run.topic(partitions=3)
    for index in range(3):
        for _ in range(3):
            await run.quietly(produce(topic, batch_bytes(2), partition=index), 9)
    size = len(batch_bytes(2))
    asked = fetch(topic, 0, 1, 2, session=(0, 0), max_bytes=size)
    made = await run.ask(asked, V)
    for epoch in range(1, 4):
        asked = fetch(None, session=(made.session_id, epoch), max_bytes=size)
        await run.ask(asked, V, "the next one's turn")


@scenario("Fetch")
async def an_empty_session_is_none(run: Run) -> None:
    await run.ask_each(fetch(None, session=(0, 0)), 7, 12, 13)


@scenario("Fetch")
async def waiting_in_a_session(run: Run) -> None:
    topic = await run.topic(partitions=2)
    reader, writer = run.peer(), run.peer()
    made = await reader.ask(fetch(topic, 0, 1, session=(0, 0)), V)
    asked = fetch(None, session=(made.session_id, 1), max_wait_ms=15_000)
    pending = await reader.begin(asked, V)
    await writer.ask(produce(topic, batch_bytes(2), partition=1), 9)
    await pending.answer()
