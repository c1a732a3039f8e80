"""Followers at work: whom a broker connects to, what it asks, and when it tries again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from kclient.error_codes import ErrorCode
from kclient.protocol.headers import decode_request_header, encode_response
from kclient.protocol.message import Response
from kclient.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from kclient.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kclient.testing import VirtualLoop, replication, run_virtually
from kclient.testing.broker_configs import BrokerConfig
from kclient.testing.follower_fetch import FETCH_VERSION, LIST_OFFSETS_VERSION
from kclient.testing.hosting import Address
from kclient.testing.image import NO_LEADER, PartitionFacts
from kclient.testing.inside import Inside
from kclient.testing.replica import Replica
from kclient.testing.replication import Replication
from tests.unit.testing.batches import batch_bytes
from tests.unit.testing.images import cluster
from tests.unit.testing.test_replica import config

BACKOFF = 1.0
"""Kafka's ``replica.fetch.backoff.ms``."""
OVERDUE = 30.0
"""Kafka's ``replica.socket.timeout.ms``."""
SESSION = 9


class Line(asyncio.Transport):
    """A connection to a leader: what was asked, and whether it was ended."""

    def __init__(self, leader: int, peer: asyncio.Protocol) -> None:
        super().__init__()
        self.leader = leader
        self.ended = False
        self.asked: list[FetchRequest | ListOffsetsRequest] = []
        self._correlation = 0
        self._peer = peer
        peer.connection_made(self)

    def write(self, data: Any) -> None:
        assert not self.ended, "written to a connection that was ended"
        frame = bytes(data)[4:]
        header = decode_request_header(frame)
        self._correlation = header.correlation_id
        fetches = header.api_key == FetchRequest.API_KEY
        request: Any = FetchRequest if fetches else ListOffsetsRequest
        self.asked.append(request.decode(frame, header.api_version, header.body_offset))

    def abort(self) -> None:
        self.ended = True

    def answer(self, response: Response, *, correlation: int | None = None) -> None:
        version = FETCH_VERSION if isinstance(response, FetchResponse) else LIST_OFFSETS_VERSION
        number = self._correlation if correlation is None else correlation
        self._peer.data_received(encode_response(response, version, number))

    def give(self, *parts: PartitionData, code: int = 0, session: int = SESSION) -> None:
        """Answer a fetch."""
        topics = [FetchableTopicResponse(topic_id=b"t" * 16, partitions=list(parts))]
        self.answer(FetchResponse(0, code, session, topics if parts else []))

    def locate(self, offset: int) -> None:
        """Answer where a log begins or ends."""
        part = ListOffsetsPartitionResponse(0, offset=offset)
        self.answer(ListOffsetsResponse(0, [ListOffsetsTopicResponse("t", [part])]))

    def lose(self) -> None:
        """The leader ends it."""
        self.ended = True
        self._peer.connection_lost(None)

    @property
    def fetch(self) -> FetchRequest:
        """The last one that was sent."""
        last = self.asked[-1]
        assert isinstance(last, FetchRequest)
        return last

    @property
    def named(self) -> list[tuple[int, int]]:
        """Index and offset of each partition that the last fetch names."""
        (partitions,) = [one.partitions for one in self.fetch.topics] or [[]]
        return [(one.partition, one.fetch_offset) for one in partitions]


