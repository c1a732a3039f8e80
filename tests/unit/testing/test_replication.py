"""Replication from leaders: connections, fetches, and when they are retried."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.fetch import FetchResponse
from kclient.protocol.messages.list_offsets import ListOffsetsRequest
from kclient.testing import VirtualLoop, run_virtually
from kclient.testing.image import NO_LEADER
from tests.unit.testing.batches import batch_bytes
from tests.unit.testing.follower_rig import (
    BACKOFF,
    OVERDUE,
    SESSION,
    Line,
    Scene,
    part,
    scene,
    timers,
)

# Connecting


def test_each_leader_has_one_connection_for_all_that_it_leads() -> None:
    @scene
    async def _(one: Scene) -> None:
        one.follow(1, 3, 1, 2, NO_LEADER)
        assert one.open == [1, 3]
        assert [line.named for line in one.net.lines] == [[(0, 0), (2, 0)], [(1, 0)]]
        state = one.line.fetch.replica_state
        assert (state.replica_id, state.replica_epoch) == (2, 7)


def test_a_broker_that_leads_all_its_partitions_opens_no_connection() -> None:
    @scene
    async def _(one: Scene) -> None:
        one.follow(2, 2)
        assert one.net.attempts == 0
        assert timers() == 0


def test_a_fetch_waits_without_a_timer() -> None:
    @scene
    async def _(one: Scene) -> None:
        one.follow(1)
        assert timers() == 0
        await asyncio.sleep(10_000.0)
        assert (one.net.attempts, len(one.line.asked)) == (1, 1)


def test_another_leader_has_another_connection_and_the_old_one_ends() -> None:
    @scene
    async def _(one: Scene) -> None:
        one.follow(1)
        one.follow(3)
        assert one.open == [3]
        one.follow(NO_LEADER)
        assert one.open == []


def test_a_leader_that_cannot_be_reached_is_left_until_it_can() -> None:
    @scene
    async def _(one: Scene) -> None:
        one.broker.unreachable.add(1)
        one.follow(1)
        assert one.net.attempts == 0
        assert timers() == 0
        one.broker.unreachable.clear()
        one.replication.refresh()
        assert one.open == [1]
        one.broker.unreachable.add(1)
        one.replication.refresh()
        assert one.open == []


def test_a_leader_that_refuses_is_tried_again_after_a_while_each_time() -> None:
    @scene
    async def _(one: Scene) -> None:
        one.net.refuses = True
        one.follow(1)
        await asyncio.sleep(4.5 * BACKOFF)
        assert one.net.attempts == 5
        one.net.refuses = False
        await asyncio.sleep(BACKOFF)
        assert one.open == [1]


def test_a_connection_that_is_lost_is_opened_again_with_a_new_session() -> None:
    @scene
    async def _(one: Scene) -> None:
        one.follow(1)
        one.line.give()
        assert (one.line.fetch.session_id, one.line.fetch.session_epoch) == (SESSION, 1)
        one.line.lose()
        await asyncio.sleep(BACKOFF - 0.1)
        assert one.net.attempts == 1
        await asyncio.sleep(0.2)
        assert one.net.attempts == 2
        assert (one.line.fetch.session_id, one.line.fetch.session_epoch) == (0, 0)
        assert one.line.named == [(0, 0)]


def test_news_of_the_cluster_end_the_pause() -> None:
    @scene
    async def _(one: Scene) -> None:
        one.follow(1)
        one.line.lose()
        one.replication.refresh()
        assert one.net.attempts == 2
        await asyncio.sleep(5 * BACKOFF)
        assert one.net.attempts == 2


def test_each_loss_has_a_pause_of_its_own() -> None:
    @scene
    async def _(one: Scene) -> None:
        one.follow(1)
        one.line.lose()
        await asyncio.sleep(BACKOFF / 2)
        one.replication.refresh()
        one.line.lose()
        await asyncio.sleep(BACKOFF - 0.1)
        assert one.net.attempts == 2
        await asyncio.sleep(0.2)
        assert one.net.attempts == 3


def test_a_leader_that_was_replaced_meanwhile_is_not_tried_again() -> None:
    @scene
    async def _(one: Scene) -> None:
        one.follow(1)
        one.line.lose()
        one.follow(3)
        await asyncio.sleep(5 * BACKOFF)
        assert [line.leader for line in one.net.lines] == [1, 3]


def test_a_response_that_makes_no_sense_ends_the_connection() -> None:
    @scene
    async def _(one: Scene) -> None:
        one.follow(1)
        one.line.answer(FetchResponse(0, 0, SESSION, []), correlation=99)
        assert one.open == []
        await asyncio.sleep(BACKOFF + 0.1)
        assert one.open == [1]


# Fetching


def test_what_came_is_taken_and_more_is_asked_for() -> None:
    @scene
    async def _(one: Scene) -> None:
        one.follow(1, 1)
        one.line.give(part(records=batch_bytes(3)))
        assert one.broker.replicas[0].log.end_offset == 3
        assert one.line.named == [(0, 3)]
        assert one.line.fetch.session_epoch == 1


def test_another_partition_nudges_the_leader_while_the_fetch_waits() -> None:
    @scene
    async def _(one: Scene) -> None:
        one.follow(1)
        one.replication.refresh()
        assert one.broker.nudged == []
        one.follow(1, 1)
        assert one.broker.nudged == [1]
        assert len(one.line.asked) == 1, "one request at a time"
        one.line.give()
        assert one.line.named == [(1, 0)]


def test_all_that_is_refused_rests_and_is_asked_for_again() -> None:
    @scene
    async def _(one: Scene) -> None:
        one.follow(1)
        one.line.give(part(code=ErrorCode.NOT_LEADER_OR_FOLLOWER))
        assert len(one.line.asked) == 1
        await asyncio.sleep(BACKOFF - 0.1)
        assert len(one.line.asked) == 1
        await asyncio.sleep(0.2)
        assert len(one.line.asked) == 2
        assert one.line.named == [(0, 0)]
        assert timers() == 0


def test_news_of_the_cluster_end_the_rest_of_what_was_refused() -> None:
    @scene
    async def _(one: Scene) -> None:
        one.follow(1)
        one.line.give(part(code=ErrorCode.FENCED_LEADER_EPOCH))
        one.replication.refresh()
        assert len(one.line.asked) == 2
        assert one.line.named == [(0, 0)]


def test_what_rests_is_forgotten_with_its_leader() -> None:
    @scene
    async def _(one: Scene) -> None:
        one.follow(1)
        one.line.give(part(code=ErrorCode.UNKNOWN_TOPIC_ID))
        assert timers() == 1
        one.follow(NO_LEADER)
        assert timers() == 0


def test_one_that_is_refused_interrupts_the_others_when_its_time_has_come() -> None:
    @scene
    async def _(one: Scene) -> None:
        one.follow(1, 1)
        one.line.give(part(code=ErrorCode.UNKNOWN_TOPIC_ID))
        assert len(one.line.asked) == 2
        await asyncio.sleep(BACKOFF + 0.1)
        assert one.broker.nudged == [1]
        one.line.give()
        assert one.line.named == [(0, 0)]


def test_one_that_is_out_of_range_asks_where_the_leader_begins_and_ends() -> None:
    @scene
    async def _(one: Scene) -> None:
        one.follow(1)
        one.line.give(part(code=ErrorCode.OFFSET_OUT_OF_RANGE))
        for offset in (40, 50):
            assert isinstance(one.line.asked[-1], ListOffsetsRequest)
            one.line.locate(offset)
        assert one.line.named == [(0, 40)]
        assert one.broker.replicas[0].log.start_offset == 40


# A leader that refuses every fetch


@pytest.mark.parametrize(
    ("code", "session"),
    [(ErrorCode.UNKNOWN_SERVER_ERROR, 0), (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, 9), (0, 0)],
)
def test_a_leader_that_refuses_all_is_left_alone_for_a_while(code: int, session: int) -> None:
    @scene
    async def _(one: Scene) -> None:
        one.follow(1)
        for attempt in range(1, 4):
            one.line.give(code=code, session=session)
            assert one.open == []
            assert one.net.attempts == attempt
            await asyncio.sleep(BACKOFF - 0.1)
            assert one.net.attempts == attempt
            await asyncio.sleep(0.2)
            assert one.net.attempts == attempt + 1
        assert one.line.named == [(0, 0)]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ],
)
def test_a_session_that_is_lost_begins_again_at_once(code: int) -> None:
    @scene
    async def _(one: Scene) -> None:
        one.follow(1, 1)
        one.line.give()
        one.line.give(code=code, session=0)
        assert one.net.attempts == 1
        assert (one.line.fetch.session_id, one.line.fetch.session_epoch) == (0, 0)
        assert one.line.named == [(0, 0), (1, 0)]


# A leader that removed this broker from the ISR and doesn't respond


def test_one_that_is_out_of_sync_and_gets_no_response_connects_again() -> None:
    @scene
    async def _(one: Scene) -> None:
        one.follow(1)
        one.leave_isr()
        await asyncio.sleep(OVERDUE - 0.1)
        assert one.net.attempts == 1
        await asyncio.sleep(0.2)
        assert one.net.attempts == 2
        assert one.open == [1]
        assert one.line.named == [(0, 0)]


def test_one_that_is_out_of_sync_and_gets_a_response_stays() -> None:
    @scene
    async def _(one: Scene) -> None:
        one.follow(1)
        one.leave_isr()
        await asyncio.sleep(OVERDUE - 1.0)
        one.line.give()
        await asyncio.sleep(OVERDUE - 1.0)
        assert one.net.attempts == 1


def test_a_new_connection_has_its_own_time_for_a_response() -> None:
    @scene
    async def _(one: Scene) -> None:
        one.follow(1)
        one.leave_isr()
        await asyncio.sleep(OVERDUE - 1.0)
        one.line.lose()
        await asyncio.sleep(BACKOFF + 0.1)
        one.line.give()
        await asyncio.sleep(OVERDUE - 1.0)
        assert one.net.attempts == 2


def test_a_connection_that_is_lost_leaves_the_pause_alone() -> None:
    @scene
    async def _(one: Scene) -> None:
        one.follow(1)
        one.leave_isr()
        one.line.lose()
        assert timers() == 1


def test_one_that_is_in_sync_again_waits_for_ever() -> None:
    @scene
    async def _(one: Scene) -> None:
        one.follow(1)
        one.leave_isr()
        replica = one.broker.replicas[0]
        replica.facts = replace(replica.facts, isr=(1, 2, 3))
        one.replication.refresh()
        assert timers() == 0


# Closing


def test_one_that_is_closed_opens_nothing_any_more() -> None:
    @scene
    async def _(one: Scene) -> None:
        one.follow(1, 3)
        one.line.lose()
        assert one.replication.close() == []
        assert timers() == 0
        await asyncio.sleep(5 * BACKOFF)
        assert one.net.attempts == 2


class Dials:
    """Stand-in for dials to sockets; each takes 0.5 s."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.lines: list[Line] = []
        self.attempts = 0
        self.refuses = False
        patch.setattr(VirtualLoop, "create_connection", self)

    async def __call__(self, factory: Callable[[], asyncio.Protocol], host: str, port: int) -> None:
        """Dial; a cancelled dial leaves nothing open."""
        self.attempts += 1
        await asyncio.sleep(0.5)
        if self.refuses:
            raise ConnectionRefusedError(port)
        self.lines.append(Line(port, factory()))


def test_a_dial_to_a_socket_takes_its_time_and_is_one_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dials = Dials(monkeypatch)

    async def main() -> None:
        one = Scene(sockets=True)
        one.follow(1)
        one.replication.refresh()
        await asyncio.sleep(0.6)
        assert dials.attempts == 1
        assert dials.lines[0].named == [(0, 0)]
        dials.refuses = True
        dials.lines[0].lose()
        await asyncio.sleep(2 * BACKOFF + 0.5)
        assert dials.attempts == 2
        await asyncio.sleep(0.1)
        assert dials.attempts == 3
        await asyncio.gather(*one.replication.close())

    run_virtually(main())


def test_a_dial_that_succeeds_when_it_is_unneeded_leaves_nothing_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dials = Dials(monkeypatch)

    async def main() -> None:
        one = Scene(sockets=True)
        one.follow(1)
        await asyncio.sleep(0.1)
        one.follow(NO_LEADER)
        await asyncio.sleep(1.0)
        one.follow(1)
        await asyncio.sleep(0.1)
        (dialing,) = one.replication.close()
        await dialing
        assert [line.ended for line in dials.lines] == [True, True]
        assert [line.asked for line in dials.lines] == [[], []]
        assert timers() == 0

    run_virtually(main())
