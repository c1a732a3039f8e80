"""``process``: read records, handle them, and write what follows from them, exactly once.

The loop over a consumer and a transactional producer, with the parts that are easily wrong: which
offsets belong to a transaction, what is fenced by which generation, and where to read on after an
abort. It uses the public interface of both and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from kclient.broker_errors import (
    IllegalGeneration,
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    RebalanceInProgress,
    TransactionAbortable,
    UnknownMemberId,
    UnknownProducerId,
)
from kclient.durations import call_timeout
from kclient.errors import (
    CommitFailed,
    CommitOutcomeUnknown,
    DeliveryTimedOut,
    InvalidArgument,
    InvalidConfig,
    KafkaError,
    TransactionAborted,
    WrongTransactionState,
    fresh,
)
from kclient.producer import Delivery
from kclient.types import GroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kclient.consumer import Consumer, ConsumerRecord
    from kclient.producer import Producer
    from kclient.producer.transaction_manager import Transaction

logger = logging.getLogger("kclient.process")

K = TypeVar("K")
V = TypeVar("V")
Handler: TypeAlias = (
    "Callable[[ConsumerRecord[K, V], Transaction[Any, Any]], Awaitable[object] | object]"
)
"""Handles one record: sends what follows from it by ``txn.send``; a plain or coroutine function."""

_POLL = 1.0
_PATIENCE = 5.0
"""Seconds that a failed or cancelled step takes to abort, and again to go back."""
_UNCOMMITTED: WeakKeyDictionary[Consumer[Any, Any], dict[TopicPartition, int]] = WeakKeyDictionary()
"""By consumer, where the records begin that were returned and are not committed."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_OPEN = ("IN_TRANSACTION", "PREPARED", "ABORTABLE_ERROR")
"""States of a transaction that ``process`` hasn't begun: what it leaves behind is ending."""
_MAY_PASS = (
    *(CommitFailed, IllegalGeneration, RebalanceInProgress, UnknownMemberId),  # partitions moved
    *(CommitOutcomeUnknown, DeliveryTimedOut),
    *(InvalidProducerEpoch, InvalidTxnState, OutOfOrderSequenceNumber, TransactionAbortable),
    UnknownProducerId,
)
"""Errors that aren't retriable as such, but end with their transaction."""
_TOO_LONG = (
    "one call of the handler took longer than transaction_timeout: raise that, or do less in a call"
)


