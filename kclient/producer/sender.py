"""Sender: takes ready batches to their leaders, and keeps the producer's time.

One task per producer. It sleeps until something is ready, due or answered; what may be sent is
decided in ``partition_queue``, what a response means in ``produce_response``. It also fetches the
producer id. Nothing here happens per record.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from kclient.backoff import Backoff
from kclient.cluster.calls import AnyNode
from kclient.errors import (
    BrokerError,
    BrokerUnreachable,
    KafkaError,
    NoCommonVersion,
    ProtocolError,
)
from kclient.network import Capacity, Lane
from kclient.producer.accumulator import NO_LEADER
from kclient.producer.batch_compression import BatchCompressor
from kclient.producer.idempotence import IdentityState, ProducerIdAndEpoch
from kclient.producer.produce_request import BatchRequest, EncodedProduceRequest
from kclient.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from kclient.record import Compression

if TYPE_CHECKING:
    from kclient.cluster.core import ClientCore
    from kclient.cluster.view import Cluster
    from kclient.config import ProducerConfig
    from kclient.network import RequestFuture
    from kclient.producer._compiled import PartitionQueue, ProducerBatch
    from kclient.producer.accumulator import Accumulator
    from kclient.producer.admission import Admission
    from kclient.producer.idempotence import ProducerIdentity
    from kclient.producer.produce_response import ProduceResponseHandler

logger = logging.getLogger("kclient.producer")

# Names of the module: a look into an enum's class costs ten times as much.
_PRODUCE = Lane.PRODUCE
_NOW = Capacity.NOW
_ACKS = {"all": -1, 1: 1, 0: 0}
_NO_TRANSACTION_TIMEOUT = 2**31 - 1
_EXPIRED_AT_ONCE = 5000
"""Records that are given up before others get their turn on the loop: each may have a waiter."""
_SENT_AT_ONCE = 250
"""Batches that are sent before others get their turn on the loop, and that one request has."""
_RECORDS_AT_ONCE = 10_000
"""Records that one request has at most, but for a single batch: its answer may wake them all."""
_LINGERED_AT_ONCE = 250
"""Batches under way to a broker that went since they had lingered: with more, the next ones wait.

A batch costs as much as some 30 records. Where records for very many partitions come quickly they
would go out in batches of a few records each; waiting for an answer makes these batches larger.
"""
_BATCH_COST = 10
"""What giving up a batch costs by itself, in records."""
_NEVER = float("inf")


def _goes_on(queue: PartitionQueue, now: float) -> bool:
    """More than an open batch waits: a full one, or one to be sent again, maybe renumbered."""
    if queue.sealed or queue.next_repeat(now) is not None:
        return True
    return bool(queue.outstanding) and queue.needs_identity()


class SenderWakeup:
    """What the sender sleeps by; woken at once, or at a time, when there is something for it.

    Made before the sender, as those that the sender is made of wake it, too.

    Attributes:
        woken: There is something to do; the sender takes it back.
        sleeper: Done when it is woken; None while it is awake.
    """

    def __init__(self) -> None:
        self.woken = False
        self.sleeper: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = _NEVER

    def wake(self, at: float = 0.0) -> None:
        """Have the sender look around soon, or at ``at``. Cheap when it is awake already."""
        if at:
            if self.sleeper is not None:  # else it sets its timer before it sleeps
                self.set_timer(at, self.sleeper.get_loop())
            return
        self.woken = True
        sleeper = self.sleeper
        if sleeper is not None and not sleeper.done():
            sleeper.set_result(None)

    def set_timer(self, at: float, loop: asyncio.AbstractEventLoop) -> None:
        """Have it wake at ``at``, unless it does before."""
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        # Not asked of the timer: for what is due at once uvloop makes one that has no ``when``.
        self._timer_at = at
        self._timer = loop.call_at(at, self._on_timer)

    def stop_timer(self) -> None:
        """Only ``wake`` wakes."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._timer = None
        self.wake()


