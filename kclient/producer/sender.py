"""Sender: sends ready batches to their leaders, and processes the producer's deadlines.

One task per producer. It sleeps until a batch is ready, a deadline passes or a response arrives.
``partition_queue`` decides what may be sent, ``produce_response`` what a response means. The sender
also requests the producer id, adds partitions to the open transaction, and drops what a failed one
has not sent. Nothing here happens per record.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial
from typing import TYPE_CHECKING

from kclient.backoff import Backoff
from kclient.broker_errors import OutOfOrderSequenceNumber
from kclient.cluster.calls import AnyNode
from kclient.errors import (
    BrokerError,
    BrokerUnreachable,
    KafkaError,
    NoCommonVersion,
    ProtocolError,
    RequestTimedOut,
)
from kclient.network import Capacity, Lane
from kclient.producer.accumulator import NO_LEADER
from kclient.producer.batch_compression import BatchCompressor
from kclient.producer.batch_states import UNDER_WAY
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
    from kclient.producer.transaction_requests import TransactionRequests
    from kclient.producer.transactions import Transactions

logger = logging.getLogger("kclient.producer")

# Module globals: reading a member of an enum class costs ten times as much.
_PRODUCE = Lane.PRODUCE
_NOW = Capacity.NOW
_ACKS = {"all": -1, 1: 1, 0: 0}
_NO_TRANSACTION_TIMEOUT = 2**31 - 1
_EXPIRED_AT_ONCE = 5000
"""Records that expire before the sender yields to the event loop: each may have a waiter."""
_SENT_AT_ONCE = 250
"""Batches that are sent before the sender yields to the event loop, and most in one request."""
_RECORDS_AT_ONCE = 10_000
"""Most records in one request, except for a single batch: its response may wake all of them."""
_LINGERED_AT_ONCE = 250
"""Most batches in flight to a broker that were sent because their linger was over; others wait.

A batch costs as much as some 30 records. When records for very many partitions arrive fast, they
would be sent in batches of a few records each; waiting for a response makes these batches larger.
"""
_BATCH_COST = 10
"""The cost of expiring a batch, in addition to its records, counted in records."""
_NEVER = float("inf")


def _goes_on(queue: PartitionQueue, now: float) -> bool:
    """True if more than an open batch waits: a full one, or one to be sent again or renumbered."""
    if queue.sealed or queue.next_repeat(now) is not None:
        return True
    return bool(queue.outstanding) and queue.needs_identity()


class SenderWakeup:
    """Wakes the sender, at once or at a given time, when there is work for it.

    Created before the sender, since the objects that the sender is constructed from use it.

    Attributes:
        woken: There is work to do; the sender resets it.
        sleeper: Completes when the sender is woken; None while it is awake.
    """

    def __init__(self) -> None:
        self.woken = False
        self.sleeper: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = _NEVER

    def wake(self, at: float = 0.0) -> None:
        """Have the sender run a step soon, or at ``at``. Cheap when it is awake already."""
        if at:
            if self.sleeper is not None:  # else it sets its timer before it sleeps
                self.set_timer(at, self.sleeper.get_loop())
            return
        self.woken = True
        sleeper = self.sleeper
        if sleeper is not None and not sleeper.done():
            sleeper.set_result(None)

    def set_timer(self, at: float, loop: asyncio.AbstractEventLoop) -> None:
        """Schedule a wakeup at ``at``, unless an earlier one is scheduled."""
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        # Kept here: for a time that has passed, uvloop returns a timer without ``when``.
        self._timer_at = at
        self._timer = loop.call_at(at, self._on_timer)

    def stop_timer(self) -> None:
        """Cancel the scheduled wakeup; only ``wake`` wakes the sender."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._timer = None
        self.wake()


