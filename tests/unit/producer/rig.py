"""The producer's internals without a loop: real admission, accumulator, sender and response
handler; the test controls time, network and metadata.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from kclient.clock import wall_ns_of
from kclient.cluster.topic import EMPTY_ROW, NO_TOPIC_ID, Topic
from kclient.cluster.view import Broker, Cluster
from kclient.config import ProducerConfig
from kclient.errors import ConnectionLost, KafkaError
from kclient.hooks import Counters, Event, Hooks
from kclient.network import Capacity, Lane, RequestFuture
from kclient.producer._compiled import Delivery, WhenFull
from kclient.producer.accumulator import Accumulator
from kclient.producer.admission import Admission
from kclient.producer.flush import UnseenFailures
from kclient.producer.idempotence import ProducerIdentity
from kclient.producer.produce_response import ProduceResponseHandler
from kclient.producer.sender import Sender, SenderWakeup
from kclient.protocol.messages.produce import ProduceRequest, ProduceResponse
from tests.support.views import view_of, with_topic

VERSION = 9


class HandClock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return self.time

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + int((self.time - 1000.0) * 1000)


class HandLoop:
    """The part of a loop that deliveries use; callbacks run when the test calls ``run``."""

    def __init__(self, clock: HandClock) -> None:
        self.time = clock.now
        self.soon: list[tuple[Callable[..., object], tuple[Any, ...]]] = []

    def call_soon(self, fn: Callable[..., object], *args: Any, context: Any = None) -> None:
        self.soon.append((fn, args))

    def run(self) -> None:
        while self.soon:
            fn, args = self.soon.pop(0)
            fn(*args)


class Waiter:
    """A future for the waiter of a ``WaitingRecord``."""

    def __init__(self) -> None:
        self.woken = False

    def done(self) -> bool:
        return self.woken

    def set_result(self, result: None) -> None:
        self.woken = True


class HandMetadata:
    """The view, and the calls of the updater."""

    def __init__(self, view: Cluster) -> None:
        self.view = view
        self.asked: list[str | None] = []
        self.missed: list[int] = []
        self.doubted: list[int] = []
        self.touched: list[str] = []
        self.unknown: dict[str, float] = {}
        """Topics that brokers report as unknown, and for how many seconds they have."""
        self.hints: list[Any] = []
        self.listeners: list[Callable[[Cluster], object]] = []

    def touch(self, topic: str) -> None:
        self.touched.append(topic)

    def confirmed_unknown(self, topic: str, since: float, grace: float) -> bool:
        return self.unknown.get(topic, -1.0) >= grace

    def request_update(self, topic: str | None = None) -> None:
        self.asked.append(topic)

    def leader_failed(self, node_id: int) -> None:
        self.missed.append(node_id)
        self.request_update()

    def suspect_leader(self, node_id: int, lane: Lane) -> None:
        self.doubted.append(node_id)

    def add_listener(self, listener: Callable[[Cluster], object]) -> None:
        self.listeners.append(listener)

    def apply_leader_hints(self, hints: list[Any], endpoints: Any = ()) -> bool:
        self.hints.extend(hints)
        view = self.view
        for hint in hints:
            if hint.leader_epoch > view.leader_epoch(hint.topic, hint.partition):
                topic = view.topics[hint.topic]
                led = topic.with_leader(hint.partition, hint.leader_id, hint.leader_epoch)
                view = with_topic(view, led)
        news = view is not self.view
        if news:
            self.publish(view)
        return news

    def publish(self, view: Cluster) -> None:
        self.view = view
        for listener in self.listeners:
            listener(view)

    def publish_topic(self, topic: Topic) -> None:
        self.publish(with_topic(self.view, topic))


@dataclass
class Sent:
    """A request that was passed to the network."""

    node_id: int
    build: Callable[[int], ProduceRequest]
    future: RequestFuture[Any]
    max_version: int | None

    def message(self, version: int = VERSION) -> ProduceRequest:
        return self.build(version)


class HandNetwork:
    """Accepts up to ``space`` requests per node and leaves their responses to the test."""

    def __init__(self, space: int) -> None:
        self.space = space
        self.pending: list[Sent] = []
        self.blocked: set[int] = set()
        self.disconnected: set[int] = set()
        self.renewed: list[int] = []

    def add_ready_listener(self, listener: Callable[[int, Lane], object]) -> None: ...

    def can_send(self, node_id: int, lane: Lane) -> Capacity:
        mine = [sent for sent in self.pending if sent.node_id == node_id]
        if node_id in self.blocked or len(mine) >= self.space:
            return Capacity.NONE
        return Capacity.NOW if self.is_connected(node_id, lane) else Capacity.ONCE_CONNECTED

    def is_connected(self, node_id: int, lane: Lane) -> bool:
        return node_id not in self.disconnected

    def retry_at(self, node_id: int) -> float:
        return 0.0

    def replace_connection(self, node_id: int, lane: Lane) -> None:
        self.renewed.append(node_id)

    def connection_error(self, node_id: int) -> None:
        return None

    def send(self, node_id: int, build: Any, **how: Any) -> RequestFuture[Any]:
        future: RequestFuture[Any] = RequestFuture()
        self.pending.append(Sent(node_id, build, future, how["max_version"]))
        return future


class HandCore:
    """The part of the core that the sender uses."""

    def __init__(self, clock: HandClock, network: HandNetwork, metadata: HandMetadata) -> None:
        self.clock = clock
        self.network = network
        self.metadata = metadata
        self.counters = Counters()
        self.events: list[Event] = []
        self.hooks = Hooks([self])
        self.rng = random.Random(7)
        self.spawned: list[str] = []

    def observe(self, event: Event, /) -> None:
        self.events.append(event)

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> None:
        coroutine.close()
        self.spawned.append(name)


def make_topic(
    name: str, leaders: list[int], error: int = 0, topic_id: bytes = NO_TOPIC_ID
) -> Topic:
    count = len(leaders)
    return Topic.of_columns(name, topic_id, False, error, leaders, [0] * count, [EMPTY_ROW] * count)


class Rig:
    """One producer that the test drives."""

    def __init__(
        self,
        partitions: int = 1,
        *,
        topics: dict[str, list[int]] | None = None,
        identity: bool = True,
        partitioner: Any = None,
        **settings: Any,
    ) -> None:
        self.config = ProducerConfig(**{"linger": 0.0, **settings})
        self.clock = HandClock()
        leaders = {"t": [1] * partitions} if topics is None else topics
        self.metadata = HandMetadata(
            view_of(
                [Broker(1, "one", 9092), Broker(2, "two", 9092)],
                [make_topic(name, nodes) for name, nodes in leaders.items()],
                version=1,
            )
        )
        self.network = HandNetwork(self.config.max_in_flight)
        self.core = HandCore(self.clock, self.network, self.metadata)
        self.loop = HandLoop(self.clock)
        self.failures = UnseenFailures(self.core.counters)
        self.failures.begin(self.loop)  # type: ignore[arg-type]
        self.wakes = 0
        self.accumulator = Accumulator(self.config, self.failures, self.core.rng, self._wake)
        self.identity = ProducerIdentity()
        self.admission = Admission(
            self.config,
            self.accumulator,
            self.failures,
            self.clock,
            self.metadata,
            (None, None),
            partitioner,
        )
        self.admission.appender.open(None, wall_ns_of(self.clock))  # these tests run in no loop
        self.response_handler = ProduceResponseHandler(
            self.config,
            self.accumulator,
            self.identity,
            self.core,  # type: ignore[arg-type]
        )
        self.wakeup = SenderWakeup()
        self.sender = Sender(
            self.core,  # type: ignore[arg-type]
            self.config,
            self.wakeup,
            self.accumulator,
            self.admission,
            self.identity,
            self.response_handler,
        )
        if identity and self.config.idempotence:
            self.grant()

    def _wake(self, at: float = 0.0) -> None:
        self.wakes += 1

    def grant(self, producer_id: int = 1000) -> None:
        if self.identity.state.name == "ABSENT":
            self.identity.requested()
        self.identity.granted(producer_id, 0)
        for queue in list(self.accumulator.busy):
            self.accumulator.mark(queue)

    def send(
        self,
        value: bytes,
        *,
        topic: str = "t",
        key: bytes | None = None,
        partition: int | None = None,
        when_full: Any = WhenFull.QUEUE,
    ) -> Delivery:
        """Send as ``Producer.send`` does, by the fast path first."""
        delivery = self.admission.appender.take(topic, value, key, None, partition, None)
        if delivery is None:
            delivery = self.admission.put(topic, value, key, None, partition, None, when_full)
        return delivery

    def step(self) -> None:
        """Run one step of the sender."""
        self.sender._step(self.clock.now())

    def pass_time(self, seconds: float) -> None:
        self.clock.time += seconds
        self.step()

    def take_request(self, at: int = 0) -> Sent:
        return self.network.pending.pop(at)

    def answer(self, sent: Sent, response: ProduceResponse) -> None:
        sent.future.complete(response)

    def lose(self, sent: Sent, error: KafkaError | None = None) -> None:
        sent.future.fail(error or ConnectionLost("cut"))
