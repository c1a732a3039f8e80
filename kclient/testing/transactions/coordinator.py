"""``TransactionCoordinator``: a broker's transactional ids, in shards of ``__transaction_state``.

Made by ``Broker`` and called by the handlers of the transaction APIs. A change takes effect once
it is committed in the log; then its request is answered. The end of a transaction is answered when
its decision is in the log: the markers are written afterwards, and until they are, other requests
get CONCURRENT_TRANSACTIONS. A new coordinator writes the markers that the one before didn't.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from kclient.error_codes import ErrorCode
from kclient.testing.broker_configs import TransactionSettings
from kclient.testing.coordinator import Coordinator, code_for_client
from kclient.testing.events import TransactionChanged
from kclient.testing.image import TRANSACTION_TOPIC
from kclient.testing.internal_topic import InternalTopic
from kclient.testing.log_state import NO_IDENTITY, ProducerIdentity
from kclient.testing.responses import ApiError
from kclient.testing.timers import Moment
from kclient.testing.transactions import metadata as rules
from kclient.testing.transactions.markers import MarkerWriter
from kclient.testing.transactions.metadata import (
    BUMPS_EPOCH,
    EndRequest,
    Partition,
    TransactionEntry,
    TransactionMetadata,
    TransactionState,
)
from kclient.testing.transactions.records import decode_batches, encode_batch

if TYPE_CHECKING:
    from kclient.testing.broker import Broker

IdentityReply: TypeAlias = Callable[[ErrorCode, ProducerIdentity], None]
CodeReply: TypeAlias = Callable[[ErrorCode], None]
_RETRY_SECONDS = 0.05
"""Delay before the last state of a transaction is written again."""
_ABORT_RETRY_SECONDS = 1.0
"""Delay before a late transaction is aborted again, as that could not be written."""


class TransactionCoordinator(Coordinator["TransactionShard"]):
    """Transactional ids of one broker.

    Attributes:
        settings: From the broker's configuration.
        markers: Writes the markers.
    """

    def __init__(self, broker: Broker, settings: TransactionSettings) -> None:
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(settings.min_insync_replicas),
            "segment.bytes": str(settings.segment_bytes),
            "unclean.leader.election.enable": "false",
        }
        super().__init__(
            broker,
            InternalTopic(
                broker, TRANSACTION_TOPIC, settings.partitions, settings.replication_factor, configs
            ),
        )
        self.settings = settings
        self.markers = MarkerWriter(broker, self)

    def _new_shard(self, index: int, epoch: int) -> TransactionShard:
        return TransactionShard(self, index, epoch)

    # Called by shards

    @property
    def version(self) -> int:
        """The version of the transaction protocol that the cluster speaks."""
        return self._broker.image.transaction_version

    def new_producer_id(self) -> int:
        """A producer id that is not in use."""
        return self._broker.new_producer_id()

    def notify(self, metadata: TransactionMetadata) -> None:
        """A state is in the log: add an event."""
        self._broker.control_plane.quorum.notify(
            TransactionChanged(
                metadata.transactional_id,
                metadata.producer_id,
                metadata.epoch,
                metadata.state.shown,
            )
        )


class TransactionShard:
    """Transactional ids of one partition.

    Args:
        host: The broker's coordinator.
        index: Of the partition.
        epoch: The leader epoch that it was made in, which markers carry.

    Attributes:
        entries: By transactional id.
    """

    def __init__(self, host: TransactionCoordinator, index: int, epoch: int) -> None:
        self.epoch = epoch
        self.entries: dict[str, TransactionEntry] = {}
        self._host = host
        self._index = index
        self._next_check_ms = 0

    # The log

    def load(self, batches: Iterable[bytes | bytearray], moment: Moment) -> None:
        """Load the ids from the log, and write the markers that are missing."""
        for transactional_id, metadata in decode_batches(batches):
            if metadata is None:
                self.entries.pop(transactional_id, None)
            else:
                self.entries[transactional_id] = TransactionEntry(metadata)
        self._next_check_ms = moment.wall_ms + self._host.settings.expiry_check_ms
        for entry in self.entries.values():
            state = entry.metadata.state
            if state in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT):
                entry.unmarked = set(entry.metadata.partitions)
                self._write_markers(entry, moment)
            else:
                self._watch(entry, moment)

    def unload(self, moment: Moment) -> None:
        """Drop all ids; writes that wait fail with NOT_COORDINATOR, by their callbacks."""
        for transactional_id in self.entries:
            self._host.deadlines.cancel(self._key(transactional_id))
        self.entries.clear()

    def coordinates(self, entry: TransactionEntry) -> bool:
        """Whether it still has that entry."""
        return self.entries.get(entry.metadata.transactional_id) is entry

    def _write(
        self,
        entry: TransactionEntry,
        following: TransactionMetadata,
        moment: Moment,
        done: Callable[[ErrorCode, Moment], None],
    ) -> None:
        def ended(code: ErrorCode, then: Moment) -> None:
            if not self.coordinates(entry):
                done(ErrorCode.NOT_COORDINATOR, then)
                return
            if code is ErrorCode.NONE:
                entry.complete(following)
                self._host.notify(following)
            else:
                entry.reject()
            self._watch(entry, then)
            done(code_for_client(code), then)

        change = (following.transactional_id, following)
        batch = encode_batch([change], moment.wall_ms, min(self._host.version, 1))
        self._host.append(self._index, batch, ended, following.timeout_ms / 1000)

    # Requests

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdentity | None,
        reply: IdentityReply,
        moment: Moment,
    ) -> None:
        """InitProducerId: the next identity. Raises ApiError."""
        self._tidy(moment)
        if not 0 < timeout_ms <= self._host.settings.max_timeout_ms:
            raise ApiError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        entry = self.entries.get(transactional_id)
        if entry is None:
            fresh = TransactionMetadata(
                transactional_id, self._host.new_producer_id(), timeout_ms, moment.wall_ms
            )
            entry = self.entries[transactional_id] = TransactionEntry(fresh)
        following = rules.init_producer_id(
            entry, timeout_ms, expected, self._host.new_producer_id, moment.wall_ms
        )
        if following.state is TransactionState.PREPARE_EPOCH_FENCE:
            self._abort(entry, following, moment, lambda code: reply(_retry(code), NO_IDENTITY))
            return

        def done(code: ErrorCode, _: Moment) -> None:
            reply(code, following.identity if code is ErrorCode.NONE else NO_IDENTITY)

        self._write(entry, following, moment, done)

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Iterable[Partition],
        client_version: int,
        reply: CodeReply,
        moment: Moment,
    ) -> None:
        """AddPartitionsToTxn or AddOffsetsToTxn: one code for all. Raises ApiError."""
        self._tidy(moment)
        entry = self._entry(transactional_id)
        following = rules.add_partitions(
            entry, producer, partitions, client_version, moment.wall_ms
        )
        if following is None:
            reply(ErrorCode.NONE)
        else:
            self._write(entry, following, moment, lambda code, _: reply(code))

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Iterable[Partition]
    ) -> dict[Partition, ErrorCode]:
        """AddPartitionsToTxn that only verifies: a code per partition. Raises ApiError."""
        return rules.verify_partitions(self._entry(transactional_id), producer, partitions)

    def end(
        self, transactional_id: str, request: EndRequest, reply: IdentityReply, moment: Moment
    ) -> None:
        """EndTxn: in version 2 with the identity of the next transaction. Raises ApiError."""
        self._tidy(moment)
        self._end(self._entry(transactional_id), request, reply, moment)

    def _entry(self, transactional_id: str) -> TransactionEntry:
        if not transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        entry = self.entries.get(transactional_id)
        if entry is None:
            raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return entry

    # The end of a transaction

    def _end(
        self, entry: TransactionEntry, request: EndRequest, reply: IdentityReply, moment: Moment
    ) -> None:
        bumps = request.client_version >= BUMPS_EPOCH
        fences = entry.pending is TransactionState.PREPARE_EPOCH_FENCE
        following = rules.end(entry, request, self._host.new_producer_id, moment.wall_ms)
        if following is None:
            reply(ErrorCode.NONE, entry.metadata.identity if bumps else NO_IDENTITY)
            return

        def done(code: ErrorCode, then: Moment) -> None:
            if code is not ErrorCode.NONE:
                entry.has_failed_fence |= fences and not bumps
                reply(code, NO_IDENTITY)
                return
            completing = self._write_markers(entry, then)
            reply(ErrorCode.NONE, completing.identity if bumps else NO_IDENTITY)

        self._write(entry, following, moment, done)

    def _write_markers(self, entry: TransactionEntry, moment: Moment) -> TransactionMetadata:
        completing = rules.complete(entry, moment.wall_ms)
        done = partial(self._marked, entry, completing)
        self._host.markers.write(self, entry, done, moment)
        return completing

    def _marked(
        self, entry: TransactionEntry, completing: TransactionMetadata, moment: Moment
    ) -> None:
        """All markers are written: write the last state, until that succeeds."""

        def done(code: ErrorCode, then: Moment) -> None:
            if code is ErrorCode.COORDINATOR_NOT_AVAILABLE:
                entry.pending = completing.state
                again = partial(self._marked, entry, completing)
                at = then.now + _RETRY_SECONDS
                self._host.deadlines.set(self._key(completing.transactional_id), at, again)

        if self.coordinates(entry):
            self._write(entry, completing, moment, done)

    def _abort(
        self,
        entry: TransactionEntry,
        fenced: TransactionMetadata,
        moment: Moment,
        reply: CodeReply,
    ) -> None:
        """Abort an open transaction whose producer is being fenced."""
        request = EndRequest(fenced.identity, False, self._host.version, from_client=False)
        self._end(entry, request, lambda code, _: reply(code), moment)

    # Time

    def _key(self, transactional_id: str) -> tuple[str, ...]:
        return ("transaction", str(self._index), transactional_id)

    def _watch(self, entry: TransactionEntry, moment: Moment) -> None:
        """Set the deadline of an open transaction.

        Kafka looks for late ones every ten seconds; here they are aborted when they are due.
        """
        key = self._key(entry.metadata.transactional_id)
        due_ms = rules.times_out_ms(entry.metadata)
        if due_ms is None:
            self._host.deadlines.cancel(key)
            return
        at = moment.now + max(0, due_ms + 1 - moment.wall_ms) / 1000
        self._host.deadlines.set(key, at, partial(self._time_out, entry))

    def _time_out(self, entry: TransactionEntry, moment: Moment) -> None:
        if not self.coordinates(entry) or entry.pending is not None:
            return  # in the second case it is watched again, once that is written

        def aborted(code: ErrorCode) -> None:
            if code is not ErrorCode.NONE and self.coordinates(entry):
                at = moment.now + _ABORT_RETRY_SECONDS
                self._host.deadlines.set(self._key(name), at, partial(self._time_out, entry))

        name = entry.metadata.transactional_id
        self._abort(entry, rules.fence(entry), moment, aborted)

    def _tidy(self, moment: Moment) -> None:
        """Forget ids that were not used for ``transactional.id.expiration.ms``.

        Kafka looks for them every hour; here that waits for the next request, so that idle ids
        cost nothing.
        """
        if moment.wall_ms < self._next_check_ms:
            return
        settings = self._host.settings
        self._next_check_ms = moment.wall_ms + settings.expiry_check_ms
        expired = {
            transactional_id: entry
            for transactional_id, entry in self.entries.items()
            if rules.has_expired(entry, settings.id_expiration_ms, moment.wall_ms)
        }
        if not expired:
            return
        for entry in expired.values():
            entry.pending = TransactionState.DEAD

        def done(code: ErrorCode, _: Moment) -> None:
            for transactional_id, entry in expired.items():
                if code is not ErrorCode.NONE:
                    entry.reject()
                elif self.coordinates(entry):
                    del self.entries[transactional_id]

        batch = encode_batch(((one, None) for one in expired), moment.wall_ms, 0)
        self._host.append(self._index, batch, done)


def _retry(code: ErrorCode) -> ErrorCode:
    """The response to a producer whose predecessor's transaction is being aborted."""
    return ErrorCode.CONCURRENT_TRANSACTIONS if code is ErrorCode.NONE else code
