"""Each rule of the proxy has its documented effect, byte by byte, before the broker under test."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kclient.protocol.messages.metadata import MetadataRequest
from tests.faults import (
    After,
    Answer,
    Cut,
    Delay,
    Drop,
    Duplicate,
    Edit,
    FaultProxy,
    Hold,
    Ignore,
    Refuse,
    Stall,
    Swallow,
    Throttle,
    Trickle,
    Watch,
)
from tests.faults.raw import Raw, correlation_id

API_VERSIONS = 18


async def answer_of(broker: Any) -> bytes:
    """The broker's response to the first ApiVersions of a connection."""
    async with Raw(broker.bootstrap) as direct:
        direct.say()
        return await direct.frame()


async def test_without_rules_bytes_pass_as_they_are(proxy: FaultProxy, broker: Any) -> None:
    async with Raw(proxy.bootstrap) as raw:
        raw.say()
        assert await raw.frame() == await answer_of(broker)
    assert proxy.requests == proxy.answers == {API_VERSIONS: 1}
    assert (proxy.connections, proxy.cuts) == (1, 0)


@pytest.mark.parametrize("at", [0, 1, 4, 17, 0.5, None])
async def test_cut_closes_at_that_byte_of_a_response(
    proxy: FaultProxy, broker: Any, at: float | None
) -> None:
    whole = await answer_of(broker)
    proxy.add(Cut("ApiVersions", on="answer", at=at))
    async with Raw(proxy.bootstrap) as raw:
        raw.say()
        passed = {0.5: len(whole) // 2, None: len(whole)}.get(at, at)
        assert len(await raw.rest()) == passed
    assert proxy.cuts == 1


@pytest.mark.parametrize("at", [0, 5, 0.5])
async def test_cut_closes_at_that_byte_of_a_request(proxy: FaultProxy, at: float) -> None:
    rule = proxy.add(Cut(ApiVersionsRequest, at=at))
    async with Raw(proxy.bootstrap) as raw:
        raw.say()
        assert await raw.rest() == b""
    assert (rule.hits, proxy.cuts, proxy.requests[API_VERSIONS]) == (1, 1, 0)


async def test_a_reset_is_seen_as_one(proxy: FaultProxy) -> None:
    proxy.add(Cut("ApiVersions", reset=True))
    async with Raw(proxy.bootstrap) as raw:
        raw.say()
        with pytest.raises(ConnectionResetError):
            await raw.rest()


@pytest.mark.parametrize("extra", [0, 1, 30])
async def test_after_counts_the_bytes_of_the_connection(
    proxy: FaultProxy, broker: Any, extra: int
) -> None:
    count = len(await answer_of(broker)) + extra
    rule = proxy.add(After(count, on="answer"))
    async with Raw(proxy.bootstrap) as raw:
        raw.say()
        if extra:
            raw.say()
        assert len(await raw.rest()) == count
    assert (rule.hits, proxy.cuts) == (1, 1)


async def test_after_counts_frames(proxy: FaultProxy) -> None:
    proxy.add(After(2, "silent", on="answer", unit="frames"))
    async with Raw(proxy.bootstrap) as raw:
        for number in (1, 2):
            raw.say()
            assert correlation_id(await raw.frame()) == number
        raw.say()
        assert await raw.before_silence(0) == b""
    assert proxy.cuts == 0


async def test_stall_gives_half_a_frame_and_then_nothing(proxy: FaultProxy, broker: Any) -> None:
    whole = await answer_of(broker)
    proxy.add(Stall("ApiVersions"))
    async with Raw(proxy.bootstrap) as raw:
        raw.say()
        assert await raw.before_silence(len(whole) // 2) == whole[: len(whole) // 2]
        raw.say()
        assert await raw.before_silence(0) == b""
        assert proxy.requests[API_VERSIONS] == 2 and proxy.answers[API_VERSIONS] == 0


async def test_hold_stops_what_is_behind_and_releases_in_order(proxy: FaultProxy) -> None:
    rule = proxy.add(Hold("ApiVersions", times=2))
    async with Raw(proxy.bootstrap) as raw:
        for _ in range(3):
            raw.say()
        await rule.reached(2)
        assert await raw.before_silence(0) == b""
        assert rule.held == 2 and proxy.in_flight("ApiVersions") == 3
        rule.release(1)
        assert correlation_id(await raw.frame()) == 1
        assert await raw.before_silence(0) == b""
        rule.release()
        assert [correlation_id(await raw.frame()) for _ in range(2)] == [2, 3]
        assert rule.held == proxy.in_flight("ApiVersions") == 0


async def test_a_spent_hold_is_released_by_clear(proxy: FaultProxy) -> None:
    rule = proxy.add(Hold("ApiVersions"))
    async with Raw(proxy.bootstrap) as raw:
        raw.say()
        await rule.reached()
        proxy.add(Watch("ApiVersions"))
        proxy.clear()
        assert correlation_id(await raw.frame()) == 1


async def test_what_is_held_is_forgotten_with_its_connection(proxy: FaultProxy) -> None:
    rule = proxy.add(Hold("ApiVersions"))
    async with Raw(proxy.bootstrap) as raw:
        raw.say()
        await rule.reached()
        [session] = proxy.sessions()
        session.cut()
        assert (rule.held, proxy.sessions()) == (0, [])
        assert await raw.rest() == b""


async def test_a_held_request_arrives_though_its_client_has_closed(proxy: FaultProxy) -> None:
    rule = proxy.add(Hold("ApiVersions", on="request"))
    async with Raw(proxy.bootstrap) as raw:
        raw.say()
        await rule.reached()
        raw.close()
        await proxy.until(lambda: not proxy.sessions())
    assert rule.held == 1 and proxy.requests[API_VERSIONS] == 0
    rule.release()
    assert proxy.requests[API_VERSIONS] == 1


async def test_a_client_that_writes_against_a_hold_is_not_read_for_ever(proxy: FaultProxy) -> None:
    rule = proxy.add(Hold(None, on="request"))
    large = MetadataRequest(topics=[], unknown_tags={99: bytes(1024 * 1024)})
    async with Raw(proxy.bootstrap) as raw:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                for _ in range(64):
                    raw.say(large, 12)
                    await raw.drain()
        rule.release()
        async with asyncio.timeout(20.0):
            await raw.drain()


@pytest.mark.parametrize("then", ["silent", "cut", "reset", None])
async def test_drop_loses_the_response_to_what_was_done(proxy: FaultProxy, then: Any) -> None:
    rule = proxy.add(Drop("ApiVersions", then=then))
    async with Raw(proxy.bootstrap) as raw:
        raw.say()
        await rule.reached()
        if then == "reset":
            with pytest.raises(ConnectionResetError):
                await raw.rest()
        elif then == "cut":
            assert await raw.rest() == b""
        else:
            raw.say()
            if then is None:
                assert correlation_id(await raw.frame()) == 2
            assert await raw.before_silence(0) == b""
    assert proxy.requests[API_VERSIONS] == 1 + (then in ("silent", None))


async def test_swallowed_requests_reach_no_broker(proxy: FaultProxy) -> None:
    proxy.add(Swallow("ApiVersions"))
    async with Raw(proxy.bootstrap) as raw:
        raw.say()
        raw.say()
        assert await raw.before_silence(0) == b""
        assert len(proxy.sessions()) == 1 and not proxy.requests


async def test_duplicate_sends_a_response_twice(proxy: FaultProxy, broker: Any) -> None:
    proxy.add(Duplicate("ApiVersions"))
    async with Raw(proxy.bootstrap) as raw:
        raw.say()
        assert [await raw.frame(), await raw.frame()] == [await answer_of(broker)] * 2
        raw.say()
        assert correlation_id(await raw.frame()) == 2


async def test_delay_passes_later_and_in_order(proxy: FaultProxy) -> None:
    proxy.add(Delay("ApiVersions", 0.2, times=2))
    loop = asyncio.get_running_loop()
    async with Raw(proxy.bootstrap) as raw:
        started = loop.time()
        for _ in range(3):
            raw.say()
        assert [correlation_id(await raw.frame()) for _ in range(3)] == [1, 2, 3]
        assert 0.19 < loop.time() - started  # rounded up by no clock


@pytest.mark.parametrize(
    "rule", [Throttle(2000), Throttle(2000, on="answer"), Trickle(interval=0.001, size=2)]
)
async def test_paces_take_their_time_and_change_no_byte(
    proxy: FaultProxy, broker: Any, rule: Trickle
) -> None:
    whole = await answer_of(broker)
    proxy.add(rule)
    loop = asyncio.get_running_loop()
    async with Raw(proxy.bootstrap) as raw:
        started = loop.time()
        for number in (1, 2):
            raw.say()
            frame = await raw.frame()
            assert (correlation_id(frame), frame[8:]) == (number, whole[8:])
        # Both at 2,000 bytes a second, but for the first and the last pieces.
        assert loop.time() - started > (2 * len(whole) - 100) / 2000


async def test_a_trickle_of_one_api_lets_others_pass_at_once(
    proxy: FaultProxy, broker: Any
) -> None:
    rule = proxy.add(Trickle("Metadata", interval=60.0))
    async with Raw(proxy.bootstrap) as raw:
        raw.say()
        assert await raw.frame() == await answer_of(broker)
        raw.say(MetadataRequest(topics=[]), 1)
        await rule.reached()
        assert len(await raw.before_silence(1)) == 1


@pytest.mark.parametrize("reset", [False, True])
async def test_refuse_closes_what_was_just_accepted(
    proxy: FaultProxy, broker: Any, reset: bool
) -> None:
    rule = proxy.add(Refuse(reset=reset, skip=1))
    async with Raw(proxy.bootstrap) as first:
        async with Raw(proxy.bootstrap) as second:
            if reset:
                with pytest.raises(ConnectionResetError):
                    await second.rest()
            else:
                assert await second.rest() == b""
        first.say()
        assert await first.frame() == await answer_of(broker)
    assert (rule.hits, proxy.cuts, proxy.connections) == (1, 1, 2)


async def test_ignore_accepts_and_sends_nothing(proxy: FaultProxy) -> None:
    rule = proxy.add(Ignore())
    async with Raw(proxy.bootstrap) as raw:
        raw.say()
        assert await raw.before_silence(0) == b""
    async with Raw(proxy.bootstrap) as raw:
        raw.say()
        assert correlation_id(await raw.frame()) == 1
    assert (rule.hits, proxy.requests[API_VERSIONS]) == (1, 1)


async def test_own_responses_come_in_the_order_of_the_requests(proxy: FaultProxy) -> None:
    held = proxy.add(Hold("Metadata"))
    proxy.add(Answer("ApiVersions", ApiVersionsResponse(error_code=41)))
    async with Raw(proxy.bootstrap) as raw:
        raw.say(MetadataRequest(topics=[]), 1)
        raw.say()
        raw.say()
        await held.reached()
        assert await raw.before_silence(0) == b""
        held.release()
        frames = [await raw.frame() for _ in range(3)]
        assert [correlation_id(frame) for frame in frames] == [1, 2, 3]
        assert frames[1][8:10] == b"\x00\x29" and frames[2][8:10] == b"\x00\x00"
    assert proxy.requests[API_VERSIONS] == 1


async def test_an_own_response_may_replace_that_of_the_broker(proxy: FaultProxy) -> None:
    proxy.add(Answer("ApiVersions", lambda _: b"\0\0\0\x01our bytes", pass_on=True))
    async with Raw(proxy.bootstrap) as raw:
        raw.say()
        assert (await raw.frame())[8:] == b"our bytes"
    assert proxy.requests[API_VERSIONS] == 1


async def test_edit_changes_requests_and_responses(proxy: FaultProxy, broker: Any) -> None:
    def shorter(passage: Any) -> None:
        assert passage.request.topics == []
        del passage.answer.brokers[1:]
        passage.answer.brokers[0].port = 1

    def none_asked(passage: Any) -> MetadataRequest:
        assert passage.request.topics is None
        return MetadataRequest(topics=[])

    proxy.add(Edit("Metadata", none_asked, on="request"))
    proxy.add(Edit("Metadata", shorter))
    seen = proxy.add(Watch("Metadata", on="answer"))
    async with Raw(proxy.bootstrap) as raw:
        answer = await raw.ask(MetadataRequest(topics=None), 1)
        assert [broker.port for broker in answer.brokers] == [1] and answer.topics == []
    assert seen.seen == [answer]


async def test_rules_choose_among_frames(proxy: FaultProxy) -> None:
    async with Raw(proxy.bootstrap) as raw, Raw(proxy.bootstrap) as other:
        raw.say()
        other.say()
        await raw.frame()
        await other.frame()
        first, second = proxy.sessions()
        assert (first.client_id, second.client_id) == ("raw", "raw")
        chosen = proxy.add(Watch("ApiVersions", session=second, times=1))
        skipping = proxy.add(Watch("ApiVersions", skip=2))
        of_client = proxy.add(Watch("ApiVersions", client_id="raw"))
        of_another = proxy.add(Watch("ApiVersions", client_id="another"))
        of_no_node = proxy.add(Watch("ApiVersions", node=77))
        of_node = proxy.add(Watch("ApiVersions", node=first.node or 0))
        when = proxy.add(
            Watch("ApiVersions", when=lambda p: p.asked is not None and p.asked.version == 1)
        )
        for one in (raw, other, other):
            one.say()
            await one.frame()
        raw.say(version=1)
        await raw.frame()
        rules = [chosen, skipping, of_client, of_another, of_no_node, of_node, when]
        assert [rule.hits for rule in rules] == [1, 2, 4, 0, 0, 4, 1]
        assert (first.requests, second.requests) == ({API_VERSIONS: 3}, {API_VERSIONS: 3})
    # A rule that was removed acts no more.
    proxy.remove(of_client)
    async with Raw(proxy.bootstrap) as raw:
        raw.say()
        await raw.frame()
    assert (of_client.hits, skipping.hits) == (4, 3)


async def test_rules_refuse_what_they_cannot_match() -> None:
    with pytest.raises(ValueError, match="Produce and Fetch"):
        Hold("Metadata", topic="t")
    with pytest.raises(ValueError, match="partition needs topic"):
        Hold("Fetch", partition=1)


async def test_reached_times_out_when_nothing_comes() -> None:
    with pytest.raises(TimeoutError):
        await Hold("Fetch").reached(timeout=0.01)
