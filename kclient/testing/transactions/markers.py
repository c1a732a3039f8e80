"""``MarkerWriter``: sends the markers of ended transactions to the leaders of their partitions.

One WriteTxnMarkers request per transaction and leader, over the brokers' own connections. Leaders
that don't respond, or not with success, get it again, or the next leader does: a transaction ends
everywhere once its end was decided. Partitions of deleted topics need no marker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kclient.testing.image import NO_LEADER
from kclient.testing.timers import Moment
from kclient.testing.transactions.metadata import (
    Partition,
    TransactionEntry,
    TransactionState,
    by_topic,
)

if TYPE_CHECKING:
    from kclient.testing.broker import Broker
    from kclient.testing.transactions.coordinator import TransactionCoordinator, TransactionShard

VERSION = 2
_RETRY_SECONDS = 0.05
_SUPERSEDED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
"""Codes after which there is nothing to write any more: a later producer or coordinator did."""


@dataclass(eq=False, repr=False)
class _Ending:
    """A transaction whose markers are being written."""

    shard: TransactionShard
    entry: TransactionEntry
    done: Callable[[Moment], None]
    in_flight: set[Partition] = field(default_factory=set)
    is_over: bool = False

    @property
    def key(self) -> tuple[str, ...]:
        """Of the deadline for the next attempt."""
        return ("markers", str(self.shard.epoch), self.entry.metadata.transactional_id)


class MarkerWriter:
    """The markers that one coordinator writes."""

    def __init__(self, broker: Broker, coordinator: TransactionCoordinator) -> None:
        self._broker = broker
        self._coordinator = coordinator

    def write(
        self,
        shard: TransactionShard,
        entry: TransactionEntry,
        done: Callable[[Moment], None],
        moment: Moment,
    ) -> None:
        """Write the markers of ``entry.unmarked``, then call ``done``, unless the shard is lost."""
        self._send(_Ending(shard, entry, done), moment)

    def _send(self, ending: _Ending, moment: Moment) -> None:
        entry = ending.entry
        if ending.is_over or not ending.shard.coordinates(entry):
            return
        by_leader: dict[int, list[Partition]] = {}
        for one in sorted(entry.unmarked - ending.in_flight):
            leader = self._leader_of(one)
            if leader is None:
                entry.unmarked.discard(one)
            elif leader != NO_LEADER:
                by_leader.setdefault(leader, []).append(one)
        for leader, partitions in by_leader.items():
            ending.in_flight |= set(partitions)
            self._broker.peers.call(
                leader,
                self._request(ending, partitions),
                VERSION,
                WriteTxnMarkersResponse,
                partial(self._answered, ending, partitions),
            )
        self._look(ending, moment)

    def _leader_of(self, partition: Partition) -> int | None:
        """The leader, NO_LEADER if it is offline; None if the partition doesn't exist any more."""
        facts = self._broker.image.partition(*partition)
        return None if facts is None else facts.leader

    def _request(self, ending: _Ending, partitions: Iterable[Partition]) -> WriteTxnMarkersRequest:
        metadata = ending.entry.metadata
        marker = WritableTxnMarker(
            metadata.producer_id,
            metadata.epoch,
            metadata.state is TransactionState.PREPARE_COMMIT,
            [WritableTxnMarkerTopic(*one) for one in by_topic(partitions).items()],
            ending.shard.epoch,
            metadata.client_version,
        )
        return WriteTxnMarkersRequest([marker])

    def _answered(
        self,
        ending: _Ending,
        partitions: list[Partition],
        response: WriteTxnMarkersResponse | None,
    ) -> None:
        """A leader responded, or with None did not."""
        ending.in_flight -= set(partitions)
        codes = {} if response is None else dict(_codes(response))
        for one in partitions:
            code = codes.get(one)
            if code == ErrorCode.NONE:
                ending.entry.unmarked.discard(one)
            elif code in _SUPERSEDED:
                ending.is_over = True
        self._coordinator.run(lambda moment: self._look(ending, moment))

    def _look(self, ending: _Ending, moment: Moment) -> None:
        """Go on if all markers are written, or schedule the next attempt."""
        entry, deadlines = ending.entry, self._coordinator.deadlines
        if ending.is_over or not ending.shard.coordinates(entry):
            deadlines.cancel(ending.key)
        elif not entry.unmarked:
            ending.is_over = True
            deadlines.cancel(ending.key)
            ending.done(moment)
        elif entry.unmarked - ending.in_flight:
            at = moment.now + _RETRY_SECONDS
            deadlines.set(ending.key, at, partial(self._send, ending))


def _codes(response: WriteTxnMarkersResponse) -> Iterator[tuple[Partition, int]]:
    for marker in response.markers:
        for topic in marker.topics:
            for part in topic.partitions:
                yield (topic.name, part.partition_index), part.error_code