async def process(
    consumer: Consumer[K, V],
    producer: Producer[Any, Any],
    handler: Handler[K, V],
    *,
    max_records: int = 1000,
    max_interval: float = 0.1,
) -> None:
    """Handle the records of ``consumer`` in transactions of ``producer``, until it is cancelled.

    Once, and together with the offsets of the records that it follows from: all that the handler
    sends by ``txn``, for readers with ``isolation_level="read_committed"``. At least once: the
    handler's calls, and whatever else it does, such as requests to other systems; after an abort or
    a crash it gets the same records again. A transaction is aborted if a part of it fails, or if
    partitions moved to another member meanwhile; then the consumer goes back to the committed
    offsets, and the loop goes on.

    Args:
        consumer: In a group, subscribed, with ``enable_auto_commit=False``. Nothing else may poll.
        producer: With a ``transactional_id`` that no other running producer has.
        handler: Called with each record and the transaction, one record after the other. Deliveries
            need not be awaited: the commit does that.
        max_records: Most records of one transaction. One whose handlers took half of the producer's
            ``transaction_timeout`` is committed, too, and the other records are read again.
        max_interval: Seconds for which records are collected, from the first one on. Longer ones
            cost less, as each transaction takes a few round trips; readers see results later.

    Raises:
        InvalidArgument, InvalidConfig: An argument, or one of the clients, can't be used for this;
            the text says what to set.
        WrongTransactionState: ``producer`` has an open transaction that isn't ``process``'s own.
        ProducerFenced, FencedInstanceId, ...: Another process has taken over.
        InvalidProducerEpoch, TransactionAborted, ...: One call of ``handler`` took longer than
            ``transaction_timeout``, after which the coordinator aborts; the hint names that.
        KafkaError: What trying again won't help.
        Exception: What ``handler`` raised; its transaction is aborted, and the consumer is back.

    Cancellation: an open transaction is aborted, and the consumer goes back, for 5 s each at most.
    The next call of ``process`` with this consumer does what is left of that, and finds out how a
    commit ended that was begun.

    Example::

        async def handle(record, txn):
            txn.send("cancelled", record.value, key=record.key)

        await kclient.process(consumer, producer, handle)
    """
    if not callable(handler):
        raise InvalidArgument(f"handler={handler!r} can't be used: allowed is a callable")
    if not isinstance(max_records, int) or max_records < 1:
        raise InvalidArgument(
            f"max_records={max_records!r} can't be used: allowed is an int from 1"
        )
    if not hasattr(consumer, "group_metadata") or not hasattr(producer, "transaction"):
        raise InvalidArgument(
            f"process({type(consumer).__name__}, {type(producer).__name__}) can't be used: allowed "
            "is a consumer, then a producer"
        )
    if producer.config.transactional_id is None:
        raise InvalidConfig(
            "process() needs a producer with a transactional_id, a name that no other one has",
            hint='Producer(..., transactional_id="audit-1")',
        )
    if producer.health().transaction in _OPEN:
        raise WrongTransactionState(
            "process() begins transactions of its own, and this producer has an open one",
            hint="commit or abort it first",
        )
    interval = call_timeout(max_interval, name="max_interval")
    loop = _Loop(consumer, producer, handler, max_records, interval)
    failures = 0
    while True:
        try:
            await loop.step()
            failures = 0
        except KafkaError as error:
            if loop.overran or not _may_pass(error):
                cause = error.__cause__
                aborted = isinstance(error, TransactionAborted)
                if aborted and isinstance(cause, KafkaError) and cause.fatal:
                    raise fresh(cause) from error  # of a delivery that the handler awaited
                if loop.overran:
                    error.hint = _TOO_LONG
                raise
            logger.warning("a transaction is done again: %s", error)
            await asyncio.sleep(min(_FIRST_PAUSE * 2 ** min(failures, 16), _LONGEST_PAUSE))
            failures += 1


def _may_pass(error: BaseException | None) -> bool:
    """Return whether the same records may be handled well in another transaction."""
    if not isinstance(error, KafkaError) or error.fatal:
        return False
    if isinstance(error, TransactionAborted):
        return error.__cause__ is None or _may_pass(error.__cause__)
    return error.retriable or isinstance(error, _MAY_PASS)


