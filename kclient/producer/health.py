"""The state of a producer: the value that ``Producer.health()`` returns. No behaviour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kclient.frozen import Snapshot
from kclient.producer.transactions import TransactionState

if TYPE_CHECKING:
    from kclient.cluster.core import Health


@dataclass(frozen=True, slots=True)
class ProducerHealth(Snapshot):
    """A snapshot of a producer's state.

    Attributes:
        client: Connections, metadata and internal tasks.
        idempotent: Batches carry sequence numbers.
        producer_id: The producer id in use; None without idempotence or before there is one.
        producer_epoch: The newest epoch in use, likewise.
        buffered_bytes: Bytes of records that wait for their acknowledgement.
        parked_records: Records and ``enqueue`` calls that wait for memory or metadata.
        unsettled_partitions: Partitions with batches that wait or are in flight.
        requests_in_flight: Produce requests whose response is awaited.
        last_error: The latest failure of a batch or request as text; None if there was none, and
            once a batch of the partition concerned was delivered.
        last_error_age: Seconds since then; None without one.
        transaction: The name of its transaction's state, such as "IN_TRANSACTION"
            (docs/states.md); None without ``transactional_id``.
        ok: The client is ok, no record waits for memory or metadata, and the producer isn't fenced
            or otherwise unusable. It stays True while batches are retried or rejected, which
            ``last_error`` and ``unsettled_partitions`` show.
    """

    client: Health
    idempotent: bool
    producer_id: int | None
    producer_epoch: int | None
    buffered_bytes: int
    parked_records: int
    unsettled_partitions: int
    requests_in_flight: int
    last_error: str | None
    last_error_age: float | None
    transaction: str | None

    @property
    def ok(self) -> bool:
        """True if the client is ok, no record waits, and transactions are possible, if it has any.

        An idle producer sends no requests, so it is ok until a record or a refresh of metadata
        (after ``metadata_max_age`` seconds at most) finds the brokers unreachable.
        """
        usable = self.transaction != TransactionState.FATAL_ERROR.name
        return self.client.ok and self.parked_records == 0 and usable
