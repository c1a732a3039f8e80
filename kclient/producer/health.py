"""How a producer is: the value that ``Producer.health()`` gives. No behaviour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kclient.frozen import Snapshot

if TYPE_CHECKING:
    from kclient.cluster.core import Health


@dataclass(frozen=True, slots=True)
class ProducerHealth(Snapshot):
    """How a producer is.

    Attributes:
        client: Connections, metadata and internal tasks.
        idempotent: Batches are numbered.
        producer_id: Who numbers them; None without idempotence or before there is one.
        producer_epoch: The newest epoch in use, likewise.
        buffered_bytes: Bytes of records that wait for their acknowledgement.
        parked_records: Records and ``enqueue`` calls that wait for room or metadata.
        unsettled_partitions: Partitions with batches that wait or are under way.
        requests_in_flight: Produce requests whose answer is awaited.
        last_error: The latest failure of a batch or request as text; None if there was none, and
            once the partition that it concerned has had a batch delivered.
        last_error_age: Seconds since then; None without one.
        ok: The client is ok, and nothing waits for room or metadata. It stays True while batches
            are tried again or refused, which ``last_error`` shows, with ``unsettled_partitions``.
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

    @property
    def ok(self) -> bool:
        """The client is ok, and nothing waits for room or metadata.

        An idle producer asks no broker, so it is ok until a record or a refresh of metadata (after
        ``metadata_max_age`` seconds at most) finds them away.
        """
        return self.client.ok and self.parked_records == 0
