"""Handling of Produce responses and failed requests: the producer's retry rules.

The sender passes every outcome of a request to ``ProduceResponseHandler``, and every batch past its
deadline. ``action_for`` alone decides what an error means for a batch; the handler applies that to
queues, deliveries, memory, flushes, counters and hooks, and forwards leader hints from brokers to
metadata. The flags of the error table are facts; the rules about order are in ``partition_queue``.
Sans-IO.
"""

from __future__ import annotations

import enum
import logging
from operator import itemgetter
from typing import TYPE_CHECKING

from kclient.backoff import Backoff
from kclient.broker_errors import OutOfOrderSequenceNumber
from kclient.cluster.metadata import Endpoint, LeaderHint
from kclient.error_codes import TABLE, ErrorCode
from kclient.errors import (
    BrokerUnreachable,
    DeliveryTimedOut,
    KafkaError,
    NoCommonVersion,
    broker_error,
)
from kclient.producer.accumulator import NO_LEADER
from kclient.producer.batch_states import BatchState
from kclient.protocol.messages.produce import ProduceResponse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kclient.cluster.core import ClientCore
    from kclient.config import ProducerConfig
    from kclient.producer._compiled import PartitionQueue, ProducerBatch
    from kclient.producer.accumulator import Accumulator
    from kclient.producer.idempotence import ProducerIdentity
    from kclient.producer.produce_request import (
        BatchRequest,
        PartitionResponse,
        PlainProduceResponse,
    )

TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_DAMAGED = frozenset({ErrorCode.CORRUPT_MESSAGE})
_DISOWNED = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.PRODUCER_FENCED,
    }
)
_NUMBERING = _DISOWNED | {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID}
_MAYBE_WRITTEN = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
_MAYBE_WRITTEN_WHILE_REPLICATING = frozenset(
    {
        # With acks=all the leader may lose the partition after it has appended the batch.
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
logger = logging.getLogger("kclient.producer")
_SOON = Backoff(0.01, 0.16)
"""Back-off while a newly elected leader doesn't know of its election yet."""
_NOBODY_ASKED, _REPORTED_SOON = 4, 8
"""Attempts after which metadata is refreshed, since a broker that denies to be the leader may be
right, and after which the normal back-off applies."""
_code_of = itemgetter(0)


class ResponseAction(enum.Enum):
    """What to do with a batch after a response."""

    COMPLETE = "the log has it"
    RETRY = "send the same bytes with the same numbers again"
    SPLIT = "send it again in smaller batches, within its numbers"
    BUMP_EPOCH = "the numbering is broken: renumber under a new epoch, then send again"
    NEW_PRODUCER_ID = "another owner has our producer id: the same under a new id"
    REJECT = "fail it"


def action_for(
    code: int,
    record_count: int,
    *,
    first: bool,
    numbered: bool,
    log_start_known: bool,
    transactional: bool = False,
) -> ResponseAction:
    """Return the action for a batch whose response has ``code``.

    Args:
        code: Error code of the partition in the response.
        record_count: Records of the batch.
        first: Everything sent before it in its partition is settled, or the numbering is broken
            already.
        numbered: It carries sequence numbers.
        log_start_known: The response has the start offset of the partition's log.
        transactional: It is part of a transaction, which must be aborted before its numbers can
            start over.
    """
    if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        return ResponseAction.COMPLETE
    if code in TOO_LARGE:
        return ResponseAction.SPLIT if record_count > 1 else ResponseAction.REJECT
    if numbered and code in _NUMBERING:
        if not first:
            return ResponseAction.RETRY  # only because a batch before it is missing in the log
        if code == ErrorCode.UNKNOWN_PRODUCER_ID and not log_start_known:
            return ResponseAction.RETRY
        if transactional:
            return ResponseAction.REJECT
        return ResponseAction.NEW_PRODUCER_ID if code in _DISOWNED else ResponseAction.BUMP_EPOCH
    info = TABLE.get(code)
    return ResponseAction.RETRY if info is not None and info.retriable else ResponseAction.REJECT


def may_be_written(code: int, *, acks_all: bool) -> bool:
    """Return whether the batch may be in the log after an attempt that got ``code``."""
    if code not in TABLE or code in _MAYBE_WRITTEN:
        return True
    return acks_all and code in _MAYBE_WRITTEN_WHILE_REPLICATING


def wants_metadata(code: int) -> bool:
    """Return whether ``code`` means that our view of the cluster is stale."""
    info = TABLE.get(code)
    return info is not None and info.refresh_metadata


def doubts_connection(code: int) -> bool:
    """Return whether ``code`` means damage on the way to the broker: use another connection."""
    return code in _DAMAGED


class ProduceResponseHandler:
    """Completes, retries or fails the batches of one producer."""

    def __init__(
        self,
        config: ProducerConfig,
        accumulator: Accumulator,
        identity: ProducerIdentity,
        core: ClientCore,
    ) -> None:
        self._accumulator = accumulator
        self._transactions = accumulator.transactions
        self.identity = identity
        self._metadata = core.metadata
        self._network = core.network
        self._hooks = core.hooks
        self._log = core.hooks.log(logger)
        self._counters = core.counters
        self._rng = core.rng
        self._backoff = Backoff(config.retry_backoff, config.retry_backoff_max)
        self._delivery_timeout = config.delivery_timeout
        self._acks_all = config.acks == "all"
        self.last_error: KafkaError | None = None
        """The latest failure of a batch or request, for ``health()``; None once a batch of the
        partition concerned was delivered."""
        self.last_error_at = 0.0
        self.no_identity: Exception | None = None
        """Why the latest request for a producer id failed; None after a successful one."""
        self.largest = 0
        """Records of the largest batch so far."""
        self._last_failed: PartitionQueue | None = None
        self._batches = self._records = self._bytes = 0  # delivered; ints, as there may be many
        self._counters.gauge("producer.batches_delivered", lambda: self._batches)
        self._counters.gauge("producer.records_delivered", lambda: self._records)
        self._counters.gauge("producer.bytes_delivered", lambda: self._bytes)

    def note(self, error: KafkaError, now: float, queue: PartitionQueue | None = None) -> None:
        """Keep ``error`` for ``health()`` until a batch of ``queue`` (or any) is delivered."""
        self.last_error, self.last_error_at, self._last_failed = error, now, queue

    # Completed requests.

    def response_received(
        self,
        request: BatchRequest,
        response: PlainProduceResponse | ProduceResponse | None,
        now: float,
    ) -> bool:
        """Handle a response, or None once a request that expects no response is written.

        Returns:
            Whether the connection that it went over should be replaced.
        """
        responses = request.answers(response)
        errors = set(map(_code_of, responses.values()))
        errors.discard(0)
        if errors:
            self._take_hints(responses, response)
        for batch in request.batches:
            batch.request = None
            partition_response = responses.get(batch)
            if partition_response is None:
                self._not_sent(batch, request.node_id, now)
            elif partition_response.code == 0:
                self._written(batch, partition_response, now)
            else:
                self._settle(batch, partition_response, request.node_id, now)
        return any(map(doubts_connection, errors))

    def request_failed(self, request: BatchRequest, error: KafkaError, now: float) -> None:
        """Handle the failure of a whole request."""
        self.note(error, now, request.batches[0].queue if request.batches else None)
        unsent = not request.encoded or isinstance(error, BrokerUnreachable)
        for batch in request.batches:
            batch.request = None
            batch.last_error = error
            if unsent or not request.carries(batch):
                fatal = isinstance(error, NoCommonVersion)
                self._not_sent(batch, request.node_id, now, fatal=fatal)
            else:
                batch.maybe_written = True
                self._retry(batch, now + self._delay(batch, request.node_id), error)

    def _settle(
        self, batch: ProducerBatch, response: PartitionResponse, node_id: int, now: float
    ) -> None:
        queue = batch.queue
        action = action_for(
            response.code,
            batch.record_count,
            first=queue.is_first(batch) or queue.is_broken(),
            numbered=batch.sequence >= 0,
            log_start_known=response.log_start_offset >= 0,
            transactional=self._transactions is not None,
        )
        if action is ResponseAction.COMPLETE:
            self._written(batch, response, now)
            return
        if may_be_written(response.code, acks_all=self._acks_all):
            batch.maybe_written = True
        error = self._error(batch, response, node_id)
        batch.last_error = error
        self.note(error, now, queue)
        moved = _has_moved(batch, node_id)  # the leader changed after the batch was sent
        soon = not moved and self._will_lead(batch, response)
        sure = moved or (soon and batch.attempts_here <= _NOBODY_ASKED)
        if wants_metadata(response.code) and not sure:
            self._metadata.request_update(queue.topic)
        if action is ResponseAction.REJECT:
            queue.rejected(batch)
            self._failed(batch, error, self._record_errors(batch, response))
            return
        if action is ResponseAction.SPLIT and batch.state is BatchState.IN_FLIGHT:
            self._split(batch)
            return
        if action in (ResponseAction.BUMP_EPOCH, ResponseAction.NEW_PRODUCER_ID):
            self._break(batch, action, response.code)
        self._retry(batch, now + self._delay(batch, node_id, _SOON if soon else None), error)

    def _will_lead(self, batch: ProducerBatch, response: PartitionResponse) -> bool:
        """Return whether the broker was just elected (KIP-951 hints) and doesn't know it yet."""
        if response.hint is None or batch.attempts_here > _REPORTED_SOON:
            return False
        queue = batch.queue
        known = self._metadata.view.leader_epoch(queue.topic, queue.index)
        return 0 <= response.hint.leader_epoch < known

    def _written(self, batch: ProducerBatch, response: PartitionResponse, now: float) -> None:
        base = -1 if response.code else response.base_offset
        batch.queue.acknowledged(batch)
        outcome = batch.outcome
        if not outcome.done:
            outcome.acknowledge(base, response.log_append_time)
            self.largest = max(self.largest, outcome.count)
            for wait in batch.flushes or ():
                wait.settled(outcome.count)
        if self._last_failed is None or self._last_failed is batch.queue:
            self.last_error = None
        self._batches += 1
        self._records += outcome.count
        size = batch.records().encoded_bytes
        self._bytes += size
        if self._hooks.active:
            from kclient.events import BatchDelivered

            self._hooks.emit(
                BatchDelivered(
                    batch.queue.topic_partition,
                    base,
                    outcome.count,
                    size,
                    batch.attempts,
                    now - batch.created,
                )
            )
        self._accumulator.release(batch)

    def _retry(self, batch: ProducerBatch, at: float, error: KafkaError) -> None:
        batch.queue.retry(batch, at)
        if batch.state is BatchState.FAILED:
            self._accumulator.release(batch)  # its deliveries failed when it expired
            return
        self._counters.add("producer.retries")
        if self._hooks.active:
            from kclient.events import BatchRetried

            self._hooks.emit(
                BatchRetried(
                    batch.queue.topic_partition,
                    batch.record_count,
                    batch.attempts,
                    type(error).__name__,
                )
            )
        self._accumulator.mark(batch.queue)

    def _not_sent(
        self, batch: ProducerBatch, node_id: int, now: float, *, fatal: bool = False
    ) -> None:
        """Handle a request that failed before ``batch`` was encoded into it."""
        error = batch.last_error
        if fatal and error is not None and batch.state is BatchState.IN_FLIGHT:
            batch.queue.rejected(batch)
            self._failed(batch, error)
            return
        self._retry(
            batch,
            now + self._delay(batch, node_id),
            error or BrokerUnreachable("the request was not sent"),
        )

    def _split(self, batch: ProducerBatch) -> None:
        parts = batch.queue.split(batch)
        self._counters.add("producer.splits")
        self._log.info(
            "batch too large for its topic, split: partition=%s records=%d parts=%d",
            batch.queue.topic_partition,
            batch.record_count,
            len(parts),
        )
        self._accumulator.replaced(batch, parts)

    def _break(self, batch: ProducerBatch, action: ResponseAction, code: int) -> None:
        queue = batch.queue
        # The error proves a gap only if numbers before this batch were skipped.
        sequences = queue.sequences
        behind_gap = sequences is not None and batch.sequence > sequences.acked_end
        gap_proven = behind_gap and code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        known_before = queue.is_broken()
        if action is ResponseAction.NEW_PRODUCER_ID and queue.sequences is not None:
            previous = queue.sequences.identity
            if previous is not None:
                self.identity.fenced(previous)
        queue.lost_numbering(gap_proven=gap_proven)
        if gap_proven:
            queue.refused_behind_gap(batch)
        if known_before:
            return
        self._counters.add("producer.numberings_lost")
        self._log.warning(
            "sequence numbers of a partition start over: partition=%s reason=%s",
            queue.topic_partition,
            batch.last_error,
        )

    def _delay(self, batch: ProducerBatch, node_id: int, backoff: Backoff | None = None) -> float:
        """Return the seconds until the next attempt after one at broker ``node_id``."""
        if _has_moved(batch, node_id):
            return 0.0
        return (backoff or self._backoff).delay(max(batch.attempts_here - 1, 0), self._rng)

    # Expiry and close.

    def expire(self, batch: ProducerBatch) -> None:
        """Fail ``batch``, whose ``delivery_timeout`` passed; one in flight stays accounted for."""
        request = batch.request
        if request is not None and request.carries(batch):
            batch.maybe_written = True
        why, cause = self._obstacle(batch)
        attempts = f"{batch.attempts} attempt{'' if batch.attempts == 1 else 's'}"
        error = DeliveryTimedOut(
            f"{batch.queue.topic_partition}: not acknowledged within "
            f"delivery_timeout={self._delivery_timeout:g} s, {attempts}; {why}",
            topic_partition=batch.queue.topic_partition,
            maybe_written=batch.maybe_written,
        )
        error.__cause__ = cause
        self.note(error, batch.deadline, batch.queue)
        batch.queue.expired(batch)
        self._failed(batch, error)

    def give_up(self, batch: ProducerBatch, error: KafkaError) -> None:
        """Fail ``batch`` with ``error`` in any state; for close and fatal errors."""
        queue, (why, cause) = batch.queue, self._obstacle(batch)
        if batch is queue.open:
            queue.seal_open()
        request = batch.request
        if request is not None and request.carries(batch):
            batch.maybe_written = True
        if batch.state is BatchState.IN_FLIGHT:
            queue.expired(batch)
        else:
            queue.rejected(batch)
        own = type(error)(
            f"{queue.topic_partition}: {error.message}; {why}",
            topic_partition=queue.topic_partition,
            hint=error.hint,
            maybe_written=batch.maybe_written,
        )
        own.__cause__ = error.__cause__ if error.__cause__ is not None else cause
        self._failed(batch, own)

    def drop_doubtful(self, queue: PartitionQueue) -> None:
        """Fail batches that can't be renumbered without the risk of duplicates or reordering."""
        for batch in queue.doubtful():
            if batch.maybe_written:
                error = OutOfOrderSequenceNumber(
                    "the broker lost track of this producer while an answer was missing, so "
                    "sending this batch again could write it twice",
                    hint="see whether it is in the topic before you send it again",
                )
            else:
                error = OutOfOrderSequenceNumber(
                    "the broker lost track of this producer, and took batches that were sent "
                    "behind it, or may have: sending this one again could write it out of order",
                    hint="send its records again if their order doesn't matter",
                )
            if batch.outcome.done:
                queue.rejected(batch)
                self._accumulator.release(batch)
            else:
                self.give_up(batch, error)

    # Deliveries, memory, flushes.

    def _failed(
        self,
        batch: ProducerBatch,
        error: KafkaError,
        record_errors: dict[int, KafkaError] | None = None,
    ) -> None:
        """Fail deliveries and notify flushes; the batch itself may still await its response."""
        outcome = batch.outcome
        if not outcome.done:
            if self._transactions is not None:
                self._transactions.batch_failed(error, numbered=batch.sequence >= 0)
            error.maybe_written = batch.maybe_written
            self.largest = max(self.largest, outcome.count)
            outcome.reported = any(wait.listening for wait in batch.flushes or ())
            for wait in batch.flushes or ():
                wait.failed(outcome.count, error)
            batch.flushes = None
            outcome.fail(error, record_errors)
            self._counters.add("producer.batches_failed")
            self._counters.add("producer.records_failed", outcome.count)
            if self._hooks.active:
                from kclient.events import BatchFailed

                self._hooks.emit(
                    BatchFailed(
                        batch.queue.topic_partition,
                        outcome.count,
                        batch.attempts,
                        type(error).__name__,
                        batch.maybe_written,
                    )
                )
        if batch.state is BatchState.FAILED:
            self._accumulator.release(batch)

    # Error texts and leader hints.

    def _obstacle(self, batch: ProducerBatch) -> tuple[str, Exception | None]:
        """Describe what ``batch`` waited for last, and return the error behind that, if any."""
        if batch.last_error is not None:
            return f"last problem: {batch.last_error}", batch.last_error
        queue, request = batch.queue, batch.request
        if request is not None and request.encoded:
            return f"broker {request.node_id} has not answered", None
        if queue.leader == NO_LEADER:
            return "the partition has no leader", None
        if request is None:
            if batch.compressing:
                return "it is still being compressed", None
            row = queue.outstanding or queue.sealed
            if row and row[0] is not batch:
                what, error = self._obstacle(row[0])
                return f"it waits behind an earlier batch of its partition ({what})", error
            if queue.needs_identity():
                error = self.no_identity
                return "the producer waits for a producer id" + _because(error), error
        node_id = queue.leader if request is None else request.node_id
        error = self._network.connection_error(node_id)
        if error is not None:
            return f"broker {node_id} can't be used{_because(error)}", error
        return f"it waits for its turn at broker {node_id}", None

    def _error(self, batch: ProducerBatch, response: PartitionResponse, node_id: int) -> KafkaError:
        where = batch.queue.topic_partition
        message = response.message
        if response.code in TOO_LARGE:
            message = (
                f"the batch has {batch.records().encoded_bytes:,} bytes in "
                f"{batch.record_count} records"
                + (f"; {response.message}" if response.message else "")
            )
        return broker_error(
            response.code,
            f"Produce to {where} on broker {node_id} failed",
            broker_message=message,
            topic_partition=where,
            node_id=node_id,
            maybe_written=batch.maybe_written,
        )

    def _record_errors(
        self, batch: ProducerBatch, response: PartitionResponse
    ) -> dict[int, KafkaError] | None:
        """Return an error per record where the broker named invalid ones (KIP-467), else None."""
        if not response.record_errors:
            return None
        where, doubt = batch.queue.topic_partition, batch.maybe_written
        whole = "an attempt before may have written it" if doubt else "nothing of it was written"
        named = dict(response.record_errors)
        errors: dict[int, KafkaError] = {}
        for index in range(batch.record_count):
            if index in named:
                message = named[index] or response.message
            else:
                message = f"{len(named)} other records of the same batch were refused, and {whole}"
                message += "" if doubt else ": send this one again"
            errors[index] = broker_error(
                response.code,
                f"record {index} of a batch for {where} was refused",
                broker_message=message,
                topic_partition=where,
                maybe_written=doubt,
            )
        return errors

    def _take_hints(
        self,
        responses: dict[ProducerBatch, PartitionResponse],
        response: PlainProduceResponse | ProduceResponse | None,
    ) -> None:
        """Apply the response's hints about new leaders (KIP-951)."""
        hinted = [(b, r.hint) for b, r in responses.items() if r.hint is not None and r.code]
        if not hinted or not isinstance(response, ProduceResponse):
            return
        endpoints: Iterable[Endpoint] = response.node_endpoints or ()
        self._metadata.apply_leader_hints(
            [
                LeaderHint(b.queue.topic, b.queue.index, h.leader_id, h.leader_epoch)
                for b, h in hinted
            ],
            endpoints,
        )


def _because(error: Exception | None) -> str:
    return "" if error is None else f": {error}"


def _has_moved(batch: ProducerBatch, node_id: int) -> bool:
    """Return whether another broker than ``node_id`` is now known to lead its partition."""
    return batch.queue.leader not in (node_id, NO_LEADER)