class Net:
    """Stands for the network inside the cluster."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.attempts = 0
        self.refuses = False

    def connect(self, host: str, port: int, factory: Callable[[], asyncio.Protocol]) -> None:
        self.attempts += 1
        if self.refuses:
            raise ConnectionRefusedError(host)
        self.lines.append(Line(port, factory()))


class Follower:
    """Broker 2, which follows brokers 1 and 3."""

    node_id = 2
    session = 7

    def __init__(self, network: Net | None) -> None:
        self.inside = Inside(cluster(0), random.Random(1))
        self.config = BrokerConfig({})
        self.replicas: list[Replica] = []
        self.unreachable: set[int] = set()
        self.nudged: list[int] = []
        self._network: Any = network

    def reaches(self, node_id: int) -> bool:
        return node_id not in self.unreachable

    def inner_address(self, node_id: int) -> Address:
        return Address("broker", node_id, self._network)

    def nudge(self, leader: int) -> None:
        self.nudged.append(leader)

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, callback)


class Scene:
    """Replication at work; ``follow`` says who leads what."""

    def __init__(self, *, sockets: bool = False) -> None:
        self.net = Net()
        self.broker = Follower(None if sockets else self.net)
        self.replication = Replication(self.broker)  # type: ignore[arg-type]

    def follow(self, *leaders: int) -> None:
        """Have copies of so many partitions from now on, led by these brokers."""
        kept = {one.facts.index: one for one in self.broker.replicas}
        self.broker.replicas = []
        for index, leader in enumerate(leaders):
            facts = PartitionFacts("t", index, (1, 2, 3), (1, 2, 3), leader)
            one = kept.get(index) or Replica(2, b"t" * 16, facts, config())
            if one.facts.leader != leader:
                one.facts = replace(facts, leader_epoch=one.epoch + 1)
            self.broker.replicas.append(one)
        self.replication.refresh()

    def leave_isr(self) -> None:
        """The leader of partition 0 has us out of sync."""
        replica = self.broker.replicas[0]
        replica.facts = replace(replica.facts, isr=(1, 3))
        self.replication.refresh()

    @property
    def line(self) -> Line:
        """The connection that was opened last."""
        return self.net.lines[-1]

    @property
    def open(self) -> list[int]:
        """The leaders to whom there is a connection."""
        return [one.leader for one in self.net.lines if not one.ended]


def scene(act: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    """Run a scene on virtual time; once it is closed nothing is left."""

    async def main() -> None:
        one = Scene()
        await act(one)
        assert one.replication.close() == []
        assert one.open == []
        assert timers() == 0

    run_virtually(main())


def timers() -> int:
    """How many are set."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return sum(not one.cancelled() for one in vars(loop)["_scheduled"])


def part(index: int = 0, code: int = 0, *, records: bytes | None = None) -> PartitionData:
    return PartitionData(index, code, high_watermark=0, records=records)


# Connecting


def test_each_leader_has_one_connection_for_all_that_it_leads() -> None:
    @scene
    async def _(one: Scene) -> None:
        one.follow(1, 3, 1, 2, NO_LEADER)
        assert one.open == [1, 3]
        assert [line.named for line in one.net.lines] == [[(0, 0), (2, 0)], [(1, 0)]]
        state = one.line.fetch.replica_state
        assert (state.replica_id, state.replica_epoch) == (2, 7)


def test_who_leads_all_itself_connects_to_nobody() -> None:
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


def test_who_is_led_by_another_meanwhile_is_not_tried_again() -> None:
    @scene
    async def _(one: Scene) -> None:
        one.follow(1)
        one.line.lose()
        one.follow(3)
        await asyncio.sleep(5 * BACKOFF)
        assert [line.leader for line in one.net.lines] == [1, 3]


def test_an_answer_that_makes_no_sense_ends_the_connection() -> None:
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


def test_a_partition_more_is_told_of_while_the_fetch_waits() -> None:
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


# A leader that refuses all


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
def test_a_session_that_is_gone_begins_again_at_once(code: int) -> None:
    @scene
    async def _(one: Scene) -> None:
        one.follow(1, 1)
        one.line.give()
        one.line.give(code=code, session=0)
        assert one.net.attempts == 1
        assert (one.line.fetch.session_id, one.line.fetch.session_epoch) == (0, 0)
        assert one.line.named == [(0, 0), (1, 0)]


# A leader that left us out and says nothing


def test_one_that_is_left_out_of_sync_and_hears_nothing_connects_anew() -> None:
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


def test_one_that_is_left_out_and_hears_something_stays() -> None:
    @scene
    async def _(one: Scene) -> None:
        one.follow(1)
        one.leave_isr()
        await asyncio.sleep(OVERDUE - 1.0)
        one.line.give()
        await asyncio.sleep(OVERDUE - 1.0)
        assert one.net.attempts == 1


def test_one_that_is_in_sync_again_waits_for_ever() -> None:
    @scene
    async def _(one: Scene) -> None:
        one.follow(1)
        one.leave_isr()
        replica = one.broker.replicas[0]
        replica.facts = replace(replica.facts, isr=(1, 2, 3))
        one.replication.refresh()
        assert timers() == 0


# The end


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
    """Stands for dials to sockets, which take their time."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.lines: list[Line] = []
        self.attempts = 0
        self.refuses = False
        patch.setattr(replication, "dial", self)

    async def __call__(self, address: Address, factory: Callable[[], asyncio.Protocol]) -> None:
        """Cancellation: nothing is open."""
        self.attempts += 1
        await asyncio.sleep(0.5)
        if self.refuses:
            raise ConnectionRefusedError(address.port)
        self.lines.append(Line(address.port, factory()))


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


def test_a_dial_that_succeeds_when_nobody_wants_it_leaves_nothing_open(
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
