"""``Producer``, the public entry point for writing records.

It assembles the package's parts and has the documentation; records are handled by ``append`` and
``admission``, then ``accumulator`` (batches) and ``sender``. No rules about batches here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

from kclient.clock import wall_ns_of
from kclient.cluster.core import AsyncOnly, ClientCore
from kclient.config import ProducerConfig
from kclient.durations import call_timeout
from kclient.errors import ClientClosed, FlushFailed, InvalidConfig, fresh
from kclient.hooks import require_callable, require_method
from kclient.producer._compiled import SendMethods, WhenFull
from kclient.producer.accumulator import Accumulator
from kclient.producer.admission import Admission
from kclient.producer.flush import Flusher, UnseenFailures
from kclient.producer.idempotence import IdentityState, ProducerIdentity
from kclient.producer.produce_response import ProduceResponseHandler
from kclient.producer.send_many import SendMany, new_yield_timer, until_appended, yield_to_loop
from kclient.producer.sender import Sender, SenderWakeup
from kclient.producer.waiting_records import WaitingRecord
from kclient.types import check_topic_name

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Unpack

    from kclient.cluster.topic import Partition
    from kclient.config import Bootstrap
    from kclient.errors import KafkaError
    from kclient.hooks import Dialer, Observer, Partitioner, Serializer
    from kclient.keywords import ProducerSettings
    from kclient.producer._compiled import Delivery
    from kclient.producer.health import ProducerHealth
    from kclient.producer.outgoing import ArrowData, BytesLike, HeadersArgument, Outgoing
    from kclient.producer.send_many import BulkSend
    from kclient.producer.transaction_manager import Transaction, TransactionManager
    from kclient.producer.transaction_requests import TransactionRequests
    from kclient.producer.transactions import Transactions

logger = logging.getLogger("kclient.producer")

K = TypeVar("K")
V = TypeVar("V")

CLOSE_TIMEOUT = 30.0
"""Default time limit of ``close`` in seconds."""
_LAST_STAGE = 0.5
"""Seconds for written requests to leave the sockets at the end, however long the flush took."""


class Producer(SendMethods, AsyncOnly, Generic[K, V]):
    """Writes records to topics, in batches per partition, in order, without duplicates.

    Use it in ``async with``, or call ``start`` and ``close``. It belongs to the event loop, thread
    and process that it was started in.

    Tasks: ``producer-sender`` from ``start`` to ``close``; ``producer-id`` while a producer id is
    being asked for; ``close-producer`` while ``close`` is at work; ``metadata`` of the core.

    Args:
        bootstrap: First brokers to contact: "host:port", comma-separated or a list.
        config: Settings as one value; ``bootstrap`` and keywords given with it take precedence.
        key_serializer: Converts (topic, key) to bytes; without it, keys are bytes-like or None.
        value_serializer: The same for values.
        partitioner: Chooses partitions instead of Java's rule (murmur2 of the key; without a
            key one partition for about a batch, then another).
        observers: Receive events per batch, request and connection.
        dialer: Opens connections; sockets by default.
        settings: See ``ProducerConfig``; durations in seconds, sizes in bytes.

    Raises:
        InvalidConfig: A setting is unknown or invalid.
        InvalidArgument: A serializer doesn't accept topic and data.

    Example::

        async with kclient.Producer("localhost:9092") as producer:
            meta = await producer.send("flights", b"value", key=b"N14228")
    """

    @overload
    def __init__(
        self: Producer[BytesLike, BytesLike],
        bootstrap: Bootstrap = ...,
        *,
        config: ProducerConfig | None = None,
        partitioner: Partitioner | None = None,
        observers: Sequence[Observer] = (),
        dialer: Dialer | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None: ...

    @overload
    def __init__(
        self: Producer[BytesLike, V],
        bootstrap: Bootstrap = ...,
        *,
        config: ProducerConfig | None = None,
        value_serializer: Serializer[V],
        partitioner: Partitioner | None = None,
        observers: Sequence[Observer] = (),
        dialer: Dialer | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None: ...

    @overload
    def __init__(
        self: Producer[K, BytesLike],
        bootstrap: Bootstrap = ...,
        *,
        config: ProducerConfig | None = None,
        key_serializer: Serializer[K],
        partitioner: Partitioner | None = None,
        observers: Sequence[Observer] = (),
        dialer: Dialer | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None: ...

    @overload
    def __init__(
        self,
        bootstrap: Bootstrap = ...,
        *,
        config: ProducerConfig | None = None,
        key_serializer: Serializer[K] | None = None,
        value_serializer: Serializer[V] | None = None,
        partitioner: Partitioner | None = None,
        observers: Sequence[Observer] = (),
        dialer: Dialer | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None: ...

    def __init__(
        self,
        bootstrap: Bootstrap | None = None,
        *,
        config: ProducerConfig | None = None,
        key_serializer: Serializer[K] | None = None,
        value_serializer: Serializer[V] | None = None,
        partitioner: Partitioner | None = None,
        observers: Sequence[Observer] = (),
        dialer: Dialer | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        config = self._config = ProducerConfig.of(config, {"bootstrap": bootstrap, **settings})
        key_serializer = config.key_serializer if key_serializer is None else key_serializer
        value_serializer = config.value_serializer if value_serializer is None else value_serializer
        require_callable("key_serializer", key_serializer)
        require_callable("value_serializer", value_serializer)
        self._serializers = serializers = (key_serializer, value_serializer)
        if partitioner is not None:
            require_method("partitioner", partitioner, "partition", "topic, key, partition_count")
        self._core = core = ClientCore(config, observers=observers, dialer=dialer)
        self._failures = failures = UnseenFailures(
            core.counters, transactional=config.transactional_id is not None
        )
        wakeup = SenderWakeup()
        self._identity = identity = ProducerIdentity()
        transactions, requests = self._new_transactions()
        self._accumulator = accumulator = Accumulator(
            config, failures, core.rng, wakeup.wake, transactions
        )
        self._admission = admission = Admission(
            config, accumulator, failures, core.clock, core.metadata, serializers, partitioner
        )
        admission.log = failures.log = core.hooks.log(logger)
        self._response_handler = response_handler = ProduceResponseHandler(
            config, accumulator, identity, core
        )
        self._flusher = Flusher(accumulator, admission, response_handler, failures, core.clock)
        self._sender = Sender(
            core, config, wakeup, accumulator, admission, identity, response_handler, requests
        )
        self._sender.check()
        self._transactions = self._new_manager(transactions, requests)
        self._appender = admission.appender
        self._turn = new_yield_timer(accumulator.budget)
        self._put = admission.put
        self._check = core.check_usable
        self._no_space = WhenFull.RAISE if config.max_block == 0.0 else self._new_waiter
        self._task: asyncio.Task[Any] | None = None
        self._closing = core.closing("close-producer", self._close)
        self._add_gauges()

    def __repr__(self) -> str:
        return self._core.client_repr("Producer")

    # Start and close.

    async def start(self) -> None:
        """Connect, fetch the cluster's metadata, and start sending. ``async with`` calls it.

        With a ``transactional_id``, earlier producers of that id are fenced from now on, and a
        transaction that they left open is aborted.

        Raises:
            BootstrapFailed: No bootstrap address led to a cluster within ``bootstrap_timeout``.
                This client is closed then: make a new client to try again.
            RequestTimedOut: No coordinator gave the ``transactional_id`` an identity within
                ``api_timeout``; closed, too, as with the next one.
            TransactionalIdAuthorizationFailed, InvalidTransactionTimeout: It refuses.
            ClientClosed: It was started or closed before.

        Cancellation: nothing stays open; the producer counts as closed.

        Example::

            producer = kclient.Producer("localhost:9092")
            await producer.start()
        """
        self._core.check_new()  # else a second start would break the running producer
        self._failures.begin(asyncio.get_running_loop())
        self._turn = new_yield_timer(self._accumulator.budget)
        await self._core.start()
        self._core.add_failure_listener(self._failed)
        if self._transactions is None:
            self._appender.open(self._failures.loop, wall_ns_of(self._core.clock))
        else:
            try:
                await self._transactions.initialize(self._config.api_timeout)
            except BaseException:
                await self._core.close(_LAST_STAGE)
                raise
        self._task = self._core.spawn(self._sender.run(), "producer-sender", endless=True)

    async def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Flush what was sent, then close. Calling it twice, or before ``start``, is allowed.

        A transaction that is open is aborted; one that is being committed is waited for. From the
        call on no more records are accepted, and ``enqueue`` calls that wait for memory raise
        ClientClosed. Records that aren't acknowledged within ``timeout`` fail with ClientClosed,
        whose ``maybe_written`` is True if they may nevertheless be in the log.

        Args:
            timeout: Seconds for the flush; closing connections may take one more. Of several
                calls at once, the one with the least time counts.

        Raises:
            FlushFailed: Some of the flushed records were not delivered, or earlier failures were
                never awaited. The producer is closed nevertheless.
            WrongContext: Called from another loop, thread or process.

        Cancellation: the flush is cut short, as if ``timeout`` had passed. The producer still
        closes, a moment later; another ``close()`` waits for that.

        Example::

            await producer.close(timeout=5.0)
        """
        timeout = call_timeout(timeout)
        if self._task is None:
            await self._core.close(timeout)
            return
        if asyncio.get_running_loop() is not self._failures.loop:
            self._core.check_usable()  # raises WrongContext with the reason
        try:
            failure = await self._closing.run(timeout)
        except asyncio.CancelledError:
            self._closing.shorten_deadline(0.0)
            raise
        if failure is not None:
            raise fresh(failure)  # all close() calls share one failure

    async def __aenter__(self) -> Self:
        """``start``. Cancellation: as there."""
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """``close``. Cancellation: as there; also where the block itself was cancelled."""
        if error is None:
            await self.close()
            return
        try:
            await self.close()
        except FlushFailed as failure:
            # The block's own error is the reason why it ended; this one must not hide it.
            error.add_note(f"while the producer was closed: {failure}")
            self._core.hooks.log(logger).warning(
                "closed after an error, with records not delivered: %s", failure
            )

    # Sending.

    if TYPE_CHECKING:
        # ``SendMethods`` has the code and docstrings; these declare the generic types.

        def send(
            self,
            topic: str,
            value: V | None,
            *,
            key: K | None = None,
            headers: HeadersArgument = None,
            partition: int | None = None,
            timestamp: int | None = None,
        ) -> Delivery: ...

        def enqueue_nowait(
            self,
            topic: str,
            value: V | None,
            *,
            key: K | None = None,
            headers: HeadersArgument = None,
            partition: int | None = None,
            timestamp: int | None = None,
        ) -> Delivery: ...

    async def enqueue(
        self,
        topic: str,
        value: V | None,
        *,
        key: K | None = None,
        headers: HeadersArgument = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Delivery:
        """Put one record into a batch as soon as memory is available; return its ``Delivery``.

        This is ``send`` with back-pressure: it waits for memory (and for the topic's metadata), not
        for the acknowledgement. From time to time it yields to the event loop.

        Args:
            topic, value, key, headers, partition, timestamp: As in ``send``.

        Returns:
            The delivery of the record, which is in a batch now.

        Raises:
            BufferFull: No memory within ``max_block`` seconds (0: at once, None: never raised).
            UnknownTopicOrPartition: Brokers reported the topic as unknown for as long as in
                ``send``, or for all of ``max_block``.
            MetadataTimedOut: No metadata of the topic, or of a ``partition`` that it doesn't have
                so far, within ``max_block`` seconds (10 at most for a partition).
            SerializationFailed, RecordTooLarge, InvalidArgument: As in ``send``.
            ClientClosed, WrongContext, BackgroundTaskDied: This producer can't be used (here), or
                was closed meanwhile.

        Cancellation: while it waits, the record is removed and definitely not written, unless it
        got into a batch at the same instant.

        Example::

            for line in lines:
                await producer.enqueue("lines", line)
            await producer.flush()
        """
        if not self._turn.due():
            delivery = self._appender.take(topic, value, key, headers, partition, timestamp)
            if delivery is not None:
                return delivery
        self._check()
        if self._turn.due():
            # A loop of calls that never suspend would block the sender and incoming responses.
            await yield_to_loop(self._turn)
            self._check()
        delivery = self._put(topic, value, key, headers, partition, timestamp, self._no_space)
        outcome = delivery._outcome
        if isinstance(outcome, WaitingRecord) and outcome.waiter is not None:
            await until_appended(outcome, delivery)
        return delivery

    async def send_many(
        self,
        topic: str,
        records: Iterable[V | tuple[K | None, V | None] | Outgoing | None]
        | AsyncIterable[V | tuple[K | None, V | None] | Outgoing | None],
    ) -> int:
        """Send many records, by the fastest method, and wait until all are acknowledged.

        Yields to the event loop once per few batches, waits briefly while it is more than a full
        request per broker ahead of the sender, and waits for memory (up to ``max_block``). Plain
        records are pulled from ``records`` in blocks of at most eight, for which the clock is read
        once: code behind a ``yield`` must not assume that the yielded record is in a batch.

        Args:
            topic: Topic to write to.
            records: Values, (key, value) tuples, or ``Outgoing`` for headers, partition and
                timestamp; a value that is itself a tuple needs ``Outgoing``. A mapping, or a tuple
                that begins with a bare value, is rejected: it could be meant as one record.

        Returns:
            How many records were written.

        Raises:
            FlushFailed: A batch failed. No more is pulled from ``records`` after that, but all
                records taken so far are awaited. ``count`` is that of all records in the failed
                batches.
            BufferFull, MetadataTimedOut, UnknownTopicOrPartition, SerializationFailed,
                RecordTooLarge, InvalidArgument: As in ``enqueue``, at the record that a note of the
                error names; those before it are still sent. Nothing was pulled behind it unless it
                had to wait: then a note has the number.
            Any error of ``records``: unchanged; the records before it are still sent. If the call
                fails with another error after those, a note of that error mentions it.
            ClientClosed, WrongContext, BackgroundTaskDied: This producer can't be used (here).

        Cancellation: no more is pulled from ``records``. Records taken so far are still sent,
        except the record that waits for memory or for the topic's metadata: it is removed, and up
        to seven that were pulled behind it are dropped. Failures are reported by the next ``flush``
        or ``close``.

        Example::

            count = await producer.send_many("lines", (line.encode() for line in file))
        """
        return await self._send_bulk(SendMany, topic, records)

    async def send_arrow(self, topic: str, data: ArrowData) -> int:
        """Send the rows of Arrow data and wait until all are acknowledged; no object per row.

        All rows are checked before the first is sent; it suspends as ``send_many`` does.
        ``docs/arrow.md`` describes types and rules.

        Args:
            topic: Topic to write to.
            data: A pyarrow Table, RecordBatch or RecordBatchReader, or an object with Arrow's
                PyCapsule interface (polars, pandas, a batch of ``poll_arrow`` ...). Columns:
                ``value``, optionally ``key``, ``headers``, ``partition``, ``timestamp``; null is
                None of ``send``. Bytes and texts are sent as they are: serializers are not applied.

        Returns:
            How many rows were written.

        Raises:
            RowsRejected: Rows can't be sent, so none was; ``rows`` has their numbers and errors.
            RowsNotDelivered: A batch failed. No more rows are taken after that, but all rows taken
                so far are awaited. ``rows`` has the numbers of the rows by batch, and the errors.
            InvalidArgument, SerializationFailed: A column is missing, unknown or of a wrong type.
            BufferFull, UnknownTopicOrPartition, MetadataTimedOut: As in ``enqueue``, or an error of
                the partitioner, at the row that a note of the error names; those before are sent.
            InvalidConfig: pyarrow is not installed.
            ClientClosed, WrongContext, BackgroundTaskDied: This producer can't be used (here).

        Cancellation: no more rows are taken. Those taken so far are still sent, except the one that
        waits for memory or for the topic's metadata: it is removed. Failures are reported by the
        next ``flush`` or ``close``.

        Example::

            count = await producer.send_arrow("flights", pyarrow.table({"value": [b"EWR-IAH"]}))
        """
        from kclient.producer.arrow_send import ArrowSend

        return await self._send_bulk(ArrowSend, topic, data)

    async def flush(self) -> None:
        """Send waiting records without linger, and wait until all sent so far are settled.

        Callbacks of their deliveries have been called by then, whether it returns or raises.

        Raises:
            FlushFailed: Some records were not delivered, or failed earlier and their deliveries
                were never awaited; ``count`` is their number, ``errors`` has the first few.
            ClientClosed, WrongContext, BackgroundTaskDied: This producer can't be used (here).

        Cancellation: stops only the wait; everything is still sent, and failures are reported by
        the next ``flush`` or ``close``. For a time limit use ``asyncio.timeout``.

        Example::

            await producer.flush()
        """
        self._check()
        failure = await self._flusher.flush()
        if failure is not None:
            raise failure

    async def partitions_for(self, topic: str) -> Sequence[Partition]:
        """Return the partitions of a topic, with leader and replicas.

        Args:
            topic: Its name.

        Raises:
            UnknownTopicOrPartition, InvalidTopic, TopicAuthorizationFailed: As brokers respond.
            MetadataTimedOut: No response within ``api_timeout``.
            InvalidArgument: The topic name is invalid.
            ClientClosed, WrongContext, BackgroundTaskDied: This producer can't be used (here).

        Cancellation: leaves nothing behind.

        Example::

            print(len(await producer.partitions_for("flights")))
        """
        self._check()
        name = check_topic_name(topic)
        found = await self._core.metadata.wait_for_topic(name, self._config.api_timeout)
        return found.partitions

    @property
    def config(self) -> ProducerConfig:
        """Its settings."""
        return self._config

    def transaction(self) -> Transaction[K, V]:
        """Return a new transaction, for ``async with`` or ``begin``.

        Raises:
            InvalidConfig: The producer has no ``transactional_id``.
            ClientClosed, WrongContext, BackgroundTaskDied: This producer can't be used (here).

        Example::

            async with producer.transaction() as txn:
                txn.send("audited", b"value")
                await txn.commit_offsets(consumer)
        """
        self._check()
        if self._transactions is None:
            raise InvalidConfig(
                "transaction() needs a transactional_id: a name that this producer has, and no "
                "other one that runs at the same time",
                hint='Producer(..., transactional_id="audit-1")',
            )
        from kclient.producer.transaction_manager import Transaction

        return Transaction(self, self._transactions)

    # Metrics and health.

    def metrics(self) -> dict[str, float]:
        """Return a copy of all counters and gauges by name, ``package.name``."""
        return self._core.metrics()

    def health(self) -> ProducerHealth:
        """Return a snapshot of the producer's state; cheap, and allowed at any time.

        Returns:
            A ``kclient.producer.health.ProducerHealth``: ``ok``, ``last_error`` and its age, what
            is buffered, waiting and in flight; and in ``client`` a ``kclient.cluster.core.Health``
            with metadata, internal tasks, ``nodes`` (a ``NodeHealth`` per broker: last response,
            last failure) and ``connections`` (a ``ConnectionHealth`` each).

        Raises:
            WrongContext: Called from another loop, thread or process than ``start``. From another
                thread: ``loop.call_soon_threadsafe``, or an ``async def`` that calls it and
                ``asyncio.run_coroutine_threadsafe``.

        Example::

            health = producer.health()
            if not health.ok:
                print(health.last_error, health.client.metadata_error)
        """
        from kclient.producer.health import ProducerHealth

        core, identity, response_handler = self._core, self._identity, self._response_handler
        idempotent, current = self._config.idempotence, identity.current
        known = idempotent and identity.state is not IdentityState.REFUSED
        known = known and current.producer_id >= 0
        error, transactions = response_handler.last_error, self._accumulator.transactions
        return ProducerHealth(
            client=core.health(),
            idempotent=idempotent,
            producer_id=current.producer_id if known else None,
            producer_epoch=current.epoch if known else None,
            buffered_bytes=self._accumulator.budget.used,
            parked_records=self._accumulator.budget.waiting,
            unsettled_partitions=len(self._accumulator.busy),
            requests_in_flight=self._requests(),
            last_error=None if error is None else str(error),
            last_error_age=None
            if error is None
            else core.clock.now() - response_handler.last_error_at,
            transaction=None if transactions is None else transactions.state.name,
        )

    # Internals.

    def _new_transactions(self) -> tuple[Transactions | None, TransactionRequests | None]:
        name = self._config.transactional_id
        if name is None:
            return None, None
        from kclient.producer.transaction_requests import TransactionRequests
        from kclient.producer.transactions import Transactions

        transactions = Transactions(name, self._identity)
        return transactions, TransactionRequests(self._core, self._config, transactions)

    def _new_manager(
        self, transactions: Transactions | None, requests: TransactionRequests | None
    ) -> TransactionManager | None:
        if transactions is None or requests is None:
            return None
        from kclient.producer.transaction_manager import TransactionManager

        return TransactionManager(
            self._core,
            self._config,
            transactions,
            self._identity,
            requests,
            self._sender,
            self._flusher,
            self._admission,
        )

    def _add_gauges(self) -> None:
        gauge = self._core.counters.gauge
        gauge("producer.buffered_bytes", lambda: float(self._accumulator.budget.used))
        gauge("producer.parked_records", lambda: float(self._accumulator.budget.waiting))
        gauge("producer.requests_in_flight", lambda: float(self._requests()))

    def _requests(self) -> int:
        """Return how many Produce requests are in flight."""
        return sum(self._sender.in_flight.values())

    def _new_waiter(self) -> asyncio.Future[None]:
        return self._failures.loop.create_future()

    async def _send_bulk(self, kind: type[BulkSend], topic: str, data: Any) -> int:
        self._check_sending()
        brokers = len(self._core.metadata.view.brokers)
        bulk = kind(
            check_topic_name(topic),
            data,
            self._admission,
            self._accumulator,
            self._core,
            self._new_waiter,
            self._check_sending,
            self._config.max_request_size * max(1, brokers),  # a full request for each
        )
        return await bulk.deliver(self._flusher)

    def _failed(self, error: KafkaError) -> None:
        self._appender.close()
        self._flusher.give_up(error)

    def _check_sending(self) -> None:
        self._check()
        if self._accumulator.transactions is not None:
            self._accumulator.transactions.check_open()

    def _unfit_to_relay(self, *, running: bool) -> str | None:
        """Return why a consumer can't relay stored records with this producer; None if it can."""
        name = self._core.name
        if self._core.closed or self._core.failure is not None:
            return f"{name} is closed" if self._core.closed else f"{name} has failed"
        if running and self._task is None:
            return f"{name} was not started, and must be open all along"
        for role, serializer in zip(("key", "value"), self._serializers, strict=True):
            if serializer is not None:
                return f"{name} has a {role}_serializer, and records are sent on as stored"
        return None

    def _closed(self) -> None:
        raise ClientClosed("this producer is closed", hint="make a new one", maybe_written=False)

    async def _close(self) -> FlushFailed | None:
        """Flush, then close everything. If it is interrupted, it is run again and continues."""
        self._check = self._closed
        self._appender.close()
        if self._transactions is not None:
            await self._transactions.close(self._closing.time_left)
        await self._flusher.close(self._closing)
        if self._task is not None:
            await self._core.stop(self._task)
        await self._sender.close()
        await self._core.close(_LAST_STAGE)
        return self._flusher.failure