class Sender:
    """Sends the batches of one producer.

    Tasks: ``run``, spawned by the producer's ``start`` and stopped by its ``close``;
    ``identify``, spawned whenever a producer id is needed; it ends when one is granted or refused;
    ``add-partitions`` while the coordinator of a transaction is sent partitions.
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
        transaction_requests: TransactionRequests | None = None,
    ) -> None:
        self.in_flight: dict[int, int] = {}
        """Requests in flight by node id."""
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
        self._transactions = accumulator.transactions
        self._transaction_requests = transaction_requests
        self._adding = False
        self._drained: asyncio.Future[None] | None = None
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
        self._network.add_ready_listener(self._node_ready)
        self._metadata.add_listener(self._metadata_changed)

    def check(self) -> None:
        """Raise if the configured codec can't be used."""
        self._compressor.check()

    async def run(self) -> None:
        """Send ready batches until cancelled."""
        if self._config.idempotence and self._transactions is None:
            self._request_identity()
        loop, wakeup = asyncio.get_running_loop(), self._wakeup
        try:
            while True:
                wakeup.woken = False
                self._step(self._clock.now())
                if wakeup.woken:
                    # The step itself caused more work; yield to the loop before doing it.
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
        """Wait for the compression threads to end."""
        await self._compressor.close()

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        """Schedule a wakeup when something is due; a wakeup that is too early only costs a step."""
        accumulator = self._accumulator
        due = accumulator.earliest_due()
        if accumulator.budget.waiting:
            expiry = self._admission.waiting_records.next_due()
            if expiry is not None and expiry < due:
                due = expiry
        # No listener is called when a node's back-off is over.
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
            nodes.sort()  # entries come and go: in dict order the rotation would not be fair
            first = self._turn % len(nodes)
            nodes = nodes[first:] + nodes[:first]
        if self._transactions is not None and self._transactions.drops_records:
            if not self._drop(self._transactions.reason):
                self.wake()
                return
        if self._drained is not None and self.is_drained:
            self._drained.set_result(None)
            self._drained = None
        left = _SENT_AT_ONCE  # of very many batches some are sent now, the others in the next step
        for node_id in nodes:
            left -= self._serve(node_id, now, left)
            if left <= 0:
                self._turn += 1
                self.wake()
                break

    def _drop(self, error: KafkaError) -> bool:
        """Fail what was not sent of a transaction that won't be committed, or must be sent again.

        What is in flight stays, as the broker may write it. False if there is so much else that
        some of it is left for the next step.
        """
        self._admission.appender.close()
        left = _EXPIRED_AT_ONCE
        for _ in self._admission.fail_waiting(error):
            left -= 1
            if left <= 0:
                return False
        for batch in self._accumulator.seal_all():
            if batch.state not in UNDER_WAY:
                left -= batch.outcome.count + _BATCH_COST
                self._response_handler.give_up(batch, error)
            if left <= 0:
                return False
        return True

    @property
    def is_drained(self) -> bool:
        """Whether no record is pending, no response awaited, and no partition being added."""
        return not (self._accumulator.busy or self._accumulator.budget.waiting or self._adding)

    async def drain(self) -> None:
        """Return once no record is pending, no response awaited, and no partition being added.

        Cancellation: leaves nothing behind.
        """
        while not self.is_drained:
            if self._drained is None:
                self._drained = asyncio.get_running_loop().create_future()
            self.wake()
            await asyncio.shield(self._drained)

    def _expire(self, now: float) -> None:
        """Fail batches past their deadline; if they are very many, some in the next step."""
        left = _EXPIRED_AT_ONCE
        for batch in self._accumulator.process_deadlines(now):
            left -= batch.records().record_count + _BATCH_COST
            self._response_handler.expire(batch)
            if left <= 0:
                self.wake()
                return

    # Requests.

    def _serve(self, node_id: int, now: float, most: int) -> int:
        """Send ready batches to one broker while it has capacity; return how many.

        It may be one request more than ``most``.
        """
        sent = 0
        while sent < most and (ready := self._accumulator.ready.get(node_id)):
            capacity = self._network.can_send(node_id, _PRODUCE)
            if capacity is not _NOW and not self._may_wait(node_id, capacity):
                break
            most_lingered = _LINGERED_AT_ONCE if self._config.linger else 0
            queues = list(ready)
            if self._lingered.get(node_id, -1) >= most_lingered:
                # They stay marked, and open batches fill, until the broker has responded.
                queues = [q for q in queues if _goes_on(q, now)]
            batches = self._collect(queues, node_id, now)
            if not batches:
                break
            self._ship(node_id, batches, now)
            sent += len(batches)
        return sent

    def _may_wait(self, node_id: int, capacity: Capacity) -> bool:
        """Handle a broker without capacity; return whether a request may wait for a connection.

        Only the first request may; the others stay in the queues.
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
        """Take one batch from each of ``queues``, as many as fit into a request."""
        accumulator = self._accumulator
        batches: list[ProducerBatch] = []
        left, records_left = self._config.max_request_size, _RECORDS_AT_ONCE
        for queue in queues:
            if len(batches) >= _SENT_AT_ONCE:
                break  # before the next one is sealed
            batch = self._next_batch(queue, node_id, now)
            if batch is None:
                continue
            size, count = batch.records().encoded_bytes, batch.outcome.count
            if batches and (size > left or count > records_left):
                break
            left -= size
            records_left -= count
            batches.append(batch)
            others_wait = queue.sent(batch)
            accumulator.unmark(queue)
            if others_wait:
                accumulator.mark(queue)  # at the end: other queues come first next time
        return batches

    def _next_batch(self, queue: PartitionQueue, node_id: int, now: float) -> ProducerBatch | None:
        """Return the batch that ``queue`` may send now; without one, unmark the queue."""
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
        """Handle the end of the compression of ``batch`` in a thread."""
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
            self._config.transactional_id,
            None if self._transactions is None else self._transactions.last_produce_version,
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
        # Bookkeeping comes after the send, while the request is in flight.
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
        # Without linger, the application may send the next record before the sender runs.
        ready = waiting or self._accumulator.ready or not self._config.linger
        if ready or self._drained is not None:
            self.wake()

    def _node_ready(self, node_id: int, lane: Lane) -> None:
        if lane is not _PRODUCE:
            return
        if self._acks == 0 and not self._network.is_connected(node_id, lane):
            # With acks=0, closing the connection is the only way to report a wrong leader.
            self._metadata.request_update()
        if self._accumulator.busy:
            self.wake()

    def _metadata_changed(self, view: Cluster) -> None:
        try:
            self._admission.metadata_changed(view)
            self._call_back()
        except Exception as error:  # must fail this client, but not the metadata updater's task
            self._core.spawn(_fail(error), "producer-callback")
        self.wake()

    def _call_back(self) -> None:
        """Fail requests that wait for a connection to a broker that leads their batches no more.

        They are sent to the new leader. A broker that hangs accepts connections, and would keep
        such requests waiting until the connection attempt times out.
        """
        network = self._network
        unconnected = {node for node in self.in_flight if not network.is_connected(node, _PRODUCE)}
        if not unconnected:
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
            if node_id in unconnected:
                network.fail_waiting(
                    node_id,
                    _PRODUCE,
                    BrokerUnreachable(
                        "others lead what waited for a connection to it, or some of it"
                    ),
                )

    # The producer id.

    def _identify_queue(self, queue: PartitionQueue) -> bool:
        """Give ``queue`` an identity to number batches with; False if it must wait for one."""
        if self._transactions is not None:
            return self._join_transaction(queue, self._transactions)
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

    def _join_transaction(self, queue: PartitionQueue, transactions: Transactions) -> bool:
        """Make ``queue`` a part of the open transaction; False if it must be added to it first."""
        sequences = queue.sequences
        if sequences is None or sequences.identity is not None:
            error = OutOfOrderSequenceNumber(
                f"the log of {queue.topic_partition} lost track of this producer, or was replaced",
                topic_partition=queue.topic_partition,
            )
            transactions.batch_failed(error, numbered=True)
            self.wake()
        elif transactions.join(queue):
            return True
        else:
            self._nameless[queue] = None
            if not self._adding:
                self._adding = True
                self._core.spawn(self._add_partitions(transactions), "add-partitions")
        self._accumulator.unmark(queue)
        return False

    async def _add_partitions(self, transactions: Transactions) -> None:
        """Add the partitions that records wait for, until there are no more of them."""
        requests = self._transaction_requests
        try:
            while requests is not None and not transactions.drops_records:
                partitions = transactions.next_partitions()
                if not partitions:
                    break
                with contextlib.suppress(RequestTimedOut):  # until there is a response
                    await requests.add_partitions(
                        self._identity.current, partitions, self._config.api_timeout
                    )
                    transactions.added(partitions)
                for queue in self._take_nameless():
                    self._accumulator.mark(queue)
                self.wake()
        except KafkaError as error:
            self._log.debug("partitions could not be added to a transaction: %s", error)
        finally:
            self._adding = False
            self._take_nameless()
            self.wake()

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
        """Request a producer id until one is granted or refused; then serve waiting queues."""
        if self._refusals:
            # New records, each of which asks for an id again, must not cause a burst of requests.
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
                # A timeout; the batches that wait for the id have deadlines of their own.
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
        """Fail the batches that wait for a refused producer id; later ones request it again."""
        self._identity.refused(error)
        for queue in self._take_nameless():
            self._refuse_queue(queue, error)
        self.wake()

    def _take_nameless(self) -> list[PartitionQueue]:
        waiting, self._nameless = self._nameless, {}
        return [queue for queue in waiting if not queue.idle]


def _granted(response: InitProducerIdResponse) -> ProducerIdAndEpoch:
    """Return the identity in ``response``. Raises ProtocolError if it is invalid."""
    identity = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
    if min(identity) < 0:
        raise ProtocolError(f"InitProducerId gave {identity}", struct="InitProducerIdResponse")
    return identity


async def _fail(error: Exception) -> None:
    raise error
