"""``Looker`` makes the snapshot that ``Producer.health()`` gives, and tells the gauges.

It only looks at the parts of the room and must change nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient.producer.idempotence import IdentityState

if TYPE_CHECKING:
    from kclient.cluster.core import ClientCore
    from kclient.producer.accumulator import Accumulator
    from kclient.producer.health import ProducerHealth
    from kclient.producer.intake import Intake
    from kclient.producer.sender import Sender
    from kclient.producer.settlement import Settlement


class Looker:
    """Knows where everything is that a snapshot tells."""

    def __init__(
        self,
        core: ClientCore,
        accumulator: Accumulator,
        intake: Intake,
        settlement: Settlement,
        sender: Sender,
    ) -> None:
        self._core = core
        self._accumulator = accumulator
        self._intake = intake
        self._settlement = settlement
        self._sender = sender
        gauge = core.counters.gauge
        gauge("producer.buffered_bytes", lambda: float(accumulator.used))
        gauge("producer.parked_records", lambda: float(intake.lot.total))
        gauge("producer.requests_in_flight", lambda: float(self._requests()))

    def health(self) -> ProducerHealth:
        """How the producer is now."""
        from kclient.producer.health import ProducerHealth

        idempotent = self._accumulator.idempotent
        owner = self._settlement.identity
        identity = owner.current if idempotent else None
        known = identity is not None and owner.state is not IdentityState.REFUSED
        known = known and identity is not None and identity.producer_id >= 0
        error, failed_at = self._settlement.last_error, self._settlement.last_error_at
        return ProducerHealth(
            client=self._core.health(),
            idempotent=idempotent,
            producer_id=identity.producer_id if known and identity else None,
            producer_epoch=identity.epoch if known and identity else None,
            buffered_bytes=self._accumulator.used,
            parked_records=self._intake.lot.total,
            unsettled_partitions=len(self._accumulator.busy),
            requests_in_flight=self._requests(),
            last_error=None if error is None else str(error),
            last_error_age=None if error is None else self._core.clock.now() - failed_at,
        )

    def _requests(self) -> int:
        return sum(self._sender.in_flight.values())