class Sender:
    """Sends the batches of one producer.

    Tasks: ``run``, spawned by the producer's ``start`` and stopped by its ``close``;
    ``identify``, spawned whenever a producer id is needed, ends when there is one.
    """

    def __init__(
        self,
        core: ClientCore,
        config: ProducerConfig,
        wakeup: SenderWakeup,
        accumulator: Accumulator,
        admission: Admission,
        identity: ProducerIdentity,
        response_handler: ProduceResponseHandler,
    ) -> None:
        self.in_flight: dict[int, int] = {}
        """Requests under way by node id."""
        self.wake = wakeup.wake
        self._wakeup = wakeup
        self._lingered: dict[int, int] = {}
        self._core = core
        self._log = core.hooks.log(logger)
        self._clock = core.clock
        self._network = core.network
        self._metadata = core.metadata
        self._config = config
        self._accumulator = accumulator
        self._admission = admission
        self._identity = identity
        self._response_handler = response_handler
        self._acks = _ACKS[config.acks]
        self._compressor = BatchCompressor(
            Compression.parse(config.compression), config.compression_level, self._compressed
        )
        self._plain = self._compressor.codec is Compression.NONE
        self._backoff = Backoff(config.retry_backoff, config.retry_backoff_max)
        self._nameless: dict[PartitionQueue, None] = {}
        self._refusals = 0
        self._ask_again_at = 0.0
        self._turn = 0
        self._network.add_ready_listener(self._room)
        self._metadata.add_listener(self._metadata_changed)

    def check(self) -> None:
        """Raise if the configured codec can't be used."""
        self._compressor.check()

    async def run(self) -> None:
        """Send what is ready, for ever."""
        if self._config.idempotence:
            self._request_identity()
        loop, wakeup = asyncio.get_running_loop(), self._wakeup
        try:
            while True:
                wakeup.woken = False
                self._step(self._clock.now())
                if wakeup.woken:
                    # What the step itself caused is due now, but others come first.
                    await asyncio.sleep(0)
                    continue
                self._arm(loop)
                wakeup.sleeper = loop.create_future()
                await wakeup.sleeper
                wakeup.sleeper = None
        finally:
            wakeup.sleeper = None
            wakeup.stop_timer()

    async def close(self) -> None:
        """Let compressing threads end."""
        await self._compressor.close()

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        """Have the timer run when something is due, or before: that costs a look around."""
        accumulator = self._accumulator
        due = accumulator.earliest_due()
        if accumulator.budget.waiting:
            parked = self._admission.waiting_records.next_due()
            if parked is not None and parked < due:
                due = parked
        # Nobody tells when a node's back-off is over.
        for node_id in accumulator.ready:
            if node_id != NO_LEADER:
                at = self._network.retry_at(node_id)
                if at < due and at > self._clock.now():
                    due = at
        if due == _NEVER:
            self._wakeup.stop_timer()
        else:
            self._wakeup.set_timer(due, loop)

    def _step(self, now: float) -> None:
        accumulator = self._accumulator
        if accumulator.earliest_due() <= now:
            self._expire(now)
        if accumulator.budget.waiting:
            self._admission.expire(now)
            self._admission.admit()
            if not self.in_flight and self._admission.waiting_records.next_for_memory() is not None:
                accumulator.seal_all()  # all memory is in batches that linger
        nodes = list(accumulator.ready)
        if NO_LEADER in nodes:
            nodes.remove(NO_LEADER)
            self._metadata.request_update()
        if len(nodes) > 1:
            nodes.sort()  # rows come and go: in their own order turns would not be fair
            first = self._turn % len(nodes)
            nodes = nodes[first:] + nodes[:first]
        left = _SENT_AT_ONCE  # of very many batches some now and the others in the next step
        for node_id in nodes:
            left -= self._serve(node_id, now, left)
            if left <= 0:
                self._turn += 1
                self.wake()
                break

    def _expire(self, now: float) -> None:
        """Give up batches whose time is over; where they are very many, some in the next step."""
        left = _EXPIRED_AT_ONCE
        for batch in self._accumulator.process_deadlines(now):
            left -= batch.records().record_count + _BATCH_COST
            self._response_handler.expire(batch)
            if left <= 0:
                self.wake()
                return

    # Requests.

    def _serve(self, node_id: int, now: float, most: int) -> int:
        """Send what is ready for one broker, as far as it takes more; how many batches.

        It may be a request more than ``most``.
        """
        sent = 0
        while sent < most and (ready := self._accumulator.ready.get(node_id)):
            capacity = self._network.can_send(node_id, _PRODUCE)
            if capacity is not _NOW and not self._may_wait(node_id, capacity):
                break
            most_lingered = _LINGERED_AT_ONCE if self._config.linger else 0
            queues = list(ready)
            if self._lingered.get(node_id, -1) >= most_lingered:
                # They stay marked, and open batches fill, until the broker has answered.
                queues = [q for q in queues if _goes_on(q, now)]
            batches = self._collect(queues, node_id, now)
            if not batches:
                break
            self._ship(node_id, batches, now)
            sent += len(batches)
        return sent

    def _may_wait(self, node_id: int, capacity: Capacity) -> bool:
        """Have a connection seen to, where a request can't go now; whether it may wait for one.

        Only the first may: it makes room for others.
        """
        if self._network.is_connected(node_id, _PRODUCE):
            return False
        if node_id not in self._metadata.view.brokers:
            self._metadata.request_update()  # a leader without an address
        self._metadata.suspect_leader(node_id, _PRODUCE)
        return bool(capacity) and not self.in_flight.get(node_id)

    def _collect(
        self, queues: list[PartitionQueue], node_id: int, now: float
    ) -> list[ProducerBatch]:
        """One batch of each of ``queues``, as many as a request takes."""
        accumulator = self._accumulator
        batches: list[ProducerBatch] = []
        left, room = self._config.max_request_size, _RECORDS_AT_ONCE
        for queue in queues:
            if len(batches) >= _SENT_AT_ONCE:
                break  # before the next one is sealed
            batch = self._next_batch(queue, node_id, now)
            if batch is None:
                continue
            size, count = batch.records().encoded_bytes, batch.outcome.count
            if batches and (size > left or count > room):
                break
            left -= size
            room -= count
            batches.append(batch)
            others_wait = queue.sent(batch)
            accumulator.unmark(queue)
            if others_wait:
                accumulator.mark(queue)  # at the end of the row: others come first next time
        return batches

    def _next_batch(self, queue: PartitionQueue, node_id: int, now: float) -> ProducerBatch | None:
        """What ``queue`` may send now. If nothing, it is unmarked until something changes."""
        accumulator = self._accumulator
        batch = queue.next_batch(now)
        if batch is None and queue.needs_identity():
            if not self._identify_queue(queue):
                return None
            batch = queue.next_batch(now)
        if batch is None:
            due = queue.retry_due()
            if due is not None and due > now:
                accumulator.back_off(queue, due)
            else:
                accumulator.unmark(queue)
            return None
        try:
            if self._plain or self._compressor.ready(batch):
                return batch
        except KafkaError as error:
            self._response_handler.give_up(batch, error)
            return None
        accumulator.unmark(queue)
        return None

    def _compressed(self, batch: ProducerBatch, error: KafkaError | None) -> None:
        """A thread is through with ``batch``."""
        if batch.builder is None:
            return  # it expired meanwhile
        if error is not None:
            self._response_handler.give_up(batch, error)
        else:
            self._accumulator.mark(batch.queue)
        self.wake()

    def _ship(self, node_id: int, batches: list[ProducerBatch], now: float) -> None:
        request = BatchRequest(
            node_id,
            batches,
            self._acks,
            int(self._config.request_timeout * 1000),
            self._compressor.codec,
            self._metadata.view,
        )
        for batch in batches:
            batch.request = request
        self.in_flight[node_id] = self.in_flight.get(node_id, 0) + 1
        self._lingered[node_id] = self._lingered.get(node_id, 0) + request.lingered
        future = self._network.send(
            node_id,
            request.message,
            api=EncodedProduceRequest,
            lane=_PRODUCE,
            timeout=self._config.request_timeout,
            max_version=request.max_version,
            expect_response=self._acks != 0,
        )
        # What can be done while the request is on its way comes after it.
        self._core.counters.add("producer.requests")
        for topic in request.topics:
            self._metadata.touch(topic)
        future.add_listener(partial(self._returned, request))

    def _returned(self, request: BatchRequest, future: RequestFuture[object]) -> None:
        node_id = request.node_id
        self.in_flight[node_id] -= 1
        self._lingered[node_id] -= request.lingered
        if not self.in_flight[node_id]:
            del self.in_flight[node_id], self._lingered[node_id]
        now = self._clock.now()
        try:
            response = future.result()
        except KafkaError as error:
            self._metadata.leader_failed(node_id)
            self._response_handler.request_failed(request, error, now)
        else:
            if self._response_handler.response_received(request, response, now):  # type: ignore[arg-type]
                self._network.replace_connection(node_id, _PRODUCE)
        waiting = self._accumulator.budget.waiting
        if waiting:
            self._admission.admit()
        # Without linger, the caller may send the next record before the sender has its turn.
        if waiting or self._accumulator.ready or not self._config.linger:
            self.wake()

    def _room(self, node_id: int, lane: Lane) -> None:
        if lane is not _PRODUCE:
            return
        if self._acks == 0 and not self._network.is_connected(node_id, lane):
            # Without answers, its end is all that a broker can say about not being the leader.
            self._metadata.request_update()
        if self._accumulator.busy:
            self.wake()

    def _metadata_changed(self, view: Cluster) -> None:
        try:
            self._admission.metadata_changed(view)
            self._call_back()
        except Exception as error:  # the updater's task is not to die of it, but this client is
            self._core.spawn(_fail(error), "producer-callback")
        self.wake()

    def _call_back(self) -> None:
        """What waits for the connection to a broker that leads it no more goes elsewhere.

        A broker that hangs accepts connections, and lets them wait for as long as dials may take.
        """
        network = self._network
        away = {node for node in self.in_flight if not network.is_connected(node, _PRODUCE)}
        if not away:
            return
        moved: dict[int, None] = {}
        for queue in self._accumulator.busy:
            if queue.leader == NO_LEADER:
                continue
            for batch in queue.outstanding:
                request = batch.request
                if request is not None and request.node_id != queue.leader:
                    moved[request.node_id] = None
        for node_id in moved:
            if node_id in away:
                network.fail_waiting(
                    node_id,
                    _PRODUCE,
                    BrokerUnreachable(
                        "others lead what waited for a connection to it, or some of it"
                    ),
                )

    # The producer id.

    def _identify_queue(self, queue: PartitionQueue) -> bool:
        """Give ``queue`` an identity to number batches under; False if it must wait for one."""
        identity = self._identity
        sequences = queue.sequences
        if identity.state is IdentityState.READY and sequences is not None:
            previous = sequences.identity
            fresh = identity.current if previous is None else identity.newer_than(previous)
            if fresh is not None:
                self._response_handler.drop_doubtful(queue)
                queue.adopt(fresh)
                return True
        self._accumulator.unmark(queue)
        self._nameless[queue] = None
        self._request_identity()
        return False

    def _refuse_queue(self, queue: PartitionQueue, error: KafkaError) -> None:
        queue.seal_open()
        for batch in [*queue.outstanding, *queue.sealed]:
            if not batch.outcome.done:
                self._response_handler.give_up(batch, error)

    def _request_identity(self) -> None:
        if self._identity.state in (IdentityState.ABSENT, IdentityState.REFUSED):
            self._identity.requested()
            self._core.spawn(self.identify(), "producer-id")

    async def identify(self) -> None:
        """Get a producer id, however often it takes; then go on with who waits for it."""
        if self._refusals:
            # Records that keep coming, and each ask again, make no rush of requests.
            await asyncio.sleep(max(0.0, self._ask_again_at - self._clock.now()))
        attempt = 0
        while self._identity.state is IdentityState.REQUESTED:
            try:
                identity = _granted(
                    await self._core.calls.call(
                        AnyNode(),
                        InitProducerIdRequest(
                            transactional_id=None, transaction_timeout_ms=_NO_TRANSACTION_TIMEOUT
                        ),
                        check=lambda response: response.error_code,
                    )
                )
            except (BrokerError, NoCommonVersion) as error:
                if error.retriable:
                    self._no_identity(error)
                    await asyncio.sleep(self._backoff.delay(attempt, self._core.rng))
                    attempt += 1
                    continue
                level = logging.ERROR if self._identity.error is None else logging.DEBUG
                self._log.log(level, "the cluster gives no producer id: %s", error)
                wait = self._backoff.delay(self._refusals, self._core.rng)
                self._refusals += 1
                self._ask_again_at = self._clock.now() + wait
                self.identity_refused(error)
                return
            except KafkaError as error:
                # It took too long; whoever waits for it has a time limit of its own.
                self._no_identity(error)
                await asyncio.sleep(self._backoff.delay(attempt, self._core.rng))
                attempt += 1
            else:
                self._refusals = 0
                self._response_handler.no_identity = None
                self._identity.granted(*identity)
        for queue in self._take_nameless():
            self._accumulator.mark(queue)
        self.wake()

    def _no_identity(self, error: KafkaError) -> None:
        self._response_handler.note(error, self._clock.now())
        self._response_handler.no_identity = error

    def identity_refused(self, error: KafkaError) -> None:
        """The cluster gives no producer id: what waits for one fails, later batches ask again."""
        self._identity.refused(error)
        for queue in self._take_nameless():
            self._refuse_queue(queue, error)
        self.wake()

    def _take_nameless(self) -> list[PartitionQueue]:
        waiting, self._nameless = self._nameless, {}
        return [queue for queue in waiting if not queue.idle]


def _granted(response: InitProducerIdResponse) -> ProducerIdAndEpoch:
    """The identity in ``response``. Raises ProtocolError for one that can't be."""
    identity = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
    if min(identity) < 0:
        raise ProtocolError(f"InitProducerId gave {identity}", struct="InitProducerIdResponse")
    return identity


async def _fail(error: Exception) -> None:
    raise error