class _Loop:
    """The state of one ``process``: where each partition's next transaction begins."""

    def __init__(
        self,
        consumer: Consumer[Any, Any],
        producer: Producer[Any, Any],
        handler: Handler[Any, Any],
        max_records: int,
        max_interval: float,
    ) -> None:
        if consumer.config.enable_auto_commit:
            raise InvalidConfig(
                "process() commits offsets in its transactions, and so does this consumer outside",
                hint="Consumer(..., enable_auto_commit=False)",
            )
        consumer.group_metadata()  # raises without a group
        if consumer.health().group is None:
            raise InvalidConfig(
                "process() needs a consumer that is subscribed: partitions that were assigned by "
                "hand have no generation, which would fence their former owner",
                hint="name the topics, or call subscribe()",
            )
        self._consumer = consumer
        self._handler = handler
        self._max_records = max_records
        self._max_interval = max_interval
        self._txn = producer.transaction()  # raises without a transactional id
        self._transaction_timeout = producer.config.transaction_timeout
        self.overran = False
        """One call of the handler, in the last step, took longer than a transaction may."""

    async def step(self) -> None:
        """Handle one batch of records in one transaction; return also if none came for a while."""
        self.overran = False
        await self._go_back()
        txn = self._txn
        try:
            records, group = await self._collect()
            if not records:
                return
            await txn.begin()
            handled = await self._handle(records)
            await txn.commit_offsets(group, _behind(handled))
            await self._commit()
        except BaseException:
            await self._give_up()
            raise
        del _UNCOMMITTED[self._consumer]
        self._note(records[len(handled) :])

    async def _handle(
        self, records: list[ConsumerRecord[Any, Any]]
    ) -> list[ConsumerRecord[Any, Any]]:
        """Handle records, for half of ``transaction_timeout`` at most; return those handled.

        After that time the coordinator would abort the transaction and fence its producer.
        """
        clock = asyncio.get_running_loop().time
        until = clock() + self._transaction_timeout / 2
        for count, record in enumerate(records, 1):
            began = clock()
            try:
                outcome = self._handler(record, self._txn)
                if isinstance(outcome, Awaitable) and not isinstance(outcome, Delivery):
                    await outcome
            finally:
                now = clock()
                self.overran = now - began > self._transaction_timeout
            if now > until:
                return records[:count]
        return records

    async def _commit(self) -> None:
        while True:
            try:
                await self._txn.commit()
            except CommitOutcomeUnknown as error:
                logger.warning("%s", error)
            else:
                return

    async def _give_up(self) -> None:
        """Abort what is open, and go back; what is not done here, the next step does."""
        try:
            await self._txn.abort(timeout=_PATIENCE)
        except KafkaError as error:
            logger.debug("nothing was aborted: %s", error)
        try:
            await self._go_back(timeout=_PATIENCE)
        except KafkaError as error:
            logger.debug("the consumer did not go back yet: %s", error)

    async def _go_back(self, timeout: float | None = None) -> None:
        """Have the consumer read what was not committed again, from what is committed.

        Where nothing is committed, from the first record of it; of a partition that went to another
        member nothing.
        """
        first = _UNCOMMITTED.get(self._consumer)
        if first is None:
            return
        await self._earlier_end(timeout)
        consumer = self._consumer
        while True:
            group = consumer.group_metadata()
            ours = [partition for partition in first if partition in consumer.assignment]
            committed = await consumer.committed(ours, timeout=timeout)
            if consumer.group_metadata() == group:
                break
        for partition in ours:
            if partition in consumer.assignment:
                consumer.seek(partition, committed[partition] or first[partition])
        del _UNCOMMITTED[consumer]

    async def _earlier_end(self, timeout: float | None) -> None:
        """Wait for a commit that goes on after a cancellation: until then nothing is certain.

        An earlier call of ``process`` may have begun it: another transaction waits for its end.
        """
        try:
            await self._txn.begin(timeout=timeout)
        except TransactionAborted:
            return  # it failed
        await self._txn.abort(timeout=timeout)

    async def _collect(self) -> tuple[list[ConsumerRecord[Any, Any]], GroupMetadata]:
        """Poll for ``max_interval`` from the first record on; start over after a rebalance.

        Offsets are committed under the generation that their records were read in: a member that
        lost its partitions since is fenced.
        """
        consumer, clock = self._consumer, asyncio.get_running_loop().time
        records = list(await consumer.poll(max_records=self._max_records, timeout=_POLL))
        group, until = consumer.group_metadata(), clock() + self._max_interval
        same = bool(group.member_id)  # else it is no member at the moment, and nothing fences it
        self._note(records)
        while same and records and len(records) < self._max_records:
            if (left := until - clock()) <= 0:
                break
            most = self._max_records - len(records)
            more = await consumer.poll(max_records=most, timeout=left)
            self._note(more)
            records.extend(more)
            same = consumer.group_metadata() == group
        if not same:
            await self._go_back()
            return [], group
        return records, group

    def _note(self, records: Iterable[ConsumerRecord[Any, Any]]) -> None:
        """Note where the records begin that are not committed yet."""
        for record in records:
            first = _UNCOMMITTED.setdefault(self._consumer, {})
            first.setdefault(record.topic_partition, record.offset)


def _behind(
    records: list[ConsumerRecord[Any, Any]],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offset behind the last record of each partition."""
    return {
        record.topic_partition: OffsetAndMetadata(record.offset + 1, record.leader_epoch)
        for record in records
    }
