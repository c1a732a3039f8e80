"""Consumer: the public entry point of this package. Records out of assigned partitions, in order.

A thin facade: it checks arguments and documents each call. The work is behind ``engine``:
``subscription`` holds the position of each partition, ``positions`` looks positions up, ``fetcher``
fetches data, ``poller`` returns it, ``engine.group`` does what there is to do in a group; ``run``
loads ``handlers`` on first use. It must not hold state or rules of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

from kclient.cluster.core import AsyncOnly, missing_attribute
from kclient.config import ConsumerConfig
from kclient.consumer.arguments import (
    GroupOptions,
    TopicFilter,
    checked_group,
    checked_limit,
    checked_partitions,
    checked_sources,
    checked_target,
    checked_times,
    checked_topics,
    refuse_group,
)
from kclient.consumer.columns import checked_columns, checked_ends
from kclient.consumer.deserialization_errors import DeserializationErrorHandler
from kclient.consumer.engine import Engine
from kclient.consumer.offset_reset import AtTime
from kclient.consumer.poller import records_of
from kclient.consumer.records import ConsumerRecord, converter
from kclient.durations import call_timeout
from kclient.errors import InvalidArgument, KafkaError, a_or_an
from kclient.hooks import require_callable
from kclient.types import (
    GroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    OffsetSpec,
    TopicPartition,
    check_topic_name,
    checked_partition,
)

if TYPE_CHECKING:
    import asyncio
    import re
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
    from datetime import datetime
    from types import TracebackType
    from typing import Literal, Unpack

    import pyarrow

    from kclient.cluster.topic import Partition
    from kclient.config import Bootstrap
    from kclient.consumer.dead_letters import Sender
    from kclient.consumer.deserialization_errors import DeadLetters
    from kclient.consumer.group_consumer import GroupConsumer
    from kclient.consumer.handlers.retries import Retries, RetryTopic
    from kclient.consumer.health import ConsumerHealth, RunHealth
    from kclient.consumer.partition_state import PartitionState
    from kclient.consumer.rebalance_listener import RebalanceCallback
    from kclient.hooks import Deserializer, Dialer, Observer
    from kclient.keywords import ConsumerSettings

K = TypeVar("K")
V = TypeVar("V")

CLOSE_TIMEOUT = 5.0
"""Seconds that ``close`` takes at most, by default."""


class Consumer(AsyncOnly, Generic[K, V]):
    """Reads records from the partitions of topics.

    ``Consumer(bootstrap, "flights")`` reads all partitions of a topic, those added later included;
    ``assign`` picks single ones. Records of one partition come in order, and each comes once: the
    position moves in the step that returns it. Where to start is set by ``seek`` and its
    variants, or by ``auto_offset_reset``; without either, ``poll`` raises ``NoPosition``.

    With ``group="audit"`` the partitions are assigned among all consumers of that group, and each
    continues where the group has committed. Where it has committed nothing, ``auto_offset_reset``
    sets where to start, and without it the END of the log, as with Java's client:
    ``auto_offset_reset="earliest"`` reads from the beginning.

    The constructor does no I/O: enter it with ``async with``, or call ``start`` and ``close``.
    Tasks: those of ``Fetcher`` and ``PositionUpdater``, from ``start`` to ``close``.

    Args:
        bootstrap: "host:port" of one or more brokers, comma-separated or as a list; None for
            that of ``config``.
        topics: Topics that are read: all partitions, or in a group those that it assigns.
        group: Name of the group among whose members the partitions are assigned, and where
            offsets are committed. Without one all partitions are read, and nothing is committed.
        pattern: In a group, a regular expression in place of names; see ``subscribe``.
        on_assigned, on_revoked, on_lost: Are called in rebalances, see ``subscribe``.
        config: Settings as one value; ``settings`` go over it.
        key_deserializer: Makes the key of (topic, bytes); without it, keys are ``bytes | None``.
        value_deserializer: The same for the value.
        bad_records: What happens to a record that these refuse: ``"raise"`` DeserializationFailed,
            ``"skip"`` it with a line in the log, or a ``DeadLetters(topic, producer)``, which sends
            it to a topic before it is skipped.
        observers: Receive events, see ``kclient.hooks``.
        dialer: Opens connections; sockets by default.
        settings: Single settings by name, see ``ConsumerConfig``.

    Raises:
        InvalidConfig: A setting that can't work, or callbacks or a pattern without a group.
        InvalidArgument: A topic name that Kafka can't have, or a deserializer that doesn't take
            topic and data.

    Example::

        async with kclient.Consumer(
            "localhost:9092", "flights", auto_offset_reset="earliest"
        ) as consumer:
            async for record in consumer:
                print(record.key, record.value)
    """

    @overload
    def __init__(
        self: Consumer[bytes | None, bytes | None],
        bootstrap: Bootstrap | None = None,
        *topics: str,
        group: str | None = None,
        pattern: str | re.Pattern[str] | None = None,
        on_assigned: RebalanceCallback | None = None,
        on_revoked: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
        bad_records: Literal["raise", "skip"] | DeadLetters = "raise",
        config: ConsumerConfig | None = None,
        key_deserializer: None = None,
        value_deserializer: None = None,
        observers: Sequence[Observer] = (),
        dialer: Dialer | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None: ...
    @overload
    def __init__(
        self: Consumer[K, bytes | None],
        bootstrap: Bootstrap | None = None,
        *topics: str,
        group: str | None = None,
        pattern: str | re.Pattern[str] | None = None,
        on_assigned: RebalanceCallback | None = None,
        on_revoked: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
        bad_records: Literal["raise", "skip"] | DeadLetters = "raise",
        config: ConsumerConfig | None = None,
        key_deserializer: Deserializer[K],
        value_deserializer: None = None,
        observers: Sequence[Observer] = (),
        dialer: Dialer | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None: ...
    @overload
    def __init__(
        self: Consumer[bytes | None, V],
        bootstrap: Bootstrap | None = None,
        *topics: str,
        group: str | None = None,
        pattern: str | re.Pattern[str] | None = None,
        on_assigned: RebalanceCallback | None = None,
        on_revoked: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
        bad_records: Literal["raise", "skip"] | DeadLetters = "raise",
        config: ConsumerConfig | None = None,
        key_deserializer: None = None,
        value_deserializer: Deserializer[V],
        observers: Sequence[Observer] = (),
        dialer: Dialer | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None: ...
    @overload
    def __init__(
        self,
        bootstrap: Bootstrap | None = None,
        *topics: str,
        group: str | None = None,
        pattern: str | re.Pattern[str] | None = None,
        on_assigned: RebalanceCallback | None = None,
        on_revoked: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
        bad_records: Literal["raise", "skip"] | DeadLetters = "raise",
        config: ConsumerConfig | None = None,
        key_deserializer: Deserializer[K],
        value_deserializer: Deserializer[V],
        observers: Sequence[Observer] = (),
        dialer: Dialer | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None: ...
    def __init__(
        self,
        bootstrap: Bootstrap | None = None,
        *topics: str,
        group: str | None = None,
        pattern: str | re.Pattern[str] | None = None,
        on_assigned: RebalanceCallback | None = None,
        on_revoked: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
        bad_records: Literal["raise", "skip"] | DeadLetters = "raise",
        config: ConsumerConfig | None = None,
        key_deserializer: Deserializer[Any] | None = None,
        value_deserializer: Deserializer[Any] | None = None,
        observers: Sequence[Observer] = (),
        dialer: Dialer | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        self._config = ConsumerConfig.of(config, {"bootstrap": bootstrap, **settings})
        if group is None:
            group = self._config.group
        if key_deserializer is None:
            key_deserializer = self._config.key_deserializer
        if value_deserializer is None:
            value_deserializer = self._config.value_deserializer
        names = checked_topics(topics, "Consumer(bootstrap, *topics)")
        group_options = None
        if group is not None:
            from kclient.consumer.rebalance_listener import RebalanceListener, checked_listener

            listener = checked_listener(on_assigned, on_revoked, on_lost) or RebalanceListener()
            group, internal = checked_group(group), not self._config.exclude_internal_topics
            topic_filter = TopicFilter(names, checked_sources(names, pattern), internal)
            group_options = GroupOptions(group, topic_filter, listener)
        else:
            named: dict[str, object] = {
                "pattern": pattern,
                "group_instance_id": self._config.group_instance_id,
                "on_assigned": on_assigned,
                "on_revoked": on_revoked,
                "on_lost": on_lost,
            }
            for name, value in named.items():
                if value is not None:
                    raise refuse_group(name)
        require_callable("key_deserializer", key_deserializer)
        require_callable("value_deserializer", value_deserializer)
        convert = converter(key_deserializer, value_deserializer)
        self._converts = convert is not None
        bad = DeserializationErrorHandler(
            bad_records,
            names,
            None if group_options is None else group_options.topic_filter.pattern,
        )
        self._engine = Engine(self._config, names, convert, observers, dialer, group_options, bad)

    if not TYPE_CHECKING:
        __getattr__ = missing_attribute

    def __repr__(self) -> str:
        return self._engine.core.client_repr("Consumer")

    # Life

    async def start(self) -> None:
        """Connect, fetch metadata, and assign the partitions of the topics named, if any were.

        ``async with`` calls it.

        Args:
            None.

        Returns:
            Nothing; the consumer can be used.

        Raises:
            BootstrapFailed: No broker could be reached within ``bootstrap_timeout`` seconds; the
                text has each address and its reason. Make a new client to try again.
            UnknownTopicOrPartition: A topic doesn't exist: create it, or check its name.
            TopicAuthorizationFailed: It may not be read by this principal.
            MetadataTimedOut: No response about it came within ``api_timeout`` seconds.
            ClientClosed: It was started or closed before.

        Cancellation: nothing stays open; the consumer counts as closed.

        Example::

            consumer = kclient.Consumer("localhost:9092")
            await consumer.start()
        """
        await self._engine.start()

    async def close(self, timeout: float | None = CLOSE_TIMEOUT) -> None:
        """Stop reading and close all connections. Closing twice, or before ``start``, is fine.

        A pending ``poll`` raises ClientClosed; ``async for`` and ``run`` end. In a group, the
        records returned before the latest call are committed if commits are automatic,
        ``on_revoked`` is called for the partitions still assigned, and the consumer leaves the
        group. A static member (``group_instance_id``) stays in it until ``session_timeout``, so
        that it may return.

        Args:
            timeout: Seconds, after which connections are cut off; None: no limit. Of several
                calls at once, the one with the least time counts.

        Returns:
            Nothing; no task, timer or socket is left.

        Raises:
            WrongContext: Called from another loop, thread or process than ``start``.

        Cancellation: it closes all the same, a moment later; another ``close()`` waits for that.

        Example::

            await consumer.close()
        """
        await self._engine.close(call_timeout(timeout, optional=True))

    async def __aenter__(self) -> Self:
        """``start``. Cancellation: as there."""
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """``close``; without an exception, all records that were returned count as finished.

        Cancellation: as there.
        """
        if kind is None:
            self._engine.polled_records.all_finished()
        await self.close()

    # The group

    def subscribe(
        self,
        *topics: str,
        pattern: str | re.Pattern[str] | None = None,
        on_assigned: RebalanceCallback | None = None,
        on_revoked: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
    ) -> None:
        """Read these topics with the group, in place of what was subscribed to before.

        Returns at once; the group is joined meanwhile, and partitions come with a rebalance.

        Args:
            topics: Names.
            pattern: A regular expression that the whole name must match, in place of names. Topics
                created later are read, too, once the metadata lists them.
            on_assigned: Is called after each rebalance with the newly assigned partitions, maybe
                none, before any of their records is returned; it may seek. Their positions are
                known by then, except where the coordinator refuses the request for them, or doesn't
                respond for ``request_timeout`` seconds. A plain function or a coroutine function,
                as the others; if none of them is given, the previous ones stay.
            on_revoked: Is called before partitions are revoked, and by ``close``; it may commit. In
                a rebalance it comes once the application has made its next call, for which
                ``max_poll_interval`` is waited, with automatic commits or without.
            on_lost: Is called when partitions already belong to other members; ``on_revoked`` if
                not given.

        Raises:
            InvalidConfig: The consumer has no group, or a callback can't be called.
            InvalidArgument: Neither topics nor a pattern, or both; partitions are assigned by hand.
            ClientClosed: Before ``start`` or after ``close``.
        """
        group = self._group()
        names = checked_topics(topics, "subscribe(*topics)")
        compiled = checked_sources(names, pattern)
        if not names and compiled is None:
            raise InvalidArgument(
                "subscribe() needs names of topics or a pattern",
                hint="call unsubscribe() to read nothing",
            )
        if group.rebalancer.user_assigned and len(self._engine.subscription):
            raise InvalidArgument(
                "subscribe() can't be used while partitions are assigned by hand",
                hint="call unassign() first",
            )
        from kclient.consumer.rebalance_listener import checked_listener

        listener = checked_listener(on_assigned, on_revoked, on_lost)
        internal = not self._config.exclude_internal_topics
        group.subscribe(TopicFilter(names, compiled, internal), listener)

    async def unsubscribe(self) -> None:
        """Release all partitions and leave the group; ``subscribe`` joins it again.

        The records returned so far count as finished, and are committed if commits are automatic.

        Args:
            None.

        Returns:
            Nothing; no partition is assigned.

        Raises:
            InvalidConfig: The consumer has no group.
            ClientClosed, BackgroundTaskDied: The consumer ended.

        Cancellation: it goes on all the same.

        Example::

            await consumer.unsubscribe()
        """
        group = self._group()
        group.callbacks.check_outside("unsubscribe")
        if self._engine.handlers is None:
            self._engine.polled_records.all_finished()
        else:
            self._engine.handlers.check_outside("unsubscribe")
        if group.rebalancer.user_assigned and len(self._engine.subscription):
            if self._config.enable_auto_commit:
                group.rebalancer.commit_finished()
            self._engine.assign((), "unsubscribe")
        await group.unsubscribe()

    def rejoin(self, reason: str = "the user asked for it") -> None:
        """Request a rebalance of the group, for example as an assignor has new information.

        Raises:
            InvalidConfig: The consumer has no group.
        """
        group = self._group()
        if not isinstance(reason, str):
            raise InvalidArgument(f"reason={reason!r} can't be used: allowed is a str")
        if not group.topic_subscription.topic_filter:
            raise InvalidArgument("nothing is subscribed to", hint="call subscribe() first")
        group.membership.rejoin(reason)

    def group_metadata(self) -> GroupMetadata:
        """This consumer's identity in its group at the moment: generation and member id.

        Raises:
            InvalidConfig: The consumer has no group.
        """
        group = self._group()
        generation = group.membership.generation
        if generation is None:
            return GroupMetadata(group.group_id, instance_id=self._config.group_instance_id)
        return GroupMetadata(
            group.group_id,
            generation.generation_id,
            generation.member_id,
            generation.instance_id,
        )

    def offsets_to_commit(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets that ``commit()`` would store now: for a transaction that commits them.

        Raises:
            CommitFailed: Partitions whose records were returned were lost to another member, or
                may have been, as this one is not in the group at the moment.
            InvalidConfig: The consumer has no group.
        """
        return self._group().offsets_for_transaction(in_run=self._engine.handlers is not None)

    async def commit(
        self,
        what: ConsumerRecord[Any, Any]
        | Mapping[TopicPartition, int | OffsetAndMetadata]
        | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Commit to the group how far this consumer has processed its partitions.

        Commits are made one after the other, in the order of the calls, so that a later one is
        never undone by an earlier one that was slow.

        Args:
            what: None for all records that were returned so far, and while ``run`` is in progress
                for those that its handlers have finished. A record, for its partition up to and
                including this record; where more was committed already, nothing happens. Or
                offsets by partition: the next one to read.
            timeout: Seconds, with retries; ``api_timeout`` by default.

        Returns:
            Nothing; it is committed.

        Raises:
            CommitFailed: Partitions belong, or may belong, to another member by now. None of theirs
                is committed, the others are; the consumer goes on.
            InvalidConfig: The consumer has no group.
            InvalidArgument: An invalid offset or partition.
            RequestTimedOut: The coordinator didn't acknowledge it in time; it may be committed.
            UnknownTopicOrPartition, UnknownTopicId: There is no such partition, as the coordinator
                has reported for some seconds, or its topic was deleted, and maybe recreated, since
                the offset was read. Other commits don't wait for that.
            BrokerError: It refused, such as with GroupAuthorizationFailed.
            ClientClosed, BackgroundTaskDied: The consumer ended.

        Cancellation: the commit goes on; only its outcome is not waited for.

        Example::

            for record in await consumer.poll():
                await handle(record)
            await consumer.commit()
        """
        limit = self._seconds(timeout)
        group = self._group()
        offsets, at_least = group.offsets_to_commit(what, in_run=self._engine.handlers is not None)
        if offsets:
            await group.commits.submit(offsets, timeout=limit, at_least=at_least)

    def commit_nowait(
        self,
        what: ConsumerRecord[Any, Any]
        | Mapping[TopicPartition, int | OffsetAndMetadata]
        | None = None,
        *,
        timeout: float | None = None,
    ) -> asyncio.Future[None]:
        """As ``commit``, without waiting.

        Args:
            what: As with ``commit``.
            timeout: Seconds, with retries; ``api_timeout`` by default.

        Returns:
            Its outcome, which can be awaited or cancelled by itself; the commit goes on. A failure
            that is never awaited is logged. Where the coordinator is unreachable, each call holds
            some 200 bytes until it has an outcome.

        Raises:
            InvalidConfig, InvalidArgument, ClientClosed: As with ``commit``.
        """
        limit = self._seconds(timeout)
        group = self._group()
        offsets, at_least = group.offsets_to_commit(what, in_run=self._engine.handlers is not None)
        return group.commits.submit(offsets, timeout=limit, at_least=at_least)

    async def committed(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The committed offsets of the group for ``partitions``, assigned or not.

        Args:
            partitions: Which ones.
            timeout: Seconds for all; ``api_timeout`` by default.

        Returns:
            The next offset to read by partition; None where nothing is committed.

        Raises:
            KafkaError: The error of the first partition that failed.
            InvalidConfig: The consumer has no group.

        Cancellation: safe.

        Example::

            offsets = await consumer.committed(consumer.assignment)
        """
        group = self._group()
        asked = checked_partitions(partitions)
        if not asked:
            return {}
        outcomes = await group.offsets.fetch(asked, self._seconds(timeout))
        found: dict[TopicPartition, OffsetAndMetadata | None] = {}
        for partition in asked:
            outcome = outcomes[partition]
            if isinstance(outcome, KafkaError):
                raise outcome
            found[partition] = outcome
        return found

    # The assignment

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions and no others, in place of what was assigned before.

        Partitions that were assigned already keep their position. Takes effect at once.

        Args:
            partitions: Pairs of topic and index; an empty iterable assigns nothing.

        Raises:
            InvalidArgument: An invalid partition. ``poll`` raises if one doesn't exist.
            ClientClosed: Before ``start`` or after ``close``.
        """
        self._engine.core.check_usable()
        self._engine.assign(checked_partitions(partitions), "assign")

    def unassign(self) -> None:
        """Read nothing any more. Same as ``assign([])``."""
        self._engine.core.check_usable()
        self._engine.assign((), "unassign")

    @property
    def config(self) -> ConsumerConfig:
        """Its settings."""
        return self._config

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read."""
        return frozenset(state.topic_partition for state in self._engine.subscription)

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no more records of these partitions until ``resume``; of all, if none is named.

        Raises:
            InvalidArgument: One isn't assigned.
        """
        for state in self._states(partitions):
            self._engine.subscription.pause(state)

    def resume(self, *partitions: TopicPartition) -> None:
        """Undo ``pause``; nothing happens to partitions that aren't paused.

        Raises:
            InvalidArgument: One isn't assigned.
        """
        for state in self._states(partitions):
            self._engine.subscription.resume(state)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        return frozenset(
            state.topic_partition for state in self._engine.subscription if state.kept_back
        )

    # Positions

    def seek(
        self,
        partition: TopicPartition,
        offset: int | OffsetAndMetadata | OffsetAndTimestamp | datetime,
    ) -> None:
        """Continue ``partition`` at ``offset``, or at the first record from a time on.

        Takes effect at once: what was fetched for the old position is dropped. Whether the offset
        exists shows when it is fetched. Automatic commits keep to what was finished before, until
        records from there on are finished.

        Args:
            partition: An assigned one.
            offset: An int, a value of ``committed`` or of ``offsets_for_times``, or an aware
                datetime: the first record whose timestamp isn't before it, or the end, where all
                are older. That is looked up before the next record of the partition.

        Raises:
            InvalidArgument: The partition isn't assigned, the offset is below 0, the datetime has
                no time zone, or it is None, which those calls return where they found nothing.
        """
        state, target = self._state(partition), checked_target(offset)
        finished = self._engine.finished_of(state)
        if isinstance(target, AtTime):
            self._engine.subscription.ask_reset(state, target, by_user=True, finished=finished)
        else:
            self._engine.subscription.seek(state, *target, finished=finished)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continue at the first offset still in the log; for all partitions, if none is named.

        Returns at once; the offset is looked up before the next record of that partition.

        Raises:
            InvalidArgument: One isn't assigned.
        """
        self._seek_to(partitions, OffsetSpec.EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue behind the last record; for all partitions, if none is named.

        Returns at once; the end is looked up soon, not later than by the next poll.
        With ``read_committed`` it is the last stable offset.

        Raises:
            InvalidArgument: One isn't assigned.
        """
        self._seek_to(partitions, OffsetSpec.LATEST)

    def _seek_to(self, partitions: Sequence[TopicPartition], to: OffsetSpec) -> None:
        for state in self._states(partitions):
            finished = self._engine.finished_of(state)
            self._engine.subscription.ask_reset(state, to, by_user=True, finished=finished)

    async def position(self, partition: TopicPartition, *, timeout: float | None = None) -> int:
        """Offset of the next record of ``partition`` that ``poll`` returns; looked up if needed.

        Args:
            partition: An assigned one.
            timeout: Seconds to wait for a lookup; ``api_timeout`` by default.

        Returns:
            The offset.

        Raises:
            InvalidArgument: The partition isn't assigned.
            NoPosition: No start position is set: seek, or set ``auto_offset_reset``.
            RequestTimedOut: It could not be looked up in time.
            BrokerError: The lookup failed for good, such as TopicAuthorizationFailed.
            ClientClosed, BackgroundTaskDied: The consumer ended.

        Cancellation: safe, nothing is changed.

        Example::

            start = await consumer.position(TopicPartition("flights", 0))
        """
        state = self._state(partition)
        return await self._engine.position(state, self._seconds(timeout))

    def positions(self) -> dict[TopicPartition, int | None]:
        """Offset of the next record of each assigned partition; None where it isn't known yet."""
        self._engine.polled_records.settle()
        return {state.topic_partition: state.position for state in self._engine.subscription}

    def lag(self, partition: TopicPartition) -> int | None:
        """Records of ``partition`` in the log that were not returned yet, as of the last fetch.

        None while unknown. With ``read_committed`` it counts up to the last stable offset.

        Raises:
            InvalidArgument: The partition isn't assigned.
        """
        return self._state(partition).lag(read_committed=self._engine.read_committed)

    # Reading

    async def poll(
        self, max_records: int | None = None, *, timeout: float | None = 1.0
    ) -> list[ConsumerRecord[K, V]]:
        """Wait for records and return them; their positions move in the same step.

        Returns as soon as there is any record, in order per partition, partitions in rotation;
        once compressed batches that are read in part hold an eighth of ``buffer_memory``, these
        are read to their ends before any other partition is. A large ``max_records`` is a bound,
        not a promise: what can be decoded in a few milliseconds is returned.

        Args:
            max_records: At most so many; ``max_poll_records`` (500) by default.
            timeout: Seconds to wait where there is nothing; 0 doesn't wait, None waits for ever.

        Returns:
            Records, at least one; an empty list after ``timeout``.

        Raises:
            NoPosition: An assigned partition has no position: seek, or set ``auto_offset_reset``.
                Raised once while others can be read, and again each ``api_timeout``; by each call
                where there is nothing else to read.
            OffsetOutOfRange: A position is outside of the log, and there is no reset policy: seek.
            CorruptRecord: A batch can't be read; names partition and offset, the position stays.
                Seek past it, or poll again to have it fetched again.
            CodecUnavailable: The package of a codec is not installed, or can't be loaded; the
                position stays, and it is raised until it can be.
            DeserializationFailed: A deserializer raised; the position stays at that record.
            LogTruncated: Records that were read are no longer in the log (unclean election).
            UnknownTopicOrPartition: An assigned partition doesn't exist, or a topic that is
                subscribed to.
            ConsumerStalled: A partition gets no responses, the group can't be joined, or a callback
                of a rebalance doesn't end, for long.
            MaxPollExceeded: The consumer left its group, as this call came too late; the next
                one joins again.
            FencedInstanceId, InconsistentGroupProtocol: It can't be a member of its group, now and
                in each later call.
            GroupAuthorizationFailed, GroupMaxSizeReached: The same for now; it is retried.
            Exception: The error that a callback of a rebalance raised, once.
            BrokerError: A broker refused for good, such as TopicAuthorizationFailed.
            BrokerUnreachable, ConnectionLost, RequestTimedOut, LeaderNotAvailable: A leader has
                been unreachable, or a partition without one, for long: see below.
            ClientClosed: Before ``start``, or the consumer was closed meanwhile.
            BackgroundTaskDied: An internal task failed: make a new consumer.

            An error concerns one partition and is raised once per occurrence; the others go on
            with the next poll. Short outages raise nothing. In a long one, errors whose
            ``retriable`` is True are raised, at most about once per ``request_timeout`` for each
            unreachable broker. Nothing is lost by them: log them and call again, and it continues
            where it was as soon as the broker is back.

        Cancellation: safe. A cancelled poll has taken nothing, so no record is lost; the
        same goes for ``asyncio.timeout`` around it.

        Example::

            for record in await consumer.poll(max_records=100, timeout=1.0):
                print(record.offset, record.value)
        """
        limit = self._config.max_poll_records
        if max_records is not None:
            limit = checked_limit(max_records)
        self._check_free()
        # The usual None needs no check.
        seconds = math.inf if timeout is None else call_timeout(timeout, optional=True)
        return await self._engine.poller.poll(limit, seconds)

    def __aiter__(self) -> AsyncIterator[ConsumerRecord[K, V]]:
        """Records one by one, as they come, until the consumer is closed.

        The position moves with each record that is returned, so leaving the loop and coming
        back, or calling ``poll``, continues with the next one. After a step that was cancelled
        the same iterator can go on.

        Raises:
            KafkaError: What ``poll`` raises, so also, in a long outage of a leader, errors whose
                ``retriable`` is True, again and again. An error ends the ``async for``; begin it
                again (or go on with the same iterator) and it continues with the next record.

        Example::

            while True:
                try:
                    async for record in consumer:
                        print(record.value)
                    break  # the consumer was closed
                except kclient.KafkaError as error:
                    if not error.retriable:
                        raise
                    print("still waiting:", error)
        """
        self._engine.core.check_usable()
        self._check_free()
        return records_of(self._engine.poller, converts=self._converts)

    if not TYPE_CHECKING:  # type checkers don't see it, so that they report the mistake

        def __iter__(self) -> Iterator[Any]:
            raise TypeError(f"`async for` is needed for {a_or_an(type(self).__name__)}")

    async def poll_arrow(
        self,
        *,
        columns: Iterable[str] | None = None,
        until: Mapping[TopicPartition, int] | None = None,
        timeout: float | None = 1.0,
    ) -> pyarrow.RecordBatch:
        """Wait for records and return them as columns, without an object per record.

        Deserializers don't apply. Everything else is as with ``poll``, and both can be mixed.

        Args:
            columns: Names out of topic, partition, offset, timestamp, timestamp_type, key, value
                and headers, in the order of the result. Others cost nothing. By default all but
                timestamp_type, which is 0 where the producer set the timestamp, 1 for the broker.
            until: By partition, the offset in front of which it ends, such as ``end_offsets``
                returns. One whose position is there, or behind, is paused. If all assigned ones
                are, an empty batch is returned without a wait. Gaps (transactions, compaction) are
                passed; partitions that are taken away meanwhile count as ended.
            timeout: Seconds to wait where there is nothing; 0 doesn't wait, None waits for ever.

        Returns:
            A ``pyarrow.RecordBatch`` with what is there and can be decoded in a few milliseconds,
            some 100,000 rows or 64 MiB at most; one with no rows after ``timeout``.

        Raises:
            InvalidArgument: There is no such column, or ``until`` has a partition that isn't
                assigned.
            InvalidConfig: pyarrow is not installed: ``pip install kclient[arrow]``.
            KafkaError: What ``poll`` raises, except DeserializationFailed. As there, retriable ones
                come again and again in a long outage of a leader; calling again continues.

        Cancellation: safe, as with ``poll``.

        Example::

            ends = await consumer.end_offsets(consumer.assignment)
            while (batch := await consumer.poll_arrow(until=ends, timeout=None)).num_rows:
                print(batch)
        """
        self._check_free()
        names = checked_columns(columns)
        ends = checked_ends(self._engine.subscription, until)
        seconds = call_timeout(timeout, optional=True)
        return await self._engine.poller.poll_arrow(seconds, names, ends)

    def _check_free(self) -> None:
        """Refuse to poll while ``run`` reads the records, and inside of a callback."""
        if self._engine.group is not None:
            self._engine.group.callbacks.check_outside("poll")
        self._engine.poller.check_free()

    # Handlers

    async def run(
        self,
        handler: Callable[[ConsumerRecord[K, V]], Awaitable[object]],
        *,
        concurrency: int = 64,
        ordering: Literal["partition", "key", "none"] = "partition",
        retries: Retries | None = None,
        retry_topics: Sequence[RetryTopic] = (),
        dead_letter_topic: str | None = None,
        producer: Sender | None = None,
        max_in_flight: int | None = None,
        drain_timeout: float = 30.0,
    ) -> None:
        """Call ``handler`` for each record, many at the same time, until the consumer is closed.

        **Order.** Records of one partition, or of one key, are handled one after the other, in
        the order of their offsets; with ``none`` in any. Keys are compared as they are stored,
        and records without a key stay in order within their partition.

        **Commits.** In a group the offset up to which *all* records of a partition are finished
        is committed: every ``auto_commit_interval``, before partitions are revoked, on close and
        when the run ends; with ``enable_auto_commit=False`` never by itself. Each record is
        handled at least once: those that were finished behind an unfinished one come again after
        a restart or a rebalance. A record is finished when its handler returns, or when it is
        acknowledged by a retry topic or the dead-letter topic.

        **Failures.** A handler that raises an exception is called again as ``retries`` configure,
        and only what may not overtake its record waits meanwhile. After that the record goes to
        the first of ``retry_topics``, from there to the second, and at last to the
        ``dead_letter_topic``, with its key, value and headers and with headers that describe the
        failure; see ``kclient.failure_of``. There it no longer holds up anything, so its order
        is lost. A run that reads a retry topic starts a record when its delay is over and pauses
        the partition until then: subscribe to these topics here or in another consumer, and give
        it the same ``retry_topics``. Without a topic to go to, the run ends with HandlerFailed. A
        record that can't be deserialized isn't retried; unless the consumer's ``bad_records``
        handles it, it goes to the dead-letter topic.

        **Slow handlers.** The group is polled for all the time. A partition whose part of
        ``max_in_flight`` is unfinished is paused, and a handler that takes longer than
        ``max_poll_interval`` is named in the log and in ``run_health()``; the member stays in the
        group. Code that blocks the event loop itself isn't covered: run it in a thread.

        **Ends.** When partitions are revoked, and when the consumer is closed, no handler of them
        is started, and running ones have ``drain_timeout`` to end, less where the group or
        ``close(timeout=...)`` has less; then they are cancelled, and their records count as not
        finished. A handler can't await ``close()`` or ``unsubscribe()``, which wait for it: have
        another task do so, or cancel that of the run. When partitions are lost, their handlers
        are cancelled at once. ``seek`` drops what was taken before, and running handlers go on.
        Polling is refused while this runs.

        Each call of the handler has context variables of its own. A CancelledError raised by a
        handler is a failure like others; KeyboardInterrupt and SystemExit end the run.

        Args:
            handler: An async function, called with a record as ``poll`` returns it. Its result
                doesn't matter.
            concurrency: Handlers that run at the same time at most.
            ordering: What must not be overtaken: ``"partition"``, ``"key"`` or ``"none"``.
            retries: ``Retries()`` by default: five calls, waits of 0.2 seconds doubling up to 10.
            retry_topics: Where a record goes that failed for good here, one after the other.
            dead_letter_topic: Where it goes at last; not among the topics of this consumer.
            producer: Sends it there: a ``Producer`` without serializers, which must be open for as
                long as this runs.
            max_in_flight: Records that are taken and not finished, or wait for an unfinished one
                before them; by default at least 1,024, and 16 for each handler and partition.
            drain_timeout: Seconds, see above.

        Returns:
            Nothing, once the consumer is closed.

        Raises:
            HandlerFailed: A record failed for good and has no topic to go to, or can't be sent
                there: ``offset`` and ``topic_partition`` name it, ``__cause__`` is what the handler
                raised, and the text also has why the record can't be sent. Other running handlers
                have ended, what is finished is committed, and the position is back at the first
                unfinished record: to go on, seek past it or fix the handler, and run again.
            InvalidArgument: An argument that can't work, a handler that isn't async or takes other
                arguments, or a run or a ``poll`` that is in progress.
            UnknownTopicOrPartition, TopicAuthorizationFailed: The producer can't send to one of
                these topics; found out before the first record is handled.
            KafkaError: What ``poll`` raises and a retry wouldn't fix, such as NoPosition; after
                handlers have ended, as above.
            ClientClosed, BackgroundTaskDied: The consumer can't be used.

        Cancellation: handlers are cancelled, what is finished is committed, and the positions go
        back to the first unfinished records, so that the consumer can be used on, also for
        another run.

        Example::

            async def handle(record):
                await database.save(record.key, record.value)

            async with (
                kclient.Producer("localhost:9092") as producer,
                kclient.Consumer("localhost:9092", "orders", group="billing") as consumer,
            ):
                await consumer.run(
                    handle, ordering="key", dead_letter_topic="orders.dead", producer=producer
                )
        """
        from kclient.consumer.handlers.run import EngineHost, Runner
        from kclient.consumer.handlers.run_options import checked_handler, checked_producer, planned

        checked_handler(handler)
        plan = planned(
            *(concurrency, ordering, retries, retry_topics, dead_letter_topic),
            *(max_in_flight, drain_timeout),
        )
        checked_producer(producer, plan)
        self._engine.core.check_usable()
        if self._engine.group is not None:
            self._engine.group.callbacks.check_outside("run")
        if self._engine.handlers is not None:
            raise InvalidArgument("run() is under way already", hint="one run per consumer")
        runner = Runner(EngineHost(self._engine), handler, plan, producer)
        with self._engine.handling(runner):
            await runner.run()

    def run_health(self) -> RunHealth | None:
        """How ``run`` is doing; None where it isn't in progress. Cheap, and free to call.

        Returns:
            A ``kclient.consumer.health.RunHealth``: running handlers, records in flight,
            failures, and in ``slow`` each handler that takes longer than ``max_poll_interval``.
        """
        return None if self._engine.handlers is None else self._engine.handlers.health()

    # Lookups

    async def partitions_for(
        self, topic: str, *, timeout: float | None = None
    ) -> Sequence[Partition]:
        """The partitions of ``topic``, assigned or not.

        Args:
            topic: Its name.
            timeout: Seconds; ``api_timeout`` by default.

        Returns:
            One value per partition in order, with leader, replicas and so on.

        Raises:
            UnknownTopicOrPartition: It doesn't exist.
            TopicAuthorizationFailed: It may not be seen.
            MetadataTimedOut: No response in time.

        Cancellation: safe.

        Example::

            indexes = [p.index for p in await consumer.partitions_for("flights")]
        """
        self._engine.core.check_usable()
        metadata, name = self._engine.core.metadata, check_topic_name(topic)
        return (await metadata.wait_for_topic(name, self._seconds(timeout))).partitions

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset still in the log, of each of ``partitions``, assigned or not.

        Args:
            partitions: Which ones.
            timeout: Seconds for all; ``api_timeout`` by default.

        Returns:
            Offset by partition. Positions don't change.

        Raises:
            UnknownTopicOrPartition: A topic doesn't exist, as brokers have reported for 5 seconds,
                or has no such partition, for 1 second.
            KafkaError: The error of the first partition that failed: TopicAuthorizationFailed,
                RequestTimedOut ...

        Cancellation: safe.

        Example::

            first = await consumer.beginning_offsets(consumer.assignment)
        """
        return await self._ends(partitions, OffsetSpec.EARLIEST, timeout)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset behind the last readable record, of each of ``partitions``.

        Args:
            partitions: Which ones, assigned or not.
            timeout: Seconds for all; ``api_timeout`` by default.

        Returns:
            Offset by partition: the high watermark, or with ``read_committed`` the last stable
            offset. Positions don't change.

        Raises:
            KafkaError: As with ``beginning_offsets``.

        Cancellation: safe.

        Example::

            last = await consumer.end_offsets(consumer.assignment)
        """
        return await self._ends(partitions, OffsetSpec.LATEST, timeout)

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int | datetime], *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition whose timestamp is not before the one given.

        Args:
            times: By partition, assigned or not: an aware datetime, or int milliseconds since the
                epoch as in ``record.timestamp``.
            timeout: Seconds for all; ``api_timeout`` by default.

        Returns:
            Offset and timestamp of that record by partition, which ``seek`` takes; None where all
            records are older. ``seek`` to the datetime itself goes to the end then.

        Raises:
            InvalidArgument: A time before 1970, or a datetime without a time zone.
            KafkaError: As with ``beginning_offsets``.

        Cancellation: safe.

        Example::

            hour_ago = datetime.now(UTC) - timedelta(hours=1)
            found = await consumer.offsets_for_times(dict.fromkeys(partitions, hour_ago))
        """
        found = await self._engine.look_up(checked_times(times), self._seconds(timeout))
        return {key: result if result.offset >= 0 else None for key, result in found.items()}

    async def _ends(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec, timeout: float | None
    ) -> dict[TopicPartition, int]:
        specs = dict.fromkeys(checked_partitions(partitions), spec)
        found = await self._engine.look_up(specs, self._seconds(timeout))
        return {key: result.offset for key, result in found.items()}

    def metrics(self) -> dict[str, float]:
        """All counters and gauges of this consumer by name, as ``package.what``."""
        self._engine.polled_records.settle()
        return self._engine.core.metrics()

    def health(self) -> ConsumerHealth:
        """How the consumer is now; cheap, and free to call at any time.

        Returns:
            A ``kclient.consumer.health.ConsumerHealth``: ``ok``, ``lag`` (None where it would be
            out of date), the last fetch, and a ``PartitionHealth`` for each assigned partition;
            and in ``client`` a ``kclient.cluster.core.Health`` with metadata, internal tasks,
            ``nodes`` (a ``NodeHealth`` per broker: last response, last failure) and ``connections``
            (a ``ConnectionHealth`` each).

        Raises:
            WrongContext: Called from another loop, thread or process than ``start``.

        Example::

            health = consumer.health()
            stalled = [name for name, part in health.partitions.items() if part.stalled]
        """
        from kclient.consumer.health import health_of

        self._engine.core.check_context()
        self._engine.polled_records.settle()
        return health_of(self._engine)

    # Internals

    def _state(self, partition: TopicPartition) -> PartitionState:
        """The state of an assigned partition, with no record taken beyond its position."""
        self._engine.core.check_usable()
        self._engine.polled_records.settle()
        return self._engine.subscription.require(checked_partition(partition))

    def _states(self, partitions: Sequence[TopicPartition]) -> list[PartitionState]:
        """The states of several partitions, or of all where none is named."""
        if partitions:
            return [self._state(partition) for partition in partitions]
        self._engine.core.check_usable()
        self._engine.polled_records.settle()
        return list(self._engine.subscription)

    def _group(self) -> GroupConsumer:
        self._engine.core.check_usable()
        if self._engine.group is None:
            raise refuse_group()
        return self._engine.group

    def _seconds(self, timeout: float | None) -> float:
        return self._config.api_timeout if timeout is None else call_timeout(timeout, optional=True)
