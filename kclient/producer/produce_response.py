"""What follows for batches from a Produce response, or from none: the producer's retry rules.

The sender hands every outcome of a request to ``ProduceResponseHandler``, and every batch past its
deadline. ``action_for`` decides what an error means for a batch, the only place that does; the
handler carries it out on queues, deliveries, memory, flushes, counters and hooks, and passes on to
metadata what brokers said about leaders. The flags of the error table are facts; the rules about
order are in ``partition_queue``. Sans-IO.
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
        # With acks=all the leader has appended already when it loses the partition meanwhile.
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
logger = logging.getLogger("kclient.producer")
_SOON = Backoff(0.01, 0.16)
"""Waits for a broker to learn that it leads."""
_NOBODY_ASKED, _TOLD_SOON = 4, 8
"""Attempts after which others are asked, since a broker that doesn't know it may be right, and
after which there is no hurry any more."""
_code_of = itemgetter(0)


class ResponseAction(enum.Enum):
    """What to do about a batch after an answer."""

    COMPLETE = "the log has it"
    RETRY = "send the same bytes with the same numbers again"
    SPLIT = "send it again in smaller batches, within its numbers"
    BUMP_EPOCH = "the numbering is broken: renumber under a new epoch, then send again"
    NEW_PRODUCER_ID = "another owner has our producer id: the same under a new id"
    REJECT = "give it up"


def action_for(
    code: int, record_count: int, *, first: bool, numbered: bool, log_start_known: bool
) -> ResponseAction:
    """The verdict on a batch answered with ``code``.

    Args:
        code: Error code of the partition in the answer.
        record_count: Records of the batch.
        first: Everything sent before it in its partition is settled, or the numbering is broken
            already.
        numbered: It carries sequence numbers.
        log_start_known: The answer told where the partition's log starts.
    """
    if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        return ResponseAction.COMPLETE
    if code in TOO_LARGE:
        return ResponseAction.SPLIT if record_count > 1 else ResponseAction.REJECT
    if numbered and code in _NUMBERING:
        if not first:
            return ResponseAction.RETRY  # it only stumbled over what is missing before it
        if code == ErrorCode.UNKNOWN_PRODUCER_ID and not log_start_known:
            return ResponseAction.RETRY
        return ResponseAction.NEW_PRODUCER_ID if code in _DISOWNED else ResponseAction.BUMP_EPOCH
    info = TABLE.get(code)
    return ResponseAction.RETRY if info is not None and info.retriable else ResponseAction.REJECT


def may_be_written(code: int, *, acks_all: bool) -> bool:
    """An attempt answered with ``code`` may have left the batch in the log."""
    if code not in TABLE or code in _MAYBE_WRITTEN:
        return True
    return acks_all and code in _MAYBE_WRITTEN_WHILE_REPLICATING


def wants_metadata(code: int) -> bool:
    """The answer says that our view of the cluster is old."""
    info = TABLE.get(code)
    return info is not None and info.refresh_metadata


def doubts_connection(code: int) -> bool:
    """Bytes came to the broker otherwise than we wrote them: the same ones may pass elsewhere."""
    return code in _DAMAGED


class ProduceResponseHandler:
    """Settles the batches of one producer."""

    def __init__(
        self,
        config: ProducerConfig,
        accumulator: Accumulator,
        identity: ProducerIdentity,
        core: ClientCore,
    ) -> None:
        self._accumulator = accumulator
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
        """The latest failure of a batch or request, for ``health()``; None once the partition that
        it concerned has had a batch delivered."""
        self.last_error_at = 0.0
        self.no_identity: Exception | None = None
        """Why the latest request for a producer id failed; None after one that didn't."""
        self.largest = 0
        """Records of the largest batch so far."""
        self._last_failed: PartitionQueue | None = None
        self._batches = self._records = self._bytes = 0  # delivered; there may be very many
        self._counters.gauge("producer.batches_delivered", lambda: self._batches)
        self._counters.gauge("producer.records_delivered", lambda: self._records)
        self._counters.gauge("producer.bytes_delivered", lambda: self._bytes)

    def note(self, error: KafkaError, now: float, queue: PartitionQueue | None = None) -> None:
        """Remember ``error`` for ``health()``, until ``queue`` (or any) has a success."""
        self.last_error, self.last_error_at, self._last_failed = error, now, queue

    # A request came back.

    def response_received(
        self,
        request: BatchRequest,
        response: PlainProduceResponse | ProduceResponse | None,
        now: float,
    ) -> bool:
        """The broker answered, or the request is written and no answer is expected.

        Returns:
            Whether the connection that it went over is to be made anew.
        """
        answers = request.answers(response)
        errors = set(map(_code_of, answers.values()))
        errors.discard(0)
        if errors:
            self._take_hints(answers, response)
        for batch in request.batches:
            batch.request = None
            answer = answers.get(batch)
            if answer is None:
                self._not_sent(batch, request.node_id, now)
            elif answer.code == 0:
                self._written(batch, answer, now)
            else:
                self._settle(batch, answer, request.node_id, now)
        return any(map(doubts_connection, errors))

    def request_failed(self, request: BatchRequest, error: KafkaError, now: float) -> None:
        """The request failed as a whole."""
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
        self, batch: ProducerBatch, answer: PartitionResponse, node_id: int, now: float
    ) -> None:
        queue = batch.queue
        verdict = action_for(
            answer.code,
            batch.record_count,
            first=queue.is_first(batch) or queue.is_broken(),
            numbered=batch.sequence >= 0,
            log_start_known=answer.log_start_offset >= 0,
        )
        if verdict is ResponseAction.COMPLETE:
            self._written(batch, answer, now)
            return
        if may_be_written(answer.code, acks_all=self._acks_all):
            batch.maybe_written = True
        error = self._error(batch, answer, node_id)
        batch.last_error = error
        self.note(error, now, queue)
        moved = _has_moved(batch, node_id)  # it was sent before that was known
        soon = not moved and self._will_lead(batch, answer)
        sure = moved or (soon and batch.attempts_here <= _NOBODY_ASKED)
        if wants_metadata(answer.code) and not sure:
            self._metadata.request_update(queue.topic)
        if verdict is ResponseAction.REJECT:
            queue.rejected(batch)
            self._failed(batch, error, self._record_errors(batch, answer))
            return
        if verdict is ResponseAction.SPLIT and batch.state is BatchState.IN_FLIGHT:
            self._split(batch)
            return
        if verdict in (ResponseAction.BUMP_EPOCH, ResponseAction.NEW_PRODUCER_ID):
            self._break(batch, verdict, answer.code)
        self._retry(batch, now + self._delay(batch, node_id, _SOON if soon else None), error)

    def _will_lead(self, batch: ProducerBatch, answer: PartitionResponse) -> bool:
        """The broker was just elected, as others told us (KIP-951), and doesn't know that yet."""
        if answer.hint is None or batch.attempts_here > _TOLD_SOON:
            return False
        queue = batch.queue
        known = self._metadata.view.leader_epoch(queue.topic, queue.index)
        return 0 <= answer.hint.leader_epoch < known

    def _written(self, batch: ProducerBatch, answer: PartitionResponse, now: float) -> None:
        base = -1 if answer.code else answer.base_offset
        batch.queue.acknowledged(batch)
        outcome = batch.outcome
        if not outcome.done:
            outcome.acknowledge(base, answer.log_append_time)
            self.largest = max(self.largest, outcome.count)
            for wait in batch.flushes or ():
                wait.settled(outcome.count)
        if self._last_failed is None or self._last_failed is batch.queue:
            self.last_error = None
        self._batches += 1
        self._records += outcome.count
        self._bytes += batch.records().encoded_bytes
        if self._hooks.active:
            from kclient.events import BatchDelivered

            self._hooks.emit(
                BatchDelivered(
                    batch.queue.topic_partition,
                    base,
                    outcome.count,
                    batch.records().encoded_bytes,
                    batch.attempts,
                    now - batch.created,
                )
            )
        self._accumulator.release(batch)

    def _retry(self, batch: ProducerBatch, at: float, error: KafkaError) -> None:
        batch.queue.retry(batch, at)
        if batch.state is BatchState.FAILED:
            self._accumulator.release(batch)  # its deliveries failed when its time was over
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
        """The request never got as far as having ``batch`` in it."""
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

    def _break(self, batch: ProducerBatch, verdict: ResponseAction, code: int) -> None:
        queue = batch.queue
        # Only where numbers before this batch were given up does the refusal tell of a gap.
        sequences = queue.sequences
        behind_gap = sequences is not None and batch.sequence > sequences.acked_end
        gap_proven = behind_gap and code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        known_before = queue.is_broken()
        if verdict is ResponseAction.NEW_PRODUCER_ID and queue.sequences is not None:
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
        """Seconds until the next attempt behind one with a broker."""
        if _has_moved(batch, node_id):
            return 0.0
        return (backoff or self._backoff).delay(max(batch.attempts_here - 1, 0), self._rng)

    # Time is over, or the producer closes.

    def expire(self, batch: ProducerBatch) -> None:
        """``delivery_timeout`` passed for ``batch``; one under way is still accounted for."""
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
        """Fail ``batch`` with ``error``, wherever it is; the producer is at its end."""
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
        """Fail what can't be renumbered without the risk of writing it twice or out of order."""
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
        """Tell deliveries and flushes; the batch itself may still await its answer."""
        outcome = batch.outcome
        if not outcome.done:
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

    # Words and news.

    def _obstacle(self, batch: ProducerBatch) -> tuple[str, Exception | None]:
        """What ``batch`` waited for at the end, and the error behind that, if there is one."""
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

    def _error(self, batch: ProducerBatch, answer: PartitionResponse, node_id: int) -> KafkaError:
        where = batch.queue.topic_partition
        said = answer.message
        if answer.code in TOO_LARGE:
            said = (
                f"the batch has {batch.records().encoded_bytes:,} bytes in "
                f"{batch.record_count} records" + (f"; {answer.message}" if answer.message else "")
            )
        return broker_error(
            answer.code,
            f"Produce to {where} on broker {node_id} failed",
            broker_message=said,
            topic_partition=where,
            node_id=node_id,
            maybe_written=batch.maybe_written,
        )

    def _record_errors(
        self, batch: ProducerBatch, answer: PartitionResponse
    ) -> dict[int, KafkaError] | None:
        """Own errors for the records that the broker named (KIP-467); the rest gets told so."""
        if not answer.record_errors:
            return None
        where, doubt = batch.queue.topic_partition, batch.maybe_written
        whole = "an attempt before may have written it" if doubt else "nothing of it was written"
        named = dict(answer.record_errors)
        errors: dict[int, KafkaError] = {}
        for index in range(batch.record_count):
            if index in named:
                said = named[index] or answer.message
            else:
                said = f"{len(named)} other records of the same batch were refused, and {whole}"
                said += "" if doubt else ": send this one again"
            errors[index] = broker_error(
                answer.code,
                f"record {index} of a batch for {where} was refused",
                broker_message=said,
                topic_partition=where,
                maybe_written=doubt,
            )
        return errors

    def _take_hints(
        self,
        answers: dict[ProducerBatch, PartitionResponse],
        response: PlainProduceResponse | ProduceResponse | None,
    ) -> None:
        """Use what the answer tells about new leaders (KIP-951)."""
        hinted = [(b, a.hint) for b, a in answers.items() if a.hint is not None and a.code]
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
    """Another broker than ``node_id`` leads its partition, as far as is known now."""
    return batch.queue.leader not in (node_id, NO_LEADER)
